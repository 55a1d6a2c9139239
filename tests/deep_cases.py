"""Small networks and data that the tests of `deep` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deep.train import Fixed, Shard

torch.set_num_threads(1)

SMALL: dict[str, dict[str, int]] = {
    "cfl-core-set": {"size": 5},
    "cfl-generative": {"size": 4, "walk": 5},
    "c-flag": {"size": 6, "sample": 5},
    "er": {"size": 6, "memory_batch": 4},
    "nccl": {"size": 6, "memory_batch": 4},
}
"""Fields by name of the methods that keep or make examples, for the few that there are here."""


def images(n: int, seed: int, classes: int = 3, side: int = 6) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=source)
    x = torch.rand(n, 1, side, side, generator=source)
    return x * 0.7 + 0.3 * y[:, None, None, None] / classes, y


def two_tasks(take: int | None = 2) -> Fixed:
    """Four clients of unequal sizes, two tasks."""
    return Fixed([[images(n, 10 * task + n) for n in (20, 33, 7, 16)] for task in range(2)], take=take)


def seeded(*layers: nn.Module) -> nn.Sequential:
    """Layers with weights that depend on their shapes alone."""
    module = nn.Sequential(*layers)
    source = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=source))
    return module


def conv() -> nn.Module:
    return seeded(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 3)
    )


def batch_norm() -> nn.Module:
    return seeded(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))


def linear(dim: int) -> nn.Module:
    return seeded(nn.Linear(dim, 1, bias=False))


def half_squares(outputs: Tensor, y: Tensor) -> Tensor:
    """Losses whose average is the quadratic 1/2 w.A w + b.w + c with A = X.T X / n, b = -X.T y / n."""
    return 0.5 * (outputs[:, 0] - y) ** 2


def regression(n: int, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=source, dtype=torch.float64)
    return x, torch.randn(n, generator=source, dtype=torch.float64)


@dataclass(frozen=True)
class Changing:
    """One task in which every client has a new data set each round."""

    rounds: Sequence[Sequence[tuple[Tensor, Tensor]]]
    tasks: int = 1
    heads: None = None

    @property
    def clients(self) -> int:
        return len(self.rounds[0])

    def sampled(self, task: int, round: int) -> list[int]:
        return list(range(self.clients))

    def data(self, task: int, round: int, client: int) -> Shard:
        return Shard(*self.rounds[round - 1][client], key=round)
