"""`fedeve`, Appendix C: stability, the lemmas C.6–C.8 and the generalisation bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import strategies as st

from ..bounds.fedeve import (
    Array,
    client_distance,
    gradient_sum,
    local_distance,
    local_gradient,
    mean_square_gradient,
    model_distance,
)
from .ledger import Case, Comparison, claim
from .worlds import Kinked, draws, hundredths

POSITIVE = st.floats(0.05, 5.0)
SIGNED = hundredths(-100, 100)

# --- Stability and generalisation -------------------------------------------------------------------------------------


def _gaps(case: Case) -> tuple[float, float, float]:
    """ε of Definition C.10, E|R − R̂| and |E[R − R̂]| for two clients with coins z and a shrunken mean for a model."""
    n, chance = [case["n1"], case["n2"]], [case["p1"], case["p2"]]
    total, theta = sum(n), case["theta"]
    mean_abs, mean = 0.0, 0.0
    everything = list(itertools.product((0, 1), repeat=total))
    owner = np.repeat([0, 1], n)

    def model(sample: Array) -> float:
        return float(theta * sample.mean() + (1 - theta) * 0.25)

    def weight(sample: Array) -> float:
        up = np.array(chance)[owner]
        return float(np.prod(np.where(sample > 0, up, 1 - up)))

    apart = np.zeros(total)
    for outcome in everything:
        sample = np.array(outcome, dtype=float)
        w, likely = model(sample), weight(sample)
        risk = sum(n[i] / total * ((1 - chance[i]) * abs(w) + chance[i] * abs(w - 1)) for i in (0, 1))
        gap = risk - float(np.mean(np.abs(w - sample)))  # p_i = n_i/n: the empirical risk is the mean over all samples
        mean_abs += likely * abs(gap)
        mean += likely * gap
        for j, z in itertools.product(range(total), (0.0, 1.0)):
            other = sample.copy()
            other[j] = z
            rate = chance[owner[j]] if z else 1 - chance[owner[j]]
            apart[j] += likely * rate * abs(abs(w - z) - abs(model(other) - z))
    return float(apart.max()), mean_abs, abs(mean)


def _outside(case: Case) -> Comparison:
    """The absolute value outside the expectation."""
    epsilon, _, outside = _gaps(case)
    return Comparison(outside, epsilon)


@claim(
    "fedeve/thm-c.1",
    at="Theorem C.1",
    sense="<=",
    verdict="misprint",
    why="Stability on average bounds |E[R − R̂]|. With the absolute value inside, sampling error counts too: an "
    "algorithm that ignores the data has ε = 0, and E|R − R̂| is the mean deviation of an average. Theorem C.2 needs "
    "only the outer inequality, ε_gen ≤ ε.",
    cases=st.fixed_dictionaries(
        {
            "n1": st.integers(1, 2),
            "n2": st.integers(1, 2),
            "p1": hundredths(5, 95),
            "p2": hundredths(5, 95),
            "theta": hundredths(1, 100),
        }
    ),
    needs=["0 < theta <= 1", "0 < p1 < 1", "0 < p2 < 1"],
    repair="ε_gen = |E[R(A(S)) − R̂_S(A(S))]| ≤ ε",
    repaired=_outside,
)
def stability_bounds_generalisation(case: Case) -> Comparison:
    """The expected absolute difference of risk and empirical risk is at most the stability ε.

    Measured: E|R − R̂| for two clients with coins for samples, the loss |w − z| and the model θ·mean + (1 − θ)/4, all
    datasets enumerated. Claimed: ε of Definition C.10.
    """
    epsilon, inside, _ = _gaps(case)
    return Comparison(inside, epsilon)


# --- Local steps ------------------------------------------------------------------------------------------------------

LOCAL = {
    "L": POSITIVE,
    "lr": st.floats(0.01, 2.0),
    "k": st.integers(0, 4),
    "inner": SIGNED,
    "outer": SIGNED,
    "width": hundredths(0, 200),
    "grad": hundredths(0, 300),
    "client": hundredths(0, 300),
    "noise": hundredths(0, 300),
    "rare": st.sampled_from([0.5, 0.1]),
    "biased": st.booleans(),
}
LOCAL_NEEDS = ["L > 0", "lr > 0", "-1 <= inner <= 1", "-1 <= outer <= 1", "grad + client + noise > 0"]


def _local_steps(case: Case) -> tuple[Array, Array, Array, Array]:
    """Chances, w_k − w_t, ∇R_i(w_k) and g_i(w_k) at the k-th step of a client on a function with a kink.

    ∇R(w_t) = grad, ∇R_i = ∇R + client there, and the sampled gradient errs by ±noise in the mean: always up, or with
    mean zero. Every sample's gradient is L-Lipschitz.
    """
    f = Kinked(case["inner"] * case["L"], case["outer"] * case["L"], case["width"])
    z, chance = draws(case["k"] + 1, case["rare"])
    z = np.ones_like(z) if case["biased"] else z / (chance @ np.abs(z[:, 0]))  # E|z| = 1
    w = np.zeros(len(chance))
    for k in range(case["k"] + 1):
        own = case["grad"] + case["client"] + f.grad(w)
        sampled = own + case["noise"] * z[:, k]
        if k < case["k"]:
            w = w - case["lr"] * sampled
    return chance, w, own, sampled


def _size(case: Case) -> float:
    return float(case["grad"] + case["client"] + case["noise"])


@claim(
    "fedeve/lemma-c.6",
    at="Lemma C.6",
    sense="<=",
    verdict="holds",
    why="For each client, expectations over its sampling given the data, and ∇R_i for the R_i of Assumption C.4. "
    "Reached by curvature −L. Bounded gradients (C.5) are not used.",
    cases=st.fixed_dictionaries({**LOCAL, "k": st.integers(1, 4)}),
    needs=LOCAL_NEEDS,
)
def local_updates(case: Case) -> Comparison:
    """After k local steps a client is at most ((1 + ηL)^k − 1)/L·(‖∇R(w_t)‖ + σ_l + σ_g) from its start, in the mean.

    Measured: E|w_k − w_t| by enumeration, curvature between −L and L, noise biased or not.
    """
    chance, moved, _, _ = _local_steps(case)
    return Comparison(float(chance @ np.abs(moved)), local_distance(case["lr"], case["L"], case["k"], _size(case)))


def _without_client_term(case: Case) -> Comparison:
    """E‖∇R_i(w_k) − ∇R(w_t)‖ ≤ L E‖w_k − w_t‖."""
    chance, moved, own, _ = _local_steps(case)
    return Comparison(float(chance @ np.abs(own - case["grad"])), float(case["L"] * (chance @ np.abs(moved))))


@claim(
    "fedeve/lemma-c.7",
    at="Lemma C.7 and its proof, second inequality",
    sense="<=",
    verdict="gap",
    why="∇R_i at one point and ∇R at another differ by σ_g as well as by L times the distance: at k = 0 the step says "
    "∇R_i = ∇R. With σ_g put in, the next line adds up to the printed bound exactly.",
    cases=st.fixed_dictionaries(LOCAL),
    needs=LOCAL_NEEDS,
    step=_without_client_term,
    repair="E‖∇R_i(w_k) − ∇R(w_t)‖ ≤ L E‖w_k − w_t‖ + σ_g",
)
def local_gradients(case: Case) -> Comparison:
    """The sampled gradient at the k-th local step is at most (1 + ηL)^k(‖∇R(w_t)‖ + σ_l + σ_g) in the mean.

    Measured: E|g_i(w_k)| by enumeration. Step: the proof's bound on E|∇R_i(w_k) − ∇R(w_t)|.
    """
    chance, _, _, sampled = _local_steps(case)
    return Comparison(float(chance @ np.abs(sampled)), local_gradient(case["lr"], case["L"], case["k"], _size(case)))


# --- An exchanged sample ----------------------------------------------------------------------------------------------

TWINS = {
    "L": POSITIVE,
    "lr": st.floats(0.01, 2.0),
    "K": st.integers(1, 4),
    "T": st.integers(1, 4),
    "n": st.integers(1, 2),
    "inner": SIGNED,
    "outer": SIGNED,
    "width": hundredths(0, 200),
    "w": SIGNED,
    "noise": hundredths(1, 100),
    "apart": hundredths(0, 100),
    "fall": hundredths(10, 100),
}
TWINS_NEEDS = [
    "n**(K*T) <= 256",
    "L > 0",
    "lr > 0",
    "noise > 0",
    "-1 <= inner <= 1",
    "-1 <= outer <= 1",
    "0 < fall <= 1",
]


def _twins(case: Case) -> tuple[Array, list[float]]:
    """E|w_t − w'_t| for t = 0..T, and E|∇R(w_t)| + σ_l + σ_g for t < T, of FedAvg with two clients that take part.

    Client 1 has n samples ±noise, of which the first is exchanged, and draws one a step; client 2 has one sample, 0.
    Both have the curvature of one kinked function; their gradients at 0 are ±apart away from each other's mean.
    """
    n, steps = case["n"], case["K"] * case["T"]
    f = Kinked(case["inner"] * case["L"], case["outer"] * case["L"], case["width"])
    share = n / (n + 1)
    offset = np.array([(1 - share) * case["apart"], -share * case["apart"]])  # mean zero under p_i = n_i/n
    values, _ = draws(n + 1)  # the samples, and the exchanged one's new value
    order = np.array(list(itertools.product(range(n), repeat=steps)))
    samples = case["noise"] * np.repeat(values, len(order), axis=0)
    order = np.tile(order, (len(values), 1))
    old = np.take_along_axis(samples, order, axis=1)
    new = np.where(order == 0, samples[:, [n]], old)
    w, twin = np.full(len(order), case["w"]), np.full(len(order), case["w"])
    distances, sizes = [0.0], []
    for t in range(case["T"]):
        sizes.append(float(np.mean(np.abs(f.grad(w)))) + case["noise"] + case["apart"])
        ends = []
        for start, drawn in ((w, old), (twin, new)):
            first, second = start, start
            for k in range(case["K"]):
                first = first - case["lr"] * (f.grad(first) + offset[0] + drawn[:, t * case["K"] + k])
                second = second - case["lr"] * (f.grad(second) + offset[1])
            ends.append(share * first + (1 - share) * second)
        w, twin = ends
        distances.append(float(np.mean(np.abs(w - twin))))
    return np.array(distances), sizes


def _unrolled_in_k(case: Case) -> Comparison:
    """The recursion above (35), solved exactly, for a unit gradient bound."""
    x = case["lr"] * case["L"]
    distance = 0.0
    for k in range(case["K"]):
        distance = (1 + x) * distance + 2 * case["lr"] / case["n"] * math.exp(x * k)
    return Comparison(distance, client_distance(case["lr"], case["L"], case["K"], case["n"], 1.0))


@claim(
    "fedeve/eq-35",
    at="(35), from the recursion above it",
    sense="<=",
    verdict="gap",
    why="The recursion adds up to at most 2ηK e^{ηKL}/n_i, so (35) follows for ηKL ≤ 1, as Theorem C.2 asks, but not "
    "for any step size, as the lemma says: for ηL = 0.3, K = 40 the sum is 4.7 times (35). The bound itself survives: "
    "exchanging a sample changes the gradient by 2σ_l in the mean, not by 2E‖g‖. It does not vanish with η, as the "
    "left side does.",
    cases=st.fixed_dictionaries({**TWINS, "K": st.integers(1, 8), "T": st.just(1)}),
    needs=TWINS_NEEDS,
    step=_unrolled_in_k,
    repair="2ηK e^{ηKL}/n_i in place of 2e^{ηKL}/(n_iL), also in Lemma C.8",
)
def exchanged_client(case: Case) -> Comparison:
    """One round takes the client with the exchanged sample at most 2e^{ηKL}/(n_iL)·(‖∇R‖ + σ_l + σ_g) apart.

    Measured: the model's distance after one round over the client's share, E|w_1 − w'_1|/p_i, all samples and orders
    enumerated. Step: the proof's recursion over the local steps against its unrolled form.
    """
    distances, sizes = _twins(case)
    share = case["n"] / (case["n"] + 1)
    return Comparison(
        float(distances[1]) / share, client_distance(case["lr"], case["L"], case["K"], case["n"], sizes[0])
    )


def _unrolled_in_t(case: Case) -> Comparison:
    """The recursion over rounds, solved exactly, for gradients that fall geometrically."""
    sizes = [case["fall"] ** t for t in range(case["T"])]
    bound = model_distance(case["lr"], case["L"], case["K"], case["n"] + 1, sizes, printed=True)
    return Comparison(_recursion(case, sizes), bound)


def _recursion(case: Case, sizes: list[float]) -> float:
    growth = math.exp(case["lr"] * case["K"] * case["L"])
    distance = 0.0
    for size in sizes:
        distance = growth * distance + 2 * growth / ((case["n"] + 1) * case["L"]) * size
    return distance


def _first_round_most(case: Case) -> Comparison:
    """The exponent T − t."""
    distances, sizes = _twins(case)
    found = max(float(distances[-1]), _recursion(case, sizes))
    return Comparison(found, model_distance(case["lr"], case["L"], case["K"], case["n"] + 1, sizes))


@claim(
    "fedeve/lemma-c.8",
    at="Lemma C.8 and the last line of its proof",
    sense="<=",
    verdict="gap",
    why="Unrolled, the recursion amplifies the first round most, e^{ηKL(T−t)}; printed is e^{ηKL(t+1)}, the other way "
    "round, which is too small when the gradients fall. The printed bound survives only because the exchanged sample "
    "contributes 2σ_l a round, the same in all, and then the order does not matter.",
    cases=st.fixed_dictionaries(TWINS),
    needs=TWINS_NEEDS,
    step=_unrolled_in_t,
    repair="e^{ηKL(T−t)} in place of e^{ηKL(t+1)}",
    repaired=_first_round_most,
)
def exchanged_sample(case: Case) -> Comparison:
    """After T rounds an exchanged sample has moved the model by at most Σ_t 2e^{ηK(t+1)L}/(nL)·(‖∇R(w_t)‖ + σ_l + σ_g).

    Measured: E|w_T − w'_T| of FedAvg with two clients, all samples and orders enumerated. Step: the proof's recursion
    over rounds, for gradient bounds that fall by the factor ``fall``, against its unrolled form.
    """
    distances, sizes = _twins(case)
    bound = model_distance(case["lr"], case["L"], case["K"], case["n"] + 1, sizes, printed=True)
    return Comparison(float(distances[-1]), bound)


@claim(
    "fedeve/c.4-round",
    at="C.4.3, one round: w_{t+1} = Σ_{i≤m} p_i w_{i,K}, w_{i,0} = w_t",
    sense="<=",
    verdict="holds",
    why="For FedAvg with all clients, which is what Appendix C treats: no momentum, no gain, no look-ahead, no "
    "sampling of clients. It does not name FedEve, and does not cover it: w_{t+1} of (12) depends on w_{t−1} through "
    "M_t, and with gain 1 and curvature −L two models part by 1.707 a round for one local step with ηL = 0.5, where "
    "e^{ηL} = 1.649.",
    cases=st.fixed_dictionaries({"L": POSITIVE, "lr": st.floats(0.01, 2.0), "K": st.integers(1, 4), "curve": SIGNED}),
    needs=["L > 0", "lr > 0", "-1 <= curve <= 1"],
    repair="For FedEve: carry the pair (w_t, M_t) through the recursion.",
)
def one_round_apart(case: Case) -> Comparison:
    """In one round without an exchanged sample two models part by at most the factor e^{ηKL}.

    Measured: the factor of FedAvg on a quadratic of curvature between −L and L.
    """
    factor = abs(1 - case["lr"] * case["curve"] * case["L"]) ** case["K"]
    return Comparison(factor, math.exp(case["lr"] * case["L"] * case["K"]))


# --- The bound --------------------------------------------------------------------------------------------------------


def _worst_distance(case: Case) -> float:
    """E|w_T − w'_T| for curvature −L and one local step, at the largest step that Theorem C.2 allows."""
    distance = 0.0
    for t in range(case["T"]):
        x = 1 / (t + 1 if case["falling"] else case["T"])
        distance = (1 + x) * distance + x / case["L"] * case["sigma"] / case["n"]
    return distance


def _gradients(case: Case, tuned: bool = False) -> Array:
    """‖∇R(w_t)‖ for t < T without any noise, on a quadratic of curvature mu from Δ₀ = 1.

    Steps: the largest of Theorem C.2, falling or constant; tuned: 1/L.
    """
    t = np.arange(case["T"] - 1)
    x = 1 / (t + 1) if case["falling"] else np.full(len(t), 1.0 if tuned else 1 / case["T"])
    shrunk = np.cumprod(1 - case["mu"] / case["L"] * x)
    return math.sqrt(2 * case["mu"]) * np.concatenate([[1.0], shrunk])


CONSTANT = 10.0


def _taken_over(case: Case) -> Comparison:
    """Σ_t‖∇R(w_t)‖ against the last two terms of the bracket, with ten for the constant."""
    found = float(np.sum(_gradients(case)))
    return Comparison(found, CONSTANT * gradient_sum(case["L"], 1.0, 0.0, case["n"], 1, case["T"]))


def _bound_case(T: int, falling: bool) -> dict[str, object]:
    return {"T": T, "L": 1.0, "n": 10, "sigma": 1.0, "mu": 0.1, "falling": falling}


@claim(
    "fedeve/thm-c.2",
    at="Theorem C.2",
    sense="rate",
    verdict="gap",
    why="The term TΣ alone covers the truth: with the largest steps allowed the model moves by no more than TΣ/(nL) "
    "in order, and for a constant step 1/(L_mKT) by a multiple of Σ/(nL). The other two terms rest on a convergence "
    "rate that these steps do not have (fedeve/c.4-convergence): without noise Σ_t‖∇R(w_t)‖ grows like T for a "
    "constant step and like T^0.9 for a falling one when μ = L/10, not like √T.",
    path=[_bound_case(T, True) for T in (10, 100, 1000, 10000)],
    step=_taken_over,
    repair="Drop the last two terms: ε_gen ≤ O(L_pTΣ/(nL_m)), the exchanged sample counting 2σ_l.",
)
def generalisation_bound(case: Case) -> Comparison:
    """The generalisation error is O(L_p/(nL_m))·[TΣ + (L_mΔ₀Σ²/(nK))^¼T^¾ + (L_mΔ₀)^½T^½] for η_l ≤ 1/(L_mK(t + 1)).

    Measured: E|w_T − w'_T| for curvature −L, the worst case, at the largest steps allowed. Claimed: TΣ/(nL), the first
    term alone. Step: the sum of gradients on a quadratic against the other two terms.
    """
    return Comparison(_worst_distance(case), case["T"] * case["sigma"] / (case["n"] * case["L"]))


def _with_the_steps_of_the_theorem(case: Case) -> Comparison:
    """At the largest step of Theorem C.2, with ten for the constant."""
    found = float(np.mean(_gradients(case) ** 2))
    return Comparison(found, CONSTANT * mean_square_gradient(case["L"], 1.0, 0.0, case["n"], 1, case["T"]))


@claim(
    "fedeve/c.4-convergence",
    at="C.4.4, the convergence rate taken over from FedAvg with momentum, under the steps of Theorem C.2",
    sense="rate",
    verdict="gap",
    why="The rate is one for tuned steps, as without noise 1/L; the theorem's steps do not reach it. With η_lK ≤ "
    "1/(L(t + 1)) all steps together come to log(T)/L, or to 1/L for a constant step: the gradient of a quadratic of "
    "curvature μ = L/10 falls like T^{−0.1}, or stays, and the mean square does not fall like 1/T. Also, n counts "
    "samples in the theorem and clients in such a rate.",
    step=_with_the_steps_of_the_theorem,
    path=[_bound_case(T, falling=False) for T in (10, 100, 1000, 10000)],
    repair="State the rate for the steps it needs, and use other steps or another bound in Theorem C.2.",
)
def convergence_taken_over(case: Case) -> Comparison:
    """With tuned steps the mean of ‖∇R(w_t)‖² over T rounds of FedAvg with momentum is O(√(L_mΔ₀Σ²/(nKT)) + L_mΔ₀/T).

    Measured: on a quadratic of curvature L/10 without noise or momentum, one local step 1/L. Claimed: L_mΔ₀/T. Step:
    the same with the largest constant step that Theorem C.2 allows, 1/(LT).
    """
    found = float(np.mean(_gradients(case, tuned=True) ** 2))
    return Comparison(found, mean_square_gradient(case["L"], 1.0, 0.0, case["n"], 1, case["T"]))


@claim(
    "fedeve/c.4-jensen",
    at="C.4.4, first display, and the exponents of Theorem C.2",
    sense="<=",
    verdict="holds",
    why="Cauchy-Schwarz, Jensen and √(a + b) ≤ √a + √b. If the rate held, the exponents ¼, ¾ and ½ would follow.",
    cases=st.fixed_dictionaries(
        {
            "T": st.integers(1, 30),
            "L": POSITIVE,
            "start": POSITIVE,
            "sigma": hundredths(0, 300),
            "n": st.integers(1, 20),
            "K": st.integers(1, 10),
            "spread": hundredths(0, 100),
            "seed": st.integers(0, 9999),
        }
    ),
    needs=["L > 0", "start > 0", "0 <= spread <= 1"],
)
def exponents_follow(case: Case) -> Comparison:
    """If the mean square gradient is √(LΔ₀Σ²/(nKT)) + LΔ₀/T, the sum of the mean norms is at most
    (LΔ₀Σ²/(nK))^¼T^¾ + (LΔ₀)^½T^½.

    Measured: Σ_t E‖∇R(w_t)‖ for random norms, scaled so that their mean square is the rate.
    """
    keys = ("L", "start", "sigma", "n", "K", "T")
    L, start, sigma, n, K, T = (case[k] for k in keys)
    norms = 1 + case["spread"] * np.random.default_rng(case["seed"]).uniform(-1, 1, size=(4, T))
    norms *= math.sqrt(mean_square_gradient(L, start, sigma, n, K, T) / float(np.mean(norms**2)))
    return Comparison(float(np.sum(np.mean(norms, axis=0))), gradient_sum(L, start, sigma, n, K, T))
