"""SPECIAL: a proximal step of the server towards the model of the previous task (Eq. (6) of `special`), and
SPECIAL-C, where every local step does it (its Algorithm 2).

The global rate is server_lr / i in task i = 1, 2, ... (Section 5); ``decay = False`` keeps it, so that prox = 0 is
FedAvg. Algorithm 2 prints a sum over all M clients divided by M; under partial participation we average those that took
part, as Algorithm 1 does. SPECIAL-C's mapping has 1/2 before its first square and (5) has none: its pull is 2 prox.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from nqm.check import flag

from ..local import Carried, Cohort, Gradient, Here
from .base import State
from .fedavg import FedAvg


@dataclass(frozen=True)
class Special(FedAvg):
    """prox: lambda of (6), from the second task on. decay: divide ``server_lr`` by the task's number."""

    prox: float = 0.25
    decay: bool = True
    name: ClassVar[str] = "special"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("prox", 0.0)
        flag("method.decay", self.decay)

    def begin_task(self, state: State, w: Tensor, task: int) -> State:
        return state | {"anchor": w, "task": task}

    def rate(self, state: State) -> float:
        return self.server_lr / (state["task"] + 1) if self.decay else self.server_lr

    def server_step(self, w: Tensor, update: Tensor, state: State) -> tuple[Tensor, State]:
        middle = w + self.rate(state) * update
        if state["task"] == 0:
            return middle, state
        return (middle + self.prox * state["anchor"]) / (1 + self.prox), state  # (6)


@dataclass(frozen=True)
class SpecialC(Special):
    """prox: lambda of the map that ends every local step, from the second task on."""

    prox: float = 0.2
    name: ClassVar[str] = "special-c"

    def prepare(self, cohort: Cohort, start: Tensor, state: State) -> tuple[Carried, Carried]:
        return {}, {"anchor": state["anchor"]} if state["task"] > 0 else {}

    def local_step(self, w: Tensor, start: Tensor, gradient: Gradient, here: Here) -> Tensor:
        x = w - self.lr * gradient(w)
        if "anchor" not in here.shared:
            return x
        return (x + 2 * self.prox * here.shared["anchor"]) / (1 + 2 * self.prox)  # Algorithm 2, line 10

    def server_step(self, w: Tensor, update: Tensor, state: State) -> tuple[Tensor, State]:
        return w + self.rate(state) * update, state
