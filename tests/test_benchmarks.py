"""The yardstick is an honest rival, and the benchmark reports what it should."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from rich.console import Console

import benchmarks
from benchmarks import yardstick
from benchmarks.measure import CONFIGS, engines
from nqm import Drift, FedEve, expect, simulate


def test_the_yardstick_simulates_the_same_model() -> None:
    """2,000 seeds against exact expectations at ten rounds, |z| < 4.5."""
    e = dataclasses.replace(CONFIGS[0], dim=4, clients=3, local_steps=2).experiment
    drift = dataclasses.replace(e.drift, loss_mean=0.5, loss_var=0.3, noise=2.0, client=1.0)
    e = dataclasses.replace(e, drift=drift)
    sampled = yardstick.run(e, seeds=2000, rounds=10)
    exact = expect(e.problem, e.drift, e.federation, e.method, norm=False)["grad_norm_sq"].values[:11]
    z = (sampled.mean(axis=0) - exact)[1:] / (sampled.std(axis=0)[1:] / np.sqrt(2000))
    assert np.abs(z).max() < 4.5


def test_the_yardstick_of_fedeve_simulates_the_same_model() -> None:
    """2,000 seeds against 2,000 of `collapsed` at ten rounds, |z| < 4.5."""
    e = dataclasses.replace(CONFIGS[0], dim=4, clients=3, local_steps=2).experiment
    drift = Drift(client=1.0, time=e.drift.time, noise=2.0)
    e = dataclasses.replace(e, drift=drift, method=FedEve(e.method.lr))
    mine = yardstick.fedeve(e, seeds=2000, rounds=10)
    ours = simulate(e.problem, e.drift, e.federation, e.method, seeds=2000, engine="collapsed")["grad_norm_sq"].values
    error = np.sqrt((mine.var(axis=0) + ours[:, :11].var(axis=0)) / 2000)
    z = (mine.mean(axis=0) - ours[:, :11].mean(axis=0))[1:] / error[1:]
    assert np.abs(z).max() < 4.5


def test_ratios_are_taken_within_one_run() -> None:
    tiny = dataclasses.replace(CONFIGS[0], dim=8, clients=2, local_steps=2)
    rows = engines(tiny, repeats=1)
    yards = {row["variant"].startswith("FedEve"): row["ns"] for row in rows if "yardstick" in row["variant"]}
    assert len(yards) == 2
    for row in rows:
        assert row["ns"] > 0
        assert row["ratio"] == pytest.approx(yards[row["variant"].startswith("FedEve")] / row["ns"])
    assert "over_floor" in rows[2]


@pytest.mark.slow
def test_the_whole_benchmark() -> None:
    result = benchmarks.run(quick=True)
    json.dumps(result, allow_nan=False)
    assert {"rows", "sweep", "weights", "latency", "aims"} <= set(result)
    console = Console(record=True, width=160)
    benchmarks.show(result, console)
    assert "yardstick" in console.export_text()


def test_networks_are_timed_both_ways(capsys) -> None:
    pytest.importorskip("torch")
    from benchmarks import deep

    rows = deep.run(quick=True)
    assert {row["clients"] for row in rows} == {16, 64}
    assert all(row["at_once_per_second"] > 0 and row["looped_per_second"] > 0 for row in rows)
    benchmarks.show_networks(rows, Console(width=120))
    assert "LeNet-5" in capsys.readouterr().out
