"""What `cfl` says of a round, to hold against its worst case: (21), and (24) with printed and corrected constants."""

from __future__ import annotations

import math

from theory.bounds import cfl_round as bounds

from .certify import progress
from .rounds import FedAvg


def contraction_21(
    eta: float, mu: float, L: float = 1.0, eta_g: float = 1.0, c_pB: float = 1.0, printed: bool = False
) -> float:
    """What (21) says about ‖w_1 − w*‖²/‖w_0 − w*‖² without drift and noise.

    It leaves (1 − μη/2) ‖w_0 − w*‖² + x (f(w_0) − f*), and the gap is between μ/2 and L/2 times ‖w_0 − w*‖².
    Infinite where its geometric series diverges.
    """
    if math.isinf(bounds.local_factor(eta, L, c_pB, eta_g)):
        return math.inf
    x = bounds.one_round(0.0, 1.0, eta=eta, L=L, mu=mu, N=1, K=1, c_pB=c_pB, c_pG=0.0, eta_g=eta_g, printed=printed)
    return 1.0 - mu * eta / 2 + x * (mu if x < 0 else L) / 2


def contraction_24(eta: float, mu: float) -> float:
    """The same of (24), which has x = −η for steps within the /12 bound: 1 − μη."""
    return 1.0 - mu * eta


def remainder_24(eta: float, L: float = 1.0, eta_g: float = 1.0, printed: bool = False) -> float:
    """c_1 η² + c_2 η³ of (24) for G = 1, times L²: the β that `progress` compares with."""
    c_1, c_2 = bounds.c_1(1.0, 0.0, 0.0, 1, 1), bounds.c_2(1.0, 0.0, 0.0, 1, L, eta_g, printed)
    return L**2 * (c_1 * eta**2 + c_2 * eta**3)


def bias_24(eta: float, mu: float, L: float = 1.0, eta_g: float = 1.0, printed: bool = False) -> float:
    """The squared distance to which (24) contracts for G = L: its remainder over μη."""
    return remainder_24(eta, L, eta_g, printed) / (1.0 - contraction_24(eta, mu))


def largest_step_24(
    mu: float, L: float = 1.0, local_steps: int = 1, sampled: int | None = 1, printed: bool = False, digits: int = 4
) -> float:
    """The step η up to which (24) holds without noise, whatever the clients' B, by doubling and bisection.

    Where the worst remainder of `progress` first exceeds the paper's c_1η² + c_2η³.
    """

    def holds(eta: float) -> bool:
        round = FedAvg(eta / local_steps, local_steps)
        return progress(round, mu, L, sampled=sampled).upper <= remainder_24(eta, L, printed=printed)

    low, high = 0.0, bounds.step_bound(1.0, L)
    while holds(high):
        low, high = high, 2.0 * high
    while high - low > 10.0**-digits * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
