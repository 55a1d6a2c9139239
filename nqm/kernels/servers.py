r"""The loops for servers that keep something: momentum, an anchor, controls, Adam's moments, a Kalman filter.

The state is x = (e, ...). Clients start at start.x with their offsets moved by push.x, and then, with d the average of
what they moved by and g that of their exact gradients, x <- carry x + gain d + grad g. Adam and the Kalman filter
replace that last line. One loop serves both engines: `steps` draws every local step, `collapsed` folds the K steps of a
client into one Gaussian, and draws even less where only the clients' average counts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..compiled import aligned
from ..methods import Server
from ..plan import Plan
from .folded import fold
from .model import add, begin, dot, fill, judge, judge_tasks, new_state, sample, scale, zero
from .random import (
    CLIENT,
    FOLDED,
    INTERNAL,
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
    normals,
)

Array = NDArray[np.float64]

LINEAR, ADAM, KALMAN = 0, 1, 2
PRINTED, RAW, CORRECTED, ORACLE = 0, 1, 2, 3


class Rule(NamedTuple):
    """The server's part of a method as numbers; x has as many rows as ``start`` has entries."""

    kind: int
    start: Array
    push: Array
    carry: Array
    gain: Array
    grad: Array
    anchored: Array  # 1 for what begins a task as e
    basis: Array  # U, for what acts on the coordinates of w itself, else (0, 0)
    numbers: Array  # Adam: rate, beta1, beta2, tau. Kalman: rate, given gain or -1
    variances: int  # where the Kalman filter takes its variances from
    controls: bool
    settle: float  # 1 / (K lr), for controls
    cohort: int  # 0: clients work on their own data, 1: on the cohort's pooled, 2: on what sets them apart
    folded: bool
    per_client: bool  # whether a folded round needs every client's own update
    cut: float


def room(m, r: Rule) -> Array:
    """Rows to work in, one set a call."""
    return aligned((19 + 2 * r.start.size, m.lam.size))


def rule(plan: Plan, server: Server, folded: bool) -> Rule:
    """The numbers of a plan's server."""
    method, problem = plan.method, plan.experiment.problem
    kind = {"linear": LINEAR, "adam": ADAM, "kalman": KALMAN}[method.rule]
    anchored = np.zeros(server.start.size)
    anchored[[0, *server.anchored]] = 1.0
    numbers, variances = np.zeros(4), PRINTED
    if kind == ADAM:
        numbers[:] = method.server_lr, method.beta1, method.beta2, method.tau
    if kind == KALMAN:
        numbers[:2] = method.server_lr, -1.0 if method.gain is None else method.gain
        named = {"paper": PRINTED, "raw": RAW, "corrected": CORRECTED, "oracle": ORACLE}
        variances = named[method.variances]
    return Rule(
        kind=kind,
        start=server.start,
        push=server.push,
        carry=server.carry,
        gain=server.gain,
        grad=server.grad,
        anchored=anchored,
        basis=problem.rotation_matrix.copy() if kind == ADAM else np.zeros((0, 0)),
        numbers=numbers,
        variances=variances,
        controls=method.controls,
        settle=1.0 / (plan.federation.local_steps * method.lr),
        cohort=("own", "pooled", "dealt").index(plan.federation.cohort),
        folded=folded,
        per_client=kind == KALMAN or method.controls,
        cut=np.inf if problem.gradient_bound is None else problem.gradient_bound / math.sqrt(problem.dim),
    )


@njit(**INTERNAL)
def combine(a, weights, x):
    """a <- sum_j weights_j x_j"""
    zero(a)
    for j in range(weights.size):
        if weights[j] != 0.0:
            add(a, weights[j], x[j])


@njit(**INTERNAL)
def average(rows, active, count, mean):
    """mean <- the average of the active rows"""
    zero(mean)
    if count > 0:
        for i in range(active.size):
            if active[i]:
                add(mean, 1.0 / count, rows[i])


@njit(**INTERNAL)
def among(a, own, mean, cohort, S):
    """What a client works on: its cohort's mean, or what sets it apart, with the variance of its own."""
    if cohort == 1:
        scale(a, 1.0, mean)
    else:
        stretch = math.sqrt(S / (S - 1.0))
        for d in range(a.size):
            a[d] = stretch * (own[d] - mean[d])


@njit(**INTERNAL)
def bent_judge(m, cut, e, origin, out, t):
    """`model.judge` for losses that are linear where their gradient would exceed ``cut``."""
    g = excess = distance = moved = 0.0
    for d in range(m.dim):
        slope = min(cut, m.lam[d] * abs(e[d]))
        g += slope * slope
        excess += slope * (abs(e[d]) - (0.5 * slope / m.lam[d] if m.lam[d] > 0 else 0.0))
        distance += m.counts[d] * e[d] * e[d]
        moved += (e[d] - origin[d]) ** 2
    out[0, t], out[1, t], out[2, t] = g, excess, distance
    for j in range(m.task_lam.shape[0]):
        out[3, t] = moved
        other = 0.0
        for d in range(m.dim):
            away, lam = abs(e[d] + m.task_away[j, d]), m.task_lam[j, d]
            slope = min(cut, lam * away)
            other += slope * (away - (0.5 * slope / lam if lam > 0 else 0.0))
        out[4 + j, t] = other
    return np.isfinite(g) and np.isfinite(excess) and np.isfinite(distance)


@njit(**INTERNAL)
def bent_steps(m, cut, keys, base, c, extra, curve, local, z1, z2):
    """K local steps with gradients cut off at ``cut`` and two-valued noise."""
    a1, a2 = keys
    for k in range(m.local_steps):
        if k % 2 == 0:
            normals(a1, a2, U((k // 2) * m.dim), z1, z2)
        z = z1 if k % 2 == 0 else z2
        for d in range(m.dim):
            slope = fma(curve[d], fma(m.follow, local[d], base[d]), c[d])
            slope = max(-cut, min(cut, slope))
            slope += extra[d] + m.prox * local[d] + math.copysign(m.sd_noise, z[d])
            local[d] -= m.step * slope


@njit(**INTERNAL)
def adam(m, r, x, update, moments, work):
    """The step of Adam in the coordinates of w, where U^T takes the update and U brings the step back."""
    rate, beta1, beta2, tau = r.numbers[0], r.numbers[1], r.numbers[2], r.numbers[3]
    n = m.dim
    for a in range(n):
        u = 0.0
        for d in range(n):
            u += r.basis[d, a] * update[d]
        moments[0, a] = beta1 * moments[0, a] + (1.0 - beta1) * u
        moments[1, a] = beta2 * moments[1, a] + (1.0 - beta2) * u * u
        work[a] = rate * moments[0, a] / (math.sqrt(moments[1, a]) + tau)
    for d in range(n):
        for a in range(n):
            x[0, d] += r.basis[d, a] * work[a]


@njit(**INTERNAL)
def kalman(m, r, x, update, squares, doubt, expected, out, t):
    """(12b)-(12f) of `fedeve`; x = (e, M), ``update`` = -(observed average), ``squares`` = sum_k ||update_k||^2.

    ``doubt`` is sigma_t^2; ``expected`` = (E||M - observed mean||^2, Var of the observation) for oracle variances.
    Leaves gain and variances in the last three rows of ``out`` and returns sigma_{t+1}^2.
    """
    S, n = m.sampled, m.dim
    apart = mean = 0.0
    for d in range(n):
        apart += (x[1, d] + update[d]) ** 2
        mean += update[d] ** 2
    within = max(0.0, squares - S * mean)
    if r.variances == ORACLE:
        period, client, doubt = expected[0] / n, expected[1] / n, 0.0
    elif r.variances == CORRECTED:
        client = within / (S * (S - 1) * n)
        period = max(0.0, apart / n - doubt - client)
    else:  # (13), or public code's first half of it
        period, client = (apart if r.variances == PRINTED else mean) / (S * n), within / (S * S * n)
    prior = doubt + period  # (12b)
    gain = prior / (prior + client) if prior + client > 0.0 else 1.0  # (12c)
    if r.numbers[1] >= 0.0:
        gain = r.numbers[1]
    for d in range(x.shape[1]):
        x[1, d] = (1.0 - gain) * x[1, d] - gain * update[d]  # (12d)
        x[0, d] -= r.numbers[0] * x[1, d]  # (12e)
    rows = out.shape[0]
    out[rows - 3, t], out[rows - 2, t], out[rows - 1, t] = gain, period, client
    return (1.0 - gain) * prior  # (12f)


@njit(**INTERNAL)
def two_by_two(m, keys, base, stays, order, sd, pull, common, squares, update):
    """Folded updates of all clients at work, the two halves of a pair for two of them: their sum into ``update``.

    Returns the sum of their squared lengths.
    """
    width = update.size
    for d in range(width):
        pull[d] = -m.step * m.summed[d]
        common[d] = pull[d] * m.lam[d] * base[d]
        squares[d] = 0.0
    for q in range(0, m.sampled, 2):
        a1, a2 = absorb(keys[0], keys[1], U(m.clients + 1 + q // 2))
        one, two = stays[order[q]], stays[order[min(q + 1, m.sampled - 1)]]
        both = 1.0 if q + 1 < m.sampled else 0.0
        for d in range(width):
            z1, z2 = normal_pair(a1, a2, U(d))
            u1 = fma(sd[d], z1, fma(pull[d], one[d], common[d]))
            u2 = both * fma(sd[d], z2, fma(pull[d], two[d], common[d]))
            update[d] += u1 + u2
            squares[d] = fma(u1, u1, fma(u2, u2, squares[d]))
    total = 0.0
    for d in range(m.dim):
        total += squares[d]
    return total


@njit(**OPTIONS)
def run(m, r, room, seeds, ends, out):
    """Simulate a task for every seed; see `steps.run`. ``room``: 19 rows to work in, then twice the state."""
    N, K, T, parts = m.clients, m.local_steps, m.schedule.shape[0], r.start.size
    redrawn_slope = m.redrawn and m.sd_slope_client > 0
    state = new_state(m)
    update, base, c, drift, extra = room[0], room[1], room[2], room[3], room[4]
    z1, z2, local, push, keep, curve = room[5], room[6], room[7], room[8], room[9], room[10]
    origin, summed, squares, gradient, white, sd = room[11], room[12], room[13], room[14], room[15], room[16]
    pair, x, new = room[17:19], room[19 : 19 + parts], room[19 + parts : 19 + 2 * parts]
    width = update.size
    moments = np.zeros((2 if r.kind == ADAM else 0, width))
    shared = np.zeros((2, width))
    control = np.zeros((N if r.controls else 0, width))
    order, active = np.arange(N), np.ones(N, dtype=np.bool_)
    expected = np.zeros(2)
    scale(curve, 1.0, m.lam)
    scale(keep, 1.0, m.keep)
    scale(summed, 1.0, m.summed)
    scale(squares, 1.0, m.squares)
    alpha_fresh = math.sqrt(1.0 - m.alpha * m.alpha)
    wants_gradient, several = r.grad.any(), m.task_lam.shape[0] > 0
    # What moves without a memory is white: a folded round draws it with the noise, unless it is felt twice.
    explicit = not r.folded or wants_gradient
    drawn = explicit or m.alpha > 0
    var_moves = m.sd_time**2 + (m.sd_client**2 if m.redrawn else 0.0)
    var_white = 0.0 if explicit else var_moves - (m.sd_time**2 if m.alpha > 0 else 0.0)
    for d in range(width):  # of what a folded client draws
        sd[d] = m.step * math.sqrt(summed[d] * summed[d] * var_white + squares[d] * m.sd_noise**2)
    # The case that matters most for speed: a filter over clients that share one Hessian, with nothing correlated.
    quick = r.kind == KALMAN and r.folded and not m.slopes and m.alpha == 0 and r.cohort == 0
    jolt = -m.step * m.sd_noise

    for s in range(seeds.size):
        time1, time2 = named(seeds[s], FOLDED if r.folded else TIME, m.task)
        noise1, noise2 = named(seeds[s], NOISE, m.task)
        who1, who2 = named(seeds[s], CLIENT, m.task)
        slope1, slope2 = named(seeds[s], SLOPE, m.task)
        pick1, pick2 = named(seeds[s], SAMPLE, m.task)
        begin(m, seeds[s], state, z1, z2)
        fill(moments, 0.0)
        if r.kind == ADAM:
            fill(moments[1:], r.numbers[3] ** 2)
        fill(control, 0.0)
        for j in range(parts):
            scale(x[j], r.anchored[j], ends[s])
        scale(origin, 1.0, ends[s])
        doubt = 0.0
        for row in range(3, out.shape[1]):
            out[s, row, 0] = np.nan
        if r.cut < np.inf:
            fine = bent_judge(m, r.cut, x[0], origin, out[s], 0)
        else:
            fine = judge(m, x[0], z1, out[s], 0)
            if several:
                judge_tasks(m.task_lam, m.task_away, m.dim, x[0], origin, z1, out[s], 0)
        if not fine:
            fill(out[s], np.inf)
            continue

        for t in range(T):
            if m.sampled < N:
                sample(m, pick1, pick2, t, order, active)
            t1, t2 = absorb(time1, time2, U(t + 1))
            n1, n2 = absorb(noise1, noise2, U(t + 1))
            combine(base, r.start, x)
            combine(extra, r.push, x)
            zero(update)
            zero(gradient)
            zero(white)
            if r.cohort > 0:
                average(state.stays, active, m.sampled, shared[0])
                average(state.slope, active, m.sampled if m.slopes else 0, shared[1])
            spread = 0.0  # sum over clients of ||update_i||^2
            rank = 0
            if quick:
                spread = two_by_two(m, (t1, t2), base, state.stays, order, sd, push, local, white, update)

            for i in range(0 if quick else N):
                if not (active[i] or m.alpha > 0):
                    continue
                if r.cohort == 0:
                    scale(c, 1.0, state.stays[i])
                else:
                    among(c, state.stays[i], shared[0], r.cohort, m.sampled)
                if drawn:
                    a1, a2 = absorb(t1, t2, U(i))
                    normals(a1, a2, U(0), z1, z2)
                if m.alpha > 0:
                    fresh = alpha_fresh if t > 0 else 1.0
                    for d in range(width):
                        state.drifting[i, d] = fma(m.alpha, state.drifting[i, d], fresh * z1[d])
                    add(c, m.sd_time, state.drifting[i])
                elif drawn:
                    add(c, m.sd_time, z1)
                if not active[i]:
                    continue
                if m.redrawn and (redrawn_slope or (explicit and m.sd_client > 0)):
                    named_normals(who1, who2, U(t + 1), U(i), z1, drift)
                    if explicit:
                        add(c, m.sd_client, z1)
                if m.slopes:
                    if r.cohort == 0:
                        scale(curve, 1.0, state.slope[i])
                    else:
                        among(curve, state.slope[i], shared[1], r.cohort, m.sampled)
                    if redrawn_slope:
                        add(curve, m.sd_slope_client, drift)
                    if m.sd_slope_time > 0:
                        named_normals(slope1, slope2, U(t + 1), U(i), z1, z2)
                        add(curve, m.sd_slope_time, z1)
                    for d in range(width):
                        curve[d] = m.lam[d] * (1.0 + curve[d])
                        keep[d] = 1.0 - m.step * (m.follow * curve[d] + m.prox)
                    if r.folded:
                        fold(keep, K, summed, squares)
                if wants_gradient:
                    for d in range(width):
                        gradient[d] += max(-r.cut, min(r.cut, fma(curve[d], x[0, d], c[d])))
                for d in range(width):
                    push[d] = -m.step * (fma(curve[d], base[d], c[d]) + extra[d])
                if r.controls:
                    add(push, m.step, control[i])

                if r.cut < np.inf:
                    scale(push, 1.0, extra)
                    if r.controls:
                        add(push, -1.0, control[i])
                    zero(local)
                    bent_steps(m, r.cut, absorb(n1, n2, U(i)), base, c, push, curve, local, z1, z2)
                elif r.folded:
                    for d in range(width):
                        local[d] = summed[d] * push[d]
                    if m.slopes:
                        for d in range(width):
                            var = summed[d] * summed[d] * var_white + squares[d] * m.sd_noise**2
                            sd[d] = m.step * math.sqrt(var)
                    if r.per_client:  # this client's own draw, two clients a pair
                        if rank % 2 == 0:
                            a1, a2 = absorb(t1, t2, U(N + 1 + rank // 2))
                            normals(a1, a2, U(0), pair[0], pair[1])
                        z = pair[rank % 2]
                        rank += 1
                        for d in range(width):
                            local[d] = fma(sd[d], z[d], local[d])
                    else:
                        for d in range(width):
                            white[d] = fma(sd[d], sd[d], white[d])
                else:
                    zero(local)
                    a1, a2 = absorb(n1, n2, U(i))
                    for q in range(K // 2):
                        at = U(q * m.dim)
                        for d in range(width):
                            v1, v2 = normal_pair(a1, a2, at + U(d))
                            half_way = fma(keep[d], local[d], fma(jolt, v1, push[d]))
                            local[d] = fma(keep[d], half_way, fma(jolt, v2, push[d]))
                    if K % 2 == 1:
                        at = U((K // 2) * m.dim)
                        for d in range(width):
                            v1, v2 = normal_pair(a1, a2, at + U(d))
                            local[d] = fma(keep[d], local[d], fma(jolt, v1, push[d]))
                add(update, 1.0, local)
                if r.kind == KALMAN:
                    for d in range(m.dim, width):
                        local[d] = 0.0
                    spread += dot(local, local)
                if r.controls:
                    add(control[i], -1.0, x[1])
                    add(control[i], -r.settle, local)

            if r.folded and not r.per_client:
                a1, a2 = absorb(t1, t2, U(N + 1))
                normals(a1, a2, U(0), z1, z2)
                for d in range(width):
                    update[d] = fma(math.sqrt(white[d]), z1[d], update[d])
            scale(update, 1.0 / m.sampled, update)
            scale(gradient, 1.0 / m.sampled, gradient)
            if r.kind == ADAM:
                adam(m, r, x, update, moments, z1)
            elif r.kind == KALMAN:
                if r.variances == ORACLE:
                    foresee(m, state, base, x, var_moves, expected)
                doubt = kalman(m, r, x, update, spread, doubt, expected, out[s], t + 1)
            else:
                for j in range(parts):
                    combine(new[j], r.carry[j], x)
                    add(new[j], r.gain[j], update)
                    add(new[j], r.grad[j], gradient)
                for j in range(parts):
                    scale(x[j], 1.0, new[j])
            if r.cut < np.inf:
                fine = bent_judge(m, r.cut, x[0], origin, out[s], t + 1)
            else:
                fine = judge(m, x[0], z1, out[s], t + 1)
                if several:
                    judge_tasks(m.task_lam, m.task_away, m.dim, x[0], origin, z1, out[s], t + 1)
            if not fine:
                fill(out[s, :, t + 1 :], np.inf)
                break
        scale(ends[s], 1.0, x[0])


@njit(**INTERNAL)
def foresee(m, state, base, x, var_moves, expected):
    """What the Kalman filter would need to know: E||M - mean observation||^2 and the variance of the observation.

    The mean is over the cohort and all that is drawn in the round, given the clients; no slopes.
    """
    S, N = m.sampled, m.clients
    apart = total = 0.0
    for d in range(m.dim):
        mean = square = 0.0
        for i in range(N):
            mean += state.stays[i, d]
        mean /= N
        for i in range(N):
            square += (state.stays[i, d] - mean) ** 2
        pull = m.step * m.summed[d]
        apart += (x[1, d] - pull * (m.lam[d] * base[d] + mean)) ** 2
        between = square / (N - 1) * (1.0 / S - 1.0 / N) if N > 1 else 0.0
        total += pull * pull * (between + var_moves / S) + m.step**2 * m.squares[d] * m.sd_noise**2 / S
    expected[0], expected[1] = apart, total
