"""`fedeve`: the filter (8), (12) and its estimators (13), one round on a quadratic, and the bounds of Appendix C.

Variances are per coordinate and scalar, as (13) makes them: one number for the whole model. Where the page and its own
derivation differ, ``printed=True`` gives the page and the default the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


# --- The filter -------------------------------------------------------------------------------------------------------


def predicted_variance(fused: float, period: float, printed: bool = False) -> float:
    """σ̂²_{t+1} = σ_t² + σ_Q², (12b). Printed in (24): σ_t + σ_Q²."""
    return (math.sqrt(fused) if printed else fused) + period


def kalman_gain(predicted: float, client: float) -> float:
    """K = σ̂²/(σ̂² + σ_R²), (12c). Without any variance it is 1, the limit of an exact observation."""
    return predicted / (predicted + client) if predicted + client > 0 else 1.0


def fused_mean(prediction: float, observation: float, predicted: float, client: float, printed: bool = False) -> float:
    """The mean in (8), (μ₁σ_R² + μ₂σ̂²)/(σ̂² + σ_R²). Printed: divided by σ_R² alone."""
    total = client if printed else predicted + client
    return (prediction * client + observation * predicted) / total


def fused_variance(predicted: float, client: float) -> float:
    """σ̂²σ_R²/(σ̂² + σ_R²), (8) and (34); equal to (1 − K)σ̂², (12f)."""
    return (1.0 - kalman_gain(predicted, client)) * predicted


def blended_variance(gain: float, predicted: float, client: float, correlation: float = 0.0) -> float:
    """The variance of (1 − K)·prediction + K·observation for any gain, errors of the two correlated or not."""
    cross = correlation * math.sqrt(predicted * client)
    return (1 - gain) ** 2 * predicted + gain**2 * client + 2 * gain * (1 - gain) * cross


# --- The estimators (13) ----------------------------------------------------------------------------------------------


def mean_square(gap: Array) -> float:
    """‖gap‖²/d."""
    return float(np.mean(np.square(gap)))


def period_variance(
    momentum: Array, updates: Array, fused: float = 0.0, clients: float = math.inf, printed: bool = False
) -> float:
    """σ_Q² from the gap between momentum and mean update; ``updates`` is client × coordinate, ``clients`` is N.

    Printed: ‖M − Δ‖²/(|S|d). But ‖M − Δ‖²/d has the mean σ_t² + σ_Q² + σ_R², and M and Δ are averages already:
    max(0, ‖M − Δ‖²/d − σ_t² − σ_R²).
    """
    gap = mean_square(momentum - updates.mean(axis=0))
    if printed:
        return gap / len(updates)
    return max(0.0, gap - fused - client_variance(updates, clients))


def client_variance(updates: Array, clients: float = math.inf, printed: bool = False) -> float:
    """σ_R², the variance of the mean of the sampled clients' updates (client × coordinate).

    Printed: Σ_k‖Δ_k − Δ‖²/(|S|²d). Unbiased: |S|(|S| − 1) for |S|², times 1 − |S|/N for clients drawn without
    replacement from N.
    """
    S = len(updates)
    spread = float(np.sum(np.square(updates - updates.mean(axis=0)))) / updates.shape[1]
    return spread / S**2 if printed else spread / (S * (S - 1)) * (1 - S / clients)


# --- One round on a quadratic -----------------------------------------------------------------------------------------


def local_slope(curvature: float, lr: float, steps: int) -> float:
    """a in Δ = a(w − w*) for ``steps`` gradient steps on a quadratic:  1 − (1 − ηλ)^K."""
    return 1.0 - (1.0 - lr * curvature) ** steps


def round_matrix(gain: float, slope: float, look_ahead: float = 1.0) -> Array:
    """(12a), (12d), (12e) with η_g = 1 as a map of (w − w*, M), when the clients' mean update at w is a(w − w*).

    Clients start at w − look_ahead·M: (12a) has 1, Nesterov's momentum 1 − K.
    """
    kept = 1.0 - gain - gain * slope * look_ahead
    return np.array([[1.0 - gain * slope, -kept], [gain * slope, kept]])


def largest_gain(slope: float) -> float:
    """The gain below which the round (12) contracts on a quadratic:  4/(2 + 3a)."""
    return 4.0 / (2.0 + 3.0 * slope)


# --- Appendix C -------------------------------------------------------------------------------------------------------


def local_distance(lr: float, L: float, k: int, size: float) -> float:
    """Lemma C.6 with size = E‖∇R(w_t)‖ + σ_l + σ_g:  ((1 + ηL)^k − 1)/L · size."""
    return ((1 + lr * L) ** k - 1) / L * size


def local_gradient(lr: float, L: float, k: int, size: float) -> float:
    """Lemma C.7:  (1 + ηL)^k · size."""
    return float((1 + lr * L) ** k * size)


def client_distance(lr: float, L: float, K: int, n_i: float, size: float, start: float = 0.0) -> float:
    """(35): how far K local steps take the client whose sample was exchanged."""
    return math.exp(lr * K * L) * (start + 2 / (n_i * L) * size)


def model_distance(lr: float, L: float, K: int, n: float, sizes: Sequence[float], printed: bool = False) -> float:
    """Lemma C.8:  Σ_t 2e^{ηKL(T−t)}/(nL) · size_t, where the first round is amplified most.

    Printed: the exponent t + 1 in place of T − t, which amplifies the last round most.
    """
    T = len(sizes)
    powers = [t + 1 if printed else T - t for t in range(T)]
    return sum(2 * math.exp(lr * K * L * p) / (n * L) * s for p, s in zip(powers, sizes, strict=True))


def mean_square_gradient(L: float, start: float, sigma: float, n: float, K: int, T: int) -> float:
    """The rate that Theorem C.2 takes over, without its constant:  √(LΔ₀Σ²/(nKT)) + LΔ₀/T."""
    return math.sqrt(L * start * sigma**2 / (n * K * T)) + L * start / T


def gradient_sum(L: float, start: float, sigma: float, n: float, K: int, T: int) -> float:
    """The last two terms of Theorem C.2's bracket:  (LΔ₀Σ²/(nK))^¼ T^¾ + (LΔ₀)^½ T^½."""
    return (L * start * sigma**2 / (n * K)) ** 0.25 * T**0.75 + math.sqrt(L * start * T)
