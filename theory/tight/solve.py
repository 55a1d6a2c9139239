"""The semidefinite programme of `certify`, handed to a solver."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nqm.check import InvalidInput, fail

from .rounds import FedAvg
from .world import World

Array = NDArray[np.float64]

SOLVERS = ("CLARABEL", "SCS", "MOSEK", "COPT", "SDPA", "CVXOPT")
"""Those of cvxpy that solve semidefinite programmes."""


class Programme(NamedTuple):
    """m (‖w_1‖² + gap …) ≤ T ‖w_0‖² + Σ_s B_s s, as forms and rows; ``amounts`` of the sources."""

    world: World
    start: Array
    end: Array
    end_values: Array
    sources: list[Array]
    amounts: Array
    Q: Array
    F: Array
    with_optimum: NDArray[np.int64]


class Solution(NamedTuple):
    """What a solver found: T, m, B and multipliers as in `Programme`, and the worst Gram matrix and values."""

    T: float
    m: float
    B: Array
    multipliers: Array
    gram: Array
    values: Array


def step(world: World) -> float:
    """η, the step of the whole round."""
    assert isinstance(world.round, FedAvg)  # `progress` takes no other
    return world.round.step


def target(world: World) -> float:
    """The τ of (24)."""
    return 1.0 - world.mu * step(world) / 2


def installed(solver: str) -> str:
    """The solver's name, if it is one that can be used here."""
    import cvxpy as cp

    usable = [name for name in SOLVERS if name in cp.installed_solvers()]
    if solver not in usable:
        raise fail(
            "tight.solver", solver, "must be an installed solver of semidefinite programmes: " + ", ".join(usable)
        )
    return solver


def build(what: str, world: World, sources: Mapping[str, float]) -> Programme:
    """The programme of a question; ``progress`` adds the gap η (f(w_0) − f*) to the end of the round."""
    Q, F, with_optimum = world.conditions()
    end, end_values = world.end, np.zeros(world.values)
    if what == "progress":
        eta = step(world)
        end = end + eta * world.mu / 2 * world.square(world.start)
        for client in world.clients:
            end_values[client.at(world.start).value] += eta * (world.L - world.mu) / len(world.clients)
    forms = [world.source_form(name) for name in world.source]
    amounts = np.array([sources[name] for name in world.source])
    return Programme(world, world.square(world.start), end, end_values, forms, amounts, Q, F, with_optimum)


def solve(what: str, p: Programme, solver: str) -> Solution | None:
    """Multipliers and worst case as the solver has them, or None if it finds no bound.

    Near the end of the steps for which there is one, the solver may break down before it is sure.
    """
    import cvxpy as cp

    multipliers: Any = cp.Variable(len(p.Q), nonneg=True)
    B: Any = cp.Variable(len(p.sources), nonneg=True) if p.sources else np.zeros(0)
    T: Any
    m: Any = 1.0
    goal: Any
    if what == "contraction":
        T = goal = cp.Variable()
    elif what == "bias":
        m = cp.Variable(nonneg=True)
        T, goal = m - 1.0, (p.amounts @ B if p.sources else cp.Constant(0.0))
    else:
        T, goal = target(p.world), (cp.sum(B) if p.sources else cp.Constant(0.0))
    semidefinite = []
    for block in p.world.blocks:
        cut = np.ix_(block, block)
        k = len(block)
        form: Any = T * p.start[cut] - m * p.end[cut]
        for s, source in enumerate(p.sources):
            form = form + B[s] * source[cut]
        rows = np.array([q[cut].ravel() for q in p.Q])
        semidefinite.append(form - cp.reshape(rows.T @ multipliers, (k, k), order="C") >> 0)
    values = p.F.T @ multipliers + m * p.end_values == 0
    problem: Any = cp.Problem(cp.Minimize(goal), [*semidefinite, values])
    run(problem, solver)
    if problem.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        if what == "contraction":  # which is always bounded
            raise InvalidInput(f"tight.solver = {solver!r}: stopped without an answer; try another one")
        return None
    gram = np.zeros_like(p.start)
    for block, constraint in zip(p.world.blocks, semidefinite, strict=True):
        gram[np.ix_(block, block)] = constraint.dual_value
    number_of = [float(x.value) if hasattr(x, "value") else float(x) for x in (T, m)]
    found = B.value if p.sources else B
    return Solution(number_of[0], number_of[1], found, multipliers.value, gram, np.asarray(values.dual_value))


def run(problem: Any, solver: str) -> None:
    """Solve as sharply as the solver can."""
    import cvxpy as cp

    tolerances = (1e-11, 1e-8, 1e-5) if solver == "CLARABEL" else (None,)
    for tol in tolerances:
        options = {} if tol is None else {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "may be inaccurate": what it found is made exact below
            try:
                problem.solve(solver, **options)
                return
            except cp.SolverError:
                continue
