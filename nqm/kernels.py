r"""The compiled loops of the `steps` and `collapsed` engines. `nqm.reference` is their slow, readable twin.

Everything is in the eigenbasis, padded to whole vectors of eight. Random numbers are those of `nqm.draws`, computed where they are
used. Fused multiply-adds are written out, never left to the compiler, so that every machine computes the same bits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from . import draws
from .draws import Purpose

Array = NDArray[np.float64]

# The default error model checks every division and so keeps loops from being vectorised.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "cache": True, "nogil": True}
INLINE: dict[str, Any] = {"error_model": "numpy", "forceinline": True}

NO_MEMORY, ONE_SUM, FOUR_SUMS, TABLE = 0, 1, 2, 3


class Model(NamedTuple):
    """An experiment as numbers. ``sd_`` are standard deviations of one client and one direction; arrays are padded."""

    lam: Array
    lam_sq: Array
    counts: Array  # 1 where lam > 0, for distances
    start: Array
    loss_shared: Array
    given_delta: Array  # (N, width) or (0, 0)
    given_slope: Array
    schedule: Array  # (T, 4): first, middle, previous, current
    rows: Array  # (T, T) for a table, else (0, 0)
    folded_sd: Array  # (T, width): all white noise of a round, folded; (0, 0) where it isn't used
    memory: int
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


@intrinsic  # type: ignore[misc]
def _as_float(typingctx: Any, x: Any) -> Any:  # the float with these 64 bits
    return types.float64(types.uint64), lambda ctx, builder, sig, args: builder.bitcast(args[0], ir.DoubleType())


@intrinsic  # type: ignore[misc]
def _as_bits(typingctx: Any, x: Any) -> Any:  # the 64 bits of this float
    return types.uint64(types.float64), lambda ctx, builder, sig, args: builder.bitcast(args[0], ir.IntType(64))


@intrinsic  # type: ignore[misc]
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a*b + c, rounded once."""
    return types.float64(types.float64, types.float64, types.float64), lambda ctx, builder, sig, args: builder.fma(*args)


U = np.uint64
ONE = U(0x3FF0000000000000)
SQRT_HALF = U(0x3FE6A09E667F3BCD)
MANTISSA = U(0x000FFFFFFFFFFFFF)
MAGIC = U(0x4330000000000000)  # 2^52: integers below it sit in its mantissa
LN2 = math.log(2.0)
G, M1, M2, START1, START2 = draws.G, draws.M1, draws.M2, draws.START1, draws.START2
# Plain integers, because a compiled loop can't use an enum as an unsigned word.
CLIENT, COMMON, TIME = U(Purpose.CLIENT), U(Purpose.COMMON), U(Purpose.TIME)
SLOPE, NOISE, SAMPLE = U(Purpose.SLOPE), U(Purpose.NOISE), U(Purpose.SAMPLE)


@njit(**INLINE)
def mix(z):  # type: ignore[no-untyped-def]
    z = (z ^ (z >> U(30))) * M1
    z = (z ^ (z >> U(27))) * M2
    return z ^ (z >> U(31))


@njit(**INLINE)
def absorb(k1, k2, value):  # type: ignore[no-untyped-def]
    part = (U(value) + U(1)) * G
    return mix(k1 ^ part), mix(k2 + part)


@njit(**INLINE)
def word(k1, k2, c):  # type: ignore[no-untyped-def]
    z = c * G + k1
    z = (z ^ (z >> U(30))) * M1
    z = z ^ k2
    z = (z ^ (z >> U(27))) * M2
    return z ^ (z >> U(31))


@njit(**INLINE)
def normal_pair(k1, k2, c):  # type: ignore[no-untyped-def]
    """`draws.normal_pairs` for one counter, with the polynomials of fdlibm so that loops over it vectorise."""
    h1 = word(k1, k2, c + c)
    h2 = word(k1, k2, c + c + U(1))
    # log u for u in (0, 1]: split u = 2^x m with m in [sqrt(1/2), sqrt(2))
    b = _as_bits(2.0 - _as_float((h1 >> U(12)) | ONE)) + (ONE - SQRT_HALF)
    x = _as_float((b >> U(52)) | MAGIC) - (4503599627370496.0 + 1023.0)
    f = _as_float((b & MANTISSA) + SQRT_HALF) - 1.0
    s = f / (2.0 + f)
    z = s * s
    p = fma(z, 1.479819860511658591e-01, 1.531383769920937332e-01)
    p = fma(z, p, 1.818357216161805012e-01)
    p = fma(z, p, 2.222219843214978396e-01)
    p = fma(z, p, 2.857142874366239149e-01)
    p = fma(z, p, 3.999999999940941908e-01)
    p = fma(z, p, 6.666666666666735130e-01)
    half = 0.5 * f * f
    log_u = fma(x, LN2, f - (half - s * fma(z, p, half)))
    radius = math.sqrt(-2.0 * log_u)
    # an angle in [-pi/4, pi/4), then swap and signs from the low bits
    t = (_as_float((h2 >> U(12)) | ONE) - 1.5) * (math.pi / 2)
    y = t * t
    p = fma(y, 1.58969099521155010221e-10, -2.50507602534068634195e-08)
    p = fma(y, p, 2.75573137070700676789e-06)
    p = fma(y, p, -1.98412698298579493134e-04)
    p = fma(y, p, 8.33333333332248946124e-03)
    p = fma(y, p, -1.66666666666666324348e-01)
    sin = t * fma(y, p, 1.0)
    p = fma(y, -1.13596475577881948265e-11, 2.08757232129817482790e-09)
    p = fma(y, p, -2.75573143513906633035e-07)
    p = fma(y, p, 2.48015872894767294178e-05)
    p = fma(y, p, -1.38888888888741095749e-03)
    p = fma(y, p, 4.16666666666666019037e-02)
    cos = fma(y, fma(y, p, -0.5), 1.0)
    swap = (h2 & U(1)) != U(0)
    one = radius * (sin if swap else cos)
    two = radius * (cos if swap else sin)
    return _as_float(_as_bits(one) ^ ((h2 & U(2)) << U(62))), _as_float(_as_bits(two) ^ ((h2 & U(4)) << U(61)))


@njit(**OPTIONS)
def normals(k1, k2, start, cos, sin):  # type: ignore[no-untyped-def]
    """Fill two arrays with the pairs of a stream from number ``start`` on; `draws.normal_pairs` is its twin."""
    for d in range(cos.size):
        cos[d], sin[d] = normal_pair(k1, k2, start + U(d))


@njit(**OPTIONS)
def named_normals(k1, k2, round, client, cos, sin):  # type: ignore[no-untyped-def]
    """The pairs of the stream that (k1, k2) names for a round and a client."""
    k1, k2 = absorb(k1, k2, round)
    k1, k2 = absorb(k1, k2, client)
    normals(k1, k2, U(0), cos, sin)


@njit(**INLINE)
def _sum(weight, e):  # type: ignore[no-untyped-def]
    """sum weight e^2 in a fixed order of eight lanes, the same on every machine."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for d in range(0, e.size, 8):
        s0 = fma(weight[d] * e[d], e[d], s0)
        s1 = fma(weight[d + 1] * e[d + 1], e[d + 1], s1)
        s2 = fma(weight[d + 2] * e[d + 2], e[d + 2], s2)
        s3 = fma(weight[d + 3] * e[d + 3], e[d + 3], s3)
        s4 = fma(weight[d + 4] * e[d + 4], e[d + 4], s4)
        s5 = fma(weight[d + 5] * e[d + 5], e[d + 5], s5)
        s6 = fma(weight[d + 6] * e[d + 6], e[d + 6], s6)
        s7 = fma(weight[d + 7] * e[d + 7], e[d + 7], s7)
    return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


@njit(**OPTIONS)
def _remember(kind, p, t, x, h, total, first, previous, past, row):  # type: ignore[no-untyped-def]
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


@njit(**OPTIONS)
def run(m, seeds, folded, out):  # type: ignore[no-untyped-def]
    """Simulate every seed; ``out`` is (seeds, 3, T + 1): squared gradient norm, excess loss, squared distance.

    folded: K local steps as one Gaussian map, the same in law; otherwise every local step is drawn.
    """
    width, N, K, T = m.lam.size, m.clients, m.local_steps, m.schedule.shape[0]
    moving = m.slopes and (m.sd_slope_time > 0 or (m.redrawn and m.sd_slope_client > 0))
    # What the memory doesn't need is one row that nobody reads.
    four = N if m.memory == FOUR_SUMS else 1
    table = N if m.memory == TABLE else 1
    total, first, previous = np.zeros((N, width)), np.zeros((four, width)), np.zeros((four, width))
    past = np.zeros((table, T if m.memory == TABLE else 1, width))
    s_total, s_first, s_previous, s_past = total, first, previous, past
    if moving:
        s_total, s_first, s_previous = np.zeros_like(total), np.zeros_like(first), np.zeros_like(previous)
        s_past = np.zeros_like(past)
    drifting, stays, own_loss = np.zeros((N, width)), np.zeros((N, width)), np.zeros((N, width))
    slope = np.zeros((N if m.slopes else 1, width))
    e, update, c, x, h = np.empty(width), np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    z1, z2, local, push, keep = np.empty(width), np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    curve, summed, folded_sd = np.empty(width), np.empty(width), np.empty(width)
    order, active = np.arange(N), np.ones(N, dtype=np.bool_)
    everyone = m.sampled == N
    # A client that isn't at work still drifts, and that matters only if somebody will remember.
    all_drift = m.memory != NO_MEMORY or m.alpha > 0
    alpha_fresh = math.sqrt(1.0 - m.alpha * m.alpha)
    nothing = np.zeros(0)

    # Without slopes all clients share one map: keep = a, and summed = 1 + a + ... + a^(K-1).
    for d in range(width):
        curve[d] = m.lam[d]
        keep[d] = 1.0 - m.step * (m.follow * m.lam[d] + m.prox)
        summed[d] = 0.0
    for _ in range(K):
        for d in range(width):
            summed[d] = fma(summed[d], keep[d], 1.0)

    for s in range(seeds.size):
        k1, k2 = absorb(START1, START2, seeds[s])
        time1, time2 = absorb(k1, k2, TIME)
        time1, time2 = absorb(time1, time2, U(0))
        noise1, noise2 = absorb(k1, k2, NOISE)
        noise1, noise2 = absorb(noise1, noise2, U(0))
        who1, who2 = absorb(k1, k2, CLIENT)
        who1, who2 = absorb(who1, who2, U(0))
        common1, common2 = absorb(k1, k2, COMMON)
        common1, common2 = absorb(common1, common2, U(0))
        slope1, slope2 = absorb(k1, k2, SLOPE)
        slope1, slope2 = absorb(slope1, slope2, U(0))
        pick1, pick2 = absorb(k1, k2, SAMPLE)
        pick1, pick2 = absorb(pick1, pick2, U(0))

        total[:] = 0.0
        first[:] = 0.0
        previous[:] = 0.0
        s_total[:] = 0.0
        s_first[:] = 0.0
        s_previous[:] = 0.0
        drifting[:] = 0.0
        stays[:] = 0.0
        for i in range(N):
            if not m.redrawn and m.given_delta.size:
                for d in range(width):
                    stays[i, d] = m.given_delta[i, d]
                if m.slopes:
                    for d in range(width):
                        slope[i, d] = m.given_slope[i, d]
            elif not m.redrawn and (m.sd_client > 0 or m.sd_slope_client > 0):
                named_normals(who1, who2, U(0), U(i), z1, z2)
                for d in range(width):
                    stays[i, d] = m.sd_client * z1[d]
                if m.slopes:
                    for d in range(width):
                        slope[i, d] = m.sd_slope_client * z2[d]
            elif m.slopes:
                slope[i, :] = 0.0
            if m.sd_common > 0 or (m.sd_loss_client > 0 and not m.stateless):
                named_normals(common1, common2, U(0), U(i), z1, z2)
                for d in range(width):
                    stays[i, d] = fma(m.sd_common, z1[d], stays[i, d])
                for d in range(width):
                    own_loss[i, d] = m.sd_loss_client * z2[d]

        for d in range(width):
            e[d] = m.start[d]
        out[s, 0, 0] = _sum(m.lam_sq, e)
        out[s, 1, 0] = 0.5 * _sum(m.lam, e)
        out[s, 2, 0] = _sum(m.counts, e)

        for t in range(T):
            p = m.schedule[t]
            forgotten = 1.0 - p[3]
            row = m.rows[t] if m.memory == TABLE else nothing
            if not everyone:
                r1, r2 = absorb(pick1, pick2, U(t + 1))
                r1, r2 = absorb(r1, r2, U(0))
                for i in range(N):
                    order[i] = i
                    active[i] = False
                for i in range(m.sampled):
                    u = (float(word(r1, r2, U(i)) >> U(12)) + 0.5) * 2.220446049250313e-16
                    j = i + int(u * (N - i))
                    swap = order[i]
                    order[i] = order[j]
                    order[j] = swap
                    active[order[i]] = True
            t1, t2 = absorb(time1, time2, U(t + 1))
            n1, n2 = absorb(noise1, noise2, U(t + 1))
            for d in range(width):
                update[d] = 0.0

            for i in range(N):
                if not (active[i] or all_drift):
                    continue
                j4 = i if m.memory == FOUR_SUMS else 0
                jt = i if m.memory == TABLE else 0
                # this round's drift, x, and z2, the random part of the information loss
                a1, a2 = absorb(t1, t2, U(i))
                for d in range(width):
                    z1[d], z2[d] = normal_pair(a1, a2, U(d))
                if m.alpha > 0:
                    fresh = alpha_fresh if t > 0 else 1.0
                    for d in range(width):
                        drifting[i, d] = fma(m.alpha, drifting[i, d], fresh * z1[d])
                        x[d] = m.sd_time * drifting[i, d]
                else:
                    for d in range(width):
                        x[d] = m.sd_time * z1[d]
                if m.redrawn and (m.sd_client > 0 or m.sd_slope_client > 0):
                    named_normals(who1, who2, U(t + 1), U(i), z1, local)  # local: the redrawn slope, used below
                    for d in range(width):
                        x[d] = fma(m.sd_client, z1[d], x[d])
                if m.memory == NO_MEMORY:
                    for d in range(width):
                        c[d] = stays[i, d] + x[d]
                elif m.memory == ONE_SUM:
                    for d in range(width):
                        c[d] = fma(p[2], total[i, d], fma(p[3], x[d], stays[i, d]))
                    for d in range(width):
                        total[i, d] += x[d]
                else:
                    _remember(m.memory, p, t, x, h, total[i], first[j4], previous[j4], past[jt], row)
                    for d in range(width):
                        c[d] = stays[i, d] + h[d]
                if forgotten != 0.0:
                    if m.sd_loss_client > 0:
                        if m.stateless:
                            named_normals(common1, common2, U(t + 1), U(i), z1, x)
                            for d in range(width):
                                c[d] = fma(forgotten * m.sd_loss_client, x[d], c[d])
                        else:
                            for d in range(width):
                                c[d] = fma(forgotten, own_loss[i, d], c[d])
                    for d in range(width):
                        c[d] = fma(forgotten, m.loss_shared[d], c[d])
                    if m.sd_loss > 0 and not folded:
                        for d in range(width):
                            c[d] = fma(forgotten * m.sd_loss, z2[d], c[d])

                # this client's curvature, where it has one of its own
                if m.slopes:
                    if moving:
                        for d in range(width):
                            x[d] = 0.0
                        if m.sd_slope_time > 0:
                            named_normals(slope1, slope2, U(t + 1), U(i), z1, push)
                            for d in range(width):
                                x[d] = m.sd_slope_time * z1[d]
                        if m.redrawn and m.sd_slope_client > 0:
                            for d in range(width):
                                x[d] = fma(m.sd_slope_client, local[d], x[d])
                        _remember(m.memory, p, t, x, h, s_total[i], s_first[j4], s_previous[j4], s_past[jt], row)
                    else:
                        for d in range(width):
                            h[d] = 0.0
                    for d in range(width):
                        curve[d] = m.lam[d] * (1.0 + slope[i, d] + h[d])
                        keep[d] = 1.0 - m.step * (m.follow * curve[d] + m.prox)
                if not active[i]:
                    continue

                for d in range(width):
                    push[d] = -m.step * fma(curve[d], e[d], c[d])
                if folded:
                    if m.slopes:  # fold this client's own K steps
                        for d in range(width):
                            summed[d] = 0.0
                            local[d] = 0.0
                        for _ in range(K):
                            for d in range(width):
                                summed[d] = fma(summed[d], keep[d], 1.0)
                                local[d] = fma(local[d], keep[d] * keep[d], 1.0)
                        for d in range(width):
                            loss = forgotten * m.sd_loss * summed[d]
                            folded_sd[d] = m.step * math.sqrt(loss * loss + local[d] * m.sd_noise * m.sd_noise)
                        for d in range(width):
                            update[d] += fma(summed[d], push[d], folded_sd[d] * z2[d])
                    else:
                        sd = m.folded_sd[t]
                        for d in range(width):
                            update[d] += fma(summed[d], push[d], sd[d] * z2[d])
                else:
                    # d <- a d + push - step nu, two steps at a time, one from each half of a pair
                    a1, a2 = absorb(n1, n2, U(i))
                    jolt = -m.step * m.sd_noise
                    for d in range(width):
                        local[d] = 0.0
                    if jolt == 0.0:
                        for _ in range(K):
                            for d in range(width):
                                local[d] = fma(keep[d], local[d], push[d])
                    else:
                        for q in range(K // 2):
                            base = U(q * m.dim)
                            for d in range(width):
                                v1, v2 = normal_pair(a1, a2, base + U(d))
                                half_way = fma(keep[d], local[d], fma(jolt, v1, push[d]))
                                local[d] = fma(keep[d], half_way, fma(jolt, v2, push[d]))
                        if K % 2 == 1:
                            base = U((K // 2) * m.dim)
                            for d in range(width):
                                v1, v2 = normal_pair(a1, a2, base + U(d))
                                local[d] = fma(keep[d], local[d], fma(jolt, v1, push[d]))
                    for d in range(width):
                        update[d] += local[d]

            share = m.server / m.sampled
            for d in range(width):
                e[d] = fma(share, update[d], e[d])
            g = _sum(m.lam_sq, e)
            excess = 0.5 * _sum(m.lam, e)
            distance = _sum(m.counts, e)
            out[s, 0, t + 1] = g
            out[s, 1, t + 1] = excess
            out[s, 2, t + 1] = distance
            if not (math.isfinite(g) and math.isfinite(excess) and math.isfinite(distance)):
                out[s, :, t + 1 :] = np.inf
                break


@njit(**OPTIONS)
def random_floor(seeds, width, pairs):  # type: ignore[no-untyped-def]
    """Draw ``pairs`` vectors of normal pairs a seed and only add them up: the least that step-level sampling can cost."""
    acc = np.zeros(width)
    for s in range(seeds.size):
        k1, k2 = absorb(START1, START2, seeds[s])
        for q in range(pairs):
            base = U(q * width)
            for d in range(width):
                v1, v2 = normal_pair(k1, k2, base + U(d))
                acc[d] += v1 + v2
    return acc.sum()
