"""A network as a function of one flat vector w, so that methods read as they do in the papers and in `nqm`.

``net.logits(w, x)`` is ``torch.func.functional_call`` on views of w. Running statistics (BatchNorm) are no parameters:
they live in ``net.buffers``, which a forward pass in training mode updates in place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nqm.check import choice, fail

Batch = dict[str, Tensor]
"""x, y, weight (the weights of a batch sum to one; padding weighs nothing) and, with heads, task."""


def classification(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of every example."""
    return cross_entropy(logits.float() if logits.dtype == torch.bfloat16 else logits, y, reduction="none")


class Net:
    """A module seen from its flat parameter vector.

    losses: (outputs, y) -> one loss an example.
    heads: a boolean table (tasks, classes): the classes that compete in each task (task-incremental learning);
        ``None``: all of them, always.
    autocast: run forward passes in bfloat16 where torch's autocast allows it.
    """

    def __init__(
        self,
        module: nn.Module,
        losses: Callable[[Tensor, Tensor], Tensor] = classification,
        heads: Tensor | None = None,
        autocast: bool = False,
        channels_last: bool = False,
    ) -> None:
        self.module = module
        self.losses = losses
        self.heads = heads
        self.autocast = autocast
        self.channels_last = channels_last
        named = dict(module.named_parameters())
        self.names = list(named)
        self.shapes = [p.shape for p in named.values()]
        self.sizes = [p.numel() for p in named.values()]
        self.buffers = {name: b.detach().clone() for name, b in module.named_buffers()}

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def has_batch_norm(self) -> bool:
        """BatchNorm mixes the examples of a batch and updates its statistics in place: it can't be vmapped."""
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self.module.modules())

    def start(self) -> Tensor:
        """The module's own parameters as one vector."""
        return torch.cat([p.detach().reshape(-1) for p in self.module.parameters()])

    def parts(self, w: Tensor) -> dict[str, Tensor]:
        pieces = torch.split(w, self.sizes)
        return {n: p.view(s) for n, p, s in zip(self.names, pieces, self.shapes, strict=True)}

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        if self.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.autocast):
            return torch.func.functional_call(self.module, {**self.parts(w), **self.buffers}, (x,))

    def outputs(self, w: Tensor, x: Tensor, task: Tensor | None = None) -> Tensor:
        """Logits; where there are heads, those of other tasks' classes are -inf."""
        found = self.logits(w, x)
        if self.heads is None or task is None:
            return found
        return found.masked_fill(~self.heads[task], float("-inf"))

    def loss(self, w: Tensor, batch: Batch) -> Tensor:
        """The weighted sum of the batch's losses."""
        losses = self.losses(self.outputs(w, batch["x"], batch.get("task")), batch["y"])
        return (batch["weight"] * torch.where(batch["weight"] == 0, 0, losses)).sum()  # padding may be at -inf

    def features(self, w: Tensor, x: Tensor) -> Tensor:
        """phi(x): what the last linear layer is given."""
        last = [m for m in self.module.modules() if isinstance(m, nn.Linear)][-1]
        seen: list[Tensor] = []
        hook = last.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        try:
            self.logits(w, x)
        finally:
            hook.remove()
        return seen[0].flatten(1).float()

    def layers(self) -> list[tuple[str, slice]]:
        """The layers that have parameters, bottom to top, and where they lie in w."""
        prefix = ""
        while len(tops := self._tops(prefix)) == 1 and any("." in n[len(prefix) :] for n in self.names):
            prefix += tops[0] + "."
        found: dict[str, slice] = {}
        begin = 0
        for name, size in zip(self.names, self.sizes, strict=True):
            top = name[len(prefix) :].split(".")[0]
            first = found[top].start if top in found else begin
            begin += size
            found[top] = slice(first, begin)
        return list(found.items())

    def _tops(self, prefix: str) -> list[str]:
        return list(dict.fromkeys(n[len(prefix) :].split(".")[0] for n in self.names if n.startswith(prefix)))

    def to(self, device: torch.device) -> Net:
        """This network on a device; the module itself moves."""
        self.module.to(device)
        self.buffers = {n: b.to(device) for n, b in self.buffers.items()}
        if self.heads is not None:
            self.heads = self.heads.to(device)
        return self

    def with_buffers(self, buffers: dict[str, Tensor]) -> Net:
        """The same network with running statistics of its own (copied)."""
        twin = copy.copy(self)
        twin.buffers = {n: b.clone() for n, b in buffers.items()}
        return twin

    @contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        before = self.module.training
        self.module.train(training)
        try:
            yield
        finally:
            self.module.train(before)

    @torch.no_grad()
    def refreshed(self, w: Tensor, x: Tensor, batch: int = 256) -> dict[str, Tensor]:
        """Running statistics taken anew from ``x``, as the plain average over its batches."""
        twin = self.with_buffers(self.buffers)
        norms = [m for m in self.module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        before = [m.momentum for m in norms]
        for name, b in twin.buffers.items():
            if name.endswith(("running_mean", "num_batches_tracked")):
                b.zero_()
            elif name.endswith("running_var"):
                b.fill_(1.0)
        try:
            for m in norms:
                m.momentum = None  # torch's word for a cumulative average
            with self.mode(training=True):
                for part in x.split(batch):
                    twin.logits(w, part)
        finally:
            for m, momentum in zip(norms, before, strict=True):
                m.momentum = momentum
        return twin.buffers


def averaged(buffers: list[dict[str, Tensor]], share: Tensor) -> dict[str, Tensor]:
    """The weighted average of clients' running statistics; counters are the first client's."""
    found: dict[str, Tensor] = {}
    for name, first in buffers[0].items():
        if first.is_floating_point():
            stacked = torch.stack([b[name] for b in buffers])
            found[name] = torch.tensordot(share.to(stacked.dtype), stacked, 1)
        else:
            found[name] = first
    return found


def pick_device(name: str) -> torch.device:
    """``auto`` takes cuda, then mps, then cpu; a device that is not there is refused."""
    choice("training.device", name, ("auto", "cuda", "mps", "cpu"))
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(n for n, here in there.items() if here))
    if not there[name]:
        raise fail("training.device", name, "is not available here; use auto or cpu")
    return torch.device(name)
