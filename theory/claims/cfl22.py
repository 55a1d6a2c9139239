"""`cfl22`, the 2022 version of `cfl`: the numbered statements that differ, or whose numbers do.

The text at hand comes from a scan in which many displays are damaged; what cannot be read is entered as untested.
"""

from __future__ import annotations

from hypothesis import strategies as st

from theory.bounds import cfl_rates as rates

from . import cfl_rates as same
from .cfl_tables import TABLE_3
from .ledger import Case, Comparison, claim, untested

# ---- Assumption 3 ----


def drift_repaired(case: Case) -> Comparison:
    """Â²(1 + B²) in the last term."""
    return _drift(case, 1 + case["B"] ** 2)


def _drift(case: Case, factor: float) -> Comparison:
    """δ = ±√(G² + B²g²), and ξ as large as the assumption allows; g = ‖∇f(w)‖."""
    g2 = case["g"] ** 2
    client = case["G"] ** 2 + case["B"] ** 2 * g2
    largest = case["D"] ** 2 + case["A"] ** 2 * (g2 + client)
    return Comparison(largest, case["D"] ** 2 + case["A"] ** 2 * (case["G"] ** 2 + factor * g2))


@claim(
    "cfl22/asm-3-corollary",
    at="Assumption 3, corollary",
    sense="<=",
    verdict="misprint",
    why="E‖∇f_i‖² is ‖∇f‖² + E‖δ‖² ≤ (1 + B²)‖∇f‖² + G², as Lemma B.1 says; the 1 is lost. With B = 0 the "
    "printed form would forbid time drift that grows with the gradient, which the assumption allows.",
    cases=st.fixed_dictionaries({k: st.floats(0.0, 5.0) for k in ("A", "B", "D", "G", "g")}),
    repair="E‖ξ‖² ≤ D̂² + Â²G² + Â²(1 + B²)‖∇f‖²",
    repaired=drift_repaired,
)
def drift_corollary(case: Case) -> Comparison:
    """E‖δ‖² ≤ G² + B²‖∇f‖² and E‖ξ‖² ≤ D̂² + Â²E‖∇f_i‖² imply E‖ξ‖² ≤ D̂² + Â²G² + Â²B²‖∇f‖².

    Measured: E‖ξ‖² for the largest drifts allowed. Claimed: the right side.
    """
    return _drift(case, case["B"] ** 2)


# ---- One round ----


@claim(
    "cfl22/thm-4.1",
    at="Theorem 4.1, equation (6)",
    sense="<=",
    verdict="refuted",
    why="φ_t is said to be of order R Σp_τ ‖w_0 − w*‖, but what the proof has is ‖w_t − w*‖, and the information "
    "loss drives the iterates away. From w_0 = w* with a constant loss R and no drift, φ_t = 0 whatever its "
    "constant, and the inequality fails once 0 < w_t − w* < 2(1 − p_t)R for small steps.",
    cases=st.fixed_dictionaries(
        {
            "eta": st.sampled_from([0.001, 0.01, 0.05]),
            "t": st.integers(1, 300),
            "D": st.floats(0.1, 3.0),
            "R": st.floats(0.0, 3.0),
        }
    ),
    needs=["0 < eta <= 0.1"],
    repair="φ_t = c_3 E‖w_t − w*‖, which has to be bounded along the run",
)
def one_round(case: Case) -> Comparison:
    """f(w_t) − f* ≤ ((1 − μη/2)E‖w_t − w*‖² − E‖w_{t+1} − w*‖²)/η + c_1 η + c_2 η² + φ_t in each round of CFL.

    Measured: the left side less the telescoping part, on f = w²/2 from w_0 = w*, Theorem 4.2's weights, N = K = 1,
    a constant information loss R. Claimed: c_1 η + c_2 η², as φ_t = 0,
    with the c_2 that corrects cfl/eq-24.
    """
    eta, D2, R = case["eta"], case["D"] ** 2, case["R"]
    q, e, after = 0.0, 0.0, 0.0
    for t in range(1, case["t"] + 1):
        e, q = after, rates.memory(t, D2, R**2)
        after = e - eta * (e - q * R)
    last = case["t"]
    noise = D2 * ((1 - q) ** 2 + q**2 / max(last - 1, 1)) + q**2 * R**2  # c_pG + c_R
    left = e**2 / 2 - ((1 - eta / 2) * e**2 - after**2) / eta
    return Comparison(max(left, 0.0), 2 * noise * eta + 60 / 11 * noise * eta**2)


untested(
    "cfl22/eq-80",
    at="Equation (80); Section 4.2: with p_t = 1, φ_t is 0",
    statement="One round of FedAvg satisfies equation (6) without φ_t.",
    why="The constant c_2, on which it depends, is damaged. With that of `cfl` it is false, with a larger one "
    "true: cfl/eq-24.",
)


SLOPES = {"L": st.floats(0.1, 10.0), "share": st.floats(0.0, 1.0)}
POINTS = {k: st.floats(-3.0, 3.0) for k in ("x", "w", "star")}


@claim(
    "cfl22/eq-48",
    at="Equation (48)",
    sense="<=",
    verdict="holds",
    why="Lemma A.5; with the square that equation (12) of `cfl` lost.",
    cases=st.fixed_dictionaries(SLOPES | POINTS | {"kink": st.booleans()}),
    needs=["L > 0", "0 <= share <= 1", "abs(x - w) > 0.01"],
)
def perturbed_convexity(case: Case) -> Comparison:
    """⟨∇f(x), w* − w_t⟩ ≤ f(w*) − f(w_t) − μ‖w_t − w*‖²/4 + L‖x − w_t‖².

    Measured: all but the last term, moved to the left, for a quadratic or (``kink``) Huber's function plus μw²/2.
    Claimed: L‖x − w_t‖².
    """
    L, mu, x, w, star = case["L"], case["L"] * case["share"], case["x"], case["w"], case["star"]

    def f(v: float) -> float:
        bend = abs(v) - 0.5 if case["kink"] and abs(v) > 1 else v * v / 2
        return mu * v * v / 2 + (L - mu) * bend

    slope = mu * x + (L - mu) * (max(-1.0, min(1.0, x)) if case["kink"] else x)
    left = slope * (star - w) - f(star) + f(w) + mu / 4 * (w - star) ** 2
    return Comparison(max(left, 0.0), L * (x - w) ** 2)


# ---- Rates ----

untested(
    "cfl22/thm-4.2-sc",
    at="Theorem 4.2, equation (7)",
    sense="rate",
    statement="CFL's rounds to ε + φ for strongly convex functions.",
    why="The display cannot be read beyond L c_O/μ + σ²/(μNKε). The error it is solved from is entered as cfl22/eq-77.",
)


@claim(
    "cfl22/eq-77",
    at="Equation (77)",
    sense="rate",
    verdict="gap",
    why=same.REUSED.format(floor=same.SHARP + "see cfl/remark-4.2."),
    path=same.ROUNDS_SEEN,
    step=same.reused_strongly_convex,
    needs=["D2 > 0"],
    repair="As for cfl/thm-4.1-sc.",
)
def strongly_convex(case: Case) -> Comparison:
    """CFL's error beyond φ is O(exp + σ²/(μNKT) + c_A/(μT) + c_B/(μT²) + c_C/(μT)² + c_D/(μ²T³)).

    Measured, claimed and step: as for cfl/thm-b.5-sc.
    """
    return same.newcomers_strongly_convex(case)


@claim(
    "cfl22/thm-4.2-gc",
    at="Theorem 4.2, equation (8); equation (78)",
    sense="rate",
    verdict="gap",
    why=same.REUSED.format(floor=same.FLAT + "see cfl/remark-4.2."),
    path=same.ROUNDS_SEEN,
    step=same.reused_general_convex,
    needs=["D2 <= H * N * T"],
    repair="As for cfl/thm-4.1-gc.",
)
def general_convex(case: Case) -> Comparison:
    """CFL needs O((c_O F + √(c_B F) + ∛(c_D F²))/ε + σ²F/(NKε²) + c_A F/ε² + √(c_C F²/ε³)) rounds, F = ‖w_0 − w*‖².

    Measured, claimed and step: as for cfl/thm-b.5-gc.
    """
    return same.newcomers_general_convex(case)


untested(
    "cfl22/thm-4.2-nc",
    at="Theorem 4.2, equation (9)",
    sense="rate",
    statement="CFL's rounds until the mean of ‖∇f(w_t)‖² reaches ε, with one term more than `cfl` has.",
    why="The exponents of the last term cannot be read. All terms that can be vanish with T, as in cfl/thm-b.5-nc.",
)

untested(
    "cfl22/remark-4.4",
    at="Remark 4.4",
    statement="For stateless clients c_A and c_B take other values, with which the rate does not become slower.",
    why="The inequality cannot be read. Its part in c_A is Proposition 4.3 of `cfl`.",
)


@claim(
    "cfl22/thm-4.5-sc",
    at="Theorem 4.5, equation (10)",
    sense="<=",
    verdict="loose",
    why=same.FRESH,
    cases=same.FLEETS,
    needs=same.PAST_START,
    path=same.CROWDS,
    slack_in="N",
    repair="(G² + D²)/(μNε)",
)
def fedavg_strongly_convex(case: Case) -> Comparison:
    """FedAvg is within ε after T = O(L c_O/μ + σ²/(μNKε) + c_A/(με) + √(c_C/(μ²ε))) rounds, c_A = G² + D².

    Measured and claimed: as for cfl/thm-4.4-sc.
    """
    return same.fedavg_strongly_convex(case)


@claim(
    "cfl22/thm-4.5-gc",
    at="Theorem 4.5, equation (11)",
    sense="<=",
    verdict="misprint",
    why=same.NO_L,
    cases=same.STIFF,
    repair="L c_O F/ε",
    repaired=same.fedavg_general_convex_with_l,
)
def fedavg_general_convex(case: Case) -> Comparison:
    """FedAvg is within ε after T = O(c_O F/ε + σ²F/(NKε²) + c_A F/ε² + √(c_C F²/ε³)) rounds, F = ‖w_0 − w*‖².

    Measured and claimed: as for cfl/thm-4.4-gc.
    """
    return same.fedavg_general_convex(case, False)


@claim(
    "cfl22/remark-4.6",
    at="Remark 4.6",
    sense="<=",
    verdict="holds",
    why="Increasing, between G² and G² + D². Not linear, as the remark puts it: quadratic for R ≪ D, constant "
    "for R ≫ D.",
    cases=st.fixed_dictionaries(
        {
            "G2": st.floats(0.0, 10.0),
            "D2": st.floats(0.001, 10.0),
            "R": st.floats(0.01, 100.0),
            "more": st.floats(0.0, 10.0),
        }
    ),
    needs=["more >= 0"],
)
def noise_grows_with_loss(case: Case) -> Comparison:
    """The gradient noise c_A = G² + D²R²/(R² + D²) grows with the bound R on the information loss, up to FedAvg's
    G² + D².

    Measured: c_A at R. Claimed: the smaller of c_A at R + more and FedAvg's.
    """

    def noise(R: float) -> float:
        return rates.constants(1.0, 1, 0.0, case["G2"], case["D2"], R**2).A

    return Comparison(noise(case["R"]), min(noise(case["R"] + case["more"]), case["G2"] + case["D2"]))


untested(
    "cfl22/lemma-b.3",
    at="Lemma B.3; Section C.2.2",
    statement="The information loss of a Taylor expansion is at most ε‖w − ŵ‖ (in Section C.2.2: ε‖w − ŵ‖²).",
    why="The lemma does not say what ε is, and the condition in Section C.2.2 is damaged. `cfl` supplies it: "
    "cfl/lemma-b.3.",
)

# ---- Tables ----

untested(
    "cfl22/table-1",
    at="Table 1, rows Ours",
    sense="==",
    statement="The rows for FedAvg, CL and CFL are Theorems 4.5 and 4.2, with lower-order terms.",
    why="The cells cannot be read. Those of `cfl`, without the lower-order terms, are cfl/table-1-ours and "
    "cfl/remark-4.2.",
)


@claim(
    "cfl22/table-7",
    at="Table 7; Section C.1",
    sense=">=",
    verdict="holds",
    why="Table 3 of `cfl`. Ties in two columns.",
    cases=st.fixed_dictionaries({"column": st.integers(0, 7), "baseline": st.sampled_from(["FedAvg", "FedProx"])}),
)
def largest_rate(case: Case) -> Comparison:
    """CFL's best learning rate is the largest in each column.

    Measured: CFL's entry. Claimed: the baseline's.
    """
    return Comparison(TABLE_3["CFL"][case["column"]], TABLE_3[case["baseline"]][case["column"]])


@claim(
    "cfl22/table-7-gap",
    at="Section C.1, on Table 7",
    sense=">=",
    verdict="holds",
    why="For ratios of learning rates, in all sixteen comparisons.",
    cases=st.fixed_dictionaries(
        {
            "pair": st.sampled_from([[i, i + 2] for i in (0, 1, 4, 5)] + [[i + 4, i] for i in range(4)]),
            "baseline": st.sampled_from(["FedAvg", "FedProx"]),
        }
    ),
)
def larger_gap(case: Case) -> Comparison:
    """CFL's learning rate exceeds a baseline's by more when the model is strongly convex, and when the round drift
    is big.

    Measured: the ratio of the two rates in the strongly convex (big drift) column. Claimed: in its counterpart.
    """
    more, less = (TABLE_3["CFL"][i] / TABLE_3[case["baseline"]][i] for i in case["pair"])
    return Comparison(more, less)
