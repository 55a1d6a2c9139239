"""How an experiment hands out its data: each protocol of a paper as a declaration that can become a stream.

Everything is drawn by `deep.partition`, named by the seed; a round asked for twice gives the same data twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from .. import partition
from ..data import Images
from ..draws import numpy_generator
from ..partition import Index
from ..stream import Shard

Heads = Sequence[Sequence[int]] | None


@dataclass(frozen=True)
class Indexed:
    """A stream over sets in memory, one a task. what: (task, round, client) -> samples and the key of the data set."""

    images: Sequence[Images]
    clients: int
    who: Callable[[int, int], list[int]]
    what: Callable[[int, int, int], tuple[Index, int]]
    heads: Heads = None

    @property
    def tasks(self) -> int:
        return len(self.images)

    def sampled(self, task: int, round: int) -> list[int]:
        return self.who(task, round)

    def data(self, task: int, round: int, client: int) -> Shard:
        index, key = self.what(task, round, client)
        images = self.images[task]
        return Shard(images.x[index], images.y[index], key)


class Partition(Protocol):
    """What a setting says about its clients."""

    def stream(self, images: Sequence[Images], rounds: int, seed: int, heads: Heads = None) -> Indexed: ...


def _some(clients: int, sampled: int | None, seed: int) -> Callable[[int, int], list[int]]:
    """``sampled`` of the clients in every round, without replacement."""

    def who(task: int, round: int) -> list[int]:
        if sampled is None or sampled >= clients:
            return list(range(clients))
        drawn = numpy_generator(seed, "participants", task, round).choice(clients, sampled, replace=False)
        return sorted(int(c) for c in drawn)

    return who


@dataclass(frozen=True)
class Evolving:
    """Every client has disjoint subsets and trains on one of them, drawn anew each round (`cfl`, Section 5.2)."""

    alpha: float
    clients: int = 7
    subsets: int = 30

    def parts(self, images: Images, seed: int) -> list[list[Index]]:
        return partition.evolving(images.y, self.alpha, clients=self.clients, subsets=self.subsets, seed=seed)

    def stream(self, images: Sequence[Images], rounds: int, seed: int, heads: Heads = None) -> Indexed:
        parts = [self.parts(task, seed) for task in images]
        drawn = partition.drawn_subsets(rounds * len(images), self.clients, self.subsets, seed=seed)

        def what(task: int, round: int, client: int) -> tuple[Index, int]:
            subset = int(drawn[task * rounds + round - 1, client])
            return parts[task][client][subset], task * self.subsets + subset

        return Indexed(images, self.clients, _some(self.clients, None, seed), what, heads)


@dataclass(frozen=True)
class Windows:
    """A window that moves over a client's subsets in sequence, neighbours sharing ``overlap`` (`cfl`, Figure 4)."""

    alpha: float
    overlap: float
    clients: int = 7
    subsets: int = 30

    def stream(self, images: Sequence[Images], rounds: int, seed: int, heads: Heads = None) -> Indexed:
        (only,) = images
        parts = Evolving(self.alpha, self.clients, self.subsets).parts(only, seed)
        windows = [partition.moving_window(own, rounds, self.overlap) for own in parts]
        # A window that comes back is the same data set: its key is the round in which it was first seen.
        first = [[next(k for k, v in enumerate(own) if np.array_equal(v, w)) for w in own] for own in windows]

        def what(task: int, round: int, client: int) -> tuple[Index, int]:
            return windows[client][round - 1], first[client][round - 1]

        return Indexed(images, self.clients, _some(self.clients, None, seed), what, heads)


@dataclass(frozen=True)
class Stateless:
    """New clients every round, with data drawn for them from the whole set (`cfl`, Section 5.3.4). The size of their
    data is not said: that of a subset of `Evolving`."""

    alpha: float
    clients: int = 7
    subsets: int = 30

    def stream(self, images: Sequence[Images], rounds: int, seed: int, heads: Heads = None) -> Indexed:
        (only,) = images
        size = max(1, len(only) // (self.clients * self.subsets))

        @lru_cache(maxsize=2)
        def parts(round: int) -> list[Index]:
            return partition.stateless(only.y, self.alpha, clients=self.clients, size=size, round=round, seed=seed)

        def who(task: int, round: int) -> list[int]:
            return [(round - 1) * self.clients + k for k in range(self.clients)]

        def what(task: int, round: int, client: int) -> tuple[Index, int]:
            return parts(round)[client % self.clients], round

        return Indexed(images, self.clients * rounds, who, what, heads)


@dataclass(frozen=True)
class Dirichlet:
    """Clients that keep their data within a task; ``sampled`` of them take part in a round."""

    alpha: float
    clients: int
    sampled: int | None = None

    def parts(self, images: Sequence[Images], seed: int) -> list[list[Index]]:
        """[task][client], each task by its own draw."""
        return [
            partition.dirichlet(task.y, self.alpha, clients=self.clients, seed=_derived(seed, "task", k))
            for k, task in enumerate(images)
        ]

    def stream(self, images: Sequence[Images], rounds: int, seed: int, heads: Heads = None) -> Indexed:
        parts = self.parts(images, seed)
        who = _some(self.clients, self.sampled, seed)
        return Indexed(images, self.clients, who, lambda task, round, client: (parts[task][client], task), heads)


def _derived(seed: int, purpose: str, number: int) -> int:
    """A seed of its own for every task or round."""
    return int(numpy_generator(seed, purpose, number).integers(2**31))


@dataclass(frozen=True)
class Users:
    """One client a natural user, such as the writers of FEMNIST."""

    sampled: int

    def stream(self, images: Sequence[Images], rounds: int, seed: int, heads: Heads = None) -> Indexed:
        (only,) = images
        assert only.groups is not None
        parts = partition.users(only.groups)
        who = _some(len(parts), self.sampled, seed)
        return Indexed(images, len(parts), who, lambda task, round, client: (parts[client], task), heads)


EVEN = 1e5  # a Dirichlet concentration that stands for iid, as in `cflag`


@dataclass(frozen=True)
class Mixed:
    """The data of a round's clients, pooled and dealt out to them anew (`fedeve`, Appendix B.2).

    Period drift is that of the pool: ``alpha`` of the partition. Client drift is that of the deal: ``within``.
    """

    alpha: float
    within: float
    clients: int
    sampled: int

    def stream(self, images: Sequence[Images], rounds: int, seed: int, heads: Heads = None) -> Indexed:
        (only,) = images
        (parts,) = Dirichlet(self.alpha, self.clients).parts(images, seed)
        who = _some(self.clients, self.sampled, seed)

        @lru_cache(maxsize=2)
        def deal(round: int) -> dict[int, Index]:
            clients = who(0, round)
            pool = np.concatenate([parts[c] for c in clients])
            dealt = partition.dirichlet(
                only.y[pool], self.within, clients=len(clients), seed=_derived(seed, "deal", round)
            )
            return {c: pool[part] for c, part in zip(clients, dealt, strict=True)}

        return Indexed(images, self.clients, who, lambda task, round, client: (deal(round)[client], round), heads)
