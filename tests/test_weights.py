"""History weights: three solvers against each other and against exact rational arithmetic, limits, and bad input."""

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import nqm
from nqm import InvalidInput
from nqm.exact import factors
from nqm.experiment import WeightsRequest
from nqm.plan import Plan
from theory import weights as w

ROUNDS = st.integers(1, 300)
ALPHA = st.one_of(st.just(0.0), st.floats(0.0, 0.99), st.floats(0.3, 9.0).map(lambda x: 1.0 - 10.0**-x))
RATIO = st.floats(-12.0, 12.0).map(lambda x: 10.0**x)  # R^2 / D^2
LOSS = st.one_of(RATIO, st.sampled_from([0.0, math.inf]))
DRIFT = st.floats(-6.0, 6.0).map(lambda x: 10.0**x)  # D^2
PART = st.one_of(st.just(0.0), st.floats(0.0, 0.9))  # F^2 / D^2
FIXED = st.sampled_from([0.0, 1.0])  # G^2


def drawn(*strategies, examples=80):
    """The test for that many drawn cases, the same ones every time."""
    how = settings(deadline=None, derandomize=True, max_examples=examples)
    return lambda test: how(given(*strategies)(test))


def exact(t, D2, R2, a):
    """The system (7) in rational numbers, by Gauss and Jordan: weights and minimum, without a rounding."""
    D2, R2, a = Fraction(D2), Fraction(R2), Fraction(a)
    rows = [
        [D2 * a ** abs(i - j) + (R2 if max(i, j) < t - 1 else 0) for j in range(t)] + [Fraction(1), Fraction(0)]
        for i in range(t)
    ]
    rows.append([Fraction(1)] * t + [Fraction(0), Fraction(1)])
    for c in range(t + 1):
        pivot = next(r for r in range(c, t + 1) if rows[r][c] != 0)
        rows[c], rows[pivot] = rows[pivot], rows[c]
        rows[c] = [x / rows[c][c] for x in rows[c]]
        for r in range(t + 1):
            if r != c and rows[r][c] != 0:
                factor = rows[r][c]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[c], strict=True)]
    return [rows[i][-1] for i in range(t)], -rows[t][-1]


def value(p, C, R2):
    return p @ C @ p + R2 * (1.0 - p[-1]) ** 2


class TestSolversAgree:
    @drawn(ROUNDS, DRIFT, LOSS, ALPHA, PART, FIXED)
    def test_dense(self, t, D2, ratio, alpha, part, G2):
        closed = w.optimal(t, D2, D2 * ratio, alpha, part * D2, G2)
        dense = w.optimal(t, D2, D2 * ratio, alpha, part * D2, G2, solver="dense")
        assert (closed.solver, dense.solver) == ("closed", "dense")
        np.testing.assert_allclose(dense.weights, closed.weights, rtol=0, atol=1e-9)
        assert dense.value == pytest.approx(closed.value, rel=1e-9)

    @drawn(ROUNDS, DRIFT, LOSS, ALPHA, PART, FIXED)
    def test_cvxpy(self, t, D2, ratio, alpha, part, G2):
        closed = w.optimal(t, D2, D2 * ratio, alpha, part * D2, G2)
        numeric = w.optimal(t, D2, D2 * ratio, alpha, part * D2, G2, solver="cvxpy")
        np.testing.assert_allclose(numeric.weights, closed.weights, rtol=0, atol=1e-9)
        assert numeric.value == pytest.approx(closed.value, rel=1e-9)

    @drawn(ROUNDS, DRIFT, LOSS, ALPHA, PART)
    def test_nonnegative(self, t, D2, ratio, alpha, part):
        closed = w.optimal(t, D2, D2 * ratio, alpha, part * D2, nonnegative=True)
        numeric = w.optimal(t, D2, D2 * ratio, alpha, part * D2, nonnegative=True, solver="cvxpy")
        assert closed.weights.min() >= 0
        assert numeric.weights.min() >= 0
        np.testing.assert_allclose(numeric.weights, closed.weights, rtol=0, atol=1e-9)
        assert numeric.value == pytest.approx(closed.value, rel=1e-9)

    @drawn(st.integers(1, 60), DRIFT, st.floats(1e-3, 1e3), st.floats(0.0, 0.95), PART)
    def test_the_same_covariance_given(self, t, D2, ratio, alpha, part):
        closed = w.optimal(t, D2, D2 * ratio, alpha, part * D2, 0.5)
        C = w.covariance(t, D2, alpha, part * D2)
        for solver in ("dense", "cvxpy"):
            other = w.given(C, D2 * ratio, 0.5, solver=solver)
            np.testing.assert_allclose(other.weights, closed.weights, rtol=0, atol=1e-9)
            assert other.value == pytest.approx(closed.value, rel=1e-9)

    @pytest.mark.parametrize("alpha", [0.0, 0.3, 0.97, 1 - 1e-5, 1 - 1e-9])
    @pytest.mark.parametrize("ratio", [0.0, 1e-12, 1e-3, 0.5, 1e3, 1e12, math.inf])
    def test_three_hundred_rounds(self, alpha, ratio):
        closed = w.optimal(300, 2.0, 2.0 * ratio, alpha)
        for solver in ("dense", "cvxpy"):
            other = w.optimal(300, 2.0, 2.0 * ratio, alpha, solver=solver)
            np.testing.assert_allclose(other.weights, closed.weights, rtol=0, atol=1e-9)
            assert other.value == pytest.approx(closed.value, rel=1e-9)
        closed = w.optimal(300, 2.0, 2.0 * ratio, alpha, nonnegative=True)
        other = w.optimal(300, 2.0, 2.0 * ratio, alpha, nonnegative=True, solver="cvxpy")
        np.testing.assert_allclose(other.weights, closed.weights, rtol=0, atol=1e-9)
        assert other.value == pytest.approx(closed.value, rel=1e-9)

    @pytest.mark.parametrize("t", [1, 2, 3, 4, 7])
    @pytest.mark.parametrize("alpha", [0.0, 0.1, 0.8, 0.99, 1 - 1e-6, 1 - 1e-9])
    def test_against_rational_numbers(self, t, alpha):
        for ratio in (0.0, 1e-12, 1e-6, 0.01, 0.5, 30.0, 1e6, 1e12):
            p, least = exact(t, 1.0, ratio, alpha)
            found = w.optimal(t, 1.0, ratio, alpha)
            assert abs(float(Fraction(found.value) / least - 1)) < 1e-15
            for i, (x, y) in enumerate(zip(found.weights, p, strict=True)):
                # p_{t-1} is a difference, small next to the others where its terms cancel
                size = 1 if t > 2 and i == t - 2 else y
                assert abs(Fraction(x) - y) <= Fraction(1, 10**15) * abs(size)

    @drawn(st.integers(1, 60), DRIFT, LOSS, ALPHA)
    def test_schedules_hold_the_same_rows(self, T, D2, ratio, alpha):
        schedule = w.thm_49(T, D2, D2 * ratio, alpha)
        for t in {1, 2, 3, 4, T // 2 or 1, T} & set(range(1, T + 1)):
            one = w.optimal(t, D2, D2 * ratio, alpha).weights
            np.testing.assert_allclose(schedule.row(t), one, rtol=1e-13, atol=1e-15)

    def test_lemma_b4_and_theorem_47_as_printed(self):
        D2, R2, F2 = 2.0, 0.7, 0.5
        for t in range(1, 9):
            p = w.lemma_b4(8, D2, R2).row(t)
            np.testing.assert_allclose(p[:-1], D2 / (t * D2 + (t - 1) * R2), rtol=1e-14)
            np.testing.assert_allclose(p[-1], ((t - 1) * R2 + D2) / (t * D2 + (t - 1) * R2), rtol=1e-14)
            np.testing.assert_allclose(w.thm_47(8, D2, R2, F2).row(t), w.lemma_b4(8, D2 - F2, R2).row(t), rtol=1e-14)
            least = D2 * (D2 + (t - 1) * R2) / (t * D2 + (t - 1) * R2)
            assert w.optimal(t, D2, R2, G2=3.0).value == pytest.approx(3.0 + least, rel=1e-14)

    def test_names(self):
        for name in w.NAMES:
            rows = w.named(WeightsRequest(name, 6, D2=1.0, R2=0.5, alpha=0.3, overlap=0.2))
            assert rows.row(6).sum() == pytest.approx(1.0, abs=1e-14)
        overlapping = w.named(WeightsRequest("thm-4.7", 6, D2=1.0, R2=0.5, alpha=0.3, overlap=0.2)).row(6)
        np.testing.assert_array_equal(overlapping, w.optimal(6, 1.0, 0.5, overlap=0.2).weights)


class TestOptimality:
    @drawn(ROUNDS, LOSS, ALPHA, st.booleans())
    def test_sums_to_one(self, t, ratio, alpha, nonnegative):
        p = w.optimal(t, 1.0, ratio, alpha, nonnegative=nonnegative).weights
        assert len(p) == t
        assert abs(math.fsum(p) - 1.0) < 1e-14

    @drawn(ROUNDS, st.floats(1e-4, 1e4), st.floats(0.0, 0.999))
    def test_kkt_residual(self, t, R2, alpha):
        """The gradient Q p is the same in every direction, and is the minimum itself: lambda = -V in (7)."""
        found = w.optimal(t, 1.0, R2, alpha)
        Q = w.quadratic_form(w.covariance(t, 1.0, alpha), R2)
        np.testing.assert_allclose(Q @ found.weights, found.value, rtol=0, atol=1e-12 * (1 + R2))
        assert value(found.weights, w.covariance(t, 1.0, alpha), R2) == pytest.approx(found.value, rel=1e-11)

    @drawn(st.integers(2, 300), st.floats(1e-4, 1e4), st.floats(0.0, 0.999))
    def test_kkt_with_inequalities(self, t, R2, alpha):
        """The gradient is V where a weight is positive, and no less where it is zero."""
        found = w.optimal(t, 1.0, R2, alpha, nonnegative=True)
        gradient = w.quadratic_form(w.covariance(t, 1.0, alpha), R2) @ found.weights
        np.testing.assert_allclose(gradient[found.weights > 0], found.value, rtol=0, atol=1e-12 * (1 + R2))
        assert gradient.min() >= found.value - 1e-12 * (1 + R2)

    @drawn(st.integers(1, 60), st.floats(1e-3, 1e3), st.floats(0.0, 0.99), st.integers(0, 2**32 - 1))
    def test_nothing_nearby_is_better(self, t, R2, alpha, seed):
        found = w.optimal(t, 1.0, R2, alpha)
        step = np.random.default_rng(seed).standard_normal(t)
        near = found.weights + 0.1 * (step - step.mean())
        assert value(near, w.covariance(t, 1.0, alpha), R2) >= found.value * (1 - 1e-12)

    @drawn(st.integers(1, 300), st.floats(1e-3, 1e3), st.floats(0.0, 0.99))
    def test_lemma_b9_positive_definite(self, t, R2, alpha):
        np.linalg.cholesky(w.quadratic_form(w.covariance(t, 1.0, alpha), R2))

    @drawn(ROUNDS, DRIFT, RATIO, ALPHA, st.floats(1.0, 100.0), st.booleans())
    def test_value_grows_with_loss_and_drift_and_falls_with_time(self, t, D2, ratio, alpha, more, nonnegative):
        def least(t, D2, R2):
            return w.optimal(t, D2, R2, alpha, nonnegative=nonnegative).value * (1 + 1e-13)

        here = w.optimal(t, D2, D2 * ratio, alpha, nonnegative=nonnegative).value
        assert least(t, D2, D2 * ratio * more) >= here
        assert least(t, D2 * more, D2 * ratio) >= here
        assert w.optimal(t + 1, D2, D2 * ratio, alpha, nonnegative=nonnegative).value <= here * (1 + 1e-13)

    @drawn(ROUNDS, LOSS, ALPHA, ALPHA)
    def test_value_grows_with_alpha_if_weights_may_not_be_negative(self, t, ratio, one, other):
        low, high = sorted((one, other))
        least = w.optimal(t, 1.0, ratio, low, nonnegative=True).value
        assert w.optimal(t, 1.0, ratio, high, nonnegative=True).value >= least * (1 - 1e-13)

    def test_value_is_not_monotone_in_alpha_otherwise(self):
        low, middle, high = (w.optimal(4, 1.0, 100.0, a).value for a in (0.0, 0.7, 0.99))
        assert middle < 0.9 * low
        assert middle < 0.9 * high

    @drawn(st.integers(2, 300), st.floats(1e-3, 0.999), st.floats(0.5, 2.0))
    def test_when_weights_turn_negative(self, t, alpha, factor):
        assume(abs(factor - 1) > 1e-6)
        edge = w.negative_above(t, alpha)
        if t == 2:
            assert edge == math.inf
            assert w.optimal(t, 1.0, 1e6, alpha).weights.min() >= 0
            return
        p = w.optimal(t, 1.0, edge * factor, alpha).weights
        assert (p[-2] < 0) == (factor > 1)
        assert np.delete(p, -2).min() >= 0

    @drawn(ROUNDS, st.floats(0, 1e3), st.floats(1e-3, 1e3), st.floats(0, 1e3))
    def test_proposition_43(self, t, G2, D2, R2):
        """Stateless clients have the lower minimum: at every round, not only in the limit that the paper states."""
        normal, once = w.optimal(t, D2, R2, G2=G2), w.stateless(t, D2, R2, G2)
        assert once.value <= normal.value * (1 + 1e-13)
        assert w.limit(G2 + D2, R2) == pytest.approx((G2 + D2) * R2 / (G2 + D2 + R2), rel=1e-13)
        assert w.limit(G2 + D2, R2) <= w.limit(D2, R2, G2=G2) * (1 + 1e-13)


class TestLimits:
    @pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
    @pytest.mark.parametrize("nonnegative", [False, True])
    def test_many_rounds(self, alpha, nonnegative):
        for R2 in (0.0, 0.3, 5.0, math.inf):
            least = w.limit(2.0, R2, alpha, 0.5, 1.0, nonnegative)
            far = w.optimal(10**7, 2.0, R2, alpha, 0.5, 1.0, nonnegative).value
            assert least <= far <= least + 1e-4
        new = 1.5 * (1.0 if nonnegative else 1 - alpha**2)
        assert w.limit(2.0, 0.3, alpha, 0.5, 1.0, nonnegative) == pytest.approx(1.5 + new * 0.3 / (new + 0.3))

    def test_no_loss(self):
        p = w.optimal(5, 3.0, 0.0, 0.4)
        np.testing.assert_allclose(p.weights, np.array([1, 0.6, 0.6, 0.6, 1]) / 3.8, rtol=1e-15)
        assert p.value == pytest.approx(3.0 * 1.4 / 3.8, rel=1e-15)
        np.testing.assert_allclose(w.optimal(5, 3.0, 0.0).weights, 0.2, rtol=1e-15)

    @pytest.mark.parametrize("solver", ["closed", "dense", "cvxpy"])
    def test_infinite_loss_is_fedavg_for_independent_drifts(self, solver):
        found = w.optimal(6, 2.0, math.inf, solver=solver)
        np.testing.assert_allclose(found.weights, [0, 0, 0, 0, 0, 1], atol=1e-12)
        assert found.value == pytest.approx(2.0)

    @pytest.mark.parametrize("solver", ["closed", "cvxpy"])
    def test_infinite_loss_is_fedavg_for_nonnegative_weights(self, solver):
        found = w.optimal(6, 2.0, math.inf, 0.7, nonnegative=True, solver=solver)
        np.testing.assert_allclose(found.weights, [0, 0, 0, 0, 0, 1], atol=1e-12)

    @drawn(st.integers(3, 300), st.floats(0.01, 0.99))
    def test_infinite_loss_of_correlated_drifts(self, t, a):
        """The past then sums to zero without being zero: it predicts a part of the current drift."""
        found = w.optimal(t, 1.0, math.inf, a)
        n = (t - 1) * (1 - a) + a
        assert found.weights[-1] == pytest.approx(1.0, abs=1e-15)
        assert found.weights[:-1].sum() == pytest.approx(0.0, abs=1e-13)
        assert found.weights[0] == pytest.approx(a / (n + a), rel=1e-13)
        assert found.value == pytest.approx(1 - a**2 * (1 - a) * (t - 2) / (n + a), rel=1e-12)
        assert found.value < 1
        finite = w.optimal(t, 1.0, 1e15, a)
        np.testing.assert_allclose(finite.weights, found.weights, atol=1e-12)

    def test_alpha_to_one(self):
        almost = 1 - 1e-14
        np.testing.assert_allclose(w.optimal(5, 1.0, 1.0, almost).weights, [0.5, 0, 0, -0.5, 1], atol=1e-12)
        np.testing.assert_allclose(w.optimal(5, 1.0, 0.0, almost).weights, [0.5, 0, 0, 0, 0.5], atol=1e-12)
        np.testing.assert_allclose(w.optimal(2, 1.0, 1.0, almost).weights, [0, 1], atol=1e-12)
        assert w.optimal(5, 1.0, 1.0, almost).value == pytest.approx(1.0)

    def test_alpha_to_zero_is_lemma_b4(self):
        np.testing.assert_allclose(w.thm_49(6, 1.0, 0.5, 1e-300).row(6), w.lemma_b4(6, 1.0, 0.5).row(6), rtol=1e-15)

    @pytest.mark.parametrize("solver", ["closed", "dense", "cvxpy"])
    @pytest.mark.parametrize("R2", [0.5, math.inf])
    @pytest.mark.parametrize("t", [1, 2, 5])
    def test_no_drift(self, solver, R2, t):
        for D2, overlap in ((0.0, 0.0), (2.0, 2.0)):
            found = w.optimal(t, D2, R2, 0.6, overlap, 1.0, solver=solver)
            assert found.value == pytest.approx(1.0 + D2, abs=1e-12)
            np.testing.assert_allclose(found.weights, np.eye(t)[-1], atol=1e-8)
        np.testing.assert_array_equal(w.thm_49(5, 0.0, R2, 0.6).current, np.ones(5))

    def test_sizes_do_not_matter(self):
        for size in (1e-300, 1e300):
            found = w.optimal(7, size, size / 2, 0.5)
            np.testing.assert_allclose(found.weights, w.optimal(7, 1.0, 0.5, 0.5).weights, rtol=1e-14)
            assert found.value / size == pytest.approx(w.optimal(7, 1.0, 0.5, 0.5).value, rel=1e-14)


class TestTable2:
    def test_every_printed_digit_if_the_columns_are_squares(self):
        for row in w.table_2():
            assert np.round(row.as_squares, 4).tolist() == list(row.printed)

    def test_the_other_reading_fails_wherever_it_differs(self):
        apart = [np.abs(np.array(row.as_roots) - row.printed).max() for row in w.table_2()]
        assert [x > 5e-5 for x in apart] == [True, True, False, True, True]
        assert min(x for x in apart if x > 5e-5) > 0.08


class TestGiven:
    @drawn(st.integers(1, 30), st.integers(0, 2**32 - 1), LOSS)
    def test_any_covariance(self, t, seed, R2):
        F = np.random.default_rng(seed).standard_normal((t, t + 2))
        C = F @ F.T
        dense, numeric = w.given(C, R2, solver="dense"), w.given(C, R2, solver="cvxpy")
        np.testing.assert_allclose(numeric.weights, dense.weights, atol=1e-8)
        assert numeric.value == pytest.approx(dense.value, rel=1e-9)

    def test_several_minimisers(self):
        """Two identical rounds share their weight."""
        C = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        dense, numeric = w.given(C, 0.5, solver="dense"), w.given(C, 0.5, solver="cvxpy")
        expected = w.given(np.eye(2), 0.5)
        np.testing.assert_allclose(dense.weights, [*[expected.weights[0] / 2] * 2, expected.weights[1]], atol=1e-12)
        assert dense.value == pytest.approx(expected.value)
        assert numeric.value == pytest.approx(expected.value)

    def test_constraints_of_a_user(self):
        C = w.covariance(6, 1.0, 0.6)
        even = np.eye(6)[:1] - np.eye(6)[1:2]  # p_1 = p_2
        for solver in ("dense", "cvxpy"):
            found = w.given(C, 0.5, A_eq=even, b_eq=[0.0], solver=solver)
            assert found.weights[0] == pytest.approx(found.weights[1], abs=1e-12)
            assert found.value == pytest.approx(w.given(C, 0.5, A_eq=even, b_eq=[0.0]).value, rel=1e-10)
        assert found.value > w.given(C, 0.5).value
        capped = w.given(C, 0.5, A_ub=np.eye(6), b_ub=np.full(6, 0.3), nonnegative=True)
        assert capped.solver == "cvxpy"
        assert capped.weights.max() <= 0.3 + 1e-12
        assert capped.weights.min() >= 0
        free = w.given(C, 0.5, A_ub=np.eye(6), b_ub=np.full(6, 3.0))
        np.testing.assert_allclose(free.weights, w.optimal(6, 1.0, 0.5, 0.6).weights, atol=1e-10)
        repeated = w.given(C, 0.5, A_eq=np.ones((1, 6)), b_eq=[1.0])
        np.testing.assert_allclose(repeated.weights, w.optimal(6, 1.0, 0.5, 0.6).weights, atol=1e-10)


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"rounds": 0}, "weights.rounds = 0"),
            ({"rounds": 2.5}, "weights.rounds = 2.5"),
            ({"alpha": 1.0}, "weights.alpha = 1.0"),
            ({"alpha": -0.1}, "weights.alpha = -0.1"),
            ({"alpha": math.nan}, "weights.alpha = nan"),
            ({"D2": -1.0}, "weights.D2 = -1.0"),
            ({"D2": math.nan}, "weights.D2 = nan"),
            ({"D2": math.inf}, "weights.D2 = inf"),
            ({"R2": -1.0}, "weights.R2 = -1.0"),
            ({"R2": math.nan}, "weights.R2 = nan"),
            ({"R2": -math.inf}, "weights.R2 = -inf"),
            ({"R2": "much"}, "weights.R2 = 'much'"),
            ({"G2": -1.0}, "weights.G2 = -1.0"),
            ({"D2": 0.0, "R2": 0.0}, "weights.D2 = 0, weights.R2 = 0"),
            ({"overlap": 1.0, "R2": 0.0}, "weights.D2 - weights.overlap = 0, weights.R2 = 0"),
            ({"overlap": 1.5}, "weights.overlap = 1.5"),
            ({"overlap": -0.5}, "weights.overlap = -0.5"),
            ({"solver": "magic"}, "weights.solver = 'magic'"),
            ({"solver": "dense", "nonnegative": True}, "weights.solver = 'dense'"),
            ({"nonnegative": 1}, "weights.nonnegative = 1"),
            ({"rounds": 10**7, "solver": "dense"}, "weights.solver = dense"),
        ],
    )
    def test_optimal(self, change, field):
        with pytest.raises(InvalidInput) as error:
            w.optimal(**{"rounds": 4, "D2": 1.0, "R2": 1.0} | change)
        assert str(error.value).startswith(field)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"covariance": np.ones((2, 3))}, "weights.covariance has shape (2, 3)"),
            ({"covariance": []}, "weights.covariance has shape (0,)"),
            ({"covariance": [["a"]]}, "weights.covariance = "),
            ({"covariance": [[1.0, 0.5], [0.2, 1.0]]}, "weights.covariance differs from its transpose by 0.3"),
            ({"covariance": [[1.0, 2.0], [2.0, 1.0]]}, "weights.covariance has the eigenvalue -1"),
            ({"covariance": [[1.0, math.nan], [math.nan, 1.0]]}, "weights.covariance has an entry"),
            ({"covariance": np.ones((2, 2)), "R2": 0.0}, "weights.covariance is constant"),
            ({"R2": -1.0}, "weights.R2 = -1.0"),
            ({"solver": "closed"}, "weights.solver = 'closed'"),
            ({"solver": "dense", "nonnegative": True}, "weights.solver = 'dense'"),
            ({"A_eq": np.ones((1, 2))}, "weights.A_eq, weights.b_eq: give both"),
            ({"A_ub": np.ones((1, 3)), "b_ub": [1.0]}, "weights.A_ub has shape (1, 3)"),
            ({"A_ub": [["x", "y"]], "b_ub": [1.0]}, "weights.A_ub, weights.b_ub: must be a matrix"),
            ({"A_ub": [[1.0, math.nan]], "b_ub": [1.0]}, "weights.A_ub, weights.b_ub: must be finite"),
            ({"A_eq": np.ones((1, 2)), "b_eq": [2.0]}, "weights.A_eq, A_ub, nonnegative: no weights"),
            ({"A_eq": np.ones((1, 2)), "b_eq": [2.0], "solver": "cvxpy"}, "weights.A_eq, A_ub, nonnegative: no"),
            ({"A_ub": np.eye(2), "b_ub": [0.1, 0.1]}, "weights.A_eq, A_ub, nonnegative: no weights"),
            ({"covariance": [[1.0]], "A_ub": [[1.0]], "b_ub": [0.5]}, "weights.A_eq, A_ub, nonnegative: no"),
        ],
    )
    def test_given(self, change, field):
        with pytest.raises(InvalidInput) as error:
            w.given(**{"covariance": np.eye(2), "R2": 1.0} | change)
        assert str(error.value).startswith(field)
        assert "\n" not in str(error.value)

    def test_cvxpy_is_not_imported_before_it_is_needed(self):
        code = "import sys, theory.weights as w; w.optimal(9, 1.0, 1.0, 0.5); assert 'cvxpy' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)


CASES = {
    "coherent": ({}, {}),
    "per client": ({"loss_per_client": True}, {}),
    "partial": ({"correlation": 0.7, "overlap": 0.2}, {"sampled": 7}),
    "fresh": ({"fresh": True, "overlap": 0.2}, {"sampled": 7}),
    "stateless": ({"correlation": 0.7, "overlap": 0.2, "loss_per_client": True}, {"sampled": 7, "stateless": True}),
}


def case(name, rounds):
    drift, federation = CASES[name]
    return (
        nqm.Quadratic(dim=10, mu=1.0, L=5.0),
        nqm.Drift(**{"client": 0.5, "time": 1.0, "noise": 0.01, "loss_mean": 0.1, "loss_var": 0.01} | drift),
        nqm.Federation(**{"clients": 20, "rounds": rounds} | federation),
    )


@pytest.mark.parametrize("name", CASES)
class TestSimulated:
    def test_effective_constants_are_those_of_the_engine(self, name):
        problem, drift, federation = case(name, 9)
        rows = np.tril(np.random.default_rng(3).random((9, 9)) + 0.1)
        table = nqm.Table(rows / rows.sum(axis=1, keepdims=True))
        plan = Plan(nqm.Experiment(problem, drift, federation, nqm.CFL(0.1, weights=table)))
        spread = factors(plan).var * problem.dim / federation.S
        mean = plan.forgotten**2 * np.sum(plan.loss_shared**2)
        D2, R2, alpha, overlap, G2 = w.effective(problem, drift, federation)
        for t in range(1, 10):
            p = table.row(t)
            ours = G2 + value(p, w.covariance(t, D2, alpha, overlap), R2)
            assert ours == pytest.approx(spread[t - 1] + mean[t - 1], rel=1e-12)

    def test_the_best_ratio(self, name):
        problem, drift, federation = case(name, 12)
        found = w.simulated_optimal(problem, drift, federation, 0.05)
        assert all(found.error["best"] <= e for e in found.error.values())
        again = w.simulated_error(problem, drift, federation, 0.05, found.schedule)
        assert again == pytest.approx(found.error["best"], rel=1e-12)

    def test_the_best_of_all_schedules(self, name):
        problem, drift, federation = case(name, 12)
        table = w.simulated_optimal_schedule(problem, drift, federation, 0.05)
        least = w.simulated_error(problem, drift, federation, 0.05, table)
        assert least <= w.simulated_optimal(problem, drift, federation, 0.05).error["best"]
        rng = np.random.default_rng(5)
        for _ in range(10):
            step = 0.1 * np.tril(rng.standard_normal((12, 12)), -1)
            step[np.diag_indices(12)] = -step.sum(axis=1)
            up, down = (
                w.simulated_error(problem, drift, federation, 0.05, nqm.Table(table.rows + x)) for x in (step, -step)
            )
            assert up + down > 2 * least
            assert abs(up - down) < 1e-6 * (up + down - 2 * least)  # a quadratic at its minimum has no slope


def test_coherent_loss_counts_as_often_as_there_are_clients():
    problem, drift, federation = nqm.Quadratic(dim=50), nqm.Drift(time=0.01, loss_mean=0.01), nqm.Federation(100)
    bound = drift.loss_sq(50) / drift.time
    assert w.effective(problem, drift, federation).ratio == pytest.approx(100 * bound)
    own = nqm.Drift(time=0.01, loss_mean=0.01, loss_per_client=True)
    assert w.effective(problem, own, federation).ratio == pytest.approx(bound)


@pytest.mark.parametrize(
    ("drift", "field"),
    [({"time_slope": 0.1}, "drift.client_slope"), ({"fresh": True, "correlation": 0.5}, "drift.correlation = 0.5")],
)
def test_what_has_no_effective_constants(drift, field):
    with pytest.raises(InvalidInput, match=field):
        w.effective(nqm.Quadratic(dim=3), nqm.Drift(client=1.0, time=1.0, **drift), nqm.Federation(5))


def test_a_whole_schedule_is_for_few_rounds():
    with pytest.raises(InvalidInput, match=r"federation\.rounds = 65"):
        w.simulated_optimal_schedule(nqm.Quadratic(dim=3), nqm.Drift(time=1.0), nqm.Federation(5, rounds=65), 0.1)
