"""Random numbers named by what they are for, never by when they are drawn.

Vectorised, looped and resumed runs thus see the same minibatches, the same probes and the same samples.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from nqm.check import integer


def generator(*names: int | str) -> torch.Generator:
    """A CPU generator for these names, e.g. ``generator(seed, "batches", task, round, client)``."""
    digest = hashlib.blake2b(repr(names).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def numpy_generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """NumPy's, for who has which samples: ``numpy_generator(seed, "drawn", round)``; other names, other draws."""
    # Hashed, since a SeedSequence takes (0, 1), (0, 1, 0) and numbers split into words for the same.
    name = repr((integer("seed", seed, 0), purpose, *map(int, numbers)))
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest()))
