r"""The worst case of a round by semidefinite programming, as an inequality that its multipliers prove.

For all federations of the class,

    ‖w_1 − w*‖² + gap (f(w_0) − f*)  ≤  τ ‖w_0 − w*‖² + Σ_s β_s s,

where s runs over the sources of bias: the mean square of ‖∇f_i(w*)‖/L over clients, the squared distance of an
anchor from w*, or ‖∇g(w*)‖²/L². In the words of `world`, the inequality follows if with multipliers λ_c ≥ 0

    S = τ ‖w_0‖² + Σ_s β_s s − ‖w_1‖² − gap (μ/2) ‖w_0‖² − Σ_c λ_c Q_c   is positive semidefinite as a form in the
    Gram matrix, and   Σ_c λ_c F_c + gap (L − μ) φ̄_0 = 0,

and by duality the best such inequality is the worst case. Three questions are asked of it:

    contraction   no sources, gap = 0, the least τ;
    bias          gap = 0, the least Σ β_s s/(1 − τ). The worst ‖w_1‖² for given r² = ‖w_0‖² is a concave V(r²) with
                  V(0) ≥ 0, so it has one fixed point: the radius that rounds never leave and that they reach from
                  anywhere in the limit. Its tangent there is τ r² + Σ β_s s. Equivalently it is the largest ‖w_0‖² with
                  ‖w_1‖ ≥ ‖w_0‖. Multiplying by m = 1/(1 − τ) makes it one linear programme;
    progress      gap = η and τ = 1 − μη/2 given, the least β: what (24) of `cfl` writes as c_1η² + c_2η³ for G = 1.

**What is returned is not the solver's word.** Its multipliers are cut off at 0, the equation for the values is met
exactly by raising conditions that involve w*, and if the least eigenvalue of S is then −e, the inequality still holds
with e · trace of the Gram matrix added on the right, which `World.lengths` bounds by ‖w_0‖² and the s. That gives
``upper``. For ``lower``, the solver's Gram matrix is made semidefinite and mixed with that of some quadratics, which
meet every condition strictly, until it meets all of them. Only rounding is left out of account, of the order of 1e-15.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nqm.check import choice, fail, integer, number

from .rounds import FedAvg, Round
from .solve import Programme, Solution, build, installed, solve, target
from .world import Size, World, function_class

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Certificate:
    """A worst case between two bounds, and the inequality ‖w_1 − w*‖² + … ≤ τ ‖w_0 − w*‖² + Σ β_s s behind the upper.

    what: "contraction", "bias" or "progress". lower: attained by some federation. tau, beta: of the inequality.
    size, seconds: of the semidefinite programme. Infinite if the solver finds no inequality.
    """

    what: str
    upper: float
    lower: float
    tau: float
    beta: Mapping[str, float]
    size: Size
    seconds: float

    @property
    def gap(self) -> float:
        return self.upper - self.lower

    def __str__(self) -> str:
        if not np.isfinite(self.upper):
            return f"{self.what} without a bound"
        bound = " + ".join([f"{self.tau:.6g} ‖w − w*‖²", *(f"{b:.6g} · {name}" for name, b in self.beta.items())])
        return (
            f"{self.what} {self.upper:.9g} (gap {self.gap:.1e}): a round ends within {bound}; Gram matrix of order "
            f"{self.size.order}, {self.size.conditions} conditions, {self.seconds:.2f} s"
        )


def contraction(
    round: Round,
    mu: float,
    L: float = 1.0,
    clients: int = 2,
    *,
    sampled: int | None = None,
    reduce: bool = True,
    solver: str = "CLARABEL",
) -> Certificate:
    """The largest E‖w_1 − w*‖²/‖w_0 − w*‖² if all functions share their minimiser w*.

    clients: two stand for any larger number. sampled: how many of them take part, drawn independently; None: all.
    reduce: use that clients are alike; without it they are written out one by one.
    """
    return _certify("contraction", round, mu, L, clients, {}, sampled, reduce, solver)


def bias(
    round: Round,
    mu: float,
    L: float = 1.0,
    clients: int = 2,
    sources: Mapping[str, float] | None = None,
    *,
    sampled: int | None = None,
    reduce: bool = True,
    solver: str = "CLARABEL",
) -> Certificate:
    """The mean squared distance from w* to which rounds contract; infinite if they need not.

    sources: how large each of the round's sources is, 1 for the first if nothing is said. "clients" is the mean over
        clients of ‖∇f_i(w*)‖²/L², so G²/L² of Assumption 3 of `cfl` at w* (it bounds the mean, not every client);
        "anchor" is ‖anchor − w*‖²; "tasks" is ‖∇g(w*)‖²/L².
    """
    given = {round.sources[0]: 1.0} if sources is None else dict(sources)
    for name, amount in given.items():
        choice("tight.sources", name, round.sources)
        number(f"tight.sources.{name}", amount, 0.0)
    return _certify("bias", round, mu, L, clients, given, sampled, reduce, solver)


def progress(
    round: FedAvg,
    mu: float,
    L: float = 1.0,
    clients: int = 2,
    *,
    sampled: int | None = None,
    reduce: bool = True,
    solver: str = "CLARABEL",
) -> Certificate:
    """(24) of `cfl` without noise: the least β with which, for η the step of the round and G the clients' drift at w*,

    E‖w_1 − w*‖² ≤ (1 − μη/2) ‖w_0 − w*‖² − η (f(w_0) − f*) + β G²/L².

    The paper has β = L² (c_1 η² + c_2 η³) for G = 1, and drifts that are fresh in every round, so a number ``sampled``.
    The ``tau`` of the result exceeds 1 − μη/2 by as much as it takes to make the inequality exact, some 1e-9.
    """
    return _certify("progress", round, mu, L, clients, {"clients": 1.0}, sampled, reduce, solver)


def largest_step(
    round: Round, mu: float, L: float = 1.0, clients: int = 2, *, digits: int = 6, solver: str = "CLARABEL"
) -> float:
    """The local rate up to which the round contracts, by doubling and then bisection, every other field kept.

    At it the worst case is at most 1 up to 1e-8; at a rate larger by a share of 10^-digits it is not. It is 0 if the
    smallest rate tried, 1e-3/L, is too large, and infinite if 1e6/L is not.
    """
    mu, L = function_class(mu, L)

    def stable(lr: float) -> bool:
        # The solver's own error: a worst case of exactly 1, as for mu = 0, counts as stable.
        return contraction(replace(round, lr=lr), mu, L, clients, solver=solver).upper <= 1.0 + 1e-8

    low, high = 0.0, 1e-3 / L
    while stable(high):
        low, high = high, 2.0 * high
        if high > 1e6 / L:
            return np.inf
    if low == 0.0:
        return 0.0
    while high - low > 10.0**-digits * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low


def _certify(
    what: str,
    round: Round,
    mu: float,
    L: float,
    clients: int,
    sources: Mapping[str, float],
    sampled: int | None,
    reduce: bool,
    solver: str,
) -> Certificate:
    mu, L = function_class(mu, L)
    clients = integer("tight.clients", clients, 1)
    if sampled is not None:
        integer("tight.sampled", sampled, 1)
        if not isinstance(round, FedAvg):
            raise fail("tight.sampled", sampled, f"must be left out: {round.name} needs all clients")
    solver = installed(solver)
    world = World(round, mu, L, clients, [name for name, amount in sources.items() if amount > 0], sampled, reduce)
    began = time.perf_counter()
    programme = build(what, world, sources)
    solution = solve(what, programme, solver)
    seconds = time.perf_counter() - began
    shape = Size(world.order, len(programme.Q))
    names = list(world.source)
    if solution is None:
        grows = contraction(round, mu, L, clients, sampled=sampled, reduce=reduce, solver=solver)
        lower = np.inf if what == "bias" and grows.lower >= 1.0 else 0.0
        return Certificate(what, np.inf, lower, grows.tau, dict.fromkeys(names, np.inf), shape, seconds)
    tau, beta = _upper(programme, solution)
    lower = _lower(what, programme, solution)
    if what == "contraction":
        upper = tau
    elif what == "bias":
        upper = float(beta @ programme.amounts) / (1.0 - tau) if tau < 1.0 else np.inf
    else:
        upper = float(beta.sum())
    return Certificate(what, upper, lower, tau, dict(zip(names, beta.tolist(), strict=True)), shape, seconds)


def _upper(p: Programme, found: Solution) -> tuple[float, Array]:
    """τ and β of an inequality that holds, from multipliers that nearly prove one."""
    multipliers, B, m = np.maximum(found.multipliers, 0.0), np.maximum(found.B, 0.0), max(found.m, 1e-300)
    missing = -(p.F.T @ multipliers + m * p.end_values)
    multipliers[p.with_optimum[:, 0]] += np.maximum(missing, 0.0)
    multipliers[p.with_optimum[:, 1]] += np.maximum(-missing, 0.0)
    form = found.T * p.start - m * p.end - np.tensordot(multipliers, p.Q, 1)
    for b, source in zip(B, p.sources, strict=True):
        form = form + b * source
    least = min(np.linalg.eigvalsh(form[np.ix_(block, block)])[0] for block in p.world.blocks)
    # (Σ_s l_s r_s)² ≤ (number of terms) Σ_s l_s² r_s²
    lengths = p.world.lengths()
    trace = lengths.shape[1] * (lengths**2).sum(axis=0)
    added = max(0.0, -float(least)) * trace
    return float((found.T + added[0]) / m), (B + added[1:]) / m


def _lower(what: str, p: Programme, found: Solution) -> float:
    """What is attained near the Gram matrix that the solver found."""
    near = _feasible(what, p, found)
    if near is None:
        return 0.0
    gram, values = near
    distance = float(np.sum(p.start * gram))
    reached = float(np.sum(p.end * gram) + p.end_values @ values)
    if what == "contraction":
        return reached / distance
    most = max((float(np.sum(s * gram)) / a for s, a in zip(p.sources, p.amounts, strict=True)), default=np.inf)
    if what == "bias":
        return distance / most
    return max(0.0, (reached - target(p.world) * distance) / most)


def _feasible(what: str, p: Programme, found: Solution) -> tuple[Array, Array] | None:
    """A Gram matrix and values that meet every condition, close to the solver's, if there are any."""
    eigenvalues, vectors = np.linalg.eigh(found.gram)
    gram, values = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T, found.values
    start = 1.0
    if what == "bias":  # from well within the radius that two unlike clients move to
        at_rest, _ = p.world.example((0.25, 0.75), 0.0)
        start = 0.1 * float(np.sqrt(max(0.0, np.sum(p.end * at_rest))))
    inner, inner_values = p.world.example((0.25, 0.75), start)
    scale = float(np.trace(gram)) / max(float(np.trace(inner)), 1e-300)
    inner, inner_values = scale * inner, scale * inner_values

    slack = np.tensordot(p.Q, gram, 2) + p.F @ values
    inner_slack = np.tensordot(p.Q, inner, 2) + p.F @ inner_values
    if what == "bias":
        slack = np.append(slack, np.sum((p.end - p.start) * gram))
        inner_slack = np.append(inner_slack, np.sum((p.end - p.start) * inner))
    short = slack < 0.0
    if scale == 0.0 or np.any(inner_slack[short] <= 0.0):
        return None
    share = float(np.max(slack[short] / (slack[short] - inner_slack[short]), initial=0.0))
    return (1 - share) * gram + share * inner, (1 - share) * values + share * inner_values
