"""FedTrack and C-FLAG: incremental aggregated gradients on finite sums, and a memory of the past that guides them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..check import InvalidInput, choice, fail, integer, number
from ..federation import Federation
from .base import Array, Linear, Method

if TYPE_CHECKING:
    from ..finite import FiniteRound


@dataclass(frozen=True)
class FedTrack(Method):
    """Local steps along  grad g(w) - grad g_i(w) + (mean of the latest gradient of each sample), (4)-(5) of `cflag`.

    The first local step sees every sample, each later one a single sample, drawn uniformly. All clients take part. With
    one local step it is gradient descent.
    """

    name: ClassVar[str] = "fedtrack"
    rule: ClassVar[str] = "track"

    def check_federation(self, federation: Federation) -> None:
        if federation.samples < 1:
            raise fail("federation.samples", federation.samples, f"must be >= 1 for method.name = '{self.name}'")
        if federation.stateless:
            raise fail("federation.stateless", True, f"must be false for method.name = '{self.name}': its clients stay")
        if federation.partial:
            raise InvalidInput(
                f"federation.sampled = {federation.S}: method.name = '{self.name}' needs all clients in every round"
            )

    def finite_round(self, r: FiniteRound) -> Array:
        return r.w - self.lr * np.mean([self.aggregated(r, i) for i in range(r.clients)], axis=0)

    def aggregated(self, r: FiniteRound, i: int) -> Array:
        """a_i, the sum of the incremental aggregated gradients over client i's local steps."""
        correction = r.global_gradient - r.gradient(i, r.w)
        latest = [r.component(i, j, r.w) for j in range(r.samples)]
        v, total = r.w, np.zeros_like(r.w)
        for j in r.picks(i):  # None for the first step, which has just seen them all
            if j is not None:
                latest[j] = r.component(i, j, v)
            aggregated = np.mean(latest, axis=0)  # (5)
            total = total + aggregated
            v = v - self.lr * (correction + aggregated)  # (4)
        return total

    def linear(self, local_steps: int) -> Linear:
        raise InvalidInput(
            f"method.name = '{self.name}' has no closed recursion: which sample a step looks at is random"
        )


@dataclass(frozen=True)
class CFlag(FedTrack):
    r"""Algorithm 1 of `cflag`: FedTrack on the current task, and one step along the memory's gradient a round.

        w <- w - mean_i alpha_i grad f'(w) - mean_i beta_i a_i,

    with f' the loss on what all clients remember; (7) as printed has a sign and a factor too many. ``lr`` is beta.

    memory: m_0, how many samples of the past each client keeps, drawn without replacement when a task begins.
    memory_lr: alpha.
    adapt: ``"none"``, or the rates of Table 1 for the ``"average"`` or the ``"worst"`` case.
    form: ``"derived"``: beta_i = (1 - L alpha) Lambda_i / (L p_i ||a_i||^2) if Lambda_i = <grad f', a_i> > 0 (in the
        worst case N p_i stands for p_i), else alpha_i = alpha - beta Lambda_i / ||grad f'||^2. ``"printed"``: AdapLR
        line by line; its a_i carries a factor beta that its rates don't know of, and its correction does not cancel.
    L: the smoothness that adaptive rates need; also that of the term Gamma(t) (default: the task's largest eigenvalue).
    """

    memory: int = 10
    memory_lr: float = 0.01
    adapt: str = "none"
    form: str = "derived"
    L: float | None = None
    name: ClassVar[str] = "cflag"
    traces: ClassVar[tuple[str, ...]] = ("forgetting", "overfitting", "transference", "interfering")
    client_traces: ClassVar[tuple[str, ...]] = ("client_transference",)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "memory", integer("method.memory", self.memory, 1))
        object.__setattr__(self, "memory_lr", number("method.memory_lr", self.memory_lr, 0.0))
        choice("method.adapt", self.adapt, ("none", "average", "worst"))
        choice("method.form", self.form, ("derived", "printed"))
        if self.L is not None:
            object.__setattr__(self, "L", number("method.L", self.L, 0.0, open_low=True))
        if self.adapt != "none":
            if self.L is None:
                raise InvalidInput(f"method.L: missing; method.adapt = '{self.adapt}' needs the smoothness L > 0")
            if self.L * self.memory_lr >= 1:
                raise fail("method.memory_lr", self.memory_lr, f"must be below 1/L = {1 / self.L:g} for adaptive rates")
        elif self.form == "printed":
            raise fail("method.form", self.form, "must be 'derived' for adapt = 'none'; AdapLR's line 2 is no step")

    def check_federation(self, federation: Federation) -> None:
        super().check_federation(federation)
        if federation.tasks > 1 and self.memory > federation.samples:
            raise fail(
                "method.memory",
                self.memory,
                f"must be at most federation.samples = {federation.samples}, all that a client has of its past "
                "when the second task begins",
            )

    def smoothness(self, largest: float) -> float:
        return largest if self.L is None else self.L

    def finite_round(self, r: FiniteRound) -> Array:
        a = [self.aggregated(r, i) for i in range(r.clients)]
        if not r.remembers:
            return r.w - self.lr * np.mean(a, axis=0)
        memory = np.mean([r.memory_gradient(i, r.w) for i in range(r.clients)], axis=0)
        transference = [float(memory @ a_i) for a_i in a]  # Lambda_{t,i}
        rates = [self.rates(r, float(memory @ memory), a_i, x) for a_i, x in zip(a, transference, strict=True)]
        alpha = float(np.mean([rate[0] for rate in rates]))
        step = np.mean([rate[1] * a_i for rate, a_i in zip(rates, a, strict=True)], axis=0)
        L = self.smoothness(r.largest)
        past = np.mean([r.past_gradient(i, r.w) for i in range(r.clients)], axis=0)
        bias = memory - past  # (6)
        r.trace["forgetting"] = L / 2 * float(step @ step) - (1 - L * alpha) * float(memory @ step)  # (15)
        r.trace["overfitting"] = (L * alpha**2 - alpha) * float(past @ bias) + float(bias @ step)  # (9)
        r.trace["transference"] = float(np.mean(transference))
        r.trace["client_transference"] = transference
        r.trace["interfering"] = float(np.mean([x <= 0 for x in transference]))
        w = r.w - alpha * memory - step
        if self.form == "printed":  # line 14: tracking, at rates that differ between clients
            own = [r.gradient(i, r.w) for i in range(r.clients)]
            track = [rate[2] * (r.global_gradient - g) for rate, g in zip(rates, own, strict=True)]
            w = w - r.steps * np.mean(track, axis=0)
        return w

    def rates(self, r: FiniteRound, length: float, a: Array, transference: float) -> tuple[float, float, float]:
        """alpha_i, what a_i is multiplied by, and the rate of the tracking term (which cancels if it is shared)."""
        if self.adapt == "none":
            return self.memory_lr, self.lr, 0.0
        share = 1.0 if self.adapt == "worst" else 1.0 / r.clients  # N p_i or p_i
        if self.form == "derived":
            if transference > 0:
                return self.memory_lr, self._best(share, transference, float(a @ a)), 0.0
            return self.memory_lr - (self.lr * transference / length if length > 0 else 0.0), self.lr, 0.0
        seen = self.lr * a  # line 4: the rate is still in it
        if transference > 0:
            rate = self._best(share, float(self.lr * transference), float(seen @ seen))  # line 8
            return self.memory_lr, rate, rate  # line 13: (rate / lr) seen
        shrink = self.lr * transference / length if length > 0 else 0.0
        return self.memory_lr * (1 - shrink), self.lr, self.lr  # lines 10, 11

    def _best(self, share: float, transference: float, length: float) -> float:
        assert self.L is not None
        return (1 - self.L * self.memory_lr) * transference / (self.L * share * length)
