r"""History weights that minimise the papers' error bounds: in closed form, by LU and by convex optimisation.

All of them minimise, over weights p_1, ..., p_t that sum to one,

    V(p) = G^2 + sum_{s,t} p_s p_t C_st + R^2 (1 - p_t)^2,

where C is the covariance of one client's time drifts: D^2 * 1 in Lemma B.4 of `cfl`, D^2 on and F^2 off the
diagonal in Theorem 4.7, D^2 alpha^|s-t| in Theorem 4.9. `optimal` solves these for one round, `given` for any C
and any linear constraints; `lemma_b4`, `thm_47` and `thm_49` are the schedules of all rounds.
`simulated_optimal` asks for the weights that suit the simulated error, which averages over clients, rather than
the bound, which does not.

**The closed form.** Write C = F^2 11^T + M^2 A with M^2 = D^2 - F^2 and A_ij = a^|i-j|. As sum p = 1, F^2 adds F^2
to V and moves no weight, so let F = G = 0. More generally than Theorem 4.9, let rounds m+1, ..., t-1 be left out
(m = t-1: none), so that the past rounds 1..m are linked to the current one by b = a^(t-m). With u = (1, ..., 1, 0)
the matrix of V is Q = M^2 A + R^2 u u^T, and p is proportional to Q^{-1} 1. An AR(1) process is Markov, hence A has a
tridiagonal inverse:

    A^{-1} 1 = past (1, 1-a, ..., 1-a, 1)/(1+a), minus b/(1+b) at m;   1/(1+b) at t,
    A^{-1} u = the same past, plus b^2/(1-b^2) at m;                   -b/(1-b^2) at t.

Sherman-Morrison, Q^{-1} 1 ~ A^{-1} 1 - c A^{-1} u with c = R^2 u.A^{-1} 1 / (M^2 + R^2 u.A^{-1} u), then gives, with

    k = (1-b^2) M^2 + b R^2,   s = m (1-a) + 2a,   h = (1+a)(1-b) M^2 + R^2 s,   norm = k s + (1-b) h,

the weights (all divided by norm)

    p_1 = k,   p_i = (1-a) k,   p_m = k - b h = (1-b)(1-ab) M^2 - b R^2 ((m-1)(1-a) + a),   p_t = h,

where p_1 = (1+a)(1-b) M^2 if m = 1. In words: k weighs the past as if the current round did not exist, h weighs what
is new, xi_t - b xi_m, and only p_m feels both. The minimum is

    V = M^2 [(1+a)(1-b^2) M^2 + R^2 ((1-b^2) s + (1+a) b^2)] / norm.

Every term but those of p_m is positive: nothing cancels, and nothing is divided by a, 1-a, D or R.

- b = a, n = (t-1)(1-a) + a: k = g = (1-a^2) D^2 + a R^2, h = g + R^2 n, norm = g (n+1) + (1-a) n R^2: Theorem 4.9.
- a = 0: p_tau = D^2 / (t D^2 + (t-1) R^2), Lemma B.4, with V = D^2 (D^2 + (t-1) R^2) / (t D^2 + (t-1) R^2).
- t -> inf: V falls (a longer history can ignore its oldest round) to x R^2 / (x + R^2), where x = (1-a^2) M^2 is the
  variance of what is new in a round; p_t -> R^2 / (x + R^2), p_{t-1} -> -a p_t, the rest thins out. See `limit`.
- Only p_{t-1} can be negative: if t >= 3 and R^2/M^2 > (1-a)^2 (1+a) / (a ((t-2)(1-a) + a)). See `negative_above`.
- R = 0: p = (1, 1-a, ..., 1-a, 1) / (t - (t-2) a), V = (1+a) M^2 / (t - (t-2) a).
- R -> inf: p_t = 1, and the past sums to zero. The past itself is zero (FedAvg's weights, V = M^2) if a = 0, t <= 2 or
  p >= 0; else it predicts a part of xi_t, and V = M^2 (1 - a^2 (1-a) (t-2) / (n+a)) with n as above.
- a -> 1 with R > 0, t >= 3: p -> (1/2, 0, ..., 0, -1/2, 1), V -> M^2. With R = 0: p -> (1/2, 0, ..., 0, 1/2). So
  these two limits do not commute.
- D -> 0 with R > 0: the weights of R -> inf. At M = 0 itself every p with p_t = 1 is a minimiser; we return the one of
  least norm, all weight on the current round. At M = R = 0 every p is one, which is refused.

**With p >= 0** the minimiser is the same formula for the largest m whose p_m is not negative. As m falls, so does b, so
that p_m changes sign once, and at m = 1 it is positive. This is optimal: the gradient of V at a round j that is left
out is, up to constants, P a^(j-m) + p_t a^(t-j), convex in j. At m it equals the multiplier, at m+1 it is larger (or
else p_{m+1} would not have been negative), hence it is larger at all of m+1, ..., t-1. As A grows with a, so does
this minimum; without p >= 0 it need not.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import nqm
from nqm.check import InvalidInput, choice, fail, flag, integer, memory, number
from nqm.experiment import WeightsRequest
from nqm.plan import Plan, geometric
from nqm.schedule import Schedule, Table, Weights

Array = NDArray[np.float64]

NAMES = ("lemma-b.4", "thm-4.7", "thm-4.9", "uniform", "current")
SOLVERS = ("auto", "closed", "dense", "cvxpy")


@dataclass(frozen=True, eq=False)
class Optimal:
    """Weights of one round, the value V that they attain, and the solver that found them."""

    weights: Array
    value: float
    solver: str


# Schedules of all rounds


def lemma_b4(rounds: int, D2: float, R2: float) -> Schedule:
    r"""Independent time drifts (Lemma B.4): p_tau = D^2 / (t D^2 + (t-1) R^2) for tau < t, the rest on p_t."""
    D2, R2, _, _ = _constants(rounds, D2, R2)
    return _schedule(rounds, D2, R2, 0.0, f"lemma-b.4(D2={D2:g}, R2={R2:g})")


def thm_47(rounds: int, D2: float, R2: float, overlap: float) -> Schedule:
    r"""Time drifts of constant overlap F^2 (Theorem 4.7): Lemma B.4 with M^2 = D^2 - F^2 in place of D^2."""
    D2, R2, _, F2 = _constants(rounds, D2, R2, overlap=overlap)
    return _schedule(rounds, D2 - F2, R2, 0.0, f"thm-4.7(D2={D2:g}, R2={R2:g}, overlap={F2:g})")


def thm_49(rounds: int, D2: float, R2: float, alpha: float) -> Schedule:
    r"""AR(1) time drifts (Theorem 4.9), in four distinct values a round: see the top of this module."""
    D2, R2, a, _ = _constants(rounds, D2, R2, alpha)
    return _schedule(rounds, D2, R2, a, f"thm-4.9(D2={D2:g}, R2={R2:g}, alpha={a:g})")


def named(request: WeightsRequest) -> Weights:
    """Weights by the name that a file or the command line uses."""
    choice("method.weights", request.name, NAMES)
    if request.D2 == 0 and request.R2 == 0:  # every weight is optimal: take the limit of a vanishing drift
        request = dataclasses.replace(request, D2=1.0, overlap=0.0)
    if request.name == "lemma-b.4":
        return lemma_b4(request.rounds, request.D2, request.R2)
    if request.name == "thm-4.7":
        return thm_47(request.rounds, request.D2, request.R2, request.overlap)
    if request.name == "thm-4.9":
        return thm_49(request.rounds, request.D2, request.R2, request.alpha)
    if request.name == "uniform":
        return Schedule.uniform(request.rounds)
    return Schedule.current_only(request.rounds)


def _schedule(rounds: int, M2: float, R2: float, a: float, name: str) -> Schedule:
    d, r, a = _scaled(M2, R2, a)
    x = _pieces(np.arange(1.0, rounds), a, a, 1.0 - a, d, r)  # m rounds lie behind, from round 2 on
    x.last[:1] = x.only
    first, middle, last, current = (np.concatenate(([1.0], p / x.norm)) for p in (x.first, x.middle, x.last, x.current))
    return Schedule(first, middle, last, current, name)  # which sets to zero what a round doesn't have yet


# One round


def optimal(
    rounds: int,
    D2: float,
    R2: float,
    alpha: float = 0.0,
    overlap: float = 0.0,
    G2: float = 0.0,
    nonnegative: bool = False,
    solver: str = "auto",
) -> Optimal:
    r"""The best weights of round t = ``rounds`` over rounds 1..t, and the minimum of V.

    D2, R2, G2: D^2, R^2, G^2. R2 = inf is allowed and forces p_t = 1.
    alpha: correlation alpha^|s-t| of the time drifts (Theorem 4.9), in [0, 1). With 0 it is Lemma B.4.
    overlap: F^2 = E<xi_s, xi_t> for s != t (Theorem 4.7), in [0, D2]: by Cauchy-Schwarz no two drifts of mean square
        D^2 correlate more, so that the paper's max(D^2 - F^2, 0) is D^2 - F^2. Together with an alpha, the part
        D^2 - F^2 that moves is the one that is correlated, as in `nqm.Drift`.
    nonnegative: keep every weight >= 0.
    solver: ``"closed"`` (which is ``"auto"``), ``"dense"`` (the linear system (7) of `cfl` by LU) or ``"cvxpy"``
        (CLARABEL).
    """
    D2, R2, a, F2 = _constants(rounds, D2, R2, alpha, overlap)
    G2 = number("weights.G2", G2, 0.0)
    flag("weights.nonnegative", nonnegative)
    choice("weights.solver", solver, SOLVERS)
    t, M2 = int(rounds), D2 - F2
    if solver in ("auto", "closed"):
        p, value = closed_form(t, M2, R2, a, nonnegative)
        return Optimal(p, value + F2 + G2, "closed")
    if solver == "dense" and nonnegative:
        raise fail("weights.solver", solver, "a linear system can't keep weights >= 0; use closed or cvxpy")
    _fits(t, solver)
    return _numeric(_Form.of_ar1(t, M2, R2, a, F2 + G2), _Linear.of(t, nonnegative), solver)


def stateless(rounds: int, D2: float, R2: float, G2: float, solver: str = "auto") -> Optimal:
    r"""Clients that are seen once (Proposition 4.3): client drift averages as time drift does, D^2 -> G^2 + D^2."""
    both = number("weights.D2", D2, 0.0) + number("weights.G2", G2, 0.0)
    return optimal(rounds, both, R2, solver=solver)


def given(
    covariance: ArrayLike,
    R2: float,
    G2: float = 0.0,
    nonnegative: bool = False,
    A_eq: ArrayLike | None = None,
    b_eq: ArrayLike | None = None,
    A_ub: ArrayLike | None = None,
    b_ub: ArrayLike | None = None,
    solver: str = "auto",
) -> Optimal:
    r"""The best weights for any covariance of the time drifts, with sum p = 1, A_eq p = b_eq and A_ub p <= b_ub.

    solver: ``"dense"`` takes equalities only; ``"auto"`` is dense where that will do and cvxpy elsewhere. Of several
        minimisers dense returns the one of least norm.
    """
    C, R2 = _covariance(covariance), _loss(R2)
    limits = _Linear.of(len(C), nonnegative, A_eq, b_eq, A_ub, b_ub)
    choice("weights.solver", solver, ("auto", "dense", "cvxpy"))
    if solver == "dense" and len(limits.most):
        raise fail("weights.solver", solver, "a linear system can't hold inequalities; use cvxpy")
    form = _Form.of_covariance(C, R2, number("weights.G2", G2, 0.0))
    if form.unit == 0 and R2 == 0 and len(C) > 1:
        raise InvalidInput("weights.covariance is constant, weights.R2 = 0: every weight is optimal; R2 must be > 0")
    if solver == "auto":
        solver = "cvxpy" if len(limits.most) else "dense"
    _fits(len(C), solver)
    return _numeric(form, limits, solver)


def covariance(rounds: int, D2: float, alpha: float = 0.0, overlap: float = 0.0) -> Array:
    r"""C_st = F^2 + (D^2 - F^2) alpha^|s-t|: the covariance that `optimal` has in mind."""
    D2, _, a, F2 = _constants(rounds, D2, math.inf, alpha, overlap)
    return F2 + (D2 - F2) * np.power(a, _lags(rounds))  # 0.0**0 is 1


def quadratic_form(covariance: ArrayLike, R2: float) -> Array:
    """Q of (7) and Lemma B.9, C + R^2 u u^T with u = (1, ..., 1, 0): V(p) = G^2 + p.Q p where sum p = 1."""
    Q = np.array(covariance, dtype=float)
    Q[:-1, :-1] += R2
    return Q


def limit(
    D2: float,
    R2: float,
    alpha: float = 0.0,
    overlap: float = 0.0,
    G2: float = 0.0,
    nonnegative: bool = False,
) -> float:
    r"""The minimum of V as t -> inf: G^2 + F^2 + x R^2 / (x + R^2) with x = (1 - alpha^2)(D^2 - F^2).

    With p >= 0 a round's own past can't be subtracted from it, and x = D^2 - F^2 whatever alpha is: a long history can
    leave a gap between past and present.
    """
    D2, R2, a, F2 = _constants(1, D2, R2, alpha, overlap)
    x = (D2 - F2) * (1.0 if nonnegative else (1.0 - a) * (1.0 + a))
    small, large = sorted((x, R2))
    return number("weights.G2", G2, 0.0) + F2 + small / (1.0 + small / large)


def negative_above(rounds: int, alpha: float) -> float:
    r"""The R^2 / (D^2 - F^2) above which Theorem 4.9 gives the previous round a negative weight; inf: never."""
    t = integer("weights.rounds", rounds, 1)
    a = number("weights.alpha", alpha, 0.0, 1.0, open_high=True)
    if t < 3 or a == 0:
        return math.inf
    return (1 - a) ** 2 * (1 + a) / (a * ((t - 2) * (1 - a) + a))


# The closed form


class _Pieces(NamedTuple):
    """The weights times ``norm``, and V times norm / M^2. ``only`` is the past's one weight if m = 1."""

    first: Any
    middle: Any
    last: Any
    only: Any
    current: Any
    value: Any
    norm: Any


def _pieces(m: Any, a: float, b: float, rest: float, d: float, r: float) -> _Pieces:
    """The formulas at the top of this module for M^2 = d, R^2 = r and rest = 1 - b. ``m`` may be an array."""
    k = rest * (1 + b) * d + b * r
    s = m * (1 - a) + 2 * a
    h = (1 + a) * rest * d + r * s
    last = rest * (1 - a * b) * d - b * r * ((m - 1) * (1 - a) + a)
    value = (1 + a) * rest * (1 + b) * d + r * (rest * (1 + b) * s + (1 + a) * b * b)
    return _Pieces(k, (1 - a) * k, last, (1 + a) * rest * d, h, value, k * s + rest * h)


def closed_form(t: int, M2: float, R2: float, a: float, nonnegative: bool = False) -> tuple[Array, float]:
    """The formulas at the top of this module for one round, unchecked: weights, and the minimum less F^2 + G^2."""
    if t == 1:
        return np.ones(1), M2
    if t > 1_000_000:
        memory(8 * t, f"weights.rounds = {t}", "lower rounds")
    d, r, a = _scaled(M2, R2, a)
    gap, b, rest = 1, a, 1.0 - a
    if nonnegative and a > 0:
        gap = _gap(t, d, r, a)
        b, rest = a**gap, -math.expm1(gap * math.log(a))
    m = t - gap
    x = _pieces(m, a, b, rest, d, r)
    p = np.empty(t)
    p.fill(x.middle / x.norm)
    if gap > 1:
        p[m:] = 0.0
    p[0] = x.first / x.norm
    p[m - 1] = (x.only if m == 1 else x.last) / x.norm
    p[-1] = x.current / x.norm
    return p, M2 * (x.value / x.norm)


def _gap(t: int, d: float, r: float, a: float) -> int:
    """t - m for the largest m whose weight is not negative, by bisection: the sign changes once."""
    log = math.log(a)

    def fits(gap: int) -> bool:
        b, rest = a**gap, -math.expm1(gap * log)
        return rest * (1 - a * b) * d >= b * r * ((t - gap - 1) * (1 - a) + a)

    return 1 + bisect_left(range(1, t - 1), True, key=fits)


def _scaled(M2: float, R2: float, a: float) -> tuple[float, float, float]:
    """M^2 and R^2 by the larger of them, so that R = inf is a number. Where nothing moves, alpha means nothing: 0."""
    if math.isinf(R2):
        return 0.0, 1.0, a if M2 > 0 else 0.0
    unit = max(M2, R2)
    return M2 / unit, R2 / unit, a if M2 > 0 else 0.0


# The numeric solvers


class _Form(NamedTuple):
    r"""V(p) = base + unit * p.K p + R2 (1 - p_t)^2 wherever sum p = 1.

    K is the covariance up to a multiple of 11^T, which the constraint turns into a constant: with alpha near 1 all
    entries of C are near D^2, and the digits that matter are those of D^2 - C_ij.
    """

    K: Array
    unit: float
    R2: float
    base: float

    @classmethod
    def of_ar1(cls, t: int, M2: float, R2: float, a: float, base: float) -> _Form:
        if M2 == 0:
            return cls(np.zeros((t, t)), 0.0, R2, base)
        lag = _lags(t)
        with np.errstate(divide="ignore", invalid="ignore"):  # log 0 = -inf is right, 0 * -inf isn't
            K = np.where(lag > 0, np.expm1(lag * np.log(a)) / (1.0 - a), 0.0)
        return cls(K, M2 * (1.0 - a), R2, base + M2)

    @classmethod
    def of_covariance(cls, C: Array, R2: float, G2: float) -> _Form:
        K = C - C[-1, -1]
        unit = float(np.abs(K).max())
        return cls(K / unit if unit > 0 else K, unit, R2, G2 + float(C[-1, -1]))

    def value(self, p: Array) -> float:
        lost = 0.0 if math.isinf(self.R2) else self.R2 * float(1.0 - p[-1]) ** 2
        return self.base + self.unit * float(p @ self.K @ p) + lost


class _Linear(NamedTuple):
    """equal p = to (its first row is sum p = 1) and upper p <= most."""

    equal: Array
    to: Array
    upper: Array
    most: Array
    nonnegative: bool

    @classmethod
    def of(
        cls,
        t: int,
        nonnegative: bool,
        A_eq: ArrayLike | None = None,
        b_eq: ArrayLike | None = None,
        A_ub: ArrayLike | None = None,
        b_ub: ArrayLike | None = None,
    ) -> _Linear:
        equal, to = _rows("eq", t, A_eq, b_eq)
        upper, most = _rows("ub", t, A_ub, b_ub)
        if flag("weights.nonnegative", nonnegative):
            upper, most = np.vstack([upper, -np.eye(t)]), np.append(most, np.zeros(t))
        return cls(np.vstack([np.ones((1, t)), equal]), np.append(1.0, to), upper, most, nonnegative)


def _fits(t: int, solver: str) -> None:
    memory(8 * 8 * t * t, f"weights.solver = {solver} with {t} rounds", "lower rounds or use solver = closed")


def _numeric(form: _Form, limits: _Linear, solver: str) -> Optimal:
    if len(form.K) == 1:
        p = _only_round(limits)
    else:
        p = _kkt(form, limits.equal, limits.to)[0] if solver == "dense" else _cvxpy(form, limits)
    return Optimal(p, form.value(p), solver)


def _only_round(limits: _Linear) -> Array:
    """The weights of round 1, which leave no choice."""
    p = np.ones(1)
    if np.abs(limits.equal @ p - limits.to).max() > 1e-9 or (limits.upper @ p > limits.most + 1e-9).any():
        raise _infeasible()
    return p


def _kkt(form: _Form, equal: Array, to: Array) -> tuple[Array, Array]:
    r"""The linear system (7), by LU; also the multipliers of ``equal``.

    Written out, (7) adds R^2 to the entries of C, which loses the digits of C when R^2 is large. Here R^2 u u^T is one
    more row and column instead: eliminate mu = R^2 u.p and (7) is back. So R^2 = inf is a number too.

        [  K   E^T   u ] [   p    ]   [ 0 ]
        [  E    0    0 ] [ lambda ] = [ e ]
        [ r u^T 0   -d ] [   mu   ]   [ 0 ]
    """
    from scipy.linalg import LinAlgError, LinAlgWarning, lstsq, solve

    t, rows = len(form.K), len(equal)
    d, r, _ = _scaled(form.unit, form.R2, 0.0)
    u = np.append(np.ones(t - 1), 0.0)
    A = np.zeros((t + rows + 1, t + rows + 1))
    A[:t, :t] = form.K
    A[t:-1, :t], A[:t, t:-1] = equal, equal.T
    A[:t, -1], A[-1, :t], A[-1, -1] = u, r * u, -d
    right = np.concatenate([np.zeros(t), to, [0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", LinAlgWarning)
        try:
            x = solve(A, right, assume_a="gen")
        except (LinAlgError, LinAlgWarning):  # singular: several minimisers, or constraints that repeat or clash
            x = lstsq(A, right)[0]
    if np.abs(equal @ x[:t] - to).max() > 1e-9 * max(1.0, float(np.abs(to).max())):
        raise _infeasible()
    return x[:t], x[t:-1]


def _cvxpy(form: _Form, limits: _Linear) -> Array:
    r"""The quadratic programme by CLARABEL, made exact on the inequalities that hold with equality.

    The unknowns are x = (p_1, ..., p_{t-1}), and p_t = 1 - sum x. The drift's part of V is then the variance of
    xi_t + sum_i x_i (xi_i - xi_t), x.W x + 2 c.x up to a constant, which is written as a sum of squares.
    """
    import cvxpy as cp

    K = form.K
    x: Any = cp.Variable(len(K) - 1)
    p: Any = cp.hstack([x, 1.0 - cp.sum(x)])
    cost: Any = 0.0
    rules: list[Any] = [limits.equal[1:] @ p == limits.to[1:]] if len(limits.to) > 1 else []
    if form.unit > 0:
        W, c = K[:-1, :-1] - K[:-1, -1:] - K[-1:, :-1] + K[-1, -1], K[:-1, -1] - K[-1, -1]
        root, shift = _square_root(W, c)
        cost += cp.sum_squares(root.T @ x + shift)
    if math.isinf(form.R2):
        rules.append(cp.sum(x) == 0.0)
    elif form.R2 > 0:
        cost += (form.R2 / form.unit if form.unit > 0 else 1.0) * cp.square(cp.sum(x))
    below: Any = limits.upper @ p <= limits.most if len(limits.most) else None
    _run_clarabel(cp.Problem(cp.Minimize(cost), rules if below is None else [*rules, below]))
    found: Array = np.asarray(p.value)
    if below is not None:
        binds = limits.most - limits.upper @ found < np.asarray(below.dual_value)
        found = _polish(form, limits, found, binds)
    return np.maximum(found, 0.0) if limits.nonnegative else found


def _run_clarabel(problem: Any) -> None:
    import cvxpy as cp

    tight = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "may be inaccurate": it means the tolerances above
        try:
            problem.solve(cp.CLARABEL, **tight)
        except cp.SolverError:
            problem.solve(cp.CLARABEL)
    if problem.status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
        raise _infeasible()


def _square_root(W: Array, c: Array) -> tuple[Array, Array]:
    """F and f with |F^T x + f|^2 = x.W x + 2 c.x + const, for a W that may be singular."""
    try:
        F: Any = np.linalg.cholesky(W)
        return F, np.linalg.solve(F, c)
    except np.linalg.LinAlgError:
        size, vectors = np.linalg.eigh(W)
        kept = size > 1e-12 * size[-1]
        F = vectors[:, kept] * np.sqrt(size[kept])
        return F, (F / size[kept]).T @ c


def _polish(form: _Form, limits: _Linear, p: Array, active: NDArray[np.bool_]) -> Array:
    """Solve exactly for the inequalities that seem to hold with equality and mend that guess until it is consistent.

    An interior point method stays as far as the root of its tolerance from an inequality that barely binds. Should
    the guess never become consistent, ``p`` is kept.
    """
    for _ in range(20 + len(active)):
        rows = np.vstack([limits.equal, limits.upper[active]])
        try:
            exact, multipliers = _kkt(form, rows, np.append(limits.to, limits.most[active]))
        except InvalidInput:
            return p
        pulls = np.zeros(len(active), dtype=bool)
        pulls[active] = multipliers[len(limits.to) :] < -1e-12
        broken = (limits.upper @ exact > limits.most + 1e-12) & ~active
        if not broken.any() and not pulls.any():
            return exact
        active = (active | broken) & ~pulls
    return p


# Table 2

TABLE_2 = (
    (0.0, 2.0, 1.0, (0.1818, 0.1818, 0.1818, 0.4545)),
    (0.5, 1.0, 0.5, (0.2857, 0.1429, 0.0000, 0.5714)),
    (0.5, 1.0, 1.0, (0.2632, 0.1316, -0.0789, 0.6842)),
    (0.8, 1.0, 0.5, (0.3870, 0.0774, -0.2077, 0.7434)),
    (0.8, 2.0, 0.5, (0.3960, 0.0792, -0.1188, 0.6436)),
)


class Table2Row(NamedTuple):
    """A row of Table 2 as printed, beside our weights if its columns D and R hold D^2 and R^2, or D and R."""

    alpha: float
    D: float
    R: float
    printed: tuple[float, ...]
    as_squares: tuple[float, ...]
    as_roots: tuple[float, ...]


def table_2() -> list[Table2Row]:
    """Table 2 of `cfl` (t = 4). The columns headed D and R hold D^2 and R^2: only so do all its digits come out."""
    rows = []
    for alpha, D, R, printed in TABLE_2:
        squares, roots = optimal(4, D, R, alpha).weights, optimal(4, D**2, R**2, alpha).weights
        rows.append(Table2Row(alpha, D, R, printed, tuple(squares.tolist()), tuple(roots.tolist())))
    return rows


# The simulated error


class Effective(NamedTuple):
    """The constants that make V the mean square of a round's average offset in the simulation: `optimal`'s keywords."""

    D2: float
    R2: float
    alpha: float
    overlap: float
    G2: float

    @property
    def ratio(self) -> float:
        """R^2 / (D^2 - F^2), which with alpha is all that the weights depend on."""
        return _ratio(self.R2, self.D2 - self.overlap)


def effective(problem: nqm.Quadratic, drift: nqm.Drift, federation: nqm.Federation) -> Effective:
    r"""The constants of one simulated round. The average offset of its S clients has mean square

        G^2/S + F^2/S + (D^2 - F^2)/S p.A p + (1 - p_t)^2 (n I^2 + n I_var/S).

    Drift averages out over clients. Information loss does not, as far as its mean I is one vector for all: next to the
    bound's constants, R^2/D^2 grows by (S I^2 + I_var)/(I^2 + I_var), up to S. With ``loss_per_client`` nothing grows.
    """
    if drift.client_slope > 0 or drift.time_slope > 0:
        raise InvalidInput("drift.client_slope, drift.time_slope: must be 0 here, or the offset depends on w")
    S, n = federation.S, problem.dim
    redrawn = drift.fresh or federation.stateless
    alpha = 0.0 if federation.stateless else drift.correlation
    if redrawn and drift.client > 0 and alpha > 0:
        raise fail("drift.correlation", alpha, "must be 0 if client drift is redrawn: their sum is not AR(1)")
    return Effective(
        D2=(drift.time + (drift.client if redrawn else 0.0)) / S,
        R2=n * drift.loss_mean**2 / (S if drift.loss_per_client else 1) + n * drift.loss_var / S,
        alpha=alpha,
        overlap=0.0 if federation.stateless else drift.overlap / S,
        G2=0.0 if redrawn else drift.client / S,
    )


@dataclass(frozen=True, eq=False)
class Simulated:
    """Schedules of Theorem 4.9's family (Lemma B.4's if alpha = 0) by their R^2/D^2, and the E||g_T||^2 they lead to.

    ratio, error: under ``"paper"`` (the bound's constants), ``"one round"`` (those of `effective`), ``"best"``
        (the minimum over all ratios), ``"uniform"`` (R = 0) and ``"current"`` (no memory at all).
    schedule: the best one.
    """

    ratio: dict[str, float]
    error: dict[str, float]
    schedule: Schedule


def simulated_error(
    problem: nqm.Quadratic, drift: nqm.Drift, federation: nqm.Federation, lr: float, weights: Weights
) -> float:
    """E||g_T||^2 of CFL with these weights, exactly."""
    curve = nqm.expect(problem, drift, federation, nqm.CFL(lr, weights=weights), norm=False)
    return float(curve["grad_norm_sq"][-1])


def simulated_optimal(problem: nqm.Quadratic, drift: nqm.Drift, federation: nqm.Federation, lr: float) -> Simulated:
    """The R^2/D^2 whose schedule minimises E||g_T||^2 at rate ``lr``, beside the bound's and that of `effective`.

    The error need not have one valley: a grid over sixteen decades, then Brent's method around its best point.
    """
    from scipy.optimize import minimize_scalar

    one, T = effective(problem, drift, federation), federation.rounds

    def schedule(ratio: float) -> Schedule:
        return thm_49(T, 1.0, ratio, one.alpha) if one.alpha > 0 else lemma_b4(T, 1.0, ratio)

    def error(weights: Schedule) -> float:
        return simulated_error(problem, drift, federation, lr, weights)

    paper = _ratio(drift.loss_sq(problem.dim), drift.time - drift.overlap)
    ratio = {"paper": paper, "one round": one.ratio, "uniform": 0.0}
    errors = {name: error(schedule(x)) for name, x in ratio.items()}
    tried = {ratio[name]: e for name, e in errors.items()} | {math.inf: error(schedule(math.inf))}
    grid = np.linspace(-8.0, 8.0, 33)
    best = int(np.argmin([error(schedule(10.0**x)) for x in grid]))
    between = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(lambda x: error(schedule(10.0**x)), bounds=between, method="bounded")
    tried[10.0 ** float(found.x)] = float(found.fun)
    ratio["best"] = min(tried, key=lambda x: tried[x])
    errors["best"] = tried[ratio["best"]]
    errors["current"] = error(Schedule.current_only(T))
    return Simulated(ratio | {"current": math.inf}, errors, schedule(ratio["best"]))


def simulated_optimal_schedule(
    problem: nqm.Quadratic, drift: nqm.Drift, federation: nqm.Federation, lr: float
) -> Table:
    r"""Of all weights p_{t,tau} whatever, those that minimise E||g_T||^2 at rate ``lr``; for at most 64 rounds.

    In a direction where e' = gamma e - beta c, the last round is e_T = gamma^T e_0 - beta sum_t gamma^(T-t) c_t, and
    c_t is linear in row t of the weights. So E||g_T||^2 is a quadratic in all weights of past rounds, T(T-1)/2 numbers,
    p_tt being the rest of row t:

        sum_st G_st p_s.C p_t + sum_st L_st q_s q_t - 2 sum_t l_t q_t + const,   q_t = 1 - p_tt,

    with G, L and l summed over directions. It is flat along many of them; of all minimisers we return the one closest
    to no memory. Its weights can still be large: it is a yardstick for other schedules, not one to recommend.
    """
    T = integer("federation.rounds", federation.rounds, 1, 64)
    effective(problem, drift, federation)  # for its refusals
    plan = Plan(nqm.Experiment(problem, drift, federation, nqm.CFL(lr, weights="uniform")))
    N, S, lam = federation.slots, federation.S, problem.eigenvalues
    step, follow, prox, server = plan.linear
    beta = server * step * geometric(1.0 - step * (follow * lam + prox), federation.local_steps)
    gamma = 1.0 - beta * lam
    push = lam * beta * gamma ** np.arange(T - 1.0, -1.0, -1.0)[:, None]  # of c_t on the last gradient, (T, n)
    same = np.eye(T)
    shared = 1.0 / N + (1.0 / S - 1.0 / N) * same  # the average over a sample: see `nqm.exact`
    G = push @ push.T * shared
    loss = push * plan.loss_shared
    own = plan.var_loss_client * (same / S if federation.stateless else shared)
    L = loss @ loss.T + push @ push.T * (own + plan.var_loss * same / S)
    l = loss @ (lam * gamma**T * problem.start)
    C = plan.var_time * np.power(plan.alpha, _lags(T)) + plan.var_redrawn * same

    t, tau = np.tril_indices(T, -1)
    s, sigma = t[:, None], tau[:, None]
    H = G[s, t] * (C[sigma, tau] - C[sigma, t] - C[s, tau] + C[s, t]) + L[s, t]
    GC = G @ C
    slope = GC[t, tau] - GC[t, t] - l[t]
    rows = np.eye(T)
    rows[t, tau] = np.linalg.lstsq(H, -slope, rcond=1e-13)[0]
    rows[np.diag_indices(T)] = 1.0 - np.tril(rows, -1).sum(axis=1)
    return Table(rows, "simulated-optimal")


# Checks


def _constants(
    rounds: int, D2: float, R2: float, alpha: float = 0.0, overlap: float = 0.0
) -> tuple[float, float, float, float]:
    """D^2, R^2, alpha and F^2 as legal numbers."""
    integer("weights.rounds", rounds, 1)
    D2, R2 = number("weights.D2", D2, 0.0), _loss(R2)
    a = number("weights.alpha", alpha, 0.0, 1.0, open_high=True)
    F2 = number("weights.overlap", overlap, 0.0)
    if F2 > D2:
        raise fail("weights.overlap", overlap, f"must be at most weights.D2 = {D2:g} (Cauchy-Schwarz)")
    if D2 == F2 and R2 == 0:
        less = " - weights.overlap" if F2 > 0 else ""
        raise InvalidInput(f"weights.D2{less} = 0, weights.R2 = 0: every weight is optimal; one must be > 0")
    return D2, R2, a, F2


def _loss(R2: Any) -> float:
    """R^2, which may be infinite: nothing of the past can be approximated."""
    if isinstance(R2, float) and math.isinf(R2) and R2 > 0:
        return math.inf
    try:
        return number("weights.R2", R2, 0.0)
    except InvalidInput:
        raise fail("weights.R2", R2, "must be a number >= 0, or inf") from None


def _covariance(given: ArrayLike) -> Array:
    try:
        C = np.array(given, dtype=float)
    except (TypeError, ValueError):
        raise fail("weights.covariance", given, "must be a square matrix of numbers") from None
    if C.ndim != 2 or C.shape[0] != C.shape[1] or not len(C):
        raise InvalidInput(f"weights.covariance has shape {C.shape}: must be square, one row a round")
    if not np.isfinite(C).all():
        raise InvalidInput("weights.covariance has an entry that is not finite: must be finite numbers")
    size = float(np.abs(C).max())
    apart = float(np.abs(C - C.T).max())
    if apart > 1e-12 * size:
        raise InvalidInput(f"weights.covariance differs from its transpose by {apart:g}: must be symmetric")
    C = 0.5 * (C + C.T)
    least = float(np.linalg.eigvalsh(C)[0])
    if least < -1e-12 * size * len(C):
        raise InvalidInput(f"weights.covariance has the eigenvalue {least:g}: must be positive semidefinite")
    return C


def _rows(kind: str, t: int, A: ArrayLike | None, b: ArrayLike | None) -> tuple[Array, Array]:
    """The constraints A p = b or A p <= b, checked; none is a matrix without rows."""
    if A is None and b is None:
        return np.zeros((0, t)), np.zeros(0)
    if A is None or b is None:
        raise InvalidInput(f"weights.A_{kind}, weights.b_{kind}: give both or neither")
    try:
        left, right = np.atleast_2d(np.array(A, dtype=float)), np.atleast_1d(np.array(b, dtype=float))
    except (TypeError, ValueError):
        raise InvalidInput(f"weights.A_{kind}, weights.b_{kind}: must be a matrix and a vector of numbers") from None
    if left.ndim != 2 or left.shape[1] != t or right.shape != (len(left),):
        shapes = f"shape {left.shape}, weights.b_{kind} {right.shape}"
        raise InvalidInput(f"weights.A_{kind} has {shapes}: must be (rows, {t}) and (rows,)")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise InvalidInput(f"weights.A_{kind}, weights.b_{kind}: must be finite numbers")
    return left, right


def _infeasible() -> InvalidInput:
    return InvalidInput("weights.A_eq, A_ub, nonnegative: no weights that sum to 1 satisfy all constraints")


def _ratio(R2: float, M2: float) -> float:
    return R2 / M2 if M2 > 0 else math.inf


def _lags(t: int) -> Array:
    i = np.arange(float(t))
    return np.abs(i[:, None] - i)
