r"""The `reference` engine: plain NumPy that reads like the papers' pseudocode, with the dense Hessian.

Slow on purpose, and the oracle of every other engine. `nqm.kernels` is its fast twin and takes the same named draws.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .draws import Purpose, normal_pairs, sample, stream
from .plan import Plan

Array = NDArray[np.float64]


def runner(plan: Plan) -> Callable[[NDArray[np.uint64], Array], None]:
    """A function that simulates seeds into an array (seeds, 3, rounds + 1)."""

    def run(seeds: NDArray[np.uint64], out: Array) -> None:
        for s, seed in enumerate(seeds):
            path = Path(plan, int(seed))
            for t, w in enumerate(path.points()):
                out[s, :, t] = metrics(plan, w)

    return run


def state_size(plan: Plan) -> int:
    """Bytes that one seed needs: dense matrices, and every client's drift and slope of every round."""
    return 8 * (6 * plan.dim**2 + 3 * plan.federation.slots * plan.federation.rounds * plan.dim)


def metrics(plan: Plan, w: Array) -> tuple[float, float, float]:
    """Squared gradient norm, excess loss, and squared distance to the nearest minimiser."""
    problem = plan.experiment.problem
    away = w - problem.optimum
    gradient = problem.A @ away
    seen = problem.to_eigen(away)[problem.eigenvalues > 0]
    return float(gradient @ gradient), float(0.5 * away @ gradient), float(seen @ seen)


class Path:
    """One seed's run. Drift is remembered round by round, as the papers write it."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan, self.seed = plan, seed
        self.time: dict[int, Array] = {}  # the unit AR(1) process behind each client's time drift
        self.offsets: dict[int, list[Array]] = {}  # x_{1..t,i}: what each client's gradient was off by, round by round
        self.slopes: dict[int, list[Array]] = {}

    def draw(self, purpose: Purpose, round: int, client: int) -> tuple[Array, Array]:
        return normal_pairs(stream(self.seed, purpose, 0, round, client), np.arange(self.plan.dim))

    def points(self) -> list[Array]:
        """w_0, ..., w_T (Algorithm 2 of `cfl`; a method without memory has all weight on the current round)."""
        plan, problem = self.plan, self.plan.experiment.problem
        method, federation = plan.method, plan.federation
        w = problem.from_eigen(problem.w0_eigen)
        points = [w]
        for t in range(1, federation.rounds + 1):
            p = plan.weights.row(t)
            for i in range(federation.slots):
                self.drift(t, i)
            chosen = np.arange(federation.slots)
            if federation.partial:
                chosen = sample(self.seed, 0, t, federation.clients, federation.S)
            updates = []
            for client in chosen.tolist():
                H, offset = self.objective(t, client, p)
                noise = self.noise(t, client)
                local = w
                for k in range(federation.local_steps):

                    def gradient(
                        v: Array, k: int = k, H: Array = H, offset: Array = offset, noise: Array = noise
                    ) -> Array:
                        return H @ (v - problem.optimum) + offset + noise[k]

                    local = method.local_step(local, w, gradient, federation.local_steps)
                updates.append(local - w)
            w = method.server_step(w, np.mean(updates, axis=0))
            points.append(w)
        return points

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

    def noise(self, t: int, i: int) -> Array:
        """The K noise vectors of a round, (K, dim)."""
        plan, K = self.plan, self.plan.federation.local_steps
        counters = np.arange((K + 1) // 2 * plan.dim).reshape(-1, plan.dim)
        pairs = normal_pairs(stream(self.seed, Purpose.NOISE, 0, t, i), counters)
        interleaved = np.stack(pairs, axis=1).reshape(-1, plan.dim)[:K]
        return np.sqrt(plan.var_noise) * interleaved @ plan.experiment.problem.rotation_matrix
