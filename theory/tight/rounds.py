"""One round of each method, written on whatever the clients' gradients are: here, vectors that are still unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from nqm.check import integer, number

if TYPE_CHECKING:
    from .world import World

Array = NDArray[np.float64]
Gradient = Callable[[Array], Array]


@dataclass(frozen=True)
class FedAvg:
    """K local gradient steps of every client, averaged; ``server_lr`` is η_g, so that a round's step is K η_l η_g.

    One client with K = 1 and η_g = 1 is gradient descent.
    """

    lr: float
    local_steps: int = 1
    server_lr: float = 1.0
    name: ClassVar[str] = "FedAvg"
    sources: ClassVar[tuple[str, ...]] = ("clients",)
    """What keeps a round from contracting to w*: here, the clients' own gradients there."""

    def __post_init__(self) -> None:
        integer("tight.local_steps", self.local_steps, 1)
        for field in ("lr", "server_lr"):
            number(f"tight.{field}", getattr(self, field), 0.0, open_low=True)

    @property
    def step(self) -> float:
        return self.local_steps * self.lr * self.server_lr

    def local_step(self, v: Array, start: Array, gradient: Gradient) -> Array:
        return v - self.lr * gradient(v)

    def play(self, world: World) -> list[Array]:
        """Where each client alone would take the server; the round ends at the average of these."""
        ends = []
        for client in world.clients:
            v = world.start
            for _ in range(self.local_steps):
                v = self.local_step(v, world.start, client.gradient)
            ends.append(world.start + self.server_lr * (v - world.start))
        return ends


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg on f_i(w) + prox/2 ‖w − w_t‖²."""

    prox: float = 0.5
    name: ClassVar[str] = "FedProx"

    def __post_init__(self) -> None:
        super().__post_init__()
        number("tight.prox", self.prox, 0.0)

    def local_step(self, v: Array, start: Array, gradient: Gradient) -> Array:
        return v - self.lr * (gradient(v) + self.prox * (v - start))


@dataclass(frozen=True)
class ServerProx(FedAvg):
    """`special`: FedAvg's round, then (6), which draws the result to the anchor with weight ``pull`` = λ."""

    pull: float = 0.5
    name: ClassVar[str] = "server-proximal"
    sources: ClassVar[tuple[str, ...]] = ("clients", "anchor")

    def __post_init__(self) -> None:
        super().__post_init__()
        number("tight.pull", self.pull, 0.0)

    def play(self, world: World) -> list[Array]:
        return [(end + self.pull * world.anchor) / (1.0 + self.pull) for end in super().play(world)]  # (6)


@dataclass(frozen=True)
class CFlag:
    """`cflag`, Algorithm 1 with fixed rates and nothing sampled: E tracked local steps, and one step on the memory.

    lr: β, of the local steps. memory_lr: α; None: the same as β.

    Nothing sampled means that a client refreshes its whole gradient in every local step, so that (5) is that gradient,
    and that the memory is the past itself, so that (6) has no bias. (7) adds the clients' points where their updates
    are meant.

    w* minimises α f + βE g, f the past and g the present: there the round stands still to first order in its rates.
    In what the round does, a client's own ∇g_i(w*) cancels; what is left to keep it from w* is ∇g(w*), the pull of
    the present that the past balances.
    """

    lr: float
    local_steps: int = 1
    memory_lr: float | None = None
    name: ClassVar[str] = "C-FLAG"
    sources: ClassVar[tuple[str, ...]] = ("tasks",)

    def __post_init__(self) -> None:
        integer("tight.local_steps", self.local_steps, 1)
        number("tight.lr", self.lr, 0.0, open_low=True)
        number("tight.memory_lr", self.alpha, 0.0, open_low=True)

    @property
    def alpha(self) -> float:
        return self.lr if self.memory_lr is None else self.memory_lr

    @property
    def balance(self) -> float:
        """∇f(w*) = −balance ∇g(w*)."""
        return self.local_steps * self.lr / self.alpha

    def play(self, world: World) -> list[Array]:
        start = world.start
        memory = self.alpha * world.memory.gradient(start)
        everyone = world.mean([client.gradient(start) for client in world.clients])
        ends = []
        for client in world.clients:
            v = start
            for _ in range(self.local_steps):
                v = v - self.lr * (everyone - client.gradient(start) + client.gradient(v))  # (4)
            ends.append(v - memory)  # (7)
        return ends


Round = FedAvg | CFlag
