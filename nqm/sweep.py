"""Thousands of runs: what the store has is taken from there, the rest goes to workers in tasks of about half a second.

A *unit* is one point of a grid with one block of seeds: it has a key in the store and a place in the dataset. Curves
pass through memory a few tasks at a time; of the grid itself only the keys are remembered.
"""

from __future__ import annotations

import hashlib
import resource
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr

from .check import InvalidInput, number
from .experiment import Experiment, NameWeights
from .gather import gather, point_dataset, read_one
from .grid import RATE, Fields, Grid, label
from .store import Damaged, Store, canonical, engine_version, in_use
from .task import Job, Outcome, Piece, Request, Task, needs_norm, work
from .workers import Workers

TASK_SECONDS = 0.5
TASK_SIZE = 1 << 24  # bytes
TASK_UNITS = 256
RESTARTS = 3  # times that dying worker processes are started anew
TICK = 5.0  # seconds after which a silent sweep looks whether anybody is left to work

Progress = Callable[[str, int], None]
"""Called with "done", "cached" or "failed" and how many units have become that."""


def quiet(what: str, count: int) -> None:
    """The progress report that nobody reads."""


class Failure(NamedTuple):
    """A point that could not be run, and why."""

    number: int
    point: Fields
    error: str


@dataclass
class Summary:
    """How a sweep went.

    seconds: by the clock. engine_seconds, worker_seconds, own_seconds: processor time inside the engines, of all
        workers for their tasks, and of this process with its children.
    """

    points: int
    computed: int = 0
    cached: int = 0
    failed: list[Failure] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    seconds: float = 0.0
    engine_seconds: float = 0.0
    worker_seconds: float = 0.0
    own_seconds: float = 0.0
    slots: int = 1
    peak_memory: int = 0

    @property
    def engine_share(self) -> float:
        """The part of all processor time that was spent inside the engines."""
        return self.engine_seconds / max(self.own_seconds, 1e-9)

    @property
    def busy_share(self) -> float:
        """The part of the workers' time by the clock in which they were inside the engines."""
        return self.engine_seconds / max(self.seconds * self.slots, 1e-9)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C; says how many units of how many are in the store."""

    def __init__(self, kept: int, total: int) -> None:
        super().__init__(f"{kept} of {total} runs are kept")
        self.kept, self.total = kept, total


class Group(NamedTuple):
    """Points that differ in their learning rate alone; ``first`` is the number of the first one.

    errors: why a rate, or all of them, can't be run.
    """

    first: int
    experiment: Experiment | None
    rates: list[float]
    errors: list[str | None]


# The whole of it


def sweep(
    grid: Grid,
    out: str | Path,
    store: Store,
    workers: Workers,
    named_weights: NameWeights | None = None,
    progress: Progress = quiet,
) -> Summary:
    """Run every point of ``grid`` that ``store`` does not have, and write all of them to the netCDF file ``out``.

    The file depends on the grid alone: not on workers, order, interruptions or what was in the store.
    """
    begin, used = time.perf_counter(), _processor_time()
    request = Request(grid.engine, grid.seeds, grid.keep)
    summary = Summary(points=len(grid))
    run = Run(request, store, progress, summary, total=units(grid))
    with workers:
        summary.slots = workers.slots
        try:
            failed = _run(grid, request, run, workers, named_weights, Path(out))
        except KeyboardInterrupt:
            raise Interrupted(run.kept, run.total) from None
    per = len(request.blocks)
    computed = {unit // per for unit in run.computed} - set(failed)
    summary.computed, summary.cached = len(computed), len(grid) - len(computed) - len(failed)
    summary.seconds, summary.own_seconds = time.perf_counter() - begin, _processor_time() - used
    if not workers.here:
        summary.own_seconds += summary.worker_seconds
    summary.peak_memory = _peak_memory()
    return summary


def _run(
    grid: Grid, request: Request, run: Run, workers: Workers, named_weights: NameWeights | None, out: Path
) -> dict[int, str]:
    """Compute and gather, again if a chunk turns out to be damaged; returns why points failed."""
    while True:
        run.compute(_groups(grid, named_weights), workers)
        failed = {unit // len(request.blocks): error for unit, error in sorted(run.errors.items(), reverse=True)}
        run.summary.failed = [Failure(i, grid.point(i), failed[i]) for i in sorted(failed)]
        if len(failed) == len(grid):
            raise InvalidInput(f"no point of the grid can be run; {label(grid.point(0))}: {failed[0]}")
        try:
            gather(grid, request, run.store, run.places(failed), out, failed)
            return failed
        except Damaged as damage:
            run.drop(str(damage))


def units(grid: Grid) -> int:
    """How many units a grid has, which is what progress counts."""
    return len(grid) * len(Request(grid.engine, grid.seeds, grid.keep).blocks)


def run_points(
    experiments: Sequence[Experiment],
    engine: str = "expect",
    seeds: int | Sequence[int] = 10,
    keep: Sequence[str] | None = None,
) -> list[xr.Dataset]:
    """The same for a few experiments at hand: their results in memory, kept in the store in use if there is one.

    In `nqm.store.using(store)` what is known is not run again. The numbers are those of `nqm.expect` and
    `nqm.simulate`, except that without ``grad_norm`` in ``keep`` the exact engine runs compiled.
    """
    names = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    request = Request(engine, names, None if keep is None else tuple(keep))
    store = in_use()
    keys = [_keys(request, e, [e.method.lr])[0] for e in experiments]
    found = store.locate()[0] if store else {}
    results: list[xr.Dataset] = []
    for experiment, own in zip(experiments, keys, strict=True):
        pieces: list[Piece] = []
        for key, block in zip(own, request.blocks, strict=True):
            piece = read_one(store, found, key) if store else None
            if piece is None:
                job = Job((0,), experiment, (experiment.method.lr,), block)
                outcome = work(Task(engine_version(), engine, request.keep, (job,)))
                if outcome.failed:
                    raise InvalidInput(outcome.failed[0][1])
                piece = outcome.pieces[0]
                if store:
                    store.write([key], piece.about, piece.arrays)
            pieces.append(piece)
        results.append(point_dataset(request, experiment, pieces))
    return results


def _groups(grid: Grid, named_weights: NameWeights | None) -> Iterator[Group]:
    """The points in order, those together that differ in the rate alone."""
    rates = grid.rates
    errors: list[str | None] = [_refused(rate) for rate in rates] or [None]
    sound = next((i for i, error in enumerate(errors) if error is None), None)
    for first in range(0, len(grid), max(1, len(rates))):
        if sound is None:
            yield Group(first, None, [], errors)
            continue
        try:
            experiment = Experiment.from_dict(grid.tables(first + sound), named_weights)
        except InvalidInput as error:
            yield Group(first, None, [], [e or str(error) for e in errors])
            continue
        yield Group(first, experiment, [float(x) for x in rates] or [experiment.method.lr], errors)


def _refused(rate: Any) -> str | None:
    try:
        number(RATE, rate, 0.0, open_low=True)
    except InvalidInput as error:
        return str(error)
    return None


def _keys(request: Request, experiment: Experiment, rates: Sequence[float]) -> list[list[str]]:
    """The keys of an experiment, for every rate and block of seeds."""
    config = experiment.config()
    config["method"] = {name: value for name, value in config["method"].items() if name != "lr"}
    keep = sorted(request.keep) if request.keep is not None else None
    question = hashlib.sha256(canonical([engine_version(), request.engine, keep, config]))
    endings = [canonical(block) for block in request.blocks]
    return [[_seal(question, float(rate).hex().encode() + ending) for ending in endings] for rate in rates]


def _seal(question: Any, ending: bytes) -> str:
    whole = question.copy()
    whole.update(ending)
    return whole.hexdigest()[:32]


# From points to chunks


class Run:
    """The state of a sweep: the key of every unit, where keys lie, what failed."""

    def __init__(self, request: Request, store: Store, progress: Progress, summary: Summary, total: int) -> None:
        self.request, self.store, self.progress, self.summary, self.total = request, store, progress, summary, total
        self.keys: list[str] = [""] * total
        self.errors: dict[int, str] = {}
        self.twins: dict[str, list[int]] = {}  # units that wait for another one with the same key
        self.computed: set[int] = set()
        self.told: set[int] = set()
        self.found, broken = store.locate()
        for path in broken:
            self.drop(f"{path} (not a chunk)")

    def drop(self, damage: str) -> None:
        """Forget a damaged chunk; ``damage`` begins with its name."""
        path = Path(damage.rpartition(" (")[0])
        self.summary.damaged.append(damage)
        self.store.discard(path)
        self.found = {key: place for key, place in self.found.items() if place[0] != path}

    def places(self, failed: Container[int]) -> dict[Path, list[tuple[int, int]]]:
        """The units of all points that did not fail, as (unit, row) by the chunk that holds them."""
        by_chunk: dict[Path, list[tuple[int, int]]] = {}
        for unit, key in enumerate(self.keys):
            if unit // len(self.request.blocks) not in failed:
                path, row = self.found[key]
                by_chunk.setdefault(path, []).append((unit, row))
        return by_chunk

    def compute(self, groups: Iterable[Group], workers: Workers) -> None:
        """Bring every unit into the store that can be run."""
        self.errors.clear()
        self.twins.clear()
        tasks = self._tasks(self._jobs(groups))
        pending: dict[Future[Outcome], Task] = {}
        again: list[Task] = []
        restarts = 0
        try:
            while True:
                while len(pending) < workers.slots + workers.ahead:
                    task = again.pop() if again else next(tasks, None)
                    if task is None:
                        break
                    pending[workers.executor.submit(work, task)] = task
                if not pending:
                    self._settle_twins()
                    return
                done, _ = wait(pending, timeout=TICK, return_when=FIRST_COMPLETED)
                if not done:
                    workers.check()
                for future in done:
                    try:
                        self._receive(future, pending)
                    except BrokenExecutor:
                        restarts += 1
                        if restarts > RESTARTS:
                            raise InvalidInput("worker processes keep dying (out of memory?): lower --jobs") from None
                        again += pending.values()
                        pending.clear()
                        workers.close()
                        workers.open()
                        break
        except CancelledError:
            raise InvalidInput(f"the workers are lost; {self._resume()}") from None
        except InvalidInput as error:
            raise InvalidInput(f"{error}; {self._resume()}") from None
        except KeyboardInterrupt:
            self._finish(pending)
            raise
        finally:
            for future in pending:
                future.cancel()

    @property
    def kept(self) -> int:
        """How many units are in the store."""
        return len(self.told) - len(self.errors)

    def _receive(self, future: Future[Outcome], pending: dict[Future[Outcome], Task]) -> None:
        """Keep what a task has brought. One that was lost itself, as when it kills every worker it comes to, fails."""
        try:
            outcome = future.result()
        except (BrokenExecutor, CancelledError, InvalidInput):  # it is not about this task
            raise
        except Exception as error:
            for job in pending.pop(future).jobs:
                self._fail(job.units, f"{type(error).__name__}: {' '.join(str(error).split())}")
            return
        del pending[future]
        self._keep(outcome)

    def _resume(self) -> str:
        return f"{self.kept} of {self.total} runs are kept, the same command goes on from there"

    def _finish(self, pending: dict[Future[Outcome], Task]) -> None:
        """Let the tasks that run come to their end, and keep what they bring; a second Ctrl-C gives them up."""
        running = [future for future in pending if not future.cancel()]
        try:
            for future in wait(running).done:
                if future.exception() is None:
                    self._keep(future.result())
        except (KeyboardInterrupt, InvalidInput):
            pass

    def _jobs(self, groups: Iterable[Group]) -> Iterator[Job]:
        """The units that the store does not have, as jobs; the rest is told on the way."""
        blocks = self.request.blocks
        for group in groups:
            if group.experiment is None:
                for i, error in enumerate(group.errors):
                    self._fail(range((group.first + i) * len(blocks), (group.first + i + 1) * len(blocks)), error or "")
                continue
            per_rate = _keys(self.request, group.experiment, group.rates)
            for b, block in enumerate(blocks):
                missing, cached = [], []
                for i, error in enumerate(group.errors):
                    unit = (group.first + i) * len(blocks) + b
                    if error is not None:
                        self._fail([unit], error)
                        continue
                    key = self.keys[unit] = per_rate[i][b]
                    if key in self.found:
                        cached.append(unit)
                    elif key in self.twins:
                        self.twins[key].append(unit)
                    else:
                        self.twins[key] = []
                        missing.append(i)
                self._tell("cached", cached)
                if missing:
                    units = tuple((group.first + i) * len(blocks) + b for i in missing)
                    yield Job(units, group.experiment, tuple(group.rates[i] for i in missing), block)

    def _tasks(self, jobs: Iterable[Job]) -> Iterator[Task]:
        """Jobs in portions that are worth sending and not too long to lose."""
        version, engine, keep = engine_version(), self.request.engine, self.request.keep
        portion: list[Job] = []
        seconds, size, units = 0.0, 0.0, 0
        for whole in jobs:
            for job in _split(whole, engine, keep):
                portion.append(job)
                seconds += len(job.units) * _estimate(job, engine, keep)
                size += len(job.units) * _size(job)
                units += len(job.units)
                if seconds > TASK_SECONDS or size > TASK_SIZE or units >= TASK_UNITS:
                    yield Task(version, engine, keep, tuple(portion))
                    portion, seconds, size, units = [], 0.0, 0.0, 0
        if portion:
            yield Task(version, engine, keep, tuple(portion))

    def _keep(self, outcome: Outcome) -> None:
        self.summary.engine_seconds += outcome.engine_seconds
        self.summary.worker_seconds += outcome.seconds
        for piece in outcome.pieces:
            keys = [self.keys[unit] for unit in piece.units]
            path = self.store.write(keys, piece.about, piece.arrays)
            self.found.update((key, (path, row)) for row, key in enumerate(keys))
            self.computed.update(piece.units)
            self._tell("done", piece.units)
        for unit, error in outcome.failed:
            self._fail([unit], error)

    def _fail(self, units: Iterable[int], error: str) -> None:
        for unit in units:
            self.errors[unit] = error
        self._tell("failed", units)

    def _settle_twins(self) -> None:
        """What became of a unit became of all that ask the same."""
        of_key = {self.keys[unit]: error for unit, error in self.errors.items()}
        for key, twins in self.twins.items():
            if key in of_key:
                self._fail(twins, of_key[key])
            else:
                self._tell("cached", twins)

    def _tell(self, what: str, units: Iterable[int]) -> None:
        new = set(units) - self.told
        if new:
            self.told |= new
            self.progress(what, len(new))


def _split(job: Job, engine: str, keep: tuple[str, ...] | None) -> Iterator[Job]:
    """A job in parts that are no longer than a task should be."""
    most = max(1, min(TASK_UNITS, int(TASK_SECONDS / _estimate(job, engine, keep)), int(TASK_SIZE / _size(job))))
    for at in range(0, len(job.units), most):
        yield job._replace(units=job.units[at : at + most], rates=job.rates[at : at + most])


def _estimate(job: Job, engine: str, keep: tuple[str, ...] | None) -> float:
    """Seconds of one unit, roughly: tasks are cut by it, nothing else."""
    e = job.experiment
    f = e.federation
    work = e.problem.dim * f.rounds * f.tasks
    if engine == "expect":
        return 1e-9 * work * (200.0 if needs_norm(engine, keep) else 2.0)
    steps = work * f.clients * len(job.seeds) * (1 if engine == "collapsed" else f.local_steps)
    return 1e-9 * steps * (1000.0 if engine == "reference" else 1.0)


def _size(job: Job) -> float:
    """Bytes of one unit, roughly."""
    f = job.experiment.federation
    return 8.0 * 5 * (f.rounds + 1) * f.tasks**2 * max(1, len(job.seeds))


def _processor_time() -> float:
    """Seconds of all threads of this process and of all children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _peak_memory() -> int:
    """Bytes that this process, or the largest of its workers, had at its peak."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
