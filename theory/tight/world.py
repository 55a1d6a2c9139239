r"""A round whose functions are unknown: every vector is a combination of a few, whose inner products are free.

Let w* = 0 be the minimiser of the average. A μ-strongly convex, L-smooth function is then

    f_i(w) = L t_i·w + μ/2 ‖w‖² + (L − μ) φ_i(w),     φ_i convex, 1-smooth, least at 0, where it is 0,

with Σ t_i = 0, and (1/N) Σ ‖∇f_i(w*)‖² = L² (1/N) Σ ‖t_i‖² is the heterogeneity at the optimum. Points x_a,
gradients u_a and values φ_a belong to some φ_i (in a space of enough dimensions) if and only if

    φ_a ≥ φ_b + u_b·(x_a − x_b) + ½ ‖u_a − u_b‖²     for all pairs of points, w* among them

(Taylor, Hendrickx, Glineur 2017). A round is linear in w_0, the u_a and the t_i, so all that is asked is linear in
their Gram matrix and in the φ_a. In this form μ = L and μ = 0 are no special cases, and ‖u_a‖ ≤ ‖x_a‖ keeps all
vectors at the scale of w_0: nothing depends on the unit of L.

**Any number of clients is two.** The rounds here treat clients alike and only their averages reach the server.
Averaging a Gram matrix over the permutations of clients changes no average and keeps the conditions, which are linear;
so u_{i,a} = ū_a + d_{i,a} with Σ_i d_{i,a} = 0 and, in the averaged Gram matrix, all d and t orthogonal to all ū and
w_0. Conversely, vectors with Σ_i d_i = 0 and any given Gram matrix common to all i exist for every N ≥ 2. Hence one
client stands for all: two blocks of vectors, one that the average keeps and one that it cancels. ``reduce=False``
writes all clients out instead, and is there to check this.

**Drifts that are fresh in every round** come from clients that are drawn: with S of them, independently,
E‖w_1‖² = ‖w̄‖² + (1/S) (1/N) Σ ‖w_{1,i} − w̄‖², where w_{1,i} is where client i alone would lead. That is linear, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nqm.check import InvalidInput, fail, integer, number

from .rounds import CFlag, Round

Array = NDArray[np.float64]

MOST_CONDITIONS = 1500
"""A few seconds; the time grows with the square."""

SHARED, OWN = 0, 1
"""What the average over clients keeps, and what it cancels."""


def function_class(mu: float, L: float) -> tuple[float, float]:
    """μ and L of the clients' functions, checked: 0 ≤ μ ≤ L and L > 0."""
    L = number("tight.L", L, 0.0, open_low=True)
    mu = number("tight.mu", mu, 0.0)
    if mu > L:
        raise fail("tight.mu", mu, f"must be at most tight.L = {L:g}")
    return mu, L


class Point(NamedTuple):
    """A point x at which a function was asked, u = ∇φ there, and the index of φ(x) among the values."""

    x: Array
    u: Array
    value: int
    basis: tuple[int, ...]
    """Where u stands in the Gram matrix."""


class Size(NamedTuple):
    """Of the semidefinite programme: the order of the Gram matrix, and how many conditions its entries meet."""

    order: int
    conditions: int


@dataclass
class Oracle:
    """One function, asked for gradients."""

    world: World
    tilt: Array
    blocks: tuple[int, ...]
    points: list[Point] = field(default_factory=list)

    def gradient(self, x: Array) -> Array:
        w = self.world
        return w.L * self.tilt + w.mu * x + (w.L - w.mu) * self.at(x).u

    def at(self, x: Array) -> Point:
        for point in self.points:
            if np.array_equal(point.x, x):
                return point
        first = len(self.world.block)
        u = np.sum([self.world.vector(block) for block in self.blocks], axis=0)
        self.points.append(Point(x, u, self.world.values, tuple(range(first, len(self.world.block)))))
        self.world.values += 1
        return self.points[-1]


class World:
    """The unknown clients of one round, and what the round makes of them.

    sources: which of the round's sources of bias are there; the others are zero.
    sampled: how many clients take part, drawn independently of each other; None: all.
    """

    def __init__(
        self,
        round: Round,
        mu: float,
        L: float,
        clients: int,
        sources: Sequence[str] = (),
        sampled: int | None = None,
        reduce: bool = True,
    ) -> None:
        self.round, self.mu, self.L, self.n_clients = round, mu, L, clients
        self.reduced = reduce
        size(round, clients, reduce)
        self.block: list[int] = []
        self.values = 0
        written = 1 if reduce else clients
        self._capacity = 4 + clients * (not reduce) + (2 * written + 1) * (round.local_steps + 1)
        self.start = self.vector(SHARED)
        zero = np.zeros(self._capacity)
        own = (SHARED, OWN) if reduce and clients > 1 else (SHARED,)

        tilts = [zero] * written
        self.anchor = zero
        self.source: dict[str, list[tuple[Array, float]]] = {}  # by name: vectors and weights of a sum of squares
        memory_tilt = zero
        if "clients" in sources and clients > 1:
            if reduce:
                tilts = [self.vector(OWN)]
            else:
                tilts = [self.vector(SHARED) for _ in range(clients - 1)]
                tilts.append(-np.sum(tilts, axis=0))
            self.source["clients"] = [(t, 1.0 / len(tilts)) for t in tilts]
        if "anchor" in sources:
            self.anchor = self.vector(SHARED)
            self.source["anchor"] = [(self.anchor, 1.0)]
        if "tasks" in sources and isinstance(round, CFlag):
            between = self.vector(SHARED)
            tilts, memory_tilt = [between] * written, -round.balance * between
            self.source["tasks"] = [(between, 1.0)]
        self.given = len(self.block)  # vectors that are not gradients

        self.clients = [Oracle(self, tilt, own) for tilt in tilts]
        self.memory = Oracle(self, memory_tilt, (SHARED,))
        ends = round.play(self)
        self.order = len(self.block)
        mean = self.mean(ends)
        self.end = self.square(mean)  # E‖w_1‖²
        if sampled is not None:
            self.end = self.end + np.mean([self.square(end - mean) for end in ends], axis=0) / sampled
        self.blocks = [np.flatnonzero(np.array(self.block) == b) for b in sorted(set(self.block))]

    def vector(self, block: int) -> Array:
        """One more unknown vector."""
        unit = np.zeros(self._capacity)
        unit[len(self.block)] = 1.0
        self.block.append(block)
        return unit

    def mean(self, vectors: Sequence[Array]) -> Array:
        """The average over clients."""
        if not self.reduced:
            return np.mean(vectors, axis=0)
        kept = np.zeros(self._capacity)
        kept[: len(self.block)] = np.array(self.block) == SHARED
        return kept * vectors[0]

    @property
    def oracles(self) -> list[Oracle]:
        return [*self.clients, self.memory]

    def square(self, x: Array) -> Array:
        """‖x‖² as a form in the Gram matrix."""
        return np.outer(x, x)[: self.order, : self.order]

    def source_form(self, name: str) -> Array:
        return np.sum([weight * self.square(x) for x, weight in self.source[name]], axis=0)

    def conditions(self) -> tuple[Array, Array, NDArray[np.int64]]:
        """Forms Q_c and rows F_c with Q_c·Gram + F_c·values ≥ 0, and the indices of those with w*, (values, 2).

        The last are φ_a ≥ 0 + ½‖u_a‖², and 0 ≥ φ_a − u_a·x_a + ½‖u_a‖².
        """
        Q: list[Array] = []
        F: list[Array] = []
        with_optimum = np.zeros((self.values, 2), dtype=np.int64)
        zero = np.zeros(self._capacity)
        for oracle in self.oracles:
            points = [*oracle.points, Point(zero, zero, -1, ())]
            for a in points:
                for b in points:
                    if a is b:
                        continue
                    product = np.outer(b.u, a.x - b.x)
                    form = -(product + product.T) / 2 - np.outer(a.u - b.u, a.u - b.u) / 2
                    row = np.zeros(self.values)
                    for value, sign in ((a.value, 1.0), (b.value, -1.0)):
                        if value >= 0:
                            row[value] += sign
                    if b.value < 0:
                        with_optimum[a.value, 0] = len(Q)
                    if a.value < 0:
                        with_optimum[b.value, 1] = len(Q)
                    Q.append(form[: self.order, : self.order])
                    F.append(row)
        return np.array(Q), np.array(F), with_optimum

    def lengths(self) -> Array:
        """Bounds on the length of every vector of the Gram matrix, as multiples of ‖w_0‖ and of each source's root.

        By the triangle inequality and ‖u‖ ≤ ‖x‖, point by point in the order in which the points were made.
        """
        bound = np.zeros((self.order, 1 + len(self.source)))
        bound[0, 0] = 1.0
        for s, (vectors, weight) in enumerate((v, v[0][1]) for v in self.source.values()):
            for x, _ in vectors:
                own = np.flatnonzero(x[: self.order])
                if len(own) == 1:
                    bound[own[0], 1 + s] = weight**-0.5
        points = sorted((p for o in self.oracles for p in o.points), key=lambda p: p.value)
        for point in points:
            bound[list(point.basis)] = np.abs(point.x[: self.order]) @ bound
        return bound

    def example(self, curvature: Sequence[float], start: float) -> tuple[Array, Array]:
        """Gram matrix and values where φ_i = c_i w²/2 on the line, two clients standing for all where reduced.

        Every source is 1, along the line; ``start`` is w_0.
        """
        signs = np.array([1.0, -1.0]) if self.reduced and self.n_clients > 1 else np.array([1.0])
        shared = np.array([b == SHARED for b in self.block])
        number, values = np.zeros(self.order), np.zeros(self.values)
        number[0], number[1 : self.given] = start, 1.0
        points = sorted(((p, k) for k, o in enumerate(self.oracles) for p in o.points), key=lambda pair: pair[0].value)
        for point, k in points:
            c = np.array([curvature[(k + j) % len(curvature)] for j in range(len(signs))])
            parts = point.x[: self.order] * number
            x = parts[shared].sum() + signs * parts[~shared].sum()
            values[point.value] = np.mean(c * x**2 / 2)
            for index in point.basis:
                number[index] = np.mean(c * x * (1.0 if shared[index] else signs))
        gram = np.outer(number, number) * (shared[:, None] == shared[None, :])
        return gram, values


def size(round: Round, clients: int, reduce: bool = True) -> Size:
    """What the programme will need, said before it is built; too much is refused."""
    N, K = integer("tight.clients", clients, 1), round.local_steps
    written, memory = (1 if reduce else N), int(isinstance(round, CFlag))
    vectors = 1 + written * K * (2 if reduce and N > 1 else 1) + memory
    tilts = len(round.sources) if reduce or memory else N - 1 + (len(round.sources) - 1)
    found = Size(vectors + tilts, written * K * (K + 1) + 2 * memory)
    if found.conditions > MOST_CONDITIONS:
        what = f"local_steps = {K}" + ("" if reduce else f", clients = {N}")
        raise InvalidInput(
            f"tight: {what} need a Gram matrix of order {found.order} under {found.conditions} conditions: at most "
            f"{MOST_CONDITIONS} are allowed; lower " + ("local_steps" if reduce else "local_steps or clients")
        )
    return found
