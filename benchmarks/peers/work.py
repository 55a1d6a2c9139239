"""The work that every peer does: FedAvg on the noisy quadratic model with client drift and step noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

import nqm

Array = NDArray[np.float64]
Run = Callable[[int], Array]
"""One repetition: from the name of a random stream to the final excess loss of every seed that it simulates."""


@dataclass(frozen=True)
class Work:
    """N clients take K local steps a round in n directions, for T rounds; everybody takes part.

    Everything is in the eigenbasis, where the gradient of client i is  lambda * e + delta_i + nu  for e = w - w*, as in
    the fast engines of `nqm`: nobody pays for a rotation. The start is so far off that half of the final loss is left
    of it, and client drift and step noise share the other half: a peer that gets one of them wrong is found out.
    """

    dim: int
    clients: int
    local_steps: int
    rounds: int
    seeds: int = 1
    """How many seeds a peer with a seed axis simulates side by side."""
    lr: float = 0.01

    @cached_property
    def parts(self) -> tuple[nqm.Quadratic, nqm.Drift, nqm.Federation, nqm.FedAvg]:
        federation = nqm.Federation(self.clients, local_steps=self.local_steps, rounds=self.rounds)
        method = nqm.FedAvg(self.lr)
        drift = nqm.Drift(client=self.clients * self.dim, noise=0.4 / self.lr * self.clients * self.dim)

        def loss(b: float, drift: nqm.Drift) -> float:
            return float(nqm.expect(problem(b), drift, federation, method, norm=False)["excess_loss"][-1])

        def problem(b: float) -> nqm.Quadratic:
            return nqm.Quadratic(dim=self.dim, mu=1.0, L=10.0, rotation="none", b=b)

        far = float(np.sqrt(loss(0.0, drift) / loss(1.0, nqm.Drift())))  # w* = -b/lambda, and the start is 0
        return problem(far), drift, federation, method

    @property
    def lam(self) -> Array:
        return self.parts[0].eigenvalues

    @property
    def start(self) -> Array:
        return self.parts[0].start

    @property
    def sd_client(self) -> float:
        return float(np.sqrt(self.parts[1].client / self.dim))

    @property
    def sd_noise(self) -> float:
        return float(np.sqrt(self.parts[1].noise / self.dim))

    @property
    def unit(self) -> int:
        """Client steps x directions in one round."""
        return self.clients * self.local_steps * self.dim

    @cached_property
    def exact(self) -> tuple[float, float]:
        """Mean and standard deviation of the final excess loss of one seed: w is Gaussian here, so both are exact."""
        curve = nqm.expect(*self.parts, norm=False)
        return float(curve["excess_loss"][-1]), float(np.sqrt(curve["excess_loss_var"][-1]))

    def excess_loss(self, e: Array) -> Array:
        """f(w) - f* of every row w - w*, in the precision that it came in."""
        return 0.5 * (e * e) @ self.lam.astype(e.dtype)
