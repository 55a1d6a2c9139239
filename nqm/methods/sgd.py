"""Minibatch SGD: the yardstick that never leaves the server's point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from .base import Array, Linear, Method, Round


@dataclass(frozen=True)
class SGD(Method):
    """One step a round with the average of the K stochastic gradients of every client, all taken at the server's w.

    With K = 1 it is FedAvg with K = 1.
    """

    name: ClassVar[str] = "sgd"

    def local_step(self, v: Array, r: Round, gradient: Callable[[Array], Array]) -> Array:
        return v - self.lr / r.federation.local_steps * gradient(r.start)

    def linear(self, local_steps: int) -> Linear:
        return Linear(step=self.lr / local_steps, follow=0.0, prox=0.0, server=1.0)
