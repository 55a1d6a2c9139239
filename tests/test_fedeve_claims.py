"""What the ledger's rows on `fedeve` quote beside their checks: runs of (12) with (13), limits, and the tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theory.bounds.fedeve import (
    client_variance,
    fused_variance,
    kalman_gain,
    largest_gain,
    model_distance,
    period_variance,
    predicted_variance,
    round_matrix,
)
from theory.claims.fedeve_filter import dependence
from theory.claims.fedeve_method import FAILED, MENDED, TABLE_1, TABLE_2, TABLE_3


def run(slope: float, minima: np.ndarray, start: float, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Models and gains of (12) with the printed (13), quadratic clients of one slope that all take part."""
    w, momentum, fused = start, 0.0, 0.0
    models, gains = [w], []
    for _ in range(rounds):
        updates = slope * (w - momentum - minima)[:, None]  # (12a)
        predicted = predicted_variance(fused, period_variance(np.array([momentum]), updates, printed=True))
        client = client_variance(updates, printed=True)
        gain = kalman_gain(predicted, client)
        momentum += gain * (float(updates.mean()) - momentum)
        w -= momentum
        fused = fused_variance(predicted, client)
        models.append(w)
        gains.append(gain)
    return np.array(models), np.array(gains)


class TestRound:
    def test_one_client_a_round_means_gain_one_and_the_golden_ratio(self) -> None:
        models, gains = run(1.0, np.array([0.0]), 1.0, 30)
        assert np.all(gains == 1.0)
        assert abs(models[-1] / models[-2]) == pytest.approx((1 + math.sqrt(5)) / 2, rel=1e-6)

    @pytest.mark.parametrize(("slope", "grows"), [(0.3, False), (0.6, False), (0.9, True), (1.0, True)])
    def test_far_from_the_optimum_disagreeing_clients_do_not_help(self, slope: float, grows: bool) -> None:
        models, gains = run(slope, np.array([-1.0, 1.0]), 100.0, 200)
        assert (abs(models[-1]) > 1e6) == grows
        if grows:
            assert gains[-1] > largest_gain(slope)

    @given(st.floats(0.67, 1.99))
    def test_the_largest_gain_is_where_the_round_turns_unstable(self, slope: float) -> None:
        edge = largest_gain(slope)
        radius = [np.max(np.abs(np.linalg.eigvals(round_matrix(k * edge, slope)))) for k in (0.99, 1.0, 1.01)]
        assert radius[0] < 1.0 < radius[2]
        assert radius[1] == pytest.approx(1.0)

    @given(st.floats(0.0, 1.0), st.floats(0.01, 0.66))
    def test_any_gain_is_safe_for_small_slopes(self, gain: float, slope: float) -> None:
        assert np.max(np.abs(np.linalg.eigvals(round_matrix(gain, slope)))) <= 1.0 + 1e-12

    def test_two_models_part_faster_than_under_fedavg(self) -> None:
        """One local step ηL = 0.5 with curvature −L: FedAvg's factor is at most e^0.5."""
        growth = np.max(np.abs(np.linalg.eigvals(round_matrix(1.0, -0.5))))
        assert growth == pytest.approx(1.707, abs=5e-4)
        assert growth > math.exp(0.5)


class TestLimits:
    def test_gain(self) -> None:
        assert kalman_gain(0.0, 1.0) == 0.0
        assert kalman_gain(1.0, 0.0) == 1.0
        assert kalman_gain(0.0, 0.0) == 1.0
        assert fused_variance(2.0, math.inf) != fused_variance(2.0, 2.0) == 1.0

    @pytest.mark.parametrize(("client", "smaller"), [(1.9, True), (2.1, False)])
    def test_in_the_long_run_the_fused_variance_is_below_that_of_period_drift_iff(
        self, client: float, smaller: bool
    ) -> None:
        """σ_R² < 2σ_Q², here with σ_Q² = 1."""
        fused = 0.0
        for _ in range(200):
            fused = fused_variance(predicted_variance(fused, 1.0), client)
        assert (fused < 1.0) == smaller

    def test_rounds_that_repeat_each_other_make_model_and_noise_dependent(self) -> None:
        case = {"noise": "Q", "t": 1, "q": 1, "r": 1}
        assert dependence(case).measured == 0.0
        assert dependence(case, repeated=True).measured == pytest.approx(1 / 16)

    def test_all_clients_leave_no_variance(self) -> None:
        updates = np.random.default_rng(0).normal(size=(4, 3))
        assert client_variance(updates, clients=4) == 0.0
        assert client_variance(updates, printed=True) == pytest.approx(0.75 * client_variance(updates))
        assert client_variance(updates[:1], printed=True) == 0.0

    def test_a_perfect_prediction_has_no_period_drift(self) -> None:
        updates = np.random.default_rng(1).normal(size=(4, 3))
        assert period_variance(updates.mean(axis=0), updates) == 0.0
        assert period_variance(updates.mean(axis=0) + 1.0, updates, printed=True) == pytest.approx(0.25)

    def test_equal_rounds_make_the_order_of_amplification_immaterial(self) -> None:
        assert model_distance(0.1, 2.0, 3, 50, [1.0] * 5) == pytest.approx(
            model_distance(0.1, 2.0, 3, 50, [1.0] * 5, printed=True)
        )


class TestTables:
    def test_equal_deviations_with_unequal_means(self) -> None:
        pairs = [(TABLE_1[m][j], TABLE_3[m][j][0], m) for m in TABLE_1 for j in range(4)]
        assert len(pairs) == 24
        assert all(here[1] == there[1] for here, there, _ in pairs)
        differ = [(m, there[0] - here[0]) for here, there, m in pairs if here[0] != there[0]]
        assert len(differ) == 13
        assert all(rise > 0 for m, rise in differ if m != "FedEve")
        assert max(rise for _, rise in differ) == pytest.approx(1.28)

    def test_large_deviations_are_runs_that_failed(self) -> None:
        """Some of five runs at 5.13 and the rest alike: the deviation gives the rest, and these the mean.

        The rest's own scatter, 1.5 at most in its column, moves that mean by less than 0.07.
        """
        for method, rows in TABLE_3.items():
            for setting, cells in enumerate(rows):
                for epochs, (mean, deviation) in enumerate(cells):
                    if deviation < 10:
                        continue
                    means = []
                    for failures in range(1, 5):
                        share = failures / 5
                        rest = FAILED[0] + deviation / math.sqrt(share * (1 - share))
                        means.append(share * FAILED[0] + (1 - share) * rest)
                    fits = MENDED.get((method, setting, epochs), mean)
                    assert min(abs(m - fits) for m in means) < 0.07
                    if fits != mean:
                        assert min(abs(m - mean) for m in means) > 1.0

    def test_table_2_discounts_by_rank(self) -> None:
        for _, hit5, hit10, gain5, gain10 in TABLE_2.values():
            assert hit5 / math.log2(6) < gain5 < hit5
            assert (hit10 - hit5) / math.log2(11) < gain10 - gain5 < (hit10 - hit5) / math.log2(7)
