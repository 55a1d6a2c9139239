r"""History weights p_{t,tau} as data: what round t gives to the objectives of rounds tau <= t.

Weights reach the engines in one of two forms. `Schedule` holds four numbers a round (the weight of the first round,
of every round in the middle, of the previous and of the current one), which is all that Lemma B.4 and Theorem 4.9 of
`cfl` need, and lets a history collapse to a few running sums. `Table` holds a row of t numbers for round t and can say
anything, at the price of remembering every round.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .check import InvalidInput, fail

SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Schedule:
    """Weights of rounds t = 1..T with four distinct values a round.

    Round t gives ``first[t-1]`` to tau = 1, ``middle[t-1]`` to each 1 < tau < t-1, ``previous[t-1]`` to t-1 and
    ``current[t-1]`` to t. When rounds coincide the later name counts: at t = 1 all is ``current``, at t = 2 tau = 1 is
    ``previous``.
    """

    first: NDArray[np.float64]
    middle: NDArray[np.float64]
    previous: NDArray[np.float64]
    current: NDArray[np.float64]
    name: str = "given"

    def __post_init__(self) -> None:
        # The first round in which each value has a round of its own to weigh; before that it is zero.
        for field, begins in (("first", 3), ("middle", 4), ("previous", 2), ("current", 1)):
            values = np.array(getattr(self, field), dtype=float)
            if values.ndim != 1 or values.shape != np.shape(self.current):
                raise InvalidInput("method.weights: first, middle, previous and current must be vectors of one length")
            values[: begins - 1] = 0.0
            values.setflags(write=False)
            object.__setattr__(self, field, values)
        between = np.maximum(np.arange(1, self.rounds + 1) - 3, 0)
        _check_sums(self.current + self.previous + self.first + between * self.middle)

    @property
    def rounds(self) -> int:
        return len(self.current)

    @property
    def digest(self) -> str:
        """A short name for the numbers themselves."""
        return _digest(self.first, self.middle, self.previous, self.current)

    @property
    def remembers(self) -> bool:
        """Whether any round looks back."""
        return bool(np.any(self.current != 1.0))

    @property
    def even(self) -> bool:
        """Whether all past rounds weigh the same, so that one running sum is all the memory there is."""
        same = np.array_equal(self.first[2:], self.previous[2:]) and np.array_equal(self.middle[3:], self.previous[3:])
        return bool(same)

    def row(self, t: int) -> NDArray[np.float64]:
        """The weights p_{t,1}, ..., p_{t,t}."""
        p = np.full(t, self.middle[t - 1])
        p[0] = self.first[t - 1]
        if t >= 2:  # at t = 2 the first round is the previous one
            p[-2] = self.previous[t - 1]
        p[-1] = self.current[t - 1]
        return p

    @classmethod
    def from_current(cls, current: ArrayLike, name: str) -> Schedule:
        """The current round gets ``current[t-1]``, the rest is spread evenly over the past."""
        p = np.array(current, dtype=float)
        t = np.arange(1, len(p) + 1)
        past = np.where(t >= 2, (1.0 - p) / np.maximum(t - 1, 1), 0.0)
        return cls(past, past, past, p, name)

    @classmethod
    def current_only(cls, rounds: int) -> Schedule:
        """No memory: FedAvg's weights."""
        return cls.from_current(np.ones(rounds), "current")

    @classmethod
    def uniform(cls, rounds: int) -> Schedule:
        """Every round up to t counts the same."""
        return cls.from_current(1.0 / np.arange(1, rounds + 1), "uniform")


@dataclass(frozen=True, eq=False)
class Table:
    """Any lower-triangular weights: ``rows[t-1, :t]`` is p_{t,1..t}. Costs O(T) memory per client and dimension."""

    rows: NDArray[np.float64]
    name: str = "given"

    def __post_init__(self) -> None:
        rows = np.ascontiguousarray(self.rows, dtype=float)
        if rows.ndim != 2 or rows.shape[0] != rows.shape[1]:
            raise InvalidInput("method.weights: a table of weights must be square, one row a round")
        if np.any(np.triu(rows, 1) != 0):
            raise InvalidInput("method.weights: a round can't weigh the future (entries above the diagonal must be 0)")
        rows.setflags(write=False)
        object.__setattr__(self, "rows", rows)
        _check_sums(rows.sum(axis=1))

    @property
    def rounds(self) -> int:
        return len(self.rows)

    @property
    def digest(self) -> str:
        return _digest(self.rows)

    @property
    def current(self) -> NDArray[np.float64]:
        return np.ascontiguousarray(np.diag(self.rows))

    @property
    def remembers(self) -> bool:
        return bool(np.any(self.current != 1.0))

    def row(self, t: int) -> NDArray[np.float64]:
        return self.rows[t - 1, :t]


Weights = Schedule | Table


def _digest(*arrays: NDArray[np.float64]) -> str:
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()[:16]


def _check_sums(total: NDArray[np.float64]) -> None:
    bad = ~(np.abs(total - 1.0) <= SUM_TOLERANCE)
    if np.any(bad):
        t = int(np.argmax(bad))
        raise InvalidInput(f"method.weights[{t}] sums to {total[t]:.12g}: the weights of a round must sum to 1")


def as_weights(given: Any) -> Weights:
    """Weights from what a user gives: a `Schedule`, a `Table`, a square array, or a list whose row t has t numbers."""
    if isinstance(given, (Schedule, Table)):
        return given
    try:
        listed = [[float(x) for x in row] for row in given]
    except (TypeError, ValueError):
        raise fail("method.weights", given, "must be a schedule or a list with one row of numbers a round") from None
    T = len(listed)
    rows = np.zeros((T, T))
    for t, row in enumerate(listed):
        if len(row) not in (t + 1, T):
            raise InvalidInput(
                f"method.weights[{t}] has {len(row)} numbers: row t must have t + 1 = {t + 1} (or all {T})"
            )
        rows[t, : len(row)] = row
    return Table(rows)


def for_rounds(weights: Weights, rounds: int) -> Weights:
    """The first ``rounds`` rounds of ``weights``; fewer than asked for is an error."""
    if weights.rounds < rounds:
        raise InvalidInput(f"method.weights has {weights.rounds} rows: federation.rounds = {rounds} needs one a round")
    if weights.rounds == rounds:
        return weights
    if isinstance(weights, Table):
        return Table(weights.rows[:rounds, :rounds], weights.name)
    return Schedule(
        weights.first[:rounds],
        weights.middle[:rounds],
        weights.previous[:rounds],
        weights.current[:rounds],
        weights.name,
    )
