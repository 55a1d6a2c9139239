"""How the cost of our engines grows with n, N, K, T and seeds: an exponent each, with an interval."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nqm

from .measure import Progress, medians

PARAMETERS = {"n": "dim", "N": "clients", "K": "local_steps", "T": "rounds", "seeds": "seeds"}
FACTORS = (1, 2, 4, 8, 16)
CALL = "a call"


@dataclass(frozen=True)
class Size:
    """What is simulated."""

    dim: int
    clients: int
    local_steps: int
    rounds: int
    seeds: int


EMPTY = Size(1, 2, 1, 1, 1)
"""Next to no work: what remains is the cost of a call, which is taken off."""


@dataclass(frozen=True)
class Engine:
    """An engine, the size from which one number at a time then grows, and the exponents to be expected."""

    name: str
    task: Callable[[Size], Callable[[], Any]]
    start: Size
    predicted: dict[str, float]


def _parts(size: Size, half: bool = False) -> tuple[nqm.Quadratic, nqm.Drift, nqm.Federation, nqm.FedAvg]:
    problem = nqm.Quadratic(dim=size.dim, rotation="none")
    drift = nqm.Drift(client=0.01, time=1.0, noise=1e-5)
    sampled = size.clients // 2 if half else size.clients
    return problem, drift, nqm.Federation(size.clients, sampled, size.local_steps, size.rounds), nqm.FedAvg(0.001)


def _sampled(engine: str, half: bool = False) -> Callable[[Size], Callable[[], Any]]:
    def task(size: Size) -> Callable[[], Any]:
        parts = _parts(size, half)
        return lambda: nqm.simulate(*parts, seeds=size.seeds, engine=engine, threads=1)

    return task


def _expect(size: Size) -> Callable[[], Any]:
    parts = _parts(size)
    return lambda: nqm.expect(*parts, norm=False, compiled=True)


ENGINES = (
    Engine("steps", _sampled("steps"), Size(64, 16, 16, 128, 4), {"n": 1, "N": 1, "K": 1, "T": 1, "seeds": 1}),
    Engine(
        "collapsed, half of the clients a round",
        _sampled("collapsed", half=True),
        Size(256, 32, 16, 512, 32),
        {"n": 1, "N": 1, "K": 0, "T": 1, "seeds": 1},
    ),
    Engine(
        "collapsed, everybody takes part",
        _sampled("collapsed"),
        Size(256, 32, 16, 512, 32),
        {"n": 1, "N": 0, "K": 0, "T": 1, "seeds": 1},
    ),
    Engine("expect", _expect, Size(512, 32, 16, 4096, 1), {"n": 1, "N": 0, "K": 0, "T": 1}),
)


def run(
    repeats: int = 7, engines: tuple[Engine, ...] | None = None, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """One row for each engine and parameter. `expect` has no seeds: its one run stands for all of them."""
    tell = progress or (lambda text: None)
    rows: list[dict[str, Any]] = []
    for engine in engines or ENGINES:
        for symbol, predicted in engine.predicted.items():
            tell(f"growth of {engine.name} with {symbol}")
            field = PARAMETERS[symbol]
            values = [getattr(engine.start, field) * factor for factor in FACTORS]
            sizes = {str(v): dataclasses.replace(engine.start, **{field: v}) for v in values}
            found = medians({k: engine.task(size) for k, size in (sizes | {CALL: EMPTY}).items()}, repeats)
            times = [found[str(v)] - found[CALL] for v in values]
            exponent, half_width = fit(values, times)
            row: dict[str, Any] = {"engine": engine.name, "parameter": symbol, "values": values, "seconds": times}
            row |= {"start": dataclasses.asdict(engine.start), "call_seconds": found[CALL]}
            rows.append(row | {"exponent": exponent, "half_width": half_width, "predicted": predicted})
    return rows


def fit(values: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """The exponent p of  seconds ~ c values^p  by least squares in the logarithms, and half of its 95 % interval.

    The interval is Student's, from how far the points lie off the line: noise widens it, and so does a cost that is no
    power of the parameter.
    """
    from scipy.stats import t as student

    x, y = np.log(values), np.log(seconds)
    x = x - x.mean()
    p = float(x @ y / (x @ x))
    rest = y - y.mean() - p * x
    freedom = len(x) - 2
    error = np.sqrt(rest @ rest / freedom / (x @ x))
    return p, float(student.ppf(0.975, freedom) * error)
