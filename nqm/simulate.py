"""Sample paths: one entry for the three sampling engines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from . import compiled, reference
from .check import InvalidInput, choice, fail, integer, memory
from .drift import Drift
from .experiment import Experiment
from .federation import Federation
from .methods import Method
from .plan import Clients, Plan
from .problem import Quadratic
from .result import dataset

BATCH_WORK = 3e8  # client steps x directions, about a third of a second
MOST_WORK = 1e17
ENGINES = ("reference", "steps", "collapsed")
Progress = Callable[[int], None]


def simulate(
    problem: Quadratic,
    drift: Drift,
    federation: Federation,
    method: Method,
    seeds: int | Iterable[int] = 10,
    engine: str = "steps",
    threads: int | None = None,
    clients: Clients | Sequence[Clients] | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Sample paths of ``seeds`` (a count, or the seeds themselves), with dimensions (seed, round).

    A sequence of tasks has the dimensions (seed, task, round), and besides ``loss_of_task``, the excess loss of every
    task in every round, and ``moved_sq``, the squared distance from where the task began.

    engine: ``"steps"`` draws every local step; ``"collapsed"`` folds the K linear steps into one Gaussian map,
        the same in law and far quicker; ``"reference"`` is plain NumPy that reads like the papers, on the same draws
        as ``"steps"``.
    threads: how many seeds run at once (default: all cores). The bits do not depend on it.
    clients: condition on these clients (one set a task) instead of drawing them by seed.
    progress: called with the number of seeds done since the last call.
    """
    choice("engine", engine, ENGINES)
    names = _seeds(seeds)
    given = [clients] if isinstance(clients, Clients) else clients
    experiment = Experiment(problem, drift, federation, method)
    tasks, points = federation.tasks, federation.rounds + 1
    kept = 8 + (1 + tasks if tasks > 1 else 0) + len(method.traces) + federation.slots * len(method.client_traces)
    size = 8 * tasks * (len(names) * points * kept + 4 * tasks * problem.dim)
    memory(size, f"{len(names)} seeds of {tasks * federation.rounds} rounds", "lower seeds, tasks or rounds")
    plans = Plan.of_tasks(experiment, None if given is None else list(given))
    plan = plans[0]
    data = 16 * federation.slots * federation.samples * max(problem.dim, compiled.LANES) * tasks
    memory(data, f"{federation.samples} samples a client", "lower samples, clients or tasks")
    effort = len(names) * tasks * compiled.work(plan, engine == "collapsed")
    if effort > MOST_WORK:
        raise InvalidInput(
            f"seeds x clients x local_steps x rounds x dim is about {effort:.1e}, years of work: lower one of them"
        )
    workers = integer("threads", os.cpu_count() or 1 if threads is None else threads, 1)
    if engine == "reference":
        memory(reference.state_size(plan), "the Hessian and all that is remembered", "lower dim, clients or rounds")
        runs, batch = [reference.runner(p) for p in plans], 1
        workers = 1
    else:
        runs = [compiled.runner(p, engine == "collapsed") for p in plans]
        # Small enough that progress moves and an interrupt is heard, large enough that starting a batch costs nothing.
        batch = max(1, min(64, -(-len(names) // workers), int(BATCH_WORK / compiled.work(plan, engine == "collapsed"))))
        memory(workers * compiled.state_size(plan), "the clients' state", "lower clients, dim or threads")
    out = np.empty((tasks, len(names), plan.rows, points))  # a task's part is whole, as the loops like it
    shifts = [np.zeros(problem.dim)]  # of the optimum, from each task to the next
    shifts += [a.experiment.problem.optimum_eigen - b.experiment.problem.optimum_eigen for a, b in pairwise(plans)]
    chunks = [slice(i, i + batch) for i in range(0, len(names), batch)]

    def work(chunk: slice) -> int:
        ends = np.tile(compiled.padded(plan.experiment.problem.start), (len(names[chunk]), 1))
        for k, run in enumerate(runs):
            ends[:, : problem.dim] += shifts[k]
            run(names[chunk], ends, out[k, chunk])
        return len(names[chunk])

    with np.errstate(over="ignore", invalid="ignore"):
        if workers == 1 or len(chunks) == 1:
            for chunk in chunks:
                done = work(chunk)
                if progress:
                    progress(done)
        else:
            with ThreadPoolExecutor(workers) as pool:
                for done in pool.map(work, chunks):
                    if progress:
                        progress(done)
    rows = np.moveaxis(np.moveaxis(out, 0, 1) if tasks > 1 else out[0], -2, 0)
    curves = dict(zip(("grad_norm_sq", "excess_loss", "distance_sq"), rows, strict=False))
    curves["grad_norm"] = np.sqrt(rows[0])
    if tasks > 1:
        curves["moved_sq"] = rows[3]
        curves["loss_of_task"] = np.moveaxis(rows[4 : 4 + tasks], 0, -1)
    at = plan.own_rows
    curves |= dict(zip(method.traces, rows[at : at + len(method.traces)], strict=True))
    each = rows[at + len(method.traces) :].reshape(-1, federation.slots, *rows.shape[1:])
    curves |= dict(zip(method.client_traces, np.moveaxis(each, 1, -1), strict=True))
    conditioned = "nothing" if clients is None else "given clients"
    return dataset(experiment, engine, curves, {"seed": names.astype(np.int64)}, conditioned_on=conditioned)


def _seeds(seeds: int | Iterable[int]) -> NDArray[np.uint64]:
    if isinstance(seeds, (int, np.integer)) and not isinstance(seeds, bool):
        count = integer("seeds", seeds, 1)
        memory(count * 8, f"{count} seeds", "lower seeds")
        return np.arange(count, dtype=np.uint64)
    try:
        listed = [integer("seeds", s, 0, 2**63 - 1) for s in seeds]  # type: ignore[union-attr]
    except TypeError:
        raise fail("seeds", seeds, "must be a whole number >= 1 or a list of whole numbers >= 0") from None
    if not listed:
        raise fail("seeds", listed, "must name at least one seed")
    return np.array(listed, dtype=np.uint64)
