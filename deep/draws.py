"""Random numbers named by what they are for, never by when they are drawn.

Vectorised, looped and resumed runs thus see the same minibatches, the same probes and the same samples.
"""

from __future__ import annotations

import hashlib

import torch


def generator(*names: int | str) -> torch.Generator:
    """A CPU generator for these names, e.g. ``generator(seed, "batches", task, round, client)``."""
    digest = hashlib.blake2b(repr(names).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
