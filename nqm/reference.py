r"""The `reference` engine: plain NumPy that reads like the papers' pseudocode, with the dense Hessian.

Slow on purpose, and the oracle of every other engine. `nqm.kernels` is its fast twin and takes the same named draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import finite
from .draws import Purpose, normal_pairs, sample, stream
from .methods.base import Round
from .plan import Plan
from .problem import Quadratic

Array = NDArray[np.float64]
Objectives = dict[int, tuple[Array, Array]]
"""Hessian and offset of each of a round's clients."""


def runner(plan: Plan) -> Callable[[NDArray[np.uint64], Array, Array], None]:
    """A function that simulates one task of some seeds; see `nqm.compiled.Runner`."""
    n = plan.dim

    def run(seeds: NDArray[np.uint64], ends: Array, out: Array) -> None:
        problem = plan.experiment.problem
        for s, seed in enumerate(seeds):
            if not np.isfinite(ends[s]).all():
                out[s] = np.inf
                continue
            begin = problem.from_eigen(ends[s, :n] + problem.optimum_eigen)
            path = Path(plan, int(seed))
            for t, (w, trace) in enumerate(path.points(begin)):
                seen = [trace.get(name, np.nan) for name in plan.method.traces]
                unseen = [np.nan] * plan.federation.slots
                each = [x for name in plan.method.client_traces for x in trace.get(name, unseen)]
                out[s, :, t] = [*metrics(plan, w, begin), *seen, *each]
            ends[s, :n] = problem.to_eigen(w) - problem.optimum_eigen

    return run


def state_size(plan: Plan) -> int:
    """Bytes that one seed needs: dense matrices, and every client's drift and slope of every round."""
    return 8 * (6 * plan.dim**2 + 3 * plan.federation.slots * plan.federation.rounds * plan.dim)


def metrics(plan: Plan, w: Array, begin: Array) -> list[float]:
    """Squared gradient norm, excess loss, squared distance to the nearest minimiser.

    In a sequence of tasks also the squared distance from where the task began, and every task's excess loss.
    """
    problem = plan.experiment.problem
    gradient = slope_at(problem, w)
    seen = problem.to_eigen(w - problem.optimum)[problem.eigenvalues > 0]
    own = [float(gradient @ gradient), loss_at(problem, w), float(seen @ seen)]
    if not plan.sequence:
        return own
    return [*own, float((w - begin) @ (w - begin)), *(loss_at(p, w) for p in plan.sequence)]


def cut(problem: Quadratic) -> float:
    """Where a gradient is cut off in each eigen-direction: nowhere, unless the problem bounds it."""
    return np.inf if problem.gradient_bound is None else problem.gradient_bound / np.sqrt(problem.dim)


def slope_at(problem: Quadratic, w: Array) -> Array:
    """The global gradient."""
    return problem.from_eigen(np.clip(problem.to_eigen(problem.A @ (w - problem.optimum)), -cut(problem), cut(problem)))


def loss_at(problem: Quadratic, w: Array) -> float:
    """f(w) - f*: quadratic, and linear in a direction where the gradient is cut off."""
    away, lam, c = np.abs(problem.to_eigen(w - problem.optimum)), problem.eigenvalues, cut(problem)
    bent = lam * away > c
    curved = 0.5 * lam[~bent] @ away[~bent] ** 2
    return float(curved + (c * (away[bent] - 0.5 * c / lam[bent])).sum()) if bent.any() else float(curved)


def everyone(exact: Callable[[int, Array], Array], objectives: Objectives, w: Array) -> Array:
    """The average exact gradient of the round's clients."""
    return np.mean([exact(i, w) for i in objectives], axis=0)


def noisy(exact: Callable[[Array], Array], noise: Array, v: Array) -> Array:
    return exact(v) + noise


class Path:
    """One seed's run through a task. Drift is remembered round by round, as the papers write it."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan, self.seed = plan, seed
        self.time: dict[int, Array] = {}  # the unit AR(1) process behind each client's time drift
        self.offsets: dict[int, list[Array]] = {}  # x_{1..t,i}: what each client's gradient was off by, round by round
        self.slopes: dict[int, list[Array]] = {}

    def draw(self, purpose: Purpose, round: int, client: int) -> tuple[Array, Array]:
        return normal_pairs(stream(self.seed, purpose, self.plan.task, round, client), np.arange(self.plan.dim))

    def points(self, begin: Array) -> Iterator[tuple[Array, dict[str, Any]]]:
        """w_0, ..., w_T and what the method traces.

        Algorithm 2 of `cfl`; a method without memory has all weight on the current round.
        """
        plan, method, federation = self.plan, self.plan.method, self.plan.federation
        if federation.samples:
            yield from finite.points(plan, self.seed, begin)
            return
        memory: dict[Any, Any] = {}
        w = begin
        yield w, {}
        for t in range(1, federation.rounds + 1):
            p = plan.weights.row(t)
            for i in range(federation.slots):
                self.drift(t, i)
            chosen = np.arange(federation.slots)
            if federation.partial:
                chosen = sample(self.seed, plan.task, t, federation.clients, federation.S)
            objectives = {i: self.objective(t, i, p) for i in chosen.tolist()}
            if federation.cohort != "own":
                self.share(objectives)
            exact = partial(self.gradient, objectives)
            average = partial(everyone, exact, objectives, w)
            r = Round(w, begin, plan.task + 1, federation, average, self.foresight, memory)
            r.start = method.start(r)
            for i in chosen.tolist():
                noise = self.noise(t, i)
                v, r.client = r.start, i
                for k in range(federation.local_steps):
                    v = method.local_step(v, r, partial(noisy, partial(exact, i), noise[k]))
                r.updates[i] = v - r.start
            w = method.server_step(r, np.mean(list(r.updates.values()), axis=0))
            yield w, r.trace

    def gradient(self, objectives: Objectives, i: int, v: Array) -> Array:
        """Client i's exact gradient at v."""
        problem = self.plan.experiment.problem
        H, offset = objectives[i]
        g = problem.to_eigen(H @ (v - problem.optimum) + offset)
        return problem.from_eigen(np.clip(g, -cut(problem), cut(problem)))

    def drift(self, t: int, i: int) -> None:
        """Client i moves on to round t, sampled or not."""
        plan = self.plan
        z = self.draw(Purpose.TIME, t, i)[0]
        a = plan.alpha
        self.time[i] = a * self.time[i] + np.sqrt(1 - a * a) * z if i in self.time else z
        moves = np.sqrt(plan.var_time) * self.time[i]
        slope = np.sqrt(plan.drift.time_slope) * self.draw(Purpose.SLOPE, t, i)[0]
        if plan.redrawn:
            delta, e = self.draw(Purpose.CLIENT, t, i)
            moves = moves + np.sqrt(plan.var_redrawn) * delta
            slope = slope + np.sqrt(plan.drift.client_slope) * e
        self.offsets.setdefault(i, []).append(moves)
        self.slopes.setdefault(i, []).append(slope)

    def objective(self, t: int, i: int, p: Array) -> tuple[Array, Array]:
        """Hessian and offset of  sum_tau p_tau f_{tau,i}  with information loss on what is remembered."""
        plan, problem = self.plan, self.plan.experiment.problem
        offset = p @ np.array(self.offsets[i])
        slope = p @ np.array(self.slopes[i])
        if not plan.redrawn:
            if plan.clients is not None:
                offset, slope = offset + plan.clients.delta[i], slope + plan.clients.slope[i]
            else:
                delta, e = self.draw(Purpose.CLIENT, 0, i)
                offset = offset + np.sqrt(plan.drift.client / plan.dim) * delta
                slope = slope + np.sqrt(plan.drift.client_slope) * e
        if not plan.federation.stateless:
            offset = offset + np.sqrt(plan.drift.overlap / plan.dim) * self.draw(Purpose.COMMON, 0, i)[0]
        own = self.draw(Purpose.COMMON, t if plan.federation.stateless else 0, i)[1]
        random = np.sqrt(plan.var_loss) * self.draw(Purpose.TIME, t, i)[1]
        offset = offset + (1 - p[-1]) * (np.sqrt(plan.var_loss_client) * own + random)
        shared = 0.0 if plan.drift.loss_per_client else plan.drift.loss_mean  # I in every coordinate of w itself
        U = problem.rotation_matrix
        return (U.T * (problem.eigenvalues * (1 + slope))) @ U, problem.from_eigen(offset) + (1 - p[-1]) * shared

    def share(self, objectives: Objectives) -> None:
        """Pool what the cohort's clients differ by, or keep only what sets them apart; see `Federation.cohort`."""
        S = len(objectives)
        who = list(objectives)
        drift = {i: self.own(i) for i in who}
        for part in (0, 1):
            mean = np.mean([drift[i][part] for i in who], axis=0)
            for i in who:
                apart = (
                    np.sqrt(S / (S - 1)) * (drift[i][part] - mean) if self.plan.federation.cohort == "dealt" else mean
                )
                change = apart - drift[i][part]
                new = list(objectives[i])
                new[part] = new[part] + change
                objectives[i] = (new[0], new[1])

    def own(self, i: int) -> tuple[Array, Array]:
        """Hessian and offset that stay with client i, without what moves."""
        plan, problem = self.plan, self.plan.experiment.problem
        if plan.redrawn:
            offset, slope = np.zeros(plan.dim), np.zeros(plan.dim)
        elif plan.clients is not None:
            offset, slope = plan.clients.delta[i], plan.clients.slope[i]
        else:
            delta, e = self.draw(Purpose.CLIENT, 0, i)
            offset, slope = np.sqrt(plan.drift.client / plan.dim) * delta, np.sqrt(plan.drift.client_slope) * e
        if not plan.federation.stateless:
            offset = offset + np.sqrt(plan.drift.overlap / plan.dim) * self.draw(Purpose.COMMON, 0, i)[0]
        U = problem.rotation_matrix
        return (U.T * (problem.eigenvalues * slope)) @ U, problem.from_eigen(offset)

    def foresight(self, start: Array) -> tuple[Array, float]:
        """Mean of the average update from ``start``, and its variance per direction, given the clients; no slopes."""
        plan, problem, federation = self.plan, self.plan.experiment.problem, self.plan.federation
        S, N, K = federation.S, federation.slots, federation.local_steps
        assert plan.server is not None
        step = plan.server.step
        shrink = np.eye(plan.dim) - step * problem.A
        powers = [np.linalg.matrix_power(shrink, k) for k in range(K)]
        pull = step * np.sum(powers, axis=0)  # what a constant offset does in K steps
        stays = np.array([self.own(i)[1] for i in range(N)])
        mean = -pull @ (problem.A @ (start - problem.optimum) + stays.mean(axis=0))
        between = (1 / S - 1 / N) * np.cov(stays.T, ddof=1).reshape(plan.dim, plan.dim) if N > 1 else 0.0
        white = (plan.var_time + plan.var_redrawn) / S * np.eye(plan.dim)
        noise = step**2 * plan.var_noise / S * np.sum([p @ p.T for p in powers], axis=0)
        return mean, float(np.trace(pull @ (between + white) @ pull.T + noise)) / plan.dim

    def noise(self, t: int, i: int) -> Array:
        """The K noise vectors of a round, (K, dim)."""
        plan, K = self.plan, self.plan.federation.local_steps
        counters = np.arange((K + 1) // 2 * plan.dim).reshape(-1, plan.dim)
        pairs = normal_pairs(stream(self.seed, Purpose.NOISE, plan.task, t, i), counters)
        interleaved = np.stack(pairs, axis=1).reshape(-1, plan.dim)[:K]
        if plan.experiment.problem.gradient_bound is not None:  # two values, so that it is bounded as well
            interleaved = np.copysign(1.0, interleaved)
        return np.sqrt(plan.var_noise) * interleaved @ plan.experiment.problem.rotation_matrix
