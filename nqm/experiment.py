"""An experiment is a problem, its drift, a federation and a method; a TOML file can hold one."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .check import InvalidInput, choice, memory, number
from .drift import Drift
from .federation import Federation
from .methods import METHODS, Method
from .problem import Quadratic
from .schedule import Weights

TABLES = ("problem", "drift", "federation", "method")

NameWeights = Callable[["WeightsRequest"], Weights]
"""Turns a name such as "lemma-b.4" into weights; `theory.weights.named` is one. `nqm` itself knows no theorem."""


@dataclass(frozen=True)
class WeightsRequest:
    """Weights asked for by name, with the constants that the drift implies unless the file gives its own."""

    name: str
    rounds: int
    D2: float
    R2: float
    alpha: float
    overlap: float


@dataclass(frozen=True)
class Experiment:
    problem: Quadratic
    drift: Drift
    federation: Federation
    method: Method

    def config(self) -> dict[str, Any]:
        """The whole configuration as plain values."""
        return {
            "problem": dataclasses.asdict(self.problem),
            "drift": dataclasses.asdict(self.drift),
            "federation": dataclasses.asdict(self.federation),
            "method": self.method.config(),
        }

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any], named_weights: NameWeights | None = None) -> Experiment:
        """Build and check an experiment from the four tables; unknown tables and fields are refused by name."""
        for table in tables:
            if table not in TABLES:
                raise InvalidInput(f"[{table}]: unknown table{_hint(table, TABLES)}; allowed: {', '.join(TABLES)}")
            if not isinstance(tables[table], Mapping):
                raise InvalidInput(f"{table} = {tables[table]!r}: must be a table, [{table}]")
        if "method" not in tables:
            raise InvalidInput("[method]: missing; give at least name and lr")
        raw = dict(tables.get("problem", {}))
        if "dim" not in raw:
            own = [t for t in raw["tasks"] if isinstance(t, Mapping)] if isinstance(raw.get("tasks"), list) else []
            fields = [t[k] for t in (raw, *own) for k in ("spectrum", "b", "w0") if k in t]
            lists = [value for value in fields if isinstance(value, (list, tuple))]
            if lists:
                raw["dim"] = len(lists[0])
        problem = _build(Quadratic, "problem", {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()})
        drift = _build(Drift, "drift", tables.get("drift", {}))
        federation = _build(Federation, "federation", tables.get("federation", {}))
        method = _method(dict(tables["method"]), problem, drift, federation, named_weights)
        return cls(problem, drift, federation, method)

    @classmethod
    def from_toml(cls, path: str | Path, named_weights: NameWeights | None = None) -> Experiment:
        return cls.from_dict(read_toml(path), named_weights)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file; anything that stops it being read is one line."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{path}: can't be read (not a file)")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidInput(f"{path}: can't be read ({error.strerror or error})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: not a TOML file ({error})") from None


def _build(kind: type, table: str, fields: Mapping[str, Any]) -> Any:
    allowed = [f.name for f in dataclasses.fields(kind)]
    for name in fields:
        if name not in allowed:
            raise InvalidInput(f"{table}.{name}: unknown field{_hint(name, allowed)}; allowed: {', '.join(allowed)}")
    return kind(**fields)


def _method(
    fields: dict[str, Any],
    problem: Quadratic,
    drift: Drift,
    federation: Federation,
    named_weights: NameWeights | None,
) -> Method:
    if "name" not in fields:
        raise InvalidInput("method.name: missing; must be one of " + ", ".join(sorted(METHODS)))
    kind = METHODS[choice("method.name", fields.pop("name"), sorted(METHODS))]
    own = {f.name for f in dataclasses.fields(kind)}
    if "lr" not in fields:
        raise InvalidInput("method.lr: missing; must be a finite number > 0")
    if "weights" in own and named_weights is not None and isinstance(fields.get("weights"), str):
        memory(64 * federation.rounds, f"federation.rounds = {federation.rounds}", "lower rounds")
        request = WeightsRequest(
            name=fields["weights"],
            rounds=federation.rounds,
            D2=number("method.D2", fields.pop("D2", drift.time), 0.0),
            R2=number("method.R2", fields.pop("R2", drift.loss_sq(problem.dim)), 0.0),
            alpha=number("method.alpha", fields.pop("alpha", drift.correlation), 0.0, 1.0, open_high=True),
            overlap=drift.overlap,
        )
        fields["weights"] = named_weights(request)
    return _build(kind, "method", fields)


def _hint(name: str, allowed: Any) -> str:
    close = difflib.get_close_matches(name, list(allowed), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
