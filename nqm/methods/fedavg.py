"""FedAvg, and FedProx, which pulls every local step back to where the round began."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ..check import number
from .base import Array, Linear, Method


@dataclass(frozen=True)
class FedAvg(Method):
    """K local SGD steps, averaged; ``server_lr`` is the paper's eta_g."""

    server_lr: float = 1.0
    name: ClassVar[str] = "fedavg"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "server_lr", number("method.server_lr", self.server_lr, 0.0, open_low=True))

    def local_step(self, w: Array, start: Array, gradient: Callable[[Array], Array], local_steps: int) -> Array:
        return w - self.lr * gradient(w)

    def server_step(self, w: Array, update: Array) -> Array:
        return w + self.server_lr * update

    def linear(self, local_steps: int) -> Linear:
        return Linear(step=self.lr, follow=1.0, prox=0.0, server=self.server_lr)


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg on f_i(w) + prox/2 ||w - w_start||^2."""

    prox: float = 0.5
    name: ClassVar[str] = "fedprox"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "prox", number("method.prox", self.prox, 0.0))

    def local_step(self, w: Array, start: Array, gradient: Callable[[Array], Array], local_steps: int) -> Array:
        return w - self.lr * (gradient(w) + self.prox * (w - start))

    def linear(self, local_steps: int) -> Linear:
        return super().linear(local_steps)._replace(prox=self.prox)
