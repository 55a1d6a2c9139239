"""From a plan to the numbers that the compiled loops take. Numba is imported only when a run starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .plan import Plan, geometric
from .schedule import Schedule, Table

if TYPE_CHECKING:
    from .kernels import Model

Array = NDArray[np.float64]
LANES = 8


def runner(plan: Plan, folded: bool) -> Callable[[NDArray[np.uint64], Array], None]:
    """A function that simulates seeds into an array (seeds, 3, rounds + 1)."""
    from . import kernels

    numbers = model(plan, folded)

    def run(seeds: NDArray[np.uint64], out: Array) -> None:
        kernels.run(numbers, seeds, folded, out)

    return run


def aggregates(plan: Plan) -> bool:
    """Whether the clients act only through their average, so that one client with 1/S of the variance has the same law.

    All share one gain, and either everyone takes part or nothing outlives a round.
    """
    return not plan.slopes and (not plan.federation.partial or not plan.persists)


def state_size(plan: Plan) -> int:
    """Bytes that one thread of the compiled loops keeps."""
    width = -(-plan.dim // LANES) * LANES
    per_client = 10 + (plan.federation.rounds if isinstance(plan.weights, Table) else 0) * (2 if plan.slopes else 1)
    return 8 * width * (plan.federation.slots * per_client + plan.federation.rounds)


def model(plan: Plan, folded: bool) -> Model:
    from . import kernels

    weights, federation, linear = plan.weights, plan.federation, plan.linear
    T, width = federation.rounds, -(-plan.dim // LANES) * LANES
    lam = plan.experiment.problem.eigenvalues
    if isinstance(weights, Table):
        kind = kernels.TABLE
        schedule = np.zeros((T, 4))
        schedule[:, 3] = weights.current
        rows = weights.rows
    else:
        assert isinstance(weights, Schedule)
        schedule = np.stack([weights.first, weights.middle, weights.previous, weights.current], axis=1)
        rows = np.zeros((0, 0))
        kind = kernels.FOUR_SUMS
        if not weights.remembers:
            kind = kernels.NO_MEMORY
        elif weights.even:
            kind = kernels.ONE_SUM
    one = folded and aggregates(plan)
    share = federation.S if one else 1

    def sd(var: float) -> float:
        return math.sqrt(var / share)

    folded_sd = np.zeros((0, 0))
    if folded and not plan.slopes:
        a = 1.0 - linear.step * (linear.follow * lam + linear.prox)
        loss = plan.var_loss * plan.forgotten[:, None] ** 2 * geometric(a, federation.local_steps) ** 2
        noise = plan.var_noise * geometric(a * a, federation.local_steps)
        folded_sd = pad(linear.step * np.sqrt((loss + noise) / share), width)
    given = plan.clients
    delta, slope = np.zeros((0, 0)), np.zeros((0, 0))
    if given is not None:
        delta = given.delta.mean(axis=0, keepdims=True) if one else given.delta
        slope = given.slope[:1] if one else given.slope
        delta, slope = pad(delta, width), pad(slope, width)
    return kernels.Model(
        lam=pad(lam, width),
        lam_sq=pad(lam**2, width),
        counts=pad((lam > 0).astype(float), width),
        start=pad(plan.experiment.problem.start, width),
        loss_shared=pad(plan.loss_shared, width),
        given_delta=delta,
        given_slope=slope,
        schedule=schedule,
        rows=np.array(rows),  # a copy: read-only arrays are another type and would compile again
        folded_sd=folded_sd,
        memory=kind,
        dim=plan.dim,
        clients=1 if one else federation.slots,
        sampled=1 if one else federation.S,
        local_steps=federation.local_steps,
        stateless=federation.stateless,
        redrawn=plan.redrawn,
        slopes=plan.slopes,
        step=float(linear.step),
        follow=float(linear.follow),
        prox=float(linear.prox),
        server=float(linear.server),
        alpha=float(plan.alpha),
        sd_client=sd(plan.var_redrawn if plan.redrawn else plan.var_client),
        sd_common=0.0 if federation.stateless else sd(plan.drift.overlap / plan.dim),
        sd_time=sd(plan.var_time),
        sd_noise=sd(plan.var_noise),
        sd_loss=sd(plan.var_loss),
        sd_loss_client=sd(plan.var_loss_client),
        sd_slope_client=math.sqrt(plan.drift.client_slope),
        sd_slope_time=math.sqrt(plan.drift.time_slope),
    )


def pad(values: Array, width: int) -> Array:
    """Zeros up to whole vectors: a padded direction has no curvature, no start and no noise that is ever read."""
    short = width - values.shape[-1]
    return np.ascontiguousarray(np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, short)]), dtype=float)
