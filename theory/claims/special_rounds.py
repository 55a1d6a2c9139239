"""`special`: the algorithm, (3)-(6) and (25)-(27), SPECIAL-C, and the drift of Lemma 4.9 with its proof."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from ..bounds import special
from .ledger import Case, Comparison, claim
from .special_worlds import Bowl, Loss, Paths, Rule, local_steps, one_round, run
from .worlds import hundredths

POSITIVE = st.floats(0.01, 100.0)
WEIGHT = st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.4, 1.0, 10.0]) | st.floats(0.01, 100.0)
POINT = hundredths(-300, 300)
SHARE = hundredths(1, 100)
SIGNED = hundredths(-100, 100)


# --- The algorithm ----------------------------------------------------------------------------------------------------

LIMIT = {
    "h1": hundredths(1, 100),
    "h2": hundredths(1, 100),
    "b1": hundredths(1, 300),
    "b2": hundredths(1, 300),
    "lam": st.floats(0.01, 10.0),
    "lr": SHARE,
    "glr": SHARE,
    "E": st.integers(1, 5),
}
QUADRATICS = ["0 < h1 <= 1", "0 < h2 <= 1", "b1 > 0", "b2 > 0", "lam > 0", "0 < lr <= 1", "0 < glr <= 1"]


def _limit(case: Case) -> float:
    """Where SPECIAL converges on two quadratic clients from the anchor 0: the fixed point of its affine round."""
    losses = [Bowl(case["h1"], (case["b1"],), math.inf), Bowl(case["h2"], (case["b2"],), math.inf)]
    rule = Rule(case["lr"], case["glr"], case["E"], 2, case["lam"])
    at0, at1 = (one_round(losses, Paths(np.array([[x]]), np.ones(1)), np.zeros(1), rule) for x in (0.0, 1.0))
    start, end = float(at0.theta[0, 0]), float(at1.theta[0, 0])
    return start / (1 - (end - start))


def _own_surrogate(case: Case) -> Comparison:
    """The minimiser of the mean of ĥ_m(θ − b_m)²/2 plus λ/(2γ_G)‖θ − θ_{K−1}‖², with ĥ = 1 − (1 − γ_L h)^E."""
    seen = [1 - (1 - case["lr"] * case[h]) ** case["E"] for h in ("h1", "h2")]
    pull, weight = seen[0] * case["b1"] + seen[1] * case["b2"], seen[0] + seen[1]
    return Comparison(_limit(case), pull / (weight + 2 * case["lam"] / case["glr"]))


@claim(
    "special/eq-3",
    at="(3) against Algorithm 1",
    sense="==",
    verdict="holds",
    why="With the λ of (3) read as a coefficient of its own and for one local step. The λ of the round (6) is not "
    "multiplied by the step: it stops at the minimiser of (3) with λ/(2γ_Gγ_L) for λ, 500λ for γ_L = 0.001 and γ_G = "
    "1. For E > 1 and clients of different curvature the current task's loss is reweighted as well, as in FedAvg. "
    "f_{1:K−1}, written on the left of (3), enters nowhere: the anchor stands for it.",
    cases=st.fixed_dictionaries(LIMIT),
    needs=QUADRATICS,
    repair="For quadratics and any E: the minimiser of mean ĥ_m‖θ − b_m‖²/2 + λ/(2γ_G) ‖θ − θ_{K−1}‖², ĥ = 1 − (1 − "
    "γ_L h)^E; for E = 1 that is f_K + λ/(2γ_Gγ_L) ‖θ − θ_{K−1}‖².",
    repaired=_own_surrogate,
)
def surrogate(case: Case) -> Comparison:
    """SPECIAL optimises the surrogate f_K(θ) + λ′‖θ − θ_{K−1}‖², a task's loss with an anchor.

    Measured: the fixed point of its round for two quadratic clients, anchor 0, E = 1. Claimed: the minimiser for
    λ′ = λ/(2γ_Gγ_L). Corrected: any E.
    """
    pull, weight = case["h1"] * case["b1"] + case["h2"] * case["b2"], case["h1"] + case["h2"]
    own = case["lam"] / (2 * case["glr"] * case["lr"])
    return Comparison(_limit({**case, "E": 1}), pull / (weight + 4 * own))


def _client_limit(case: Case, weight: float) -> float:
    """The fixed point of u → prox(u − γ_L h (u − b)) with anchor 0."""
    at0, at1 = (special.client_prox(x - case["lr"] * case["h1"] * (x - case["b1"]), 0.0, weight) for x in (0.0, 1.0))
    return at0 / (1 - (at1 - at0))


def _scaled_prox(case: Case) -> Comparison:
    """With prox of weight γ_Lλ: the minimiser of (4) with λ itself."""
    return Comparison(_client_limit(case, case["lr"] * case["lam"]), _client_objective(case, case["lam"]))


def _client_objective(case: Case, weight: float) -> float:
    return float(case["h1"] * case["b1"] / (case["h1"] + 2 * weight))


@claim(
    "special/eq-4",
    at="(4) against Appendix F.5 and Algorithm 2",
    sense="==",
    verdict="holds",
    why="With the λ of (4) read as a coefficient of its own: (4) is written for such methods in general. The proximal "
    "map has weight λ after a gradient step of size γ_L, so its fixed point minimises f + (λ/γ_L)‖θ − θ_{i−1}‖², for "
    "γ_L = 0.001 an anchor a thousand times λ. (The display of F.5 has γ_G where Algorithm 2 has γ_L.)",
    cases=st.fixed_dictionaries({k: LIMIT[k] for k in ("h1", "b1", "lam", "lr")}),
    needs=["0 < h1 <= 1", "b1 > 0", "lam > 0", "0 < lr <= 1"],
    repair="prox with weight γ_Lλ, as in proximal gradient descent, for the λ of (4) to be that of SPECIAL-C",
    repaired=_scaled_prox,
)
def client_objective(case: Case) -> Comparison:
    """The local iteration of SPECIAL-C solves f_{i,m}(θ) + λ′‖θ − θ_{i−1}‖², which is (4).

    Measured: the fixed point of the iteration for a quadratic, anchor 0. Claimed: the minimiser for λ′ = λ/γ_L.
    Corrected: with the scaled map, for λ′ = λ.
    """
    return Comparison(_client_limit(case, case["lam"]), _client_objective(case, case["lam"] / case["lr"]))


PROX = {"x": POINT, "anchor": POINT, "u": POINT, "lam": WEIGHT}


@claim(
    "special/eq-6",
    at="(5) and (6)",
    sense="<=",
    verdict="holds",
    why="(5) has weights 1 and λ, so its minimiser has 1/(1+λ) and λ/(1+λ). λ = 0 leaves FedAvg with server step γ_G.",
    cases=st.fixed_dictionaries(PROX),
    needs=["lam >= 0", "x != anchor"],
)
def server_blend(case: Case) -> Comparison:
    """(6) minimises (5): measured, the objective at (6); claimed, the objective at any other point."""
    x, a, lam = case["x"], case["anchor"], case["lam"]
    best = special.server_prox(x, a, lam)
    return Comparison((best - x) ** 2 + lam * (best - a) ** 2, (case["u"] - x) ** 2 + lam * (case["u"] - a) ** 2)


@claim(
    "special/prox",
    at="Appendix F.5, prox_λ",
    sense="<=",
    verdict="holds",
    why="The ½ stands before the first term only, so the minimiser is (x + 2λθ_{i−1})/(1 + 2λ) and not the blend (6): "
    "the λ of SPECIAL-C is worth two of SPECIAL's, and it acts in every local step. Equal λ are not equal anchors.",
    cases=st.fixed_dictionaries(PROX),
    needs=["lam >= 0", "x != anchor"],
)
def client_blend(case: Case) -> Comparison:
    """SPECIAL-C's map is (x + 2λθ_{i−1})/(1 + 2λ): measured, its objective there; claimed, at any other point."""
    x, a, lam = case["x"], case["anchor"], case["lam"]
    best = special.client_prox(x, a, lam)
    return Comparison(
        (best - x) ** 2 / 2 + lam * (best - a) ** 2, (case["u"] - x) ** 2 / 2 + lam * (case["u"] - a) ** 2
    )


def _summed_moves(case: Case) -> Comparison:
    """θ^E − θ^0 as −Σ(γ_L g + 2λ(θ^{e+1} − θ_{i−1})), which the optimality of each proximal step gives."""
    path, slopes = _client_path(case)
    pulls = [2 * case["lam"] * after for after in path[1:]]
    return Comparison(path[0] - path[-1], case["lr"] * sum(slopes) + sum(pulls))


def _client_path(case: Case) -> tuple[list[float], list[float]]:
    """SPECIAL-C's local steps on a linear loss of slope ``b1``, anchor 0, from the start ``h1``."""
    path, slopes = [case["h1"]], []
    for _ in range(case["E"]):
        slopes.append(case["b1"])
        path.append(special.client_prox(path[-1] - case["lr"] * slopes[-1], 0.0, case["lam"]))
    return path, slopes


@claim(
    "special/alg-2",
    at="Algorithm 2, line 12",
    sense="==",
    verdict="misprint",
    why="True of task 1 and copied from Algorithm 1. From task 2 on the local step is a proximal one and the update "
    "holds its pull as well. Line 16 averages over all M clients where only N were sampled: 1/N over the sampled, as "
    "in Algorithm 1.",
    cases=st.fixed_dictionaries({k: LIMIT[k] for k in ("h1", "b1", "lam", "lr", "E")}),
    needs=["h1 > 0", "b1 > 0", "lam > 0", "lr > 0"],
    repair="Δ = θ^{t,E} − θ^{t,0} = −Σ_e (γ_L g^{t,e} + 2λ(θ^{t,e+1} − θ_{i−1})) for i ≥ 2, averaged over the sampled",
    repaired=_summed_moves,
)
def client_update(case: Case) -> Comparison:
    """The update θ^{t,E} − θ^{t,0} of SPECIAL-C is −γ_L Σ_e g^{t,e}.

    Measured and claimed: their negatives, on a linear loss in a task after the first.
    """
    path, slopes = _client_path(case)
    return Comparison(path[0] - path[-1], case["lr"] * sum(slopes))


MOVES = {"seed": st.integers(0, 999), "t": st.integers(1, 12), "lam": WEIGHT, "glr": SHARE}


def _moves(case: Case) -> tuple[list[float], list[float]]:
    """θ^0 = 0, θ^1, ... by (6), under positive aggregated updates γ_G Δ^τ."""
    updates = [float(x) for x in case["glr"] * np.random.default_rng(case["seed"]).uniform(0.1, 2.0, size=case["t"])]
    path = [0.0]
    for update in updates:
        path.append(special.server_prox(path[-1] + update, 0.0, case["lam"]))
    return path, updates


@claim(
    "special/eq-25",
    at="(25)",
    sense="==",
    verdict="holds",
    why="(6) rearranged.",
    cases=st.fixed_dictionaries(MOVES),
    needs=["lam > 0", "glr > 0"],
)
def server_move(case: Case) -> Comparison:
    """θ^{t+1} − θ^t = γ_GΔ^t/(1+λ) + λ(θ^0 − θ^t)/(1+λ). Compared: both sides plus θ^t, θ^0 = 0."""
    path, updates = _moves(case)
    lam, before = case["lam"], path[-2]
    return Comparison(path[-1], before + updates[-1] / (1 + lam) - lam * before / (1 + lam))


@claim(
    "special/eq-26",
    at="(26)",
    sense="==",
    verdict="holds",
    why="(25) less θ^0 − θ^t.",
    cases=st.fixed_dictionaries(MOVES),
    needs=["lam > 0", "glr > 0"],
)
def distance_from_anchor(case: Case) -> Comparison:
    """θ^{t+1} − θ^0 = γ_GΔ^t/(1+λ) + (θ^t − θ^0)/(1+λ)."""
    path, updates = _moves(case)
    return Comparison(path[-1], (updates[-1] + path[-2]) / (1 + case["lam"]))


def _unrolled(case: Case) -> Comparison:
    """Exponent t − τ: the last update is damped once, the first t times."""
    path, updates = _moves(case)
    t = case["t"]
    return Comparison(path[-1], sum(u / (1 + case["lam"]) ** (t - tau) for tau, u in enumerate(updates)))


@claim(
    "special/eq-27",
    at="(27), used in (28)-(34) and (37)",
    sense="==",
    verdict="misprint",
    why="(26) damps what is already there, so the oldest update is damped most. The exponent printed damps the newest "
    "most. The two agree only for t = 1 or equal updates. What follows uses the sums of the weights and of their "
    "squares alone, which are the same.",
    cases=st.fixed_dictionaries(MOVES),
    needs=["lam > 0", "glr > 0"],
    repair="(1/(1+λ))^{t−τ} in the place of (1/(1+λ))^{τ+1}",
    repaired=_unrolled,
)
def unrolled_recursion(case: Case) -> Comparison:
    """θ^t − θ^0 = Σ_{τ<t} (1/(1+λ))^{τ+1} γ_G Δ^τ. Measured: by (6), round by round."""
    path, updates = _moves(case)
    return Comparison(path[-1], sum(u / (1 + case["lam"]) ** (tau + 1) for tau, u in enumerate(updates)))


# --- Lemma 4.9 --------------------------------------------------------------------------------------------------------

RUN = {
    "M": st.integers(2, 3),
    "N": st.integers(1, 2),
    "E": st.integers(1, 2),
    "t": st.integers(1, 3),
    "lam": WEIGHT,
    "L": st.floats(0.1, 10.0),
    "lr": st.floats(0.001, 2.0),
    "glr": st.floats(0.01, 2.0),
    "clip": st.floats(0.1, 10.0),
    "sigma": st.sampled_from([0.0, 0.1, 1.0]),
    **{f"h{m}": SIGNED for m in (1, 2, 3)},
    **{f"b{m}": POINT | st.sampled_from([-1e4, 1e4]) for m in (1, 2, 3)},
}
RUNNING = ["lam > 0", "lr > 0", "glr > 0", "clip > 0", "sigma >= 0", "L > 0", "N * E * t <= 8"]


def clients(case: Case) -> list[Loss]:
    """One-dimensional clients of curvature at most L and gradient at most ``clip``, domes among them."""
    return [Bowl(case[f"h{m}"] * case["L"], (case[f"b{m}"],), case["clip"]) for m in range(1, case["M"] + 1)]


def rule_of(case: Case) -> Rule:
    return Rule(case["lr"], case["glr"], case["E"], case["N"], case["lam"], case["sigma"])


def _bound(case: Case, t: float = math.inf) -> float:
    """B = clip + σ, as every stochastic gradient obeys."""
    return special.drift(case["lr"], case["glr"], case["E"], case["clip"] + case["sigma"], case["lam"], t)


@claim(
    "special/lemma-4.9",
    at="Lemma 4.9, (8)",
    sense="<=",
    verdict="holds",
    why="Every update is at most γ_Gγ_LEB and the damping is geometric; it holds on every path and not only in the "
    "mean, and (1 − (1+λ)^{−t})² before the bound is sharp: constant gradients reach it. So it is tight for λt ≫ 1, "
    "while for λ → 0 at fixed t the drift stays at tγ_Gγ_LEB and the printed bound grows without limit.",
    cases=st.fixed_dictionaries(RUN),
    needs=RUNNING,
    repair="γ_Gγ_LEB (1 − (1+λ)^{−t})/λ for the distance, by which λ = 0 is covered as well",
    repaired=lambda case: Comparison(_distance2(case), _bound(case, case["t"]) ** 2),
)
def uniform_drift(case: Case) -> Comparison:
    """E‖θ_i^t − θ_i^0‖² ≤ γ_G²γ_L²E²B²/λ² for every t.

    Measured: the left side for clients with clipped gradients and two-point noise, every sample and noise enumerated.
    """
    return Comparison(_distance2(case), _bound(case) ** 2)


def _distance2(case: Case) -> float:
    last = run(clients(case), (0.0,), case["t"], rule_of(case))[-1]
    return float(last.mean(last.theta[:, 0] ** 2))


@claim(
    "special/lemma-4.9-first-task",
    at="Lemma 4.9 for i = 1; Section 3, where the first task is aggregated without the anchor",
    sense="<=",
    verdict="misprint",
    why="The paper says both: Section 3 leaves task 1 unblended, Algorithm 1, line 18, blends every task, with θ_0 as "
    "the anchor of the first. By the algorithm as printed the lemma covers i = 1. By Section 3's sentence (λ = 0 in "
    "task 1) nothing bounds the drift there: it grows as tγ_Gγ_LEB. One of the two is a slip.",
    cases=st.fixed_dictionaries(RUN),
    needs=RUNNING,
    repair="i ≥ 2 in the lemma, or all tasks blended as in Algorithm 1",
    repaired=uniform_drift,
)
def first_task_drift(case: Case) -> Comparison:
    """(8) also holds for the first task, whose rounds end without the proximal step."""
    last = run(clients(case), (0.0,), case["t"], rule_of(case), anchored=False)[-1]
    return Comparison(float(last.mean(last.theta[:, 0] ** 2)), _bound(case) ** 2)


def _squared_after_the_mean(case: Case) -> Comparison:
    """E‖X‖² ≤ (E‖X‖)², by which a bound on E‖X‖ is squared."""
    last = run(clients(case), (0.0,), case["t"], rule_of(case))[-1]
    return Comparison(float(last.mean(last.theta[:, 0] ** 2)), float(last.mean(np.abs(last.theta[:, 0]))) ** 2)


@claim(
    "special/eq-38",
    at="(37) to (38)",
    sense="<=",
    verdict="gap",
    why="(37) bounds E‖θ^t − θ^0‖ and (38) squares it, which is Jensen's inequality the wrong way round. The bound "
    "survives because (b_1) bounds the norm on every path: the expectation should not have been taken.",
    cases=st.fixed_dictionaries(RUN),
    needs=RUNNING,
    step=_squared_after_the_mean,
    repair="Bound ‖θ^t − θ^0‖ itself by γ_Gγ_LEB/λ, then square, then take the mean.",
)
def squared_drift(case: Case) -> Comparison:
    """(38) follows from (37). Statement: (38). Step: E‖X‖² ≤ (E‖X‖)² for X = θ^t − θ^0."""
    return uniform_drift(case)


def _summed_slopes(case: Case, epochs: int) -> float:
    """γ_Gγ_L/N Σ_m P(m sampled) Σ_e |∇f_m(θ^{0,e})| over the first ``epochs`` local steps, without noise."""
    rule = Rule(case["lr"], case["glr"], case["E"], 1, case["lam"])
    steps = [local_steps(loss, np.zeros((1, 1)), rule)[1] for loss in clients(case)]
    return case["glr"] * case["lr"] / case["M"] * sum(float(np.abs(g).sum()) for s in steps for g in s[:epochs])


@claim(
    "special/eq-37",
    at="(37), fourth line",
    sense="<=",
    verdict="misprint",
    why="The sum over the E local steps is lost between the third line and the fourth, though the last line has it "
    "again as E. Only for E = 1 is the line right.",
    cases=st.fixed_dictionaries(RUN),
    needs=[*RUNNING, "abs(h1) + abs(h2) > 0"],
    repair="Σ_m P{m ∈ S} Σ_e ‖∇f_{i,m}(θ^{τ,e}, ξ)‖",
    repaired=lambda case: Comparison(
        _summed_slopes(case, case["E"]), case["glr"] * case["lr"] * case["E"] * case["clip"]
    ),
)
def lost_sum(case: Case) -> Comparison:
    """E[γ_Gγ_L/N Σ_{m∈S} Σ_e ‖g‖] is at most γ_Gγ_L/N Σ_m P{m ∈ S}‖g‖, with one local step's gradient.

    Measured: the first round's left side. Claimed: the right side with the first step's gradients. Corrected: the last
    line, γ_Gγ_LEB.
    """
    return Comparison(_summed_slopes(case, case["E"]), _summed_slopes(case, 1))
