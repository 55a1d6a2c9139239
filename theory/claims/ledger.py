"""What a claim is: a numbered statement of a paper, made executable.

A claim is a function from a *case* (a flat dict of plain values, drawn within the assumptions) to a `Comparison` of
what was measured with what was claimed. Its verdict is declared beside it and has to be borne out by evidence every
time the audit runs; `audit` says what each verdict must show.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nqm.check import InvalidInput

Case = Mapping[str, Any]

VERDICTS = ("holds", "loose", "misprint", "gap", "vacuous", "refuted", "untested")
SENSES = ("==", "<=", ">=", "rate")
TOLERANCE = 1e-9


class Comparison(NamedTuple):
    """What was measured, and what the paper claims for it."""

    measured: float
    claimed: float


Check = Callable[[Case], Comparison]


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim and what we say of it.

    id: paper and number, as in "cfl/lemma-b.4". at: where it stands, for a reader with the paper in hand.
    statement: in our words (the check's docstring).
    sense: how measured relates to claimed. A ``"rate"`` is claimed up to a constant: only growth of the ratio counts.
    cases: a hypothesis strategy for cases within the assumptions; needs: the assumptions, as expressions of a case.
    verdict, why: what we say, and the reason in a sentence or two.
    step: for a gap, the step of the proof that fails, as a check of its own.
    path: cases along which the slack (loose) or the ratio (rate) grows without bound, or stays bounded (holds).
    slack_in: the parameter that makes the slack unbounded.
    repair, repaired: the correction in words, and as a check that has to survive the same cases.
    """

    id: str
    at: str
    statement: str
    sense: str
    verdict: str
    why: str
    check: Check | None
    cases: Any = None
    needs: tuple[str, ...] = ()
    step: Check | None = None
    path: tuple[Case, ...] = ()
    slack_in: str = ""
    repair: str = ""
    repaired: Check | None = None

    @property
    def paper(self) -> str:
        return self.id.split("/")[0]

    @property
    def accused(self) -> Check | None:
        """The check that the stored case breaks: the proof's step for a gap, else the statement."""
        return self.step if self.verdict == "gap" else self.check


REGISTRY: dict[str, Claim] = {}


def claim(
    id: str,
    *,
    at: str,
    sense: str,
    verdict: str,
    why: str,
    cases: Any = None,
    needs: Sequence[str] = (),
    step: Check | None = None,
    path: Sequence[Case] = (),
    slack_in: str = "",
    repair: str = "",
    repaired: Check | None = None,
) -> Callable[[Check], Check]:
    """Enter the decorated check into the ledger; its docstring is the statement in our words."""

    def enter(check: Check) -> Check:
        statement = inspect.cleandoc(check.__doc__ or "")
        if not statement:
            raise ValueError(f"{id}: the check's docstring must state the claim")
        entry = Claim(
            id,
            at,
            statement,
            sense,
            verdict,
            why,
            check,
            cases,
            tuple(needs),
            step,
            tuple(path),
            slack_in,
            repair,
            repaired,
        )
        _enter(entry)
        return check

    return enter


def untested(id: str, *, at: str, statement: str, why: str, sense: str = "<=") -> None:
    """Enter a claim that nothing here checks yet, and why."""
    _enter(Claim(id, at, statement, sense, "untested", why, None))


def _enter(entry: Claim) -> None:
    if entry.id in REGISTRY:
        raise ValueError(f"{entry.id}: entered twice")
    if entry.verdict not in VERDICTS or entry.sense not in SENSES:
        raise ValueError(f"{entry.id}: verdict {entry.verdict!r} or sense {entry.sense!r} is not a word of the ledger")
    lacks = {
        "gap": entry.step is None,
        "loose": not entry.slack_in or not entry.path,
        "misprint": not entry.repair,
    }
    if lacks.get(entry.verdict, False):
        raise ValueError(f"{entry.id}: a verdict of {entry.verdict} needs its step, slack and path, or repair")
    if entry.sense == "rate" and entry.verdict not in ("untested", "vacuous") and not entry.path:
        raise ValueError(f"{entry.id}: a rate is judged along a path of cases")
    REGISTRY[entry.id] = entry


def registry() -> dict[str, Claim]:
    """Every claim by id, in the order of the papers."""
    package = importlib.import_module("theory.claims")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"theory.claims.{module.name}")
    return REGISTRY


def select(ids: Sequence[str] = (), paper: str | None = None) -> list[Claim]:
    """Claims by id and paper; an unknown one is named with what there is."""
    known = registry()
    papers = sorted({c.paper for c in known.values()})
    if paper is not None and paper not in papers:
        raise InvalidInput(f"paper = {paper!r}: must be one of {', '.join(papers)}")
    for name in ids:
        if name not in known:
            close = [k for k in known if name in k][:5]
            hint = f"; did you mean {', '.join(close)}?" if close else f"; {len(known)} are known, see driftproof audit"
            raise InvalidInput(f"claim = {name!r}: no such claim{hint}")
    return [c for c in known.values() if (not ids or c.id in ids) and (paper is None or c.paper == paper)]


def ratio(sense: str, found: Comparison) -> float:
    """How far measured has come towards, or beyond, claimed: above 1 is against the claim.

    For an equation it is 1 plus the relative error, so that above 1 + TOLERANCE means unequal.
    """
    measured, claimed = float(found.measured), float(found.claimed)
    if math.isnan(measured) or math.isnan(claimed):
        return math.nan
    if sense == "==":
        scale = max(abs(measured), abs(claimed))
        return 1.0 if measured == claimed else 1.0 + abs(measured - claimed) / scale
    if sense == ">=":
        measured, claimed = claimed, measured
    if measured == claimed:
        return 1.0
    if claimed > 0:
        return measured / claimed if measured > 0 else 0.0
    if measured <= 0 and claimed < 0:  # both negative: closer to zero is larger
        return claimed / measured if measured < 0 else math.inf
    return math.inf if measured > claimed else 0.0


def violates(sense: str, found: Comparison, tolerance: float = TOLERANCE) -> bool:
    """Whether a comparison contradicts the claim beyond rounding; a rate is never contradicted by one case."""
    return sense != "rate" and ratio(sense, found) > 1.0 + tolerance


def meets(needs: Sequence[str], case: Case) -> bool:
    """Whether a case lies within the assumptions."""
    names = {"abs": abs, "max": max, "min": min, "sum": sum, "all": all, "len": len, "sqrt": math.sqrt, "np": np}
    return all(bool(eval(need, {"__builtins__": {}}, names | dict(case))) for need in needs)
