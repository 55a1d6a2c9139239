"""E||g|| of a Gaussian vector against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from nqm.gaussian import mean_norm


@pytest.mark.parametrize("n", [1, 2, 3, 8, 50, 1000])
@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1.0, 1e8, 1e150])
def test_chi(n: int, scale: float) -> None:
    """Equal variances, no mean: sqrt(2) Gamma((n+1)/2) / Gamma(n/2)."""
    expected = scale * math.sqrt(2) * math.exp(special.gammaln((n + 1) / 2) - special.gammaln(n / 2))
    value = mean_norm(np.zeros((1, n)), np.full((1, n), scale**2))
    assert value[0] == pytest.approx(expected, rel=1e-12)


@given(st.floats(-5, 5), st.floats(1e-3, 3))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_folded_normal(mean: float, sd: float) -> None:
    expected = stats.foldnorm.mean(abs(mean) / sd, scale=sd)
    assert mean_norm(np.array([[mean]]), np.array([[sd**2]]))[0] == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("nu", [0.5, 2.0, 7.0])
def test_rice(nu: float) -> None:
    expected = stats.rice.mean(nu)
    assert mean_norm(np.array([[nu, 0.0]]), np.ones((1, 2)))[0] == pytest.approx(expected, rel=1e-11)


def test_no_variance_is_the_norm_itself() -> None:
    mean = np.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(mean_norm(mean, np.zeros((2, 2))), [5.0, 0.0], rtol=1e-13)


def test_wildly_different_variances() -> None:
    """Eleven decades of variance: against a million draws, |z| < 4.5."""
    var = np.logspace(-6, 5, 12)
    mean = np.linspace(-2, 2, 12) * np.sqrt(var)
    x = np.random.default_rng(0).normal(mean, np.sqrt(var), size=(1_000_000, 12))
    norms = np.linalg.norm(x, axis=1)
    z = (norms.mean() - mean_norm(mean[None], var[None])[0]) / (norms.std() / 1000)
    assert abs(z) < 4.5


@given(st.integers(0, 10_000), st.integers(1, 20))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_order_and_shape_do_not_matter(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    mean, var = rng.normal(size=(2, 3, n)), rng.exponential(size=(2, 3, n))
    order = rng.permutation(n)
    value = mean_norm(mean, var)
    assert value.shape == (2, 3)
    np.testing.assert_allclose(mean_norm(mean[..., order], var[..., order]), value, rtol=1e-13)
    assert (value**2 <= (mean**2 + var).sum(-1)).all()
    assert (value >= np.linalg.norm(mean, axis=-1) * (1 - 1e-12)).all()


def test_not_finite_is_infinite_and_never_nan() -> None:
    value = mean_norm(np.array([[np.inf, 1.0], [np.nan, 1.0]]), np.ones((2, 2)))
    assert np.isposinf(value).all()
