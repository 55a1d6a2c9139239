"""Small worlds in which expectations are exact: laws with two values, kinked functions, one round of local steps.

Everything is enumerated, so a claim about an expectation is decided by a sum and not by sampling. The constructions
are the worst cases of the proofs: noise that jumps rarely, curvature that changes sign, drift that moves the iterates.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def hundredths(low: int, high: int) -> Any:
    """A strategy for multiples of 0.01, so that differences are either zero or far above rounding."""
    return st.integers(low, high).map(lambda n: n / 100)


def two_values(rare: float = 0.5) -> tuple[tuple[float, float], tuple[float, float]]:
    """Values and chances of a variable with mean 0 and variance 1: a fair coin, or a jump of chance ``rare``."""
    up = ((1.0 - rare) / rare) ** 0.5
    return (up, -1.0 / up), (rare, 1.0 - rare)


@lru_cache(maxsize=64)
def _choices(count: int) -> NDArray[np.int64]:
    return np.array(list(itertools.product((0, 1), repeat=count)), dtype=np.int64).reshape(2**count, count)


def draws(count: int, rare: float = 0.5) -> tuple[Array, Array]:
    """All outcomes of ``count`` independent two-valued variables (outcome × variable), and the chance of each."""
    values, chances = two_values(rare)
    pick = _choices(count)
    return np.array(values)[pick], np.prod(np.array(chances)[pick], axis=1)


@dataclass(frozen=True)
class Kinked:
    """A function of one variable with curvature ``inner`` up to distance ``width`` from 0 and ``outer`` beyond.

    Its gradient is continuous and piecewise linear, so it is max(|inner|, |outer|)-smooth; it is
    min(inner, outer)-convex if that is not negative. inner < 0 < outer is a double well: not convex, yet bounded below.
    """

    inner: float
    outer: float
    width: float

    def grad(self, w: ArrayLike) -> Array:
        w = np.asarray(w, dtype=float)
        near = np.clip(w, -self.width, self.width)
        return self.inner * near + self.outer * (w - near)

    def value(self, w: ArrayLike) -> Array:
        w = np.asarray(w, dtype=float)
        near = np.clip(w, -self.width, self.width)
        far = w - near
        return self.inner * near**2 / 2 + self.inner * near * far + self.outer * far**2 / 2

    def rise(self, y: ArrayLike, x: ArrayLike) -> Array:
        """∇f(x) − ∇f(y), free of cancellation for convex f."""
        return np.asarray(sum(c * (b - a) for a, b, c in self._pieces(y, x)))

    def bregman(self, x: ArrayLike, y: ArrayLike) -> Array:
        """f(x) − f(y) − ⟨∇f(y), x − y⟩, free of cancellation for convex f."""
        to = np.asarray(x, dtype=float)
        return np.asarray(sum(c * (b - a) * (to - (a + b) / 2) for a, b, c in self._pieces(y, to)))

    def _pieces(self, y: ArrayLike, x: ArrayLike) -> list[tuple[Array, Array, Array]]:
        """The way from y to x, cut at the kinks: (from, to, curvature)."""
        start, end = np.asarray(y, dtype=float), np.asarray(x, dtype=float)
        low, high = np.minimum(start, end), np.maximum(start, end)
        first = np.where(start <= end, -self.width, self.width)
        stops = [start, np.clip(first, low, high), np.clip(-first, low, high), end]
        return [
            (a, b, np.where(np.abs(a + b) <= 2 * self.width, self.inner, self.outer))
            for a, b in itertools.pairwise(stops)
        ]


@dataclass(frozen=True)
class Drifts:
    """Amplitudes of Assumption 3 for one client: δ = ±G ± B∇f, ξ_τ = ±D ± A∇f, all signs independent.

    G2, B2, D2, A2 are the squares. The signs of the additive parts may be rare jumps; those of the slopes are fair, so
    that every f_τ,i is at most 1 + A + B times as curved as f.
    """

    G2: float = 0.0
    B2: float = 0.0
    D2: float = 0.0
    A2: float = 0.0


def weighted_gradient(
    g: float, p: Sequence[float], drifts: Drifts, rare: float = 0.5, shared: bool = True, lean: float = 0.0
) -> tuple[Array, Array]:
    """All outcomes of Σ_τ p_τ ∇f_τ(w) at a fixed w with ∇f(w) = g, every drift at its bound, and the chance of each.

    shared: one client drift for all rounds, or a new one each round. lean: how much the size of the time drift depends
    on the client drift, from 0 to 1; its mean given the client drift stays zero.
    """
    weights, rounds = np.asarray(p, dtype=float), len(p)
    clients = 1 if shared else rounds
    z, chance = draws(clients + rounds, rare)
    client = z[:, :1] if shared else z[:, :clients]
    size = np.sqrt(1.0 + lean * client / np.max(np.abs(two_values(rare)[0])))
    drift = (drifts.G2 + drifts.B2 * g**2) ** 0.5 * client + (drifts.D2 + drifts.A2 * g**2) ** 0.5 * size * z[
        :, clients:
    ]
    return (g - drift) @ weights, chance


@dataclass(frozen=True)
class Round:
    """All outcomes of a client's local steps. First axis: local step 0..K; second: outcome.

    chance: of each outcome. path: w_{t,i,k}. pull: Σ_τ p_τ ∇f_τ(w_{t,i,k}). lost: Σ_{τ<t} p_τ Δ_τ(w_{t,i,k}).
    """

    chance: Array
    path: Array
    pull: Array
    lost: Array

    def mean(self, values: Array) -> Array:
        """The expectation over outcomes (the last axis)."""
        return np.asarray(values @ self.chance)

    @property
    def moved2(self) -> Array:
        """E‖w_{t,i,k} − w_t‖² for k = 0..K."""
        return self.mean((self.path - self.path[0]) ** 2)


TOWARDS = {
    "up": lambda w, start, pull: np.ones_like(w),
    "out": lambda w, start, pull: np.where(w >= start, 1.0, -1.0),
    "in": lambda w, start, pull: np.where(w >= start, -1.0, 1.0),
    "against": lambda w, start, pull: np.where(pull >= 0, -1.0, 1.0),
}


def local_round(
    f: Kinked,
    start: float,
    lr: float,
    steps: int,
    p: float = 1.0,
    drifts: Drifts = Drifts(),
    sigma: float = 0.0,
    R: float = 0.0,
    towards: str = "up",
    rare: float = 0.5,
) -> Round:
    """K local steps of a client from a start that owes nothing to its drifts, every outcome enumerated.

    The client weighs its current objective by p and one remembered objective by 1 − p; their time drifts are
    independent and they share the client drift. The remembered gradient errs by R in the direction ``towards`` names.
    """
    weights = (p, 1.0 - p)
    additive = _present([drifts.G2**0.5, *(x * drifts.D2**0.5 for x in weights)])
    slopes = _present([drifts.B2**0.5, *(x * drifts.A2**0.5 for x in weights)])
    noises = steps if sigma > 0 else 0
    jumps, chance = draws(len(additive) + noises, rare)
    signs, even = draws(len(slopes))
    shift = np.repeat(jumps[:, : len(additive)] @ additive, len(even))
    tilt = np.tile(1.0 - signs @ slopes, len(chance))
    noise = np.repeat(sigma * jumps[:, len(additive) :], len(even), axis=0)
    w = np.full(len(chance) * len(even), float(start))
    path, pulls, losses = [w], [], []
    for k in range(steps + 1):
        pull = tilt * f.grad(w) - shift  # (5): ∇f_i = ∇f − δ − ξ
        lost = (1.0 - p) * R * TOWARDS[towards](w, start, pull)
        pulls.append(pull)
        losses.append(lost)
        if k < steps:
            w = w - lr * (pull - lost + (noise[:, k] if noises else 0.0))
            path.append(w)
    return Round(
        np.repeat(chance, len(even)) * np.tile(even, len(chance)), np.array(path), np.array(pulls), np.array(losses)
    )


def _present(amplitudes: list[float]) -> Array:
    return np.array([a for a in amplitudes if a != 0.0])
