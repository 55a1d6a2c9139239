r"""The `collapsed` engine: K linear local steps folded into one Gaussian map, the same in law with far fewer draws.

    d_K = -step * s * (curvature e + c) + Gaussian,     s = 1 + a + ... + a^(K-1)

Whatever is white, here step noise, the random part of information loss, and drift that nobody remembers,
enters the server's step only through a sum of independent Gaussians: its variances are added up and one normal is
drawn for all of them.
"""

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
    draw_clients,
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
    FOLDED,
    INTERNAL,
    OPTIONS,
    SAMPLE,
    SLOPE,
    U,
    absorb,
    fma,
    named,
    named_normals,
    normal_pair,
    normals,
)

LANES = 64


@njit(**INTERNAL)
def fold(keep, K, summed, squares):
    """sum_{k<K} a^k and sum_{k<K} a^2k."""
    zero(summed)
    zero(squares)
    for _ in range(K):
        for d in range(keep.size):
            summed[d] = fma(summed[d], keep[d], 1.0)
        for d in range(keep.size):
            squares[d] = fma(squares[d], keep[d] * keep[d], 1.0)


@njit(**OPTIONS)
def run(m, tasks, room, seeds, ends, out):
    """Simulate a task for every seed, client by client; see `steps.run`. ``room``: 15 aligned rows to work in."""
    width, N, K, T = m.lam.size, m.clients, m.local_steps, m.schedule.shape[0]
    redrawn_slope = m.redrawn and m.sd_slope_client > 0
    moving = m.sd_slope_time > 0 or redrawn_slope
    state = new_state(m)
    e, update, c, x, h = room[0], room[1], room[2], room[3], room[4]
    keep, summed, squares, white, curve = room[5], room[6], room[7], room[8], room[9]
    z1, z2, z, origin = room[10], room[11], room[12:14], room[14]
    scale(curve, 1.0, m.lam)
    order, active = np.arange(N), np.ones(N, dtype=np.bool_)
    drifts = m.memory != NO_MEMORY or m.alpha > 0  # then a client's drift links rounds, and is drawn client by client
    alpha_fresh = math.sqrt(1.0 - m.alpha * m.alpha)
    # Redrawn client drift is one more drift that moves; next to a correlated one it needs its own draw.
    separate = drifts and m.redrawn and m.sd_client > 0 and m.alpha > 0
    var_moves = m.sd_time**2 + (m.sd_client**2 if m.redrawn else 0.0)
    sd_moves = m.sd_time if separate else math.sqrt(var_moves)
    # The case that matters most for speed: independent drift under even weights.
    quick = m.memory == ONE_SUM and m.alpha == 0 and not m.slopes and (m.sd_loss_client == 0 or m.stateless)
    share = m.server / m.sampled
    scale(keep, 1.0, m.keep)
    scale(summed, 1.0, m.summed)
    scale(squares, 1.0, m.squares)

    for s in range(seeds.size):
        fold1, fold2 = named(seeds[s], FOLDED, m.task)
        who1, who2 = named(seeds[s], CLIENT, m.task)
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
            t1, t2 = absorb(fold1, fold2, U(t + 1))
            # white drift of the offset: what nobody remembers, and the random part of the information loss
            var_white = (0.0 if drifts else var_moves) + (forgotten * m.sd_loss) ** 2
            if m.stateless:
                var_white += (forgotten * m.sd_loss_client) ** 2
            zero(update)
            zero(white)
            zero(c)  # summed over clients while they share one curvature

            for i in range(N):
                if not (active[i] or drifts):
                    continue
                if drifts and i % 2 == 0:  # the two halves of a pair go to two clients
                    a1, a2 = absorb(t1, t2, U(i // 2))
                    for d in range(width):
                        z[0, d], z[1, d] = normal_pair(a1, a2, U(d))
                moved = z[i % 2]
                if quick:
                    at_work = 1.0 if active[i] else 0.0
                    past_share, share_now = at_work * p[2], at_work * p[3] * sd_moves
                    for d in range(width):
                        c[d] += fma(
                            past_share, state.total[i, d], fma(share_now, moved[d], at_work * state.stays[i, d])
                        )
                        state.total[i, d] = fma(sd_moves, moved[d], state.total[i, d])
                    continue
                if m.slopes:
                    zero(c)
                if active[i]:
                    add(c, 1.0, state.stays[i])
                    if m.sd_loss_client > 0 and not m.stateless:
                        add(c, forgotten, state.own_loss[i])
                if drifts:
                    if m.alpha > 0:
                        fresh = alpha_fresh if t > 0 else 1.0
                        for d in range(width):
                            state.drifting[i, d] = fma(m.alpha, state.drifting[i, d], fresh * moved[d])
                        scale(x, sd_moves, state.drifting[i])
                        if separate:
                            named_normals(who1, who2, U(t + 1), U(i), z1, z2)
                            add(x, m.sd_client, z1)
                    else:
                        scale(x, sd_moves, moved)
                    recall(m, state, p, t, i, x, h, row)
                    if active[i]:
                        add(c, 1.0, h)
                if m.slopes:  # fold this client's own K steps
                    zero(h)
                    if moving:
                        zero(x)
                        if redrawn_slope:
                            named_normals(who1, who2, U(t + 1), U(i), z1, z2)
                            add(x, m.sd_slope_client, z2)
                        if m.sd_slope_time > 0:
                            named_normals(slope1, slope2, U(t + 1), U(i), z1, z2)
                            add(x, m.sd_slope_time, z1)
                        recall_slope(m, state, p, t, i, x, h, row)
                    if active[i]:
                        for d in range(width):
                            curve[d] = m.lam[d] * (1.0 + state.slope[i, d] + h[d])
                            keep[d] = 1.0 - m.step * (m.follow * curve[d] + m.prox)
                        fold(keep, K, summed, squares)
                        for d in range(width):
                            c[d] = fma(forgotten, m.loss_shared[d], c[d])
                            update[d] -= m.step * summed[d] * fma(curve[d], e[d], c[d])
                        for d in range(width):
                            white[d] += summed[d] * summed[d] * var_white + squares[d] * m.sd_noise**2

            a1, a2 = absorb(t1, t2, U((N + 1) // 2))
            normals(a1, a2, U(0), z1, z2)
            if not m.slopes:
                for d in range(width):
                    c[d] += m.sampled * fma(m.lam[d], e[d], forgotten * m.loss_shared[d])
                for d in range(width):
                    update[d] = -m.step * summed[d] * c[d]
                for d in range(width):
                    white[d] = m.sampled * (summed[d] * summed[d] * var_white + squares[d] * m.sd_noise**2)
            for d in range(width):
                e[d] = fma(share, fma(m.step * math.sqrt(white[d]), z1[d], update[d]), e[d])
            if not judge(m, e, z1, out[s], t + 1):
                fill(out[s, :, t + 1 :], np.inf)
                break
            if tasks is not None:
                judge_tasks(tasks[0], tasks[1], m.dim, e, origin, z1, out[s], t + 1)
        scale(ends[s], 1.0, e)


@njit(**OPTIONS)
def run_average(m, gain, pull, sd, seeds, ends, out):
    """The same when clients act only through their average, and a running sum is all the memory there is.

    ``m`` is then one client with 1/S of the variance. Lanes are seeds, so that even a small problem fills the vectors:
    e' = gain e - pull (stays + p_past total + p_t x + mean loss) + sd_t z. ``sd`` is (T, dim): all that is white.
    """
    T, n = m.schedule.shape[0], m.dim
    e, total, stays = np.empty((n, LANES)), np.empty((n, LANES)), np.empty((n, LANES))
    rows, tasks = out.shape[1], m.task_lam.shape[0]
    z1, z2 = np.empty(LANES), np.empty(LANES)
    seed1, seed2 = np.empty(LANES, dtype=np.uint64), np.empty(LANES, dtype=np.uint64)
    k1, k2 = np.empty(LANES, dtype=np.uint64), np.empty(LANES, dtype=np.uint64)
    # Eight rounds are kept back and written together: a seed's curve is then filled a cache line at a time.
    curves = np.empty((8, rows, LANES))
    width = m.lam.size
    one, none, unused = np.empty((1, width)), np.empty((1, width)), np.empty((1, width))
    b1, b2 = np.empty(width), np.empty(width)
    remembers = m.memory != NO_MEMORY
    for block in range(0, seeds.size, LANES):
        count = min(LANES, seeds.size - block)
        lanes = (count + 7) // 8 * 8
        for b in range(lanes):
            seed = seeds[block + min(b, count - 1)]
            seed1[b], seed2[b] = named(seed, FOLDED, m.task)
            draw_clients(m, seed, one, none, unused, b1, b2)
            for d in range(n):
                stays[d, b] = one[0, d]
                e[d, b] = ends[block + min(b, count - 1), d]
                total[d, b] = 0.0
        for t in range(T + 1):
            g, excess, distance = curves[t % 8, 0], curves[t % 8, 1], curves[t % 8, 2]
            for r in range(rows):
                for b in range(lanes):
                    curves[t % 8, r, b] = 0.0
            if t > 0:
                for b in range(lanes):
                    a1, a2 = absorb(seed1[b], seed2[b], U(t))
                    k1[b] = a1
                    k2[b] = a2
            for d in range(n):
                if t > 0:
                    p = m.schedule[t - 1]
                    move, past, mean = p[3] * m.sd_time, p[2], (1.0 - p[3]) * m.loss_shared[d]
                    for b in range(lanes):
                        z1[b], z2[b] = normal_pair(k1[b], k2[b], U(d))
                    keep, weigh, jolt = gain[d], -pull[d], sd[t - 1, d]
                    if remembers:
                        for b in range(lanes):
                            c = fma(past, total[d, b], fma(move, z1[b], stays[d, b] + mean))
                            total[d, b] = fma(m.sd_time, z1[b], total[d, b])
                            e[d, b] = fma(keep, e[d, b], fma(weigh, c, jolt * z2[b]))
                    else:
                        for b in range(lanes):
                            e[d, b] = fma(keep, e[d, b], fma(weigh, stays[d, b], jolt * z2[b]))
                l1, l2, l0 = 0.5 * m.lam[d], m.lam_sq[d], m.counts[d]
                for b in range(lanes):
                    v = e[d, b] * e[d, b]
                    g[b] = fma(l2, v, g[b])
                    excess[b] = fma(l1, v, excess[b])
                    distance[b] = fma(l0, v, distance[b])
                if tasks > 0:
                    moved = curves[t % 8, 3]
                    for b in range(lanes):
                        v = e[d, b] - ends[block + min(b, count - 1), d]
                        moved[b] = fma(v, v, moved[b])
                    for j in range(tasks):
                        other, half, away = curves[t % 8, 4 + j], 0.5 * m.task_lam[j, d], m.task_away[j, d]
                        for b in range(lanes):
                            v = e[d, b] + away
                            other[b] = fma(half * v, v, other[b])
            if t % 8 == 7 or t == T:
                for b in range(count):
                    for i in range(rows):
                        for r in range(t % 8 + 1):
                            out[block + b, i, t - t % 8 + r] = curves[r, i, b]
        for b in range(count):
            for d in range(n):
                ends[block + b, d] = e[d, b]
