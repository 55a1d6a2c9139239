"""Small worlds for `cflag`: finite sums with a kink in each sample's gradient, and rounds of C-FLAG on them.

A sample is a separable loss with curvature ``inner`` up to distance ``width`` from its centre and ``outer`` beyond, in
every coordinate: quadratic, Huber-like (outer = 0), concave, or a double well. Its gradient is
max(|inner|, |outer|)-Lipschitz. Arrays are client × sample × coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from .ledger import Case
from .worlds import hundredths

Array = NDArray[np.float64]

KINDS = ("full", "quadratic", "kinked", "concave", "huber")
ORDERS = ("random", "cyclic", "stuck")

# Fields of a case from which `samples` and `order` are made; `step` is β as a share of the limit that a claim sets.
SIZES = {
    "N": st.integers(1, 3),
    "n": st.integers(1, 4),
    "E": st.integers(1, 6),
    "dim": st.integers(1, 2),
    "L": st.floats(0.1, 10.0),
    "kind": st.sampled_from(KINDS),
    "order": st.sampled_from(ORDERS),
    "seed": st.integers(0, 999),
}
STEP = hundredths(1, 100)


@dataclass(frozen=True)
class Samples:
    """Losses of samples; `value` and `grad` have the samples' shape, without and with the coordinate."""

    inner: Array
    outer: Array
    width: Array
    centre: Array

    def _parts(self, x: Array) -> tuple[Array, Array]:
        far = x - self.centre
        near = np.clip(far, -self.width, self.width)
        return near, far - near

    def grad(self, x: Array) -> Array:
        near, rest = self._parts(x)
        return self.inner * near + self.outer * rest

    def value(self, x: Array) -> Array:
        near, rest = self._parts(x)
        return np.sum(self.inner * near**2 / 2 + self.inner * near * rest + self.outer * rest**2 / 2, axis=-1)

    def pick(self, index: slice | list[int]) -> Samples:
        """Some samples of every client."""
        return Samples(*(np.asarray(part)[:, index] for part in (self.inner, self.outer, self.width, self.centre)))


def samples(rng: np.random.Generator, N: int, n: int, dim: int, L: float, kind: str) -> Samples:
    """Samples of N clients, every one L-smooth; ``full``: all curvatures L, so that smoothness is reached."""
    shape = (N, n, dim)
    inner, outer = L * rng.uniform(0, 1, shape), L * rng.uniform(0, 1, shape)
    width = rng.uniform(0, 2, shape)
    if kind == "full":
        inner = np.full(shape, L)
    elif kind == "concave":
        inner = -np.full(shape, L)
    elif kind == "huber":
        outer = np.zeros(shape)
    elif kind == "kinked":
        inner = L * rng.uniform(-1, 1, shape)
    if kind in ("full", "quadratic", "concave"):
        outer = inner
    return Samples(inner, outer, width, rng.normal(size=shape))


def shares(rng: np.random.Generator, N: int) -> Array:
    """Client weights."""
    return rng.dirichlet(np.ones(N)) if N > 1 else np.ones(1)


def order(rng: np.random.Generator, N: int, E: int, n: int, kind: str) -> NDArray[np.int64]:
    """Which sample each client refreshes at each local step."""
    if kind == "random":
        return rng.integers(0, n, (N, E))
    steps = np.arange(E) if kind == "cyclic" else np.zeros(E, dtype=int)
    return np.broadcast_to(steps % n, (N, E))


@dataclass(frozen=True)
class Round:
    """One round of local steps: iterates (N, E+1, d), delayed and exact gradients (N, E, d) of (5) and of g_i."""

    x: Array
    local: Array
    delayed: Array
    exact: Array
    grads: Array  # ∇g_i(x_t)
    grad: Array  # ∇g(x_t)

    @property
    def sums(self) -> Array:
        """a_i = Σ_k ∇g'_i(x_{t,k}), client × coordinate."""
        return self.delayed.sum(axis=1)


def local_steps(x: Array, current: Samples, p: Array, beta: float, picks: NDArray[np.int64]) -> Round:
    """E local steps by (4) with incrementally aggregated gradients (5), all clients at once."""
    N, E = picks.shape
    clients = np.arange(N)
    table = current.grad(x)
    grads = table.mean(axis=1)
    grad = p @ grads
    where = np.broadcast_to(x, grads.shape).copy()
    local, delayed, exact = [where], [], []
    for k in range(E):
        fresh = current.grad(where[:, None, :])
        if k:
            table[clients, picks[:, k]] = fresh[clients, picks[:, k]]
        delayed.append(table.mean(axis=1))
        exact.append(fresh.mean(axis=1))
        where = where - beta * (grad - grads + delayed[-1])
        local.append(where)
    return Round(x, np.stack(local, 1), np.stack(delayed, 1), np.stack(exact, 1), grads, grad)


def mean_grad(losses: Samples, p: Array, x: Array) -> Array:
    """Gradient of Σ p_i (mean of client i's samples)."""
    return p @ losses.grad(x).mean(axis=1)


def mean_value(losses: Samples, p: Array, x: Array) -> float:
    """Its value."""
    return float(p @ losses.value(x).mean(axis=1))


@dataclass(frozen=True)
class World:
    """What a case describes: current samples, client weights, a starting point, orders of refreshing."""

    current: Samples
    p: Array
    x: Array
    picks: NDArray[np.int64]
    rng: np.random.Generator


def world(case: Case) -> World:
    """The world of a case with the fields SIZES."""
    rng = np.random.default_rng(case["seed"])
    N, n, E, dim = case["N"], case["n"], case["E"], case["dim"]
    current = samples(rng, N, n, dim, case["L"], case["kind"])
    return World(current, shares(rng, N), 2 * rng.normal(size=(dim,)), order(rng, N, E, n, case["order"]), rng)


def one_round(case: Case, limit: float) -> tuple[Round, World, float]:
    """A round of local steps from the case's start with β = step/(limit·L·E)."""
    here = world(case)
    beta = case["step"] / (limit * case["L"] * case["E"])
    return local_steps(here.x, here.current, here.p, beta, here.picks), here, beta


def length(v: Array) -> float:
    return float(np.linalg.norm(v))
