"""The four engines on the same experiments: equal paths where draws are shared, equal law where they are not."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest
from cases import CASES, GAUSSIAN, KALMAN, PROBLEM, ROUNDS, SAMPLED_ONLY, SERVERS, STEPS_ONLY, UNEXPECTED, Case

import nqm
from nqm import InvalidInput, expect, simulate

CURVES = ("grad_norm_sq", "excess_loss", "distance_sq")


def all_cases(group: dict[str, Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", group.values(), ids=group.keys())


def whitened(difference: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """z-scores made independent: rounds share most of their noise, so plain ones rise and fall together."""
    values, vectors = np.linalg.eigh(covariance)
    keep = values > 1e-10 * values[-1]
    return (vectors[:, keep].T @ difference) / np.sqrt(values[keep])


def flat(values: np.ndarray) -> np.ndarray:
    """(seeds, task, round) as (seeds, all rounds)."""
    return values.reshape(len(values), -1)


def check_law(samples: np.ndarray, exact: np.ndarray) -> None:
    """Sample means (seeds, rounds) against exact ones.

    Under the hypothesis the whitened scores are standard normal, so rms^2 over ~60 of them exceeds 1.3^2 with
    probability below 1e-3, and one of 60 exceeds 5 with probability 3e-5.
    """
    difference = samples.mean(axis=0) - exact
    covariance = np.atleast_2d(np.cov(samples.T)) / len(samples)
    z = whitened(difference, covariance)
    assert np.sqrt(np.mean(z**2)) <= 1.3
    assert np.abs(z).max() <= 5
    assert np.abs(difference / np.sqrt(np.diag(covariance))).max() <= 5


@all_cases(CASES | SAMPLED_ONLY | SERVERS | UNEXPECTED | KALMAN | STEPS_ONLY)
class TestSamePath:
    """`reference` and `steps` take the same named draws."""

    def test_reference_is_steps(self, case: Case) -> None:
        short = dataclasses.replace(case.federation, rounds=12)
        arguments = (case.problem, case.drift, short, case.method)
        slow = simulate(*arguments, seeds=[3, 11], engine="reference", clients=case.clients)
        fast = simulate(*arguments, seeds=[3, 11], engine="steps", clients=case.clients)
        for curve in (*CURVES, *(("moved_sq", "loss_of_task") if case.federation.tasks > 1 else ())):
            assert np.isfinite(slow[curve]).all()
            np.testing.assert_allclose(fast[curve], slow[curve], rtol=1e-10)
        for trace in case.method.traces:  # differences of nearly equal numbers: against the size of the curve
            size = float(np.nanmax(np.abs(slow[trace])))
            np.testing.assert_allclose(fast[trace], slow[trace], rtol=1e-9, atol=1e-10 * size)


@pytest.mark.parametrize("engine", ["steps", "collapsed"])
class TestSameLaw:
    """`expect` against sample means; 2,500 seeds here, 100,000 in the slow tests."""

    def compare(self, case: Case, engine: str, seeds: int) -> None:
        exact = expect(*case.parts, clients=case.clients)
        paths = simulate(*case.parts, seeds=seeds, engine=engine, clients=case.clients)
        several = case.federation.tasks > 1
        for curve in (*CURVES, *(("moved_sq",) if several else ())):
            check_law(flat(paths[curve].values[..., 1:]), flat(exact[curve].values[None, ..., 1:])[0])
        if several:
            for j in range(case.federation.tasks):
                sampled, claimed = paths["loss_of_task"].values[..., 1:, j], exact["loss_of_task"].values[..., 1:, j]
                check_law(flat(sampled), flat(claimed[None])[0])
        if exact.attrs["law"] == "gaussian":
            check_law(flat(paths["grad_norm"].values[..., 1:]), flat(exact["grad_norm"].values[None, ..., 1:])[0])

    @all_cases(CASES | SERVERS)
    def test_law(self, case: Case, engine: str) -> None:
        self.compare(case, engine, 2_500)

    @pytest.mark.slow
    @all_cases(CASES | SERVERS)
    def test_law_with_many_seeds(self, case: Case, engine: str) -> None:
        self.compare(case, engine, 100_000)

    @all_cases(CASES)
    def test_variance_of_the_loss(self, case: Case, engine: str) -> None:
        """Exact where w is Gaussian: 4,000 seeds, z of the sample variance at three rounds."""
        exact = expect(*case.parts, clients=case.clients)
        if exact.attrs["law"] != "gaussian":
            assert "closure" in exact.attrs["law"]
            return
        loss = simulate(*case.parts, seeds=4_000, engine=engine, clients=case.clients)["excess_loss"].values
        for t in (1, 10, ROUNDS):
            square = (loss[:, t] - loss[:, t].mean()) ** 2
            z = (square.mean() - exact["excess_loss_var"].values[t]) / (square.std() / np.sqrt(len(loss)))
            assert abs(z) < 5


@all_cases(SAMPLED_ONLY | UNEXPECTED | KALMAN)
def test_sampling_engines_agree_where_there_is_no_exact_one(case: Case) -> None:
    """6,000 seeds each of two independent samples; whitened two-sample z."""
    clients = case.clients
    one = simulate(*case.parts, seeds=6_000, engine="steps", clients=clients)
    two = simulate(*case.parts, seeds=range(10_000, 16_000), engine="collapsed", clients=clients)
    for curve in CURVES:
        a, b = flat(one[curve].values[..., 1:]), flat(two[curve].values[..., 1:])
        z = whitened(a.mean(0) - b.mean(0), np.cov(a.T) / len(a) + np.cov(b.T) / len(b))
        assert np.sqrt(np.mean(z**2)) <= 1.3
        assert np.abs(z).max() <= 5


@all_cases(SAMPLED_ONLY)
def test_expect_names_what_it_cannot_run(case: Case) -> None:
    with pytest.raises(InvalidInput, match=r"expect can't run method.name = 'cfl' with a slope that moves"):
        expect(*case.parts)


@all_cases(CASES)
def test_compiled_moments_are_the_numpy_ones(case: Case) -> None:
    plain = expect(*case.parts, lr=[0.01, 0.03, 0.05], norm=False, clients=case.clients)
    fast = expect(*case.parts, lr=[0.01, 0.03, 0.05], norm=False, clients=case.clients, compiled=True)
    for curve in (*CURVES, "excess_loss_var"):
        np.testing.assert_allclose(fast[curve], plain[curve], rtol=1e-11, atol=1e-14)


@all_cases(CASES | SERVERS)
def test_a_grid_of_rates_is_its_rates_one_by_one(case: Case) -> None:
    rates = [0.01, 0.05]
    grid = expect(*case.parts, lr=rates, clients=case.clients)
    for lr in rates:
        alone = expect(*case.parts[:3], case.method.with_lr(lr), clients=case.clients)
        for curve in (*CURVES, "grad_norm", "excess_loss_var"):
            np.testing.assert_allclose(grid[curve].sel(lr=lr), alone[curve], rtol=1e-12)


def test_expect_conditions_on_the_seeds_clients_and_says_so() -> None:
    case = CASES["cfl, client slope"]
    alone = expect(*case.parts, seed=1)
    given = expect(*case.parts, clients=case.clients)
    assert alone.attrs["conditioned_on"] == "the clients of seed 1"
    assert given.attrs["conditioned_on"] == "given clients"
    np.testing.assert_array_equal(alone["grad_norm_sq"], given["grad_norm_sq"])


@pytest.mark.parametrize("name", CASES | SERVERS)
def test_expect_says_where_it_is_not_exact(name: str) -> None:
    case = (CASES | SERVERS)[name]
    law = expect(*case.parts, clients=case.clients, norm=False).attrs["law"]
    assert (law == "gaussian") == (name in GAUSSIAN)
    assert law == "gaussian" or "closures" in law


@pytest.mark.parametrize("name", [name for name in CASES if name not in GAUSSIAN])
def test_the_gaussian_closure_is_close(name: str) -> None:
    """Where w is not Gaussian, E||g|| is a closure: within 2 % of 5,000 seeds (standard error 0.5 %) in these cases."""
    case = CASES[name]
    closure = expect(*case.parts, clients=case.clients)["grad_norm"].values
    norms = simulate(*case.parts, seeds=5_000, engine="collapsed", clients=case.clients)["grad_norm"].values
    spread = norms.std(axis=0) / np.sqrt(len(norms))
    assert (np.abs(closure - norms.mean(axis=0)) <= 0.02 * closure + 4 * spread).all()


def test_given_clients_sampled_without_replacement() -> None:
    """2 of 3 given clients, two rounds, no other noise: all nine sequences of samples, by hand."""
    problem = nqm.Quadratic(dim=2, mu=1, L=4, w0=0.5)
    drift, federation, method = nqm.Drift(client=3.0), nqm.Federation(3, 2, local_steps=1, rounds=2), nqm.FedAvg(0.2)
    clients = nqm.draw_clients(problem, drift, federation, seed=4)
    lam, total = problem.eigenvalues, np.zeros(3)
    for one in combinations(range(3), 2):
        for two in combinations(range(3), 2):
            e, squares = problem.start, [np.sum((lam * problem.start) ** 2)]
            for chosen in (one, two):
                e = e - 0.2 * (lam * e + clients.delta[list(chosen)].mean(axis=0))
                squares.append(np.sum((lam * e) ** 2))
            total += np.array(squares) / 9
    exact = expect(problem, drift, federation, method, clients=clients)["grad_norm_sq"].values
    np.testing.assert_allclose(exact, total, rtol=1e-12)
    sampled = simulate(problem, drift, federation, method, seeds=4_000, clients=clients)["grad_norm_sq"].values
    z = (sampled.mean(0) - exact)[1:] / (sampled.std(0)[1:] / np.sqrt(4_000))
    assert np.abs(z).max() < 4.5


def test_a_flat_direction_wanders_without_counting_as_distance() -> None:
    """An exact zero eigenvalue under drift: 3,000 seeds, and the flat direction's random walk is left out."""
    problem = nqm.Quadratic(dim=3, mu=0, L=4, spectrum="linspace")
    parts = problem, nqm.Drift(time=30.0, client=3.0), nqm.Federation(2, local_steps=2, rounds=30), nqm.FedAvg(0.1)
    exact = expect(*parts)
    for engine in ("steps", "collapsed"):
        paths = simulate(*parts, seeds=3_000, engine=engine)["distance_sq"].values
        z = (paths.mean(0) - exact["distance_sq"].values)[1:] / (paths.std(0)[1:] / np.sqrt(3_000))
        assert np.abs(z).max() < 5
    slow = simulate(*parts, seeds=2, engine="reference")["distance_sq"]
    np.testing.assert_allclose(simulate(*parts, seeds=2)["distance_sq"], slow, rtol=1e-10)


def test_the_shared_information_loss_is_the_same_in_every_coordinate_of_w() -> None:
    """One round of pure information loss moves w by -lr K-step I (1, ..., 1), not by an eigenbasis vector."""
    problem = nqm.Quadratic(dim=4, mu=1, L=1 + 1e-9, b=0.0, w0=0.0)  # A is the identity, so that I*1 stays I*1
    method = nqm.CFL(0.1, weights=[[1.0], [0.5, 0.5]])
    drift, federation = nqm.Drift(loss_mean=0.3), nqm.Federation(2, local_steps=1, rounds=2)
    exact = expect(problem, drift, federation, method)
    assert float(exact["distance_sq"][2]) == pytest.approx(4 * (0.1 * 0.5 * 0.3) ** 2, rel=1e-6)
    tilted = nqm.Quadratic(dim=4, mu=1, L=9, b=0.0, w0=0.0)
    value = expect(tilted, drift, federation, method)["grad_norm_sq"][2]
    by_hand = np.sum((tilted.A @ np.full(4, 0.1 * 0.5 * 0.3)) ** 2)
    assert float(value) == pytest.approx(by_hand, rel=1e-12)


def test_averaging_over_given_clients_gives_the_unconditional_law() -> None:
    """E over clients of E[. | clients] is E[.]: 3,000 draws of clients, z at three rounds."""
    case = CASES["fedprox, sampled, server rate"]
    exact = expect(*case.parts, norm=False)["grad_norm_sq"].values
    given = np.array(
        [
            expect(*case.parts, clients=nqm.draw_clients(*case.parts[:3], seed=s), norm=False)["grad_norm_sq"].values
            for s in range(3_000)
        ]
    )
    z = (given.mean(0) - exact)[1:] / (given.std(0)[1:] / np.sqrt(len(given)))
    assert np.abs(z[[0, 10, -1]]).max() < 4.5


def test_a_diverging_run_is_named_with_its_round() -> None:
    case = CASES["fedavg"]
    federation = dataclasses.replace(case.federation, rounds=400)
    method = case.method.with_lr(0.6)
    rounds = []
    for engine in ("reference", "steps", "collapsed"):
        paths = simulate(PROBLEM, case.drift, federation, method, seeds=2, engine=engine)
        at = paths["diverged_at"].values
        rounds.append(int(at[0]))
        for s in range(2):
            curve = paths["grad_norm"].values[s]
            assert np.isfinite(curve[: at[s]]).all()
            assert np.isposinf(curve[at[s] :]).all()
    exact = expect(PROBLEM, case.drift, federation, method, lr=[0.05, 0.6])
    assert exact["diverged_at"].values[0] == -1
    rounds.append(int(exact["diverged_at"].values[1]))
    assert not np.isnan(exact["grad_norm"].values).any()
    assert max(rounds) - min(rounds) <= 2
    assert min(rounds) > 10


def test_result_carries_its_whole_configuration() -> None:
    case = CASES["cfl"]
    paths = simulate(*case.parts, seeds=[5])
    for key in ("experiment", "version", "random_scheme", "engine"):
        assert key in paths.attrs
    assert paths.sizes == {"seed": 1, "round": ROUNDS + 1}
    assert '"client": 0.7' in paths.attrs["experiment"]
