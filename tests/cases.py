"""Small experiments that between them turn on everything the model has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nqm import CFL, CL, SGD, Clients, Drift, Experiment, FedAvg, Federation, FedProx, Quadratic, draw_clients
from theory.weights import lemma_b4, thm_49

ROUNDS = 60
PROBLEM = Quadratic(dim=5, mu=1.0, L=8.0, w0=0.4)


@dataclass(frozen=True)
class Case:
    drift: Drift
    federation: Federation
    method: FedAvg | SGD

    @property
    def experiment(self) -> Experiment:
        return Experiment(PROBLEM, self.drift, self.federation, self.method)

    @property
    def parts(self) -> tuple:
        return PROBLEM, self.drift, self.federation, self.method

    @property
    def clients(self) -> Clients | None:
        """The clients to condition on, where the moments close only given the clients."""
        if self.drift.client_slope > 0 and not self.drift.fresh and not self.federation.stateless:
            return draw_clients(PROBLEM, self.drift, self.federation, seed=1)
        return None


def federation(clients: int = 6, sampled: int | None = None, steps: int = 3, **kwargs) -> Federation:
    return Federation(clients, sampled, local_steps=steps, rounds=ROUNDS, **kwargs)


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
