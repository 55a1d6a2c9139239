"""The best learning rate by a stated criterion, from exact expectations, with the plateau around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import exact_servers
from .check import InvalidInput, choice, fail, number
from .drift import Drift
from .exact import expect
from .federation import Federation
from .methods import Method
from .plan import Clients, geometric
from .problem import Quadratic

CRITERIA = ("final", "mean-log", "rounds")
PLATEAU = 0.05
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tuned:
    """A tuned rate. A bare argmin on a flat curve means nothing: ``plateau`` is the range within 5 % of the best score.

    lrs, scores: all rates that were tried, in order; an infinite score is a rate that diverged or never reached eps.
    at_edge: the best rate is an end of the range tried, so a better one may lie outside.
    """

    best: float
    score: float
    plateau: tuple[float, float]
    lrs: Array
    scores: Array
    criterion: str
    at_edge: bool


def stability_limit(problem: Quadratic, federation: Federation, method: Method) -> float:
    """The rate above which some direction of the mean grows: |1 - beta lambda| reaches 1 (slopes left aside).

    For a server that keeps something it is the largest eigenvalue of a round that has to stay below 1. In a sequence
    it is the least limit of all tasks.
    A rate just beyond it is not yet infinite after T rounds, so that a grid of finite runs would overstate it.
    """
    if method.rule != "linear" and getattr(method, "gain", None) is None:
        raise InvalidInput(f"method.name = '{method.name}': its round is not a linear map, so there is no such limit")
    if problem.gradient_bound is not None:
        raise fail("problem.gradient_bound", problem.gradient_bound, "must be left out: a bent round is not linear")
    each = zip(problem.sequence(federation.tasks), range(1, federation.tasks + 1), strict=True)
    return min(_stability_limit(p, federation, method, task) for p, task in each)


def _stability_limit(problem: Quadratic, federation: Federation, method: Method, task: int) -> float:
    K, lam = federation.local_steps, problem.eigenvalues

    def contracts(lr: float) -> bool:
        server_map = method.with_lr(lr).server(federation, task)
        if server_map is not None and not method.controls:  # controls cancel in the average
            return bool(np.all(exact_servers.growth(server_map, lam, K)[lam > 0] < 1.0))
        step, follow, prox, server = method.with_lr(lr).linear(K)
        beta = server * step * geometric(1.0 - step * (follow * lam + prox), K)
        return bool(np.all(np.abs(1.0 - beta * lam)[lam > 0] < 1.0))

    low, high = 0.0, 1.0 / float(lam.max())
    while contracts(high):
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if contracts(middle) else (low, middle)
    return low


def default_rates(problem: Quadratic, count: int = 24) -> Array:
    """A geometric grid over two decades up to just beyond 2/L, where gradient descent stops being stable."""
    assert problem.L is not None
    return np.geomspace(0.01, 1.05, count) * 2.0 / problem.L


def tune(
    problem: Quadratic,
    drift: Drift,
    federation: Federation,
    method: Method,
    lrs: ArrayLike | None = None,
    criterion: str = "mean-log",
    eps: float | None = None,
    clients: Clients | None = None,
    refine: bool = True,
) -> Tuned:
    """The best of ``lrs`` for ``method`` (whose own rate is ignored).

    criterion, of the root mean square gradient sqrt(E||g||^2):
        ``"final"``: its last value; ``"mean-log"``: its geometric mean over rounds 1..T;
        ``"rounds"``: the first round at which it is at most ``eps``.
    refine: look again between the neighbours of the best rate and at the plateau's ends, so that the answer is finer
        than the grid.
    """
    choice("criterion", criterion, CRITERIA)
    if federation.tasks > 1:
        raise fail("federation.tasks", federation.tasks, "must be 1 for tuning, which looks at one curve")
    if criterion == "rounds":
        if eps is None:
            raise InvalidInput("eps: missing; criterion = 'rounds' needs the accuracy to reach, a number > 0")
        eps = number("eps", eps, 0.0, open_low=True)
    rates = np.unique(default_rates(problem) if lrs is None else np.asarray(lrs, dtype=float))
    if rates.size == 0:
        raise InvalidInput("lrs: empty; give at least one learning rate > 0")

    def score(lr: Array) -> Array:
        curves = expect(problem, drift, federation, method, lr=lr, clients=clients, norm=False)
        return _score(np.sqrt(curves["grad_norm_sq"].values), criterion, eps)

    scores = score(rates)
    while lrs is None and np.argmin(scores) == 0 and np.isfinite(scores[0]) and rates[0] > 1e-6 * rates[-1]:
        lower = np.geomspace(rates[0] / 10, rates[0], 13)[:-1]  # the best lies below our own grid: widen it
        rates, scores = np.concatenate([lower, rates]), np.concatenate([score(lower), scores])
    low, high = float(rates[0]), float(rates[-1])
    if refine and len(rates) > 1 and np.isfinite(scores).any():
        i = int(np.argmin(scores))
        near = np.flatnonzero(scores <= (1 + PLATEAU) * scores[i])
        spots = {max(i - 1, 0), i, max(near[0] - 1, 0), near[-1]}
        fine = [np.geomspace(rates[j], rates[j + 1], 14)[1:-1] for j in sorted(spots) if j + 1 < len(rates)]
        if fine:
            extra = np.concatenate(fine)
            rates, scores = np.concatenate([rates, extra]), np.concatenate([scores, score(extra)])
            order = np.argsort(rates)
            rates, scores = rates[order], scores[order]
    best = int(np.argmin(scores))
    if not np.isfinite(scores[best]):
        reason = (
            "diverges"
            if criterion != "rounds"
            else f"diverges or stays above eps = {eps:g} in {federation.rounds} rounds"
        )
        raise InvalidInput(f"lrs = {low:g} to {high:g}: every rate {reason}; try lower rates or more rounds")
    near = np.flatnonzero(scores <= (1 + PLATEAU) * scores[best])
    return Tuned(
        best=float(rates[best]),
        score=float(scores[best]),
        plateau=(float(rates[near[0]]), float(rates[near[-1]])),
        lrs=rates,
        scores=scores,
        criterion=criterion if eps is None else f"{criterion} to {eps:g}",
        at_edge=len(rates) > 1 and float(rates[best]) in (low, high),
    )


def _score(rms: Array, criterion: str, eps: float | None) -> Array:
    if criterion == "final":
        return rms[:, -1]
    if criterion == "mean-log":
        with np.errstate(divide="ignore"):
            return np.exp(np.log(rms[:, 1:]).mean(axis=1))
    reached = rms <= (eps or 0.0)
    return np.where(reached.any(axis=1), reached.argmax(axis=1), np.inf)
