"""Tuning finds the best rate, and says how flat the curve around it is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import nqm
from nqm import CFL, Drift, FedAvg, Federation, FedProx, Quadratic, Schedule, expect, stability_limit, tune

PROBLEM, FEDERATION = Quadratic(dim=10, mu=1, L=5), Federation(10, local_steps=5, rounds=100)
DRIFT = Drift(client=0.01, time=10.0, noise=1e-4)


@pytest.mark.parametrize("criterion", ["final", "mean-log"])
def test_best_rate_is_a_minimum(criterion: str) -> None:
    tuned = tune(PROBLEM, DRIFT, FEDERATION, FedAvg(0.1), criterion=criterion)

    def score(log_lr: float) -> float:
        rms = np.sqrt(expect(PROBLEM, DRIFT, FEDERATION, FedAvg(np.exp(log_lr)), norm=False)["grad_norm_sq"].values)
        return float(rms[-1] if criterion == "final" else np.exp(np.log(rms[1:]).mean()))

    best = minimize_scalar(score, bounds=(np.log(1e-5), np.log(0.39)), method="bounded", options={"xatol": 1e-6})
    assert tuned.score <= best.fun * 1.001
    low, high = tuned.plateau
    assert low <= np.exp(best.x) <= high
    assert score(np.log(low)) <= 1.05 * tuned.score * (1 + 1e-9)
    assert score(np.log(high)) <= 1.05 * tuned.score * (1 + 1e-9)
    assert score(np.log(0.9 * low)) > 1.05 * tuned.score
    assert not tuned.at_edge


def test_rounds_to_accuracy() -> None:
    tuned = tune(PROBLEM, Drift(), FEDERATION, FedAvg(0.1), criterion="rounds", eps=1e-3)
    curve = np.sqrt(expect(PROBLEM, Drift(), FEDERATION, FedAvg(tuned.best))["grad_norm_sq"].values)
    assert tuned.score == np.argmax(curve <= 1e-3)
    assert curve[int(tuned.score) - 1] > 1e-3


def test_an_edge_is_named() -> None:
    tuned = tune(PROBLEM, DRIFT, FEDERATION, FedAvg(0.1), lrs=[0.2, 0.3, 0.39])
    assert tuned.best == 0.2
    assert tuned.at_edge


def test_own_grid_widens_until_the_best_lies_inside() -> None:
    tuned = tune(PROBLEM, Drift(time=1e6), FEDERATION, FedAvg(0.1))
    assert not tuned.at_edge
    assert tuned.best < 0.004


def test_diverging_rates_score_infinity_and_never_nan() -> None:
    tuned = tune(PROBLEM, DRIFT, Federation(10, local_steps=5, rounds=3000), FedAvg(0.1), lrs=[0.1, 0.5, 2.0])
    assert np.isposinf(tuned.scores[-1])
    assert not np.isnan(tuned.scores).any()


@pytest.mark.parametrize(
    "method", [FedAvg(0.1), FedProx(0.1, prox=2.0), CFL(0.1), FedAvg(0.1, server_lr=0.3), nqm.SGD(0.1)]
)
def test_stability_limit_parts_growth_from_decay(method: nqm.Method) -> None:
    limit = stability_limit(PROBLEM, FEDERATION, method)
    for factor, grows in ((0.999, False), (1.001, True)):
        curve = expect(
            PROBLEM, Drift(), Federation(1, local_steps=5, rounds=20_000), _plain(method, limit * factor), norm=False
        )
        tail = curve["distance_sq"].values
        assert (not np.isfinite(tail[-1]) or tail[-1] > tail[-2]) == grows


def _plain(method: nqm.Method, lr: float) -> nqm.Method:
    """The same gain without T weights to build."""
    return FedAvg(lr) if isinstance(method, CFL) else method.with_lr(lr)


def test_fedavg_is_stable_up_to_two_over_L() -> None:
    problem = Quadratic(dim=3, spectrum=(1.0, 2.0, 5.0))
    assert stability_limit(problem, FEDERATION, FedAvg(0.1)) == pytest.approx(0.4, rel=1e-12)
    assert stability_limit(problem, FEDERATION, CFL(0.1)) == pytest.approx(0.4, rel=1e-12)


def test_schedules_sum_to_one_and_know_their_rows() -> None:
    for schedule in (
        Schedule.uniform(9),
        Schedule.current_only(9),
        Schedule.from_current(np.r_[1.0, np.full(8, 0.3)], "x"),
    ):
        for t in range(1, 10):
            assert schedule.row(t).sum() == pytest.approx(1.0, abs=1e-12)
            assert len(schedule.row(t)) == t
    assert Schedule.uniform(9).even
    assert not Schedule.current_only(9).remembers
