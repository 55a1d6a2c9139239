"""Laws that the model must obey whatever the numbers: limits, symmetries, monotonicity. All on the exact engine."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nqm import (
    CFL,
    CL,
    SGD,
    Drift,
    FedAvg,
    Federation,
    FedProx,
    Quadratic,
    Schedule,
    Table,
    expect,
    simulate,
)
from theory.weights import lemma_b4, thm_49

CURVES = ("grad_norm_sq", "excess_loss", "distance_sq", "excess_loss_var", "grad_norm")
T = 15
law = settings(max_examples=40, deadline=None, derandomize=True)

size = st.floats(0, 10) | st.just(0.0)
drifts = st.builds(
    Drift,
    client=size,
    time=st.floats(2, 10),
    overlap=st.floats(0, 2),
    correlation=st.floats(0, 0.95),
    noise=size,
    loss_mean=st.floats(0, 0.5),
    loss_var=st.floats(0, 0.1),
    fresh=st.booleans(),
    loss_per_client=st.booleans(),
)
problems = st.builds(
    Quadratic,
    dim=st.integers(1, 6),
    mu=st.floats(0, 1),
    L=st.floats(2, 10),
    spectrum=st.sampled_from(["midpoint", "linspace", "uniform"]),
    w0=st.floats(-2, 2),
    seed=st.integers(0, 1000),
)


@st.composite
def federations(draw: st.DrawFn) -> Federation:
    clients = draw(st.integers(1, 8))
    return Federation(
        clients, draw(st.integers(1, clients)), draw(st.integers(1, 6)), rounds=T, stateless=draw(st.booleans())
    )


rates = st.floats(0.005, 0.09)


@st.composite
def weights(draw: st.DrawFn) -> Schedule | Table:
    kind = draw(st.sampled_from(["lemma", "theorem", "uniform", "table"]))
    if kind == "lemma":
        return lemma_b4(T, draw(st.floats(0.1, 10)), draw(st.floats(0, 10)))
    if kind == "theorem":
        return thm_49(T, draw(st.floats(0.1, 10)), draw(st.floats(0, 10)), draw(st.floats(0, 0.9)))
    if kind == "uniform":
        return Schedule.uniform(T)
    rows = np.tril(np.random.default_rng(draw(st.integers(0, 99))).normal(size=(T, T)) + 2 * np.eye(T))
    rows[:, 0] += 1 - rows.sum(axis=1)
    return Table(rows)


def same(a, b, rtol: float = 1e-9, curves=CURVES) -> None:
    for curve in curves:
        scale = float(np.abs(b[curve]).max()) or 1.0
        np.testing.assert_allclose(a[curve], b[curve], rtol=rtol, atol=rtol * scale * 1e-3)


@law
@given(problems, drifts, federations(), rates)
def test_one_local_step_is_sgd(problem, drift, federation, lr):
    federation = dataclasses.replace(federation, local_steps=1)
    same(expect(problem, drift, federation, FedAvg(lr)), expect(problem, drift, federation, SGD(lr)))


@law
@given(problems, drifts, federations(), rates)
def test_no_prox_is_fedavg(problem, drift, federation, lr):
    same(expect(problem, drift, federation, FedProx(lr, prox=0)), expect(problem, drift, federation, FedAvg(lr)))


@law
@given(problems, drifts, federations(), rates)
def test_no_memory_is_fedavg(problem, drift, federation, lr):
    fedavg = expect(problem, drift, federation, FedAvg(lr))
    same(expect(problem, drift, federation, CFL(lr, weights="current")), fedavg)
    same(expect(problem, drift, federation, CFL(lr, weights=np.eye(T))), fedavg)


@law
@given(problems, drifts, federations(), rates, st.floats(0.5, 5))
def test_infinite_information_loss_turns_cfl_into_fedavg(problem, drift, federation, lr, D2):
    drift = dataclasses.replace(drift, loss_mean=0.0, loss_var=0.0)
    fedavg = expect(problem, drift, federation, FedAvg(lr))
    same(expect(problem, drift, federation, CFL(lr, weights=lemma_b4(T, D2, 1e14))), fedavg, rtol=1e-6)


@law
@given(problems, drifts, federations(), rates)
def test_no_information_loss_remembers_evenly(problem, drift, federation, lr):
    even = expect(problem, drift, federation, CFL(lr, weights="uniform"))
    same(expect(problem, drift, federation, CFL(lr, weights=lemma_b4(T, 3.0, 0.0))), even)


@law
@given(problems, drifts, federations(), rates, weights())
def test_a_schedule_is_its_table(problem, drift, federation, lr, w):
    table = Table(np.stack([np.pad(w.row(t), (0, T - t)) for t in range(1, T + 1)]))
    same(
        expect(problem, drift, federation, CFL(lr, weights=w)),
        expect(problem, drift, federation, CFL(lr, weights=table)),
    )


@law
@given(problems, drifts, st.integers(2, 8), st.integers(1, 6), rates, weights())
def test_many_clients_are_one_client_with_less_variance(problem, drift, N, K, lr, w):
    """Under full participation the average of N clients is one client with 1/N of every variance."""
    drift = dataclasses.replace(drift, loss_per_client=False)
    less = dataclasses.replace(
        drift, **{f: getattr(drift, f) / N for f in ("client", "time", "overlap", "noise", "loss_var")}
    )
    many = expect(problem, drift, Federation(N, None, K, T), CFL(lr, weights=w))
    same(many, expect(problem, less, Federation(1, None, K, T), CL(lr, weights=w)))


@law
@given(problems, st.integers(1, 6), st.integers(1, 6), rates, st.data())
def test_equal_clients_are_one_client(problem, N, K, lr, data):
    """Without drift, who takes part and how many there are does not matter."""
    S = data.draw(st.integers(1, N))
    same(
        expect(problem, Drift(), Federation(N, S, K, T), FedAvg(lr)),
        expect(problem, Drift(), Federation(1, 1, K, T), FedAvg(lr)),
    )


@law
@given(problems, drifts, federations(), rates, weights())
def test_rotation_invariance(problem, drift, federation, lr, w):
    """A rotation moves the shared mean of the information loss and nothing else."""
    drift = dataclasses.replace(drift, loss_mean=0.0)
    straight = dataclasses.replace(problem, rotation="none")
    same(
        expect(problem, drift, federation, CFL(lr, weights=w)), expect(straight, drift, federation, CFL(lr, weights=w))
    )


@law
@given(problems, drifts, federations(), rates, weights())
def test_translation_invariance(problem, drift, federation, lr, w):
    """Moving the optimum and the start together changes nothing: b -> b - A v, w0 -> w0 + v."""
    v = np.linspace(-3, 2, problem.dim)
    given_ = dataclasses.replace(
        problem, b=tuple(problem.from_eigen(problem.b_eigen)), w0=tuple(problem.from_eigen(problem.w0_eigen))
    )
    moved = dataclasses.replace(given_, b=tuple(np.array(given_.b) - problem.A @ v), w0=tuple(np.array(given_.w0) + v))
    if (problem.eigenvalues == 0).any():
        return  # a flat direction has no one optimum to move
    same(expect(moved, drift, federation, CFL(lr, weights=w)), expect(problem, drift, federation, CFL(lr, weights=w)))


@law
@given(problems, drifts, federations(), rates, weights(), st.floats(0.1, 10))
def test_units_do_not_matter(problem, drift, federation, lr, w, c):
    """Gradients in other units: b, w0 by c and variances by c^2 scale every squared curve by c^2."""
    scaled = dataclasses.replace(problem, b=problem.b * c, w0=problem.w0 * c)
    louder = dataclasses.replace(
        drift,
        loss_mean=drift.loss_mean * c,
        **{f: getattr(drift, f) * c**2 for f in ("client", "time", "overlap", "noise", "loss_var")},
    )
    a = expect(scaled, louder, federation, CFL(lr, weights=w))
    b = expect(problem, drift, federation, CFL(lr, weights=w))
    for curve, power in (
        ("grad_norm_sq", 2),
        ("excess_loss", 2),
        ("distance_sq", 2),
        ("grad_norm", 1),
        ("excess_loss_var", 4),
    ):
        np.testing.assert_allclose(a[curve], b[curve] * c**power, rtol=1e-8, atol=1e-12 * c**power)


@law
@given(problems, drifts, federations(), rates)
def test_time_and_curvature_trade(problem, drift, federation, lr):
    """A -> 2A with half the rate and half the offset makes the same path."""
    steeper = dataclasses.replace(problem, mu=2 * problem.mu, L=2 * problem.L, b=2 * problem.b)
    louder = dataclasses.replace(
        drift,
        loss_mean=2 * drift.loss_mean,
        **{f: getattr(drift, f) * 4 for f in ("client", "time", "overlap", "noise", "loss_var")},
    )
    a = expect(steeper, louder, federation, FedAvg(lr / 2))
    b = expect(problem, drift, federation, FedAvg(lr))
    np.testing.assert_allclose(a["distance_sq"], b["distance_sq"], rtol=1e-8, atol=1e-12)


@law
@given(problems, drifts, federations(), rates, weights(), st.sampled_from(["client", "time", "noise", "loss_var"]))
def test_more_variance_is_never_better(problem, drift, federation, lr, w, field):
    more = dataclasses.replace(drift, **{field: getattr(drift, field) + 1.0})
    a = expect(problem, drift, federation, CFL(lr, weights=w), norm=False)["grad_norm_sq"].values
    b = expect(problem, more, federation, CFL(lr, weights=w), norm=False)["grad_norm_sq"].values
    assert (b >= a * (1 - 1e-9) - 1e-12).all()


@law
@given(problems, drifts, st.integers(2, 8), st.integers(1, 5), rates, weights(), st.data())
def test_sampling_more_clients_is_never_worse(problem, drift, N, K, lr, w, data):
    S = data.draw(st.integers(1, N - 1))
    few = expect(problem, drift, Federation(N, S, K, T), CFL(lr, weights=w), norm=False)["grad_norm_sq"].values
    more = expect(problem, drift, Federation(N, S + 1, K, T), CFL(lr, weights=w), norm=False)["grad_norm_sq"].values
    assert (more <= few * (1 + 1e-9) + 1e-12).all()


@law
@given(problems, federations(), rates, st.floats(0.1, 10), weights())
def test_full_overlap_is_client_drift(problem, federation, lr, D2, w):
    federation = dataclasses.replace(federation, stateless=False)
    overlap = expect(problem, Drift(time=D2, overlap=D2), federation, CFL(lr, weights=w))
    same(overlap, expect(problem, Drift(client=D2), federation, FedAvg(lr)))


@law
@given(problems, federations(), rates, st.floats(0.1, 10), weights())
def test_fresh_client_drift_is_independent_time_drift(problem, federation, lr, D2, w):
    same(
        expect(problem, Drift(client=D2, fresh=True), federation, CFL(lr, weights=w)),
        expect(problem, Drift(time=D2), federation, CFL(lr, weights=w)),
    )


@law
@given(problems, drifts, federations(), rates, weights())
def test_correlation_has_its_limits(problem, drift, federation, lr, w):
    """alpha -> 0 is no correlation; alpha -> 1 is an overlap of all that moves."""
    federation = dataclasses.replace(federation, stateless=False)
    for alpha, limit in (
        (1e-12, dataclasses.replace(drift, correlation=0.0)),
        (1 - 1e-13, dataclasses.replace(drift, correlation=0.0, overlap=drift.time)),
    ):
        near = dataclasses.replace(drift, correlation=alpha)
        same(
            expect(problem, near, federation, CFL(lr, weights=w)),
            expect(problem, limit, federation, CFL(lr, weights=w)),
            rtol=1e-6,
        )


@law
@given(problems, drifts, federations(), rates, weights())
def test_stateless_clients_have_neither_number_nor_correlation(problem, drift, federation, lr, w):
    federation = dataclasses.replace(federation, stateless=True)
    more = dataclasses.replace(federation, clients=federation.clients + 5, sampled=federation.S)
    plain = dataclasses.replace(drift, correlation=0.0, overlap=0.0)
    same(expect(problem, drift, more, CFL(lr, weights=w)), expect(problem, plain, federation, CFL(lr, weights=w)))


@law
@given(problems, drifts, federations(), rates, weights())
def test_norms_obey_jensen(problem, drift, federation, lr, w):
    result = expect(problem, drift, federation, CFL(lr, weights=w))
    assert (result["grad_norm"] ** 2 <= result["grad_norm_sq"] * (1 + 1e-9) + 1e-18).all()
    assert (result["excess_loss_var"] >= 0).all()
    mu, L = problem.eigenvalues.min(), problem.eigenvalues.max()
    assert (result["grad_norm_sq"] <= 2 * L * result["excess_loss"] * (1 + 1e-9) + 1e-18).all()
    assert (result["grad_norm_sq"] >= 2 * mu * result["excess_loss"] * (1 - 1e-9) - 1e-18).all()


@law
@given(problems, drifts, federations(), rates, st.floats(0.01, 0.3))
def test_slopes_vanish_continuously(problem, drift, federation, lr, slope):
    """The general engine with a negligible slope is the engine without slopes."""
    drift = dataclasses.replace(drift, fresh=False)
    tiny = dataclasses.replace(drift, time_slope=1e-24)
    same(
        expect(problem, tiny, federation, FedAvg(lr)),
        expect(problem, drift, federation, FedAvg(lr)),
        rtol=1e-7,
    )


def test_slopes_scale_the_gradient_as_assumption_3_says() -> None:
    """E||E_i (w - w*)||^2 = B^2 ||grad f(w)||^2: with SGD, K = 1, one round from w0, variance of the step is
    lr^2 B^2 ||g||^2.
    """
    problem = Quadratic(dim=4, mu=1, L=5, w0=1.0)
    g = float(np.sum((problem.eigenvalues * problem.start) ** 2))
    lr, B2 = 0.1, 0.3
    for drift in (Drift(time_slope=B2), Drift(client_slope=B2, fresh=True)):
        moved = expect(problem, drift, Federation(1, local_steps=1, rounds=1), SGD(lr))
        still = expect(problem, Drift(), Federation(1, local_steps=1, rounds=1), SGD(lr))
        assert float((moved["distance_sq"] - still["distance_sq"])[1]) == pytest.approx(lr**2 * B2 * g, rel=1e-12)


@pytest.mark.parametrize("K", [1, 7, 60, 400])
def test_many_local_steps_under_a_random_slope(K: int) -> None:
    """One client, one round, no noise: E e'^2 = e^2 E a^(2K), the moments of a normal a by exact rational recursion."""
    lam, lr, slope = Fraction(1, 2), Fraction(1, 64), Fraction(1, 16)
    mean, variance = 1 - lr * lam, (lr * lam) ** 2 * slope
    moments = [Fraction(1), mean]
    for j in range(1, 2 * K):
        moments.append(mean * moments[j] + j * variance * moments[j - 1])
    problem = Quadratic(dim=1, spectrum=(float(lam),), b=0.0, w0=(1.0,))
    drift, federation = Drift(time_slope=float(slope)), Federation(1, local_steps=K, rounds=1)
    value = expect(problem, drift, federation, FedAvg(float(lr)))["distance_sq"][1]
    assert float(value) == pytest.approx(float(moments[2 * K]), rel=1e-10)


def brute_force(problem, drift, federation, method) -> np.ndarray:
    """E||g||^2 by the definition: every sequence of samples, and the Gaussian part by the full linear map of
    all draws.
    """
    N, S, K, T = federation.clients, federation.S, federation.local_steps, federation.rounds
    step, follow, prox, server = method.linear(K)
    lam, start = problem.eigenvalues, problem.start
    w = method.weights_for(T)
    n = problem.dim
    sets = list(combinations(range(N), S))
    total = np.zeros(T + 1)
    # columns: delta_i, then xi_{t,i} (unit AR(1) below), then nu_{t,i,k}
    size = N + T * N + T * N * K
    covariance = np.zeros((size, size))
    for i in range(N):
        covariance[i, i] = drift.client / n
        for t, s in product(range(T), repeat=2):
            rho = (
                1.0
                if t == s
                else (drift.correlation ** abs(t - s)) * (drift.time - drift.overlap) / drift.time
                + (drift.overlap / drift.time)
            )
            covariance[N + t * N + i, N + s * N + i] = rho * drift.time / n
    for j in range(N + T * N, size):
        covariance[j, j] = drift.noise / n
    for chosen in product(sets, repeat=T):
        for d in range(n):
            mean, row = start[d], np.zeros(size)
            gains = [lam[d] ** 2 * mean**2]
            for t in range(T):
                p = w.row(t + 1)
                mean_update, row_update = 0.0, np.zeros(size)
                for i in chosen[t]:
                    local_mean, local = mean, row.copy()
                    for k in range(K):
                        gradient = np.zeros(size)
                        gradient[i] = 1.0
                        for tau in range(t + 1):
                            gradient[N + tau * N + i] += p[tau]
                        gradient[N + T * N + (t * N + i) * K + k] = 1.0
                        at_mean, at = (local_mean, local) if follow else (mean, row)
                        new_mean = local_mean - step * (lam[d] * at_mean + prox * (local_mean - mean))
                        local = local - step * (lam[d] * at + gradient + prox * (local - row))
                        local_mean = new_mean
                    mean_update += (local_mean - mean) / S
                    row_update += (local - row) / S
                mean, row = mean + server * mean_update, row + server * row_update
                gains.append(lam[d] ** 2 * (mean**2 + row @ covariance @ row))
            total += np.array(gains)
    return total / len(sets) ** T


@pytest.mark.parametrize(
    ("drift", "method"),
    [
        (Drift(client=1.0, time=2.0, noise=0.5), FedAvg(0.1)),
        (Drift(client=1.0, time=2.0, correlation=0.6, noise=0.5), FedProx(0.1, prox=0.7, server_lr=1.3)),
        (Drift(client=1.0, time=2.0, correlation=0.6), CFL(0.1, weights=thm_49(3, 2.0, 0.5, 0.6))),
        (Drift(client=1.0, time=2.0, overlap=0.8, noise=0.1), CFL(0.1, weights=lemma_b4(3, 2.0, 0.5))),
        (
            Drift(client=1.0, time=2.0, correlation=0.3, overlap=0.5),
            CFL(0.1, weights=[[1], [0.3, 0.7], [0.5, -0.2, 0.7]]),
        ),
        (Drift(client=1.0, time=2.0, noise=0.5), SGD(0.1)),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_exact_is_brute_force(drift, method) -> None:
    """2 of 3 clients, 3 rounds: all 27 sequences of samples, every Gaussian as a column of one linear map."""
    problem = Quadratic(dim=2, mu=1, L=4, w0=0.5)
    federation = Federation(3, 2, local_steps=2, rounds=3)
    exact = expect(problem, drift, federation, method)["grad_norm_sq"].values
    np.testing.assert_allclose(exact, brute_force(problem, drift, federation, method), rtol=1e-12)


def test_stationary_variance_has_its_closed_form() -> None:
    """FedAvg with noise alone settles at noise/S * eta^2 q / (1 - gamma^2) in every direction."""
    problem = Quadratic(dim=3, mu=1, L=5)
    lr, K, S, sigma2 = 0.05, 4, 3, 0.9
    lam = problem.eigenvalues
    a = 1 - lr * lam
    q = (1 - a ** (2 * K)) / (1 - a**2)
    expected = np.sum(lam**2 * lr**2 * q * sigma2 / 3 / S / (1 - a ** (2 * K)))
    floor = expect(problem, Drift(noise=sigma2), Federation(S, local_steps=K, rounds=800), FedAvg(lr))["grad_norm_sq"][
        -1
    ]
    assert float(floor) == pytest.approx(expected, rel=1e-10)


def test_full_participation_draws_no_sample() -> None:
    """S = N by name and S = N by default are the same bits, and nobody is left out."""
    problem, drift = Quadratic(dim=3), Drift(client=1.0, time=1.0, noise=0.1)
    one = simulate(problem, drift, Federation(4, 4, rounds=10), FedAvg(0.01), seeds=3)
    two = simulate(problem, drift, Federation(4, rounds=10), FedAvg(0.01), seeds=3)
    np.testing.assert_array_equal(one["excess_loss"], two["excess_loss"])
