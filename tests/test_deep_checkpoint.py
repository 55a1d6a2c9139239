"""A run that was stopped goes on to the same bits, and nothing else than its own checkpoint is taken for one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import deep_cases as cases  # noqa: E402

from deep import checkpoint  # noqa: E402
from deep.methods import METHODS, FedAvg  # noqa: E402
from deep.train import Run, Training, train  # noqa: E402
from nqm.check import InvalidInput  # noqa: E402

ROOT = Path(__file__).parent.parent


class Stopped(Exception):
    pass


def same(a: object, b: object) -> bool:
    """Equal to the bit, through dicts and lists."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def agree(a: Run, b: Run) -> bool:
    parts = [(r.w, r.net.buffers, r.state, r.points, r.diagnostics, r.accuracy.tolist()) for r in (a, b)]
    return all(map(same, *parts))


@pytest.mark.parametrize("name", METHODS)
def test_stopped_and_resumed(name: str, tmp_path: Path) -> None:
    """Every method, stopped between checkpoints in the second task, with BatchNorm so that statistics count."""
    method = METHODS[name](0.05, **cases.SMALL.get(name, {}))
    tests = [cases.images(9, 50), cases.images(9, 51)]
    stream, settings = cases.two_tasks(), {"rounds": 3, "batch": 8, "checkpoint_every": 2}

    def stop(run: Run, cohort: object) -> None:
        if run.task == 1 and run.round == 1:
            raise Stopped

    whole = train(cases.batch_norm(), stream, method, Training(**settings), tests=tests)
    kept = Training(**settings, checkpoint=tmp_path / "run.pt")
    with pytest.raises(Stopped):
        train(cases.batch_norm(), stream, method, kept, tests=tests, after_round=stop)
    resumed: list[tuple[int, int]] = []
    after = train(
        cases.batch_norm(),
        stream,
        method,
        kept,
        tests=tests,
        after_round=lambda r, c: resumed.append((c.task, c.round)),
    )
    assert resumed == [(1, 1), (1, 2), (1, 3)]
    assert agree(whole, after)
    again = train(
        cases.batch_norm(),
        stream,
        method,
        kept,
        tests=tests,
        after_round=lambda r, c: pytest.fail("nothing is left to do"),
    )
    assert agree(whole, again)


SCRIPT = """
import sys, time
sys.path.insert(0, "tests")
import deep_cases as cases
from deep.methods import CoreSet
from deep.train import Training, train

slow = len(sys.argv) > 2
def after(run, cohort):
    if slow:
        print(run.task, run.round, flush=True)
        time.sleep(0.05)

train(cases.conv(), cases.two_tasks(), CoreSet(0.1, size=5),
      Training(rounds=12, batch=8, checkpoint=sys.argv[1], checkpoint_every=1), tests=[cases.images(9, 50)] * 2,
      after_round=after)
"""


def test_killed_and_resumed(tmp_path: Path) -> None:
    """A real process and a real kill -9; the next one ends in the same bits as one that was left alone."""

    def process(path: Path, *more: str) -> subprocess.Popen[str]:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", SCRIPT, str(path), *more]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)

    alone = process(tmp_path / "alone.pt")
    victim = process(tmp_path / "killed.pt", "slow")
    assert victim.stdout is not None
    for _ in range(5):
        assert victim.stdout.readline()
    time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    half = torch.load(tmp_path / "killed.pt", weights_only=True)
    assert (half["task"], half["round"]) < (1, 0)
    assert process(tmp_path / "killed.pt").wait() == 0
    assert alone.wait() == 0
    a, b = (torch.load(tmp_path / name, weights_only=True) for name in ("alone.pt", "killed.pt"))
    assert same(a, b)


def test_a_failed_write_leaves_the_previous_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.pt"
    checkpoint.save(path, {"identity": "a", "w": torch.ones(2)})

    def fail(*given: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(path, {"identity": "a", "w": torch.zeros(2)})
    found = checkpoint.load(path, torch.device("cpu"), "a")
    assert found is not None
    assert torch.equal(found["w"], torch.ones(2))
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    train(cases.conv(), cases.two_tasks(), FedAvg(0.1), Training(rounds=1, checkpoint=path))
    for method, seed in ((FedAvg(0.2), 0), (FedAvg(0.1), 1)):
        with pytest.raises(InvalidInput, match="belongs to another run"):
            train(cases.conv(), cases.two_tasks(), method, Training(rounds=1, seed=seed, checkpoint=path))
    with pytest.raises(InvalidInput, match="belongs to another run"):
        train(cases.batch_norm(), cases.two_tasks(), FedAvg(0.1), Training(rounds=1, checkpoint=path))


class Malicious:
    def __reduce__(self) -> tuple:
        return (os.mkdir, ("owned",))


@pytest.mark.parametrize("kind", ["cut", "text", "malicious", "list"])
def test_what_is_no_checkpoint_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.pt"
    monkeypatch.chdir(tmp_path)
    checkpoint.save(path, {"identity": "a", "w": torch.ones(20)})
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:300])
    elif kind == "text":
        path.write_text("not a checkpoint")
    else:
        torch.save(Malicious() if kind == "malicious" else [1, 2], path)
    with pytest.raises(InvalidInput, match=r"training.checkpoint = '.*run.pt': ") as told:
        checkpoint.load(path, torch.device("cpu"), "a")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "owned").exists()
