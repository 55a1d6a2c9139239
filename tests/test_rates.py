"""Fitted exponents: planted ones are found, logarithms named, bisection is brute force, verdicts follow the rules."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import driftproof
import nqm
from nqm import InvalidInput
from theory import rates
from theory.claims import select as ledger
from theory.rates import fit, limits
from theory.rates.claims import MARGIN, judge
from theory.rates.fit import Fit
from theory.rates.rounds import crossing, rounds_to, tune
from theory.rates.sweeps import sweep, values
from theory.rates.world import World, one_round

X = np.geomspace(1.0, 100.0, 9)


class TestFit:
    @pytest.mark.parametrize("p", [-2.0, -0.5, 0.0, 1.0, 1.5])
    def test_a_power_is_its_exponent(self, p: float) -> None:
        found = fit(X, 3.0 * X**p)
        assert found.exponent == pytest.approx(p, abs=1e-12)
        assert found.low <= p + 1e-9
        assert found.high >= p - 1e-9
        assert found.high - found.low < 1e-6
        assert found.law == "power"

    def test_coverage_with_scatter_and_curvature(self) -> None:
        """y = x^p (1 + a x^-q)(1 + noise), q >= 1/2: 400 planted curves, the interval covers p in at least 95 %."""
        rng = np.random.default_rng(5)
        covered = []
        for _ in range(400):
            p, q, a = rng.uniform(-2, 2), rng.uniform(0.5, 2), rng.uniform(0, 3)
            y = X**p * (1 + a * X**-q) * np.exp(rng.choice([0.0, 0.01, 0.03]) * rng.standard_normal(len(X)))
            found = fit(X, y)
            covered.append(found.low <= p <= found.high)
        assert np.mean(covered) >= 0.95

    def test_the_interval_knows_of_curvature_without_any_scatter(self) -> None:
        found = fit(X, X + 5.0)  # the exponent 1 is not reached yet
        assert found.exponent < 0.9
        assert found.low < found.exponent < found.high
        assert found.high > 0.9

    @pytest.mark.parametrize("p", [-1.0, 0.5, 2.0])
    def test_a_logarithm_is_named(self, p: float) -> None:
        deep = np.geomspace(1e2, 1e5, 10)
        found = fit(deep, deep**p * np.log(deep))
        assert found.law == "power x log"
        assert found.exponent == pytest.approx(p, abs=0.02)
        assert "x log" in str(found)

    def test_an_exponential_has_no_exponent(self) -> None:
        found = fit(np.linspace(1, 20, 9), np.exp(np.linspace(1, 20, 9)))
        assert found.law == "exponential"
        assert math.isinf(found.high)

    @pytest.mark.parametrize(
        ("x", "y", "says"),
        [
            ([1.0, 2.0], [1.0, 2.0], "at least 7"),
            (X, -X, "y: must be positive, finite"),
            (np.ones(9), X, "x: must rise or fall"),
        ],
    )
    def test_bad_input(self, x, y, says: str) -> None:
        with pytest.raises(InvalidInput, match=says):
            fit(x, y)


class TestRounds:
    def test_crossing_is_brute_force(self) -> None:
        targets = (0.3, 0.01)
        decays = np.array([0.5, 0.9, 0.99])
        for target in targets:
            found = crossing(lambda T: decays**T, 3, target)
            np.testing.assert_allclose(found, np.log(target) / np.log(decays), rtol=1e-9)
        assert np.isinf(crossing(lambda T: np.ones_like(T), 2, 0.5)).all()
        assert (crossing(lambda T: np.ones_like(T), 2, 2.0) == 0).all()

    @pytest.mark.parametrize("world", [World("sc", eps=1e-3, sigma2=1.0), World("sc", eps=1e-2, D2=1.0, N=3, K=2)])
    def test_the_closed_form_is_expect(self, world: World) -> None:
        """The error after T whole rounds, from `nqm.expect` at the rate that was found best."""
        found = rounds_to(world)
        T = math.ceil(found.rounds)
        e = world.experiment(nqm.FedAvg(found.lr), T)
        exact = nqm.expect(e.problem, e.drift, e.federation, e.method)["excess_loss"].values
        closed = one_round(world, np.array([found.lr])).error(np.arange(T + 1.0)[:, None])[:, 0]
        np.testing.assert_allclose(closed, exact, rtol=1e-9)
        assert exact[T] <= world.eps * (1 + 1e-9) < exact[T - 1] * (1 + 1e-6)

    def test_no_rate_of_a_fine_grid_is_quicker(self) -> None:
        world = World("sc", eps=1e-3, sigma2=1.0)
        found = rounds_to(world)
        lrs = np.geomspace(found.lr / 100, world.stable * (1 - 1e-9), 2000)
        r = one_round(world, lrs)
        brute = crossing(lambda T: r.error(T, False), len(lrs), world.eps)
        assert found.rounds <= brute.min() * (1 + 1e-6)

    def test_a_grid_that_misses_the_optimum_widens_and_says_so(self) -> None:
        """The best rate lies six decades below the limit."""

        def hits(lrs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return 100 + np.log10(lrs / 1e-6) ** 2, lrs

        found = tune(hits, 1.0, target=1.0)
        assert found.lr == pytest.approx(1e-6, rel=0.05)
        assert found.widened >= 4
        assert f"widened by {found.widened} decades" in str(found)

    def test_an_accuracy_out_of_reach_has_its_floor_beside_it(self) -> None:
        def hits(lrs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.full(len(lrs), np.inf), np.full(len(lrs), 0.25)

        found = tune(hits, 1.0, target=0.1)
        assert math.isinf(found.rounds)
        assert str(found) == "eps = 0.1 is not reachable: the floor is 0.25"

    def test_unknown_tuning(self) -> None:
        with pytest.raises(InvalidInput, match="tuning = 'best': must be one of prescribed, free"):
            rounds_to(World("sc", eps=1e-3), tuning="best")


class TestKnownExponents:
    """Noise alone: rounds ~ sigma^2/(N K eps) with the falling step that attains it; a constant pays a logarithm."""

    world = World("sc", eps=1e-3, sigma2=1.0)

    def curve(self, parameter: str, up: float, falls: bool = False):
        return sweep(self.world, parameter, values(self.world, parameter, up), "fedavg", True, falls)

    def test_accuracy(self) -> None:
        curve = self.curve("eps", 1e-2, falls=True)
        falling = fit(curve.x, curve.falling)
        assert falling.law == "power"
        assert falling.low - 0.1 <= -1 <= falling.high + 0.1
        constant = fit(curve.x, curve.free)
        assert constant.law == "power x log"
        assert constant.exponent == pytest.approx(-1, abs=0.03)

    def test_noise_clients_and_steps(self) -> None:
        for parameter, predicted in (("sigma", 2.0), ("N", -1.0), ("K", -1.0)):
            deep = World("sc", eps=1e-8, sigma2=1.0)
            curve = sweep(deep, parameter, values(deep, parameter, 100.0), "fedavg", True, False)
            found = fit(curve.x, curve.free)
            assert found.low - 0.05 <= predicted <= found.high + 0.05

    def test_nothing_crosses_the_limits(self) -> None:
        curve = self.curve("eps", 1e-2)
        for line in curve.lines.values():
            assert (curve.free >= line * (1 - 1e-9)).all()

    def test_the_information_bound_is_a_posterior_variance(self) -> None:
        """One direction, Gaussian prior of variance h, n observations of variance s/n: h v/(h + v)."""
        world = World("sc", eps=1e-3, sigma2=2.0, N=3, K=4)
        lam, h = world.curvatures, world.start2
        v = world.share * 2.0 / (3 * 4 * 10) / lam**2
        assert float(limits.least_error(world, 10.0)) == pytest.approx(float((lam / 2 * h * v / (h + v)).sum()))


class TestVerdicts:
    def fits(self, low: float, high: float) -> dict[str, Fit]:
        one = Fit((low + high) / 2, low, high, (low, high, high), "power", low)
        return {"prescribed": one, "free": one}

    def test_the_rules(self) -> None:
        """Only an exponent clear of the margin, with free tuning beside it and above the claim, accuses."""
        curves = {"prescribed": np.array([1.0, 9.0]), "free": np.array([1.0, 9.0])}
        assert judge(1.0, "large", self.fits(1.3, 1.5), curves, 1.0) == "slower"
        assert judge(1.0, "large", self.fits(1.3, 1.5), curves, 100.0) == "agrees"  # below the claim, constants one
        assert judge(1.0, "large", self.fits(1.0 + MARGIN / 2, 1.5), curves, 1.0) == "agrees"
        assert judge(1.0, "large", {"prescribed": self.fits(1.3, 1.5)["free"]}, curves, 1.0) == "agrees"
        assert judge(1.0, "large", self.fits(0.2, 0.5), curves, 1.0) == "faster"
        assert judge(-1.0, "small", self.fits(-1.5, -1.3), curves, 1.0) == "slower"
        gone = {"prescribed": np.array([1.0, np.inf])}
        assert judge(1.0, "large", {"prescribed": None}, gone, 1.0) == "unmeasured"

    def test_every_claim_of_the_issue_is_there(self) -> None:
        claims = set(rates.registry())
        for theorem in ("4.1", "4.4", "4.7", "b.5", "b.6"):
            assert f"cfl/thm-{theorem}" in claims
        assert {"special/cor-4.12", "cflag/thm-5", "cflag/lemma-3", "cflag/lemma-18", "fedeve/thm-c.2"} <= claims
        assert len([c for c in claims if c.startswith("cfl/table-1/")]) >= 8
        for rows in rates.registry().values():
            for rate in rows:
                assert rate.regime or rate.curve is None
                assert rate.curve is not None or rate.note

    @pytest.mark.slow
    def test_who_is_accused_here_does_not_simply_hold_in_the_ledger(self) -> None:
        verdicts = {claim.id: claim.verdict for claim in ledger()}
        for id in rates.registry():
            for found in rates.results(id):
                if found.verdict == "slower" and found.rate.ledger:
                    assert verdicts[found.rate.ledger] != "holds", (id, found.rate.ledger)

    def test_one_claim_end_to_end(self) -> None:
        """SPECIAL's corollary: claimed T^-1/2, measured T^0, with assumptions that the ledger checks as well."""
        by_parameter = {one.rate.parameter: one for one in rates.results("special/cor-4.12")}
        assert by_parameter["T"].verdict == "slower"
        assert by_parameter["T"].fit is not None
        assert abs(by_parameter["T"].fit.exponent) < 0.1


class TestCommand:
    def run(self, *args: str):
        return CliRunner().invoke(driftproof.app, ["rates", *args])

    def test_json(self) -> None:
        rows = json.loads(self.run("special/lemma-4.9", "--json").stdout)
        assert rows
        for row in rows:
            assert {"claim", "parameter", "predicted", "measured", "verdict", "regime", "x"} <= set(row)
            assert row["verdict"] in ("agrees", "faster", "slower", "unmeasured")

    def test_table(self) -> None:
        shown = self.run("special/lemma-4.9")
        assert shown.exit_code == 0
        assert "predicted" in shown.stdout

    def test_unknown(self) -> None:
        result = self.run("cfl/thm-4.11")
        assert result.exit_code == 2
        assert "unknown id (did you mean cfl/thm-4.1?)" in result.stderr
        assert len(result.stderr.splitlines()) == 1
