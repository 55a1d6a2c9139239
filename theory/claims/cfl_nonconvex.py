"""`cfl`, Appendix B.5: the non-convex proof, equations (25)-(32), and what is read off them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..bounds import cfl_nonconvex as bounds
from .ledger import Case, Comparison, claim
from .worlds import TOWARDS, Drifts, Kinked, Round, hundredths, local_round, weighted_gradient

SQUARE = hundredths(0, 300)
SHARE = hundredths(0, 100)
CURRENT = SHARE.map(lambda x: 1.0 - x)  # the weight of the current round, simplest at 1

# One client's local steps on a function that may curve either way, from a start that owes nothing to its drifts, with
# every step-size condition of the theorem and of B.5 met for η_g = 1. `share` is the step size as a share of the limit.
ROUND = {
    "L": st.floats(0.1, 10.0),
    "inner": hundredths(-100, 100),
    "outer": hundredths(-100, 100),
    "width": hundredths(0, 300),
    "start": hundredths(-300, 300),
    "share": hundredths(1, 100),
    "K": st.integers(1, 3),
    "p": CURRENT,
    "G2": SQUARE,
    "D2": SQUARE,
    "A": hundredths(0, 100),
    "B": hundredths(0, 100),
    "sigma": SQUARE,
    "R": SQUARE,
    "towards": st.sampled_from(sorted(TOWARDS)),
    "rare": st.sampled_from([0.5, 0.1, 0.01]),
}
WITHIN = ["-1 <= inner <= 1", "-1 <= outer <= 1", "0 < share <= 1", "0 <= p <= 1", "0 < rare < 1"]
MOVING = [*WITHIN, "G2 + D2 + abs(start * inner * outer) > 0"]
ROUNDS = st.fixed_dictionaries(ROUND)


@dataclass(frozen=True)
class Setting:
    """A round and the constants that the bounds take."""

    f: Kinked
    local: Round
    lr: float
    eta: float
    c: float
    V: float
    g: float
    R2: float

    @property
    def step(self) -> float:
        """E Δw for η_g = 1 and one client."""
        return float(self.local.mean(self.local.path[-1] - self.local.path[0]))

    @property
    def gain(self) -> float:
        """E f(w_{t+1}) − f(w_t) for η_g = 1 and one client."""
        ahead = self.f.bregman(self.local.path[-1], self.local.path[0])
        return float(self.local.mean(ahead)) + self.g * self.step


def _setting(case: Case, limit: float | None = None) -> Setting:
    A2, B2, p = case["A"] ** 2, case["B"] ** 2, case["p"]
    S = p**2 + (1 - p) ** 2
    c, V = bounds.growth(A2, B2, S), bounds.spread(case["G2"], case["D2"], S)
    unit = case["L"] / (1 + case["A"] + case["B"])  # so that every f_τ,i is L-smooth
    f = Kinked(case["inner"] * unit, case["outer"] * unit, case["width"])
    lr = case["share"] * (bounds.step_limit(case["L"], case["K"], c) if limit is None else limit)
    drifts = Drifts(case["G2"], B2, case["D2"], A2)
    local = local_round(
        f, case["start"], lr, case["K"], p, drifts, case["sigma"], case["R"], case["towards"], case["rare"]
    )
    return Setting(f, local, lr, case["K"] * lr, c, V, float(f.grad(case["start"])), case["R"] ** 2)


# --- (25)-(27) --------------------------------------------------------------------------------------------------------


@claim(
    "cfl/eq-25",
    at="(25)",
    sense="<=",
    verdict="holds",
    why="The descent lemma; a quadratic of curvature L reaches it.",
    cases=ROUNDS,
    needs=MOVING,
)
def descent_lemma(case: Case) -> Comparison:
    """E f(w_{t+1}) ≤ f(w_t) + E⟨∇f(w_t), Δw⟩ + (L/2) E‖Δw‖² for L-smooth f.

    Measured: E[f(w_{t+1}) − f(w_t) − ⟨∇f(w_t), Δw⟩] over a round of local steps, double wells among the functions.
    """
    at = _setting(case)
    end, start = at.local.path[-1], at.local.path[0]
    return Comparison(
        float(at.local.mean(at.f.bregman(end, start))), case["L"] / 2 * float(at.local.mean((end - start) ** 2))
    )


@claim(
    "cfl/eq-26",
    at="(26)",
    sense="<=",
    verdict="holds",
    why="Young's inequality and the polarisation identity, for weights that are not negative.",
    cases=ROUNDS,
    needs=MOVING,
)
def inner_product(case: Case) -> Comparison:
    """With b = Σ p_τ ∇f_τ at the local iterates, averaged over clients and steps, E⟨∇f(w_t), Δw⟩ is at most

    (η/2)(E‖∇f(w_t) − b‖² − E‖b‖²) + (η/2)(1 − p_t)(‖∇f(w_t)‖² + R²) − (η/2)‖∇f(w_t)‖². Measured: the left side of a
    round, plus (η/2)(E‖b‖² + ‖∇f(w_t)‖²); claimed: the right side plus the same.
    """
    at = _setting(case)
    pull = at.local.pull[:-1]
    apart2, pull2 = (float(np.mean(at.local.mean(x**2))) for x in (at.g - pull, pull))
    left = at.g * at.step + at.eta / 2 * (pull2 + at.g**2)
    return Comparison(left, at.eta / 2 * (apart2 + (1 - case["p"]) * (at.g**2 + at.R2)))


def _update(case: Case) -> tuple[Setting, float, Any, Any]:
    """A round, E‖Δw‖² over N such clients, and the mean squares of gradient and information loss by local step."""
    at = _setting(case)
    moved = at.local.path[-1] - at.local.path[0]
    mean2, square = at.step**2, float(at.local.mean(moved**2))
    return at, mean2 + (square - mean2) / case["N"], at.local.mean(at.local.pull**2), at.local.mean(at.local.lost**2)


def _update_repaired(case: Case) -> Comparison:
    """Noise split off first: 4, 4 and 2 for 2, 2 and 1."""
    at, measured, pull2, lost2 = _update(case)
    right = bounds.update(
        at.eta, case["N"], case["K"], 2 * pull2[:-1].mean(), 2 * lost2[:-1].mean(), 2 * case["sigma"] ** 2
    )
    return Comparison(measured, float(right))


@claim(
    "cfl/eq-27",
    at="(27)",
    sense="<=",
    verdict="refuted",
    why="(14) is carried over to non-convex f, where Lemma A.4 fails: w_{t,i,k} contains the earlier noises, and "
    "negative curvature makes the next gradients push in their direction. Stored: a double well, two local steps from "
    "its top, no drift, η_g = 1 and a step size within all conditions.",
    cases=st.fixed_dictionaries({**ROUND, "N": st.integers(1, 3)}),
    needs=WITHIN,
    repair="(4η²/NK) Σ(E‖Σ p ∇f_τ‖² + E‖Σ p Δ_τ‖²) + 2η²σ²/(NK); the term is then dropped for η ≤ 1/(4L).",
    repaired=_update_repaired,
)
def second_moment_of_the_update(case: Case) -> Comparison:
    """E‖Δw‖² ≤ (2η²/NK) Σ(E‖Σ p ∇f_τ(w_{t,i,k})‖² + E‖Σ p Δ_τ(w_{t,i,k})‖²) + η²σ²/(NK), without convexity.

    Measured: the left side for N clients with independent drifts and noises. Claimed: the right side, with k = 1..K as
    printed or k = 0..K−1 as in (14), whichever is larger.
    """
    at, measured, pull2, lost2 = _update(case)
    sums = max(float((pull2 + lost2)[:-1].mean()), float((pull2 + lost2)[1:].mean()))
    return Comparison(measured, bounds.update(at.eta, case["N"], case["K"], sums, 0.0, case["sigma"] ** 2))


@claim(
    "cfl/eq-27-ignored",
    at="Below (27)",
    sense="<=",
    verdict="holds",
    why="(26) takes off η/2 times the term and (L/2)·(27) adds Lη² times it; η = 1/(2L) reaches it.",
    cases=st.fixed_dictionaries(
        {"L": st.floats(0.01, 100.0), "share": hundredths(1, 100), "size2": st.floats(0.01, 100.0)}
    ),
    needs=["0 < share <= 1"],
)
def gradient_term_drops_out(case: Case) -> Comparison:
    """For η ≤ 1/(2L) the terms of (25) in E‖Σ p_τ ∇f_τ‖² sum to at most zero.

    Measured: what (L/2)·(27) adds. Claimed: what (26) takes off.
    """
    eta = case["share"] / (2 * case["L"])
    added = case["L"] / 2 * bounds.update(eta, 1, 1, case["size2"], 0.0, 0.0)
    return Comparison(added, eta / 2 * case["size2"])


# --- (28), (29) -------------------------------------------------------------------------------------------------------


def _deviation_repaired(case: Case) -> Comparison:
    """Drift taken at w_t, then moved by the smoothness of f_{t,i}."""
    at = _setting(case)
    right = 2 * case["L"] ** 2 * at.local.moved2[-2] + 2 * (at.c - 1) * at.g**2 + 2 * at.V
    return Comparison(float(at.local.mean((at.g - at.local.pull[-2]) ** 2)), float(right))


@claim(
    "cfl/eq-28",
    at="(28)",
    sense="<=",
    verdict="refuted",
    why="The line before has 2E‖∇f(w) − Σ p ∇f_τ(w)‖²; its 2 is lost. It would not matter if the two parts of the "
    "split were uncorrelated, but w was moved by the same drift: at the top of a double well, drift ±G and one local "
    "step of x = η_l L give (1 + x)²G² against (1 + 2x²)G². w_t is a given point here, so this does not depend on "
    "which clients take part in which rounds. For convex f without information loss no case was found against it. "
    "(29) and (32) survive all the same.",
    cases=ROUNDS,
    needs=WITHIN,
    repair="2L²E‖w_{t,i,k} − w_t‖² + 2(c_pB − 1)‖∇f(w_t)‖² + 2c_pG for a w_t that owes nothing to the drifts: "
    "condition at w_t, then use the smoothness of f_{t,i}.",
    repaired=_deviation_repaired,
)
def deviation_of_the_gradient(case: Case) -> Comparison:
    """E‖∇f(w_t) − Σ p_τ ∇f_τ(w_{t,i,k})‖² ≤ 2L² c_pB E‖w_{t,i,k} − w_t‖² + 2(c_pB − 1)‖∇f(w_t)‖² + c_pG.

    Measured: the left side at k = K − 1, by enumeration; (26) sums over it whether k runs from 0, as in (9), or from 1.
    """
    at = _setting(case)
    right = bounds.deviation(case["L"], at.c, at.V, at.g**2, float(at.local.moved2[-2]))
    return Comparison(float(at.local.mean((at.g - at.local.pull[-2]) ** 2)), right)


@claim(
    "cfl/eq-29",
    at="(29)",
    sense="<=",
    verdict="gap",
    why="Its proof adds (28), which is short of a factor 2. It is true all the same for a w_t that owes nothing to the "
    "drifts, as Assumption 3 asks: only the mean of the gradients enters, and ‖∇f(w_t) − E Σ p ∇f_τ(w)‖ ≤ "
    "L E‖w − w_t‖. For one client met in every round E[δ|w_t] is not 0, and it can fail slightly near convergence.",
    cases=ROUNDS,
    needs=MOVING,
    step=deviation_of_the_gradient,
    repair="(η/2)L²E‖w_{t,i,k} − w_t‖² − (η p_t/2)‖∇f(w_t)‖² + (η/2)(1 − p_t)R² is enough, without c_pB and c_pG.",
)
def expected_descent(case: Case) -> Comparison:
    """E⟨∇f(w_t), Δw⟩ ≤ ηL²c_pB E‖w_{t,i,k} − w_t‖² + η(c_pB − 1 − p_t/2)‖∇f(w_t)‖² + (η/2)(c_pG + (1−p_t)R²).

    The movement is averaged over clients and steps. Measured: the left side plus η(1 + p_t/2)‖∇f(w_t)‖². Claimed: the
    right side plus the same.
    """
    at, p = _setting(case), case["p"]
    moved2 = float(at.local.moved2[:-1].mean())
    shift = at.eta * (1 + p / 2) * at.g**2
    right = bounds.descent(at.eta, case["L"], p, at.c, at.V, at.R2, at.g**2, moved2)
    return Comparison(at.g * at.step + shift, right + shift)


# --- (30), (31) -------------------------------------------------------------------------------------------------------


def _source(case: Case, at: Setting) -> float:
    return bounds.source(case["K"], at.lr, case["p"], at.c, at.V, at.R2, case["sigma"] ** 2, at.g**2)


def _movement_repaired(case: Case) -> Comparison:
    """Noise split off, drift taken at w_t: 6, 6, 6, 6 and 2 for 4c, 4, 2, 2 and 1."""
    at, k = _setting(case), case["K"]
    moved2 = at.local.moved2
    inside = case["L"] ** 2 * max(moved2[:-1]) + at.c * at.g**2 + at.V + (1 - case["p"]) ** 2 * at.R2
    return Comparison(float(moved2[-1]), float(at.lr**2 * (6 * k**2 * inside + 2 * k * case["sigma"] ** 2)))


@claim(
    "cfl/eq-30",
    at="(30)",
    sense="<=",
    verdict="refuted",
    why="It rests on (17), which fails without convexity as (27) does: from the top of a double well, without drift, "
    "two local steps of x = η_l L give η_l²σ²((1 + x)² + 1) against η_l²σ²(2 + 16x²).",
    cases=ROUNDS,
    needs=WITHIN,
    repair="6k²η_l²(L² max_{j<k} E‖w_{t,i,j} − w_t‖² + c_pB‖∇f(w_t)‖² + c_pG + (1−p_t)²R²) + 2kη_l²σ², for a w_t that "
    "owes nothing to the drifts",
    repaired=_movement_repaired,
)
def local_movement(case: Case) -> Comparison:
    """E‖w_k − w_t‖² ≤ 4k²η_l²L²c_pB E‖w_{k−1} − w_t‖² + k²η_l²(4c_pB‖∇f(w_t)‖² + 2c_pG + 2(1−p_t)²R²) + kη_l²σ².

    Measured: the left side for k = K, without convexity. Claimed: the right side, with the largest earlier movement in
    place of the last one.
    """
    at = _setting(case)
    moved2 = at.local.moved2
    before2 = float(max(moved2[:-1]))
    return Comparison(float(moved2[-1]), bounds.movement(case["K"], at.lr, case["L"], at.c, before2, _source(case, at)))


def _unrolled_repaired(case: Case) -> Comparison:
    """The repaired recursion, iterated over all k ≤ K."""
    at, k = _setting(case), case["K"]
    inside = at.c * at.g**2 + at.V + (1 - case["p"]) ** 2 * at.R2
    source = at.lr**2 * (6 * k**2 * inside + 2 * k * case["sigma"] ** 2)
    return Comparison(float(at.local.moved2[-1]), source / (1 - 6 * k**2 * at.lr**2 * case["L"] ** 2))


@claim(
    "cfl/eq-30-iterated",
    at="Below (30)",
    sense="<=",
    verdict="refuted",
    why="The case against (30) breaks it too: (1 + x)² + 1 against 2/(1 − 16x²), in units of η_l²σ².",
    cases=ROUNDS,
    needs=WITHIN,
    repair="[6k²η_l²(c_pB‖∇f(w_t)‖² + c_pG + (1−p_t)²R²) + 2kη_l²σ²]/(1 − 6k²η_l²L²)",
    repaired=_unrolled_repaired,
)
def local_movement_unrolled(case: Case) -> Comparison:
    """The recursion (30), unrolled: its last four terms, divided by 1 − 4k²η_l²L²c_pB, bound E‖w_k − w_t‖².

    Measured: the left side for k = K, without convexity.
    """
    at = _setting(case)
    right = bounds.movement_unrolled(case["K"], at.lr, case["L"], at.c, _source(case, at))
    return Comparison(float(at.local.moved2[-1]), right)


FAR = {**ROUND, "L": st.floats(0.1, 500.0), "K": st.integers(1, 4)}


def _mean_movement(case: Case, per_L: bool) -> Comparison:
    unit = case["L"] if per_L else 1.0
    S = case["p"] ** 2 + (1 - case["p"]) ** 2
    c = bounds.growth(case["A"] ** 2, case["B"] ** 2, S)
    at = _setting(case, limit=1 / (case["K"] * math.sqrt(8 * c) * unit))
    right = bounds.movement_mean(case["K"], case["p"], at.c, at.V, at.R2, case["sigma"] ** 2, at.g**2)
    return Comparison(unit**2 * at.c * float(at.local.moved2[:-1].mean()), right)


def _mean_movement_repaired(case: Case) -> Comparison:
    """With L in the condition and L² on the left."""
    return _mean_movement(case, per_L=True)


@claim(
    "cfl/eq-31",
    at="(31) and the condition above it",
    sense="<=",
    verdict="misprint",
    why="L is missing from the condition: the geometric series needs 4K²η_l²L²c_pB < 1, and the two sides have "
    "different units. With L large the local steps run away while η = Kη_gη_l ≤ 1/(2L) is met by a small η_g. For "
    "η_g = 1 and the theorem's step size the corrected condition holds anyway.",
    cases=st.fixed_dictionaries(FAR),
    needs=MOVING,
    repair="8K²η_l²L²c_pB ≤ 1, and L² times the left side. (32) then has 2c_pB − 1 − p_t/2, never below ½, in place "
    "of (L² + 1)c_pB − 1 − p_t/2: the condition must be 8K²η_l²L²c_pB ≤ κ with a small κ.",
    repaired=_mean_movement_repaired,
)
def mean_local_movement(case: Case) -> Comparison:
    """If 8K²η_l²c_pB ≤ 1, the mean of c_pB E‖w_{k−1} − w_t‖² over k = 1..K is at most

    c_pB‖∇f(w_t)‖² + c_pG/2 + (1−p_t)²R²/2 + σ²/(4K). Measured: the mean, by enumeration, with η_l at a share of what
    the condition allows.
    """
    return _mean_movement(case, per_L=False)


# --- (32) -------------------------------------------------------------------------------------------------------------


def _constant(case: Case, at: Setting) -> float:
    sigma2 = case["sigma"] ** 2
    first = bounds.c1(case["L"], case["K"], case["p"], at.V, at.R2, sigma2)
    return at.eta * first + at.eta**2 * bounds.c2(case["L"], 1, case["K"], case["p"], at.R2, sigma2)


@claim(
    "cfl/eq-32",
    at="(32)",
    sense="<=",
    verdict="gap",
    why="It survives, for η_g = 1 and a w_t that owes nothing to the drifts, although (27), (28) and (30) do not: all "
    "its constants are generous. Whether it says anything is another matter, see cfl/b.5-cm.",
    cases=ROUNDS,
    needs=MOVING,
    step=local_movement,
)
def one_round_of_progress(case: Case) -> Comparison:
    """E f(w_{t+1}) ≤ f(w_t) + η((L² + 1)c_pB − 1 − p_t/2)‖∇f(w_t)‖² + η c_1 + η² c_2, without convexity.

    c_1 = (c_pG + (1−p_t)R²)/2 + L²(c_pG + (1−p_t)²R² + σ²/(2K))/2, c_2 = L(1−p_t)²R² + Lσ²/(2NK). Measured: one
    client's round, both sides plus η(1 + p_t/2)‖∇f(w_t)‖².
    """
    at = _setting(case)
    shift = at.eta * (1 + case["p"] / 2) * at.g**2
    right = at.eta * bounds.c0(case["L"], case["p"], at.c) * at.g**2 + _constant(case, at)
    return Comparison(at.gain + shift, right + shift)


def _sign_repaired(case: Case) -> Comparison:
    """As in (32): plus η c_0 with c_0 of the text below, negative for convergence."""
    at = _setting(case)
    return Comparison(at.gain - at.eta * bounds.c0(case["L"], case["p"], at.c) * at.g**2, _constant(case, at))


@claim(
    "cfl/b.5-sign",
    at="Below (32): the progress in terms of c_0, and the definition of c_0",
    sense="<=",
    verdict="misprint",
    why="The display subtracts ηc_0‖∇f‖², the text defines c_0 as the coefficient that (32) adds and asks for c_0 < 0. "
    "One of the two signs is wrong: together they promise a fall of f by a multiple (L² − ½ and more) of η‖∇f‖².",
    cases=ROUNDS,
    needs=MOVING,
    repair="c_0 = 1 + p_t/2 − (L² + 1)c_pB > 0 with c_m its minimum over t, or a plus sign in the display",
    repaired=_sign_repaired,
)
def progress_with_the_printed_sign(case: Case) -> Comparison:
    """E f(w_{t+1}) ≤ f(w_t) − ηc_0‖∇f(w_t)‖² + ηc_1 + η²c_2 with c_0 = (L² + 1)c_pB − 1 − p_t/2.

    Measured: E f(w_{t+1}) − f(w_t) + ηc_0‖∇f(w_t)‖². Claimed: the constant terms.
    """
    at = _setting(case)
    return Comparison(at.gain + at.eta * bounds.c0(case["L"], case["p"], at.c) * at.g**2, _constant(case, at))


@claim(
    "cfl/b.5-cm",
    at="Below (32): c_m, and 'c_m is a constant' in Theorem 4.1; for R²/(R² + D²) < 2L²",
    sense=">=",
    verdict="vacuous",
    why="c_pB ≥ 1, so c_0 ≤ p_t/2 − L², and Lemma B.4's p_t tends to R²/(R² + D²). No positive c_m exists for L² ≥ ½, "
    "and without information loss, where CFL should gain most, none exists for any L: p_t = 1/t, and c_0(t) < 0 once "
    "t > 1/(2L²). Larger A and B make it worse. The proof does say that it needs c_0 of the "
    "right sign and that A, B, L and p decide on it; Theorem 4.1 does not. (For R > 0 and small A and B a way out is "
    "to count f in units in which L is small: L² stands beside pure numbers.)",
    cases=st.fixed_dictionaries(
        {
            "L": hundredths(1, 500),
            "A2": SQUARE,
            "B2": SQUARE,
            "D2": hundredths(1, 300),
            "R2": st.just(0.0) | hundredths(0, 300),
        }
    ),
    needs=["D2 > 0", "R2 < 2 * L**2 * (R2 + D2)"],
    repair="With 8K²η_l²L²c_pB ≤ κ the coefficient is 1 + p_t/2 − (1 + κ)c_pB: positive for A = B = 0 and κ < p_t/2. "
    "It still vanishes with p_t.",
)
def positive_constant(case: Case) -> Comparison:
    """Some c_m > 0 has c_0(t) ≥ c_m in all rounds, where c_0(t) = 1 + p_t/2 − (L² + 1)c_pB and p is Lemma B.4's.

    Measured: the limit of c_0(t), if the information loss is small against the curvature: R²/(R² + D²) < 2L².
    """
    L2, p = case["L"] ** 2, case["R2"] / (case["R2"] + case["D2"])
    return Comparison(p / 2 - L2 - (L2 + 1) * (case["B2"] + case["A2"] * p**2), 0.0)


@claim(
    "cfl/b.5-telescope",
    at="Below (32): the sum over rounds",
    sense="<=",
    verdict="loose",
    why="(f_0 − f*)/η has lost its 1/T, which the next display has again. φ is the mean of c_1(t) and so contains c_pG "
    "and σ²: it is not zero without information loss, nor for FedAvg.",
    cases=st.fixed_dictionaries(
        {"T": st.integers(1, 1000), "gap": SQUARE, "left": SHARE, "eta": hundredths(1, 100), "c1": SQUARE, "c2": SQUARE}
    ),
    needs=["0 <= left <= 1", "gap > 0"],
    path=[{"T": T, "gap": 1.0, "left": 0.0, "eta": 0.1, "c1": 0.0, "c2": 0.0} for T in (1, 10, 100, 1000)],
    slack_in="T",
    repair="(f_0 − f*)/(ηT)",
)
def sum_over_rounds(case: Case) -> Comparison:
    """The mean of c_0(t) E‖∇f(w_t)‖² over T rounds is at most (f_0 − f*)/η + η c_2 + φ, constants equal in all rounds.

    Measured: the mean when every round's progress inequality is an equation and f ends at ``left`` times f_0 − f*.
    """
    T, eta = case["T"], case["eta"]
    mean = case["gap"] * (1 - case["left"]) / (eta * T) + case["c1"] + eta * case["c2"]
    return Comparison(mean, case["gap"] / eta + eta * case["c2"] + case["c1"])


# --- What is read off (32) --------------------------------------------------------------------------------------------

FLEET = {"L": st.floats(0.1, 10.0), "N": st.integers(1, 20), "K": st.integers(1, 20)}


@claim(
    "cfl/b.5-weights",
    at="Below (32): the choice of p",
    sense="==",
    verdict="refuted",
    why="The minimised expression leaves out the (1 − p_t)R² that (26) brought into (32), which is not squared. With "
    "it, remembering costs more: p_t = 1, that is FedAvg, minimises the constant as soon as R² ≥ 2(1 + L²)D².",
    cases=st.fixed_dictionaries(
        {"t": st.integers(2, 50), "L": hundredths(1, 200), "share": SHARE, "D2": hundredths(1, 300), "R2": SQUARE}
    ),
    needs=["0 <= share <= 1", "D2 > 0"],
    repair="Minimise (1 + L²)(G² + D² Σp²) + (1 − p_t)R² + (L² + 2ηL)(1 − p_t)²R²: `best_weight` in "
    "theory/bounds/cfl_nonconvex.py.",
)
def weights_for_the_constant(case: Case) -> Comparison:
    """Lemma B.4's weights minimise the constant terms c_1 + η c_2 of (32).

    Measured: the part of those terms that depends on the weights, at Lemma B.4's. Claimed: its minimum over weights
    that are not negative. η = share/(2L).
    """
    t, L, D2, R2 = case["t"], case["L"], case["D2"], case["R2"]
    eta = case["share"] / (2 * L)

    def constant(p: float) -> float:
        V = bounds.spread(0.0, D2, bounds.squares(t, p))
        return bounds.c1(L, 1, p, V, R2, 0.0) + eta * bounds.c2(L, 1, 1, p, R2, 0.0)

    return Comparison(constant(bounds.current_weight(t, D2, R2)), constant(bounds.best_weight(t, L, eta, D2, R2)))


def _loss_term_repaired(case: Case) -> Comparison:
    return Comparison(_loss_term(case), bounds.loss_term(case["N"], case["K"], case["D2"], case["R2"]))


def _loss_term(case: Case) -> float:
    """√T times what η = √(KN)/(√T L) makes of the R part of η c_2, for Lemma B.4's weights as t grows."""
    p = case["R2"] / (case["R2"] + case["D2"])
    return bounds.rate_terms(1, case["L"], case["N"], case["K"], 0.0, p, case["R2"], 0.0)[1]


def _with_the_bias(case: Case) -> Comparison:
    """√T times φ, the part of c_1 that is due to R, added to the printed term."""
    T, L, D2, R2 = case["T"], case["L"], case["D2"], case["R2"]
    phi = bounds.c1(L, 1, R2 / (R2 + D2), 0.0, R2, 0.0)
    printed = bounds.printed_loss_term(L, case["N"], case["K"], D2, R2)
    return Comparison(_loss_term(case), printed + math.sqrt(T) * phi)


def _without_the_bias(case: Case) -> Comparison:
    """The printed term alone."""
    printed = bounds.printed_loss_term(case["L"], case["N"], case["K"], case["D2"], case["R2"])
    return Comparison(_loss_term(case), printed)


@claim(
    "cfl/b.5-rate",
    at="Below (32): the rate",
    sense="<=",
    verdict="gap",
    why="c_2 contains L(1 − p_t)²R². The rate has p_t² in its place, without R² and L: R⁴/(R² + D²)² instead of "
    "R²D⁴/(R² + D²)². If the φ of the display before is kept, it covers the difference, as η ≤ 1/(2L); the rate drops "
    "it, and then its term is no upper bound for D ≫ R. (For FedAvg, where p_t = 1, it is 1 and could be 0.) Theorems "
    "4.1, 4.4, B.5, B.6 and B.8 carry it on.",
    cases=st.fixed_dictionaries(
        {**FLEET, "T": st.integers(4, 10**6), "D2": hundredths(1, 10000), "R2": hundredths(1, 300)}
    ),
    needs=["D2 > 0", "R2 > 0", "4 * K * N <= T"],
    step=_without_the_bias,
    repair="√(KN) R²D⁴/(R² + D²)², and 0 for FedAvg",
    repaired=_loss_term_repaired,
)
def loss_term_of_the_rate(case: Case) -> Comparison:
    """With η = √(KN)/(√T L) ≤ 1/(2L), information loss enters the rate as T^{−1/2} (√(KN)/L) (R²/(R² + D²))².

    Measured: √T η L(1 − p_t)²R² from (32), with the limit of Lemma B.4's p_t. Claimed: the printed term, plus √T times
    what R leaves in φ, the mean of c_1(t). Step: the printed term alone.
    """
    return _with_the_bias(case)


def _weight_in_the_rate(case: Case) -> Comparison:
    """What (32) gives, with Lemma B.4's weights as t grows and with p_t = 1."""
    return Comparison(
        _loss_term(case), bounds.rate_terms(1, case["L"], case["N"], case["K"], 0.0, 1.0, case["R2"], 0.0)[1]
    )


@claim(
    "cfl/remark-4.6-nonconvex",
    at="Remark 4.6, last part",
    sense="<=",
    verdict="gap",
    why="The factor that the theorems print does fall, from 1 to R²/(R² + D²) (squared in Theorem 4.1, not in Theorem "
    "B.5 and here): it is the weight p_t of the current round, which falls to that limit. But by (32) the term has "
    "(1 − p_t)²R² and not p_t² (cfl/b.5-rate): FedAvg has none, and remembering adds it. What does fall is c_pG.",
    cases=st.fixed_dictionaries(
        {**FLEET, "t": st.integers(1, 1000), "D2": hundredths(1, 300), "R2": hundredths(1, 300)}
    ),
    needs=["D2 > 0", "R2 > 0"],
    step=_weight_in_the_rate,
    repair="The term rises from 0 to √(KN) R²D⁴/(R² + D²)²; what falls is c_pG, from G² + D² to G² + D² Σp².",
)
def loss_term_against_fedavg(case: Case) -> Comparison:
    """For non-convex f, CFL reduces a factor of the rate from 1 for FedAvg to R²/(R² + D²).

    Measured: the weight of the current round in round t + 1, Lemma B.4's, or its limit R²/(R² + D²) if that is larger.
    Claimed: at most that in round t, which is 1 in the first. Step: the term as (32) gives it is at most FedAvg's.
    """
    t, D2, R2 = case["t"], case["D2"], case["R2"]
    return Comparison(
        max(bounds.current_weight(t + 1, D2, R2), R2 / (R2 + D2)), min(bounds.current_weight(t, D2, R2), 1.0)
    )


def _growth(case: Case) -> float:
    pull, chance = weighted_gradient(1.0, [1 - case["p"], case["p"]], Drifts(0.0, case["B"] ** 2, 0.0, case["A"] ** 2))
    return float(chance @ pull**2)


def _growth_repaired(case: Case) -> Comparison:
    S = case["p"] ** 2 + (1 - case["p"]) ** 2
    return Comparison(_growth(case), bounds.growth(case["A"] ** 2, case["B"] ** 2, S))


@claim(
    "cfl/b.5-c0-AB",
    at="Below (32): c_0 written out",
    sense="==",
    verdict="misprint",
    why="A and B are exchanged against the definition of c_pB and Lemma B.2: weights reduce the part of the time "
    "drift, A², not that of the client drift, B². The text goes on with 'when B is large' and 'from B² to B²/t'.",
    cases=st.fixed_dictionaries({"A": hundredths(0, 200), "B": hundredths(0, 200), "p": CURRENT}),
    repair="1 + B² + A² Σp²",
    repaired=_growth_repaired,
)
def growth_written_out(case: Case) -> Comparison:
    """c_pB, the factor of ‖∇f‖² in E‖Σ p ∇f_τ‖², is 1 + A² + B² Σp².

    Measured: that factor by enumeration for a client seen in two rounds, drift proportional to the gradient.
    """
    S = case["p"] ** 2 + (1 - case["p"]) ** 2
    return Comparison(_growth(case), bounds.growth(case["B"] ** 2, case["A"] ** 2, S))


def _coefficient(case: Case, t: int, p: float) -> float:
    """c_0 in round t plus 3/2, which is positive, if the current round has weight p and earlier ones share the rest."""
    return bounds.c0(case["L"], p, bounds.growth(case["A2"], case["B2"], bounds.squares(t, p))) + 1.5


def _best_for_descent(case: Case) -> float:
    """The weight of the current round, at most 1, that minimises c_0: 1/t + (1 − 1/t)/(4(L² + 1)A²)."""
    t, growing = case["t"], (case["L"] ** 2 + 1) * case["A2"]
    return min(1.0, 1 / t + (1 - 1 / t) / (4 * growing)) if growing > 0 else 1.0


def _equal_weights(case: Case) -> Comparison:
    """p_τ = 1/t, whatever A and B are."""
    return Comparison(_coefficient(case, case["t"], 1 / case["t"]), _coefficient(case, case["t"], 1.0))


@claim(
    "cfl/b.5-faster",
    at="Section B.5, first observation",
    sense="<=",
    verdict="gap",
    why="With p free, CFL's best c_0 is never above FedAvg's, and below it as soon as (L² + 1)A² > ¼ (A and B are "
    "exchanged in the text: cfl/b.5-c0-AB). The p_τ = 1/t of the text helps for (L² + 1)A² > ½, 'when B is large'. "
    "But not always: it also lowers the p_t/2 that c_0 needs. Stored: A = B = 0, where averaging makes c_0 worse. "
    "(And where p = 1/t helps, c_0 ≥ L² > 0, and the criterion c_0 < 0 fails for both methods.)",
    cases=st.fixed_dictionaries({"L": hundredths(1, 300), "A2": SQUARE, "B2": SQUARE, "t": st.integers(2, 100)}),
    needs=["L > 0", "t >= 2"],
    step=_equal_weights,
    repair="As t grows the best p_t is 1/(4(L² + 1)A²) if that is below 1, and c_0 = L² + (L² + 1)B² − 1/(16(L² + "
    "1)A²).",
)
def best_weights_against_fedavg(case: Case) -> Comparison:
    """By its weights CFL can make c_0 at most FedAvg's (L² + 1)(1 + A² + B²) − 3/2.

    Measured: c_0 with the best weight of the current round, the others equal. Claimed: FedAvg's. Both plus 3/2.
    Step: the same with p_τ = 1/t, whatever A and B are.
    """
    t = case["t"]
    return Comparison(_coefficient(case, t, _best_for_descent(case)), _coefficient(case, t, 1.0))


def _later(case: Case) -> Comparison:
    t, D2, R2 = case["t"], case["D2"], case["R2"]
    now, then = (_coefficient(case, s, bounds.current_weight(s, D2, R2)) for s in (t, t + 1))
    return Comparison(then, now)


def _later_without_growth(case: Case) -> Comparison:
    """A = 0, so that c_pB is the same in all rounds."""
    return _later({**case, "A2": 0.0})


@claim(
    "cfl/b.5-larger-t",
    at="Section B.5, second observation",
    sense="<=",
    verdict="gap",
    why="The observation goes on with the case of a large coefficient of the time drift (printed B, meant A: "
    "cfl/b.5-c0-AB), and there it is true: Σp² falls at least as fast as p_t with Lemma B.4's weights, and as fast "
    "with equal ones, so (L² + 1)A² ≥ ½ is enough. Without that condition it does not follow: p_t falls with t too "
    "and enters with the other sign. For A = 0, c_0 gets worse in every round.",
    cases=st.fixed_dictionaries(
        {
            "t": st.integers(1, 50),
            "L": hundredths(1, 300),
            "A2": hundredths(1, 300),
            "B2": SQUARE,
            "D2": hundredths(1, 300),
            "R2": st.just(0.0) | hundredths(0, 300),
        }
    ),
    needs=["(L**2 + 1) * A2 >= 0.5", "D2 > 0"],
    step=_later_without_growth,
    repair="State the condition (L² + 1)A² ≥ ½.",
)
def later_rounds(case: Case) -> Comparison:
    """The rate gets better in later rounds, as c_pB makes c_0 smaller; for a large coefficient A of the time drift.

    Measured: c_0 in round t + 1, for Lemma B.4's weights. Claimed: the same in round t. Both plus 3/2. Step: the same
    for A = 0.
    """
    return _later(case)


@claim(
    "cfl/b.5-NK",
    at="Section B.5, third observation",
    sense="<=",
    verdict="holds",
    why="With η = √(KN)/(√T L) the terms in f_0 − f* and σ² scale as 1/√(NK) and the one in R as √(NK), the printed "
    "one and the one that (32) gives. It is the step size that grows with NK; R and D themselves do not.",
    cases=st.fixed_dictionaries(
        {
            **FLEET,
            "more_N": st.integers(0, 20),
            "more_K": st.integers(0, 20),
            "gap": hundredths(1, 300),
            "sigma2": hundredths(1, 300),
            "R2": hundredths(1, 300),
            "p": hundredths(0, 99),
            "T": st.integers(1, 1000),
        }
    ),
    needs=["0 <= p < 1", "gap > 0", "sigma2 > 0", "R2 > 0"],
)
def more_clients_and_steps(case: Case) -> Comparison:
    """More clients or local steps reduce the terms in f_0 − f* and σ² and increase those in R.

    Measured: the largest of the factors by which the former grow and the latter shrink. Claimed: at most 1.
    """

    def terms(N: int, K: int) -> tuple[float, float, float]:
        return bounds.rate_terms(case["T"], case["L"], N, K, case["gap"], case["p"], case["R2"], case["sigma2"])

    few, many = terms(case["N"], case["K"]), terms(case["N"] + case["more_N"], case["K"] + case["more_K"])
    return Comparison(max(many[0] / few[0], few[1] / many[1], many[2] / few[2]), 1.0)
