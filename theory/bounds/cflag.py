"""`cflag`: C-FLAG's bounds, its forgetting term and its adaptive rates, as printed and as they follow.

L is the smoothness; E local steps; alpha and beta the rates on memory and on current data; g = ‖∇g(x_t)‖ the gradient
of the current task at the server's model; r the ratio of Assumption 3; m that of Lemma 9. a_i is a client's sum of
delayed gradients over its local steps, S = Σ p_i a_i, F = ∇f†(x_t) the gradient on the memory.
"""

from __future__ import annotations

import math


def forgetting(L: float, alpha: float, beta: float, S2: float, inner: float) -> float:
    """Γ(t) of (15) and (35): S2 = ‖S‖², inner = Λ_t = ⟨F, S⟩.

    With rates that differ between clients: alpha their weighted mean, beta = 1, S the sum with the rates in it.
    """
    return L / 2 * beta**2 * S2 - beta * (1 - L * alpha) * inner


def overfitting(L: float, alpha: float, beta: float, past_bias: float, bias_current: float) -> float:
    """B(t) of (9): past_bias = ⟨∇f, b⟩, bias_current = ⟨b, S⟩."""
    return (L * alpha**2 - alpha) * past_bias + beta * bias_current


def past_gradient(L: float, alpha: float, m: float, fall: float, B: float, Gamma: float) -> float:
    """‖∇f(x_t)‖² by (8); fall = f(x_t) − f(x_{t+1})."""
    return (fall + B + Gamma) / (alpha * (1 - L / 2 * alpha * (1 + m)))


def past_mean_gradient(L: float, m: float, T: int, fall: float, Gammas: float) -> float:
    """min_t E‖∇f(x_t)‖² by Theorem 2; fall = F, Gammas = Σ_t E Γ(t)."""
    return 2 * L * (1 + m) / T * (fall + Gammas)


def joint_gradient(L: float, T: int, fall: float) -> float:
    """min_t ‖∇h̃(x_t)‖² by (11); fall = h̃(x_0) − h̃(x_T)."""
    return 60 * L / T * fall


def joint_descent(L: float, E: int, beta: float) -> float:
    """The factor of ‖∇h̃(x_t)‖² in (69)."""
    return -beta + 10 * beta**2 * L * E**2 + 80 * beta**4 * L**3 * E**4 - beta * E


def delay_error(L: float, E: int, beta: float, g: float, moved: float) -> float:
    """‖e_{t,k}‖ by Lemma 12; moved = max ‖x_{t,b} − x_t‖ over the steps before."""
    return beta * L * E * g + 3 * beta * L**2 * E * moved


def drift(beta: float, k: int, g: float) -> float:
    """‖x_{t,k} − x_t‖ by Lemma 13, for β ≤ 1/(4LE)."""
    return 4 * beta * k * g


def delay_error_plain(L: float, E: int, beta: float, g: float) -> float:
    """‖e_{t,k}‖ by Corollary 14, for β ≤ 1/(12LE)."""
    return 2 * beta * L * E * g


def current_sum(L: float, E: int, beta: float, g: float) -> float:
    """‖Σ_k ρ̄_{t,k}‖ by Lemma 15 (I)."""
    return 4 * L * beta * E**2 * g + E * g


def current_sum_square(L: float, E: int, beta: float, g: float) -> float:
    """‖Σ_k ρ̄_{t,k}‖² by Lemma 15 (II)."""
    return 32 * beta**2 * L**2 * E**4 * g**2 + 2 * E**2 * g**2


def delay_error_sum(L: float, E: int, beta: float, g: float) -> float:
    """‖Σ_k ē_{t,k}‖ by Lemma 16."""
    return 2 * beta * L * E**2 * g


def forgetting_bound(L: float, E: int, beta: float, r: float, g: float, slope: float) -> float:
    """Γ(t) by (158); slope is 1 − Lα as printed, |1 − Lα| as it follows."""
    u = beta * L * E
    return (36 * u**4 / L + 2 * u**2 / L + r * beta * E * slope * (6 * u + 1)) * g**2


def per_gradient(L: float, E: int, alpha: float, beta: float, r: float) -> float:
    """Q of (161)."""
    u = beta * L * E
    return 72 * u**4 / L + 4 * u**2 / L + 2 * r * beta * E * (1 - L * alpha) * (6 * u + 1)


def per_gradient_unfolded(L: float, E: int, alpha: float, beta: float, r: float) -> float:
    """Q as (164) writes it out over Z, with 4βL²E in place of 4βLE."""
    u = beta * L * E
    return 72 * u**4 / L + 4 * u**2 / L + 2 * r * beta * E * (1 - L * alpha) * (4 * L * u + 2 * u + 1)


def per_fall(L: float, E: int, beta: float) -> float:
    """Z of (161)."""
    u = beta * L * E
    return beta * E * (1 - 80 * u**3 - 10 * u)


def constant_rate_fall(L: float, alpha: float, r: float) -> float:
    """The bound (177) on Q/Z for β = 1/(60LE)."""
    return 16 * r * (1 - L * alpha) + 22


def constant_rate_floor(L: float, alpha: float, r: float) -> float:
    """The bound (178) on Q for β = 1/(60LE)."""
    return 11 / (60 * L) + 2 * r / (15 * L) * (1 - L * alpha)


def best_beta(L: float, alpha: float, inner: float, weight: float, a2: float) -> float:
    """The β that minimises (L/2)β² weight ‖a‖² − β(1 − Lα)Λ: (16) with weight 1, Table 1 with p_i or N p_i."""
    return (1 - L * alpha) * inner / (L * weight * a2)


def best_forgetting(L: float, alpha: float, inner: float, weight: float, a2: float) -> float:
    """The minimum reached there."""
    return -(((1 - L * alpha) * inner) ** 2) / (2 * L * weight * a2)


def raised_alpha(alpha: float, inner: float, F2: float, beta: float | None = None) -> float:
    """Table 1's α_{t,i} for a client with Λ ≤ 0; F2 = ‖F‖².

    The printed form takes α for the rate on current data too; with beta it is the form that cancels the component of
    β a_i along F whatever β is.
    """
    return alpha - (alpha if beta is None else beta) * inner / F2


def rate_limit(L: float, m: float) -> float:
    """The bound 2/(L(1 + m)) on α of Lemmas 1, 4, 18 and of (14)."""
    return 2 / (L * (1 + m))


def least_mean_past_rate(T: int) -> float:
    """The order of Theorem 5 in T."""
    return 1 / math.sqrt(T)
