"""What a careful person would write in NumPy: vectorised over seeds and clients, in the eigenbasis, nothing wasted.

CFL with Lemma B.4's weights and information loss, full participation: the same model as `nqm`, by other random numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nqm import Experiment
from nqm.plan import Plan

Array = NDArray[np.float64]


def local_steps(
    local: Array, keep: Array, push: Array, noise: Array, sd: float, steps: int, rng: np.random.Generator
) -> None:
    """local <- keep local + push + sd normals, ``steps`` times from 0, in place; ``noise`` is room."""
    local[:] = 0.0
    for _ in range(steps):
        local *= keep
        local += push
        rng.standard_normal(out=noise)
        noise *= sd
        local -= noise


def run(experiment: Experiment, seeds: int, rounds: int) -> Array:
    """||g||^2 of every seed and round, (seeds, rounds + 1)."""
    plan = Plan(experiment)
    lam, (step, follow, prox, server) = experiment.problem.eigenvalues, plan.linear
    shape = (seeds, experiment.federation.clients, plan.dim)
    rng = np.random.default_rng(0)
    stays = np.sqrt(plan.var_stays) * rng.standard_normal(shape)
    past = np.zeros(shape)
    e = np.tile(experiment.problem.start, (seeds, 1))
    x, noise, local = np.empty(shape), np.empty(shape), np.empty(shape)
    keep = 1.0 - step * (follow * lam + prox)
    out = np.empty((seeds, rounds + 1))
    out[:, 0] = ((lam * e) ** 2).sum(axis=1)
    for t in range(rounds):
        weights = plan.weights.row(t + 1)
        rng.standard_normal(out=x)
        x *= np.sqrt(plan.var_time)
        push = stays + weights[-1] * x
        if t > 0:
            push += weights[0] * past
            rng.standard_normal(out=noise)
            push += plan.forgotten[t] * (plan.loss_shared + np.sqrt(plan.var_loss) * noise)
        past += x
        push += (lam * e)[:, None, :]
        push *= -step
        local_steps(local, keep, push, noise, step * np.sqrt(plan.var_noise), experiment.federation.local_steps, rng)
        e += server * local.mean(axis=1)
        out[:, t + 1] = ((lam * e) ** 2).sum(axis=1)
    return out


def fedeve(experiment: Experiment, seeds: int, rounds: int) -> Array:
    """The same for FedEve with the variances of (13), by (12a)-(12f)."""
    plan = Plan(experiment)
    lam, N, d = experiment.problem.eigenvalues, experiment.federation.clients, plan.dim
    step = experiment.method.lr
    shape = (seeds, N, d)
    rng = np.random.default_rng(0)
    stays = np.sqrt(plan.var_stays) * rng.standard_normal(shape)
    e, M = np.tile(experiment.problem.start, (seeds, 1)), np.zeros((seeds, d))
    x, noise, local = np.empty(shape), np.empty(shape), np.empty(shape)
    keep, variance = 1.0 - step * lam, np.zeros(seeds)
    out = np.empty((seeds, rounds + 1))
    out[:, 0] = ((lam * e) ** 2).sum(axis=1)
    for t in range(rounds):
        rng.standard_normal(out=x)
        x *= np.sqrt(plan.var_time)
        push = stays + x
        push += (lam * (e - M))[:, None, :]
        push *= -step
        local_steps(local, keep, push, noise, step * np.sqrt(plan.var_noise), experiment.federation.local_steps, rng)
        D = -local.mean(axis=1)
        local += D[:, None, :]
        period = ((M - D) ** 2).sum(axis=1) / (N * d)
        client = np.einsum("skd,skd->s", local, local) / (N * N * d)
        prior = variance + period
        gain = prior / (prior + client)
        M += gain[:, None] * (D - M)
        e -= M
        variance = (1.0 - gain) * prior
        out[:, t + 1] = ((lam * e) ** 2).sum(axis=1)
    return out
