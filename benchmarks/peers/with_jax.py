"""JAX: one compiled function, scans over rounds and local steps, mapped over seeds and clients."""

from __future__ import annotations

import numpy as np

from .work import Array, Run, Work


def prepare(work: Work) -> Run:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    lam, start = jnp.asarray(work.lam), jnp.asarray(work.start)

    def client(e, delta, key):
        def step(w, noise):
            return w - work.lr * (lam * w + delta + work.sd_noise * noise), None

        noise = jax.random.normal(key, (work.local_steps, work.dim), dtype=jnp.float64)
        return jax.lax.scan(step, e, noise)[0]

    def simulate(key):
        first, key = jax.random.split(key)
        delta = work.sd_client * jax.random.normal(first, (work.clients, work.dim), dtype=jnp.float64)

        def one_round(e, key):
            keys = jax.random.split(key, work.clients)
            return jax.vmap(client, in_axes=(None, 0, 0))(e, delta, keys).mean(axis=0), None

        return jax.lax.scan(one_round, start, jax.random.split(key, work.rounds))[0]

    compiled = jax.jit(jax.vmap(simulate))

    def run(stream: int) -> Array:
        return work.excess_loss(np.asarray(compiled(jax.random.split(jax.random.key(stream), work.seeds))))

    return run
