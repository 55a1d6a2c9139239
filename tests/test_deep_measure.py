"""Measured constants against known ones: variances by z-scores and brute force, spectra by eigh, curves by descent."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

import nqm  # noqa: E402
from deep import partition  # noqa: E402
from deep.data import load  # noqa: E402
from deep.measure import _ends, components, lanczos, measure  # noqa: E402
from deep.models import build  # noqa: E402
from nqm import InvalidInput  # noqa: E402


def squares(outputs, y):
    """Half the squared error of every sample."""
    return 0.5 * (outputs[:, 0] - y) ** 2


def regression(seed: int = 0, dim: int = 6, clients: int = 3, rounds: int = 4, missing: bool = True):
    """A linear model and data sets of unequal sizes; one client misses a round."""
    rng = np.random.default_rng(seed)
    model = torch.nn.Linear(dim, 1, bias=False).double()
    model.weight.data = torch.from_numpy(rng.standard_normal((1, dim)))
    data = []
    for t in range(rounds):
        row = []
        for i in range(clients):
            n = int(rng.integers(3, 7))
            x = rng.standard_normal((n, dim)) * np.linspace(0.5, 2, dim)
            y = x @ rng.standard_normal(dim) + 2.0 * i + rng.standard_normal(n)
            gone = missing and t == 1 and i == 0
            row.append(None if gone else (torch.from_numpy(x), torch.from_numpy(y)))
        data.append(row)
    return model, data


def by_hand(model, data):
    """Per-sample gradients [client][round] -> (n, dim), and the weighted Hessian, in NumPy."""
    w = model.weight.detach().numpy()[0]
    grads, hessian = {}, 0.0
    clients = len(data[0])
    for i in range(clients):
        cells = [(x.numpy(), y.numpy()) for x, y in (row[i] for row in data if row[i] is not None)]
        grads[i] = [(x @ w - y)[:, None] * x for x, y in cells]
        hessian = hessian + sum(x.T @ x / len(y) for x, y in cells) / len(cells) / clients
    return grads, hessian


def params(model):
    return {n: p.detach() for n, p in model.named_parameters()}


# --- variances -----------------------------------------------------------------------------------------------------

G2, D2, S2, DIM = 2.0, 1.0, 3.0, 5


def draw_cells(rng: np.random.Generator, rounds: tuple[int, ...] = (3, 2, 4, 3, 3)):
    mean = 10.0 * np.ones(DIM)
    for i, T in enumerate(rounds):
        client = mean + np.sqrt(G2 / DIM) * rng.standard_normal(DIM)
        for _ in range(T):
            now = client + np.sqrt(D2 / DIM) * rng.standard_normal(DIM)
            sizes = [2, 2, 1] if rng.random() < 0.5 else [3, 1]
            noise = [np.sqrt(S2 / DIM / m) * rng.standard_normal(DIM) for m in sizes]
            yield i, sizes, torch.from_numpy(np.array([now + v for v in noise]))


def test_variances_are_unbiased() -> None:
    """1,500 federations of five clients with two to four rounds: |z| < 4 for each constant."""
    rng = np.random.default_rng(7)
    found = [components(draw_cells(rng)) for _ in range(1500)]
    for name, truth in (("G2", G2), ("D2", D2), ("noise", S2), ("sampling", S2 * (0.5 / 5 + 0.5 / 4))):
        values = np.array([getattr(f, name) for f in found])
        z = (values.mean() - truth) / (values.std(ddof=1) / np.sqrt(len(values)))
        assert abs(z) < 4, (name, values.mean(), z)
    # The test has the power to see what is subtracted: without it, each would be many standard errors off.
    for name, leak in (("G2", (D2 + S2 * 0.225) / 3), ("D2", S2 * 0.225)):
        values = np.array([getattr(f, name) for f in found])
        assert leak > 8 * values.std(ddof=1) / np.sqrt(len(values))


def test_variances_by_brute_force() -> None:
    model, data = regression()
    grads, _ = by_hand(model, data)
    found = measure(model, params(model), data, batch=1, losses=squares)
    cells = [g for rounds in grads.values() for g in rounds]
    s2 = [g.var(axis=0, ddof=1).sum() for g in cells]
    means = {i: np.array([g.mean(axis=0) for g in rounds]) for i, rounds in grads.items()}
    v = [m.var(axis=0, ddof=1).sum() for m in means.values()]
    u = np.array([m.mean(axis=0) for m in means.values()]).var(axis=0, ddof=1).sum()
    assert found.noise == pytest.approx(np.mean(s2))
    assert found.sampling == pytest.approx(np.mean([s / len(g) for s, g in zip(s2, cells, strict=True)]))
    assert pytest.approx(np.mean(v) - found.sampling) == found.D2
    assert pytest.approx(u - np.mean([x / len(m) for x, m in zip(v, means.values(), strict=True)])) == found.G2
    assert found.grad_sq == pytest.approx(np.sum(np.mean([m.mean(axis=0) for m in means.values()], axis=0) ** 2))


def test_exhaustive_rounds_are_the_clients_own_objective() -> None:
    """One subset drawn a round from given ones: G² and D² are moments of the law that draws, by enumeration."""
    model, data = regression()
    grads, _ = by_hand(model, data)
    found = measure(model, params(model), data, batch=1, losses=squares, exhaustive=True)
    means = [np.array([g.mean(axis=0) for g in rounds]) for rounds in grads.values()]
    drawn = np.mean([((m - m.mean(axis=0)) ** 2).sum(axis=1).mean() for m in means])
    assert found.drift().time == pytest.approx(drawn)
    assert found.drift().client == pytest.approx(np.array([m.mean(axis=0) for m in means]).var(axis=0, ddof=1).sum())


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_noise_of_a_step_is_that_of_all_batches(batch: int) -> None:
    """The mean over data sets of the variance over every batch without replacement; and D² of their means."""
    model, data = regression()
    grads, _ = by_hand(model, data)
    drift = dataclasses.replace(measure(model, params(model), data, batch=1, losses=squares), batch=batch).drift()
    spread = []
    for g in (g for rounds in grads.values() for g in rounds):
        means = np.array([g[list(rows)].mean(axis=0) for rows in combinations(range(len(g)), batch)])
        spread.append(((means - g.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert drift.noise == pytest.approx(np.mean(spread), abs=1e-12)
    rounds = [np.array([g.mean(axis=0) for g in r]).var(axis=0, ddof=1).sum() for r in grads.values()]
    assert drift.time == pytest.approx(np.mean(rounds))


def test_fresh_samples_are_all_noise() -> None:
    model, data = regression()
    found = measure(model, params(model), data, batch=2, losses=squares)
    fresh, kept = found.drift(finite=False), found.drift()
    assert fresh.noise == pytest.approx(found.noise / 2)
    assert fresh.time == pytest.approx(max(found.D2, 0))
    assert kept.noise < fresh.noise
    assert kept.time > fresh.time


def test_chunks_of_sorted_data_tell_the_same_noise() -> None:
    """Chunks of 8 of a set sorted by its labels: shuffled first, else their means would differ by the labels, too."""
    rng = np.random.default_rng(0)
    model = torch.nn.Linear(4, 1, bias=False).double()
    torch.nn.init.ones_(model.weight)

    def cell():
        x = 1 + rng.standard_normal((64, 4))
        y = np.sort(5 * rng.standard_normal(64))
        return torch.from_numpy(x), torch.from_numpy(y)

    data = [[cell() for _ in range(4)] for _ in range(6)]
    exact = measure(model, params(model), data, batch=1, losses=squares).noise
    coarse = measure(model, params(model), data, batch=8, losses=squares).noise
    # 24 cells with 7 degrees of freedom each: a relative spread of at most sqrt(2 / 168) = 11 %; unshuffled, 8 times.
    assert abs(coarse / exact - 1) < 4 * 0.11


def test_information_loss() -> None:
    model, data = regression(missing=False)
    grads, _ = by_hand(model, data)
    core = [[(x[:2], y[:2]) for x, y in row] for row in data]
    deltas = np.array([g.mean(axis=0) - g[:2].mean(axis=0) for rounds in grads.values() for g in rounds])
    found = measure(model, params(model), data, losses=squares, remembered=core)
    assert pytest.approx(np.mean((deltas**2).sum(axis=1))) == found.R2
    pairs = [a @ b for a, b in combinations(deltas, 2)]
    assert found.R2_shared == pytest.approx(np.mean(pairs))
    assert found.drift(4).loss_sq(4) == pytest.approx(found.R2)
    # Everything kept loses nothing; a gradient that is off by a constant loses that constant, all of it shared.
    whole = measure(model, params(model), data, losses=squares, remembered=data)
    assert pytest.approx(0, abs=1e-20) == whole.R2
    off = [
        [{"weight": torch.from_numpy(grads[i][t].mean(axis=0))[None] + 0.5} for i in range(3)] for t in range(len(data))
    ]
    constant = measure(model, params(model), data, losses=squares, remembered=off)
    assert pytest.approx(6 * 0.25) == constant.R2
    assert constant.R2_shared == pytest.approx(6 * 0.25)
    drift = constant.drift(3)
    assert drift.loss_var == pytest.approx(0, abs=1e-12)
    assert drift.loss_mean == pytest.approx(np.sqrt(6 * 0.25 / 3))
    assert measure(model, params(model), data, losses=squares).drift().loss_mean == 0


# --- spectra -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-3, 6), min_size=1, max_size=8), st.integers(1, 10), st.integers(0, 10**6))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_lanczos_ends(values: list[int], steps: int, seed: int) -> None:
    """Ends are exact once every distinct eigenvalue had its step, before that from inside and within the error."""
    rng = np.random.default_rng(seed)
    n = len(values)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    H = torch.from_numpy((Q * values) @ Q.T)
    L, mu, L_error, mu_error = _ends(*lanczos(lambda v: H @ v, torch.from_numpy(rng.standard_normal(n)), steps))
    slack = 1e-9
    assert min(values) - slack <= mu <= L <= max(values) + slack
    assert min(abs(L - x) for x in values) <= L_error + slack
    assert min(abs(mu - x) for x in values) <= mu_error + slack
    if steps >= len(set(values)):
        assert max(values) == pytest.approx(L, abs=1e-7)
        assert min(values) == pytest.approx(mu, abs=1e-7)


def test_spectrum_of_a_regression() -> None:
    model, data = regression()
    _, hessian = by_hand(model, data)
    found = measure(model, params(model), data, losses=squares)
    values = np.linalg.eigvalsh(hessian)
    assert pytest.approx(values[-1]) == found.L
    assert found.mu == pytest.approx(values[0])
    assert found.L_error == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(found.problem().eigenvalues, values, rtol=1e-8)
    assert found.concave() == 0
    assert found.size == 6
    assert pytest.approx(found.diagonal[0]) == found.problem(1).L  # the curvature along the gradient


def test_thinning_takes_samples_by_their_weight() -> None:
    """Every sample of a client the same: the Hessian of the thinned set is that of the shares drawn."""
    model = torch.nn.Linear(2, 1, bias=False).double()
    torch.nn.init.ones_(model.weight)
    kinds = [torch.tensor([1.0, 0.0]).double(), torch.tensor([0.0, 3.0]).double()]
    sizes = [(4, 40), (6, 20)]
    data = [[(kinds[i].repeat(n, 1), torch.zeros(n).double()) for i, n in enumerate(row)] for row in sizes]
    whole = measure(model, params(model), data, losses=squares)
    assert (whole.L, whole.mu) == (pytest.approx(4.5), pytest.approx(0.5))  # half of each, whatever the sizes
    few = [measure(model, params(model), data, losses=squares, most=30, seed=s).mu for s in range(200)]
    z = (np.mean(few) - 0.5) / np.sqrt(0.25 / 30 / 200)
    assert abs(z) < 4
    assert len(set(few)) > 5


# --- back to the model ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 4, 6])
def test_descent_on_the_problem_is_descent_on_the_network(dim: int) -> None:
    """Gauss quadrature: m dimensions carry the gradient norms of m - 1 steps; all of them, all steps."""
    model, data = regression()
    _, hessian = by_hand(model, data)
    found = measure(model, params(model), data, losses=squares)
    g = torch.zeros(6, dtype=torch.float64)
    for i in range(3):
        rounds = [row[i] for row in data if row[i] is not None]
        for x, y in rounds:
            residual = x @ model.weight.detach()[0] - y
            g += x.T @ residual / len(y) / len(rounds) / 3
    lr, norms = 0.1, []
    for _ in range(12):
        norms.append(float(g @ g))
        g = g - lr * torch.from_numpy(hessian) @ g
    quiet = nqm.Federation(clients=1, local_steps=1, rounds=11)
    curve = nqm.expect(found.problem(dim), nqm.Drift(), quiet, nqm.FedAvg(lr=lr)).grad_norm_sq.values.ravel()
    exact = 12 if dim == 6 else dim
    np.testing.assert_allclose(curve[:exact], norms[:exact], rtol=1e-7)
    if dim < 6:
        assert not np.allclose(curve, norms, rtol=1e-7)


def test_measured_constants_predict_federated_averaging() -> None:
    """Three clients draw one of the same six subsets a round and take four full-batch steps.

    The subsets' gradients differ by +-c along each axis, so the time drift is isotropic as in the model, and the design
    is common, so the Hessian is. 4,000 runs in NumPy against the exact curve of nqm at the measured constants: |z| < 4.
    """
    rng = np.random.default_rng(3)
    dim, clients, local, rounds, lr, runs = 3, 3, 4, 10, 0.2, 4000
    X = rng.standard_normal((dim, dim)) + 2 * np.eye(dim)
    axes = np.concatenate([np.eye(dim), -np.eye(dim)]) * 0.7
    base = X @ rng.standard_normal(dim)
    targets = [base + dim * np.linalg.solve(X.T, axis) for axis in axes]  # X^T (y - base) / dim = axis
    data = [[(torch.from_numpy(X), torch.from_numpy(y)) for _ in range(clients)] for y in targets]
    model = torch.nn.Linear(dim, 1, bias=False).double()
    torch.nn.init.ones_(model.weight)
    found = measure(model, params(model), data, batch=dim, losses=squares, exhaustive=True)
    drift = found.drift()
    assert drift.time == pytest.approx(0.49)
    assert (drift.client, drift.noise) == (pytest.approx(0, abs=1e-12), pytest.approx(0, abs=1e-12))

    H, w = X.T @ X / dim, np.ones((runs, dim))
    measured = []
    for _ in range(rounds + 1):
        g = w @ H - X.T @ base / dim
        measured.append((g**2).sum(axis=1))
        local_w = np.repeat(w[:, None], clients, axis=1)
        xi = axes[rng.integers(len(axes), size=(runs, clients))]
        for _ in range(local):
            local_w = local_w - lr * (local_w @ H - X.T @ base / dim - xi)
        w = local_w.mean(axis=1)
    federation = nqm.Federation(clients=clients, local_steps=local, rounds=rounds)
    curve = nqm.expect(found.problem(), drift, federation, nqm.FedAvg(lr=lr)).grad_norm_sq.values.ravel()
    assert curve[0] == pytest.approx(measured[0][0])
    for claimed, values in zip(curve[1:], measured[1:], strict=True):
        assert abs(values.mean() - claimed) < 4 * values.std(ddof=1) / np.sqrt(runs)


def test_given_clients_have_no_mean_drift() -> None:
    """With all of them in every round they cannot be told from none; with some of them, G² is back."""
    model, data = regression()
    found = dataclasses.replace(measure(model, params(model), data, losses=squares), G2=2.5, D2=0.3, sampling=0.0)
    clients = found.clients(5)
    np.testing.assert_allclose(clients.delta.sum(axis=0), 0, atol=1e-12)
    assert np.sum(clients.delta**2) == pytest.approx(4 * 2.5)
    drift, method = dataclasses.replace(found.drift(), noise=0.0), nqm.FedAvg(lr=0.02)

    def end(drift, sampled, clients, dim=None) -> float:
        federation = nqm.Federation(clients=5, sampled=sampled, local_steps=3, rounds=2000)
        curve = nqm.expect(found.problem(dim), drift, federation, method, clients=clients)
        return float(curve.grad_norm_sq.values.ravel()[-1])

    without = dataclasses.replace(drift, client=0.0)
    assert end(drift, None, clients) == pytest.approx(end(without, None, None))
    assert end(drift, None, None) - end(drift, None, clients) == pytest.approx(2.5 / 5)  # G²/N, for drawn ones
    # The mean of 2 of 5 has variance G²/2 (1 - 2/5), that of two time drifts D²/2: in one direction, an exact ratio.
    ratio = end(drift, 2, found.clients(5, 1), 1) / end(without, 2, None, 1)
    assert ratio == pytest.approx(1 + 2.5 * 0.6 / 0.3, rel=1e-6)


def digits_data(alpha: float, beta: float):
    train = load("digits", "train")
    parts = partition.evolving(train.y, alpha, clients=4, subsets=6, beta=beta, seed=1)
    return train, [[(train.x[parts[i][t]], train.y[parts[i][t]]) for i in range(4)] for t in range(6)]


def test_a_network_on_digits() -> None:
    """Drift sits where the partition put it, the loss is not convex, and nqm takes what was measured."""
    train, between = digits_data(0.01, 1e5)
    _, within = digits_data(1e5, 0.01)
    _, nowhere = digits_data(1e5, 1e5)
    model = build("mlp", train.shape, train.classes)
    step = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(60):
        step.zero_grad()
        torch.nn.functional.cross_entropy(model(train.x), train.y).backward()
        step.step()
    found = {
        name: measure(model, params(model), data, batch=10, steps=12, most=400, exhaustive=True)
        for name, data in (("clients", between), ("time", within), ("none", nowhere))
    }
    assert found["clients"].G2 > 10 * found["clients"].D2
    assert found["time"].D2 > 10 * found["time"].G2
    assert abs(found["none"].G2) < 0.1 * found["clients"].G2
    assert abs(found["none"].D2) < 0.1 * found["time"].D2
    one = found["clients"]
    assert one.L > 0 > one.mu
    assert 0 < one.concave() < 1
    problem = one.problem()
    assert problem.eigenvalues.min() == 0
    start = float(np.sum(problem.b_eigen**2))
    assert start == pytest.approx(one.grad_sq * (1 - one.concave()), rel=1e-6)
    curve = nqm.expect(problem, one.drift(), nqm.Federation(clients=4, rounds=3), nqm.FedAvg(lr=0.01))
    assert float(curve.grad_norm_sq[..., 0].squeeze()) == pytest.approx(start)


def test_the_model_is_left_as_it_was_and_a_seed_names_the_result() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.Dropout(),
        torch.nn.Flatten(),
        torch.nn.Linear(144, 3),
    )
    before = {k: v.clone() for k, v in model.state_dict().items()}
    rng = torch.Generator().manual_seed(0)
    cells = [(torch.rand(4, 1, 8, 8, generator=rng), torch.tensor([0, 1, 2, 0])) for _ in range(4)]
    data = [cells[:2], cells[2:]]
    one, same = (measure(model, params(model), data, batch=2, steps=2) for _ in range(2))
    assert one == same
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert one.size == sum(p.numel() for p in model.parameters())


def test_bad_requests_are_one_line() -> None:
    model, data = regression()
    lone = [row[:1] for row in data]
    empty = [[(torch.zeros(1, 6).double(), torch.zeros(1).double())] * 2] * 2
    found = measure(model, params(model), data, losses=squares)
    for call in (
        lambda: measure(model, params(model), lone, losses=squares),
        lambda: measure(model, params(model), data[:1], losses=squares),
        lambda: measure(model, params(model), empty, losses=squares),
        lambda: measure(model, params(model), data, losses=squares, batch=0),
        lambda: measure(model, params(model), data, losses=squares, remembered=[[None] * 3] * 4),
        lambda: found.problem(7),
        lambda: found.problem(0),
        lambda: dataclasses.replace(found, diagonal=(-1.0,), side=()).problem(),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert "\n" not in str(caught.value)
