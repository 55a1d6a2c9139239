"""One round of `cfl`: the constants, the step-size bounds and the right-hand sides of (20)–(24), printed and corrected.

Throughout η = K η_l η_g is the step of a whole round, N the number of clients in it, K their local steps, and

    Σp² = Σ_{τ≤t} p_τ²   (the current round's weight included),      past = Σ_{τ<t} p_τ = 1 − p_t.

Clients are taken to share their weights, so that the averages over i fall away. Where the page and its own derivation
differ, ``printed=True`` gives the page and the default the derivation.
"""

from __future__ import annotations

import math

DIVISOR_THEOREMS = 6.0  # the step bound of Theorems 4.1, 4.4, 4.7, B.5, B.6, B.8
DIVISOR_APPENDIX = 12.0  # the one that the proof goes on with

LOCAL_FACTOR = 15 / 11  # (1 + 4ηLc)/(1 − 4K²η_l²L²c) at the /12 bound: numerator ≤ 5/4, denominator ≥ 11/12
LOCAL_FACTOR_PRINTED = 1 / 12


def c_pB(A2: float, B2: float, sum_squares: float = 1.0) -> float:
    """How much larger a client's squared gradient is than the global one:  1 + B² + A² Σp²."""
    return 1.0 + B2 + A2 * sum_squares


def c_pG(G2: float, D2: float, sum_squares: float = 1.0) -> float:
    """The drift that is left after weighting the rounds:  G² + D² Σp²."""
    return G2 + D2 * sum_squares


def c_R(R: float, past: float) -> float:
    """The information loss that the past brings in:  (Σ_{τ<t} p_τ)² R²."""
    return (past * R) ** 2


def c_1(c_pG: float, c_R: float, sigma2: float, N: float, K: float) -> float:
    """The coefficient of η in (23):  2 c_pG + σ²/(NK) + 2 c_R. With c_R = 0 it is FedAvg's in (24)."""
    return 2.0 * c_pG + sigma2 / (N * K) + 2.0 * c_R


def c_2(c_pG: float, c_R: float, sigma2: float, K: float, L: float, eta_g: float = 1.0, printed: bool = False) -> float:
    """The coefficient of η² in (23), as (21) gives it for steps within the /12 bound.

    (21) has 4LX/η_g² before c_pG + c_R and 2LX/(η_g²K) before σ², where X = (1 + 4ηLc)/(1 − 4K²η_l²L²c) ≤ 15/11.
    Printed:  L c_pG/(3η_g²) + Lσ²/(6η_g²K) + L c_R/(3η_g²), which takes X = 1/12; but X is never below 1.
    """
    factor = LOCAL_FACTOR_PRINTED if printed else LOCAL_FACTOR
    return L * factor * (4.0 * (c_pG + c_R) + 2.0 * sigma2 / K) / eta_g**2


def c_3(R: float, past: float) -> float:
    """The coefficient of ‖w_t − w*‖ in φ_t:  2 R Σ_{τ<t} p_τ."""
    return 2.0 * R * past


def step_bound(c_pB: float, L: float, eta_g: float = 1.0, divisor: float = DIVISOR_APPENDIX) -> float:
    """The largest η = K η_l η_g allowed:  (√(3η_g² + 4cη_g⁴) − √(4cη_g⁴)) / (divisor · L √c).

    The theorems divide by 6, where the coefficient of f(w_t) − f* in (21) is exactly 0; the proof goes on with 12,
    where it is at most −η. Written without the difference of the roots, which cancels for large c η_g².
    """
    roots = math.sqrt(3.0 + 4.0 * c_pB * eta_g**2) + 2.0 * math.sqrt(c_pB) * eta_g
    return 3.0 * eta_g / (roots * divisor * L * math.sqrt(c_pB))


def local_factor(eta: float, L: float, c_pB: float, eta_g: float = 1.0) -> float:
    """X = (1 + 4ηLc)/(1 − 4K²η_l²L²c), with K η_l = η/η_g; infinite where the denominator is not positive."""
    rest = 1.0 - 4.0 * (eta / eta_g * L) ** 2 * c_pB
    return (1.0 + 4.0 * eta * L * c_pB) / rest if rest > 0.0 else math.inf


def denominator_bound(c_pB: float, eta_g: float = 1.0) -> float:
    """Below 1 − 4K²η_l²L²c at the /12 bound:  (33 − 8η_g²c + 4√(3η_g²c + 4η_g⁴c²)) / 36."""
    g2c = eta_g**2 * c_pB
    return (33.0 - 8.0 * g2c + 4.0 * math.sqrt(3.0 * g2c + 4.0 * g2c**2)) / 36.0


def local_distance(
    gap: float,
    c_pB: float,
    c_pG: float,
    c_R: float,
    sigma2: float,
    K: int,
    L: float,
    eta_l: float,
    printed: bool = False,
) -> float:
    """(20): how far K local steps stray, max_k E‖w_{t,i,k} − w_t‖²; ``gap`` is f(w_t) − f*.

    Derived without convexity: M ≤ 2K²η_l² max E‖∇f̃‖² + 2Kη_l²σ² and E‖∇f̃‖² ≤ 3L²M + 6Lc·gap + 3c_pG + 3c_R, a split
    at w_t, which must be independent of the drifts. Printed: Lemma A.4 without its 2, and a split in two at the
    iterate; information loss that follows the noise can exceed it.
    """
    split, noise, slope = (2.0, 1.0, 4.0 * c_pB) if printed else (6.0, 2.0, 6.0)
    rest = 1.0 - slope * (K * eta_l * L) ** 2
    drift = (8.0 if printed else 12.0) * L * c_pB * gap + split * (c_pG + c_R)
    return ((K * eta_l) ** 2 * drift + noise * K * eta_l**2 * sigma2) / rest if rest > 0.0 else math.inf


def gap_coefficient(eta: float, L: float, c_pB: float, eta_g: float = 1.0, printed: bool = False) -> float:
    """(22): the coefficient of f(w_t) − f* in (21),  −2η + 16η²Lc + 16ηK²η_l²L²c X.

    Printed: the last term lacks its η, so that it has another unit than the others.
    """
    x = eta * L
    local = 16.0 * (x / eta_g) ** 2 * c_pB * local_factor(eta, L, c_pB, eta_g)
    return eta * (-2.0 + 16.0 * x * c_pB) + (local if printed else eta * local)


def one_round(
    distance2: float,
    gap: float,
    *,
    eta: float,
    L: float,
    mu: float,
    N: float,
    K: int,
    c_pB: float,
    c_pG: float,
    sigma2: float = 0.0,
    c_R: float = 0.0,
    c_3: float = 0.0,
    eta_g: float = 1.0,
    printed: bool = False,
) -> float:
    """(21): a bound on E‖w_{t+1} − w*‖² by distance2 = E‖w_t − w*‖² and gap = E f(w_t) − f*.

    It is what (10), (13), (15) and the printed (20) add up to, and needs w_t to be independent of the drifts that enter
    the round, as it is if the clients are new in each round. E‖w_t − w*‖ is taken at its largest, the root of
    distance2.
    Printed: the terms of local drift lack a factor η (the first one ηL), so that their units differ from the rest.
    """
    local = local_factor(eta, L, c_pB, eta_g) * L * (eta / eta_g) ** 2
    unit = (1.0, 1.0) if printed else (eta * L, eta)
    return (
        (1.0 - mu * eta / 2.0) * distance2
        + (-2.0 * eta + 16.0 * eta**2 * L * c_pB + 16.0 * c_pB * local * unit[0]) * gap
        + eta**2 * c_1(c_pG, c_R, sigma2, N, K)
        + local * unit[1] * (4.0 * (c_pG + c_R) + 2.0 * sigma2 / K)
        + eta * c_3 * math.sqrt(distance2)
    )


def progress(
    distance2: float, next2: float, *, eta: float, mu: float, c_1: float, c_2: float, phi: float = 0.0
) -> float:
    """(23), and with phi = 0 (24): a bound on f(w_t) − f*,

    (1 − μη/2) E‖w_t − w*‖²/η − E‖w_{t+1} − w*‖²/η + c_1 η + c_2 η² + φ_t.
    """
    return ((1.0 - mu * eta / 2.0) * distance2 - next2) / eta + c_1 * eta + c_2 * eta**2 + phi
