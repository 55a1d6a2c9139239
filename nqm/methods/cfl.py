"""CFL: FedAvg whose clients also descend on what they remember of earlier rounds. CL is CFL with one client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..check import fail
from ..federation import Federation
from ..schedule import Schedule, Table, Weights, as_weights, for_rounds
from .fedavg import FedAvg

NAMED = {"current": Schedule.current_only, "uniform": Schedule.uniform}


@dataclass(frozen=True)
class CFL(FedAvg):
    """Algorithm 2 of `cfl`: the gradient is p_t grad f_t + sum_{tau<t} p_tau (grad f_tau + information loss).

    weights: ``"uniform"``, ``"current"``, a `Schedule` (those of Lemma B.4 and Theorem 4.9 come from
        ``theory.weights``), or a table of weights whose row t has t numbers that sum to one.
    """

    weights: Any = "uniform"
    name: ClassVar[str] = "cfl"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.weights, str):
            if self.weights not in NAMED:
                allowed = "must be " + ", ".join(NAMED) + ", a schedule (see theory.weights) or a list of rows"
                raise fail("method.weights", self.weights, allowed)
        else:
            object.__setattr__(self, "weights", as_weights(self.weights))

    def weights_for(self, rounds: int) -> Weights:
        if isinstance(self.weights, str):
            return NAMED[self.weights](rounds)
        return for_rounds(self.weights, rounds)

    def config(self) -> dict[str, Any]:
        fields = super().config()
        if isinstance(self.weights, (Schedule, Table)):
            fields["weights"] = self.weights.name
            fields["weights_digest"] = self.weights.digest
        return fields


@dataclass(frozen=True)
class CL(CFL):
    """Continual learning on one machine: CFL with a single client."""

    name: ClassVar[str] = "cl"

    def check_federation(self, federation: Federation) -> None:
        if federation.clients != 1:
            raise fail("federation.clients", federation.clients, "must be 1 for method.name = 'cl'")
