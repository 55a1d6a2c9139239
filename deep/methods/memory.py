"""What replay methods remember: for every client, examples of each local data set that it has seen, by the set's key.

Replay takes all sets but the present one. So within a task the memory is that of earlier tasks, and under
the time-evolving protocol of `cfl`, where a client draws one of its M subsets, it is that of the other subsets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

import theory.weights as theory
from nqm.check import choice

from ..draws import generator
from ..local import Cohort, Examples
from .base import State

WEIGHTS = ("lemma-b.4", "thm-4.9", "uniform", "current")
Choose = Callable[[Cohort, int], Examples]


def remember(state: State, cohort: Cohort, choose: Choose, capacity: int | None = None) -> State:
    """Keep ``choose(cohort, i)`` of every client's current set; beyond ``capacity`` examples the oldest sets go."""
    memory: dict[int, dict[int, dict[str, Tensor]]] = dict(state.get("memory", {}))
    for i, (client, key) in enumerate(zip(cohort.clients, cohort.keys, strict=True)):
        kept = choose(cohort, i)
        mine = {k: v for k, v in memory.get(client, {}).items() if k != key}
        mine[key] = {"x": kept.x, "y": kept.y, "task": kept.task}
        while capacity is not None and len(mine) > 1 and sum(len(v["y"]) for v in mine.values()) > capacity:
            del mine[next(iter(mine))]
        memory[client] = mine
    return state | {"memory": memory}


def recall(state: State, client: int, besides: int) -> list[Examples]:
    """What a client holds of its other local data sets, oldest first."""
    held: dict[int, dict[str, Any]] = state.get("memory", {}).get(client, {})
    return [
        Examples(v["x"], v["y"], v["task"], v["x"].new_ones(len(v["x"]))) for key, v in held.items() if key != besides
    ]


def uniform(size: int) -> Choose:
    """`cfl`'s naive choice: ``size`` examples at random, the same ones whenever the data set comes back."""

    def choose(cohort: Cohort, i: int) -> Examples:
        shard = cohort.shards[i]
        return shard.take(torch.randperm(shard.size, generator=_named(cohort, i))[:size])

    return choose


def balanced(size: int) -> Choose:
    """``size`` examples with classes as even as the data allow: of a random order, round after round one a class."""

    def choose(cohort: Cohort, i: int) -> Examples:
        shard = cohort.shards[i]
        order = torch.randperm(shard.size, generator=_named(cohort, i))
        y = shard.y.cpu()[order]
        turn = torch.zeros(len(y), dtype=torch.int64)
        for c in y.unique():
            turn[y == c] = torch.arange(int((y == c).sum()))
        return shard.take(order[torch.argsort(turn, stable=True)[:size]])

    return choose


def _named(cohort: Cohort, i: int) -> torch.Generator:
    return generator(cohort.seed, "core set", cohort.clients[i], cohort.keys[i])


@lru_cache(maxsize=1024)
def history(name: str, rounds: int, D2: float, R2: float, alpha: float) -> tuple[float, ...]:
    """History weights p_1, ..., p_t of `cfl` for t = ``rounds``, from `theory.weights`."""
    choice("method.weights", name, WEIGHTS)
    if name == "current":
        return (0.0,) * (rounds - 1) + (1.0,)
    if name == "uniform":
        return (1.0 / rounds,) * rounds
    return tuple(theory.optimal(rounds, D2, R2, alpha if name == "thm-4.9" else 0.0).weights.tolist())
