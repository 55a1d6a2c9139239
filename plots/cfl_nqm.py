"""Section 5.1 of `cfl`: eight settings of the noisy quadratic model, five methods, each at its tuned rate.

The paper gives L, mu and the variances. It does not give the dimension, the number of clients, K, T, the
start, the spectrum, b or FedProx's weight: `Choices` holds ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import xarray as xr

import nqm
from nqm.sweep import run_points
from theory.weights import lemma_b4

from .registry import Progress, quiet

CLIENT, NOISE = 0.01, 1e-5  # E||delta||^2 and E||nu||^2, the same in all settings


class Setting(NamedTuple):
    """A column of Table 3. ``time`` is the paper's round drift E||xi||^2."""

    drift: str
    shape: str
    time: float
    L: float
    mu: float

    @property
    def name(self) -> str:
        return f"{self.drift} {self.shape}"


SETTINGS = tuple(
    Setting(drift, f"{size}-{convexity}", time, L, mu)
    for drift, time in (("SRD", 0.01), ("BRD", 100.0))
    for convexity, mu in (("SC", 1.0), ("GC", 0.0))
    for size, L in (("SL", 5.0), ("LL", 20.0))
)


def setting_coordinates() -> dict[str, Any]:
    """The settings as coordinates of a dataset."""
    columns = {k: ("setting", [getattr(s, k) for s in SETTINGS]) for k in ("L", "mu", "time")}
    return {"setting": [s.name for s in SETTINGS]} | columns


METHODS = ("FedAvg", "FedProx", "CFL", "CFL-0.001", "CFL-0.01")
LOSS = {"CFL-0.001": 0.001, "CFL-0.01": 0.01}  # I: the information loss is N(I, I/1000) in every coordinate


@dataclass(frozen=True)
class Choices:
    """What the paper leaves open, as we choose it; ``paths`` is the number of sample paths."""

    dim: int = 50
    clients: int = 100
    local_steps: int = 10
    rounds: int = 500
    w0: float = 0.0
    spectrum: str = "midpoint"
    b: float = 1.0
    prox: float = 0.5
    seed: int = 0
    paths: int = 20

    def __str__(self) -> str:
        return (
            f"dimension n = {self.dim}, N = {self.clients} clients, K = {self.local_steps} local steps, "
            f"T = {self.rounds} rounds, start w₀ = {self.w0:g}, {self.spectrum} spectrum, "
            f"b ~ N(0, {self.b**2:g}), FedProx weight {self.prox:g}"
        )


CHOICES = Choices()


@dataclass(frozen=True, eq=False)
class Run:
    """One method in one setting: its tuned rate, the exact curve at that rate, and sample paths beside it."""

    tuned: nqm.Tuned
    limit: float
    curve: xr.Dataset
    paths: xr.Dataset


def experiment(setting: Setting, method: str, choices: Choices = CHOICES, lr: float = 0.01) -> nqm.Experiment:
    """One entry of Table 3 as an experiment, at rate ``lr``."""
    loss = LOSS.get(method, 0.0)
    problem = nqm.Quadratic(
        dim=choices.dim,
        mu=setting.mu,
        L=setting.L,
        spectrum=choices.spectrum,
        b=choices.b,
        w0=choices.w0,
        seed=choices.seed,
    )
    drift = nqm.Drift(client=CLIENT, time=setting.time, noise=NOISE, loss_mean=loss, loss_var=loss / 1000)
    federation = nqm.Federation(clients=choices.clients, local_steps=choices.local_steps, rounds=choices.rounds)
    if method == "FedAvg":
        return nqm.Experiment(problem, drift, federation, nqm.FedAvg(lr))
    if method == "FedProx":
        return nqm.Experiment(problem, drift, federation, nqm.FedProx(lr, prox=choices.prox))
    weights = lemma_b4(choices.rounds, D2=setting.time, R2=drift.loss_sq(choices.dim))
    return nqm.Experiment(problem, drift, federation, nqm.CFL(lr, weights=weights))


def all_runs(choices: Choices = CHOICES, progress: Progress = quiet) -> dict[tuple[str, str], Run]:
    """Every method in every setting, by (setting, method), at its tuned rate."""
    progress(f"tuning and running {len(METHODS)} methods in {len(SETTINGS)} settings")
    return _all_runs(choices)


@cache
def _all_runs(choices: Choices) -> dict[tuple[str, str], Run]:
    """Kept: Figure 2 and Table 3 share runs."""
    names = [(setting, method) for setting in SETTINGS for method in METHODS]
    tuned, limits, best = [], [], []
    for name in names:
        e = experiment(*name, choices)
        tuned.append(nqm.tune(e.problem, e.drift, e.federation, e.method, criterion="mean-log"))
        limits.append(nqm.stability_limit(e.problem, e.federation, e.method))
        best.append(experiment(*name, choices, lr=tuned[-1].best))
    curves = run_points(best)
    paths = run_points(best, engine="collapsed", seeds=choices.paths)
    return {
        (setting.name, method): Run(rate, limit, curve, path)
        for (setting, method), rate, limit, curve, path in zip(names, tuned, limits, curves, paths, strict=True)
    }
