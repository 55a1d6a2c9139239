"""Figures and table of `special` on the model: made at reduced size, their data in their limits, captions true."""

from __future__ import annotations

import dataclasses
import json
import math
from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import nqm
from nqm.transfer import backward_transfer, forgetting, loss_matrix
from plots import registry, special_figure2, special_figure3, special_figure4, special_lemma49, special_table13
from plots.special_nqm import (
    SERVER_PROX,
    SHIFTS,
    Choices,
    across,
    dips,
    exact,
    falls,
    least_loss,
    matched,
    problem,
    rate,
    rises,
)
from plots.style import styled
from theory.bounds.special import drift as radius

SMALL = Choices(clients=4, sampled=2, local_steps=3, rounds=12, tasks=3, dim=4, paths=20)
QUIET = dataclasses.replace(SMALL, client=0.0, noise=0.0)
FIGURES = {
    "special/fig-2": (special_figure2, special_figure2.figure_2),
    "special/fig-3": (special_figure3, special_figure3.figure_3),
    "special/fig-4": (special_figure4, special_figure4.figure_4),
    "special/lemma-4.9": (special_lemma49, special_lemma49.lemma_4_9),
}
# Table 13 as printed.
PRINTED = """
ACC 47.89 50.26 46.73 45.37 42.77 38.01
BWT -10.45 -8.81 -6.22 -2.54 -1.34 2.56
"""


@pytest.fixture(scope="module")
def made():
    return {id: measure(choices=SMALL) for id, (_, measure) in FIGURES.items()}


@pytest.fixture(scope="module")
def table():
    return special_table13.table_13(choices=SMALL)


class TestMade:
    def test_registered(self):
        assert set(FIGURES) <= {e.id for e in registry.find("figure")}
        assert "special/table-13" in {e.id for e in registry.find("table")}
        for entry in registry.find("figure", FIGURES) + registry.find("table", ["special/table-13"]):
            assert entry.paper == "special"

    @pytest.mark.parametrize("id", FIGURES)
    def test_what_is_stored_is_all_that_is_drawn(self, made, id, tmp_path):
        nqm.save(made[id], tmp_path / "a.nc")
        data = nqm.load(tmp_path / "a.nc")
        (entry,) = registry.find("figure", [id])
        with styled():
            drawn = entry.show(data)
            pdf = BytesIO()
            drawn.savefig(pdf, format="pdf")
        assert pdf.getvalue().startswith(b"%PDF")
        for panel in drawn.axes:
            labelled = [p for p in drawn.axes if p.get_subplotspec().colspan == panel.get_subplotspec().colspan]
            assert any(p.get_xlabel() for p in labelled)
        assert any(p.get_ylabel() for p in drawn.axes)
        assert data.attrs["id"] == id
        assert data.attrs["ours"].startswith("The settings are ours")

    def test_every_variable_says_what_it_is(self, made):
        for data in made.values():
            for name in data:
                assert data[name].attrs["long_name"], name
                assert np.isfinite(data[name]).all(), name

    def test_table(self, table):
        assert json.loads(json.dumps(table)) == table
        grid = special_table13.layout(table)
        assert len(grid.rows) == 1 + len(SHIFTS)
        assert {len(row) for row in grid.rows} == {len(grid.header)} == {7}
        assert "Different units" in grid.notes[0][0]

    def test_the_papers_values(self, table):
        printed = {name: list(map(float, x)) for name, *x in map(str.split, PRINTED.strip().splitlines())}
        assert printed == table["paper"]
        # what the notes say of them
        assert rises(printed["BWT"])
        assert np.argmax(printed["ACC"]) == 1
        assert falls(printed["ACC"][1:])


class TestUnits:
    @pytest.mark.parametrize("shift", SHIFTS)
    def test_least_loss_by_brute_force(self, shift):
        tasks = problem(SMALL, shift).sequence(SMALL.tasks)

        def average(w):
            return np.mean([0.5 * (w - t.optimum) @ t.A @ (w - t.optimum) for t in tasks])

        assert least_loss(SMALL, shift) == pytest.approx(minimize(average, np.zeros(SMALL.dim)).fun, rel=1e-6)

    def test_no_model_is_better(self, made, table):
        assert made["special/fig-2"]["loss"].sel(judge="union").min() >= 1
        assert made["special/fig-2"]["low"].sel(judge="union").min() >= 1
        assert made["special/fig-3"]["average_loss"].min() >= 1
        for name in special_figure4.LABELS:
            assert made["special/fig-4"][f"average_loss_by_{name}"].min() >= 1
        assert min(min(one["average_loss"]) for one in table["model"]) >= 1

    def test_scores_follow_their_definition(self, made):
        lr, shift = rate(SMALL), SHIFTS[2]
        A = loss_matrix(exact(SMALL, shift, nqm.Special(lr, prox=0.4))).values / least_loss(SMALL, shift)
        K = SMALL.tasks
        of = made["special/fig-3"].sel(shift=shift, prox=0.4)
        assert float(of["average_loss"]) == pytest.approx(sum(A[K - 1]) / K)
        assert float(of["backward_transfer"]) == pytest.approx(
            sum(A[j, j] - A[K - 1, j] for j in range(K - 1)) / (K - 1)
        )

    @pytest.mark.parametrize("task", [2, 3])
    def test_matched_weights_rest_at_the_same_place(self, task):
        """How far a task has moved when it rests, by either side: equal to first order in the rate."""

        def apart(lr):
            one = dataclasses.replace(QUIET, tasks=task, rounds=200)
            server = nqm.Special(lr, prox=SERVER_PROX)
            client = nqm.SpecialC(lr, prox=matched(SERVER_PROX, one, task))
            moved = [_rest(one, m, task) for m in (server, client)]
            return abs(moved[0] / moved[1] - 1.0)

        assert apart(1e-3) < 0.05
        assert apart(1e-4) == pytest.approx(apart(1e-3) / 10, rel=0.2)


def _rest(choices, method, task):
    """||w - anchor||^2 at rest in ``task``, begun at the same place for every method."""
    p = problem(choices, 16.0)
    last = p.sequence(2)[1]
    fed = nqm.Federation(clients=1, local_steps=choices.local_steps, rounds=choices.rounds, tasks=task)
    # All tasks but the last have their optimum at the start, so that nothing moves before the last one.
    tables = [{"b": tuple(np.zeros(p.dim))}] * (task - 1) + [{"b": tuple(last.from_eigen(last.b_eigen))}]
    still = dataclasses.replace(p, task_shift=0.0, tasks=tuple(tables))
    return float(nqm.expect(still, nqm.Drift(), fed, method, norm=False)["moved_sq"].isel(task=-1, round=-1))


class TestLimits:
    @pytest.mark.parametrize("method", [nqm.Special, nqm.SpecialC])
    def test_no_anchor_is_fedavg(self, method):
        ours = exact(SMALL, 4.0, method(0.01, prox=0.0, decay=False))
        fedavg = exact(SMALL, 4.0, nqm.FedAvg(0.01))
        for name in ("loss_of_task", "moved_sq"):
            np.testing.assert_allclose(ours[name], fedavg[name], rtol=1e-10, atol=1e-14)

    @pytest.mark.parametrize("method", [nqm.Special, nqm.SpecialC])
    def test_an_infinite_weight_freezes_the_model(self, method):
        run = exact(SMALL, 4.0, method(0.01, prox=1e9))
        assert run["moved_sq"].sel(task=[2, 3]).max() < 1e-12
        A = loss_matrix(run).values
        np.testing.assert_allclose(A[1:], A[[0, 0]], rtol=1e-6)
        assert abs(float(backward_transfer(run))) < 1e-6

    @pytest.mark.parametrize("prox", [0.0, 0.05, 0.25, 1.0])
    @pytest.mark.parametrize("method", [nqm.Special, nqm.SpecialC])
    def test_equal_tasks_are_not_forgotten(self, method, prox):
        """Without noise every round on the same task makes all of them better, so nothing is lost."""
        run = exact(QUIET, 0.0, method(0.01, prox=prox))
        assert float(backward_transfer(run)) > 0
        assert float(forgetting(run)) == pytest.approx(0.0, abs=1e-14)

    def test_exact_curves_lie_amid_simulated_runs(self):
        """Figure 2's line against the mean of 1000 runs of its band, seeds 0 to 999."""
        many = dataclasses.replace(SMALL, tasks=2)
        method = special_figure2.variants(many)[special_figure2.SERVER]
        parts = problem(many, 4.0), nqm.Drift(client=many.client, noise=many.noise)
        fed = nqm.Federation(clients=4, sampled=2, local_steps=3, rounds=12, tasks=2)
        runs = special_figure2._judged(nqm.simulate(*parts, fed, method, seeds=1000, engine="collapsed"), 1.0)
        line = special_figure2._judged(exact(many, 4.0, method), 1.0)
        z = (runs.mean(axis=-1) - line) / (runs.std(axis=-1, ddof=1) / math.sqrt(1000))
        assert np.abs(z).max() < 4
        assert math.sqrt(np.mean(z**2)) < 1.7  # neighbouring rounds share most of their draws


class TestLemma:
    def test_drift_within_its_bound(self, made):
        data = made["special/lemma-4.9"]
        assert (data["largest"] <= data["bound_of_T"] * (1 + special_lemma49.ROUNDING)).all()
        assert (data["mean"] <= data["largest"] * (1 + 1e-12)).all()
        np.testing.assert_allclose(
            data["bound"], (rate(SMALL) * SMALL.local_steps * data["B"] / data["prox"]) ** 2, rtol=1e-12
        )

    def test_constant_gradients_attain_it(self, made):
        at = made["special/lemma-4.9"].sel(world="gradients at their bound")
        np.testing.assert_allclose(at["mean"], at["bound_of_T"], rtol=special_lemma49.ROUNDING)
        np.testing.assert_allclose(at["longest_gradient"], at["B"], rtol=1e-12)

    @given(
        cut=st.floats(0.01, 20.0),
        client=st.floats(0.0, 10.0),
        noise=st.sampled_from([0.0, 0.1, 5.0]),
        shift=st.floats(0.1, 1000.0),
        prox=st.floats(0.001, 50.0),
        lr=st.floats(1e-4, 0.5),
        server_lr=st.floats(0.1, 3.0),
        steps=st.integers(1, 4),
    )
    @settings(max_examples=25, deadline=None)
    def test_every_path_and_round(self, cut, client, noise, shift, prox, lr, server_lr, steps):
        """Bounded gradients and any step sizes, unstable ones too: no run leaves the radius of its round."""
        bent = nqm.Quadratic(dim=3, mu=0.5, L=20.0, task_shift=shift, gradient_bound=cut)
        drift = nqm.Drift(client=client, noise=noise)
        fed = nqm.Federation(clients=3, sampled=2, local_steps=steps, rounds=6, tasks=3)
        method = nqm.Special(lr, prox=prox, server_lr=server_lr, decay=False)
        run = nqm.simulate(bent, drift, fed, method, seeds=3).sel(task=[2, 3])
        moved = np.sqrt(run["moved_sq"])
        rounding = 100 * np.finfo(float).eps * (1 + math.sqrt(run["distance_sq"].max()))  # of w itself
        for t in range(1, 7):
            bound = radius(lr, server_lr, steps, cut + math.sqrt(noise), prox, t)
            assert float(moved.sel(round=t).max()) <= bound * (1 + 1e-12) + rounding

    def test_the_gradient_bound_is_met_and_sharp(self):
        """In one dimension a cut gradient and its noise add up, so that B = cut + sigma is seen and never exceeded."""
        line = dataclasses.replace(SMALL, dim=1, mu=1.0, L=1.0)
        for world in (
            special_lemma49.World(cut=0.1, client=1.0, noise=4.0, shift=400.0),
            special_lemma49.World(2.0, 1.0, 0.0, 9.0),
        ):
            seen = special_lemma49.longest_gradient(world, line)
            assert seen <= world.B * (1 + 1e-9)
            if world.noise:
                assert seen == pytest.approx(world.B, rel=1e-9)

    def test_without_a_cut_gradients_are_not_bounded(self, made):
        """The same tasks with a cut a hundred times as high: the bound of the lower cut no longer holds."""
        low = special_lemma49.WORLDS["gradients at their bound"]
        high = low._replace(cut=100 * low.cut)
        assert special_lemma49.longest_gradient(high, SMALL) > low.B


class TestWords:
    @given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8))
    def test_shapes_by_their_definition(self, x):
        pairs = list(pairwise(x))
        assert falls(x) == all(b < a for a, b in pairs)
        assert rises(x) == all(b > a for a, b in pairs)
        u = any(all(b < a for a, b in pairs[:k]) and all(b > a for a, b in pairs[k:]) for k in range(1, len(pairs)))
        assert dips(x) == u

    @given(st.lists(st.booleans(), min_size=1, max_size=4))
    def test_seen_means_everywhere(self, seen):
        by = {f"setting {k}": yes for k, yes in enumerate(seen)}
        found = across("something", by)
        assert found.seen == all(seen)
        assert (found.numbers == "nowhere") == (not any(seen))
        if not found.seen:
            assert [name for name in by if name in found.numbers] == [name for name, yes in by.items() if yes]

    @pytest.mark.parametrize("id", FIGURES)
    def test_captions_are_the_findings_of_their_data(self, made, id):
        module, data = FIGURES[id][0], made[id]
        text = data.attrs["caption"]
        stored = json.loads(data.attrs["observations"])
        assert len(stored) == len(module.FINDINGS)
        for judge, row in zip(module.FINDINGS, stored, strict=True):
            found = judge(data)
            assert row["seen"] == found.seen
            heading = max(
                ("seen on the model: ", "Not seen: "), key=lambda h: text.rfind(h, 0, text.index(found.statement))
            )
            assert found.seen == (heading != "Not seen: ")
            assert f"{found.statement} ({found.numbers})" in text
        if hasattr(module, "closing"):
            assert text.endswith(module.closing(data))

    @pytest.mark.parametrize(
        "judge",
        [
            special_figure2.learns_task_2_slowly,
            special_figure2.ends_better_on_task_2,
            special_figure2.ends_better_on_both,
        ],
    )
    def test_figure_2_turned_round(self, made, judge):
        """The same curves with the two sides swapped: what was said of one is true of neither or of the other."""
        data = made["special/fig-2"]
        sides = [special_figure2.CLIENT, special_figure2.SERVER]
        swapped = data.copy(deep=True)
        swapped["loss"].loc[{"variant": sides}] = data["loss"].sel(variant=sides[::-1]).values
        assert judge(data).seen
        assert judge(swapped) == (judge(data).statement, False, "nowhere")

    def test_figure_2_by_hand(self, made):
        data = made["special/fig-2"].copy(deep=True)
        falling = np.linspace(3.0, 2.0, data.sizes["round"])
        data["loss"][:] = falling
        assert special_figure2.task_1_recovers(data).seen
        assert not special_figure2.keeps_task_1(data).seen
        data["loss"].loc[{"variant": special_figure2.CLIENT, "judge": "task 1"}] = falling - 1.0
        assert special_figure2.keeps_task_1(data).seen
        assert not special_figure2.forgets_no_more(data).seen
        data["loss"][:] = falling[::-1]
        assert not special_figure2.task_1_recovers(data).seen

    def test_figure_3_by_hand(self, made):
        data = made["special/fig-3"].copy(deep=True)
        size = data.sizes["prox"]
        data["average_loss"][:] = 2.0 - 0.01 * np.arange(size)
        data["backward_transfer"][:] = np.arange(size)
        found = [judge(data).seen for judge in special_figure3.FINDINGS]
        assert found == [True, False, False]
        data["average_loss"][:] = (np.log(data["prox"] + 0.01) - np.log(0.3)) ** 2
        data["backward_transfer"][:] = -np.arange(size)
        found = [judge(data).seen for judge in special_figure3.FINDINGS]
        assert found == [False, True, False]

    def test_figure_4_by_hand(self, made):
        data = made["special/fig-4"].copy(deep=True)
        data["backward_transfer_by_rounds"][:] = (data["rounds"] - 6.5) ** 2
        data["backward_transfer_by_local_steps"][:] = data["local_steps"]
        data["average_loss_by_rounds"][:] = 2.0
        data["average_loss_by_local_steps"][:] = -1.0 * data["local_steps"]  # falls, but never by less
        data["average_loss_by_client"][:] = -1.0 * data["client"]
        data["average_loss_by_slope"][:] = 2.0
        found = [judge(data).seen for judge in special_figure4.FINDINGS]
        assert found == [False, True, False, False, False, False]
        data["average_loss_by_local_steps"][:] = 1.0 / data["local_steps"]
        data["average_loss_by_slope"][:, -1] += 4 * data["rise_error"]
        assert special_figure4.loss_falls_with_steps(data).seen
        assert special_figure4.curvature_hurts(data).seen

    def test_lemma_with_a_run_too_far(self, made):
        data = made["special/lemma-4.9"].copy(deep=True)
        data["largest"][0, 3] = 1.01 * data["bound"][0, 3]
        assert special_lemma49.stays_within(data)[1:] == (False, "not in every setting, but with right")
        data["mean"][:] = 1.0 / data["prox"]
        assert special_lemma49.anchor_suppresses_drift(data).seen
        assert not special_lemma49.falls_like_the_bound(data).seen
        data["first_task"][:] = 0.0
        assert special_lemma49.first_task_stays_within(data).seen

    def test_table_13(self, table):
        for judge in special_table13.FINDINGS:
            found = judge(table)
            assert f"{found.statement} ({found.numbers})" in table["notes"][1]
        other = json.loads(json.dumps(table))
        for one in other["model"]:
            one["backward_transfer"] = table["paper"]["BWT"]
            one["average_loss"] = [-x for x in table["paper"]["ACC"]]
            one["best"], one["best_loss"] = 0.2, min(one["average_loss"])
        assert all(judge(other).seen for judge in special_table13.FINDINGS)


@pytest.mark.slow
class TestFullSize:
    """What the registry's ``expected`` says of the pictures."""

    def test_figure_2(self):
        data = special_figure2.figure_2()
        apart = data["loss"].sel(variant=special_figure2.AS_STRONG) / data["loss"].sel(variant=special_figure2.SERVER)
        assert np.abs(apart - 1).max() < 0.2
        client = data["loss"].sel(variant=special_figure2.CLIENT, judge="task 2")
        assert (client.isel(round=-1) > 0.5 * client.isel(round=0)).all()

    def test_figure_3(self):
        data = special_figure3.figure_3()
        assert special_figure3.loss_is_unimodal(data).seen
        assert np.abs(data["backward_transfer"].isel(prox=-1)).max() < 0.1
        assert (data["backward_transfer"].max("prox") > data["backward_transfer"].isel(prox=-1)).all()

    def test_figure_4(self):
        data = special_figure4.figure_4()
        found = [judge(data).seen for judge in special_figure4.FINDINGS]
        assert found == [True, False, True, True, True, True]

    def test_lemma(self):
        data = special_lemma49.lemma_4_9()
        found = [judge(data).seen for judge in special_lemma49.FINDINGS]
        assert found == [True, False, True, True]
