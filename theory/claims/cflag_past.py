"""`cflag`: the memory and its bias, Lemmas 1 and 8-11, Theorem 2, and convergence on the past, Lemma 4 to Lemma 18."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from ..bounds import cflag as bounds
from .cflag_worlds import SIZES, STEP, Array, length, mean_grad, mean_value, one_round, samples, shares
from .ledger import Case, Comparison, claim
from .worlds import hundredths

SHARE = hundredths(0, 100)
SEED = st.integers(0, 999)
POINT = hundredths(-500, 500)


# --- The memory: (3), (6), Assumption 2, Lemmas 8-11 ------------------------------------------------------------------


@claim(
    "cflag/eq-3",
    at="(2)-(3) and the definitions of f and g below",
    sense="==",
    verdict="holds",
    why="Given that every client holds the same share of past samples, or that h_i weighs f_i and g_i by the global "
    "shares |P| and |C|. If h_i is the mean over client i's own samples and those shares differ, f must weigh clients "
    "by |P^i|/|P| and g by |C^i|/|C|: two clients with 9 + 1 and 1 + 9 samples, f_1 = g_2 = 1 and f_2 = g_1 = 0 have "
    "Σ p_i h_i = 0.9 and (3) gives 0.5.",
    cases=st.fixed_dictionaries(
        {"N": st.integers(1, 3), "past": st.integers(1, 4), "new": st.integers(1, 4), "seed": SEED}
    ),
)
def two_parts(case: Case) -> Comparison:
    """The objective Σ p_i h_i is the mean of f = Σ p_i f_i and g = Σ p_i g_i, weighted by the numbers of samples.

    Measured: |∇h|, from all samples of every client at once. Claimed: that of the two parts.
    """
    rng = np.random.default_rng(case["seed"])
    everything = samples(rng, case["N"], case["past"] + case["new"], 2, 1.0, "kinked")
    p, x, past = shares(rng, case["N"]), rng.normal(size=2), case["past"]
    f, g = mean_grad(everything.pick(slice(past)), p, x), mean_grad(everything.pick(slice(past, None)), p, x)
    share = past / (past + case["new"])
    return Comparison(length(mean_grad(everything, p, x)), length(share * f + (1 - share) * g))


def _memories(P: int, size: int) -> Iterable[list[int]]:
    return map(list, itertools.combinations(range(P), size))


@claim(
    "cflag/asm-2",
    at="Assumption 2 with (6)",
    sense="<=",
    verdict="holds",
    why="It can be met: by convex samples that share their optimum, as when a network interpolates, and a memory with "
    "more than half of them. It asks a lot: the memory's loss has to be stationary wherever the past's is. If the "
    "samples of a least-squares past have optima of their own, some draw of a memory that misses a sample breaks it "
    "at the past's optimum, where the method starts: ∇f_i = 0 and b_i ≠ 0. The condition that the text calls similar "
    "has an additive constant besides.",
    cases=st.fixed_dictionaries(
        {"P": st.integers(2, 6), "kept": st.integers(1, 6), "flat": hundredths(1, 100), "x": POINT, "seed": SEED}
    ),
    needs=["kept <= P < 2 * kept", "0 < flat <= 1"],
)
def memory_shares_the_optimum(case: Case) -> Comparison:
    """Memories exist that miss part of the past and whose gradient ∇f_i + b_i has ‖b_i‖² ≤ m_i‖∇f_i‖² at every x, with
    one m_i < 1.

    Measured: the largest ‖b_i(x)‖² over all memories of ``kept`` of P samples with one optimum and curvatures 1 or
    ``flat``. Claimed: m_i‖∇f_i(x)‖² with √m_i = (P − kept)(1 − flat)/(kept·flat + P − kept).
    """
    rng = np.random.default_rng(case["seed"])
    P, kept, flat = case["P"], case["kept"], case["flat"]
    slopes = np.where(rng.integers(0, 2, P) == 1, 1.0, flat) * case["x"]
    bias = max(abs(float(np.mean(slopes[k]) - np.mean(slopes))) for k in _memories(P, kept))
    root_m = (P - kept) * (1 - flat) / (kept * flat + P - kept)
    return Comparison(bias**2, (root_m * float(np.mean(slopes))) ** 2)


@claim(
    "cflag/lemma-8",
    at="Lemma 8, (26)",
    sense="==",
    verdict="holds",
    why="At a fixed x. Not at x_t, which depends on the draw from t = 1 on: see eq-64. Nor for the class-balanced "
    "buffer of the experiments if classes are of different size.",
    cases=st.fixed_dictionaries({"P": st.integers(1, 5), "kept": st.integers(1, 5), "x": POINT, "seed": SEED}),
    needs=["kept <= P"],
)
def unbiased_memory(case: Case) -> Comparison:
    """Over memories drawn uniformly from the past, the memory's gradient at a fixed x is the past's in the mean.

    Measured: |E ∇f†_i(x)| over all subsets. Claimed: |∇f_i(x)|.
    """
    rng = np.random.default_rng(case["seed"])
    past = samples(rng, 1, case["P"], 2, 1.0, "kinked")
    grads = past.grad(np.full(2, case["x"]))[0]
    mean = np.mean([grads[kept].mean(axis=0) for kept in _memories(case["P"], case["kept"])], axis=0)
    return Comparison(length(mean), length(grads.mean(axis=0)))


def _bias_given_28(case: Case) -> Comparison:
    """With m large enough for (28) at every x, which f_1 and f_2 with one common optimum allow."""
    m1, m2, near = case["m1"], case["m2"], {**case, "apart": 0.0}
    m = max(m1 * case["L1"] ** 2, m2) / (case["p"] * case["L1"] + (1 - case["p"])) ** 2
    return total_bias({**near, "m": m})


@claim(
    "cflag/lemma-9",
    at="Lemma 9, (27)",
    sense="<=",
    verdict="misprint",
    why="Stated as following from Assumption 2, which it does not: where the clients' gradients cancel, ∇f = 0, their "
    "biases needn't, and no m serves. The proof says openly that it assumes more, (28), m_i‖∇f_i‖² ≤ m‖∇f‖², and with "
    "that the lemma is true. (28) makes every client with m_i > 0 stationary wherever f is: convex clients with "
    "optima of their own are ruled out.",
    cases=st.fixed_dictionaries(
        {
            "m1": hundredths(0, 99),
            "m2": hundredths(0, 99),
            "p": hundredths(1, 99),
            "L1": st.floats(0.1, 10.0),
            "apart": hundredths(0, 300),
            "x": st.one_of(st.just(0.0), POINT),
            "m": st.sampled_from([1.0, 100.0, 1e6]),
        }
    ),
    needs=["0 <= m1 < 1", "0 <= m2 < 1", "0 < p < 1"],
    repair="add (28) for all x to what the lemma assumes",
    repaired=_bias_given_28,
)
def total_bias(case: Case) -> Comparison:
    """If every client's bias has ‖b_i‖² ≤ m_i‖∇f_i‖², m_i < 1, some m has ‖Σ p_i b_i‖² ≤ m‖∇f‖² everywhere.

    Measured: ‖b‖² for two quadratic clients whose optima are ``apart``, biases at their bound; x is measured from the
    optimum of f. Claimed: m‖∇f‖², with m as large as one likes.
    """
    p, L1, apart = case["p"], case["L1"], case["apart"]
    centre = (1 - p) * apart / (p * L1 + (1 - p))  # optimum of f for centres 0 and apart
    first, second = L1 * (centre + case["x"]), centre + case["x"] - apart
    if case["x"] == 0.0:  # exactly, not up to rounding
        second = -p * first / (1 - p)
    bias = p * math.sqrt(case["m1"]) * first - (1 - p) * math.sqrt(case["m2"]) * second
    return Comparison(bias**2, case["m"] * (0.0 if case["x"] == 0.0 else p * first + (1 - p) * second) ** 2)


@claim(
    "cflag/lemma-10",
    at="Lemma 10, (30)",
    sense="<=",
    verdict="holds",
    why="With r = max r_i; parallel gradients of equal ratio reach it.",
    cases=st.fixed_dictionaries(
        {
            "N": st.integers(1, 3),
            "dim": st.integers(1, 3),
            "g": st.floats(0.01, 10.0),
            "aligned": st.booleans(),
            "seed": SEED,
        }
    ),
)
def memory_ratio(case: Case) -> Comparison:
    """If ‖∇f†_i‖ ≤ r_i‖∇g‖ for every client, ‖∇f†‖ ≤ max r_i ‖∇g‖.

    Measured: ‖Σ p_i ∇f†_i‖ for gradients at their bounds. Claimed: the right side.
    """
    rng = np.random.default_rng(case["seed"])
    p, r = shares(rng, case["N"]), rng.uniform(0, 5, (case["N"],))
    if case["aligned"]:
        r[:] = r[0]
    along = rng.normal(size=(1 if case["aligned"] else case["N"], case["dim"]))
    along = along / np.linalg.norm(along, axis=1, keepdims=True)
    return Comparison(length(p @ (case["g"] * r[:, None] * along)), float(r.max()) * case["g"])


@claim(
    "cflag/lemma-11",
    at="Lemma 11, (75)",
    sense="<=",
    verdict="holds",
    why="The set of D includes C itself. ω² is a supremum over all x and finite only if the gradients on memory and on "
    "current data differ by a bounded amount: for quadratics, only with one common Hessian; else Lemmas 4 and 18 "
    "bound nothing.",
    cases=st.fixed_dictionaries(
        {
            "N": st.integers(1, 3),
            "memory": st.integers(1, 3),
            "new": st.integers(1, 3),
            "huber": st.booleans(),
            "opposite": st.booleans(),
            "seed": SEED,
        }
    ),
)
def current_gradient(case: Case) -> Comparison:
    """‖∇g(x_t)‖² ≤ 2‖∇h̃(x_t)‖² + 2ω², ω² the largest squared change of h̃'s gradient on dropping memory samples.

    Measured: ‖∇g‖², at the point of [−3, 3] that comes closest. Claimed: the right side, with ω² over all subsets of
    the memory and the same points, in one dimension; samples share a curvature, or are Huber-like. ``opposite``: memory
    and current data with centres far apart.
    """
    rng = np.random.default_rng(case["seed"])
    N, memory = case["N"], case["memory"]
    union = samples(rng, N, memory + case["new"], 1, 1.0, "huber" if case["huber"] else "full")
    if case["opposite"]:
        union.centre[:, :memory] += 3.0
    p, points = shares(rng, N), np.linspace(-3, 3, 25)
    grads = np.stack([union.grad(np.array([x]))[:, :, 0] for x in points])  # point × client × sample
    joint = grads.mean(axis=2)
    new = list(range(memory, memory + case["new"]))
    subsets = [list(s) + new for k in range(memory + 1) for s in itertools.combinations(range(memory), k)]
    change = np.max([np.max((grads[:, :, s].mean(axis=2) - joint) ** 2, axis=0) for s in subsets], axis=0)
    left, right = (grads[:, :, new].mean(axis=2) @ p) ** 2, 2 * (joint @ p) ** 2 + 2 * float(p @ change)
    worst = int(np.argmax(left / right))
    return Comparison(float(left[worst]), float(right[worst]))


# --- Lemma 1 ----------------------------------------------------------------------------------------------------------


def _lemma_1(case: Case, start: int, factor: float) -> Comparison:
    """(8) after one round, the sums over local steps from ``start``, ``factor`` L β² before the square in Γ."""
    path, here, beta = one_round(case, 4)
    L, p, x = case["L"], here.p, here.x
    past = samples(here.rng, case["N"], case["P"], case["dim"], L, case["past"])
    memory = past.pick(slice(case["kept"]))
    F, true = mean_grad(memory, p, x), mean_grad(past, p, x)
    bias, S = F - true, p @ path.delayed[:, start:].sum(axis=1)
    m = max(float(bias @ bias) / float(true @ true), 1e-6) * case["more"]
    alpha = case["share"] * bounds.rate_limit(L, m)
    after = x - alpha * F - beta * p @ path.sums
    B = bounds.overfitting(L, alpha, beta, float(true @ bias), float(bias @ S))
    Gamma = bounds.forgetting(2 * factor * L, alpha, beta, float(S @ S), 0.0) - beta * (1 - L * alpha) * float(F @ S)
    fall = mean_value(past, p, x) - mean_value(past, p, after)
    return Comparison(float(true @ true), bounds.past_gradient(L, alpha, m, fall, B, Gamma))


def _lemma_1_from_0(case: Case) -> Comparison:
    """Sums from k = 0, and L/2 as in (35)."""
    return _lemma_1(case, 0, 0.5)


@claim(
    "cflag/lemma-1",
    at="Lemma 1, (8)-(10)",
    sense="<=",
    verdict="misprint",
    why="B(t) and Γ(t) are printed with sums from k = 1, here and in (34), (35), (57), (58); the update sums from k = "
    "0. For E = 1 both sums are empty and the bound ignores the current task altogether. (10) also has Lβ² for "
    "(L/2)β², which only loosens it. (15) is right.",
    cases=st.fixed_dictionaries(
        {
            **SIZES,
            "step": STEP,
            "P": st.integers(1, 4),
            "kept": st.integers(1, 4),
            "past": st.sampled_from(["full", "quadratic", "kinked"]),
            "share": hundredths(5, 95),
            "more": st.sampled_from([1.0, 1.5, 10.0]),
        }
    ),
    needs=["kept <= P", "0.005 <= step <= 1", "0.01 <= share <= 0.99", "more >= 1"],
    repair="sums over k = 0..E−1, and (L/2)β² in (10)",
    repaired=_lemma_1_from_0,
)
def round_on_the_past(case: Case) -> Comparison:
    """For α < 2/(L(1 + m)), ‖∇f(x_t)‖² ≤ (f(x_t) − f(x_{t+1}) + B(t) + Γ(t)) / (α(1 − (L/2)α(1 + m))), with B(t) for
    overfitting the memory and Γ(t) for forgetting.

    Measured: ‖∇f(x_t)‖². Claimed: the right side with (9) and (10), after a round of C-FLAG on finite sums with a
    memory of ``kept`` of ``P`` past samples; m is ``more`` times ‖b‖²/‖∇f‖². β ≤ 1/(4LE).
    """
    return _lemma_1(case, 1, 1.0)


# --- Theorem 2 --------------------------------------------------------------------------------------------------------


def _scalar_rounds(case: Case, fresh: bool) -> dict[str, Array]:
    """C-FLAG on one client in one dimension; the past has two samples of curvature 1 ± q and centre 0, memory is one.

    Returns, for every round and averaged over all draws of the memory, x², Γ(t) and B(t), and x² at the end.
    """
    q, T, E, G = case["q"], case["T"], case["E"], case["G"]
    L = max(1 + q, G)
    alpha, beta = 1 / (L * (1 + case["m"])), case["step"] / (4 * L * E)
    sign = np.array(list(itertools.product((1.0, -1.0), repeat=T)) if fresh else [[1.0] * T, [-1.0] * T])
    x = np.full(len(sign), case["x0"])
    squares, Gammas, Bs = [], [], []
    for t in range(T):
        F, b = (1 + q * sign[:, t]) * x, q * sign[:, t] * x
        y, S = x, np.zeros_like(x)
        for _ in range(E):
            slope = G * (y - case["centre"])
            S, y = S + slope, y - beta * slope
        squares.append(np.mean(x**2))
        Gammas.append(np.mean(L / 2 * beta**2 * S**2 - beta * (1 - L * alpha) * F * S))
        Bs.append(np.mean((L * alpha**2 - alpha) * x * b + beta * b * S))
        x = x - alpha * F - beta * S
    return {"squares": np.array(squares), "Gamma": np.array(Gammas), "B": np.array(Bs), "last": np.mean(x**2)}


def _theorem_2(case: Case, fresh: bool) -> Comparison:
    run, L = _scalar_rounds(case, fresh), max(1 + case["q"], case["G"])
    fall = (case["x0"] ** 2 - float(run["last"])) / 2
    claimed = bounds.past_mean_gradient(L, case["m"], case["T"], fall, float(run["Gamma"].sum()))
    return Comparison(float(run["squares"].min()), claimed)


def _fresh_memory(case: Case) -> Comparison:
    """A new memory every round, independent of the past ones."""
    return _theorem_2(case, fresh=True)


TWO_SAMPLES = st.fixed_dictionaries(
    {
        "q": hundredths(0, 99),
        "m": hundredths(0, 300),
        "G": hundredths(1, 200),
        "centre": hundredths(-3000, 3000),
        "x0": hundredths(-200, 200),
        "step": STEP,
        "E": st.integers(1, 3),
        "T": st.integers(1, 5),
    }
)
PAIRED = ["0 <= q < 1", "q**2 <= m", "0.005 <= step <= 1", "G > 0", "x0 != 0"]


@claim(
    "cflag/eq-64",
    at="(63) to (64), and the text below Theorem 2",
    sense="==",
    verdict="refuted",
    why="Lemma 8 gives E b(x) = 0 at a fixed x. The memory is drawn once and kept (Section 2, and again the proof of "
    "Lemma 8), so from the second round on x_t has been moved by the very b it is multiplied with, and "
    "E⟨∇f(x_t), b(x_t)⟩ ≠ 0. Nor does it tend to 0 with t: with β fixed it settles at a constant.",
    cases=TWO_SAMPLES,
    needs=[*PAIRED, "T >= 1"],
    repair="a new, independent memory every round; else E B(t) stays in the bound",
    repaired=lambda case: _overfitting(case, fresh=True),
)
def overfitting_vanishes(case: Case) -> Comparison:
    """The overfitting term has mean zero over the draw of the memory: E B(t) = 0 in every round.

    Measured: 1 plus the largest |E B(t)|, by enumeration; one client, a quadratic past of two samples, one of them
    kept. Claimed: 1.
    """
    return _overfitting(case, fresh=False)


def _overfitting(case: Case, fresh: bool) -> Comparison:
    return Comparison(1 + float(np.max(np.abs(_scalar_rounds(case, fresh)["B"]))), 1.0)


@claim(
    "cflag/thm-2",
    at="Theorem 2, (60)-(65)",
    sense="<=",
    verdict="refuted",
    why="Step (a) drops ΣE B(t), which is not zero for a memory that is kept (eq-64). With a convex quadratic past of "
    "two samples, every sample L-smooth, ‖b‖² = q²‖∇f‖² with q < 1, the right side falls below the least gradient, "
    "and even below zero; a larger m, such as the m > 1 of the text below (15), does not help. F is read as its mean. "
    "A memory redrawn from the past every round makes the theorem true, but Section 2 and Lemma 8 keep it.",
    cases=TWO_SAMPLES,
    needs=PAIRED,
    repair="a new, independent memory every round; or add ΣE B(t) to the bracket",
    repaired=_fresh_memory,
)
def mean_gradient_of_the_past(case: Case) -> Comparison:
    """With α = 1/(L(1 + m)), min_t E‖∇f(x_t)‖² ≤ (2L(1 + m)/T)(E F + Σ E Γ(t)), F the fall of f over T rounds, E the
    mean over the draw of the memory.

    Measured: the left side, exactly: two past samples of curvature 1 ± q, one of them in memory, so that ‖b‖² = q²‖∇f‖²
    at every x and any m ≥ q² serves; L = max(1 + q, G) bounds the curvature of every sample. Current task of curvature
    G.
    """
    return _theorem_2(case, fresh=False)
