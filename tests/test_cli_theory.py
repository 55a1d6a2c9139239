"""`driftproof weights` and `driftproof audit`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import driftproof
from theory.claims import stored


def run(*words: str):
    return CliRunner().invoke(driftproof.app, list(words))


class TestWeights:
    def test_json(self) -> None:
        result = run("weights", "--rounds", "4", "--D2", "1", "--R2", "0.5", "--alpha", "0.8", "--json")
        value = json.loads(result.stdout)
        assert set(value) == {"weights", "value", "solver"}
        assert [round(p, 4) for p in value["weights"]] == [0.3870, 0.0774, -0.2077, 0.7434]  # Table 2, row 4

    @pytest.mark.parametrize("solver", ["closed", "dense", "cvxpy"])
    def test_solvers_agree(self, solver: str) -> None:
        words = ("--rounds", "6", "--D2", "2", "--R2", "1", "--overlap", "0.5", "--solver", solver, "--json")
        value = json.loads(run("weights", *words).stdout)
        assert value["solver"] == solver
        assert sum(value["weights"]) == pytest.approx(1)
        assert value["value"] == pytest.approx(0.5 + 1.5 * value["weights"][-1])

    def test_nonnegative(self) -> None:
        words = ("--rounds", "4", "--D2", "1", "--R2", "0.5", "--alpha", "0.8", "--nonnegative", "--json")
        assert min(json.loads(run("weights", *words).stdout)["weights"]) == 0

    def test_for_people(self) -> None:
        shown = run("weights", "--rounds", "40", "--D2", "1", "--R2", "0.5").stdout
        assert "30 more" in shown
        assert "Minimised value" in shown

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("--rounds", "0", "--D2", "1", "--R2", "1"), "weights.rounds = 0: must be a whole number >= 1"),
            (("--rounds", "3", "--D2", "x", "--R2", "1"), "'x': must be a number"),
            (("--rounds", "3", "--D2", "-1", "--R2", "1"), "weights.D2 = -1.0: must be a finite number >= 0"),
            (("--rounds", "3", "--D2", "0", "--R2", "0"), "weights.D2 = 0"),
            (("--rounds", "3", "--D2", "1", "--R2", "1", "--alpha", "1"), "weights.alpha = 1.0"),
            (("--rounds", "3", "--D2", "1", "--R2", "1", "--overlap", "2"), "overlap"),
            (("--rounds", "3", "--D2", "1", "--R2", "1", "--solver", "luck"), "weights.solver = 'luck'"),
        ],
    )
    def test_bad_input_is_one_line(self, words: tuple[str, ...], says: str) -> None:
        result = run("weights", *words)
        assert result.exit_code == 2
        assert says in result.stderr
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""


class TestAudit:
    def test_json_has_the_contract(self) -> None:
        result = run("audit", "cfl/thm-4.9", "cfl/lemma-a.4", "--json")
        rows = json.loads(result.stdout)
        assert result.exit_code == 0
        assert {row["id"] for row in rows} == {"cfl/thm-4.9", "cfl/lemma-a.4"}
        for row in rows:
            assert {"id", "paper", "verdict", "measured", "claimed", "evidence", "repair"} <= set(row)

    def test_one_claim_in_full(self, tmp_path) -> None:
        page = tmp_path / "page.md"
        result = run("audit", "cfl/lemma-a.4", "--out", str(page))
        assert result.exit_code == 0
        assert "refuted" in result.stdout
        assert "Repair" in result.stdout
        assert "`cfl/lemma-a.4`" in page.read_text(encoding="utf-8")

    def test_a_counterexample_that_no_longer_reproduces(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(stored, "FOLDER", tmp_path)
        result = run("audit", "cfl/lemma-a.4")
        assert result.exit_code == 1
        assert "no longer bears out" in result.stdout

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("cfl/thm-9",), "claim = 'cfl/thm-9': no such claim"),
            (("--paper", "bible"), "paper = 'bible': must be one of cfl, cfl22"),
        ],
    )
    def test_unknown_names(self, words: tuple[str, ...], says: str) -> None:
        result = run("audit", *words)
        assert result.exit_code == 2
        assert says in result.stderr
