"""C-FLAG's ledger: its small worlds against slow twins, its assumptions where a counterexample relies on them."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.bounds import cflag as bounds
from theory.claims import cflag_adaptive, cflag_joint, cflag_past, registry, stored
from theory.claims.cflag_worlds import KINDS, Samples, local_steps, mean_grad, order, samples, shares

CLAIMS = {name: claim for name, claim in registry().items() if claim.paper == "cflag"}


def slow_round(x, losses: Samples, p, beta, picks):
    """(4) and (5) as they stand: one client, one sample, one step at a time."""
    N, n, _ = losses.centre.shape

    def grad(i, j, y):
        far = y - losses.centre[i, j]
        near = np.clip(far, -losses.width[i, j], losses.width[i, j])
        return losses.inner[i, j] * near + losses.outer[i, j] * (far - near)

    def full(i, y):
        return sum(grad(i, j, y) for j in range(n)) / n

    overall = sum(p[i] * full(i, x) for i in range(N))
    ends, sums = [], []
    for i in range(N):
        y, kept, total = x.copy(), [x.copy() for _ in range(n)], np.zeros_like(x)
        for k in range(picks.shape[1]):
            if k > 0:
                kept[picks[i, k]] = y.copy()  # τ_{k,j} = k
            delayed = sum(grad(i, j, kept[j]) for j in range(n)) / n
            total = total + delayed
            y = y - beta * (overall - full(i, x) + delayed)
        ends.append(y)
        sums.append(total)
    return np.array(ends), np.array(sums)


class TestWorlds:
    @given(
        seed=st.integers(0, 999),
        N=st.integers(1, 3),
        n=st.integers(1, 4),
        E=st.integers(1, 5),
        kind=st.sampled_from(KINDS),
        turn=st.sampled_from(["random", "cyclic", "stuck"]),
    )
    @settings(max_examples=40, deadline=None, derandomize=True)
    def test_local_steps_are_their_slow_twin(self, seed, N, n, E, kind, turn) -> None:
        rng = np.random.default_rng(seed)
        losses, p, x = samples(rng, N, n, 2, 2.0, kind), shares(rng, N), rng.normal(size=2)
        picks = order(rng, N, E, n, turn)
        path = local_steps(x, losses, p, 0.1, picks)
        ends, sums = slow_round(x, losses, p, 0.1, picks)
        np.testing.assert_allclose(path.local[:, -1], ends, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(path.sums, sums, rtol=1e-12, atol=1e-13)

    def test_the_papers_toy_example(self) -> None:
        """Three samples; the first is refreshed at k = 1, the third at k = 2."""
        curvature = np.array([1.0, 2.0, 4.0])[None, :, None]
        losses = Samples(curvature, curvature, np.ones((1, 3, 1)), np.zeros((1, 3, 1)))
        path = local_steps(np.array([1.0]), losses, np.ones(1), 0.1, np.array([[1, 0, 2]]))
        x0, x1, x2 = path.local[0, :3, 0]
        assert path.delayed[0, 0, 0] == pytest.approx((x0 + 2 * x0 + 4 * x0) / 3)
        assert path.delayed[0, 1, 0] == pytest.approx((x1 + 2 * x0 + 4 * x0) / 3)
        assert path.delayed[0, 2, 0] == pytest.approx((x1 + 2 * x0 + 4 * x2) / 3)

    def test_one_local_step_is_gradient_descent(self) -> None:
        rng = np.random.default_rng(3)
        losses, p, x = samples(rng, 3, 4, 2, 1.0, "kinked"), shares(rng, 3), rng.normal(size=2)
        path = local_steps(x, losses, p, 0.3, order(rng, 3, 1, 4, "random"))
        np.testing.assert_allclose(p @ path.local[:, -1], x - 0.3 * mean_grad(losses, p, x), rtol=1e-12)

    @pytest.mark.parametrize("kind", KINDS)
    def test_gradients_are_those_of_the_values_and_smooth(self, kind: str) -> None:
        rng = np.random.default_rng(5)
        losses = samples(rng, 2, 3, 2, 1.5, kind)
        for x in 3 * rng.normal(size=(20, 2)):
            for step in np.eye(2) * 1e-6:
                slope = (losses.value(x + step) - losses.value(x - step)) / 2e-6
                np.testing.assert_allclose(slope, losses.grad(x) @ (step * 1e6), atol=1e-5)
        points = 3 * rng.normal(size=(30, 2))
        for x, y in pairwise(points):
            rise = np.linalg.norm(losses.grad(x) - losses.grad(y), axis=-1)
            assert np.all(rise <= 1.5 * np.linalg.norm(x - y) * (1 + 1e-12))


class TestCounterexamples:
    """The worlds that break a theorem stay within its assumptions."""

    def test_the_memory_of_theorem_2_has_the_bias_it_says(self) -> None:
        case = {"q": 0.5, "m": 0.25, "G": 1.0, "centre": 2.0, "x0": 1.5, "step": 0.5, "E": 2, "T": 1}
        run = cflag_past._scalar_rounds(case, fresh=False)
        assert run["B"][0] == pytest.approx(0.0, abs=1e-15)  # Lemma 8: at the fixed x_0
        fresh = cflag_past._scalar_rounds({**case, "T": 4}, fresh=True)
        np.testing.assert_allclose(fresh["B"], 0.0, atol=1e-14)

    def test_theorem_2_is_true_again_with_the_term_it_lost(self) -> None:
        claim = CLAIMS["cflag/thm-2"]
        case = stored.load(claim)["case"]
        L, m = max(1 + case["q"], case["G"]), case["m"]
        assert m > 1  # so that 1 − Lα > 0, as the paper remarks below (15)
        run, found = cflag_past._scalar_rounds(case, fresh=False), claim.check(case)
        assert found.measured > found.claimed
        lost = 2 * L * (1 + m) / case["T"] * float(run["B"].sum())
        assert found.measured <= float(run["squares"].mean()) <= found.claimed + lost

    def test_lemma_1_is_an_identity_there(self) -> None:
        """f of curvature 1 = L (no slack in smoothness), ‖b‖² = m‖∇f‖²: (8) holds with equality in the mean."""
        case = {"q": 0.0, "m": 0.0, "G": 1.0, "centre": 3.0, "x0": 1.0, "step": 1.0, "E": 2, "T": 3}
        run = cflag_past._scalar_rounds(case, fresh=False)
        fall = (1.0 - float(run["last"])) / 2
        mean = bounds.past_mean_gradient(1.0, 0.0, 3, fall, float(run["Gamma"].sum()))
        assert float(run["squares"].mean()) == pytest.approx(mean, rel=1e-12)

    def test_theorem_5_world_meets_its_assumptions(self) -> None:
        world = cflag_joint.WORLD_5
        x = np.linspace(-6, 6, 24001)
        first, second = np.clip(3 * x, -3, 3), cflag_joint._second(x)
        past = (first + second) / 2
        q, m, L = world["q"], world["m"], world["L"]
        assert np.all(past[x > 1e-9] > 0)  # stationary at 0 only
        for part in (first, second):  # (28), and Assumption 1 for every sample
            assert np.all(q**2 * part**2 <= m * past**2 + 1e-12)
            assert np.max(np.abs(np.diff((1 + q) * part))) <= L * (x[1] - x[0]) * (1 + 1e-9)
        assert second[-1] > 0  # f_2 bounded below: its slope ends positive on the right
        assert second[0] < 0
        bad = ((1 - q) * first + (1 + q) * second) / 2
        rest = x[(x > 1.5) & (np.abs(bad) < 2e-4)]
        assert rest.size > 0  # the memory's loss is stationary where the past is not
        assert np.all(past[np.isin(x, rest)] > 1)

    def test_lemma_7_is_accused_with_rates_that_keep_to_the_constraint(self) -> None:
        """Two orthogonal clients, one of each kind: forgetting starts below zero, and adaptive rates raise it above."""
        case = stored.load(CLAIMS["cflag/lemma-7"])["case"]
        here = cflag_adaptive._clients(case)
        alphas, betas = cflag_adaptive._adapted(here, worst=False)
        assert np.sum(here.inner > 0) == 1
        assert abs(here.a[0] @ here.a[1]) < 1e-12
        assert alphas.max() * here.L < 1

        def forgetting(alphas, betas):
            S = sum(p * b * a for p, b, a in zip(here.p, betas, here.a, strict=True))
            return here.L / 2 * S @ S - (1 - here.L * (here.p @ alphas)) * (here.F @ S)

        fixed = np.full(2, here.alpha)
        assert forgetting(alphas, betas) > 0 > forgetting(fixed, fixed)

    def test_lemma_3_survives_for_its_own_recursion_only(self) -> None:
        case = {"N": 1, "kept": 3, "new": 1, "E": 4, "L": 1.0, "kind": "full", "apart": 3.0, "seed": 0}
        own = [cflag_joint._lemma_3({**case, "T": T}, on_union=True).measured for T in (10, 100, 400)]
        flag = [cflag_joint._lemma_3({**case, "T": T}, on_union=False).measured for T in (10, 100, 400)]
        assert own[2] < 1e-6 * own[0]
        assert flag[2] > 1.5


class TestFormulas:
    def test_constants_of_lemma_18(self) -> None:
        """At β = 1/(60LE): Q/Z = 0.0805 + 2.641 r(1 − Lα), LQ = 0.00112 + 0.03667 r(1 − Lα)."""
        L, E, r = 2.0, 3, 5.0
        beta = 1 / (60 * L * E)
        for alpha, slope in ((0.5, 0.0), (0.1, 0.8)):
            Q, Z = bounds.per_gradient(L, E, alpha, beta, r), bounds.per_fall(L, E, beta)
            assert pytest.approx(0.08044 + 2.6412 * r * slope, rel=1e-3) == Q / Z
            assert pytest.approx(0.0011167 + 0.036667 * r * slope, rel=1e-3) == Q * L

    @given(
        alpha=st.floats(0.01, 0.9),
        inner=st.floats(0.01, 5),
        weight=st.floats(0.1, 3),
        a2=st.floats(0.1, 5),
        L=st.just(1.0),
    )
    @settings(max_examples=50, deadline=None, derandomize=True)
    def test_best_rate_by_search(self, alpha, inner, weight, a2, L) -> None:
        star = bounds.best_beta(L, alpha, inner, weight, a2)
        grid = star * np.linspace(0, 2, 201)
        values = [bounds.forgetting(L, alpha, b, weight * a2, inner) for b in grid]
        assert int(np.argmin(values)) == 100
        assert min(values) == pytest.approx(bounds.best_forgetting(L, alpha, inner, weight, a2), rel=1e-9)

    def test_raised_rate_cancels_for_any_beta(self) -> None:
        F, a = np.array([1.0, 2.0]), np.array([-3.0, 0.5])
        raised = bounds.raised_alpha(0.1, float(F @ a), float(F @ F), beta=0.02)
        assert float((raised * F + 0.02 * a) @ F) == pytest.approx(0.1 * float(F @ F))


def test_the_paper_is_covered() -> None:
    assert len(CLAIMS) >= 45
    numbered = [f"cflag/lemma-{k}" for k in (1, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 16, 18)]
    numbered += ["cflag/thm-2", "cflag/thm-5", "cflag/cor-14", "cflag/cor-17", "cflag/lemma-15-i", "cflag/lemma-15-ii"]
    assert set(numbered) <= set(CLAIMS)
    for claim in CLAIMS.values():
        assert re.fullmatch(r"cflag/[a-z0-9.\-]+", claim.id)
        assert claim.why
