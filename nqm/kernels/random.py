r"""Random numbers inside compiled loops: the named draws of `nqm.draws`, written so that loops over them vectorise.

Fused multiply-adds are written out, never left to the compiler, so that every machine computes the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from .. import draws
from ..draws import Purpose

# The default error model checks every division and so keeps loops from being vectorised.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "cache": True, "nogil": True}
INLINE: dict[str, Any] = {
    "error_model": "numpy",
    "forceinline": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
# What only other compiled functions call needs no door to Python, which takes a while to build.
INTERNAL: dict[str, Any] = OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@intrinsic
def _as_float(typingctx: Any, x: Any) -> Any:  # the float with these 64 bits
    return types.float64(types.uint64), lambda ctx, builder, sig, args: builder.bitcast(args[0], ir.DoubleType())


@intrinsic
def _as_bits(typingctx: Any, x: Any) -> Any:  # the 64 bits of this float
    return types.uint64(types.float64), lambda ctx, builder, sig, args: builder.bitcast(args[0], ir.IntType(64))


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a*b + c, rounded once."""
    return types.float64(types.float64, types.float64, types.float64), lambda ctx, builder, sig, args: builder.fma(
        *args
    )


U = np.uint64
ONE = U(0x3FF0000000000000)
SQRT_HALF = U(0x3FE6A09E667F3BCD)
MANTISSA = U(0x000FFFFFFFFFFFFF)
MAGIC = U(0x4330000000000000)  # 2^52: integers below it sit in its mantissa
LN2 = math.log(2.0)
G, M1, M2, START1, START2 = draws.G, draws.M1, draws.M2, draws.START1, draws.START2
# Plain integers, because a compiled loop can't use an enum as an unsigned word.
CLIENT, COMMON, TIME = U(Purpose.CLIENT), U(Purpose.COMMON), U(Purpose.TIME)
SLOPE, NOISE, SAMPLE, FOLDED = U(Purpose.SLOPE), U(Purpose.NOISE), U(Purpose.SAMPLE), U(Purpose.FOLDED)
DATA, PICK, MEMORY = U(Purpose.DATA), U(Purpose.PICK), U(Purpose.MEMORY)


@njit(**INLINE)
def mix(z):
    z = (z ^ (z >> U(30))) * M1
    z = (z ^ (z >> U(27))) * M2
    return z ^ (z >> U(31))


@njit(**INLINE)
def absorb(k1, k2, value):
    part = (U(value) + U(1)) * G
    return mix(k1 ^ part), mix(k2 + part)


@njit(**INLINE)
def named(seed, purpose, task):
    """The key of (seed, purpose, task), still to be extended by round and client."""
    k1, k2 = absorb(START1, START2, seed)
    k1, k2 = absorb(k1, k2, purpose)
    return absorb(k1, k2, U(task))


@njit(**INLINE)
def word(k1, k2, c):
    z = c * G + k1
    z = (z ^ (z >> U(30))) * M1
    z = z ^ k2
    z = (z ^ (z >> U(27))) * M2
    return z ^ (z >> U(31))


@njit(**INLINE)
def normal_pair(k1, k2, c):
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
def normals(k1, k2, start, cos, sin):
    """Fill two arrays with the pairs of a stream from number ``start`` on; `draws.normal_pairs` is its twin."""
    for d in range(cos.size):
        cos[d], sin[d] = normal_pair(k1, k2, start + U(d))


@njit(**INTERNAL)
def named_normals(k1, k2, round, client, cos, sin):
    """The pairs of the stream that (k1, k2) names for a round and a client."""
    k1, k2 = absorb(k1, k2, round)
    k1, k2 = absorb(k1, k2, client)
    normals(k1, k2, U(0), cos, sin)


@njit(**OPTIONS)
def random_floor(seeds, width, pairs):
    """Draw ``pairs`` vectors of normal pairs a seed and only add them up: the least that sampling every step costs."""
    acc = np.zeros(width)
    for s in range(seeds.size):
        k1, k2 = absorb(START1, START2, seeds[s])
        for q in range(pairs):
            base = U(q * width)
            for d in range(width):
                v1, v2 = normal_pair(k1, k2, base + U(d))
                acc[d] += v1 + v2
    return acc.sum()
