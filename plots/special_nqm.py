"""Sequences of tasks for the figures of `special`: our settings, our units, and how captions judge what the paper saw.

The paper's runs are ResNets on images. Of its set-up the model keeps M = 8 clients, N = 4 of them a round, E = 5 local
steps, T = 20 rounds, K = 4 tasks (Digit-10), the global rate 1/i in task i, and the weights of the anchor; `Choices`
holds the rest, which is ours, the same in all figures.

Accuracies become losses, where lower is better. A_ij is the excess loss of task j when task i has ended:

    ACC  ->  average loss        mean over j of A_Kj
    BWT  ->  backward transfer   mean over j < K of A_jj - A_Kj, positive if later tasks made earlier ones better

Both are given in units of J, the least average loss that any one model can have on all tasks: 1 is the best there is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

import nqm
from nqm.transfer import average_loss, backward_transfer

from .observations import Observation

SERVER_PROX, CLIENT_PROX = 0.25, 0.2  # lambda of SPECIAL and of SPECIAL-C that the paper selects for Digit-10
SHIFTS = (1.0, 4.0, 16.0, 64.0)  # sigma_T^2, ours


@dataclass(frozen=True)
class Choices:
    """What the paper gives (the first five) and what the model needs besides, as we choose it.

    paths: simulated runs, where expectations are not exact or their spread is shown.
    """

    clients: int = 8
    sampled: int = 4
    local_steps: int = 5
    rounds: int = 20
    tasks: int = 4
    dim: int = 20
    mu: float = 1.0
    L: float = 20.0
    b: float = 1.0
    client: float = 5.0
    noise: float = 5.0
    seed: int = 0
    paths: int = 400

    def __str__(self) -> str:
        return (
            f"dimension n = {self.dim}, eigenvalues {self.mu:g} to {self.L:g} (the same in all tasks), b ~ N(0, "
            f"{self.b**2:g}), start 0, client drift G² = {self.client:g}, step noise σ² = {self.noise:g}, tasks apart "
            f"by σ_T², local rate {rate(self):.2g} (the best of FedAvg on task 1 alone, for all methods); taken over "
            f"from the paper: {self.sampled} of {self.clients} clients a round, E = {self.local_steps}, "
            f"T = {self.rounds}, global rate 1/i in task i"
        )


CHOICES = Choices()


def problem(choices: Choices, shift: float) -> nqm.Quadratic:
    c = choices
    return nqm.Quadratic(dim=c.dim, mu=c.mu, L=c.L, b=c.b, seed=c.seed, task_shift=shift)


def drift(choices: Choices) -> nqm.Drift:
    return nqm.Drift(client=choices.client, noise=choices.noise)


def federation(choices: Choices) -> nqm.Federation:
    c = choices
    return nqm.Federation(
        clients=c.clients, sampled=c.sampled, local_steps=c.local_steps, rounds=c.rounds, tasks=c.tasks
    )


@cache
def rate(choices: Choices) -> float:
    """The local rate at which FedAvg's gradient is least when the first task, alone, has ended."""
    alone = dataclasses.replace(federation(choices), tasks=1)
    return nqm.tune(problem(choices, 0.0), drift(choices), alone, nqm.FedAvg(0.01), criterion="final").best


def exact(choices: Choices, shift: float, method: nqm.Method) -> xr.Dataset:
    """Exact expectations of a sequence of tasks, over clients, cohorts and noise."""
    return nqm.expect(problem(choices, shift), drift(choices), federation(choices), method, norm=False)


def least_loss(choices: Choices, shift: float) -> float:
    """J: the least average excess loss on all tasks of any one model, the unit of the figures."""
    tasks = problem(choices, shift).sequence(choices.tasks)
    curvature, optimum = (np.array([getattr(t, name) for t in tasks]) for name in ("eigenvalues", "optimum_eigen"))
    joint = (curvature * optimum).sum(axis=0) / curvature.sum(axis=0)
    return float(0.5 * (curvature * (joint - optimum) ** 2).sum(axis=1).mean())


def scores(data: xr.Dataset, unit: float) -> tuple[Any, Any]:
    """Average loss and backward transfer in units of J; arrays over seeds if the run has any."""
    return average_loss(data).values / unit, backward_transfer(data).values / unit


def matched(prox: float, choices: Choices, task: int) -> float:
    """The client-side weight that holds as fast as the server's ``prox``: prox/(2 E gamma_G).

    Both rest where w - anchor is a share q/(1 + q) of the way to the optimum; in a direction of eigenvalue l, to first
    order in the rate, q = gamma_G E lr l / prox on the server (6) and q = lr l / (2 prox) in every local step.
    """
    return prox * task / (2.0 * choices.local_steps)


# What a caption may say


def falls(values: Sequence[float] | np.ndarray) -> bool:
    """Whether every value is below the one before."""
    return bool(np.all(np.diff(values) < 0))


def rises(values: Sequence[float] | np.ndarray) -> bool:
    return falls(-np.asarray(values))


def dips(values: Sequence[float] | np.ndarray) -> bool:
    """Whether values fall to a least one inside and rise from there: a U."""
    least = int(np.argmin(values))
    inside = 0 < least < len(values) - 1
    return inside and falls(values[: least + 1]) and rises(values[least:])


def by_shift(data: xr.Dataset, test: Callable[[xr.Dataset], Any]) -> dict[str, bool]:
    """Whether the data pass at each distance of the tasks."""
    return {f"σ_T² = {x:g}": bool(test(data.sel(shift=x))) for x in data["shift"].values}


def across(statement: str, passed: Mapping[str, bool]) -> Observation:
    """An observation that has to be seen in every setting; its numbers are the settings where it is."""
    where = [name for name, yes in passed.items() if yes]
    if len(where) == len(passed):
        return Observation(statement, True, "in every setting")
    return Observation(statement, False, f"not in every setting, but with {', '.join(where)}" if where else "nowhere")
