"""The enumerated worlds behind `special`'s claims, each against a slower or more literal twin."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.bounds.special import Setting, residual, vanishing
from theory.claims.ledger import meets
from theory.claims.special_scene import SCENE, SCENES, Scene
from theory.claims.special_worlds import Bowl, Rule, local_steps, run


def printed_residual(s: Setting) -> float:
    """Ψ of (9), term by term as it stands."""
    M, N, K, E, L, B, lam = s.M, s.N, s.K, s.E, s.L, s.B, s.lam
    both, sampling = s.glr * s.lr, (M - N) / ((1 + lam) * N * (M - 1))
    noise = s.sigma_L**2 + 6 * E * s.sigma_G**2
    inside = 12 * both * E * K * L * s.sigma_G**2 * sampling
    inside += (s.lr**2 * E**2 * L**2 / lam**2 + K + 3 * both * E * K * L * sampling) * B**2
    inside += (5 * s.lr**2 * K * E * L**2 + 60 * s.glr * s.lr**3 * E**2 * K * L**3 * sampling) * noise
    inside += 3 * both * L * s.sigma_L**2 / (2 * N * (1 + lam)) + s.past**2
    tasks = 3 * both * L / (1 + lam) * (1 / 2 + 4 * (M - N) / (N * (M - 1)))
    return 2 / (1 - 1 / K) * (inside + (K - 1) ** 2 * E / K * tasks * s.sigma_T**2)


def test_the_residual_is_the_printed_one() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        M, K, E = (int(x) for x in rng.integers(2, 9, size=3))
        s = Setting(M, int(rng.integers(1, M + 1)), K, E, *(float(x) for x in rng.uniform(0.1, 3, size=9)))
        assert sum(residual(s).values()) == pytest.approx(printed_residual(s), rel=1e-12)
        first = 1.5 / ((1 - 1 / K) / (2 * (1 + s.lam)) * E * s.glr * s.lr * 7)
        assert vanishing(s, 1.5, 7) == pytest.approx(first, rel=1e-12)


def test_a_bowl_is_the_integral_of_its_clipped_gradient() -> None:
    rng = np.random.default_rng(1)
    for h in (-2.0, 0.0, 1.5):
        f = Bowl(h, (0.3, -0.4), 1.1)
        for x, y in rng.normal(size=(50, 2, 2)) * 3:
            assert np.linalg.norm(f.grad(x)) <= 1.1 + 1e-12
            slope = [(f.value(x + 1e-6 * d) - f.value(x - 1e-6 * d)) / 2e-6 for d in np.eye(2)]
            assert f.grad(x) == pytest.approx(slope, abs=1e-5)
            assert f.bregman(x, y) == pytest.approx(f.value(x) - f.value(y) - f.grad(y) @ (x - y), abs=1e-12)


def test_enumerated_rounds_are_the_mean_of_sampled_ones() -> None:
    """Three rounds of Algorithm 1, drawn 20000 times: first and second moments within four standard errors."""
    losses = [Bowl(1.0, (1.0,), 2.0), Bowl(-0.5, (2.0,), 2.0), Bowl(0.7, (-1.0,), 2.0)]
    rule, count, rng = Rule(0.1, 0.7, 2, 2, 0.3, 0.5), 20000, np.random.default_rng(2)
    exact = run(losses, (0.2,), 3, rule)[-1]
    theta = np.full(count, 0.2)
    for _ in range(3):
        chosen = rng.permuted(np.tile(np.arange(3), (count, 1)), axis=1)[:, :2]
        update = np.zeros(count)
        for m in chosen.T:
            x = theta.copy()
            for _ in range(rule.E):
                slopes = [f.grad(x[:, None])[:, 0] for f in losses]
                x -= rule.lr * (np.choose(m, slopes) + rule.sigma * rng.choice([-1.0, 1.0], count))
            update += (x - theta) / rule.N
        theta = (theta + rule.glr * update + rule.lam * 0.2) / (1 + rule.lam)
    assert exact.chance.sum() == pytest.approx(1.0)
    for power in (1, 2):
        sampled = theta**power
        z = (sampled.mean() - exact.mean(exact.theta[:, 0] ** power)) / (sampled.std() / count**0.5)
        assert abs(z) < 4


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.fixed_dictionaries(SCENE))
def test_the_proof_terms_by_brute_force(case: dict) -> None:
    """T_7 and T_8 of (52), over every subset and every client's noise together."""
    if not meets([*SCENES, "M * E <= 6"], case):
        return
    s = Scene.of(case)
    p = s.setting
    rule = Rule(p.lr, p.glr, p.E, p.N, p.lam, case["sigma"])
    clients = [Bowl(case[f"h{m}"] * p.L, (case[f"b{m}"],), case["clip"]) for m in range(1, p.M + 1)]
    then = s.before / (p.K - 1)
    sums = []
    for f in clients:
        path = local_steps(f, np.array([[s.theta]]), rule)[0][: p.E]
        slopes = sum(f.grad(x)[:, 0, 0] for x in path)
        sums.append(sum(slopes - p.E * s.now + p.E * task for task in [then] * (p.K - 1) + [s.now]))
    pull = p.lam * p.K / (p.glr * p.lr) * (0.0 - s.theta)
    outcomes = np.array(list(itertools.product(*sums)))
    t8 = np.mean((pull - outcomes.mean(axis=1)) ** 2)
    subsets = [list(chosen) for chosen in itertools.combinations(range(p.M), p.N)]
    t7 = np.mean([np.mean((pull - outcomes[:, chosen].mean(axis=1)) ** 2) for chosen in subsets])
    scale = 1e-12 * (pull**2 + np.mean(outcomes**2))
    assert s.t8 == pytest.approx(t8, rel=1e-9, abs=scale)
    assert s.t7 == pytest.approx(t7, rel=1e-9, abs=scale)
