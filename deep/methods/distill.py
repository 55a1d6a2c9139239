"""Learning without forgetting by distillation: LwF-FL (Li and Hoiem 2017) and FLwF-2T (Usmanova et al. 2021).

The teacher of LwF is the server's model at the end of the previous task. FLwF-2T has two: the client's own model when
it last took part in an earlier task (the server's, if it never did), and the server's model of this round, with
alpha f + beta KL(own) + (1 - alpha - beta) KL(server); `special` (Table 7) takes alpha = 0.5, beta = 0.25. In the first
task both are FedAvg. Temperature 2 and its square before the divergence are LwF's custom; with heads, only
classes of earlier tasks are distilled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from nqm.check import fail

from ..local import Carried, Cohort, Here
from ..network import Batch, Net
from .base import State
from .fedavg import FedAvg


def divergence(student: Tensor, teacher: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """T^2 sum_j weight_j KL(teacher || student) at temperature T."""
    p, q = (log_softmax(z / temperature, 1) for z in (teacher.detach(), student))
    return temperature**2 * (weight * (p.exp() * (p - q)).sum(1)).sum()


@dataclass(frozen=True)
class LwF(FedAvg):
    """FedAvg on f_i + strength KL(teacher)."""

    strength: float = 1.0
    temperature: float = 2.0
    name: ClassVar[str] = "lwf"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("strength", 0.0)
        self.check("temperature", 0.0, open_low=True)

    def begin_task(self, state: State, w: Tensor, task: int) -> State:
        return state | {"teacher": w, "task": task}

    def prepare(self, cohort: Cohort, start: Tensor, state: State) -> tuple[Carried, Carried]:
        if state["task"] == 0:
            return {}, {}
        return {}, {"teacher": state["teacher"]} | self.known(cohort.net, state["task"])

    def known(self, net: Net, task: int) -> Carried:
        return {} if net.heads is None else {"known": net.heads[:task].any(0).nonzero().flatten()}

    def objective(self, net: Net, w: Tensor, batch: Batch, here: Here) -> Tensor:
        loss = net.loss(w, batch)
        if "teacher" not in here.shared:
            return loss
        return loss + self.strength * self.distance(net, w, here.shared["teacher"], batch, here)

    def distance(self, net: Net, w: Tensor, teacher: Tensor, batch: Batch, here: Here) -> Tensor:
        student, taught = net.logits(w, batch["x"]), net.logits(teacher, batch["x"])
        if "known" in here.shared:
            student, taught = student[:, here.shared["known"]], taught[:, here.shared["known"]]
        return divergence(student, taught, batch["weight"], self.temperature)


@dataclass(frozen=True)
class FLwF2T(LwF):
    """alpha, beta: the weights of the loss and of the client's own teacher; the server's model has the rest."""

    alpha: float = 0.5
    beta: float = 0.25
    name: ClassVar[str] = "flwf-2t"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("alpha", 0.0, 1.0)
        self.check("beta", 0.0, 1.0)
        if self.alpha + self.beta > 1:
            raise fail("method.beta", self.beta, f"must be at most 1 - alpha = {1 - self.alpha:g}")

    def begin_task(self, state: State, w: Tensor, task: int) -> State:
        return super().begin_task(state, w, task) | {"past": state.get("latest", {}), "latest": state.get("latest", {})}

    def prepare(self, cohort: Cohort, start: Tensor, state: State) -> tuple[Carried, Carried]:
        _, sent = super().prepare(cohort, start, state)
        if not sent:
            return {}, {}
        own = torch.stack([state["past"].get(client, state["teacher"]) for client in cohort.clients])
        return {"past": own}, sent | {"teacher": start}

    def objective(self, net: Net, w: Tensor, batch: Batch, here: Here) -> Tensor:
        loss = net.loss(w, batch)
        if "teacher" not in here.shared:
            return loss
        own = self.distance(net, w, here.own["past"], batch, here)
        server = self.distance(net, w, here.shared["teacher"], batch, here)
        return self.alpha * loss + self.beta * own + (1 - self.alpha - self.beta) * server

    def collect(self, cohort: Cohort, start: Tensor, ends: Tensor, own: Carried, state: State) -> tuple[Tensor, State]:
        update, state = super().collect(cohort, start, ends, own, state)
        return update, state | {"latest": state["latest"] | dict(zip(cohort.clients, ends.unbind(), strict=True))}
