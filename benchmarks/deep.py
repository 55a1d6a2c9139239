"""Local training at once (`torch.func.vmap`) against the loop: clients per second on a CPU."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

STEPS = 5


def run(quick: bool = False, threads: int = 1) -> list[dict[str, Any]]:
    """Rows of one round of FedAvg, K = 5 local steps, 28x28 images: model, parameters, batch, clients, both rates.

    The times of both ways are taken in turns, so that a busy neighbour disturbs them alike; medians.
    """
    import torch

    from deep.methods import FedAvg
    from deep.models import MLP, LeNet5
    from deep.train import Fixed, Training, train

    source = torch.Generator().manual_seed(0)
    models: dict[str, torch.nn.Module] = {
        "MLP, 32 hidden": MLP((1, 28, 28), 10, hidden=32),
        "MLP, 200 hidden": MLP((1, 28, 28), 10),
        "LeNet-5": LeNet5((1, 28, 28), 10),
    }
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    rows = []
    try:
        for clients in (16, 64) if quick else (16, 32, 64):
            shards = [
                (torch.rand(160, 1, 28, 28, generator=source), torch.randint(0, 10, (160,), generator=source))
                for _ in range(clients)
            ]
            for name, model in models.items():
                for batch in (10,) if quick else (10, 32):
                    times: dict[str, list[float]] = {"on": [], "off": []}
                    for repeat in range(4 if quick else 8):
                        for way, taken in times.items():
                            settings = Training(
                                rounds=1, local_steps=STEPS, batch=batch, vmap=way, evaluate_every=0, device="cpu"
                            )
                            begin = time.perf_counter()
                            train(model, Fixed([shards]), FedAvg(0.01), settings)
                            if repeat:  # the first is a warm-up
                                taken.append(time.perf_counter() - begin)
                    at_once, looped = (clients / float(np.median(times[way])) for way in ("on", "off"))
                    rows.append(
                        {
                            "model": name,
                            "parameters": sum(p.numel() for p in model.parameters()),
                            "batch": batch,
                            "clients": clients,
                            "at_once_per_second": at_once,
                            "looped_per_second": looped,
                            "ratio": at_once / looped,
                        }
                    )
    finally:
        torch.set_num_threads(before)
    return rows
