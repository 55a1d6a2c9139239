"""The exact recursion, compiled: the fast twin of `nqm.exact.recursion`, for grids and repeated calls."""

from __future__ import annotations

from numba import njit

from .model import dot
from .random import OPTIONS, fma


@njit(**OPTIONS)
def run(gammas, betas, noises, transition, load, force, white, offset, begin, lam, room, sums):
    """Curves of every method into ``sums``, (4, methods, T + 1).

    They are E||g||^2, the excess loss, the squared distance and the variance of the loss. One method at a time, so
    that all it works on stays in the nearest cache, and moments are summed where they arise.
    ``room``: 9 + factors rows to work in, aligned by the caller, because the compiler's own arrays need not be.
    """
    T, n, m = load.shape[0], lam.size, transition.shape[0]
    e, v, second, fourth, cross = room[0], room[1], room[2], room[3], room[4]
    lam_sq, half_lam, counts, half_lam_sq = room[5], room[6], room[7], room[8]
    k = room[9:]
    for d in range(n):
        lam_sq[d] = lam[d] * lam[d]
        half_lam[d] = 0.5 * lam[d]
        counts[d] = 1.0 if lam[d] > 0 else 0.0
        half_lam_sq[d] = 0.5 * lam[d] * lam[d]
    for r in range(gammas.shape[0]):
        gamma, beta, noise = gammas[r], betas[r], noises[r]
        for d in range(n):
            e[d] = begin[d]
            v[d] = 0.0
        for j in range(m):
            for d in range(n):
                k[j, d] = 0.0
        for t in range(T + 1):
            if t > 0:
                for d in range(n):
                    cross[d] = 0.0
                for j in range(m):
                    weight, push, stay = load[t - 1, j], force[t - 1, j], transition[j, j]
                    for d in range(n):
                        cross[d] = fma(weight, k[j, d], cross[d])
                    # transition is upper triangular: row j needs only rows that have not moved yet
                    if stay != 1.0:
                        for d in range(n):
                            k[j, d] = stay * k[j, d]
                    for i in range(j + 1, m):
                        if transition[j, i] != 0.0:
                            for d in range(n):
                                k[j, d] = fma(transition[j, i], k[i, d], k[j, d])
                    for d in range(n):
                        k[j, d] = fma(gamma[d], k[j, d], -beta[d] * push)
                fresh = white[t - 1]
                for d in range(n):
                    step = fma(beta[d] * beta[d], fresh, noise[d])
                    v[d] = max(0.0, fma(gamma[d], fma(gamma[d], v[d], -2.0 * beta[d] * cross[d]), step))
                if offset.size:
                    shift = offset[t - 1]
                    for d in range(n):
                        e[d] = fma(gamma[d], e[d], -beta[d] * shift[d])
                else:
                    for d in range(n):
                        e[d] = gamma[d] * e[d]
            for d in range(n):
                second[d] = fma(e[d], e[d], v[d])
            for d in range(n):
                fourth[d] = v[d] * (2.0 * second[d] - v[d])
            sums[0, r, t] = dot(lam_sq, second)
            sums[1, r, t] = dot(half_lam, second)
            sums[2, r, t] = dot(counts, second)
            sums[3, r, t] = dot(half_lam_sq, fourth)
