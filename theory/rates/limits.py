r"""What no method can do better than, on quadratics, and what doing nothing gives.

Information. Whoever knows the Hessian learns of the optimum only through the gradients: T rounds of N clients with K
noisy steps tell b up to a Gaussian error of variance V = (G^2 + D^2)/(N T) + sigma^2/(N K T), spread over the
directions. In a direction of curvature lambda that places w* up to v = V/lambda^2. If the start is Gaussian around w*
with variance h, the Bayes risk is h v/(h + v) for E(w - w*)^2, for any method whatsoever; as h grows it tends to the
minimax risk v. A linear method has the same bound from every single start with (w_0 - w*)^2 = h: its output is
a (w_0 - w*) + (1 - a) (mean of errors), and a^2 h + (1 - a)^2 v is least at that value. New clients who bring the
history of t rounds each make it N T (T + 1)/2 draws of time drift; the part F^2 that a client's rounds have in common
is still drawn only N T times.

Computation. After n = K T exact gradients, w - w* = p(A)(w_0 - w*) with p(0) = 1 of degree n. Over all quadratics with
spectrum in [mu, L], mu H/2 / T_n((L + mu)/(L - mu))^2 bounds the excess loss from below (Chebyshev), and for mu = 0
L H/(2 (2n + 1)^2) (Nemirovski); for ||grad f||^2 it is H (L tan(pi/4m)/m)^2, m = n + 1.

Doing nothing keeps the error of the start: where eps is above it, no rounds are needed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .rounds import crossing
from .world import World

Array = NDArray[np.float64]


def least_error(world: World, T: ArrayLike, histories: bool = False) -> Array:
    """The information bound on the world's error after T rounds."""
    w, rounds = world, np.asarray(T, dtype=float)[..., None]
    kept = w.F2 if w.clients == "new" else 0.0  # what a client's rounds share; of returning ones it is left out
    new, moves = (w.G2 + kept if w.clients == "new" else 0.0), w.D2 - w.F2
    with np.errstate(divide="ignore", invalid="ignore"):
        V = (new + w.sigma2 / w.K) / (w.N * rounds) + moves / (w.N * rounds * ((rounds + 1) / 2 if histories else 1))
        v = w.share * np.where(new + w.sigma2 + moves > 0, V, np.where(rounds > 0, 0.0, np.inf)) / w.curvatures**2
        mean = np.where(np.isinf(v), w.start2, w.start2 * v / (w.start2 + v))
    risk = mean * (w.curvatures**2 if w.part == "nc" else w.curvatures / 2)
    return np.asarray(risk.max(axis=-1) if w.part == "gc" else risk.sum(axis=-1))


def information(world: World, target: float, histories: bool = False) -> float:
    """Rounds below which no method reaches ``target``; 0 if nothing is random."""
    if target >= standing_still(world) or world.part == "nc":  # a mean over rounds is no error of a point
        return 0.0
    if world.sigma2 + world.D2 + (world.G2 if world.clients == "new" else 0.0) == 0:
        return 0.0
    return float(crossing(lambda T: least_error(world, T, histories), 1, target)[0])


def computation(world: World, target: float) -> float:
    """Rounds below which no method with K gradients a round reaches ``target`` on every spectrum in [mu, L]."""
    w = world
    if w.part == "nc":
        return 0.0  # the mean over rounds is not an error of the last point
    if w.part == "gc":
        steps = (math.sqrt(w.L * w.H / (2 * target)) - 1) / 2
        return max(0.0, steps) / w.K
    if target >= w.mu * w.H / 2 or w.mu == w.L:
        return 0.0
    ratio = math.sqrt(w.mu * w.H / 2 / target)
    return math.acosh(ratio) / math.acosh((w.L + w.mu) / (w.L - w.mu)) / w.K


def gradient_after(L: float, H: float, steps: float) -> float:
    """The least ‖∇f‖² after that many gradients, on the worst quadratic with curvature up to L."""
    m = steps + 1
    return H * (L * math.tan(math.pi / (4 * m)) / m) ** 2


def standing_still(world: World) -> float:
    """The error of a server that does nothing."""
    lam, h = world.curvatures, world.start2
    if world.part == "gc":
        return float(np.max(lam * h / 2))
    return float(lam**2 @ h if world.part == "nc" else lam @ h / 2)
