"""What a run is judged by: numbers of the accuracy matrix A[i, j], test accuracy on task j after task i, and the
information loss of `cfl`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nqm.check import InvalidInput

from .curvature import gradient
from .local import Examples
from .train import Run, Stream


def _square(matrix: ArrayLike) -> NDArray[np.float64]:
    A = np.asarray(matrix, dtype=float)
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise InvalidInput(f"accuracy has shape {A.shape}: these numbers need one test set a task")
    return A


def acc(matrix: ArrayLike) -> float:
    """ACC of `special` (10) and Acc of `cflag`: the average over tasks at the end."""
    return float(_square(matrix)[-1].mean())


def drops(matrix: ArrayLike) -> NDArray[np.float64]:
    """A[K, i] - A[i, i] for every task but the last."""
    A = _square(matrix)
    return A[-1, :-1] - np.diag(A)[:-1]


def bwt(matrix: ArrayLike) -> float:
    """Backward transfer, `special` (10); NaN for a single task."""
    d = drops(matrix)
    return float(d.mean()) if d.size else float("nan")


def forgetting(matrix: ArrayLike) -> float:
    """Fgt of `cflag` (Section 7): the average of a[i, i] - a[S, i], which is -BWT."""
    return -bwt(matrix)


def worst_drop(matrix: ArrayLike) -> float:
    """min_i A[K, i] - A[i, i], Table 8 of `special`; NaN for a single task."""
    d = drops(matrix)
    return float(d.min()) if d.size else float("nan")


def information_loss(run: Run, stream: Stream) -> float:
    r"""Footnote 6 of `cfl`: ||grad f_{tau,i}(w) - grad f~_{tau,i}(w)||, averaged over past rounds and their clients.

    f~ is the loss on what a client's memory holds of the data set of round tau; a set that it no longer holds is
    remembered by a gradient of zero. Needs a method that keeps examples (or samples) of each local data set.
    """
    if "memory" not in run.state:
        raise InvalidInput(
            f"method.name = {run.method.name!r}: keeps no examples, so that its information loss is unknown"
        )
    memory, known, norms = run.state["memory"], {}, []
    rounds = run.training.rounds
    for time in range(run.task * rounds + run.round):
        task, t = divmod(time, rounds)
        for client in stream.sampled(task, t + 1):
            x, y, key = stream.data(task, t + 1, client)
            if (client, key) not in known:
                real = Examples.of(x.to(run.w), y.to(run.w.device), task)
                loss = gradient(run.net, run.w, real)
                kept = memory.get(client, {}).get(key)
                if kept is not None and len(kept["y"]):
                    held = Examples(kept["x"], kept["y"], kept["task"], kept["x"].new_ones(len(kept["y"])))
                    loss = loss - gradient(run.net, run.w, held)
                known[client, key] = float(loss.norm())
            norms.append(known[client, key])
    return float(np.mean(norms))
