"""The audit: every verdict with the evidence that bears it out, computed anew.

| verdict | what the audit must see |
| --- | --- |
| holds | no case against it among those tried; a rate: no growth of measured/claimed along its path |
| loose | the same, and slack that grows at least a hundredfold along its path |
| misprint | the stored case breaks the printed form, and the corrected form survives the attack |
| gap | the statement survives as for holds, and the stored case breaks the named step of its proof |
| vacuous | every case tried shows it |
| refuted | the stored case, within the assumptions, breaks it; a rate: measured/claimed grows tenfold along its path |

A repair that is given as a check has to survive the attack, whatever the verdict.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from . import stored
from .attack import attack
from .ledger import Case, Check, Claim, Comparison, meets, ratio, violates

TIGHT = 1.0 - 1e-6


@dataclass(frozen=True)
class Row:
    """One line of the audit. ``stands`` is False when the evidence no longer bears the verdict out."""

    id: str
    paper: str
    at: str
    statement: str
    verdict: str
    measured: float | None
    claimed: float | None
    evidence: dict[str, Any] = field(default_factory=dict)
    repair: str = ""
    why: str = ""
    stands: bool = True
    seconds: float = 0.0

    @property
    def lost(self) -> bool:
        """Whether a stored counterexample no longer reproduces."""
        return not self.stands and self.verdict in ("refuted", "misprint", "gap")

    def plain(self) -> dict[str, Any]:
        """As JSON takes it: numbers that are not finite become null."""
        return _plain(asdict(self))


def audit(claims: Sequence[Claim], budget: int = 100, progress: Callable[[str], None] | None = None) -> list[Row]:
    """Check every claim; ``progress`` is called with each id before its turn."""
    rows = []
    for claim in claims:
        if progress:
            progress(claim.id)
        rows.append(check(claim, budget))
    return rows


def check(claim: Claim, budget: int = 100) -> Row:
    """One claim: gather the evidence that its verdict calls for."""
    begin = time.perf_counter()
    with np.errstate(all="ignore"):
        found, evidence, stands = _EVIDENCE[claim.verdict](claim, budget)
        if claim.repaired is not None and claim.cases is not None:
            _, repaired, survives = _survives(claim, budget, claim.repaired)
            evidence["repaired"] = {k: repaired.get(k) for k in ("cases", "largest_ratio", "tight")}
            stands = stands and survives
    return Row(
        claim.id,
        claim.paper,
        claim.at,
        claim.statement,
        claim.verdict,
        None if found is None else float(found.measured),
        None if found is None else float(found.claimed),
        evidence,
        claim.repair,
        claim.why,
        stands,
        time.perf_counter() - begin,
    )


Evidence = tuple[Comparison | None, dict[str, Any], bool]


def _survives(claim: Claim, budget: int, check: Check | None = None) -> Evidence:
    if claim.cases is None:
        return None, {"cases": 0}, False
    outcome = attack(claim, check, budget)
    tight = outcome.worst >= TIGHT
    evidence = {"cases": outcome.tried, "largest_ratio": outcome.worst, "tight": tight, "worst_case": outcome.case}
    return outcome.found, evidence, outcome.tried > 0 and outcome.broken == 0


def _along(claim: Claim) -> tuple[list[float], Comparison]:
    """measured/claimed along the path, every case of which must lie within the assumptions."""
    assert claim.check is not None
    results = []
    for case in claim.path:
        if not meets(claim.needs, case):
            raise ValueError(f"{claim.id}: a case of its path lies outside the assumptions")
        results.append(claim.check(case))
    sense = "<=" if claim.sense == "rate" else claim.sense
    return [ratio(sense, r) for r in results], results[-1]


def _holds(claim: Claim, budget: int) -> Evidence:
    if claim.sense == "rate":
        ratios, last = _along(claim)
        bounded = ratios[-1] <= 2.0 * max(ratios[: max(1, len(ratios) // 2)])
        return last, {"ratios": ratios, "path": [dict(c) for c in claim.path]}, bounded
    return _survives(claim, budget)


def _loose(claim: Claim, budget: int) -> Evidence:
    found, evidence, stands = _survives(claim, budget) if claim.sense != "rate" else (None, {}, True)
    ratios, last = _along(claim)
    evidence |= {"slack_in": claim.slack_in, "ratios": ratios, "path": [dict(c) for c in claim.path]}
    # Slack is unbounded when the ratio falls towards zero along the path.
    falls = all(b < a for a, b in pairwise(ratios)) and ratios[-1] <= 0.01 * ratios[0]
    return found or last, evidence, stands and falls


def _gap(claim: Claim, budget: int) -> Evidence:
    found, evidence, survives = _holds(claim, budget)
    broken, step, breaks = _refuted(claim, budget)
    evidence["step"] = step | {"measured": broken and broken.measured, "claimed": broken and broken.claimed}
    return found, evidence, survives and breaks


def _vacuous(claim: Claim, budget: int) -> Evidence:
    outcome = attack(claim, None, budget, ascent=0)
    evidence = {"cases": outcome.tried, "of_which_empty": outcome.broken, "case": outcome.case}
    return outcome.found, evidence, outcome.tried > 0 and outcome.broken == outcome.tried


def _refuted(claim: Claim, budget: int) -> Evidence:
    accused = claim.accused
    assert accused is not None
    if claim.sense == "rate" and claim.verdict == "refuted":
        ratios, last = _along(claim)
        grows = all(b > a for a, b in pairwise(ratios)) and ratios[-1] >= 10 * ratios[0]
        return last, {"ratios": ratios, "path": [dict(c) for c in claim.path]}, grows
    kept = stored.load(claim)
    if kept is None:
        return None, {"case": None}, False
    case: Case = kept["case"]
    found = accused(case)
    sense = claim.sense if claim.sense != "rate" else "<="
    inside = meets(claim.needs, case)
    same = math.isclose(found.measured, kept["measured"], rel_tol=1e-6, abs_tol=1e-12)
    evidence = {"case": dict(case), "ratio": ratio(sense, found), "within_assumptions": inside}
    return found, evidence, inside and same and violates(sense, found, 1e-7)


def _untested(claim: Claim, budget: int) -> Evidence:
    return None, {}, True


_EVIDENCE: dict[str, Callable[[Claim, int], Evidence]] = {
    "holds": _holds,
    "loose": _loose,
    "misprint": _refuted,
    "gap": _gap,
    "vacuous": _vacuous,
    "refuted": _refuted,
    "untested": _untested,
}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
