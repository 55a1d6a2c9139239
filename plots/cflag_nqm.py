"""Sequences of tasks on finite sums, for the figures of `cflag`.

Heterogeneity h scales the clients' offsets and the spread of their Hessians together, E||delta_i||^2 = h G^2 and
B^2 h; Dirichlet's zeta has no counterpart. Every run draws its own tasks, clients, samples and memories, and all
methods see the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

import nqm
from nqm.transfer import loss_matrix

from .observations import Array

LEVELS = {"low": 0.0, "medium": 0.1, "high": 1.0}


@dataclass(frozen=True)
class Choices:
    """The settings, which are ours but for five clients, five tasks and 20 rounds a task.

    client, slope: G^2 and B^2 at heterogeneity 1. sample, sample_slope: the same for a client's samples.
    """

    dim: int = 20
    mu: float = 0.2
    L: float = 1.0
    tasks: int = 5
    shift: float = 4.0
    clients: int = 5
    samples: int = 40
    memory: int = 10
    local_steps: int = 10
    rounds: int = 20
    client: float = 1.0
    slope: float = 0.1
    sample: float = 1.0
    sample_slope: float = 0.1
    runs: int = 60

    @property
    def lr(self) -> float:
        """beta = 1/(4LE), the largest that Lemma 13 admits."""
        return 1.0 / (4.0 * self.L * self.local_steps)

    def __str__(self) -> str:
        return (
            f"dimension {self.dim}, eigenvalues in [{self.mu:g}, {self.L:g}], {self.tasks} tasks whose gradients are "
            f"up to σ_T² = {self.shift:g} apart, N = {self.clients} clients of {self.samples} samples, memory m₀ = "
            f"{self.memory}, E = {self.local_steps} local steps, {self.rounds} rounds a task, β = 1/(4LE), "
            f"G² = {self.client:g} h and B² = {self.slope:g} h at heterogeneity h, samples' variances "
            f"{self.sample:g} and {self.sample_slope:g}, {self.runs} runs, each with tasks, clients and samples of its "
            "own"
        )


CHOICES = Choices()


def cflag(choices: Choices, weight: float = 1.0, adapt: str = "none", form: str = "derived") -> nqm.CFlag:
    """C-FLAG with alpha = weight * beta."""
    return nqm.CFlag(
        choices.lr, memory=choices.memory, memory_lr=weight * choices.lr, adapt=adapt, form=form, L=choices.L
    )


def runs(choices: Choices, level: float, method: nqm.Method) -> xr.Dataset:
    """Sample paths with the dimensions (seed, task, round); every seed has a problem of its own."""
    drift = nqm.Drift(
        client=choices.client * level,
        client_slope=choices.slope * level,
        sample=choices.sample,
        sample_slope=choices.sample_slope,
    )
    federation = nqm.Federation(
        clients=choices.clients,
        local_steps=choices.local_steps,
        rounds=choices.rounds,
        tasks=choices.tasks,
        samples=choices.samples,
    )
    found = []
    for seed in range(choices.runs):
        problem = nqm.Quadratic(
            dim=choices.dim, mu=choices.mu, L=choices.L, rotation="none", task_shift=choices.shift, seed=seed
        )
        found.append(nqm.simulate(problem, drift, federation, method, seeds=[seed], threads=1))
    return xr.concat(found, "seed", data_vars="minimal", coords="minimal", compat="override", join="override")


def average_so_far(data: xr.Dataset) -> Array:
    """Excess loss when each task has ended, averaged over the tasks learned by then, (seed, task)."""
    A = loss_matrix(data).transpose("seed", "task", "of_task").values
    return np.stack([A[:, k, : k + 1].mean(axis=1) for k in range(A.shape[1])], axis=1)


def forgetting_so_far(data: xr.Dataset) -> Array:
    """Mean rise of the loss of earlier tasks since they were learned, (seed, task from the second on).

    The paper's measure, with losses in place of accuracies: A_{k,j} - A_{j,j} over j < k.
    """
    A = loss_matrix(data).transpose("seed", "task", "of_task").values
    own = np.diagonal(A, axis1=1, axis2=2)
    return np.stack([(A[:, k, :k] - own[:, :k]).mean(axis=1) for k in range(1, A.shape[1])], axis=1)


def newest(data: xr.Dataset) -> Array:
    """Excess loss of the current task in every round, (seed, task, round)."""
    return data["excess_loss"].transpose("seed", "task", "round").values
