"""Small worlds for `special` in which every outcome of a few rounds is enumerated: who is sampled and every noise.

Losses have bounded gradients, so that Assumption 4.1 is met and not merely assumed: quadratics that go on as straight
lines (`Bowl`), and functions of one direction whose slope never changes sign (`Ramp`). Noise is ±σ with equal chances.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..bounds.special import server_prox
from .worlds import Kinked

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Bowl:
    """Curvature h around ``centre`` in every coordinate, gradient at most ``clip``; a dome if h < 0."""

    h: float
    centre: tuple[float, ...]
    clip: float

    def grad(self, x: ArrayLike) -> Array:
        return self._coordinate.grad(np.asarray(x) - self.centre)

    def value(self, x: ArrayLike) -> Array:
        return np.asarray(self._coordinate.value(np.asarray(x) - self.centre).sum(axis=-1))

    def bregman(self, x: ArrayLike, y: ArrayLike) -> Array:
        """f(x) − f(y) − ⟨∇f(y), x − y⟩, free of cancellation."""
        return np.asarray(self._coordinate.bregman(np.asarray(x) - self.centre, np.asarray(y) - self.centre).sum(-1))

    @property
    def _coordinate(self) -> Kinked:
        limit = self.clip / len(self.centre) ** 0.5
        return Kinked(self.h, 0.0, limit / abs(self.h) if self.h else 0.0)


@dataclass(frozen=True)
class Ramp:
    """A function of ⟨u, x⟩ alone whose gradient is u times clip(h(⟨u, x⟩ − offset), 0, clip): along u or zero."""

    h: float
    u: tuple[float, ...]
    offset: float
    clip: float

    def grad(self, x: ArrayLike) -> Array:
        s = np.asarray(x, dtype=float) @ np.array(self.u) - self.offset
        return np.asarray(np.clip(self.h * s, 0.0, self.clip)[..., None] * np.array(self.u))


Loss = Bowl | Ramp


@dataclass(frozen=True)
class Rule:
    """How SPECIAL is run: both steps, E, N, the weight of the anchor, the noise and its direction."""

    lr: float
    glr: float
    E: int
    N: int
    lam: float
    sigma: float = 0.0
    along: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class Paths:
    """All outcomes so far (outcome × coordinate) and the chance of each."""

    theta: Array
    chance: Array

    def mean(self, values: Array) -> Array:
        return np.asarray(np.tensordot(self.chance, values, axes=(0, 0)))


def local_steps(loss: Loss, start: Array, rule: Rule) -> tuple[list[Array], list[Array]]:
    """A client's iterates θ^{t,0}, ..., θ^{t,E} and its stochastic gradients, each noise outcome × start × coordinate.

    The outcomes have equal chances.
    """
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=rule.E if rule.sigma > 0 else 0)))
    noise = rule.sigma * np.array(rule.along)
    x = np.broadcast_to(start, (len(signs), *start.shape))
    iterates, gradients = [x], []
    for e in range(rule.E):
        g = loss.grad(x)
        if rule.sigma > 0:
            g = g + signs[:, e, None, None] * noise
        x = x - rule.lr * g
        iterates.append(x)
        gradients.append(g)
    return iterates, gradients


def one_round(losses: Sequence[Loss], paths: Paths, anchor: Array, rule: Rule, anchored: bool = True) -> Paths:
    """Algorithm 1, lines 5-18: every subset of N clients, every noise."""
    updates = [local_steps(loss, paths.theta, rule)[0][-1] - paths.theta for loss in losses]
    subsets = list(itertools.combinations(range(len(losses)), rule.N))
    thetas = []
    for subset in subsets:
        total = updates[subset[0]]
        for m in subset[1:]:
            total = (total[:, None] + updates[m][None]).reshape(-1, *paths.theta.shape)
        thetas.append(total / rule.N)
    moved = paths.theta + rule.glr * np.concatenate(thetas)
    after = server_prox(moved, anchor, rule.lam) if anchored else moved
    chance = np.tile(paths.chance, len(after)) / len(after)
    return Paths(after.reshape(-1, paths.theta.shape[1]), chance)


def run(losses: Sequence[Loss], start: Sequence[float], rounds: int, rule: Rule, anchored: bool = True) -> list[Paths]:
    """A task of SPECIAL from its anchor: the outcomes after 0, 1, ..., ``rounds`` rounds."""
    anchor = np.array(start, dtype=float)
    history = [Paths(anchor[None, :], np.ones(1))]
    for _ in range(rounds):
        history.append(one_round(losses, history[-1], anchor, rule, anchored))
    return history


def gradient(losses: Sequence[Loss], x: ArrayLike) -> Array:
    """∇f_i, the mean over clients."""
    return np.asarray(np.mean([loss.grad(x) for loss in losses], axis=0))
