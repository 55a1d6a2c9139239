"""Many experiments as one file: a base, and the fields that vary over it.

engine = "expect"                # or steps, collapsed, reference
seeds = 20                       # of the sampling engines: a count, or a list
keep = ["grad_norm_sq"]          # which curves; all by default

[base.problem]                   # the tables of an experiment
dim = 50
[grid]                           # every combination
"drift.time" = [0.01, 100.0]
"method.lr" = [0.01, 0.03, 0.1]
[zip]                            # fields that move together
"problem.mu" = [0.0, 1.0]
"problem.L" = [5.0, 20.0]
[[list]]                         # one by one, each with fields of its own
"method.name" = "fedprox"
"method.prox" = 0.5
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .check import InvalidInput, choice, fail, integer, memory
from .drift import Drift
from .experiment import TABLES, read_toml
from .federation import Federation
from .methods import METHODS
from .problem import Quadratic
from .result import VARIABLES
from .simulate import ENGINES

RATE = "method.lr"
PARTS = ("engine", "seeds", "keep", "base", "grid", "zip", "list")
POINT_SIZE = 1000  # bytes that are remembered of a point, its curves not counted

Fields = dict[str, Any]
"""Values by "table.field"."""


@dataclass(frozen=True)
class Grid:
    """Points in order: ``axes`` are walked like the digits of a number, the last one quickest.

    An axis is a list of settings, each a few fields that change together. Learning rates come last, because
    the exact engine takes many at once.
    """

    engine: str
    seeds: tuple[int, ...]
    keep: tuple[str, ...] | None
    base: Mapping[str, Mapping[str, Any]]
    axes: tuple[tuple[Fields, ...], ...]

    @classmethod
    def from_toml(cls, path: str | Path) -> Grid:
        return cls.from_dict(read_toml(path))

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Grid:
        """Check all but the values themselves, which belong to the points that have them."""
        for part in given:
            if part not in PARTS:
                raise InvalidInput(f"{part}: unknown{_hint(part, PARTS)}; allowed: {', '.join(PARTS)}")
        engine = choice("engine", given.get("engine", "expect"), ("expect", *ENGINES))
        base = _table("base", given.get("base", {}))
        for table, fields in base.items():
            for field in _table(f"base.{table}", fields):
                _check_field(f"{table}.{field}")
        listed = given.get("list", [])
        if not isinstance(listed, list):
            raise fail("list", listed, "must be given as [[list]], once for every setting")
        product = {name: _values(name, value) for name, value in _flat("grid", given.get("grid", {})).items()}
        together = {name: _values(name, value) for name, value in _flat("zip", given.get("zip", {})).items()}
        lengths = {name: len(values) for name, values in together.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            raise InvalidInput(f"zip: fields that move together need equally many values; {told}")
        settings = tuple(_flat("list", entry) for entry in listed)
        axes = [settings] if settings else []
        if together:
            axes.append(tuple(dict(zip(together, row, strict=True)) for row in zip(*together.values(), strict=True)))
        for name in sorted(product, key=lambda name: name == RATE):  # a stable sort: the rate goes last
            axes.append(tuple({name: value} for value in product[name]))
        if not axes:
            raise InvalidInput('grid: empty; give [grid] at least one field, such as "method.lr" = [0.01, 0.1]')
        if any(not setting for setting in settings):
            raise InvalidInput('list: empty setting; give it at least one field, such as "method.name" = "fedavg"')
        seen: set[str] = set()
        for axis in axes:
            names = {name for setting in axis for name in setting}
            for name in names:
                _check_field(name)
            if seen & names:
                raise InvalidInput(f"{min(seen & names)}: varied twice; leave it in one of [grid], [zip] and [[list]]")
            seen |= names
        keep = given.get("keep")
        if keep is not None:
            if not isinstance(keep, list) or not keep:
                raise fail("keep", keep, "must be a list of " + ", ".join(VARIABLES))
            keep = tuple(dict.fromkeys(choice("keep", name, VARIABLES) for name in keep))
        grid = cls(engine, _seeds(given.get("seeds", 10)), keep, base, tuple(axes))
        memory(POINT_SIZE * len(grid), f"a grid of {len(grid)} points", "split it")
        return grid

    def __len__(self) -> int:
        return math.prod(len(axis) for axis in self.axes)

    @property
    def rates(self) -> tuple[Any, ...]:
        """The learning rates that are the innermost axis; empty if there is none."""
        last = self.axes[-1]
        return tuple(setting[RATE] for setting in last) if set(last[0]) == {RATE} and len(last) > 1 else ()

    @property
    def fields(self) -> list[str]:
        """What varies."""
        return list(dict.fromkeys(name for axis in self.axes for setting in axis for name in setting))

    def point(self, index: int) -> Fields:
        """The fields that point ``index`` sets."""
        settings = []
        for axis in reversed(self.axes):
            index, at = divmod(index, len(axis))
            settings.append(axis[at])
        return {name: value for setting in reversed(settings) for name, value in setting.items()}

    def column(self, name: str) -> tuple[list[Any], NDArray[np.int64]]:
        """The values that a field takes (None where it is not set), and which of them each point has."""
        inner = len(self)
        for axis in self.axes:
            inner //= len(axis)
            if any(name in setting for setting in axis):
                return [setting.get(name) for setting in axis], np.arange(len(self)) // inner % len(axis)
        raise KeyError(name)

    def tables(self, index: int) -> dict[str, dict[str, Any]]:
        """Point ``index`` as the tables of an experiment."""
        tables = {table: dict(fields) for table, fields in self.base.items()}
        for name, value in self.point(index).items():
            table, _, field = name.partition(".")
            tables.setdefault(table, {})[field] = value
        return tables

    def plain(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return dataclasses.asdict(self)


def label(point: Fields) -> str:
    """A point in words: the fields it sets."""
    return ", ".join(f"{name} = {value!r}" for name, value in point.items())


def _known_fields(table: str) -> list[str]:
    if table == "method":
        own = {f.name for kind in METHODS.values() for f in dataclasses.fields(kind)}
        return ["name", *sorted(own | {"D2", "R2", "alpha"})]
    kinds: dict[str, Any] = {"problem": Quadratic, "drift": Drift, "federation": Federation}
    return [f.name for f in dataclasses.fields(kinds[table])]


def _check_field(name: str) -> None:
    table, _, field = name.partition(".")
    if table not in TABLES:
        allowed = " or ".join(f'"{t}.…"' for t in TABLES)
        raise InvalidInput(f"{name}: unknown table{_hint(table, TABLES)}; fields are named {allowed}")
    known = _known_fields(table)
    if field not in known:
        raise InvalidInput(f"{name}: unknown field{_hint(field, known)}; allowed: {', '.join(known)}")


def _hint(name: str, allowed: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(allowed), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _table(name: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{name} = {given!r}: must be a table, [{name}]")
    return given


def _flat(name: str, given: Any) -> Fields:
    """Fields as "table.field", whether TOML was given the dot within quotes or without."""
    fields: Fields = {}
    for key, value in _table(name, given).items():
        if isinstance(value, Mapping):
            fields |= {f"{key}.{field}": inner for field, inner in value.items()}
        else:
            fields[key] = value
    return fields


def _values(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise fail(name, values, "must be a list of values")
    if not values:
        raise fail(name, values, "an empty list leaves no point; give at least one value")
    return values


def _seeds(given: Any) -> tuple[int, ...]:
    if isinstance(given, list):
        seeds = tuple(integer("seeds", seed, 0, 2**63 - 1) for seed in given)
        if not seeds or len(set(seeds)) < len(seeds):
            raise fail("seeds", given, "must be a count >= 1 or a list of different whole numbers >= 0")
        return seeds
    count = integer("seeds", given, 1)
    memory(8 * count, f"{count} seeds", "lower seeds")
    return tuple(range(count))
