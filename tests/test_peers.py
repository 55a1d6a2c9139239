"""The peers do the same work as `nqm`, whoever is missing is named, and the exponents of cost are those planted."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

import benchmarks
from benchmarks import growth, page
from benchmarks.peers import PEERS, Peer, Work
from benchmarks.peers import measure as peers_measure
from benchmarks.peers.measure import STEPS, judge, measure, one_core
from driftproof import app

TINY = Work(dim=5, clients=3, local_steps=4, rounds=12, seeds=600, lr=0.03)
SMALL = Work(dim=5, clients=3, local_steps=2, rounds=2)
NUMPY = next(peer for peer in PEERS if peer.name == "NumPy")
MODULES = {"driftproof": "nqm"}


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_does_the_same_work(peer: Peer) -> None:
    """At least 400 seeds against the exact final loss, in exact standard errors: |z| < 4.5."""
    pytest.importorskip(MODULES.get(peer.package, peer.package))
    run = peer.prepare(TINY)
    losses = [run(0)]
    while peer.samples and sum(loss.size for loss in losses) < 400:  # no axis for seeds: one a run
        losses.append(run(len(losses)))
    found = judge(TINY, losses, peer.samples)
    assert found["agrees"], found
    assert found["precision"] == "float64"
    if peer.samples:
        again = run(0)
        assert np.array_equal(again, losses[0])
        assert not np.array_equal(again, run(10_000))


class Mistaken(Work):
    """TINY's problem and drift, whatever the fields say."""

    parts = TINY.parts


class NoNoise(Mistaken):
    sd_noise = 0.0


class NoDrift(Mistaken):
    sd_client = 0.0


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (NoNoise, {}),
        (NoDrift, {}),
        (Mistaken, {"local_steps": 5}),
        (Mistaken, {"rounds": 13}),
        (Mistaken, {"rounds": 11}),
        (Mistaken, {"lr": 0.033}),
    ],
)
def test_other_work_is_found_out(kind: type[Work], change: dict[str, Any]) -> None:
    """3,000 seeds each."""
    fields = dataclasses.asdict(TINY)
    right, wrong = NUMPY.prepare(Mistaken(**fields)), NUMPY.prepare(kind(**(fields | change)))
    assert judge(TINY, [right(stream) for stream in range(5)])["agrees"]
    assert not judge(TINY, [wrong(stream) for stream in range(5)])["agrees"]


def test_an_expectation_has_to_be_exact() -> None:
    mean, _ = TINY.exact
    assert judge(TINY, [np.array([mean])], samples=False)["agrees"]
    assert not judge(TINY, [np.array([mean * (1 + 1e-6)])], samples=False)["agrees"]


def test_single_precision_is_seen() -> None:
    assert judge(TINY, [TINY.excess_loss(np.ones((4, 5), dtype=np.float32))])["precision"] == "float32"


def test_a_missing_peer_is_skipped_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = next(peer for peer in PEERS if peer.name == "JAX")
    monkeypatch.setitem(sys.modules, "jax", None)  # what `import jax` then finds is an ImportError
    monkeypatch.setattr(peers_measure, "WORKS", {"small": SMALL})
    result = peers_measure.run(repeats=1, peers=(NUMPY, jax))
    numpy_row, jax_row = result["rows"]
    assert "skipped" not in numpy_row
    assert jax_row["skipped"].startswith("not installed here (")
    assert "jax" in jax_row["skipped"]
    assert f"| small | JAX | skipped: {jax_row['skipped']} |" in page.markdown(result, [])
    console = Console(record=True, width=200)
    benchmarks.show_peers(result, console)
    assert "skipped: not installed here" in console.export_text()


def test_a_peer_that_fails_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(work: Work) -> Any:
        raise AttributeError("module 'jax' has no attribute 'tree_map'\nand more")

    from benchmarks.peers import with_numpy, with_torch

    monkeypatch.setattr(with_torch, "prepare", broken)
    torch = next(peer for peer in PEERS if peer.name == "PyTorch")
    rows = measure("small", SMALL, (torch, NUMPY), repeats=1)
    assert rows[0]["skipped"] == "fails here (AttributeError: module 'jax' has no attribute 'tree_map')"
    assert rows[1]["round_seconds"] > 0
    monkeypatch.setattr(with_numpy, "prepare", lambda work: lambda stream: np.array([np.nan]))
    assert "not finite" in measure("small", SMALL, (NUMPY,), repeats=1)[0]["skipped"]


def test_ratios_are_to_steps_and_only_for_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.peers import with_numpy

    steps, numpy_row = measure("small", SMALL, (STEPS, NUMPY), repeats=1)
    assert steps["times_steps"] == 1.0
    assert numpy_row["times_steps"] == pytest.approx(numpy_row["ns"] / steps["ns"])
    assert numpy_row["ns"] * SMALL.unit == pytest.approx(numpy_row["round_seconds"] * 1e9)
    monkeypatch.setattr(with_numpy, "prepare", lambda work: lambda stream: np.full(4, 1e6))
    rows = measure("small", SMALL, (STEPS, NUMPY), repeats=1)
    cells = page.peer_rows({"rows": rows})[1]
    assert cells[page.PEER_COLUMNS.index("× `steps`")] == ""
    assert cells[page.PEER_COLUMNS.index("off by")].startswith("differs")


def test_one_core_leaves_everything_as_it_was() -> None:
    environment = dict(os.environ)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with one_core() as pinned:
        assert os.environ["OMP_NUM_THREADS"] == "1"
        if pinned:
            assert len(os.sched_getaffinity(0)) == 1
    assert dict(os.environ) == environment
    if cores is not None:
        assert os.sched_getaffinity(0) == cores


@settings(deadline=None)  # the first case imports SciPy
@given(p=st.floats(-1, 3), scale=st.floats(1e-6, 1e3))
def test_the_fit_recovers_planted_exponents(p: float, scale: float) -> None:
    values = [3, 6, 12, 24, 48]
    exponent, half_width = growth.fit(values, [scale * v**p for v in values])
    assert exponent == pytest.approx(p, abs=1e-9)
    assert half_width < 1e-9


def test_the_interval_covers_as_often_as_it_says() -> None:
    """2,000 fits to noisy powers, seed 0: 95 % within four standard errors."""
    rng = np.random.default_rng(0)
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    inside = 0
    for _ in range(2000):
        exponent, half_width = growth.fit(values, values**0.7 * np.exp(0.1 * rng.standard_normal(5)))
        inside += abs(exponent - 0.7) <= half_width
    assert abs(inside / 2000 - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000)


def test_growth_takes_the_cost_of_a_call_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is planted: 1 s a call and n N sqrt(T), whatever K and seeds are."""

    def clock(tasks: dict[str, Any], repeats: int) -> dict[str, float]:
        return {
            name: 1.0 + (0.0 if size is growth.EMPTY else size.dim * size.clients * size.rounds**0.5)
            for name, size in tasks.items()
        }

    monkeypatch.setattr(growth, "medians", clock)
    predicted = {"n": 1.0, "N": 1.0, "K": 0.0, "T": 0.5, "seeds": 0.0}
    engine = growth.Engine("planted", lambda size: size, growth.Size(2, 3, 4, 5, 6), predicted)  # type: ignore[arg-type,return-value]
    rows = growth.run(engines=(engine,))
    assert {row["parameter"]: row["exponent"] for row in rows} == pytest.approx(predicted, abs=1e-12)
    assert all(max(row["values"]) >= 10 * min(row["values"]) for row in rows)
    assert page.growth_rows(rows)[0][:3] == ["planted", "1.00 ± 0.00", "1.00 ± 0.00"]


def test_expect_has_no_exponent_in_seeds() -> None:
    expect = next(engine for engine in growth.ENGINES if engine.name == "expect")
    assert "seeds" not in expect.predicted


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command, at once."""
    size = growth.Size(8, 2, 2, 2, 2)
    monkeypatch.setattr(peers_measure, "WORKS", {"small": SMALL})
    monkeypatch.setattr(peers_measure, "PEERS", (STEPS, NUMPY))
    monkeypatch.setattr(growth, "ENGINES", tuple(dataclasses.replace(e, start=size) for e in growth.ENGINES))
    monkeypatch.setattr(growth, "medians", lambda tasks, repeats: {k: 1.0 + i for i, k in enumerate(reversed(tasks))})


@pytest.mark.usefixtures("small")
def test_the_page_is_written_by_the_command(tmp_path: Path) -> None:
    out = tmp_path / "benchmarks.md"
    done = CliRunner().invoke(app, ["bench", "--out", str(out)])
    assert done.exit_code == 0, done.output
    text = out.read_text(encoding="utf-8")
    assert text.startswith("# Benchmarks\n")
    for name in ("nqm `steps`", "NumPy", "FedJAX", "pfl-research", "collapsed, everybody takes part"):
        assert f"| {name}" in text
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert len(tables) == 3
    for table in tables:
        assert len({line.count("|") for line in table}) == 1


@pytest.mark.usefixtures("small")
def test_json_is_one_value() -> None:
    done = CliRunner().invoke(app, ["bench", "--peers", "--growth", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [row["peer"] for row in result["peers"]["rows"]] == ["nqm `steps`", "NumPy"]
    assert {row["engine"] for row in result["growth"]} == {engine.name for engine in growth.ENGINES}


def test_a_page_that_is_a_folder_is_refused_before_anything_is_timed(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "is a folder" in done.stderr
