"""EWC-FL (Kirkpatrick et al. 2017 under FedAvg, as in `cflag`): a quadratic penalty weighted by Fisher information.

After each task the clients of its last round send their diagonal Fisher information at the task's final model; every
task keeps its own penalty. `cflag` does not give its weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..curvature import fisher
from ..local import Carried, Cohort, Gradient, Here
from ..network import Net
from .base import State, mean
from .fedavg import FedAvg


@dataclass(frozen=True)
class EWC(FedAvg):
    """FedAvg on f_i(w) + penalty/2 sum_tasks sum_k F_k (w_k - v_k)^2, v the model after the task."""

    penalty: float = 10.0
    name: ClassVar[str] = "ewc"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("penalty", 0.0)

    def begin(self, net: Net, w: Tensor) -> State:
        return {"fisher": torch.zeros_like(w), "pull": torch.zeros_like(w)}

    def end_task(self, state: State, w: Tensor, cohort: Cohort) -> State:
        F = mean(cohort.share, torch.stack([fisher(cohort.net, w, s) for s in cohort.shards]))
        return {"fisher": state["fisher"] + F, "pull": state["pull"] + F * w}

    def prepare(self, cohort: Cohort, start: Tensor, state: State) -> tuple[Carried, Carried]:
        return {}, state

    def local_step(self, w: Tensor, start: Tensor, gradient: Gradient, here: Here) -> Tensor:
        back = here.shared["fisher"] * w - here.shared["pull"]  # sum_tasks F (w - v)
        return w - self.lr * (gradient(w) + self.penalty * back)
