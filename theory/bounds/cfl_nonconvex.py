"""`cfl`, Appendix B.5: the bounds of the non-convex proof, as printed, and what follows from them.

L is the smoothness; N clients, K local steps; lr = η_l, eta = η = K η_g η_l, p = p_t the weight of the current
round; S = Σ_τ p_τ². Squares end in 2: G2, B2, D2, A2, R2, sigma2 of Assumptions 2-4, g2 = E‖∇f(w_t)‖²,
moved2 = E‖w_{t,i,k} − w_t‖². c and V are the constants c_pB and c_pG, here `growth` and `spread`.
"""

from __future__ import annotations

import math


def growth(A2: float, B2: float, S: float) -> float:
    """c_pB = 1 + B² + A² Σp²: how drift that grows with the gradient enlarges E‖Σ p ∇f_τ‖²."""
    return 1 + B2 + A2 * S


def spread(G2: float, D2: float, S: float) -> float:
    """c_pG = G² + D² Σp²: the rest of the drift."""
    return G2 + D2 * S


def step_limit(L: float, K: int, c: float) -> float:
    """The largest η_l that meets every condition of Theorem 4.1 and Appendix B.5 for η_g = 1."""
    theorem = (math.sqrt(3 + 4 * c) - math.sqrt(4 * c)) / (6 * K * L * math.sqrt(c))
    return min(theorem, 1 / (K * math.sqrt(8 * c)), 1 / (2 * K * L))


def update(eta: float, N: int, K: int, pull2: float, lost2: float, sigma2: float) -> float:
    """E‖Δw‖² by (27); pull2 and lost2 are E‖Σ p ∇f_τ‖² and E‖Σ p Δ_τ‖², averaged over clients and local steps."""
    return 2 * eta**2 * (pull2 + lost2) + eta**2 * sigma2 / (N * K)


def deviation(L: float, c: float, V: float, g2: float, moved2: float) -> float:
    """E‖∇f(w_t) − Σ p ∇f_τ(w_{t,i,k})‖² by (28)."""
    return 2 * L**2 * c * moved2 + 2 * (c - 1) * g2 + V


def descent(eta: float, L: float, p: float, c: float, V: float, R2: float, g2: float, moved2: float) -> float:
    """E⟨∇f(w_t), Δw⟩ by (29); moved2 averaged over clients and local steps."""
    return eta * L**2 * c * moved2 + eta * (c - 1 - p / 2) * g2 + eta / 2 * (V + (1 - p) * R2)


def source(k: int, lr: float, p: float, c: float, V: float, R2: float, sigma2: float, g2: float) -> float:
    """What (30) adds at local step k, apart from the earlier movement."""
    return k**2 * lr**2 * (4 * c * g2 + 2 * V + 2 * (1 - p) ** 2 * R2) + k * lr**2 * sigma2


def movement(k: int, lr: float, L: float, c: float, before2: float, added: float) -> float:
    """E‖w_{t,i,k} − w_t‖² by (30), from that of step k − 1 and `source`."""
    return 4 * k**2 * lr**2 * L**2 * c * before2 + added


def movement_unrolled(k: int, lr: float, L: float, c: float, added: float) -> float:
    """(30) applied again and again: the geometric series below it; infinite where that diverges."""
    left = 1 - 4 * k**2 * lr**2 * L**2 * c
    return added / left if left > 0 else math.inf


def movement_mean(K: int, p: float, c: float, V: float, R2: float, sigma2: float, g2: float) -> float:
    """The mean of c_pB E‖w_{t,i,k−1} − w_t‖² over clients and local steps, by (31)."""
    return c * g2 + V / 2 + (1 - p) ** 2 * R2 / 2 + sigma2 / (4 * K)


def c0(L: float, p: float, c: float) -> float:
    """The coefficient of η E‖∇f(w_t)‖² in (32): negative where the inequality says that f falls."""
    return (L**2 + 1) * c - 1 - p / 2


def c1(L: float, K: int, p: float, V: float, R2: float, sigma2: float) -> float:
    """The coefficient of η in (32)."""
    return (V + (1 - p) * R2) / 2 + L**2 * (V / 2 + (1 - p) ** 2 * R2 / 2 + sigma2 / (4 * K))


def c2(L: float, N: int, K: int, p: float, R2: float, sigma2: float) -> float:
    """The coefficient of η² in (32)."""
    return L * (1 - p) ** 2 * R2 + L * sigma2 / (2 * N * K)


def current_weight(t: int, D2: float, R2: float) -> float:
    """Lemma B.4's weight of the current round."""
    return ((t - 1) * R2 + D2) / (t * D2 + (t - 1) * R2)


def squares(t: int, p: float) -> float:
    """Σ_τ p_τ² when the current round has weight p and the t − 1 earlier ones share the rest equally."""
    return p**2 + ((1 - p) ** 2 / (t - 1) if t > 1 else 0.0)


def best_weight(t: int, L: float, eta: float, D2: float, R2: float) -> float:
    """The weight of the current round, in [0, 1], that minimises the constant terms c1 + η c2 of (32).

    With q = 1 − p shared equally:  ½(1 + L²)D²(p² + q²/(t−1)) + ½qR² + (½L² + ηL)q²R².
    """
    if t == 1:
        return 1.0
    slope = (1 + L**2) * D2 - R2 / 2
    curvature = (1 + L**2) * D2 * t / (t - 1) + (L**2 + 2 * eta * L) * R2
    return 1.0 - min(max(slope / curvature, 0.0), 1.0) if curvature > 0 else 1.0


def rate_terms(
    T: int, L: float, N: int, K: int, gap: float, p: float, R2: float, sigma2: float
) -> tuple[float, float, float]:
    """What η = √(KN)/(√T L) makes of (f_0 − f*)/(ηT) and of the R and σ parts of η c2."""
    eta = math.sqrt(K * N / T) / L
    return gap / (eta * T), eta * c2(L, N, K, p, R2, 0.0), eta * c2(L, N, K, 1.0, 0.0, sigma2)


def printed_loss_term(L: float, N: int, K: int, D2: float, R2: float) -> float:
    """The R term printed in the rate below (32), without its 1/√T."""
    return math.sqrt(K * N) / L * (R2 / (R2 + D2)) ** 2


def loss_term(N: int, K: int, D2: float, R2: float) -> float:
    """The R term that (32) gives with Lemma B.4's weights as t grows, without its 1/√T: √(KN) R² D⁴/(R² + D²)²."""
    return math.sqrt(K * N) * R2 * (D2 / (R2 + D2)) ** 2
