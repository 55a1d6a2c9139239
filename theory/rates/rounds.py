"""Rounds to an accuracy: the first T at which the error is at most eps (plus phi), for the best learning rate.

Without memory the error has a closed form in T and the crossing is found by doubling and bisection, T real. With
CFL's memory the compiled recursion of `nqm.expect` is run to a horizon that grows until some rate arrives.
A grid of rates that has its best at the lower end is widened, and the result says by how much; an accuracy that no
rate reaches gives infinitely many rounds and the floor beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

import nqm
from nqm.check import InvalidInput
from nqm.exact import compiled_arguments
from nqm.plan import Plan
from theory import weights
from theory.bounds import cfl_rates

from .world import World, check, one_round

Array = NDArray[np.float64]

OCTAVES = 80  # 2^80 rounds in closed form count as infinite
SECTIONS = 16
HORIZON = 1 << 19  # the most rounds that are iterated one by one
PER_DECADE = 4  # rates
MARCHING = 5, 2  # decades, and rates in each, where rounds are iterated and widening is dear
WIDEST = 14  # decades to which it may be widened
TUNINGS = ("prescribed", "free")

Hits = Callable[[Array], tuple[Array, Array]]


@dataclass(frozen=True)
class Reached:
    """Rounds to the target with the best rate. floor: the least error that any rate tried settles at.

    widened: by how many decades the grid of rates had to go down. at_bound: the largest rate allowed is the best.
    """

    rounds: float
    lr: float
    target: float
    floor: float
    widened: int
    at_bound: bool

    def __str__(self) -> str:
        if math.isinf(self.rounds):
            return f"eps = {self.target:g} is not reachable: the floor is {self.floor:.3g}"
        said = f"; the grid of rates was widened by {self.widened} decades" if self.widened else ""
        return f"{self.rounds:.4g} rounds to {self.target:g} at lr = {self.lr:.3g}{said}"


def phi(world: World, method: str) -> float:
    """The bias that the theorem adds to eps: c_3 ‖w_0 − w*‖ for CFL, nothing for FedAvg."""
    if method != "cfl" or world.part == "nc":
        return 0.0
    if math.isinf(world.R2):
        return 0.0  # nothing is remembered
    return cfl_rates.bias(math.sqrt(world.H), world.D2 - world.F2, world.R2)


@cache
def rounds_to(world: World, method: str = "fedavg", tuning: str = "free") -> Reached:
    """Rounds until the world's error is at most eps + phi, the rate tuned within the theorem's bound or freely.

    Non-convex, the theorem fixes the rate, √(KN)/(√T L K), and the error is the mean of ‖∇f‖² over the rounds.
    """
    check(world)
    if tuning not in TUNINGS:
        raise InvalidInput(f"tuning = {tuning!r}: must be one of {', '.join(TUNINGS)}")
    target = world.eps + phi(world, method)
    if world.part == "nc" and tuning == "prescribed":
        return _fixed_by_rounds(world, target)
    whole = world.K if method == "sgd" else 1  # SGD's rate is that of the whole round
    bound, stable = world.step_bound * whole, world.stable * whole
    hits, grid = _hits(world, method, target)
    if tuning == "prescribed":
        return tune(hits, bound, target, *grid)
    if world.part != "nc":
        within = rounds_to(world, method, "prescribed")
        if math.isfinite(within.rounds) and not within.at_bound:  # the best may still lie above the bound
            if grid == MARCHING:
                hits, _ = _hits(world, method, target, at_most=math.ceil(within.rounds))
            beyond, _ = hits(np.geomspace(bound, stable * (1 - 1e-9), 3 * PER_DECADE))
            if beyond.min() >= within.rounds:
                return within
            hits, _ = _hits(world, method, target)
    return tune(hits, stable, target, *grid)


def _hits(world: World, method: str, target: float, at_most: int = 0) -> tuple[Hits, tuple[int, int]]:
    """A function from rates to rounds and to the errors that the rates settle at; the grid to begin with.

    at_most: iterate no further than this, where rounds are iterated.
    """
    if method == "cfl" and world.D2 > world.F2 and math.isfinite(world.R2):
        horizon = Horizon(at_most, True) if at_most else Horizon()
        return lambda lrs: _hits_by_marching(world, lrs, target, horizon), MARCHING
    mean = world.part == "nc"

    def hits(lrs: Array) -> tuple[Array, Array]:
        r = one_round(world, lrs, method)
        return crossing(lambda T: r.error(T, mean), len(lrs), target), r.error(np.full(len(lrs), np.inf), mean)

    return hits, (2, PER_DECADE)


def crossing(error: Callable[[Array], Array], count: int, target: float, last: bool = False) -> Array:
    """The least T with error(T) <= target for ``count`` curves at once, real; 0 if it holds at the start, else inf.

    last: the least T from which on the error stays there. ``error`` takes and gives (points, count). Doubling finds the
    first octave in which a curve arrives, repeated section into ``SECTIONS`` parts the place in it.
    """
    grid = np.concatenate(([0.0], 2.0 ** np.arange(OCTAVES + 1)))
    reached = error(np.tile(grid[:, None], count)) <= target
    if last:
        reached = np.logical_and.accumulate(reached[::-1])[::-1]
    first = reached.argmax(axis=0)
    low, high = grid[np.maximum(first - 1, 0)], grid[first]
    inside = np.arange(count)
    parts = np.linspace(0.0, 1.0, SECTIONS + 1)[:, None]
    for _ in range(10):
        T = low + parts * (high - low)
        good = error(T) <= target
        good[-1] = True  # by what came before, rounding aside
        at = good.argmax(axis=0)
        low, high = T[np.maximum(at - 1, 0), inside], T[at, inside]
    return np.where(reached.any(axis=0), high, np.inf)


def tune(
    hits: Hits,
    limit: float,
    target: float,
    decades: int = 2,
    per_decade: int = PER_DECADE,
) -> Reached:
    """The best rate up to ``limit``. ``hits(rates)`` gives rounds and floors; lower rates have lower floors."""
    lrs = np.geomspace(10.0**-decades, 1.0, per_decade * decades + 1) * limit * (1 - 1e-9)
    rounds, floors = hits(lrs)
    widened = 0
    while widened < WIDEST - decades and (np.argmin(rounds) == 0 or not np.isfinite(rounds).any()):
        if not np.isfinite(rounds).any() and widened >= 4 and floors.min() > target and _settled(floors, per_decade):
            break
        lower = np.geomspace(lrs[0] / 10, lrs[0], per_decade + 1)[:-1]
        more, below = hits(lower)
        lrs, rounds, floors = (np.concatenate(pair) for pair in ((lower, lrs), (more, rounds), (below, floors)))
        widened += 1
    best = int(np.argmin(rounds))
    if not np.isfinite(rounds[best]):
        return Reached(math.inf, math.nan, target, float(floors.min()), widened, False)
    at_bound = best == len(lrs) - 1
    lr, least = lrs[best], rounds[best]
    for _ in range(4):  # each time nine rates in place of two intervals
        lrs = np.geomspace(lrs[max(best - 1, 0)], lrs[min(best + 1, len(lrs) - 1)], 9)
        rounds, _ = hits(lrs)
        best = int(np.argmin(rounds))
        if rounds[best] < least:
            lr, least = lrs[best], rounds[best]
    return Reached(float(least), float(lr), target, float(floors.min()), widened, at_bound)


def _settled(floors: Array, per_decade: int) -> bool:
    """Whether lower rates no longer lower the floor: a drift that stays, not the noise of a step."""
    return bool(floors[0] > 0.99 * floors[per_decade])


def _fixed_by_rounds(world: World, target: float) -> Reached:
    """The non-convex prescription: every T has its own rate."""

    def rates(T: Array) -> Array:
        return np.sqrt(world.K * world.N / np.maximum(T, world.K * world.N)) / (world.L * world.K)

    def error(T: Array) -> Array:
        flat = T.ravel()
        mean = one_round(world, rates(flat)).error(flat, mean=True)
        return np.where(flat > 0, mean, np.inf).reshape(T.shape)  # no rounds have no mean

    T = crossing(error, 1, target, last=True)  # few rounds may not have left the start yet
    least = float(error(np.array([[2.0**OCTAVES]]))[0, 0])
    return Reached(float(T[0]), float(rates(T)[0]), target, least, 0, False)


def march(world: World, lrs: Array, rounds: int) -> Array:
    """CFL's error after 0, ..., ``rounds`` rounds, (rates, rounds + 1), with the weights of Theorems 4.1 and 4.7.

    New clients bring a history of their own, so that a round's drift is independent of all that w has seen: the
    recursion without its cross moments. With returning clients it is that of `nqm.expect`.
    """
    schedule = weights.thm_47(rounds, world.D2, world.R2, world.F2)
    methods: list[nqm.Method] = [nqm.CFL(float(lr), weights=schedule) for lr in lrs]
    plan = Plan(world.experiment(methods[0], rounds))
    if world.part == "gc":
        return _worst_direction(world, plan, methods, rounds)
    from nqm.kernels.moments import run

    gammas, betas, noises, *rest, sums = compiled_arguments(plan, methods)
    if world.clients == "new":
        rest[:3] = _unlinked(rounds)
    run(gammas, betas, noises, *rest, sums)
    return sums[1]


def _unlinked(rounds: int) -> list[Array]:
    """Transition, load and force of drifts that link no two rounds."""
    return [np.zeros((0, 0)), np.zeros((rounds, 0)), np.zeros((rounds, 0))]


def _worst_direction(world: World, plan: Plan, methods: list[nqm.Method], rounds: int) -> Array:
    """The largest error over the directions, which stand for functions of their own."""
    n = len(world.curvatures)
    gamma, beta, noise, transition, load, force, white, offset, *_ = compiled_arguments(plan, methods)
    if world.clients == "new":
        transition, load, force = _unlinked(rounds)
    gamma, beta, noise = (x[:, :n].ravel() for x in (gamma, beta, noise))
    mean, var = np.tile(np.sqrt(world.start2), len(methods)), np.zeros(len(gamma))
    linked = np.zeros((len(transition), len(gamma)))
    weight = np.tile(world.curvatures / 2, len(methods))
    gamma2, beta2, both = gamma**2, beta**2, 2 * gamma * beta
    error = np.empty((rounds + 1, len(methods)))
    for t in range(rounds + 1):
        error[t] = (weight * (mean**2 + var)).reshape(len(methods), n).max(axis=1)
        if t == rounds:
            break
        var *= gamma2
        var += beta2 * white[t] + noise
        if len(linked):
            var -= both * (load[t] @ linked)
            linked = gamma * (transition @ linked) - np.multiply.outer(force[t], beta)
        mean *= gamma
        if offset.size:
            mean -= beta * np.tile(offset[t, :n], len(methods))
    return error.T


@dataclass
class Horizon:
    """How far to iterate: on until some rate arrives, then no further than the earliest arrival so far."""

    rounds: int = 64
    known: bool = False


def _hits_by_marching(world: World, lrs: Array, target: float, horizon: Horizon) -> tuple[Array, Array]:
    """Rounds (real, by interpolation) and the least errors seen."""
    while True:
        error = march(world, lrs, horizon.rounds)
        reached = error <= target
        still = np.all(error[:, -1] > 0.99 * error[:, horizon.rounds // 2])  # no rate goes further down
        if reached.any() or horizon.known or horizon.rounds >= HORIZON or (still and horizon.rounds >= 4096):
            break
        horizon.rounds *= 2
    arrives = reached.any(axis=1)
    first = reached.argmax(axis=1)
    rounds = np.where(arrives, first.astype(float), np.inf)
    for i in np.flatnonzero(arrives & (first > 0)):
        before, after = np.log(error[i, first[i] - 1]), np.log(error[i, first[i]])
        rounds[i] -= (math.log(target) - after) / (before - after)
    if arrives.any():
        horizon.rounds, horizon.known = max(1, int(first[arrives].min())), True
    return rounds, error[:, -1]


def decreasing(world: World, targets: Array, offset: float = 4.0, factor: float = 2.0) -> Array:
    """Rounds of FedAvg to each target with the falling step  K eta_t = factor/(mu (t + offset L/mu)), strongly convex.

    One run serves all targets: such steps do not know of eps.
    """
    check(world)
    noise = world.share * (world.sigma2 / (world.N * world.K) + (world.G2 + world.D2) / world.N)
    flat, steep = (float(x) for x in world.curvatures)
    low, high = (float(x) for x in world.start2)
    left, found, T = sorted(targets, reverse=True), {}, 0
    before = error = (flat * low + steep * high) / 2
    while left and T < HORIZON:
        while left and error <= left[0]:
            found[left[0]] = T - (math.log(left[0] / error) / math.log(before / error) if T else 0.0)
            left.pop(0)
        step = factor / (world.mu * (T + offset * world.L / world.mu))
        low = (1 - step * flat) ** 2 * low + step**2 * noise
        high = (1 - step * steep) ** 2 * high + step**2 * noise
        before, error, T = error, (flat * low + steep * high) / 2, T + 1
    return np.array([found.get(target, math.inf) for target in targets])
