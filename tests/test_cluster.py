"""Sweeps on a real Dask cluster on loopback: a scheduler and two worker processes, some of them killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_sweep import BASE, METHODS, ROOT, content, grid, refused, run
from typer.testing import CliRunner

import driftproof
import nqm
import nqm.sweep
import nqm.workers
from nqm.grid import Grid
from nqm.store import Store
from nqm.sweep import sweep
from nqm.workers import Cluster
from theory.weights import named

pytest.importorskip("distributed")

HOST = "127.0.0.1"
MANY = {"method.lr": [0.001 * k for k in range(1, 41)]}


class Dask:
    """A scheduler and its workers as processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen] = []
        file = folder / "scheduler.json"
        self.scheduler = self.start("scheduler", "--port", "0", "--scheduler-file", file)
        end = time.monotonic() + 60
        while not (file.is_file() and file.stat().st_size):
            assert self.scheduler.poll() is None, (folder / "0.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.02)
        self.address = json.loads(file.read_text())["address"]

    def start(self, kind: str, *args: object, path: Path = ROOT) -> subprocess.Popen:
        number = len(self.processes)
        command = [sys.executable, "-m", "distributed.cli.dask_" + kind, "--host", HOST, "--no-dashboard"]
        environment = os.environ | {"PYTHONPATH": str(path), "OMP_NUM_THREADS": "1"}
        with open(self.folder / f"{number}.log", "w") as log:
            process = subprocess.Popen(
                [*command, *(str(a) for a in args)], stdout=log, stderr=log, env=environment, cwd=self.folder
            )
        self.processes.append(process)
        return process

    def worker(self, path: Path = ROOT) -> subprocess.Popen:
        local = self.folder / f"worker-{len(self.processes)}"
        options = ("--nthreads", 1, "--no-nanny", "--local-directory", local)
        return self.start("worker", self.address, *options, path=path)

    def wait_for(self, count: int) -> None:
        """Until exactly ``count`` workers are known to the scheduler."""
        from distributed import Client

        with Client(self.address, set_as_default=False, timeout=30) as client:
            end = time.monotonic() + 60
            while len(client.nthreads()) != count:
                assert time.monotonic() < end
                time.sleep(0.05)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(30)


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    """Two workers, unless a test has killed one: see `two`."""
    cluster = Dask(tmp_path_factory.mktemp("dask"))
    yield cluster
    cluster.close()


@pytest.fixture
def two(dask: Dask) -> list[subprocess.Popen]:
    """The cluster's two workers; what was killed has been replaced."""
    alive = [p for p in dask.processes[1:] if p.poll() is None]
    while len(alive) < 2:
        alive.append(dask.worker())
    dask.wait_for(2)
    return alive


def distribute(asked: Grid, folder: Path, address: str, progress=nqm.sweep.quiet):
    return sweep(asked, folder / "sweep.nc", Store(folder / ".store"), Cluster(address), named, progress)


@pytest.mark.parametrize("engine", ["expect", "collapsed", "reference"])
def test_the_same_bits_as_here(dask, two, tmp_path, monkeypatch, engine):
    asked = grid(engine, list=METHODS)
    run(asked, tmp_path / "here")
    monkeypatch.setattr(nqm.sweep, "TASK_UNITS", 1)
    summary = distribute(asked, tmp_path / "there", dask.address)
    assert (summary.computed, summary.slots) == (6, 2)
    assert content(tmp_path / "here") == content(tmp_path / "there")


def test_kill_9_of_a_worker_in_mid_sweep(dask, two, tmp_path, monkeypatch):
    from distributed import Client

    monkeypatch.setattr(nqm.sweep, "TASK_UNITS", 2)
    asked = grid(base=BASE | {"problem": {"dim": 50}, "federation": {"rounds": 500}}, grid=MANY)
    told, at_work = [], []

    def kill(what: str, count: int) -> None:
        told.append(what)
        if len(told) == 3:
            with Client(dask.address, set_as_default=False, timeout=30) as client:
                processes = client.run(os.getpid)
                worker, tasks = next((w, tasks) for w, tasks in client.processing().items() if tasks)
                at_work.extend(tasks)
                os.kill(processes[worker], signal.SIGKILL)

    summary = distribute(asked, tmp_path / "there", dask.address, kill)
    assert at_work
    assert (summary.computed, summary.cached, summary.failed) == (40, 0, [])
    dask.wait_for(1)
    run(asked, tmp_path / "here")
    assert content(tmp_path / "here") == content(tmp_path / "there")


def test_the_command(dask, two, tmp_path):
    """Begun here, gone on with there, and read back."""
    example = ROOT / "examples" / "sweep.toml"
    args = ["sweep", str(example), "--out", str(tmp_path), "--scheduler", dask.address, "--json"]
    short = tmp_path / "short.toml"
    short.write_text(example.read_text().replace('"drift.time" = [0.01, 100.0]', '"drift.time" = [100.0]'))
    first = json.loads(
        CliRunner().invoke(driftproof.app, ["sweep", str(short), "--out", str(tmp_path), "--json"]).stdout
    )
    assert first["computed"] == 15
    result = CliRunner().invoke(driftproof.app, args)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["computed"], told["cached"], told["failed"]) == (15, 15, [])
    assert nqm.load(told["file"]).sizes["point"] == 30


def test_a_worker_with_another_version(dask, two, tmp_path):
    """One line before anything is run; and when that worker is gone, the sweep runs."""
    other = tmp_path / "other"
    shutil.copytree(ROOT / "nqm", other / "nqm", ignore=shutil.ignore_patterns("__pycache__"))
    (other / "nqm" / "drift.py").open("a").write("\n# one line more\n")
    stranger = dask.worker(other)
    try:
        dask.wait_for(3)
        asked = grid()
        with pytest.raises(nqm.InvalidInput, match=r"worker tcp://.* runs another version of the engines") as caught:
            distribute(asked, tmp_path, dask.address)
        assert "\n" not in str(caught.value)
        assert Store(tmp_path / ".store").locate()[0] == {}
    finally:
        stranger.kill()
        stranger.wait(30)
    dask.wait_for(2)
    assert distribute(asked, tmp_path, dask.address).computed == 3


def test_all_workers_die_in_mid_sweep(dask, two, tmp_path, monkeypatch):
    monkeypatch.setattr(nqm.sweep, "TASK_UNITS", 1)
    monkeypatch.setattr(nqm.sweep, "TICK", 0.2)
    monkeypatch.setattr(nqm.workers, "PATIENCE", 0.5)
    asked = grid(grid=MANY)

    def kill(what: str, count: int) -> None:
        for process in two:
            process.kill()

    with pytest.raises(nqm.InvalidInput, match=r"all its workers are gone; .* of 40 runs are kept"):
        distribute(asked, tmp_path, dask.address, kill)
    kept = len(Store(tmp_path / ".store").locate()[0])
    assert kept >= 1
    assert run(asked, tmp_path).cached == kept


def test_the_scheduler_dies_in_mid_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(nqm.sweep, "TASK_UNITS", 1)
    monkeypatch.setattr(nqm.sweep, "TICK", 0.2)
    folder = tmp_path / "dask"
    folder.mkdir()
    cluster = Dask(folder)
    try:
        cluster.worker()
        cluster.wait_for(1)
        asked = grid(grid=MANY)

        def kill(what: str, count: int) -> None:
            cluster.scheduler.kill()

        with pytest.raises(nqm.InvalidInput) as caught:
            distribute(asked, tmp_path, cluster.address, kill)
        assert "of 40 runs are kept" in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        cluster.close()
    kept = len(Store(tmp_path / ".store").locate()[0])
    assert kept >= 1
    assert run(asked, tmp_path).cached == kept


def invoke(tmp_path: Path, address: str):
    example = ROOT / "examples" / "sweep.toml"
    return CliRunner().invoke(driftproof.app, ["sweep", str(example), "--out", str(tmp_path), "--scheduler", address])


def test_nobody_listens(tmp_path, monkeypatch):
    monkeypatch.setattr(nqm.workers, "TIMEOUT", 0.5)
    refused(invoke(tmp_path, f"tcp://{HOST}:1"), "--scheduler tcp://127.0.0.1:1", "not reached in 0.5 s")


@pytest.mark.parametrize("address", ["nonsense", "tcp://", "xyz://127.0.0.1:1", f"tcp://{HOST}:port"])
def test_not_an_address(tmp_path, monkeypatch, address):
    monkeypatch.setattr(nqm.workers, "TIMEOUT", 0.5)
    refused(invoke(tmp_path, address), f"--scheduler {address}")


def test_no_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(nqm.workers, "TIMEOUT", 1.0)
    folder = tmp_path / "dask"
    folder.mkdir()
    cluster = Dask(folder)
    try:
        refused(invoke(tmp_path, cluster.address), "has no workers", "dask worker")
    finally:
        cluster.close()


def test_without_distributed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused(invoke(tmp_path, f"tcp://{HOST}:1"), "--scheduler", "distributed", "pip install 'driftproof[cluster]'")
