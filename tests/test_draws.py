"""The random numbers' own tests: the two implementations agree, and the numbers are what they claim to be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nqm.draws import Purpose, normal_pairs, sample, stream, uniforms, words
from nqm.kernels.random import normals

COUNT = 1_000_000


@pytest.fixture(scope="module")
def pair() -> tuple[np.ndarray, np.ndarray]:
    key = stream(0, Purpose.NOISE, 0, 1, 2)
    cos, sin = np.empty(COUNT), np.empty(COUNT)
    normals(key[0][()], key[1][()], np.uint64(0), cos, sin)
    return cos, sin


@given(st.integers(0, 2**63 - 1), st.sampled_from(Purpose), st.integers(0, 10**9), st.integers(0, 10**9))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_compiled_normals_are_the_plain_ones(seed: int, purpose: Purpose, round: int, client: int) -> None:
    key = stream(seed, purpose, 0, round, client)
    plain = normal_pairs(key, np.arange(5, 105))
    cos, sin = np.empty(100), np.empty(100)
    normals(key[0][()], key[1][()], np.uint64(5), cos, sin)
    np.testing.assert_allclose(cos, plain[0], rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(sin, plain[1], rtol=1e-13, atol=1e-15)


def test_moments_to_the_eighth(pair: tuple[np.ndarray, np.ndarray]) -> None:
    """A million of each half; |z| < 5 for eight moments of two samples: false alarm below 1e-5."""
    for z in pair:
        for k in range(1, 9):
            expected = 0.0 if k % 2 else float(stats.norm.moment(k))
            spread = np.sqrt((stats.norm.moment(2 * k) - expected**2) / COUNT)
            assert abs(np.mean(z**k) - expected) < 5 * spread, k


def test_distribution(pair: tuple[np.ndarray, np.ndarray]) -> None:
    """Kolmogorov-Smirnov on a million, and the tails by counts."""
    for z in pair:
        assert stats.kstest(z, "norm").pvalue > 1e-4
        for edge in (3.0, 4.0, 4.5):
            mass = 2 * stats.norm.sf(edge)
            assert abs(np.mean(np.abs(z) > edge) - mass) < 5 * np.sqrt(mass / COUNT)


def test_halves_neighbours_and_squares_are_uncorrelated(pair: tuple[np.ndarray, np.ndarray]) -> None:
    cos, sin = pair
    for f in (lambda x: x, np.square, np.abs):
        a, b = f(cos), f(sin)
        for x, y in ((a, b), (a[1:], a[:-1]), (b[1:], b[:-1]), (a[1:], b[:-1]), (a[20:], a[:-20])):
            assert abs(np.corrcoef(x, y)[0, 1]) < 5 / np.sqrt(COUNT - 20)


def test_streams_with_neighbouring_names_are_uncorrelated() -> None:
    """Streams that differ by one in one part of their name: 400 streams, all pairs, largest |r| within its law."""
    length = 10_000
    base = {"seed": 7, "task": 1, "round": 3, "client": 5}
    rows = []
    for part in base:
        for step in range(100):
            name = base | {part: base[part] + step}
            rows.append(
                normal_pairs(stream(name["seed"], Purpose.TIME, *list(name.values())[1:]), np.arange(length))[0]
            )
    z = np.array(rows)
    r = np.corrcoef(z)
    # The base name occurs once for each part; those rows are equal and belong out.
    same = np.isclose(r, 1.0)
    assert same.sum() == len(z) + 4 * 3
    others = r[~same]
    # 80,000 pairs: the largest |z| exceeds 6 with probability below 2e-4
    assert np.abs(others).max() * np.sqrt(length) < 6
    assert abs(others.std() * np.sqrt(length) - 1) < 0.05


def test_bits_are_fair() -> None:
    bits = words(stream(1, Purpose.TIME), np.arange(200_000))
    for position in range(64):
        ones = int(((bits >> np.uint64(position)) & np.uint64(1)).sum())
        assert abs(ones - 100_000) < 5.5 * np.sqrt(50_000), position


def test_a_flipped_name_bit_flips_half_the_key() -> None:
    flips = []
    for bit in range(32):
        a, b = stream(1 << bit, Purpose.TIME), stream(0, Purpose.TIME)
        flips += [(int(x) ^ int(y)).bit_count() for x, y in zip(a, b, strict=True)]
    assert abs(np.mean(flips) - 32) < 5 * 4 / np.sqrt(64)


def test_no_two_of_a_million_words_agree() -> None:
    """Distinct names and counters; a collision among 1e6 64-bit words has probability 3e-8."""
    keys = stream(np.arange(1000)[:, None], Purpose.TIME)
    assert len(np.unique(words(keys, np.arange(1000)))) == 1_000_000


def test_uniforms_are_uniform() -> None:
    assert stats.kstest(uniforms(stream(2, Purpose.SPECTRUM), np.arange(200_000)), "uniform").pvalue > 1e-4


@given(st.integers(1, 30), st.data())
@settings(max_examples=50, deadline=None, derandomize=True)
def test_sampling_is_without_replacement(clients: int, data: st.DataObject) -> None:
    sampled = data.draw(st.integers(1, clients))
    chosen = sample(data.draw(st.integers(0, 10**6)), 0, 1, clients, sampled)
    assert len(set(chosen.tolist())) == sampled
    assert set(chosen.tolist()) <= set(range(clients))


def test_every_sample_is_equally_likely() -> None:
    """2 of 5, 20,000 rounds: chi-square over the ten pairs."""
    counts: dict[tuple[int, ...], int] = {}
    for t in range(20_000):
        pair = tuple(sorted(sample(0, 0, t, 5, 2).tolist()))
        counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 10
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4
