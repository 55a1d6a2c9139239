"""Corrections of client drift by what others do: SCAFFOLD and MimeLite (Karimireddy et al. 2020).

SCAFFOLD takes option II for the control variates, MimeLite plain momentum as its server statistic; `cfl` (C.1.1) calls
its weight gamma and sets it to 0.01.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..local import Carried, Cohort, Gradient, Here
from ..network import Net
from .base import State, mean
from .fedavg import FedAvg


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """Every client steps along g - c_i + c; c_i is its own average gradient when last seen, c the average of all."""

    name: ClassVar[str] = "scaffold"

    def begin(self, net: Net, w: Tensor) -> State:
        return {"control": torch.zeros_like(w), "controls": {}}

    def prepare(self, cohort: Cohort, start: Tensor, state: State) -> tuple[Carried, Carried]:
        zero = torch.zeros_like(start)
        own = torch.stack([state["controls"].get(client, zero) for client in cohort.clients])
        return {"control": own}, {"control": state["control"]}

    def local_step(self, w: Tensor, start: Tensor, gradient: Gradient, here: Here) -> Tensor:
        return w - self.lr * (gradient(w) - here.own["control"] + here.shared["control"])

    def collect(self, cohort: Cohort, start: Tensor, ends: Tensor, own: Carried, state: State) -> tuple[Tensor, State]:
        steps = torch.tensor([float(cohort.steps(i)) for i in range(len(ends))]).to(ends)
        moved = (start - ends) / (self.lr * steps)[:, None]
        new = own["control"] - state["control"] + moved  # option II
        change = (new - own["control"]).mean(0) * (len(ends) / cohort.population)
        controls = state["controls"] | dict(zip(cohort.clients, new.unbind(), strict=True))
        state = state | {"control": state["control"] + change, "controls": controls}
        return mean(cohort.share, ends - start), state


@dataclass(frozen=True)
class MimeLite(FedAvg):
    """Local steps with the server's momentum, which only full gradients at the server's point change."""

    momentum: float = 0.01
    name: ClassVar[str] = "mimelite"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("momentum", 0.0, 1.0, open_high=True)

    def begin(self, net: Net, w: Tensor) -> State:
        return {"m": torch.zeros_like(w)}

    def prepare(self, cohort: Cohort, start: Tensor, state: State) -> tuple[Carried, Carried]:
        return {}, {"m": state["m"]}

    def local_step(self, w: Tensor, start: Tensor, gradient: Gradient, here: Here) -> Tensor:
        return w - self.lr * ((1 - self.momentum) * gradient(w) + self.momentum * here.shared["m"])

    def collect(self, cohort: Cohort, start: Tensor, ends: Tensor, own: Carried, state: State) -> tuple[Tensor, State]:
        full = mean(cohort.share, cohort.gradients(start))
        m = (1 - self.momentum) * full + self.momentum * state["m"]
        return mean(cohort.share, ends - start), state | {"m": m}
