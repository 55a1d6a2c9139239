"""`cflag`, Appendix 1.2-1.3: local steps with delayed gradients, Lemmas 12-16, and the bounds on Γ(t) they lead to."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from ..bounds import cflag as bounds
from .cflag_worlds import SIZES, STEP, Round, World, length, local_steps, one_round, world
from .ledger import Case, Comparison, claim
from .worlds import hundredths

LOCAL = st.fixed_dictionaries({**SIZES, "step": STEP})
SMALL = ["0.005 <= step <= 1"]  # below, differences of iterates drown in rounding
ANY_STEP = st.one_of(STEP, hundredths(100, 1000000))
ANY = st.fixed_dictionaries({**SIZES, "step": ANY_STEP})
ALPHA = hundredths(1, 199)


# --- (4), (5), (17)-(22) ----------------------------------------------------------------------------------------------


@claim(
    "cflag/eq-22",
    at="(4), (5), (17)-(22)",
    sense="==",
    verdict="holds",
    why="The corrections ∇g − ∇g_i cancel in the weighted mean because g = Σ p_i g_i and all clients use one β. With a "
    "rate of its own for every client they don't (see adaplr-line-14).",
    cases=ANY,
    needs=["step >= 0.005"],
)
def mean_movement(case: Case) -> Comparison:
    """After E local steps the clients' weighted mean has moved by −β Σ_i p_i Σ_k ∇g'_i, free of the tracking terms.

    Measured: a scale plus the distance of the mean, from the iterates of (4), to where that would take it. Claimed: the
    scale, the way that the clients have gone. E = 1 gives gradient descent on g.
    """
    path, here, beta = one_round(case, 4)
    moved, sums = here.p @ path.local[:, -1] - here.x, here.p @ path.sums
    scale = length(here.x) + float(here.p @ np.linalg.norm(np.diff(path.local, axis=1), axis=2).sum(axis=1))
    return Comparison(scale + length(moved + beta * sums), scale)


# --- Lemmas 12 and 13, Corollary 14 -------------------------------------------------------------------------------


def _errors(path: Round) -> np.ndarray:
    return np.linalg.norm(path.delayed - path.exact, axis=2)


def _moves(path: Round) -> np.ndarray:
    return np.linalg.norm(path.local - path.x, axis=2)


def _worst(pairs: list[tuple[float, float]]) -> Comparison:
    """The pair that comes closest to breaking measured ≤ claimed."""
    return Comparison(*max(pairs, key=lambda pair: pair[0] / pair[1] if pair[1] > 0 else (math.inf if pair[0] else 0)))


@claim(
    "cflag/lemma-12",
    at="Lemma 12, (91)",
    sense="<=",
    verdict="holds",
    why="For any β and any order of refreshing: only 0 ≤ τ ≤ k is used. At k = 0 there is no delay. For small β and a "
    "client that keeps refreshing one sample of many the error is (1 − 1/n)(k/E) of the bound, k ≤ E − 1, so nothing "
    "is lost but constants.",
    cases=ANY,
    needs=["step >= 0.005"],
)
def delayed_gradient(case: Case) -> Comparison:
    """The error of the delayed gradient is at most βLE‖∇g(x_t)‖ + 3βL²E max_{b<k} ‖x_{t,b} − x_t‖.

    Measured: ‖e_{t,k}‖, for the client and step that come closest to the bound; finite sums of quadratic, kinked and
    concave samples, refreshed at random, in turn, or one sample only.
    """
    path, _, beta = one_round(case, 4)
    errors, moves, g = _errors(path), _moves(path), length(path.grad)
    before = np.maximum.accumulate(moves, axis=1)  # before[:, k − 1]: the farthest up to step k − 1
    return _worst(
        [
            (float(errors[i, k]), bounds.delay_error(case["L"], case["E"], beta, g, float(before[i, max(k - 1, 0)])))
            for i in range(case["N"])
            for k in range(case["E"])
        ]
    )


@claim(
    "cflag/lemma-13",
    at="Lemma 13, (110)",
    sense="<=",
    verdict="holds",
    why="The induction is sound (as a strong one: (124) uses all earlier steps). The factor 4 is generous: with β = "
    "1/(4LE) the sharpest growth, a concave sum, stays below a third of the bound for E ≤ 6.",
    cases=LOCAL,
    needs=SMALL,
)
def movement(case: Case) -> Comparison:
    """For β ≤ 1/(4LE) a client is at most 4βk‖∇g(x_t)‖ from the server's model after k local steps.

    Measured: the distance, for the client and step k = 1..E that come closest. ``step`` is β as a share of 1/(4LE).
    """
    path, _, beta = one_round(case, 4)
    moves, g = _moves(path), length(path.grad)
    return _worst(
        [(float(moves[i, k]), bounds.drift(beta, k, g)) for i in range(case["N"]) for k in range(1, case["E"] + 1)]
    )


@claim(
    "cflag/cor-14",
    at="Corollary 14, (127)",
    sense="<=",
    verdict="holds",
    why="Lemma 12 with Lemma 13 (the text cites Lemma 3).",
    cases=LOCAL,
    needs=SMALL,
)
def delayed_gradient_plain(case: Case) -> Comparison:
    """For β ≤ 1/(12LE) the error of the delayed gradient is at most 2βLE‖∇g(x_t)‖.

    Measured: the largest ‖e_{t,k}‖ of all clients and steps. ``step`` is β as a share of 1/(12LE).
    """
    path, _, beta = one_round(case, 12)
    claimed = bounds.delay_error_plain(case["L"], case["E"], beta, length(path.grad))
    return Comparison(float(_errors(path).max()), claimed)


# --- Lemmas 15 and 16 -------------------------------------------------------------------------------------------------


def _capped(case: Case) -> Case:
    """The case with the step-size condition of the lemma that the proof cites."""
    return {**case, "step": min(case["step"], 1.0)}


def _mean_sum(path: Round, here: World) -> float:
    return length(here.p @ path.exact.sum(axis=1))


def _sum_within(case: Case) -> Comparison:
    """The same for β ≤ 1/(4LE)."""
    return sum_of_gradients(_capped(case))


@claim(
    "cflag/lemma-15-i",
    at="Lemma 15 (I), (131)",
    sense="<=",
    verdict="misprint",
    why="Stated under Assumption 1 alone, for any β. Step (d) uses Lemma 13, which needs β ≤ 1/(4LE); for larger β "
    "local steps grow geometrically in E and pass any bound linear in β.",
    cases=ANY,
    needs=["step >= 0.005"],
    repair="for β ≤ 1/(4LE)",
    repaired=_sum_within,
)
def sum_of_gradients(case: Case) -> Comparison:
    """‖Σ_k Σ_i p_i ∇g_i(x_{t,k})‖ ≤ (4LβE² + E)‖∇g(x_t)‖.

    Measured: the sum of the exact gradients along the local steps. ``step`` is β as a share of 1/(4LE).
    """
    path, here, beta = one_round(case, 4)
    return Comparison(_mean_sum(path, here), bounds.current_sum(case["L"], case["E"], beta, length(path.grad)))


def _square_within(case: Case) -> Comparison:
    """The same for β ≤ 1/(4LE)."""
    return square_of_gradients(_capped(case))


@claim(
    "cflag/lemma-15-ii",
    at="Lemma 15 (II), (132)",
    sense="<=",
    verdict="misprint",
    why="As for (I): true for β ≤ 1/(4LE), which the statement leaves out.",
    cases=ANY,
    needs=["step >= 0.005"],
    repair="for β ≤ 1/(4LE)",
    repaired=_square_within,
)
def square_of_gradients(case: Case) -> Comparison:
    """‖Σ_k Σ_i p_i ∇g_i(x_{t,k})‖² ≤ (32β²L²E⁴ + 2E²)‖∇g(x_t)‖².

    Measured: the square of the sum of the exact gradients along the local steps.
    """
    path, here, beta = one_round(case, 4)
    claimed = bounds.current_sum_square(case["L"], case["E"], beta, length(path.grad))
    return Comparison(_mean_sum(path, here) ** 2, claimed)


def _error_sum_within(case: Case) -> Comparison:
    """The same for β ≤ 1/(12LE)."""
    return sum_of_errors(_capped(case))


@claim(
    "cflag/lemma-16",
    at="Lemma 16, (146)",
    sense="<=",
    verdict="misprint",
    why="Stated without any condition. It is E times Corollary 14, which needs β ≤ 1/(12LE).",
    cases=ANY,
    needs=["step >= 0.005"],
    repair="for β ≤ 1/(12LE)",
    repaired=_error_sum_within,
)
def sum_of_errors(case: Case) -> Comparison:
    """The delayed gradients' errors, averaged over clients and summed over local steps, are at most 2βLE²‖∇g(x_t)‖.

    Measured: ‖Σ_k Σ_i p_i e_{t,k}‖. ``step`` is β as a share of 1/(12LE).
    """
    path, here, beta = one_round(case, 12)
    measured = length(here.p @ (path.delayed - path.exact).sum(axis=1))
    return Comparison(measured, bounds.delay_error_sum(case["L"], case["E"], beta, length(path.grad)))


# --- Γ(t) in one round: (86)-(90), (149)-(158) ------------------------------------------------------------------------


def _split(case: Case) -> tuple[Round, World, float, float, np.ndarray]:
    """A round, α, and a memory gradient of length r‖∇g‖: along ∇g, against it, or in a random direction."""
    path, here, beta = one_round(case, 12)
    direction = here.rng.normal(size=here.x.shape) if case["aim"] == "any" else path.grad * case["aim"]
    memory = case["r"] * length(path.grad) * direction / max(length(direction), 1e-300)
    return path, here, beta, case["alphaL"] / case["L"], memory


AIM = st.sampled_from([1, -1, "any"])
FORGETTING = {**SIZES, "step": STEP, "alphaL": ALPHA, "r": st.floats(0.01, 20.0), "aim": AIM}


def _forgetting(case: Case) -> tuple[float, Round, float, float]:
    path, here, beta, alpha, memory = _split(case)
    S = here.p @ path.sums
    return bounds.forgetting(case["L"], alpha, beta, float(S @ S), float(memory @ S)), path, beta, alpha


@claim(
    "cflag/eq-90",
    at="(86)-(90)",
    sense="<=",
    verdict="holds",
    why="Printed with =, but (87) is an inequality and every use needs only ≤. (149) and (173) add a sum over clients "
    "in front of ρ̄, which has already been averaged over them.",
    cases=st.fixed_dictionaries({**FORGETTING, "step": ANY_STEP}),
)
def split_forgetting(case: Case) -> Comparison:
    """Γ(t) is at most its value with the sums of exact gradients and of errors taken apart, squares doubled.

    Measured: Γ(t) of (15). Claimed: Lβ²‖Σρ̄‖² + Lβ²‖Σē‖² − β(1 − Lα)⟨∇f†, Σρ̄ + Σē⟩. Both with the inner product's part
    added, so that neither is negative.
    """
    path, here, beta, alpha, memory = _split(case)
    L, S = case["L"], here.p @ path.sums
    exact = here.p @ path.exact.sum(axis=1)
    error = S - exact
    inner = beta * (1 - L * alpha) * float(memory @ S)
    measured = bounds.forgetting(L, alpha, beta, float(S @ S), float(memory @ S)) + inner
    return Comparison(measured, L * beta**2 * float(exact @ exact + error @ error))


def _bound_by_158(case: Case, absolute: bool = False) -> Comparison:
    """Γ(t) against (158), with 1 − Lα as printed or with |1 − Lα|."""
    Gamma, path, beta, alpha = _forgetting(case)
    slope, g = 1 - case["L"] * alpha, length(path.grad)
    slope = abs(slope) if absolute else slope
    return Comparison(Gamma, bounds.forgetting_bound(case["L"], case["E"], beta, case["r"], g, slope))


@claim(
    "cflag/eq-158",
    at="(150)-(158)",
    sense="<=",
    verdict="gap",
    why="True for Lα ≤ 1, which m > 1 gives, as the text says below (15). Lemmas 4 and 18, whose proofs rest on it, "
    "allow any m > 0 and so α beyond 1/L; there (152) and (155), which bound −(1 − Lα)⟨·,·⟩ by (1 − Lα)‖·‖‖·‖, have "
    "the wrong sign for a memory gradient along the current one.",
    cases=st.fixed_dictionaries(FORGETTING),
    needs=[*SMALL, "0 < alphaL < 2"],
    step=_bound_by_158,
    repair="|1 − Lα| in place of 1 − Lα; in orders of T nothing changes",
    repaired=lambda case: _bound_by_158(case, absolute=True),
)
def forgetting_of_a_round(case: Case) -> Comparison:
    """For β ≤ 1/(12LE) and m > 1, Γ(t) ≤ [36β⁴L³E⁴ + 2β²LE² + rβE(1 − Lα)(6βLE + 1)]‖∇g(x_t)‖².

    Measured: Γ(t) of (15) after one round on finite sums, with a memory gradient of length r‖∇g‖ as Assumption 3
    allows; Lα at most 1. Step: the same for Lα below 2, as m near 0 allows.
    """
    return _bound_by_158({**case, "alphaL": min(case["alphaL"], 1.0)})


# --- The constants of (161), (164), (177), (178) --------------------------------------------------------------------

RATES = {"L": st.floats(0.01, 100.0), "E": st.integers(1, 20), "alphaL": hundredths(0, 100), "r": st.floats(0.0, 100.0)}
TRANSFER = ["0 <= alphaL <= 1"]  # what m > 1 gives


@claim(
    "cflag/eq-71",
    at="(70)-(73)",
    sense="<=",
    verdict="holds",
    why="80β⁴L³E⁴ ≤ 5β²LE² for β ≤ 1/(4LE), with equality at the limit. The printed (69)-(73) lack the gradient sign "
    "in ‖∇h̃(x_t)‖², and (74) keeps a sum over t that has already been carried out.",
    cases=st.fixed_dictionaries({"L": st.floats(0.01, 100.0), "E": st.integers(1, 20), "step": STEP}),
    needs=SMALL,
)
def simpler_descent(case: Case) -> Comparison:
    """For β ≤ 1/(4LE), 10β²LE² + 80β⁴L³E⁴ ≤ 15β²LE²: the rate of descent is at least βE(1 − 15βLE).

    Measured: the left side in units of βE. Claimed: 15βLE.
    """
    L, E = case["L"], case["E"]
    beta = case["step"] / (4 * L * E)
    return Comparison((bounds.joint_descent(L, E, beta) + beta) / (beta * E) + 1, 15 * beta * L * E)


@claim(
    "cflag/eq-164",
    at="(163) to (164)",
    sense="<=",
    verdict="misprint",
    why="Written out, Q has 4βL²E where (161) has 4βLE; the units don't match, and for L < 1 the printed bound is "
    "smaller than the one derived. The second line of (164) has it right.",
    cases=st.fixed_dictionaries({**RATES, "step": STEP}),
    needs=[*SMALL, *TRANSFER],
    repair="6βLE + 1 in the first line too",
)
def unfolded(case: Case) -> Comparison:
    """The factor of h̃(x_0) − h̃(x_T) in (164) bounds Q/Z of (163): Γ(t) ≤ Q(‖∇h̃‖² + ω²), and Z‖∇h̃‖² is the fall of h̃.

    Measured: Q/Z. Claimed: the printed fraction. ``step`` is β as a share of 1/(12LE), where Z > 0.
    """
    L, E, alpha = case["L"], case["E"], case["alphaL"] / case["L"]
    beta = case["step"] / (12 * L * E)
    Z = bounds.per_fall(L, E, beta)
    printed = bounds.per_gradient_unfolded(L, E, alpha, beta, case["r"])
    return Comparison(bounds.per_gradient(L, E, alpha, beta, case["r"]) / Z, printed / Z)


@claim(
    "cflag/eq-177",
    at="(177)",
    sense="<=",
    verdict="holds",
    why="For Lα ≤ 1 (m > 1). The constants come from β ≤ 1/(2LE) in Q and Z ≥ βE/2; at β = 1/(60LE) the ratio is 0.081 "
    "+ 2.64 r(1 − Lα), so the printed one is too large by a factor between 6 and 273. For Lα > 1 and r(Lα − 1) > 1.7 "
    "the printed bound is below Q/Z.",
    cases=st.fixed_dictionaries(RATES),
    needs=TRANSFER,
)
def constant_rate_ratio(case: Case) -> Comparison:
    """With β = 1/(60LE), Q/Z ≤ 16r(1 − Lα) + 22, Q and Z as in (161).

    Measured: Q/Z. Claimed: the right side.
    """
    L, E, alpha = case["L"], case["E"], case["alphaL"] / case["L"]
    beta = 1 / (60 * L * E)
    measured = bounds.per_gradient(L, E, alpha, beta, case["r"]) / bounds.per_fall(L, E, beta)
    return Comparison(measured, bounds.constant_rate_fall(L, alpha, case["r"]))


@claim(
    "cflag/eq-178",
    at="(178)",
    sense="<=",
    verdict="holds",
    why="For Lα ≤ 1; too large by a factor between 3.6 and 163.",
    cases=st.fixed_dictionaries(RATES),
    needs=TRANSFER,
)
def constant_rate_level(case: Case) -> Comparison:
    """With β = 1/(60LE), Q ≤ 11/(60L) + 2r(1 − Lα)/(15L), Q as in (161).

    Measured: Q. Claimed: the right side.
    """
    L, E, alpha = case["L"], case["E"], case["alphaL"] / case["L"]
    measured = bounds.per_gradient(L, E, alpha, 1 / (60 * L * E), case["r"])
    return Comparison(measured, bounds.constant_rate_floor(L, alpha, case["r"]))


# --- (67)-(69): FedTrack on the union ---------------------------------------------------------------------------------


@claim(
    "cflag/eq-69",
    at="(67)-(69)",
    sense="<=",
    verdict="holds",
    why="Read with ‖∇h̃(x_t)‖² and for β ≤ 1/(12LE), which 1/(30LE) meets: the delayed gradients' error costs 2β²LE², "
    "the movement 2β²LE², the square of the step at most 4β²LE² + 16β⁴L³E⁴. It is a statement about local steps on "
    "memory and current data together, not about C-FLAG.",
    cases=LOCAL,
    needs=SMALL,
)
def descent_on_the_union(case: Case) -> Comparison:
    """If the local steps run on all data h̃ and the server adds one more gradient, a round lowers h̃ by the factor
    (69).

    Measured: β(1 + E)‖∇h̃‖² plus the change of h̃ in one round of (67)-(68). Claimed: the same plus (69)'s bound.
    ``step`` is β as a share of 1/(12LE).
    """
    here = world(case)
    L, E = case["L"], case["E"]
    beta = case["step"] / (12 * L * E)
    path = local_steps(here.x, here.current, here.p, beta, here.picks)
    after = here.x - beta * path.grad - beta * here.p @ path.sums
    rise = float(here.p @ (here.current.value(after) - here.current.value(here.x)).mean(axis=1))
    g2 = length(path.grad) ** 2
    return Comparison(beta * (1 + E) * g2 + rise, (beta * (1 + E) + bounds.joint_descent(L, E, beta)) * g2)
