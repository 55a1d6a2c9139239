"""Who takes part in a round, and with what data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .draws import generator


class Shard(NamedTuple):
    """A client's local data in one round. ``key`` names the data set: the same key, the same data (a client that
    draws one of its M subsets gives the subset's number), so that a memory knows what it has seen."""

    x: Tensor
    y: Tensor
    key: int = 0


class Stream(Protocol):
    """Who takes part when, and with what data. It must be a function of its arguments: a resumed run asks again.

    heads: for task-incremental learning, the classes of each task; ``None``: one head for all.
    """

    @property
    def tasks(self) -> int: ...

    @property
    def clients(self) -> int: ...

    @property
    def heads(self) -> Sequence[Sequence[int]] | None: ...

    def sampled(self, task: int, round: int) -> Sequence[int]: ...

    def data(self, task: int, round: int, client: int) -> Shard: ...


@dataclass(frozen=True)
class Fixed:
    """The simplest stream: every client keeps its data within a task.

    shards: (x, y) by task and client. take: how many clients a round samples; ``None``: all take part.
    """

    shards: Sequence[Sequence[tuple[Tensor, Tensor]]]
    take: int | None = None
    seed: int = 0
    heads: Sequence[Sequence[int]] | None = None

    @property
    def tasks(self) -> int:
        return len(self.shards)

    @property
    def clients(self) -> int:
        return len(self.shards[0])

    def sampled(self, task: int, round: int) -> list[int]:
        order = torch.randperm(self.clients, generator=generator(self.seed, "sampled", task, round))
        return sorted(order[: self.take or self.clients].tolist())

    def data(self, task: int, round: int, client: int) -> Shard:
        return Shard(*self.shards[task][client], key=task)
