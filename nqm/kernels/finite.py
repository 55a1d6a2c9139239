"""The loops for finite sums: sampled gradients, incremental aggregated ones, and a memory. `nqm.finite` is the twin."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .model import add, dot, fill, judge, judge_tasks, scale, zero
from .random import CLIENT, DATA, INTERNAL, MEMORY, OPTIONS, PICK, U, absorb, fma, named, named_normals, word

Array = NDArray[np.float64]

PLAIN, TRACK = 0, 1
FIXED, DERIVED, PRINTED = 0, 1, 2


class Finite(NamedTuple):
    """A finite sum and what is done on it, as numbers."""

    rule: int
    samples: int
    sd_sample: float
    sd_slope: float
    memory: int  # samples of the past that a client keeps; 0 if there is no past
    lr: float
    server_lr: float
    memory_lr: float
    smoothness: float
    rates: int
    share: float  # p_i, or N p_i in the worst case
    traces: int


@njit(**INTERNAL)
def uniform(k1, k2, c):
    """The c-th uniform number of a stream, as `draws.uniforms` has it."""
    return (float(word(k1, k2, U(c)) >> U(12)) + 0.5) * 2.220446049250313e-16


@njit(**INTERNAL)
def client_of(m, seed, task, i, curve, c, z1, z2):
    """Client i's own part in a task: relative slope and offset."""
    k1, k2 = named(seed, CLIENT, task)
    named_normals(k1, k2, U(0), U(i), z1, z2)
    scale(c, m.sd_client, z1)
    scale(curve, m.sd_slope_client, z2)


@njit(**INTERNAL)
def samples_of(q, seed, task, i, zeta, slope):
    """Client i's samples in a task, centred."""
    k1, k2 = named(seed, DATA, task)
    n = q.samples
    for j in range(n):
        named_normals(k1, k2, U(j), U(i), zeta[j], slope[j])
    for d in range(zeta.shape[1]):
        a = b = 0.0
        for j in range(n):
            a += zeta[j, d]
            b += slope[j, d]
        for j in range(n):
            zeta[j, d] = q.sd_sample * (zeta[j, d] - a / n)
            slope[j, d] = q.sd_slope * (slope[j, d] - b / n)


@njit(**INTERNAL)
def recall_past(m, q, seed, i, zeta, slope, curve, c, z1, z2, order, wanted, kept_H, kept_o, past_H, past_o):
    """Curvature and offset of the memory and of the whole past, as felt by e = w - (this task's optimum)."""
    n, tasks = q.samples, m.task
    k1, k2 = named(seed, MEMORY, tasks)
    k1, k2 = absorb(k1, k2, U(0))
    k1, k2 = absorb(k1, k2, U(i))
    for a in range(tasks * n):
        order[a] = a
        wanted[a] = 0.0
    for a in range(q.memory):
        b = a + int(uniform(k1, k2, a) * (tasks * n - a))
        order[a], order[b] = order[b], order[a]
        wanted[order[a]] = 1.0 / q.memory
    zero(kept_H)
    zero(kept_o)
    zero(past_H)
    zero(past_o)
    for task in range(tasks):
        client_of(m, seed, task, i, curve, c, z1, z2)
        samples_of(q, seed, task, i, zeta, slope)
        for d in range(m.dim):
            lam, away = m.task_lam[task, d], m.task_away[task, d]
            H = lam * (1.0 + curve[d])
            past_H[d] += H / tasks
            past_o[d] += (H * away + c[d]) / tasks
            for j in range(n):
                share = wanted[task * n + j]
                if share > 0.0:
                    H = lam * (1.0 + curve[d] + slope[j, d])
                    kept_H[d] += share * H
                    kept_o[d] += share * (H * away + c[d] + zeta[j, d])


@njit(**INTERNAL)
def best(q, transference, length):
    """beta_i of Table 1 of `cflag` for a client with transference; ``length`` = ||a_i||^2."""
    return (1.0 - q.smoothness * q.memory_lr) * transference / (q.smoothness * q.share * length)


@njit(**OPTIONS)
def run(m, q, room, seeds, ends, out):
    """Simulate a task for every seed; see `steps.run`. ``room``: 14 rows to work in."""
    width, N, K, T, n = m.lam.size, m.clients, m.local_steps, m.schedule.shape[0], q.samples
    e, v, total, step, overall, local, memory = room[0], room[1], room[2], room[3], room[4], room[5], room[6]
    z1, z2, origin, past, track, bias = room[7], room[8], room[9], room[10], room[11], room[12]
    work = room[13]
    zeta, slope = np.zeros((N, n, width)), np.zeros((N, n, width))
    seen = np.zeros((n, width))
    curve, c = np.zeros((N, width)), np.zeros((N, width))
    kept_H, kept_o = np.zeros((N, width)), np.zeros((N, width))
    past_H, past_o = np.zeros((N, width)), np.zeros((N, width))
    order, wanted = np.zeros(max(1, m.task * n), dtype=np.int64), np.zeros(max(1, m.task * n))
    several = m.task_lam.shape[0] > 0
    for s in range(seeds.size):
        pick1, pick2 = named(seeds[s], PICK, m.task)
        for i in range(N):
            if q.memory > 0:
                recall_past(
                    m, q, seeds[s], i, zeta[i], slope[i], curve[i], c[i], z1, z2, order, wanted,
                    kept_H[i], kept_o[i], past_H[i], past_o[i],
                )  # fmt: skip
            client_of(m, seeds[s], m.task, i, curve[i], c[i], z1, z2)
            samples_of(q, seeds[s], m.task, i, zeta[i], slope[i])
            for d in range(width):
                curve[i, d] = m.lam[d] * (1.0 + curve[i, d])
                for j in range(n):
                    slope[i, j, d] *= m.lam[d]
        scale(e, 1.0, ends[s])
        scale(origin, 1.0, e)
        for row in range(3, out.shape[1]):
            out[s, row, 0] = np.nan
        if not judge(m, e, z1, out[s], 0):
            fill(out[s], np.inf)
            continue
        if several:
            judge_tasks(m.task_lam, m.task_away, m.dim, e, origin, z1, out[s], 0)
        for t in range(T):
            p1, p2 = absorb(pick1, pick2, U(t + 1))
            zero(overall)
            zero(memory)
            zero(past)
            zero(step)
            zero(track)
            for i in range(N):
                for d in range(m.dim):
                    overall[d] += fma(curve[i, d], e[d], c[i, d]) / N
                if q.memory > 0:
                    for d in range(m.dim):
                        memory[d] += fma(kept_H[i, d], e[d], kept_o[i, d]) / N
                        past[d] += fma(past_H[i, d], e[d], past_o[i, d]) / N
            length = dot(memory, memory)
            alpha = mean_transference = interfering = 0.0
            for i in range(N):
                a1, a2 = absorb(p1, p2, U(i))
                scale(v, 1.0, e)
                if q.rule == PLAIN:
                    for k in range(K):
                        j = int(uniform(a1, a2, k) * n)
                        for d in range(m.dim):
                            v[d] -= q.lr * (fma(curve[i, d] + slope[i, j, d], v[d], c[i, d]) + zeta[i, j, d])
                    for d in range(m.dim):
                        step[d] -= q.server_lr * (v[d] - e[d]) / N
                    continue
                # local: the mean of the latest gradients; seen[j]: where sample j was last looked at
                for d in range(m.dim):
                    local[d] = fma(curve[i, d], e[d], c[i, d])
                    work[d] = overall[d] - local[d]
                for j in range(n):
                    scale(seen[j], 1.0, e)
                zero(total)
                for k in range(K):
                    if k > 0:
                        j = int(uniform(a1, a2, k) * n)
                        for d in range(m.dim):
                            local[d] += (curve[i, d] + slope[i, j, d]) * (v[d] - seen[j, d]) / n
                            seen[j, d] = v[d]
                    add(total, 1.0, local)
                    for d in range(m.dim):
                        v[d] -= q.lr * (work[d] + local[d])
                transference = dot(memory, total)
                if q.memory > 0 and q.traces > 0:
                    out[s, out.shape[1] - N + i, t + 1] = transference
                mean_transference += transference / N
                interfering += (1.0 if transference <= 0.0 else 0.0) / N
                alpha_i, beta_i, along = q.memory_lr, q.lr, 0.0
                if q.memory > 0 and q.rates == DERIVED:
                    if transference > 0.0:
                        beta_i = best(q, transference, dot(total, total))
                    elif length > 0.0:
                        alpha_i = q.memory_lr - q.lr * transference / length
                elif q.memory > 0 and q.rates == PRINTED:
                    along = q.lr
                    if transference > 0.0:
                        beta_i = best(q, q.lr * transference, q.lr * q.lr * dot(total, total))
                        along = beta_i
                    elif length > 0.0:
                        alpha_i = q.memory_lr * (1.0 - q.lr * transference / length)
                alpha += alpha_i / N
                add(step, beta_i / N, total)
                add(track, along * K / N, work)
            for d in range(m.dim):
                e[d] -= alpha * memory[d] + step[d] + track[d] if q.memory > 0 else step[d]
            if q.traces > 0 and q.memory > 0:
                for d in range(m.dim):
                    bias[d] = memory[d] - past[d]
                L, row = q.smoothness, out.shape[1] - N - 4
                out[s, row, t + 1] = 0.5 * L * dot(step, step) - (1.0 - L * alpha) * dot(memory, step)
                out[s, row + 1, t + 1] = (L * alpha * alpha - alpha) * dot(past, bias) + dot(bias, step)
                out[s, row + 2, t + 1] = mean_transference
                out[s, row + 3, t + 1] = interfering
            elif q.traces > 0:
                for row in range(out.shape[1] - N - 4, out.shape[1]):
                    out[s, row, t + 1] = np.nan
            if not judge(m, e, z1, out[s], t + 1):
                fill(out[s, :, t + 1 :], np.inf)
                break
            if several:
                judge_tasks(m.task_lam, m.task_away, m.dim, e, origin, z1, out[s], t + 1)
        scale(ends[s], 1.0, e)
