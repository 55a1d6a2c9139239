"""`cfl`, Theorems 4.1, 4.4, 4.7 and their full versions B.5, B.6, B.8 part by part, Section B.4.4 and Table 1.

O(·) is read with any constant and, where usual, a logarithm; the lower-order terms of the full version are granted
to the short one; the step size is the best within its bound. A lower bound is used only if no choice that a theorem
leaves open escapes it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from theory.bounds import cfl_rates as rates

from .ledger import Case, Comparison, claim, untested

Array = NDArray[np.float64]


# ---- Worlds: one-dimensional quadratics whose errors are exact ----


def floor(curvature: float, r2: float, variance: float) -> float:
    """What no averaging of linear iterates beats on f = curvature·(w − w*)²/2 from a start with (w_0 − w*)² = r2.

    Such an output is a·(w_0 − w*) + Σ b_s ξ_s/curvature with Σ b_s = 1 − a (were all drifts equal, every round
    would aim at the same shifted point), so its mean square is at least a² r2 + (1 − a)² v, v = variance/curvature²
    and ``variance`` that of the mean of all drifts seen. The best a gives r2·v/(r2 + v). The average of f over
    iterates is no smaller, by convexity.
    """
    v = variance / curvature**2
    return 0.5 * curvature * r2 * v / (r2 + v) if v > 0 else 0.0


def steps(L: float, c_O: float = 1.0, count: int = 40) -> Array:
    """Steps η = K η_l within the theorems' bound, from none to the largest."""
    return np.append(0.0, np.geomspace(1e-7, 1.0, count)) * rates.largest_step(L, 1, c_O)


def fedavg_error(case: Case) -> float:
    """The least error of FedAvg's last iterate over `steps`, exact, on f = λw²/2.

    The clients are new in each round: curvature λ(1 ± s) and drift ± g come together, and a drift of variance V and
    step noise of variance sigma2 on top. Fields: T, N, K, lam, s, g, V, sigma2, r, stiff (L over the largest
    curvature).
    """
    lam, K, N, T = case["lam"], case["K"], case["N"], case["T"]
    eta = steps(case["stiff"] * lam * (1 + case["s"]), c_o(case))[:, None]
    curves = lam * np.array([1 + case["s"], 1 - case["s"]])
    shrink = 1 - eta / K * curves  # one local step
    powers = shrink[:, :, None] ** np.arange(K)
    pull = eta / K * powers.sum(axis=2)  # Σ_j η_l (1 − η_l λ_i)^j
    keep, shift = shrink**K, pull * case["g"] * np.array([1.0, -1.0])
    noise = pull**2 * case["V"] + (eta / K) ** 2 * (powers**2).sum(axis=2) * case["sigma2"]
    a, b = keep.mean(axis=1), shift.mean(axis=1)
    map_ = np.zeros((len(eta), 3, 3))  # of (1, E e, E e²)
    map_[:, 0, 0] = 1.0
    map_[:, 1, 0], map_[:, 1, 1] = b, a
    map_[:, 2, 0] = b**2 + (shift.var(axis=1) + noise.mean(axis=1)) / N
    map_[:, 2, 1] = 2 * (a * b + ((keep * shift).mean(axis=1) - a * b) / N)
    map_[:, 2, 2] = a**2 + keep.var(axis=1) / N
    moments = np.linalg.matrix_power(map_, T) @ np.array([1.0, case["r"], case["r"] ** 2])
    return float(lam / 2 * np.min(moments[:, 2]))


def c_o(case: Case) -> float:
    """1 + A² + B² of `fedavg_error`'s world: δ = ±(sλw + g) has E‖δ‖² ≤ 2s²‖∇f‖² + 2g²."""
    return 1 + 2 * case["s"] ** 2


def cfl_error(T: int, curvature: float, r: float, D2: float, R2: float, N: int, loss: float) -> float:
    """The least error of CFL's last iterate over `steps`, exact: f = curvature·w²/2, L = 1, K = 1, Theorem 4.1's
    weights.

    Time drifts are independent with variance D2 and averaged over N clients; the information loss is the constant
    ``loss``.
    """
    eta = steps(1.0)
    a, v = 1 - eta * curvature, D2 / N
    mean, square, cross = (
        np.full_like(eta, r),
        np.zeros_like(eta),
        np.zeros_like(eta),
    )  # cross: with the sum of past drifts
    for t in range(1, T + 1):
        q = rates.memory(t, D2, R2)
        past, now = q / max(t - 1, 1), 1 - q
        square = a**2 * square + 2 * a * eta * past * cross + eta**2 * v * (now**2 + past**2 * (t - 1))
        cross = a * cross + eta * v * (past * (t - 1) + now)
        mean = a * mean + eta * q * loss
    return float(curvature / 2 * np.min(mean**2 + square))


def newcomers_error(T: int, curvatures: Array, r: float, D2: float, N: int) -> Array:
    """The least error of CFL's last iterate over `steps` when each round's clients are new and bring their own history.

    R = G = σ = 0, L = K = 1, f = curvature·w²/2: the weights are 1/t, and a round's averaged history is independent of
    all that w has seen, with variance D2/(N t). Then Assumption 3 holds at the iterates.
    """
    eta = steps(1.0)[:, None]
    keep = 1 - eta * curvatures
    square = np.full(keep.shape, r * r)
    for t in range(1, T + 1):
        square = keep**2 * square + eta**2 * (D2 / (N * t))
    return curvatures / 2 * square.min(axis=0)


def plain_fedavg_error(T: int, curvature: float, r: float, D2: float, N: int) -> float:
    """`fedavg_error` with K = 1, additive drift and L = 1."""
    world = {"T": T, "N": N, "K": 1, "lam": curvature, "s": 0.0, "g": 0.0, "V": D2, "sigma2": 0.0, "r": r}
    return fedavg_error(world | {"stiff": 1 / curvature})


# ---- Theorems 4.1 and B.5: CFL ----

REUSED = (
    "(3) lets every client of a round bring its own history. If the clients of each round are new, their drifts are "
    "independent of the iterates, Assumption 3 holds there, and at R = 0, the hardest case, the exact error "
    "keeps to the "
    "claim up to a logarithm (quadratics; not a proof). If the same clients come back, the proof fails where (13) "
    "replaces f_t by f: the iterates have been fitted to the drifts that are used again. {floor}"
)
SHARP = "Then N·T drifts cannot be averaged below D²/(NT), whatever the steps, while the claim at R = 0 is O(1/T²): "
FLAT = (
    "Then no linear method is below D‖w_0 − w*‖/(4√(NT)) on the worst curvature, while the claim at R = 0 is O(1/T): "
)
ALONE = "see cfl/remark-4.2, where there is only one client."
LONGER = tuple({"T": T, "D2": 1.0, "H": 1.0, "N": 1} for T in (10, 100, 1000, 10000, 1000000))
ROUNDS_SEEN = tuple({"T": T, "D2": 1.0, "H": 1.0, "N": 1} for T in (30, 100, 300, 1000, 3000, 10000))
CURVATURES = np.geomspace(1e-3, 1.0, 13)


def claimed_sc(case: Case) -> float:
    """B.4.4's strongly convex sum at R = G = σ = 0, μ = L = 1, with a tenth of its exponent, times 1 + ln T."""
    error = rates.cfl_error_sc(case["T"], mu=1.0, H=case["H"], D2=case["D2"], transient=0.1)
    return error * (1 + math.log(case["T"]))


def claimed_gc(case: Case) -> float:
    """B.4.4's general convex sum at R = G = σ = 0, L = 1 supplied, times 1 + ln T."""
    error = rates.cfl_error_gc(case["T"], H=case["H"], D2=case["D2"], smoothness=True)
    return error * (1 + math.log(case["T"]))


def reused_strongly_convex(case: Case) -> Comparison:
    """The least error of any linear method that sees the same clients' drifts in all rounds, on f = w²/2."""
    variance = case["D2"] / (case["N"] * case["T"])
    return Comparison(floor(1.0, case["H"], variance), claimed_sc(case))


def reused_general_convex(case: Case) -> Comparison:
    """The same on f = λw²/2 with λ = D/√(HNT) ≤ L = 1, the hardest curvature."""
    variance = case["D2"] / (case["N"] * case["T"])
    curvature = math.sqrt(variance / case["H"])
    return Comparison(floor(curvature, case["H"], variance), claimed_gc(case))


def newcomers_strongly_convex(case: Case) -> Comparison:
    error = newcomers_error(case["T"], np.ones(1), math.sqrt(case["H"]), case["D2"], case["N"])
    return Comparison(float(error[0]), claimed_sc(case))


def newcomers_general_convex(case: Case) -> Comparison:
    error = newcomers_error(case["T"], CURVATURES, math.sqrt(case["H"]), case["D2"], case["N"])
    return Comparison(float(error.max()), claimed_gc(case))


@claim(
    "cfl/thm-4.1-sc",
    at="Theorem 4.1, strongly convex",
    sense="rate",
    verdict="gap",
    why=REUSED.format(floor=SHARP + ALONE),
    path=ROUNDS_SEEN,
    step=reused_strongly_convex,
    needs=["D2 > 0"],
    repair="State that clients are new in each round, or keep D²/(μNε) for every R.",
)
def cfl_strongly_convex_rounds(case: Case) -> Comparison:
    """CFL is within ε + φ after T = O(L c_O/μ + σ²/(μNKε) + (G² + D²R²/(R² + D²))/(με)) rounds.

    Measured: the error after T rounds with new clients in each, exact, best step, f = w²/2, R = G = σ = 0. Claimed: the
    count solved for the error with Theorem B.5's terms, times 1 + ln T. Step: the same with clients that come back.
    """
    return newcomers_strongly_convex(case)


@claim(
    "cfl/thm-b.5-sc",
    at="Theorem B.5, strongly convex; Section B.4.4, first result",
    sense="rate",
    verdict="gap",
    why=REUSED.format(floor=SHARP + ALONE),
    path=ROUNDS_SEEN,
    step=reused_strongly_convex,
    needs=["D2 > 0"],
    repair="As for cfl/thm-4.1-sc.",
)
def cfl_strongly_convex_error(case: Case) -> Comparison:
    """The error beyond φ is O(exp + σ²/(μNKT) + c_A/(μT) + c_B/(μT²) + c_C/(μT)² + c_D/(μ²T³)) after T rounds.

    Measured, claimed and step: as for cfl/thm-4.1-sc.
    """
    return newcomers_strongly_convex(case)


@claim(
    "cfl/thm-4.1-gc",
    at="Theorem 4.1, general convex",
    sense="rate",
    verdict="gap",
    why=REUSED.format(floor=FLAT + ALONE),
    path=ROUNDS_SEEN,
    step=reused_general_convex,
    needs=["D2 <= H * N * T"],
    repair="State that clients are new in each round, or keep D²H/(Nε²) for every R.",
)
def cfl_general_convex_rounds(case: Case) -> Comparison:
    """CFL is within ε + φ after T = O(c_O H/ε + σ²H/(NKε²) + (G² + D²R²/(R² + D²))H/ε²) rounds, H = ‖w_0 − w*‖².

    Measured: the largest error over curvatures from 0.001 to L = 1 after T rounds with new clients in each, exact, best
    step, R = G = σ = 0. Claimed: the count solved for the error with Theorem B.5's terms, times 1 + ln T.
    Step: the same with clients that come back.
    """
    return newcomers_general_convex(case)


@claim(
    "cfl/thm-b.5-gc",
    at="Theorem B.5, general convex; Section B.4.4, second result",
    sense="rate",
    verdict="gap",
    why=REUSED.format(floor=FLAT + ALONE),
    path=ROUNDS_SEEN,
    step=reused_general_convex,
    needs=["D2 <= H * N * T"],
    repair="As for cfl/thm-4.1-gc.",
)
def cfl_general_convex_error(case: Case) -> Comparison:
    """The error beyond φ is O((c_O H + √(c_B H) + ∛(c_D H²))/T + √(σ²H/(NKT)) + √(c_A H/T) + ∛(c_C H²/T²)).

    Measured, claimed and step: as for cfl/thm-4.1-gc.
    """
    return newcomers_general_convex(case)


@claim(
    "cfl/remark-4.2",
    at="Remark 4.2: Theorem 4.1 with N = 1 is the rate of continual learning, called tight in Section 1",
    sense="rate",
    verdict="refuted",
    why="A single client comes back in every round. At R = 0, which the remark discusses, φ = 0, the weights are "
    "1/t and "
    "the error is to be O(1/T²) after the transient. But the client has seen T drifts, and no linear method "
    "brings their "
    "mean below D²/T, whatever the steps and whichever average of iterates is put out. The same holds for "
    "any fixed set of "
    "clients, with D²/(NT). For R of order one φ covers the difference; the claim fails for R up to order 1/T.",
    path=LONGER,
    needs=["D2 > 0", "N == 1"],
    repair="D²/(με) has to stay for every R. With D = 1, R = 0, T = 1000 the best constant step comes within 1 %.",
)
def continual_learning(case: Case) -> Comparison:
    """With N = 1, Theorem 4.1 (in full B.5) holds for CL: error O(exp + c_A/(μT) + c_B/(μT²) + ...) beyond φ.

    Measured: the least error of any linear method on f = w²/2 with R = G = σ = 0. Claimed: B.4.4's sum, with a tenth of
    its exponent, times 1 + ln T.
    """
    return reused_strongly_convex(case)


def drawn_off(T: int, L: float, D2: float, R2: float) -> float:
    """Mean of ‖∇f(w_t)‖² for f = Lw²/2 from w_0 = w*, no drift, information loss constantly R, η = 1/(√T L)."""
    eta, R, e, total = 1 / (math.sqrt(T) * L), math.sqrt(R2), 0.0, 0.0
    for t in range(1, T + 1):
        total += (L * e) ** 2
        e -= eta * (L * e - rates.memory(t, D2, R2) * R)
    return total / T


def slack_of_descent(L: float, D2: float, R2: float) -> float:
    """c_m for A = B = 0: the least p_t/2 − L² over t; the theorem needs it to be positive."""
    return (1 - rates.memory(math.inf, D2, R2)) / 2 - L**2


CONSTANT_LOSS = (
    "The rate is claimed up to φ, and the proof's last inequality but one has a φ of its own, the mean of "
    "its c_1(t); with "
    "that, divided by c_m, the case is covered. It is not the φ of the convex part, which is zero at w_0 = "
    "w*, and the rate "
    "for the mean of ‖∇f‖² then drops it: a constant information loss of size R without any drift leaves ‖∇f‖² at "
    "(D²R/(D² + R²))², while every printed term vanishes with T."
)
LOSSES = tuple({"T": T, "L": 0.3, "D2": 1.0, "R2": 1.0} for T in (100, 300, 1000, 3000, 10000))
DESCENT = ["R2 / (R2 + D2) > 2 * L * L", "T >= 90"]


def constant_part(L: float, D2: float, R2: float) -> float:
    """φ of Section B.5 for G = σ = 0 as t grows, over c_m: ((1 + L²) c_pG + (q + L² q²) R²)/2, q = 1 − p_t."""
    q = rates.memory(math.inf, D2, R2)
    noise = D2 * (1 - q) ** 2  # c_pG: the past is spread over ever more rounds
    return ((1 + L * L) * noise + (q + L * L * q * q) * R2) / 2 / slack_of_descent(L, D2, R2)


def nonconvex_short(case: Case) -> Comparison:
    """The printed rate alone, solved for ε."""
    T, L, D2, R2 = case["T"], case["L"], case["D2"], case["R2"]
    claimed = rates.cfl_error_nc(T, L=L, gap=0.0, c_m=slack_of_descent(L, D2, R2), D2=D2, R2=R2, full=False)
    return Comparison(drawn_off(T, L, D2, R2), claimed)


def nonconvex_full(case: Case) -> Comparison:
    """The printed rate alone: the largest of the terms' errors, times three."""
    T, L, D2, R2 = case["T"], case["L"], case["D2"], case["R2"]
    terms: dict[str, Any] = {"L": L, "gap": 0.0, "c_m": slack_of_descent(L, D2, R2), "D2": D2, "R2": R2}
    claimed = 3 * max(rates.cfl_error_nc(T, **terms), (1 - rates.memory(math.inf, D2, R2)) / (L * math.sqrt(T)))
    return Comparison(drawn_off(T, L, D2, R2), claimed)


def _with_constant(found: Comparison, case: Case) -> Comparison:
    return Comparison(found.measured, found.claimed + constant_part(case["L"], case["D2"], case["R2"]))


@claim(
    "cfl/thm-4.1-nc",
    at="Theorem 4.1, non-convex",
    sense="rate",
    verdict="gap",
    why=CONSTANT_LOSS,
    path=LOSSES,
    step=nonconvex_short,
    needs=DESCENT,
    repair="Keep the mean of c_1(t)/c_m in the statement; it does not vanish.",
)
def cfl_nonconvex(case: Case) -> Comparison:
    """With η = √(KN)/(√T L), the mean of ‖∇f(w_t)‖² is within ε + φ after O((L(f_0 − f*)/c_m)²/(NKε²) + (√(KN)c_R1²/L
    + ...)²/ε²) rounds.

    Measured: the mean after T rounds on f = Lw²/2 from w_0 = w*, N = K = 1, with a constant information loss.
    Claimed: the formula solved for ε, plus Section B.5's φ. Step: without that φ.
    """
    return _with_constant(nonconvex_short(case), case)


@claim(
    "cfl/thm-b.5-nc",
    at="Theorem B.5, non-convex; Section B.5, last display",
    sense="rate",
    verdict="gap",
    why=CONSTANT_LOSS + " B.5 has c_R1 where Theorem 4.1 has c_R1², with the same definition.",
    path=LOSSES,
    step=nonconvex_full,
    needs=DESCENT,
    repair="As for cfl/thm-4.1-nc.",
)
def cfl_nonconvex_full(case: Case) -> Comparison:
    """As Theorem 4.1's non-convex part, with c_R1 in place of c_R1² and √(KN)c_R2/(c_m εL) more rounds.

    Measured and step: as there. Claimed: with Section B.5's φ.
    """
    return _with_constant(nonconvex_full(case), case)


# ---- Theorems 4.4 and B.6: FedAvg ----

ROUNDS = st.sampled_from([1, 3, 10, 30, 100, 1000, 10**4, 10**6])
SQUARES = st.sampled_from([0.0, 1e-3, 0.1, 1.0, 10.0, 1e3])
FLEETS = st.fixed_dictionaries(
    {
        "T": ROUNDS,
        "N": st.sampled_from([1, 2, 10, 1000]),
        "K": st.integers(1, 5),
        "lam": st.floats(0.01, 10.0),
        "s": st.sampled_from([0.0, 0.3, 0.9]),
        "g": st.sampled_from([0.0, 0.1, 1.0, 30.0]),
        "V": st.sampled_from([1e-9, 1e-3, 1.0, 1e3]),
        "sigma2": SQUARES,
        "r": st.sampled_from([0.01, 1.0, 100.0]),
        "stiff": st.sampled_from([1.0, 3.0, 100.0]),
    }
)
LOG = 4.0  # with the logarithm, all that is granted to O(·)


def fedavg_world(case: Case) -> dict[str, Any]:
    """The constants that bound `fedavg_error`'s world, as the theorems take them."""
    return {
        "L": case["stiff"] * case["lam"] * (1 + case["s"]),
        "H": case["r"] ** 2,
        "N": case["N"],
        "K": case["K"],
        "sigma2": case["sigma2"],
        "D2": 2 * case["g"] ** 2 + case["V"],
        "B2": c_o(case) - 1,
    }


def fedavg_strongly_convex(case: Case) -> Comparison:
    """FedAvg's best error against B.4.4's sum, with a tenth of its exponent, times a constant and a logarithm."""
    mu = case["lam"] * (1 - case["s"])
    claimed = rates.fedavg_error_sc(case["T"], mu=mu, transient=0.1, **fedavg_world(case))
    return Comparison(fedavg_error(case), LOG * (1 + math.log(case["T"])) * claimed)


CROWDS = tuple(
    {"T": 10000, "N": N, "K": 1, "lam": 1.0, "s": 0.0, "g": 0.0, "V": 1.0, "sigma2": 0.0, "r": 1.0, "stiff": 1.0}
    for N in (1, 10, 100, 1000)
)
PAST_START = ["T * lam * (1 - s) >= stiff * lam * (1 + s) * (1 + 2 * s * s)"]  # T ≥ L c_O/μ
FRESH = (
    "Read with clients drawn anew, or all of them with f their average, and with a logarithm, as its source has. "
    "Tried on quadratics; in general it would follow from (24) with a larger c_2, which withstood attack "
    "(cfl/eq-24). Drifts of different clients are independent, so their mean has variance (G² + D²)/N: the bound "
    "is too large by N."
)


@claim(
    "cfl/thm-4.4-sc",
    at="Theorem 4.4, strongly convex",
    sense="<=",
    verdict="loose",
    why=FRESH,
    cases=FLEETS,
    needs=PAST_START,
    path=CROWDS,
    slack_in="N",
    repair="(G² + D²)/(μNε)",
)
def fedavg_strongly_convex_short(case: Case) -> Comparison:
    """FedAvg is within ε after T = O(L c_O/μ + σ²/(μNKε) + (G² + D²)/(με)) rounds.

    Measured: its error after T rounds, exact, with the best step: quadratics whose clients differ in curvature and,
    correlated with it, in drift. Claimed: the formula solved for the error (B.6's term included) times 4(1 + ln T).
    """
    return fedavg_strongly_convex(case)


@claim(
    "cfl/thm-b.6-sc",
    at="Theorem B.6, strongly convex",
    sense="<=",
    verdict="loose",
    why=FRESH,
    cases=FLEETS,
    needs=PAST_START,
    path=CROWDS,
    slack_in="N",
    repair="(G² + D²)/(μNε)",
)
def fedavg_strongly_convex_full(case: Case) -> Comparison:
    """Theorem 4.4 with √(c_C/(μ²ε)) more rounds, c_C = L(σ²/K + G² + D²).

    Measured and claimed: as for cfl/thm-4.4-sc.
    """
    return fedavg_strongly_convex(case)


FLAT_CONSTANT = 10.0  # Lemma A.2 gives 1/(L η_max) < 9.3 for the first term and 2 for the others


def fedavg_general_convex(case: Case, smoothness: bool) -> Comparison:
    """FedAvg's best error on a curvature far below L against B.4.4's sum."""
    claimed = rates.fedavg_error_gc(case["T"], smoothness=smoothness, **fedavg_world(case))
    return Comparison(fedavg_error(case), FLAT_CONSTANT * claimed)


def fedavg_general_convex_with_l(case: Case) -> Comparison:
    """The first term as L c_O H/T."""
    return fedavg_general_convex(case, True)


NO_L = (
    "ε is measured in units of f, H in squared distances: c_O H/ε lacks the L that Lemma A.2 brings in with "
    "1/η_max. Without noise and drift, f = λw²/2 with λ of order L/T still has an error of order LH/T. The "
    "strongly convex part has its L."
)
STIFF = FLEETS.map(lambda case: {**case, "lam": case["lam"] * 10})


@claim(
    "cfl/thm-4.4-gc",
    at="Theorem 4.4, general convex (so also 4.1, 4.7, B.5, B.8)",
    sense="<=",
    verdict="misprint",
    why=NO_L,
    cases=STIFF,
    repair="L c_O H/ε",
    repaired=fedavg_general_convex_with_l,
)
def fedavg_general_convex_short(case: Case) -> Comparison:
    """FedAvg is within ε after T = O(c_O H/ε + σ²H/(NKε²) + (G² + D²)H/ε²) rounds, H = ‖w_0 − w*‖².

    Measured: its error after T rounds, exact, with the best step. Claimed: the formula solved for the error (B.6's term
    included) times 10.
    """
    return fedavg_general_convex(case, False)


@claim(
    "cfl/thm-b.6-gc",
    at="Theorem B.6, general convex; Section B.4.4, last display",
    sense="<=",
    verdict="misprint",
    why=NO_L,
    cases=STIFF,
    repair="L c_O H/ε",
    repaired=fedavg_general_convex_with_l,
)
def fedavg_general_convex_full(case: Case) -> Comparison:
    """Theorem 4.4's general convex part with √(c_C H²/ε³) more rounds.

    Measured and claimed: as for cfl/thm-4.4-gc.
    """
    return fedavg_general_convex(case, False)


DRIFTS = tuple({"T": 10000, "L": 0.5, "D2": D2} for D2 in (1.0, 10.0, 100.0, 10000.0))
NO_DRIFT_TERM = (
    "Neither G nor D occurs, though the number of rounds must grow with the drift: √(KN)/L stands where a "
    "squared gradient should. On f = Lw²/2 from w_0 = w*, with N = K = 1 and fresh drifts, the mean of ‖∇f‖² is "
    "about D²/(2√T); φ = 0 for FedAvg."
)


def jittered(T: int, L: float, D2: float) -> float:
    """Mean of ‖∇f(w_t)‖² for FedAvg on f = Lw²/2 from w_0 = w*, N = K = 1, fresh drifts of variance D2, η = 1/(√T
    L).
    """
    keep = (1 - 1 / math.sqrt(T)) ** 2
    settled = D2 / (T * (1 - keep))  # L² E e²
    return settled * (1 - (1 - keep**T) / (T * (1 - keep)))


def fedavg_nonconvex(case: Case) -> Comparison:
    """The exact mean against the printed formula solved for ε, c_m = 1/2 − L²."""
    T, L, D2 = case["T"], case["L"], case["D2"]
    return Comparison(jittered(T, L, D2), rates.fedavg_error_nc(T, L=L, gap=0.0, c_m=0.5 - L**2, D2=D2))


@claim(
    "cfl/thm-4.4-nc",
    at="Theorem 4.4, non-convex",
    sense="rate",
    verdict="refuted",
    why=NO_DRIFT_TERM,
    path=DRIFTS,
    needs=["L * L < 0.5", "T >= 90"],
    repair="√(K/N)(G² + D²) in place of √(KN)/L (checked for K = N = 1 only)",
)
def fedavg_nonconvex_short(case: Case) -> Comparison:
    """With η = √(KN)/(√T L), FedAvg's mean of ‖∇f(w_t)‖² reaches ε after O((L(f_0 − f*)/c_m)²/(NKε²) + (√(KN)/L +
    σ²/√(NK))²/ε²).

    Measured: the mean after T rounds, exact. Claimed: the formula solved for ε.
    """
    return fedavg_nonconvex(case)


@claim(
    "cfl/thm-b.6-nc",
    at="Theorem B.6, non-convex",
    sense="rate",
    verdict="refuted",
    why=NO_DRIFT_TERM,
    path=DRIFTS,
    needs=["L * L < 0.5", "T >= 90"],
    repair="As for cfl/thm-4.4-nc.",
)
def fedavg_nonconvex_full(case: Case) -> Comparison:
    """Word for word Theorem 4.4's non-convex part.

    Measured and claimed: as there.
    """
    return fedavg_nonconvex(case)


# ---- Theorems 4.7 and B.8: overlapping data ----

OVERLAP = (
    "Minimising (33) leaves min(F², D²) behind, which the theorem loses. Let half of each client's time "
    "drift be common to "
    "all its rounds: F² = D²/2, with equality in Assumption 6. Even if new clients come in each round, T rounds cannot "
    "average that part below F²/(NT), whatever the steps, while at R = 0 the claim is {claim}; if the same "
    "clients come "
    "back, an error of order F²/(μN) stays for ever. At F = D the claim would even be free of D, for "
    "independent drifts as "
    "well."
)
SHARED = tuple({"T": T, "D2": 1.0, "F2": 0.5, "H": 1.0, "N": 1} for T in (10, 100, 1000, 10000, 1000000))


def overlap_strongly_convex(case: Case) -> Comparison:
    """The least error on f = w²/2 against Theorem 4.7 solved for the error, with B.4.4's terms in M, times 1 + ln T."""
    terms = {"H": case["H"], "D2": case["D2"], "F2": case["F2"]}
    claimed = rates.overlap_error_sc(case["T"], mu=1.0, transient=0.1, **terms)
    variance = case["F2"] / (case["N"] * case["T"])  # T rounds of new clients; of returning ones it is F2/N
    return Comparison(floor(1.0, case["H"], variance), claimed * (1 + math.log(case["T"])))


def overlap_general_convex(case: Case) -> Comparison:
    """The same on the hardest curvature, with the missing L supplied."""
    terms = {"H": case["H"], "D2": case["D2"], "F2": case["F2"]}
    claimed = rates.overlap_error_gc(case["T"], smoothness=True, **terms)
    variance = case["F2"] / (case["N"] * case["T"])
    curvature = math.sqrt(variance / case["H"])
    return Comparison(floor(curvature, case["H"], variance), claimed * (1 + math.log(case["T"])))


def overlap_nonconvex(case: Case) -> Comparison:
    """Drift equal in all rounds: F = D, p_t = 1, φ = 0. Mean of ‖∇f(w_t)‖² on f = Lw²/2 from w_0 = w*, N = K = 1."""
    T, L, D2 = case["T"], case["L"], case["D2"]
    aimed = 1 - (1 - 1 / math.sqrt(T)) ** np.arange(T)  # how much of the way to the shifted optimum
    claimed = rates.overlap_error_nc(T, L=L, gap=0.0, c_m=0.5 - L**2, D2=D2, F2=D2, R2=1.0)
    return Comparison(D2 * float(np.mean(aimed**2)), claimed)


@claim(
    "cfl/thm-4.7-sc",
    at="Theorem 4.7, strongly convex",
    sense="rate",
    verdict="refuted",
    why=OVERLAP.format(claim="O(1/T²)"),
    path=SHARED,
    needs=["0 < F2 <= D2", "F2 <= H * N * T"],
    repair="D²/(μNε) with new clients in each round; with returning ones also an error of order F²/(μN) that stays.",
)
def overlap_strongly_convex_short(case: Case) -> Comparison:
    """Under Assumption 6, CFL is within ε + φ after O(L c_O/μ + σ²/(μNKε) + (G² + M²R²/(R² + M²))/(με)), M² =
    max(0, D² − F²).

    Measured: the least error any linear method has on f = w²/2 with R = G = σ = 0. Claimed: the formula solved for
    the error.
    """
    return overlap_strongly_convex(case)


@claim(
    "cfl/thm-4.7-gc",
    at="Theorem 4.7, general convex",
    sense="rate",
    verdict="refuted",
    why=OVERLAP.format(claim="O(1/T)"),
    path=SHARED,
    needs=["0 < F2 <= D2", "F2 <= H * N * T"],
    repair="D²H/(Nε²) with new clients in each round; with returning ones also an error of order F²/(LN) that stays.",
)
def overlap_general_convex_short(case: Case) -> Comparison:
    """Under Assumption 6, CFL is within ε + φ after O(c_O H/ε + σ²H/(NKε²) + (G² + M²R²/(R² + M²))H/ε²), M² =
    max(0, D² − F²).

    Measured: the least error any linear method has on f = λw²/2, λ = F/√(HNT) ≤ L = 1, with R = G = σ = 0. Claimed: the
    formula solved for the error.
    """
    return overlap_general_convex(case)


EQUAL = tuple({"T": T, "L": 0.3, "D2": 1.0} for T in (100, 300, 1000, 3000, 10000))


def overlap_nonconvex_with_constant(case: Case) -> Comparison:
    """The same with Section B.5's φ over c_m, which for p_t = 1 is (1 + L²)D²/2 over 1/2 − L²."""
    found, L = overlap_nonconvex(case), case["L"]
    return Comparison(found.measured, found.claimed + (1 + L * L) * case["D2"] / 2 / (0.5 - L * L))


@claim(
    "cfl/thm-4.7-nc",
    at="Theorem 4.7, non-convex",
    sense="rate",
    verdict="gap",
    why="With Section B.5's own φ, the mean of c_1(t) over c_m, the case is covered. The rate drops it: drifts "
    "equal in all "
    "rounds satisfy Assumption 6 with F = D, so that M = 0 and p_t = 1, where Table 1 says φ = 0; the "
    "iterates converge to "
    "the wrong point and ‖∇f‖² tends to D², while every printed term vanishes with T.",
    path=EQUAL,
    step=overlap_nonconvex,
    needs=["L * L < 0.5", "T >= 90"],
    repair="Add a term of order min(F², D²) that does not vanish.",
)
def overlap_nonconvex_short(case: Case) -> Comparison:
    """Under Assumption 6, the mean of ‖∇f(w_t)‖² takes Theorem 4.1's rounds to reach ε, with M² = max(0, D² − F²)
    for D².

    Measured: the mean after T rounds on f = Lw²/2, exact. Claimed: the formula solved for ε, plus Section
    B.5's φ. Step: without that φ.
    """
    return overlap_nonconvex_with_constant(case)


@claim(
    "cfl/thm-b.8-sc",
    at="Theorem B.8, strongly convex",
    sense="rate",
    verdict="refuted",
    why=OVERLAP.format(claim="O(1/T²)"),
    path=SHARED,
    needs=["0 < F2 <= D2", "F2 <= H * N * T"],
    repair="As for cfl/thm-4.7-sc.",
)
def overlap_strongly_convex_full(case: Case) -> Comparison:
    """Theorem 4.7's strongly convex part again.

    Measured and claimed: as there.
    """
    return overlap_strongly_convex(case)


@claim(
    "cfl/thm-b.8-gc",
    at="Theorem B.8, general convex",
    sense="rate",
    verdict="refuted",
    why=OVERLAP.format(claim="O(1/T)"),
    path=SHARED,
    needs=["0 < F2 <= D2", "F2 <= H * N * T"],
    repair="As for cfl/thm-4.7-gc.",
)
def overlap_general_convex_full(case: Case) -> Comparison:
    """Theorem 4.7's general convex part again.

    Measured and claimed: as there.
    """
    return overlap_general_convex(case)


@claim(
    "cfl/thm-b.8-nc",
    at="Theorem B.8, non-convex",
    sense="rate",
    verdict="gap",
    why="As for cfl/thm-4.7-nc: drifts equal in all rounds leave ‖∇f‖² at D².",
    path=EQUAL,
    step=overlap_nonconvex,
    needs=["L * L < 0.5", "T >= 90"],
    repair="As for cfl/thm-4.7-nc.",
)
def overlap_nonconvex_full(case: Case) -> Comparison:
    """Theorem 4.7's non-convex part again.

    Measured and claimed: as there.
    """
    return overlap_nonconvex_with_constant(case)


# ---- Section B.4.4 ----

TRANSIENTS = st.fixed_dictionaries(
    {
        "L": st.floats(0.1, 100.0),
        "mu_share": st.floats(0.05, 1.0),
        "excess": st.floats(0.0, 5.0),
        "rounds": st.floats(1.0, 300.0),
    }
)


def transient(case: Case, share: float) -> Comparison:
    """Noise-free FedAvg on f = μw²/2 with its largest step, after ``rounds`` times L c_O/μ rounds, against 10⁶
    times the claim.
    """
    L, mu, c_O = case["L"], case["L"] * case["mu_share"], 1 + case["excess"]
    T = math.ceil(case["rounds"] * L * c_O / mu)
    error = 0.5 * mu * (1 - mu * rates.largest_step(L, 1, c_O)) ** (2 * T)
    return Comparison(error, 1e6 * mu * math.exp(-share * mu * T / (L * c_O)))


def transient_repaired(case: Case) -> Comparison:
    """A tenth in the exponent."""
    return transient(case, 0.1)


@claim(
    "cfl/b.4.4-exponent",
    at="Section B.4.4, strongly convex results",
    sense="<=",
    verdict="misprint",
    why="A constant inside an exponent is not covered by O(·): the largest step allowed is about 0.11/(L c_O), "
    "so the transient decays like exp(−0.22 μT/(L c_O)) at best, and any weighted average of iterates is slower "
    "still. The count of rounds, of order L c_O/μ, is unaffected.",
    cases=TRANSIENTS,
    repair="exp(−μT/(10 L c_O))",
    repaired=transient_repaired,
)
def transient_as_printed(case: Case) -> Comparison:
    """With steps within the bound, the start is forgotten like μ‖w_0 − w*‖² exp(−μT/(L c_O)), up to a constant.

    Measured: the error on f = μw²/2 without noise, ‖w_0 − w*‖ = 1, largest step. Claimed: a million times the
    printed transient.
    """
    return transient(case, 1.0)


NOISES = st.fixed_dictionaries(
    {
        "T": st.sampled_from([1.0, 10.0, 100.0, 1e4]),
        "mu": st.floats(0.01, 1.0),
        "L": st.floats(1.0, 20.0),
        "H": st.floats(0.0, 10.0),
        "N": st.integers(1, 20),
        "K": st.integers(1, 10),
        "sigma2": st.floats(0.0, 10.0),
        "G2": st.floats(0.0, 10.0),
        "D2": st.floats(0.0, 10.0),
        "A2": st.floats(0.0, 2.0),
        "B2": st.floats(0.0, 2.0),
    }
)


def _without(case: Case, *names: str) -> dict[str, Any]:
    return {k: v for k, v in case.items() if k not in names}


def fedavg_display_repaired(case: Case) -> Comparison:
    """With exp(−·) and σ²/(μNKT): R so large that it makes no difference."""
    general = rates.cfl_error_sc(case["T"], **_without(case, "T"), R2=1e15)
    return Comparison(general, rates.fedavg_error_sc(case["T"], **_without(case, "T")))


@claim(
    "cfl/b.4.4-fedavg",
    at="Section B.4.4, FedAvg, strongly convex",
    sense="==",
    verdict="misprint",
    why="The exponent lost its minus sign, so that the printed bound grows with T, and σ²/(μNKT), which Theorem "
    "B.6 has, is missing.",
    cases=NOISES,
    repair="O(μ‖w_0 − w*‖² exp(−μT/(L c_O)) + σ²/(μNKT) + c_A/(μT) + c_C/(μT)²)",
    repaired=fedavg_display_repaired,
)
def fedavg_display(case: Case) -> Comparison:
    """FedAvg's strongly convex error is CFL's for p_t = 1: O(μ‖w_0 − w*‖² exp(μT/(L c_O)) + c_A/(μT) + c_C/(μT)²).

    Measured: CFL's display as R grows without bound. Claimed: FedAvg's display.
    """
    general = rates.cfl_error_sc(case["T"], **_without(case, "T"), R2=math.inf)
    return Comparison(general, rates.fedavg_error_sc_printed(case["T"], **_without(case, "T", "N")))


@claim(
    "cfl/round-counts",
    at="Theorem B.5, from the results of Section B.4.4",
    sense="<=",
    verdict="holds",
    why="Each of the five or six terms is at most ε at that T, so their sum is at most six times ε. The "
    "transient is left out; it needs the logarithm.",
    cases=st.fixed_dictionaries(
        {
            "eps": st.floats(1e-6, 10.0),
            "mu": st.floats(0.01, 1.0),
            "L": st.floats(1.0, 20.0),
            "H": st.floats(0.01, 100.0),
            "N": st.integers(1, 20),
            "K": st.integers(1, 10),
            "sigma2": SQUARES,
            "G2": SQUARES,
            "D2": SQUARES,
            "R2": SQUARES,
        }
    ),
    needs=["D2 + R2 > 0"],
)
def round_counts(case: Case) -> Comparison:
    """The rounds of Theorem B.5 bring the errors of Section B.4.4 down to order ε, strongly and general convex alike.

    Measured: the larger of the two errors after that many rounds, without the strongly convex transient. Claimed: 6ε.
    """
    terms = _without(case, "eps", "mu", "H")
    strongly = rates.cfl_rounds_sc(case["eps"], mu=case["mu"], **terms)
    general = rates.cfl_rounds_gc(case["eps"], H=case["H"], **terms)
    errors = (
        rates.cfl_error_sc(strongly, mu=case["mu"], H=0.0, **terms),
        rates.cfl_error_gc(general, H=case["H"], **terms),
    )
    return Comparison(max(errors), 6 * case["eps"])


# ---- What is drawn from the theorems ----


@claim(
    "cfl/phi-start",
    at="Theorem 4.1: ε + φ as a goal, for starts farther than 2c_3/L from the optimum",
    sense="<=",
    verdict="holds",
    why="Closer to the optimum f(w_0) − f* ≤ L‖w_0 − w*‖²/2 is below φ = c_3‖w_0 − w*‖, and zero rounds meet the "
    "theorem, as they do for any result up to a neighbourhood. This neighbourhood grows with the distance of the "
    "start: for D = R = L = 1 every start within 2 of the optimum lies in it.",
    cases=st.fixed_dictionaries(
        {
            "L": st.floats(0.1, 20.0),
            "D": st.floats(0.01, 10.0),
            "R": st.floats(0.01, 10.0),
            "far": st.one_of(st.just(1.0), st.floats(1.0, 100.0)),
        }
    ),
    needs=["far >= 1", "L > 0", "D > 0", "R > 0"],
    repair="State φ as a radius that does not depend on the start: q²R²/(2μ) with q = D²/(D² + R²).",
)
def bias_below_start(case: Case) -> Comparison:
    """From such a start ε + φ asks for more than the start already offers, if ε is small.

    Measured: φ, at a start ``far`` × 2c_3/L from the optimum. Claimed: the largest f(w_0) − f* there is at that
    distance.
    """
    distance = case["far"] * 2 * rates.bias(1.0, case["D"] ** 2, case["R"] ** 2) / case["L"]
    return Comparison(rates.bias(distance, case["D"] ** 2, case["R"] ** 2), case["L"] * distance**2 / 2)


RACES = st.fixed_dictionaries(
    {
        "T": st.integers(2, 60),
        "curvature": st.sampled_from([0.01, 0.1, 1.0]),
        "r": st.sampled_from([0.1, 1.0, 10.0]),
        "D2": st.sampled_from([0.01, 1.0, 100.0, 10000.0]),
        "R2": st.sampled_from([0.0, 0.01, 1.0, 100.0]),
        "N": st.sampled_from([1, 10, 100]),
        "sign": st.sampled_from([-1.0, 0.0, 1.0]),
    }
)


def race(case: Case) -> Comparison:
    """CFL's error against FedAvg's plus φ, both exact after T rounds with their best steps."""
    T, curvature, r, D2, R2, N = (case[k] for k in ("T", "curvature", "r", "D2", "R2", "N"))
    measured = cfl_error(T, curvature, r, D2, R2, N, case["sign"] * math.sqrt(R2))
    return Comparison(measured, plain_fedavg_error(T, curvature, r, D2, N) + rates.bias(r, D2, R2, T))


@claim(
    "cfl/remark-4.6",
    at="Remark 4.6, convex part",
    sense="<=",
    verdict="gap",
    why="The term of the bound does fall. That CFL is therefore ahead does not follow: both bounds are too "
    "large, FedAvg's by a factor N. With perfect memory and clients that come back (R = 0, "
    "φ = 0) the weights 1/t use the first drifts in every round, so while small steps are best CFL's sum of "
    "drifts has nearly twice FedAvg's variance. In the stored case CFL has 28 % more error after 200 rounds; for T → ∞ "
    "it wins by a logarithm; with new clients in each round it wins by an order (cfl/thm-b.5-sc).",
    cases=RACES,
    step=race,
    repair="Compare errors, not bounds.",
)
def smaller_variance_term(case: Case) -> Comparison:
    """CFL's noise term G² + D²R²/(R² + D²) is at most FedAvg's G² + D², with equality as R grows.

    Measured: CFL's. Claimed: FedAvg's. Step: hence CFL, each method with its best step, is at most φ behind FedAvg
    after T rounds on f = curvature·w²/2, with time drift and an information loss that is constantly ±R or zero.
    """
    return Comparison(rates.constants(1.0, 1, 0.0, 0.0, case["D2"], case["R2"]).A, case["D2"])


# ---- Table 1 ----

WORLDS = {
    "eps": st.floats(1e-4, 1.0),
    "mu": st.floats(0.01, 1.0),
    "N": st.integers(1, 20),
    "K": st.integers(1, 10),
    "sigma2": SQUARES,
    "G2": SQUARES,
    "D2": st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e3]),
    "R2": SQUARES,
    "A2": st.floats(0.0, 2.0),
    "B2": st.floats(0.0, 2.0),
}


def _world(case: Case) -> rates.World:
    return rates.World(**{k: case[k] for k in rates.World._fields})


@claim(
    "cfl/table-1-ours",
    at="Table 1, rows Ours of FedAvg and CFL",
    sense="==",
    verdict="holds",
    why="With L = H = 1: the table leaves both out everywhere. Its c_A has no G², unlike Theorem B.5's.",
    cases=st.fixed_dictionaries(
        WORLDS | {"row": st.sampled_from(["FedAvg, ours", "CFL, ours"]), "convex": st.booleans()}
    ),
)
def table_1_ours(case: Case) -> Comparison:
    """Table 1's rows for FedAvg and CFL are Theorems 4.4 and 4.1, strongly convex and (``convex``) general convex.

    Measured: the theorem. Claimed: the cell.
    """
    row, world = rates.TABLE_1[case["row"]], _world(case)
    terms = _without(world._asdict(), "eps", "mu") | ({"R2": math.inf} if case["row"] == "FedAvg, ours" else {})
    if case["convex"]:
        assert row.general is not None
        return Comparison(rates.cfl_rounds_gc(world.eps, **terms, full=False), row.general(world))
    return Comparison(rates.cfl_rounds_sc(world.eps, mu=world.mu, **terms, full=False), row.strongly(world))


@claim(
    "cfl/table-1-cl",
    at="Table 1, row Ours of CL",
    sense="==",
    verdict="holds",
    why="One client has no client drift, so G = B = 0; then c_pB in the second cell is the 1 + A² of the first. "
    "L = H = 1 as in the whole table. Whether the rate is true is another matter: cfl/remark-4.2.",
    cases=st.fixed_dictionaries(WORLDS | {"convex": st.booleans()}),
)
def one_client(case: Case) -> Comparison:
    """Theorem 4.1 with N = 1 is the rate of continual learning in Table 1.

    Measured: the theorem with N = 1 and G = B = 0. Claimed: the cell.
    """
    world = _world(case)._replace(N=1, G2=0.0, B2=0.0)
    row, terms = rates.TABLE_1["CL, ours"], _without(world._asdict(), "eps", "mu")
    if case["convex"]:
        assert row.general is not None
        return Comparison(rates.cfl_rounds_gc(world.eps, **terms, full=False), row.general(world))
    return Comparison(rates.cfl_rounds_sc(world.eps, mu=world.mu, **terms, full=False), row.strongly(world))


@claim(
    "cfl/table-1-match",
    at="Table 1, caption",
    sense="rate",
    verdict="refuted",
    why="The table's own rows differ: G²/(με) here, G/(μ√ε) there. (With sampled clients the cited work also has "
    "a G²/ε term, divided by their number; the table does not show it, and ours lacks the division.)",
    path=tuple({"eps": e, "G2": 1.0} for e in (1e-1, 1e-2, 1e-4, 1e-6)),
    repair="A match needs G/(μ√ε) when all clients take part, (G² + D²)/(μNε) when they are sampled.",
)
def same_as_before(case: Case) -> Comparison:
    """Our rate of FedAvg matches that of Karimireddy et al. in the conventional setting, D = A = 0.

    Measured: our strongly convex cell, with σ = 0. Claimed: theirs.
    """
    world = rates.World(case["eps"], G2=case["G2"])
    return Comparison(
        rates.TABLE_1["FedAvg, ours"].strongly(world), rates.TABLE_1["FedAvg, Karimireddy"].strongly(world)
    )


CONVEX_ROWS = [name for name, row in rates.TABLE_1.items() if row.general is not None]
SCALED = {"scale": st.sampled_from([0.1, 0.5, 2.0])}


def _general(case: Case, khaled: bool) -> Comparison:
    row = rates.TABLE_1[case["row"]]
    assert row.general is not None
    world = _world(case)
    other = world._replace(mu=world.mu * case["scale"])
    if khaled and case["row"] == "FedAvg, Khaled":  # without the stray μ
        world, other = world._replace(mu=1.0), other._replace(mu=1.0)
    return Comparison(row.general(world), row.general(other))


def general_column_repaired(case: Case) -> Comparison:
    """(σ + G + D)/ε^(3/2) in Khaled et al.'s row."""
    return _general(case, True)


@claim(
    "cfl/table-1-khaled",
    at="Table 1, general convex column, Khaled et al.",
    sense="==",
    verdict="misprint",
    why="The cell divides (σ + G + D)/ε^(3/2) by μ, in the column where μ = 0.",
    cases=st.fixed_dictionaries(WORLDS | SCALED | {"row": st.sampled_from(CONVEX_ROWS)}),
    repair="(σ + G + D)/ε^(3/2); not checked against the cited paper",
    repaired=general_column_repaired,
)
def general_column(case: Case) -> Comparison:
    """The general convex column, which is for μ = 0, does not depend on μ.

    Measured: a cell. Claimed: the same cell with μ scaled.
    """
    return _general(case, False)


untested(
    "cfl/table-1-yin",
    at="Table 1, strongly convex column, Yin et al.; Remark 4.2",
    statement="Earlier work on continual learning needs μ/ε rounds of gradient descent.",
    why="The table and Remark 4.2 (general convex case) disagree, and cite two versions of that work; neither "
    "was read.",
)
