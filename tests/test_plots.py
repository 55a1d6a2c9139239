"""Figures, tables and the gallery: what is registered, what is drawn, what lies in the folder afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import driftproof
import nqm
from plots import cfl_figure2, cfl_table3, gallery, registry
from plots.cfl_conclusions import (
    better_and_smoother,
    conclude,
    loss_is_worse,
    roughness,
    tolerates_higher_rates,
)
from plots.cfl_nqm import CHOICES, METHODS, SETTINGS, Choices, experiment
from plots.style import LOOKS, styled
from theory import rates

SMALL = Choices(dim=6, clients=5, local_steps=3, rounds=12, paths=4)

# Table 3 as printed: settings across, the first four with small round drift.
PRINTED = """
FedAvg  0.03 0.08 0.33 0.09   0.02 0.01 0.09 0.02
FedProx 0.04 0.07 0.35 0.09   0.02 0.01 0.26 0.02
CFL     0.2  0.09 0.35 0.09   0.25 0.08 0.3  0.08
"""


@pytest.fixture(scope="module")
def figure_2():
    return cfl_figure2.figure_2(choices=SMALL)


@pytest.fixture(scope="module")
def table_3():
    return cfl_table3.table_3(choices=SMALL)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """The folder that ``driftproof reproduce`` leaves of cfl, at full size, and what it printed.

    The figures of the other papers are made at reduced size by tests of their own.
    """
    out = tmp_path_factory.mktemp("reproduced") / "out"
    everything = registry.entries
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entries", lambda kind: [e for e in everything(kind) if e.id.startswith("cfl/")])
        result = CliRunner().invoke(driftproof.app, ["reproduce", "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out, result


class TestRegistry:
    def test_ids(self):
        figures = {
            "cfl": {"fig-2", "table-3", "weights", "weights-value", "weights-solvers", "weights-simulated"},
            "fedeve": {"fig-2a", "fig-3", "fig-4"},
            "special": {"fig-2", "fig-3", "fig-4", "lemma-4.9"},
            "cflag": {"fig-3", "fig-4", "fig-5"},
            "tight": {"contraction"},
            "rates": {"summary", *rates.registry()},
        }
        found = [e.id for e in registry.find("figure")]
        assert len(found) == len(set(found))
        for paper, names in figures.items():
            assert {id.removeprefix(f"{paper}/") for id in found if id.startswith(f"{paper}/")} == names
        tables = {"cfl/table-3", "cfl/table-2", "special/table-13", "tight/slack"}
        assert {e.id for e in registry.find("table")} == tables

    @pytest.mark.parametrize("kind", ["figure", "table"])
    def test_entries_say_what_they_are(self, kind):
        for entry in registry.find(kind):
            assert all([entry.paper, entry.title, entry.expected, entry.runtime])
            assert entry.command == f"driftproof {kind}s {entry.id}"

    def test_asked_for_twice_is_made_once(self):
        assert len(registry.find("figure", ["cfl/fig-2", "cfl/fig-2"])) == 1

    @pytest.mark.parametrize(
        ("id", "hint"), [("cfl/fig-22", "did you mean cfl/fig-2"), ("x", "cfl/fig-2, cfl/table-3")]
    )
    def test_unknown_id_is_one_line(self, id, hint):
        with pytest.raises(nqm.InvalidInput, match=hint) as caught:
            registry.find("figure", [id])
        assert "\n" not in str(caught.value)

    def test_listing_imports_no_matplotlib(self):
        code = (
            "import sys; from plots import registry, gallery; registry.find('figure')\n"
            "assert 'matplotlib' not in sys.modules and 'numba' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(driftproof.__file__).parent)


class TestSettings:
    def test_the_eight_of_the_paper(self):
        assert [s.name for s in SETTINGS] == [
            f"{drift} {shape}" for drift in ("SRD", "BRD") for shape in ("SL-SC", "LL-SC", "SL-GC", "LL-GC")
        ]
        for s in SETTINGS:
            assert s.time == (0.01 if "SRD" in s.name else 100.0)
            assert (5.0 if "SL" in s.name else 20.0) == s.L
            assert s.mu == (1.0 if "SC" in s.name else 0.0)

    @pytest.mark.parametrize("method", METHODS)
    def test_experiments(self, method):
        e = experiment(SETTINGS[4], method)
        assert (e.drift.client, e.drift.time, e.drift.noise) == (0.01, 100.0, 1e-5)
        assert (e.problem.dim, e.federation.clients, e.federation.local_steps) == (50, 100, 10)
        loss = float(method.split("-")[1]) if "-" in method else 0.0
        assert (e.drift.loss_mean, e.drift.loss_var) == (loss, loss / 1000)
        if method.startswith("CFL"):
            row = e.method.weights_for(500).row(7)
            D2, R2 = 100.0, 50 * (loss**2 + loss / 1000)
            np.testing.assert_allclose(row[:-1], D2 / (7 * D2 + 6 * R2))
            assert row.sum() == pytest.approx(1.0)
        else:
            assert not e.method.weights_for(500).remembers

    def test_the_papers_values(self):
        printed = {name: tuple(map(float, rates)) for name, *rates in map(str.split, PRINTED.strip().splitlines())}
        assert printed == cfl_table3.PAPER
        assert sum(map(len, cfl_table3.PAPER.values())) == 24

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("setting", SETTINGS[:4], ids=lambda s: s.name)
    def test_stability_limit(self, setting, method):
        e = experiment(setting, method)
        limit = nqm.stability_limit(e.problem, e.federation, e.method)
        top = e.problem.eigenvalues.max() + (CHOICES.prox if method == "FedProx" else 0.0)
        assert limit == pytest.approx(2 / top, rel=1e-12)
        still = nqm.Drift()
        below, above = nqm.expect(
            e.problem, still, e.federation, e.method, lr=[0.999 * limit, 1.001 * limit], norm=False
        )["grad_norm_sq"].values
        assert below[-1] < below[-2] < below[-3]
        assert above[-1] > above[-2] > above[-3]


def _panel(plateau=(0.1, 0.1, 0.1), score=(1.0, 1.0, 1.0, 1.0, 1.0), rough=(1.0, 1.0, 1.0)):
    panel = {m: {"score": s} for m, s in zip(METHODS, score, strict=True)}
    for m, high, r in zip(METHODS, plateau, rough, strict=False):
        panel[m] |= {"plateau": [0.01, high], "roughness": r}
    return panel


class TestConclusions:
    @pytest.mark.parametrize(
        ("uppers", "verdict"),
        [
            ((0.1, 0.1, 0.12), "supported"),
            ((0.1, 0.11, 0.12), "tie"),  # 10 % above one of the two is not enough
            ((0.1, 0.1, 0.1), "tie"),
            ((0.1, 0.1, 0.089), "contrary"),
            ((0.05, 0.2, 0.1), "contrary"),
        ],
    )
    def test_higher_rates(self, uppers, verdict):
        assert tolerates_higher_rates(_panel(plateau=uppers))[0] == verdict

    @pytest.mark.parametrize(
        ("score", "rough", "verdict", "words"),
        [
            ((1.0, 1.0, 0.94), (1.0, 1.0, 0.9), "supported", "better, smoother"),
            ((1.0, 0.96, 0.94), (1.0, 1.0, 0.9), "not supported", "not better, smoother"),
            ((1.0, 1.0, 0.94), (1.0, 0.8, 0.9), "not supported", "better, not smoother"),
        ],
    )
    def test_better_and_smoother(self, score, rough, verdict, words):
        judged = better_and_smoother(_panel(score=(*score, 1.0, 1.0), rough=rough))
        assert judged[0] == verdict
        assert judged[1].startswith(words)

    @pytest.mark.parametrize(
        ("score", "verdict"),
        [
            ((1.0, 1.0, 1.02), "supported"),
            ((1.0, 1.0, 1.005), "not supported"),
            ((1.0, 1.1, 1.05), "not supported"),
        ],
    )
    def test_loss_is_worse(self, score, verdict):
        assert loss_is_worse(_panel(score=(1.0, 1.0, *score)))[0] == verdict

    def test_counts(self):
        panels = {"a": _panel(plateau=(0.1, 0.1, 0.2)), "b": _panel()}
        higher, *_ = conclude(panels)
        assert (higher["supported"], higher["of"]) == (1, 2)
        assert [p["verdict"] for p in higher["panels"]] == ["supported", "tie"]

    def test_roughness_of_a_known_path(self):
        t = np.arange(21)
        zigzag = np.exp(0.3 * (t % 2))
        assert roughness(zigzag[None]) == pytest.approx(0.3)
        steady = np.exp(-0.1 * t)  # a steady fall is smooth, however steep
        assert roughness(np.stack([steady, steady, zigzag])) == pytest.approx(0.0, abs=1e-12)
        steady[-1] = np.inf
        assert roughness(steady[None]) == np.inf

    def test_only_the_last_half_counts(self):
        t = np.arange(41)
        path = np.where(t < 20, np.exp(0.5 * (t % 2)), 1.0)
        assert roughness(path[None]) == pytest.approx(0.0, abs=1e-12)


class TestFigure2:
    def test_data(self, figure_2):
        assert figure_2.sizes == {"setting": 8, "method": 5, "round": 13, "seed": 3}
        assert np.isfinite(figure_2["grad_norm"]).all()
        gap = figure_2["grad_norm_sq"] - figure_2["grad_norm"] ** 2
        np.testing.assert_allclose(figure_2["grad_norm_std"] ** 2, np.maximum(gap, 0))
        start = figure_2["path_grad_norm"].isel(round=0)
        np.testing.assert_allclose(start, figure_2["grad_norm"].isel(round=0).broadcast_like(start))

    def test_panels(self, figure_2):
        with styled():
            drawn = cfl_figure2.draw(figure_2)
        assert [panel.get_title(loc="left") for panel in drawn.axes] == [s.name for s in SETTINGS]
        assert all(panel.get_yscale() == "log" for panel in drawn.axes)
        assert [t.get_text() for t in drawn.legends[0].get_texts()][:5] == list(METHODS)
        told = drawn.get_supxlabel()
        for choice in (
            "chosen by us",
            "n = 6",
            "N = 5",
            "K = 3",
            "T = 12",
            "w₀ = 0",
            "midpoint",
            "b ~",
            "FedProx",
        ):
            assert choice in told

    def test_diverged_curves_are_named_and_never_nan(self, figure_2):
        data = figure_2.copy(deep=True)
        for name in ("grad_norm", "grad_norm_sq", "grad_norm_std"):
            data[name][2, 0, 5:] = np.inf
        data["path_grad_norm"][2, 0, :, 6:] = np.inf
        data["diverged_at"][2, 0] = 5
        with styled():
            drawn = cfl_figure2.draw(data)
        assert [t.get_text() for t in drawn.axes[2].texts] == ["FedAvg diverges at round 5"]
        for line in drawn.axes[2].lines:
            assert np.isfinite(line.get_ydata()).all()
        assert np.isfinite(drawn.axes[2].get_ylim()).all()

    def test_looks_differ_in_grey(self):
        assert len({(str(k.dashes), k.marker) for k in LOOKS.values()}) == len(METHODS)
        assert list(LOOKS) == list(METHODS)


class TestTable3:
    def test_is_json(self, table_3):
        assert json.loads(json.dumps(table_3, allow_nan=False)) == table_3
        assert len(table_3["entries"]) == 40
        assert sum(e["paper"] is not None for e in table_3["entries"]) == 24
        for e in table_3["entries"]:
            assert e["plateau"][0] <= e["best"] <= e["plateau"][1]

    def test_layout(self, table_3):
        grid = cfl_table3.layout(table_3)
        assert list(grid.header) == ["Setting", *METHODS]
        assert [len(row) for row in grid.rows] == [6] * 8
        assert "paper 0.03" in grid.rows[0][1]
        assert "paper" not in grid.rows[0][5]
        sentences = [sentence for sentence, _ in grid.notes]
        assert sum(s.startswith("Conclusion") for s in sentences) == 3

    def test_files(self, tmp_path, monkeypatch):
        entry = registry.find("figure", ["cfl/table-3"])[0]
        monkeypatch.setattr(cfl_table3.table_3_drawn, "__defaults__", (registry.quiet, SMALL))
        first = registry.draw(entry, tmp_path / "one")
        again = registry.draw(entry, tmp_path / "two")
        assert [p.suffix for p in first] == [".nc", ".png", ".pdf"]
        for a, b in zip(first[1:], again[1:], strict=True):
            assert a.read_bytes() == b.read_bytes()
        data = nqm.load(first[0])
        assert np.isnan(data["paper"].sel({"method": "CFL-0.01"})).all()
        assert not list(tmp_path.rglob(".*"))


class Links(HTMLParser):
    """Everything that a page points to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.anchors: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("href", "src") and value]
        self.anchors += [value for name, value in attrs if name == "id" and value]


class TestReproduce:
    def test_files(self, reproduced):
        out, _ = reproduced
        for name in (e.id for e in registry.find("figure") if e.id.startswith("cfl/")):
            for suffix, magic in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".nc", b"\x89HDF")):
                assert (out / f"{name}{suffix}").read_bytes().startswith(magic)
        assert nqm.load(out / "cfl/fig-2.nc").sizes["round"] == CHOICES.rounds + 1

    def test_figure_2_can_be_redrawn_from_its_file(self, reproduced):
        out, _ = reproduced
        with styled():
            cfl_figure2.draw(nqm.load(out / "cfl/fig-2.nc"))

    def test_sample_paths_scatter_about_the_expectation(self, reproduced):
        data = nqm.load(reproduced[0] / "cfl/fig-2.nc")
        # z-scores of three paths at the end of every curve; the norm of 50 numbers is close to Gaussian
        end = data.isel(round=-1)
        z = (end["path_grad_norm"] - end["grad_norm"]) / end["grad_norm_std"]
        assert np.abs(z).max() < 5
        assert 0.5 < float(np.sqrt((z**2).mean())) < 1.6

    def test_gallery_links_resolve(self, reproduced):
        out, _ = reproduced
        page = Links(out / "index.html")
        assert len(page.found) > 10
        for link in page.found:
            if link.startswith("#"):
                assert link[1:] in page.anchors
            else:
                assert not link.startswith(("/", "http"))
                assert (out / link).stat().st_size > 0

    def test_gallery_tells_commands_captions_and_values(self, reproduced):
        text = (reproduced[0] / "index.html").read_text(encoding="utf-8")
        for word in (
            "driftproof figures cfl/fig-2",
            "driftproof tables cfl/table-3",
            "paper 0.33",
            "Conclusion 3",
        ):
            assert word in text
        assert cfl_figure2.CAPTION.split(":")[0] in text

    def test_prints_the_table_and_the_conclusions(self, reproduced):
        _, result = reproduced
        assert result.stderr == ""
        printed = " ".join(result.stdout.split())
        assert printed.count("paper 0.") == 24
        assert "…" not in printed  # nothing is cut off in 80 columns
        for number in (1, 2, 3):
            assert f"Conclusion {number}." in printed

    def test_conclusions_stand(self, reproduced):
        """The verdicts by the stated criteria. A change here is a change of result."""
        data = json.loads((reproduced[0] / "cfl/table-3.json").read_text(encoding="utf-8"))
        assert {c["id"]: c["supported"] for c in data["conclusions"]} == {
            "higher-rates": 5,
            "better-smoother": 8,
            "loss-is-worse": 8,
        }
        assert sum(bool(e["paper_in_plateau"]) for e in data["entries"]) == 16

    def test_tables_command_gives_the_same_json(self, reproduced):
        result = CliRunner().invoke(driftproof.app, ["tables", "cfl/table-3", "--json"])
        stored = json.loads((reproduced[0] / "cfl/table-3.json").read_text(encoding="utf-8"))
        assert json.loads(result.stdout) == {"cfl/table-3": stored}

    def test_list(self):
        assert "cfl/fig-2" in CliRunner().invoke(driftproof.app, ["figures", "--list"]).stdout
        listed = CliRunner().invoke(driftproof.app, ["tables", "--list", "--json"]).stdout
        assert [entry["id"] for entry in json.loads(listed)] == [e.id for e in registry.find("table")]

    def test_damaged_table_is_one_line(self, tmp_path):
        (tmp_path / "cfl").mkdir()
        (tmp_path / "cfl" / "table-3.json").write_text("{")
        with pytest.raises(nqm.InvalidInput, match=r"table-3\.json: not a readable table"):
            gallery.write(tmp_path)
