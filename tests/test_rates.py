"""Rates: the fit against planted curves, rounds against brute force, limits, verdicts against the ledger."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import driftproof
import nqm
from nqm.plan import Clients
from theory import rates
from theory.claims import ledger
from theory.claims.cfl_rates import newcomers_error
from theory.rates import limits, others
from theory.rates.claims import MARGIN, WIDE, judge
from theory.rates.fit import Fit, fit
from theory.rates.rounds import crossing, decreasing, march, rounds_to, tune
from theory.rates.world import World, check, one_round

TWO_DECADES = np.geomspace(1.0, 100.0, 9)


class TestFit:
    @pytest.mark.parametrize("p", [-2.0, -0.5, 0.0, 1.3])
    def test_a_bare_power_is_exact(self, p):
        found = fit(TWO_DECADES, 7 * TWO_DECADES**p)
        assert found.law == "power"
        np.testing.assert_allclose((found.exponent, found.low, found.high), p, atol=1e-9)

    @pytest.mark.parametrize(
        ("name", "curve", "p"),
        [
            ("power", lambda x: x**0.7, 0.7),
            ("slow correction", lambda x: x * (1 + x**-0.5), 1.0),
            ("slow correction from below", lambda x: x * (1 - 0.5 * x**-0.5), 1.0),
            ("fast correction", lambda x: (1 + x**-1.0) / x, -1.0),
        ],
    )
    @pytest.mark.parametrize("scatter", [1e-3, 0.02])
    def test_the_interval_covers_planted_exponents(self, name, curve, p, scatter):
        """At least 95 % of 300 curves with lognormal scatter; without curvature the interval stays useful, too."""
        rng = np.random.default_rng(1)
        noise = np.exp(scatter * rng.normal(size=(300, len(TWO_DECADES))))
        found = [fit(TWO_DECADES, curve(TWO_DECADES) * n) for n in noise]
        assert np.mean([f.low <= p <= f.high for f in found]) >= 0.95
        assert not any(f.law == "power x log" for f in found)
        if name == "power":
            assert np.median([f.high - f.low for f in found]) < 30 * scatter

    def test_coverage_over_random_corrections(self):
        """y = x^p (1 + a x^-q)(1 + noise), q >= 1/2: the interval covers p in at least 95 % of 400 curves."""
        rng = np.random.default_rng(5)
        covered = []
        for _ in range(400):
            p, q, a = rng.uniform(-2, 2), rng.uniform(0.5, 2), rng.uniform(0, 3)
            scatter = np.exp(rng.choice([0.0, 0.01, 0.03]) * rng.standard_normal(len(TWO_DECADES)))
            found = fit(TWO_DECADES, TWO_DECADES**p * (1 + a * TWO_DECADES**-q) * scatter)
            covered.append(found.low <= p <= found.high)
        assert np.mean(covered) >= 0.95

    def test_curvature_widens_it_where_the_standard_error_would_not(self):
        x, y = TWO_DECADES, TWO_DECADES * (1 + TWO_DECADES**-0.5)
        found = fit(x, y)
        assert found.exponent < 0.9
        assert found.low <= found.exponent
        assert found.high >= 1.0
        assert found.slopes[0] < found.slopes[1] < found.slopes[2]

    @pytest.mark.parametrize("p", [-2.0, -1.0, 0.0, 0.5])
    @pytest.mark.parametrize("direction", [1, -1])
    def test_a_logarithm_is_named(self, p, direction):
        x = TWO_DECADES[::direction] * 1e-3
        factor = np.log(x / 1e-5) if direction == 1 else np.log(10 / x)
        found = fit(x, x**p * factor)
        assert found.law == "power x log"
        assert str(found).endswith("x log")
        assert found.low - 1e-6 <= p <= found.high + 1e-6
        assert abs(found.plain - p) > 0.05

    @pytest.mark.parametrize("rate", [0.3, -0.3])
    def test_an_exponential_is_named_and_has_no_exponent(self, rate):
        found = fit(TWO_DECADES, np.exp(rate * TWO_DECADES))
        assert found.law == "exponential"
        assert (found.high if rate > 0 else -found.low) == math.inf

    @pytest.mark.parametrize(
        ("x", "y", "words"),
        [
            ([1, 2, 3], [1, 2, 3], "at least 7"),
            (range(1, 9), [1, 2, 3, 0, 5, 6, 7, 8], "y: must be positive"),
            (range(1, 9), [1, 2, math.inf, 4, 5, 6, 7, 8], "y: must be positive, finite"),
            ([1, 2, 2, 4, 5, 6, 7, 8], range(1, 9), "x: must rise or fall"),
        ],
    )
    def test_bad_input(self, x, y, words):
        with pytest.raises(nqm.InvalidInput, match=words):
            fit(list(x), list(y))


class TestNoiseAlone:
    EPS = np.geomspace(1e-3, 1e-5, 7)
    WORLD = World("sc", sigma2=1.0)

    def rounds(self, **changes):
        return rounds_to(replace(self.WORLD, **changes)).rounds

    def test_a_constant_step_pays_a_logarithm(self):
        found = fit(self.EPS, [self.rounds(eps=float(e)) for e in self.EPS])
        assert found.law == "power x log"
        assert abs(found.exponent + 1) < 0.01

    def test_a_falling_step_does_not(self):
        T = decreasing(self.WORLD, self.EPS)
        found = fit(self.EPS, T)
        assert found.law == "power"
        assert abs(found.exponent + 1) < 0.01
        least = [limits.information(replace(self.WORLD, eps=e), e) for e in self.EPS]
        assert np.all(least < T)
        assert np.all(1.5 * np.array(least) > T)

    def test_rounds_scale_as_sigma2_over_NK(self):
        eps, one = 1e-6, self.rounds(eps=1e-6)
        assert self.rounds(eps=eps, sigma2=4.0) == pytest.approx(4 * one, rel=1e-3)
        assert self.rounds(eps=eps, N=10) == pytest.approx(one / 10, rel=1e-3)
        assert self.rounds(eps=eps, K=10) == pytest.approx(one / 10, rel=1e-3)


def excess(world: World, method: nqm.Method, rounds: int, lrs) -> np.ndarray:
    e = world.experiment(method, rounds)
    return nqm.expect(e.problem, e.drift, e.federation, e.method, lr=lrs, norm=False)["excess_loss"].values


class TestClosedForm:
    @settings(max_examples=25, deadline=None)
    @given(
        mu=st.floats(0.05, 1.0),
        N=st.integers(1, 5),
        K=st.integers(1, 4),
        drifts=st.tuples(*[st.sampled_from([0.0, 0.1, 3.0])] * 3),
        lr=st.floats(0.01, 0.5),
        T=st.integers(1, 40),
    )
    def test_it_is_nqm_expect(self, mu, N, K, drifts, lr, T):
        sigma2, G2, D2 = drifts
        w = World("sc", mu=mu, N=N, K=K, sigma2=sigma2, G2=G2, D2=D2)
        exact = excess(w, nqm.FedAvg(lr), T, [lr])[0]
        ours = one_round(w, np.array([lr])).error(np.arange(T + 1.0)[:, None])[:, 0]
        np.testing.assert_allclose(ours, exact, rtol=1e-9)

    def test_sgd(self):
        w = World("sc", mu=0.3, K=5, N=2, sigma2=1.0)
        exact = excess(w, nqm.SGD(0.2), 20, [0.2])[0]
        np.testing.assert_allclose(one_round(w, np.array([0.2]), "sgd").error(np.array([20.0]))[0], exact[-1])

    def test_slopes(self):
        w, lr, T = World("sc", mu=0.4, A2=0.5, N=3, D2=0.2), 0.1, 15
        e = w.experiment(nqm.FedAvg(lr), T)
        drift = replace(e.drift, time_slope=w.A2)
        exact = nqm.expect(e.problem, drift, e.federation, e.method, norm=False)["excess_loss"].values
        np.testing.assert_allclose(one_round(w, np.array([lr])).error(np.array([float(T)]))[0], exact[-1], rtol=1e-9)

    def test_conventional_clients(self):
        w, lr, T = World("sc", mu=0.4, G2=0.8, N=2, K=4, clients="all"), 0.1, 15
        e = w.experiment(nqm.FedAvg(lr), T)
        delta = math.sqrt(w.G2 / 2) * np.array([[1.0, 1.0], [-1.0, -1.0]])
        given_ = Clients(delta, w.slope * np.sign(delta))
        drift = nqm.Drift(client=w.G2, client_slope=w.slope**2)
        found = nqm.expect(e.problem, drift, e.federation, e.method, clients=given_, norm=False)
        ours = one_round(w, np.array([lr])).error(np.arange(T + 1.0)[:, None])[:, 0]
        np.testing.assert_allclose(ours, found["excess_loss"].values, rtol=1e-9)

    def test_the_mean_over_rounds(self):
        w, lr, T = World("nc", L=0.4, gap=2.0, D2=0.3), 0.2, 30
        e = w.experiment(nqm.FedAvg(lr), T)
        exact = nqm.expect(e.problem, e.drift, e.federation, e.method, norm=False)["grad_norm_sq"].values[:T].mean()
        assert one_round(w, np.array([lr])).error(np.array([float(T)]), mean=True)[0] == pytest.approx(exact, rel=1e-12)

    def test_digits_survive_tiny_steps(self):
        """1 − rho is 1e-20 here: what is taken away is kept, not what is left."""
        r = one_round(World("sc", D2=1.0), np.array([1e-20]))
        half = math.log(2) / 2e-20
        np.testing.assert_allclose(r.error(np.array([half]))[0], 0.25, rtol=1e-6)


class TestMarching:
    def test_returning_clients_are_nqm_expect(self):
        from theory.weights import lemma_b4

        w = World("sc", mu=0.5, D2=1.0, R2=0.3, N=2, clients="returning")
        exact = excess(w, nqm.CFL(0.1, weights=lemma_b4(30, w.D2, w.R2)), 30, [0.05, 0.1])
        np.testing.assert_allclose(march(w, np.array([0.05, 0.1]), 30), exact, rtol=1e-9)

    def test_new_clients_are_the_ledger_s_newcomers(self):
        w = World("sc", D2=1.0, N=3)
        lrs = np.geomspace(1e-7, 1.0, 40) * w.step_bound
        found = march(w, lrs, 50)[:, -1].min()  # one curvature, half the start and drift in each of two directions
        assert found == pytest.approx(float(newcomers_error(50, np.ones(1), 1.0, 1.0, 3)[0]), rel=1e-9)

    @pytest.mark.parametrize("clients", ["new", "returning"])
    def test_the_worst_of_many_curvatures(self, clients):
        w = World("gc", eps=0.1, D2=1.0, R2=0.01, clients=clients)
        lrs = np.array([0.01, 0.1])
        each = [
            march(World("sc", mu=lam, L=lam, H=1.0, D2=1.0, R2=0.01, clients=clients), lrs, 25) for lam in w.curvatures
        ]
        np.testing.assert_allclose(march(w, lrs, 25), np.max(each, axis=0), rtol=1e-9)


class TestRounds:
    @settings(max_examples=20, deadline=None)
    @given(
        mu=st.floats(0.1, 1.0),
        lr=st.floats(0.02, 1.5),
        D2=st.sampled_from([0.0, 0.01, 0.3]),
        share=st.floats(0.01, 0.9),
    )
    def test_bisection_is_brute_force(self, mu, lr, D2, share):
        w = World("sc", mu=mu, D2=D2)
        curve = excess(w, nqm.FedAvg(lr), 400, [lr])[0]
        target = share * curve[0]
        reached = np.flatnonzero(curve <= target)
        r = one_round(w, np.array([lr]))
        found = crossing(r.error, 1, target)[0]
        if len(reached):
            assert max(1, math.ceil(found - 1e-6)) == reached[0]  # a gain of zero arrives at once, T real
        else:
            assert found > 400

    def test_crossings_of_known_curves(self):
        decays = np.array([0.5, 0.9, 0.99])
        for target in (0.3, 0.01):
            np.testing.assert_allclose(
                crossing(lambda T: decays**T, 3, target), np.log(target) / np.log(decays), rtol=1e-9
            )
        assert np.isinf(crossing(np.ones_like, 2, 0.5)).all()
        assert (crossing(np.ones_like, 2, 2.0) == 0).all()

    def test_tuning_is_a_dense_grid(self):
        w = World("sc", mu=0.5, eps=0.01, D2=0.2, sigma2=0.1, K=2)
        lrs = np.geomspace(1e-3, w.stable, 4000)
        dense = crossing(one_round(w, lrs).error, len(lrs), w.eps).min()
        assert rounds_to(w).rounds == pytest.approx(dense, rel=1e-4)
        assert rounds_to(w, tuning="prescribed").lr <= w.step_bound

    def test_marching_tunes_as_a_dense_grid(self):
        w = World("sc", eps=0.01, D2=1.0, clients="returning")
        error = march(w, np.geomspace(1e-4, w.stable, 600), 200)
        brute = min(int(np.argmax(row <= w.eps)) for row in error if (row <= w.eps).any())
        assert math.ceil(rounds_to(w, "cfl").rounds - 1e-6) == brute

    def test_the_nonconvex_prescription(self):
        w = World("nc", eps=1e-2, L=0.4, gap=0.5, D2=1.0, N=2)
        found = rounds_to(w, tuning="prescribed")

        def mean(T):
            lr = math.sqrt(w.N / T) / w.L
            e = w.experiment(nqm.FedAvg(lr), T)
            return nqm.expect(e.problem, e.drift, e.federation, e.method, norm=False)["grad_norm_sq"].values[:T].mean()

        T = math.ceil(found.rounds)
        assert mean(T) <= w.eps < mean(T - 1)

    def test_few_rounds_that_have_not_left_the_start_do_not_count(self):
        """From a start below eps the mean rises first: the count is from where on it stays below."""
        w = World("nc", eps=1e-2, L=0.4, gap=1e-4, D2=1.0)
        found = rounds_to(w, tuning="prescribed")
        alone = one_round(w, np.array([1 / w.L]))
        assert alone.error(np.array([1.0]), mean=True)[0] < w.eps
        assert found.rounds > 1000

    def test_a_grid_that_misses_the_optimum_is_widened_and_says_so(self):
        found = rounds_to(World("sc", eps=1e-8, sigma2=1.0))
        assert found.widened > 0
        assert f"widened by {found.widened} decades" in str(found)
        assert not found.at_bound

    def test_it_widens_to_an_optimum_six_decades_down(self):
        found = tune(lambda lrs: (100 + np.log10(lrs / 1e-6) ** 2, lrs), 1.0, target=1.0)
        assert found.lr == pytest.approx(1e-6, rel=0.05)
        assert found.widened >= 4

    def test_an_accuracy_out_of_reach_comes_with_its_floor(self):
        """Overlap that stays with returning clients: F²/(2N) per unit of curvature is never averaged away."""
        w = World("sc", eps=0.01, D2=1.0, F2=0.5, clients="returning")
        found = rounds_to(w, "cfl")
        assert math.isinf(found.rounds)
        assert found.floor > 0.1
        assert str(found) == f"eps = 0.01 is not reachable: the floor is {found.floor:.3g}"

    def test_tune_stops_where_lower_rates_do_not_help(self):
        found = tune(lambda lrs: (np.full(len(lrs), np.inf), np.full(len(lrs), 0.5)), 1.0, 0.1)
        assert math.isinf(found.rounds)
        assert found.floor == 0.5

    @pytest.mark.parametrize(
        ("world", "words"),
        [
            (World(eps=0.0), "eps = 0: must be > 0"),
            (World(mu=2.0), "mu = 2: must be in"),
            (World(D2=1.0, F2=2.0), "F2 = 2 must be at most D2 = 1"),
            (World(part="x"), "part = 'x': must be one of sc, gc, nc"),
            (World(clients="x"), "clients = 'x'"),
            (World(part="nc", L=1.0), "c_m is not"),
            (World(A2=1.0, K=2), "K = 1 only"),
            (World(clients="all", D2=1.0), "no noise and no time drift"),
        ],
    )
    def test_bad_worlds_are_one_line(self, world, words):
        with pytest.raises(nqm.InvalidInput, match=words) as caught:
            check(world)
        assert "\n" not in str(caught.value)

    def test_other_bad_input(self):
        with pytest.raises(nqm.InvalidInput, match="tuning = 'best'"):
            rounds_to(World(), tuning="best")
        with pytest.raises(nqm.InvalidInput, match="no closed form"):
            rounds_to(World(G2=1.0, clients="returning"))


class TestLimits:
    def test_the_information_bound_is_attained_by_the_best_falling_steps(self):
        """Curvature 1, K = 1: the step u/(u + s) minimises the next error, and 1/u grows by 1/s a round."""
        w = World("sc", D2=0.5, H=2.0)
        u, s = 1.0, w.D2 / 2
        for T in range(1, 30):
            step = u / (u + s)
            u = (1 - step) ** 2 * u + step**2 * s
            assert float(limits.least_error(w, T)) == pytest.approx(u, rel=1e-12)  # two directions, half each

    def test_a_shared_part_is_drawn_once_a_client(self):
        """F = D: histories do not help, and the bound is that of N T draws."""
        shared, fresh = World("sc", D2=1.0, F2=1.0, N=2), World("sc", D2=1.0, N=2)
        assert float(limits.least_error(shared, 50, True)) == pytest.approx(float(limits.least_error(fresh, 50, False)))
        assert float(limits.least_error(fresh, 50, True)) < float(limits.least_error(fresh, 50, False)) / 10

    def test_chebyshev_and_nemirovski_are_attained(self):
        """The polynomials that attain the bounds, on a fine grid of curvatures."""
        n, L, mu = 6, 2.0, 0.3
        lam = np.linspace(0, L, 20001)[1:]
        p = np.cos((2 * n + 1) * np.arccos(np.sqrt(lam / L))) * (-1) ** n / ((2 * n + 1) * np.sqrt(lam / L))
        worst = np.max(lam / 2 * p**2)
        assert limits.computation(World("gc", L=L), worst) == pytest.approx(n, rel=1e-6)
        m = n + 1
        x0 = math.cos(math.pi / (2 * m))
        q = np.cos(m * np.arccos(np.clip(x0 - lam * (1 + x0) / L, -1, 1))) * L * math.tan(math.pi / (4 * m)) / m
        assert limits.gradient_after(L, 1.0, n) == pytest.approx(np.max(q**2), rel=1e-6)
        assert np.isclose(abs(q[0] / lam[0]), 1.0, rtol=1e-2)  # lambda p(lambda) with p(0) = 1
        sc = World("sc", L=L, mu=mu)
        cheb = np.cosh(n * np.arccosh((L + mu) / (L - mu)))
        assert limits.computation(sc, mu / 2 / cheb**2) == pytest.approx(n, rel=1e-9)

    def test_standing_still_needs_no_rounds_above_its_error(self):
        w = World("sc", D2=1.0)
        assert rounds_to(replace(w, eps=2 * limits.standing_still(w))).rounds == 0
        assert limits.information(w, 2 * limits.standing_still(w)) == 0


class TestOtherPapers:
    def test_special_in_closed_form_is_nqm(self):
        lr, glr, E, lam, T = 0.1, 0.7, 3, 0.2, 12
        problem = nqm.Quadratic(
            dim=1, mu=None, L=None, spectrum=(1.0,), rotation="none", b=(0.0,), w0=(0.0,), tasks=({}, {"b": (-1.0,)})
        )
        federation = nqm.Federation(1, None, E, T, tasks=2)
        method = nqm.Special(lr, server_lr=glr, prox=lam, decay=False)
        found = nqm.expect(problem, nqm.Drift(), federation, method, norm=False)
        theta = 1 - math.sqrt(float(found["distance_sq"].values[1, -1]))  # the second optimum is at 1
        assert others.special_gradient(T, lr, glr, E, lam) == pytest.approx((2 * theta - 1) ** 2, rel=1e-12)

    def test_two_tasks_of_cflag_are_nqm(self):
        rate, T = 1 / 60, 40
        problem = nqm.Quadratic(
            dim=1, mu=None, L=None, spectrum=(1.0,), rotation="none", b=(0.0,), w0=(0.0,), tasks=({}, {"b": (-1.0,)})
        )
        federation = nqm.Federation(1, None, 2, T, tasks=2, samples=1)
        method = nqm.CFlag(rate, memory=1, memory_lr=rate)
        found = nqm.simulate(problem, nqm.Drift(), federation, method, seeds=1, engine="reference")
        x = 1 - math.sqrt(float(found["distance_sq"].values.reshape(2, T + 1)[1, -1]))
        gain, rest = others.two_tasks(rate)
        assert x == pytest.approx(rest * (1 - gain**T), rel=1e-9)


class TestVerdicts:
    @pytest.mark.parametrize(
        ("predicted", "towards", "interval", "tunings", "claimed", "verdict"),
        [
            (-1.0, "small", (-1.0, -1.0), ("prescribed", "free"), 1.0, "agrees"),
            (-1.0, "small", (-1.6, -1.4), ("prescribed", "free"), 1.0, "slower"),
            (-1.0, "small", (-0.6, -0.4), ("prescribed", "free"), 1.0, "faster"),
            (1.0, "large", (1.4, 1.6), ("prescribed", "free"), 1.0, "slower"),
            (1.0, "large", (1.4, 1.6), ("prescribed",), 1.0, "agrees"),  # free tuning has to be measured, too
            (1.0, "large", (1.4, 1.6), ("prescribed", "free"), 1e9, "agrees"),  # far below the claim
            (1.0, "large", (1.0 + MARGIN / 2, 1.6), ("prescribed", "free"), 1.0, "agrees"),
            (1.0, "large", (1.0 - WIDE, 1.0 + WIDE), ("prescribed", "free"), 1.0, "unmeasured"),
        ],
    )
    def test_rules(self, predicted, towards, interval, tunings, claimed, verdict):
        found = Fit(sum(interval) / 2, *interval, (0.0, 0.0, 0.0), "power", 0.0)
        curves = {name: np.full(7, 100.0) for name in tunings}
        assert judge(predicted, towards, dict.fromkeys(tunings, found), curves, claimed) == verdict

    def test_not_arriving_accuses_nobody(self):
        curves = {"prescribed": np.array([1.0, math.inf]), "free": np.array([1.0, math.inf])}
        assert judge(-1.0, "small", dict.fromkeys(curves), curves, 1.0) == "unmeasured"


@pytest.fixture(scope="module")
def everything():
    return [found for id in rates.registry() for found in rates.results(id)]


class TestRegistry:
    def test_every_claim_is_there(self):
        claims = set(rates.registry())
        assert {f"cfl/thm-{n}" for n in ("4.1", "4.4", "4.7", "b.5", "b.6")} <= claims
        assert {"special/cor-4.12", "cflag/thm-5", "cflag/lemma-3", "cflag/lemma-18", "fedeve/thm-c.2"} <= claims
        assert len([c for c in claims if c.startswith("cfl/table-1/")]) == 9

    def test_two_decades_and_a_dominant_term(self, everything):
        for one in everything:
            if one.curve is None:
                assert one.verdict == "unmeasured"
                assert one.note
                continue
            x = one.curve.x
            assert max(x) / min(x) >= 99
            assert one.shares is None or min(one.shares) >= 0.9
            assert one.verdict != "unmeasured", one.rate

    def test_the_declared_exponent_is_the_formula_s(self, everything):
        for one in everything:
            if one.claimed is not None:
                x = np.log(one.curve.x)
                slopes = np.diff(np.log(one.claimed)) / np.diff(x)
                assert abs(slopes.mean() - one.rate.predicted) < 0.2, (
                    one.rate.claim,
                    one.rate.term,
                    one.rate.parameter,
                )

    def test_no_curve_crosses_a_limit(self, everything):
        """In whole rounds: between two of them our curves are interpolated."""
        for one in everything:
            for name in ("information", "computation"):
                for measured in () if one.curve is None else (one.curve.prescribed, one.curve.free):
                    if measured is not None and name in one.curve.lines:
                        least = one.curve.lines[name] * (1 - 1e-6)
                        whole = np.ceil(measured) if one.curve.quantity == "rounds" else measured
                        assert np.all(whole >= least), (one.rate, name)

    def test_free_tuning_is_never_worse(self, everything):
        for one in everything:
            if one.curve is not None and one.curve.prescribed is not None and one.curve.free is not None:
                assert np.all(one.curve.free <= one.curve.prescribed * (1 + 1e-3)), one.rate

    def test_verdicts_agree_with_the_ledger(self, everything):
        """What it refutes is slower in some regime here; what it says holds, or is loose, is slower in none."""
        known = ledger.registry()
        slower = {one.rate.ledger for one in everything if one.verdict == "slower"}
        for id in {one.rate.ledger for one in everything if one.rate.ledger}:
            verdict = known[id].verdict
            if verdict == "refuted":
                assert id in slower, id
            if verdict in ("holds", "loose"):
                assert id not in slower, id

    def test_json(self, everything):
        text = json.dumps([one.plain() for one in everything], allow_nan=False)
        assert {row["verdict"] for row in json.loads(text)} == {"agrees", "faster", "slower", "unmeasured"}


class TestCommand:
    def test_one_claim(self):
        result = CliRunner().invoke(driftproof.app, ["rates", "special/cor-4.12", "--json"])
        assert result.exit_code == 0
        rows = json.loads(result.stdout)
        assert [(r["parameter"], r["predicted"], r["verdict"]) for r in rows] == [
            ("T", -0.5, "slower"),
            ("N", -0.5, "slower"),
            ("E", 0.5, "faster"),
            ("M", 0.0, "agrees"),
        ]
        shown = CliRunner().invoke(driftproof.app, ["rates", "special/cor-4.12"])
        assert "2 slower, 1 faster, 1 agrees" in shown.stdout

    def test_unknown_id(self):
        result = CliRunner().invoke(driftproof.app, ["rates", "special/cor-4.13"])
        assert result.exit_code == 2
        assert "did you mean special/cor-4.12" in result.stderr
        assert result.stderr.count("\n") == 1

    def test_figures(self, tmp_path):
        from plots import registry

        made = {e.id: e for e in registry.entries("figure")}
        assert {f"rates/{id}" for id in (*rates.registry(), "summary")} <= set(made)
        registry.draw(made["rates/cflag/lemma-18"], tmp_path)
        data = nqm.load(tmp_path / "rates/cflag/lemma-18.nc")
        assert list(data["verdict"].values) == ["agrees", "agrees", "slower"]


class TestFigure:
    """The data behind a rate figure, and its picture, of a claim that is quick to measure."""

    def test_special(self) -> None:
        from plots import registry
        from plots.style import styled

        entry = registry.find("figure", ["rates/special/cor-4.12"])[0]
        data = entry.measure()
        assert {"prescribed", "predicted", "exponent", "verdict"} <= set(data.data_vars)
        assert "slower" in data["verdict"].values
        with styled():
            figure = entry.show(data)
        assert figure.axes
