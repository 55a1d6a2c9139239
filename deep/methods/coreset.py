"""CFL-Core-Set and CFL-Generative (`cfl`, Section 5.2 and Appendix C.1.2): clients train on their current data together
with examples kept of, or samples made from, each earlier local data set.

The paper joins both sets and trains on the union: ``weights = "joined"``. A name of `theory.weights` instead gives
the sets their weights p_tau of Eq. (3), by weighing examples. Where a subset comes back, its own core set is left out
and taken anew.

Generative: the paper's energy E measures the distance to the real local distribution without saying how. We take
E(x) = 1/2 ||phi(x) - mu_y||^2, with phi and mu_y as in Algorithm 3 and labels drawn from the local data; samples begin
uniform in [0, 1], walk with the client's trained model, and are clipped to [0, 1]. Batch statistics are refreshed on
real data after the local steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad

from nqm.check import choice, integer

from ..local import Carried, Cohort, Examples
from . import memory
from .base import State
from .fedavg import FedProx


@dataclass(frozen=True)
class CoreSet(FedProx):
    """size: examples kept of each local data set. choose: ``"naive"`` or ``"icarl"``.

    weights: ``"joined"``, or a name of `theory.weights`, which D2, R2 and alpha (the correlation) then belong to.
    """

    prox: float = 0.0
    size: int = 100
    choose: str = "naive"
    weights: str = "joined"
    D2: float = 1.0
    R2: float = 1.0
    alpha: float = 0.0
    name: ClassVar[str] = "cfl-core-set"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "size", integer("method.size", self.size, 0))
        choice("method.choose", self.choose, ("naive", "icarl"))
        choice("method.weights", self.weights, ("joined", *memory.WEIGHTS))

    def data(self, state: State, client: int, shard: Examples, key: int) -> Examples:
        sets = [e for e in memory.recall(state, client, besides=key) if e.size]
        if not sets:
            return shard
        everything = [*sets, shard]
        if self.weights != "joined":
            p = memory.history(self.weights, len(everything), self.D2, self.R2, self.alpha)
            n = sum(e.size for e in everything)
            everything = [e._replace(weight=e.weight * (q * n / e.size)) for e, q in zip(everything, p, strict=True)]
        return everything[-1].plus(*everything[:-1])

    def collect(self, cohort: Cohort, start: Tensor, ends: Tensor, own: Carried, state: State) -> tuple[Tensor, State]:
        update, state = super().collect(cohort, start, ends, own, state)

        def herd(cohort: Cohort, i: int) -> Examples:
            return herding(cohort, i, ends[i], self.size)

        choose = memory.uniform(self.size) if self.choose == "naive" else herd
        return update, memory.remember(state, cohort, choose)


def herding(cohort: Cohort, i: int, w: Tensor, size: int) -> Examples:
    """Algorithm 3: exemplars whose running mean of features stays nearest to the class mean; size/classes a class."""
    shard, net = cohort.shards[i], cohort.net
    classes = shard.y.unique()
    chosen: list[int] = []
    with net.mode(training=False):
        phi = torch.cat([net.features(w, x) for x in shard.x.split(256)])
    for place, c in enumerate(classes):
        m = size // len(classes) + (place < size % len(classes))
        members = (shard.y == c).nonzero().flatten()
        mu, total = phi[members].mean(0), torch.zeros_like(phi[0])
        free = torch.ones(len(members), dtype=torch.bool, device=phi.device)
        for k in range(1, min(m, len(members)) + 1):
            distance = (mu - (phi[members] + total) / k).norm(dim=1)
            best = int(torch.where(free, distance, torch.inf).argmin())  # line 3, each exemplar once
            free[best] = False
            total = total + phi[members[best]]
            chosen.append(int(members[best]))
    return shard.take(torch.tensor(chosen, dtype=torch.int64))


@dataclass(frozen=True)
class Generative(CoreSet):
    """size: samples made of each local data set; ``walk`` Langevin steps of size ``step`` and noise ``heat``."""

    walk: int = 50
    step: float = 0.1
    heat: float = 0.01
    name: ClassVar[str] = "cfl-generative"
    refreshes_norm: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "walk", integer("method.walk", self.walk, 0))
        self.check("step", 0.0)
        self.check("heat", 0.0)

    def collect(self, cohort: Cohort, start: Tensor, ends: Tensor, own: Carried, state: State) -> tuple[Tensor, State]:
        update, state = FedProx.collect(self, cohort, start, ends, own, state)
        return update, memory.remember(state, cohort, lambda cohort, i: self.generate(cohort, i, ends[i]))

    def generate(self, cohort: Cohort, i: int, w: Tensor) -> Examples:
        shard, net = cohort.shards[i], cohort.net
        source = cohort.draw("langevin", cohort.clients[i])
        labels = torch.randint(shard.size, (self.size,), generator=source)
        made = shard.take(labels)
        if not self.size:
            return made
        x = torch.rand(made.x.shape, generator=source).to(made.x)
        with net.mode(training=False):
            phi = torch.cat([net.features(w, part) for part in shard.x.split(256)])
            centre = torch.stack([phi[shard.y == y].mean(0) for y in made.y])

            def energy(x: Tensor) -> Tensor:
                return 0.5 * (net.features(w, x) - centre).square().sum()

            for _ in range(self.walk):
                noise = torch.randn(x.shape, generator=source).to(x)
                x = (x - self.step * grad(energy)(x) + self.heat * noise).clamp(0.0, 1.0)
        return made._replace(x=x)
