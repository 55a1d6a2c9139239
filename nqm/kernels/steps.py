"""The `steps` engine: every local step of every client drawn. `nqm.reference` is its slow, readable twin."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .model import (
    NO_MEMORY,
    ONE_SUM,
    TABLE,
    add,
    begin,
    fill,
    judge,
    judge_tasks,
    new_state,
    recall,
    recall_slope,
    sample,
    scale,
    zero,
)
from .random import (
    CLIENT,
    COMMON,
    NOISE,
    OPTIONS,
    SAMPLE,
    SLOPE,
    TIME,
    U,
    absorb,
    fma,
    named,
    named_normals,
    normal_pair,
)


@njit(**OPTIONS)
def run(m, tasks, room, seeds, ends, out):
    """Simulate a task for every seed, from e = ``ends`` on, where its last e is left.

    ``tasks``: None, which compiles to a loop that knows of none, or what `judge_tasks` needs of a sequence.
    ``out`` is (seeds, rows, T + 1): what `judge` writes. ``room``: 12 rows to work in, aligned by the caller, because
    the compiler's own arrays need not be.
    """
    width, N, K, T = m.lam.size, m.clients, m.local_steps, m.schedule.shape[0]
    redrawn_slope = m.redrawn and m.sd_slope_client > 0
    moving = m.sd_slope_time > 0 or redrawn_slope
    state = new_state(m)
    e, update, c, x, h = room[0], room[1], room[2], room[3], room[4]
    z1, z2, local, push, keep, curve = room[5], room[6], room[7], room[8], room[9], room[10]
    origin = room[11]
    scale(curve, 1.0, m.lam)
    order, active = np.arange(N), np.ones(N, dtype=np.bool_)
    # A client that isn't at work still drifts, and that matters only if somebody will remember.
    all_drift = m.memory != NO_MEMORY or m.alpha > 0
    alpha_fresh = math.sqrt(1.0 - m.alpha * m.alpha)
    jolt = -m.step * m.sd_noise
    share = m.server / m.sampled
    scale(keep, 1.0, m.keep)

    for s in range(seeds.size):
        time1, time2 = named(seeds[s], TIME, m.task)
        noise1, noise2 = named(seeds[s], NOISE, m.task)
        who1, who2 = named(seeds[s], CLIENT, m.task)
        common1, common2 = named(seeds[s], COMMON, m.task)
        slope1, slope2 = named(seeds[s], SLOPE, m.task)
        pick1, pick2 = named(seeds[s], SAMPLE, m.task)
        begin(m, seeds[s], state, z1, z2)
        scale(e, 1.0, ends[s])
        scale(origin, 1.0, e)
        if not judge(m, e, z1, out[s], 0):
            fill(out[s], np.inf)
            continue
        if tasks is not None:
            judge_tasks(tasks[0], tasks[1], m.dim, e, origin, z1, out[s], 0)

        for t in range(T):
            p = m.schedule[t]
            row = m.rows[t if m.memory == TABLE else 0]
            forgotten = 1.0 - p[3]
            if m.sampled < N:
                sample(m, pick1, pick2, t, order, active)
            t1, t2 = absorb(time1, time2, U(t + 1))
            n1, n2 = absorb(noise1, noise2, U(t + 1))
            zero(update)

            for i in range(N):
                if not (active[i] or all_drift):
                    continue
                # x: this round's drift; z2: the random part of the information loss
                a1, a2 = absorb(t1, t2, U(i))
                for d in range(width):
                    z1[d], z2[d] = normal_pair(a1, a2, U(d))
                if m.alpha > 0:
                    fresh = alpha_fresh if t > 0 else 1.0
                    for d in range(width):
                        state.drifting[i, d] = fma(m.alpha, state.drifting[i, d], fresh * z1[d])
                        x[d] = m.sd_time * state.drifting[i, d]
                else:
                    for d in range(width):
                        x[d] = m.sd_time * z1[d]
                if m.redrawn and (m.sd_client > 0 or redrawn_slope):
                    named_normals(who1, who2, U(t + 1), U(i), z1, local)  # local: the redrawn slope, used below
                    for d in range(width):
                        x[d] = fma(m.sd_client, z1[d], x[d])
                if m.memory == NO_MEMORY:
                    for d in range(width):
                        c[d] = state.stays[i, d] + x[d]
                elif m.memory == ONE_SUM:
                    for d in range(width):
                        c[d] = fma(p[2], state.total[i, d], fma(p[3], x[d], state.stays[i, d]))
                    for d in range(width):
                        state.total[i, d] += x[d]
                else:
                    recall(m, state, p, t, i, x, h, row)
                    for d in range(width):
                        c[d] = state.stays[i, d] + h[d]
                if forgotten != 0.0:
                    for d in range(width):
                        c[d] = fma(forgotten, fma(m.sd_loss, z2[d], m.loss_shared[d]), c[d])
                    if m.sd_loss_client > 0:
                        if m.stateless:
                            named_normals(common1, common2, U(t + 1), U(i), z1, z2)
                            scale(state.own_loss[i], m.sd_loss_client, z2)
                        for d in range(width):
                            c[d] = fma(forgotten, state.own_loss[i, d], c[d])
                if m.slopes:  # this client's own curvature
                    zero(h)
                    if moving:
                        zero(x)
                        if redrawn_slope:
                            scale(x, m.sd_slope_client, local)
                        if m.sd_slope_time > 0:
                            named_normals(slope1, slope2, U(t + 1), U(i), z1, z2)
                            add(x, m.sd_slope_time, z1)
                        recall_slope(m, state, p, t, i, x, h, row)
                    for d in range(width):
                        curve[d] = m.lam[d] * (1.0 + state.slope[i, d] + h[d])
                        keep[d] = 1.0 - m.step * (m.follow * curve[d] + m.prox)
                if not active[i]:
                    continue

                # d <- a d - step (curvature e + c + noise) for d = w_k - w_0, two steps from the two halves of a pair
                for d in range(width):
                    push[d] = -m.step * fma(curve[d], e[d], c[d])
                    local[d] = 0.0
                a1, a2 = absorb(n1, n2, U(i))
                for q in range(K // 2):
                    base = U(q * m.dim)
                    for d in range(width):
                        v1, v2 = normal_pair(a1, a2, base + U(d))
                        half_way = fma(keep[d], local[d], fma(jolt, v1, push[d]))
                        local[d] = fma(keep[d], half_way, fma(jolt, v2, push[d]))
                if K % 2 == 1:
                    normals_left = U((K // 2) * m.dim)
                    for d in range(width):
                        v1, v2 = normal_pair(a1, a2, normals_left + U(d))
                        local[d] = fma(keep[d], local[d], fma(jolt, v1, push[d]))
                for d in range(width):
                    update[d] += local[d]

            for d in range(width):
                e[d] = fma(share, update[d], e[d])
            if not judge(m, e, z1, out[s], t + 1):
                fill(out[s, :, t + 1 :], np.inf)
                break
            if tasks is not None:
                judge_tasks(tasks[0], tasks[1], m.dim, e, origin, z1, out[s], t + 1)
        scale(ends[s], 1.0, e)
