"""What a deep method is: a frozen dataclass whose two steps read like its pseudocode, as in `nqm.methods`.

Besides ``local_step`` and ``server_step`` a method may say where clients begin, what they are sent and what is kept of
a round. All of it is optional; FedAvg needs two lines. State is a plain dict of tensors, numbers and dicts of these, so
that a checkpoint can hold it; a method returns a new one and never changes the one it was given.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from nqm.check import number

from ..local import Carried, Cohort, Examples, Gradient, Here
from ..network import Batch, Net

State = dict[str, Any]

METHODS: dict[str, type[Method]] = {}
"""Every method by name."""


@dataclass(frozen=True)
class Method:
    """A federated method. ``lr`` is the local learning rate. w, start and updates are flat vectors."""

    lr: float
    name: ClassVar[str] = ""
    reshuffle: ClassVar[bool] = True
    """Whether every local epoch takes its minibatches in a new order, or cycles through one partition."""
    refreshes_norm: ClassVar[bool] = False
    """Whether a client's batch statistics are taken anew from its real data after its local steps."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        METHODS[cls.name] = cls

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", number("method.lr", self.lr, 0.0, open_low=True))

    def check(self, field: str, low: float, high: float = float("inf"), **bounds: bool) -> None:
        """Make a field a finite float within its bounds."""
        object.__setattr__(self, field, number(f"method.{field}", getattr(self, field), low, high, **bounds))

    # Once, and around every task

    def begin(self, net: Net, w: Tensor) -> State:
        return {}

    def begin_task(self, state: State, w: Tensor, task: int) -> State:
        return state

    def end_task(self, state: State, w: Tensor, cohort: Cohort) -> State:
        """``cohort`` is that of the task's last round."""
        return state

    # A round, in this order

    @property
    def replay_batch(self) -> int:
        """The size of the minibatch that every local step draws from memory; 0: none."""
        return 0

    def data(self, state: State, client: int, shard: Examples, key: int) -> Examples:
        """What a client trains on; ``key`` names its current local data set."""
        return shard

    def memory(self, state: State, client: int, key: int) -> Examples | None:
        """What a client remembers beside its current data set."""
        return None

    def start(self, w: Tensor, state: State) -> Tensor:
        """Where clients begin."""
        return w

    def prepare(self, cohort: Cohort, start: Tensor, state: State) -> tuple[Carried, Carried]:
        """What every client carries through its local steps (first dimension: clients), and what all are sent."""
        return {}, {}

    def objective(self, net: Net, w: Tensor, batch: Batch, here: Here) -> Tensor:
        """What ``gradient`` differentiates."""
        return net.loss(w, batch)

    def local_step(self, w: Tensor, start: Tensor, gradient: Gradient, here: Here) -> Tensor:
        raise NotImplementedError

    def collect(self, cohort: Cohort, start: Tensor, ends: Tensor, own: Carried, state: State) -> tuple[Tensor, State]:
        """The average update of the clients, and the state after what they sent."""
        return mean(cohort.share, ends - start), state

    def server_step(self, w: Tensor, update: Tensor, state: State) -> tuple[Tensor, State]:
        return w + update, state

    def diagnostics(self, state: State) -> dict[str, float]:
        """Numbers of the round just done that are worth a curve."""
        return {}

    def with_lr(self, lr: float) -> Method:
        return dataclasses.replace(self, lr=lr)

    def config(self) -> dict[str, Any]:
        """Name and fields, as a file would give them."""
        return {"name": self.name} | {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


def mean(share: Tensor, rows: Tensor) -> Tensor:
    """sum_i p_i rows_i."""
    return torch.tensordot(share.to(rows.dtype), rows, 1)
