"""PyTorch: one tensor over seeds and clients, no gradients recorded, in place."""

from __future__ import annotations

from .work import Array, Run, Work


def prepare(work: Work) -> Run:
    import torch

    shape = (work.seeds, work.clients, work.dim)
    lam = torch.from_numpy(work.lam)
    keep, start = 1.0 - work.lr * lam, torch.from_numpy(work.start)
    local, noise = torch.empty(shape, dtype=torch.float64), torch.empty(shape, dtype=torch.float64)
    generator = torch.Generator()

    @torch.no_grad()
    def run(stream: int) -> Array:
        generator.manual_seed(stream)
        delta = torch.randn(shape, generator=generator, dtype=torch.float64).mul_(-work.lr * work.sd_client)
        e = start.repeat(work.seeds, 1)
        for _ in range(work.rounds):
            push = delta - (work.lr * lam * e).unsqueeze(1)
            local.zero_()
            for _ in range(work.local_steps):
                noise.normal_(generator=generator)
                local.mul_(keep).add_(push).add_(noise, alpha=-work.lr * work.sd_noise)
            e += local.mean(dim=1)
        return work.excess_loss(e.numpy())

    return run
