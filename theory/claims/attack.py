"""An engine that tries to break a claim: random cases, then ascent on measured/claimed, then the smallest case."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.errors import HypothesisWarning, NoSuchExample
from scipy.optimize import minimize

from .ledger import Case, Check, Claim, Comparison, meets, ratio, violates


@dataclass(frozen=True)
class Attack:
    """What an attack came to.

    tried: cases within the assumptions. worst: the largest measured/claimed; case, found: where it was.
    broken: how many cases violate the claim.
    """

    tried: int = 0
    worst: float = -math.inf
    case: Case | None = None
    found: Comparison | None = None
    broken: int = 0

    def seen(self, sense: str, case: Case, found: Comparison) -> Attack:
        value = ratio(sense, found)
        beaten = value > self.worst
        return replace(
            self,
            tried=self.tried + 1,
            worst=value if beaten else self.worst,
            case=dict(case) if beaten else self.case,
            found=found if beaten else self.found,
            broken=self.broken + violates(sense, found),
        )


def attack(claim: Claim, check: Check | None = None, budget: int = 100, ascent: int = 60) -> Attack:
    """Try ``budget`` random cases, then climb from the worst for ``ascent`` steps.

    The draws are the same every time in the same sources; Hypothesis also tries the constants that it finds in
    whatever local modules are imported, so a change elsewhere may move them.
    """
    check = check or claim.check
    assert check is not None
    outcome = Attack()

    @settings(
        max_examples=budget,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(claim.cases)
    def look(case: Case) -> None:
        nonlocal outcome
        if meets(claim.needs, case):
            outcome = outcome.seen(claim.sense, case, check(case))

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", HypothesisWarning)
        look()
        return climb(claim, check, outcome, ascent)


def climb(claim: Claim, check: Check, outcome: Attack, steps: int) -> Attack:
    """Ascent of measured/claimed from the worst case found, by Nelder-Mead on the logarithms of its floats."""
    start = outcome.case
    if start is None or steps == 0 or claim.sense == "==":
        return outcome
    free = [k for k, v in start.items() if isinstance(v, float) and v != 0.0 and math.isfinite(v)]
    if not free:
        return outcome
    best = outcome

    def height(logs: np.ndarray) -> float:
        nonlocal best
        moved = {
            k: math.copysign(math.exp(min(max(x, -40.0), 40.0)), start[k]) for k, x in zip(free, logs, strict=True)
        }
        case = {**start, **moved}
        try:
            inside = meets(claim.needs, case)
            found = check(case) if inside else Comparison(math.nan, math.nan)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            inside = False
        if not inside:
            return math.inf
        best = best.seen(claim.sense, case, found)
        value = ratio(claim.sense, found)
        return -value if math.isfinite(value) else (math.inf if math.isnan(value) else -1e300)

    minimize(
        height,
        [math.log(abs(start[k])) for k in free],
        method="Nelder-Mead",
        options={"maxfev": steps, "initial_simplex": _simplex([math.log(abs(start[k])) for k in free])},
    )
    return best


def _simplex(point: list[float]) -> np.ndarray:
    corners = np.tile(point, (len(point) + 1, 1))
    corners[1:] += 0.3 * np.eye(len(point))
    return corners


def smallest(claim: Claim, check: Check | None = None, budget: int = 2000) -> Case | None:
    """The simplest case against the claim that shrinking finds, or None. Stored counterexamples come from here."""
    check = check or claim.accused
    assert check is not None

    def broken(case: Any) -> bool:
        return meets(claim.needs, case) and violates(claim.sense, check(case), 1e-6)

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", HypothesisWarning)
            return find(
                claim.cases,
                broken,
                settings=settings(
                    max_examples=budget,
                    derandomize=True,
                    database=None,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
    except NoSuchExample:
        return None
