"""One round of `cfl`: the algorithms as printed, the gradient noise model (5), equations (8)–(24) of Appendix B.4.

Most checks run one round exactly. The functions are convex with a kink, f(w) = a w²/2 left of w* = 0 and b w²/2
right of it. A client's weighted gradient is s ∇f(w) − z, where s = 1 ± spread (so B² = spread²) and z has mean zero and
variance c_pG, independent of each other and of w_t, as they are for clients that are new in the round and bring their
own history. The information loss adds at most q R, in various directions.
The noise is a two-point law, often a rare jump, and may be absent on one side of the start. All paths are enumerated.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from theory.bounds import cfl_round as bounds

from .ledger import Case, Comparison, claim
from .worlds import draws

Array = NDArray[np.float64]

POSITIVE = st.floats(0.05, 20.0)
SHARE = st.one_of(st.just(1.0), st.floats(0.05, 1.0))
AMOUNT = st.one_of(st.just(0.0), st.floats(0.1, 3.0))
SLOPE = st.one_of(st.sampled_from([0.0, 1e-4, 1.0]), st.floats(0.01, 1.0))
GLOBAL_STEP = st.sampled_from([1.0, 0.3, 3.0])
LOSSES = ("constant", "along", "turn", "away")


def _round_cases(steps: int = 4, **fixed: Any) -> Any:
    """Rounds within the assumptions; ``share`` is of the step bound."""
    fields: dict[str, Any] = {
        "L": POSITIVE,
        "left": SLOPE,
        "right": SLOPE,
        "start": st.one_of(st.just(0.0), st.floats(0.01, 3.0), st.floats(-3.0, -0.01)),
        "start_in": st.sampled_from(["units", "jumps"]),
        "K": st.integers(1, steps),
        "N": st.sampled_from([1, 2, 10, 1000, 1000000]),
        "share": SHARE,
        "eta_g": GLOBAL_STEP,
        "sigma": AMOUNT,
        "rare": st.sampled_from([0.5, 0.1, 0.001]),
        "jump": st.sampled_from([-1, 1]),
        "calm": st.sampled_from([0, -1, 1]),
        "drift": AMOUNT,
        "odds": st.sampled_from([0.5, 0.1]),
        "spread": st.one_of(st.just(0.0), st.floats(0.1, 0.9)),
        "loss": AMOUNT,
        "losing": st.sampled_from(LOSSES),
    }
    chosen = {k: st.just(v) for k, v in fixed.items()}
    return st.one_of(
        *(st.fixed_dictionaries(fields | some | chosen) for some in ({}, _kinked(steps), _turning(), _pushed()))
    )


def _kinked(steps: int) -> dict[str, Any]:
    """Many clients whose noise jumps, rarely, from the flat side of a kink to the steep one."""
    return {
        "left": st.sampled_from([0.0, 1e-4]),
        "right": st.just(1.0),
        "start": st.floats(-1.0, -0.1),
        "start_in": st.just("jumps"),
        "K": st.integers(max(1, steps - 2), steps),
        "N": st.sampled_from([1000, 1000000]),
        "sigma": st.just(1.0),
        "rare": st.sampled_from([0.01, 0.001]),
        "jump": st.just(-1),
        "drift": st.just(0.0),
        "spread": st.just(0.0),
    }


def _turning() -> dict[str, Any]:
    """At the optimum without noise; the information loss outweighs the drift, and turns round after the first step."""
    return {
        "left": st.just(1.0),
        "right": st.just(1.0),
        "start": st.just(0.0),
        "N": st.just(1),
        "sigma": st.just(0.0),
        "drift": st.just(1.0),
        "odds": st.just(0.5),
        "loss": st.floats(1.0, 6.0),
        "losing": st.just("turn"),
    }


def _pushed() -> dict[str, Any]:
    """At the optimum without drift; the information loss pushes on in whatever direction the noise has taken."""
    return {
        "start": st.just(0.0),
        "K": st.integers(2, 4),
        "sigma": st.just(1.0),
        "rare": st.just(0.5),
        "calm": st.just(0),
        "drift": st.just(0.0),
        "loss": st.floats(0.05, 1.0),
        "losing": st.just("away"),
    }


class _Round(NamedTuple):
    """One round, enumerated: axes are local step, kind of client, path of the noise.

    moved: w_k − w_t for k = 0..K. true: Σ_τ p_τ ∇f_τ at w_{k−1}. full: with the information loss. prob: of each path.
    """

    eta: float
    eta_l: float
    c: float
    gap: float
    mu: float
    scale: Array
    shift: Array
    start: float
    prob: Array
    moved: Array
    true: Array
    full: Array
    noise: Array

    def mean(self, values: Array) -> Array:
        return np.asarray((self.prob * values).sum(axis=(-1, -2)))


@cache
def _jumps(K: int) -> Array:
    return np.array(list(itertools.product([False, True], repeat=K))).T


def _two_point(odds: float, size: float) -> tuple[Array, Array]:
    """A law of mean zero and standard deviation ``size`` on two values, and its probabilities."""
    values = np.array([math.sqrt((1 - odds) / odds), -math.sqrt(odds / (1 - odds))])
    return size * values, np.array([odds, 1 - odds])


def _slope(case: Case, w: Array | float) -> Array:
    top = case["L"] / (1 + case["spread"])  # so that no client exceeds L
    return top * np.where(np.asarray(w) > 0, case["right"], case["left"])


def _loss(case: Case, gradient: Array, moved: Array | float) -> Array:
    """What the information loss adds to the gradient; Assumption 4 bounds its size and nothing else.

    constant. along: with the gradient. turn: against it at ω_t, with it elsewhere. away: so as to move on from ω_t.
    """
    if case["losing"] == "constant":
        return np.full_like(gradient, case["loss"])
    if case["losing"] == "away":
        return -np.sign(moved) * np.full_like(gradient, case["loss"])
    side = np.where(gradient >= 0, 1.0, -1.0) * case["loss"]
    return np.where(np.asarray(moved) == 0, -side, side) if case["losing"] == "turn" else side


def _play(case: Case, divisor: float = bounds.DIVISOR_THEOREMS) -> _Round:
    """Run the K local steps of one round over every kind of client and every path of the noise."""
    K, spread = case["K"], case["spread"]
    c = 1 + spread**2
    eta = case["share"] * bounds.step_bound(c, case["L"], case["eta_g"], divisor)
    eta_l = eta / (K * case["eta_g"])
    values, odds = _two_point(case["rare"], case["sigma"] * case["jump"])
    start = case["start"] * (eta_l * abs(values[0]) if case["start_in"] == "jumps" else 1.0)
    drifts, chances = _two_point(case["odds"], case["drift"])
    scale = np.repeat([1 - spread, 1 + spread], 2)[:, None]
    shift = np.tile(drifts, 2)[:, None]
    jumps = _jumps(K)
    prob = np.tile(chances / 2, 2)[:, None] * np.prod(np.where(jumps, odds[0], odds[1]), axis=0)
    moved = np.zeros((K + 1, 4, 2**K))
    true, full, noise = np.zeros((3, K, 4, 2**K))
    for k in range(K):
        w = start + moved[k]
        true[k] = scale * _slope(case, w) * w - shift
        full[k] = true[k] + _loss(case, true[k], moved[k])
        noise[k] = np.where(jumps[k], values[0], values[1]) * (case["calm"] * moved[k] <= 0)
        moved[k + 1] = moved[k] - eta_l * (full[k] + noise[k])
    gap = float(_slope(case, start)) * start**2 / 2
    mu = (1 - spread) / (1 + spread) * case["L"] * min(case["left"], case["right"])
    return _Round(eta, eta_l, c, gap, mu, scale, shift, start, prob, moved, true, full, noise)


def _server(case: Case, r: _Round) -> tuple[float, float]:
    """E Δω_t and E‖Δω_t‖² when N independent clients are averaged."""
    step = case["eta_g"] * r.moved[-1]
    mean = float(r.mean(step))
    return mean, mean**2 + float(r.mean((step - mean) ** 2)) / case["N"]


def _signed(left: list[float], right: list[float]) -> Comparison:
    """Σ left ≤ Σ right with every term moved to the side where it is positive."""
    return Comparison(
        sum(max(x, 0.0) for x in left) + sum(max(-x, 0.0) for x in right),
        sum(max(x, 0.0) for x in right) + sum(max(-x, 0.0) for x in left),
    )


NOISY = "drift + sigma > 0"
CONVEX = ["0 <= left <= 1", "0 <= right <= 1", "0 <= spread < 1", "0 < share <= 1", "loss >= 0", "sigma >= 0", "L > 0"]


# ---------------------------------------------------------------------------------------- the algorithms as printed

SERVER = st.fixed_dictionaries(
    {
        "L": POSITIVE,
        "shares": st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4),
        "K": st.integers(1, 5),
        "local": SHARE,
        "eta_g": SHARE,
        "start": st.floats(0.1, 3.0),
    }
)


def _after_one_round(case: Case, sign: float) -> Comparison:
    curves = case["L"] * np.array(case["shares"])
    w = np.full(len(curves), case["start"])
    for _ in range(case["K"]):
        w = w - case["local"] / case["L"] * curves * w
    updates = w - case["start"]
    return Comparison(abs(case["start"] + sign * case["eta_g"] * float(np.mean(updates))), case["start"])


SERVER_NEEDS = ["0 < local <= 1", "0 < eta_g <= 1", "L > 0", "min(shares) >= 0", "max(shares) <= 1"]


@claim(
    "cfl/alg-fedavg",
    at="Section 3.1.1, FedAvg's aggregation",
    sense="<=",
    verdict="misprint",
    why="Δω_i = ω_{t,i,K} − ω_t already points downhill, so subtracting it climbs. Algorithm 1 adds it. cfl22 "
    "prints the same minus.",
    cases=SERVER,
    needs=SERVER_NEEDS,
    repair="ω_{t+1} = ω_t + (η_g/S) Σ_i Δω_{t,i}",
    repaired=lambda case: _after_one_round(case, 1.0),
)
def fedavg_in_prose(case: Case) -> Comparison:
    """FedAvg's server takes the mean of its clients' updates Δω_i = ω_{t,i,K} − ω_t and subtracts it, times η_g.

    Measured: the distance from the minimiser after a round without noise, for quadratic clients that share it.
    Claimed: no more than before the round, as for any descent with η_l L ≤ 1 and η_g ≤ 1.
    """
    return _after_one_round(case, -1.0)


@claim(
    "cfl/alg-1",
    at="Algorithms 1 and 2",
    sense="<=",
    verdict="holds",
    why="Local step minus, server step plus. The input is called ω_0 and the loop starts at ω_1 = ω_0, so what is "
    "returned as ω_T is the iterate after T rounds.",
    cases=SERVER,
    needs=SERVER_NEEDS,
)
def algorithm(case: Case) -> Comparison:
    """Clients step against their gradient K times; the server adds η_g times their mean update.

    Measured: the distance from a minimiser that all clients share after one round. Claimed: no more than before.
    """
    return _after_one_round(case, 1.0)


# ------------------------------------------------------------------------------------------------- (5) and (8)–(13)


@claim(
    "cfl/eq-5",
    at="(5), and the proof of Lemma B.2",
    sense="==",
    verdict="holds",
    why="(5) subtracts the drifts from ∇f to get ∇f_{t,i}; the proof of Lemma B.2 adds them. Second moments agree "
    "for any law of mean zero, so nothing that the paper bounds depends on the sign.",
    cases=st.fixed_dictionaries(
        {
            "gradient": st.floats(-5, 5),
            "client": AMOUNT,
            "client_odds": st.sampled_from([0.5, 0.1, 0.01]),
            "time": AMOUNT,
            "time_odds": st.sampled_from([0.5, 0.1, 0.01]),
            "slope": st.floats(0, 2),
        }
    ),
)
def sign_of_the_drifts(case: Case) -> Comparison:
    """∇f = ∇f_{t,i} + δ_i + ξ_{t,i} and ∇f_{t,i} = ∇f + δ_i + ξ_{t,i} may be used for each other.

    Measured and claimed: E‖∇f_{t,i}‖² in either, for skewed two-point drifts, one of them growing with the gradient.
    """
    g = case["gradient"]
    client, p = _two_point(case["client_odds"], case["client"] + case["slope"] * abs(g))
    time, q = _two_point(case["time_odds"], case["time"])
    drift, prob = client[:, None] + time, p[:, None] * q
    return Comparison(float(np.sum(prob * (g - drift) ** 2)), float(np.sum(prob * (g + drift) ** 2)))


@claim(
    "cfl/eq-8",
    at="(8)",
    sense="==",
    verdict="holds",
    why="Bookkeeping with η = K η_l η_g.",
    cases=_round_cases(),
    needs=CONVEX,
)
def update_as_a_sum(case: Case) -> Comparison:
    """A round moves the model by −η/(NK) times the sum of all local gradients, noise included, with η = K η_l η_g.

    Measured: E‖Δω_t‖² for one client, from the iterates. Claimed: from the gradients. Both are shifted by
    (η/K)² Σ_k E‖g_k‖², so that neither cancels.
    """
    r = _play(case)
    found, total, scale = _summed(r, case["eta_g"], r.eta / case["K"])
    return Comparison(scale + found, scale + total)


def _summed(r: _Round, forward: float, step: float) -> tuple[float, float, float]:
    """E‖forward · (ω_K − ω_t)‖², E‖step · Σ_k g_k‖², and the scale on which they may cancel."""
    g = r.full + r.noise
    found = float(r.mean((forward * r.moved[-1]) ** 2))
    return found, float(r.mean((step * g.sum(axis=0)) ** 2)), step**2 * float(r.mean(g**2).sum())


@claim(
    "cfl/eq-9",
    at="(9)",
    sense="==",
    verdict="holds",
    why="The iterates on the right are random, so an expectation belongs there too; with it the equation is exact, "
    "as the noise has mean zero given the past.",
    cases=_round_cases(),
    needs=CONVEX,
)
def mean_update(case: Case) -> Comparison:
    """E Δω_t = −η/(NK) Σ_i Σ_k E ∇f̃_{t,i}(ω_{t,i,k−1}).

    Measured and claimed: the two sides, both shifted by 2η/K Σ_k E|g_k| so that neither is near zero.
    """
    r = _play(case)
    steps = r.eta / case["K"]
    shift = 2 * steps * float(r.mean(np.abs(r.full + r.noise)).sum())
    return Comparison(shift + _server(case, r)[0], shift - steps * float(r.mean(r.full).sum()))


def _squared_distance(case: Case, sign: float) -> Comparison:
    r = _play(case)
    mean, square = _server(case, r)
    one = case["eta_g"] * r.moved[-1]
    centre = r.start + mean
    measured = centre**2 + float(r.mean((one - mean) ** 2)) / case["N"]
    return Comparison(measured, r.start**2 + sign * 2 * r.start * mean + square)


@claim(
    "cfl/eq-10",
    at="(10)",
    sense="==",
    verdict="misprint",
    why="Expanding the square gives plus twice the inner product. (11) makes the opposite slip when it puts (9) in, "
    "so the two cancel from there on.",
    cases=_round_cases(),
    needs=CONVEX,
    repair="E‖ω_t + Δω_t − ω*‖² = ‖ω_t − ω*‖² + 2E⟨ω_t − ω*, Δω_t⟩ + E‖Δω_t‖²",
    repaired=lambda case: _squared_distance(case, 1.0),
)
def squared_distance(case: Case) -> Comparison:
    """E‖ω_t + Δω_t − ω*‖² = ‖ω_t − ω*‖² − 2E⟨ω_t − ω*, Δω_t⟩ + E‖Δω_t‖²."""
    return _squared_distance(case, -1.0)


def _inner_product(case: Case, sign: float) -> Comparison:
    """Against (11)'s last line; both sides shifted by the size of their terms."""
    r = _play(case)
    steps, e = 2 * r.eta / case["K"], abs(r.start)
    shift = 2 * steps * e * float(r.mean(np.abs(r.full) + np.abs(r.noise)).sum()) + 2 * r.eta * case["loss"] * e
    right = -steps * r.start * float(r.mean(r.true).sum()) + 2 * r.eta * case["loss"] * e
    return Comparison(shift + sign * 2 * r.start * _server(case, r)[0], shift + right)


@claim(
    "cfl/eq-11",
    at="(11)",
    sense="<=",
    verdict="misprint",
    why="By (9) the left side is the sum with ω_t − ω* in the inner product, not ω* − ω_t: the sign of (10) again. "
    "From the second line on ω_{t,i,k} should be ω_{t,i,k−1}. The last step is right for p_τ ≥ 0; the negative "
    "weights that Theorem 4.9 allows need |p_τ|.",
    cases=_round_cases(),
    needs=[*CONVEX, "start != 0"],
    repair="2E⟨ω_t − ω*, Δω_t⟩ ≤ (2η/NK) ΣΣΣ p_τ E⟨∇f_τ(ω_{t,i,k−1}), ω* − ω_t⟩ + (2η/N) ΣΣ |p_τ| R ‖ω* − ω_t‖",
    repaired=lambda case: _inner_product(case, 1.0),
)
def inner_product(case: Case) -> Comparison:
    """−2E⟨ω_t − ω*, Δω_t⟩ is at most the inner products of the true gradients with ω* − ω_t plus 2ηqR‖ω_t − ω*‖.

    Measured and claimed: the two sides for one round, both shifted by twice the sizes of their terms.
    """
    return _inner_product(case, -1.0)


LINE = st.fixed_dictionaries(
    {
        "L": POSITIVE,
        "left": SLOPE,
        "right": SLOPE,
        "kink": st.floats(-5, 5),
        "at": st.floats(-30, 30),
        "w": st.floats(-30, 30),
        "best": st.floats(-30, 30),
    }
)


def _perturbed(case: Case, power: int) -> Comparison:
    L, x, w, best = case["L"], case["at"] - case["kink"], case["w"] - case["kink"], case["best"] - case["kink"]
    curve = [L * (case["right"] if u > 0 else case["left"]) for u in (x, w, best)]
    mu = L * min(case["left"], case["right"])
    left = [curve[0] * x * (best - w)]
    right = [curve[2] * best**2 / 2, -curve[1] * w**2 / 2, -mu / 4 * (w - best) ** 2, L * abs(x - w) ** power]
    return _signed(left, right)


@claim(
    "cfl/eq-12",
    at="(12)",
    sense="<=",
    verdict="misprint",
    why="The last norm lacks the square that Lemma A.5 has (and (13), and cfl22), in print or in the copy used here: "
    "false for some ‖ω_{t,i,k−1} − ω_t‖ > 1.",
    cases=LINE,
    needs=["0 <= left <= 1", "0 <= right <= 1", "L > 0"],
    repair="... + L‖ω_{t,i,k−1} − ω_t‖²",
    repaired=lambda case: _perturbed(case, 2),
)
def perturbed_convexity(case: Case) -> Comparison:
    """⟨∇f_τ(x), ω* − ω⟩ ≤ f_τ(ω*) − f_τ(ω) − (μ/4)‖ω − ω*‖² + L‖x − ω‖ for any three points.

    Measured and claimed: the two sides for a kinked convex function, each term on the side where it is positive.
    """
    return _perturbed(case, 1)


def _first_order(case: Case, sign: float) -> Comparison:
    """(13) for one client given, in expectation over the noise only."""
    r, i = _play(case), case["client"]
    prob = r.prob[i] / r.prob[i].sum()
    K, e, shift = case["K"], r.start, float(r.shift[i, 0])
    drop = float(r.scale[i, 0]) * r.gap  # f_i(ω_t) − f_i(ω*) = s (f(ω_t) − f(ω*)) − z (ω_t − ω*)
    square = float((prob * r.moved[:K, i] ** 2).sum()) / K
    moved = case["eta_g"] * float(prob @ r.moved[K, i])
    left = sign * 2 * e * moved - 2 * r.eta * shift * e
    jumps = case["eta_g"] * r.eta_l * float((prob * np.abs(r.noise[:, i])).sum())
    base = 2 * abs(e) * (abs(moved) + jumps) + 2 * r.eta * (abs(shift * e) + drop + r.mu / 4 * e**2)
    right = 2 * r.eta * (case["L"] * square + case["loss"] * abs(e) - drop - r.mu / 4 * e**2)
    return Comparison(base + left, base + right)


@claim(
    "cfl/eq-13",
    at="(13)",
    sense="<=",
    verdict="misprint",
    why="The sign of (10) once more. f_t is not defined; with f_t = (1/N) Σ_i Σ_τ p_τ f_{τ,i}, which is what (11) "
    "and (12) give, the inequality is right. When (21) may put the global f in its place: cfl/eq-13-global.",
    cases=_round_cases().flatmap(lambda case: st.integers(0, 3).map(lambda i: case | {"client": i})),
    needs=[*CONVEX, "start != 0"],
    repair="2E⟨ω_t − ω*, Δω_t⟩ ≤ ... with f_t = (1/N) Σ_i Σ_τ p_{τ,i} f_{τ,i}",
    repaired=lambda case: _first_order(case, 1.0),
)
def first_order_term(case: Case) -> Comparison:
    """−2E⟨ω_t−ω*, Δω_t⟩ ≤ −2η(f_t(ω_t) − f_t(ω*) + (μ/4)‖ω_t−ω*‖²) + 2ηL E‖ω_{t,i,k−1}−ω_t‖² + 2ηqR‖ω_t−ω*‖.

    Measured and claimed: the two sides for a given client, f_t its weighted objective, both shifted by their terms.
    """
    return _first_order(case, -1.0)


# ------------------------------------------------------------------------------------------ (14)–(20): the local steps

LEMMA_A4 = (
    "True in all cases tried with convex f_τ, ω_t independent of the round's drifts, and an information loss that is "
    "zero or does not depend on ω. The proof does not give it: it cites Lemma A.4 (cfl/lemma-a.4), but the means "
    "∇f̃(ω_{t,i,k−1}) are random and depend on the noise before them. "
)
PUSHED = (
    "Assumption 4 lets the information loss be any function of ω of size R; one that pushes on where the noise went "
    "breaks the bound{where}."
)


def _steady(case: Case) -> Case:
    """The same round with an information loss that does not depend on ω."""
    return {**case, "losing": "constant"}


def _update_size(case: Case, factor: float) -> Comparison:
    r, K = _play(case), case["K"]
    lost = (r.full - r.true) ** 2
    inside = 2 * r.eta**2 / K * float(r.mean(r.true**2 + lost).sum())
    return Comparison(_server(case, r)[1], factor * (inside + r.eta**2 * case["sigma"] ** 2 / (case["N"] * K)))


def _size_of_the_update_any_loss(case: Case) -> Comparison:
    """(14) for any information loss within Assumption 4."""
    return _update_size(case, 1.0)


@claim(
    "cfl/eq-14",
    at="(14)",
    sense="<=",
    verdict="gap",
    why=LEMMA_A4
    + "The products E⟨∇f̃(ω_{t,i,k−1}), ν_j⟩, j < k, remain, and are not positive for convex f alone. "
    + PUSHED.format(where="; so does f that is not convex (cfl/eq-27)"),
    cases=_round_cases(),
    needs=[*CONVEX, NOISY],
    step=_size_of_the_update_any_loss,
    repair="For any information loss: twice the right side (Lemma A.4 for martingale differences has 2 before both "
    "terms).",
    repaired=lambda case: _update_size(case, 2.0),
)
def size_of_the_update(case: Case) -> Comparison:
    """E‖Δω_t‖² ≤ (2η²/NK) ΣΣ (E‖Σ_τ p_τ ∇f_τ(ω_{t,i,k−1})‖² + E‖Σ_{τ<t} p_τ Δ_τ‖²) + η²σ²/(NK) for convex f_τ.

    Measured: the left side for N independent clients, the information loss zero or constant. Claimed: the right side.
    Step: the same for any information loss of that size.
    """
    return _update_size(_steady(case), 1.0)


def _update_by_the_gap_any_loss(case: Case) -> Comparison:
    """(15) for any information loss within Assumption 4."""
    return _update_bound(case, (16.0, 8.0 * (1 + case["spread"] ** 2), 2.0, 1.0))


@claim(
    "cfl/eq-15",
    at="(15)",
    sense="<=",
    verdict="gap",
    why=LEMMA_A4
    + PUSHED.format(where=" for qR small against σ")
    + " Where (15) holds it is loose in N: averaging N clients divides their drift by N, but the squares are added up "
    "first. (The line before gives 8 and 4 for 16 and 8.)",
    cases=_round_cases(),
    needs=[*CONVEX, NOISY],
    step=_update_by_the_gap_any_loss,
    repair="For any information loss: η²(12Lc_pB(f(ω_t) − f*) + 6L²E‖ω_{t,i,k−1} − ω_t‖² + 6c_pG + 6q²R² + 2σ²/(NK))",
    repaired=lambda case: _update_bound(case, (12.0, 6.0, 6.0, 2.0)),
)
def size_of_the_update_by_the_gap(case: Case) -> Comparison:
    """E‖Δω_t‖² ≤ 16η²Lc_pB(f(ω_t) − f*) + 8η²L²c_pB E‖ω_{t,i,k−1} − ω_t‖² + 2η²(c_pG + q²R²) + η²σ²/(NK).

    Measured: the left side for N independent clients, the information loss zero or constant. Claimed: the right side.
    Step: the same for any information loss of that size.
    """
    return _update_by_the_gap_any_loss(_steady(case))


def _update_bound(case: Case, factors: tuple[float, float, float, float]) -> Comparison:
    """By the gap, the straying, drift and loss, and the noise, each with its factor."""
    r, K, L = _play(case), case["K"], case["L"]
    stray = float(r.mean(r.moved[:K] ** 2).sum()) / K
    sizes = L * r.c * r.gap, L**2 * stray, case["drift"] ** 2 + case["loss"] ** 2, case["sigma"] ** 2 / (case["N"] * K)
    return Comparison(_server(case, r)[1], r.eta**2 * float(np.dot(factors, sizes)))


@claim(
    "cfl/eq-16",
    at="(16)",
    sense="==",
    verdict="holds",
    why="Bookkeeping (with the local step η_l, printed η_t).",
    cases=_round_cases(),
    needs=CONVEX,
)
def stray_as_a_sum(case: Case) -> Comparison:
    """E‖ω_{t,i,k} − ω_t‖² = η_l² E‖sum of the first k noisy local gradients‖².

    Measured and claimed: the two sides at k = K, both shifted by η_l² Σ_k E‖g_k‖², so that neither cancels.
    """
    r = _play(case)
    found, total, scale = _summed(r, 1.0, r.eta_l)
    return Comparison(scale + found, scale + total)


def _stray(case: Case, factor: float = 1.0) -> Comparison:
    r, K = _play(case), case["K"]
    squares = float(r.mean(r.full**2).sum())
    return Comparison(float(r.mean(r.moved[-1] ** 2)), factor * K * r.eta_l**2 * (squares + case["sigma"] ** 2))


@claim(
    "cfl/eq-17",
    at="(17)",
    sense="<=",
    verdict="gap",
    why=LEMMA_A4 + PUSHED.format(where=" for qR < 2σ; so does f that is not convex (cfl/eq-17-nonconvex)"),
    cases=_round_cases(),
    needs=[*CONVEX, NOISY],
    step=_stray,
    repaired=lambda case: _stray(case, 2.0),
    repair="For any information loss: 2kη_l² Σ_j E‖∇f̃(ω_{t,i,j−1})‖² + 2kη_l²σ²",
)
def stray_of_convex_steps(case: Case) -> Comparison:
    """E‖ω_{t,i,k} − ω_t‖² ≤ kη_l² Σ_{j≤k} E‖∇f̃_{t,i}(ω_{t,i,j−1})‖² + kη_l²σ² for convex f_τ.

    Measured: the left side at k = K, the information loss zero or constant. Claimed: the right side. Step: the same for
    any information loss of that size.
    """
    return _stray(_steady(case))


@claim(
    "cfl/eq-17-nonconvex",
    at="(17), as the non-convex proof uses it for (30)",
    sense="<=",
    verdict="refuted",
    why="Where the curvature is negative a local step repeats the noise before it. From a stationary point of −L "
    "w²/2, two steps collect (1 + η_l L) ν_1 + ν_2. (The noise is bounded, so f may be continued to be bounded "
    "below.)",
    cases=_round_cases(loss=0.0, drift=0.0, spread=0.0).flatmap(
        lambda case: st.floats(-1.0, 1.0).map(lambda a: case | {"left": a, "right": a})
    ),
    needs=["abs(left) <= 1", "abs(right) <= 1", "0 < share <= 1", "L > 0", "sigma > 0", "loss == 0"],
    repair="2kη_l² Σ_j E‖∇f̃(ω_{t,i,j−1})‖² + 2kη_l²σ²",
)
def stray_of_any_steps(case: Case) -> Comparison:
    """E‖ω_{t,i,k} − ω_t‖² ≤ kη_l² Σ_{j≤k} E‖∇f̃_{t,i}(ω_{t,i,j−1})‖² + kη_l²σ² for any L-smooth f.

    Measured: the left side at k = K, for steps within the theorems' bound. Claimed: the right side.
    """
    return _stray(case)


def _gradient_bound(case: Case, r: _Round, stray: float) -> float:
    """The right side of (18)."""
    L = case["L"]
    return 4 * L**2 * r.c * stray + 8 * L * r.c * r.gap + 2 * case["drift"] ** 2 + 2 * case["loss"] ** 2


def _gradient_at_iterates(case: Case) -> Comparison:
    """(18) at the last local iterate but one, ω_{t,i,K−1}."""
    r = _play(case)
    return Comparison(float(r.mean(r.full[-1] ** 2)), _gradient_bound(case, r, float(r.mean(r.moved[-2] ** 2))))


@claim(
    "cfl/eq-18",
    at="(18), and its use in (19)",
    sense="<=",
    verdict="gap",
    why="True for a point ω that does not depend on the drifts, as Assumption 3 asks. (19) uses it at local iterates, "
    "which do: Lemma B.2's cross term does not vanish there, and Lemma A.3's 2 leaves no room for it. In the stored "
    "convex case the information loss, bounded by R and otherwise free, first outweighs the drift, which takes the "
    "client uphill on its own function, and then adds to it. Only slightly: less than one per cent.",
    cases=_round_cases().flatmap(lambda case: st.floats(-3, 3).map(lambda x: case | {"point": x})),
    needs=[*CONVEX, "drift + loss > 0"],
    step=_gradient_at_iterates,
    repair="At iterates: 3L²E‖ω − ω_t‖² + 6Lc_pB(f(ω_t) − f*) + 3c_pG + 3q²R², a split at ω_t",
)
def gradient_at_a_point(case: Case) -> Comparison:
    """E‖∇f̃_{t,i}(ω)‖² ≤ 4L²c_pB E‖ω − ω_t‖² + 8Lc_pB(f(ω_t) − f*) + 2c_pG + 2q²R².

    Measured: the left side at a given ω. Claimed: the right side. Step: the same at ω = ω_{t,i,K−1}.
    """
    r, w = _play(case), case["point"]
    true = r.scale * _slope(case, w) * w - r.shift
    full = true + _loss(case, true, w - r.start)
    return Comparison(float(r.mean(full**2)), _gradient_bound(case, r, (w - r.start) ** 2))


def _stray_by_recursion(case: Case) -> Comparison:
    """(19) for any information loss within Assumption 4."""
    r, K = _play(case), case["K"]
    squares = r.mean(r.moved**2)
    right = K**2 * _gradient_bound(case, r, float(squares[-2])) + K * case["sigma"] ** 2
    return Comparison(float(squares[-1]), r.eta_l**2 * right)


@claim(
    "cfl/eq-19",
    at="(19)",
    sense="<=",
    verdict="gap",
    why=LEMMA_A4 + PUSHED.format(where=" for qR small against σ") + " Besides, (17) has Σ_{j≤k} E‖ω_{t,i,j−1} − ω_t‖² "
    "and (19) has kE‖ω_{t,i,k−1} − ω_t‖², as if the distance grew with every step; the largest distance up to K would "
    "do for (20).",
    cases=_round_cases(),
    needs=[*CONVEX, NOISY],
    step=_stray_by_recursion,
    repair="As for cfl/eq-20, with the largest distance up to K.",
)
def stray_by_recursion(case: Case) -> Comparison:
    """E‖ω_{t,i,k}−ω_t‖² ≤ 4k²η_l²L²c_pB E‖ω_{t,i,k−1}−ω_t‖² + k²η_l²(8Lc_pB(f(ω_t)−f*) + 2c_pG + 2q²R²) + kη_l²σ².

    Measured: the left side at k = K, the information loss zero or constant. Claimed: the right side. Step: the same for
    any information loss of that size.
    """
    return _stray_by_recursion(_steady(case))


def _closed_form_any_loss(case: Case) -> Comparison:
    """(20) for any information loss within Assumption 4."""
    return _stray_bound(case, printed=True)


@claim(
    "cfl/eq-20",
    at="(20)",
    sense="<=",
    verdict="gap",
    why=LEMMA_A4 + PUSHED.format(where=" for qR small against σ"),
    cases=_round_cases(),
    needs=[*CONVEX, NOISY],
    step=_closed_form_any_loss,
    repaired=lambda case: _stray_bound(case, printed=False),
    repair="For any information loss, with or without convexity: [K²η_l²(12Lc_pB(f(ω_t) − f*) + 6c_pG + 6q²R²) + "
    "2Kη_l²σ²] / (1 − 6K²η_l²L²)",
)
def stray_in_closed_form(case: Case) -> Comparison:
    """E‖ω_{t,i,k} − ω_t‖² ≤ [K²η_l²(8Lc_pB(f(ω_t) − f*) + 2c_pG + 2q²R²) + Kη_l²σ²] / (1 − 4K²η_l²L²c_pB).

    Measured: the largest left side over k ≤ K, the information loss zero or constant. Claimed: the right side.
    Step: the same for any information loss of that size.
    """
    return _closed_form_any_loss(_steady(case))


def _stray_bound(case: Case, printed: bool) -> Comparison:
    r = _play(case)
    variances = case["drift"] ** 2, case["loss"] ** 2, case["sigma"] ** 2
    right = bounds.local_distance(r.gap, r.c, *variances, case["K"], case["L"], r.eta_l, printed)
    return Comparison(float(r.mean(r.moved**2).max()), right)


# ------------------------------------------------------------------------------- (21), (22), step sizes and constants

NUMBERS = st.fixed_dictionaries(
    {
        "L": POSITIVE,
        "eta_g": GLOBAL_STEP,
        "share": SHARE,
        "c": st.one_of(st.just(1.0), st.floats(1.0, 100.0)),
        "N": st.integers(1, 100),
        "K": st.integers(1, 50),
        "mu": st.floats(0.0, 1.0),
        "drift2": AMOUNT,
        "loss2": AMOUNT,
        "sigma2": AMOUNT,
        "distance2": AMOUNT,
        "gap": AMOUNT,
    }
)
WITHIN = ["c >= 1", "0 < share <= 1", "L > 0", "eta_g > 0"]


def _assembled(case: Case) -> float:
    """(10), (13), (15) and (20) put together, term by term."""
    L, c, K, d2 = case["L"], case["c"], case["K"], case["distance2"]
    eta = case["share"] * bounds.step_bound(c, L, case["eta_g"])
    eta_l = eta / (K * case["eta_g"])
    stray = bounds.local_distance(case["gap"], c, case["drift2"], case["loss2"], case["sigma2"], K, L, eta_l, True)
    a1 = -2 * eta * (case["gap"] + case["mu"] / 4 * d2) + 2 * eta * L * stray + 2 * eta * math.sqrt(case["loss2"] * d2)
    a2 = 16 * L * c * case["gap"] + 8 * L**2 * c * stray + 2 * (case["drift2"] + case["loss2"])
    return d2 + a1 + eta**2 * (a2 + case["sigma2"] / (case["N"] * K))


def _equation_21(case: Case, printed: bool) -> Comparison:
    """Both sides shifted by 4η times the gap, as its coefficient is negative."""
    eta = case["share"] * bounds.step_bound(case["c"], case["L"], case["eta_g"])
    right = bounds.one_round(
        case["distance2"],
        case["gap"],
        eta=eta,
        L=case["L"],
        mu=case["mu"],
        N=case["N"],
        K=case["K"],
        c_pB=case["c"],
        c_pG=case["drift2"],
        sigma2=case["sigma2"],
        c_R=case["loss2"],
        c_3=2 * math.sqrt(case["loss2"]),
        eta_g=case["eta_g"],
        printed=printed,
    )
    return Comparison(_assembled(case) + 4 * eta * case["gap"], right + 4 * eta * case["gap"])


@claim(
    "cfl/eq-21-factor",
    at="(21), the terms of local drift",
    sense="==",
    verdict="misprint",
    why="(20) enters with 2ηL + 8η²L²c_pB, so each of its terms carries one more η, and the first one L² for L. "
    "cfl22 still has the η in two of them. As printed the units do not match.",
    cases=NUMBERS,
    needs=WITHIN,
    repair="16ηK²η_l²L²c_pB, 4ηK²η_l²L(Σ_{τ<t}p_τ)² and 2ηKη_l²L(2Kc_pG + σ²), each times (1 + 4ηLc_pB)/(1 − "
    "4K²η_l²L²c_pB)",
    repaired=lambda case: _equation_21(case, printed=False),
)
def one_round_assembled(case: Case) -> Comparison:
    """(21) is what (10), (13), (15) and (20) add up to.

    Measured: those four, put together term by term. Claimed: the printed right side.
    """
    return _equation_21(case, printed=True)


def _solves_22(case: Case, printed: bool) -> Comparison:
    eta = case["share"] * bounds.step_bound(case["c"], case["L"], case["eta_g"], bounds.DIVISOR_THEOREMS)
    return Comparison(bounds.gap_coefficient(eta, case["L"], case["c"], case["eta_g"], printed) + 2 * eta, 2 * eta)


@claim(
    "cfl/eq-22",
    at="(22), and the step bound below it",
    sense="<=",
    verdict="misprint",
    why="The last term of (22) lacks the η that it lacks in (21), and then the step bound does not solve it, for η "
    "< 1. With the η the bound is exact: it is the root of 12c x²/η_g² + 8c x − 1, x = ηL.",
    cases=NUMBERS,
    needs=WITHIN,
    repair="−2η + 16η²Lc_pB + 16ηK²η_l²L²c_pB(1 + 4ηLc_pB)/(1 − 4K²η_l²L²c_pB) ≤ 0",
    repaired=lambda case: _solves_22(case, printed=False),
)
def step_bound_solves_22(case: Case) -> Comparison:
    """If η is within the bound with 6 in the denominator, the coefficient of f(ω_t) − f* is at most 0.

    Measured: the positive terms of (22). Claimed: at most 2η.
    """
    return _solves_22(case, printed=True)


def _leaves_eta(case: Case, divisor: float) -> Comparison:
    eta = case["share"] * bounds.step_bound(case["c"], case["L"], case["eta_g"], divisor)
    return Comparison(bounds.gap_coefficient(eta, case["L"], case["c"], case["eta_g"]) / eta + 2, 1.0)


def _largest_step_of_the_theorems(case: Case) -> Comparison:
    """With 6: any step that the theorems allow."""
    return _leaves_eta(case, bounds.DIVISOR_THEOREMS)


@claim(
    "cfl/step-size",
    at="Theorems 4.1, 4.4, 4.7, B.5, B.6, B.8: the step bound",
    sense="<=",
    verdict="gap",
    why="Lemmas A.1 and A.2 choose some step below a bound, and every step up to half of the theorems' bound, the 12 "
    "that the appendix goes on with, leaves the −η(f(ω_t) − f*) that (23) needs. The largest steps that the theorems "
    "allow do not: at the bound with 6, (21) leaves exactly 0. The rates lose at most a factor 2 (with (15)'s true "
    "constants 8 and 4 not even that: 6 would leave about −0.9η).",
    cases=NUMBERS,
    needs=WITHIN,
    step=_largest_step_of_the_theorems,
    repair="Divide by 12KL√c_O.",
)
def step_bound_of_the_theorems(case: Case) -> Comparison:
    """Some of the steps within the theorems' bound, those up to half of it, turn (21) into (23).

    Measured: what (21) adds to the −2η before f(ω_t) − f*, in units of η. Claimed: at most 1. Step: the same for every
    step within the bound.
    """
    return _leaves_eta(case, bounds.DIVISOR_APPENDIX)


@claim(
    "cfl/step-denominator",
    at="B.4.2, the bound on 1 − 4K²η_l²L²c_pB",
    sense=">=",
    verdict="holds",
    why="Equality for the largest step and the client with the largest c_pB.",
    cases=NUMBERS.flatmap(lambda case: st.floats(0.0, 1.0).map(lambda x: case | {"client": x})),
    needs=[*WITHIN, "0 <= client <= 1"],
)
def denominator(case: Case) -> Comparison:
    """With 12 in the step bound, 1 − 4K²η_l²L²c_pB,i ≥ (33 − 8η_g²ĉ + 4√(3η_g²ĉ + 4η_g⁴ĉ²))/36, ĉ the largest c_pB,i.

    Measured: the left side for a client with c_pB,i ≤ ĉ. Claimed: the right side.
    """
    eta = case["share"] * bounds.step_bound(case["c"], case["L"], case["eta_g"])
    c = 1 + case["client"] * (case["c"] - 1)
    found = 1 - 4 * (eta / case["eta_g"] * case["L"]) ** 2 * c
    return Comparison(found, bounds.denominator_bound(case["c"], case["eta_g"]))


@claim(
    "cfl/ratio-1-12",
    at="B.4.2, (1 + 4ηLc)/(1 − 4K²η_l²L²c) ≤ 1/12",
    sense="<=",
    verdict="refuted",
    why="The numerator is at least 1 and the denominator at most 1.",
    cases=NUMBERS,
    needs=WITHIN,
    repair="≤ 15/11: the numerator is at most 5/4, the denominator at least 11/12.",
)
def local_factor(case: Case) -> Comparison:
    """Within the step bound with 12, (1 + 4ηLc_pB)/(1 − 4K²η_l²L²c_pB) ≤ 1/12. Measured: the left side."""
    eta = case["share"] * bounds.step_bound(case["c"], case["L"], case["eta_g"])
    found = bounds.local_factor(eta, case["L"], case["c"], case["eta_g"])
    return Comparison(found, bounds.LOCAL_FACTOR_PRINTED)


def _collects(case: Case, printed: bool) -> Comparison:
    L, g, K = case["L"], case["eta_g"], case["K"]
    eta = case["share"] * bounds.step_bound(case["c"], L, g)
    size = 4 * (case["drift2"] + case["loss2"]) + 2 * case["sigma2"] / K
    found = bounds.local_factor(eta, L, case["c"], g) * L / g**2 * size
    return Comparison(found, bounds.c_2(case["drift2"], case["loss2"], case["sigma2"], K, L, g, printed))


@claim(
    "cfl/c2",
    at="B.4.2, c_2 (also Lemma B.4 and (24))",
    sense="<=",
    verdict="misprint",
    why="It rests on the factor 1/12 (cfl/ratio-1-12), which is at least 1, so c_2 is at least twelve times too "
    "small for (21). The O() statements do not notice; (24) as printed does.",
    cases=NUMBERS,
    needs=WITHIN,
    repair="c_2 = (60/11) L (c_pG + c_R)/η_g² + (30/11) Lσ²/(η_g²K)",
    repaired=lambda case: _collects(case, printed=False),
)
def second_constant(case: Case) -> Comparison:
    """The terms of (21) with η³, its missing η restored, are at most c_2 η³ with the printed c_2.

    Measured: their coefficient. Claimed: c_2 = L c_pG/(3η_g²) + Lσ²/(6η_g²K) + L c_R/(3η_g²).
    """
    return _collects(case, printed=True)


# -------------------------------------------------------------------------- (21) and (23) with a past, (24) without one

RETURN = (
    "(3) lets every client of a round bring its own history. If the clients of each round are new, their drifts are "
    "independent of ω_t, and {true}. If the same clients come back, ω_t was computed from the very ξ_1, ..., ξ_{{t−1}} "
    "that are used again, and E⟨ξ_τ, ω_t⟩ > 0 for every past round that has a weight. {false}"
)

HISTORY = st.fixed_dictionaries(
    {
        "rounds": st.sampled_from([1, 2, 3, 5, 10, 100, 1000]),
        "eta": st.sampled_from([0.002, 0.005, 0.01, 0.02, 0.05]),
        "D2": st.just(1.0),
        "R2": st.sampled_from([0.0, 1.0, 0.1]),
        "drift": st.just(0.0),
        "loss": st.sampled_from([0.0, 1.0]),
        "start": st.sampled_from([0.0, 1.0]),
        "N": st.sampled_from([1, 10]),
    }
)
HISTORY_NEEDS = [
    "0 < eta <= (sqrt(7) - 2) / 12",
    "D2 > 0",
    "R2 >= 0",
    "drift == 0",
    "abs(loss) <= 1",
    "rounds >= 1",
]


class _Past(NamedTuple):
    """CFL on f = w²/2 after some rounds: moments of e = ω_t − ω* and of the weighted drift m = Σ_τ p_τ ξ_τ.

    mean: E e. square: E e². cross: E⟨m, e⟩. next: E‖ω_{t+1} − ω*‖². past: 1 − p_t. squares: Σ p_τ².
    """

    mean: float
    square: float
    cross: float
    next: float
    past: float
    squares: float


def _remember(case: Case) -> _Past:
    """Exactly, for clients that come back, K = 1, Lemma B.4's weights, f_{τ,i} = w²/2 − ξ_{τ,i} w, a constant loss.

    ``drift`` and ``loss`` are shares of the D and R that the assumptions allow.
    """
    eta, D2, R2 = case["eta"], case["D2"], case["R2"]
    noise = D2 * case["drift"] ** 2 / case["N"]
    mean, var, with_sum = case["start"], 0.0, 0.0  # with_sum: Cov(e_t, ξ_1 + ... + ξ_{t−1})
    for t in range(1, case["rounds"] + 1):
        p = D2 / (t * D2 + (t - 1) * R2)
        past = (t - 1) * p
        now = 1 - past
        squares = (t - 1) * p**2 + now**2
        before = mean, var, p * with_sum
        mean = (1 - eta) * mean + eta * past * case["loss"] * math.sqrt(R2)
        var = (1 - eta) ** 2 * var + 2 * (1 - eta) * eta * p * with_sum + eta**2 * squares * noise
        with_sum = (1 - eta) * with_sum + eta * (past + now) * noise
    return _Past(before[0], before[0] ** 2 + before[1], before[2], mean**2 + var, past, squares)


MEETINGS = st.fixed_dictionaries(
    {
        "rounds": st.integers(1, 3),
        "left": SLOPE,
        "right": SLOPE,
        "start": st.one_of(st.just(0.0), st.floats(-3.0, 3.0)),
        "share": SHARE,
        "G": AMOUNT,
        "D": st.floats(0.1, 3.0),
        "R": AMOUNT,
        "rare": st.sampled_from([0.5, 0.1, 0.01]),
    }
)


def _meet(case: Case, again: bool) -> Comparison:
    """E[f(ω_t) − f(ω*)] and E[f_t(ω_t) − f_t(ω*)] in the last of a few rounds, one client in each.

    All drifts are enumerated. The client is new in each round and brings drifts of its own for all rounds so far, or it
    comes ``again``. K = 1,
    Lemma B.4's weights, f kinked at ω* = 0 and 1-smooth, ∇f_{τ,i} = ∇f − δ_i − ξ_{τ,i}, a constant information loss R.
    Both sides are shifted by the size of their difference.
    """
    n, eta = case["rounds"], case["share"] * bounds.step_bound(1.0, 1.0)
    clients = 1 if again else n
    z, chance = draws(clients * (n + 1), case["rare"])
    z = z.reshape(len(chance), clients, n + 1)
    w, shape = np.full(len(chance), case["start"]), {**case, "L": 1.0, "spread": 0.0}
    for t in range(1, n + 1):
        past = case["D"] ** 2 / (t * case["D"] ** 2 + (t - 1) * case["R"] ** 2)
        p = np.array([past] * (t - 1) + [1 - (t - 1) * past])
        mine = z[:, 0 if again else t - 1]
        drift = case["G"] * mine[:, 0] + case["D"] * mine[:, 1 : t + 1] @ p
        slope = _slope(shape, w)
        gap, product = float(chance @ (slope * w**2 / 2)), drift * w
        w = w - eta * (slope * w - drift - (t - 1) * past * case["R"])
    shift = float(chance @ np.abs(product))
    return Comparison(shift + gap, shift + gap - float(chance @ product))


def _met_again(case: Case) -> Comparison:
    """The same client in all rounds."""
    return _meet(case, again=True)


@claim(
    "cfl/eq-13-global",
    at="from (13) to (21): f for f_t",
    sense="<=",
    verdict="gap",
    why=RETURN.format(
        true="E f_t(ω_t) = E f(ω_t)",
        false="It has been fitted to f_t and does better on it than on f: Assumption 3's E[ξ|ω] = 0 then fails at ω_t.",
    ),
    cases=MEETINGS,
    needs=["D > 0", "R >= 0", "0 <= left <= 1", "0 <= right <= 1", "0 < share <= 1", "0 < rare < 1"],
    step=_met_again,
    repair="State that clients are new in each round; in general E[f(ω_t) − f(ω*)] = E[f_t(ω_t) − f_t(ω*)] + "
    "E⟨Σ_τ p_τ ξ_τ, ω_t − ω*⟩.",
)
def global_for_weighted(case: Case) -> Comparison:
    """E[f(ω_t) − f(ω*)] may be used for E[f_t(ω_t) − f_t(ω*)], f_t the weighted local objectives: it is no larger.

    Measured: the first, for CFL with new clients in each round, Lemma B.4's weights and additive drifts. Claimed: the
    second. Step: the same with a client that comes back.
    """
    return _meet(case, again=False)


def _bound_21(case: Case, r: _Past) -> float:
    """The larger of (21) as printed and with its η restored."""
    fixed: dict[str, Any] = {"eta": case["eta"], "L": 1.0, "mu": 1.0, "N": case["N"], "K": 1, "c_pB": 1.0}
    R = math.sqrt(case["R2"])
    fixed |= {
        "c_pG": bounds.c_pG(0.0, case["D2"], r.squares),
        "c_R": bounds.c_R(R, r.past),
        "c_3": bounds.c_3(R, r.past),
    }
    return max(bounds.one_round(r.square, r.square / 2, **fixed, printed=p) for p in (True, False))


def _round_after_a_past(case: Case) -> Comparison:
    """(21) on f = w²/2 after ``rounds`` rounds with clients that come back, D = drift, R = loss and K = 1.

    Against the printed bound or the one with its η restored, whichever is larger.
    """
    past = {"eta": case["share"] * bounds.step_bound(1.0, 1.0), "D2": case["drift"] ** 2, "R2": case["loss"] ** 2}
    past |= {"rounds": case["rounds"], "drift": 1.0, "loss": 1.0, "start": case["start"], "N": case["N"]}
    r = _remember(past)
    return Comparison(r.next, _bound_21(past, r))


@claim(
    "cfl/eq-21",
    at="(21)",
    sense="<=",
    verdict="gap",
    why=RETURN.format(
        true="(21), its missing η restored (cfl/eq-21-factor), survives for an information loss that is zero or "
        "constant, although (14) to (20) have gaps of their own",
        false="The step that fails is cfl/eq-13-global. By hand for R = 0, K = N = 1, f = w²/2, start at ω*: ω_2 = "
        "ηξ_1 and ω_3 ≈ η(3ξ_1 + ξ_2)/2, so E‖ω_3 − ω*‖² ≈ 2.5η²D², where (21) allows 2η²D² + O(η³). The printed form, "
        "larger for want of an η, fails a few rounds later.",
    ),
    cases=_round_cases().flatmap(lambda case: st.integers(1, 10).map(lambda t: case | {"rounds": t})),
    needs=[*CONVEX, NOISY, "rounds >= 1"],
    step=_round_after_a_past,
    repair="State that clients are new in each round, or add 2ηE⟨Σ_τ p_τ ξ_τ, ω_t − ω*⟩ on the right; for FedAvg with "
    "fresh drifts it is zero.",
)
def one_round_of_cfl(case: Case) -> Comparison:
    """One round of CFL shrinks E‖ω_t − ω*‖² by 1 − μη/2 and by the gap f(ω_t) − f*, up to terms in η², η³ and R.

    Measured: E‖ω_{t+1} − ω*‖² − ‖ω_t − ω*‖² for clients whose drifts, c_pG in mean square after weighting, do not
    depend on ω_t. Claimed: (21) with its missing η. Every term is on the side where it is positive. Step: the same
    after ``rounds`` rounds in which the clients come back.
    """
    case = _steady(case)
    r = _play(case)
    mean, square = _server(case, r)
    terms: dict[str, Any] = {"eta": r.eta, "L": case["L"], "mu": r.mu, "N": case["N"], "K": case["K"], "c_pB": r.c}
    terms |= {"c_pG": case["drift"] ** 2, "sigma2": case["sigma"] ** 2, "c_R": case["loss"] ** 2}
    grown = bounds.one_round(0.0, r.gap, **terms, eta_g=case["eta_g"]) + 2 * r.eta * r.gap
    biased = bounds.c_3(case["loss"], 1.0) * r.eta * abs(r.start)
    return _signed([2 * r.start * mean, square, 2 * r.eta * r.gap], [grown, biased, -r.mu * r.eta / 2 * r.start**2])


@claim(
    "cfl/phi-t",
    at="below (23): φ_t ≤ c_3‖ω_0 − ω*‖",
    sense="<=",
    verdict="refuted",
    why="(21) gives φ_t = c_3‖ω_t − ω*‖, and nothing keeps ω_t as close to ω* as ω_0 was. Started at ω*, a constant "
    "information loss takes it to qR/L from there.",
    cases=HISTORY,
    needs=HISTORY_NEEDS,
    repair="φ_t = c_3 E‖ω_t − ω*‖",
)
def bias_term(case: Case) -> Comparison:
    """φ_t = c_3‖ω_t − ω*‖ is at most c_3‖ω_0 − ω*‖.

    Measured: c_3‖E ω_t − ω*‖, no more than its expectation, with a constant information loss. Claimed: c_3‖ω_0 − ω*‖.
    """
    r = _remember(case)
    c_3 = bounds.c_3(math.sqrt(case["R2"]), r.past)
    return Comparison(c_3 * abs(r.mean), c_3 * abs(case["start"]))


@claim(
    "cfl/eq-23",
    at="(23)",
    sense="<=",
    verdict="refuted",
    why="φ_t is bounded by c_3‖ω_0 − ω*‖ (cfl/phi-t), which is 0 at the start ω_0 = ω*. Without any drift, whichever "
    "clients take part, a constant information loss takes ω_t to qR/L from ω*; there it stays, and the gap is not "
    "covered by c_1η + c_2η², not even with the corrected (larger) c_2. By continuity the same goes for ω_0 near ω*. "
    "With φ_t = c_3E‖ω_t − ω*‖ it has the gap of cfl/eq-21.",
    cases=HISTORY,
    needs=HISTORY_NEEDS,
    repair="φ_t = c_3 E‖ω_t − ω*‖ if the clients are new in each round, and 2E⟨Σ_τ p_τ ξ_τ, ω_t − ω*⟩ more if they "
    "come back",
)
def progress_of_cfl(case: Case) -> Comparison:
    """f(ω_t) − f* ≤ (1 − μη/2)E‖ω_t − ω*‖²/η − E‖ω_{t+1} − ω*‖²/η + c_1η + c_2η² + c_3‖ω_0 − ω*‖ for CFL.

    Measured, on f = w²/2 with Lemma B.4's weights and no drift: the gap plus what the distance does,
    (E‖ω_{t+1} − ω*‖² − E‖ω_t − ω*‖²)/η + (μ/2)E‖ω_t − ω*‖².
    Claimed: c_1η + c_2η² + c_3‖ω_0 − ω*‖, with the corrected (larger) c_2.
    """
    r, eta, R = _remember(case), case["eta"], math.sqrt(case["R2"])
    drift, loss = bounds.c_pG(0.0, case["D2"], r.squares), bounds.c_R(R, r.past)
    extra = bounds.c_1(drift, loss, 0.0, case["N"], 1) * eta + bounds.c_2(drift, loss, 0.0, 1, 1.0) * eta**2
    phi = bounds.c_3(R, r.past) * abs(case["start"])
    return Comparison(r.square / 2 + r.square / 2 + (r.next - r.square) / eta, extra + phi)


def _fedavg(case: Case, printed: bool) -> Comparison:
    r = _play(case, bounds.DIVISOR_APPENDIX)
    mean, square = _server(case, r)
    V, s2, K, L = case["drift"] ** 2, case["sigma"] ** 2, case["K"], case["L"]
    change = (2 * r.start * mean + square) / r.eta  # (E‖ω_{t+1} − ω*‖² − ‖ω_t − ω*‖²)/η
    c_1, c_2 = bounds.c_1(V, 0.0, s2, case["N"], K), bounds.c_2(V, 0.0, s2, K, L, case["eta_g"], printed)
    return Comparison(float(r.gap + r.mu / 2 * r.start**2 + change), c_1 * r.eta + c_2 * r.eta**2)


@claim(
    "cfl/eq-24",
    at="(24)",
    sense="<=",
    verdict="misprint",
    why="False through its c_2 (cfl/c2): many clients, no drift, rare jumps of the noise across a kink. All clients "
    "are bent the same way, by Lσ²η²/4K, and averaging does not help; the printed c_2 allows Lσ²η²/6K. With the c_2 "
    "that (21) gives it survives, for drifts that are fresh in every round. Its c_1 is loose by N.",
    cases=_round_cases(steps=8, loss=0.0, losing="constant"),
    needs=[*CONVEX, NOISY, "loss == 0"],
    repair="c_2 = (60/11) L (G² + D²)/η_g² + (30/11) Lσ²/(η_g²K)",
    repaired=lambda case: _fedavg(case, printed=False),
)
def progress_of_fedavg(case: Case) -> Comparison:
    """f(ω_t) − f* ≤ (1 − μη/2)E‖ω_t − ω*‖²/η − E‖ω_{t+1} − ω*‖²/η + c_1η + c_2η² for FedAvg, the printed c_1 and c_2.

    Measured: the gap plus what the distance does, (E‖ω_{t+1} − ω*‖² − E‖ω_t − ω*‖²)/η + (μ/2)E‖ω_t − ω*‖², for steps
    within the bound with 12. Claimed: c_1η + c_2η².
    """
    return _fedavg(case, printed=True)
