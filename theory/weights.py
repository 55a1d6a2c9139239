r"""History weights that minimise the papers' error bounds, in closed form.

All of them minimise  G^2 + sum_{s,t} p_s p_t C_st + R^2 (1 - p_t)^2  subject to  sum p = 1, where C is the covariance of one client's
time drifts. Lemma B.4 of `cfl` has C = D^2 * 1; Theorem 4.9 has C_st = D^2 alpha^|s-t|, the matrix of an AR(1) process.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nqm.check import InvalidInput, choice, integer, number
from nqm.experiment import WeightsRequest
from nqm.schedule import Schedule, Weights

NAMES = ("lemma-b.4", "thm-4.9", "uniform", "current")


def lemma_b4(rounds: int, D2: float, R2: float) -> Schedule:
    r"""Independent time drifts (Lemma B.4): p_tau = D^2 / (t D^2 + (t-1) R^2) for tau < t, and the rest on p_t."""
    t, D2, R2 = _checked(rounds, D2, R2)
    past = D2 / (t * D2 + (t - 1) * R2)
    return Schedule(past, past, past, 1.0 - (t - 1) * past, f"lemma-b.4(D2={D2:g}, R2={R2:g})")


def thm_49(rounds: int, D2: float, R2: float, alpha: float) -> Schedule:
    r"""AR(1) time drifts (Theorem 4.9), in four distinct values a round.

    Write Q = D^2 M + R^2 u u^T with M_ij = a^|i-j| and u = (1, ..., 1, 0). Optimal p is proportional to Q^{-1} 1. M has the
    tridiagonal inverse (1-a^2) M^{-1} = [1, -a; -a, 1+a^2, -a; ...; -a, 1], so that with t >= 3

        (1-a^2) M^{-1} 1 = (1-a) (1, 1-a, ..., 1-a, 1)
        (1-a^2) M^{-1} u = ((1-a), (1-a)^2, ..., (1-a)^2, 1-a+a^2, -a).

    Sherman-Morrison then gives Q^{-1} 1 ~ M^{-1} 1 - c M^{-1} u with c = R^2 u^T M^{-1} 1 / (D^2 + R^2 u^T M^{-1} u). After division by the
    common factor, with g = (1-a^2) D^2 + a R^2 and n = (t-1)(1-a) + a:

        p_1 ~ g,   p_i ~ (1-a) g  (1 < i < t-1),   p_{t-1} ~ (1-a) g - a R^2 n,   p_t ~ g + R^2 n,

    and p_1 ~ g - a R^2 n at t = 2. Their sum is g (n + 1) + (1-a) n R^2 for every t >= 2: nothing here divides by a, D or R.
    """
    t, D2, R2 = _checked(rounds, D2, R2)
    a = number("weights.alpha", alpha, 0.0, 1.0, open_high=True)
    g = (1 - a * a) * D2 + a * R2
    n = (t - 1) * (1 - a) + a
    norm = np.where(t >= 2, g * (n + 1) + (1 - a) * n * R2, 1.0)
    first = g / norm
    middle = (1 - a) * g / norm
    previous = np.where(t == 2, g - a * R2 * n, (1 - a) * g - a * R2 * n) / norm
    current = np.where(t == 1, 1.0, (g + R2 * n) / norm)
    return Schedule(first, middle, previous, current, f"thm-4.9(D2={D2:g}, R2={R2:g}, alpha={a:g})")


def named(request: WeightsRequest) -> Weights:
    """Weights by the name that a file or the command line uses."""
    choice("method.weights", request.name, NAMES)
    if request.name == "lemma-b.4":
        return lemma_b4(request.rounds, request.D2, request.R2)
    if request.name == "thm-4.9":
        return thm_49(request.rounds, request.D2, request.R2, request.alpha)
    return Schedule.uniform(request.rounds) if request.name == "uniform" else Schedule.current_only(request.rounds)


def _checked(rounds: int, D2: float, R2: float) -> tuple[NDArray[np.float64], float, float]:
    integer("weights.rounds", rounds, 1)
    D2, R2 = number("weights.D2", D2, 0.0), number("weights.R2", R2, 0.0)
    if D2 == 0 and R2 == 0:
        raise InvalidInput("weights.D2 = 0, weights.R2 = 0: every weight is optimal; one of them must be > 0")
    return np.arange(1, rounds + 1, dtype=float), D2, R2
