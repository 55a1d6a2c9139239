"""Small experiments that between them turn on everything the model has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nqm import (
    CFL,
    CL,
    SGD,
    CFlag,
    Clients,
    Drift,
    Experiment,
    FedAvg,
    FedAvgM,
    Federation,
    FedEve,
    FedOpt,
    FedProx,
    FedTrack,
    Method,
    MimeLite,
    Quadratic,
    Scaffold,
    Special,
    SpecialC,
    draw_clients,
)
from theory.weights import lemma_b4, thm_49

ROUNDS = 60
PROBLEM = Quadratic(dim=5, mu=1.0, L=8.0, w0=0.4)


@dataclass(frozen=True)
class Case:
    drift: Drift
    federation: Federation
    method: Method
    problem: Quadratic = PROBLEM

    @property
    def experiment(self) -> Experiment:
        return Experiment(self.problem, self.drift, self.federation, self.method)

    @property
    def parts(self) -> tuple:
        return self.problem, self.drift, self.federation, self.method

    @property
    def clients(self) -> list[Clients] | None:
        """The clients to condition on, where the moments close only given the clients."""
        f = self.federation
        if self.drift.client_slope > 0 and not self.drift.fresh and not f.stateless and not f.samples:
            return [draw_clients(self.problem, self.drift, f, seed=1, task=k + 1) for k in range(f.tasks)]
        return None


def federation(clients: int = 6, sampled: int | None = None, steps: int = 3, tasks: int = 1, **kwargs) -> Federation:
    return Federation(clients, sampled, local_steps=steps, rounds=ROUNDS // tasks, tasks=tasks, **kwargs)


BASE = {"client": 0.7, "time": 5.0, "noise": 0.3}
LOSS = {"loss_mean": 0.1, "loss_var": 0.05}
INDEPENDENT = lemma_b4(ROUNDS, 5.0, 1.0)
CORRELATED = thm_49(ROUNDS, 5.0, 1.0, 0.6)
LINEAR = [np.arange(1, t + 1) / (t * (t + 1) / 2) for t in range(1, ROUNDS + 1)]

CASES = {
    "fedavg": Case(Drift(**BASE), federation(steps=4), FedAvg(0.05)),
    "fedavg, one step": Case(Drift(**BASE), federation(steps=1), FedAvg(0.1)),
    "fedprox, sampled, server rate": Case(Drift(**BASE), federation(sampled=3), FedProx(0.05, server_lr=0.7)),
    "sgd, fresh clients": Case(Drift(**BASE, fresh=True), federation(sampled=3), SGD(0.1)),
    "cfl": Case(Drift(**BASE, **LOSS), federation(steps=5), CFL(0.05, weights=INDEPENDENT)),
    "cfl, one step, sampled": Case(Drift(**BASE, **LOSS), federation(6, 3, 1), CFL(0.1, weights=INDEPENDENT)),
    "cfl, sampled": Case(Drift(**BASE, **LOSS), federation(6, 2, 5), CFL(0.05, weights=INDEPENDENT)),
    "cfl, ar(1)": Case(Drift(**BASE, **LOSS, correlation=0.6), federation(6, 6, 5), CFL(0.05, weights=CORRELATED)),
    "cfl, ar(1), sampled": Case(
        Drift(**BASE, **LOSS, correlation=0.6), federation(6, 2, 4), CFL(0.05, weights=CORRELATED)
    ),
    "fedavg, ar(1), sampled": Case(Drift(**BASE, correlation=0.8), federation(6, 2, 5), FedAvg(0.05)),
    "cfl, overlap, sampled": Case(Drift(**BASE, overlap=2.0), federation(6, 4, 5), CFL(0.05, weights=INDEPENDENT)),
    "cfl, fresh clients, ar(1), overlap": Case(
        Drift(**(BASE | {"client": 4.0}), **LOSS, correlation=0.85, overlap=1.0, fresh=True),
        federation(6, 3, 5),
        CFL(0.05, weights=CORRELATED),
    ),
    "cfl, loss per client": Case(
        Drift(**BASE, loss_mean=0.3, loss_var=0.01, loss_per_client=True),
        federation(6, 3, 5),
        CFL(0.05, weights=INDEPENDENT),
    ),
    "cfl, stateless": Case(
        Drift(**BASE, loss_mean=0.3, loss_per_client=True, correlation=0.4, overlap=1.0),
        federation(6, 3, 5, stateless=True),
        CFL(0.05, weights=INDEPENDENT),
    ),
    "cfl, any weights, ar(1)": Case(
        Drift(**BASE, **LOSS, correlation=0.5), federation(6, 3, 2), CFL(0.05, weights=LINEAR)
    ),
    "fedavg, time slope": Case(Drift(**BASE, time_slope=0.2), federation(6, 3, 3), FedAvg(0.05)),
    "fedprox, fresh slopes": Case(
        Drift(**BASE, time_slope=0.1, client_slope=0.1, fresh=True), federation(6, 3, 3), FedProx(0.05)
    ),
    "cfl, client slope": Case(
        Drift(**BASE, **LOSS, client_slope=0.05), federation(6, 3, 3), CFL(0.05, weights=INDEPENDENT)
    ),
    "cfl, client slope, everyone": Case(
        Drift(**BASE, **LOSS, client_slope=0.05), federation(6, 6, 3), CFL(0.05, weights=INDEPENDENT)
    ),
    "fedavg, both slopes": Case(Drift(**BASE, client_slope=0.05, time_slope=0.1), federation(6, 3, 3), FedAvg(0.05)),
    "cl": Case(Drift(**BASE, **LOSS), federation(1, 1, 4), CL(0.05, weights=INDEPENDENT)),
}
"""Every one of these has an exact expectation."""

GAUSSIAN = {
    "fedavg",
    "fedavg, one step",
    "sgd, fresh clients",
    "cfl",
    "cfl, ar(1)",
    "cfl, stateless",
    "cfl, client slope, everyone",
    "cl",
}
"""Those whose w is Gaussian: no random gain, no memory of who was sampled. Only there E||g|| and Var f are exact."""

SAMPLED_ONLY = {
    "cfl, time slope": Case(
        Drift(**BASE, **LOSS, time_slope=0.1, client_slope=0.1), federation(6, 3, 3), CFL(0.05, weights=CORRELATED)
    ),
    "cfl, stateless slopes, any weights": Case(
        Drift(**BASE, time_slope=0.1, client_slope=0.1), federation(6, 3, 3, stateless=True), CFL(0.05, weights=LINEAR)
    ),
    "cfl, stateless, loss per client, slopes": Case(
        Drift(**BASE, loss_mean=1.5, loss_per_client=True, time_slope=0.05),
        federation(6, 3, 3, stateless=True),
        CFL(0.05, weights=INDEPENDENT),
    ),
    "cfl, fresh slopes, even weights": Case(
        Drift(**BASE, client_slope=0.1, fresh=True), federation(6, 3, 3), CFL(0.05, weights="uniform")
    ),
}
"""Remembered slopes have no closed recursion: these run by sampling only."""

SHIFTED = Quadratic(dim=5, mu=1.0, L=8.0, w0=0.4, task_shift=6.0)
OWN_SPECTRA = Quadratic(
    dim=3, mu=1.0, L=8.0, w0=0.4, tasks=({}, {"spectrum": (0.5, 0.5, 5.0), "b": (1.0, -1.0, 0.3)}, {"L": 3.0})
)
CORRELATED_DRIFT = BASE | {"overlap": 1.0, "correlation": 0.6}
SLOPES = BASE | {"client_slope": 0.05}

SERVERS = {
    "fedavgm, sampled": Case(Drift(**BASE), federation(6, 3), FedAvgM(0.05, momentum=0.6)),
    "fedavgm, ar(1), overlap, sampled": Case(
        Drift(**CORRELATED_DRIFT), federation(6, 2), FedAvgM(0.05, server_lr=0.7, momentum=0.5)
    ),
    "mimelite, fresh clients": Case(Drift(**BASE, fresh=True), federation(6, 3), MimeLite(0.05, momentum=0.6)),
    "mimelite, ar(1), sampled": Case(Drift(**CORRELATED_DRIFT), federation(6, 3), MimeLite(0.05, momentum=0.6)),
    "mimelite, client slope": Case(Drift(**SLOPES), federation(6), MimeLite(0.05, momentum=0.6)),
    "scaffold": Case(Drift(**BASE), federation(6), Scaffold(0.05, server_lr=0.9)),
    "scaffold, client slope": Case(Drift(**SLOPES), federation(4), Scaffold(0.05)),
    "fedeve, given gain, sampled": Case(Drift(**BASE), federation(6, 3), FedEve(0.03, gain=0.4)),
    "fedeve, given gain, no prediction": Case(Drift(**BASE), federation(6), FedEve(0.05, gain=0.7, predict=False)),
    "fedavg, tasks, overlap, sampled": Case(
        Drift(**BASE, overlap=1.0), federation(6, 3, tasks=2), FedAvg(0.05), SHIFTED
    ),
    "fedavg, tasks, client slope": Case(Drift(**SLOPES), federation(6, 3, tasks=2), FedAvg(0.05), SHIFTED),
    "fedprox, tasks with spectra of their own": Case(Drift(**BASE), federation(tasks=3), FedProx(0.05), OWN_SPECTRA),
    "cfl, tasks": Case(Drift(**BASE, **LOSS), federation(6, 3, tasks=2), CFL(0.05), SHIFTED),
    "special, tasks, sampled": Case(Drift(**BASE), federation(6, 3, tasks=3), Special(0.05, prox=0.2), SHIFTED),
    "special, tasks, client slope": Case(Drift(**SLOPES), federation(6, tasks=2), Special(0.05), SHIFTED),
    "special-c, tasks, ar(1)": Case(
        Drift(**CORRELATED_DRIFT), federation(6, 3, tasks=2), SpecialC(0.05, prox=0.05), SHIFTED
    ),
}
"""Servers that keep something, and sequences of tasks: these too have exact expectations."""

GAUSSIAN |= {
    "mimelite, fresh clients",
    "mimelite, client slope",
    "scaffold",
    "scaffold, client slope",
    "fedeve, given gain, no prediction",
    "fedprox, tasks with spectra of their own",
    "special, tasks, client slope",
}

UNEXPECTED = {
    "fedopt": Case(Drift(**BASE), federation(6, 3), FedOpt(0.05)),
    "fedopt, tasks, slopes": Case(Drift(**SLOPES), federation(6, 3, tasks=2), FedOpt(0.05), SHIFTED),
    "scaffold, sampled, slopes": Case(Drift(**SLOPES), federation(6, 3), Scaffold(0.05)),
    "special, sampled, slopes": Case(Drift(**SLOPES), federation(6, 3, tasks=2), Special(0.05), SHIFTED),
    "mimelite, moving slopes": Case(Drift(**BASE, time_slope=0.1), federation(6, 3), MimeLite(0.05, momentum=0.6)),
    "fedeve, slopes": Case(Drift(**SLOPES), federation(6, 3), FedEve(0.03)),
    "fedavg, pooled, overlap": Case(Drift(**SLOPES, overlap=2.0), federation(6, 3, cohort="pooled"), FedAvg(0.05)),
    "fedavg, pooled": Case(Drift(**SLOPES), federation(6, 3, cohort="pooled"), FedAvg(0.05)),
    "fedavg, dealt": Case(Drift(**SLOPES), federation(6, 3, cohort="dealt"), FedAvg(0.05)),
}
"""Foldable, but without a closed recursion: `steps` and `collapsed` only."""

KALMAN = {
    f"fedeve, {kind}": Case(Drift(**BASE), federation(10, 5), FedEve(0.03, variances=kind))
    for kind in ("paper", "raw", "corrected", "oracle")
}
"""Random gains: `expect` offers a mean field."""

FINITE = Drift(client=0.7, client_slope=0.05, sample=1.0, sample_slope=0.1)
BENT = Quadratic(dim=5, mu=1.0, L=8.0, w0=0.4, task_shift=6.0, gradient_bound=3.0)
STEPS_ONLY = {
    "fedavg, bounded gradients": Case(Drift(**SLOPES), federation(6, 3), FedAvg(0.05), BENT),
    **{
        f"{method.name}, bounded gradients": Case(Drift(**SLOPES), federation(6, 3), method, BENT)
        for method in (FedAvgM(0.05), FedOpt(0.05), MimeLite(0.05, momentum=0.6), Scaffold(0.05), FedEve(0.03))
    },
    "sgd, bounded gradients": Case(Drift(**BASE), federation(6, 3), SGD(0.05), BENT),
    "special, bounded gradients": Case(Drift(**BASE), federation(6, 3, tasks=2), Special(0.05), BENT),
    "special-c, bounded gradients": Case(Drift(**BASE), federation(6, 3, tasks=2), SpecialC(0.05), BENT),
    "fedavg, finite sum": Case(FINITE, federation(4, tasks=2, samples=5), FedAvg(0.02, server_lr=0.9), SHIFTED),
    "fedtrack": Case(FINITE, federation(4, tasks=2, samples=5), FedTrack(0.02), SHIFTED),
    "cflag": Case(FINITE, federation(4, tasks=3, samples=5), CFlag(0.02, memory=3), SHIFTED),
    "cflag, own spectra": Case(FINITE, federation(3, tasks=3, samples=4), CFlag(0.02, memory=4), OWN_SPECTRA),
    **{
        f"cflag, {adapt}, {form}": Case(
            FINITE, federation(4, tasks=2, samples=5), CFlag(0.02, memory=3, adapt=adapt, form=form, L=12.0), SHIFTED
        )
        for adapt in ("average", "worst")
        for form in ("derived", "printed")
    },
}
"""Not linear, or random in which sample is looked at: `reference` and `steps`."""
