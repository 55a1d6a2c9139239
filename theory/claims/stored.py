"""Counterexamples as small JSON files, one a claim, that a test re-checks in under a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nqm.check import InvalidInput
from nqm.result import writing

from .attack import smallest
from .ledger import Case, Claim

FOLDER = Path(__file__).parent / "cases"


def path(claim: Claim) -> Path:
    paper, name = claim.id.split("/", 1)
    return FOLDER / paper / f"{name.replace('/', '-')}.json"


def load(claim: Claim) -> dict[str, Any] | None:
    """The stored counterexample: its case, and the numbers it gave when it was stored."""
    file = path(claim)
    if not file.is_file():
        return None
    try:
        stored: dict[str, Any] = json.loads(file.read_text())
        stored["case"], stored["measured"], stored["claimed"]
    except (ValueError, KeyError) as error:
        raise InvalidInput(f"{file.name}: not a stored case ({error})") from None
    return stored


def save(claim: Claim, case: Case) -> Path:
    """Store a case against a claim, with its numbers."""
    check = claim.accused
    assert check is not None
    found = check(case)
    content = {"id": claim.id, "case": dict(case), "measured": float(found.measured), "claimed": float(found.claimed)}
    with writing(path(claim)) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")
    return path(claim)


def find_and_save(claim: Claim) -> Path | None:
    """Search for the smallest case against a claim and store it; None if none was found."""
    case = smallest(claim)
    return None if case is None else save(claim, case)
