"""Worst cases of one round: known answers, a twin without symmetry, brute force from both sides, and bad input."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nqm
from plots import tight as figures
from theory.bounds.cfl_round import step_bound
from theory.tight import (
    CFlag,
    FedAvg,
    FedProx,
    ServerProx,
    bias,
    certify,
    contraction,
    largest_step,
    nqm_contraction,
    progress,
    size,
    solve,
    worst_bias,
    worst_contraction,
    worst_fresh_bias,
)
from theory.tight.slack import contraction_21, contraction_24, largest_step_24, remainder_24
from theory.tight.world import World

MU = 0.1
ROUNDS = [
    FedAvg(0.3, 3),
    FedAvg(0.4, 3, server_lr=2.0),
    FedProx(0.5, 3, prox=0.5),
    ServerProx(0.3, 3, pull=0.5),
    CFlag(0.2, 3, memory_lr=0.4),
]


def name(round) -> str:
    return f"{round.name}-{round.lr:g}"


def descent(lr: float, mu: float, L: float, steps: int = 1) -> float:
    return max(abs(1 - lr * mu), abs(1 - lr * L)) ** (2 * steps)


class TestKnownAnswers:
    @settings(max_examples=15, deadline=None)
    @given(lr=st.floats(0.01, 2.5), ratio=st.floats(0.0, 1.0), L=st.sampled_from([0.01, 1.0, 50.0]))
    def test_gradient_descent(self, lr, ratio, L):
        found = contraction(FedAvg(lr / L), ratio * L, L, clients=1)
        exact = descent(lr, ratio, 1.0)
        assert found.upper == pytest.approx(exact, abs=1e-8)
        assert found.lower == pytest.approx(exact, abs=1e-6)
        assert found.upper >= exact - 1e-13
        assert found.lower <= exact + 1e-13

    def test_the_best_step_of_gradient_descent(self):
        best = ((1 - MU) / (1 + MU)) ** 2
        at, beside = 2 / (1 + MU), (1.95 / (1 + MU), 2.05 / (1 + MU))
        assert contraction(FedAvg(at), MU, clients=1).upper == pytest.approx(best, abs=1e-8)
        assert all(contraction(FedAvg(lr), MU, clients=1).upper > best + 1e-3 for lr in beside)

    @pytest.mark.parametrize("clients", [1, 2, 3])
    @pytest.mark.parametrize("reduce", [True, False])
    def test_one_local_step_is_gradient_descent(self, clients, reduce):
        for lr in (0.3, 1.0, 1.9):
            found = contraction(FedAvg(lr / 2, 1, server_lr=2.0), MU, clients=clients, reduce=reduce)
            assert found.upper == pytest.approx(descent(lr, MU, 1.0), abs=1e-7)

    @pytest.mark.parametrize("K", [1, 2, 3, 4, 5])
    @pytest.mark.parametrize("lr", [0.2, 1.5, 1.95])
    def test_averages_of_descents_are_no_worse_than_one(self, K, lr):
        """Every client's K steps contract by max(|1 − ημ|, |1 − ηL|)^K, so their average does; equal ones attain it."""
        exact = descent(lr, MU, 1.0, K)
        for clients in (1, 2):
            assert contraction(FedAvg(lr, K), MU, clients=clients).upper == pytest.approx(exact, abs=1e-7)
        assert worst_contraction(FedAvg(lr, K), MU).value == pytest.approx(exact, rel=1e-12)

    @pytest.mark.parametrize("K", [1, 3, 5])
    def test_largest_step(self, K):
        assert largest_step(FedAvg(0.1, K), MU, 4.0) == pytest.approx(2 / 4.0, rel=2e-6)
        pulled = (1 + 1.5 ** (1 / K)) / 4.0  # |1 − ηL|^K = 1 + pull
        assert largest_step(ServerProx(0.1, K, pull=0.5), MU, 4.0) == pytest.approx(pulled, rel=2e-6)

    def test_one_local_step_of_cflag_is_gradient_descent_on_both(self):
        for alpha in (0.1, 0.7):
            round = CFlag(0.5, 1, memory_lr=alpha)
            assert contraction(round, MU, clients=3).upper == pytest.approx(descent(0.5 + alpha, MU, 1.0), abs=1e-7)
            assert bias(round, MU).upper < 1e-8

    def test_anchor(self):
        """‖w_1‖ ≤ (√τ ‖w_0‖ + λ‖anchor‖)/(1 + λ), so the radius is λ‖anchor‖/(1 + λ − √τ)."""
        lam, lr, K = 0.5, 0.1, 4
        exact = (lam / (1 + lam - (1 - lr * MU) ** K)) ** 2
        found = bias(ServerProx(lr, K, pull=lam), MU, sources={"anchor": 3.0})
        assert found.upper == pytest.approx(3 * exact, rel=1e-6)
        assert found.lower == pytest.approx(3 * exact, rel=1e-4)

    def test_bias_vanishes(self):
        assert bias(FedAvg(0.3, 4), MU, clients=1).upper == 0
        assert bias(FedAvg(0.3, 1), MU).upper < 1e-8  # one step with the average gradient
        assert bias(FedAvg(0.3, 4), 1.0).upper < 1e-8  # μ = L: one Hessian for all
        assert bias(FedAvg(0.3, 4), MU, sources={"clients": 0.0}).upper == 0

    def test_no_strong_convexity(self):
        assert contraction(FedAvg(0.5, 3), 0.0).upper == pytest.approx(1, abs=1e-7)
        assert bias(FedAvg(0.5, 3), 0.0).upper == np.inf

    def test_bias_of_an_unstable_round_is_infinite(self):
        found = bias(FedAvg(2.2, 2), MU)
        assert found.upper == found.lower == np.inf
        assert str(found) == "bias without a bound"

    @pytest.mark.parametrize("round", ROUNDS, ids=name)
    def test_units_do_not_matter(self, round):
        """Time scaled by 8: rates by 1/8, curvatures by 8."""
        changed = replace(round, lr=round.lr / 8)
        if isinstance(round, CFlag):
            changed = replace(changed, memory_lr=round.alpha / 8)
        if isinstance(round, FedProx):
            changed = replace(changed, prox=round.prox * 8)
        assert contraction(changed, 8 * MU, 8.0).upper == pytest.approx(contraction(round, MU).upper, rel=1e-7)
        assert bias(changed, 8 * MU, 8.0).upper == pytest.approx(bias(round, MU).upper, rel=1e-5)

    @pytest.mark.parametrize(("K", "server_lr"), [(1, 1.0), (2, 2.0), (3, 2.0)])
    def test_pepit(self, K, server_lr):
        """PEPit has its own interpolation, for steps where quadratics are not the worst, too."""
        pepit = pytest.importorskip("PEPit")
        from PEPit.functions import SmoothStronglyConvexFunction

        for lr in (0.3, 0.8):
            problem = pepit.PEP()
            f = problem.declare_function(SmoothStronglyConvexFunction, mu=MU, L=1.0)
            start = v = problem.set_initial_point()
            optimum = f.stationary_point()
            problem.set_initial_condition((start - optimum) ** 2 <= 1)
            for _ in range(K):
                v = v - lr * f.gradient(v)
            problem.set_performance_metric((start + server_lr * (v - start) - optimum) ** 2)
            value = problem.solve(verbose=0, solver="CLARABEL")
            assert contraction(FedAvg(lr, K, server_lr), MU, clients=1).upper == pytest.approx(value, abs=1e-6)


class TestTwin:
    """One client that stands for all, against all clients written out."""

    @pytest.mark.parametrize("clients", [2, 3])
    @pytest.mark.parametrize("round", ROUNDS, ids=name)
    def test_contraction_and_bias(self, round, clients):
        for ask in (contraction, bias):
            folded, full = (ask(round, MU, clients=clients, reduce=r) for r in (True, False))
            assert folded.upper == pytest.approx(full.upper, rel=1e-5)
            assert folded.size.order < full.size.order or clients == 2
            for found in (folded, full):
                assert 0 <= found.gap <= 1e-4 * found.upper + 1e-9

    @pytest.mark.parametrize("sampled", [None, 1, 4])
    def test_progress_and_fresh_drift(self, sampled):
        round = FedAvg(0.05, 3)
        for ask in (progress, bias):
            folded, full = (ask(round, MU, clients=3, sampled=sampled, reduce=r) for r in (True, False))
            assert folded.upper == pytest.approx(full.upper, rel=1e-3)
            assert 0 <= folded.gap <= 5e-3 * folded.upper

    def test_two_clients_are_any_number(self):
        found = [bias(FedAvg(0.3, 2), MU, clients=n, reduce=False).upper for n in (2, 3, 4, 5)]
        assert found == pytest.approx([bias(FedAvg(0.3, 2), MU, clients=1000).upper] * 4, rel=1e-5)

    @pytest.mark.parametrize("round", ROUNDS, ids=name)
    @pytest.mark.parametrize("reduce", [True, False])
    def test_size_is_known_beforehand(self, round, reduce):
        expected = size(round, 3, reduce)
        found = bias(round, MU, clients=3, sources=dict.fromkeys(round.sources, 1.0), reduce=reduce)
        assert found.size == expected


class TestHonest:
    """The bounds do not rest on the solver's word."""

    @pytest.mark.parametrize("seed", range(5))
    def test_poor_multipliers_give_a_poor_but_true_bound(self, seed):
        round, exact = FedAvg(0.5, 3), descent(0.5, MU, 1.0, 3)
        programme = solve.build("contraction", World(round, MU, 1.0, 2), {})
        found = solve.solve("contraction", programme, "CLARABEL")
        rng = np.random.default_rng(seed)
        spoilt = found._replace(multipliers=found.multipliers + 1e-3 * rng.standard_normal(len(found.multipliers)))
        tau, _ = certify._upper(programme, spoilt)
        assert exact < tau < np.inf
        low = spoilt._replace(T=exact - 0.1)  # a claim below the truth is not believed
        assert certify._upper(programme, low)[0] >= exact

    @pytest.mark.parametrize("seed", range(5))
    def test_a_poor_gram_matrix_gives_a_poor_but_true_bound(self, seed):
        round, exact = FedAvg(0.5, 3), descent(0.5, MU, 1.0, 3)
        programme = solve.build("contraction", World(round, MU, 1.0, 2), {})
        found = solve.solve("contraction", programme, "CLARABEL")
        noise = 1e-3 * np.random.default_rng(seed).standard_normal(found.gram.shape)
        mask = found.gram != 0  # the blocks stay apart
        lower = certify._lower("contraction", programme, found._replace(gram=found.gram + mask * (noise + noise.T)))
        assert 0 < lower <= exact

    def test_a_coarse_solver(self):
        for round in ROUNDS:
            coarse, fine = contraction(round, MU, solver="SCS"), contraction(round, MU)
            assert coarse.upper >= fine.lower
            assert coarse.lower <= fine.upper
            assert coarse.gap < 0.1

    def test_reads_well(self):
        text = str(bias(FedAvg(0.1, 2), MU))
        assert text.startswith("bias 0.00")
        assert "· clients; Gram matrix of order 6, 6 conditions" in text


class Federation:
    """Numbers in place of unknowns: smooth strongly convex clients with kinks, flat parts and bends, least at 0."""

    KINDS = ("linear", "clipped", "dead", "bent")

    def __init__(self, rng, round, mu, clients, dim, tilted):
        self.start = rng.standard_normal(dim) * 10 ** rng.uniform(-1.5, 0.5)
        self.anchor = rng.standard_normal(dim) * tilted
        tilts = rng.standard_normal((clients, dim)) * tilted
        tilts -= tilts.mean(axis=0)
        self.source = {"clients": np.mean(np.sum(tilts**2, axis=1)), "anchor": np.sum(self.anchor**2)}
        between = np.zeros(dim)
        if isinstance(round, CFlag):
            between = rng.standard_normal(dim) * tilted
            self.source["tasks"] = np.sum(between**2)
        self.clients = [Client(rng, mu, t + between, np.linalg.norm(self.start)) for t in tilts]
        balance = round.balance if isinstance(round, CFlag) else 0.0
        self.memory = Client(rng, mu, -balance * between, np.linalg.norm(self.start))

    def mean(self, vectors):
        return np.mean(vectors, axis=0)


class Client:
    def __init__(self, rng, mu, tilt, scale):
        self.mu, self.tilt = mu, tilt
        self.axes = np.linalg.qr(rng.standard_normal((len(tilt), len(tilt))))[0]
        self.kinds = rng.choice(Federation.KINDS, len(tilt))
        self.curvature = rng.choice([0.0, 1.0, 1.0, rng.uniform()], len(tilt))
        self.width = scale * rng.uniform(0.05, 1.5, len(tilt))

    def gradient(self, x):
        z, w = self.axes @ x, self.width
        slopes = {
            "linear": z,
            "clipped": np.clip(z, -w, w),
            "dead": np.sign(z) * np.maximum(np.abs(z) - w, 0.0),
            "bent": w * np.tanh(z / w),
        }
        h = np.array([slopes[kind][j] for j, kind in enumerate(self.kinds)])
        return self.tilt + self.mu * x + (1 - self.mu) * self.axes.T @ (self.curvature * h)


class TestBruteForce:
    @pytest.mark.parametrize("round", [*ROUNDS, FedAvg(0.5, 4, server_lr=2.0), CFlag(0.6, 4)], ids=name)
    def test_no_federation_exceeds_the_inequality(self, round):
        """1500 federations, seed 0; the largest ratio comes near 1, so the inequality could have failed."""
        rng = np.random.default_rng(0)
        proved = {False: contraction(round, MU), True: bias(round, MU, sources=dict.fromkeys(round.sources, 1.0))}
        largest = {False: 0.0, True: 0.0}
        for k in range(1500):
            tilted = k % 2 == 0
            world = Federation(rng, round, MU, 1 + k % 3, 1 + k % 2, float(tilted))
            end = np.mean(round.play(world), axis=0)
            found = proved[tilted]
            allowed = found.tau * np.sum(world.start**2) + sum(b * world.source[s] for s, b in found.beta.items())
            largest[tilted] = max(largest[tilted], np.sum(end**2) / allowed)
        assert max(largest.values()) <= 1 + 1e-12
        assert largest[False] > 0.97
        assert largest[True] > 0.75

    @pytest.mark.parametrize(
        ("what", "round", "clients"),
        [
            ("contraction", FedAvg(0.5, 5, server_lr=2.0), 1),
            ("contraction", FedAvg(0.8, 3, server_lr=2.0), 2),
            ("contraction", CFlag(0.9, 3), 2),
            ("bias", FedAvg(0.3, 3), 2),
            ("bias", CFlag(0.3, 3), 2),
        ],
    )
    def test_some_functions_attain_the_lower_bound(self, what, round, clients):
        """Functions through the points, gradients and values of the worst case, and the round played on them."""
        sources = dict.fromkeys(round.sources, 1.0) if what == "bias" else {}
        programme = solve.build(what, World(round, MU, 1.0, clients, list(sources), reduce=False), sources)
        found = solve.solve(what, programme, "CLARABEL")
        gram, values = certify._feasible(what, programme, found)
        eigenvalues, axes = np.linalg.eigh(gram)
        vectors = axes * np.sqrt(np.maximum(eigenvalues, 0.0))
        played = SimpleNamespace(start=vectors[0], mean=lambda ends: np.mean(ends, axis=0))
        *played.clients, played.memory = [Interpolated(o, vectors, values) for o in programme.world.oracles]
        end = np.sum(np.mean(round.play(played), axis=0) ** 2)
        start = np.sum(played.start**2)
        ask = {"contraction": contraction, "bias": bias}[what]
        certificate = ask(round, MU, clients=clients, reduce=False)
        attained, quadratic = end / start, worst_contraction(round, MU).value
        if what == "bias":
            assert attained == pytest.approx(1.0, abs=1e-5)
            attained, quadratic = start / np.sum(programme.sources[0] * gram), worst_bias(round, MU, 1.0, 20).value
        assert attained == pytest.approx(certificate.lower, rel=1e-5)
        assert attained == pytest.approx(certificate.upper, rel=1e-4)
        assert attained > 1.001 * quadratic

    def test_tracking_cancels_the_clients_own_gradients(self):
        rng = np.random.default_rng(3)
        round = CFlag(0.3, 4)
        for _ in range(20):
            world = Federation(rng, round, MU, 3, 2, 1.0)
            ends = []
            for size_of in (0.0, 5.0):
                tilts = size_of * rng.standard_normal((3, 2))
                for client, tilt in zip(world.clients, tilts - tilts.mean(axis=0), strict=True):
                    client.tilt = client.tilt + tilt
                ends.append(np.mean(round.play(world), axis=0))
            np.testing.assert_allclose(*ends, atol=1e-12)


class Interpolated:
    """t·x + μ/2 ‖x‖² + (1 − μ) φ(x), φ the convex hull of the parabolas φ_a + u_a·(x − x_a) + ½‖x − x_a‖².

    φ is convex and, as the Moreau envelope of a convex function, 1-smooth; it passes through its data if and only if
    they meet the conditions.
    """

    def __init__(self, oracle, vectors, values):
        n, points = len(vectors), oracle.points
        x = np.array([p.x[:n] @ vectors for p in points] + [np.zeros(n)])
        u = np.array([p.u[:n] @ vectors for p in points] + [np.zeros(n)])
        phi = np.array([values[p.value] for p in points] + [0.0])
        self.tilt = oracle.tilt[:n] @ vectors
        self.vertices, self.height = x - u, phi - np.sum(u**2, axis=1) / 2

    def gradient(self, y):
        share: Any = cp.Variable(len(self.height), nonneg=True)
        apart = cp.sum_squares(y - self.vertices.T @ share) / 2
        problem = cp.Problem(cp.Minimize(apart + self.height @ share), [cp.sum(share) == 1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that the tolerances can't be met to the last digit
            problem.solve("CLARABEL", tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
        return self.tilt + MU * y + (1 - MU) * (y - self.vertices.T @ share.value)


class TestQuadratics:
    @pytest.mark.parametrize("round", [*ROUNDS, FedAvg(1.7, 4), FedProx(1.3, 5, prox=0.5)], ids=name)
    def test_contraction_is_the_largest_on_a_grid_and_below_the_worst_case(self, round):
        found = worst_contraction(round, MU).value
        grid = np.linspace(MU, 1.0, 25)
        largest = max(abs(self.after(round, one, two, 1.0)) for one in grid for two in grid) ** 2
        assert largest <= found + 1e-12
        assert largest >= found - 1e-3
        assert found <= contraction(round, MU).upper + 1e-12

    @staticmethod
    def after(round, one, two, start, tilt=0.0):
        """One round of two quadratic clients (and for C-FLAG a memory of the softest curvature), on the line."""

        class Line:
            def __init__(self, curvature, b):
                self.gradient = lambda x: curvature * x + b

        class World:
            mean = staticmethod(lambda vectors: sum(vectors) / len(vectors))

        world = World()
        world.start, world.anchor = start, 0.0
        common = tilt if isinstance(round, CFlag) else 0.0
        own = 0.0 if isinstance(round, CFlag) else tilt
        world.clients = [Line(one, common + own), Line(two, common - own)]
        worst = []
        for nu in (MU, 1.0) if isinstance(round, CFlag) else (MU,):
            world.memory = Line(nu, -round.balance * tilt if isinstance(round, CFlag) else 0.0)
            worst.append(world.mean(round.play(world)))
        return max(worst, key=abs)

    @pytest.mark.parametrize(
        "round", [r for r in ROUNDS if not isinstance(r, CFlag)] + [FedAvg(1.5, 4), FedProx(1.3, 5, prox=0.5)], ids=name
    )
    def test_bias_is_the_largest_on_a_grid_and_below_the_worst_case(self, round):
        found = worst_bias(round, MU)
        grid = np.linspace(MU, 1.0, 25)
        at_rest = []
        for one in grid:
            for two in grid:
                moved = self.after(round, one, two, 0.0, tilt=1.0)
                gain = self.after(round, one, two, 1.0, tilt=1.0) - moved
                at_rest.append((moved / (1 - gain)) ** 2)
        assert max(at_rest) <= found.value + 1e-12
        assert max(at_rest) >= 0.98 * found.value
        for clients in (2, 3, 20):
            assert worst_bias(round, MU, clients=clients).value <= bias(round, MU).upper
        assert found.share == 0.5

    def test_bias_of_cflag_stands_still(self):
        round = CFlag(0.3, 4)
        found = worst_bias(round, MU)
        one, two = found.eigenvalues
        away = np.sqrt(found.value)
        ends = [self.after(round, one, two, sign * away, tilt=1.0) for sign in (1, -1)]
        assert min(abs(end - sign * away) for end, sign in zip(ends, (1, -1), strict=True)) < 1e-12
        assert found.value <= bias(round, MU).upper

    def test_units(self):
        for round in (FedAvg(0.3, 3), CFlag(0.3, 3)):
            assert worst_bias(replace(round, lr=0.3 / 8), 8 * MU, 8.0).value == pytest.approx(
                worst_bias(round, MU).value, rel=1e-9
            )

    @pytest.mark.parametrize("round", ROUNDS[:3], ids=name)
    def test_nqm_finds_the_same(self, round):
        assert nqm_contraction(round, MU).value == pytest.approx(worst_contraction(round, MU).value, rel=1e-3)

    def test_nqm_settles_at_the_bias(self):
        """The worst two clients, as clients of the noisy quadratic model."""
        found = worst_bias(FedAvg(0.3, 3), MU)
        eigenvalue = 0.5
        problem = nqm.Quadratic(dim=1, spectrum=(eigenvalue,), rotation="none", b=0.0, w0=(1.0,))
        slope = np.array(found.eigenvalues)[:, None] / eigenvalue - 1
        clients = nqm.Clients(delta=np.array([[1.0], [-1.0]]), slope=slope)
        federation = nqm.Federation(clients=2, local_steps=3, rounds=400)
        curve = nqm.expect(problem, nqm.Drift(), federation, nqm.FedAvg(0.3), clients=clients, norm=False)
        assert float(curve["distance_sq"][-1]) == pytest.approx(found.value, rel=1e-9)

    @pytest.mark.parametrize("sampled", [1, 10])
    def test_fresh_drift(self, sampled):
        for lr in (0.01, 0.2, 1.0):
            round = FedAvg(lr, 3, server_lr=1.0)
            found = worst_fresh_bias(round, MU, sampled=sampled)
            assert found.value <= bias(round, MU, sampled=sampled).upper
            a = 1 - lr * np.linspace(MU, 1, 400)
            s = lr * (1 + a + a**2)
            assert found.value == pytest.approx((s**2 / (1 - a**6)).max() / sampled, rel=1e-3)


class TestAgainstThePaper:
    @pytest.mark.parametrize("K", [1, 5])
    @pytest.mark.parametrize("divisor", [12.0, 6.0])
    @pytest.mark.parametrize("mu", [0.0, 0.01, 0.1])
    def test_24_holds_without_noise(self, K, divisor, mu):
        """Whatever the clients' B, for steps up to the bound of c = 1, and with the printed c_2."""
        eta = step_bound(1.0, 1.0, divisor=divisor)
        for sampled in (1, None):
            left = progress(FedAvg(eta / K, K), mu, sampled=sampled)
            assert left.upper <= remainder_24(eta, printed=True) < remainder_24(eta)
        assert contraction(FedAvg(eta / K, K), mu).upper <= contraction_24(eta, mu) + 1e-9

    def test_c1_is_loose_by_the_number_of_clients(self):
        eta = step_bound(1.0, 1.0)
        one, ten = (progress(FedAvg(eta), MU, sampled=S).upper for S in (1, 10))
        assert one / ten == pytest.approx(10, rel=0.05)
        assert one >= eta**2  # attained by clients that differ in their offsets alone, from w*
        assert progress(FedAvg(eta), MU).upper < 1e-9  # all take part: their gradients cancel

    def test_21_is_24_at_the_bounds(self):
        for divisor, x in ((12.0, 1.0), (6.0, 0.0)):
            eta = step_bound(1.0, 1.0, divisor=divisor)
            least = 1 - MU * eta / 2 - x * MU * eta / 2
            assert contraction_21(eta, MU) <= least + 1e-12
            assert contraction_21(eta, MU) >= descent(eta, MU, 1.0)
        assert contraction_21(1.0, MU) == np.inf

    def test_largest_step_of_24(self):
        printed, corrected = (largest_step_24(MU, printed=p, digits=3) for p in (True, False))
        assert 20 * step_bound(1.0, 1.0) < printed < corrected < 2
        assert progress(FedAvg(1.01 * printed), MU, sampled=1).lower > remainder_24(1.01 * printed, printed=True)


class TestBadInput:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: contraction(FedAvg(0.1, 50), MU), "local_steps = 50 need a Gram matrix of order 102 under 2550"),
            (lambda: contraction(FedAvg(0.1, 9), MU, clients=20, reduce=False), "local_steps = 9, clients = 20 need"),
            (lambda: contraction(FedAvg(0.1), 2.0, 1.0), "tight.mu = 2.0: must be at most tight.L = 1"),
            (lambda: contraction(FedAvg(0.1), -0.1), "tight.mu = -0.1: must be a finite number >= 0"),
            (lambda: contraction(FedAvg(0.1), 0.1, 0.0), "tight.L = 0.0: must be a finite number > 0"),
            (lambda: contraction(FedAvg(0.1), MU, clients=0), "tight.clients = 0: must be a whole number >= 1"),
            (lambda: contraction(FedAvg(0.1), MU, solver="MOSEKK"), "tight.solver = 'MOSEKK': must be an installed"),
            (lambda: contraction(FedAvg(0.1), MU, solver="OSQP"), "tight.solver = 'OSQP': must be an installed"),
            (
                lambda: bias(FedAvg(0.1), MU, sources={"anchor": 1.0}),
                "tight.sources = 'anchor': must be one of clients",
            ),
            (lambda: bias(FedAvg(0.1), MU, sources={"clients": -1.0}), "tight.sources.clients = -1.0: must be"),
            (lambda: bias(CFlag(0.1), MU, sampled=3), "tight.sampled = 3: must be left out: C-FLAG needs all clients"),
            (lambda: bias(FedAvg(0.1), MU, sampled=0), "tight.sampled = 0: must be a whole number >= 1"),
            (lambda: FedAvg(0.0), "tight.lr = 0.0: must be a finite number > 0"),
            (lambda: FedAvg(0.1, 0), "tight.local_steps = 0: must be a whole number >= 1"),
            (lambda: FedProx(0.1, prox=-1.0), "tight.prox = -1.0: must be"),
            (lambda: ServerProx(0.1, pull=-1.0), "tight.pull = -1.0: must be"),
            (lambda: CFlag(0.1, memory_lr=0.0), "tight.memory_lr = 0.0: must be a finite number > 0"),
            (lambda: worst_contraction(FedAvg(0.1), 2.0, 1.0), "tight.mu = 2.0"),
        ],
    )
    def test_one_line(self, call, message):
        with pytest.raises(nqm.InvalidInput) as caught:
            call()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


class TestFigures:
    def test_contraction(self):
        from plots.style import styled

        data = figures.contraction_figure(points=6)
        assert (data["quadratics"] <= data["sdp"] + 1e-9).all()
        at_the_same = data["quadratics"].sel(step=data["nqm_step"])
        np.testing.assert_allclose(data["nqm"], at_the_same.transpose(*data["nqm"].dims), rtol=1e-3)
        within = data["step"] <= data["bound_12"]
        assert (data["eq_24"] >= data["sdp"]).where(within, True).all()
        assert (data["bias_quadratics"] <= data["bias"]).all()
        assert (data["bias_24"] > data["bias"]).where(data["step"] <= data.attrs["bound_12"], True).all()
        with styled():
            drawn = figures.draw_contraction(data)
        assert len(drawn.axes) == 4

    @pytest.mark.slow
    def test_slack(self):
        data = json.loads(json.dumps(figures.slack(), allow_nan=False))
        for row in data["rows"]:
            assert all(float(x) > 1 for x in row["slack"].values())
            if row["quadratics"] is not None and row["quantity"].startswith(("contraction", "bias")):
                assert row["quadratics"] <= row["sdp"] * (1 + 1e-9)
        grid = figures.layout(data)
        assert all(len(row) == len(grid.header) for row in grid.rows)
        assert any("× 186" in cell for row in grid.rows for cell in row)
