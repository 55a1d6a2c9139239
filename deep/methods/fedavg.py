"""FedAvg (McMahan et al. 2017; Algorithm 1 of `cfl` without a past), and FedProx (Li et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..local import Gradient, Here
from .base import Method, State


@dataclass(frozen=True)
class FedAvg(Method):
    """K local SGD steps, averaged; ``server_lr`` is the papers' eta_g."""

    server_lr: float = 1.0
    name: ClassVar[str] = "fedavg"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("server_lr", 0.0, open_low=True)

    def local_step(self, w: Tensor, start: Tensor, gradient: Gradient, here: Here) -> Tensor:
        return w - self.lr * gradient(w)

    def server_step(self, w: Tensor, update: Tensor, state: State) -> tuple[Tensor, State]:
        return w + self.server_lr * update, state


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg on f_i(w) + prox/2 ||w - start||^2; `cfl` (C.1.1) takes prox = 0.1."""

    prox: float = 0.1
    name: ClassVar[str] = "fedprox"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("prox", 0.0)

    def local_step(self, w: Tensor, start: Tensor, gradient: Gradient, here: Here) -> Tensor:
        return w - self.lr * (gradient(w) + self.prox * (w - start))
