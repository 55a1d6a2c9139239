"""First and second derivatives at a point: the gradient, the Hessian's diagonal by Hutchinson's probes, the Fisher
information. Running statistics are used as they are and stay so."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad, vjp, vmap

from .local import Examples
from .network import Batch, Net


def _parts(examples: Examples, batch: int) -> list[Batch]:
    whole = {"x": examples.x, "y": examples.y, "task": examples.task, "weight": examples.weight / examples.size}
    pieces = {name: value.split(batch) for name, value in whole.items()}
    return [{name: piece[j] for name, piece in pieces.items()} for j in range(len(pieces["x"]))]


def gradient(net: Net, w: Tensor, examples: Examples, batch: int = 256) -> Tensor:
    """The gradient of the average loss over the examples."""
    total = torch.zeros_like(w)
    with net.mode(training=False):
        for part in _parts(examples, batch):
            total += grad(net.loss)(w, part)
    return total


def hutchinson(
    net: Net, w: Tensor, examples: Examples, probes: int, source: torch.Generator, batch: int = 256
) -> Tensor:
    """diag H as the average of z * (H z) over Rademacher vectors z, whose expectation it is (as in PyHessian)."""
    total = torch.zeros_like(w)
    with net.mode(training=False):
        for _ in range(probes):
            z = (2.0 * torch.randint(0, 2, w.shape, generator=source) - 1.0).to(w.device, w.dtype)
            for part in _parts(examples, batch):
                pull = vjp(lambda v, part=part: grad(net.loss)(v, part), w)[1]
                total += z * pull(z)[0]  # H is symmetric: pulling back is pushing forward
    return total / probes


def fisher(net: Net, w: Tensor, examples: Examples, chunk: int = 32) -> Tensor:
    """The average over examples of the squared gradient of one example's loss, with its true label."""

    def one(x: Tensor, y: Tensor, task: Tensor) -> Tensor:
        batch = {"x": x[None], "y": y[None], "task": task[None], "weight": x.new_ones(1)}
        return grad(net.loss)(w, batch)

    total = torch.zeros_like(w)
    with net.mode(training=False):
        for x, y, task in zip(*(part.split(chunk) for part in examples[:3]), strict=True):
            total += vmap(one)(x, y, task).square().sum(0)
    return total / examples.size
