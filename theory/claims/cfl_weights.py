"""History weights in `cfl`: Lemmas B.4, B.7, B.9, B.10, Theorems 4.7 and 4.9, Table 2, and the words around them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from theory import weights
from theory.weights import Array

from .ledger import Case, Comparison, claim

POSITIVE = st.floats(0.001, 1000.0)
NONNEGATIVE = st.floats(0.0, 1000.0)
ALPHA = st.one_of(st.sampled_from([0.0, 0.5, 0.8, 0.95]), st.floats(0.0, 0.95))
ROUNDS = st.integers(1, 30)
SEVERAL = st.integers(2, 30)
SEED = st.integers(0, 999)
DRIFTS = {"t": ROUNDS, "D2": POSITIVE, "R2": NONNEGATIVE}
LAWFUL = ["t >= 1", "D2 > 0", "R2 >= 0"]
CORRELATED = [*LAWFUL, "0 <= alpha < 1"]


def _equal(found: Array, printed: Array) -> Comparison:
    """Two lists of weights: 1 plus their largest difference, beside 1."""
    return Comparison(1.0 + float(np.abs(found - printed).max()), 1.0)


def _lemma_b4(t: int, M2: float, R2: float) -> Array:
    """The weights as Lemma B.4 (M² = D²) and Theorem 4.7 print them."""
    norm = t * M2 + (t - 1) * R2
    p = np.full(t, M2 / norm)
    p[-1] = ((t - 1) * R2 + M2) / norm
    return p


def _variance(D2: float, R2: float) -> float:
    """D²R²/(R² + D²), the variance term of Theorem 4.1 without G²; 0 if either is."""
    return D2 * R2 / (R2 + D2) if D2 > 0 else 0.0


def _system_7(Q: Array) -> Array:
    """The weights that solve (7) for this Q."""
    t = len(Q)
    A = np.zeros((t + 1, t + 1))
    A[:t, :t], A[:t, t], A[t, :t] = Q, 1.0, 1.0
    right = np.zeros(t + 1)
    right[t] = 1.0
    return np.asarray(np.linalg.solve(A, right)[:t])


def _by_rule(case: Case) -> Array:
    """Q_ij = α^|i−j| D² + R² for i, j < t, and α^|i−j| D² for the others."""
    return weights.quadratic_form(weights.covariance(case["t"], case["D2"], case["alpha"]), case["R2"])


def _displayed(case: Case) -> Array:
    """Q with the entry (t−1, t−1) as the displays have it, α² D² + R²."""
    Q = _by_rule(case)
    Q[-2, -2] = case["alpha"] ** 2 * case["D2"] + case["R2"]
    return Q


# Independent drifts: Lemma B.4 and what follows from it


@claim(
    "cfl/lemma-b.4",
    at="Lemma B.4, Theorem 4.1",
    sense="==",
    verdict="holds",
    why="c_1 and c_2 grow with c_pG + c_R alone, and its minimum over Σp = 1 is where the multiplier says. The "
    "lemma's 'best convergence' is the best c_1 and c_2: c_3 = 2R(1 − p_t), the part that no step size "
    "removes, is not minimised and would ask for p_t = 1. At D = 0 with t = 1 or R = 0 the formula is 0/0.",
    cases=st.fixed_dictionaries({**DRIFTS, "G2": NONNEGATIVE}),
    needs=LAWFUL,
)
def independent_drift_weights(case: Case) -> Comparison:
    """Minimising G² + D² Σp_τ² + R²(1 − p_t)² over Σp = 1 gives p_τ = D²/(tD² + (t−1)R²) for τ < t, the rest on p_t.

    Measured: the programme, solved numerically. Compared weight by weight.
    """
    t, D2, R2 = case["t"], case["D2"], case["R2"]
    return _equal(weights.given(D2 * np.eye(t), R2, case["G2"], solver="dense").weights, _lemma_b4(t, D2, R2))


@claim(
    "cfl/lemma-b.4-value",
    at="below Lemma B.4",
    sense="==",
    verdict="holds",
    why="Without G² it is D² p_t, the multiplier.",
    cases=st.fixed_dictionaries({**DRIFTS, "G2": NONNEGATIVE}),
    needs=LAWFUL,
)
def independent_drift_value(case: Case) -> Comparison:
    """The minimum of c_pG + c_R is G² + D² (D² + (t−1)R²)/(tD² + (t−1)R²).

    Measured: the programme, solved numerically.
    """
    t, D2, R2, G2 = case["t"], case["D2"], case["R2"], case["G2"]
    claimed = G2 + D2 * (D2 + (t - 1) * R2) / (t * D2 + (t - 1) * R2)
    return Comparison(weights.given(D2 * np.eye(t), R2, G2, solver="dense").value, claimed)


@claim(
    "cfl/b.4.4-identity",
    at="Appendix B.4.4, second line of the average",
    sense="==",
    verdict="holds",
    why="Algebra: with ρ = R²/(R² + D²), both sides are ρ + (1 − ρ)²/(t − ρ).",
    cases=st.fixed_dictionaries(DRIFTS),
    needs=LAWFUL,
)
def value_split(case: Case) -> Comparison:
    """(D² + (t−1)R²)/(tD² + (t−1)R²) = R²/(R²+D²) + D⁴/(R²+D²)² / (t − R²/(R²+D²)).

    Measured: the least variance that the numeric programme finds, over D². Claimed: the right side.
    """
    t, D2, R2 = case["t"], case["D2"], case["R2"]
    s = R2 + D2
    return Comparison(weights.optimal(t, D2, R2, solver="dense").value / D2, R2 / s + D2**2 / s**2 / (t - R2 / s))


AVERAGE = st.fixed_dictionaries(
    {"T": st.integers(2, 2000), "D2": POSITIVE, "R2": POSITIVE, "mu_eta": st.floats(0.0, 1.0)}
)
AVERAGED = ["T >= 2", "D2 > 0", "R2 > 0", "0 <= mu_eta <= 1"]


def _mean(case: Case, value: Callable[[Array], Array]) -> float:
    """The average of value(t) over t = 1..T with weights q_t = (1 − μη/2)^(1−t)."""
    t = np.arange(1.0, case["T"] + 1)
    q = (1 - case["mu_eta"] / 2) ** (case["T"] - t)  # times a constant, lest it overflow
    return float(q @ value(t) / q.sum())


@claim(
    "cfl/b.4.4-average",
    at="Appendix B.4.4, last line of the average",
    sense="<=",
    verdict="holds",
    why="With ρ = R²/(R² + D²) the excess over ρ is at most (1 − ρ)/T + (1 − ρ)²(1 + ln T)/T, since q_t grows. "
    "For T ≥ 2 the first of these is covered by ρ if R ≥ D and by the other if not; 6 is large enough a "
    "constant for all R, D and μη.",
    cases=AVERAGE,
    needs=AVERAGED,
)
def averaged_variance(case: Case) -> Comparison:
    """The average of c_pG + c_R over rounds, weighted by q_t, is O(G² + D²(R²/(R²+D²) + D⁴/(R²+D²)² ln T/T)).

    Measured: the average for G = 0. Claimed: six times the bracket.
    """
    D2, R2, T = case["D2"], case["R2"], case["T"]
    s = D2 + R2
    measured = _mean(case, lambda t: D2 * (D2 + (t - 1) * R2) / (t * D2 + (t - 1) * R2))
    return Comparison(measured, 6 * D2 * (R2 / s + D2**2 / s**2 * math.log(T) / T))


@claim(
    "cfl/b.4.4-phi",
    at="Appendix B.4.4, the line on φ",
    sense="<=",
    verdict="holds",
    why="The average of 1 − p_t is below D²/(D²+R²), and the bracket is above (1 − 1/e) of that. So the term in "
    "ln T/T says nothing within O: without O the inequality fails (T = 20, μη = 1, R = D/10), as Lemma A.6 "
    "bounds the average of 1/(t − ρ) from above and the minus sign would need it from below. That φ_t ≤ "
    "c_3‖w_0 − w*‖ is a claim of its own.",
    cases=AVERAGE,
    needs=AVERAGED,
)
def averaged_bias(case: Case) -> Comparison:
    """φ = O(R (D²/(D²+R²) − D⁴/(D²+R²)² ln T/T) ‖w_0 − w*‖) with Lemma B.4's weights, if φ_t ≤ c_3‖w_0 − w*‖.

    Measured: the weighted average of R(1 − p_t). Claimed: e/(e−1) times R(...).
    """
    D2, R2, T = case["D2"], case["R2"], case["T"]
    s, R = D2 + R2, math.sqrt(R2)
    measured = R * _mean(case, lambda t: (t - 1) * D2 / (t * D2 + (t - 1) * R2))
    return Comparison(measured, math.e / (math.e - 1) * R * (D2 / s - D2**2 / s**2 * math.log(T) / T))


@claim(
    "cfl/phi-vs-R",
    at="Section 4.1, before Theorem 4.1",
    sense="<=",
    verdict="holds",
    why="c_3 = 2R(1 − p_t) is proportional to R for given weights, and with Lemma B.4's own weights it grows as "
    "long as R ≤ D. Beyond that the weights withdraw faster than R grows: for large t, c_3/2 = RD²/(D²+R²) "
    "peaks at D/2 where R = D and then falls to 0.",
    cases=st.fixed_dictionaries(
        {
            "t": SEVERAL,
            "D2": POSITIVE,
            "R2": POSITIVE,
            "alpha": ALPHA,
            "growth": st.floats(1.0, 100.0),
            "follow": st.booleans(),
        }
    ),
    needs=[*CORRELATED, "growth >= 1", "not follow or R2 * growth**2 <= D2"],
)
def bias_grows_with_loss(case: Case) -> Comparison:
    """φ_t, bounded by c_3‖w_0 − w*‖ with c_3 = 2R Σ_{τ<t} p_τ, grows with R.

    Measured: c_3 at R. Claimed: c_3 at a larger R, with the weights kept (Theorem 4.9's for the smaller R), or
    with Lemma B.4's weights that follow R up to D.
    """
    t, D2, R2, growth = case["t"], case["D2"], case["R2"], case["growth"]
    R = math.sqrt(R2)
    alpha = 0.0 if case["follow"] else case["alpha"]
    before = weights.optimal(t, D2, R2, alpha).weights[:-1].sum()
    after = weights.optimal(t, D2, R2 * growth**2).weights[:-1].sum() if case["follow"] else before
    return Comparison(2 * R * before, 2 * R * growth * after)


@claim(
    "cfl/prop-4.3",
    at="Proposition 4.3",
    sense="<=",
    verdict="holds",
    why="h(x) = xR²/(x + R²) has slope at most 1, so h(D² + G²) ≤ h(D²) + G²; equal at G = 0. FedAvg has G² + D² "
    "in both settings, so the variance term does improve more. The bias moves the other way: stateless "
    "weights lean more on the past, and c_3/2 tends to R(G²+D²)/(G²+D²+R²), more than RD²/(D²+R²).",
    cases=st.fixed_dictionaries(
        {"t": st.sampled_from([0, 2, 3, 10, 300]), "G2": NONNEGATIVE, "D2": POSITIVE, "R2": POSITIVE}
    ),
    needs=["t >= 0", "G2 >= 0", "D2 > 0", "R2 > 0"],
)
def stateless_variance(case: Case) -> Comparison:
    """c_stateless = (G²+D²)R²/(G²+D²+R²) ≤ c_normal = G² + D²R²/(R²+D²).

    Measured and claimed: these two (t = 0 stands for the limit of many rounds), or the minima that lead to them
    after t rounds.
    """
    t, G2, D2, R2 = case["t"], case["G2"], case["D2"], case["R2"]
    if t == 0:
        return Comparison(_variance(G2 + D2, R2), G2 + _variance(D2, R2))
    return Comparison(weights.stateless(t, D2, R2, G2).value, weights.optimal(t, D2, R2, G2=G2).value)


@claim(
    "cfl/remark-4.5",
    at="Remark 4.5",
    sense="<=",
    verdict="holds",
    why="1 − p_t ≤ D²/R², so that R(1 − p_t) ≤ D²/R, and the variance term falls short of FedAvg's by at most D⁴/R².",
    cases=st.fixed_dictionaries({"t": ROUNDS, "D2": POSITIVE, "R2": st.floats(0.001, 1e8)}),
    needs=["t >= 1", "0 < D2", "0 < R2 <= 1e10 * D2"],
)
def loss_without_bound(case: Case) -> Comparison:
    """As R → ∞ Lemma B.4's weights, variance term and bias become FedAvg's: p_t → 1, V → G² + D², c_3 → 0.

    Measured: (1 − p_t) + R(1 − p_t)/D + (D² − V)/D². Claimed: x + 2x² with x = D/R, which vanishes.
    """
    best = weights.optimal(case["t"], case["D2"], case["R2"])
    x, past = math.sqrt(case["D2"] / case["R2"]), float(best.weights[:-1].sum())
    return Comparison(past + past / x + max(0.0, 1 - best.value / case["D2"]), x + 2 * x**2)


# Drifts of constant overlap: Lemma B.7, (33), Theorem 4.7


OVERLAP = {**DRIFTS, "F2": NONNEGATIVE}


def _overlapping(case: Case) -> tuple[float, float]:
    """Variance v and covariance c of drifts that use up Assumptions 3 and 6 (and Cauchy-Schwarz)."""
    v = case["D2"] + case["A2"] * case["g2"]
    return v, min(case["F2"] + case["C2"] * case["g2"], v)


def _nonnegative_weights(case: Case) -> Array:
    """Random weights p ≥ 0; equal ones for seed 0."""
    if case["seed"] == 0:
        return np.full(case["t"], 1.0 / case["t"])
    p = np.random.default_rng(case["seed"]).exponential(size=(int(case["t"]),))
    return np.asarray(p / p.sum())


def _lemma_b7(case: Case, across: float) -> Comparison:
    """E‖Σ p ∇f‖² for drifts at their limits, beside Lemma B.7's bound with this much for the pairs of rounds."""
    v, c = _overlapping(case)
    g2, S = case["g2"], float(np.sum(_nonnegative_weights(case) ** 2))
    common = (1 + case["B2"]) * g2 + case["G2"]
    return Comparison(common + v * S + c * (1 - S), common + (case["D2"] + case["A2"] * g2) * S + across * (1 - S))


def _lemma_b7_repaired(case: Case) -> Comparison:
    """The smaller of the two limits, each whole."""
    return _lemma_b7(case, min(case["F2"] + case["C2"] * case["g2"], case["D2"] + case["A2"] * case["g2"]))


SMALL = st.floats(0.0, 10.0)


@claim(
    "cfl/lemma-b.7",
    at="Lemma B.7",
    sense="<=",
    verdict="refuted",
    why="E⟨ξ_1, ξ_2⟩ is at most F² + C²g² by Assumption 6 and at most D² + A²g² by Cauchy-Schwarz; the lemma "
    "takes the smaller constant of one with the coefficient of the other. One drift repeated in every round, "
    "of variance D² + A²g², breaks it where F > D and C < A. (For weights of both signs an upper limit on "
    "correlations bounds nothing: cfl/lemma-b.10.)",
    cases=st.fixed_dictionaries(
        {
            "t": st.integers(1, 6),
            "seed": SEED,
            "D2": SMALL,
            "F2": SMALL,
            "G2": SMALL,
            "A2": SMALL,
            "B2": SMALL,
            "C2": SMALL,
            "g2": SMALL,
        }
    ),
    needs=["min(D2, F2, G2, A2, B2, C2, g2) >= 0"],
    repair="min(F² + C²‖∇f‖², D² + A²‖∇f‖²) for the pairs of rounds, or F² in place of min(F², D²); with p ≥ 0",
    repaired=_lemma_b7_repaired,
)
def overlapping_drifts(case: Case) -> Comparison:
    """E‖Σ p_τ ∇f_τ‖² ≤ (1 + B² + A²S + C²(1−S)) ‖∇f‖² + G² + D²S + min(F², D²)(1−S), S = Σp², under Assumption 6.

    Measured: drifts that share a common part, with the largest variance and covariance that Assumptions 3 and 6
    allow, and weights p ≥ 0. Claimed: the bound.
    """
    return _lemma_b7(case, min(case["F2"], case["D2"]) + case["C2"] * case["g2"])


def _excess(case: Case) -> float:
    """M² = max(D² − F², 0)."""
    return float(max(case["D2"] - case["F2"], 0.0))


@claim(
    "cfl/eq-33-weights",
    at="below (33), Theorems 4.7 and B.8",
    sense="==",
    verdict="holds",
    why="Σ_{τ≠τ'} p p' = 1 − Σp², so (33) is R²(1 − p_t)² + G² + min(F², D²) + M² Σp²: Lemma B.4 with M² for D². "
    "Where F ≥ D every p with p_t = 1 is optimal, theirs among them.",
    cases=st.fixed_dictionaries({**DRIFTS, "share": st.one_of(st.floats(0.0, 0.99), st.floats(1.0, 2.0))}),
    needs=[*LAWFUL, "share >= 0", "share < 1 or (R2 > 1e-3 and t > 1)"],
)
def overlap_weights(case: Case) -> Comparison:
    """The minimiser of (33) is Lemma B.4's with D² replaced by max(D² − F², 0).

    Measured: the programme, solved numerically, for F² = share · D². Compared weight by weight.
    """
    t, D2, R2 = case["t"], case["D2"], case["R2"]
    F2 = case["share"] * D2
    C = np.full((t, t), min(F2, D2))
    np.fill_diagonal(C, D2)
    return _equal(weights.given(C, R2, solver="dense").weights, _lemma_b4(t, max(D2 - F2, 0.0), R2))


@claim(
    "cfl/thm-4.7-value",
    at="Theorems 4.7 and B.8, variance term",
    sense="rate",
    verdict="refuted",
    why="As Σ_{τ≠τ'} p p' = 1 − Σp², the minimum of (33) keeps min(F², D²): it tends to G² + min(F², D²) + "
    "M²R²/(R²+M²). Reading D² as M² in Section B.4.4 loses that term. D = R = 1, F² = 1/2, G = 0: 0.833 "
    "against 0.333; as F → D the ratio grows without bound. Nor can a larger F help: Assumption 6 with it is "
    "the weaker assumption.",
    path=[{"D2": 1.0, "R2": 1.0, "G2": 0.0, "F2": f} for f in (0.0, 0.5, 0.9, 0.99, 0.999)],
    needs=["D2 > 0", "R2 > 0", "0 <= F2 <= D2", "G2 >= 0"],
    repair="G² + min(F², D²) + M²R²/(R² + M²), which grows with F",
)
def overlap_value(case: Case) -> Comparison:
    """With the weights of (33) the variance term is of order G² + M²R²/(R²+M²), M² = max(0, D² − F²).

    Measured: the minimum of (33) over many rounds. Claimed: the printed term.
    """
    D2, R2, G2 = case["D2"], case["R2"], case["G2"]
    return Comparison(weights.limit(D2, R2, overlap=case["F2"], G2=G2), G2 + _variance(_excess(case), R2))


def _growth(case: Case, c_O: float) -> Comparison:
    """c_pB with Theorem 4.7's weights, beside a constant that is to bound it."""
    S = float(np.sum(_lemma_b4(case["t"], _excess(case), case["R2"]) ** 2))
    return Comparison(1 + case["B2"] + case["A2"] * S + case["C2"] * (1 - S), c_O)


def _growth_repaired(case: Case) -> Comparison:
    return _growth(case, 1 + case["B2"] + max(case["A2"], case["C2"]))


@claim(
    "cfl/thm-4.7-cO",
    at="Theorems 4.7 and B.8, c_O",
    sense="<=",
    verdict="misprint",
    why="A and B are exchanged: B² stands alone in c_pB, while A² and C² share the weights S and 1 − S. With A = "
    "0, B = C = 1 and many rounds c_pB nears 3, c_O is 2, and the step-size bound, which uses c_O itself, "
    "allows steps that its proof does not cover.",
    cases=st.fixed_dictionaries({**OVERLAP, "A2": SMALL, "B2": SMALL, "C2": SMALL}),
    needs=[*LAWFUL, "F2 >= 0", "D2 > F2 or (R2 > 0 and t > 1)", "min(A2, B2, C2) >= 0"],
    repair="c_O = 1 + B² + max(A², C²)",
    repaired=_growth_repaired,
)
def growth_constant(case: Case) -> Comparison:
    """c_O = 1 + A² + max(B², C²) bounds c_pB = 1 + B² + A²S + C²(1−S), as 1 + A² + B² does in Theorem 4.1.

    Measured: c_pB with Theorem 4.7's weights. Claimed: c_O.
    """
    return _growth(case, 1 + case["A2"] + max(case["B2"], case["C2"]))


def _least(case: Case, F2: float) -> float:
    """The minimum of (33) over t rounds."""
    return weights.optimal(case["t"], case["D2"], case["R2"], overlap=min(F2, case["D2"])).value


@claim(
    "cfl/remark-4.8",
    at="Remark 4.8, first half, and the end of Example 1",
    sense="<=",
    verdict="refuted",
    why="It rests on the lost term of cfl/thm-4.7-value. For any weights p ≥ 0 the mean square of Σpξ grows with "
    "the overlap, and so does its minimum, with slope 1 − Σp² in F². D = R = 1 over many rounds: 0.5 at F = 0 "
    "and 1 at F = D. A drift that repeats itself cannot be averaged away.",
    cases=st.fixed_dictionaries(OVERLAP),
    needs=[*LAWFUL, "0 <= F2", "F2 < D2 or (R2 > 0 and t > 1)"],
    repair="Overlap makes the variance term larger, up to FedAvg's G² + D² at F = D",
)
def overlap_helps(case: Case) -> Comparison:
    """Correlation between time drifts makes them matter less for the rate.

    Measured: the least mean square of t rounds' drift plus information loss at overlap F², (33)'s minimum.
    Claimed: that of independent drifts.
    """
    return Comparison(_least(case, case["F2"]), _least(case, 0.0))


@claim(
    "cfl/remark-4.8-weights",
    at="Remark 4.8, second half",
    sense="<=",
    verdict="holds",
    why="p_τ = M²/(tM² + (t−1)R²) grows with M² = max(0, D² − F²); at R = 0 it is 1/t whatever F is.",
    cases=st.fixed_dictionaries({"t": SEVERAL, "D2": POSITIVE, "R2": POSITIVE, "F2": NONNEGATIVE, "more": NONNEGATIVE}),
    needs=["t >= 2", "D2 > 0", "R2 > 0", "F2 >= 0", "more >= 0"],
)
def overlap_lowers_the_past(case: Case) -> Comparison:
    """The weight of a past round falls as F² grows.

    Measured: the optimal weight of round 1 at F² + more. Claimed: at F².
    """
    t, D2, R2 = case["t"], case["D2"], case["R2"]

    def first(F2: float) -> float:
        return float(weights.optimal(t, D2, R2, overlap=min(F2, D2)).weights[0])

    return Comparison(first(case["F2"] + case["more"]), first(case["F2"]))


TABLE_9 = {
    "FedAvg": {0: (80.66, 0.40), 25: (80.16, 0.01), 50: (79.97, 0.23)},
    "MimeLite": {0: (80.78, 0.07), 25: (80.17, 0.11), 50: (80.35, 0.39)},
    "CFL-Core-Set": {0: (84.87, 0.11), 25: (84.66, 0.11), 50: (84.59, 0.07)},
    "CFL-Regularization": {0: (81.27, 0.38), 25: (80.67, 0.27), 50: (80.91, 0.25)},
}


@claim(
    "cfl/remark-4.8-table-9",
    at="Remark 4.8, last sentences, and Table 9",
    sense=">=",
    verdict="holds",
    why="Read as a statement on core sets, which put data of earlier rounds into the local data: that column is 3 "
    "points and more above the others. Read as a statement on overlap the table says the opposite: all eight "
    "means with overlap are below those without, and Appendix C.1.3 itself sees no obvious connection.",
    cases=st.fixed_dictionaries(
        {
            "other": st.sampled_from(["FedAvg", "MimeLite", "CFL-Regularization"]),
            "overlap": st.sampled_from([0, 25, 50]),
        }
    ),
    repair="Say that it is the core-set column, not the overlap, that the sentence refers to",
)
def earlier_data_in_table_9(case: Case) -> Comparison:
    """Local data that include data of earlier rounds improve the model clearly: Table 9.

    Measured: the core set's printed accuracy less its deviation. Claimed: at least another method's plus its
    deviation.
    """
    (ours, down), (theirs, up) = TABLE_9["CFL-Core-Set"][case["overlap"]], TABLE_9[case["other"]][case["overlap"]]
    return Comparison(ours - down, theirs + up)


# AR(1) drifts: Theorem 4.9, Lemmas B.9 and B.10, Table 2


# R²/D² up to 10⁴: beyond, the linear system (7) itself loses the digits that are compared.
AR1 = {"t": st.integers(1, 20), "D2": st.floats(0.1, 10.0), "R2": NONNEGATIVE, "alpha": ALPHA}
LONGER = {**AR1, "t": st.integers(3, 20)}


@claim(
    "cfl/thm-4.9-programme",
    at="Appendix B.8, the programme as a matrix",
    sense="==",
    verdict="holds",
    why="(1 − p_t)² is the square of the past's sum, since Σp = 1.",
    cases=st.fixed_dictionaries({**AR1, "seed": SEED}),
    needs=CORRELATED,
)
def programme_as_matrix(case: Case) -> Comparison:
    """Where Σp = 1, R²(1 − p_t)² + D² Σ α^|τ−τ'| p_τ p_τ' is p·Qp, Q_ij = α^|i−j| D² and R² more for i, j < t.

    Measured: the sum, for random weights of both signs. Claimed: p·Qp.
    """
    t, D2, a = case["t"], case["D2"], case["alpha"]
    p = np.random.default_rng(case["seed"]).normal(size=(int(t),))
    p += (1.0 - p.sum()) / t
    drift = D2 * sum(a ** abs(i - j) * p[i] * p[j] for i in range(t) for j in range(t))
    return Comparison(case["R2"] * (1 - p[-1]) ** 2 + drift, float(p @ _by_rule(case) @ p))


@claim(
    "cfl/thm-4.9",
    at="Theorem 4.9",
    sense="==",
    verdict="holds",
    why="For D > 0 the quadratic form is positive definite, so the multiplier's equations are necessary and "
    "sufficient. This is Q by the rule of Appendix B.8; its displays have a slip (cfl/thm-4.9-Q). An explicit "
    "solution, which Example 1 calls difficult, is in `theory.weights`. Whether the programme is the right "
    "one: cfl/thm-4.9-bound.",
    cases=st.fixed_dictionaries(AR1),
    needs=CORRELATED,
)
def correlated_drift_weights(case: Case) -> Comparison:
    """The minimiser of p·Qp over Σp = 1 solves the linear system (7).

    Measured: the solution of (7) by LU. Claimed: the minimiser in closed form. Compared weight by weight.
    """
    best = weights.optimal(case["t"], case["D2"], case["R2"], case["alpha"]).weights
    return _equal(_system_7(_by_rule(case)), best)


@claim(
    "cfl/thm-4.9-Q",
    at="Theorem 4.9, the display of Q, and (34)",
    sense="==",
    verdict="misprint",
    why="The entry (t−1, t−1) is printed α²D² + R² in both displays (and α²D² in M_F). The rule for Q_ij, the row "
    "operations of Lemma B.9 and Table 2 all have D² + R².",
    cases=st.fixed_dictionaries(LONGER),
    needs=[*CORRELATED, "t >= 3"],
    repair="Q_{t−1,t−1} = D² + R²",
    repaired=correlated_drift_weights,
)
def displayed_matrix(case: Case) -> Comparison:
    """(7) with Q as displayed gives the optimal weights.

    Measured: the solution of (7) with the displayed Q. Claimed: the minimiser. Compared weight by weight.
    """
    best = weights.optimal(case["t"], case["D2"], case["R2"], case["alpha"]).weights
    return _equal(_system_7(_displayed(case)), best)


def _least_eigenvalue(Q: Array) -> float:
    return float(np.linalg.eigvalsh(Q)[0])


def _definite_by_rule(case: Case) -> Comparison:
    """The least eigenvalue is at least D²(1−α)/(1+α), the least of the AR(1) spectrum."""
    a = case["alpha"]
    return Comparison(_least_eigenvalue(_by_rule(case)), case["D2"] * (1 - a) / (1 + a))


@claim(
    "cfl/lemma-b.9",
    at="Lemma B.9",
    sense=">=",
    verdict="misprint",
    why="With the entry (t−1, t−1) of (34) as printed, α²D² + R², Q has a negative eigenvalue when R is small. "
    "With D² + R² it is positive definite for D > 0, its eigenvalues at least D²(1−α)/(1+α), and the proof is "
    "right. At D = 0 only semidefinite.",
    cases=st.fixed_dictionaries(LONGER),
    needs=[*CORRELATED, "t >= 3", "R2 <= 1e4 * D2", "alpha <= 0.99"],
    repair="Q_{t−1,t−1} = D² + R², and D > 0",
    repaired=_definite_by_rule,
)
def positive_definite(case: Case) -> Comparison:
    """Q of (34) is positive definite.

    Measured: its least eigenvalue. Claimed: above 0.
    """
    return Comparison(_least_eigenvalue(_displayed(case)), 0.0)


def _pivots(M: Array) -> Array:
    """The diagonal after adding multiples of each row to those below it."""
    M = M.copy()
    for k in range(len(M) - 1):
        M[k + 1 :] -= np.outer(M[k + 1 :, k] / M[k, k], M[k])
    return np.asarray(np.diag(M))


@claim(
    "cfl/lemma-b.9-pivots",
    at="Lemma B.9, proof",
    sense="==",
    verdict="holds",
    why="An AR(1) process adds (1−α²)D² of new variance a round, which is what a pivot is. Elimination without "
    "exchanges keeps the signs, so positive pivots do prove definiteness.",
    cases=st.fixed_dictionaries({**LONGER, "t": st.integers(2, 20)}),
    needs=[*CORRELATED, "t >= 2"],
)
def pivots(case: Case) -> Comparison:
    """Row operations give M_F the diagonal D², D²(1−α²), ..., and M_R's one eigenvalue other than 0 is (t−1)R².

    Measured: pivots over D² and M_R's largest eigenvalue over R², as one list. Compared entry by entry.
    """
    t, D2, R2, a = case["t"], case["D2"], case["R2"], case["alpha"]
    lost = weights.quadratic_form(np.zeros((t, t)), R2)
    found = [*_pivots(weights.covariance(t, D2, a)) / D2, float(np.linalg.eigvalsh(lost)[-1]) / (R2 or 1.0)]
    return _equal(np.array(found), np.array([1.0, *[1 - a * a] * (t - 1), (t - 1) if R2 > 0 else 0.0]))


def _one_apart(case: Case) -> Array:
    """Correlations α^|i−j|, but round ``lone`` (from 1; 0: none) is independent of the others: inside Assumption 7."""
    C = weights.covariance(case["t"], 1.0, case["alpha"])
    if case["lone"]:
        i = case["lone"] - 1
        C[i, :] = C[:, i] = 0.0
        C[i, i] = 1.0
    return C


def _lemma_b10(case: Case, p: Array) -> Comparison:
    v = case["D2"] + case["A2"] * case["g2"]
    known = weights.covariance(case["t"], 1.0, case["alpha"])
    return Comparison(case["g2"] + v * float(p @ _one_apart(case) @ p), case["g2"] + v * float(p @ known @ p))


def _best(case: Case, nonnegative: bool = False) -> Array:
    return weights.optimal(case["t"], case["D2"], case["R2"], case["alpha"], nonnegative=nonnegative).weights


def _lemma_b10_repaired(case: Case) -> Comparison:
    """The same for the best weights that are not negative."""
    return _lemma_b10(case, _best(case, nonnegative=True))


APART = {**AR1, "t": st.integers(1, 8), "lone": st.integers(0, 8)}
INSIDE = [*CORRELATED, "0 <= lone <= t"]


@claim(
    "cfl/lemma-b.10",
    at="Lemma B.10, as Theorem 4.9 uses it",
    sense="<=",
    verdict="refuted",
    why="Assumptions 5 to 7 limit correlations from above only, which bounds nothing where p_τ p_τ' < 0; and "
    "Theorem 4.9's weights do turn negative (three rows of Table 2). Row 4 of Table 2 with its third drift "
    "independent of the others: 1.168 against 0.792. For p ≥ 0 it shares the fault of Lemma B.7.",
    cases=st.fixed_dictionaries({**APART, "A2": SMALL, "g2": SMALL}),
    needs=[*INSIDE, "A2 >= 0", "g2 >= 0"],
    repair="Ask for p ≥ 0, or limit |E⟨ξ_τ, ξ_τ'⟩| and use |p_τ p_τ'|",
    repaired=_lemma_b10_repaired,
)
def correlated_drifts(case: Case) -> Comparison:
    """Lemma B.7 with limits F²_ττ' and C²_ττ' for each pair of rounds (Assumption 5):

    E‖Σ p_τ ∇f_τ‖² ≤ (1 + B² + A²S + Σ C²_ττ' p_τ p_τ')‖∇f‖² + G² + D²S + Σ min(F²_ττ', D²) p_τ p_τ'.

    Measured: Theorem 4.9's weights and drifts of correlation α^|τ−τ'|, but one of them independent of all
    others, which Assumption 7 allows. Claimed: the bound, with F² = α^|τ−τ'| D² and C² = α^|τ−τ'| A²; G = B =
    0.
    """
    return _lemma_b10(case, _best(case))


def _guaranteed(case: Case, p: Array) -> Comparison:
    """E‖Σ p ξ − Σ p Δ‖² for these weights, beside the programme's value."""
    drift = case["D2"] * float(p @ _one_apart(case) @ p)
    lost = np.abs(p[:-1]).sum() if case["opposed"] else p[:-1].sum()
    return Comparison(drift + case["R2"] * float(lost) ** 2, float(p @ _by_rule(case) @ p))


def _guaranteed_repaired(case: Case) -> Comparison:
    """With the best weights that are not negative, the value itself is a bound, without the factor."""
    return _guaranteed(case, _best(case, nonnegative=True))


@claim(
    "cfl/thm-4.9-bound",
    at="Section 4.3.2, before Theorem 4.9",
    sense="<=",
    verdict="refuted",
    why="(1 − p_t)²R² bounds ‖Σ p_τ Δ_τ‖² for p ≥ 0 only; else it takes (Σ|p_τ|)²R². For t ≥ 3 and α > 0 the "
    "past's sum vanishes as R grows, but not its weights: the value stays below D², the loss does not. α = "
    "0.8, D = 1, R = 10, t = 4: 76.7 against 1.77. At row 4 of Table 2, without the factor 2, it is 1.018 "
    "against 0.825, and the best weights p ≥ 0 guarantee 0.839.",
    cases=st.fixed_dictionaries({**APART, "opposed": st.booleans()}),
    needs=INSIDE,
    repair="Add p ≥ 0 to the programme, whose value is a bound then",
    repaired=_guaranteed_repaired,
)
def weights_minimise_a_bound(case: Case) -> Comparison:
    """Under Assumptions 1–4 and 7 the programme of Theorem 4.9 minimises an upper bound on drift and loss.

    Measured: E‖Σ p ξ − Σ p Δ‖² at the programme's solution, with correlations α^|τ−τ'| (``lone``: one drift
    independent) and losses of norm R along one line (``opposed``: with the signs of the weights). Claimed: the bound
    of (14) and (15), twice the programme's value.
    """
    found = _guaranteed(case, _best(case))
    return Comparison(found.measured, 2 * found.claimed)  # (14)


HALF_A_DIGIT = 0.5e-4


def _row_2(case: Case, name: str) -> Comparison:
    row = weights.table_2()[case["row"]]
    found: Any = getattr(row, name)
    return Comparison(float(np.abs(np.subtract(found, row.printed)).max()), HALF_A_DIGIT)


def _table_2_squares(case: Case) -> Comparison:
    """With D² and R² as the columns' entries."""
    return _row_2(case, "as_squares")


@claim(
    "cfl/table-2",
    at="Table 2",
    sense="<=",
    verdict="misprint",
    why="The columns headed D and R hold D² and R²: read so, all 20 weights agree to the four digits printed. "
    "Read as D and R, only the row with D = R = 1 does, and others are off by up to 0.15.",
    cases=st.fixed_dictionaries({"row": st.integers(0, 4)}),
    needs=["0 <= row < 5"],
    repair="Head the columns D² and R²",
    repaired=_table_2_squares,
)
def table_2(case: Case) -> Comparison:
    """Table 2 lists the solutions of (7) for t = 4 and the α, D and R of each row.

    Measured: the largest difference between a row's four weights and the solution. Claimed: half a unit of the
    last digit.
    """
    return _row_2(case, "as_roots")


@claim(
    "cfl/example-1",
    at="Example 1",
    sense="<=",
    verdict="holds",
    why="1/(1 − p_t) = 1 + 1/n + (R²/D²)(1 + α/n)/(1 − α²) with n = 1 + (t−2)(1−α), each term of which grows with "
    "α. So the past's total, its importance, falls. Single weights need not: from row 2 to row 4 of Table 2 "
    "the total falls from 0.429 to 0.257, but p_1 rises from 0.286 to 0.387 and Σ|p_τ| from 0.429 to 0.672.",
    cases=st.fixed_dictionaries(
        {"t": SEVERAL, "D2": POSITIVE, "R2": POSITIVE, "alpha": ALPHA, "part": st.floats(0.0, 1.0)}
    ),
    needs=[*CORRELATED, "0 <= part <= 1"],
)
def correlation_favours_the_present(case: Case) -> Comparison:
    """The optimal weight of the current round grows with α, and past rounds together count for less.

    Measured: p_t at part · α. Claimed: p_t at α.
    """
    t, D2, R2, a = case["t"], case["D2"], case["R2"], case["alpha"]
    less, more = weights.optimal(t, D2, R2, case["part"] * a), weights.optimal(t, D2, R2, a)
    return Comparison(float(less.weights[-1]), float(more.weights[-1]))
