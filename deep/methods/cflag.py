"""FedTrack and C-FLAG (`cflag`): local steps along incrementally aggregated gradients, Eq. (4) and (5), and one step a
round on remembered data, at fixed or adaptive rates (Table 1, Algorithms 1 and 3).

- A component g_{i,j} of (5) is a minibatch of a fixed partition of the client's data, not one example: a table
  of gradients as long as the data would not fit. Components are visited in turn, after the full gradient of step 0.
- (7) and Algorithm 3, line 2, print x_{t,E} where the displacement x_t - x_{t,E} is meant.
- Algorithm 3, line 4, has a_i = beta * sum of gradients, Table 1 the sum itself. The rates are those of the
  sum, so we follow Table 1.
- The paper's experiments run Adam locally, its theory gradient descent. We do the latter.
- Clients that remember nothing yet count with a memory gradient of zero; where nobody does, the round is FedTrack's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nqm.check import choice, fail, flag, integer
from nqm.check import memory as fits

from ..local import Carried, Cohort, Gradient, Here
from . import memory
from .base import Method, State, mean


@dataclass(frozen=True)
class FedTrack(Method):
    """x <- x - lr (grad g - grad g_i + grad g_i'), all from the round's start but the last (Mitra et al. 2021)."""

    name: ClassVar[str] = "fedtrack"
    reshuffle: ClassVar[bool] = False

    def prepare(self, cohort: Cohort, start: Tensor, state: State) -> tuple[Carried, Carried]:
        plans = [cohort.cycle_of(i, once=True) for i in range(len(cohort.clients))]
        size = len(plans) * len(plans[0]) * start.numel() * start.element_size()
        if start.device.type == "cpu":
            fits(
                size, f"method.name = {self.name!r}: a table of gradients", "raise training.batch or lower the clients"
            )
        table = torch.stack(list(cohort.slots(start, plans=plans)), dim=1)
        counts = torch.tensor([[float(len(part)) for part in plan] for plan in plans]).to(start)
        local = table.sum(1)
        own = {
            "table": table,  # n_j/n grad g_{i,j} at the latest visit, (clients, J, d)
            "share": counts / counts.sum(1, keepdim=True),
            "aggregate": local,  # grad g_i'
            "correction": mean(cohort.share, local) - local,
            "total": torch.zeros_like(local),  # a_i, the sum of grad g_i' over steps
        }
        return own, {}

    def local_step(self, w: Tensor, start: Tensor, gradient: Gradient, here: Here) -> Tensor:
        own, slot = here.own, here.step % here.own["table"].shape[0]
        if here.step > 0:  # (5): one component is taken anew, the others are as they were
            new = own["share"][slot] * gradient(w)
            own["aggregate"] = own["aggregate"] + new - own["table"][slot]
            own["table"][slot] = new
        own["total"] = own["total"] + own["aggregate"]
        return w - self.lr * (own["correction"] + own["aggregate"])  # (4)


@dataclass(frozen=True)
class CFlag(FedTrack):
    """memory_lr: alpha, the rate on memory; ``None``: lr, as for the adaptive rates. size: examples kept of each task
    and client, classes balanced; ``sample`` of them are used a round. L: the smoothness that the rates assume."""

    memory_lr: float | None = None
    adaptive: bool = True
    case: str = "worst"
    L: float = 5.0
    size: int = 400
    sample: int = 200
    name: ClassVar[str] = "c-flag"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory_lr is not None:
            self.check("memory_lr", 0.0)
        flag("method.adaptive", self.adaptive)
        choice("method.case", self.case, ("worst", "average"))
        self.check("L", 0.0, open_low=True)
        if self.adaptive and self.L * self.alpha >= 1:
            raise fail("method.lr", self.alpha, f"must be < 1/L = {1 / self.L:g} for adaptive rates (Section 5)")
        for name in ("size", "sample"):
            object.__setattr__(self, name, integer(f"method.{name}", getattr(self, name), 0))

    @property
    def alpha(self) -> float:
        return self.lr if self.memory_lr is None else self.memory_lr

    def collect(self, cohort: Cohort, start: Tensor, ends: Tensor, own: Carried, state: State) -> tuple[Tensor, State]:
        kept = memory.remember(state, cohort, memory.balanced(self.size))
        update = mean(cohort.share, ends - start)
        remembered = self.remembered(cohort, start, state)
        if remembered is None:
            return update, kept | {"forgetting": 0.0}
        a, share = own["total"], cohort.share
        inner = a @ remembered  # Lambda_{t,i}
        whole = mean(share, a)
        gamma = self.L * self.lr**2 / 2 * whole.square().sum() - self.lr * (1 - self.L * self.alpha) * (share @ inner)
        if self.adaptive:
            alpha, beta = self.rates(inner, a, share, remembered)
            steps = cohort.local_steps or cohort.epochs * own["table"].shape[1]
            moved = beta[:, None] * (steps * own["correction"] + a)  # Algorithm 3, line 14
            update = -mean(share, moved) - (share @ alpha) * remembered
        else:
            update = update - self.alpha * remembered  # (7)
        return update, kept | {"forgetting": float(gamma)}  # (15)

    def rates(self, inner: Tensor, a: Tensor, share: Tensor, remembered: Tensor) -> tuple[Tensor, Tensor]:
        """Table 1: alpha_{t,i} and beta_{t,i}."""
        many = len(share) if self.case == "worst" else 1
        transfer = inner > 0
        alpha = torch.where(transfer, self.alpha, self.alpha * (1 - inner / remembered.square().sum()))
        best = (1 - self.L * self.alpha) * inner / (self.L * many * share * a.square().sum(1))
        return alpha, torch.where(transfer, best, self.lr)

    def remembered(self, cohort: Cohort, start: Tensor, state: State) -> Tensor | None:
        """grad f(x_t) on a sample of every client's memory, averaged; ``None`` if all are empty or it vanishes."""
        samples = []
        for client, key, shard in zip(cohort.clients, cohort.keys, cohort.shards, strict=True):
            held = memory.recall(state, client, besides=key)
            pool = held[0].plus(*held[1:]) if held else shard.take(torch.arange(0))
            samples.append(pool.take(torch.randperm(pool.size, generator=cohort.draw("memory", client))[: self.sample]))
        if not any(s.size for s in samples):
            return None
        found = mean(cohort.share, cohort.gradients(start, samples))
        return found if bool(found.any()) else None

    def diagnostics(self, state: State) -> dict[str, float]:
        return {"forgetting": state["forgetting"]}
