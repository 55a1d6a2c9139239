"""A piece of a sweep as a worker gets it: a few runs of the engines, and their curves as plain arrays.

Which engine call answers a point is decided here and nowhere else, so that a number does not depend on where, in
which company or in which order its point was run.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .check import InvalidInput
from .exact import expect
from .experiment import Experiment
from .simulate import simulate
from .store import canonical, engine_version

OURS = ("engine", "experiment", "version", "random_scheme")  # attributes that say the same of all points
BLOCK = 64  # seeds of a unit


class Request(NamedTuple):
    """What is asked of every point."""

    engine: str
    seeds: tuple[int, ...]
    keep: tuple[str, ...] | None

    @property
    def blocks(self) -> list[tuple[int, ...]]:
        """The seeds in blocks; the exact engine has one block, without seeds."""
        if self.engine == "expect":
            return [()]
        return [self.seeds[i : i + BLOCK] for i in range(0, len(self.seeds), BLOCK)]


class Job(NamedTuple):
    """One experiment at one or several learning rates; ``units`` numbers what comes out, one a rate."""

    units: tuple[int, ...]
    experiment: Experiment
    rates: tuple[float, ...]
    seeds: tuple[int, ...]


class Task(NamedTuple):
    version: str
    engine: str
    keep: tuple[str, ...] | None
    jobs: tuple[Job, ...]


class Piece(NamedTuple):
    """Units whose curves have one form; arrays are stacked over the units, in the order of ``about["variables"]``."""

    units: list[int]
    about: dict[str, Any]
    arrays: list[NDArray[Any]]


class Outcome(NamedTuple):
    """engine_seconds, seconds: processor time inside the engines, and in all."""

    pieces: list[Piece]
    failed: list[tuple[int, str]]
    engine_seconds: float
    seconds: float


def needs_norm(engine: str, keep: tuple[str, ...] | None) -> bool:
    """Whether E||g|| is asked for, which takes the exact engine through NumPy and longer than all the rest."""
    return engine == "expect" and (keep is None or "grad_norm" in keep)


def work(task: Task) -> Outcome:
    """Run a task. What fails is told by unit and does not keep the rest from being run."""
    if task.version != engine_version():
        raise InvalidInput(f"a worker runs another version of the engines: {engine_version()}, not {task.version}")
    together = task.engine == "expect" and not needs_norm(task.engine, task.keep)
    left = [part for job in reversed(task.jobs) for part in ([job] if together else reversed(_singles(job)))]
    failed: list[tuple[int, str]] = []
    forms: dict[bytes, Piece] = {}
    parts: dict[bytes, list[list[NDArray[Any]]]] = {}
    begin, inside = time.thread_time(), 0.0
    while left:
        job = left.pop()
        entered = time.thread_time()
        try:
            data = _run(task, job, together)
            inside += time.thread_time() - entered
            about, arrays = _form(task, data, together)
        except Exception as error:
            if len(job.units) > 1:  # one rate may have failed all
                left += reversed(_singles(job))
                continue
            reason = str(error) if isinstance(error, InvalidInput) else f"{type(error).__name__}: {error}"
            failed.append((job.units[0], " ".join(reason.split())))
            continue
        name = canonical(about)
        forms.setdefault(name, Piece([], about, [])).units.extend(job.units)
        parts.setdefault(name, []).append(arrays)
    for name, piece in forms.items():
        piece.arrays.extend(np.concatenate(same) for same in zip(*parts[name], strict=True))
    return Outcome(list(forms.values()), failed, inside, time.thread_time() - begin)


def _singles(job: Job) -> list[Job]:
    return [job._replace(units=(unit,), rates=(rate,)) for unit, rate in zip(job.units, job.rates, strict=True)]


def _run(task: Task, job: Job, together: bool) -> xr.Dataset:
    """One call of an engine; with all rates of the job ``together``, which are then a dimension ``lr``."""
    e = job.experiment
    parts = e.problem, e.drift, e.federation
    if together:
        return expect(*parts, e.method, lr=job.rates, norm=False, compiled=True)
    method = e.method.with_lr(job.rates[0])
    if task.engine == "expect":
        return expect(*parts, method)
    return simulate(*parts, method, seeds=job.seeds, engine=task.engine, threads=1)


def _form(task: Task, data: xr.Dataset, stacked: bool) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """What is the same for all units of a form, and their arrays with the units first."""
    names = [str(name) for name in data.data_vars if task.keep is None or name in task.keep]
    if not names or names == ["diverged_at"]:
        there = ", ".join(str(name) for name in data.data_vars)
        raise InvalidInput(f"keep = {list(task.keep or ())}: none of it is there; this point has {there}")
    if "diverged_at" in data and "diverged_at" not in names:
        names.append("diverged_at")
    variables, arrays = {}, []
    for name in names:
        v = data[name].variable
        values = v.transpose("lr", ...).values if stacked else v.values[None]
        dims = [d for d in v.dims if d != "lr"]
        arrays.append(np.ascontiguousarray(values))
        variables[name] = {"dims": dims, "shape": values.shape[1:], "dtype": values.dtype.str, "attrs": v.attrs}
    coords = {str(name): c.values.tolist() for name, c in data.coords.items() if name not in ("lr", "seed")}
    attributes = {str(name): value for name, value in data.attrs.items() if name not in OURS}
    return {"variables": variables, "coords": coords, "attributes": attributes}, arrays
