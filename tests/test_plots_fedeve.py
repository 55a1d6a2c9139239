"""The figures of `fedeve`: what the data behind them must satisfy, and captions that follow from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plot_cases import assert_caption_follows, assert_files, verdicts

import nqm
from plots import fedeve_drift, fedeve_fusion, fedeve_gain
from plots.fedeve_nqm import CHOICES, Choices, paths, population
from theory.bounds.fedeve import largest_gain, local_slope

SMALL = Choices(dim=5, clients=12, sampled=4, local_steps=4, rounds=12, seeds=6)
FUSION = (fedeve_fusion.narrower, fedeve_fusion.combines_linearly, fedeve_fusion.needs_independence)
DRIFT = (
    fedeve_drift.drifts_grow,
    fedeve_drift.effects_grow,
    fedeve_drift.client_drift_is_like_iid,
    fedeve_drift.period_drift_disrupts,
    fedeve_drift.both_are_worst,
    fedeve_drift.period_over_client,
)
GAIN = (fedeve_gain.grows_with_heterogeneity, fedeve_gain.hardly_depends_on_steps)


@pytest.fixture(scope="module")
def fusion():
    return fedeve_fusion.fusion()


@pytest.fixture(scope="module")
def drift():
    return fedeve_drift.figure_3(choices=SMALL)


@pytest.fixture(scope="module")
def gain():
    return fedeve_gain.figure_4(choices=SMALL)


def late(cohort: str, level: float = 1.0, **changes) -> np.ndarray:
    shared = changes.pop("shared_hessian", False)
    chosen = replace(SMALL, **changes)
    return paths(chosen, level, nqm.FedAvg(chosen.lr), cohort, shared)["excess_loss"].values


class TestPopulation:
    def test_its_mean_is_the_global_problem(self):
        clients = population(SMALL, 1.0)
        np.testing.assert_allclose(clients.delta.mean(axis=0), 0, atol=1e-15)
        np.testing.assert_allclose(clients.slope.mean(axis=0), 0, atol=1e-15)

    def test_heterogeneity_scales_offsets_and_hessians_together(self):
        few, many = population(SMALL, 0.04), population(SMALL, 1.0)
        np.testing.assert_allclose(few.delta, 0.2 * many.delta)
        np.testing.assert_allclose(few.slope, 0.2 * many.slope)
        size = (population(replace(SMALL, clients=20_000), 0.5).delta ** 2).sum(axis=1)
        # z-score of E||delta||^2 = h G^2
        assert abs(size.mean() - 0.5) < 4 * size.std() / np.sqrt(len(size))

    def test_every_seed_has_clients_of_its_own(self):
        assert not np.allclose(population(SMALL, 1.0, 0).delta, population(SMALL, 1.0, 1).delta)


class TestFourSettings:
    def test_without_heterogeneity_they_coincide(self):
        own = late("own", 0.0)
        for cohort in ("pooled", "dealt"):
            np.testing.assert_allclose(late(cohort, 0.0), own, rtol=1e-12)

    def test_one_local_step_has_no_client_drift(self):
        np.testing.assert_allclose(late("dealt", local_steps=1), late("own", 0.0, local_steps=1), rtol=1e-10)
        np.testing.assert_allclose(late("pooled", local_steps=1), late("own", local_steps=1), rtol=1e-10)

    def test_one_hessian_has_no_client_drift(self):
        np.testing.assert_allclose(late("dealt", shared_hessian=True), late("own", 0.0), rtol=1e-10)
        same = late("own", shared_hessian=True)
        np.testing.assert_allclose(late("pooled", shared_hessian=True), same, rtol=1e-10)

    def test_everybody_at_work_has_no_period_drift(self):
        """The cohort is then the population, whose mean is the global problem."""
        np.testing.assert_allclose(late("pooled", sampled=12), late("own", 0.0, sampled=12), rtol=1e-10)

    def test_they_differ_otherwise(self):
        ends = [late("own", 0.0)[:, -1], *(late(cohort)[:, -1] for cohort in ("own", "pooled", "dealt"))]
        for i, one in enumerate(ends):
            for other in ends[:i]:
                assert not np.allclose(one, other, rtol=1e-6)


class TestFusion:
    def test_integrals_are_the_theorem(self, fusion):
        assert float(fusion["mean"].sel(law="fused")) == pytest.approx(fusion.attrs["theorem_mean"], rel=1e-9)
        assert float(fusion["variance"].sel(law="fused")) == pytest.approx(fusion.attrs["theorem_variance"], rel=1e-9)
        np.testing.assert_allclose([np.trapezoid(d, fusion["x"]) for d in fusion["density"]], 1, rtol=1e-9)

    def test_blend(self, fusion):
        prediction, observation = (v for _, v in (fedeve_fusion.PREDICTION, fedeve_fusion.OBSERVATION))
        np.testing.assert_allclose(fusion["blended"].sel(gain=0), prediction)
        np.testing.assert_allclose(fusion["blended"].sel(gain=1), observation)
        independent = fusion["blended"].sel(correlation=0)
        best = float(independent["gain"][int(independent.values.argmin())])
        assert best == pytest.approx(fusion.attrs["gain"], abs=1 / 400)
        assert float(independent.min()) == pytest.approx(fusion.attrs["theorem_variance"], rel=1e-4)

    def test_caption(self, fusion, tmp_path):
        assert_caption_follows(fusion, FUSION)
        assert [row["seen"] for row in verdicts(fusion)] == [True, False, False]
        assert_files("fedeve/fig-2a", fusion, tmp_path)

    def test_judges_can_say_the_contrary(self, fusion):
        data = fusion.copy(deep=True)
        data["variance"].loc[{"law": "fused"}] = 2.0
        data.attrs["printed_mean"] = data.attrs["theorem_mean"]
        assert not fedeve_fusion.narrower(data).seen
        assert fedeve_fusion.combines_linearly(data).seen
        assert fedeve_fusion.needs_independence(fusion.sel(correlation=[-0.5, 0.0])).seen


class TestDrift:
    def test_data(self, drift):
        assert np.isfinite(drift["curve"]).all()
        still = drift["late_loss"].sel(setting="no drift")
        np.testing.assert_array_equal(still, np.broadcast_to(still[0], still.shape))
        assert (drift["added_by_steps"].sel(setting="no drift") == 0).all()
        one = drift["added_by_steps"].sel(local_steps=1)
        assert np.abs(one.sel(setting="client drift only")).max() < 1e-12
        np.testing.assert_allclose(one.sel(setting="both"), one.sel(setting="period drift only"), atol=1e-12)
        half = SMALL.rounds // 2
        top = drift["late_loss"].isel(heterogeneity=-1)
        np.testing.assert_allclose(top, drift["curve"].isel(round=slice(half, None)).mean("round"))

    def test_caption(self, drift, tmp_path):
        assert_caption_follows(drift, DRIFT)
        assert_files("fedeve/fig-3", drift, tmp_path)

    def test_judges_can_say_the_contrary(self, drift):
        """The two drifts exchanged, and heterogeneity turned round."""
        names = {"client drift only": "period drift only", "period drift only": "client drift only"}
        other = drift.assign_coords(setting=[names.get(s, s) for s in drift["setting"].values])
        assert fedeve_drift.client_drift_is_like_iid(other).seen != fedeve_drift.client_drift_is_like_iid(drift).seen
        assert fedeve_drift.period_over_client(drift).seen
        assert not fedeve_drift.period_over_client(other).seen
        assert not fedeve_drift.period_drift_disrupts(other).seen
        calm = drift.assign_coords(setting=["both", "client drift only", "period drift only", "no drift"])
        assert not fedeve_drift.both_are_worst(calm).seen
        turned = drift.isel(drawn_level=slice(None, None, -1), heterogeneity=slice(None, None, -1))
        assert fedeve_drift.drifts_grow(drift).seen
        assert not fedeve_drift.drifts_grow(turned).seen
        assert not fedeve_drift.effects_grow(turned).seen


class TestGain:
    def test_is_a_share(self, gain):
        values = gain["gain"].values
        assert ((values >= 0) & (values <= 1)).all()
        assert (np.diff(values, axis=-1) >= 0).all()
        late = gain["late_gain"].values
        assert ((late >= 0) & (late <= 1)).all()

    def test_rounds_contract_at_any_gain(self):
        slope = local_slope(CHOICES.L, CHOICES.lr, max(fedeve_gain.STEPS))
        assert slope < 2 / 3
        assert largest_gain(slope) > 1

    def test_without_any_spread_the_gain_is_one(self):
        still = replace(SMALL, noise=0.0)
        for variances in ("paper", "raw", "corrected"):
            runs = paths(still, 0.0, nqm.FedEve(still.lr, variances=variances))
            np.testing.assert_allclose(runs["gain"].values[:, 1:], 1.0, rtol=1e-9)

    def test_caption(self, gain, tmp_path):
        assert_caption_follows(gain, GAIN)
        assert_files("fedeve/fig-4", gain, tmp_path)
        assert fedeve_gain.others(gain) in gain.attrs["caption"]

    @pytest.mark.parametrize("seen", [True, False])
    def test_judges_follow_the_medians(self, gain, seen):
        """Medians that rise with heterogeneity and do not know of K, and the contrary."""
        data = gain.copy(deep=True)
        for i, level in enumerate(data["heterogeneity"].values):
            for j, steps in enumerate(data["local_steps"].values):
                at = {"variances": "paper", "heterogeneity": level, "local_steps": steps, "quantile": 0.5}
                data["gain"].loc[at] = 0.2 + 0.1 * i if seen else 0.6 - 0.1 * i + 0.05 * j
        assert [judge(data).seen for judge in GAIN] == [seen, seen]

    def test_one_fall_is_enough(self, gain):
        data = gain.copy(deep=True)
        data["gain"].loc[{"variances": "paper", "quantile": 0.5}] = np.array([0.1, 0.2, 0.3, 0.4])[:, None]
        assert fedeve_gain.grows_with_heterogeneity(data).seen
        data["gain"].loc[{"variances": "paper", "quantile": 0.5, "heterogeneity": 0.1, "local_steps": 6}] = 0.19
        assert not fedeve_gain.grows_with_heterogeneity(data).seen


@pytest.mark.slow
class TestVerdicts:
    """At full size. A change here is a change of result."""

    def test_drift(self):
        assert [row["seen"] for row in verdicts(fedeve_drift.figure_3())] == [True] * 6

    def test_gain(self):
        assert [row["seen"] for row in verdicts(fedeve_gain.figure_4())] == [False, True]
