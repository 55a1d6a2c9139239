"""Federated training of a network: rounds within tasks, evaluation, checkpoints.

An experiment gives a module, a stream of local data sets, a method and the settings:

    from deep.train import Training, train
    from deep.methods import METHODS, FedAvg

    run = train(
        module,                                  # any torch.nn.Module; its parameters are where the run begins
        stream,                                  # see `deep.stream`: who takes part, and with what data
        FedAvg(lr=0.01),                         # or METHODS["fedprox"](lr=0.01, prox=0.1)
        Training(rounds=500, epochs=1, batch=32, seed=0),
        tests=[(x_test, y_test)],                # one test set a task, or one for all
    )
    run.accuracy                                 # (tasks, tests): after each task, on each test set
    run.curve["accuracy"]                        # (points, tests), with run.curve["task"], ["round"] and ["loss"]
    run.diagnostics                              # {"gain": [...], ...}: a method's own numbers, one a round
    run.w, run.net, run.state                    # the final vector, the network, the method's state
    run.net.parts(run.w)                         # the parameters by name, as deep.measure takes them
    run.dataset()                                # all of it as an xarray.Dataset, for nqm.result.save

Tasks count from 0, rounds from 1 within each task; round 0 is the start. The order of everything random is keyed by
(seed, purpose, task, round, client): a run that was killed goes on to the same bits, and methods share minibatches.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from nqm.check import InvalidInput
from nqm.result import package_version

from . import checkpoint, local
from .local import Cohort, Examples
from .methods.base import Method, State
from .network import Net, averaged, classification, pick_device
from .settings import PRECISIONS, Training, at_once
from .stream import Fixed, Shard, Stream

__all__ = ["Diverged", "Fixed", "Run", "Shard", "Stream", "Training", "evaluate", "train"]


class Diverged(InvalidInput):
    """A run left the finite numbers; the message says when and where. The cure is a smaller rate: an input."""


@dataclass
class Run:
    """A run in progress or done."""

    net: Net
    w: Tensor
    state: State
    method: Method
    training: Training
    identity: str
    task: int = 0
    round: int = 0
    accuracy: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    points: list[dict[str, Any]] = field(default_factory=list)
    diagnostics: dict[str, list[float]] = field(default_factory=dict)

    @property
    def curve(self) -> dict[str, np.ndarray]:
        """Every evaluation: task, round (the task's own), accuracy and loss of each test set."""
        return {name: np.array([p[name] for p in self.points]) for name in ("task", "round", "accuracy", "loss")}

    def dataset(self) -> xr.Dataset:
        curve = self.curve
        points = {
            "task_at": ("point", curve["task"]),
            "round_at": ("point", curve["round"]),
            "curve_accuracy": (("point", "test"), curve["accuracy"]),
            "curve_loss": (("point", "test"), curve["loss"]),
        }
        own = {name: ("step", np.array(values)) for name, values in self.diagnostics.items()}
        attrs = {
            "method": json.dumps(self.method.config(), default=str),
            "training": json.dumps(dataclasses.asdict(self.training), default=str),
            "version": package_version(),
        }
        return xr.Dataset({"accuracy": (("task", "test"), self.accuracy), **points, **own}, attrs=attrs)


def train(
    module: nn.Module,
    stream: Stream,
    method: Method,
    training: Training,
    tests: Sequence[tuple[Tensor, Tensor]] = (),
    losses: Callable[[Tensor, Tensor], Tensor] = classification,
    after_round: Callable[[Run, Cohort], None] | None = None,
) -> Run:
    """Train ``module`` on ``stream``; the module itself stays as it is. See the top of this file.

    losses: (outputs, y) -> one loss an example; cross-entropy unless given.
    after_round: called after each round with the run and its clients, for measurements.
    """
    with _determinism(training):
        device, dtype = pick_device(training.device), PRECISIONS[training.precision]
        net = _network(module, stream, training, losses).to(device)
        tests = [(x.to(device, dtype), y.to(device)) for x, y in tests]
        w = net.start().to(device, dtype)
        identity = training.identity(method, w, stream.tasks, stream.clients)
        run = Run(net, w, {}, method, training, identity, accuracy=np.full((stream.tasks, len(tests)), np.nan))
        if not _resume(run, device):
            run.state = method.begin(net, w)
            _evaluate(run, tests)
        for task in range(run.task, stream.tasks):
            if run.round == 0:
                run.state = method.begin_task(run.state, run.w, task)
            for t in range(run.round + 1, training.rounds + 1):
                cohort = _round(run, stream, task, t)
                last = t == training.rounds
                if last:
                    run.state = method.end_task(run.state, run.w, cohort)
                run.task, run.round = (task + 1, 0) if last else (task, t)
                if last or (training.evaluate_every and t % training.evaluate_every == 0):
                    _evaluate(run, tests, task, t)
                    if last:
                        run.accuracy[task] = run.points[-1]["accuracy"]
                if after_round is not None:
                    after_round(run, cohort)
                if training.checkpoint is not None and (last or t % training.checkpoint_every == 0):
                    _save(run)
        return run


def _network(module: nn.Module, stream: Stream, training: Training, losses: Callable[[Tensor, Tensor], Tensor]) -> Net:
    heads = None
    if stream.heads is not None:
        width = 1 + max(c for classes in stream.heads for c in classes)
        heads = torch.zeros(len(stream.heads), width, dtype=torch.bool)
        for task, classes in enumerate(stream.heads):
            heads[task, list(classes)] = True
    module = copy.deepcopy(module).to(PRECISIONS[training.precision])
    return Net(module, losses, heads, training.precision == "bfloat16", training.channels_last)


def _round(run: Run, stream: Stream, task: int, t: int) -> Cohort:
    """One round: data, local steps of all clients, the server's step."""
    training, net, w = run.training, run.net, run.w
    method = run.method
    if training.lr_decay != 1.0:
        method = method.with_lr(method.lr * training.lr_decay ** (t - 1))
    clients = [int(c) for c in stream.sampled(task, t)]
    given = [stream.data(task, t, c) for c in clients]
    shards = [Examples.of(s.x.to(w.device, w.dtype), s.y.to(w.device), task) for s in given]
    for client, shard in zip(clients, shards, strict=True):
        if shard.size == 0:
            raise InvalidInput(f"task {task}, round {t}, client {client}: has no data")
    sizes = torch.tensor([float(s.size) for s in shards], dtype=torch.float64, device="cpu")
    share = sizes / sizes.sum() if training.weighting == "size" else torch.full_like(sizes, 1 / len(sizes))
    together = at_once(net, w.device, len(clients), training)
    cohort = Cohort(
        net=net,
        seed=training.seed,
        task=task,
        round=t,
        time=task * training.rounds + t,
        clients=clients,
        keys=[s.key for s in given],
        shards=shards,
        share=share.to(w.device, w.dtype),
        population=stream.clients,
        batch=training.batch,
        epochs=training.epochs,
        local_steps=training.local_steps,
        vectorised=together > 0,
        chunk=together or len(clients),
        compiled=training.compile,
    )
    everyone = list(zip(clients, shards, cohort.keys, strict=True))
    cohort.data = [method.data(run.state, c, s, key) for c, s, key in everyone]
    cohort.memory = [method.memory(run.state, c, key) for c, _, key in everyone]
    with _memory_advice(cohort), torch.no_grad():
        start = method.start(w, run.state)
        own, shared = method.prepare(cohort, start, run.state)
        done = local.train(method, cohort, start, own, shared)
        _check_finite(done.ends, cohort)
        if method.refreshes_norm and net.has_batch_norm:
            fresh = [net.refreshed(end, s.x) for end, s in zip(done.ends, shards, strict=True)]
            done = done._replace(buffers=averaged(fresh, cohort.share))
        update, state = method.collect(cohort, start, done.ends, done.own, run.state)
        run.w, run.state = method.server_step(w, update, state)
        net.buffers = done.buffers
    if not torch.isfinite(run.w).all():
        raise Diverged(
            f"task {task}, round {t}, server: the averaged model is not finite; lower method.lr or server_lr"
        )
    for name, value in method.diagnostics(run.state).items():
        run.diagnostics.setdefault(name, []).append(float(value))
    return cohort


def _check_finite(ends: Tensor, cohort: Cohort) -> None:
    bad = ~torch.isfinite(ends).all(1)
    if bad.any():
        who = [c for c, b in zip(cohort.clients, bad.tolist(), strict=True) if b]
        named = f"client {who[0]}" if len(who) == 1 else "clients " + ", ".join(map(str, who[:5]))
        more = f" and {len(who) - 5} more" if len(who) > 5 else ""
        raise Diverged(
            f"task {cohort.task}, round {cohort.round}, {named}{more}: weights are not finite after local training; "
            "lower method.lr or look at this client's data"
        )


@contextmanager
def _memory_advice(cohort: Cohort) -> Iterator[None]:
    """Out of memory on a GPU in one line that says what to lower."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as problem:
        batch = cohort.batch or max(d.size for d in cohort.data)
        lower = f"training.batch (now {batch})"
        if cohort.vectorised and cohort.chunk > 1:
            lower = f"training.client_chunk (now {cohort.chunk} clients at once) or " + lower
        first = str(problem).splitlines()[0] if str(problem) else ""
        raise InvalidInput(
            f"out of GPU memory in task {cohort.task}, round {cohort.round}: lower {lower}. {first}"
        ) from None


@torch.no_grad()
def _evaluate(run: Run, tests: Sequence[tuple[Tensor, Tensor]], task: int = 0, t: int = 0) -> None:
    found = [evaluate(run.net, run.w, x, y, task=j) for j, (x, y) in enumerate(tests)]
    point = {"task": task, "round": t, "accuracy": [a for a, _ in found], "loss": [l for _, l in found]}
    run.points.append(point)


@torch.no_grad()
def evaluate(net: Net, w: Tensor, x: Tensor, y: Tensor, task: int = 0, batch: int = 1024) -> tuple[float, float]:
    """Accuracy (NaN where y is no class) and mean loss on a test set, with the head of ``task`` if there are heads."""
    right = torch.zeros((), dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    with net.mode(training=False):
        for xs, ys in zip(x.split(batch), y.split(batch), strict=True):
            outputs = net.outputs(w, xs, torch.full((len(xs),), task, device=x.device))
            total += net.losses(outputs, ys).sum().double().cpu()
            right += (outputs.argmax(1) == ys).sum().cpu() if ys.dtype == torch.int64 else float("nan")
    return float(right / len(y)), float(total / len(y))


def _save(run: Run) -> None:
    assert run.training.checkpoint is not None
    checkpoint.save(
        run.training.checkpoint,
        {
            "identity": run.identity,
            "task": run.task,
            "round": run.round,
            "w": run.w,
            "buffers": run.net.buffers,
            "state": run.state,
            "accuracy": run.accuracy.tolist(),
            "points": run.points,
            "diagnostics": run.diagnostics,
        },
    )


def _resume(run: Run, device: torch.device) -> bool:
    if run.training.checkpoint is None:
        return False
    found = checkpoint.load(run.training.checkpoint, device, run.identity)
    if found is None:
        return False
    run.task, run.round, run.w, run.state = found["task"], found["round"], found["w"], found["state"]
    run.net.buffers, run.points, run.diagnostics = found["buffers"], found["points"], found["diagnostics"]
    run.accuracy = np.array(found["accuracy"]).reshape(run.accuracy.shape)
    return True


@contextmanager
def _determinism(training: Training) -> Iterator[None]:
    """torch's deterministic mode for the time of a run, if it is asked for."""
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    if training.deterministic:
        # CUDA's matrix products are deterministic only with this.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]
