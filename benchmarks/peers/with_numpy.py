"""NumPy: vectorised over seeds and clients, in place, drawing nothing that is not used."""

from __future__ import annotations

import numpy as np

from .work import Array, Run, Work


def prepare(work: Work) -> Run:
    shape = (work.seeds, work.clients, work.dim)
    lam, keep = work.lam, 1.0 - work.lr * work.lam
    local, noise = np.empty(shape), np.empty(shape)

    def run(stream: int) -> Array:
        rng = np.random.default_rng(stream)
        delta = (-work.lr * work.sd_client) * rng.standard_normal(shape)
        e = np.tile(work.start, (work.seeds, 1))
        for _ in range(work.rounds):
            # d <- (1 - lr lambda) d - lr (lambda e + delta + nu) for d = w_k - w_0
            push = delta - (work.lr * lam * e)[:, None, :]
            local[:] = 0.0
            for _ in range(work.local_steps):
                rng.standard_normal(out=noise)
                np.multiply(noise, -work.lr * work.sd_noise, out=noise)
                np.multiply(local, keep, out=local)
                np.add(local, push, out=local)
                np.add(local, noise, out=local)
            e += local.mean(axis=1)
        return work.excess_loss(e)

    return run
