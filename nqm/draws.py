r"""Named random numbers: every draw is a function of what it is for, never of when it was asked for.

A stream is named by (seed, purpose, task, round, client) and hashed to two 64-bit keys; number c of a stream is

    z = c*G + k1;   z = (z ^ z>>30) * M1;   z ^= k2;   z = (z ^ z>>27) * M2;   z ^= z>>31,

the splitmix64 finaliser with a second key injected between its two rounds. With k1 alone, streams are windows of one
Weyl sequence and would overlap by the birthday bound; two streams now agree only if 128 key bits do. Normals come in
pairs by Box-Muller from two consecutive numbers.

This is the slow, readable twin of `nqm.kernels`, which draws the same numbers (to rounding) inside compiled loops.
"""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

SCHEME = "driftproof-normals-1"

G = np.uint64(0x9E3779B97F4A7C15)
M1 = np.uint64(0xBF58476D1CE4E5B9)
M2 = np.uint64(0x94D049BB133111EB)
START1 = np.uint64(0x243F6A8885A308D3)  # the first digits of pi, so that nobody chose them
START2 = np.uint64(0x13198A2E03707344)

Words = NDArray[np.uint64]
Key = tuple[Words, Words]


class Purpose(IntEnum):
    """What a stream is for. `cos` and `sin` name the two halves of its Box-Muller pairs."""

    PROBLEM_B = 1  # cos: b in the eigenbasis
    PROBLEM_W0 = 2  # cos: w0 in the eigenbasis
    SPECTRUM = 3  # uniform eigenvalues
    ROTATION = 4  # the Gaussian matrix whose QR gives U
    CLIENT = 5  # cos: client drift delta; sin: client slope. Round 0 unless redrawn every round
    COMMON = 6  # cos: the part of the time drift that stays; sin: a client's own mean information loss
    TIME = 7  # cos: time drift; sin: random part of the information loss
    SLOPE = 8  # cos: time slope
    NOISE = 9  # number q*dim + d; cos: step 2q, sin: step 2q + 1
    SAMPLE = 10  # who takes part
    FOLDED = 11  # all draws of the collapsed engine: time drift, two clients a pair, then what is white
    TASK = 12  # cos: how far a task's b lies from the first one's, in the eigenbasis
    DATA = 13  # sample j of a client, named in place of the round; cos: zeta, sin: slope
    PICK = 14  # which sample a local step looks at, a uniform each
    MEMORY = 15  # which samples of the past a client keeps


def mix(z: Words) -> Words:
    """The splitmix64 finaliser: a bijection of 64-bit words."""
    z = (z ^ (z >> np.uint64(30))) * M1
    z = (z ^ (z >> np.uint64(27))) * M2
    return z ^ (z >> np.uint64(31))


def absorb(key: Key, value: ArrayLike) -> Key:
    """Extend a name by one more part."""
    with np.errstate(over="ignore"):
        part = (np.asarray(value, dtype=np.uint64) + np.uint64(1)) * G
        return mix(key[0] ^ part), mix(key[1] + part)


def stream(seed: ArrayLike, purpose: Purpose, task: ArrayLike = 0, round: ArrayLike = 0, client: ArrayLike = 0) -> Key:
    """The two keys of a named stream; arrays give arrays."""
    key = (np.asarray(START1), np.asarray(START2))
    for part in (seed, int(purpose), task, round, client):
        key = absorb(key, part)
    return key


def words(key: Key, counter: ArrayLike) -> Words:
    """Number ``counter`` of a stream as 64 random bits."""
    k1, k2 = key
    with np.errstate(over="ignore"):
        z = np.asarray(counter, dtype=np.uint64) * G + k1
        z = (z ^ (z >> np.uint64(30))) * M1
        z = z ^ k2
        z = (z ^ (z >> np.uint64(27))) * M2
        return z ^ (z >> np.uint64(31))


def uniforms(key: Key, counter: ArrayLike) -> NDArray[np.float64]:
    """Uniform numbers in (0, 1), the midpoints of 2^52 cells."""
    return ((words(key, counter) >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52


def normal_pairs(key: Key, counter: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two independent standard normals for each ``counter``: the cosine and the sine half of Box-Muller.

    The radius takes 52 bits of the first word. Of the second, 52 bits give an angle in [-pi/4, pi/4) and the
    three lowest (which those 52 don't touch) an octant-preserving swap and two signs.
    """
    twice = np.asarray(counter, dtype=np.uint64) * np.uint64(2)
    first, second = words(key, twice), words(key, twice + np.uint64(1))
    radius = np.sqrt(-2.0 * np.log(1.0 - (first >> np.uint64(12)).astype(float) * 2.0**-52))
    angle = ((second >> np.uint64(12)).astype(float) * 2.0**-52 - 0.5) * (math.pi / 2)
    swap = (second & np.uint64(1)) != 0
    cos, sin = np.cos(angle), np.sin(angle)
    one = np.where(second & np.uint64(2), -1.0, 1.0) * np.where(swap, sin, cos)
    two = np.where(second & np.uint64(4), -1.0, 1.0) * np.where(swap, cos, sin)
    return radius * one, radius * two


def sample(seed: int, task: int, round: int, clients: int, sampled: int) -> NDArray[np.int64]:
    """``sampled`` of ``clients`` without replacement: the head of a Fisher-Yates shuffle."""
    order = np.arange(clients)
    u = uniforms(stream(seed, Purpose.SAMPLE, task, round), np.arange(sampled))
    for i in range(sampled):
        j = i + int(u[i] * (clients - i))
        order[i], order[j] = order[j], order[i]
    return order[:sampled]
