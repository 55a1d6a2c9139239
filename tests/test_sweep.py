"""Sweeps on this machine: the right numbers, the same bits however they are run, and nothing lost on the way."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import driftproof
import nqm
import nqm.store
import nqm.sweep
import nqm.task
from nqm.grid import Grid
from nqm.store import Damaged, Store, engine_version, using
from nqm.sweep import Interrupted, run_points, sweep
from nqm.workers import Local, Workers
from plots import registry
from theory.weights import named

ROOT = Path(driftproof.__file__).parent

BASE = {
    "problem": {"dim": 6, "mu": 1.0, "L": 5.0},
    "drift": {"client": 0.1, "time": 1.0, "noise": 0.01},
    "federation": {"clients": 4, "local_steps": 2, "rounds": 12},
    "method": {"name": "fedavg", "lr": 0.05},
}
METHODS = [
    {"method.name": "fedprox", "method.prox": 0.5},
    {"method.name": "cfl", "method.weights": "lemma-b.4"},
]
RATES = [0.01, 0.05, 0.1]


def grid(engine: str = "expect", **parts) -> Grid:
    return Grid.from_dict({"engine": engine, "base": BASE, "seeds": 3, "grid": {"method.lr": RATES}, **parts})


def run(asked: Grid, folder: Path, jobs: int = 1, fresh: bool = False, progress=nqm.sweep.quiet):
    workers = Local(jobs, asked.engine, asked.keep)
    return sweep(asked, folder / "sweep.nc", Store(folder / ".store", fresh), workers, named, progress)


def refused(result, *words: str) -> None:
    """Bad input on the command line: one line on stderr with these words, and nothing else."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


def content(folder: Path) -> str:
    return hashlib.sha256((folder / "sweep.nc").read_bytes()).hexdigest()


def alone(asked: Grid, index: int, **options) -> xr.Dataset:
    """A point by the engine itself."""
    e = nqm.Experiment.from_dict(asked.tables(index), named)
    if asked.engine == "expect":
        return nqm.expect(e.problem, e.drift, e.federation, e.method, **options)
    return nqm.simulate(e.problem, e.drift, e.federation, e.method, seeds=asked.seeds, engine=asked.engine, **options)


class TestNumbers:
    @pytest.mark.parametrize("engine", ["expect", *nqm.ENGINES])
    def test_every_point_is_what_its_engine_says(self, tmp_path, engine):
        asked = grid(engine, list=METHODS)
        summary = run(asked, tmp_path)
        assert (summary.points, summary.computed, summary.cached, summary.failed) == (6, 6, 0, [])
        with xr.open_dataset(tmp_path / "sweep.nc") as data:
            assert data.sizes["point"] == 6
            for i in range(6):
                own = alone(asked, i)
                assert set(own.data_vars) == set(data.data_vars)
                for name in own.data_vars:
                    assert data[name].dims == ("point", *own[name].dims)
                    np.testing.assert_array_equal(data[name][i].values, own[name].values)
                point = asked.point(i)
                assert data["method.name"][i] == point["method.name"]
                assert data["method.lr"][i] == point["method.lr"]
            np.testing.assert_array_equal(data["method.prox"], [0.5] * 3 + [np.nan] * 3)
            assert set(asked.fields) <= set(data.coords)
            assert json.loads(data.attrs["grid"])["engine"] == engine

    def test_without_the_norm_it_runs_compiled(self, tmp_path):
        asked = grid(keep=["grad_norm_sq"], list=METHODS)
        run(asked, tmp_path)
        data = nqm.load(tmp_path / "sweep.nc")
        assert set(data.data_vars) == {"grad_norm_sq", "diverged_at"}
        for i in range(6):
            own = alone(asked, i, norm=False, compiled=True)
            np.testing.assert_array_equal(data["grad_norm_sq"][i].values, own["grad_norm_sq"].values)

    @pytest.mark.parametrize("name", sorted(nqm.METHODS))
    def test_rates_side_by_side_are_rates_one_by_one(self, name):
        """What a job relies on: with_lr is all that a rate changes, and its company does not change a point's bits."""
        federation = nqm.Federation(clients=1 if name == "cl" else 4, local_steps=2, rounds=12)
        problem, drift = nqm.Quadratic(dim=6, L=5.0), nqm.Drift(client=0.1, time=1.0, noise=0.01)
        kind = nqm.METHODS[name]
        one, other = kind(lr=0.01), kind(lr=0.03)
        assert one.with_lr(0.03).config() == other.config()
        try:
            together = nqm.expect(problem, drift, federation, one, lr=[0.01, 0.03, 0.02], norm=False, compiled=True)
        except nqm.InvalidInput as refused:
            pytest.skip(str(refused))
        apart = nqm.expect(problem, drift, federation, other, lr=[0.03], norm=False, compiled=True)
        for curve in apart.data_vars:
            np.testing.assert_array_equal(together[curve].sel(lr=0.03).values, apart[curve].values[0])

    def test_forms_that_differ_share_a_file(self, tmp_path):
        asked = grid(zip={"federation.rounds": [4, 12], "problem.dim": [3, 6]})
        run(asked, tmp_path)
        data = nqm.load(tmp_path / "sweep.nc")
        assert data.sizes == {"point": 6, "round": 13}
        np.testing.assert_array_equal(data["grad_norm"][1, :5], alone(asked, 1)["grad_norm"])
        assert np.isnan(data["grad_norm"][1, 5:]).all()
        np.testing.assert_array_equal(data["grad_norm"][4], alone(asked, 4)["grad_norm"])

    @pytest.mark.parametrize("engine", ["expect", "collapsed"])
    def test_tasks_add_a_dimension(self, tmp_path, engine):
        asked = grid(engine, zip={"federation.tasks": [1, 3], "problem.task_shift": [0.0, 1.0]})
        assert run(asked, tmp_path).computed == 6
        data = nqm.load(tmp_path / "sweep.nc")
        assert data["grad_norm"].dims == ("point", *(("seed",) if engine != "expect" else ()), "task", "round")
        one, three = alone(asked, 1), alone(asked, 4)
        np.testing.assert_array_equal(data["grad_norm"][1].sel(task=1), one["grad_norm"])
        assert np.isnan(data["grad_norm"][1].sel(task=[2, 3])).all()
        for name in three.data_vars:
            np.testing.assert_array_equal(data[name][4].values, three[name].values)

    def test_what_an_engine_says_of_a_point_is_kept(self, tmp_path):
        run(grid(zip={"federation.sampled": [0, 2]}), tmp_path)
        data = nqm.load(tmp_path / "sweep.nc")
        assert list(data["law"].values[:3]) == ["gaussian"] * 3
        assert all("closure" in law for law in data["law"].values[3:])
        assert data.attrs["conditioned_on"] == "nothing"

    def test_many_seeds_in_blocks(self, tmp_path, monkeypatch):
        monkeypatch.setattr(nqm.task, "BLOCK", 8)
        monkeypatch.setattr(nqm.gather, "BLOCK", 8)
        run(grid("collapsed", seeds=16), tmp_path)
        asked = grid("collapsed", seeds=21)
        told = {"done": 0, "cached": 0, "failed": 0}
        run(asked, tmp_path, progress=lambda what, n: told.__setitem__(what, told[what] + n))
        assert told == {"done": 3, "cached": 6, "failed": 0}  # of three blocks a point, two were there
        data = nqm.load(tmp_path / "sweep.nc")
        for i in range(3):
            own = alone(asked, i)
            np.testing.assert_array_equal(data["seed"], own["seed"])
            np.testing.assert_array_equal(data["excess_loss"][i], own["excess_loss"])
            np.testing.assert_array_equal(data["diverged_at"][i], own["diverged_at"])

    def test_the_same_point_twice_is_run_once(self, tmp_path):
        told = []
        asked = grid(grid={"method.lr": [0.1, 0.1, 0.1]})
        summary = run(asked, tmp_path, progress=lambda what, n: told.extend([what] * n))
        values = nqm.load(tmp_path / "sweep.nc")["grad_norm"].values
        assert np.isfinite(values).all()
        assert (values == values[0]).all()
        assert (summary.computed, summary.cached, sorted(told)) == (1, 2, ["cached", "cached", "done"])

    def test_the_same_point_twice_fails_twice(self, tmp_path):
        asked = grid(
            base=BASE | {"drift": {"time_slope": 0.01}},
            list=[{"method.name": "cfl"}, {"method.name": "fedavg"}],
            grid={"method.lr": [0.1, 0.1]},
        )
        assert [f.number for f in run(asked, tmp_path).failed] == [0, 1]


class TestBits:
    """The same file, byte for byte."""

    @pytest.mark.parametrize("engine", ["expect", *nqm.ENGINES])
    def test_one_thread_and_two(self, tmp_path, monkeypatch, engine):
        monkeypatch.setattr(nqm.sweep, "TASK_UNITS", 1)
        asked = grid(engine, list=METHODS)
        run(asked, tmp_path / "one")
        workers = Local(2, engine, None)
        workers.threads = True
        sweep(asked, tmp_path / "two" / "sweep.nc", Store(tmp_path / "two" / ".store"), workers, named)
        assert content(tmp_path / "one") == content(tmp_path / "two")

    @pytest.mark.parametrize("engine", ["expect", "reference"])
    def test_two_processes(self, tmp_path, monkeypatch, engine):
        asked = grid(engine, list=METHODS)
        run(asked, tmp_path / "one")
        monkeypatch.setattr(nqm.sweep, "TASK_UNITS", 1)
        assert not Local(2, engine, None).threads
        run(asked, tmp_path / "two", jobs=2)
        assert content(tmp_path / "one") == content(tmp_path / "two")

    def test_threads_of_the_linear_algebra(self, tmp_path):
        """OMP_NUM_THREADS decides how NumPy's library splits its sums, not what comes out."""
        path = write_grid(tmp_path, dim=50, rounds=300, rates=3)
        for n in (1, 2):
            env = os.environ | {"OMP_NUM_THREADS": str(n), "OPENBLAS_NUM_THREADS": str(n)}
            done = shell("sweep", path, "--jobs", 1, "--out", tmp_path / str(n), env=env)
            assert done.returncode == 0, done.stderr
        assert content(tmp_path / "1") == content(tmp_path / "2")

    def test_order_of_work_and_store_do_not_matter(self, tmp_path):
        asked = grid(list=METHODS)
        run(asked, tmp_path / "one")
        run(grid(list=METHODS[1:], grid={"method.lr": RATES[1:]}), tmp_path / "two")
        summary = run(asked, tmp_path / "two")
        assert (summary.computed, summary.cached) == (4, 2)
        assert content(tmp_path / "one") == content(tmp_path / "two")


class TestStore:
    def test_a_second_time_computes_nothing(self, tmp_path):
        asked = grid(list=METHODS)
        run(asked, tmp_path)
        first = content(tmp_path)
        summary = run(asked, tmp_path)
        assert (summary.computed, summary.cached, summary.engine_seconds) == (0, 6, 0.0)
        assert content(tmp_path) == first

    def test_an_extended_grid_computes_what_is_new(self, tmp_path):
        run(grid(), tmp_path)
        summary = run(grid(grid={"method.lr": [0.02, *RATES, 0.15], "drift.time": [1.0, 2.0]}), tmp_path)
        assert (summary.computed, summary.cached) == (7, 3)

    def test_fresh_takes_no_notice(self, tmp_path):
        run(grid(), tmp_path)
        assert run(grid(), tmp_path, fresh=True).computed == 3
        assert run(grid(), tmp_path).cached == 3

    @pytest.mark.parametrize(
        "change",
        [
            {"base": BASE | {"drift": BASE["drift"] | {"time": 2.0}}},
            {"engine": "collapsed"},
            {"keep": ["grad_norm", "excess_loss"]},
        ],
    )
    def test_what_decides_a_result_decides_its_key(self, tmp_path, change):
        run(grid(), tmp_path)
        assert (
            run(Grid.from_dict({"base": BASE, "seeds": 3, "grid": {"method.lr": RATES}} | change), tmp_path).cached == 0
        )

    def test_seeds_decide_the_key(self, tmp_path):
        run(grid("collapsed", seeds=3), tmp_path)
        assert run(grid("collapsed", seeds=[0, 1, 3]), tmp_path).cached == 0

    def test_another_version_of_the_engines_has_other_keys(self, tmp_path, monkeypatch):
        run(grid(), tmp_path)
        for module in (nqm.sweep, nqm.task, nqm.gather):
            monkeypatch.setattr(module, "engine_version", lambda: "later")
        assert run(grid(), tmp_path).computed == 3

    def test_the_version_follows_the_sources(self, tmp_path):
        from nqm.store import digest_files

        (tmp_path / "a.py").write_text("x = 1")
        before = digest_files([tmp_path / "a.py"], tmp_path)
        (tmp_path / "a.py").write_text("x = 2")
        assert digest_files([tmp_path / "a.py"], tmp_path) != before
        assert "driftproof-normals" in engine_version()

    @pytest.mark.parametrize("place", ["content", "keys", "header", "all", "end"])
    def test_a_damaged_chunk_is_named_and_computed_again(self, tmp_path, monkeypatch, place):
        monkeypatch.setattr(nqm.sweep, "TASK_UNITS", 2)
        asked = grid(keep=["grad_norm"], list=METHODS, grid={"method.lr": [0.01, 0.02, 0.05, 0.1]})
        run(asked, tmp_path)
        first = content(tmp_path)
        chunks = sorted((tmp_path / ".store").glob("*.chunk"))
        assert len(chunks) > 1
        whole = bytearray(chunks[0].read_bytes())
        lost = len(json.loads(whole.splitlines()[1])["keys"])
        if place == "content":
            whole[-5] ^= 1
        elif place == "keys":
            at = whole.index(b'"keys": ["') + 12
            whole[at] = ord("0") if whole[at] != ord("0") else ord("1")
        elif place == "header":
            whole[0] ^= 1
        elif place == "all":
            whole = bytearray()
        else:
            whole = whole[:-100]
        chunks[0].write_bytes(whole)
        summary = run(asked, tmp_path)
        assert [str(chunks[0]) in name for name in summary.damaged] == [True] or place == "keys"
        assert 1 <= summary.computed <= lost
        assert content(tmp_path) == first
        again = run(asked, tmp_path)
        assert (again.computed, again.damaged) == (0, [])

    def test_a_chunk_that_lies_is_not_believed(self, tmp_path):
        store = Store(tmp_path)
        path = store.write(["k"], {"is": "so"}, [np.arange(3.0)])
        assert store.read(path).about == {"is": "so"}
        np.testing.assert_array_equal(np.frombuffer(store.read(path).content), [0.0, 1.0, 2.0])
        path.write_bytes(path.read_bytes().replace(b'"so"', b'"no"'))
        with pytest.raises(Damaged, match="wrong checksum"):
            store.read(path)
        assert store.noted("k") is None

    def test_what_a_crash_left_is_cleared_after_a_day(self, tmp_path):
        old, new = tmp_path / ".old.chunk", tmp_path / ".new.chunk"
        for path in (old, new):
            path.write_text("half a chunk")
        os.utime(old, (time.time() - 2 * nqm.store.LEFT_BEHIND,) * 2)
        assert Store(tmp_path).locate() == ({}, [])
        assert not old.exists()
        assert new.exists()  # another sweep may be writing it

    def test_run_points_keeps_what_it_ran(self, tmp_path, monkeypatch):
        asked = grid(list=METHODS)
        experiments = [nqm.Experiment.from_dict(asked.tables(i), named) for i in range(6)]
        without = run_points(experiments)
        with using(Store(tmp_path)):
            run_points(experiments[:4])
            first = run_points(experiments)
            chunk = next(iter(tmp_path.glob("*.chunk")))
            chunk.write_bytes(chunk.read_bytes()[:-1])
            mended = run_points(experiments)
            monkeypatch.setattr(nqm.sweep, "work", None)  # from here on nothing can be run
            second = run_points(experiments)
        for i in range(6):
            own = alone(asked, i)
            for told in (without[i], first[i], mended[i], second[i]):
                xr.testing.assert_identical(told, own)

    def test_run_points_of_samples(self, tmp_path):
        asked = grid("collapsed")
        e = nqm.Experiment.from_dict(asked.tables(1), named)
        with using(Store(tmp_path)):
            for _ in range(2):
                xr.testing.assert_identical(run_points([e], "collapsed", 3)[0], alone(asked, 1))

    def test_run_points_tells_what_can_not_be_run(self):
        e = nqm.Experiment.from_dict(BASE | {"federation": {"clients": 2}, "method": {"name": "cl", "lr": 0.1}})
        with pytest.raises(nqm.InvalidInput, match=r"federation\.clients"):
            run_points([e])


class TestFailures:
    def test_a_point_that_fails_does_not_lose_the_others(self, tmp_path):
        """Two clients of three can be sampled, five can't; and a rate below zero is none."""
        asked = grid(
            base=BASE | {"federation": {"clients": 3, "rounds": 4}},
            grid={"federation.sampled": [2, 5, 3], "method.lr": [0.1, -1.0]},
        )
        summary = run(asked, tmp_path)
        assert (summary.computed, summary.cached) == (2, 0)
        assert [f.number for f in summary.failed] == [1, 2, 3, 5]
        assert summary.failed[1].point == {"federation.sampled": 5, "method.lr": 0.1}
        assert "federation.clients = 3" in summary.failed[1].error
        assert "method.lr = -1.0" in summary.failed[0].error
        data = nqm.load(tmp_path / "sweep.nc")
        assert np.isfinite(data["grad_norm"][[0, 4]]).all()
        assert np.isnan(data["grad_norm"][[1, 2, 3, 5]]).all()
        assert np.isnan(data["diverged_at"][1])
        assert [bool(e) for e in data["error"].values] == [False, True, True, True, False, True]
        assert run(asked, tmp_path).cached == 2

    def test_an_engine_that_refuses(self, tmp_path):
        """A slope that moves can't be remembered by the exact engine; found out by the worker, not before."""
        summary = run(
            grid(list=[{"method.name": "cfl"}, {"method.name": "fedavg"}], zip={"drift.time_slope": [0.01]}), tmp_path
        )
        assert summary.computed == 3
        assert [f.point["method.name"] for f in summary.failed] == ["cfl"] * 3
        assert all("time_slope" in f.error for f in summary.failed)

    @pytest.mark.parametrize("keep", [["grad_norm"], ["grad_norm_sq"]])
    def test_a_bug_in_one_point_is_told(self, tmp_path, monkeypatch, keep):
        real = nqm.task.expect

        def sometimes(problem, drift, federation, method, **options):
            if 0.05 in options.get("lr", [method.lr]):
                raise ZeroDivisionError("oh")
            return real(problem, drift, federation, method, **options)

        monkeypatch.setattr(nqm.task, "expect", sometimes)
        summary = run(grid(keep=keep), tmp_path)
        assert summary.computed == 2
        assert [f.error for f in summary.failed] == ["ZeroDivisionError: oh"]

    def test_when_no_point_can_be_run(self, tmp_path):
        with pytest.raises(nqm.InvalidInput, match=r"no point of the grid can be run; method\.lr = -1\.0: .*finite"):
            run(grid(grid={"method.lr": [-1.0, 0.0]}), tmp_path)
        with pytest.raises(nqm.InvalidInput, match=r"none of it is there; this point has grad_norm"):
            run(grid(keep=["gain"], engine="collapsed"), tmp_path)

    def test_workers_that_are_lost(self, tmp_path):
        """A task that was cancelled says nothing about its points: the sweep ends and can be gone on with."""

        class Lost(Workers):
            slots, ahead = 2, 1

            def open(self):
                self.executor = self

            def submit(self, function, task):
                future = Future()
                future.cancel()
                future.set_running_or_notify_cancel()
                return future

            def close(self):
                pass

        with pytest.raises(nqm.InvalidInput, match="the workers are lost; 0 of 3 runs are kept, the same command"):
            sweep(grid(), tmp_path / "sweep.nc", Store(tmp_path / ".store"), Lost())
        assert run(grid(), tmp_path).computed == 3

    def test_a_full_disk(self, tmp_path, monkeypatch):
        monkeypatch.setattr(nqm.sweep, "TASK_UNITS", 1)
        written = []

        class Full(nqm.store.writing):
            """From the third file on, the disk is full: what is written goes to a device that says so."""

            def __enter__(self):
                temporary = super().__enter__()
                written.append(temporary)
                if len(written) > 2:
                    temporary.unlink()
                    temporary.symlink_to("/dev/full")
                return temporary

        with monkeypatch.context() as patch:
            patch.setattr(nqm.store, "writing", Full)
            with pytest.raises(nqm.InvalidInput) as caught:
                run(grid(), tmp_path)
        assert "No space left on device" in str(caught.value)
        assert "2 of 3 runs are kept" in str(caught.value)
        assert "\n" not in str(caught.value)
        summary = run(grid(), tmp_path)
        assert (summary.computed, summary.cached) == (1, 2)

    def test_a_file_in_place_of_the_store(self, tmp_path):
        (tmp_path / ".store").write_text("")
        with pytest.raises(nqm.InvalidInput, match=r"\.store: can't be written to"):
            run(grid(), tmp_path)

    def test_interrupt_keeps_what_is_done(self, tmp_path, monkeypatch):
        monkeypatch.setattr(nqm.sweep, "TASK_UNITS", 1)

        def stop(what: str, count: int) -> None:
            raise KeyboardInterrupt

        asked = grid(grid={"method.lr": [0.001 * k for k in range(1, 41)]})
        with pytest.raises(Interrupted) as caught:
            run(asked, tmp_path, progress=stop)
        assert not (tmp_path / "sweep.nc").exists()
        kept = len(Store(tmp_path / ".store").locate()[0])
        assert 1 <= kept < 40
        assert caught.value.kept in (kept, kept - 1)  # the first was written, but not yet told
        summary = run(asked, tmp_path)
        assert (summary.computed, summary.cached) == (40 - kept, kept)

    def test_a_worker_process_that_dies_is_replaced(self, tmp_path, monkeypatch):
        monkeypatch.setattr(nqm.sweep, "TASK_UNITS", 1)
        asked = grid(grid={"method.lr": [0.001 * k for k in range(1, 21)]})
        workers = Local(2, "expect", None)
        killed = []

        def kill(what: str, count: int) -> None:
            if not killed:
                killed.append(next(iter(workers.executor._processes)))  # type: ignore[attr-defined]
                os.kill(killed[0], signal.SIGKILL)

        summary = sweep(asked, tmp_path / "two" / "sweep.nc", Store(tmp_path / "two" / ".store"), workers, named, kill)
        assert killed
        assert (summary.computed, summary.failed) == (20, [])
        run(asked, tmp_path / "one")
        assert content(tmp_path / "one") == content(tmp_path / "two")

    def test_a_task_that_is_lost_fails_its_points_alone(self, tmp_path, monkeypatch):
        monkeypatch.setattr(nqm.sweep, "TASK_UNITS", 1)

        class Lossy(ThreadPoolExecutor):
            def submit(self, function, task):
                if task.jobs[0].rates == (0.05,):
                    task = None  # which no worker can take
                return super().submit(function, task)

        workers = Local(1, "expect", None)
        workers.open = lambda: setattr(workers, "executor", Lossy(1))
        summary = sweep(grid(), tmp_path / "sweep.nc", Store(tmp_path / ".store"), workers, named)
        assert summary.computed == 2
        assert [f.point for f in summary.failed] == [{"method.lr": 0.05}]
        assert "AttributeError" in summary.failed[0].error

    def test_interrupt_while_the_file_is_written(self, tmp_path, monkeypatch):
        def stop(*args):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(nqm.gather, "_write_chunk", stop)
            with pytest.raises(Interrupted, match="3 of 3 runs are kept"):
                run(grid(), tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [".store"]
        assert run(grid(), tmp_path).cached == 3

    def test_another_version_on_a_worker_is_refused(self):
        with pytest.raises(nqm.InvalidInput, match=r"another version of the engines: .*, not older"):
            nqm.task.work(nqm.task.Task("older", "expect", None, ()))


# In processes of their own, with small tasks so that there is something to interrupt.
DRIVER = """
import sys, nqm.sweep
nqm.sweep.TASK_UNITS = 4
sys.path.insert(0, sys.argv.pop(1))
import driftproof
driftproof.main()
"""


def write_grid(folder: Path, dim: int = 6, rounds: int = 200, rates: int = 200, **parts: str) -> Path:
    path = folder / "sweep.toml"
    lines = [f"{name} = {value}" for name, value in parts.items()]
    lines += ["[base.problem]", f"dim = {dim}", "[base.federation]", f"rounds = {rounds}", "clients = 10"]
    lines += ["[base.drift]", "time = 1.0", "[base.method]", 'name = "cfl"', 'weights = "lemma-b.4"', "[grid]"]
    lines.append(f'"method.lr" = {[0.0001 * k for k in range(1, rates + 1)]}')
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def command(*args: object) -> list[str]:
    return [sys.executable, "-c", DRIVER, str(ROOT), *(str(a) for a in args)]


def shell(*args: object, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run(command(*args), capture_output=True, text=True, timeout=120, cwd=ROOT, **kwargs)


def chunks(out: Path) -> int:
    return len(list((out / ".store").glob("[!.]*.chunk")))


def started(*args: object, out: Path, least: int = 3) -> subprocess.Popen:
    """A sweep that has written a few chunks."""
    process = subprocess.Popen(
        command(*args, "--out", out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    end = time.monotonic() + 60
    while chunks(out) < least:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)
    return process


class TestProcesses:
    @pytest.mark.parametrize("jobs", [1, 2])
    def test_kill_9_and_resume(self, tmp_path, jobs):
        path = write_grid(tmp_path)
        process = started("sweep", path, "--jobs", jobs, out=tmp_path / "a")
        process.kill()
        process.wait(30)
        process.communicate()
        assert not (tmp_path / "a" / "sweep.nc").exists()
        kept = len(Store(tmp_path / "a" / ".store").locate()[0])
        assert 12 <= kept < 200
        done = shell("sweep", path, "--jobs", 1, "--out", tmp_path / "a", "--json")
        told = json.loads(done.stdout)
        assert (told["computed"], told["cached"], told["failed"]) == (200 - kept, kept, [])
        run(Grid.from_toml(path), tmp_path / "b")
        assert content(tmp_path / "a") == content(tmp_path / "b")

    def test_ctrl_c_says_how_to_go_on(self, tmp_path):
        path = write_grid(tmp_path)
        process = started("sweep", path, "--jobs", 1, out=tmp_path / "a")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert out == ""
        assert len(err.splitlines()) == 1
        assert "of 200 runs are kept" in err
        assert f"go on with: driftproof sweep {path} --out {tmp_path / 'a'}" in err
        kept = len(Store(tmp_path / "a" / ".store").locate()[0])
        assert f"interrupted: {kept} of 200" in err
        assert json.loads(shell("sweep", path, "--out", tmp_path / "a", "--jobs", 1, "--json").stdout)["cached"] == kept

    def test_two_sweeps_in_one_folder(self, tmp_path):
        path = write_grid(tmp_path)
        both = [started("sweep", path, "--jobs", 1, out=tmp_path / "a", least=n) for n in (0, 0)]
        for process in both:
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
        store = Store(tmp_path / "a" / ".store")
        found, broken = store.locate()
        assert (len(found), broken) == (200, [])
        for place in {path for path, _ in found.values()}:
            store.read(place)
        run(Grid.from_toml(path), tmp_path / "b")
        assert content(tmp_path / "a") == content(tmp_path / "b")

    @pytest.mark.parametrize(("size", "name"), [(4_000, ".chunk"), (60_000, "sweep.nc")])
    def test_a_limit_on_the_size_of_files(self, tmp_path, size, name):
        """The operating system itself refuses to write on, first a chunk, then the dataset."""
        path = write_grid(tmp_path, rates=40)

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        done = shell("sweep", path, "--jobs", 1, "--out", tmp_path / "a", preexec_fn=limit)
        assert done.returncode == 2, done
        assert len(done.stderr.splitlines()) == 1
        assert "can't be written (File too large)" in done.stderr
        assert name in done.stderr
        assert "kept" in done.stderr
        assert not (tmp_path / "a" / "sweep.nc").exists()
        told = json.loads(shell("sweep", path, "--jobs", 1, "--out", tmp_path / "a", "--json").stdout)
        assert told["cached"] == (0 if name == ".chunk" else 40)
        assert not list((tmp_path / "a").rglob("*/.*.chunk"))
        assert not list((tmp_path / "a").glob(".*.nc"))


@pytest.mark.slow
def test_ten_thousand_exact_points(tmp_path):
    """At least nine tenths of the processor time inside the engines, and memory that does not hold the curves."""
    asked = Grid.from_dict(
        {
            "base": {"drift": {"client": 0.01, "noise": 1e-5}, "federation": {"rounds": 500}},
            "list": [{"method.name": "fedavg"}, {"method.name": "cfl", "method.weights": "lemma-b.4"}],
            "grid": {
                "drift.time": np.geomspace(0.01, 100.0, 50).tolist(),
                "method.lr": np.geomspace(1e-4, 0.09, 100).tolist(),
            },
        }
    )
    summary = run(asked, tmp_path, jobs=2)
    assert (summary.computed, summary.failed) == (10_000, [])
    assert summary.engine_share >= 0.9
    assert (tmp_path / "sweep.nc").stat().st_size > 190e6
    with xr.open_dataset(tmp_path / "sweep.nc") as data:
        own = alone(asked, 7_777)
        np.testing.assert_array_equal(data["grad_norm"][7_777].values, own["grad_norm"].values)


class TestCommand:
    def invoke(self, *args: object):
        return CliRunner().invoke(driftproof.app, ["sweep", *(str(a) for a in args)])

    def test_the_example(self, tmp_path):
        example = ROOT / "examples" / "sweep.toml"
        first = self.invoke(example, "--jobs", 2, "--out", tmp_path)
        assert first.exit_code == 0, first.output
        assert "30 points: 30 computed, 0 from the store, 0 failed" in first.stdout
        assert "peak memory" in first.stdout
        second = json.loads(self.invoke(example, "--out", tmp_path, "--json").stdout)
        assert (second["computed"], second["cached"], second["failed"]) == (0, 30, [])
        data = xr.open_dataset(second["file"])
        assert data["grad_norm_sq"].shape == (30, 201)
        by_name = data.set_index(point=["method.name", "drift.time", "method.lr"]).unstack("point")
        assert dict(by_name["grad_norm_sq"].sizes) == {"round": 201, "method.name": 3, "drift.time": 2, "method.lr": 5}
        data.close()

    def test_the_documentation(self, tmp_path, monkeypatch):
        """What docs/sweeps.md shows of Python runs, but for clusters that are not here."""
        text = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
        read, slurm, kubernetes, python = re.findall(r"```python\n(.*?)```", text, re.S)
        assert "SLURMCluster" in slurm
        assert "KubeCluster" in kubernetes
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
        monkeypatch.chdir(tmp_path)
        assert self.invoke("examples/sweep.toml", "--out", "out").exit_code == 0
        seen: dict = {}
        exec(compile(read, "sweeps.md", "exec"), seen)
        assert seen["cfl"].sizes["point"] == 10
        seen["data"].close()
        exec(compile(python, "sweeps.md", "exec"), seen)
        assert seen["summary"].cached == 30

    def test_failed_points_and_exit_code(self, tmp_path):
        path = tmp_path / "g.toml"
        base = "[base.method]\nname = 'fedavg'\n[base.federation]\nrounds = 3\n"
        path.write_text(base + "[grid]\n'method.lr' = [0.1, 0, -1, -2, -3, -4, -5]")
        shown = self.invoke(path, "--jobs", 1, "--out", tmp_path)
        assert shown.exit_code == 1
        assert "Failed: method.lr = -1: method.lr = -1: must be a finite number > 0" in shown.stdout
        assert "and 1 more" in shown.stdout
        told = json.loads(self.invoke(path, "--jobs", 1, "--out", tmp_path, "--json").stdout)
        assert [f["point"]["method.lr"] for f in told["failed"]] == [0, -1, -2, -3, -4, -5]
        assert told["cached"] == 1

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("[grid]\n'drift.tiem' = [1.0]", ["drift.tiem", "did you mean time"]),
            ("[grid]", ["grid", "empty"]),
            ("", ["grid", "empty"]),
            ("[grid]\n'method.lr' = [0.1]", ["no point", "method.name: missing"]),
            ("[grid", ["not a TOML file"]),
        ],
    )
    def test_bad_grids(self, tmp_path, text, words):
        path = tmp_path / "g.toml"
        path.write_text(text)
        refused(self.invoke(path, "--out", tmp_path), *words)

    def test_bad_options(self, tmp_path):
        example = ROOT / "examples" / "sweep.toml"
        refused(self.invoke(example, "--jobs", 0, "--out", tmp_path), "--jobs", "0", ">= 1")
        refused(self.invoke(example, "--jobs", 2, "--scheduler", "tcp://x:1"), "--jobs and --scheduler")
        (tmp_path / "file").write_text("")
        refused(self.invoke(example, "--out", tmp_path / "file"), "--out", "can't be written")
        refused(self.invoke(tmp_path / "none.toml", "--out", tmp_path), "none.toml", "No such file")

    def test_progress_counts(self, monkeypatch):
        from rich.console import Console

        screen = Console(force_terminal=True, file=open(os.devnull, "w"), width=200, record=True)  # noqa: SIM115
        monkeypatch.setattr(driftproof, "_console", lambda stderr=False: screen)
        with driftproof._counting(grid()) as count:
            for what in ("cached", "done", "failed"):
                count(what, 1)
        shown = screen.export_text()
        assert "1 done, 1 cached, 1 failed of 3" in shown
        assert "/s, 0 s left" in shown
        screen.file.close()

    def test_needs_neither_dask_nor_plots(self):
        code = (
            "import sys, nqm.sweep, nqm.workers\n"
            "print([m for m in ('dask', 'distributed', 'matplotlib', 'numba', 'theory') if m in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        assert done.stdout.strip() == "[]"


class TestFigures:
    """Figures and tables take part in the store: what these sources made is not made again."""

    def entry(self, kind: str, calls: list[str]) -> registry.Entry:
        def measure(progress):
            calls.append("measured")
            return {"x": 1} if kind == "table" else xr.Dataset({"y": ("x", [1.0, 2.0])}, attrs={"caption": "c"})

        def show(data):
            from plots.style import grid_of_panels

            calls.append("drawn")
            figure, panels = grid_of_panels(1, 1, 1.0, 1.0)
            panels[0, 0].plot(data["y"])
            return figure

        measure.__module__ = "plots.cfl_figure2"
        return registry.Entry(kind, "x/1", "x", "title", "expected", "1 s", measure, show)

    def test_a_figure_is_drawn_once(self, tmp_path):
        calls: list[str] = []
        entry, store = self.entry("figure", calls), Store(tmp_path / ".store")
        paths = registry.draw(entry, tmp_path, store=store)
        assert calls == ["measured", "drawn"]
        assert registry.is_made(entry, tmp_path, store)
        assert registry.draw(entry, tmp_path, store=store) == paths
        assert calls == ["measured", "drawn"]

    @pytest.mark.parametrize(("suffix", "again"), [(".png", ["drawn"]), (".nc", ["measured", "drawn"])])
    def test_what_is_damaged_is_made_again(self, tmp_path, suffix, again):
        calls: list[str] = []
        entry, store = self.entry("figure", calls), Store(tmp_path / ".store")
        paths = registry.draw(entry, tmp_path, store=store)
        whole = {path: path.read_bytes() for path in paths}
        entry.path(tmp_path, suffix).write_bytes(b"x")
        calls.clear()
        registry.draw(entry, tmp_path, store=store)
        assert calls == again
        assert {path: path.read_bytes() for path in paths if path.suffix != ".nc"} == {
            path: data for path, data in whole.items() if path.suffix != ".nc"
        }

    def test_other_sources_or_libraries_make_it_again(self, tmp_path, monkeypatch):
        calls: list[str] = []
        entry, store = self.entry("figure", calls), Store(tmp_path / ".store")
        registry.draw(entry, tmp_path, store=store)
        for name, fake in (("_sources", lambda module: "new"), ("engine_version", lambda: "new")):
            monkeypatch.setattr(registry, name, fake)
            calls.clear()
            registry.draw(entry, tmp_path, store=store)
            assert calls == ["measured", "drawn"]

    def test_sources_are_those_that_are_imported(self, tmp_path, monkeypatch):
        """A change of what a figure imports, at whatever depth, is noticed; one of another figure is not."""
        plots, theory = tmp_path / "plots", tmp_path / "theory"
        for folder in (plots, plots / "sub", theory):
            folder.mkdir()
        texts = {
            "a.py": "from .b import x",
            "b.py": "def f():\n    from . import c\n    import plots.d",
            "c.py": "from plots.sub.e import y",
            "d.py": "",
            "sub/e.py": "from .g import z\nfrom ..h import z",
            "sub/g.py": "",
            "h.py": "import numpy, ast",
            "other.py": "from .a import x",
        }
        for name, text in texts.items():
            (plots / name).write_text(text)
        (theory / "t.py").write_text("")
        monkeypatch.setattr(registry, "__file__", str(plots / "registry.py"))
        digest = registry._sources.__wrapped__
        before = digest("plots.a")
        for path in [*(plots / name for name in texts), theory / "t.py", plots / "data.json"]:
            was = path.read_text() if path.exists() else None
            path.write_text((was or "") + "\n# changed")
            assert (digest("plots.a") == before) == (path.name == "other.py"), path
            path.unlink() if was is None else path.write_text(was)
        assert digest("plots.a") == before

    def test_a_table_is_measured_once_and_anew_when_fresh(self, tmp_path):
        calls: list[str] = []
        entry, store = self.entry("table", calls), Store(tmp_path / ".store")
        assert registry.tabulate(entry, tmp_path, store=store) == {"x": 1}
        assert registry.tabulate(entry, tmp_path, store=store) == {"x": 1}
        assert calls == ["measured"]
        registry.tabulate(entry, tmp_path, store=Store(tmp_path / ".store", fresh=True))
        entry.path(tmp_path, ".json").write_text("{}")
        registry.tabulate(entry, tmp_path, store=store)
        assert calls == ["measured"] * 3

    def test_the_command_says_what_it_kept(self, tmp_path):
        args = ["figures", "cfl/weights", "--out", str(tmp_path)]
        assert "0 of 1 unchanged and kept, 1 made" in CliRunner().invoke(driftproof.app, args).stdout
        before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("cfl/*")}
        assert "1 of 1 unchanged and kept, 0 made" in CliRunner().invoke(driftproof.app, args).stdout
        assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("cfl/*")} == before
        assert "0 of 1 unchanged and kept" in CliRunner().invoke(driftproof.app, [*args, "--fresh"]).stdout
