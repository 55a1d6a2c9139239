r"""The quadratic that everybody minimises: f(w) = 1/2 w^T A w + b^T w with A = U^T diag(lambda) U.

The printed objective of `cfl`, Section 5.1, is w^T A w + B^T w + C, whose gradient is 2Aw + B; the paper
iterates Aw + B, and so do we. All engines but `reference` work with e = w - w* in the eigenbasis of A, where the
directions part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .check import InvalidInput, choice, fail, integer, memory, number
from .draws import Purpose, normal_pairs, stream, uniforms

SPECTRA = ("linspace", "midpoint", "uniform", "log")
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Quadratic:
    """A convex quadratic in ``dim`` dimensions with eigenvalues in [mu, L].

    spectrum: ``"midpoint"`` (middles of dim equal cells of [mu, L]), ``"linspace"`` (ends included),
        ``"uniform"`` (random), ``"log"`` (geometric, needs mu > 0), or a list of dim eigenvalues.
    rotation: ``"haar"`` for a random orthogonal U, ``"none"`` for U = 1.
    b, w0: a scale (that many standard normals) or a list of dim coordinates.
    seed: names what is random about the problem itself.

    task_shift: sigma_T^2, the drift budget of a sequence of tasks: every task's b lies elsewhere, so that
        ||grad f_i(w) - grad f_j(w)||^2 is the same for all w, and exactly sigma_T^2 for the two tasks furthest apart
        (Assumption 4.6 of `special`, met with equality).
    tasks: a table for every task, with what it has of its own: ``mu``, ``L``, ``spectrum``, ``b``. Tasks share
        dimension, eigenbasis and w0. Two spectra that differ make the difference of two tasks' gradients unbounded.
    gradient_bound: bend every client's loss to a Huber-like one: along each eigen-direction its gradient is cut off at
        +-gradient_bound/sqrt(dim), so that no exact gradient is longer than the bound (Assumption 4.1 of `special`).
        Step noise is then two-valued, hence bounded as well.

    A direction of exact eigenvalue zero has no minimiser unless b vanishes there: drawn b are projected on the
    range of A, given ones outside it are refused. Distances are to the nearest minimiser.
    """

    dim: int = 50
    mu: float | None = None
    L: float | None = None
    spectrum: str | tuple[float, ...] = "midpoint"
    rotation: str = "haar"
    b: float | tuple[float, ...] = 1.0
    w0: float | tuple[float, ...] = 0.0
    seed: int = 0
    task_shift: float = 0.0
    tasks: tuple[Any, ...] = ()
    gradient_bound: float | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        dim = integer("problem.dim", self.dim, 1)
        put(self, "dim", dim)
        put(self, "seed", integer("problem.seed", self.seed, 0))
        choice("problem.rotation", self.rotation, ("haar", "none"))
        if isinstance(self.spectrum, str):
            choice("problem.spectrum", self.spectrum, SPECTRA)
            put(self, "mu", number("problem.mu", 1.0 if self.mu is None else self.mu, 0.0))
            put(self, "L", number("problem.L", 20.0 if self.L is None else self.L, 0.0, open_low=True))
            if self.spectrum == "log" and self.mu == 0:
                raise fail("problem.mu", self.mu, "must be > 0 for the log spectrum")
        else:
            values = _vector("problem.spectrum", self.spectrum, dim)
            low = min(values) if self.mu is None else number("problem.mu", self.mu, 0.0)
            high = max(values) if self.L is None else number("problem.L", self.L, 0.0, open_low=True)
            for x in values:
                if x < 0 or not low <= x <= high:
                    raise fail("problem.spectrum", x, f"eigenvalues must lie in [mu, L] = [{max(low, 0):g}, {high:g}]")
            put(self, "spectrum", values)
            put(self, "mu", low)
            put(self, "L", number("problem.L", high, 0.0, open_low=True))
        if self.mu > self.L:  # type: ignore[operator]  # both are numbers by now
            raise fail("problem.mu", self.mu, f"must be at most problem.L = {self.L:g}")
        for name in ("b", "w0"):
            value: Any = getattr(self, name)
            if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str):
                put(self, name, _vector(f"problem.{name}", value, dim))
            else:
                put(self, name, number(f"problem.{name}", value))
        put(self, "task_shift", number("problem.task_shift", self.task_shift, 0.0))
        tables: Any = self.tasks
        if not isinstance(tables, (list, tuple)) or not all(isinstance(t, Mapping) for t in tables):
            raise fail(
                "problem.tasks", tables, "must be a list of tables, one a task (federation.tasks is their number)"
            )
        put(self, "tasks", tuple(_task_table(k, dict(t), dim) for k, t in enumerate(tables, 1)))
        if self.gradient_bound is not None:
            bound = number("problem.gradient_bound", self.gradient_bound, 0.0, open_low=True)
            put(self, "gradient_bound", bound)
        for k, table in enumerate(self.tasks, 1):
            _task(replace(self, tasks=(), task_shift=0.0), k, table)
        if isinstance(self.b, tuple):
            outside = np.abs(self.b_eigen[self.eigenvalues == 0])
            if outside.size and outside.max() > 1e-12 * max(1.0, float(np.abs(self.b_eigen).max())):
                raise InvalidInput(
                    f"problem.b has a part of size {outside.max():g} where A has eigenvalue 0: "
                    "f is unbounded below there; set it to 0 or make mu > 0"
                )

    @cached_property
    def eigenvalues(self) -> Array:
        mu, L, n = float(self.mu or 0.0), float(self.L or 0.0), self.dim
        if isinstance(self.spectrum, tuple):
            return np.array(self.spectrum)
        if self.spectrum == "linspace":
            return np.linspace(mu, L, n)
        if self.spectrum == "midpoint":
            return mu + (L - mu) * (np.arange(n) + 0.5) / n
        if self.spectrum == "log":
            return np.clip(np.geomspace(mu, L, n), mu, L)
        return mu + (L - mu) * np.sort(uniforms(stream(self.seed, Purpose.SPECTRUM), np.arange(n)))

    @cached_property
    def rotation_matrix(self) -> Array:
        """U, whose rows are the eigenvectors of A: Haar-distributed by QR of a Gaussian matrix with signs mended."""
        n = self.dim
        if self.rotation == "none":
            return np.eye(n)
        memory(4 * 8 * n * n, f"problem.dim = {n}: the rotation", 'lower dim or use rotation = "none"')
        gauss = normal_pairs(stream(self.seed, Purpose.ROTATION), np.arange(n * n))[0].reshape(n, n)
        q, r = np.linalg.qr(gauss)
        return q * np.sign(np.diag(r))

    @cached_property
    def b_eigen(self) -> Array:
        """b in the eigenbasis."""
        b = self._eigen(self.b, Purpose.PROBLEM_B)
        return np.where(self.eigenvalues > 0, b, 0.0) if not isinstance(self.b, tuple) else b

    @cached_property
    def w0_eigen(self) -> Array:
        """The start in the eigenbasis."""
        return self._eigen(self.w0, Purpose.PROBLEM_W0)

    @cached_property
    def optimum_eigen(self) -> Array:
        """w* = -b/lambda in the eigenbasis; 0 in directions of eigenvalue zero, where any w will do."""
        lam = self.eigenvalues
        return np.divide(-self.b_eigen, lam, out=np.zeros(self.dim), where=lam > 0)

    @cached_property
    def start(self) -> Array:
        """e_0 = w_0 - w* in the eigenbasis."""
        return self.w0_eigen - self.optimum_eigen

    def to_eigen(self, w: Array) -> Array:
        return w if self.rotation == "none" else self.rotation_matrix @ w

    def from_eigen(self, x: Array) -> Array:
        return x if self.rotation == "none" else self.rotation_matrix.T @ x

    @cached_property
    def A(self) -> Array:
        """The dense Hessian."""
        U = self.rotation_matrix
        return (U.T * self.eigenvalues) @ U

    @cached_property
    def optimum(self) -> Array:
        return self.from_eigen(self.optimum_eigen)

    def sequence(self, count: int) -> list[Quadratic]:
        """The problems of ``count`` tasks, in order; the first is this one unless its table says otherwise."""
        if self.tasks and len(self.tasks) != count:
            raise fail("federation.tasks", count, f"must be {len(self.tasks)}, the number of tables in problem.tasks")
        if count == 1 and not self.tasks:
            return [self]
        alone = replace(self, tasks=(), task_shift=0.0)
        problems = [_task(alone, k, table) for k, table in enumerate(self.tasks, 1)] or [alone] * count
        if self.task_shift == 0 or count == 1:
            return problems
        kept = np.all([p.eigenvalues > 0 for p in problems], axis=0)  # a direction without curvature has no optimum
        who = np.arange(1, count)[:, None]
        shifts = np.zeros((count, self.dim))
        shifts[1:] = kept * normal_pairs(stream(self.seed, Purpose.TASK, who), np.arange(self.dim))[0]
        if not kept.any():
            raise fail("problem.task_shift", self.task_shift, "needs a direction with an eigenvalue > 0 in every task")
        apart = [float(((s - r) ** 2).sum()) for k, s in enumerate(shifts) for r in shifts[:k]]
        shifts *= np.sqrt(self.task_shift / max(apart))
        moved = [p.from_eigen(p.b_eigen + s) for p, s in zip(problems[1:], shifts[1:], strict=True)]
        return [problems[0], *(replace(p, b=tuple(b)) for p, b in zip(problems[1:], moved, strict=True))]

    def _eigen(self, given: float | tuple[float, ...], purpose: Purpose) -> Array:
        if isinstance(given, tuple):
            return self.to_eigen(np.array(given))
        if given == 0:
            return np.zeros(self.dim)
        # A rotation keeps the law of a standard normal vector, so it is drawn where it is needed.
        return given * normal_pairs(stream(self.seed, purpose), np.arange(self.dim))[0]


def _task(alone: Quadratic, task: int, table: dict[str, Any]) -> Quadratic:
    """The problem of one task; what is wrong with it is said of its table."""
    try:
        return replace(alone, **table)
    except InvalidInput as error:
        raise InvalidInput(str(error).replace("problem.", f"problem.tasks[{task}].", 1)) from None


OWN = ("mu", "L", "spectrum", "b")


def _task_table(task: int, table: dict[str, Any], dim: int) -> dict[str, Any]:
    """What a task has of its own, checked as far as it can be without the rest of the problem."""
    here = f"problem.tasks[{task}]"
    if table.get("dim", dim) != dim:
        raise fail(f"{here}.dim", table["dim"], f"must be problem.dim = {dim}: all tasks have the same dimension")
    table.pop("dim", None)
    for name, value in table.items():
        if name not in OWN:
            raise InvalidInput(f"{here}.{name}: unknown field; a task may have its own {', '.join(OWN)}")
        if isinstance(value, (list, tuple, np.ndarray)):
            if len(value) != dim:
                text = f"{here}.{name} has {len(value)} numbers: must have problem.dim = {dim}"
                raise InvalidInput(text + ", all tasks have the same dimension")
            table[name] = tuple(value)
    if isinstance(table.get("spectrum"), tuple):
        table = {"mu": None, "L": None} | table  # the ends of a given spectrum are its own
    return table


def _vector(field: str, values: Any, dim: int) -> tuple[float, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, np.ndarray)):
        raise fail(field, values, f"must be a list of {dim} numbers")
    if len(values) != dim:
        raise InvalidInput(f"{field} has {len(values)} numbers: must have problem.dim = {dim}")
    return tuple(number(field, x) for x in values)
