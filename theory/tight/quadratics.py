r"""The worst quadratics with commuting Hessians: in each common eigendirection, one eigenvalue λ_i ∈ [μ, L] a client.

**Local methods.** A client that starts at e = w − w* and whose gradient is λ e + b moves in K local steps by
−s(λ) (λ e + b), where s = η_l (1 + a + … + a^{K−1}) and a = 1 − η_l (λ + prox). Write ψ = λ s. Then, γ the server's
share (1 if there is no anchor, else 1/(1 + pull)),

    e' = γ [e (1 − η_g mean ψ) − η_g mean(s b)] + (1 − γ) anchor.

*Contraction.* The mean of ψ over clients takes every value between the least and the largest ψ on [μ, L], so e'/e is
largest or least where all clients are alike, at the ends of [μ, L] or where ψ' = 0: the roots of a polynomial. With
η_g = 1 and prox = 0 it is max((1 − η_l μ)^{2K}, (1 − η_l L)^{2K}) up to η_l = 2/L.

*Bias.* Clients of two kinds, a share p of one and q = 1 − p of the other, and mean b = 0, mean b² = G² make mean(s b)
at most √(pq) |s_1 − s_2| G. The point that the round leaves where it is lies at

    √(pq) |s_1 − s_2| G / (κ + p ψ_1 + q ψ_2),   κ = pull/η_g.

This fraction is at least t if and only if max_λ [√(pq) s − t p ψ] − min_λ [√(pq) s + t q ψ] ≥ κ t. For given t each
part is a polynomial of one variable; Newton's steps on t (Dinkelbach's method) rise to the maximum. For two clients
this is all there is; for more than two, clients of three kinds are left out.

*Fresh drift.* If S clients are drawn in every round, all with the same λ, then E e² settles at
(η_g s)² G²/S / (1 − (1 − η_g ψ)²), whose maximum over λ is found in the same way.

**C-FLAG.** With ν the eigenvalue of the memory and s of the local steps, d = −s(λ_i) (λ̄ e + b) and

    e' = e (1 − α ν − λ̄ s̄) + (βE − s̄) b.

λ̄ s̄ is looked for over clients of two kinds, half and half, on a grid: a lower bound, and near the maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from nqm.check import integer

from .rounds import CFlag, FedAvg, FedProx, Round, ServerProx
from .world import function_class

Array = NDArray[np.float64]

GRID = 201
"""Eigenvalues tried for C-FLAG, per kind of client."""


class Worst(NamedTuple):
    """The largest value, and the eigenvalues of the clients that attain it."""

    value: float
    eigenvalues: tuple[float, ...]
    share: float = 1.0
    """Of the clients that have the first eigenvalue."""


def worst_contraction(round: Round, mu: float, L: float = 1.0) -> Worst:
    """The largest (w_1 − w*)²/(w_0 − w*)² over commuting quadratics that share their minimiser."""
    mu, L = function_class(mu, L)
    if isinstance(round, CFlag):
        return _cflag_contraction(round, mu, L)
    gain = 1.0 - round.server_lr * _psi(round)
    at, values = _extremes(gain, mu, L)
    k = int(np.argmax(np.abs(values)))
    return Worst(float(values[k] * _keep(round)) ** 2, (float(at[k]),))


def worst_bias(round: Round, mu: float, L: float = 1.0, clients: int = 2) -> Worst:
    """The largest squared distance from w* at which a round can stand still, for a source of size 1 (in units of L²).

    The source is the round's first: the clients' own gradients at w*, or for C-FLAG the present's. Infinite where some
    quadratic is not contracted.
    """
    mu, L = function_class(mu, L)
    N = integer("tight.clients", clients, 1)
    if worst_contraction(round, mu, L).value >= 1.0:
        return Worst(np.inf, ())
    if isinstance(round, CFlag):
        return _cflag_bias(round, mu, L)
    shares = sorted({j / N for j in range(1, N)})
    kappa = (1.0 / _keep(round) - 1.0) / round.server_lr
    found = [_two_kinds(round, mu, L, p, kappa) for p in shares]
    best = max(found, key=lambda w: w.value, default=Worst(0.0, (mu,)))
    return best._replace(value=best.value * L**2)


def worst_fresh_bias(round: FedAvg, mu: float, L: float = 1.0, sampled: int = 1) -> Worst:
    """The largest E(w − w*)² that rounds settle at if each draws ``sampled`` clients of one Hessian, for G = L."""
    mu, L = function_class(mu, L)
    S = integer("tight.sampled", sampled, 1)
    if worst_contraction(round, mu, L).value >= 1.0:
        return Worst(np.inf, ())
    keep, g = _keep(round), round.server_lr
    above, below = (keep * g * _sum(round)) ** 2, S * (1.0 - (keep * (1.0 - g * _psi(round))) ** 2)
    t, at = 0.0, mu
    for _ in range(100):
        points, values = _extremes(above - t * below, mu, L)
        candidate = float(points[np.argmax(values)])
        new = float(above(candidate) / below(candidate))
        if new <= t * (1 + 1e-15):
            break
        t, at = new, candidate
    return Worst(t * L**2, (at,))


def nqm_contraction(round: FedAvg, mu: float, L: float = 1.0, tries: int = 33) -> Worst:
    """The same as `worst_contraction`, by running rounds of the noisy quadratic model over eigenvalues."""
    import nqm

    method: nqm.Method
    if isinstance(round, FedProx):
        method = nqm.FedProx(round.lr, round.server_lr, round.prox)
    else:
        method = nqm.FedAvg(round.lr, round.server_lr)
    federation = nqm.Federation(clients=1, local_steps=round.local_steps, rounds=1)

    def after(eigenvalue: float) -> float:
        problem = nqm.Quadratic(dim=1, spectrum=(eigenvalue,), rotation="none", b=0.0, w0=(1.0,))
        return float(nqm.expect(problem, nqm.Drift(), federation, method, norm=False)["distance_sq"][-1])

    return max((Worst(after(x), (float(x),)) for x in np.linspace(mu, L, tries)), key=lambda w: w.value)


def _keep(round: FedAvg) -> float:
    return 1.0 / (1.0 + round.pull) if isinstance(round, ServerProx) else 1.0


def _sum(round: FedAvg) -> Polynomial:
    """s(λ)."""
    prox = round.prox if isinstance(round, FedProx) else 0.0
    a = Polynomial([1.0 - round.lr * prox, -round.lr])
    total = power = Polynomial([1.0])
    for _ in range(round.local_steps - 1):
        power = power * a
        total = total + power
    return round.lr * total


def _psi(round: FedAvg) -> Polynomial:
    return Polynomial([0.0, 1.0]) * _sum(round)


def _extremes(p: Polynomial, low: float, high: float) -> tuple[Array, Array]:
    """Points of [low, high] among which a polynomial is largest and least, and its values there."""
    # Where a root is multiple its computed copies are a little complex; their real parts are as good.
    roots = p.deriv().roots().real if p.degree() > 1 else np.zeros(0)
    at = np.concatenate([[low, high], roots[(roots > low) & (roots < high)]])
    return at, p(at)


def _two_kinds(round: FedAvg, mu: float, L: float, p: float, kappa: float) -> Worst:
    s, psi, root = _sum(round), _psi(round), float(np.sqrt(p * (1 - p)))

    def best(t: float) -> tuple[float, float]:
        first, high = _extremes(root * s - t * p * psi, mu, L)
        second, low = _extremes(root * s + t * (1 - p) * psi, mu, L)
        return float(first[np.argmax(high)]), float(second[np.argmin(low)])

    t = 0.0
    for _ in range(100):
        one, two = best(t)
        rest = kappa + float(p * psi(one) + (1 - p) * psi(two))
        new = root * float(s(one) - s(two)) / rest if rest > 0 else 0.0
        if new <= t * (1 + 1e-15):
            break
        t = new
    return Worst(float(t) ** 2, (one, two), p)


def _on_grid(round: CFlag, mu: float, L: float, worth: Callable[[Array, Array, float], Array]) -> Worst:
    """The largest worth(λ̄ s̄, s̄, ν)."""
    lam = np.linspace(mu, L, GRID)
    s = round.lr * np.sum([(1.0 - round.lr * lam) ** k for k in range(round.local_steps)], axis=0)
    mean, total = (lam[:, None] + lam) / 2, (s[:, None] + s) / 2
    found = []
    for nu in (mu, L):
        value = worth(mean * total, total, nu)
        i, j = np.unravel_index(np.argmax(value), value.shape)
        found.append(Worst(float(value[i, j]), (float(lam[i]), float(lam[j])), 0.5))
    return max(found, key=lambda w: w.value)


def _cflag_contraction(round: CFlag, mu: float, L: float) -> Worst:
    return _on_grid(round, mu, L, lambda psi, s, nu: (1.0 - round.alpha * nu - psi) ** 2)


def _cflag_bias(round: CFlag, mu: float, L: float) -> Worst:
    steps = round.lr * round.local_steps
    found = _on_grid(round, mu, L, lambda psi, s, nu: ((steps - s) / (round.alpha * nu + psi)) ** 2)
    return found._replace(value=found.value * L**2)
