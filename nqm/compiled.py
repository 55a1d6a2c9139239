"""From a plan to the numbers that the compiled loops take. Numba is imported only when a run starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .check import InvalidInput
from .methods import FedEve, Linear, Server
from .methods.base import server
from .plan import Plan, geometric
from .schedule import Schedule, Table

if TYPE_CHECKING:
    from .kernels.model import Model

Array = NDArray[np.float64]
LANES = 8


Runner = Callable[[NDArray[np.uint64], Array, Array], None]
"""Simulates one task for some seeds: from e = ``ends``, (seeds, padded dim), where the last e is left, into
``out``, (seeds, rows, rounds + 1)."""


def runner(plan: Plan, folded: bool) -> Runner:
    if plan.federation.samples:
        return _finite_runner(plan, folded)
    if not plain(plan):
        return _server_runner(plan, folded)
    if not folded:
        from .kernels.steps import run as run_steps

        numbers = model(plan)
        return lambda seeds, ends, out: run_steps(numbers, sequence(numbers), room(numbers), seeds, ends, out)

    from .kernels import folded as loops

    if not aggregates(plan):
        numbers = model(plan)
        return lambda seeds, ends, out: loops.run(numbers, sequence(numbers), room(numbers), seeds, ends, out)
    numbers = model(plan, plan.federation.S)
    if not white_or_even(plan):
        return lambda seeds, ends, out: loops.run(numbers, sequence(numbers), room(numbers), seeds, ends, out)
    gain, pull, sd = average_map(plan)
    return lambda seeds, ends, out: loops.run_average(numbers, gain, pull, sd, seeds, ends, out)


def plain(plan: Plan) -> bool:
    """Whether the server keeps nothing and gradients are linear: what the quickest loops are made for."""
    own = plan.federation.cohort == "own"
    return plan.server is None and plan.experiment.problem.gradient_bound is None and own


def _server_runner(plan: Plan, folded: bool) -> Runner:
    from .kernels import servers

    method, federation, problem = plan.method, plan.federation, plan.experiment.problem
    if folded and problem.gradient_bound is not None:
        raise _by_name("collapsed", plan, "problem.gradient_bound: a bent gradient does not fold")
    engine = "collapsed" if folded else "steps"
    if plan.remembers:
        raise _by_name(
            engine,
            plan,
            "problem.gradient_bound or federation.cohort: history is kept for linear gradients of one's own",
        )
    odd = problem.gradient_bound is not None or federation.cohort != "own"
    if isinstance(method, FedEve) and method.variances == "oracle" and (plan.slopes or plan.alpha > 0 or odd):
        beside = "slopes, correlated drift, bounded gradients or a shared cohort"
        raise _by_name(engine, plan, f"variances = 'oracle' and {beside}: the exact ones are not at hand")
    server = plan.server or from_linear(plan.linear)
    per_client = method.rule == "kalman" or method.controls or federation.cohort != "own"
    alone = folded and not per_client and aggregates(plan)
    numbers = model(plan, federation.S if alone else 0)
    rule = servers.rule(plan, server, folded)
    return lambda seeds, ends, out: servers.run(numbers, rule, servers.room(numbers, rule), seeds, ends, out)


def _finite_runner(plan: Plan, folded: bool) -> Runner:
    from .finite import spread
    from .kernels import finite

    if folded:
        raise _by_name("collapsed", plan, "federation.samples: which sample a step looks at does not fold")
    method, drift = plan.method, plan.drift
    memory = getattr(method, "memory", 0) if plan.task else 0
    adapt, form = getattr(method, "adapt", "none"), getattr(method, "form", "derived")
    rates = finite.FIXED if adapt == "none" else finite.DERIVED if form == "derived" else finite.PRINTED
    largest = float(plan.experiment.problem.eigenvalues.max())
    numbers = finite.Finite(
        rule=finite.TRACK if method.rule == "track" else finite.PLAIN,
        samples=plan.federation.samples,
        sd_sample=math.sqrt(spread(drift.sample, plan.federation.samples) / plan.dim),
        sd_slope=math.sqrt(spread(drift.sample_slope, plan.federation.samples)),
        memory=memory,
        lr=float(method.lr),
        server_lr=float(getattr(method, "server_lr", 1.0)),
        memory_lr=float(getattr(method, "memory_lr", 0.0)),
        smoothness=float(getattr(method, "L", None) or largest),
        rates=rates,
        share=1.0 if adapt == "worst" else 1.0 / plan.federation.slots,
        traces=len(method.traces),
    )
    m = model(plan)
    return lambda seeds, ends, out: finite.run(m, numbers, room(m), seeds, ends, out)


def _by_name(engine: str, plan: Plan, why: str) -> InvalidInput:
    return InvalidInput(f"{engine} can't run method.name = '{plan.method.name}' with {why}")


def from_linear(linear: Linear) -> Server:
    """A server that keeps nothing, as one that may."""
    return server(linear.step, prox=linear.prox, start=[1], carry=[[1]], gain=[linear.server])


def aggregates(plan: Plan) -> bool:
    """Whether the clients act only through their average, so that one client with 1/S of the variance has the same law.

    All share one gain, and either everyone takes part or nothing outlives a round.
    """
    return not plan.slopes and (not plan.federation.partial or not plan.persists)


def work(plan: Plan, folded: bool) -> float:
    """Client steps x directions of one seed, what its time is proportional to."""
    federation = plan.federation
    clients = 1 if folded and aggregates(plan) else federation.slots
    steps = 1 if folded and not plan.slopes else federation.local_steps
    history = federation.rounds / 2 if isinstance(plan.weights, Table) else 1
    return max(1.0, plan.dim * federation.rounds * clients * (steps + history))


def white_or_even(plan: Plan) -> bool:
    """Whether drift that moves is independent and, if remembered at all, remembered evenly: one running sum."""
    even = isinstance(plan.weights, Schedule) and (plan.weights.even or not plan.remembers)
    own_loss = plan.remembers and plan.var_loss_client > 0 and not plan.federation.stateless
    return even and plan.alpha == 0 and not own_loss


def average_map(plan: Plan) -> tuple[Array, Array, Array]:
    """gain, pull and the deviation of all that is white, for `kernels.folded.run_average`."""
    federation, linear = plan.federation, plan.linear
    lam = plan.experiment.problem.eigenvalues
    a = 1.0 - linear.step * (linear.follow * lam + linear.prox)
    pull = linear.server * linear.step * geometric(a, federation.local_steps)
    var = plan.var_loss * plan.forgotten**2
    if not plan.remembers:
        var = var + plan.var_time + plan.var_redrawn
    elif federation.stateless:
        var = var + plan.var_loss_client * plan.forgotten**2
    noise = (linear.server * linear.step) ** 2 * geometric(a * a, federation.local_steps) * plan.var_noise
    return 1.0 - pull * lam, pull, np.sqrt((var[:, None] * pull**2 + noise) / federation.S)


def state_size(plan: Plan) -> int:
    """Bytes that one thread of the compiled loops keeps."""
    width = -(-plan.dim // LANES) * LANES
    per_client = (
        10
        + 2 * plan.federation.samples
        + (plan.federation.rounds if isinstance(plan.weights, Table) else 0) * (2 if plan.slopes else 1)
    )
    return 8 * width * (plan.federation.slots * per_client + plan.federation.rounds)


def model(plan: Plan, average_of: int = 0) -> Model:
    """The plan as numbers; ``average_of`` > 0 asks for one client that stands for the average of so many."""
    from .kernels import model as kernel

    weights, federation, linear = plan.weights, plan.federation, _steps(plan)
    T, width = federation.rounds, -(-plan.dim // LANES) * LANES
    lam = plan.experiment.problem.eigenvalues
    schedule = np.zeros((T, 4))
    rows = np.zeros((1, 1))
    if isinstance(weights, Table):
        kind = kernel.TABLE
        schedule[:, 3] = weights.current
        rows = weights.rows.copy()  # a read-only array is another type and would compile again
    else:
        schedule[:] = np.stack([weights.first, weights.middle, weights.previous, weights.current], axis=1)
        kind = kernel.FOUR_SUMS
        if not weights.remembers:
            kind = kernel.NO_MEMORY
        elif weights.even:
            kind = kernel.ONE_SUM
    delta, slope = np.zeros((0, 0)), np.zeros((0, 0))
    if plan.clients is not None:
        delta, slope = pad(plan.clients.delta, width), pad(plan.clients.slope, width)
        if average_of:
            delta, slope = delta.mean(axis=0, keepdims=True), slope[:1]

    a = 1.0 - linear.step * (linear.follow * lam + linear.prox)

    def sd(var: float) -> float:
        return math.sqrt(var / (average_of or 1))

    moves = plan.var_time
    if average_of and plan.redrawn and plan.alpha == 0:
        moves += plan.var_redrawn  # both are independent from round to round: one draw will do
    return kernel.Model(
        lam=pad(lam, width),
        lam_sq=pad(lam**2, width),
        task_lam=pad(plan.others[0], width),
        task_away=pad(plan.others[1], width),
        counts=pad((lam > 0).astype(float), width),
        loss_shared=pad(plan.loss_shared, width),
        keep=pad(a, width),
        summed=pad(geometric(a, federation.local_steps), width),
        squares=pad(geometric(a * a, federation.local_steps), width),
        given_delta=delta,
        given_slope=slope,
        schedule=schedule,
        rows=rows,
        memory=kind,
        task=plan.task,
        dim=plan.dim,
        clients=1 if average_of else federation.slots,
        sampled=1 if average_of else federation.S,
        local_steps=federation.local_steps,
        stateless=federation.stateless,
        redrawn=plan.redrawn,
        slopes=plan.slopes,
        step=float(linear.step),
        follow=float(linear.follow),
        prox=float(linear.prox),
        server=float(linear.server),
        alpha=float(plan.alpha),
        sd_client=sd((0.0 if moves > plan.var_time else plan.var_redrawn) if plan.redrawn else plan.var_client),
        sd_common=0.0 if federation.stateless else sd(plan.drift.overlap / plan.dim),
        sd_time=sd(moves),
        sd_noise=sd(plan.var_noise),
        sd_loss=sd(plan.var_loss),
        sd_loss_client=sd(plan.var_loss_client),
        sd_slope_client=math.sqrt(plan.drift.client_slope),
        sd_slope_time=math.sqrt(plan.drift.time_slope),
    )


def _steps(plan: Plan) -> Linear:
    """The local steps; what the server does with them may be more than a factor."""
    if plan.federation.samples:
        return Linear(plan.method.lr, 1.0, 0.0, 1.0)
    if plan.server is None:
        return plan.linear
    return Linear(plan.server.step, 1.0, plan.server.prox, 1.0)


def pad(values: Array, width: int) -> Array:
    """Zeros up to whole vectors: a padded direction has no curvature, no start and no noise that is ever read."""
    out = aligned((*values.shape[:-1], width))
    out[..., : values.shape[-1]] = values
    return out


def sequence(numbers: Model) -> tuple[Array, Array] | None:
    """What a round is judged by besides its own task, or None: then the loops compile without it."""
    return (numbers.task_lam, numbers.task_away) if len(numbers.task_lam) else None


def padded(values: Array) -> Array:
    return pad(values, -(-values.shape[-1] // LANES) * LANES)


def room(numbers: Model) -> Array:
    """Rows to work in, one set a call, because calls run side by side."""
    return aligned((15, numbers.lam.size))


def aligned(shape: tuple[int, ...]) -> Array:
    """Zeros that begin at a cache line: a vector that straddles two costs twice."""
    size = math.prod(shape) * 8
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(np.float64).reshape(shape)
