"""CFL-Regularization (`cfl`, Appendix C.1.2): earlier objectives are remembered by their second-order Taylor terms.

Round tau leaves, of each client, the gradient g and a diagonal Hessian h at the point v that it began at; later rounds
descend on  grad f~(w) = g + h (w - v). All rounds in the buffer together are affine in w, so two vectors are sent.

- The buffer holds the latest 40 matrices; we drop whole rounds, the oldest first (the last one always stays).
- h by Hutchinson's probes (the paper: PyHessian) with negative entries set to 0, as a concave model has no minimum;
  or the empirical Fisher information. The paper prints the square of the average gradient for it; we average the
  squares of single examples' gradients, as EWC does.
- Terms apply to the two top layers (the paper: last block and fc of ResNet18) with weights beta = 0.1 and 1, or to all.
- History weights p come from `theory.weights`, over the rounds in the buffer. Where beta < 1 the paper is silent on
  the current objective's weight: coordinate by coordinate we descend on
  (1 - beta (1 - p_t)) f_t + beta sum p_tau f~_tau, which is (3) at beta = 1 and FedAvg at beta = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nqm.check import choice, integer

from ..curvature import fisher, hutchinson
from ..local import Carried, Cohort, Gradient, Here
from ..network import Net
from . import memory
from .base import State, mean
from .fedavg import FedProx


@dataclass(frozen=True)
class Regularization(FedProx):
    """beta: weight on the top layer (with ``layers = "all"``, on all); ``block``: on the layer below it."""

    prox: float = 0.0
    beta: float = 1.0
    block: float = 0.1
    layers: str = "top"
    curvature: str = "hutchinson"
    probes: int = 1
    buffer: int = 40
    weights: str = "lemma-b.4"
    D2: float = 1.0
    R2: float = 1.0
    alpha: float = 0.0
    name: ClassVar[str] = "cfl-regularization"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("beta", 0.0, 1.0)
        self.check("block", 0.0, 1.0)
        choice("method.layers", self.layers, ("top", "all"))
        choice("method.curvature", self.curvature, ("hutchinson", "fisher"))
        choice("method.weights", self.weights, memory.WEIGHTS)
        object.__setattr__(self, "probes", integer("method.probes", self.probes, 1))
        object.__setattr__(self, "buffer", integer("method.buffer", self.buffer, 1))

    def begin(self, net: Net, w: Tensor) -> State:
        layers = net.layers()
        if self.layers == "all":
            return {"from": 0, "beta": torch.full_like(w, self.beta), "terms": []}
        top, below = layers[-1][1], layers[-2][1] if len(layers) > 1 else layers[-1][1]
        beta = torch.zeros_like(w)
        beta[below], beta[top] = self.block, self.beta
        return {"from": below.start, "beta": beta[below.start :], "terms": []}

    def prepare(self, cohort: Cohort, start: Tensor, state: State) -> tuple[Carried, Carried]:
        sent = {"now": torch.ones_like(start), "slope": torch.zeros_like(start), "offset": torch.zeros_like(start)}
        terms, beta, here = state["terms"], state["beta"], slice(state["from"], None)
        p = memory.history(self.weights, len(terms) + 1, self.D2, self.R2, self.alpha)
        sent["now"][here] = 1 - beta * (1 - p[-1])
        for q, term in zip(p, terms, strict=False):
            sent["slope"][here] += q * beta * term["slope"]
            sent["offset"][here] += q * beta * term["offset"]
        return {}, sent

    def local_step(self, w: Tensor, start: Tensor, gradient: Gradient, here: Here) -> Tensor:
        sent = here.shared
        remembered = sent["offset"] + sent["slope"] * w  # sum p_tau grad f~_tau(w)
        return w - self.lr * (sent["now"] * gradient(w) + remembered + self.prox * (w - start))

    def collect(self, cohort: Cohort, start: Tensor, ends: Tensor, own: Carried, state: State) -> tuple[Tensor, State]:
        here = slice(state["from"], None)
        h = torch.stack([self.diagonal(cohort, i, start)[here] for i in range(len(ends))])
        slope = mean(cohort.share, h)
        g = mean(cohort.share, cohort.gradients(start, cohort.shards))[here]
        term = {"slope": slope, "offset": g - slope * start[here], "matrices": len(ends)}
        terms = [*state["terms"], term]
        while len(terms) > 1 and sum(t["matrices"] for t in terms) > self.buffer:
            terms = terms[1:]
        return mean(cohort.share, ends - start), state | {"terms": terms}

    def diagonal(self, cohort: Cohort, i: int, w: Tensor) -> Tensor:
        if self.curvature == "fisher":
            return fisher(cohort.net, w, cohort.shards[i])
        source = cohort.draw("probes", cohort.clients[i])
        return hutchinson(cohort.net, w, cohort.shards[i], self.probes, source).clamp(min=0.0)


@dataclass(frozen=True)
class RegularizationProx(Regularization):
    """CFL-Regularization + FedProx (Tables 6 and 7 of `cfl`)."""

    prox: float = 0.1
    name: ClassVar[str] = "cfl-regularization-fedprox"
