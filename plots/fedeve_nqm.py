"""A cross-device federation on the noisy quadratic model, for the figures of `fedeve`.

Heterogeneity h scales the clients' offsets and the spread of their Hessians together, E||delta_i||^2 = h G^2 and
B^2 h; Dirichlet's alpha has no counterpart. The clients stand for a partition of one data set: their mean is the
global problem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

import nqm


@dataclass(frozen=True)
class Choices:
    """The settings, which are ours. ``client`` and ``slope`` are G^2 and B^2 at heterogeneity 1."""

    dim: int = 20
    mu: float = 0.1
    L: float = 1.0
    clients: int = 200
    sampled: int = 10
    local_steps: int = 10
    rounds: int = 200
    lr: float = 0.1
    client: float = 1.0
    slope: float = 0.1
    noise: float = 0.01
    seeds: int = 32

    def __str__(self) -> str:
        return (
            f"dimension {self.dim}, eigenvalues in [{self.mu:g}, {self.L:g}], b ~ N(0, 1), start 0, N = {self.clients} "
            f"clients, S = {self.sampled} of them a round, K = {self.local_steps} local steps at rate {self.lr:g}, "
            f"T = {self.rounds} rounds, G² = {self.client:g} h and B² = {self.slope:g} h at heterogeneity h, "
            f"step noise σ² = {self.noise:g}, {self.seeds} seeds, each with clients of its own"
        )


CHOICES = Choices()


def problem(choices: Choices) -> nqm.Quadratic:
    return nqm.Quadratic(dim=choices.dim, mu=choices.mu, L=choices.L, rotation="none")


def drift(choices: Choices, heterogeneity: float) -> nqm.Drift:
    return nqm.Drift(
        client=choices.client * heterogeneity, client_slope=choices.slope * heterogeneity, noise=choices.noise
    )


def federation(choices: Choices, cohort: str = "own") -> nqm.Federation:
    return nqm.Federation(
        clients=choices.clients,
        sampled=choices.sampled,
        local_steps=choices.local_steps,
        rounds=choices.rounds,
        cohort=cohort,
    )


def population(choices: Choices, heterogeneity: float, seed: int = 0) -> nqm.Clients:
    """The clients of a seed, moved so that their mean is the global problem."""
    drawn = nqm.draw_clients(problem(choices), drift(choices, heterogeneity), federation(choices), seed)
    return nqm.Clients(drawn.delta - drawn.delta.mean(axis=0), drawn.slope - drawn.slope.mean(axis=0))


def paths(
    choices: Choices, heterogeneity: float, method: nqm.Method, cohort: str = "own", shared_hessian: bool = False
) -> xr.Dataset:
    """Sample paths, every seed with clients of its own; cohorts and noise are the same for all settings."""
    moves = drift(choices, heterogeneity)
    if shared_hessian:
        moves = replace(moves, client_slope=0.0)
    parts = problem(choices), moves, federation(choices, cohort), method
    runs = []
    for seed in range(choices.seeds):
        clients = population(choices, heterogeneity, seed)
        if shared_hessian:
            clients = nqm.Clients(clients.delta, np.zeros_like(clients.slope))
        runs.append(nqm.simulate(*parts, seeds=[seed], threads=1, clients=clients))
    return xr.concat(runs, "seed", data_vars="minimal", coords="minimal", compat="override", join="override")
