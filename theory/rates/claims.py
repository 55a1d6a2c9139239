"""The form of a rate claim: which parameter moves, what the paper predicts, what was measured, and the verdict.

A claim is an upper bound up to a constant. Its exponent is judged in the direction ``towards`` in which the claim has
to hold without end: eps to 0, T, N, K to infinity, drift and noise up, mu to 0. If measured over claimed grows that way

    slower   the rate is refuted in that regime: with the steps the paper prescribes the interval of the measured
             exponent is clear of the predicted one by `MARGIN`, free tuning is measured beside it, and at the deep
             end measured is above claimed with constants one
    faster   measured over claimed falls: the rate is loose in that parameter (on these worlds)
    agrees   neither, and the interval is at most `WIDE` across
    unmeasured  no sweep can say, and the row says why
"""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nqm.check import InvalidInput

from .fit import Fit, fit

Array = NDArray[np.float64]

VERDICTS = ("agrees", "faster", "slower", "unmeasured")
MARGIN = 0.1
WIDE = 1.0
DOMINANT = 0.9
MODULES = ("cfl", "cfl_table", "others")
PAPERS = ("cfl", "special", "cflag", "fedeve")


@dataclass(frozen=True, eq=False)
class Curve:
    """What a sweep measured: ``quantity`` (rounds, or an error) at the values ``x`` of a parameter.

    prescribed, free: with the steps of the paper and tuned freely; None where there is nothing to prescribe or tune.
    falling: with a step that falls with the round, where that was run. lines: what no method can cross, by name.
    still: what a server that does nothing has, in units of what is to be reached (rounds) or of the quantity (errors).
    said: what the tuning has to say, such as a floor that keeps an accuracy out of reach.
    """

    x: Array
    quantity: str
    prescribed: Array | None
    free: Array | None
    falling: Array | None = None
    lines: dict[str, Array] = field(default_factory=dict)
    still: Array | None = None
    said: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Rate:
    """One parameter of one term of a claim.

    claim: as in the ledger, without the part. ledger: the ledger's own id. part, term: in words and symbols.
    predicted: the exponent; formula(x): the claimed value, constants one; share(x): the term's share of it.
    regime: how the other parameters were chosen. curve: measures; None if unmeasured, with ``note`` for the reason.
    """

    claim: str
    ledger: str
    part: str
    term: str
    parameter: str
    predicted: float
    towards: str
    regime: str
    curve: Callable[[], Curve] | None = None
    formula: Callable[[float], float] | None = None
    share: Callable[[float], float] | None = None
    note: str = ""

    @property
    def paper(self) -> str:
        return self.claim.split("/")[0]


@dataclass(frozen=True, eq=False)
class Found:
    """A rate with what was measured. fits: by tuning. shares: the term's share of the claimed value at both ends."""

    rate: Rate
    curve: Curve | None
    fits: dict[str, Fit | None]
    claimed: Array | None
    shares: tuple[float, float] | None
    verdict: str
    note: str

    @property
    def fit(self) -> Fit | None:
        """The fit that the verdict rests on: the prescribed steps', or free tuning's where nothing is prescribed."""
        return self.fits.get("prescribed", self.fits.get("free"))

    def plain(self) -> dict[str, Any]:
        """As JSON has it; infinite rounds are null."""

        def numbers(values: Array | None) -> list[float | None] | None:
            return None if values is None else [float(v) if math.isfinite(v) else None for v in values]

        r, c = self.rate, self.curve
        fits = {
            name: f
            and {
                "exponent": f.exponent,
                "interval": numbers(np.array([f.low, f.high])),
                "local": list(f.slopes),
                "law": f.law,
            }
            for name, f in self.fits.items()
        }
        words = {name: getattr(r, name) for name in ("claim", "ledger", "part", "term", "parameter")}
        return words | {
            "predicted": r.predicted,
            "towards": r.towards,
            "verdict": self.verdict,
            "measured": fits,
            "regime": r.regime,
            "share": None if self.shares is None else list(self.shares),
            "quantity": c and c.quantity,
            "x": numbers(c.x) if c else None,
            "prescribed": numbers(c.prescribed) if c else None,
            "free": numbers(c.free) if c else None,
            "limits": {name: numbers(v) for name, v in c.lines.items()} if c else None,
            "note": self.note,
        }


def measure(rate: Rate) -> Found:
    """Run a rate's sweep, fit it, and judge."""
    if rate.curve is None:
        return Found(rate, None, {}, None, None, "unmeasured", rate.note)
    curve = rate.curve()
    claimed = None if rate.formula is None else np.array([rate.formula(float(x)) for x in curve.x])
    shares = None
    if rate.share is not None:
        shares = rate.share(float(curve.x[0])), rate.share(float(curve.x[-1]))
        if min(shares) < DOMINANT:
            raise ValueError(f"{rate.claim}, {rate.term}, {rate.parameter}: shares {shares}, must be {DOMINANT}")
    tunings = {"prescribed": curve.prescribed, "free": curve.free, "falling": curve.falling}
    fits = {name: _fitted(curve.x, y) for name, y in tunings.items() if y is not None}
    curves = {name: y for name, y in tunings.items() if y is not None}
    verdict = judge(rate.predicted, rate.towards, fits, curves, None if claimed is None else float(claimed[-1]))
    below = _outgrows(rate, fits) and claimed is not None and verdict != "slower"
    notes = [rate.note, "It outgrows the claim, but stays below it, constants one, here." if below else "", *curve.said]
    return Found(rate, curve, fits, claimed, shares, verdict, " ".join(n for n in notes if n))


def judge(
    predicted: float, towards: str, fits: dict[str, Fit | None], curves: dict[str, Array], claimed: float | None
) -> str:
    """The verdict; a curve without a fit has points that are never reached, or that nothing is needed to reach.

    That no rate arrived accuses nobody: it may be us who did not look far enough.
    """
    own = "prescribed" if "prescribed" in fits else "free"
    found = fits[own]
    if found is None:
        return "unmeasured" if np.isinf(curves[own]).any() else "faster"
    low, high = _excess(found, predicted, towards)
    above = claimed is None or float(curves[own][-1]) > claimed
    if low > MARGIN and "free" in fits and above:
        return "slower"
    if high < -MARGIN:
        return "faster"
    return "agrees" if high - low <= WIDE else "unmeasured"


def _excess(found: Fit, predicted: float, towards: str) -> tuple[float, float]:
    """By how much measured over claimed grows in the direction of the claim: the interval of that exponent."""
    sign = 1.0 if towards == "large" else -1.0
    low, high = sorted((sign * (found.low - predicted), sign * (found.high - predicted)))
    return low, high


def _outgrows(rate: Rate, fits: dict[str, Fit | None]) -> bool:
    found = fits.get("prescribed", fits.get("free"))
    return found is not None and _excess(found, rate.predicted, rate.towards)[0] > MARGIN


def _fitted(x: Array, y: Array) -> Fit | None:
    return fit(x, y) if np.all(np.isfinite(y)) and np.all(y > 0) else None


_rates: dict[str, list[Rate]] = {}


def declare(*rates: Rate) -> None:
    """Enter rates into the registry, under their claims."""
    for rate in rates:
        _rates.setdefault(rate.claim, []).append(rate)


@cache
def _load() -> None:
    for module in MODULES:
        importlib.import_module(f"theory.rates.{module}")


def registry() -> dict[str, list[Rate]]:
    """All rates by claim, in the order of the papers."""
    _load()
    return dict(sorted(_rates.items(), key=lambda item: PAPERS.index(item[0].split("/")[0])))


def select(ids: Sequence[str] = ()) -> dict[str, list[Rate]]:
    """Claims by id; an unknown one is named with what there is."""
    known = registry()
    for id in ids:
        if id not in known:
            close = difflib.get_close_matches(id, known, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise InvalidInput(f"rate {id!r}: unknown id{hint}; allowed: {', '.join(known)}")
    return {id: rows for id, rows in known.items() if not ids or id in ids}


@cache
def results(id: str) -> tuple[Found, ...]:
    """All rows of a claim, measured once a process."""
    return tuple(measure(rate) for rate in registry()[id])
