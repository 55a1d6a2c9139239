"""Who takes part: N clients, S of them a round, K local steps, T rounds."""

from __future__ import annotations

from dataclasses import dataclass

from .check import choice, fail, flag, integer


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
    tasks: how many tasks follow each other, T rounds each, every one with its own optimum (see `Quadratic`) and its
        own clients' drift. Only w goes on from task to task; what a server or a client keeps starts anew.
    cohort: what a round's clients work on. ``"own"``: each on its own data. ``"pooled"``: the sampled clients' data are
        shuffled and dealt out evenly, so that all share their cohort's mean drift and Hessian: period drift without
        client drift. ``"dealt"``: a cohort stands for everybody, but its clients differ: client drift without
        period drift. The last two are settings 2 and 3 of Appendix B.2 of `fedeve`, and need clients that stay. What is
        shared is what stays with a client, ``Drift.overlap`` included; drift that moves and noise remain its own.
    samples: n_i, for a finite sum: every client holds that many samples and its loss is their mean, see
        ``Drift.sample``. 0 means that gradients are not sums over samples.
    """

    clients: int = 100
    sampled: int | None = None
    local_steps: int = 10
    rounds: int = 500
    stateless: bool = False
    tasks: int = 1
    samples: int = 0
    cohort: str = "own"

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
        object.__setattr__(self, "tasks", integer("federation.tasks", self.tasks, 1))
        choice("federation.cohort", self.cohort, ("own", "pooled", "dealt"))
        if self.cohort == "dealt" and sampled < 2:
            raise fail(
                "federation.sampled", sampled, "must be at least 2 for cohort = 'dealt': one client has no spread"
            )
        object.__setattr__(self, "samples", integer("federation.samples", self.samples, 0))

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
