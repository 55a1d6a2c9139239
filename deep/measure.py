r"""The constants of the theory, measured on a network: G², D², R², σ², L and μ at given parameters.

A gradient on some samples of client i in round t is taken apart as the model does it,

    g_{t,i,k}(w) = grad f(w) + delta_i + xi_{t,i} + nu_{t,i,k},

three nested random effects, whose variances are estimated without bias by the analysis of variance: each level's
spread, less what the level below leaks into it. Such an estimate can be negative where the truth is small.

What feeds `nqm` is a quadratic of few dimensions: m steps of Lanczos from grad f give m eigenvalues and the shares of
the gradient along them, with which gradient descent has, for m - 1 steps, the very gradient norms that it has on the
full quadratic (Gauss quadrature). The model spreads drift evenly over these dimensions, which networks do not.

found = measure(model, dict(model.named_parameters()), data, batch=32)
curve = nqm.expect(found.problem(), found.drift(), nqm.Federation(clients=7, rounds=50), nqm.FedAvg(lr=0.01))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from nqm import Clients, Drift, Federation, InvalidInput, Quadratic, draw_clients
from nqm.check import fail, integer, memory

from .draws import numpy_generator
from .network import classification

Params = dict[str, Tensor]
Data = Sequence[Sequence[tuple[Tensor, Tensor] | None]]
"""[round][client]: samples and labels, or None for a client that is not there."""
Remembered = Sequence[Sequence[tuple[Tensor, Tensor] | Params | None]]
"""[round][client]: a core set (samples, labels), or the gradient by which a method stands in for the lost data."""
Losses = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Components:
    """Variances of client gradients; see `components`. `mean` is the gradient of the global objective."""

    G2: float
    D2: float
    noise: float
    sampling: float
    mean: Tensor


@dataclass(frozen=True)
class Measured:
    """Constants at one point w.

    G2, D2: G² and D² of the clients' distributions, the noise of their finite data sets subtracted.
    noise: σ² of one sample. sampling: the mean of σ²/n over data sets of n samples: what their finite size adds to D².
    grad_sq: ||grad f||² on all the data.
    R2: the mean of ||Delta||², and R2_shared: of that, the square of the mean Delta, which averaging over clients and
        rounds does not remove (without bias, so it can be negative); None where nothing is remembered.
    L, mu: the ends of the spectrum of the Hessian of f, from inside, and how far an eigenvalue may be from each.
        mu is negative where the loss is not convex.
    diagonal, side: the matrix of Lanczos from grad f. batch: of a training step. size: the number of parameters.
    """

    G2: float
    D2: float
    noise: float
    sampling: float
    grad_sq: float
    R2: float | None
    R2_shared: float | None
    L: float
    mu: float
    L_error: float
    mu_error: float
    diagonal: tuple[float, ...]
    side: tuple[float, ...]
    batch: int
    size: int

    def drift(self, dim: int | None = None, *, finite: bool = True) -> Drift:
        """The drift of a federation that trains like this, negative estimates taken for 0.

        finite: clients draw batches, without replacement within a batch, from their data set of the round. Its gradient
        differs from that of the distribution by `sampling`, the same in all steps of a round: part of the time
        drift, and no longer of the noise. Otherwise every step has new samples. dim: of the problem, as for `problem`.
        """
        extra = self.sampling if finite else 0.0
        loss_mean = loss_var = 0.0
        if self.R2 is not None and self.R2_shared is not None:
            m = self._dim(dim)
            shared = min(max(self.R2_shared, 0.0), self.R2)
            loss_mean, loss_var = (shared / m) ** 0.5, (self.R2 - shared) / m
        return Drift(
            client=max(self.G2, 0.0),
            time=max(self.D2 + extra, 0.0),
            noise=max(self.noise / self.batch - extra, 0.0),
            loss_mean=loss_mean,
            loss_var=loss_var,
        )

    def problem(self, dim: int | None = None) -> Quadratic:
        """The quadratic in ``dim`` dimensions (by default as many as were measured) whose start has this gradient.

        Directions of negative curvature have no minimum: they become flat, with the gradient along them left out.
        `concave` says how much of it that is.
        """
        values, shares = self._nodes(dim)
        values, shares = np.where(values > 0, values, 0.0), np.where(values > 0, shares, 0.0)
        if not values.any():
            raise InvalidInput(f"problem: no positive curvature among {len(values)} directions: there is no quadratic")
        b = np.sqrt(self.grad_sq * shares)
        return Quadratic(dim=len(values), spectrum=tuple(values), rotation="none", b=tuple(b), w0=0.0)

    def clients(self, number: int, dim: int | None = None, seed: int = 0) -> Clients:
        """That many clients, to be passed to `nqm.expect`, with sum delta_i = 0 and sum ||delta_i||² = (N - 1) G².

        The mean drift of clients that `nqm` draws is not zero and adds G²/N to ||grad f||². That is right where f is
        the loss of a population and they are a sample of it, and wrong where f is the mean over these very clients.
        """
        federation = Federation(clients=integer("clients", number, 2))
        drawn = draw_clients(self.problem(dim), Drift(client=1.0), federation, seed)
        centred = drawn.delta - drawn.delta.mean(axis=0)
        scale = max(self.G2, 0.0) * (number - 1) / np.sum(centred**2)
        return Clients(np.sqrt(scale) * centred, drawn.slope)

    def concave(self, dim: int | None = None) -> float:
        """The share of ||grad f||² along directions without positive curvature."""
        values, shares = self._nodes(dim)
        return float(shares[values <= 0].sum())

    def _dim(self, dim: int | None) -> int:
        most = len(self.diagonal)
        if dim is None:
            return most
        if integer("dim", dim, 1) > most:
            raise fail("dim", dim, f"must be at most the {most} directions that were measured")
        return dim

    def _nodes(self, dim: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues, and the shares of the gradient along them: the Gauss quadrature of the leading block."""
        m = self._dim(dim)
        values, vectors = np.linalg.eigh(_tridiagonal(self.diagonal[:m], self.side[: m - 1]))
        return values, vectors[0] ** 2


def components(cells: Iterable[tuple[int, Sequence[int], Tensor]], *, exhaustive: bool = False) -> Components:
    r"""Variance components from (client, sizes of chunks, mean gradients of the chunks), one a client and round.

    With C chunks of m_c samples, n in all, and T_i rounds of client i:

        noise     s² = sum_c m_c ||g_c - g||² / (C - 1)            has mean sigma²
        rounds    v_i = sum_t ||g_{t,i} - g_i||² / (T_i - 1)       has mean D² + sigma²/n
        clients   u = sum_i ||g_i - g||² / (N - 1)                 has mean G² + mean of v_i / T_i

    exhaustive: the rounds listed are all that a client ever has, such as its 30 subsets in `cfl`, of which a round
    draws one. Then g_i is its very objective, and nothing leaks into it: v_i is divided by T_i, and u has mean G².

    Nothing is squared before its mean is taken off (Welford), so that float32 will do.
    """
    means: dict[int, Tensor] = {}
    spread: dict[int, float] = {}
    rounds: dict[int, int] = {}
    noise: list[float] = []
    leak: list[float] = []
    for client, sizes, chunks in cells:
        if len(sizes) < 2:
            raise InvalidInput(f"client {client}: {sum(sizes)} samples in one chunk: two chunks tell the noise")
        weight = torch.tensor(sizes, dtype=chunks.dtype, device=chunks.device)
        g = (weight / weight.sum()) @ chunks
        s2 = float((weight * ((chunks - g) ** 2).sum(1)).sum()) / (len(sizes) - 1)
        noise.append(s2)
        leak.append(s2 / sum(sizes))
        count = rounds.get(client, 0) + 1
        before = means.get(client, torch.zeros_like(g))
        after = before + (g - before) / count
        spread[client] = spread.get(client, 0.0) + float(torch.dot(g - before, g - after)) if count > 1 else 0.0
        means[client], rounds[client] = after, count
    few = [client for client, count in rounds.items() if count < 2 and not exhaustive]
    if len(means) < 2 or few:
        seen = f"client {few[0]} is seen once" if few else f"there are {len(means)} clients"
        raise InvalidInput(f"data: {seen}: two clients, each with two rounds, are the least that tells drifts apart")
    v = [spread[client] / (rounds[client] - (not exhaustive)) for client in means]
    stacked = torch.stack(list(means.values()))
    mean = stacked.mean(0)
    u = float(((stacked - mean) ** 2).sum()) / (len(means) - 1)
    sampling = float(np.mean(leak))
    below = 0.0 if exhaustive else float(np.mean([vi / rounds[client] for vi, client in zip(v, means, strict=True)]))
    return Components(u - below, float(np.mean(v)) - sampling, float(np.mean(noise)), sampling, mean)


def lanczos(product: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> tuple[list[float], list[float]]:
    """Diagonal and side diagonal of Q^T H Q for an orthonormal basis Q of start, H start, H² start, ...

    Each new vector is made orthogonal to all before it, twice, so that no eigenvalue comes up again by rounding. Ends
    early, with fewer numbers, when the space is exhausted. The last of `side` belongs to the step after the last.
    """
    basis = [start / start.norm()]
    diagonal: list[float] = []
    side: list[float] = []
    tiny = 10 * torch.finfo(start.dtype).eps
    for _ in range(min(steps, start.numel())):
        r = product(basis[-1])
        diagonal.append(float(torch.dot(basis[-1], r)))
        Q = torch.stack(basis)
        scale = float(r.norm())
        for _ in range(2):
            r = r - Q.T @ (Q @ r)
        side.append(float(r.norm()))
        if side[-1] <= tiny * max(scale, max(map(abs, diagonal))):
            side[-1] = 0.0
            break
        basis.append(r / side[-1])
    return diagonal, side


def _tridiagonal(diagonal: Sequence[float], side: Sequence[float]) -> np.ndarray:
    return np.diag(np.array(diagonal)) + np.diag(np.array(side), 1) + np.diag(np.array(side), -1)


def _ends(diagonal: list[float], side: list[float]) -> tuple[float, float, float, float]:
    """(L, mu, and the distance within which an eigenvalue lies of each): Ritz values and their residuals."""
    values, vectors = np.linalg.eigh(_tridiagonal(diagonal, side[:-1]))
    residual = side[-1] * np.abs(vectors[-1])
    return float(values[-1]), float(values[0]), float(residual[-1]), float(residual[0])


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout and with BatchNorm's running statistics, so that a sample has a gradient of its own."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)


def measure(
    model: nn.Module,
    params: Params,
    data: Data,
    *,
    batch: int = 32,
    exhaustive: bool = False,
    losses: Losses = classification,
    remembered: Remembered | None = None,
    steps: int = 30,
    most: int = 4096,
    seed: int = 0,
) -> Measured:
    """Measure the constants of a federation at ``params`` from its data [round][client].

    batch: of a training step; gradients are taken on chunks of that many samples, or fewer so that there are two.
    losses: (outputs, labels) -> one loss a sample. remembered: what stands in for the data of past rounds; R² is the
    mean square of the gradient it misses. steps: of Lanczos. most: samples on which the Hessian is taken; more are
    thinned out at random. Rounds are taken for independent draws, unless they are `exhaustive` (see `components`):
    windows that overlap make D² come out too low.
    """
    batch, steps = integer("batch", batch, 1), integer("steps", steps, 1)
    most = integer("most", most, 1)
    names, shapes = list(params), [p.shape for p in params.values()]
    size = sum(p.numel() for p in params.values())
    clients = len({i for row in data for i, cell in enumerate(row) if cell is not None})
    memory(4 * size * (clients + 2 * steps + 8), f"{clients} clients and {steps} steps of Lanczos", "lower steps")

    def unflatten(w: Tensor) -> Params:
        parts = torch.split(w, [s.numel() for s in shapes])
        return {n: part.view(s) for n, part, s in zip(names, parts, shapes, strict=True)}

    def flatten(tree: Params) -> Tensor:
        return torch.cat([tree[n].reshape(-1) for n in names])

    def objective(w: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return weight @ losses(functional_call(model, unflatten(w), (x,)), y)

    w = flatten({n: p.detach() for n, p in params.items()})

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        return grad(objective)(w, x, y, torch.full((len(y),), 1.0 / len(y), dtype=w.dtype, device=w.device))

    def cells() -> Iterator[tuple[int, list[int], Tensor]]:
        for t, row in enumerate(data):
            for i, cell in enumerate(row):
                if cell is None:
                    continue
                x, y = cell
                # Chunks of a set that is sorted by class would not be draws from it.
                order = torch.from_numpy(numpy_generator(seed, "chunks", t, i).permutation(len(y))).to(y.device)
                parts = order.split(max(1, min(batch, len(y) // 2)))
                yield i, [len(p) for p in parts], torch.stack([gradient(x[p], y[p]) for p in parts])

    with _evaluating(model):
        found = components(cells(), exhaustive=exhaustive)
        R2, shared = _information_loss(data, remembered, gradient, flatten)
        x, y, weight = _pool(data, most, seed)
        weight = weight.to(w.dtype)

        def product(v: Tensor) -> Tensor:
            """H v, a few hundred samples at a time."""
            total = torch.zeros_like(v)
            for k in range(0, len(y), 512):
                at = slice(k, k + 512)
                total += grad(lambda u, at=at: torch.dot(grad(objective)(u, x[at], y[at], weight[at]), v))(w)
            return total

        probe = torch.from_numpy(numpy_generator(seed, "lanczos").standard_normal(size)).to(w)
        L, mu, L_error, mu_error = _ends(*lanczos(product, probe, steps))
        grad_sq = float(found.mean.norm()) ** 2
        diagonal, side = lanczos(product, found.mean, steps) if grad_sq > 0 else ([L], [0.0])
    return Measured(
        G2=found.G2,
        D2=found.D2,
        noise=found.noise,
        sampling=found.sampling,
        grad_sq=grad_sq,
        R2=R2,
        R2_shared=shared,
        L=L,
        mu=mu,
        L_error=L_error,
        mu_error=mu_error,
        diagonal=tuple(diagonal),
        side=tuple(side[:-1]),
        batch=batch,
        size=size,
    )


def _pool(data: Data, most: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """All samples and their weights in f, the mean over clients of the mean over their rounds; at most `most`, drawn
    by weight."""
    seen: dict[int, int] = {}
    for row in data:
        for i, cell in enumerate(row):
            seen[i] = seen.get(i, 0) + (cell is not None)
    clients = sum(count > 0 for count in seen.values())
    xs, ys, weights = [], [], []
    for row in data:
        for i, cell in enumerate(row):
            if cell is not None:
                xs.append(cell[0])
                ys.append(cell[1])
                weights.append(
                    torch.full((len(cell[1]),), 1.0 / (clients * seen[i] * len(cell[1])), dtype=torch.float64)
                )
    x, y, weight = torch.cat(xs), torch.cat(ys), torch.cat(weights)
    if len(y) > most:
        p = weight.numpy() / float(weight.sum())
        chosen = torch.from_numpy(numpy_generator(seed, "hessian").choice(len(y), most, p=p))
        x, y = x[chosen.to(x.device)], y[chosen.to(y.device)]
        weight = torch.full((most,), 1.0 / most, dtype=torch.float64)
    return x, y, weight.to(x.device)


def _information_loss(
    data: Data,
    remembered: Remembered | None,
    gradient: Callable[[Tensor, Tensor], Tensor],
    flatten: Callable[[Params], Tensor],
) -> tuple[float | None, float | None]:
    """(R², its shared part) from Delta = grad f_{t,i} - what is remembered of it ((4) of `cfl`)."""
    if remembered is None:
        return None, None
    total, squares, count = None, 0.0, 0
    for row, memories in zip(data, remembered, strict=True):
        for cell, kept in zip(row, memories, strict=True):
            if cell is None or kept is None:
                continue
            delta = gradient(*cell) - (flatten(kept) if isinstance(kept, dict) else gradient(*kept))
            total = delta if total is None else total + delta
            squares += float(delta.norm()) ** 2
            count += 1
    if total is None or count < 2:
        raise fail("remembered", count, "must stand in for at least two data sets")
    # ||sum||² - sum of squares are the products of different Deltas.
    return squares / count, (float(total.norm()) ** 2 - squares) / (count * (count - 1))
