"""Replay at every local step: ER with a ring buffer (Chaudhry et al. 2019; Erg-FL in `cflag`) and NCCL (Han et al.
2023) as a local rule, both under FedAvg.

ER: a step's gradient is that of the minibatch and of one drawn from memory, joined. The ring keeps ``size`` examples
of each local data set, classes balanced, and drops the oldest sets beyond ``capacity``.
NCCL: the two gradients get the rates that `cflag` (Table 1) carries over from it, here for a single machine and anew at
every step: interference raises the memory's rate, transference sets the current one's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nqm.check import fail, integer

from ..local import Carried, Cohort, Examples, Gradient, Here
from . import memory
from .base import State
from .fedavg import FedAvg


@dataclass(frozen=True)
class ER(FedAvg):
    """size: examples kept of each local data set; capacity: of all of a client's; memory_batch: drawn at every step."""

    size: int = 400
    capacity: int | None = None
    memory_batch: int = 32
    name: ClassVar[str] = "er"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("size", "memory_batch"):
            object.__setattr__(self, name, integer(f"method.{name}", getattr(self, name), 0))
        if self.capacity is not None:
            object.__setattr__(self, "capacity", integer("method.capacity", self.capacity, 1))

    @property
    def replay_batch(self) -> int:
        return self.memory_batch

    def memory(self, state: State, client: int, key: int) -> Examples | None:
        held = memory.recall(state, client, besides=key)
        return held[0].plus(*held[1:]) if held else None

    def local_step(self, w: Tensor, start: Tensor, gradient: Gradient, here: Here) -> Tensor:
        if not gradient.remembered:
            return w - self.lr * gradient(w)
        new = (gradient.batch["weight"] != 0).sum()
        old = (gradient.remembered["weight"] != 0).sum()
        part = old / (new + old).clamp(min=1)
        return w - self.lr * ((1 - part) * gradient(w) + part * gradient.memory(w))

    def collect(self, cohort: Cohort, start: Tensor, ends: Tensor, own: Carried, state: State) -> tuple[Tensor, State]:
        update, state = super().collect(cohort, start, ends, own, state)
        return update, memory.remember(state, cohort, memory.balanced(self.size), self.capacity)


@dataclass(frozen=True)
class NCCL(ER):
    """L: the smoothness that the rates assume; `cflag` takes 5."""

    L: float = 5.0
    name: ClassVar[str] = "nccl"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("L", 0.0, open_low=True)
        if self.L * self.lr >= 1:
            raise fail("method.lr", self.lr, f"must be < 1/L = {1 / self.L:g}")

    def local_step(self, w: Tensor, start: Tensor, gradient: Gradient, here: Here) -> Tensor:
        g = gradient(w)
        if not gradient.remembered:
            return w - self.lr * g
        f = gradient.memory(w)
        inner, f2, g2 = f @ g, f @ f, g @ g
        transfer = inner > 0
        alpha = torch.where(transfer, self.lr, self.lr * (1 - inner / torch.where(f2 > 0, f2, 1)))
        beta = torch.where(transfer, (1 - self.L * self.lr) * inner / (self.L * torch.where(g2 > 0, g2, 1)), self.lr)
        return w - alpha * f - beta * g  # without memory f = 0: a plain step
