"""The ledger: its engine finds what is planted, and every verdict is borne out by its evidence."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from hypothesis import strategies as st

from theory.claims import Claim, Comparison, audit, registry
from theory.claims import stored as files
from theory.claims.attack import attack, smallest
from theory.claims.audit import check
from theory.claims.ledger import VERDICTS, meets, ratio, violates
from theory.claims.report import markdown

CLAIMS = registry()


def planted(verdict: str = "holds", sense: str = "<=", **kwargs: object) -> Claim:
    """x <= 1 + x^2/4 for x in [0, 10]: true, and reached at x = 2."""

    def bound(case):
        """A planted claim."""
        return Comparison(case["x"], 1.0 + case["x"] ** 2 / 4)

    fields = {
        "id": "test/planted",
        "at": "here",
        "statement": "planted",
        "sense": sense,
        "verdict": verdict,
        "why": "",
        "check": bound,
        "cases": st.fixed_dictionaries({"x": st.floats(0, 10)}),
    }
    return Claim(**(fields | kwargs))


def broken(case):
    """The same with a bound that fails between 2 - sqrt(0.04) and 2 + sqrt(0.04)."""
    return Comparison(case["x"], 0.99 + case["x"] ** 2 / 4)


class TestEngine:
    def test_ascent_reaches_the_tight_point(self) -> None:
        outcome = attack(planted(), budget=20, ascent=80)
        assert outcome.broken == 0
        assert outcome.worst == pytest.approx(1.0, abs=1e-6)
        assert outcome.case["x"] == pytest.approx(2.0, abs=1e-2)

    def test_ascent_finds_a_narrow_violation_that_sampling_misses(self) -> None:
        claim = planted(check=broken, cases=st.fixed_dictionaries({"x": st.sampled_from([0.5, 4.0, 9.0])}))
        assert attack(claim, budget=30, ascent=0).broken == 0
        assert attack(claim, budget=30, ascent=80).broken > 0

    def test_found_cases_are_shrunk(self) -> None:
        def sums(case):
            """Fails from 7 on."""
            return Comparison(case["n"] + case["m"], 6.5)

        cases = st.fixed_dictionaries({"n": st.integers(0, 1000), "m": st.integers(0, 1000)})
        case = smallest(planted(check=sums, cases=cases))
        assert case is not None
        assert case["n"] + case["m"] == 7

    def test_assumptions_are_kept(self) -> None:
        claim = planted(check=broken, needs=("x < 1.5",))
        outcome = attack(claim, budget=60, ascent=60)
        assert outcome.broken == 0
        assert outcome.case["x"] < 1.5
        assert smallest(claim) is None
        assert not meets(("x < 1.5", "x > 0"), {"x": 1.6})

    def test_the_same_attack_every_time(self) -> None:
        assert attack(planted(), budget=30) == attack(planted(), budget=30)

    @pytest.mark.parametrize(
        ("sense", "measured", "claimed", "against"),
        [
            ("<=", 1.0, 1.0, False),
            ("<=", 1.1, 1.0, True),
            ("<=", 0.5, -0.5, True),
            ("<=", -2.0, -1.0, False),
            ("<=", -1.0, -2.0, True),
            ("<=", 0.0, 0.0, False),
            ("<=", 1e-30, 0.0, True),
            (">=", 1.0, 1.1, True),
            (">=", 1.1, 1.0, False),
            ("==", 1.0, 1.0 + 1e-12, False),
            ("==", 1.0, 1.1, True),
            ("rate", 5.0, 1.0, False),
        ],
    )
    def test_senses(self, sense: str, measured: float, claimed: float, against: bool) -> None:
        assert violates(sense, Comparison(measured, claimed)) == against
        if sense != "rate":
            assert (ratio(sense, Comparison(measured, claimed)) > 1 + 1e-9) == against


class TestVerdicts:
    """A verdict that its evidence does not bear out is noticed."""

    def test_a_false_holds(self) -> None:
        assert check(planted()).stands
        assert not check(planted(check=broken)).stands

    def test_a_refutation_without_a_case(self) -> None:
        assert not check(planted("refuted", check=broken)).stands

    def test_a_refutation_that_no_longer_reproduces(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(files, "FOLDER", tmp_path)
        claim = planted("refuted", check=broken)
        assert files.find_and_save(claim) is not None
        assert check(claim).stands
        mended = dataclasses.replace(claim, check=planted().check)
        row = check(mended)
        assert not row.stands
        assert row.lost

    def test_a_case_outside_the_assumptions(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(files, "FOLDER", tmp_path)
        claim = planted("refuted", check=broken)
        files.find_and_save(claim)
        assert not check(dataclasses.replace(claim, needs=("x > 5",))).stands

    def test_a_misprint_whose_repair_fails(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(files, "FOLDER", tmp_path)
        claim = planted("misprint", check=broken, repair="1", repaired=planted().check)
        files.find_and_save(claim)
        assert check(claim).stands
        assert not check(dataclasses.replace(claim, repaired=broken)).stands

    def test_a_gap_needs_a_broken_step_and_a_sound_claim(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(files, "FOLDER", tmp_path)
        claim = planted("gap", step=broken)
        files.find_and_save(claim)
        assert check(claim).stands
        assert not check(dataclasses.replace(claim, check=broken)).stands

    def test_slack_must_grow(self) -> None:
        path = tuple({"x": x} for x in (2.0, 10.0, 1000.0))
        assert check(planted("loose", path=path, slack_in="x")).stands
        assert not check(planted("loose", path=path[:2], slack_in="x")).stands

    @pytest.mark.parametrize(
        ("verdict", "power", "stands"),
        [("refuted", 2, True), ("refuted", 1, False), ("holds", 1, True), ("holds", 2, False)],
    )
    def test_rates_are_judged_by_growth(self, verdict: str, power: int, stands: bool) -> None:
        def rate(case):
            """Claimed: linear in T."""
            return Comparison(case["T"] ** power, 3 * case["T"])

        path = tuple({"T": T} for T in (10, 100, 1000))
        assert check(planted(verdict, "rate", check=rate, path=path)).stands == stands

    def test_vacuous_means_always(self) -> None:
        assert check(planted("vacuous", check=lambda case: Comparison(1.0, 0.0))).stands
        assert not check(planted("vacuous", check=broken)).stands

    def test_a_damaged_stored_case_is_one_line(self, tmp_path, monkeypatch) -> None:
        from nqm import InvalidInput

        monkeypatch.setattr(files, "FOLDER", tmp_path)
        claim = planted("refuted", check=broken)
        files.path(claim).parent.mkdir()
        files.path(claim).write_text("{")
        with pytest.raises(InvalidInput, match=r"planted.json: not a stored case"):
            check(claim)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
def test_every_verdict_is_borne_out(claim: Claim) -> None:
    row = check(claim)
    assert row.stands, row
    json.dumps(row.plain(), allow_nan=False)


def test_the_papers_are_covered() -> None:
    ours = [c for c in CLAIMS.values() if c.paper in ("cfl", "cfl22")]
    assert len(ours) >= 55
    assert {c.verdict for c in ours} <= set(VERDICTS)
    for claim in ours:
        assert re.fullmatch(r"(cfl|cfl22)/[a-zA-Z0-9.\-]+", claim.id)
        assert claim.why or claim.verdict == "holds"


def test_every_stored_case_belongs_to_a_claim() -> None:
    accused = [c for c in CLAIMS.values() if c.verdict in ("refuted", "misprint", "gap")]
    wanted = {files.path(c) for c in accused if c.verdict == "gap" or c.sense != "rate"}
    kept = set(files.FOLDER.rglob("*.json"))
    assert kept == wanted
    for path in kept:
        assert path.stat().st_size < 4096


def test_the_page_has_a_line_for_every_claim() -> None:
    rows = audit(list(CLAIMS.values()), budget=3)
    page = markdown(rows, "Audit", "driftproof audit")
    for row in rows:
        assert f"`{row.id}`" in page
