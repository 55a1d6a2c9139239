"""`special`: backward transfer (Theorem 4.7), convergence (Theorem 4.10), Corollaries 4.12 and D.1-D.3, and remarks."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from ..bounds import special
from ..bounds.special import Setting
from .ledger import Case, Comparison, claim
from .special_worlds import Bowl, Loss, Ramp, Rule, run
from .worlds import hundredths

SHARE = hundredths(1, 100)
ZERO_TO_ONE = hundredths(0, 100)
SIGNED = hundredths(-100, 100)
WEIGHT = st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.4, 1.0, 10.0, 1000.0]) | st.floats(0.01, 100.0)


# --- Backward transfer ------------------------------------------------------------------------------------------------

TRANSFER = {
    "K": st.integers(2, 4),
    "M": st.integers(1, 3),
    "N": st.integers(1, 3),
    "E": st.integers(1, 2),
    "t": st.integers(1, 3),
    "lam": WEIGHT,
    "L": st.floats(0.1, 10.0),
    "clip": st.floats(0.01, 10.0),
    "sigma": st.floats(0.05, 3.0),
    "eps": hundredths(5, 99),
    "hill": SHARE,
    "lr_share": st.just(1.0) | SHARE,
    "glr_share": st.just(1.0) | SHARE,
    "turn": hundredths(0, 314),
    "tilted": st.booleans(),
    **{f"h{m}": SIGNED for m in (1, 2, 3)},
    **{f"at{m}": st.just(0.0) | ZERO_TO_ONE for m in (1, 2, 3)},
}
ALIGNED = [
    "N <= M",
    "N * E * t <= 8",
    "lam >= 0.001",
    "0.05 <= L",
    "clip > 0",
    "sigma >= 0.01",
    "0.01 <= eps < 1",
    "0.01 <= hill <= 1",
    "0 < lr_share <= 1",
    "0 < glr_share <= 1",
]


def _aligned(case: Case) -> list[Loss]:
    """Clients of task K in the plane: every gradient is zero or at an angle whose cosine with (1, 0) is at least ε."""
    eps, clip, losses = case["eps"], case["clip"], []
    for m in range(1, case["M"] + 1):
        cosine = eps if case["tilted"] or m > 1 else 1.0
        u = (cosine, (-1) ** m * math.sqrt(1 - cosine**2))
        h = case[f"h{m}"] * case["L"]
        losses.append(Ramp(h, u, -case[f"at{m}"] * clip / h if h else 0.0, clip))
    return list(losses)


def _transferred(case: Case, glr_limit: float) -> float:
    """E f_{1:K−1}(θ_K^t) − f_{1:K−1}(θ_K^0) with steps at their shares of the limits.

    The earlier tasks share a bowl of curvature L whose gradient at the start (0, 0) is (hill·B/√2, 0), B = clip + σ.
    """
    K, B = case["K"], case["clip"] + case["sigma"]
    earlier = Bowl(case["L"], (-case["hill"] * B / math.sqrt(2) / case["L"], 0.0), B)
    lr = special.transfer_step(case["eps"], _past(case), B, case["L"], case["E"], case["t"], case["M"], case["lam"])
    along = (math.cos(case["turn"]), math.sin(case["turn"]))
    rule = Rule(
        case["lr_share"] * lr,
        case["glr_share"] * glr_limit,
        case["E"],
        case["N"],
        case["lam"],
        case["sigma"],
        along,
    )
    last = run(_aligned(case), (0.0, 0.0), case["t"], rule)[-1]
    rise = last.theta @ earlier.grad(np.zeros(2)) + earlier.bregman(last.theta, np.zeros(2))
    return (K - 1) * float(last.mean(rise))


def _past(case: Case) -> float:
    return (case["K"] - 1) * case["hill"] * (case["clip"] + case["sigma"]) / math.sqrt(2)


def _correction(case: Case) -> float:
    B = case["clip"] + case["sigma"]
    sizes = (case["E"], case["t"], case["M"], case["N"], case["K"])
    return special.transfer_correction(case["eps"], _past(case), case["sigma"], B, case["L"], *sizes)


@claim(
    "special/thm-4.7",
    at="Theorem 4.7, (7)",
    sense="<=",
    verdict="holds",
    why="True, though (27), (29) and (32) are not as printed. Noise alone (N = M = E = t = 1) comes near it as λ "
    "grows. γ_L is a choice for one horizon t: no positive γ_L meets the condition for every t ≥ 1. It also tends to "
    "0 with the gradient of the earlier tasks, so a model that has learnt them may not move at all. See "
    "special/thm-4.7-rounds.",
    cases=st.fixed_dictionaries(TRANSFER),
    needs=ALIGNED,
)
def backward_transfer(case: Case) -> Comparison:
    """If all gradients of task K have a cosine of at least ε with g = ∇f_{1:K−1}(θ_K^0), and the steps are small, then
    the earlier tasks' loss rises by at most 2ε²σ_L²‖g‖²/((K−1)tEMNLB²) in t rounds.

    Measured: the rise in the plane, samples and noise enumerated.
    """
    return Comparison(_transferred(case, 1 / (math.sqrt(case["N"]) * (case["K"] - 1))), _correction(case))


@claim(
    "special/cor-d.2",
    at="Corollary D.2, (23)",
    sense="<=",
    verdict="holds",
    why="Theorem 4.7 at N = M gives it already for γ_G ≤ 1/(√M(K−1)); the condition printed here, 1/(M(K−1)), is "
    "stricter by √M and would give M³ in the place of M².",
    cases=st.fixed_dictionaries(TRANSFER | {"M": st.integers(1, 2)}).map(lambda c: c | {"N": c["M"]}),
    needs=[*ALIGNED, "N == M"],
    repair="γ_G ≤ 1/(√M(K−1)) suffices",
    repaired=lambda case: Comparison(
        _transferred(case, 1 / (math.sqrt(case["M"]) * (case["K"] - 1))), _correction(case)
    ),
)
def full_transfer(case: Case) -> Comparison:
    """With all clients and γ_G ≤ 1/(M(K−1)) the earlier loss rises by at most 2ε²σ_L²‖g‖²/((K−1)tEM²LB²)."""
    return Comparison(_transferred(case, 1 / (case["M"] * (case["K"] - 1))), _correction(case))


FAR = {k: TRANSFER[k] for k in ("K", "M", "N", "E", "lam", "L", "eps", "hill")} | {
    "t": st.integers(1, 200),
    "B": st.floats(0.1, 10.0),
}


def _still(case: Case) -> float:
    """2ε‖g‖√(1 + 2/λ)/((K−1)Lt√(NME)): Lemma 4.9's radius at the largest steps of Theorem 4.7."""
    past = (case["K"] - 1) * case["hill"] * case["B"]
    shrink = (case["K"] - 1) * case["L"] * case["t"] * math.sqrt(case["N"] * case["M"] * case["E"])
    return 2 * case["eps"] * past * math.sqrt(1 + 2 / case["lam"]) / shrink


@claim(
    "special/thm-4.7-rounds",
    at="Theorem 4.7, implications; Remark 4.8: recovery with more rounds",
    sense="<=",
    verdict="holds",
    why="The correction falls as 1/t because the step allowed does: at the largest steps no run, aligned or not, "
    "leaves a ball of radius 2ε‖g‖√(1+2/λ)/((K−1)Lt√(NME)), and the earlier loss can neither rise nor recover by more "
    "than O(1/t). The decay with t, E and N is that of the movement and says nothing of recovery after a shift.",
    cases=st.fixed_dictionaries(FAR),
    needs=["N <= M", "lam > 0", "L > 0", "B > 0", "0 < eps < 1", "0 < hill <= 1"],
)
def model_stands_still(case: Case) -> Comparison:
    """Within the steps of Theorem 4.7 the distance ‖θ_K^t − θ_K^0‖ is of order 1/t whatever the gradients are.

    Measured: the distance when every gradient is B in one direction, the most that can be. Claimed: the radius.
    """
    past = (case["K"] - 1) * case["hill"] * case["B"]
    lr = special.transfer_step(case["eps"], past, case["B"], case["L"], case["E"], case["t"], case["M"], case["lam"])
    glr = 1 / (math.sqrt(case["N"]) * (case["K"] - 1))
    return Comparison(special.drift(lr, glr, case["E"], case["B"], case["lam"], case["t"]), _still(case))


@claim(
    "special/remark-4.8",
    at="Remark 4.8, on the alignment ε",
    sense="<=",
    verdict="refuted",
    why="The correction in (7) is proportional to ε²: it grows with the alignment, because larger steps are allowed, "
    "and falls as 1/t for every ε. At fixed steps it does not depend on ε at all (34). That alignment helps the "
    "earlier tasks is true, but through the descent term, which (35) cancels and (7) no longer shows.",
    cases=st.fixed_dictionaries(FAR | {"better": hundredths(5, 99)}),
    needs=["N <= M", "0 < eps < better < 1", "0 < hill <= 1", "L > 0", "B > 0"],
    repair="Keep the descent: −(1 − 1/√N) γ_Gγ_L ε‖g‖ Σ(1+λ)^{τ−t} mean‖∇f_{K,m}‖ may be added to (7).",
)
def better_alignment(case: Case) -> Comparison:
    """Better alignment makes the correction term of (7) decay faster, so that it is smaller.

    Measured: the correction for the larger ε. Claimed: for the smaller. σ_L is half of B.
    """
    past, half = (case["K"] - 1) * case["hill"] * case["B"], case["B"] / 2
    sizes = (case["B"], case["L"], case["E"], case["t"], case["M"], case["N"], case["K"])
    better, worse = (special.transfer_correction(case[e], past, half, *sizes) for e in ("better", "eps"))
    return Comparison(better, worse)


@claim(
    "special/cor-d.1",
    at="Corollary D.1",
    sense="<=",
    verdict="holds",
    why="The proof gets max{1, 2(1−ε)}B², which is sharp; the corollary prints the sum of the two. Even perfect "
    "correlation leaves B²: one task's gradient may vanish where the other's does not. (σ_T is read as the smallest "
    "constant of Assumption 4.6.)",
    cases=st.fixed_dictionaries(
        {"B": st.floats(0.01, 100.0), "eps": SHARE, "x": ZERO_TO_ONE, "y": ZERO_TO_ONE, "more": ZERO_TO_ONE}
    ),
    needs=["0 < eps < 1", "B > 0", "0 <= x <= 1", "0 <= y <= 1", "0 <= more <= 1"],
    repair="σ_T² ≤ max{1, 2(1−ε)} B²",
    repaired=lambda case: Comparison(_apart(case), max(1.0, 2 * (1 - case["eps"])) * case["B"] ** 2),
)
def positive_correlation(case: Case) -> Comparison:
    """If gradients of two tasks are at most B and their cosine is at least ε, then σ_T² ≤ (3 − 2ε)B².

    Measured: ‖∇f_i − ∇f_j‖² for norms xB and yB and a cosine between ε and 1.
    """
    return Comparison(_apart(case), (3 - 2 * case["eps"]) * case["B"] ** 2)


def _apart(case: Case) -> float:
    x, y, cosine = case["x"] * case["B"], case["y"] * case["B"], case["eps"] + (1 - case["eps"]) * case["more"]
    return x**2 + y**2 - 2 * cosine * x * y


# --- Convergence ------------------------------------------------------------------------------------------------------

SETTING = {
    "M": st.integers(2, 100),
    "N": st.integers(1, 100),
    "K": st.integers(2, 20),
    "E": st.integers(1, 50),
    "L": st.floats(0.01, 100.0),
    "B": st.floats(0.01, 100.0),
    "lam": st.floats(1e-4, 1e4),
    "lr_share": ZERO_TO_ONE.map(lambda x: 1 - x * 0.99),
    "glr_share": ZERO_TO_ONE.map(lambda x: 1 - x * 0.99),
    "sigma_L": ZERO_TO_ONE,
    "sigma_G": ZERO_TO_ONE,
    "sigma_T": ZERO_TO_ONE,
    "past": ZERO_TO_ONE,
}
ADMISSIBLE = [
    "2 <= M",
    "1 <= N <= M",
    "K >= 2",
    "L > 0",
    "B > 0",
    "lam > 0",
    "0 < lr_share <= 1",
    "0 < glr_share <= 1",
    "0 <= past <= 1",
]


def setting(case: Case) -> Setting:
    """Steps as shares of what Theorem 4.10 allows; σ's in units of B, the earlier gradient in units of (K−1)B."""
    K, B = case["K"], case["B"]
    return Setting(
        case["M"],
        case["N"],
        K,
        case["E"],
        case["L"],
        B,
        case["lam"],
        case["lr_share"] / (8 * case["E"] * case["L"]),
        case["glr_share"] / (K - 1),
        case["sigma_L"] * B,
        2 * case["sigma_G"] * B,
        2 * case["sigma_T"] * B,
        case["past"] * (K - 1) * B,
    )


@claim(
    "special/thm-4.10",
    at="Theorem 4.10, (9)",
    sense="<=",
    verdict="vacuous",
    why="Lemma 4.9, smoothness and Assumption 4.1 give ‖∇f_{1:K}(θ_K^t)‖ ≤ a + xB + B with a = ‖∇f_{1:K−1}(θ_K^0)‖ "
    "and x = γ_LEL/λ, at every t, trained or not. By Cauchy-Schwarz its square is at most (2 + 1/K)(a² + x²B² + KB²), "
    "and Ψ has (2 + 2/(K−1)) before the same sum. For K ≤ 3 it even exceeds the trivial K²B². So (9) holds at the "
    "start, after one round and under any updates of size B; T, σ_L, σ_G and σ_T decide nothing, and without drift of "
    "tasks it is not the bound of one stationary task. Two steps of the proof fail, (48) and (c_12), but nothing "
    "depends on them.",
    cases=st.fixed_dictionaries(SETTING),
    needs=ADMISSIBLE,
    repair="The term KB² is the anchor's pull λ(θ_K^0 − θ_K^t), as large as a gradient: it must be kept as a bias, "
    "not bounded by B. What SPECIAL finds is λ(θ − θ_K^0) = −γ_Gγ_L Σ_e ∇f_K, which does not contain f_{1:K−1}.",
)
def task_uniform_convergence(case: Case) -> Comparison:
    """The bound min_t E‖∇f_{1:K}(θ_K^t)‖² ≤ 2(1+λ)(f⁰ − f*)/((1 − 1/K)Eγ_Gγ_LT) + Ψ can be below what every model of
    every run meets anyway.

    Measured: Ψ, the bound for T = ∞. Claimed: the largest ‖∇f_{1:K}‖² that any run can have at any t.
    """
    s = setting(case)
    return Comparison(sum(special.residual(s).values()), special.reachable(s))


@claim(
    "special/cor-d.3",
    at="Corollary D.3, (24)",
    sense="<=",
    verdict="vacuous",
    why="Theorem 4.10 at N = M, where the sampling terms are zero; what makes it empty stays.",
    cases=st.fixed_dictionaries(SETTING).map(lambda c: c | {"N": c["M"]}),
    needs=[*ADMISSIBLE, "N == M"],
)
def full_participation(case: Case) -> Comparison:
    """With all clients (9) holds with Ψ′, and can be below what every model of every run meets anyway.

    Measured and claimed: as Theorem 4.10.
    """
    return task_uniform_convergence(case)


UNTRAINED = {k: SETTING[k] for k in ("K", "E", "B", "lam", "lr_share", "glr_share", "past")} | {
    "L": st.floats(0.01, 100.0),
    "T": st.integers(1, 60),
    "seed": st.integers(0, 999),
    "persist": st.sampled_from([0.0, 0.5, 1.0]),
    "centre": hundredths(-300, 300),
}


@claim(
    "special/thm-4.10-untrained",
    at="Theorem 4.10, (9), under arbitrary updates",
    sense="<=",
    verdict="holds",
    why="What special/thm-4.10 derives, on runs: the largest gradient over all rounds is within Ψ although the "
    "updates have nothing to do with any loss. Here σ_L = σ_G = σ_T = 0 and N = M, which makes Ψ smallest.",
    cases=st.fixed_dictionaries(UNTRAINED),
    needs=["K >= 2", "lam > 0", "L > 0", "B > 0", "0 < lr_share <= 1", "0 < glr_share <= 1", "0 <= past <= 1"],
)
def arbitrary_updates(case: Case) -> Comparison:
    """(9) holds without its first term at every round of a run whose updates are arbitrary vectors of size γ_LEB.

    Measured: max_t ‖∇f_{1:K}(θ^t)‖² for clipped quadratics; the updates are random signs or all point uphill.
    """
    s = setting({**case, "M": 2, "N": 2, "sigma_L": 0.0, "sigma_G": 0.0, "sigma_T": 0.0})
    earlier, current = Bowl(s.L, (-case["past"] * s.B / s.L,), s.B), Bowl(s.L, (case["centre"],), s.B)
    rng = np.random.default_rng(case["seed"])
    signs = np.where(rng.random(case["T"]) < case["persist"], 1.0, rng.choice([-1.0, 1.0], case["T"]))
    path = [0.0]
    for sign in signs:
        path.append(special.server_prox(path[-1] + sign * s.glr * s.lr * s.E * s.B, 0.0, s.lam))
    points = np.array(path)[:, None]
    slope = (s.K - 1) * earlier.grad(points) + current.grad(points)
    return Comparison(float(np.max(slope**2)), sum(special.residual(s).values()))


@claim(
    "special/thm-4.10-steps",
    at="Theorem 4.10, the condition γ_Gγ_L ≤ (1+λ)/(3EL)",
    sense="<=",
    verdict="holds",
    why="It need not be asked for: γ_G ≤ 1/(K−1) ≤ 1 and γ_L ≤ 1/(8EL) give γ_Gγ_L ≤ 1/(8EL), below (1+λ)/(3EL) for "
    "every λ ≥ 0. At the largest steps the first term of (9) is 16(1+λ)KL(f⁰ − f*)/T: more local steps E speed it up "
    "at given step sizes only, because the largest γ_L falls as 1/E.",
    cases=st.fixed_dictionaries(SETTING),
    needs=ADMISSIBLE,
)
def third_condition(case: Case) -> Comparison:
    """The third step-size condition follows from the first two.

    Measured: the largest γ_Gγ_L that the first two allow. Claimed: (1+λ)/(3EL).
    """
    E, L = case["E"], case["L"]
    return Comparison(1 / (8 * E * L * (case["K"] - 1)), (1 + case["lam"]) / (3 * E * L))


# --- Corollary 4.12 ---------------------------------------------------------------------------------------------------

FROZEN = {
    "N": st.integers(1, 2),
    "E": st.integers(1, 3),
    "L": st.floats(0.1, 10.0),
    "lam": st.floats(0.1, 10.0),
    "b": hundredths(1, 100),
    "B": st.floats(0.1, 10.0),
    "T": st.integers(64, 1000),
}


@claim(
    "special/cor-4.12",
    at="Corollary 4.12",
    sense="rate",
    verdict="refuted",
    why="With these steps γ_Gγ_LEB/λ, which by Lemma 4.9 is as far as the run can get, is √(NE/(KT)) B/((K−1)λL²): it "
    "tends to 0 with T. The gradient of f_{1:K} therefore stays what it is at the start and no rate in T is possible, "
    "unless θ_K^0 is stationary already. No proof is given; (9) has KB² and C beside the terms that vanish, and an "
    "O(·) in T does not cover them. (The introduction claims as much for the norm itself, not its square.) Read as "
    "the rate at which the bound (9) approaches its residual it is true in T, but the residual is above every "
    "gradient that can occur (special/thm-4.10).",
    cases=st.fixed_dictionaries(FROZEN),
    needs=["lam * L >= sqrt(N * E)", "2 * T >= 64 * lam**2", "b > 0", "B > 0"],
    path=[{"N": 1, "E": 1, "L": 1.0, "lam": 1.0, "b": 1.0, "B": 1.0, "T": T} for T in (32, 256, 2048, 16384)],
    repair="Steps that do not freeze the run still end where λ(θ − θ_K^0) = −γ_Gγ_L Σ_e ∇f_K: at best a rate towards "
    "that point.",
)
def convergence_rate(case: Case) -> Comparison:
    """With the corollary's steps min_t E‖∇f_{1:K}(θ_K^t)‖² = O(√(E/(NT))) if ‖∇f_{1:K−1}(θ_K^0)‖² ≤ C.

    Measured: min_{1≤t≤T} for K = 2 and two equal clients without noise: f_1 and f_2 are quadratics of curvature L with
    gradients clipped at B, centred at 0 and b; task 1 starts and stays at 0, so C = 0. Both conditions of Theorem 4.10
    hold.
    """
    lr, glr = special.corollary_steps(case["lam"], case["L"], case["E"], case["N"], 2, case["T"])
    B, L, theta, least = case["B"], case["L"], 0.0, math.inf
    for _ in range(case["T"]):
        local = theta
        for _ in range(case["E"]):
            local -= lr * min(max(L * (local - case["b"]), -B), B)
        theta = special.server_prox(theta + glr * (local - theta), 0.0, case["lam"])
        slope = min(max(L * theta, -B), B) + min(max(L * (theta - case["b"]), -B), B)
        least = min(least, slope**2)
    return Comparison(least, math.sqrt(case["E"] / (case["N"] * case["T"])))


CLIENTS = {"N": 1, "M": 1024, "K": 2, "E": 1, "L": 1.0, "lam": 16.0, "B": 1.0, "T": 10**8}


def _part_that_vanishes(case: Case, tasks: bool) -> float:
    """(9) less the terms without a step size, with or without the term of inter-task drift.

    σ_T = 2B, its largest; no noise, equal clients, f⁰ − f* = 0.01.
    """
    lr, glr = special.corollary_steps(case["lam"], case["L"], case["E"], case["N"], case["K"], case["T"])
    s = Setting(
        case["M"], case["N"], case["K"], case["E"], case["L"], case["B"], case["lam"], lr, glr, sigma_T=2 * case["B"]
    )
    assert special.admissible(s)
    parts = special.residual(s)
    left = sum(parts.values()) - parts["floor"] - (0.0 if tasks else parts["tasks"])
    return left + special.vanishing(s, 0.01, case["T"])


def _tasks_too(case: Case) -> Comparison:
    """With inter-task drift: a fall as 1/√N from N = 1 on."""
    alone = _part_that_vanishes({**case, "N": 1}, tasks=True)
    return Comparison(_part_that_vanishes(case, tasks=True), alone / math.sqrt(case["N"]))


@claim(
    "special/cor-4.12-clients",
    at="Corollary 4.12; Remark 4.13: the rate improves as 1/√N",
    sense="rate",
    verdict="gap",
    why="True of every term of (9) that vanishes with T but one, if inter-task drift is kept apart, as the "
    "introduction does. The one is (K−1)²E/K · 3γ_Gγ_LLσ_T²/(2(1+λ)): γ_G grows as √N and nothing divides by N, so it "
    "is of order √(NE/T) σ_T², N times the claimed order, and grows with every client. The first term, "
    "2(1+λ)K^{3/2}L²(f⁰ − f*)/√(NET), even gains from E.",
    needs=["lam * L >= sqrt(N * E)", "K * T >= 64 * lam**2", "N <= M"],
    path=[{**CLIENTS, "N": N} for N in (1, 4, 16, 64, 256)],
    step=_tasks_too,
    repair="O(√(E/(NT)) + √(NE/T) σ_T²), beside the terms that do not vanish",
)
def speedup(case: Case) -> Comparison:
    """Under the corollary's steps what vanishes with T in (9), inter-task drift apart, is O(√(E/(NT))), in N too.

    Measured: that part without the term of inter-task drift σ_T. Step: with it, against a fall as 1/√N.
    """
    return Comparison(_part_that_vanishes(case, tasks=False), math.sqrt(case["E"] / (case["N"] * case["T"])))


def _smallest_constant(case: Case) -> Comparison:
    """γ_G with L as it is."""
    return _server_step(case, case["L"])


def _server_step(case: Case, L: float) -> Comparison:
    _, glr = special.corollary_steps(case["lam"], L, case["E"], case["N"], case["K"], case["T"])
    return Comparison(glr, 1 / (case["K"] - 1))


@claim(
    "special/cor-4.12-steps",
    at="Corollary 4.12, γ_G against Theorem 4.10",
    sense="<=",
    verdict="gap",
    why="γ_G = √(NE)/((K−1)λL) meets γ_G ≤ 1/(K−1) only if λL ≥ √(NE), whatever T is, and the corollary does not say "
    "so. It can be arranged, for a function that is L-smooth is so with any larger L, but then the constant L² of the "
    "rate grows as NE/λ². For the N = 4 and E = 5 of the experiments and λ = 0.25 it takes L ≥ 17.9; for λ = 0.05, L "
    "≥ 89.",
    cases=st.fixed_dictionaries(
        {
            "N": st.integers(1, 8),
            "E": st.integers(1, 10),
            "K": st.integers(2, 6),
            "L": st.floats(0.1, 100.0),
            "lam": st.floats(0.01, 10.0),
            "T": st.integers(1, 10**6),
        }
    ),
    needs=["K * T >= 64 * lam**2", "L > 0", "lam > 0"],
    step=_smallest_constant,
    repair="Ask for λL ≥ √(NE), or move the factor into γ_L: γ_G = 1/(K−1), γ_L = √N/(√(KTE) L²) for T large enough.",
)
def steps_of_the_corollary(case: Case) -> Comparison:
    """The steps of Corollary 4.12 meet Theorem 4.10's condition γ_G ≤ 1/(K−1) for a constant L of smoothness.

    Measured: γ_G for the given L, raised to √(NE)/λ where it is smaller. Step: for the given L.
    """
    return _server_step(case, max(case["L"], math.sqrt(case["N"] * case["E"]) / case["lam"]))
