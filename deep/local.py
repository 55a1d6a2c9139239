"""Local training of all clients of a round: at once by `torch.func.vmap`, or one after the other.

Both ways see the same minibatches and run the same `local_step`; the loop goes through plain autograd and is the
readable twin that the tests compare with. It is also the only way for BatchNorm, which mixes the examples of a batch
and updates its statistics in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.func import grad, vmap

from .draws import generator
from .network import Batch, Net, averaged

if TYPE_CHECKING:
    from .methods.base import Method

Carried = dict[str, Tensor]
"""Tensors by name: per client, along the first dimension, or shared by all."""


class Examples(NamedTuple):
    """Labelled examples. ``weight`` multiplies an example's loss (all ones: the plain average)."""

    x: Tensor
    y: Tensor
    task: Tensor
    weight: Tensor

    @classmethod
    def of(cls, x: Tensor, y: Tensor, task: int) -> Examples:
        return cls(x, y, torch.full((len(y),), task, device=y.device), x.new_ones(len(x)))

    @property
    def size(self) -> int:
        return len(self.x)

    def take(self, index: Tensor) -> Examples:
        return Examples(*(part[index.to(part.device)] for part in self))

    def plus(self, *others: Examples) -> Examples:
        return Examples(*(torch.cat(parts) for parts in zip(self, *others, strict=True)))


class Here(NamedTuple):
    """What a local step may look at besides w: what the client carries, what the server sent, the step's number.

    A method that carries something from step to step puts it back into ``own``.
    """

    own: Carried
    shared: Carried
    step: int


@dataclass
class Gradient:
    """gradient(w): the objective's gradient on this step's minibatch; ``memory(w)``: on the step's remembered one."""

    net: Net
    objective: Callable[[Tensor, Batch], Tensor]
    batch: Batch
    remembered: Batch
    plain: bool

    def __call__(self, w: Tensor) -> Tensor:
        return self._of(w, self.batch)

    def memory(self, w: Tensor) -> Tensor:
        return self._of(w, self.remembered)

    def _of(self, w: Tensor, batch: Batch) -> Tensor:
        if not self.plain:
            return grad(self.objective)(w, batch)
        if len(batch["x"]) == 0:  # weighs nothing, and BatchNorm can't take it
            return torch.zeros_like(w)
        with torch.enable_grad():
            at = w.detach().requires_grad_()
            return torch.autograd.grad(self.objective(at, batch), at)[0]


@dataclass
class Cohort:
    """The clients of one round, with their data.

    shards: their current local data; ``data``: what they train on (a replay method adds to it); ``memory``: what a
    method draws a second minibatch from. share: the weight p_i of each client in an average.
    """

    net: Net
    seed: int
    task: int
    round: int
    time: int
    clients: list[int]
    keys: list[int]
    shards: list[Examples]
    share: Tensor
    population: int
    batch: int | None
    epochs: int
    local_steps: int | None
    vectorised: bool
    chunk: int
    compiled: bool = False
    data: list[Examples] = field(default_factory=list)
    memory: list[Examples | None] = field(default_factory=list)

    def draw(self, purpose: str, client: int) -> torch.Generator:
        """The generator for a purpose of a client in this round."""
        return generator(self.seed, purpose, self.task, self.round, client)

    def per_epoch(self, i: int) -> int:
        """Minibatches in one pass over the i-th client's data."""
        n = self.data[i].size
        return -(-n // min(self.batch or n, n))

    def steps(self, i: int) -> int:
        """Local steps of the i-th client."""
        return self.local_steps or self.epochs * self.per_epoch(i)

    def steps_of(self, i: int) -> list[Tensor]:
        """The indices of every local minibatch of the i-th client, epoch after epoch in a fresh order."""
        n, source = self.data[i].size, self.draw("batches", self.clients[i])
        found: list[Tensor] = []
        while len(found) < self.steps(i):
            found += torch.randperm(n, generator=source).split(self.batch or n)
        return found[: self.steps(i)]

    def cycle_of(self, i: int, once: bool = False) -> list[Tensor]:
        """One fixed partition of the i-th client's data into minibatches, run through again and again. Clients with
        fewer of them get empty ones, so that all take the same number of steps and slot j is step j mod J for all."""
        n, slots = self.data[i].size, max(map(self.per_epoch, range(len(self.clients))))
        order = torch.randperm(n, generator=self.draw("batches", self.clients[i]))
        parts = list(order.split(self.batch or n))
        parts += [order[:0]] * (slots - len(parts))
        return [parts[k % slots] for k in range(slots if once else self.local_steps or self.epochs * slots)]

    def recall_of(self, i: int, steps: int, size: int) -> list[Tensor]:
        """The indices of ``steps`` minibatches from the i-th client's memory, each without replacement."""
        held, source = self.memory[i], self.draw("memory", self.clients[i])
        n = held.size if held is not None else 0
        return [torch.randperm(n, generator=source)[:size] for _ in range(steps)]

    def chunks(self) -> Iterator[slice]:
        for begin in range(0, len(self.clients), self.chunk):
            yield slice(begin, min(begin + self.chunk, len(self.clients)))

    def gradients(self, w: Tensor, examples: list[Examples] | None = None) -> Tensor:
        """Every client's full gradient at the common point w, on its data or on the given examples: (clients, d)."""
        found = list(self.slots(w, examples))
        return torch.stack(found).sum(0) if len(found) > 1 else found[0]

    def slots(
        self, w: Tensor, examples: list[Examples] | None = None, plans: list[list[Tensor]] | None = None
    ) -> Iterator[Tensor]:
        """The full gradients in parts, slot by slot: of every client's j-th minibatch, weighted by its share n_j/n."""
        examples = self.data if examples is None else examples
        if plans is None:
            plans = [list(torch.arange(e.size).split(self.batch or max(e.size, 1))) for e in examples]
        sizes = torch.tensor([max(sum(len(p) for p in plan), 1) for plan in plans], dtype=torch.float64)
        for j in range(max(len(p) for p in plans)):
            parts = [p[j] if j < len(p) else p[0][:0] if p else torch.arange(0) for p in plans]
            rows = []
            for members in self.chunks():
                batches = _gather(examples[members], parts[members], sizes[members])
                rows.append(self._each(w, batches))
            yield torch.cat(rows)

    def _each(self, w: Tensor, batches: list[Batch]) -> Tensor:
        if self.vectorised:
            return vmap(grad(self.net.loss), in_dims=(None, 0))(w, _stack(batches))
        net = self.net.with_buffers(self.net.buffers)  # this pass is no training: the statistics stay
        return torch.stack([Gradient(net, net.loss, batch, batch, plain=True)(w) for batch in batches])


def _gather(examples: list[Examples], index: list[Tensor], counts: Tensor | None = None) -> list[Batch]:
    """A minibatch of every client; its weights are 1/size of the minibatch, or 1/count where counts are given."""
    found = []
    for i, (e, chosen) in enumerate(zip(examples, index, strict=True)):
        x, y, task, weight = e.take(chosen)
        count = max(len(chosen), 1) if counts is None else float(counts[i])
        found.append({"x": x, "y": y, "task": task, "weight": weight / count})
    return found


def _stack(batches: list[Batch]) -> Batch:
    """Minibatches of unequal sizes as one tensor a field: padding repeats zeros and weighs nothing."""
    width = max(max(len(b["x"]) for b in batches), 1)
    found: Batch = {}
    for name in batches[0]:
        first = batches[0][name]
        if all(len(b[name]) == width for b in batches):
            found[name] = torch.stack([b[name] for b in batches])
            continue
        room = first.new_zeros((len(batches), width, *first.shape[1:]))
        for i, b in enumerate(batches):
            room[i, : len(b[name])] = b[name]
        found[name] = room
    return found


class Local(NamedTuple):
    """What local training leaves: the clients' last points, what they carry, and their running statistics averaged."""

    ends: Tensor
    own: Carried
    buffers: dict[str, Tensor]


def train(method: Method, cohort: Cohort, start: Tensor, own: Carried, shared: Carried) -> Local:
    """K local steps of every client from ``start``."""
    plan = cohort.steps_of if method.reshuffle else cohort.cycle_of
    plans = [plan(i) for i in range(len(cohort.clients))]
    longest = max(len(p) for p in plans)
    recalls = [
        cohort.recall_of(i, longest, method.replay_batch) if method.replay_batch else [] for i in range(len(plans))
    ]
    run = _at_once if cohort.vectorised else _one_by_one
    parts = []
    with cohort.net.mode(training=True), torch.no_grad():
        for members in cohort.chunks():
            mine = {name: value[members] for name, value in own.items()}
            parts.append(run(method, cohort, start, mine, shared, members, plans[members], recalls[members]))
    if len(parts) == 1:
        return parts[0]
    ends = torch.cat([p.ends for p in parts])
    carried = {name: torch.cat([p.own[name] for p in parts]) for name in parts[0].own}
    weights = torch.stack([cohort.share[members].sum() for members in cohort.chunks()])
    return Local(ends, carried, averaged([p.buffers for p in parts], weights / weights.sum()))


def _step(
    method: Method, net: Net, start: Tensor, shared: Carried, k: int, plain: bool
) -> Callable[[Tensor, Carried, Batch, Batch, Tensor | None], tuple[Tensor, Carried]]:
    """One local step of one client as a pure function of what differs between clients."""

    def step(w: Tensor, own: Carried, batch: Batch, remembered: Batch, active: Tensor | None) -> tuple[Tensor, Carried]:
        here = Here(dict(own), shared, k)
        gradient = Gradient(net, lambda v, b: method.objective(net, v, b, here), batch, remembered, plain)
        moved = method.local_step(w, start, gradient, here)
        return moved if active is None else torch.where(active, moved, w), here.own

    return step


def _at_once(
    method: Method,
    cohort: Cohort,
    start: Tensor,
    own: Carried,
    shared: Carried,
    members: slice,
    plans: list[list[Tensor]],
    recalls: list[list[Tensor]],
) -> Local:
    data, memory = cohort.data[members], _present(cohort.memory[members], cohort.data[members])
    w = start.expand(len(data), -1).clone()
    for k in range(max(len(p) for p in plans)):
        chosen = [p[k] if k < len(p) else p[0][:0] for p in plans]
        batch = _stack(_gather(data, chosen))
        remembered = _stack(_gather(memory, [r[k] for r in recalls])) if recalls[0] else {}
        going = [k < len(p) for p in plans]
        active = None if all(going) else torch.tensor(going, device=w.device)
        mapped = vmap(
            _step(method, cohort.net, start, shared, k, plain=False),
            in_dims=(0, 0, 0, 0, 0 if active is not None else None),
        )
        if cohort.compiled:
            mapped = torch.compile(mapped)
        w, own = mapped(w, own, batch, remembered, active)
    return Local(w, own, cohort.net.buffers)


def _one_by_one(
    method: Method,
    cohort: Cohort,
    start: Tensor,
    own: Carried,
    shared: Carried,
    members: slice,
    plans: list[list[Tensor]],
    recalls: list[list[Tensor]],
) -> Local:
    data, memory = cohort.data[members], _present(cohort.memory[members], cohort.data[members])
    ends, carried, buffers = [], [], []
    for i, plan in enumerate(plans):
        net = cohort.net.with_buffers(cohort.net.buffers)
        w, mine = start.clone(), {name: value[i] for name, value in own.items()}
        for k, chosen in enumerate(plan):
            (batch,) = _gather(data[i : i + 1], [chosen])
            (remembered,) = _gather(memory[i : i + 1], [recalls[i][k]]) if recalls[i] else ({},)
            w, mine = _step(method, net, start, shared, k, plain=True)(w, mine, batch, remembered, None)
        ends.append(w)
        carried.append(mine)
        buffers.append(net.buffers)
    stacked = {name: torch.stack([c[name] for c in carried]) for name in carried[0]}
    share = cohort.share[members]
    return Local(torch.stack(ends), stacked, averaged(buffers, share / share.sum()))


def _present(memory: list[Examples | None], data: list[Examples]) -> list[Examples]:
    """Nothing remembered is an empty set of examples."""
    return [m if m is not None else d.take(torch.arange(0)) for m, d in zip(memory, data, strict=True)]
