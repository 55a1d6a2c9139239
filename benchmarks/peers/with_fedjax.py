"""FedJAX: its own federated averaging. A client's data is its drift; the gradient adds the step noise.

FedJAX has no axis for seeds, and runs every local step as a compiled call of its own, one client after the other: what
pays for a deep network is what costs here.
"""

from __future__ import annotations

import numpy as np

from .work import Array, Run, Work


def prepare(work: Work) -> Run:
    import jax
    import jax.numpy as jnp

    vars(jax).setdefault("tree_map", jax.tree.map)  # FedJAX 0.0.17 calls it by a name that newer JAX has not
    import fedjax
    from fedjax.algorithms import fed_avg

    jax.config.update("jax_enable_x64", True)
    lam, start = jnp.asarray(work.lam), jnp.asarray(work.start)

    def gradient(w, batch, key):
        return lam * w + batch["delta"][0] + work.sd_noise * jax.random.normal(key, lam.shape, dtype=jnp.float64)

    batches = fedjax.ShuffleRepeatBatchHParams(
        batch_size=1, num_epochs=None, num_steps=work.local_steps, skip_shuffle=True
    )
    algorithm = fed_avg.federated_averaging(
        gradient, fedjax.optimizers.sgd(work.lr), fedjax.optimizers.sgd(1.0), batches
    )

    def run(stream: int) -> Array:
        first, rest = jax.random.split(jax.random.key(stream))
        delta = np.asarray(work.sd_client * jax.random.normal(first, (work.clients, work.dim), dtype=jnp.float64))
        data = [fedjax.ClientDataset({"delta": row[None]}) for row in delta]
        keys = jax.random.split(rest, (work.rounds, work.clients))
        state = algorithm.init(start)
        for t in range(work.rounds):
            state, _ = algorithm.apply(state, list(zip(range(work.clients), data, keys[t], strict=True)))
        return work.excess_loss(np.asarray(state.params)[None])

    return run
