r"""Worlds for rate claims on the noisy quadratic model, and one round of FedAvg or SGD on them in closed form.

A direction of curvature lambda is left by a round as  e' = g e - beta c - noise  with everything random independent of
e, so its second moment obeys  u' = rho u + v. That has a closed form for any number of rounds, also where T is far
beyond what can be iterated. The numbers are those of `nqm.expect`: gains and variances come from the same functions,
and a test ties the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nqm
from nqm.check import InvalidInput
from nqm.exact import compiled_arguments
from nqm.plan import Plan
from theory.bounds import cfl_rates

Array = NDArray[np.float64]

PARTS = {"sc": "strongly convex", "gc": "general convex", "nc": "non-convex"}
CLIENTS = ("new", "returning", "all")
PER_DECADE = 4  # curvatures of the general convex class
BELOW = 8.0  # how far below eps/H, near which the worst curvature lies, they go


@dataclass(frozen=True)
class World:
    """What the rate claims of `cfl` depend on, and which clients there are. Squares end in 2, as in the bounds.

    part: ``sc``: curvatures mu and L, the start H/2 away in each. gc: the worst of all curvatures up to L, each with
        the start H and the full drift. nc: curvature L and the start ``gap`` above the least value.
    clients: ``new``: every round draws N clients anew. ``returning``: the same N in all rounds, f the mean of their
        law. ``all``: the conventional setting, f is the mean of the N clients themselves: half of them have
        curvature lambda (1 + slope) and drift +G, half lambda (1 - slope) and -G.
    """

    part: str = "sc"
    eps: float = 1e-6
    mu: float = 1.0
    L: float = 1.0
    H: float = 1.0
    gap: float = 0.0
    N: int = 1
    K: int = 1
    sigma2: float = 0.0
    G2: float = 0.0
    D2: float = 0.0
    F2: float = 0.0
    R2: float = 0.0
    A2: float = 0.0
    B2: float = 0.0
    clients: str = "new"
    slope: float = 0.5

    @property
    def c_O(self) -> float:
        spread = self.slope**2 if self.clients == "all" else 0.0
        return 1 + self.A2 + self.B2 + spread

    @property
    def curvatures(self) -> Array:
        if self.part == "gc":
            # A grid that moves with eps/H: sweeps then see the same worst case at every point.
            least = min(self.eps / (BELOW * self.H), self.L / 10)
            count = int(np.ceil(PER_DECADE * np.log10(self.L / least)))
            return np.append(least * 10 ** (np.arange(count) / PER_DECADE), self.L)
        return np.array([self.L]) if self.part == "nc" else np.array([self.mu, self.L])

    @property
    def start2(self) -> Array:
        """e_0² in every direction."""
        if self.part == "nc":
            return np.array([2 * self.gap / self.L])
        count = len(self.curvatures)
        return np.full(count, self.H if self.part == "gc" else self.H / count)

    @property
    def share(self) -> float:
        """Which share of the drift a direction has: all of it where directions stand for functions of their own."""
        return 1.0 if self.part == "gc" else 1.0 / len(self.curvatures)

    @property
    def step_bound(self) -> float:
        """The largest local step of Theorems 4.1, 4.4 and 4.7."""
        return cfl_rates.largest_step(self.L, self.K, self.c_O)

    @property
    def stable(self) -> float:
        """The largest local step that free tuning tries: 0.9 of that above which curvature L, slope included, grows.

        Just below that limit an even number of local steps would cancel to a tiny step of the round.
        """
        steepest = self.L * (1 + self.slope if self.clients == "all" else 1.0)
        return 1.8 / (steepest * (1 + (self.A2 + self.B2) / self.N))

    def experiment(self, method: nqm.Method, rounds: int) -> nqm.Experiment:
        """The same as `nqm` has it. Slopes and conventional clients are not in it: `one_round` adds them."""
        lam, scale = self.curvatures, self.share * len(self.curvatures)
        problem = nqm.Quadratic(
            dim=len(lam), mu=None, L=None, spectrum=tuple(lam), rotation="none", b=0.0, w0=tuple(np.sqrt(self.start2))
        )
        drawn = self.clients != "all"
        drift = nqm.Drift(
            client=self.G2 * scale if drawn else 0.0,
            fresh=self.clients == "new",
            time=self.D2 * scale,
            overlap=self.F2 * scale,
            noise=self.sigma2 * scale,
            loss_mean=float(np.sqrt(self.R2 * self.share)),
        )
        return nqm.Experiment(problem, drift, nqm.Federation(self.N, None, self.K, rounds), method)


def moved(world: World, parameter: str, value: float) -> World:
    """The world with one parameter at another value; sigma, G, D, F, R, A, B are the roots of what it holds."""
    if parameter in ("sigma", "G", "D", "F", "R", "A", "B"):
        changed: dict[str, Any] = {parameter + "2": value * value}
    else:
        changed = {parameter: int(value) if parameter in ("N", "K") else value}
    return replace(world, **changed)


def check(world: World) -> None:
    """The assumptions of `cfl`, as far as a world can break them."""
    w = world
    squares = {name: getattr(w, name) for name in ("sigma2", "G2", "D2", "F2", "R2", "A2", "B2", "gap")}
    wrong = [
        *(f"{name} = {value:g}: must be >= 0" for name, value in squares.items() if not value >= 0),
        *([f"mu = {w.mu:g}: must be in (0, L = {w.L:g}]"] if not 0 < w.mu <= w.L and w.part == "sc" else []),
        *([f"overlap: F2 = {w.F2:g} must be at most D2 = {w.D2:g}"] if w.F2 > w.D2 else []),
        *([f"eps = {w.eps:g}: must be > 0"] if not w.eps > 0 else []),
        *([f"part = {w.part!r}: must be one of {', '.join(PARTS)}"] if w.part not in PARTS else []),
        *([f"clients = {w.clients!r}: must be one of {', '.join(CLIENTS)}"] if w.clients not in CLIENTS else []),
        *(["L: 1/2 - L² must be positive, or c_m is not"] if w.part == "nc" and not 2 * w.L**2 < 1 else []),
        *(["slope: must be below 1, for every client to be convex"] if w.clients == "all" and w.slope >= 1 else []),
        *(
            ["clients = 'all': has no noise and no time drift here"]
            if w.clients == "all" and w.sigma2 + w.D2 > 0
            else []
        ),
        *(["K: slopes drawn anew have a closed form for K = 1 only"] if w.A2 + w.B2 > 0 and w.K > 1 else []),
    ]
    if wrong:
        raise InvalidInput(wrong[0])


@dataclass(frozen=True)
class Rounds:
    """One round, (rates, directions) each: the share of the mean and of the second moment that it takes away, and what
    it adds to the second moment. Shares taken away keep their digits where next to nothing is.

    shift: what a round adds to the mean; weight: of a direction's second moment in the error.
    """

    taken: Array
    decay: Array
    added: Array
    shift: Array
    start: Array
    weight: Array
    worst: bool

    def moments(self, T: Array) -> tuple[Array, Array]:
        """Second moment after T rounds, and its mean over rounds 0 to T − 1; T is (..., rates), real or infinite."""
        T = np.asarray(T, dtype=float)[..., None]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            pace = np.log1p(-self.decay)  # the log of rho
            gone = -np.expm1(np.where(T == 0, 0.0, T * pace))  # 1 - rho^T
            away = gone / self.decay  # 1 + rho + ... + rho^(T-1)
            mean_kept = np.where(T == 0, 1.0, np.where(np.isinf(T), 0.0, away / T))
            noise = np.where(self.added > 0, self.added * away, 0.0)
            kept = np.where(T == 0, 1.0, np.exp(T * pace))  # not 1 - gone, which has no digits left at the end
            moment = kept * self.start**2 + noise
            mean = mean_kept * self.start**2 + np.where(self.added > 0, self.added / self.decay * (1 - mean_kept), 0.0)
            if self.shift.any():  # the mean moves to a point of rest of its own
                rest = self.shift / self.taken
                moment = (rest + np.sqrt(kept) * (self.start - rest)) ** 2 + noise
        return moment, mean

    def error(self, T: Array, mean: bool = False) -> Array:
        """The claim's error after T rounds, or its mean over the rounds."""
        values = self.weight * self.moments(T)[mean]
        return np.asarray(values.max(axis=-1) if self.worst else values.sum(axis=-1))


def one_round(world: World, lrs: Array, method: str = "fedavg") -> Rounds:
    """A round of FedAvg, SGD, or CFL where it has no memory (D = 0, or F = D), for every learning rate."""
    if world.clients == "returning" and world.G2 + world.F2 > 0:
        raise InvalidInput("clients = 'returning': drift that stays with them (G2, F2) has no closed form")
    w = replace(world, F2=0.0, R2=0.0)  # drift of new clients is independent between rounds, however it is made up
    kind = nqm.SGD if method == "sgd" else nqm.FedAvg
    methods: list[nqm.Method] = [kind(float(lr)) for lr in lrs]
    plan = Plan(w.experiment(methods[0], 1))
    _, beta, noise, _, _, _, white, *_ = compiled_arguments(plan, methods)
    lam = w.curvatures
    n = len(lam)
    beta, added = beta[:, :n], beta[:, :n] ** 2 * white[0] + noise[:, :n]
    taken = beta * lam
    decay = taken * (2 - taken) - taken**2 * (w.A2 + w.B2) / w.N
    shift = np.zeros_like(taken)
    if w.clients == "all":  # two kinds of clients; the mean of their maps
        each = lam * np.array([[[1 + w.slope]], [[1 - w.slope]]])
        step = np.asarray(lrs)[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            left = np.where(step * each < 1, np.log1p(-step * each), np.nan)
        lost = np.where(step * each < 1, -np.expm1(w.K * left), 1 - (1 - step * each) ** w.K)
        taken = lost.mean(axis=0)
        decay = taken * (2 - taken)
        shift = -np.sqrt(w.G2 * w.share) * (lost[0] / each[0] - lost[1] / each[1]) / 2
    weight = lam**2 if w.part == "nc" else lam / 2
    return Rounds(taken, decay, added, shift, np.sqrt(w.start2), weight, w.part == "gc")
