"""The figures of `cflag`: what the data behind them must satisfy, and captions that follow from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plot_cases import assert_caption_follows, assert_files, verdicts

import nqm
from nqm.transfer import average_loss, backward_transfer
from plots import cflag_forgetting, cflag_heterogeneity, cflag_scale
from plots.cflag_nqm import Choices, average_so_far, cflag, forgetting_so_far, newest, runs
from plots.observations import Observation, caption, sign_score, z_score

SMALL = Choices(dim=4, tasks=3, clients=3, samples=5, memory=2, local_steps=3, rounds=6, runs=8)
HETEROGENEITY = (
    cflag_heterogeneity.outperforms,
    cflag_heterogeneity.best_on_average,
    cflag_heterogeneity.forgets_least,
)
FORGETTING = (
    cflag_forgetting.iid_varies_more,
    cflag_forgetting.average_case_mitigates,
    cflag_forgetting.worst_case_mitigates,
)
SCALE = (
    cflag_scale.consistent_over_clients,
    cflag_scale.more_clients_do_no_harm,
    cflag_scale.forgetting_falls_with_clients,
    cflag_scale.memory_hurts,
    cflag_scale.memory_helps,
)


@pytest.fixture(scope="module")
def heterogeneity():
    return cflag_heterogeneity.figure_3(choices=SMALL)


@pytest.fixture(scope="module")
def forgetting():
    return cflag_forgetting.figure_4(choices=SMALL)


@pytest.fixture(scope="module")
def scale():
    return cflag_scale.figure_5(choices=SMALL)


class TestCaptions:
    def test_sorted_by_verdict(self):
        told = caption(
            "A.", [Observation("x", True, "1"), Observation("y", False, "2"), Observation("z", True, "3")], "B."
        )
        assert told == "A. Of the paper, seen on the model: x (1); z (3). Not seen: y (2). B."

    def test_scores(self):
        assert z_score(np.array([1.0, 2.0, 3.0])) == pytest.approx(2 * np.sqrt(3))
        assert (z_score(np.zeros(3)), z_score(-np.ones(3))) == (0.0, -np.inf)
        assert sign_score(np.array([1e9, 1.0, 1.0, -1.0, 0.0])) == pytest.approx(2 / np.sqrt(4))
        assert sign_score(np.zeros(2)) == 0.0


class TestMeasures:
    def test_last_column_is_that_of_the_engine(self):
        data = runs(SMALL, 1.0, cflag(SMALL))
        np.testing.assert_allclose(average_so_far(data)[:, -1], average_loss(data))
        np.testing.assert_allclose(forgetting_so_far(data)[:, -1], -backward_transfer(data))
        own = data["loss_of_task"].sel(task=2, of_task=2).values
        np.testing.assert_allclose(newest(data)[:, 1], own, rtol=1e-12)

    def test_every_run_has_tasks_of_its_own(self):
        start = newest(runs(SMALL, 0.0, nqm.FedTrack(SMALL.lr)))[:, 0, 0]
        assert len(np.unique(start)) == SMALL.runs

    def test_without_memory_cflag_is_fedtrack(self):
        mine, theirs = runs(SMALL, 1.0, cflag(SMALL, weight=0.0)), runs(SMALL, 1.0, nqm.FedTrack(SMALL.lr))
        np.testing.assert_allclose(newest(mine), newest(theirs), rtol=1e-12)

    def test_the_rate_is_lemma_13s(self):
        assert SMALL.lr == pytest.approx(1 / (4 * SMALL.L * SMALL.local_steps))

    def test_all_of_the_past_has_no_bias(self):
        whole = replace(SMALL, tasks=2, memory=SMALL.samples)
        some = replace(whole, memory=1)
        bias = [runs(c, 1.0, cflag(c))["overfitting"].values[:, 1, 1:] for c in (whole, some)]
        assert np.abs(bias[0]).max() < 1e-14
        assert np.abs(bias[1]).min() > 1e-9


class TestHeterogeneity:
    def test_data(self, heterogeneity):
        assert all(np.isfinite(heterogeneity[name]).all() for name in heterogeneity.data_vars)
        # in the first task nothing is remembered yet
        first = heterogeneity["average_loss"].sel(task=1)
        for name in cflag_heterogeneity.OURS:
            np.testing.assert_array_equal(first.sel(algorithm=name), first.sel(algorithm="FedTrack"))

    def test_caption(self, heterogeneity, tmp_path):
        assert_caption_follows(heterogeneity, HETEROGENEITY)
        assert_files("cflag/fig-3", heterogeneity, tmp_path)
        assert "EWC is not on the model" in heterogeneity.attrs["caption"]

    def test_judges_can_say_the_contrary(self, heterogeneity):
        data = heterogeneity.copy(deep=True)
        noise = np.random.default_rng(0).normal(size=SMALL.runs)
        for name in ("average_loss", "forgetting"):
            for rank, algorithm in enumerate(data["algorithm"].values):
                shape = data[name].sel(algorithm=algorithm).transpose("level", ..., "seed").shape
                values = np.broadcast_to(5.0 - rank + 0.1 * noise * rank, shape)
                data[name].loc[{"algorithm": algorithm}] = np.moveaxis(values, -1, 1)
        assert [judge(data).seen for judge in HETEROGENEITY] == [True, True, True]
        worse = data.assign_coords(algorithm=data["algorithm"].values[::-1])
        assert [judge(worse).seen for judge in HETEROGENEITY] == [False, False, False]
        data["forgetting"].loc[{"algorithm": "FedAvg", "level": "medium", "later_task": 2}] = 0.0  # one is enough
        assert [judge(data).seen for judge in HETEROGENEITY] == [True, True, False]


class TestForgetting:
    def test_gamma_is_15(self):
        """One curvature, one step, clients and samples alike: all of (15) can be read off the two losses."""
        plain = replace(SMALL, mu=1.0, tasks=2, local_steps=1, sample=0.0, sample_slope=0.0)
        data = runs(plain, 0.0, cflag(plain))
        past, current = np.moveaxis(data["loss_of_task"].values[:, 1, :-1], -1, 0)
        beta = alpha = plain.lr
        inner = past + current - plain.shift / 2  # of the two gradients, whose difference has the size of the shift
        expected = beta**2 * current - beta * (1 - alpha) * inner
        np.testing.assert_allclose(data["forgetting"].values[:, 1, 1:], expected, rtol=1e-9, atol=1e-12)

    def test_alike_clients_have_no_peak_in_the_worst_case(self):
        """With clients that agree the worst-case rate is exact: while all transfer, Gamma is at most 0."""
        alike = replace(SMALL, tasks=2, sample=0.0, sample_slope=0.0)
        data = runs(alike, 0.0, cflag(alike, adapt="worst"))
        gamma, interfering = (data[name].values[:, 1, 1:] for name in ("forgetting", "interfering"))
        assert (interfering == 0).any()
        assert gamma[interfering == 0].max() <= 0
        average = runs(alike, 0.0, cflag(alike, adapt="average"))
        gamma, interfering = (average[name].values[:, 1, 1:] for name in ("forgetting", "interfering"))
        assert gamma[interfering == 0].min() >= 0  # overshoots N-fold, N = 3 > 2

    def test_caption(self, forgetting, tmp_path):
        assert_caption_follows(forgetting, FORGETTING)
        assert_files("cflag/fig-4", forgetting, tmp_path)

    def test_judges_can_say_the_contrary(self, forgetting):
        data = forgetting.copy(deep=True)
        data = data.isel(seed=np.tile(data["seed"].values, 2)).assign_coords(seed=np.arange(2 * SMALL.runs))
        wave = np.sin(np.arange(data.sizes["step"]))
        size = {"low": 3.0, "medium": 2.0, "high": 1.0}
        height = {"fixed": 1.0, "adaptive, average case": 0.5, "adaptive, worst case": 0.1}
        for level, a in size.items():
            for rates, b in height.items():
                data["gamma"].loc[{"level": level, "rates": rates}] = a * b * wave
        assert [judge(data).seen for judge in FORGETTING] == [True, True, True]
        swapped = data.assign_coords(rates=["adaptive, worst case", "adaptive, average case", "fixed"])
        assert [judge(swapped).seen for judge in FORGETTING] == [True, False, False]
        turned = data.assign_coords(level=["high", "medium", "low"])
        assert not cflag_forgetting.iid_varies_more(turned).seen


class TestScale:
    def test_data(self, scale):
        assert scale["memory"].values.tolist() == [1, 2, 5]
        whole = scale["overfitting_memory"].sel(memory=SMALL.samples)
        assert float(whole.max()) < 1e-14
        assert float(scale["overfitting_memory"].sel(memory=1).min()) > 0
        base = runs(SMALL, 1.0, cflag(SMALL))
        at = scale["average_loss_memory"].sel(level="high", alpha="α = β", memory=SMALL.memory)
        np.testing.assert_array_equal(at, average_so_far(base)[:, -1])

    def test_caption(self, scale, tmp_path):
        assert_caption_follows(scale, SCALE)
        assert_files("cflag/fig-5", scale, tmp_path)

    def test_judges_can_say_the_contrary(self, scale):
        data = scale.copy(deep=True)
        noise = 0.001 * np.random.default_rng(0).normal(size=(data.sizes["clients"], SMALL.runs))
        falling = np.linspace(2.0, 1.9, data.sizes["clients"])[:, None] + noise
        for name in ("average_loss", "forgetting"):
            data[f"{name}_clients"][:] = falling
        data["average_loss_memory"][:] = falling[: data.sizes["memory"]]
        assert [judge(data).seen for judge in SCALE] == [True, True, True, False, True]
        data["average_loss_memory"][:] = falling[: data.sizes["memory"]][::-1]
        for name in ("average_loss", "forgetting"):
            data[f"{name}_clients"][:] = 5 * falling[::-1] - 7
        assert [judge(data).seen for judge in SCALE] == [False, False, False, True, False]


@pytest.mark.slow
class TestVerdicts:
    """At full size. A change here is a change of result."""

    def test_heterogeneity(self):
        assert [row["seen"] for row in verdicts(cflag_heterogeneity.figure_3())] == [True, True, True]

    def test_forgetting(self):
        assert [row["seen"] for row in verdicts(cflag_forgetting.figure_4())] == [False, False, False]

    def test_scale(self):
        assert [row["seen"] for row in verdicts(cflag_scale.figure_5())] == [True, True, False, False, False]
