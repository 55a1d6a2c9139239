"""`cflag`, Section 5 and Appendix 3: the server's update, adaptive rates, Lemmas 6 and 7, Algorithms 1 and 3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from ..bounds import cflag as bounds
from .cflag_worlds import (
    SIZES,
    STEP,
    Array,
    Round,
    Samples,
    length,
    mean_grad,
    mean_value,
    one_round,
    samples,
    shares,
)
from .ledger import Case, Comparison, claim
from .worlds import hundredths

SEED = st.integers(0, 999)
LALPHA = hundredths(1, 99)


# --- The server's update: (7), (23)-(25), Algorithm 1 line 12 with Algorithm 3 line 2 ---------------------------------


@dataclass(frozen=True)
class Turn:
    """A round of C-FLAG before the server's update: local steps, weights, rates and the memory's gradient.

    The memory holds all of the past, two samples a client.
    """

    path: Round
    p: Array
    alpha: float
    beta: float
    past: Samples
    L: float
    E: int

    @property
    def memory(self) -> Array:
        """∇f†(x_t)."""
        return mean_grad(self.past, self.p, self.path.x)

    @property
    def derived(self) -> Array:
        """x_{t+1} by (25)."""
        return self.path.x - self.alpha * self.memory - self.beta * self.p @ self.path.sums

    @property
    def last(self) -> Array:
        """x_{t,E}, client × coordinate."""
        return self.path.local[:, -1]


TURN = {**SIZES, "step": STEP, "alphaL": LALPHA}
STEPS = ["0.005 <= step <= 1", "0 < alphaL < 1"]


def _turn(case: Case) -> Turn:
    path, here, beta = one_round(case, 4)
    past = samples(here.rng, case["N"], 2, case["dim"], case["L"], "kinked")
    return Turn(path, here.p, case["alphaL"] / case["L"], beta, past, case["L"], case["E"])


def _moved_to(turn: Turn, x: Array) -> Comparison:
    """How far a form of the update ends from (25), both measured from where no one is, so that equal means equal."""
    scale = 1 + length(turn.derived)
    return Comparison(scale + length(x - turn.derived), scale)


@claim(
    "cflag/eq-7",
    at="(7)",
    sense="==",
    verdict="misprint",
    why="The server would subtract β times the clients' models. (23)-(25) have the sum of delayed gradients.",
    cases=st.fixed_dictionaries(TURN),
    needs=STEPS,
    repair="x_{t+1} = x_t − α∇f†(x_t) − β Σ_i p_i Σ_k ∇g'_i(x_{t,k}^i) = Σ p_i x_{t,E}^i − α∇f†(x_t)",
    repaired=lambda case: _moved_to(turn := _turn(case), turn.p @ turn.last - turn.alpha * turn.memory),
)
def server_update(case: Case) -> Comparison:
    """The server's update x_t − α Σ p_i ∇f†_i − β Σ p_i x_{t,E}^i is the one that is analysed, (25).

    Measured: its distance from (25), on top of a scale. Claimed: the scale.
    """
    turn = _turn(case)
    return _moved_to(turn, turn.path.x - turn.alpha * turn.memory - turn.beta * turn.p @ turn.last)


@claim(
    "cflag/adaplr-line-2",
    at="Algorithm 3 line 2 with Algorithm 1 line 12, and Δx below (6)",
    sense="==",
    verdict="misprint",
    why="Line 12 subtracts Σ p_i Δx_t^i from x_t, so Δx must be x_t − x_{t,E} + α∇f†. With line 2 the server's model "
    "becomes the difference of x_t and the clients' mean, near 0 whatever x_t is. Δx = x_{t,E} − α∇f† of the text is "
    "right if it is averaged, as in (23), and wrong in line 12.",
    cases=st.fixed_dictionaries(TURN),
    needs=STEPS,
    repair="Δx_t^i = α∇f†(x_t) + x_t − x_{t,E}^i",
    repaired=lambda case: _moved_to(
        turn := _turn(case), turn.path.x - (turn.alpha * turn.memory + turn.p @ (turn.path.x - turn.last))
    ),
)
def fixed_rate_return(case: Case) -> Comparison:
    """x_t minus the mean of what AdapLR returns without adaptive rates, α∇f† + x_{t,E}^i, is the update that is
    analysed, (25).

    Measured: the distance from (25), on top of a scale. Claimed: the scale.
    """
    turn = _turn(case)
    return _moved_to(turn, turn.path.x - (turn.alpha * turn.memory + turn.p @ turn.last))


# --- (14)-(16) ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clients:
    """Sums a_i of delayed gradients, client weights and the memory's gradient F, as a case draws them."""

    a: Array
    p: Array
    F: Array
    L: float
    alpha: float

    @property
    def inner(self) -> Array:
        """Λ_{t,i}."""
        return self.a @ self.F

    @property
    def a2(self) -> Array:
        return np.sum(self.a**2, axis=1)

    def forgetting(self, alphas: Array, betas: Array) -> float:
        """Γ(t) of the server's update with client rates: (15) with Σ p_i α_i and Σ p_i β_i a_i."""
        S = (self.p * betas) @ self.a
        return bounds.forgetting(self.L, float(self.p @ alphas), 1.0, float(S @ S), float(self.F @ S))


def _clients(case: Case) -> Clients:
    """``average``: orthogonal a_i, so that the cross terms vanish for any rates. ``worst``: all inner products
    positive.
    """
    rng = np.random.default_rng(case["seed"])
    N, d = case["N"], 3
    if case["situation"] == "average":
        a = np.linalg.qr(rng.normal(size=(d, d)))[0][:N] * rng.uniform(0.1, 3, (N, 1))
    elif case["situation"] == "equal":
        a = np.broadcast_to(rng.normal(size=d), (N, d)).copy()
    else:
        a = rng.uniform(0.01, 1, (N, d)) * rng.uniform(0.1, 3, (N, 1))
    F = rng.normal(size=d) * case["memory"]
    p = np.full(N, 1 / N) if case["even"] else shares(rng, N)
    return Clients(a, p, F, case["L"], case["alphaL"] / case["L"])


CLIENTS = {
    "N": st.integers(1, 3),
    "situation": st.sampled_from(["average", "worst", "equal"]),
    "memory": st.floats(0.01, 10.0),
    "even": st.booleans(),
    "L": st.floats(0.1, 10.0),
    "alphaL": LALPHA,
    "seed": SEED,
}
BELOW = ["0 < alphaL < 1", "memory > 1e-3", "L > 1e-3"]


@claim(
    "cflag/eq-14",
    at="(14), what adaptive rates should ideally solve",
    sense="<=",
    verdict="holds",
    why="Read as a choice of β for a given α, as (16) and Table 1 go on. Over both rates at once (14) has no solution "
    "with α > 0: where Λ > 0 the best Γ for an α, −(1 − Lα)²Λ²/(2L‖S‖²), falls as α falls, and the infimum is at α → "
    "0, no replay at all. Γ alone leaves out the term −α(1 − (L/2)α(1 + m))‖∇f‖² of Lemma 1, for which the memory is "
    "there.",
    cases=st.fixed_dictionaries({**CLIENTS, "m": hundredths(101, 300)}),
    needs=[*BELOW, "m > 1", "alphaL < 2 / (1 + m)"],
)
def rates_that_forget_less(case: Case) -> Comparison:
    """Where the current task helps the past (Λ > 0), rates within the constraint of (14) forget less than the fixed
    β = α, and than no step on the current task.

    Measured: Γ at α with its best β, the memory's gradient turned so that Λ > 0. Claimed: Γ at β = α or at β = 0,
    whichever is less.
    """
    here = _clients(case)
    S = here.p @ here.a
    inner, S2 = abs(float(here.F @ S)), float(S @ S)
    star = bounds.best_beta(here.L, here.alpha, inner, 1.0, S2)
    best, fixed = (bounds.forgetting(here.L, here.alpha, beta, S2, inner) for beta in (star, here.alpha))
    return Comparison(best, min(fixed, 0.0))


@claim(
    "cflag/eq-16",
    at="(16)",
    sense=">=",
    verdict="holds",
    why="If the local steps have been run with a fixed rate and are rescaled at the end, as the text proposes. Run "
    "with β itself, S depends on β and Γ is no quadratic in it. β* > 0 needs Lα < 1 and Λ_t > 0.",
    cases=st.fixed_dictionaries({**CLIENTS, "beta": st.floats(0.001, 10.0)}),
    needs=[*BELOW, "beta > 0"],
)
def best_common_rate(case: Case) -> Comparison:
    """For given sums of the clients' gradients, S = Σ p_i a_i and Λ = ⟨∇f†, S⟩, no β gives a smaller Γ(t) than β*,
    which reaches −(1 − Lα)²Λ²/(2L‖S‖²).

    Measured: 1 plus the excess of Γ at another β over the claimed minimum, in units of that. Claimed: 1 plus the same
    at β*, which has to be zero.
    """
    here = _clients(case)
    S = here.p @ here.a
    S2, inner = float(S @ S), float(here.F @ S)
    least = bounds.best_forgetting(here.L, here.alpha, inner, 1.0, S2)
    star = bounds.best_beta(here.L, here.alpha, inner, 1.0, S2)
    other, own = (
        bounds.forgetting(here.L, here.alpha, beta, S2, inner) - least for beta in (case["beta"] * abs(star), star)
    )
    return Comparison(1 + other / abs(least), 1 + abs(own) / abs(least))


# --- Table 1 ----------------------------------------------------------------------------------------------------------


@claim(
    "cflag/eq-184",
    at="(184), average case",
    sense="==",
    verdict="holds",
    why="For one β. With a β_i for every client the condition has to be Σ p_i p_j β_i β_j C_ij = 0, and the memory's "
    "rate in the cross term is Σ p_i α_i, not α_i: see lemma-7.",
    cases=st.fixed_dictionaries({**CLIENTS, "situation": st.just("average"), "beta": st.floats(0.001, 10.0)}),
    needs=[*BELOW, "beta > 0"],
)
def average_split(case: Case) -> Comparison:
    """If the clients' sums have no net interaction, Γ(t) is the weighted sum of client terms Γ_{i,av}.

    Measured: Γ(t) by (15), plus the size of its parts. Claimed: Σ p_i Γ_{i,av}, plus the same.
    """
    here, beta = _clients(case), case["beta"]
    rates = np.full(case["N"], beta)
    single = [
        bounds.forgetting(here.L, here.alpha, beta, q * s, v)
        for q, s, v in zip(here.p, here.a2, here.inner, strict=True)
    ]
    size = 1 + float(here.p @ (here.L * beta**2 * here.p * here.a2 + beta * np.abs(here.inner)))
    whole = here.forgetting(np.full(case["N"], here.alpha), rates)
    return Comparison(size + whole, size + float(here.p @ np.array(single)))


@claim(
    "cflag/eq-188",
    at="(186)-(191), worst case",
    sense="<=",
    verdict="holds",
    why="For any signs of C_ij; N equal clients of equal weight reach it. The Γ_{i,w} defined below (190) carries sums "
    "over all clients that belong outside it.",
    cases=st.fixed_dictionaries({**CLIENTS, "beta": st.floats(0.001, 10.0)}),
    needs=[*BELOW, "beta > 0"],
)
def worst_split(case: Case) -> Comparison:
    """Γ(t) is at most the weighted sum of client terms with N p_i in place of p_i before ‖a_i‖².

    Measured: (L/2)β²‖Σ p_i a_i‖², the part in which the two differ. Claimed: (L/2)β² N Σ p_i²‖a_i‖².
    """
    here, beta = _clients(case), case["beta"]
    S = here.p @ here.a
    half = here.L / 2 * beta**2
    return Comparison(half * float(S @ S), half * case["N"] * float(here.p**2 @ here.a2))


def _weights(here: Clients, worst: bool) -> Array:
    return here.p * (len(here.p) if worst else 1)


@claim(
    "cflag/table-1-transference",
    at="Table 1, rows T; Appendices 3.1 and 3.2",
    sense=">=",
    verdict="holds",
    why="It minimises the client's term in both cases, for Lα < 1. The average case takes A = 0 for granted: for N "
    "equal clients its step is N times too long and Γ(t) itself becomes positive for N > 2, where the worst case is "
    "exact.",
    cases=st.fixed_dictionaries({**CLIENTS, "worst": st.booleans(), "beta": st.floats(0.001, 10.0)}),
    needs=[*BELOW, "beta > 0"],
)
def client_rate(case: Case) -> Comparison:
    """For a client with Λ > 0 no β_i makes its term of Γ smaller than β_i = (1 − Lα)Λ/(L p_i‖a_i‖²) does; in the worst
    case, with N p_i for p_i.

    Measured: the least excess over the claimed minimum, of all clients, at another β; in units of the minimum, plus 1.
    Claimed: the largest excess at the claimed β, plus 1.
    """
    here = _clients(case)
    inner, weight = np.abs(here.inner), _weights(here, case["worst"])  # F turned towards each a_i
    other, own = [], []
    for v, w, s in zip(inner, weight, here.a2, strict=True):
        least, star = (f(here.L, here.alpha, v, w, s) for f in (bounds.best_forgetting, bounds.best_beta))
        other.append((bounds.forgetting(here.L, here.alpha, case["beta"] * star, w * s, v) - least) / abs(least))
        own.append(abs(bounds.forgetting(here.L, here.alpha, star, w * s, v) - least) / abs(least))
    return Comparison(1 + min(other), 1 + max(own))


@claim(
    "cflag/table-1-interference",
    at="Table 1, rows I; Appendix 3.1, last lines",
    sense="==",
    verdict="holds",
    why="With β = α, as the table has it: the raised α cancels what a_i does along ∇f†, the projection of A-GEM client "
    "by client. α_{t,i} has no bound as ∇f† → 0, the displacement has.",
    cases=st.fixed_dictionaries(CLIENTS),
    needs=BELOW,
)
def interference_negated(case: Case) -> Comparison:
    """For a client with Λ ≤ 0, α_{t,i} = α(1 − Λ/‖∇f†‖²) with β = α leaves −α∇f† as the step along ∇f†.

    Measured: the component of α_{t,i}∇f† + αa_i along ∇f† in units of ∇f†, largest deviation of all clients. Claimed:
    α.
    """
    here = _clients(case)
    F2 = float(here.F @ here.F)
    raised = [bounds.raised_alpha(here.alpha, -abs(float(v)), F2) for v in here.inner]
    along = [r - here.alpha * abs(float(v)) / F2 for r, v in zip(raised, here.inner, strict=True)]
    scale = here.alpha + max(raised)
    return Comparison(scale + max(along, key=lambda v: abs(v - here.alpha)), scale + here.alpha)


def _lone_rates(case: Case) -> tuple[Turn, float, float, float]:
    """A round of one client, Table 1's α and β for it, and the constraint 2/(L(1 + m))."""
    turn = _turn(case)
    a, F = turn.path.sums[0], turn.memory
    inner, limit = float(F @ a), bounds.rate_limit(turn.L, case["m"])
    if inner > 0:
        return turn, turn.alpha, bounds.best_beta(turn.L, turn.alpha, inner, 1.0, float(a @ a)), limit
    return turn, bounds.raised_alpha(turn.alpha, inner, float(F @ F)), turn.alpha, limit


def _rate_of_table_1(case: Case) -> Comparison:
    """α_{t,i} of Table 1 against 2/(L(1 + m))."""
    _, alpha, _, limit = _lone_rates(case)
    return Comparison(alpha, limit)


@claim(
    "cflag/sec-5-constraint",
    at="below (14): within the constraint, the rates enjoy convergence guarantees; Table 1",
    sense="<=",
    verdict="gap",
    why="Rates that keep to α < 2/(L(1 + m)), as solutions of (14) do, have Lemma 1's guarantee on f. Table 1's rates "
    "need not keep to it: for an interfering client nothing bounds α(1 − Λ/‖∇f†‖²), and near the past's optimum, where "
    "the method starts, ∇f† is small; Lemma 1's denominator is then negative. (The displacement stays bounded, see "
    "table-1-interference, so that a guarantee of another form may be had.) On g there is none: see sec-4-current.",
    cases=st.fixed_dictionaries({**TURN, "N": st.just(1), "m": hundredths(101, 300)}),
    needs=[*STEPS, "m > 1", "0.001 <= alphaL < 2 / (1 + m)"],
    step=_rate_of_table_1,
    repair="cap α_{t,i} below 2/(L(1 + m)), or bound the displacement in place of the rate",
)
def guarantee_within_the_constraint(case: Case) -> Comparison:
    """Adaptive rates with α < 2/(L(1 + m)) have the guarantee (8) on the past.

    Measured: ‖∇f(x_t)‖², one client, all of the past in memory. Claimed: the right side of (8) with sums from k = 0
    and Table 1's rates, an α beyond 99 % of the constraint cut down to that. Step: Table 1's rates are within the
    constraint.
    """
    turn, alpha, beta, limit = _lone_rates(case)
    alpha, x, a, F = min(alpha, 0.99 * limit), turn.path.x, turn.path.sums[0], turn.memory
    Gamma = bounds.forgetting(turn.L, alpha, beta, float(a @ a), float(F @ a))
    fall = mean_value(turn.past, turn.p, x) - mean_value(turn.past, turn.p, x - alpha * F - beta * a)
    return Comparison(float(F @ F), bounds.past_gradient(turn.L, alpha, case["m"], fall, 0.0, Gamma))


# --- Lemmas 6 and 7 ---------------------------------------------------------------------------------------------------


def _adapted(here: Clients, worst: bool) -> tuple[Array, Array]:
    """Table 1's rates for all clients."""
    F2, weight = float(here.F @ here.F), _weights(here, worst)
    alphas, betas = np.full(len(here.p), here.alpha), np.full(len(here.p), here.alpha)
    for i, v in enumerate(here.inner):
        if v > 0:
            betas[i] = bounds.best_beta(here.L, here.alpha, v, weight[i], here.a2[i])
        else:
            alphas[i] = bounds.raised_alpha(here.alpha, v, F2)
    return alphas, betas


def _terms(here: Clients, worst: bool, alphas: Array, betas: Array) -> Array:
    """Γ_{i,av} or Γ_{i,w} with client rates."""
    half = here.L / 2 * betas**2 * _weights(here, worst) * here.a2
    return half - betas * (1 - here.L * alphas) * here.inner


def _base(here: Clients) -> tuple[Array, Array]:
    constant = np.full(len(here.p), here.alpha)
    return constant, constant


@claim(
    "cflag/lemma-6",
    at="Lemma 6, (192)-(194)",
    sense="<=",
    verdict="holds",
    why="As a statement on the client's term Γ_i. The term falls without bound as α_{t,i} rises, because Γ leaves out "
    "the −α(1 − (L/2)α(1 + m))‖∇f‖² that a longer memory step spoils.",
    cases=st.fixed_dictionaries({**CLIENTS, "worst": st.booleans()}),
    needs=BELOW,
)
def raised_rate_forgets_less(case: Case) -> Comparison:
    """For a client with Λ ≤ 0, the raised α_{t,i} gives a term Γ_i no larger than α does, in the average and worst
    case.

    Measured: Γ_i with the raised rate, the largest relative to its size of all clients. Claimed: Γ_i with α.
    """
    here = _clients(case)
    against = Clients(np.where(here.inner[:, None] > 0, -here.a, here.a), here.p, here.F, here.L, here.alpha)
    before = _terms(against, case["worst"], *_base(against))
    after = _terms(against, case["worst"], *_adapted(against, case["worst"]))
    worst = int(np.argmax((after - before) / np.abs(before)))
    return Comparison(float(after[worst]), float(before[worst]))


def _whole_forgetting(case: Case) -> Comparison:
    """The same for Γ(t) itself, (15), in the situation that the case stands for."""
    here, worst = _clients(case), case["situation"] != "average"
    return Comparison(here.forgetting(*_adapted(here, worst)), here.forgetting(*_base(here)))


@claim(
    "cflag/lemma-7",
    at="Lemma 7, (195)-(200)",
    sense="<=",
    verdict="gap",
    why="True of the sum of the clients' terms. (195) and (200) equate that sum with Γ(t), before and after: in the "
    "worst case it is only an upper bound, so the halved step of two nearly orthogonal clients forgets more than the "
    "constant one; in the average case the memory's rate in the cross term is Σ p_i α_i, so that an interfering "
    "client's raised rate weighs on the others' transference. Adaptive rates can raise Γ(t), with every α_{t,i} below "
    "1/L: in the stored case, two orthogonal clients, one of each kind. And Algorithm 3 adds what Γ(t) leaves out "
    "(adaplr-line-14).",
    cases=st.fixed_dictionaries({**CLIENTS, "worst": st.booleans()}),
    needs=BELOW,
    step=_whole_forgetting,
)
def adaptive_forgets_less(case: Case) -> Comparison:
    """Client-wise rates of Table 1 lower the forgetting, counted as the weighted sum of the clients' terms.

    Measured: Σ p_i Γ_{i,ad}. Claimed: Σ p_i Γ_i with α for all rates.
    """
    here, worst = _clients(case), case["worst"]
    after = float(here.p @ _terms(here, worst, *_adapted(here, worst)))
    return Comparison(after, float(here.p @ _terms(here, worst, *_base(here))))


# --- Algorithm 3 ------------------------------------------------------------------------------------------------------


def _sums_by_line_4(turn: Turn, divide: bool) -> Array:
    """a_i of line 4, from what a client has; divided by β it is Σ_k ∇g'_i."""
    path = turn.path
    moved = path.x - turn.E * turn.beta * (path.grad - path.grads) - turn.last
    return moved / turn.beta if divide else moved


def _rate_by_line_8(turn: Turn, divide: bool) -> Comparison:
    """Rate of the client with the largest |Λ|, with F turned so that it transfers, against Table 1's."""
    N = len(turn.p)
    a, true = _sums_by_line_4(turn, divide), turn.path.sums
    i = int(np.argmax(np.abs(true @ turn.memory)))
    printed, wanted = (
        bounds.best_beta(turn.L, turn.alpha, abs(float(v @ turn.memory)), N * float(turn.p[i]), float(v @ v))
        for v in (a[i], true[i])
    )
    return Comparison(printed, wanted)


@claim(
    "cflag/adaplr-line-8",
    at="Algorithm 3, lines 4, 5, 8 and 13",
    sense="==",
    verdict="misprint",
    why="Line 4 computes β Σ_k ∇g'_i, the text's a_i times β, so that line 8 gives Table 1's rate over β and line 13 a "
    "step 1/β times too long: 10⁴ times at the experiments' rate.",
    cases=st.fixed_dictionaries(TURN),
    needs=STEPS,
    repair="divide line 4 by β, and let line 13 multiply by β_{t,i}",
    repaired=lambda case: _rate_by_line_8(_turn(case), divide=True),
)
def rate_of_the_algorithm(case: Case) -> Comparison:
    """AdapLR's β_{t,i} for a transferring client is Table 1's worst-case rate.

    Measured: line 8 with a_i of line 4. Claimed: Table 1 with a_i = Σ_k ∇g'_i.
    """
    return _rate_by_line_8(_turn(case), divide=False)


def _along_memory(case: Case, printed: bool) -> Comparison:
    """Component along F, in units of F, of an interfering client's step by lines 10, 11, 13 and 14; plus a scale."""
    turn = _turn(case)
    F2 = float(turn.memory @ turn.memory)
    a = turn.path.sums
    i = int(np.argmax(np.abs(a @ turn.memory)))
    inner = -abs(float(a[i] @ turn.memory))
    raised = (
        bounds.raised_alpha(turn.alpha, turn.beta * inner, F2)
        if printed
        else bounds.raised_alpha(turn.alpha, inner, F2, turn.beta)
    )
    scale = turn.alpha - turn.beta * inner / F2
    return Comparison(scale + raised + turn.beta * inner / F2, scale + turn.alpha)


@claim(
    "cflag/adaplr-line-10",
    at="Algorithm 3, lines 4, 5, 10 and 11",
    sense="==",
    verdict="misprint",
    why="With line 4's a_i, which carries β, the rate that cancels is α − Λ/‖∇f†‖²; line 10 multiplies the correction "
    "by α once more, so for α ≪ 1 next to nothing is cancelled. Table 1, with Σ_k ∇g'_i and β = α, is right.",
    cases=st.fixed_dictionaries(TURN),
    needs=STEPS,
    repair="α_{t,i} = α − βΛ_{t,i}/‖∇f†‖² with Λ_{t,i} = ⟨∇f†, Σ_k ∇g'_i⟩",
    repaired=lambda case: _along_memory(case, printed=False),
)
def interference_in_the_algorithm(case: Case) -> Comparison:
    """AdapLR negates what an interfering client does along ∇f†: a step of −α∇f† is left along it.

    Measured: the component along ∇f† of α_{t,i}∇f† + βΣ_k ∇g'_i by lines 4, 5, 10 and 11. Claimed: α. Both with a scale
    added.
    """
    return _along_memory(case, printed=True)


@claim(
    "cflag/adaplr-line-14",
    at="Algorithm 3, lines 4, 13 and 14, against (24) and Section 5",
    sense="==",
    verdict="holds",
    why="Line 14 sends the client's whole displacement, rescaled; for one rate for all clients, that is the effective "
    "rate that Section 5 speaks of. With Table 1's rate for every client the tracking terms no longer cancel: E times "
    "Σ p_i β_{t,i}(∇g − ∇g_i) remains in the server's step, of the size of the clients' heterogeneity, and Γ(t), Table "
    "1 and (195) know nothing of it. Left out of line 14, it would not be missed: it has done its work in the local "
    "steps.",
    cases=st.fixed_dictionaries({**TURN, "rescaled": st.floats(0.05, 20.0)}),
    needs=[*STEPS, "rescaled > 0"],
)
def rescaled_update(case: Case) -> Comparison:
    """With β_{t,i} = β* for all clients, line 14 sends a client's displacement rescaled by β*/β, and the server moves
    by −α∇f† − β* Σ p_i Σ_k ∇g'_i.

    Measured: the largest distance of a client's line 14 from α∇f† plus its rescaled displacement, and of the server's
    mean from that step, on top of a scale; β* is ``rescaled`` times β. Claimed: the scale.
    """
    turn = _turn(case)
    path, p, beta = turn.path, turn.p, case["rescaled"] * turn.beta
    a = case["rescaled"] * _sums_by_line_4(turn, divide=False)
    sent = turn.alpha * turn.memory + turn.E * beta * (path.grad - path.grads) + a
    moved = turn.alpha * turn.memory + case["rescaled"] * (path.x - turn.last)
    server = turn.alpha * turn.memory + beta * p @ path.sums
    off = float(np.max(np.linalg.norm(sent - moved, axis=1))) + length(p @ sent - server)
    scale = float(np.max(np.linalg.norm(sent, axis=1))) + case["rescaled"] * length(path.x)
    return Comparison(scale + off, scale)
