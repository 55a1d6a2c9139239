"""The convergence rates of `cfl` as printed: error after T rounds, and rounds to an error of eps, all constants
one.

Names follow the theorems: ``cfl`` (4.1, in full B.5), ``fedavg`` (4.4, B.6), ``overlap`` (4.7, B.8), each for
strongly convex, general convex and non-convex functions; ``TABLE_1`` holds every row of Table 1. H is ‖w_0 − w*‖²,
N the number of clients of a round, K that of local steps; sigma2, G2, D2, F2, R2, A2, B2, C2 are the squares of the
assumptions' constants. The error of CFL comes on top of `bias`, the φ of the theorems.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple


def largest_step(L: float, K: int = 1, c_O: float = 1.0) -> float:
    """The largest local step of Theorems 4.1, 4.4 and 4.7."""
    return (math.sqrt(3 + 4 * c_O) - math.sqrt(4 * c_O)) / (6 * K * L * math.sqrt(c_O))


def memory(t: float, D2: float, R2: float) -> float:
    """1 − p_t, the weight that Theorem 4.1 gives to the rounds before t (t = inf: its limit)."""
    if math.isinf(t):
        return D2 / (D2 + R2) if D2 > 0 else 0.0
    return (t - 1) * D2 / (t * D2 + (t - 1) * R2) if D2 > 0 else 0.0


def bias(distance: float, D2: float, R2: float, t: float = math.inf) -> float:
    """φ_t = c_3 ‖w_0 − w*‖ with c_3 = 2 (1 − p_t) R."""
    return 2 * memory(t, D2, R2) * math.sqrt(R2) * distance


class Constants(NamedTuple):
    """c_A, c_B, c_C, c_D of Theorem B.5."""

    A: float
    B: float
    C: float
    D: float


def constants(L: float, K: int, sigma2: float, G2: float, D2: float, R2: float, eta_g: float = 1.0) -> Constants:
    """c_A = G² + D²R²/(R² + D²), c_B = D⁶/(R² + D²)², c_C = L(σ²/K + c_A)/η_g², c_D = L c_B/η_g²; FedAvg: R2 = inf."""
    forgotten = 1.0 - memory(math.inf, D2, R2)  # R²/(R² + D²)
    a = G2 + D2 * forgotten
    b = D2 * (1.0 - forgotten) ** 2
    return Constants(a, b, L * (sigma2 / K + a) / eta_g**2, L * b / eta_g**2)


# ---- CFL: Theorem 4.1 and, in full, B.5 ----


def cfl_error_sc(
    T: float,
    *,
    mu: float,
    L: float = 1.0,
    H: float = 1.0,
    N: int = 1,
    K: int = 1,
    sigma2: float = 0.0,
    G2: float = 0.0,
    D2: float = 0.0,
    R2: float = 0.0,
    A2: float = 0.0,
    B2: float = 0.0,
    transient: float = 1.0,
) -> float:
    """Section B.4.4, strongly convex. ``transient`` multiplies the exponent, which the paper prints as −μT/(L c_O)."""
    c = constants(L, K, sigma2, G2, D2, R2)
    start = mu * H * math.exp(-transient * mu * T / (L * (1 + A2 + B2)))
    noise = sigma2 / (mu * N * K * T) + c.A / (mu * T) + c.B / (mu * T**2) + c.C / (mu * T) ** 2 + c.D / (mu**2 * T**3)
    return start + noise


def cfl_error_gc(
    T: float,
    *,
    L: float = 1.0,
    H: float = 1.0,
    N: int = 1,
    K: int = 1,
    sigma2: float = 0.0,
    G2: float = 0.0,
    D2: float = 0.0,
    R2: float = 0.0,
    A2: float = 0.0,
    B2: float = 0.0,
    smoothness: bool = False,
) -> float:
    """Section B.4.4, general convex. ``smoothness`` puts back the factor L that the first term lacks."""
    c = constants(L, K, sigma2, G2, D2, R2)
    start = (L if smoothness else 1.0) * (1 + A2 + B2) * H / T
    slow = math.sqrt(sigma2 * H / (N * K * T)) + math.sqrt(H * c.A / T)
    return start + slow + math.sqrt(c.B * H) / T + (c.C * H**2 / T**2) ** (1 / 3) + (c.D * H**2) ** (1 / 3) / T


def cfl_error_nc(
    T: float,
    *,
    L: float,
    gap: float,
    c_m: float,
    N: int = 1,
    K: int = 1,
    sigma2: float = 0.0,
    D2: float = 0.0,
    R2: float = 0.0,
    full: bool = True,
) -> float:
    """Mean of ‖∇f(w_t)‖², non-convex, gap = f_0 − f*: the last display of Section B.5, or only Theorem 4.1's terms."""
    forgotten = 1.0 - memory(math.inf, D2, R2)  # c_R1
    remembered = (1.0 - forgotten) ** 2  # c_R2
    error = (
        L * gap / (math.sqrt(N * K) * c_m) + math.sqrt(K * N) / L * forgotten**2 + sigma2 / math.sqrt(N * K)
    ) / math.sqrt(T)
    if full:
        error += math.sqrt(K * N) / (T * L) * (remembered / c_m + remembered**2 / math.sqrt(T))
    return error


def cfl_rounds_sc(
    eps: float,
    *,
    mu: float,
    L: float = 1.0,
    N: int = 1,
    K: int = 1,
    sigma2: float = 0.0,
    G2: float = 0.0,
    D2: float = 0.0,
    R2: float = 0.0,
    A2: float = 0.0,
    B2: float = 0.0,
    full: bool = True,
) -> float:
    """Rounds to an error of eps + φ, strongly convex: Theorem B.5, or only the terms that Theorem 4.1 shows."""
    c = constants(L, K, sigma2, G2, D2, R2)
    rounds = L * (1 + A2 + B2) / mu + sigma2 / (mu * N * K * eps) + c.A / (mu * eps)
    if full:
        rounds += math.sqrt(c.B / (mu * eps)) + math.sqrt(c.C / (mu**2 * eps)) + (c.D / (mu**2 * eps)) ** (1 / 3)
    return rounds


def cfl_rounds_gc(
    eps: float,
    *,
    L: float = 1.0,
    H: float = 1.0,
    N: int = 1,
    K: int = 1,
    sigma2: float = 0.0,
    G2: float = 0.0,
    D2: float = 0.0,
    R2: float = 0.0,
    A2: float = 0.0,
    B2: float = 0.0,
    full: bool = True,
) -> float:
    """Rounds to an error of eps + φ, general convex: Theorem B.5, or only the terms that Theorem 4.1 shows."""
    c = constants(L, K, sigma2, G2, D2, R2)
    rounds = (1 + A2 + B2) * H / eps + sigma2 * H / (N * K * eps**2) + c.A * H / eps**2
    if full:
        rounds += (math.sqrt(c.B * H) + (c.D * H**2) ** (1 / 3)) / eps + math.sqrt(c.C * H**2 / eps**3)
    return rounds


def cfl_rounds_nc(
    eps: float,
    *,
    L: float,
    gap: float,
    c_m: float,
    N: int = 1,
    K: int = 1,
    sigma2: float = 0.0,
    D2: float = 0.0,
    R2: float = 0.0,
    full: bool = True,
) -> float:
    """Rounds until the mean of ‖∇f(w_t)‖² reaches eps: Theorem B.5, which has c_R1, or Theorem 4.1, which has c_R1²."""
    forgotten = 1.0 - memory(math.inf, D2, R2)
    remembered = (1.0 - forgotten) ** 2
    noise = math.sqrt(K * N) * (forgotten if full else forgotten**2) / L + sigma2 / math.sqrt(N * K)
    rounds = (L * gap / (c_m * eps)) ** 2 / (N * K) + (noise / eps) ** 2
    return rounds + (math.sqrt(K * N) * remembered / (c_m * eps * L) if full else 0.0)


# ---- FedAvg: Theorem 4.4 and, in full, B.6. The same formulas as R grows without bound (Remark 4.5), and φ = 0 ----


def fedavg_error_sc(T: float, **terms: Any) -> float:
    """Section B.4.4, FedAvg, strongly convex, with the sign of the exponent and the σ² term that the display lost."""
    return cfl_error_sc(T, **terms, R2=math.inf)


def fedavg_error_sc_printed(
    T: float,
    *,
    mu: float,
    L: float = 1.0,
    H: float = 1.0,
    K: int = 1,
    sigma2: float = 0.0,
    G2: float = 0.0,
    D2: float = 0.0,
    A2: float = 0.0,
    B2: float = 0.0,
) -> float:
    """The display as printed: exp(+μT/(L c_O)), and no σ²/(μNKT)."""
    c = constants(L, K, sigma2, G2, D2, math.inf)
    return mu * H * math.exp(min(mu * T / (L * (1 + A2 + B2)), 700.0)) + c.A / (mu * T) + c.C / (mu * T) ** 2


def fedavg_error_gc(T: float, **terms: Any) -> float:
    """Section B.4.4, FedAvg, general convex."""
    return cfl_error_gc(T, **terms, R2=math.inf)


def fedavg_error_nc(T: float, **terms: Any) -> float:
    """Theorems 4.4 and B.6, non-convex, solved for the error."""
    return cfl_error_nc(T, **terms, R2=math.inf, full=False)


def fedavg_rounds_sc(eps: float, **terms: Any) -> float:
    """Theorems 4.4 (``full=False``) and B.6, strongly convex."""
    return cfl_rounds_sc(eps, **terms, R2=math.inf)


def fedavg_rounds_gc(eps: float, **terms: Any) -> float:
    """Theorems 4.4 (``full=False``) and B.6, general convex."""
    return cfl_rounds_gc(eps, **terms, R2=math.inf)


def fedavg_rounds_nc(eps: float, **terms: Any) -> float:
    """Theorems 4.4 and B.6, non-convex."""
    return cfl_rounds_nc(eps, **terms, R2=math.inf, full=False)


# ---- Overlapping data: Theorems 4.7 and B.8. CFL's with D² replaced by M² = max(0, D² − F²) and B² by max(B², C²) ----


def _overlapping(terms: dict[str, Any]) -> dict[str, Any]:
    """The terms of Theorem 4.7 as those of Theorem 4.1."""
    terms = dict(terms)
    terms["D2"] = max(0.0, terms.get("D2", 0.0) - terms.pop("F2", 0.0))
    C2 = terms.pop("C2", 0.0)
    return terms | ({"B2": max(terms.get("B2", 0.0), C2)} if C2 else {})


def overlap_error_sc(T: float, **terms: Any) -> float:
    """Theorems 4.7 and B.8, strongly convex, with Section B.4.4's lower-order terms."""
    return cfl_error_sc(T, **_overlapping(terms))


def overlap_error_gc(T: float, **terms: Any) -> float:
    """Theorems 4.7 and B.8, general convex, with Section B.4.4's lower-order terms."""
    return cfl_error_gc(T, **_overlapping(terms))


def overlap_error_nc(T: float, **terms: Any) -> float:
    """Theorems 4.7 and B.8, non-convex, with Section B.5's lower-order terms."""
    return cfl_error_nc(T, **_overlapping(terms))


def overlap_rounds_sc(eps: float, **terms: Any) -> float:
    """Theorems 4.7 and B.8, strongly convex."""
    return cfl_rounds_sc(eps, **_overlapping(terms), full=False)


def overlap_rounds_gc(eps: float, **terms: Any) -> float:
    """Theorems 4.7 and B.8, general convex."""
    return cfl_rounds_gc(eps, **_overlapping(terms), full=False)


def overlap_rounds_nc(eps: float, **terms: Any) -> float:
    """Theorems 4.7 and B.8, non-convex."""
    return cfl_rounds_nc(eps, **_overlapping(terms), full=False)


# ---- Table 1 ----


class World(NamedTuple):
    """What Table 1's cells depend on. Squares of the assumptions' constants; L and H do not occur in the table."""

    eps: float
    mu: float = 1.0
    N: int = 1
    K: int = 1
    sigma2: float = 0.0
    G2: float = 0.0
    D2: float = 0.0
    R2: float = 0.0
    A2: float = 0.0
    B2: float = 0.0

    @property
    def c_pB(self) -> float:
        return 1 + self.A2 + self.B2

    @property
    def drift(self) -> float:
        """G + D."""
        return math.sqrt(self.G2) + math.sqrt(self.D2)

    @property
    def c_A(self) -> float:
        """Table 1's c_A, which leaves G² out."""
        return self.D2 * (1.0 - memory(math.inf, self.D2, self.R2))


Cell = Callable[[World], float]


class Table1Row(NamedTuple):
    """Rounds to an error of eps (+ φ), strongly convex and general convex; None where the table has a dash."""

    strongly: Cell
    general: Cell | None


TABLE_1: dict[str, Table1Row] = {
    "SGD": Table1Row(
        lambda w: w.sigma2 / (w.mu * w.N * w.K * w.eps) + 1 / w.mu,
        lambda w: w.sigma2 / (w.N * w.K * w.eps**2) + 1 / w.eps,
    ),
    "FedAvg, Li": Table1Row(
        lambda w: w.sigma2 / (w.mu**2 * w.N * w.K * w.eps) + (w.G2 + w.D2) * w.K / (w.mu**2 * w.eps), None
    ),
    "FedAvg, Khaled": Table1Row(
        lambda w: (
            (w.sigma2 + w.G2 + w.D2) / (w.mu * w.N * w.K * w.eps)
            + (math.sqrt(w.sigma2) + w.drift) / (w.mu * math.sqrt(w.eps))
            + w.N * (w.A2 + w.B2) / w.mu
        ),
        lambda w: (
            (w.sigma2 + w.G2 + w.D2) / (w.N * w.K * w.eps**2)
            + (math.sqrt(w.sigma2) + w.drift) / (w.mu * w.eps**1.5)
            + w.N * (w.A2 + w.B2) / w.eps
        ),
    ),
    "FedAvg, Karimireddy": Table1Row(
        lambda w: w.sigma2 / (w.mu * w.N * w.K * w.eps) + w.drift / (w.mu * math.sqrt(w.eps)) + w.c_pB / w.mu,
        lambda w: w.sigma2 / (w.K * w.N * w.eps**2) + w.drift / w.eps**1.5 + w.c_pB * (w.D2 + w.G2) / w.eps,
    ),
    "FedAvg, Woodworth": Table1Row(
        lambda w: (
            math.sqrt(w.c_pB) / (w.K * math.sqrt(w.mu * w.eps))
            + w.sigma2 * w.c_pB / (w.N * w.K * w.eps**2)
            + w.drift / (w.mu * math.sqrt(w.eps))
            + math.sqrt(w.sigma2) / (w.mu * math.sqrt(w.K * w.eps))
        ),
        lambda w: (
            w.c_pB / (w.K * w.eps)
            + w.sigma2 * w.c_pB / (w.N * w.K * w.eps**2)
            + w.drift * w.c_pB / w.eps**1.5
            + math.sqrt(w.sigma2) * w.c_pB / math.sqrt(w.K * w.eps**1.5)
        ),
    ),
    "FedAvg, ours": Table1Row(
        lambda w: w.sigma2 / (w.mu * w.N * w.K * w.eps) + (w.G2 + w.D2) / (w.mu * w.eps) + w.c_pB / w.mu,
        lambda w: w.c_pB / w.eps + w.sigma2 / (w.N * w.K * w.eps**2) + (w.G2 + w.D2) / w.eps**2,
    ),
    "CL, Yin": Table1Row(lambda w: w.mu / w.eps, None),
    "CL, ours": Table1Row(
        lambda w: (1 + w.A2) / w.mu + w.sigma2 / (w.mu * w.K * w.eps) + w.c_A / (w.mu * w.eps),
        lambda w: w.c_pB / w.eps + w.sigma2 / (w.K * w.eps**2) + w.c_A / w.eps**2,
    ),
    "CFL, ours": Table1Row(
        lambda w: w.c_pB / w.mu + w.sigma2 / (w.mu * w.N * w.K * w.eps) + (w.c_A + w.G2) / (w.mu * w.eps),
        lambda w: w.c_pB / w.eps + w.sigma2 / (w.N * w.K * w.eps**2) + (w.c_A + w.G2) / w.eps**2,
    ),
}
