"""What a method is: a frozen dataclass and two tiny functions that read like its pseudocode."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..check import number
from ..schedule import Schedule, Weights

Array = NDArray[np.float64]

METHODS: dict[str, type[Method]] = {}
"""Every method by the name that a file gives in ``[method] name``."""


class Linear(NamedTuple):
    """A method whose round is affine in w, as the fast engines take it.

    One local step moves d = w - w_start by  d <- d - step * (curvature * (e + follow * d) + prox * d + offset + noise);
    the server then moves by ``server`` times the average of d.
    """

    step: float
    follow: float
    prox: float
    server: float


@dataclass(frozen=True)
class Method:
    """A federated method. ``lr`` is the local learning rate."""

    lr: float
    name: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        METHODS[cls.name] = cls

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", number("method.lr", self.lr, 0.0, open_low=True))

    def local_step(self, w: Array, start: Array, gradient: Callable[[Array], Array], local_steps: int) -> Array:
        """One local step from ``w``, in a round that began at ``start``."""
        raise NotImplementedError

    def server_step(self, w: Array, update: Array) -> Array:
        """The server's step, given the average update of the clients."""
        return w + update

    def linear(self, local_steps: int) -> Linear:
        """The same two steps as numbers, for the engines that fold them."""
        raise NotImplementedError

    def weights_for(self, rounds: int) -> Weights:
        """History weights; a method without memory looks at the current round only."""
        return Schedule.current_only(rounds)

    def check_federation(self, clients: int) -> None:
        """Refuse a federation that the method is not meant for."""

    def with_lr(self, lr: float) -> Method:
        return dataclasses.replace(self, lr=lr)

    def config(self) -> dict[str, Any]:
        """Name and fields, as a file would give them."""
        return {"name": self.name} | {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
