"""How a run goes: its length, its minibatches, its numbers and its machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nqm.check import choice, fail, flag, integer, number

from .methods.base import Method
from .network import Net

PRECISIONS = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}


@dataclass(frozen=True)
class Training:
    """How a run goes.

    rounds: T, in every task.
    epochs: passes over the local data a round; ``local_steps``: K minibatches instead.
    batch: size of a minibatch; ``None``: all local data at once.
    lr_decay: factor on the local rate after each round, anew in each task.
    weighting: a client counts ``"uniform"``ly or by the ``"size"`` of its current local data.
    vmap: ``"auto"`` trains clients at once where the model allows it and it pays (see `at_once`), ``"on"``, ``"off"``.
    client_chunk: at most so many clients at once; ``None``: all on a GPU, what fits into its cache on a CPU.
    precision: ``"bfloat16"`` is autocast: weights stay float32.
    evaluate_every: rounds between evaluations; 0: at the end of each task only.
    checkpoint: a file; a run finds what it left there and goes on. Written every ``checkpoint_every`` rounds.
    """

    rounds: int
    epochs: int = 1
    local_steps: int | None = None
    batch: int | None = 32
    lr_decay: float = 1.0
    weighting: str = "uniform"
    seed: int = 0
    device: str = "auto"
    precision: str = "float32"
    channels_last: bool = False
    compile: bool = False
    deterministic: bool = False
    vmap: str = "auto"
    client_chunk: int | None = None
    evaluate_every: int = 1
    checkpoint: str | Path | None = None
    checkpoint_every: int = 10

    def __post_init__(self) -> None:
        for name, low in (("rounds", 1), ("epochs", 1), ("seed", 0), ("evaluate_every", 0), ("checkpoint_every", 1)):
            object.__setattr__(self, name, integer(f"training.{name}", getattr(self, name), low))
        for name in ("local_steps", "batch", "client_chunk"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, integer(f"training.{name}", getattr(self, name), 1))
        number("training.lr_decay", self.lr_decay, 0.0, 1.0, open_low=True)
        choice("training.weighting", self.weighting, ("uniform", "size"))
        choice("training.precision", self.precision, PRECISIONS)
        choice("training.vmap", self.vmap, ("auto", "on", "off"))
        for name in ("channels_last", "compile", "deterministic"):
            flag(f"training.{name}", getattr(self, name))

    def identity(self, method: Method, start: Tensor, tasks: int, clients: int) -> str:
        """What must agree for a checkpoint to be this run's: what decides its numbers, save the data themselves."""
        fields = dataclasses.asdict(self)
        for name in ("checkpoint", "checkpoint_every", "client_chunk", "device"):
            del fields[name]
        digest = hashlib.sha256(start.cpu().numpy().tobytes()).hexdigest()
        run = {"training": fields, "method": method.config(), "start": digest, "tasks": tasks, "clients": clients}
        return json.dumps(run, sort_keys=True, default=str)


CACHE = 2**21
"""Weights that a CPU core steps at once without going to memory; beyond it, one client after the other is as fast."""


def at_once(net: Net, device: torch.device, clients: int, training: Training) -> int:
    """How many clients train at once; 0: they are looped.

    BatchNorm is always looped, as its statistics are updated in place. On a CPU vmap saves the overhead of small
    operations and nothing else, so ``auto`` takes as many clients as fit into its cache and loops large networks.
    """
    if net.has_batch_norm:
        if training.vmap == "on":
            raise fail("training.vmap", "on", "BatchNorm can't be vmapped (its statistics change in place); use auto")
        return 0
    if training.vmap == "off":
        return 0
    if training.client_chunk is not None:
        return min(training.client_chunk, clients)
    if device.type != "cpu":
        return clients
    fitting = CACHE // net.size
    if training.vmap == "auto" and fitting < 32:
        return 0
    return max(1, min(fitting, clients))
