"""`cflag`: convergence on past and current data together (Lemma 3), of the forgetting term (Lemmas 4 and 18) and on the
past (Theorem 5, Corollary 17), each on the iterates that C-FLAG makes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from ..bounds import cflag as bounds
from .cflag_worlds import Array, Samples, length, local_steps, mean_grad, mean_value, order, samples, shares
from .ledger import Case, Comparison, claim
from .worlds import hundredths

SEED = st.integers(0, 999)


# --- Lemma 3 ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Union:
    """Memory (the first ``kept`` samples of every client) and current data, with the start and the orders of a case."""

    data: Samples
    kept: int
    p: Array
    x: Array
    rng: np.random.Generator

    @property
    def memory(self) -> Samples:
        return self.data.pick(slice(self.kept))

    @property
    def current(self) -> Samples:
        return self.data.pick(slice(self.kept, None))


def _union(case: Case) -> Union:
    rng = np.random.default_rng(case["seed"])
    data = samples(rng, case["N"], case["kept"] + case["new"], 1, case["L"], case["kind"])
    data.centre[:, : case["kept"]] += case["apart"]
    return Union(data, case["kept"], shares(rng, case["N"]), rng.normal(size=1), rng)


def _next(here: Union, x: Array, rate: float, E: int, on_union: bool) -> Array:
    """A round with α = β = ``rate``: by (25), memory once and E local steps on current data, or by (67)-(68)."""
    local = here.data if on_union else here.current
    n = local.centre.shape[1]
    picks = order(here.rng, len(here.p), E, n, "random")
    path = local_steps(x, local, here.p, rate, picks)
    once = path.grad if on_union else mean_grad(here.memory, here.p, x)
    return x - rate * once - rate * here.p @ path.sums


def _lemma_3(case: Case, on_union: bool) -> Comparison:
    here, T, E = _union(case), case["T"], case["E"]
    rate, x, least = 1 / (30 * case["L"] * E), here.x, math.inf
    for _ in range(T):
        least = min(least, length(mean_grad(here.data, here.p, x)) ** 2)
        x = _next(here, x, rate, E, on_union)
    fall = mean_value(here.data, here.p, here.x) - mean_value(here.data, here.p, x)
    return Comparison(least, bounds.joint_gradient(case["L"], T, fall))


def _lemma_3_on_the_union(case: Case) -> Comparison:
    """For the iterates of (67)-(68)."""
    return _lemma_3(case, on_union=True)


UNION = st.fixed_dictionaries(
    {
        "N": st.integers(1, 2),
        "kept": st.integers(1, 3),
        "new": st.integers(1, 3),
        "E": st.integers(1, 4),
        "T": st.integers(1, 5),
        "L": st.floats(0.1, 10.0),
        "kind": st.sampled_from(["full", "quadratic", "huber", "kinked"]),
        "apart": hundredths(0, 1000),
        "seed": SEED,
    }
)


def _one_round(case: Case, on_union: bool) -> float:
    here, E = _union(case), case["E"]
    return length(_next(here, here.x, 1 / (30 * case["L"] * E), E, on_union) - here.x)


def _algorithm_reduces(case: Case) -> Comparison:
    """The length of a round of Algorithm 1 by (25), against one of (67)-(68), both with α = β."""
    return Comparison(_one_round(case, False), _one_round(case, True))


@claim(
    "cflag/eq-68",
    at='(67)-(68), "the update rule reduces into"',
    sense="==",
    verdict="gap",
    why="If the rules (4) and (23) are applied to h̃, the loss on memory and current data, in place of both f† and g, "
    "(67)-(68) is what comes out. Algorithm 1 does something else: its local steps are on current data only, and the "
    "memory comes in once a round. A round of it is a round of (67)-(68) if memory and current data have the same "
    "gradients, or if E = 1 and |M| = |C|; Lemma 3 needs it always.",
    cases=UNION,
    needs=["E >= 1"],
    step=_algorithm_reduces,
)
def applied_to_the_union(case: Case) -> Comparison:
    """With α = β, local steps on h̃ and one more gradient of h̃ at the server move the model by (68).

    Measured: the length of the step, from the iterates of (67) averaged as in (23). Claimed: from the gradients, (68).
    Step: a round of Algorithm 1 with α = β is such a round.
    """
    here, E = _union(case), case["E"]
    rate = 1 / (30 * case["L"] * E)
    picks = order(here.rng, len(here.p), E, here.data.centre.shape[1], "random")
    path = local_steps(here.x, here.data, here.p, rate, picks)
    by_iterates = here.p @ path.local[:, -1] - rate * path.grad - here.x
    return Comparison(length(by_iterates), length(rate * path.grad + rate * here.p @ path.sums))


@claim(
    "cflag/lemma-3",
    at="Lemma 3, (11)",
    sense="<=",
    verdict="refuted",
    why="Of C-FLAG's iterates, of which the text around it speaks. With α = β C-FLAG comes to rest where ∇f† + Σ_k ∇g' "
    "= 0, roughly ∇f† + E∇g = 0, and ∇h̃ weighs the two by |M| and |C|: for two quadratic tasks of equal size and E = "
    "2, ‖∇h̃‖ stays at L/6 times the distance of their optima. Defining h̃ as (f† + E g)/(1 + E) doesn't help: local "
    "steps on g alone move the point of rest, and ∇h̃ stays at ∇g/180 for E = 2. The proof is about another method, "
    "(67)-(68) (see eq-68), and for that the bound is true.",
    cases=UNION,
    needs=["E >= 1", "apart >= 0"],
    repair="for local steps on memory and current data together, (67)-(68)",
    repaired=_lemma_3_on_the_union,
)
def stationary_on_the_union(case: Case) -> Comparison:
    """With α = β = 1/(30LE), min_t ‖∇h̃(x_t)‖² ≤ (60L/T)(h̃(x_0) − h̃(x_T)), h̃ the mean loss on memory and current
    data.

    Measured: the least ‖∇h̃‖² over T rounds of C-FLAG with delayed gradients; every sample L-smooth. Claimed: (11).
    """
    return _lemma_3(case, on_union=False)


@dataclass(frozen=True)
class Tasks:
    """Two quadratic tasks of curvature 1 in one dimension, past at 0 and current at 1, one client, one sample each."""

    alpha: float
    beta: float
    E: int

    def step(self, x: float) -> float:
        y, S = x, 0.0
        for _ in range(self.E):
            S, y = S + (y - 1), y - self.beta * (y - 1)
        return x - self.alpha * x - self.beta * S

    def union_step(self, x: float) -> float:
        y, S = x, x - 0.5
        for _ in range(self.E):
            S, y = S + (y - 0.5), y - self.beta * (y - 0.5)
        return x - self.beta * S


@claim(
    "cflag/sec-4-current",
    at="below Lemma 3: convergence on the current task is evident from C ⊂ M ∪ C",
    sense="rate",
    verdict="refuted",
    why="∇h̃ → 0 leaves ∇g = −(|M|/|C|)∇f†, which vanishes only if memory and current data share a stationary point. A "
    "subset of the data is not at its optimum because the whole is. What does follow is (75), ‖∇g‖² ≤ 2‖∇h̃‖² + 2ω², "
    "where ω does not fall with T.",
    path=[{"T": T, "E": 2} for T in (100, 400, 1600, 6400)],
    needs=["T >= 1", "E >= 1"],
)
def stationary_on_the_current_task(case: Case) -> Comparison:
    """Convergence on memory and current data together, at the rate 1/T, gives the same on the current task.

    Measured: min_t ‖∇g(x_t)‖² over T rounds of (67)-(68), the method for which Lemma 3 is true, with α = β = 1/(30LE)
    on two tasks at distance 1. Claimed: 1/T.
    """
    tasks, x, least = Tasks(0.0, 1 / (30 * case["E"]), case["E"]), 0.0, math.inf
    for _ in range(case["T"]):
        least, x = min(least, (x - 1) ** 2), tasks.union_step(x)
    return Comparison(least, 1 / case["T"])


def _theorem_5_rates(case: Case) -> tuple[list[float], float]:
    """C-FLAG's iterates on two tasks at distance 1 with α = 1/(L(1 + m)), L = 1, β = c/√T; and 1/√T."""
    tasks, x = Tasks(1 / (1 + case["m"]), case["c"] / math.sqrt(case["T"]), case["E"]), case["start"]
    seen = []
    for _ in range(case["T"]):
        seen.append(x)
        x = tasks.step(x)
    return seen, bounds.least_mean_past_rate(case["T"])


def _stationary_for_h(case: Case) -> Comparison:
    """min_t ‖∇h(x_t)‖² for h = (f + g)/2."""
    seen, claimed = _theorem_5_rates(case)
    return Comparison(min((x - 0.5) ** 2 for x in seen), claimed)


@claim(
    "cflag/sec-4-problem",
    at="below Theorem 5: the rate for the proposed CFL problem; Section 1, first contribution",
    sense="rate",
    verdict="gap",
    why="Read as a summary of Theorem 5, a stationary point of the past's loss f, it is as true as that (see thm-5 for "
    "when). It does not follow that the point is stationary for the problem proposed, h of (2): α fixed and β < c/√T "
    "keep x_t within O(1/√T) of the past's optimum, and ∇h keeps the current task's share of ∇g. Lemma 3, on h̃, has "
    "other rates.",
    path=[{"T": T, "E": 2, "c": 0.25, "m": 1.5, "start": 1.0} for T in (16, 100, 900, 6400)],
    needs=["T >= 1", "c > 0", "m > 0"],
    step=_stationary_for_h,
    repair='say "a stationary point of the past\'s loss"',
)
def stationary_for_the_problem(case: Case) -> Comparison:
    """C-FLAG with the rates of Theorem 5 reaches a stationary point at the rate 1/√T.

    Measured: min_t ‖∇f(x_t)‖² for a past and a current quadratic task of equal size at distance 1, from the current
    task's optimum, the whole past in memory. Claimed: 1/√T. Step: the same of ∇h, from the past's optimum.
    """
    seen, claimed = _theorem_5_rates(case)
    return Comparison(min(x**2 for x in seen), claimed)


# --- Lemma 4 ----------------------------------------------------------------------------------------------------------


def _forgetting_run(case: Case) -> dict[str, Array]:
    """C-FLAG on one client whose past flattens out, f = (1 + x)^(−s)/s for x ≥ 0, current task (x + 1)²/2, from x = 0.

    The past has two samples, (1 ± q)f, one of them in memory. Rounds × draws of the memory.
    """
    q, s, T, E = case["q"], case["s"], case["T"], case["E"]
    L = (1 + q) * (1 + s)
    alpha, beta = case["alphaL"] / L, case["c"] / (L * E * math.sqrt(T))
    scale = np.array([1 + q, 1 - q])
    x = np.zeros(2)
    xs, Gammas = [x], []
    for _ in range(T):
        F, y, S = -scale * (1 + x) ** (-1 - s), x, np.zeros(2)
        for _ in range(E):
            S, y = S + y + 1, y - beta * (y + 1)
        Gammas.append(L / 2 * beta**2 * S**2 - beta * (1 - L * alpha) * F * S)
        x = x - alpha * F - beta * S
        xs.append(x)
    return {"x": np.stack(xs), "Gamma": np.stack(Gammas), "scale": scale, "beta": np.array(beta), "L": np.array(L)}


def _descent_of_the_union(case: Case) -> Comparison:
    """(161), step (b): ‖∇h̃(x_t)‖² ≤ (h̃(x_t) − h̃(x_{t+1}))/Z on C-FLAG's iterates, one memory sample and one current."""
    run, s = _forgetting_run(case), case["s"]
    x, scale = run["x"], run["scale"]
    grad = (x + 1 - scale * (1 + x) ** (-1 - s)) / 2
    value = (scale * (1 + x) ** (-s) / s + (x + 1) ** 2 / 2) / 2
    Z = bounds.per_fall(float(run["L"]), case["E"], float(run["beta"]))
    left, right = grad[:-1] ** 2, (value[:-1] - value[1:]) / Z
    t, draw = np.unravel_index(int(np.argmax(left - right)), left.shape)
    return Comparison(float(left[t, draw]), float(right[t, draw]))


@claim(
    "cflag/lemma-4",
    at="Lemma 4, (148)-(167)",
    sense="rate",
    verdict="gap",
    why="Step (b) of (161) takes the descent of h̃ from (70), which is about (67)-(68) with α = β; C-FLAG with α fixed "
    "and β = c/√T raises h̃ while it follows the past. The order is right all the same if every sample, memory's "
    "included, is L-smooth, αL < 2 and losses are bounded below: x descends αf† + βEg, hence β‖∇g‖² stays bounded and "
    "so does √T times the mean of Γ. A past that flattens out like x^(−s) comes near it for small s, "
    "T^(−(1+s)/(2+s)); with ‖∇g‖ bounded it is 1/T. Taken literally (f_i smooth, the memory's loss not) α < 2/(L(1 + "
    "m)) lets the memory's own gradient descent diverge: a memory of curvature 1.41L has m = 0.17 and the factor 1 − "
    "1.41αL = −1.40 at αL = 1.7. With g unbounded below, Γ can grow like exp(√T).",
    path=[{"T": T, "q": 0.4, "s": 0.1, "E": 2, "alphaL": 0.8, "c": 0.25} for T in (100, 400, 1600, 6400)],
    needs=["0 <= q < 1", "0 < s <= 1", "0 < alphaL < 2 / (1 + q**2)", "0 < c <= sqrt(T) / 12"],
    step=_descent_of_the_union,
)
def mean_forgetting(case: Case) -> Comparison:
    """With α fixed and β < c/√T, the mean of the forgetting term E Γ(t) over T rounds is O(1/T + 1/√T).

    Measured: the mean of Γ over rounds and draws of the memory, exactly, for a past that flattens out and a current
    task that pulls back. Claimed: 1/T + 1/√T.
    """
    return Comparison(float(np.mean(_forgetting_run(case)["Gamma"])), 1 / case["T"] + 1 / math.sqrt(case["T"]))


# --- Theorem 5, Corollary 17 ------------------------------------------------------------------------------------------


def _second(x: Array) -> Array:
    """∇f_2: −x up to 1, then −1 up to 2, then rising to 1: a loss bounded below with its past optimum not at 0."""
    size = np.abs(x)
    return np.sign(x) * np.where(size < 1, -size, np.clip(size - 3, -1, 1))


def _least_past(case: Case) -> float:
    """min_t E‖∇f(x_t)‖² for two clients, f_1' = clip(3x, ±3), f_2' as above, each sample (1 ± q) times as steep.

    Every client keeps one of its two samples. f' = (f_1' + f_2')/2 vanishes at 0 only; (28) has |f_i'| ≤ 3|f'|.
    """
    q, T, E = case["q"], case["T"], case["E"]
    signs = np.array([(a, b) for a in (1.0, -1.0) for b in (1.0, -1.0)])
    alpha, beta = 1 / (case["L"] * (1 + case["m"])), case["c"] / math.sqrt(T)
    x, least = np.full(4, 2.0), math.inf
    for _ in range(T):
        first, second = np.clip(3 * x, -3, 3), _second(x)
        least = min(least, float(np.mean(((first + second) / 2) ** 2)))
        F = ((1 + q * signs[:, 0]) * first + (1 + q * signs[:, 1]) * second) / 2
        y, S = x, np.zeros(4)
        for _ in range(E):
            slope = np.clip(y + 5, -1, 1)  # current task: Huber loss at −5, the same for both clients
            S, y = S + slope, y - beta * slope
        x = x - alpha * F - beta * S
    return least


WORLD_5 = {"q": 0.6, "L": 5.0, "m": 3.3, "E": 2, "c": 0.005}
NEEDS_5 = ["q < 1", "L >= 3 * (1 + q)", "m >= 9 * q**2", "0 < c <= 1 / (12 * L * E)", "m > 1"]


@claim(
    "cflag/thm-5",
    at="Theorem 5, (168)",
    sense="rate",
    verdict="refuted",
    why="It inherits Theorem 2's lost term: with one memory for all rounds C-FLAG follows that memory's loss, and for "
    "m ≥ 1 (the case m > 1 of the text below (15)) this may be stationary where the past is not. Two clients with "
    "opposing pulls, one of them sampled flat and the other steep, come to rest at ∇f† = 0 with ∇f = 1.1, with chance "
    "1/4. Assumptions 1-3 and (28) hold, m_i = 0.36, losses are bounded below and ω is finite. For m < 1 the memory's "
    "gradient is a descent direction for f and the order holds; a past that flattens out like x^(−s) gives "
    "T^(−(1+s)/(2+s)), so it cannot be improved, but it is 1/T while ‖∇g‖ stays bounded.",
    path=[{"T": T, **WORLD_5} for T in (100, 900, 6400, 14400)],
    needs=NEEDS_5,
    repair="m < 1 in (28), or a new memory every round",
)
def least_gradient_of_the_past(case: Case) -> Comparison:
    """With α = 1/(L(1 + m)) and β < c/√T, min_t E‖∇f(x_t)‖² is O(1/√T).

    Measured: the left side, over all draws of the memories of two clients with non-convex losses. Claimed: 1/√T.
    """
    return Comparison(_least_past(case), bounds.least_mean_past_rate(case["T"]))


@claim(
    "cflag/cor-17",
    at="Corollary 17, (169)",
    sense="rate",
    verdict="refuted",
    why="It is Theorem 5 solved for T, and falls with it: below a certain ε no number of rounds is enough. Besides, "
    "(170) counts rounds: a round takes Σ_i(|M_i| + |C_i| + E − 1) component gradients, so calls are O(n/ε²) even "
    "where Theorem 5 holds.",
    path=[{"T": math.ceil(1 / eps**2), "eps": eps, **WORLD_5} for eps in (0.1, 0.03, 0.0125, 0.008)],
    needs=[*NEEDS_5, "eps**2 * T >= 1"],
    repair="O(n/ε²) calls under the conditions that repair Theorem 5",
)
def rounds_to_accuracy(case: Case) -> Comparison:
    """O(1/ε²) rounds bring min_t E‖∇f(x_t)‖² to ε.

    Measured: what 1/ε² rounds reach in the world of Theorem 5. Claimed: ε.
    """
    return Comparison(_least_past(case), case["eps"])


# --- Lemma 18: constant rates -----------------------------------------------------------------------------------------


def _constant_rates(case: Case) -> dict[str, float]:
    """Past L x²/2, all of it in memory, and current task L(x − far)²/2, one client: sums of (180) after T rounds."""
    L, E, T, far = case["L"], case["E"], case["T"], case["far"]
    alpha, beta, mu = case["alphaL"] / L, 1 / (60 * L * E), case["memory"]
    shrink = 1 - beta * L
    x, Gamma, r, rounds = case["x0"], 0.0, 0.0, []
    for _ in range(T):
        F, g = L * x, L * (x - far)
        S = g * sum(shrink**k for k in range(E))
        Gamma += bounds.forgetting(L, alpha, beta, S**2, F * S)
        r = max(r, abs(F / g))
        rounds.append(abs(g))
        x = x - alpha * F - beta * S
    bound = sum(bounds.forgetting_bound(L, E, beta, r, g, abs(1 - L * alpha)) for g in rounds)
    rest = (1 - mu) * far  # optimum of h̃
    fall = L / 2 * ((case["x0"] - rest) ** 2 - (x - rest) ** 2)
    return {"Gamma": Gamma / T, "fall": fall, "r": r, "omega2": (mu * L * far) ** 2, "bound": bound / T}


def _from_158(case: Case) -> Comparison:
    """The mean of (158) over the rounds."""
    run = _constant_rates(case)
    return Comparison(run["Gamma"], run["bound"])


@claim(
    "cflag/eq-180",
    at="(174)-(180)",
    sense="<=",
    verdict="refuted",
    why="The same loan from (67)-(68) as in Lemma 4, now with constants. C-FLAG at rest has h̃(x_t) = h̃(x_{t+1}) and "
    "still Γ > 0, and ω² falls with the square of the memory's share |M|/(|M| + |C|), so a small memory leaves "
    "nothing on the right. All of the past in memory, b = 0, Lα ≤ 1, one Hessian.",
    cases=st.fixed_dictionaries(
        {
            "L": st.floats(0.1, 10.0),
            "E": st.integers(1, 4),
            "T": st.integers(1, 20),
            "alphaL": hundredths(1, 100),
            "memory": st.sampled_from([0.001, 0.01, 0.1, 0.5, 0.9]),
            "far": hundredths(1, 300),
            "x0": hundredths(-300, 300),
        }
    ),
    needs=["0.001 <= alphaL <= 1", "0 < memory < 1", "far > 0", "abs(x0 - far) > 0.001"],
    repair="the mean of (158), with ‖∇g(x_t)‖² in place of what (161) makes of it",
    repaired=_from_158,
)
def constant_rate_bound(case: Case) -> Comparison:
    """With β = 1/(60LE), the mean of Γ(t) is at most (16r(1 − Lα) + 22)Δ_h̃/T + (11/(60L) + 2r(1 − Lα)/(15L))ω², where
    Δ_h̃ is the fall of h̃, ‖∇f†‖ ≤ r‖∇g‖, and ω that of (75).

    Measured: the mean of Γ over T rounds of C-FLAG on two quadratics of one curvature. Claimed: the right side with r
    the largest ‖∇f†‖/‖∇g‖ met, ω² and Δ_h̃ exact. ``memory`` is |M|/(|M| + |C|).
    """
    run = _constant_rates(case)
    L, alpha = case["L"], case["alphaL"] / case["L"]
    fall = bounds.constant_rate_fall(L, alpha, run["r"]) / case["T"] * run["fall"]
    return Comparison(run["Gamma"], fall + bounds.constant_rate_floor(L, alpha, run["r"]) * run["omega2"])


def _any_memory_rate(case: Case) -> Comparison:
    """The mean of Γ for any α < 2/(L(1 + m))."""
    return Comparison(_constant_rates({**case, "memory": 0.5})["Gamma"], 1 / case["T"] + 1)


@claim(
    "cflag/lemma-18",
    at="Lemma 18, (172)",
    sense="rate",
    verdict="gap",
    why="For Lα ≤ 1, as with the m > 1 of the text below (15), the order is right if ω is finite, losses are bounded "
    "below and every sample is L-smooth: where ‖∇g‖ is large against ω a round lowers αf† + βEg by a multiple of "
    "‖∇g‖². The proof does not give it: (174) is (161), which is not about C-FLAG (see lemma-4 and eq-180). And the "
    "lemma sets no limit on m: two equal tasks of curvature L, all of the past in memory, Lα = 1.99 < 2/(1 + m), β = "
    "1/(60LE) shrink by 1 − 1.99 − 1/60 = −1.0067 a round, and Γ(t) grows exponentially.",
    path=[{"T": T, "alphaL": 0.9, "m": 1.1, "E": 2, "L": 1.0, "x0": 0.0, "far": 1.0} for T in (10, 100, 400, 1600)],
    needs=["m > 0", "0 < alphaL < 2 / (1 + m)"],
    step=_any_memory_rate,
    repair="m > 1 in the lemma",
)
def constant_rate_order(case: Case) -> Comparison:
    """With α < 2/(L(1 + m)), m > 1, and β = 1/(60LE) the mean of Γ(t) over T rounds is O(1/T + 1).

    Measured: the mean, for a past L x²/2 and a current task L(x − far)²/2, no bias, so that any m > 0 serves; Lα at
    most 1. Claimed: 1/T + 1. Step: the same for any m > 0.
    """
    return _any_memory_rate({**case, "alphaL": min(case["alphaL"], 1.0)})
