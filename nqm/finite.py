r"""Finite sums: every client holds n samples, and its loss is their mean. The slow, readable twin of `kernels.finite`.

Sample j of client i has the gradient (A + E_i + E_ij)(w - w*) + delta_i + zeta_ij, with E_ij and zeta_ij centred
over j. A task's samples are gone when the next begins, but for those that a client keeps in its memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .draws import Purpose, normal_pairs, stream, uniforms
from .plan import Plan, draw_clients
from .problem import Quadratic

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Client:
    """One client's samples of one task: curvatures in the eigenbasis and offsets, (samples, dim) both."""

    problem: Quadratic
    curvature: Array
    offset: Array

    def component(self, j: int, w: Array) -> Array:
        e = self.problem.to_eigen(w) - self.problem.optimum_eigen
        return self.problem.from_eigen(self.curvature[j] * e + self.offset[j])


def spread(variance: float, samples: int) -> float:
    """What n independent numbers must vary by for their deviations from the mean to have ``variance``."""
    return variance / (1 - 1 / samples) if samples > 1 else 0.0


def client(plan: Plan, problem: Quadratic, seed: int, task: int, i: int) -> Client:
    """The samples that ``seed`` gives to client i in a task, counted from 0."""
    drift, n = plan.drift, plan.federation.samples
    everyone = draw_clients(problem, drift, plan.federation, seed, task + 1)
    names = stream(seed, Purpose.DATA, task, np.arange(n)[:, None], i)
    zeta, slope = normal_pairs(names, np.arange(problem.dim))
    zeta = np.sqrt(spread(drift.sample, n) / problem.dim) * (zeta - zeta.mean(axis=0))
    slope = np.sqrt(spread(drift.sample_slope, n)) * (slope - slope.mean(axis=0))
    return Client(problem, problem.eigenvalues * (1 + everyone.slope[i] + slope), everyone.delta[i] + zeta)


def kept(plan: Plan, seed: int, i: int, size: int) -> list[tuple[int, int]]:
    """(task, sample) of what client i remembers in this task: the head of a shuffle of its past."""
    n = plan.federation.samples
    order = np.arange(plan.task * n)
    u = uniforms(stream(seed, Purpose.MEMORY, plan.task, 0, i), np.arange(size))
    for a in range(size):
        b = a + int(u[a] * (len(order) - a))
        order[a], order[b] = order[b], order[a]
    return [divmod(int(q), n) for q in order[:size]]


@dataclass
class FiniteRound:
    """What a method on a finite sum may ask for, in the coordinates of w."""

    plan: Plan
    seed: int
    t: int
    w: Array
    now: list[Client]
    past: list[list[Client]]  # by client, then by task
    memories: list[list[tuple[int, int]]]
    trace: dict[str, Any] = field(default_factory=dict)

    @property
    def clients(self) -> int:
        return len(self.now)

    @property
    def samples(self) -> int:
        return self.plan.federation.samples

    @property
    def steps(self) -> int:
        return self.plan.federation.local_steps

    @property
    def remembers(self) -> bool:
        return bool(self.memories)

    @property
    def largest(self) -> float:
        return float(self.plan.experiment.problem.eigenvalues.max())

    def component(self, i: int, j: int, v: Array) -> Array:
        return self.now[i].component(j, v)

    def gradient(self, i: int, v: Array) -> Array:
        return np.mean([self.component(i, j, v) for j in range(self.samples)], axis=0)

    @cached_property
    def global_gradient(self) -> Array:
        return np.mean([self.gradient(i, self.w) for i in range(self.clients)], axis=0)

    def draws(self, i: int) -> list[int]:
        """A sample for every local step."""
        u = uniforms(stream(self.seed, Purpose.PICK, self.plan.task, self.t, i), np.arange(self.steps))
        return [int(x * self.samples) for x in u]

    def picks(self, i: int) -> list[int | None]:
        """The same, but for the first step, which sees all samples."""
        return [None, *self.draws(i)[1:]]

    def memory_gradient(self, i: int, v: Array) -> Array:
        return np.mean([self.past[i][task].component(j, v) for task, j in self.memories[i]], axis=0)

    def past_gradient(self, i: int, v: Array) -> Array:
        each = [c.component(j, v) for c in self.past[i] for j in range(self.samples)]
        return np.mean(each, axis=0)


def points(plan: Plan, seed: int, begin: Array) -> Iterator[tuple[Array, dict[str, Any]]]:
    """w_0, ..., w_T of one task, and what the method traces."""
    N, method = plan.federation.slots, plan.method
    problems = plan.sequence or (plan.experiment.problem,)
    now = [client(plan, problems[plan.task], seed, plan.task, i) for i in range(N)]
    past = [[client(plan, problems[k], seed, k, i) for k in range(plan.task)] for i in range(N)]
    size = getattr(method, "memory", 0)
    memories = [kept(plan, seed, i, size) for i in range(N)] if size and plan.task else []
    w = begin
    yield w, {}
    for t in range(1, plan.federation.rounds + 1):
        r = FiniteRound(plan, seed, t, w, now, past, memories)
        w = method.finite_round(r)
        yield w, r.trace
