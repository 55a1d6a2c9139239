"""What a method is: a frozen dataclass and a few tiny functions that read like its pseudocode."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..check import InvalidInput, fail, number
from ..drift import Drift
from ..federation import Federation
from ..schedule import Schedule, Weights

if TYPE_CHECKING:
    from ..finite import FiniteRound

Array = NDArray[np.float64]

METHODS: dict[str, type[Method]] = {}
"""Every method by the name that a file gives in ``[method] name``."""


class Linear(NamedTuple):
    """A method whose round is affine in w and whose server keeps nothing, as the fastest engines take it.

    One local step moves d = w - w_start by  d <- d - step * (curvature * (e + follow * d) + prox * d + offset + noise);
    the server then moves by ``server`` times the average of d.
    """

    step: float
    follow: float
    prox: float
    server: float


@dataclass(frozen=True)
class Server:
    """A method whose server keeps vectors besides w, all of it linear. The state is x = (e, ...), with e = w - w*.

    The clients start at start.x; the offset of their gradients is moved by push.x; then, with d the average of what
    they moved by and g the average of their exact gradients at w,

        x <- carry x + gain d + grad g.

    anchored: which parts of x begin a task as e; the others begin as 0.
    """

    step: float
    prox: float
    start: Array
    push: Array
    carry: Array
    gain: Array
    grad: Array
    anchored: tuple[int, ...] = ()


def server(
    step: float,
    start: list[float],
    carry: list[list[float]],
    gain: list[float],
    push: list[float] | None = None,
    grad: list[float] | None = None,
    prox: float = 0.0,
    anchored: tuple[int, ...] = (),
) -> Server:
    """A `Server` from plain lists; what is not given vanishes."""
    none = [0.0] * len(start)
    start_, push_, gain_, grad_ = (np.array(x, dtype=float) for x in (start, push or none, gain, grad or none))
    return Server(step, prox, start_, push_, np.array(carry, dtype=float), gain_, grad_, anchored)


@dataclass
class Round:
    """What the `reference` engine tells a method about the round at hand. ``memory`` lives as long as a task."""

    w: Array
    anchor: Array  # where the task began
    task: int  # 1, 2, ...
    federation: Federation
    full_gradient: Callable[[], Array]  # the exact gradient at w, averaged over the round's clients
    # mean and variance per direction of the average update of clients that start at a point
    foresight: Callable[[Array], tuple[Array, float]]
    memory: dict[Any, Any] = field(default_factory=dict)
    start: Array = field(default_factory=lambda: np.zeros(0))  # where the clients start
    client: int = 0  # whose turn it is
    updates: dict[int, Array] = field(default_factory=dict)  # by client
    trace: dict[str, Any] = field(default_factory=dict)  # what the method wants to be seen, by the name in `traces`

    def kept(self, name: Any) -> Array:
        """A vector of the memory, zero at first."""
        return self.memory.setdefault(name, np.zeros_like(self.w))


@dataclass(frozen=True)
class Method:
    """A federated method. ``lr`` is the local learning rate.

    A new one says in ``local_step`` and ``server_step`` what its pseudocode says, which makes it run in `reference`,
    and gives the same as numbers in ``linear`` or ``server`` for the other engines.
    """

    lr: float
    name: ClassVar[str] = ""
    rule: ClassVar[str] = "linear"
    """How the compiled loops do the server's step: ``linear``, ``adam`` or ``kalman``."""
    controls: ClassVar[bool] = False
    """Whether each client keeps a control variate, as in SCAFFOLD."""
    traces: ClassVar[tuple[str, ...]] = ()
    """Numbers besides the model's own that a round leaves behind."""
    client_traces: ClassVar[tuple[str, ...]] = ()
    """The same, one number a client."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        METHODS[cls.name] = cls

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", number("method.lr", self.lr, 0.0, open_low=True))

    def start(self, r: Round) -> Array:
        """Where the clients start."""
        return r.w

    def local_step(self, v: Array, r: Round, gradient: Callable[[Array], Array]) -> Array:
        """One local step from ``v``."""
        raise NotImplementedError

    def server_step(self, r: Round, update: Array) -> Array:
        """The server's step, given the average update of the clients."""
        return r.w + update

    def linear(self, local_steps: int) -> Linear:
        """The same two steps as numbers, for a server that keeps nothing."""
        raise NotImplementedError

    def server(self, federation: Federation, task: int) -> Server | None:
        """The same as numbers for a server that keeps something, in task 1, 2, ...; None: `linear` says it all."""
        return None

    def weights_for(self, rounds: int) -> Weights:
        """History weights; a method without memory looks at the current round only."""
        return Schedule.current_only(rounds)

    def check_federation(self, federation: Federation) -> None:
        """Refuse a federation that the method is not meant for."""

    def finite_round(self, r: FiniteRound) -> Array:
        """One round on a finite sum, for `reference`; most methods don't run there."""
        raise NotImplementedError

    def check_finite(self, drift: Drift) -> None:
        """Refuse a finite sum, or what a finite sum can't have."""
        if "finite_round" not in vars(type(self)):  # an inherited one would leave out what the heir adds
            able = sorted(k for k, v in METHODS.items() if "finite_round" in vars(v))
            raise InvalidInput(
                f"method.name = '{self.name}' does not run on a finite sum (federation.samples > 0); "
                f"these do: {', '.join(able)}"
            )
        for name in ("time", "time_slope", "noise", "loss_mean", "loss_var", "overlap", "correlation"):
            if getattr(drift, name) != 0:
                allowed = "must be 0 on a finite sum (federation.samples): its randomness is in its samples"
                raise fail(f"drift.{name}", getattr(drift, name), allowed)
        if drift.loss_per_client:
            raise fail("drift.loss_per_client", True, "must be false on a finite sum (federation.samples)")
        if drift.fresh:
            raise fail("drift.fresh", True, "must be false on a finite sum (federation.samples): samples stay")

    def with_lr(self, lr: float) -> Method:
        return dataclasses.replace(self, lr=lr)

    def config(self) -> dict[str, Any]:
        """Name and fields, as a file would give them."""
        return {"name": self.name} | {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
