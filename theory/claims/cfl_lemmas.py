"""Appendix A of `cfl`: the lemmas that the proofs stand on, and what Assumption 1 implies."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from .ledger import Case, Comparison, claim

POSITIVE = st.floats(0.01, 100.0)
CURVES = st.fixed_dictionaries(
    {"L": POSITIVE, "mu_share": st.floats(0.0, 1.0), "x": st.floats(-5, 5), "y": st.floats(-5, 5)}
)


def _bregman_corrected(case: Case) -> Comparison:
    """The inner product with the gradient at y."""
    a, x, y = case["L"] * case["mu_share"], case["x"], case["y"]
    return Comparison((a * (x - y)) ** 2 / (2 * case["L"]), a * x * x / 2 - a * y * y / 2 - a * y * (x - y))


@claim(
    "cfl/asm-1-corollary",
    at="Assumption 1, corollary",
    sense="<=",
    verdict="misprint",
    why="The right side is minus a Bregman divergence, so it is never positive for convex f, while the left side is never "
    "negative. The inner product must use the gradient at y.",
    cases=CURVES,
    repair="‖∇f(x) − ∇f(y)‖²/(2L) ≤ f(x) − f(y) − ⟨∇f(y), x − y⟩",
    repaired=_bregman_corrected,
)
def smooth_and_convex(case: Case) -> Comparison:
    """For convex L-smooth f:  ‖∇f(x) − ∇f(y)‖²/(2L) ≤ f(x) − f(y) − ⟨∇f(x), x − y⟩.

    Measured: the left side for f(w) = a w²/2, a ≤ L. Claimed: the right side.
    """
    a, x, y = case["L"] * case["mu_share"], case["x"], case["y"]
    return Comparison((a * (x - y)) ** 2 / (2 * case["L"]), a * x * x / 2 - a * y * y / 2 - a * x * (x - y))


@claim(
    "cfl/lemma-a.3",
    at="Lemma A.3",
    sense="<=",
    verdict="holds",
    why="Jensen's inequality; equal vectors reach it.",
    cases=st.fixed_dictionaries(
        {"count": st.integers(1, 6), "seed": st.integers(0, 999), "spread": st.sampled_from([0.0, 1e-3, 1.0])}
    ),
)
def norm_of_a_sum(case: Case) -> Comparison:
    """‖v_1 + ... + v_m‖² ≤ m (‖v_1‖² + ... + ‖v_m‖²)."""
    rng = np.random.default_rng(case["seed"])
    v = rng.normal(size=3) + case["spread"] * rng.normal(size=(case["count"], 3))
    return Comparison(float(np.sum(v.sum(axis=0) ** 2)), case["count"] * float(np.sum(v**2)))


@claim(
    "cfl/lemma-a.4",
    at="Lemma A.4",
    sense="<=",
    verdict="refuted",
    why="The lemma asks for bounded variances and says that independence is not needed. One variable repeated τ times has "
    "variance τ²σ², not τσ². It is true when the deviations are uncorrelated, as in its source, where the means are "
    "conditional on the past.",
    cases=st.fixed_dictionaries(
        {"tau": st.integers(1, 10), "sigma": POSITIVE, "mean": st.floats(-3, 3), "M": st.floats(0, 3)}
    ),
    repair="Let the deviations be martingale differences: E[Ξ_i | Ξ_1, ..., Ξ_{i−1}] = ξ_i.",
)
def variance_of_a_sum(case: Case) -> Comparison:
    """If E Ξ_i = ξ_i and E‖Ξ_i − ξ_i‖² ≤ M‖ξ_i‖² + σ², then E‖ΣΞ_i‖² ≤ (τ + M) Σ‖ξ_i‖² + τσ², dependent or not.

    Measured: τ copies of one variable, its mean ± its standard deviation.
    """
    tau, mean, M = case["tau"], case["mean"], case["M"]
    variance = M * mean**2 + case["sigma"] ** 2
    return Comparison(tau**2 * (mean**2 + variance), (tau + M) * tau * mean**2 + tau * case["sigma"] ** 2)
