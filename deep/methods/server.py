"""Server optimisers: FedAvgM (Hsu et al. 2019) and FedOpt (Reddi et al. 2021, Algorithm 2).

FedOpt has no bias correction and starts its second moment at tau^2, as Reddi et al. do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nqm.check import choice

from ..network import Net
from .base import State
from .fedavg import FedAvg


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """v <- momentum v + update;  w <- w + server_lr v. With momentum = 0 it is FedAvg."""

    momentum: float = 0.9
    name: ClassVar[str] = "fedavgm"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("momentum", 0.0, 1.0, open_high=True)

    def begin(self, net: Net, w: Tensor) -> State:
        return {"velocity": torch.zeros_like(w)}

    def server_step(self, w: Tensor, update: Tensor, state: State) -> tuple[Tensor, State]:
        v = self.momentum * state["velocity"] + update
        return w + self.server_lr * v, state | {"velocity": v}


@dataclass(frozen=True)
class FedOpt(FedAvg):
    """m <- beta1 m + (1 - beta1) update;  w <- w + server_lr m / (sqrt(v) + tau), with v as ``rule`` says."""

    server_lr: float = 0.1
    rule: str = "adam"
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    name: ClassVar[str] = "fedopt"

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("method.rule", self.rule, ("adam", "yogi", "adagrad"))
        self.check("beta1", 0.0, 1.0, open_high=True)
        self.check("beta2", 0.0, 1.0, open_high=True)
        self.check("tau", 0.0, open_low=True)

    def begin(self, net: Net, w: Tensor) -> State:
        return {"m": torch.zeros_like(w), "v": torch.full_like(w, self.tau**2)}

    def server_step(self, w: Tensor, update: Tensor, state: State) -> tuple[Tensor, State]:
        m = self.beta1 * state["m"] + (1 - self.beta1) * update
        v, square = state["v"], update.square()
        if self.rule == "adagrad":
            v = v + square
        elif self.rule == "yogi":
            v = v - (1 - self.beta2) * square * torch.sign(v - square)
        else:
            v = self.beta2 * v + (1 - self.beta2) * square
        return w + self.server_lr * m / (v.sqrt() + self.tau), state | {"m": m, "v": v}
