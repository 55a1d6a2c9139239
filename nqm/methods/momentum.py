"""Servers with a memory of past updates: FedAvgM, FedOpt (Adam), and MimeLite, whose clients apply the momentum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..check import number
from ..federation import Federation
from .base import Array, Round, Server, server
from .fedavg import FedAvg


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """FedAvg with server momentum (Hsu et al.): v <- momentum v + update, w <- w + server_lr v."""

    momentum: float = 0.9
    name: ClassVar[str] = "fedavgm"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "momentum", number("method.momentum", self.momentum, 0.0, 1.0, open_high=True))

    def server_step(self, r: Round, update: Array) -> Array:
        r.memory["v"] = self.momentum * r.kept("v") + update
        return r.w + self.server_lr * r.memory["v"]

    def server(self, federation: Federation, task: int) -> Server:
        eta, beta = self.server_lr, self.momentum
        return server(self.lr, start=[1, 0], carry=[[1, eta * beta], [0, beta]], gain=[eta, 1])


@dataclass(frozen=True)
class MimeLite(FedAvg):
    """Every local step goes along (1 - momentum) gradient + momentum m, with m fixed during the round.

    Then m <- momentum m + (1 - momentum) (average exact gradient of the round's clients at w). Karimireddy et al.'s
    MimeLite with SGD with momentum as the base method.
    """

    momentum: float = 0.9
    name: ClassVar[str] = "mimelite"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "momentum", number("method.momentum", self.momentum, 0.0, 1.0, open_high=True))

    def local_step(self, v: Array, r: Round, gradient: Callable[[Array], Array]) -> Array:
        return v - self.lr * ((1 - self.momentum) * gradient(v) + self.momentum * r.kept("m"))

    def server_step(self, r: Round, update: Array) -> Array:
        r.memory["m"] = self.momentum * r.kept("m") + (1 - self.momentum) * r.full_gradient()
        return super().server_step(r, update)

    def server(self, federation: Federation, task: int) -> Server:
        beta = self.momentum
        return server(
            self.lr * (1 - beta),
            start=[1, 0],
            push=[0, beta / (1 - beta)],
            carry=[[1, 0], [0, beta]],
            gain=[self.server_lr, 0],
            grad=[0, 1 - beta],
        )


@dataclass(frozen=True)
class FedOpt(FedAvg):
    """Adam on the server (Reddi et al.'s FedAdam, which has no bias correction), coordinate by coordinate of w.

    v begins as tau^2, m as 0.

    m <- beta1 m + (1 - beta1) update,  v <- beta2 v + (1 - beta2) update^2,  w <- w + server_lr m / (sqrt(v) + tau)
    """

    server_lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    name: ClassVar[str] = "fedopt"
    rule: ClassVar[str] = "adam"

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("beta1", "beta2"):
            value = number(f"method.{field}", getattr(self, field), 0.0, 1.0, open_high=True)
            object.__setattr__(self, field, value)
        object.__setattr__(self, "tau", number("method.tau", self.tau, 0.0, open_low=True))

    def server_step(self, r: Round, update: Array) -> Array:
        r.memory["m"] = self.beta1 * r.kept("m") + (1 - self.beta1) * update
        before = r.memory.get("v", np.full_like(r.w, self.tau**2))
        r.memory["v"] = self.beta2 * before + (1 - self.beta2) * update**2
        return r.w + self.server_lr * r.memory["m"] / (np.sqrt(r.memory["v"]) + self.tau)

    def server(self, federation: Federation, task: int) -> Server:
        return server(self.lr, start=[1], carry=[[1]], gain=[1])
