"""`fedeve`, Section 3 and Appendix A: drift as noise, its independence, and the Bayesian filter (6)–(12), (16)–(34)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from ..bounds.fedeve import (
    Array,
    blended_variance,
    fused_mean,
    fused_variance,
    kalman_gain,
    local_slope,
    predicted_variance,
)
from .ledger import Case, Comparison, claim
from .worlds import draws, hundredths, two_values

VARIANCE = hundredths(10, 1000)
POINT = hundredths(100, 500)
SHARE = hundredths(0, 100)
SEED = st.integers(0, 9999)
POSITIVE = ["P > 0", "R > 0"]


def _cohorts(N: int, S: int) -> list[list[int]]:
    return [list(c) for c in itertools.combinations(range(N), S)]


# --- Drift as noise ---------------------------------------------------------------------------------------------------


@claim(
    "fedeve/generalisation-error",
    at="Section 3.2 and A.2, the display of the generalization error",
    sense="==",
    verdict="holds",
    why="In the eigenbasis of A, where a_i are its eigenvalues, and for a drift of mean zero that is independent of "
    "w^t. In other coordinates the off-diagonal Σ a_ij E[w_i w_j] is missing; the works cited take A diagonal.",
    cases=st.fixed_dictionaries({"dim": st.integers(1, 3), "rare": st.sampled_from([0.5, 0.1, 0.01]), "seed": SEED}),
    needs=["0 < rare < 1"],
)
def bias_variance_noise(case: Case) -> Comparison:
    """The expected loss of a drifted model on a quadratic is half Σ a_i (E[w_i]² + Var[w_i] + σ_i²).

    Measured: by enumeration, for a dense A, dependent coordinates of w and a drift independent of w.
    """
    d, rng = case["dim"], np.random.default_rng(case["seed"])
    U = np.linalg.qr(rng.normal(size=(d, d)))[0]
    a, sigma, mean = rng.uniform(0.1, 5, d), rng.uniform(0, 2, d), rng.normal(size=d)
    z, chance = draws(2 * d, case["rare"])
    w, drift = mean + z[:, :d] @ rng.normal(size=(d, d)), sigma * z[:, d:]
    dense, point = U.T @ np.diag(a) @ U, (w + drift) @ U
    loss = 0.5 * np.einsum("si,ij,sj->s", point, dense, point)
    first, second = chance @ w, chance @ w**2
    return Comparison(float(chance @ loss), float(0.5 * np.sum(a * (first**2 + (second - first**2) + sigma**2))))


CLIENTS = {
    "K": st.integers(1, 5),
    "S": st.integers(1, 3),
    "lr": hundredths(1, 30),
    **{f"h{k}": hundredths(10, 300) for k in range(3)},
    **{f"c{k}": hundredths(100, 500) for k in range(3)},
}


def _quadratics(case: Case) -> tuple[Array, Array, Array]:
    """Curvatures, minima and slopes of three clients."""
    h, c = (np.array([case[f"{name}{k}"] for k in range(3)]) for name in "hc")
    return h, c, np.array([local_slope(x, case["lr"], case["K"]) for x in h])


def _mean_limit(case: Case) -> float:
    """Where the mean of FedAvg's model goes: the fixed point of its round, averaged over all cohorts."""
    _, c, a = _quadratics(case)

    def round_(w: float) -> float:
        return float(np.mean([w - np.mean(a[s] * (w - c[s])) for s in _cohorts(3, case["S"])]))

    shift = round_(0.0)
    return shift / (1.0 - (round_(1.0) - shift))


def _several_local_steps(case: Case) -> Comparison:
    """K local steps."""
    h, c, _ = _quadratics(case)
    return Comparison(_mean_limit(case), float(h @ c / h.sum()))


def _own_fixed_point(case: Case) -> Comparison:
    """w* replaced by Σ a_k c_k/Σ a_k."""
    _, c, a = _quadratics(case)
    return Comparison(_mean_limit(case), float(a @ c / a.sum()))


@claim(
    "fedeve/asm-3.1-mean",
    at="Assumption 3.1 and its justification for FedAvg in A.2: E[w_server] = w*",
    sense="==",
    verdict="gap",
    why="It may be assumed, and is met by one local step or one common Hessian. A.2 does not make it so in general: "
    "the central limit theorem gives a shape, not a mean. Client drift is a bias, as the paper itself says below (3): "
    "the average of local optima is not the optimum of the average. With several local steps and different Hessians "
    "FedAvg's mean goes to Σa_k c_k/Σa_k, a_k = 1 − (1 − ηh_k)^K for K steps η on curvatures h_k with minima c_k.",
    cases=st.fixed_dictionaries(CLIENTS),
    needs=["S <= 3", "lr*max(h0, h1, h2) < 1"],
    step=_several_local_steps,
    repair="Let w* be FedAvg's own fixed point; or one local step, or one Hessian.",
    repaired=_own_fixed_point,
)
def unbiased_server(case: Case) -> Comparison:
    """With one local step the aggregated model of FedAvg is the minimiser of the average loss plus noise of mean zero.

    Measured: the limit of E[w] for three equally large quadratic clients, all cohorts enumerated, one local step.
    Claimed: Σhc/Σh. Step: the same for K local steps.
    """
    return _several_local_steps({**case, "K": 1})


def _sum_of_clients(case: Case) -> tuple[float, float, float]:
    """|excess kurtosis| of the sum, the largest of one client, and the largest share of the variance."""
    scales = case["decay"] ** np.arange(case["S"])
    z, chance = draws(case["S"], case["rare"])
    total = z @ scales
    excess = abs(chance @ total**4 / (chance @ total**2) ** 2 - 3)
    values, chances = two_values(case["rare"])
    single = abs(np.dot(chances, np.array(values) ** 4) - 3)
    return float(excess), float(single), float(np.max(scales**2) / np.sum(scales**2))


@claim(
    "fedeve/asm-3.1-normal",
    at="A.2: the drift is normal by the Lindeberg-Feller theorem, irrespective of the single distributions",
    sense="<=",
    verdict="holds",
    why="Under the conditions of the theorem that is named: independence, and that no client dominate. With equal "
    "shares the excess kurtosis is 1/S of one client's. With shares p_k = n_k/n that fall geometrically the sum keeps "
    "the shape of its largest term however many clients there are, as where one has much more data (B.3).",
    cases=st.fixed_dictionaries(
        {"S": st.integers(1, 8), "decay": hundredths(10, 100), "rare": st.sampled_from([0.5, 0.3, 0.1, 0.05])}
    ),
    needs=["0 < decay <= 1"],
)
def nearly_normal(case: Case) -> Comparison:
    """A sum of independent client drifts is as far from normal as its largest client's share of the variance allows.

    Measured: its excess kurtosis, enumerated. Claimed: that of one client times the largest share.
    """
    excess, single, share = _sum_of_clients(case)
    return Comparison(excess, single * share)


def dependence(case: Case, repeated: bool = False) -> Comparison:
    """How far P(w_t, Q_t) or P(w_t, R_t) is from the product, with coins for noises and a linear transfer.

    repeated: the noise of round t is that of the round before.
    """
    t = case["t"]
    coins, chance = draws(1 + 2 * (t + 1))
    Q, R = coins[:, 1 : t + 2].copy(), coins[:, t + 2 :].copy()
    noise = Q if case["noise"] == "Q" else R
    if repeated:
        noise[:, t] = noise[:, t - 1]
    w = coins[:, 0] + case["q"] * Q[:, :t].sum(axis=1) + case["r"] * R[:, :t].sum(axis=1)
    apart = 0.0
    for value in np.unique(w):
        here = w == value
        apart = max(apart, abs(chance @ (here & (noise[:, t] > 0)) - (chance @ here) * (chance @ (noise[:, t] > 0))))
    return Comparison(float(apart), 0.0)


@claim(
    "fedeve/lemma-3.3",
    at="Lemma 3.3 from Assumption 3.2; proof in A.4",
    sense="<=",
    verdict="holds",
    why="With the assumption as the sentence before it, A.3 and the proof have it: initial model and drifts of all "
    "rounds mutually independent. Its display alone makes only w_0 independent of the drifts, and then w_1 depends on "
    "Q_1 if rounds repeat each other, Q_1 = Q_0. The proof's last sentences (the model is not affected by "
    "perturbations) do not follow: w_{t+1} depends on Q_t.",
    cases=st.fixed_dictionaries(
        {
            "noise": st.sampled_from(["Q", "R"]),
            "t": st.integers(1, 3),
            "q": st.integers(1, 3),
            "r": st.integers(1, 3),
        }
    ),
)
def noise_is_independent(case: Case) -> Comparison:
    """If w_0, all Q's and all R's are independent of each other, then w_t is independent of Q_t and of R_t.

    Measured: the largest |P(w_t, ·) − P(w_t)P(·)|, with coins for w_0 and the noises, w_{t+1} = w_t + qQ_t + rR_t.
    Claimed: 0.
    """
    return dependence(case)


@claim(
    "fedeve/a.3-independence",
    at="A.3, last item: given the data, client drift and period drift are independent",
    sense="==",
    verdict="refuted",
    why="Both are functions of the same cohort. A.3 itself says that each client has its own fixed drift, so sampling "
    "decides which drifts are averaged into R_t: the graph lacks the arrow from client sampling to client drift. It "
    "is true of a single client's drift, which given the data is a constant, not of the round's R_t, which has the "
    "variance σ_R². One may assume it all the same (Assumption 3.2).",
    cases=st.fixed_dictionaries({**CLIENTS, "w": hundredths(-500, 500)}),
    needs=["S <= 2", "lr*max(h0, h1, h2) < 1"],
    repair="Split at the cohort: the mean of all that happens in a round given the cohort, and the noise within it.",
)
def drifts_add_up(case: Case) -> Comparison:
    """Given the clients' data, period drift and client drift are independent, so that their variances add.

    Period drift: K steps on the cohort's pooled objective minus K steps on all. Client drift: the mean of the cohort's
    own K steps minus K steps on the pooled objective (as B.2 separates the two). Measured: the variance of the sum
    over all cohorts. Claimed: the sum of the variances.
    """
    h, c, a = _quadratics(case)

    def pooled(s: list[int]) -> float:
        curvature = float(np.mean(h[s]))
        return local_slope(curvature, case["lr"], case["K"]) * (case["w"] - float(h[s] @ c[s] / np.sum(h[s])))

    cohorts = _cohorts(3, case["S"])
    period = np.array([pooled(s) - pooled([0, 1, 2]) for s in cohorts])
    client = np.array([np.mean(a[s] * (case["w"] - c[s])) - pooled(s) for s in cohorts])
    return Comparison(float(np.var(period + client)), float(np.var(period) + np.var(client)))


# --- Averages over a cohort -------------------------------------------------------------------------------------------

SIZES = {
    "S": st.integers(1, 3),
    "w": POINT,
    **{f"n{k}": st.integers(1, 9) for k in range(3)},
    **{f"w{k}": POINT for k in range(3)},
}


def _models(case: Case) -> tuple[Array, Array]:
    """Shares n_k/n and local models of three clients."""
    n, w = (np.array([float(case[f"{name}{k}"]) for k in range(3)]) for name in "nw")
    return n / n.sum(), w


def _shares_of_the_cohort(case: Case) -> Comparison:
    """p_k renormalised on S_t."""
    p, local = _models(case)
    s = list(range(case["S"]))
    p = p[s] / p[s].sum()
    return Comparison(float(p @ local[s]), float(case["w"] - p @ (case["w"] - local[s])))


@claim(
    "fedeve/eq-9",
    at="(9) with p_k = n_k/n from (1); Algorithm 1",
    sense="==",
    verdict="misprint",
    why="Σ_{k∈S} p_k w^k = w − Σ p_k(w − w^k) needs Σ_{k∈S} p_k = 1, and n counts all clients. As printed the new "
    "model is the fraction Σ_{k∈S} p_k of the cohort's average, for 10 of 3400 equal clients 0.003 of it. Any "
    "implementation divides by the cohort's own sum.",
    cases=st.fixed_dictionaries(SIZES),
    needs=["1 <= S <= 3"],
    repair="p_k = n_k/Σ_{j∈S_t} n_j",
    repaired=_shares_of_the_cohort,
)
def incremental_form(case: Case) -> Comparison:
    """FedAvg's average of the sampled models is the old model minus the average of the sampled updates.

    Measured: Σ_{k∈S} p_k w^k with p_k = n_k/n. Claimed: w − Σ_{k∈S} p_k(w − w^k).
    """
    p, local = _models(case)
    s = list(range(case["S"]))
    return Comparison(float(p[s] @ local[s]), float(case["w"] - p[s] @ (case["w"] - local[s])))


def _mean_over_cohorts(case: Case, average: Callable[[Array, Array, int], float]) -> Comparison:
    p, local = _models(case)
    found = [average(p[s], local[s], case["S"]) for s in _cohorts(3, case["S"])]
    return Comparison(float(np.mean(found)), float(p @ local))


def _ratio_estimate(case: Case) -> Comparison:
    """Σ_{k∈S} n_k x_k/Σ_{k∈S} n_k."""
    return _mean_over_cohorts(case, lambda p, x, S: float(p @ x / p.sum()))


def _inverse_chance(case: Case) -> Comparison:
    """(N/S) Σ_{k∈S} p_k: each client's share over its chance to be sampled."""
    return _mean_over_cohorts(case, lambda p, x, S: float(p @ x) * 3 / S)


@claim(
    "fedeve/eq-3-mean",
    at="(3), (10): period drift has mean zero; Section 3.1: clients sampled at random, p_k = n_k/n",
    sense="==",
    verdict="gap",
    why="It is assumed, and true for clients of equal size. With clients of different size drawn uniformly, which "
    "Section 3.1 and (9) describe, the cohort's weighted average is a ratio estimate, biased towards small clients: "
    "with S = 1 its mean is the unweighted average.",
    cases=st.fixed_dictionaries(SIZES),
    needs=["1 <= S <= 3"],
    step=_ratio_estimate,
    repair="Weigh by share over chance, (N/S) Σ_{k∈S} p_k; or sample by size and average plainly.",
    repaired=_inverse_chance,
)
def period_drift_is_centred(case: Case) -> Comparison:
    """For clients of equal size the cohort's average update has the mean of the average over all clients.

    Measured: the mean over all cohorts of Σ_{k∈S} n_k x_k/Σ_{k∈S} n_k for equal n_k. Claimed: Σ p_k x_k. Step: the
    same for n_k as drawn.
    """
    return _ratio_estimate({**case, "n0": 1, "n1": 1, "n2": 1})


# --- The filter -------------------------------------------------------------------------------------------------------

GAUSSIANS = {"mu1": POINT, "mu2": POINT, "P": VARIANCE, "R": VARIANCE}


def _normal(x: Array, mean: float, variance: float) -> Array:
    return np.exp(-((x - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)


def _grid(*laws: tuple[float, float]) -> Array:
    """Equidistant points over nine deviations of every (mean, variance), a fifth of the smallest deviation apart."""
    low = min(m - 9 * math.sqrt(v) for m, v in laws)
    high = max(m + 9 * math.sqrt(v) for m, v in laws)
    return np.arange(low, high, 0.2 * math.sqrt(min(v for _, v in laws)))


def _product_moment(case: Case, power: int) -> float:
    """A moment of the normalised product of two normal densities, summed over a grid."""
    x = _grid((case["mu1"], case["P"]), (case["mu2"], case["R"]))
    density = _normal(x, case["mu1"], case["P"]) * _normal(x, case["mu2"], case["R"])
    return float(density @ x**power / density.sum())


def _mass(case: Case, normaliser: Callable[[Array, Array], float]) -> Comparison:
    x = _grid((case["mu1"], case["P"]), (case["mu2"], case["R"]))
    prior, likelihood = _normal(x, case["mu1"], case["P"]), _normal(case["mu2"] - x, 0.0, case["R"])
    step = x[1] - x[0]
    return Comparison(float(likelihood @ prior * step / normaliser(likelihood, prior * step)), 1.0)


def _normalised(case: Case) -> Comparison:
    """η_t with h(w) under the integral."""
    return _mass(case, lambda likelihood, prior: float(likelihood @ prior))


@claim(
    "fedeve/eq-6",
    at="(6) and its η_t; (19)–(21)",
    sense="==",
    verdict="misprint",
    why="η_t has h(ŵ_{t+1}) where the variable of integration should stand, h(w): a constant, so that the posterior's "
    "mass is not 1. (19) has the same slip in the likelihood itself, which makes the posterior equal to the prior; "
    "(6) writes f for g and w_{t+1} for the observed value.",
    cases=st.fixed_dictionaries(GAUSSIANS),
    needs=POSITIVE,
    repair="η_t = 1/∫ f_R[w̃_{t+1} − h(w)] f⁻(w) dw",
    repaired=_normalised,
)
def posterior_mass(case: Case) -> Comparison:
    """The posterior density of (6) has mass 1.

    Measured: its mass for a normal prior and observation noise, h the identity and ŵ_{t+1} the prior's mean.
    """
    at_mean = float(_normal(np.array([case["mu2"]]), case["mu1"], case["R"])[0])
    return _mass(case, lambda likelihood, prior: at_mean * float(prior.sum()))


@claim(
    "fedeve/eq-18",
    at="(16)–(18): prior and likelihood",
    sense="==",
    verdict="holds",
    why="Given that R_t is independent of ŵ_{t+1} = g(w_t) + Q_t, for which Lemma 3.3, cited there, is not enough: it "
    "takes Q_t ⟂ R_t as well, which A.3 adds.",
    cases=st.fixed_dictionaries({"slope": hundredths(-200, 200), "w": VARIANCE, "P": VARIANCE, "R": VARIANCE}),
    needs=[*POSITIVE, "w > 0"],
)
def likelihood_is_client_drift(case: Case) -> Comparison:
    """Given the prediction, the observation is spread about h(ŵ) as the client drift is.

    Measured: the variance of w̃ given ŵ by conditioning the covariance matrix of (w_t, Q_t, R_t), with
    ŵ = w + Q and h(ŵ) = slope·ŵ. Claimed: σ_R².
    """
    source = np.diag([case["w"], case["P"], case["R"]])
    rows = np.array([[1.0, 1.0, 0.0], [case["slope"], case["slope"], 1.0]])  # ŵ, w̃
    joint = rows @ source @ rows.T
    return Comparison(float(joint[1, 1] - joint[0, 1] ** 2 / joint[0, 0]), case["R"])


def _mean_corrected(case: Case) -> Comparison:
    """Divided by the sum of the variances."""
    return Comparison(_product_moment(case, 1), fused_mean(case["mu1"], case["mu2"], case["P"], case["R"]))


@claim(
    "fedeve/thm-3.4-mean",
    at="Theorem 3.4, (8), first line",
    sense="==",
    verdict="misprint",
    why="The denominator lacks σ̂²: the printed mean is (σ̂² + σ_R²)/σ_R² times the true one, no average of the two "
    "means, and infinite where the observation is exact. (30) and (33) have it right.",
    cases=st.fixed_dictionaries(GAUSSIANS),
    needs=POSITIVE,
    repair="μ_fused = (μ₁σ_R² + μ₂σ̂²)/(σ̂² + σ_R²)",
    repaired=_mean_corrected,
)
def mean_of_the_fusion(case: Case) -> Comparison:
    """The fused mean is the means of prediction and observation, each weighted by the other's variance, over σ_R².

    Measured: the mean of the normalised product of the two densities, summed over a grid.
    """
    return Comparison(_product_moment(case, 1), fused_mean(case["mu1"], case["mu2"], case["P"], case["R"], True))


@claim(
    "fedeve/thm-3.4-variance",
    at="Theorem 3.4, (8), second line, and its first sentence",
    sense="<=",
    verdict="holds",
    why="For independent errors Q_t and R_t, as the text before Assumption 3.2 and A.3 have it (the hypotheses named, "
    "Assumption 3.1 and Lemma 3.3, leave their correlation free), and compared with the variance σ̂² = σ_t² + σ_Q² of "
    "the prediction. The sentence compares with period drift itself, and σ_Q² may be the smaller: in the long run "
    "σ_fused² < σ_Q² only if σ_R² < 2σ_Q².",
    cases=st.fixed_dictionaries({"P": VARIANCE, "R": VARIANCE}),
    needs=POSITIVE,
)
def fusion_reduces_variance(case: Case) -> Comparison:
    """The fused model has at most the smaller of the two variances.

    Measured: the variance of the state given the observation, by conditioning a covariance matrix. Claimed:
    min(σ̂², σ_R²).
    """
    joint = np.array([[case["P"], case["P"]], [case["P"], case["P"] + case["R"]]])  # state, observation
    weight = joint[0, 1] / joint[1, 1]
    left = np.array([1 - weight, -weight])  # of the two errors, once the observation is taken into account
    return Comparison(float(left @ np.diag([case["P"], case["R"]]) @ left), min(case["P"], case["R"]))


@claim(
    "fedeve/eq-34",
    at="(34): the fused variance is the smallest",
    sense=">=",
    verdict="holds",
    why="Among all linear combinations, for independent errors; reached at K.",
    cases=st.fixed_dictionaries({"P": VARIANCE, "R": VARIANCE, "gain": st.floats(0.0, 1.0)}),
    needs=[*POSITIVE, "0 <= gain <= 1"],
)
def smallest_variance(case: Case) -> Comparison:
    """No weighting of prediction and observation has a smaller variance than (34).

    Measured: the variance at a gain. Claimed: σ̂²σ_R²/(σ̂² + σ_R²).
    """
    return Comparison(
        blended_variance(case["gain"], case["P"], case["R"]), case["P"] * case["R"] / (case["P"] + case["R"])
    )


@claim(
    "fedeve/eq-29",
    at="(29), as (31) uses it",
    sense="==",
    verdict="holds",
    why="For independent variables; the text asks only that each be normal. (31) uses it for w_t and Q_t, which Lemma "
    "3.3 makes independent, M_t being known.",
    cases=st.fixed_dictionaries({**GAUSSIANS, "z": hundredths(-200, 200)}),
    needs=POSITIVE,
)
def sum_of_normals(case: Case) -> Comparison:
    """The sum of two normal variables is normal with the sum of the means and of the variances.

    Measured: P(A + B ≤ x) summed over a grid of A, for x at z deviations. Claimed: Φ(z).
    """
    x = case["mu1"] + case["mu2"] + case["z"] * math.sqrt(case["P"] + case["R"])
    a = _grid((case["mu1"], min(case["P"], case["R"])), (case["mu1"], case["P"]))
    below = np.array([math.erfc(-(x - v - case["mu2"]) / math.sqrt(2 * case["R"])) / 2 for v in a])
    chance = float(_normal(a, case["mu1"], case["P"]) @ below) * (a[1] - a[0])
    return Comparison(chance, math.erfc(-case["z"] / math.sqrt(2)) / 2)


def _claimed_second_moment(case: Case) -> float:
    return fused_mean(case["mu1"], case["mu2"], case["P"], case["R"]) ** 2 + fused_variance(case["P"], case["R"])


def _product_of_densities(case: Case) -> Comparison:
    """The product of the densities, normalised."""
    return Comparison(_product_moment(case, 2), _claimed_second_moment(case))


@claim(
    "fedeve/eq-30",
    at="(30)",
    sense="==",
    verdict="misprint",
    why="The product of two independent normal variables is not normal and has the mean μ_Aμ_B. What (33) uses, and "
    "what has the printed moments, is the normalised product of their densities.",
    cases=st.fixed_dictionaries(GAUSSIANS),
    needs=POSITIVE,
    repair="f_A·f_B/∫f_A f_B is the density of N((μ_Aσ_B² + μ_Bσ_A²)/(σ_A² + σ_B²), σ_A²σ_B²/(σ_A² + σ_B²))",
    repaired=_product_of_densities,
)
def product_of_normals(case: Case) -> Comparison:
    """The product of two independent normal variables is normal with the moments of (30).

    Measured: E[(AB)²], summed over grids. Claimed: the second moment that (30) gives.
    """
    second = 1.0
    for mean, variance in ((case["mu1"], case["P"]), (case["mu2"], case["R"])):
        x = _grid((mean, variance))
        second *= float(_normal(x, mean, variance) @ x**2) * (x[1] - x[0])
    return Comparison(second, _claimed_second_moment(case))


def _variances_add(case: Case) -> Comparison:
    """(12b)."""
    return Comparison(_spread_of_prediction(case), predicted_variance(case["P"], case["R"]))


def _spread_of_prediction(case: Case) -> float:
    z, chance = draws(2, case["rare"])
    w = 10.0 + math.sqrt(case["P"]) * z[:, 0] - case["M"] + math.sqrt(case["R"]) * z[:, 1]
    return float(chance @ (w - chance @ w) ** 2)


@claim(
    "fedeve/eq-24",
    at="(24) against (12b)",
    sense="==",
    verdict="misprint",
    why="A deviation is added to a variance. (12b) and (31) have σ_t². The text calls the variance its inverse.",
    cases=st.fixed_dictionaries(
        {"P": VARIANCE, "R": VARIANCE, "M": hundredths(0, 300), "rare": st.sampled_from([0.5, 0.1])}
    ),
    needs=POSITIVE,
    repair="σ̂²_{t+1} = σ_t² + σ_Q²",
    repaired=_variances_add,
)
def variance_of_the_prediction(case: Case) -> Comparison:
    """The prediction w_t − M_t + Q_t has the variance σ_t + σ_Q².

    Measured: by enumeration, P for σ_t² and R for σ_Q².
    """
    return Comparison(_spread_of_prediction(case), predicted_variance(case["P"], case["R"], printed=True))


@claim(
    "fedeve/eq-12-variances",
    at="(12b), (12c), (12f) over many rounds",
    sense="==",
    verdict="holds",
    why="For the state x_{t+1} = x_t − η_gM_t + Q_t seen as x_{t+1} + R_t, all noises independent, M_t known given "
    "the past, and the true variances. With σ_Q = 0 the filter averages all rounds; with σ_R = 0 it forgets them.",
    cases=st.fixed_dictionaries(
        {"T": st.integers(1, 6), "start": VARIANCE, "still": SHARE, "exact": SHARE, "seed": SEED}
    ),
    needs=["start > 0", "0 <= still <= 1", "0 <= exact <= 1"],
)
def filter_variance(case: Case) -> Comparison:
    """The recursion gives the variance of the model given all rounds so far.

    Measured: by conditioning the covariance matrix of start, Q's and R's on all observations at once; a share
    ``still`` of the period drifts and ``exact`` of the client drifts is zero. Both sides plus the start's variance.
    """
    T, rng = case["T"], np.random.default_rng(case["seed"])
    Q = np.where(rng.random(T) < case["still"], 0.0, rng.uniform(0.1, 5, T))
    R = np.where(rng.random(T) < case["exact"], 0.0, rng.uniform(0.1, 5, T))
    variance = case["start"]
    for q, r in zip(Q, R, strict=True):
        predicted = predicted_variance(variance, q)  # (12b)
        variance = fused_variance(predicted, r)  # (12c), (12f)
    moved = np.hstack([np.ones((T, 1)), np.tri(T)])  # x_1 … x_T from the start and Q_0 … Q_{T−1}
    states = moved @ np.diag([case["start"], *Q]) @ moved.T
    seen = states + np.diag(R)
    last = states[-1]
    given = states[-1, -1] - last @ np.linalg.pinv(seen, rcond=1e-12, hermitian=True) @ last
    return Comparison(float(given) + case["start"], variance + case["start"])


STEP = {
    "w": hundredths(500, 1000),
    "M": hundredths(-100, 100),
    "D": hundredths(-100, 100),
    "eta": hundredths(10, 100),
    "P": VARIANCE,
    "R": VARIANCE,
}


def _fused(case: Case, observed_from: float) -> Comparison:
    prediction, observation = case["w"] - case["eta"] * case["M"], observed_from - case["eta"] * case["D"]
    measured = _product_moment({"mu1": prediction, "mu2": observation, "P": case["P"], "R": case["R"]}, 1)
    gain = kalman_gain(case["P"], case["R"])
    momentum = case["M"] + gain * (case["D"] - case["M"])  # (12d)
    return Comparison(measured, case["w"] - case["eta"] * momentum)  # (12e), (33)


def _observed_from_the_model(case: Case) -> Comparison:
    """The observation is w_t − η_gΔ."""
    return _fused(case, case["w"])


@claim(
    "fedeve/eq-32",
    at="(11), (32) and the step to (33), (12d), (12e)",
    sense="==",
    verdict="misprint",
    why="The product of (31) and (32) has the mean w_t − η_g(M_t + KΔ): (32) starts from ŵ_{t+1}, which has taken the "
    "step M_t already. (33) and (12) follow if the observation is w_t − η_gΔ. That is not the clients' average model, "
    "ŵ_{t+1} − Δ, of Section 3.4: their update at the look-ahead point is taken as the update at w_t. Nor does a "
    "filter with the h of (11) help: Δ is the measurement, so its innovation is zero. (33) is the law of w_{t+1}, not "
    "of w̃_{t+1}.",
    cases=st.fixed_dictionaries(STEP),
    needs=[*POSITIVE, "eta > 0"],
    repair="w̃_{t+1} = w_t − η_gΔ + R_t in (11) and (32); or M_{t+1} = M_t + KΔ in (12d)",
    repaired=_observed_from_the_model,
)
def from_product_to_update(case: Case) -> Comparison:
    """Fusing the prediction (31) with the observation (32) by (30) gives the update (33), that is (12d) and (12e).

    Measured: the mean of the normalised product of the two densities, summed over a grid. Claimed: (33).
    """
    return _fused(case, case["w"] - case["eta"] * case["M"])
