"""`cfl`: what Assumptions 1-3 imply, the lemmas of Appendix A and Lemmas B.1-B.3."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from ..bounds.cfl_nonconvex import growth, spread, step_limit
from .ledger import Case, Comparison, claim
from .worlds import Drifts, Kinked, draws, hundredths, local_round, two_values, weighted_gradient

SQUARE = hundredths(0, 300)
POSITIVE = st.floats(0.01, 100.0)
POINT = hundredths(-500, 500)
SHARE = hundredths(0, 100)
RARE = st.sampled_from([0.5, 0.1, 0.01])

# Convex functions of one variable with curvature inner·L up to a kink at distance `width` from 0 and outer·L beyond.
KINKED = {"L": st.floats(0.01, 100.0), "inner": SHARE, "outer": SHARE, "width": hundredths(0, 300)}
CONVEX = ["0 <= inner <= 1", "0 <= outer <= 1"]


def _kinked(case: Case) -> Kinked:
    return Kinked(case["inner"] * case["L"], case["outer"] * case["L"], case["width"])


# --- Assumptions ------------------------------------------------------------------------------------------------------


def _bregman_corrected(case: Case) -> Comparison:
    """The inner product with the gradient at y."""
    f, x, y = _kinked(case), case["x"], case["y"]
    return Comparison(float(f.rise(y, x)) ** 2 / (2 * case["L"]), float(f.bregman(x, y)))


@claim(
    "cfl/asm-1-corollary",
    at="Assumption 1, corollary",
    sense="<=",
    verdict="misprint",
    why="The right side is minus a Bregman divergence, so it is never positive for convex f, while the left side is "
    "never negative. The inner product must use the gradient at y.",
    cases=st.fixed_dictionaries({**KINKED, "x": POINT, "y": POINT}),
    needs=CONVEX,
    repair="‖∇f(x) − ∇f(y)‖²/(2L) ≤ f(x) − f(y) − ⟨∇f(y), x − y⟩",
    repaired=_bregman_corrected,
)
def smooth_and_convex(case: Case) -> Comparison:
    """For convex L-smooth f:  ‖∇f(x) − ∇f(y)‖²/(2L) ≤ f(x) − f(y) − ⟨∇f(x), x − y⟩.

    Measured: the left side for a convex function with a kink in its gradient. Claimed: the right side.
    """
    f, x, y = _kinked(case), case["x"], case["y"]
    return Comparison(float(f.rise(y, x)) ** 2 / (2 * case["L"]), -float(f.bregman(y, x)))


@claim(
    "cfl/asm-1-order",
    at="Assumption 1, corollary",
    sense="<=",
    verdict="holds",
    why="The two sides of Assumption 1 give μ/2 ≤ L/2 at any pair of different points; a quadratic reaches it.",
    cases=st.fixed_dictionaries({**KINKED, "x": POINT, "y": POINT, "z": POINT}),
    needs=["x != y", "y != z", "x != z", "min(inner, outer) > 0"],
)
def smoothness_exceeds_convexity(case: Case) -> Comparison:
    """A function that is μ-convex and L-smooth has L ≥ μ.

    Measured: the largest μ that three points allow by the left side of Assumption 1. Claimed: the smallest L for which
    the gradient is L-Lipschitz between them.
    """
    f, points = _kinked(case), [case["x"], case["y"], case["z"]]
    pairs = [(a, b) for a in points for b in points if a != b]
    mu = min(2 * float(f.bregman(a, b)) / (a - b) ** 2 for a, b in pairs)
    return Comparison(mu, max(abs(float(f.rise(a, b)) / (a - b)) for a, b in pairs))


@claim(
    "cfl/asm-2",
    at="Assumption 2, as (14) and (27) use it",
    sense="<=",
    verdict="holds",
    why="Given that noises of different clients are independent and that each has mean zero given the past. "
    "Assumption 2 says neither (one ν shared by all clients has E[ν|w] = 0 too and keeps σ²/K), but any reader will "
    "supply it. Equal variances reach the bound.",
    cases=st.fixed_dictionaries(
        {"N": st.integers(1, 3), "K": st.integers(1, 3), "sigma": POSITIVE, "calm": SHARE, "rare": RARE}
    ),
    needs=["0 <= calm <= 1", "0 < rare < 1"],
)
def noise_of_the_mean(case: Case) -> Comparison:
    """The noise of an update averaged over N clients and K local steps has mean square at most σ²/(NK).

    Measured: by enumeration. After a negative noise a client's next one is smaller by the factor ``calm``, so that the
    noises are dependent in time; fair or rarely jumping.
    """
    N, K = case["N"], case["K"]
    z, chance = draws(N * K, case["rare"])
    noise = case["sigma"] * z.reshape(-1, N, K)
    noise[:, :, 1:] *= np.where(noise[:, :, :-1] < 0, case["calm"], 1.0)
    return Comparison(float(chance @ noise.mean(axis=(1, 2)) ** 2), case["sigma"] ** 2 / (N * K))


@claim(
    "cfl/asm-3-equivalence",
    at="Assumption 3 and footnote 2",
    sense="==",
    verdict="holds",
    why="E‖∇f − ζ‖² = ‖∇f‖² + E‖ζ‖² for a drift ζ of mean zero, so a bound on either side is a bound on the other "
    "shifted by ‖∇f‖². With ζ = δ + ξ it also takes E⟨δ, ξ⟩ = 0, which a time drift that is mere noise given the "
    "client has. The footnote's letters are its own: its G multiplies the gradient and its B is the constant, the "
    "other way round than in Assumption 3.",
    cases=st.fixed_dictionaries(
        {"g": POINT, "G2": SQUARE, "B2": SQUARE, "D2": SQUARE, "A2": SQUARE, "lean": SHARE, "rare": RARE}
    ),
    needs=["0 <= lean <= 1", "0 < rare < 1"],
)
def drift_is_a_second_moment(case: Case) -> Comparison:
    """Bounding E‖δ‖² and E‖ξ‖² by constants plus multiples of ‖∇f‖² is the same as so bounding E‖∇f_{t,i}‖².

    Measured: E‖∇f_{t,i}(w)‖² at a fixed w by enumeration, ξ depending on δ through its size. Claimed: the bounds of
    Assumption 3, which the drifts reach, plus ‖∇f‖².
    """
    return _second_moment(case, [1.0])


@claim(
    "cfl/eq-2",
    at="(2) with (5) and Remark 3.2",
    sense="==",
    verdict="holds",
    why="f is E f_{t,i}, as the text says below (5) and every theorem uses; (2) is then an unbiased estimate of it, "
    "and called infeasible anyway. Taken literally, (2) cannot be the f of (5): Σ p_{t,i}(δ_i + ξ_{t,i}) would have "
    "to be 0 whatever happens, and independent time drifts leave D² Σp² in mean square, D²/(NT) for equal weights.",
    cases=st.fixed_dictionaries(
        {
            "g": POINT,
            "N": st.integers(1, 3),
            "T": st.integers(1, 3),
            "G2": SQUARE,
            "D2": SQUARE,
            "seed": st.integers(0, 99),
            "rare": RARE,
        }
    ),
    needs=["0 < rare < 1"],
)
def mean_of_the_objectives(case: Case) -> Comparison:
    """The objective (2), a weighted mean of all f_{t,i}, estimates f = E f_{t,i} of (5) without bias.

    Measured: the mean square of the gradient of (2) at a point, by enumeration of skewed drifts. Claimed: that of f
    plus the variance of independent drifts, G² Σ_i (Σ_t p_{t,i})² + D² Σp².
    """
    N, T = case["N"], case["T"]
    p = np.random.default_rng(case["seed"]).dirichlet(np.ones(N * T)).reshape(N, T)
    z, chance = draws(N + N * T, case["rare"])
    client, time = z[:, :N], z[:, N:]
    drift = case["G2"] ** 0.5 * client @ p.sum(axis=1) + case["D2"] ** 0.5 * time @ p.ravel()
    left = case["G2"] * float(np.sum(p.sum(axis=1) ** 2)) + case["D2"] * float(np.sum(p**2))
    return Comparison(float(chance @ (case["g"] - drift) ** 2), case["g"] ** 2 + left)


# --- Appendix A -------------------------------------------------------------------------------------------------------


@claim(
    "cfl/lemma-a.1",
    at="Lemma A.1",
    sense="<=",
    verdict="holds",
    why="As an upper bound with the constant 1/(1 − e^{−1/2}), whether the first weight is ω_{t−1} as printed or ω_t: "
    "the sum telescopes and later d only lower it. η_max may exceed 1/μ, as a step just below 1/μ will then do. Noise "
    "is not covered: the sum has no term for it.",
    cases=st.fixed_dictionaries(
        {
            "mu": POSITIVE,
            "share": hundredths(2, 300),
            "extra": st.integers(0, 20),
            "d0": POSITIVE,
            "later": st.sampled_from([0.0, 1e-3, 1.0]),
            "seed": st.integers(0, 99),
        }
    ),
    needs=["share >= 0.02"],
)
def linear_rate(case: Case) -> Comparison:
    """For d_t ≥ 0 and T ≥ 1/(2 η_max μ), some η ≤ η_max makes the weighted mean of (1−μη)d_{t−1}/η − d_t/η small:

    at most a constant times μ d_0 exp(−μ η_max T), with weights ω_t = (1−μη)^{1−t}, t = 1..T+1. Measured: the mean, the
    larger of the two readings of its weights. Claimed: that, times 1/(1 − e^{−1/2}). ``share`` is μ η_max.
    """
    mu, share = case["mu"], case["share"]
    T = math.ceil(1 / (2 * share)) + case["extra"]
    a = 1 - share if share < 0.99 else math.exp(-share)  # 1 − μη
    eta, t = (1 - a) / mu, np.arange(1, T + 2)
    d = case["later"] * case["d0"] * np.random.default_rng(case["seed"]).exponential(size=T + 2)
    d[0] = case["d0"]
    weight = a ** (1.0 - t)
    means = [(first * a * d[:-1] - weight * d[1:]).sum() / eta / weight.sum() for first in (a * weight, weight)]
    return Comparison(float(max(means)), mu * case["d0"] * math.exp(-share * T) / (1 - math.exp(-0.5)))


@claim(
    "cfl/lemma-a.2",
    at="Lemma A.2",
    sense="<=",
    verdict="holds",
    why="The sum telescopes; η = min(η_max, √(d_0/(c_1(T+1))), (d_0/(c_2(T+1)))^{1/3}) does it, and c_1 = c_2 = 0 "
    "reaches it. (For d_0 = 0 < c_1 the bound 0 is approached by small η but not attained.)",
    cases=st.fixed_dictionaries(
        {
            "d0": POSITIVE,
            "c1": st.just(0.0) | POSITIVE,
            "c2": st.just(0.0) | POSITIVE,
            "eta_max": POSITIVE,
            "T": st.integers(0, 50),
            "later": st.sampled_from([0.0, 0.1, 1.0]),
            "seed": st.integers(0, 99),
        }
    ),
)
def sublinear_rate(case: Case) -> Comparison:
    """For d_t ≥ 0 and c_1, c_2 ≥ 0 some η ≤ η_max makes the mean of (d_{t−1} − d_t)/η + c_1 η + c_2 η² small:

    at most d_0/(η_max(T+1)) + 2 √(c_1 d_0/(T+1)) + 2 (d_0/(T+1))^{2/3} c_2^{1/3}, the mean over t = 1..T+1.
    """
    d0, c1, c2, most, n = case["d0"], case["c1"], case["c2"], case["eta_max"], case["T"] + 1
    eta = min(most, math.sqrt(d0 / (c1 * n)) if c1 else math.inf, (d0 / (c2 * n)) ** (1 / 3) if c2 else math.inf)
    d = case["later"] * d0 * np.random.default_rng(case["seed"]).exponential(size=n + 1)
    d[0] = d0
    mean = float(-np.diff(d).sum()) / (n * eta) + c1 * eta + c2 * eta**2
    return Comparison(mean, d0 / (most * n) + 2 * math.sqrt(c1 * d0 / n) + 2 * (d0 / n) ** (2 / 3) * c2 ** (1 / 3))


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
def norm_of_a_mean(case: Case) -> Comparison:
    """‖(v_1 + ... + v_m)/m‖² ≤ (‖v_1‖² + ... + ‖v_m‖²)/m."""
    rng = np.random.default_rng(case["seed"])
    v = rng.normal(size=3) + case["spread"] * rng.normal(size=(case["count"], 3))
    return Comparison(float(np.sum(v.mean(axis=0) ** 2)), float(np.sum(v**2)) / case["count"])


def _martingale_sum(case: Case) -> Comparison:
    """Deviations with mean zero given the past: each is smaller by the factor ``alike`` after a negative one."""
    means, sizes = _means(case)
    z, chance = draws(case["tau"])
    z[:, 1:] *= np.where(z[:, :-1] < 0, case["alike"], 1.0)
    return Comparison(float(chance @ ((z * sizes + means).sum(axis=1)) ** 2), _lemma_a4(case, means))


def _means(case: Case) -> tuple[np.ndarray, np.ndarray]:
    means = case["mean"] * np.where(np.arange(case["tau"]) % 2 == 0, 1.0, case["second"])
    return means, np.sqrt(case["M"] * means**2 + case["sigma"] ** 2)


def _lemma_a4(case: Case, means: np.ndarray) -> float:
    return (case["tau"] + case["M"]) * float(np.sum(means**2)) + case["tau"] * case["sigma"] ** 2


@claim(
    "cfl/lemma-a.4",
    at="Lemma A.4",
    sense="<=",
    verdict="refuted",
    why="The lemma asks for bounded variances and says that independence is not needed. One variable repeated τ times "
    "has variance τ²σ², not τσ². It is true when the deviations are uncorrelated; the source states it for means that "
    "are conditional on the past.",
    cases=st.fixed_dictionaries(
        {
            "tau": st.integers(1, 6),
            "sigma": POSITIVE,
            "mean": POINT,
            "second": hundredths(-100, 100),
            "M": SQUARE,
            "alike": SHARE,
        }
    ),
    needs=["0 <= alike <= 1"],
    repair="Let the ξ_i be fixed and the deviations martingale differences: E[Ξ_i | Ξ_1, ..., Ξ_{i−1}] = ξ_i. For "
    "random ξ_i, as in (14) and (17): 2E‖Σξ_i‖² + 2τσ² (M = 0).",
    repaired=_martingale_sum,
)
def variance_of_a_sum(case: Case) -> Comparison:
    """If EΞ_i = ξ_i and E‖Ξ_i − ξ_i‖² ≤ M‖ξ_i‖² + σ², then E‖ΣΞ_i‖² ≤ (τ + M) Σ‖ξ_i‖² + τσ², dependent or not.

    Measured: the left side for deviations at their bound, any two of which have correlation ``alike``.
    """
    means, sizes = _means(case)
    variance = (1 - case["alike"]) * float(np.sum(sizes**2)) + case["alike"] * float(sizes.sum()) ** 2
    return Comparison(float(means.sum()) ** 2 + variance, _lemma_a4(case, means))


@claim(
    "cfl/lemma-a.5",
    at="Lemma A.5",
    sense=">=",
    verdict="holds",
    why="Smoothness between z and x, strong convexity between y and x, the relaxed triangle inequality and μ ≤ L. "
    "Equal curvatures with x halfway between y and z reach it.",
    cases=st.fixed_dictionaries({**KINKED, "x": POINT, "y": POINT, "z": POINT}),
    needs=["0 < inner <= 1", "0 < outer <= 1", "y != z"],
)
def perturbed_strong_convexity(case: Case) -> Comparison:
    """For μ-convex L-smooth h:  ⟨∇h(x), z − y⟩ ≥ h(z) − h(y) + μ‖y − z‖²/4 − L‖z − x‖².

    Measured: h(y) − h(z) + ⟨∇h(x), z − y⟩ + L‖z − x‖². Claimed: μ‖y − z‖²/4. L is the larger curvature.
    """
    h, x, y, z = _kinked(case), case["x"], case["y"], case["z"]
    mu, L = min(h.inner, h.outer), max(h.inner, h.outer)
    return Comparison(float(h.bregman(y, x) - h.bregman(z, x)) + L * (z - x) ** 2, mu * (y - z) ** 2 / 4)


@claim(
    "cfl/lemma-a.6",
    at="Lemma A.6",
    sense="<=",
    verdict="holds",
    why="Chebyshev's sum inequality; equal weights reach it. The order ln T/T is meant for T ≥ 2: (1 + ln T)/T always "
    "holds.",
    cases=st.fixed_dictionaries(
        {"T": st.integers(1, 60), "seed": st.integers(0, 99), "steep": st.sampled_from([0.0, 0.01, 0.3, 3.0])}
    ),
)
def increasing_weights(case: Case) -> Comparison:
    """Σ p_t/t ≤ (1/T) Σ 1/t for weights that sum to one and never decrease in t.

    Measured: the left side for increasing weights, negative ones among them if they are steep.
    """
    T, t = case["T"], np.arange(1, case["T"] + 1)
    rising = np.sort(np.random.default_rng(case["seed"]).normal(size=T))
    p = 1 / T + case["steep"] / T * (rising - rising.mean())
    return Comparison(float(np.sum(p / t)), float(np.mean(1 / t)))


# --- Lemmas B.1 and B.2 -----------------------------------------------------------------------------------------------

DRIFTS = {"G2": SQUARE, "B2": SQUARE, "D2": SQUARE, "A2": SQUARE, "g": POINT, "lean": SHARE, "rare": RARE}
WEIGHTS = {"p1": hundredths(-100, 100), "p2": hundredths(-100, 100)}
LEAN = ["0 <= lean <= 1", "0 < rare < 1"]


def _drifts(case: Case) -> Drifts:
    return Drifts(case["G2"], case["B2"], case["D2"], case["A2"])


def _second_moment(case: Case, p: list[float], shared: bool = True) -> Comparison:
    """E‖Σ p ∇f_τ‖² by enumeration, against Lemma B.2."""
    pull, chance = weighted_gradient(case["g"], p, _drifts(case), case["rare"], shared, case["lean"])
    S = sum(x * x for x in p)
    A2, B2 = (case["A2"], case["B2"]) if shared else (case["A2"] + case["B2"], 0.0)
    D2, G2 = (case["D2"], case["G2"]) if shared else (case["D2"] + case["G2"], 0.0)
    return Comparison(float(chance @ pull**2), growth(A2, B2, S) * case["g"] ** 2 + spread(G2, D2, S))


def _three(case: Case) -> list[float]:
    return [case["p1"], case["p2"], 1.0 - case["p1"] - case["p2"]]


LEMMA_B1 = {"A": hundredths(0, 300), "B": hundredths(0, 300), "g": POINT, "rare": RARE}


def _drifted2(case: Case) -> float:
    """E‖∇f_i‖² for one drift at its bound A²‖∇f‖² + B²."""
    values, chances = two_values(case["rare"])
    size = math.sqrt(case["A"] ** 2 * case["g"] ** 2 + case["B"] ** 2)
    return sum(q * (case["g"] - size * z) ** 2 for z, q in zip(values, chances, strict=True))


@claim(
    "cfl/lemma-b.1",
    at="Lemma B.1",
    sense="<=",
    verdict="holds",
    why="An identity when the drift is at its bound. The mean has to vanish given w, which f = E f_i implies.",
    cases=st.fixed_dictionaries(LEMMA_B1),
    needs=["0 < rare < 1"],
)
def one_drift(case: Case) -> Comparison:
    """If ∇f = ∇f_i + ς with mean zero and E‖ς‖² ≤ A²‖∇f‖² + B², then E‖∇f_i‖² ≤ (A² + 1)‖∇f‖² + B².

    Measured: the left side for a drift at its bound, a fair sign or a rare jump.
    """
    return Comparison(_drifted2(case), (case["A"] ** 2 + 1) * case["g"] ** 2 + case["B"] ** 2)


@claim(
    "cfl/lemma-b.1-proof",
    at="Lemma B.1, last line of the proof",
    sense="<=",
    verdict="misprint",
    why="A and B have lost their squares, which the lemma itself has; false for A or B above 1.",
    cases=st.fixed_dictionaries(LEMMA_B1),
    needs=["0 < rare < 1"],
    repair="(A² + 1)E‖∇f‖² + B²",
    repaired=one_drift,
)
def one_drift_as_proved(case: Case) -> Comparison:
    """As the proof ends: E‖∇f_i‖² ≤ (A + 1)‖∇f‖² + B."""
    return Comparison(_drifted2(case), (case["A"] + 1) * case["g"] ** 2 + case["B"])


@claim(
    "cfl/lemma-b.2-1",
    at="Lemma B.2 (1)",
    sense="<=",
    verdict="holds",
    why="An identity when the drifts are at their bounds and uncorrelated, at a w that does not depend on them.",
    cases=st.fixed_dictionaries(DRIFTS),
    needs=LEAN,
)
def fedavg_gradient(case: Case) -> Comparison:
    """At a fixed w, E‖∇f_{t,i}‖² ≤ (1 + A² + B²)‖∇f‖² + G² + D²."""
    return _second_moment(case, [1.0])


@claim(
    "cfl/lemma-b.2-2",
    at="Lemma B.2 (2)",
    sense="<=",
    verdict="holds",
    why="An identity when the drifts are at their bounds, for any weights that sum to one, negative ones too. At the "
    "iterates it is another matter: see cfl/lemma-b.2-iterates.",
    cases=st.fixed_dictionaries(DRIFTS | WEIGHTS),
    needs=LEAN,
)
def remembered_gradients(case: Case) -> Comparison:
    """A client seen in all rounds: E‖Σ p_τ ∇f_τ‖² ≤ (1 + B² + A² Σp²)‖∇f‖² + G² + D² Σp² at a fixed w.

    Measured: three rounds by enumeration.
    """
    return _second_moment(case, _three(case))


@claim(
    "cfl/lemma-b.2-3",
    at="Lemma B.2 (3)",
    sense="<=",
    verdict="holds",
    why="As part (2), with client drifts that average out as well.",
    cases=st.fixed_dictionaries(DRIFTS | WEIGHTS),
    needs=LEAN,
)
def stateless_gradients(case: Case) -> Comparison:
    """Clients seen once: E‖Σ p_τ ∇f_τ‖² ≤ (1 + (A² + B²) Σp²)‖∇f‖² + (G² + D²) Σp² at a fixed w.

    Measured: three rounds by enumeration.
    """
    return _second_moment(case, _three(case), shared=False)


# --- Lemma B.2 at the iterates ----------------------------------------------------------------------------------------

ITERATES = {
    **KINKED,
    "start": hundredths(-300, 300),
    "share": hundredths(1, 100),
    "K": st.integers(1, 3),
    "p": hundredths(0, 100).map(lambda x: 1.0 - x),
    "G2": SQUARE,
    "D2": SQUARE,
    "A": hundredths(0, 50),
    "B": hundredths(0, 50),
    "sigma": hundredths(0, 200),
    "R": hundredths(0, 3000),
    "rare": RARE,
}


def _at_iterates(case: Case, R: float) -> Comparison:
    """Lemma B.2 at w_{t,i,K}; the information loss turns the client against its own pull if R is large enough."""
    A2, B2, S = case["A"] ** 2, case["B"] ** 2, case["p"] ** 2 + (1 - case["p"]) ** 2
    c, V = growth(A2, B2, S), spread(case["G2"], case["D2"], S)
    unit = case["L"] / (1 + case["A"] + case["B"])  # every f_τ,i is L-smooth, and convex if A + B ≤ 1
    f = Kinked(case["inner"] * unit, case["outer"] * unit, case["width"])
    lr = case["share"] * step_limit(case["L"], case["K"], c)
    drifts = Drifts(case["G2"], B2, case["D2"], A2)
    local = local_round(
        f, case["start"], lr, case["K"], case["p"], drifts, case["sigma"], -R, "against", rare=case["rare"]
    )
    right = c * float(local.mean(f.grad(local.path[-1]) ** 2)) + V
    return Comparison(float(local.mean(local.pull[-1] ** 2)), right)


def _at_iterates_with_loss(case: Case) -> Comparison:
    """With an information loss of size R that turns the client against its own pull."""
    return _at_iterates(case, case["R"])


@claim(
    "cfl/lemma-b.2-iterates",
    at="(15) and (18), where Lemma B.2 is applied",
    sense="<=",
    verdict="gap",
    why="The point w_{t,i,k} was reached with the same δ_i and ξ_{t,i}, so the cross term E⟨∇f(w), δ + ξ⟩ is not "
    "zero there, even if the client is new. For convex f without information loss it has the good sign in one "
    "dimension (w and the drift rise together), and the bound survives. Assumption 4 bounds the information loss and "
    "nothing else, so it may outweigh the drift and send the iterate the other way; then the bound fails, stored for "
    "a convex quadratic. It also fails for other f (cfl/eq-28).",
    cases=st.fixed_dictionaries(ITERATES),
    needs=[*CONVEX, "0 < share <= 1", "0 <= p <= 1", "A + B <= 1", "R >= 0", "0 < rare < 1"],
    step=_at_iterates_with_loss,
    repair="Apply the lemma at w_t and move by smoothness: E‖Σ p ∇f_τ(w)‖² ≤ 2L²E‖w − w_t‖² + 2c_pB‖∇f(w_t)‖² + 2c_pG.",
)
def gradients_at_iterates(case: Case) -> Comparison:
    """For convex f_{t,i}, E‖Σ p_τ ∇f_τ(w)‖² ≤ c_pB E‖∇f(w)‖² + c_pG also holds at the local iterates w = w_{t,i,k}.

    Measured: the left side after K local steps without information loss, all outcomes enumerated; drift at its bound,
    fair or a rare jump. Step: with an information loss of at most R.
    """
    return _at_iterates(case, 0.0)


# --- Lemma B.3 --------------------------------------------------------------------------------------------------------

COORDINATE = {"size": hundredths(1, 100), "sharp": hundredths(10, 500), "m": POINT, "from": POINT, "to": POINT}
TAYLOR = {f"{name}{j}": strategy for j in (1, 2) for name, strategy in COORDINATE.items()}


def _coordinate(case: Case, j: int) -> tuple[float, float, float]:
    """For f'' = b tanh(k(w − m)) along one coordinate: Taylor's error, the distance, and where f'' takes its mean.

    The last is a share of the way from a to w: the only point at which the mean value theorem can hold there.
    """
    b, k, m, a, w = (case[f"{name}{j}"] for name in COORDINATE)
    change = b / k * (np.logaddexp(k * (w - m), k * (m - w)) - np.logaddexp(k * (a - m), k * (m - a)))
    error = change - b * math.tanh(k * (a - m)) * (w - a)
    mean = change / (w - a) / b if w != a else math.nan
    at = m + math.atanh(mean) / k if abs(mean) < 1 else math.nan
    return float(error), w - a, (at - a) / (w - a) if w != a else math.nan


def _one_point_for_all(case: Case) -> Comparison:
    """The proof: one point c on the way has ∇f(w) − ∇f(a) = ∇²f(c)(w − a), so both coordinates need the same point."""
    apart = abs(_coordinate(case, 1)[2] - _coordinate(case, 2)[2])
    return Comparison(round(apart, 9), 0.0)


@claim(
    "cfl/lemma-b.3",
    at="Lemma B.3",
    sense="<=",
    verdict="gap",
    why="True by the integral form of the mean value theorem. The proof takes one point with ∇f(w) − ∇f(a) = "
    "∇²f(c)(w − a), which the theorem it quotes gives for one coordinate only: two coordinates need two points. (The "
    "point of expansion has three names in the text; they are read as one.)",
    cases=st.fixed_dictionaries(TAYLOR),
    needs=["from1 != to1", "from2 != to2"],
    step=_one_point_for_all,
    repair="∇f(w) − ∇f(a) = (∫₀¹ ∇²f(a + s(w − a)) ds)(w − a)",
)
def taylor_error(case: Case) -> Comparison:
    """If the Hessian of f varies by at most ε, the gradient of its second-order expansion errs by at most ε‖w − a‖.

    Measured: the error for f(x, y) with f'' = b tanh(k(· − m)) along each coordinate, which varies by 2b. Claimed:
    max(2b)·‖w − a‖.
    """
    (e1, d1, _), (e2, d2, _) = _coordinate(case, 1), _coordinate(case, 2)
    return Comparison(math.hypot(e1, e2), 2 * max(case["size1"], case["size2"]) * math.hypot(d1, d2))
