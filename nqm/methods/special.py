"""SPECIAL, whose server pulls back to where the task began, and SPECIAL-C, whose clients do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ..check import flag, number
from ..federation import Federation
from .base import Array, Round, Server, server
from .fedavg import FedAvg


@dataclass(frozen=True)
class Special(FedAvg):
    """Algorithm 1 of `special`: FedAvg's step, then u = argmin ||u - w||^2 + prox ||u - anchor||^2 on the server.

    The anchor is where the task began; the first task has none and is FedAvg's.
    decay: divide ``server_lr`` by the task's number, as the paper's experiments do (Appendix F).
    """

    prox: float = 0.5
    decay: bool = True
    name: ClassVar[str] = "special"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "prox", number("method.prox", self.prox, 0.0))
        flag("method.decay", self.decay)

    def pull(self, task: int) -> float:
        return 0.0 if task == 1 else self.prox

    def rate(self, task: int) -> float:
        return self.server_lr / task if self.decay else self.server_lr

    def server_step(self, r: Round, update: Array) -> Array:
        middle, pull = r.w + self.rate(r.task) * update, self.pull(r.task)
        return middle / (1 + pull) + pull / (1 + pull) * r.anchor  # (6)

    def server(self, federation: Federation, task: int) -> Server:
        pull = self.pull(task)
        keep, back = 1 / (1 + pull), pull / (1 + pull)
        return server(
            self.lr, start=[1, 0], carry=[[keep, back], [0, 1]], gain=[keep * self.rate(task), 0], anchored=(1,)
        )


@dataclass(frozen=True)
class SpecialC(Special):
    """Algorithm 2 of `special`: every local step ends with argmin 1/2 ||u - v||^2 + prox ||u - anchor||^2.

    The half in front of the first square makes that (v + 2 prox anchor) / (1 + 2 prox), where the server's (5),
    without it, has 1 + prox.
    """

    name: ClassVar[str] = "special-c"

    def local_step(self, v: Array, r: Round, gradient: Callable[[Array], Array]) -> Array:
        twice = 2 * self.pull(r.task)
        return (v - self.lr * gradient(v) + twice * r.anchor) / (1 + twice)

    def server_step(self, r: Round, update: Array) -> Array:
        return r.w + self.rate(r.task) * update

    def server(self, federation: Federation, task: int) -> Server:
        # (v - lr g + 2p a)/(1 + 2p) = v - lr/(1 + 2p) (g + (2p/lr)(v - a))
        twice = 2 * self.pull(task)
        spring = twice / self.lr
        return server(
            self.lr / (1 + twice),
            prox=spring,
            start=[1, 0],
            push=[spring, -spring],
            carry=[[1, 0], [0, 1]],
            gain=[self.rate(task), 0],
            anchored=(1,),
        )
