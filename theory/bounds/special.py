"""`special` (server-proximal aggregation): its maps, step sizes and bounds as plain functions of plain numbers.

M clients of which N are sampled in each of T rounds, E local steps of size ``lr``, a server step ``glr``, K tasks, the
anchor's weight ``lam``; gradients at most B, objectives L-smooth, σ_L the noise, σ_G the spread of clients, σ_T that of
tasks. ``past`` is ‖∇f_{1:K−1}(θ_K^0)‖, the gradient of the earlier tasks where task K starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Point = TypeVar("Point", float, np.ndarray)


def server_prox(moved: Point, anchor: Point, lam: float) -> Point:
    """(6), the minimiser of (5):  ‖u − moved‖² + λ‖u − anchor‖²."""
    return (moved + lam * anchor) / (1.0 + lam)


def client_prox(moved: Point, anchor: Point, lam: float) -> Point:
    """The proximal map of SPECIAL-C, the minimiser of  ½‖u − moved‖² + λ‖u − anchor‖²: twice as strong as (6)."""
    return (moved + 2.0 * lam * anchor) / (1.0 + 2.0 * lam)


def drift(lr: float, glr: float, E: int, B: float, lam: float, rounds: float = math.inf) -> float:
    """How far a task can move from its anchor:  γ_G γ_L E B (1 − (1+λ)^{−t})/λ; its square for t = ∞ is (8)."""
    return glr * lr * E * B * -math.expm1(-rounds * math.log1p(lam)) / lam


# --- Backward transfer ------------------------------------------------------------------------------------------------


def transfer_step(eps: float, past: float, B: float, L: float, E: int, t: int, M: int, lam: float) -> float:
    """The largest γ_L of Theorem 4.7:  2ε‖∇f_{1:K−1}‖ √(λ² + 2λ) / (B L E t √(ME))."""
    return 2.0 * eps * past * math.sqrt((lam**2 + 2.0 * lam) / (M * E)) / (B * L * E * t)


def transfer_correction(
    eps: float, past: float, sigma: float, B: float, L: float, E: int, t: int, M: int, N: int, K: int
) -> float:
    """What (7) adds to the earlier tasks' loss:  2ε²σ_L²‖∇f_{1:K−1}‖² / ((K−1) t E M N L B²)."""
    return 2.0 * (eps * sigma * past) ** 2 / ((K - 1) * t * E * M * N * L * B**2)


# --- Convergence ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What Theorem 4.10 depends on."""

    M: int
    N: int
    K: int
    E: int
    L: float
    B: float
    lam: float
    lr: float
    glr: float
    sigma_L: float = 0.0
    sigma_G: float = 0.0
    sigma_T: float = 0.0
    past: float = 0.0

    @property
    def missing(self) -> float:
        """(M − N)/(N(M − 1)): what partial participation costs; 0 when all take part."""
        return (self.M - self.N) / (self.N * (self.M - 1))

    @property
    def pace(self) -> float:
        """γ_G γ_L E/(1 + λ): the step of a whole round."""
        return self.glr * self.lr * self.E / (1.0 + self.lam)


def admissible(s: Setting) -> bool:
    """The step-size conditions of Theorem 4.10 (the third follows from the first two)."""
    return s.glr <= 1.0 / (s.K - 1) and s.lr <= 1.0 / (8.0 * s.E * s.L)


def residual(s: Setting) -> dict[str, float]:
    """The summands of Ψ in (9), the factor 2/(1 − 1/K) included. ``floor`` is what no step size makes small."""
    e, factor = s.pace * s.missing * s.K * s.L, 2.0 * s.K / (s.K - 1)  # e = γ_G γ_L (M−N) E K L/((1+λ) N (M−1))
    noise = s.sigma_L**2 + 6.0 * s.E * s.sigma_G**2
    parts = {
        "floor": s.K * s.B**2 + s.past**2,
        "anchor": (s.lr * s.E * s.L / s.lam * s.B) ** 2,
        "sampling": e * (12.0 * s.sigma_G**2 + 3.0 * s.B**2 + 60.0 * s.lr**2 * s.E * s.L**2 * noise),
        "local": 5.0 * s.lr**2 * s.K * s.E * s.L**2 * noise,
        "noise": 1.5 * s.pace * s.L * s.sigma_L**2 / (s.N * s.E),
        "tasks": (s.K - 1) ** 2 / s.K * 3.0 * s.pace * s.L * (0.5 + 4.0 * s.missing) * s.sigma_T**2,
    }
    return {name: factor * value for name, value in parts.items()}


def vanishing(s: Setting, excess: float, T: float) -> float:
    """The first term of (9):  2(1+λ)(f⁰ − f*)/((1 − 1/K) E γ_G γ_L T)."""
    return 2.0 * excess / ((1.0 - 1.0 / s.K) * s.pace * T)


def reachable(s: Setting) -> float:
    """The largest ‖∇f_{1:K}(θ_K^t)‖² of any run, at any t, by Assumptions 4.1 and 4.2 and Lemma 4.9 alone."""
    moved = (s.K - 1) * s.L * drift(s.lr, s.glr, s.E, s.B, s.lam)
    return min(s.K * s.B, s.past + moved + s.B) ** 2


def spent(s: Setting) -> float:
    """What (c12) needs to be at most 1/2 for the ‖∇f_K‖² terms of (60) to drop out."""
    k = s.K * (s.lr * s.L * s.E) ** 2
    return 30.0 * k + 3.0 * s.pace * s.missing * s.L * (120.0 * k + 4.0 * s.K)


def corollary_steps(lam: float, L: float, E: int, N: int, K: int, T: float) -> tuple[float, float]:
    """γ_L and γ_G of Corollary 4.12:  λ/(√(KT) E L)  and  √(NE)/((K−1) λ L)."""
    return lam / (math.sqrt(K * T) * E * L), math.sqrt(N * E) / ((K - 1) * lam * L)
