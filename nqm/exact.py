r"""The `expect` engine: first and second moments of every round, with no sampling at all.

In the eigenbasis the directions part, and one round of a linear method is, in a direction of eigenvalue lambda,

    a = 1 - step (follow lambda + prox),   s = 1 + a + ... + a^(K-1),
    d_K = -step s (lambda e + c) - step (sum over k of a^(K-k) nu_k),
    e' = e + server (average of d_K over the sampled clients).

So e' = gamma e - beta c - noise, where c is the clients' offset: drift that stays, drift that is remembered,
information loss. What makes c of one round depend on c of another is a handful of *factors* y of each client (its
delta, the running sums of its drift) with y' = Phi y + fresh and c = load_t . y + fresh. Their covariances do not
depend on the direction and are computed once; what is left to iterate per direction is Var e and k = Cov(e, y):

    Var e' = gamma^2 Var e - 2 gamma beta load_t.k + beta^2 Var c / S + noise / S
    k'     = gamma Phi k - beta Cov(c, y') / N.

Clients are independent and centred, and S of N are sampled anew each round, so the average over a sample has the
covariance Var(c)/S within a round and Cov(c_s, c_t)/N between rounds: the recursion is exact under partial
participation. What isn't is Gaussianity: who was sampled is remembered through whatever persists, so E||g|| and Var f
are then Gaussian closures, and the result says so.

With slopes the gain gamma itself differs between clients or rounds; `_with_slopes` carries second moments through that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from . import exact_servers
from .check import InvalidInput, memory, number
from .compiled import LANES, aligned, pad
from .drift import Drift
from .exact_servers import Moments
from .experiment import Experiment
from .federation import Federation
from .gaussian import mean_norm
from .methods import Method
from .plan import Clients, Plan, draw_clients, geometric
from .problem import Quadratic
from .result import dataset
from .schedule import Schedule

Array = NDArray[np.float64]


def expect(
    problem: Quadratic,
    drift: Drift,
    federation: Federation,
    method: Method,
    lr: ArrayLike | None = None,
    clients: Clients | Sequence[Clients] | None = None,
    seed: int = 0,
    norm: bool = True,
    compiled: bool = False,
) -> xr.Dataset:
    """Exact expectations of every round, over everything random, or given ``clients`` (see `draw_clients`).

    A sequence of tasks adds the dimension ``task``, and ``loss_of_task`` and ``moved_sq`` as in `simulate`.

    lr: learning rates to compute at once, in place of the method's own; adds a dimension ``lr``.
    seed: slopes that stay with a client make the gain of a round a random matrix whose moments close only given the
        clients; unless ``clients`` are passed, those of ``seed`` are taken, and ``conditioned_on`` in the
        attributes says so.
    norm: also E||g||, by a one-dimensional integral a round.
    compiled: run the recursion through Numba, which pays from the second call of a process on (for ``norm=False`` and
        methods whose server keeps nothing).
    """
    conditioned = "given clients" if clients is not None else "nothing"
    experiment = Experiment(problem, drift, federation, method)
    given = [clients] if isinstance(clients, Clients) else None if clients is None else list(clients)
    plans = Plan.of_tasks(experiment, given)
    exact_servers.check(plans[0])
    if given is None and plans[0].slope_stays > 0:
        each = range(1, federation.tasks + 1)
        plans = Plan.of_tasks(experiment, [draw_clients(problem, drift, federation, seed, k) for k in each])
        conditioned = f"the clients of seed {seed}"
    plan = plans[0]
    rates = (
        None if lr is None else np.array([number("lr", x, 0.0, open_low=True) for x in np.atleast_1d(np.asarray(lr))])
    )
    methods = [method] if rates is None else [method.with_lr(float(x)) for x in rates]
    T, n = federation.rounds, problem.dim
    tasks = federation.tasks
    size = tasks * len(methods) * (T + 1) * 8 * (n * (9 if norm else 5) + (2 * tasks if tasks > 1 else 0))
    what = f"expect (rounds = {T}, dim = {n}, rates: {len(methods)}" + (f", tasks = {tasks})" if tasks > 1 else ")")
    memory(size, what, "lower rounds, dim, tasks or the number of rates")

    with np.errstate(over="ignore", invalid="ignore"):  # a rate that diverges is reported as such, not warned about
        if compiled and not norm and not plan.slopes and plan.server is None and federation.tasks == 1:
            curves = _compiled_curves(plan, methods)
        else:
            curves = _task_by_task(plans, methods, norm)
    coords: dict[str, Any] = {} if rates is None else {"lr": rates}
    if rates is None:
        curves = {name: values[0] for name, values in curves.items()}
    law = "gaussian"
    if not _is_gaussian(plan):
        law = "mixture: grad_norm and excess_loss_var are Gaussian closures, the rest is exact"
    if "gain" in method.traces and getattr(method, "gain", None) is None:
        law = "mean field: every round's gain is the one of the expected variances; nothing is exact"
    return dataset(experiment, "expect", curves, coords, conditioned_on=conditioned, law=law)


def _task_by_task(plans: list[Plan], methods: list[Method], norm: bool) -> dict[str, Array]:
    """Curves of (methods, round), or (methods, task, round) for a sequence: only w goes on from task to task."""
    start = np.tile(plans[0].experiment.problem.start, (len(methods), 1))
    spread = np.zeros_like(start)
    found: list[dict[str, Array]] = []
    for before, plan in zip([None, *plans], plans, strict=False):
        problem = plan.experiment.problem
        if before is not None:
            start = start + (before.experiment.problem.optimum_eigen - problem.optimum_eigen)
        m = moments(plan, methods, start, spread)
        curves = _curves(problem.eigenvalues, m.mean, m.var, norm) | m.traces
        if plan.sequence:
            first = m.mean[:, :1], m.var[:, :1]
            curves["moved_sq"] = np.sum((m.mean - first[0]) ** 2 + m.var + first[1] - 2.0 * m.cov, axis=-1)
            lam, away = plan.others
            losses = [((m.mean + a) ** 2 + m.var) @ (0.5 * row) for row, a in zip(lam, away, strict=True)]
            curves["loss_of_task"] = np.stack(losses, axis=-1)
        start, spread = m.mean[:, -1], m.var[:, -1]
        found.append(curves)
    if len(found) == 1:
        return found[0]
    return {name: np.stack([c[name] for c in found], axis=1) for name in found[0]}


def _curves(lam: Array, mean: Array, var: Array, norm: bool) -> dict[str, Array]:
    """What a user reads, from the moments of e in every direction."""
    square = mean * mean
    square += var
    curves = dict(zip(("grad_norm_sq", "excess_loss", "distance_sq"), _sums(lam, square), strict=True))
    # Var of 1/2 sum lambda e^2 for independent Gaussian e: 1/4 lambda^2 (2 v^2 + 4 m^2 v), and m^2 = square - v
    square *= 2.0
    square -= var
    square *= var
    curves["excess_loss_var"] = square @ (0.5 * lam**2)
    if norm:
        curves["grad_norm"] = mean_norm(mean * lam, var * lam**2)
    return curves


def _sums(lam: Array, square: Array) -> tuple[Array, Array, Array]:
    return square @ lam**2, square @ (0.5 * lam), square @ (lam > 0).astype(float)


def moments(plan: Plan, methods: list[Method], start: Array, spread: Array) -> Moments:
    """Moments of e = w - w* per direction, (method, round, direction), from a Gaussian start, (method, direction)."""
    one: Callable[[Plan, Method, Array, Array], Moments] | None = None
    if plan.server is not None and not (plan.method.controls and not plan.slopes):
        one = exact_servers.own_gains if plan.slopes else exact_servers.shared_gain
    elif plan.slopes:
        one = _with_slopes
    if one is None:
        return _without_slopes(plan, methods, start, spread)
    each = [one(plan, method, e, v) for method, e, v in zip(methods, start, spread, strict=True)]
    mean, var, cov = (np.stack([getattr(m, name) for m in each]) for name in ("mean", "var", "cov"))
    return Moments(mean, var, cov, traces={name: np.stack([m.traces[name] for m in each]) for name in each[0].traces})


def _is_gaussian(plan: Plan) -> bool:
    """Whether w is Gaussian: no random gain, and no memory of who was sampled."""
    return plan.slope_moves == 0 and not (plan.federation.partial and (plan.persists or plan.slopes))


@dataclass(frozen=True)
class Factors:
    """Everything that links the offsets of two rounds, for one client and one direction.

    transition: Phi, (m, m). load: (T, m), c_t = load_t . y_t + fresh. force: (T, m), Cov(c_t, y_{t+1}). var:
        (T,), Var c_t.
    """

    transition: Array
    load: Array
    force: Array
    var: Array


def factors(plan: Plan) -> Factors:
    """The factors of an experiment, those that never act left out."""
    T = plan.federation.rounds
    parts = [Factors(np.zeros((0, 0)), np.zeros((T, 0)), np.zeros((T, 0)), plan.var_loss * plan.forgotten**2)]
    if plan.var_stays > 0:  # weights sum to one, so what stays is felt in full
        parts.append(_staying(np.ones(T), plan.var_stays))
    if plan.var_loss_client > 0 and plan.remembers:
        own = _staying(plan.forgotten, plan.var_loss_client)
        parts.append(own if not plan.federation.stateless else _only_variance(own))
    remembered = _remembered if isinstance(plan.weights, Schedule) else _remembered_by_table
    if plan.var_time > 0:
        parts.append(remembered(plan, plan.var_time, plan.alpha))
    if plan.var_redrawn > 0:
        parts.append(remembered(plan, plan.var_redrawn, 0.0))
    size = sum(len(p.transition) for p in parts)
    transition = np.zeros((size, size))
    at = 0
    for p in parts:
        m = len(p.transition)
        transition[at : at + m, at : at + m] = p.transition
        at += m
    return Factors(
        transition,
        np.concatenate([p.load for p in parts], axis=1),
        np.concatenate([p.force for p in parts], axis=1),
        np.sum([p.var for p in parts], axis=0),
    )


def _staying(load: Array, var: float) -> Factors:
    column = load[:, None]
    return Factors(np.ones((1, 1)), column, var * column, var * load**2)


def _only_variance(f: Factors) -> Factors:
    """The same offset when it is drawn anew every round: it links nothing."""
    T = len(f.var)
    return Factors(np.zeros((0, 0)), np.zeros((T, 0)), np.zeros((T, 0)), f.var)


def _remembered(plan: Plan, var: float, a: float) -> Factors:
    r"""A drift x_t with Cov(x_s, x_t) = var a^|s-t|, weighed by the four values of a `Schedule`.

    Factors before x_t is drawn: y = (x_1, S = x_1 + ... + x_{t-1}, x_{t-1}). With x_t = a x_{t-1} + fresh,

        c_t = first x_1 + middle (S - x_1 - x_{t-1}) + previous x_{t-1} + current x_t.

    With g_m = 1 + a + ... + a^(m-1):  Cov(x_1, S_m) = Cov(x_m, S_m) = g_m,  Cov(x_1, x_m) = a^(m-1),
    Var S_m = (2 g_1 - 1) + ... + (2 g_m - 1).
    """
    w = plan.weights
    assert isinstance(w, Schedule)
    T = plan.federation.rounds
    # For m = 0, ..., T - 1 rounds that lie behind. Powers by product: 0.0**0 is 1 and the rest exact.
    powers = np.cumprod(np.concatenate(([1.0], np.full(T - 1, a))))  # a^m
    g = np.concatenate(([0.0], np.cumsum(powers)))
    var_sum = np.concatenate(([0.0], np.cumsum(2.0 * g[1:T] - 1.0)))
    g = g[:T]
    ends = np.concatenate(([0.0], powers[: T - 1]))  # Cov(x_1, x_{t-1})
    one = np.ones(T)
    one[0] = 0.0  # before the first round nothing has varied yet
    # Even weights need the running sum alone; in the first rounds, where names coincide, it says the same.
    middle = w.previous if w.even else w.middle
    first, total, last = np.zeros(T) if w.even else w.first - middle, middle, w.previous - middle + a * w.current
    cov_first = one * first + g * total + ends * last  # Cov(x_1, c_t) but for what x_t brings
    cov_total = g * (first + last) + var_sum * total
    cov_last = ends * first + g * total + one * last
    variance = first * cov_first + total * cov_total + last * cov_last
    fresh = np.where(one == 0.0, 1.0, 1.0 - a * a) * w.current
    variance += fresh * w.current
    force = np.stack([cov_first, cov_total + a * cov_last + fresh, a * cov_last + fresh], axis=1)
    force[0, 0] = fresh[0]
    load = np.stack([first, total, last], axis=1)
    transition = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, a], [0.0, 0.0, a]])
    used = [bool(load[:, j].any()) for j in range(3)]
    used[2] |= a > 0 and used[1]  # x_{t-1} enters the running sum
    keep = np.flatnonzero(used)
    return Factors(transition[keep[:, None], keep], load[:, keep], var * force[:, keep], var * variance)


def _remembered_by_table(plan: Plan, var: float, a: float) -> Factors:
    """The same for any weights: the factors are x_1, ..., x_T themselves, all drawn beforehand."""
    T = plan.federation.rounds
    lag = np.abs(np.subtract.outer(np.arange(T), np.arange(T)))
    covariance = var * np.power(a, lag)  # 0.0**0 is 1
    rows = np.stack([np.pad(plan.weights.row(t), (0, T - t)) for t in range(1, T + 1)])
    force = rows @ covariance
    return Factors(np.eye(T), rows, force, np.einsum("ts,ts->t", rows, force))


@dataclass(frozen=True)
class Round:
    """One round as a map e' = gamma e - beta c - noise. The first three are (methods, directions)."""

    gamma: Array
    beta: Array
    noise: Array
    factors: Factors
    offset: Array  # mean of c, (T, directions), or (0, 0) if it vanishes


def _round(plan: Plan, methods: list[Method]) -> Round:
    N, S, K = plan.federation.slots, plan.federation.S, plan.federation.local_steps
    lam = plan.experiment.problem.eigenvalues
    linear = [m.linear(K) for m in methods]  # controls cancel where all take part and share one Hessian
    step, follow, prox, server = np.array(linear, dtype=float).T[:, :, None]
    a = 1.0 - step * (follow * lam + prox)
    beta = server * step * geometric(a, K)
    noise = (server * step) ** 2 * geometric(a * a, K) * (plan.var_noise / S)
    f = factors(plan)
    average = Factors(f.transition, f.load, f.force / N, f.var / S)
    offset = np.zeros((0, 0))
    if plan.loss_shared.any():
        offset = plan.forgotten[:, None] * plan.loss_shared
    if plan.clients is not None:
        offset = (offset if offset.size else 0.0) + np.tile(plan.clients.delta.mean(axis=0), (len(f.var), 1))
        if S < N:  # the mean of S of N given numbers, drawn without replacement
            noise = noise + beta**2 * plan.clients.delta.var(axis=0, ddof=1) * (1.0 / S - 1.0 / N)
    return Round(1.0 - beta * lam, beta, noise, average, offset)


def _without_slopes(plan: Plan, methods: list[Method], start: Array, spread: Array) -> Moments:
    """All clients share their gain: the recursion above, all methods and directions side by side."""
    T, n = plan.federation.rounds, plan.dim
    r = _round(plan, methods)
    columns = len(methods) * n
    mean, var = np.empty((T + 1, columns)), np.empty((T + 1, columns))
    mean[0], var[0] = start.ravel(), spread.ravel()
    f = r.factors
    offset = np.tile(r.offset, len(methods)) if r.offset.size else r.offset
    recursion(r.gamma.ravel(), r.beta.ravel(), r.noise.ravel(), f.transition, f.load, f.force, f.var, offset, mean, var)
    np.maximum(var, 0.0, out=var)
    # Whatever a task draws is independent of where it began, so Cov(e_t, e_0) = gamma^t Var e_0.
    cov = np.zeros_like(var)
    if spread.any():
        cov[0] = var[0]
        for t in range(T):
            np.multiply(r.gamma.ravel(), cov[t], out=cov[t + 1])
    shape = (T + 1, len(methods), n)
    found = [x.reshape(shape).swapaxes(0, 1) for x in (mean, var, cov)]
    return Moments(found[0], found[1], found[2])


def _compiled_curves(plan: Plan, methods: list[Method]) -> dict[str, Array]:
    from .kernels.moments import run

    arguments = compiled_arguments(plan, methods)
    run(*arguments)
    return dict(zip(("grad_norm_sq", "excess_loss", "distance_sq", "excess_loss_var"), arguments[-1], strict=True))


def compiled_arguments(plan: Plan, methods: list[Method]) -> tuple[Array, ...]:
    """What `nqm.kernels.moments.run` takes, padded; the last one is where the curves go."""
    width = -(-plan.dim // LANES) * LANES
    r = _round(plan, methods)
    f = r.factors
    padded = [pad(x, width) for x in (r.gamma, r.beta, r.noise)]
    problem = plan.experiment.problem
    ends = [pad(x, width) for x in (r.offset, problem.start, problem.eigenvalues)]
    room = aligned((9 + len(f.transition), width))
    sums = np.empty((4, len(methods), plan.federation.rounds + 1))
    return (*padded, f.transition, f.load, f.force, f.var, *ends, room, sums)


def recursion(
    gamma: Array,
    beta: Array,
    noise: Array,
    transition: Array,
    load: Array,
    force: Array,
    white: Array,
    offset: Array,
    mean: Array,
    var: Array,
) -> None:
    """Fill ``mean`` and ``var``, (T + 1, columns), from their first rows. `nqm.kernels.moments` is its fast twin.

    A column is one direction under one learning rate; ``force``, ``white`` and ``noise`` are those of the average.
    """
    k = np.zeros((len(transition), gamma.size))
    moves = not np.array_equal(transition, np.eye(len(transition)))
    gamma2, beta2, gamma_beta = gamma * gamma, beta * beta, 2.0 * gamma * beta
    for t in range(len(load)):
        v = np.multiply(gamma2, var[t], out=var[t + 1])
        v += beta2 * white[t] + noise
        if len(k):
            v -= gamma_beta * (load[t] @ k)
            if moves:
                k = transition @ k
            k *= gamma
            k -= np.multiply.outer(force[t], beta)
        np.multiply(gamma, mean[t], out=mean[t + 1])
        if len(offset):
            mean[t + 1] -= beta * offset[t]


def _with_slopes(plan: Plan, method: Method, start: Array, spread: Array) -> Moments:
    r"""Gains that differ between clients (given, (N, n)) or between rounds (drawn, averaged by Gauss-Hermite).

    With u_i = g_i e - beta_i c_i - noise_i the update is the average of u_i over a sample of S of N clients, so that

        Var(avg u) = (1/S) mean_i Var u_i + (1 - 1/S) mean_{i != j} Cov(u_i, u_j) + (1/S - 1/N) s^2,

    where s^2 is the variance (over N - 1) of the means E u_i between clients. The gains of a round are independent of e
    and of each other given the clients, so only their own means, variances and covariance are needed: polynomials in a
    Gaussian of degree at most 2K, which K + 1 nodes integrate exactly.
    """
    if plan.slope_moves > 0 and plan.remembers:
        raise InvalidInput(
            f"expect can't run method.name = '{method.name}' with a slope that moves (drift.time_slope, or a redrawn "
            "client_slope): remembered slopes make the gains of two rounds dependent; use engine = steps or collapsed"
        )
    T, N, S, n = plan.federation.rounds, plan.federation.slots, plan.federation.S, plan.dim
    given = plan.clients
    rows = N if given is not None else 1  # one row stands for N alike
    f = factors(plan)
    per_client = 2 * len(f.transition) + 20 + 8 * (plan.federation.local_steps + 1 if plan.slope_moves > 0 else 1)
    memory(8 * rows * n * per_client, f"expect with slopes (clients = {rows}, dim = {n})", "lower clients or dim")
    g, b, var_g, cov_gb, var_b, noise = _gain_moments(plan, method, given.slope if given else np.zeros((1, n)))

    def total(x: Array) -> Array:
        return x.mean(axis=0) * N

    delta = given.delta if given is not None else np.zeros((1, n))
    mean, var = np.empty((T + 1, n)), np.empty((T + 1, n))
    mean[0] = e = start
    var[0] = v = spread
    k = np.zeros((len(f.transition), rows, n))
    for t in range(T):
        m = delta + plan.forgotten[t] * plan.loss_shared  # mean offset of each client
        cross = np.tensordot(f.load[t], k, 1)  # Cov(e, c_i)
        alone = g * g * v - 2.0 * g * b * cross  # Cov(u_i, u_j) at i = j
        spread = var_g * (v + e * e) - 2.0 * cov_gb * (cross + e * m) + var_b * (f.var[t] + m * m)
        own = total(alone + b * b * f.var[t] + spread + noise)
        pairs = total(g) ** 2 * v - 2.0 * total(g) * total(b * cross) - total(alone)  # over i != j
        means = g * e - b * m
        v = own / (S * N)
        if N > 1:
            v = (
                v
                + pairs * (S - 1) / (S * N * (N - 1))
                + total((means - means.mean(axis=0)) ** 2) / (N - 1) * (1 / S - 1 / N)
            )
        k = g.mean(axis=0) * np.tensordot(f.transition, k, 1) - b * (f.force[t] / N)[:, None, None]
        e = means.mean(axis=0)
        mean[t + 1] = e
        var[t + 1] = v
    cov = var[0] * np.cumprod(np.vstack([np.ones(n), np.tile(g.mean(axis=0), (T, 1))]), axis=0)
    return Moments(mean, np.maximum(var, 0.0), cov)


def _hermite(count: int) -> tuple[Array, Array]:
    """Gauss-Hermite nodes and probabilities. SciPy's, because NumPy's fail from a few hundred nodes on."""
    from scipy.special import roots_hermitenorm

    nodes, mass = roots_hermitenorm(count)
    keep = mass > 1e-300 * mass.max()  # what underflows would meet a power that overflows
    return nodes[keep], mass[keep] / mass[keep].sum()


def _gain_moments(plan: Plan, method: Method, slope: Array) -> tuple[Array, ...]:
    """Means of gain and beta, their variances and covariance, and the noise's variance, per client and direction."""
    K = plan.federation.local_steps
    step, follow, prox, server = method.linear(K)
    nodes, mass = _hermite(K + 1) if plan.slope_moves > 0 else (np.zeros(1), np.ones(1))
    lam = plan.experiment.problem.eigenvalues * (1.0 + slope + np.sqrt(plan.slope_moves) * nodes[:, None, None])
    a = 1.0 - step * (follow * lam + prox)
    beta = server * step * geometric(a, K)
    shrink = beta * lam  # 1 - gain, which keeps its digits when the gain is almost 1
    noise = (server * step) ** 2 * geometric(a * a, K) * plan.var_noise

    def average(x: Array) -> Array:
        return np.tensordot(mass, x, 1)

    mean, b = average(shrink), average(beta)
    covariance = -average((shrink - mean) * (beta - b))
    return 1.0 - mean, b, average((shrink - mean) ** 2), covariance, average((beta - b) ** 2), average(noise)
