"""Partitions: every sample once, the sizes asked for, the class fractions of the limits, and the printed algorithms."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

pytest.importorskip("torch")  # deep says so when it is missing

from deep import partition as pt
from nqm import InvalidInput

LABELS = st.lists(st.integers(0, 6), min_size=1, max_size=120).map(np.array)
ALPHAS = st.sampled_from([pt.SMALLEST_ALPHA, 0.01, 0.2, 1.0, 10.0, 1e5])
SEEDS = st.integers(0, 2**40)
quick = settings(max_examples=60, deadline=None, derandomize=True)


def balanced(per_class: int, classes: int) -> np.ndarray:
    return np.repeat(np.arange(classes), per_class)


def assert_each_once(parts, total: int) -> None:
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(total))


def largest_share(labels: np.ndarray, part: np.ndarray) -> float:
    return np.bincount(labels[part]).max() / len(part)


# --- Algorithms 4 to 6 ---------------------------------------------------------------------------------------------


def algorithm_6(index, labels, sizes, alpha, rng) -> list[np.ndarray]:
    """Sample after sample, as printed but for Algorithm 5: the slow twin of `lda`, on the same draws."""
    classes, counts = np.unique(labels, return_counts=True)
    p = counts / len(index)
    S = {y: list(rng.permutation(index[labels == y])) for y in classes}
    D = []
    for N in sizes:
        G = [y for y in classes if S[y]]
        a = alpha * np.array([p[list(classes).index(y)] for y in G])
        logs = np.log(rng.standard_gamma(a + 1)) - rng.standard_exponential(len(a)) / a
        uniforms = iter(rng.random(N))
        D_m: list[int] = []
        while len(D_m) < N:
            theta = np.exp(logs - logs.max())
            theta /= theta.sum()
            u, i = next(uniforms), 0
            while i < len(G) - 1 and u >= np.cumsum(theta)[i]:
                i += 1
            y = G[i]
            D_m.append(S[y].pop(0))
            if not S[y]:
                G.remove(y)
                if G and theta[i] < 0.999:  # where the weights are still there to be renormalised
                    rest = np.exp(np.delete(logs, i) - np.delete(logs, i).max())
                    np.testing.assert_allclose(pt.renormalise(theta, i), rest / rest.sum(), rtol=1e-9, atol=1e-300)
                logs = np.delete(logs, i)
        D.append(np.array(D_m))
    return D


@given(st.integers(1, 120), st.integers(1, 6), ALPHAS, SEEDS)
@settings(quick, max_examples=300)
def test_lda_is_algorithm_6(count, parts, alpha, seed) -> None:
    labels = np.random.default_rng(seed).integers(0, 7, count)
    index = np.arange(len(labels)) + 1000
    sizes = pt.even(len(labels), parts)
    fast = pt.lda(index, labels, sizes, alpha, np.random.default_rng(seed))
    slow = algorithm_6(index, labels, sizes, alpha, np.random.default_rng(seed))
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(a, b)


@given(st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=8), st.integers(0, 7))
@quick
def test_renormalise_keeps_ratios_and_sums_to_one(weights, i) -> None:
    theta, i = np.array(weights) / sum(weights), i % len(weights)
    rest = pt.renormalise(theta, i)
    assert rest.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(rest * (1 - theta[i]), np.delete(theta, i), rtol=1e-9)


def test_renormalise_as_printed_is_no_distribution() -> None:
    theta = np.array([0.5, 0.3, 0.2])
    printed = np.delete(theta / np.sum(theta / theta[0]), 0)
    assert printed.sum() == pytest.approx(0.5 * (1 - 0.5))
    assert pt.renormalise(theta, 0) == pytest.approx([0.6, 0.4])
    with pytest.raises(InvalidInput):
        pt.renormalise([1.0, 0.0], 0)


@given(LABELS, st.integers(1, 4), st.integers(1, 5), ALPHAS, SEEDS)
@quick
def test_evolving_uses_every_sample_once_in_even_sizes(labels, clients, subsets, alpha, seed) -> None:
    if len(labels) < clients * subsets:
        with pytest.raises(InvalidInput):
            pt.evolving(labels, alpha, clients=clients, subsets=subsets, seed=seed)
        return
    parts = pt.evolving(labels, alpha, clients=clients, subsets=subsets, seed=seed)
    assert [len(p) for p in parts] == [subsets] * clients
    flat = [s for p in parts for s in p]
    assert_each_once(flat, len(labels))
    assert max(map(len, flat)) - min(map(len, flat)) <= 1
    again = pt.evolving(labels, alpha, clients=clients, subsets=subsets, seed=seed)
    for a, b in zip(flat, (s for p in again for s in p), strict=True):
        np.testing.assert_array_equal(a, b)


def test_evolving_of_a_given_size_is_the_papers_protocol() -> None:
    labels = balanced(6000, 10)
    parts = pt.evolving(labels, 0.2, size=60_000 // 210)
    assert len(parts) == 7
    assert all(len(p) == 30 for p in parts)
    assert {len(s) for p in parts for s in p} == {285}
    flat = np.concatenate([s for p in parts for s in p])
    assert len(np.unique(flat)) == len(flat) == 285 * 210
    other = pt.evolving(labels, 0.2, size=285, seed=1)
    assert not np.array_equal(flat, np.concatenate([s for p in other for s in p]))


def test_class_fractions_in_the_limits() -> None:
    """One class a subset as alpha -> 0; the fractions of the whole, to sampling noise, as alpha -> infinity."""
    labels = np.repeat(np.arange(5), [100, 200, 300, 400, 1000])
    whole = np.bincount(labels) / len(labels)
    first = pt.lda(np.arange(2000), labels, [20] * 10, pt.SMALLEST_ALPHA, np.random.default_rng(0))
    assert all(largest_share(labels, p) == 1.0 for p in first)
    many = pt.lda(np.arange(2000), labels, [100] * 10, 1e6, np.random.default_rng(2))
    for part in many:
        got = np.bincount(labels[part], minlength=5)
        # No class runs out in the first half of the data, so the law is multinomial; 50 cells, |z| < 4.
        z = (got - len(part) * whole) / np.sqrt(len(part) * whole * (1 - whole))
        assert np.abs(z).max() < 4


def test_second_level_moves_with_beta_alone() -> None:
    """alpha -> infinity, beta -> 0: clients alike, their subsets not; and the other way round."""
    labels = balanced(300, 4)
    by_time = pt.evolving(labels, 1e6, clients=4, subsets=10, beta=pt.SMALLEST_ALPHA, seed=1)
    by_client = pt.evolving(labels, pt.SMALLEST_ALPHA, clients=4, subsets=10, beta=1e6, seed=1)
    assert all(largest_share(labels, np.concatenate(p)) < 0.35 for p in by_time)
    # A subset of 30 of a client's 300 crosses at most one border between classes of about 75.
    assert np.mean([largest_share(labels, s) for p in by_time for s in p]) > 0.8
    assert all(largest_share(labels, np.concatenate(p)) == 1.0 for p in by_client)


def test_first_part_has_the_law_of_dirichlet_multinomial() -> None:
    """With much in stock, counts of class 0 in a part of n follow a beta-binomial law: mean, variance, 4,000 draws."""
    labels, n, alpha = np.repeat([0, 1], [6000, 14000]), 10, 1.5
    rng = np.random.default_rng(5)
    counts = np.array([np.sum(labels[pt.lda(np.arange(20000), labels, [n], alpha, rng)[0]] == 0) for _ in range(4000)])
    law = stats.betabinom(n, 0.3 * alpha, 0.7 * alpha)
    expected = 4000 * law.pmf(np.arange(n + 1))
    observed = np.bincount(counts, minlength=n + 1)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def test_too_little_data_is_one_line() -> None:
    rng = np.random.default_rng(0)
    for call in (
        lambda: pt.lda(np.arange(5), np.zeros(5), [3, 3], 1.0, rng),
        lambda: pt.lda(np.arange(5), np.zeros(5), [3], 0.0, rng),
        lambda: pt.lda(np.arange(5), np.zeros(5), [3], float("nan"), rng),
        lambda: pt.evolving(np.zeros(100), 1.0, size=2),
        lambda: pt.dirichlet(np.zeros(3), 1.0, clients=4),
        lambda: pt.class_tasks(10, 3),
        lambda: pt.within([1, 2], (2, 3)),
        lambda: pt.moving_window([np.arange(3)], 2, 1.0),
        lambda: pt.moving_window([np.arange(3)], 2, 0.0, size=4),
        lambda: pt.moving_window([], 2, 0.0),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert "\n" not in str(caught.value)


# --- time ----------------------------------------------------------------------------------------------------------


def test_drawn_subsets_are_uniform_and_named_by_the_round() -> None:
    table = pt.drawn_subsets(500)
    assert table.shape == (500, 7)
    np.testing.assert_array_equal(table[:20], pt.drawn_subsets(20))
    counts = np.bincount(table.ravel(), minlength=30)
    assert len(counts) == 30
    assert stats.chisquare(counts).pvalue > 1e-3
    assert abs(stats.pearsonr(table[1:].ravel(), table[:-1].ravel()).statistic) < 4 / np.sqrt(table[1:].size)
    assert not np.array_equal(table, pt.drawn_subsets(500, seed=1))


@pytest.mark.parametrize(("overlap", "step"), [(0.0, 285), (0.25, 213), (0.5, 142)])
def test_moving_window_has_the_papers_steps(overlap, step) -> None:
    subsets = np.split(np.arange(285 * 30), 30)
    windows = pt.moving_window(subsets, 80, overlap)
    for a, b in pairwise(windows):
        assert len(a) == 285
        assert b[0] in (a[0] + step, 0)
        if b[0] > 0:
            assert len(np.intersect1d(a, b)) == 285 - step
        else:
            assert a[0] + step + 285 > 285 * 30


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0, 0.99), st.integers(1, 40))
@quick
def test_moving_window_stays_inside_and_covers(sizes, overlap, rounds) -> None:
    subsets = np.split(np.arange(sum(sizes)) + 50, np.cumsum(sizes)[:-1])
    windows = pt.moving_window(subsets, rounds, overlap)
    assert len(windows) == rounds
    assert {len(w) for w in windows} == {min(sizes)}
    assert windows[0][0] == 50
    if overlap == 0.0:
        lap = sum(sizes) // min(sizes)
        seen = np.concatenate(windows[:lap])
        assert len(np.unique(seen)) == len(seen)


def test_ninety_per_cent_of_ten_is_a_step_of_one() -> None:
    windows = pt.moving_window([np.arange(10), np.arange(10, 20)], 3, 0.9)
    assert [int(w[0]) for w in windows] == [0, 1, 2]
    assert [int(w[0]) for w in pt.moving_window([np.arange(10), np.arange(10, 30)], 2, 0.7)] == [0, 3]


@given(ALPHAS, st.integers(1, 5), st.integers(1, 20), SEEDS)
@quick
def test_stateless_clients_are_disjoint_within_a_round_and_new_in_the_next(alpha, clients, size, seed) -> None:
    labels = balanced(40, 5)
    now, then = (pt.stateless(labels, alpha, clients=clients, size=size, round=t, seed=seed) for t in (0, 1))
    assert [len(p) for p in now] == [size] * clients
    assert len(np.unique(np.concatenate(now))) == clients * size
    if clients * size > 10:
        assert not np.array_equal(np.concatenate(now), np.concatenate(then))
    same = pt.stateless(labels, alpha, clients=clients, size=size, round=0, seed=seed)
    np.testing.assert_array_equal(np.concatenate(now), np.concatenate(same))


# --- Dirichlet by class --------------------------------------------------------------------------------------------


@given(LABELS, st.integers(1, 6), ALPHAS, st.integers(0, 2), SEEDS)
@quick
def test_dirichlet_uses_every_sample_once(labels, clients, alpha, least, seed) -> None:
    if clients * least > len(labels):
        return
    parts = pt.dirichlet(labels, alpha, clients=clients, least=least, seed=seed)
    assert len(parts) == clients
    assert_each_once(parts, len(labels))
    assert min(map(len, parts)) >= least
    for a, b in zip(parts, pt.dirichlet(labels, alpha, clients=clients, least=least, seed=seed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_dirichlet_in_the_limits() -> None:
    """A class goes to one client as alpha -> 0, and is shared evenly as alpha -> infinity (zeta = 1e5 of `cflag`)."""
    labels = balanced(200, 10)
    lone = pt.dirichlet(labels, pt.SMALLEST_ALPHA, clients=5, least=0)
    owners = np.array([[np.sum(labels[p] == c) for p in lone] for c in range(10)])
    assert ((owners > 0).sum(axis=1) == 1).all()
    alike = pt.dirichlet(labels, 1e5, clients=5)
    shares = np.array([[np.sum(labels[p] == c) for p in alike] for c in range(10)])
    assert np.abs(shares - 40).max() <= 2


def test_dirichlet_shares_have_the_variance_of_the_law() -> None:
    """Var of a Dirichlet(alpha) share over m clients is (m-1)/(m^2 (m alpha + 1)); 2,000 classes, |z| < 4."""
    m, alpha, classes, each = 4, 0.5, 2000, 1000
    parts = pt.dirichlet(np.tile(np.arange(classes), each), alpha, clients=m, seed=3)
    shares = np.array([np.bincount(p % classes, minlength=classes) / each for p in parts])
    squares = ((shares - 1 / m) ** 2).mean(axis=0)
    truth = (m - 1) / (m**2 * (m * alpha + 1))
    z = (squares.mean() - truth) / (squares.std(ddof=1) / np.sqrt(classes))
    assert abs(z) < 4


@given(LABELS, st.integers(1, 3), ALPHAS, SEEDS)
@quick
def test_dirichlet_by_task_keeps_to_the_tasks(labels, clients, alpha, seed) -> None:
    tasks = [pt.of_classes(labels, c) for c in ((0, 1), (2, 3), (4, 5, 6))]
    parts = pt.dirichlet_by_task(labels, tasks, alpha, clients=clients, least=0, seed=seed)
    for task, shares in zip(tasks, parts, strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate(shares)), task)


def test_tasks_are_drawn_apart() -> None:
    labels = np.tile([0, 1], 50)
    a, b = pt.dirichlet_by_task(labels, [np.arange(100)] * 2, 0.5, clients=3)
    assert any(len(x) != len(y) for x, y in zip(a, b, strict=True))


# --- tasks and users -----------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.integers(1, 12), st.booleans(), SEEDS)
@quick
def test_class_tasks_cover_all_classes(each, tasks, shuffle, seed) -> None:
    found = pt.class_tasks(each * tasks, tasks, shuffle=shuffle, seed=seed)
    assert [len(t) for t in found] == [each] * tasks
    assert sorted(c for t in found for c in t) == list(range(each * tasks))
    labels = np.arange(3 * each * tasks) % (each * tasks)
    assert_each_once([pt.of_classes(labels, t) for t in found], len(labels))
    for t in found:
        local = pt.within(labels[pt.of_classes(labels, t)], t)
        assert set(local.tolist()) == set(range(each))


def test_class_tasks_of_the_paper() -> None:
    assert pt.class_tasks(10, 5) == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert pt.class_tasks(10, 5, shuffle=True) != pt.class_tasks(10, 5)
    assert pt.within([7, 6, 7], (6, 7)).tolist() == [1, 0, 1]


@given(st.lists(st.integers(0, 8), max_size=60), st.integers(1, 4))
@quick
def test_users_are_the_groups(groups, least) -> None:
    parts = pt.users(groups, least)
    for part in parts:
        assert len(part) >= least
        assert len({groups[k] for k in part}) == 1
    assert [groups[p[0]] for p in parts] == [g for g in sorted(set(groups)) if groups.count(g) >= least]
    if least == 1 and groups:
        assert_each_once(parts, len(groups))


def test_numpy_state_is_left_alone_and_names_differ() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002  # the global state is what is looked at
    pt.dirichlet(np.zeros(20), 1.0, clients=2)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    draws = {pt.generator(*name).random() for name in ((0, "a"), (1, "a"), (0, "b"), (0, "a", 0), (0, "a", 1))}
    assert len(draws) == 5
