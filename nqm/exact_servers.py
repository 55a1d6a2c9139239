r"""Exact moments for servers that keep something: the recursion of `nqm.exact` with a vector x = (e, ...) in e's place.

All clients share one gain. With beta = step (1 + a + ... + a^(K-1)), the average update and gradient of a round are

    d = -beta (lambda start.x + push.x + c) - noise,      g = lambda e + c,

so that x' = G x - h c - gain noise with G = carry - gain beta (lambda start + push) + lambda grad e_0 and
h = gain beta - grad, and with the factors y behind c (c = load.y + fresh, k = Cov(y, x)),

    Cov x' = G Cov x G' - (G k'load) h' - h (G k'load)' + h h' Var c + gain gain' Var noise,
    k'     = Phi k G' - force h'.

Kalman gains depend on what was drawn; in their place stands a mean field: the gain of the expected variances.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .check import InvalidInput, memory
from .methods import FedEve, Method, Server
from .plan import Plan, geometric

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Mean and variance of e and its covariance with where the task began, (rounds + 1, directions), and traces."""

    mean: Array
    var: Array
    cov: Array
    traces: dict[str, Array] = dataclasses.field(default_factory=dict)


def refuse(plan: Plan, why: str, engines: str = "steps or collapsed") -> InvalidInput:
    engines = "reference" if plan.remembers else engines  # the loops keep history for linear gradients of one's own
    return InvalidInput(f"expect can't run method.name = '{plan.method.name}' {why}; use engine = {engines}")


def check(plan: Plan) -> None:
    """Say by name what has no closed recursion."""
    if plan.federation.samples:
        raise refuse(plan, "on a finite sum (federation.samples): which sample a step looks at is random", "steps")
    if plan.experiment.problem.gradient_bound is not None:
        raise refuse(plan, "with problem.gradient_bound: a bent gradient is not linear", "steps")
    if plan.federation.cohort != "own":
        raise refuse(plan, f"with federation.cohort = '{plan.federation.cohort}'")
    if plan.method.rule == "adam":
        raise refuse(plan, "at all: its step is not linear in the update")
    if plan.server is None:
        return
    if plan.method.controls and plan.federation.partial:
        raise refuse(plan, "with federation.sampled < clients: a control is as old as its client's last round")
    if plan.slope_moves > 0:
        raise refuse(plan, "with a slope that moves (drift.time_slope, or a redrawn client_slope)")
    if plan.slopes:
        if plan.method.rule == "kalman":
            raise refuse(plan, "with slopes")
        if plan.federation.partial:
            raise refuse(plan, "with slopes and federation.sampled < clients")
        if plan.alpha > 0 or plan.drift.overlap > 0:
            raise refuse(plan, "with slopes and time drift that stays (overlap) or is correlated")


@dataclass(frozen=True)
class Map:
    """One round of a server, per direction: x' = G x - h c - gain noise."""

    G: Array
    h: Array


def _map(server: Server, lam: Array, beta: Array) -> Map:
    felt = np.multiply.outer(server.start, lam) + server.push[:, None]  # of the state, in the clients' gradients
    G = server.carry[:, :, None] - np.einsum("i,jn->ijn", server.gain, beta * felt)
    G[:, 0] += np.multiply.outer(server.grad, lam)
    return Map(G, np.multiply.outer(server.gain, beta) - server.grad[:, None])


def growth(server: Server, lam: Array, local_steps: int) -> Array:
    """The largest modulus of an eigenvalue of a round's map in each direction, but for what stays as it began."""
    beta = server.step * geometric(1.0 - server.step * (lam + server.prox), local_steps)
    moves = [j for j in range(server.start.size) if j not in server.anchored]
    G = _map(server, lam, beta).G[np.ix_(moves, moves)]
    return np.abs(np.linalg.eigvals(np.moveaxis(G, -1, 0))).max(axis=1)


def _begin(server: Server, mean0: Array, var0: Array) -> tuple[Array, Array]:
    """Mean and covariance of the state at the start of a task: anchored parts are e itself."""
    r, n = server.start.size, mean0.size
    mean, cov = np.zeros((r, n)), np.zeros((r, r, n))
    same = [0, *server.anchored]
    mean[same] = mean0
    cov[np.ix_(same, same)] = var0
    return mean, cov


def shared_gain(plan: Plan, method: Method, mean0: Array, var0: Array) -> Moments:
    """The recursion above, for clients that share one Hessian."""
    from .exact import factors  # the factors are those of every method

    T, n = plan.federation.rounds, plan.dim
    N, S, K = plan.federation.slots, plan.federation.S, plan.federation.local_steps
    lam, f = plan.experiment.problem.eigenvalues, factors(plan)
    server = method.server(plan.federation, plan.task + 1)
    assert server is not None
    a = 1.0 - server.step * (lam + server.prox)
    beta = server.step * geometric(a, K)
    noise = server.step**2 * geometric(a * a, K) * plan.var_noise
    between = np.zeros(n)  # variance between given clients, over N - 1
    offset = np.zeros(n)
    if plan.clients is not None:
        offset = plan.clients.delta.mean(axis=0)
        between = plan.clients.delta.var(axis=0, ddof=1) if N > 1 else between
    cohort = between * (1 / S - 1 / N)  # of the mean of S of N given numbers, drawn without replacement
    mean, cov = _begin(server, mean0, var0)
    k = np.zeros((len(f.transition), *mean.shape))
    old = cov[0].copy()  # covariance of the state with where the task began
    out = Moments(np.empty((T + 1, n)), np.empty((T + 1, n)), np.empty((T + 1, n)))
    filters = _Kalman(plan, method, T) if isinstance(method, FedEve) and method.gain is None else None
    step = _map(server, lam, beta)
    out.mean[0], out.var[0], out.cov[0] = mean[0], cov[0, 0], old[0]
    for t in range(T):
        linked = np.tensordot(f.load[t], k, 1)  # Cov(x, c)
        if filters:
            single = beta**2 * (f.var[t] + between) + noise  # variance of one client's update
            given = beta**2 * cohort + noise / S
            average = beta**2 * f.var[t] / S + given
            server = filters.gain(t, server, lam, beta, offset, mean, cov, linked, average, single, given)
            step = _map(server, lam, beta)
        G, h = step.G, step.h
        moved = np.einsum("ijn,jn->in", G, linked)
        cov = np.einsum("ijn,jkn,lkn->iln", G, cov, G)
        cov -= np.einsum("in,jn->ijn", moved, h) + np.einsum("in,jn->ijn", h, moved)
        cov += np.einsum("in,jn->ijn", h, h) * (f.var[t] / S + cohort)
        cov += np.einsum("i,j,n->ijn", server.gain, server.gain, noise / S)
        k = np.einsum("ab,bjn,ijn->ain", f.transition, k, G) - np.einsum("a,in->ain", f.force[t] / N, h)
        old = np.einsum("ijn,jn->in", G, old)
        mean = np.einsum("ijn,jn->in", G, mean) - h * offset
        out.mean[t + 1], out.var[t + 1], out.cov[t + 1] = mean[0], np.maximum(cov[0, 0], 0.0), old[0]
    return dataclasses.replace(out, traces=filters.traces if filters else _given_gain(method, T))


def _given_gain(method: Method, T: int) -> dict[str, Array]:
    """A fixed gain is known; the variances beside it are not computed."""
    if not isinstance(method, FedEve):
        return {}
    none = np.full(T + 1, np.nan)
    return {"gain": np.r_[np.nan, np.full(T, method.gain)], "period_var": none, "client_var": none.copy()}


class _Kalman:
    """The gain of the expected variances, round by round."""

    def __init__(self, plan: Plan, method: FedEve, rounds: int) -> None:
        self.plan, self.method, self.doubt = plan, method, 0.0
        if method.variances == "oracle" and plan.alpha > 0:
            raise refuse(plan, "with variances = 'oracle' and correlated drift: the exact ones are not at hand")
        self.traces = {name: np.full(rounds + 1, np.nan) for name in method.traces}

    def gain(
        self,
        t: int,
        server: Server,
        lam: Array,
        beta: Array,
        offset: Array,
        mean: Array,
        cov: Array,
        linked: Array,
        average: Array,
        single: Array,
        given: Array,
    ) -> Server:
        """D = beta (lambda start.x + c) + noise observes what M predicts; expected squares of both and of M - D."""
        S, d = self.plan.federation.S, lam.size
        mean_D = beta * (lam * (server.start @ mean) + offset)
        start_x = np.einsum("j,ijn->in", server.start, cov)  # Cov(x, start.x)
        var_D = beta**2 * (lam**2 * (server.start @ start_x) + 2 * lam * (server.start @ linked)) + average
        cov_MD = beta * (lam * start_x[1] + linked[1])
        apart = float(((mean[1] - mean_D) ** 2 + cov[1, 1] + var_D - 2 * cov_MD).sum()) / d
        within = (S - 1) * float(single.sum()) / d
        before, kind = self.doubt, self.method.variances
        if kind == "oracle":
            # what is fresh in a round: cohort, moving drift and noise
            stays = self.plan.var_stays * (1 / S - 1 / self.plan.federation.slots)
            fresh = beta**2 * (stays + (self.plan.var_time + self.plan.var_redrawn) / S) + given
            client = float(fresh.sum()) / d
            period, before = apart - client, 0.0
        elif kind == "corrected":
            client = within / (S * (S - 1))
            period = max(0.0, apart - before - client)
        else:
            observed = float((mean_D**2 + var_D).sum()) / d
            period, client = (apart if kind == "paper" else observed) / S, within / S**2
        prior = before + period
        gain = prior / (prior + client) if prior + client > 0 else 1.0
        self.doubt = (1 - gain) * prior
        for name, value in zip(self.method.traces, (gain, period, client), strict=True):
            self.traces[name][t + 1] = value
        fixed = dataclasses.replace(self.method, gain=min(1.0, max(0.0, gain)))
        return fixed.server(self.plan.federation, self.plan.task + 1)


def own_gains(plan: Plan, method: Method, mean0: Array, var0: Array) -> Moments:
    """Given clients with Hessians of their own, all of them at work: one linear map a direction, controls included.

    The state is then (x, controls of the clients); what moves or jolts is independent between clients and rounds.
    """
    assert plan.clients is not None
    T, n, N, K = plan.federation.rounds, plan.dim, plan.federation.slots, plan.federation.local_steps
    server = method.server(plan.federation, plan.task + 1)
    assert server is not None
    r = server.start.size
    size = r + (N if method.controls else 0)
    memory(8 * n * (4 * size**2 + size * N), f"expect (clients = {N}, dim = {n})", "lower clients or dim")
    lam = plan.experiment.problem.eigenvalues * (1.0 + plan.clients.slope)  # (N, n)
    a = 1.0 - server.step * (lam + server.prox)
    beta = server.step * geometric(a, K)
    noise = server.step**2 * geometric(a * a, K) * plan.var_noise
    delta, var = plan.clients.delta, plan.var_time
    # u_i, the update of client i, is felt . x - beta_i c_i - noise_i
    felt = np.zeros((N, size, n))
    felt[:, :r] = -beta[:, None] * (np.einsum("j,in->ijn", server.start, lam) + server.push[:, None])
    hit = np.zeros((size, N, n))  # how the state feels u_i
    hit[:r] = server.gain[:, None, None] / N
    G = np.zeros((size, size, n))
    G[:r, :r] = server.carry[:, :, None]
    G[:r, 0] += np.multiply.outer(server.grad, lam.mean(axis=0))
    if method.controls:  # c_i <- c_i - c - u_i / (K lr), and the client's gradient is moved by -c_i
        for i in range(N):
            felt[i, r + i] = beta[i]
            G[r + i, r + i] = 1.0
            G[r + i, 1] -= 1.0
            hit[r + i, i] = -1.0 / (K * method.lr)
    G += np.einsum("sin,ijn->sjn", hit, felt)
    feel = -hit * beta  # how the state feels c_i
    feel[:r] += server.grad[:, None, None] / N
    white = np.einsum("sin,uin->sun", feel, feel) * var + np.einsum("sin,in,uin->sun", hit, noise, hit)
    push = np.einsum("sin,in->sn", feel, delta)
    mean, cov = np.zeros((size, n)), np.zeros((size, size, n))
    mean[:r], cov[:r, :r] = _begin(server, mean0, var0)
    old = cov[0].copy()
    out = Moments(np.empty((T + 1, n)), np.empty((T + 1, n)), np.empty((T + 1, n)))
    out.mean[0], out.var[0], out.cov[0] = mean[0], cov[0, 0], old[0]
    for t in range(T):
        cov = np.einsum("ijn,jkn,lkn->iln", G, cov, G, optimize=True) + white
        old = np.einsum("ijn,jn->in", G, old)
        mean = np.einsum("ijn,jn->in", G, mean) + push
        out.mean[t + 1], out.var[t + 1], out.cov[t + 1] = mean[0], np.maximum(cov[0, 0], 0.0), old[0]
    return out
