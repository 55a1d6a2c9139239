"""FedAvg, and FedProx, which pulls every local step back to where the round began."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..check import number
from .base import Array, Linear, Method, Round

if TYPE_CHECKING:
    from ..finite import FiniteRound


@dataclass(frozen=True)
class FedAvg(Method):
    """K local SGD steps, averaged; ``server_lr`` is the paper's eta_g."""

    server_lr: float = 1.0
    name: ClassVar[str] = "fedavg"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "server_lr", number("method.server_lr", self.server_lr, 0.0, open_low=True))

    def local_step(self, v: Array, r: Round, gradient: Callable[[Array], Array]) -> Array:
        return v - self.lr * gradient(v)

    def server_step(self, r: Round, update: Array) -> Array:
        return r.w + self.server_lr * update

    def linear(self, local_steps: int) -> Linear:
        return Linear(step=self.lr, follow=1.0, prox=0.0, server=self.server_lr)

    def finite_round(self, r: FiniteRound) -> Array:
        """On a finite sum every local step looks at one sample."""
        updates = []
        for i in range(r.clients):
            v = r.w
            for j in r.draws(i):
                v = v - self.lr * r.component(i, j, v)
            updates.append(v - r.w)
        return r.w + self.server_lr * np.mean(updates, axis=0)


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg on f_i(w) + prox/2 ||w - w_start||^2."""

    prox: float = 0.5
    name: ClassVar[str] = "fedprox"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "prox", number("method.prox", self.prox, 0.0))

    def local_step(self, v: Array, r: Round, gradient: Callable[[Array], Array]) -> Array:
        return v - self.lr * (gradient(v) + self.prox * (v - r.start))

    def linear(self, local_steps: int) -> Linear:
        return super().linear(local_steps)._replace(prox=self.prox)
