"""What all compiled loops share: the model as plain numbers, its memory, and what a round is judged by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .random import CLIENT, COMMON, INLINE, INTERNAL, U, absorb, fma, named, named_normals, word

Array = NDArray[np.float64]

NO_MEMORY, ONE_SUM, FOUR_SUMS, TABLE = 0, 1, 2, 3


class Model(NamedTuple):
    """An experiment as numbers. ``sd_`` are standard deviations of one client and one direction; arrays are padded."""

    lam: Array
    lam_sq: Array
    task_lam: Array  # (tasks, width) for a sequence of tasks, else (0, width): the eigenvalues of each
    task_away: Array  # and this task's optimum as seen from each
    counts: Array  # 1 where lam > 0, for distances
    loss_shared: Array
    keep: Array  # a = 1 - step (follow lam + prox), without slopes
    summed: Array  # 1 + a + ... + a^(K-1)
    squares: Array  # 1 + a^2 + ... + a^(2K-2)
    given_delta: Array  # (N, width) or (0, 0)
    given_slope: Array
    schedule: Array  # (T, 4): first, middle, previous, current
    rows: Array  # (T, T) for a table, else (0, 0)
    memory: int
    task: int
    dim: int
    clients: int
    sampled: int
    local_steps: int
    stateless: bool
    redrawn: bool
    slopes: bool
    step: float
    follow: float
    prox: float
    server: float
    alpha: float
    sd_client: float
    sd_common: float
    sd_time: float
    sd_noise: float
    sd_loss: float
    sd_loss_client: float
    sd_slope_client: float
    sd_slope_time: float


class State(NamedTuple):
    """What clients carry from round to round, (clients, width) each. What a memory doesn't need is one row."""

    total: Array  # sum of all drifts so far
    first: Array
    previous: Array
    past: Array  # (clients, T, width), for a table of weights
    slope_total: Array  # the same four for slopes that move
    slope_first: Array
    slope_previous: Array
    slope_past: Array
    drifting: Array  # the unit AR(1) process behind the time drift
    stays: Array
    own_loss: Array
    slope: Array


# Array expressions would do for the next four, but take seconds to compile: they carry checks and error messages.
@njit(**INTERNAL)
def fill(a, value):
    for i in range(a.shape[0]):
        for d in range(a.shape[1]):
            a[i, d] = value


@njit(**INTERNAL)
def zero(a):
    for d in range(a.size):
        a[d] = 0.0


@njit(**INTERNAL)
def scale(a, k, x):
    """a <- k x"""
    for d in range(a.size):
        a[d] = k * x[d]


@njit(**INTERNAL)
def add(a, k, x):
    """a <- a + k x"""
    for d in range(a.size):
        a[d] = fma(k, x[d], a[d])


@njit(**INLINE)
def dot(a, b):
    """sum a b in a fixed order of eight lanes, the same on every machine."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for i in range(0, a.size, 8):
        d = U(i)  # unsigned, because a signed index may wrap around and that would be checked for
        s0 = fma(a[d], b[d], s0)
        s1 = fma(a[d + U(1)], b[d + U(1)], s1)
        s2 = fma(a[d + U(2)], b[d + U(2)], s2)
        s3 = fma(a[d + U(3)], b[d + U(3)], s3)
        s4 = fma(a[d + U(4)], b[d + U(4)], s4)
        s5 = fma(a[d + U(5)], b[d + U(5)], s5)
        s6 = fma(a[d + U(6)], b[d + U(6)], s6)
        s7 = fma(a[d + U(7)], b[d + U(7)], s7)
    return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


@njit(**INTERNAL)
def remember(kind, p, t, x, h, total, first, previous, past, row):
    """h <- sum_tau p_tau x_tau, given x = x_t and running sums of the past, which are then brought up to date."""
    if kind == NO_MEMORY:
        for d in range(x.size):
            h[d] = x[d]
    elif kind == ONE_SUM:
        for d in range(x.size):
            h[d] = fma(p[2], total[d], p[3] * x[d])
        for d in range(x.size):
            total[d] += x[d]
    elif kind == FOUR_SUMS:
        for d in range(x.size):
            h[d] = fma(p[0] - p[1], first[d], p[3] * x[d])
        for d in range(x.size):
            h[d] = fma(p[1], total[d], fma(p[2] - p[1], previous[d], h[d]))
        for d in range(x.size):
            total[d] += x[d]
            previous[d] = x[d]
        if t == 0:
            for d in range(x.size):
                first[d] = x[d]
    else:
        for d in range(x.size):
            past[t, d] = x[d]
            h[d] = 0.0
        for tau in range(t + 1):
            for d in range(x.size):
                h[d] = fma(row[tau], past[tau, d], h[d])


@njit(**INTERNAL)
def judge_tasks(task_lam, task_away, dim, e, origin, square, out, t):
    """How far w has moved from ``origin`` (squared), and the excess loss of every task.

    Apart from `judge`, whose every reference to an array counts in the loop over rounds.
    """
    for d in range(e.size):
        square[d] = e[d] - origin[d] if d < dim else 0.0
    out[3, t] = dot(square, square)
    for j in range(task_lam.shape[0]):
        for d in range(e.size):
            square[d] = (e[d] + task_away[j, d]) ** 2
        out[4 + j, t] = 0.5 * dot(task_lam[j], square)


@njit(**INLINE)
def judge(m, e, square, out, t):
    """Write down round t; False once a number is no longer finite. ``square`` is room for e^2.

    Rows: squared gradient norm, excess loss, squared distance; `judge_tasks` has those of a sequence.
    """
    for d in range(e.size):
        square[d] = e[d] * e[d]
    g, excess, distance = dot(m.lam_sq, square), 0.5 * dot(m.lam, square), dot(m.counts, square)
    out[0, t], out[1, t], out[2, t] = g, excess, distance
    return np.isfinite(g) and np.isfinite(excess) and np.isfinite(distance)


@njit(**INLINE)
def recall(m, state, p, t, i, x, h, row):
    """h <- client i's weighted history of drift, x = x_t included."""
    four, table = i if m.memory == FOUR_SUMS else 0, i if m.memory == TABLE else 0
    remember(m.memory, p, t, x, h, state.total[i], state.first[four], state.previous[four], state.past[table], row)


@njit(**INLINE)
def recall_slope(m, state, p, t, i, x, h, row):
    """The same for slopes that move."""
    four, table = i if m.memory == FOUR_SUMS else 0, i if m.memory == TABLE else 0
    first, previous, past = state.slope_first[four], state.slope_previous[four], state.slope_past[table]
    remember(m.memory, p, t, x, h, state.slope_total[i], first, previous, past, row)


@njit(**INTERNAL)
def new_state(m):
    """Room for what the clients carry."""
    N, width, T = m.clients, m.lam.size, m.schedule.shape[0]
    four = N if m.memory == FOUR_SUMS else 1
    table = N if m.memory == TABLE else 1
    kept = T if m.memory == TABLE else 1
    moving = m.sd_slope_time > 0 or (m.redrawn and m.sd_slope_client > 0)
    slopes, slope_four, slope_table = (N, four, table) if moving else (1, 1, 1)
    return State(
        np.zeros((N, width)),
        np.zeros((four, width)),
        np.zeros((four, width)),
        np.zeros((table, kept, width)),
        np.zeros((slopes, width)),
        np.zeros((slope_four, width)),
        np.zeros((slope_four, width)),
        np.zeros((slope_table, kept, width)),
        np.zeros((N, width)),
        np.zeros((N, width)),
        np.zeros((N, width)),
        np.zeros((N if m.slopes else 1, width)),
    )


@njit(**INTERNAL)
def begin(m, seed, state, z1, z2):
    """A new run: nothing is remembered, and the clients are those of ``seed``."""
    for rows in (state.total, state.first, state.previous, state.drifting):
        fill(rows, 0.0)
    for rows in (state.slope_total, state.slope_first, state.slope_previous):
        fill(rows, 0.0)
    draw_clients(m, seed, state.stays, state.own_loss, state.slope, z1, z2)


@njit(**INTERNAL)
def draw_clients(m, seed, stays, own_loss, slope, z1, z2):
    """What stays with each client: drift, its own mean information loss, slope."""
    who1, who2 = named(seed, CLIENT, m.task)
    common1, common2 = named(seed, COMMON, m.task)
    fill(stays, 0.0)
    fill(slope, 0.0)
    for i in range(m.clients):
        if m.given_delta.size:
            scale(stays[i], 1.0, m.given_delta[i])
            if m.slopes:
                scale(slope[i], 1.0, m.given_slope[i])
        elif not m.redrawn and (m.sd_client > 0 or m.sd_slope_client > 0):
            named_normals(who1, who2, U(0), U(i), z1, z2)
            scale(stays[i], m.sd_client, z1)
            if m.slopes:
                scale(slope[i], m.sd_slope_client, z2)
        if m.sd_common > 0 or (m.sd_loss_client > 0 and not m.stateless):
            named_normals(common1, common2, U(0), U(i), z1, z2)
            add(stays[i], m.sd_common, z1)
            scale(own_loss[i], m.sd_loss_client, z2)


@njit(**INTERNAL)
def sample(m, k1, k2, t, order, active):
    """Mark who takes part in round t; `draws.sample` is the readable twin."""
    k1, k2 = absorb(k1, k2, U(t + 1))
    k1, k2 = absorb(k1, k2, U(0))
    for i in range(m.clients):
        order[i] = i
        active[i] = False
    for i in range(m.sampled):
        u = (float(word(k1, k2, U(i)) >> U(12)) + 0.5) * 2.220446049250313e-16
        j = i + int(u * (m.clients - i))
        order[i], order[j] = order[j], order[i]
        active[order[i]] = True
