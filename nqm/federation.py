"""Who takes part: N clients, S of them a round, K local steps, T rounds."""

from __future__ import annotations

from dataclasses import dataclass

from .check import fail, flag, integer


@dataclass(frozen=True)
class Federation:
    """The shape of a federation.

    clients: N, the number of clients.
    sampled: S <= N, drawn without replacement and independently each round; ``None`` (or 0 in a file) means all.
        Period drift is what S < N does.
    local_steps: K >= 1.
    rounds: T >= 1. Round 0 is the start, so every curve has T + 1 points.
    stateless: every client is seen once: each round has S clients that were never there before, with
        their own client and time drift. What is remembered of earlier rounds is then about other clients
        (Proposition 4.3 of `cfl`), and ``clients`` no longer matters.
    """

    clients: int = 100
    sampled: int | None = None
    local_steps: int = 10
    rounds: int = 500
    stateless: bool = False

    def __post_init__(self) -> None:
        clients = integer("federation.clients", self.clients, 1)
        object.__setattr__(self, "clients", clients)
        sampled = clients if self.sampled in (None, 0) and self.sampled is not False else self.sampled
        sampled = integer("federation.sampled", sampled, 1)
        if sampled > clients:
            raise fail("federation.sampled", sampled, f"must be at most federation.clients = {clients}")
        object.__setattr__(self, "sampled", sampled)
        object.__setattr__(self, "local_steps", integer("federation.local_steps", self.local_steps, 1))
        object.__setattr__(self, "rounds", integer("federation.rounds", self.rounds, 1))
        flag("federation.stateless", self.stateless)

    @property
    def S(self) -> int:
        """Clients at work in one round."""
        assert self.sampled is not None
        return self.sampled

    @property
    def slots(self) -> int:
        """Clients that carry a state: N, or S when every client is seen once."""
        return self.S if self.stateless else self.clients

    @property
    def partial(self) -> bool:
        """Whether a round sees only some of the clients that carry a state."""
        return self.slots > self.S
