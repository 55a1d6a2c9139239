"""SCAFFOLD: control variates take the clients' own drift out of their local steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ..check import fail
from ..federation import Federation
from .base import Array, Round, Server, server
from .fedavg import FedAvg


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """Karimireddy et al., option II: local gradients are corrected by c - c_i, and afterwards

    c_i <- c_i - c + (w - w_i) / (K lr),     c <- c + (S/N) (average change of the c_i of the round).

    All controls begin as 0, so the first round is FedAvg's.
    """

    name: ClassVar[str] = "scaffold"
    controls: ClassVar[bool] = True

    def check_federation(self, federation: Federation) -> None:
        if federation.stateless:
            raise fail(
                "federation.stateless", True, "must be false for method.name = 'scaffold': its clients come back"
            )

    def local_step(self, v: Array, r: Round, gradient: Callable[[Array], Array]) -> Array:
        return v - self.lr * (gradient(v) - r.kept(r.client) + r.kept("c"))

    def server_step(self, r: Round, update: Array) -> Array:
        S, N = r.federation.S, r.federation.clients
        c = r.kept("c")
        change = {i: -c - moved / (r.federation.local_steps * self.lr) for i, moved in r.updates.items()}
        for i in r.updates:
            r.memory[i] = r.kept(i) + change[i]
        r.memory["c"] = c + S / N * (sum(change.values()) / S)
        return super().server_step(r, update)

    def server(self, federation: Federation, task: int) -> Server:
        share = federation.S / federation.clients
        settle = -share / (federation.local_steps * self.lr)
        return server(self.lr, start=[1, 0], push=[0, 1], carry=[[1, 0], [0, 1 - share]], gain=[self.server_lr, settle])
