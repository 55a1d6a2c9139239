"""Every peer at the same work, in turns, on one core: is it the same thing, and how long does it take?"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from nqm.result import package_version

from .work import Run, Work

WORKS = {
    "B": Work(dim=100, clients=100, local_steps=10, rounds=50, seeds=8),
    "wide": Work(dim=10_000, clients=10, local_steps=10, rounds=50),
}
"""Many clients in few directions, where overheads show; and a wide problem, where they fade."""

Z = 4.5
"""A peer whose mean loss is further from the exact one, in standard errors, does not do the same work."""


@dataclass(frozen=True)
class Peer:
    """A library: where it is called from here, the package it comes from, and what the table says of it."""

    name: str
    module: str
    package: str
    function: str = "prepare"
    samples: bool = True
    """False: its result is the expectation itself, with no error to sample away."""

    def prepare(self, work: Work) -> Run:
        function: Callable[[Work], Run] = getattr(import_module(f".{self.module}", __package__), self.function)
        return function(work)


STEPS = Peer("nqm `steps`", "with_nqm", "driftproof", "steps")
PEERS = (
    STEPS,
    Peer("nqm `collapsed`", "with_nqm", "driftproof", "collapsed"),
    Peer("nqm `expect`", "with_nqm", "driftproof", "expect", samples=False),
    Peer("NumPy", "with_numpy", "numpy"),
    Peer("PyTorch", "with_torch", "torch"),
    Peer("JAX", "with_jax", "jax"),
    Peer("FedJAX", "with_fedjax", "fedjax"),
    Peer("pfl-research", "with_pfl", "pfl"),
)


def run(
    repeats: int = 7,
    works: dict[str, Work] | None = None,
    peers: tuple[Peer, ...] | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Rows by peer and work, as one plain dict."""
    tell = progress or (lambda text: None)
    works = works or WORKS
    rows: list[dict[str, Any]] = []
    with one_core() as pinned:
        for name, work in works.items():
            tell(f"peers, n = {work.dim}, N = {work.clients}, K = {work.local_steps}")
            rows += measure(name, work, peers or PEERS, repeats)
    shapes = {
        name: {"dim": w.dim, "clients": w.clients, "local_steps": w.local_steps, "rounds": w.rounds}
        for name, w in works.items()
    }
    return {"repeats": repeats, "pinned": pinned, "works": shapes, "rows": rows}


def measure(name: str, work: Work, peers: tuple[Peer, ...], repeats: int) -> list[dict[str, Any]]:
    """One row a peer. Stream 0 is the first call, which compiles; the others are timed, peers in turns."""
    rows: dict[str, dict[str, Any]] = {}
    runs: dict[str, Run] = {}
    first: dict[str, float] = {}
    seconds: dict[str, list[float]] = {}
    losses: dict[str, list[Any]] = {}
    for peer in peers:
        row: dict[str, Any] = {"peer": peer.name, "work": name, "package": peer.package}
        rows[peer.name] = row
        try:
            task = peer.prepare(work)
            begin = time.perf_counter()
            loss = task(0)
            first[peer.name] = time.perf_counter() - begin
            if not np.isfinite(loss).all():
                raise ArithmeticError("a loss that is not finite")
            row["version"] = package_version() if peer.package == "driftproof" else version(peer.package)
        except Exception as error:  # whatever somebody else's library raises, the others are still measured
            row["skipped"] = reason(peer, error)
            continue
        runs[peer.name], seconds[peer.name], losses[peer.name] = task, [], [loss]
    for stream in range(1, repeats + 1):
        for key, task in runs.items():
            begin = time.perf_counter()
            loss = task(stream)
            seconds[key].append(time.perf_counter() - begin)
            losses[key].append(loss)
    for peer in peers:
        if (key := peer.name) in runs:
            rows[key] |= judge(work, losses[key], peer.samples) | cost(
                work, losses[key][0].size, first[key], seconds[key]
            )
    base = rows.get(STEPS.name, {}).get("round_seconds")
    for row in rows.values():
        if base and "round_seconds" in row:
            row["times_steps"] = row["round_seconds"] / base
    return list(rows.values())


def judge(work: Work, losses: list[Any], samples: bool = True) -> dict[str, Any]:
    """The mean final excess loss against the exact one, in standard errors that are exact too."""
    mean, sd = work.exact
    each = np.concatenate(losses)
    off = float(each.mean()) / mean - 1.0
    found = {"precision": str(each.dtype), "seeds": each.size if samples else 0, "off": off}
    if not samples:
        return found | {"z": 0.0, "agrees": abs(off) < 1e-9}
    z = (float(each.mean()) - mean) / (sd / float(np.sqrt(each.size)))
    return found | {"z": z, "agrees": bool(abs(z) < Z)}  # a loss that is not a number agrees with nothing


def cost(work: Work, seeds: int, first: float, seconds: list[float]) -> dict[str, Any]:
    """Median seconds of one round of one seed, half the distance between the quartiles as a part of it, nanoseconds
    per client, local step and direction, and the seconds by which the first call took longer.
    """
    low, middle, high = (float(q) for q in np.percentile(seconds, (25, 50, 75)))
    share = 1.0 / (work.rounds * seeds)
    return {
        "round_seconds": middle * share,
        "spread": (high - low) / 2 / middle,
        "ns": middle * share / work.unit * 1e9,
        "warm_up_seconds": max(0.0, first - middle),
    }


def reason(peer: Peer, error: Exception) -> str:
    """Why a peer has no numbers, in one line."""
    said = (str(error).splitlines() or [""])[0]
    if isinstance(error, ImportError):
        return f"not installed here ({said})"
    return f"fails here ({type(error).__name__}: {said})"


@contextmanager
def one_core() -> Iterator[bool]:
    """Keep to one core; yields whether the system enforces it.

    To be entered before the peers are imported: they count cores when they start.
    """
    single = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    before = {name: os.environ.get(name) for name in single}
    os.environ.update(single)
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 0
    if torch:
        torch.set_num_threads(1)
    pinned = hasattr(os, "sched_setaffinity")
    cores = os.sched_getaffinity(0) if pinned else set()
    if pinned:
        os.sched_setaffinity(0, {max(cores)})
    try:
        yield pinned
    finally:
        if pinned:
            os.sched_setaffinity(0, cores)
        if torch:
            torch.set_num_threads(threads)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
