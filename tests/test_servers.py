"""What the methods with a memory, sequences of tasks and finite sums must satisfy, whatever their numbers."""

from __future__ import annotations

import dataclasses
from itertools import pairwise, product

import numpy as np
import pytest
from cases import BASE, FINITE, KALMAN, SHIFTED, SLOPES, Case, federation
from hypothesis import given, settings
from hypothesis import strategies as st

import nqm
from nqm import (
    CFlag,
    Clients,
    Drift,
    FedAvg,
    FedAvgM,
    Federation,
    FedEve,
    FedOpt,
    FedProx,
    FedTrack,
    InvalidInput,
    MimeLite,
    Quadratic,
    Scaffold,
    Special,
    SpecialC,
    draw_clients,
    expect,
    finite,
    simulate,
    transfer,
)
from nqm.experiment import Experiment
from nqm.plan import Plan
from nqm.reference import Path

CURVES = ("grad_norm_sq", "excess_loss", "distance_sq")
ENGINES = ("reference", "steps", "collapsed", "expect")


def curves(parts: tuple, engine: str, clients: list[Clients] | None = None) -> dict[str, np.ndarray]:
    if engine == "expect":
        data = expect(*parts, clients=clients)
    else:
        data = simulate(*parts, seeds=[2, 5], engine=engine, clients=clients)
    names = [*CURVES, *(["loss_of_task", "moved_sq"] if "task" in data.dims else [])]
    return {name: data[name].values for name in names}


def same(one: tuple, two: tuple, engine: str, clients: list[Clients] | None = None, rtol: float = 1e-9) -> None:
    a, b = curves(one, engine, clients), curves(two, engine, clients)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=rtol, atol=1e-13)


@pytest.mark.parametrize("engine", ENGINES)
class TestLimits:
    """The same answer by a needlessly complicated route."""

    def both(
        self, method: nqm.Method, plain: nqm.Method, engine: str, drift: Drift | None = None, tasks: int = 1
    ) -> None:
        # Where paths are compared the folded draws must be the same ones, so that law and path are one: no noise there.
        quiet = Drift(client=0.7) if engine == "collapsed" else Drift(**BASE)
        f = federation(6, 3, tasks=tasks)
        f = dataclasses.replace(f, rounds=min(f.rounds, 15))
        same((SHIFTED, drift or quiet, f, method), (SHIFTED, drift or quiet, f, plain), engine)

    def test_no_momentum_is_fedavg(self, engine: str) -> None:
        self.both(FedAvgM(0.05, server_lr=0.8, momentum=0.0), FedAvg(0.05, server_lr=0.8), engine)
        self.both(MimeLite(0.05, server_lr=0.8, momentum=0.0), FedAvg(0.05, server_lr=0.8), engine)

    def test_no_proximal_term_is_fedavg(self, engine: str) -> None:
        self.both(Special(0.05, prox=0.0, decay=False), FedAvg(0.05), engine, tasks=2)
        self.both(SpecialC(0.05, prox=0.0, decay=False), FedAvg(0.05), engine, tasks=2)

    def test_the_first_task_of_special_is_fedavg(self, engine: str) -> None:
        self.both(Special(0.05, prox=3.0), FedAvg(0.05), engine)
        self.both(SpecialC(0.05, prox=3.0), FedAvg(0.05), engine)

    def test_a_gain_of_one_without_prediction_is_fedavg(self, engine: str) -> None:
        self.both(FedEve(0.05, gain=1.0, predict=False), FedAvg(0.05), engine)

    def test_a_gain_of_zero_stands_still(self, engine: str) -> None:
        f = dataclasses.replace(federation(6, 3), rounds=5)
        found = curves((SHIFTED, Drift(**BASE), f, FedEve(0.05, gain=0.0)), engine)
        for values in found.values():
            np.testing.assert_allclose(values, np.broadcast_to(values[..., :1], values.shape), rtol=1e-12)

    def test_an_endless_proximal_term_freezes_the_second_task(self, engine: str) -> None:
        f = dataclasses.replace(federation(6, 3, tasks=2), rounds=8)
        found = curves((SHIFTED, Drift(**BASE), f, Special(0.05, prox=1e12)), engine)
        assert found["moved_sq"][..., 1, :].max() < 1e-18

    def test_scaffold_under_one_hessian_is_fedavg_in_the_average(self, engine: str) -> None:
        """Controls cancel when all take part and share one Hessian: client drift has no effect on the average."""
        drift = Drift(client=0.7) if engine == "collapsed" else Drift(**BASE)
        f = dataclasses.replace(federation(6), rounds=12)
        clients = [draw_clients(SHIFTED, drift, f, seed=1)]
        same((SHIFTED, drift, f, Scaffold(0.05)), (SHIFTED, drift, f, FedAvg(0.05)), engine, clients)

    def test_equal_tasks_are_one_long_task(self, engine: str) -> None:
        """For a method without memory and clients without drift: two tasks of 7 rounds are one of 14 (in law)."""
        problem, drift = dataclasses.replace(SHIFTED, task_shift=0.0), Drift(noise=0.0)
        one = curves((problem, drift, Federation(3, local_steps=2, rounds=14), FedAvg(0.05)), engine)
        two = curves((problem, drift, Federation(3, local_steps=2, rounds=7, tasks=2), FedAvg(0.05)), engine)
        joined = np.concatenate([two["excess_loss"][..., 0, :], two["excess_loss"][..., 1, 1:]], axis=-1)
        np.testing.assert_allclose(joined, one["excess_loss"], rtol=1e-12)


class TestFixedPoints:
    """Clients with Hessians of their own, no noise: where the methods come to rest, against the closed form."""

    problem = Quadratic(dim=4, mu=1.0, L=5.0, w0=0.3)
    drift = Drift(client=2.0, client_slope=0.05)
    federation = Federation(5, local_steps=6, rounds=1500)
    clients = draw_clients(problem, drift, federation, seed=3)

    def rest(self, method: nqm.Method, f: Federation | None = None) -> np.ndarray:
        """e at the end, from the mean that `expect` iterates: sqrt of distances would lose the signs."""
        from nqm.exact import moments
        from nqm.experiment import Experiment
        from nqm.plan import Plan

        plan = Plan(Experiment(self.problem, self.drift, f or self.federation, method), self.clients)
        start = self.problem.start[None]
        return moments(plan, [method], start, np.zeros_like(start)).mean[0, -1]

    @property
    def curvature(self) -> np.ndarray:
        return self.problem.eigenvalues * (1 + self.clients.slope)

    @property
    def optimum(self) -> np.ndarray:
        """Of the average of the clients' losses."""
        return -self.clients.delta.mean(axis=0) / self.curvature.mean(axis=0)

    def test_fedavg_rests_at_its_own_fixed_point(self) -> None:
        pull = 1 - (1 - 0.05 * self.curvature) ** 6  # of client i towards its own optimum, in one round
        own = -self.clients.delta / self.curvature
        fixed = (pull * own).sum(axis=0) / pull.sum(axis=0)
        np.testing.assert_allclose(self.rest(FedAvg(0.05)), fixed, rtol=1e-9)
        np.testing.assert_allclose(self.rest(FedAvgM(0.05, momentum=0.5)), fixed, rtol=1e-9)
        assert np.abs(fixed - self.optimum).max() > 0.005  # client drift is felt

    def test_scaffold_rests_at_the_optimum(self) -> None:
        np.testing.assert_allclose(self.rest(Scaffold(0.05)), self.optimum, rtol=1e-9)

    def test_one_local_step_rests_at_the_optimum(self) -> None:
        one = dataclasses.replace(self.federation, local_steps=1)
        for method in (FedAvg(0.05), MimeLite(0.05, momentum=0.5), FedAvgM(0.02)):
            np.testing.assert_allclose(self.rest(method, one), self.optimum, rtol=1e-9)

    def test_special_with_one_step_minimises_a_stiffer_surrogate(self) -> None:
        """Its fixed point minimises f + prox / (2 server_lr lr) ||w - anchor||^2, not (3) with lambda = prox."""
        problem = Quadratic(dim=3, mu=1, L=4, w0=0.5, task_shift=9.0)
        f = Federation(1, local_steps=1, rounds=3000, tasks=2)
        data = expect(problem, Drift(), f, Special(0.05, prox=0.02, decay=False))
        first, second = problem.sequence(2)
        lam, spring = second.eigenvalues, 0.02 / 0.05
        anchor = first.optimum_eigen  # task 1 has converged
        rest = (lam * second.optimum_eigen + spring * anchor) / (lam + spring)
        loss = 0.5 * lam @ (rest - second.optimum_eigen) ** 2
        np.testing.assert_allclose(data["excess_loss"][1, -1], loss, rtol=1e-8)

    def test_fedtrack_reaches_the_optimum(self) -> None:
        f = Federation(4, local_steps=5, rounds=800, samples=6)
        drift = Drift(client=2.0, client_slope=0.05, sample=1.0, sample_slope=0.05)
        problem = Quadratic(dim=4, mu=1.0, L=5.0, w0=0.3)
        track = simulate(problem, drift, f, FedTrack(0.02), seeds=3)
        clients = [draw_clients(problem, drift, f, seed=s) for s in range(3)]
        curvature = [problem.eigenvalues * (1 + c.slope) for c in clients]
        optimum = [-c.delta.mean(axis=0) / h.mean(axis=0) for c, h in zip(clients, curvature, strict=True)]
        at_rest = track["distance_sq"].values[:, -1]
        np.testing.assert_allclose(at_rest, [float(o @ o) for o in optimum], rtol=1e-8)


class TestFiniteSums:
    problem = Quadratic(dim=4, mu=1.0, L=5.0, w0=0.3, task_shift=4.0)

    def test_one_local_step_of_fedtrack_is_gradient_descent(self) -> None:
        f = Federation(4, local_steps=1, rounds=30, samples=6)
        track = simulate(self.problem, FINITE, f, FedTrack(0.05), seeds=3)
        for s in range(3):
            clients = draw_clients(self.problem, FINITE, f, seed=s)
            plain = dataclasses.replace(f, samples=0)
            drift = Drift(client=FINITE.client, client_slope=FINITE.client_slope)
            descent = expect(self.problem, drift, plain, FedAvg(0.05), clients=clients)
            np.testing.assert_allclose(track["distance_sq"][s], descent["distance_sq"], rtol=1e-10)

    def test_one_sample_a_client_has_no_delay(self) -> None:
        """Then FedTrack's local steps take exact gradients, and equal clients follow gradient descent."""
        f = Federation(3, local_steps=4, rounds=20, samples=1)
        drift = Drift(sample=5.0, sample_slope=0.5)  # centred over a single sample: nothing is left of it
        track = simulate(self.problem, drift, f, FedTrack(0.05), seeds=2)
        descent = expect(self.problem, Drift(), dataclasses.replace(f, samples=0), FedAvg(0.05))
        np.testing.assert_allclose(track["distance_sq"][0], descent["distance_sq"], rtol=1e-10)

    def test_no_memory_rate_is_fedtrack(self) -> None:
        f = Federation(4, local_steps=3, rounds=10, samples=6, tasks=2)
        one = simulate(self.problem, FINITE, f, CFlag(0.02, memory=3, memory_lr=0.0), seeds=2)
        two = simulate(self.problem, FINITE, f, FedTrack(0.02), seeds=2)
        np.testing.assert_allclose(one["loss_of_task"], two["loss_of_task"], rtol=1e-12)

    def test_samples_spread_as_they_are_said_to(self) -> None:
        """E||zeta||^2 = sample and Var slope = sample_slope, whatever n: 4,000 clients, z < 4.5."""
        from nqm import finite
        from nqm.experiment import Experiment
        from nqm.plan import Plan

        drift = Drift(sample=3.0, sample_slope=0.04)
        for n in (2, 5):
            f = Federation(1, rounds=1, samples=n)
            plan = Plan(Experiment(self.problem, drift, f, FedTrack(0.1)))
            found = [finite.client(plan, self.problem, s, 0, 0) for s in range(4_000)]
            for one in found[:20]:
                np.testing.assert_allclose(one.offset.mean(axis=0), 0, atol=1e-14)
            squares = np.array([(one.offset**2).sum(axis=1).mean() for one in found])
            slopes = np.array([((one.curvature / self.problem.eigenvalues - 1) ** 2).mean() for one in found])
            for values, truth in ((squares, 3.0), (slopes, 0.04)):
                assert abs(values.mean() - truth) < 4.5 * values.std() / np.sqrt(len(values))

    def test_a_memory_of_the_whole_past_has_no_bias(self) -> None:
        f = Federation(4, local_steps=3, rounds=10, samples=6, tasks=2)
        whole = simulate(self.problem, FINITE, f, CFlag(0.02, memory=6), seeds=3)
        part = simulate(self.problem, FINITE, f, CFlag(0.02, memory=2), seeds=3)
        scale = float(np.abs(part["overfitting"].values[:, 1, 1:]).max())
        assert np.abs(whole["overfitting"].values[:, 1, 1:]).max() < 1e-12 * scale

    def test_the_first_task_has_no_past(self) -> None:
        f = Federation(4, local_steps=3, rounds=10, samples=6, tasks=2)
        data = simulate(self.problem, FINITE, f, CFlag(0.02, memory=3), seeds=2)
        assert np.isnan(data["forgetting"].values[:, 0]).all()
        assert np.isfinite(data["forgetting"].values[:, 1, 1:]).all()

    def test_transference_of_each_client(self, tmp_path) -> None:
        f = Federation(4, local_steps=3, rounds=10, samples=6, tasks=2)
        method = CFlag(0.02, memory=3, adapt="worst", L=12.0)
        data = simulate(self.problem, FINITE, f, method, seeds=3)
        each = data["client_transference"].isel(task=1, round=slice(1, None))
        assert each.sizes == {"seed": 3, "round": 10, "client": 4}
        np.testing.assert_allclose(each.mean("client"), data["transference"][:, 1, 1:], rtol=1e-9)
        np.testing.assert_array_equal((each <= 0).mean("client"), data["interfering"][:, 1, 1:])
        slow = simulate(self.problem, FINITE, f, method, seeds=3, engine="reference")
        np.testing.assert_allclose(data["client_transference"], slow["client_transference"], rtol=1e-9)
        assert nqm.load(nqm.save(data, tmp_path / "paths.nc")).equals(data)

    def test_lemma_1_bounds_the_loss_of_the_past_round_by_round(self) -> None:
        """f(w') <= f(w) - alpha (1 - L alpha/2)||grad f||^2 + L alpha^2/2 ||b||^2 + B + Gamma, on quadratics (cflag).

        With one client and the whole past in memory b = 0; L is the largest curvature of any sample.
        """
        f = Federation(1, local_steps=3, rounds=40, samples=5, tasks=2)
        drift = Drift(client=1.0, sample=1.0, sample_slope=0.02)
        problem = dataclasses.replace(self.problem, task_shift=2.0)
        L, alpha = 7.5, 0.05
        data = simulate(problem, drift, f, CFlag(0.02, memory=5, memory_lr=alpha, L=L), seeds=4)
        for s in range(4):
            first = draw_clients(problem, drift, f, seed=s, task=1)
            lam, delta = problem.sequence(2)[0].eigenvalues, first.delta[0]
            # The past's own loss is 1/2 sum lam e^2 + delta.e; loss_of_task lacks the linear part, so follow the path.
            path = _path(problem, drift, f, CFlag(0.02, memory=5, memory_lr=alpha, L=L), s)
            loss = 0.5 * (lam * path**2).sum(axis=1) + path @ delta
            gradient = ((lam * path + delta) ** 2).sum(axis=1)
            gamma = data["forgetting"].values[s, 1, 1:]
            slack = loss[:-1] - alpha * (1 - L * alpha / 2) * gradient[:-1] + gamma - loss[1:]
            assert slack.min() > -1e-12


def _path(problem: Quadratic, drift: Drift, f: Federation, method: nqm.Method, seed: int) -> np.ndarray:
    """w - w*_1 in the eigenbasis, through the second task, by the readable engine."""
    from nqm.experiment import Experiment
    from nqm.plan import Plan
    from nqm.reference import Path

    plans = Plan.of_tasks(Experiment(problem, drift, f, method))
    w = problem.from_eigen(problem.w0_eigen)
    for plan in plans:
        points = [w for w, _ in Path(plan, seed).points(w)]
        w = points[-1]
    return np.array([problem.to_eigen(w) for w in points]) - plans[0].experiment.problem.optimum_eigen


def one_path(parts: tuple, seed: int = 0) -> list[np.ndarray]:
    """e_0, e_1, ... of one task in the eigenbasis, by the readable engine."""
    problem = parts[0]
    plan = Plan(Experiment(*parts))
    begin = problem.from_eigen(problem.w0_eigen)
    return [problem.to_eigen(w) - problem.optimum_eigen for w, _ in Path(plan, seed).points(begin)]


class TestByHand:
    """Two rounds of one client without noise, K = 1: the update is -lr lambda e, and the rest is arithmetic."""

    problem = Quadratic(dim=3, mu=1, L=4, w0=0.5, rotation="none")
    federation = Federation(1, local_steps=1, rounds=2)

    def path(self, method: nqm.Method) -> list[np.ndarray]:
        return one_path((self.problem, Drift(), self.federation, method))

    def test_mimelite(self) -> None:
        lr, beta, lam = 0.1, 0.6, self.problem.eigenvalues
        e0, e1, e2 = self.path(MimeLite(lr, momentum=beta))
        np.testing.assert_allclose(e1, e0 - lr * (1 - beta) * lam * e0)
        m = (1 - beta) * lam * e0
        np.testing.assert_allclose(e2, e1 - lr * ((1 - beta) * lam * e1 + beta * m))

    def test_fedopt(self) -> None:
        lr, rate, beta1, beta2, tau = 0.1, 0.3, 0.7, 0.9, 0.2
        e, m, v = self.problem.start, np.zeros(3), np.full(3, tau**2)
        path = self.path(FedOpt(lr, server_lr=rate, beta1=beta1, beta2=beta2, tau=tau))
        for found in path[1:]:
            u = -lr * self.problem.eigenvalues * e
            m, v = beta1 * m + (1 - beta1) * u, beta2 * v + (1 - beta2) * u**2
            e = e + rate * m / (np.sqrt(v) + tau)
            np.testing.assert_allclose(found, e)

    def test_special_c_and_its_decay(self) -> None:
        """In task 2 one local step ends at (v + 2 prox anchor)/(1 + 2 prox), and the server goes half of the way."""
        problem = Quadratic(dim=3, mu=1, L=4, w0=0.5, rotation="none", task_shift=4.0)
        f = Federation(1, local_steps=1, rounds=1, tasks=2)
        data = simulate(problem, Drift(), f, SpecialC(0.1, prox=0.3), seeds=1)
        first, second = problem.sequence(2)
        w1 = first.optimum_eigen + (1 - 0.1 * first.eigenvalues) * problem.start
        stepped = w1 - 0.1 * second.eigenvalues * (w1 - second.optimum_eigen)
        local = (stepped + 2 * 0.3 * w1) / (1 + 2 * 0.3)
        moved = 0.5 * (local - w1)
        assert float(data["moved_sq"][0, 1, 1]) == pytest.approx(float(moved @ moved), rel=1e-12)

    def test_special_c_rests_where_its_spring_says(self) -> None:
        problem = Quadratic(dim=3, mu=1, L=4, w0=0.5, task_shift=9.0)
        f = Federation(1, local_steps=1, rounds=3000, tasks=2)
        data = expect(problem, Drift(), f, SpecialC(0.05, prox=0.01, decay=False))
        first, second = problem.sequence(2)
        lam, spring = second.eigenvalues, 2 * 0.01 / 0.05
        rest = (lam * second.optimum_eigen + spring * first.optimum_eigen) / (lam + spring)
        loss = 0.5 * lam @ (rest - second.optimum_eigen) ** 2
        np.testing.assert_allclose(data["excess_loss"][1, -1], loss, rtol=1e-8)

    def test_scaffold_rests_at_the_optimum_with_some_clients_a_round(self) -> None:
        """S < N, Hessians of their own, no noise: the shares of the controls have to be right."""
        problem, f = Quadratic(dim=3, mu=1, L=4, w0=0.5), Federation(4, 2, local_steps=4, rounds=1500)
        drift = Drift(client=1.0, client_slope=0.05)
        clients = draw_clients(problem, drift, f, seed=2)
        data = simulate(problem, drift, f, Scaffold(0.05), seeds=1, clients=clients)
        h = problem.eigenvalues * (1 + clients.slope)
        optimum = -clients.delta.mean(axis=0) / h.mean(axis=0)
        assert float(data["distance_sq"][0, -1]) == pytest.approx(float(optimum @ optimum), rel=1e-6)

    def test_scaffold_with_one_of_two_clients_a_round(self) -> None:
        """Four rounds by hand, all sixteen sequences of clients: c stays the mean of all controls, S/N of a change."""
        problem, f = Quadratic(dim=1, mu=1, L=2, w0=0.5), Federation(2, 1, local_steps=2, rounds=4)
        drift = Drift(client=1.0, client_slope=0.2)
        clients = draw_clients(problem, drift, f, seed=2)
        h, delta = problem.eigenvalues * (1 + clients.slope), clients.delta
        allowed = set()
        for who in product(range(2), repeat=4):
            e, c, own = problem.start, np.zeros(1), [np.zeros(1), np.zeros(1)]
            for i in who:
                v = e
                for _ in range(2):
                    v = v - 0.1 * (h[i] * v + delta[i] - own[i] + c)
                change = -c + (e - v) / (2 * 0.1)
                own[i] = own[i] + change
                c = c + change / 2
                np.testing.assert_allclose(c, (own[0] + own[1]) / 2)
                e = v
            allowed.add(float(np.round(e @ e, 12)))
        data = simulate(problem, drift, f, Scaffold(0.1), seeds=40, clients=clients)
        assert set(np.round(data["distance_sq"].values[:, -1], 12)) <= allowed

    def test_pooled_and_dealt_rounds(self) -> None:
        """Two of three given clients, K = 2, no noise, all three cohorts: pooled by the mean Hessian, dealt apart."""
        problem, drift = Quadratic(dim=2, mu=1, L=3, w0=0.5), Drift(client=1.0, client_slope=0.1)
        base = Federation(3, 2, local_steps=2, rounds=1)
        clients = draw_clients(problem, drift, base, seed=5)
        lam = problem.eigenvalues

        def ends(f: Federation) -> set[float]:
            data = simulate(problem, drift, f, FedAvg(0.1), seeds=60, clients=clients)
            return set(np.round(data["distance_sq"].values[:, 1], 12))

        def after(pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
            moved = []
            for slope, delta in pairs:
                e = problem.start
                for _ in range(2):
                    e = e - 0.1 * (lam * (1 + slope) * e + delta)
                moved.append(e)
            return float(np.round((np.mean(moved, axis=0) ** 2).sum(), 12))

        pooled, dealt = set(), set()
        for i, j in ((0, 1), (0, 2), (1, 2)):
            s, d = clients.slope[[i, j]], clients.delta[[i, j]]
            pooled.add(after([(s.mean(axis=0), d.mean(axis=0))] * 2))
            apart = [np.sqrt(2) * (x - x.mean(axis=0)) for x in (s, d)]
            dealt.add(after([(apart[0][k], apart[1][k]) for k in range(2)]))
        assert ends(dataclasses.replace(base, cohort="pooled")) == pooled
        assert ends(dataclasses.replace(base, cohort="dealt")) == dealt

    def test_bounded_noise_has_two_values(self) -> None:
        problem = dataclasses.replace(self.problem, gradient_bound=100.0)
        f = Federation(1, local_steps=1, rounds=1)
        jumps = []
        for seed in range(20):
            path = one_path((problem, Drift(noise=3.0), f, FedAvg(0.1)), seed)
            jumps.append(path[1] - (1 - 0.1 * self.problem.eigenvalues) * path[0])
        np.testing.assert_allclose(np.abs(jumps), 0.1, rtol=1e-9)

    def test_moved_sq_of_sampled_clients_by_enumeration(self) -> None:
        """Task 2 from a random start: Cov(e_t, e_0) takes the mean gain, for every sequence of samples of 1 of 2."""
        problem, drift = Quadratic(dim=1, mu=1, L=2, w0=0.5, task_shift=4.0), Drift(client=1.0, client_slope=0.3)
        f = Federation(2, 1, local_steps=1, rounds=2, tasks=2)
        clients = [draw_clients(problem, drift, f, seed=3, task=k) for k in (1, 2)]
        exact = expect(problem, drift, f, FedAvg(0.2), clients=clients)["moved_sq"].values
        tasks = problem.sequence(2)
        total = np.zeros((2, 3))
        for who in product(range(2), repeat=4):
            w = problem.w0_eigen
            for k in range(2):
                lam, star, begin = tasks[k].eigenvalues, tasks[k].optimum_eigen, w
                for t in range(2):
                    i = who[2 * k + t]
                    w = w - 0.2 * (lam * (1 + clients[k].slope[i]) * (w - star) + clients[k].delta[i])
                    total[k, t + 1] += float(((w - begin) ** 2).sum()) / 16
        np.testing.assert_allclose(exact, total, rtol=1e-10)

    def test_stability_of_special_against_its_closed_form(self) -> None:
        """One step, task 2 alone: |1 - server_lr lr L| / (1 + prox) < 1, so lr < (2 + prox) / L; task 1 has 2 / L."""
        problem, f = Quadratic(dim=2, mu=1, L=4, spectrum="linspace"), Federation(1, local_steps=1, tasks=2)
        from nqm.tune import _stability_limit

        assert _stability_limit(problem, f, Special(0.1, prox=0.4, decay=False), 2) == pytest.approx(2.4 / 4)
        assert nqm.stability_limit(problem, f, Special(0.1, prox=0.4, decay=False)) == pytest.approx(2 / 4)


class TestMemory:
    """What C-FLAG's clients keep, and the terms that judge it."""

    problem = Quadratic(dim=3, mu=1, L=4, w0=0.5, task_shift=3.0)

    def plans(self, method: nqm.Method, tasks: int = 3, **kwargs) -> list[Plan]:
        f = Federation(2, local_steps=2, rounds=3, tasks=tasks, samples=4, **kwargs)
        return Plan.of_tasks(Experiment(self.problem, FINITE, f, method))

    def test_it_is_drawn_from_all_of_the_past_without_replacement(self) -> None:
        plan = self.plans(CFlag(0.02, memory=4))[2]
        kept = [finite.kept(plan, s, i, 4) for s in range(300) for i in range(2)]
        assert all(len(set(k)) == 4 for k in kept)
        early = np.mean([task == 0 for k in kept for task, _ in k])
        assert abs(early - 0.5) < 4.5 * 0.5 / np.sqrt(4 * len(kept))

    def test_samples_and_looks_differ_between_tasks_and_clients(self) -> None:
        plan = self.plans(FedTrack(0.02))[0]
        one, two = (finite.client(plan, self.problem, 0, task, 0).offset for task in (0, 1))
        assert (
            np.abs((one - one.mean(axis=0)) - (two - two.mean(axis=0))).min() > 1e-6
        )  # without the client's own drift
        round_ = finite.FiniteRound(plan, 0, 1, np.zeros(3), [], [], [])
        looks = [[tuple(round_.draws(i)) for i in range(12)]]
        assert len(set(looks[0])) > 4

    def test_lemma_1_is_an_identity_up_to_curvature(self) -> None:
        """One client, f quadratic: f(w') - f(w) = -alpha <grad f, f'> - <grad f, step> + quadratic form, term by term.

        Gamma + B - alpha(1 - L alpha/2)||grad f||^2 + L alpha^2/2 ||b||^2 exceeds f(w') - f(w) by exactly
        1/2 sum (L - h) move^2, with h the past's own curvatures: signs and factors of both terms have to be right.
        """
        L, alpha = 9.0, 0.03
        f = Federation(1, local_steps=2, rounds=6, tasks=2, samples=4)
        method = CFlag(0.02, memory=2, memory_lr=alpha, L=L)
        plans = Plan.of_tasks(Experiment(self.problem, FINITE, f, method))
        w = self.problem.from_eigen(self.problem.w0_eigen)
        for plan in plans:
            points = list(Path(plan, 3).points(w))
            w = points[-1][0]
        past = finite.client(plans[1], self.problem.sequence(2)[0], 3, 0, 0)
        h, delta = past.curvature.mean(axis=0), past.offset.mean(axis=0)
        kept = finite.kept(plans[1], 3, 0, 2)
        star = self.problem.sequence(2)[0].optimum_eigen
        for (w0, _), (w1, trace) in pairwise(points):
            e0, e1 = self.problem.to_eigen(w0) - star, self.problem.to_eigen(w1) - star
            gradient = h * e0 + delta
            memory = np.mean([past.curvature[j] * e0 + past.offset[j] for _, j in kept], axis=0)
            bias, move = memory - gradient, e1 - e0
            change = 0.5 * h @ (e1**2 - e0**2) + delta @ move
            bound = -alpha * (1 - L * alpha / 2) * gradient @ gradient + L * alpha**2 / 2 * bias @ bias
            bound += trace["overfitting"] + trace["forgetting"]
            assert bound - change == pytest.approx(0.5 * (L - h) @ move**2, rel=1e-9)

    def test_adaptive_rates_of_one_round(self) -> None:
        """Table 1: transference is shortened by N in the worst case, interference lengthens the memory's step."""
        average = CFlag(0.02, memory=2, adapt="average", L=12.0)
        worst = dataclasses.replace(average, adapt="worst")
        r = finite.FiniteRound(self.plans(average)[1], 0, 1, np.zeros(3), [None] * 2, [], [])  # type: ignore[list-item]
        a = np.array([1.0, 2.0, 0.5])
        assert average.rates(r, 1.0, a, 3.0)[1] == pytest.approx(2 * worst.rates(r, 1.0, a, 3.0)[1])
        assert worst.rates(r, 1.0, a, 3.0)[1] == pytest.approx((1 - 12 * 0.01) * 3.0 / (12 * (a @ a)))
        assert average.rates(r, 4.0, a, -3.0)[0] == pytest.approx(0.01 + 0.02 * 3.0 / 4.0)

    def test_the_smoothness_that_is_not_given_is_the_tasks_largest(self) -> None:
        assert CFlag(0.02, memory=2).smoothness(4.0) == 4.0
        plan = self.plans(CFlag(0.02, memory=2))[1]
        r = finite.FiniteRound(plan, 0, 1, np.zeros(3), [], [], [])
        assert r.largest == pytest.approx(plan.experiment.problem.eigenvalues.max())


class TestKalman:
    @pytest.mark.parametrize("kind", ["paper", "raw", "corrected", "oracle"])
    def test_the_mean_field_is_close(self, kind: str) -> None:
        """The same drift per dimension in d = 5, 50 and 200: the error in the mean loss falls with d.

        Measured on 4,000 seeds, largest over 30 rounds: paper 7.2, 0.9, 0.3 %; raw 7.1, 0.3, 0.0 %; oracle 8.0, 0.3,
        0.1 %; corrected 29, 9.7, 5.1 %, because the mean of max(0, .) is not the maximum of the mean.
        """
        f, errors = Federation(20, 10, local_steps=3, rounds=30), []
        for d in (5, 50, 200):
            problem, drift = Quadratic(dim=d, mu=1.0, L=8.0, w0=0.4), Drift(client=d / 70, time=d / 25, noise=d / 170)
            parts = problem, drift, f, FedEve(0.02, variances=kind)
            field = expect(*parts)
            assert field.attrs["law"].startswith("mean field")
            mean = simulate(*parts, seeds=2_000, engine="collapsed").mean("seed")
            errors.append(float(np.abs(field["excess_loss"] / mean["excess_loss"] - 1).max()))
        assert errors[0] > errors[1] > errors[2]
        assert errors[1] < (0.13 if kind == "corrected" else 0.02)

    def test_oracle_gains_beat_every_fixed_one_round_by_round(self) -> None:
        """Given (w, M) the oracle's gain minimises E||M' - E D||^2: brute force over a grid of gains, one round."""
        case = KALMAN["fedeve, oracle"]
        f = dataclasses.replace(case.federation, rounds=1)
        one = simulate(case.problem, case.drift, f, FedEve(0.03, variances="oracle"), seeds=1)
        P, R, gain = (float(one[n][0, 1]) for n in ("period_var", "client_var", "gain"))
        grid = np.linspace(0, 1, 1001)
        assert gain == pytest.approx(grid[np.argmin((1 - grid) ** 2 * P + grid**2 * R)], abs=1e-3)

    def test_oracle_variances_against_brute_force(self) -> None:
        """The variance of one round's average update over 20,000 seeds given the clients, z < 4.5."""
        problem, f = Quadratic(dim=3, mu=1, L=4, w0=0.5), Federation(4, 2, local_steps=3, rounds=1)
        drift = Drift(client=2.0, time=1.0, noise=0.5)
        clients = draw_clients(problem, drift, f, seed=7)
        method = FedEve(0.1, variances="oracle", gain=1.0)  # e' = e - D: the update itself is seen
        data = simulate(problem, drift, f, method, seeds=20_000, clients=clients)
        claimed = float(data["client_var"][0, 1]) * 3
        exact = expect(problem, drift, f, method, clients=clients)
        mean = exact["distance_sq"].values[1]
        # E||e'||^2 = ||E e'||^2 + d R, and E e' follows from gradient descent with the average client
        pull = 1 - (1 - 0.1 * problem.eigenvalues) ** 3
        centre = problem.start - pull * (problem.start + clients.delta.mean(axis=0) / problem.eigenvalues)
        assert mean == pytest.approx(float(centre @ centre) + claimed, rel=1e-12)
        squares = data["distance_sq"].values[:, 1]
        assert abs(squares.mean() - mean) < 4.5 * squares.std() / np.sqrt(20_000)

    def test_the_estimators_by_enumeration(self) -> None:
        """All samples of 2 of 4 given clients, no other noise: E of the printed and of the corrected sigma_R^2.

        Var D = (1 - S/N) v / S; the corrected one has the mean v / S, the printed one v (S - 1) / S^2.
        """
        problem, f = Quadratic(dim=3, mu=1, L=4, w0=0.5), Federation(4, 2, local_steps=1, rounds=1)
        clients = draw_clients(problem, Drift(client=2.0), f, seed=7)
        v = float((0.1**2) * clients.delta.var(axis=0, ddof=1).mean())
        printed, corrected = [], []
        for s in range(400):  # every pair comes up; weigh pairs, not seeds
            for kind, found in (("paper", printed), ("corrected", corrected)):
                data = simulate(problem, Drift(client=2.0), f, FedEve(0.1, variances=kind), seeds=[s], clients=clients)
                found.append(float(data["client_var"][0, 1]))
        pairs = np.unique(np.round(printed, 15))
        assert len(pairs) == 6
        assert pairs.mean() == pytest.approx(v / 4, rel=1e-9)
        assert np.unique(np.round(corrected, 15)).mean() == pytest.approx(v / 2, rel=1e-9)


class TestTransfer:
    def test_by_hand(self) -> None:
        f = Federation(3, local_steps=2, rounds=4, tasks=3)
        data = expect(SHIFTED, Drift(client=0.5), f, FedAvg(0.05))
        A = transfer.loss_matrix(data).values
        np.testing.assert_array_equal(A, data["loss_of_task"].values[:, -1, :])
        np.testing.assert_allclose(np.diag(A), data["excess_loss"].values[:, -1], rtol=1e-12)
        assert float(transfer.backward_transfer(data)) == pytest.approx(((A[0, 0] - A[2, 0]) + (A[1, 1] - A[2, 1])) / 2)
        lost = [A[2, 0] - A[:, 0].min(), A[2, 1] - A[1:, 1].min()]
        assert float(transfer.forgetting(data)) == pytest.approx(np.mean(lost))
        assert float(transfer.worst_drop(data)) == pytest.approx(max(lost))
        assert float(transfer.average_loss(data)) == pytest.approx(A[2].mean())

    def test_one_task_has_no_matrix(self) -> None:
        data = expect(SHIFTED, Drift(), Federation(3, rounds=4), FedAvg(0.05))
        with pytest.raises(InvalidInput, match=r"federation.tasks = 1: a result of one task has no loss matrix"):
            transfer.loss_matrix(data)

    @settings(max_examples=20, deadline=None)
    @given(shift=st.floats(0.01, 100), tasks=st.integers(2, 6), seed=st.integers(0, 100))
    def test_the_drift_budget_is_met_with_equality(self, shift: float, tasks: int, seed: int) -> None:
        problem = Quadratic(dim=4, mu=0.5, L=3, task_shift=shift, seed=seed)
        w = np.random.default_rng(seed).normal(size=4)
        gradients = [p.A @ (w - p.optimum) for p in problem.sequence(tasks)]
        apart = [float((a - b) @ (a - b)) for a, b in product(gradients, gradients)]
        assert max(apart) == pytest.approx(shift, rel=1e-9)


class TestBoundedGradients:
    @settings(max_examples=15, deadline=None)
    @given(bound=st.floats(0.1, 5), prox=st.floats(0.05, 5), noise=st.sampled_from([0.0, 0.5]), seed=st.integers(0, 50))
    def test_lemma_49_of_special(self, bound: float, prox: float, noise: float, seed: int) -> None:
        """||w - w_start||^2 <= (server_lr lr E B / prox)^2 in every round of a later task, B with the noise in it."""
        problem = dataclasses.replace(SHIFTED, task_shift=50.0, gradient_bound=bound)
        f = Federation(6, 3, local_steps=3, rounds=15, tasks=2)
        data = simulate(problem, Drift(client=2.0, noise=noise), f, Special(0.05, prox=prox), seeds=[seed])
        B = bound + np.sqrt(noise)  # step noise is +-sqrt(noise/dim) in each of the dim directions
        claimed = (0.5 * 0.05 * 3 * B / prox) ** 2  # server_lr = 1/2 in task 2
        assert data["moved_sq"].values[0, 1].max() <= claimed * (1 + 1e-9)

    def test_a_bound_that_is_never_reached_changes_nothing(self) -> None:
        parts = Drift(client=0.7), federation(6, 3, tasks=2), Special(0.05)
        one = simulate(dataclasses.replace(SHIFTED, gradient_bound=1e6), *parts, seeds=2)
        two = simulate(SHIFTED, *parts, seeds=2)
        for name in (*CURVES, "moved_sq", "loss_of_task"):
            np.testing.assert_allclose(one[name], two[name], rtol=1e-12)


class TestCohorts:
    """Settings 2 and 3 of B.2 of fedeve."""

    def test_under_one_hessian_pooling_changes_nothing_and_dealing_removes_all_drift(self) -> None:
        drift = Drift(client=2.0)
        f = dataclasses.replace(federation(6, 3), rounds=10)
        own = simulate(SHIFTED, drift, f, FedAvg(0.05), seeds=2)
        pooled = simulate(SHIFTED, drift, dataclasses.replace(f, cohort="pooled"), FedAvg(0.05), seeds=2)
        dealt = simulate(SHIFTED, drift, dataclasses.replace(f, cohort="dealt"), FedAvg(0.05), seeds=2)
        none = simulate(SHIFTED, Drift(), f, FedAvg(0.05), seeds=2)
        np.testing.assert_allclose(pooled["distance_sq"], own["distance_sq"], rtol=1e-10)
        np.testing.assert_allclose(dealt["distance_sq"], none["distance_sq"], rtol=1e-10)


REFUSED = [
    (Drift(), federation(6, 3), FedOpt(0.05), "expect can't run method.name = 'fedopt' at all"),
    (Drift(), federation(6, 3), Scaffold(0.05), "expect can't run method.name = 'scaffold' with federation.sampled"),
    (Drift(**SLOPES), federation(6, 3), FedAvgM(0.05), "'fedavgm' with slopes and federation.sampled < clients"),
    (Drift(**SLOPES), federation(6), FedEve(0.05), "'fedeve' with slopes"),
    (Drift(time_slope=0.1), federation(6), MimeLite(0.05), "'mimelite' with a slope that moves"),
    (Drift(**SLOPES, overlap=1.0), federation(6), Special(0.05), "time drift that stays"),
    (Drift(), federation(6, 3, cohort="pooled"), FedAvg(0.05), "federation.cohort = 'pooled'"),
    (FINITE, federation(4, samples=3), FedTrack(0.05), "'fedtrack' on a finite sum"),
]


@pytest.mark.parametrize(("drift", "f", "method", "says"), REFUSED)
def test_expect_says_by_name_what_it_cannot_run(drift: Drift, f: Federation, method: nqm.Method, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        expect(SHIFTED, drift, f, method)
    assert "use engine = steps" in str(caught.value)


def parts(f: Federation, method: nqm.Method, drift: Drift | None = None, problem: Quadratic = SHIFTED) -> tuple:
    return problem, drift or Drift(), f, method


BAD = [
    (lambda: Quadratic(dim=3, tasks=({}, {"dim": 4})), r"problem.tasks\[2\].dim = 4: must be problem.dim = 3"),
    (
        lambda: Quadratic(dim=3, tasks=({"b": (1.0, 2.0)},)),
        r"problem.tasks\[1\].b has 2 numbers: must have problem.dim = 3",
    ),
    (lambda: Quadratic(dim=3, tasks=({"w0": 1.0},)), r"problem.tasks\[1\].w0: unknown field"),
    (lambda: Quadratic(dim=3, tasks=({},)).sequence(2), "federation.tasks = 2: must be 1, the number of tables"),
    (lambda: Quadratic(task_shift=-1.0), "problem.task_shift = -1"),
    (lambda: Quadratic(tasks=2), "problem.tasks = 2: must be a list of tables, one a task"),
    (lambda: Quadratic(tasks=[1, 2]), "problem.tasks = .*: must be a list of tables"),
    (lambda: Quadratic(dim=3, tasks=({}, {"L": 0.5})), r"problem.tasks\[2\].mu = 1.0: must be at most"),
    (
        lambda: Quadratic(
            dim=2, rotation="none", task_shift=2.0, b=0.0, tasks=({"spectrum": (0.0, 2.0)}, {"spectrum": (1.0, 0.0)})
        ).sequence(2),
        "problem.task_shift = 2.0: needs a direction with an eigenvalue > 0 in every task",
    ),
    (lambda: draw_clients(SHIFTED, Drift(), Federation(3), task=0), "task = 0"),
    (
        lambda: simulate(*parts(Federation(2, rounds=10**5, tasks=10**5), FedAvg(0.1)), seeds=1),
        "1 seeds of 10000000000 rounds .*lower seeds, tasks or rounds",
    ),
    (
        lambda: expect(*parts(Federation(4), FedAvg(0.1), Drift(sample=1.0))),
        "drift.sample = 1.0: needs federation.samples",
    ),
    (
        lambda: simulate(*parts(Federation(4, samples=10**11), FedTrack(0.1)), engine="reference"),
        "100000000000 samples a client .*lower samples",
    ),
    (
        lambda: simulate(*parts(Federation(4, samples=3), FedTrack(0.1), problem=Quadratic(gradient_bound=1.0))),
        "problem.gradient_bound = 1.0: must be left out on a finite sum",
    ),
    (lambda: Quadratic(gradient_bound=0.0), "problem.gradient_bound = 0"),
    (lambda: Federation(tasks=0), "federation.tasks = 0"),
    (lambda: Federation(cohort="mixed"), "federation.cohort = 'mixed'"),
    (lambda: Federation(4, 1, cohort="dealt"), "federation.sampled = 1: must be at least 2 for cohort = 'dealt'"),
    (lambda: CFlag(0.1, adapt="worst"), "method.L: missing; method.adapt = 'worst' needs the smoothness"),
    (lambda: CFlag(0.1, adapt="worst", L=200.0), "method.memory_lr = 0.01: must be below 1/L"),
    (lambda: CFlag(0.1, form="printed"), "method.form = 'printed': must be 'derived' for adapt = 'none'"),
    (lambda: FedEve(0.1, variances="best"), "method.variances = 'best'"),
    (lambda: FedAvgM(0.1, momentum=1.0), "method.momentum = 1"),
    (
        lambda: simulate(*parts(Federation(4, 1), FedEve(0.1))),
        "federation.sampled = 1: method.name = 'fedeve' estimates a",
    ),
    (
        lambda: simulate(*parts(Federation(4, samples=5, tasks=2), CFlag(0.1, memory=6))),
        "method.memory = 6: must be at most federation.samples = 5, all that a client has of its past",
    ),
    (lambda: simulate(*parts(Federation(4), FedTrack(0.1))), "federation.samples = 0: must be >= 1 for method.name"),
    (lambda: simulate(*parts(Federation(4, 2, samples=5), FedTrack(0.1))), "needs all clients in every round"),
    (lambda: simulate(*parts(Federation(4, samples=5), FedProx(0.1))), "'fedprox' does not run on a finite sum"),
    (
        lambda: simulate(*parts(Federation(4, samples=5), FedAvg(0.1), Drift(noise=1.0))),
        "drift.noise = 1.0: must be 0 on a",
    ),
    (
        lambda: simulate(*parts(Federation(4, 2, cohort="pooled"), FedAvg(0.1), Drift(client=1.0, fresh=True))),
        "federation.cohort = 'pooled': must be 'own' when clients are redrawn",
    ),
    (
        lambda: simulate(*parts(Federation(4, 2, cohort="dealt"), FedEve(0.1, variances="oracle"))),
        "steps can't run method.name = 'fedeve' with variances = 'oracle'",
    ),
    (
        lambda: simulate(*parts(Federation(4, stateless=True), Scaffold(0.1))),
        "federation.stateless = True: must be false",
    ),
    (
        lambda: simulate(*parts(Federation(4), FedAvg(0.1), problem=Quadratic(gradient_bound=1.0)), engine="collapsed"),
        "collapsed can't run method.name = 'fedavg' with problem.gradient_bound",
    ),
    (lambda: nqm.tune(*parts(Federation(4, tasks=2), FedAvg(0.1))), "federation.tasks = 2: must be 1 for tuning"),
    (lambda: nqm.stability_limit(SHIFTED, Federation(4), FedOpt(0.1)), "its round is not a linear map"),
]


@pytest.mark.parametrize(("make", "says"), BAD)
def test_bad_input_is_one_line(make, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_stability_of_a_server_with_momentum() -> None:
    """Heavy ball with one local step: 2 (1 + momentum) / (server_lr L)."""
    limit = nqm.stability_limit(
        Quadratic(dim=3, mu=1, L=4, spectrum="linspace"), Federation(2, local_steps=1), FedAvgM(0.1)
    )
    assert limit == pytest.approx(2 * 1.9 / 4, rel=1e-9)


def test_stability_of_a_sequence_is_that_of_its_frailest_task() -> None:
    f = Federation(6, 3, local_steps=3, rounds=60)
    alone = Quadratic(dim=3, mu=1, L=4, task_shift=2)
    fedavg = nqm.stability_limit(alone, f, FedAvg(0.1))
    several = dataclasses.replace(f, tasks=2)
    assert nqm.stability_limit(alone, several, Special(0.1)) == pytest.approx(fedavg)  # its first task has no anchor
    steep = Quadratic(dim=3, mu=1, L=2, tasks=({}, {"L": 40.0}))
    assert nqm.stability_limit(steep, several, FedAvg(0.1)) == nqm.stability_limit(
        Quadratic(dim=3, L=40), f, FedAvg(0.1)
    )


def test_a_run_that_diverges_in_a_task_stays_diverged() -> None:
    f = Federation(3, local_steps=2, rounds=400, tasks=3)
    for engine in ("reference", "steps", "collapsed"):
        data = simulate(SHIFTED, Drift(noise=1.0), f, FedAvg(2.0), seeds=2, engine=engine)
        assert (data["diverged_at"].values[:, 0] > 5).all()
        assert (data["diverged_at"].values[:, 1:] == 0).all()
        assert np.isposinf(data["loss_of_task"].values[:, 1:]).all()
        assert np.isposinf(transfer.forgetting(data)).all()
        assert np.isneginf(transfer.backward_transfer(data)).all()


@pytest.mark.parametrize("method", [Special(0.05), Scaffold(0.05), FedEve(0.03), FedOpt(0.05)])
def test_same_bits_for_any_threads_and_batches(method: nqm.Method) -> None:
    case = Case(Drift(**SLOPES), federation(6, 3, tasks=2), method, SHIFTED)
    one = simulate(*case.parts, seeds=20, threads=1)
    two = simulate(*case.parts, seeds=20, threads=2)
    apart = [simulate(*case.parts, seeds=range(k, k + 5)) for k in range(0, 20, 5)]
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name], two[name])
        np.testing.assert_array_equal(one[name], np.concatenate([d[name].values for d in apart]))
