"""Every deep method: at once and looped alike, what reduces to FedAvg, and each rule against a twin written out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import deep_cases as cases  # noqa: E402

import nqm  # noqa: E402
from deep import curvature  # noqa: E402
from deep.local import Examples  # noqa: E402
from deep.methods import (  # noqa: E402
    ER,
    EWC,
    METHODS,
    NCCL,
    CFlag,
    CoreSet,
    FedAvg,
    FedAvgM,
    FedEve,
    FedProx,
    FedTrack,
    FLwF2T,
    Generative,
    LwF,
    MimeLite,
    Regularization,
    Scaffold,
    Special,
    SpecialC,
    memory,
)
from deep.methods.base import Method  # noqa: E402
from deep.methods.coreset import herding  # noqa: E402
from deep.network import Net  # noqa: E402
from deep.train import Fixed, Run, Training, train  # noqa: E402
from nqm.check import InvalidInput  # noqa: E402

LR = 0.1
TWICE = Training(rounds=2, epochs=2, batch=8, precision="float64", evaluate_every=0)


def run(method: Method, stream: object = None, **settings: object) -> Run:
    training = dataclasses.replace(TWICE, **settings)  # type: ignore[arg-type]
    return train(cases.conv(), stream or cases.two_tasks(), method, training)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", METHODS)
def test_at_once_is_the_loop(name: str) -> None:
    method = METHODS[name](LR, **cases.SMALL.get(name, {}))
    for precision, tolerance in (("float32", 1e-5), ("float64", 1e-12)):
        a, b = (
            run(method, vmap=way, client_chunk=chunk, precision=precision)
            for way, chunk in (("on", None), ("off", None))
        )
        assert (a.w - b.w).abs().max() <= tolerance
        assert (a.w - a.net.start()).abs().max() > 1e-3  # it went somewhere
    chunked = run(method, vmap="on", client_chunk=1)
    assert (chunked.w - b.w).abs().max() <= 1e-12


FEDAVG = [
    FedProx(LR, prox=0.0),
    FedAvgM(LR, momentum=0.0),
    MimeLite(LR, momentum=0.0),
    Special(LR, prox=0.0, decay=False),
    SpecialC(LR, prox=0.0, decay=False),
    FedEve(LR, gain=1.0, predict=False),
    Regularization(LR, beta=0.0, block=0.0),
    Regularization(LR, weights="current"),
    CoreSet(LR, size=0),
    CoreSet(LR, size=0, choose="icarl"),
    Generative(LR, size=0),
    ER(LR, size=0),
    ER(LR, memory_batch=0),
    NCCL(LR, size=0),
    EWC(LR, penalty=0.0),
    LwF(LR, strength=0.0),
    FLwF2T(LR, alpha=1.0, beta=0.0),
]


@pytest.mark.parametrize("method", FEDAVG, ids=lambda m: f"{m.name}")
def test_reduces_to_fedavg_to_the_bit(method: Method) -> None:
    assert torch.equal(run(method, vmap="on").w, run(FedAvg(LR), vmap="on").w)


def test_core_sets_that_weigh_nothing_are_fedavg() -> None:
    """With weights on the current round alone, and whole batches, what is joined does not count."""
    a = run(CoreSet(LR, size=5, weights="current"), batch=None)
    assert (a.w - run(FedAvg(LR), batch=None).w).abs().max() < 1e-14


@pytest.mark.parametrize("prox", [0.0, 0.7])
def test_linear_regression_is_the_noisy_quadratic_model(prox: float) -> None:
    """One round on quadratic losses is what nqm's numbers for the method say, e -> e + server * average of d."""
    K, dim, shards = 4, 3, [cases.regression(12, 3, s) for s in range(3)]
    module = cases.linear(dim)
    training = Training(rounds=1, local_steps=K, batch=None, precision="float64", evaluate_every=0)
    method = FedProx(0.05, server_lr=0.8, prox=prox)
    found = train(module, Fixed([shards]), method, training, losses=cases.half_squares)
    twin = nqm.FedProx(0.05, server_lr=0.8, prox=prox).linear(K)
    w0 = module[0].weight.detach().double().numpy().ravel()
    moved = []
    for x, y in shards:
        A, b = x.numpy().T @ x.numpy() / len(y), -x.numpy().T @ y.numpy() / len(y)
        d = np.zeros(dim)
        for _ in range(K):
            d = d - twin.step * (A @ (w0 + twin.follow * d) + twin.prox * d + b)
        moved.append(d)
    np.testing.assert_allclose(found.w.numpy(), w0 + twin.server * np.mean(moved, 0), rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (FedAvg(LR, server_lr=0.7), nqm.FedAvg(LR, server_lr=0.7)),
        (FedAvgM(LR, momentum=0.6), nqm.METHODS["fedavgm"](LR, momentum=0.6)),
        (FedEve(LR), nqm.METHODS["fedeve"](LR)),
        (FedEve(LR, gain=0.3), nqm.METHODS["fedeve"](LR, gain=0.3)),
        (Special(LR, prox=0.4), nqm.METHODS["special"](LR, prox=0.4)),
        (SpecialC(LR, prox=0.4), nqm.METHODS["special-c"](LR, prox=0.4)),
        (MimeLite(LR, momentum=0.4), nqm.METHODS["mimelite"](LR, momentum=0.4)),
        (Scaffold(LR), nqm.METHODS["scaffold"](LR)),
    ],
    ids=lambda m: m.name,
)
def test_rules_are_those_of_nqm(ours: Method, theirs: object) -> None:
    """Three rounds of the second task on quadratics, with nqm's rules for the step of a client and of the server."""
    from nqm.methods.base import Round

    K, dim, many = 3, 4, 3
    shards = [cases.regression(9, dim, 40 + s) for s in range(many)]
    forms = [(x.numpy().T @ x.numpy() / len(y), -x.numpy().T @ y.numpy() / len(y)) for x, y in shards]
    federation = nqm.Federation(clients=many, local_steps=K, rounds=3)
    # In nqm memory begins anew with each task, so both begin here at task 2: the first has a rate too small to matter.
    first = [(x, 0 * y) for x, y in shards]
    module = cases.linear(dim)
    with torch.no_grad():
        module[0].weight.zero_()  # a minimum of the first task, so that it leaves nothing behind
    training = Training(rounds=3, local_steps=K, batch=None, precision="float64", evaluate_every=0)
    found = train(module, Fixed([first, shards]), ours, training, losses=cases.half_squares)
    w, held, anchor = np.zeros(dim), {}, np.zeros(dim)
    for _ in range(3):
        full = np.mean([A @ w + b for A, b in forms], 0)
        r = Round(w, anchor, 2, federation, lambda full=full: full, lambda full=full: (full, 0.0), held)
        r.start = theirs.start(r)
        for i, (A, b) in enumerate(forms):
            r.client, v = i, r.start
            for _ in range(K):
                v = theirs.local_step(v, r, lambda v, A=A, b=b: A @ v + b)
            r.updates[i] = v - r.start
        w = theirs.server_step(r, np.mean(list(r.updates.values()), 0))
    np.testing.assert_allclose(found.w.numpy(), w, rtol=1e-10, atol=1e-13)


# C-FLAG


def iag_by_hand(shards: list, w0: np.ndarray, lr: float, K: int, parts: list) -> tuple[list, list]:
    """(4) and (5) as they stand: a table of component gradients, their average, one of them renewed a step."""

    def component(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        return lambda w: x.T @ (x @ w - y) / len(y)

    pieces = zip(shards, parts, strict=True)
    grads = [[component(x[p].numpy(), y[p].numpy()) for p in ps] for (x, y), ps in pieces]
    share = [np.array([len(p) for p in ps]) / sum(len(p) for p in ps) for ps in parts]
    tables = [[q * g(w0) for q, g in zip(s, gs, strict=True)] for s, gs in zip(share, grads, strict=True)]
    local = [np.sum(t, 0) for t in tables]
    overall = np.mean(local, 0)
    J, ends, totals = max(map(len, parts)), [], []
    for gs, s, table, mine in zip(grads, share, tables, local, strict=True):
        w, total = w0.copy(), np.zeros_like(w0)
        for k in range(K):
            if k > 0 and k % J < len(gs):
                table[k % J] = s[k % J] * gs[k % J](w)
            total += np.sum(table, 0)
            w = w - lr * (overall - mine + np.sum(table, 0))
        ends.append(w)
        totals.append(total)
    return ends, totals


class Captured:
    """Keeps the cohort and what it carried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import deep.local

        inner = deep.local.train

        def spy(method, cohort, start, own, shared):  # type: ignore[no-untyped-def]
            self.cohort, self.start = cohort, start
            self.local = inner(method, cohort, start, own, shared)
            return self.local

        monkeypatch.setattr(deep.local, "train", spy)


@pytest.mark.parametrize("vmap", ["on", "off"])
def test_fedtrack_aggregates_incrementally(vmap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unequal clients, two and a half passes over minibatches of four."""
    shards = [cases.regression(n, 3, n) for n in (11, 4, 8)]
    seen, module = Captured(monkeypatch), cases.linear(3)
    training = Training(rounds=1, local_steps=7, batch=4, precision="float64", evaluate_every=0, vmap=vmap)
    found = train(module, Fixed([shards]), FedTrack(0.05), training, losses=cases.half_squares)
    parts = [[p for p in seen.cohort.cycle_of(i, once=True) if len(p)] for i in range(3)]
    assert [len(p) for p in parts] == [3, 1, 2]
    ends, totals = iag_by_hand(shards, seen.start.numpy(), 0.05, 7, parts)
    np.testing.assert_allclose(seen.local.ends.numpy(), ends, atol=1e-14)
    np.testing.assert_allclose(seen.local.own["total"].numpy(), totals, atol=1e-13)
    np.testing.assert_allclose(found.w.numpy(), np.mean(ends, 0), atol=1e-14)


def test_fedtrack_of_one_client_with_whole_batches_is_fedavg() -> None:
    one = Fixed([[cases.images(20, 1)]])
    a, b = (run(m, one, batch=None) for m in (FedTrack(LR), FedAvg(LR)))
    assert (a.w - b.w).abs().max() < 1e-14


def test_c_flag_without_memory_is_fedtrack() -> None:
    assert torch.equal(run(CFlag(LR, size=0)).w, run(FedTrack(LR)).w)
    one = Fixed([[cases.images(9, 1), cases.images(14, 2)]])
    assert torch.equal(run(CFlag(LR), one).w, run(FedTrack(LR), one).w)  # the first task has no past


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("case", ["worst", "average"])
def test_c_flag_step_is_algorithm_3(adaptive: bool, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last round's update, client by client, with Table 1's rates."""
    shards = [[cases.regression(8, 3, 100 + 10 * task + s) for s in range(3)] for task in range(2)]
    lr, L, K = 0.02, 5.0, 4
    seen, module = Captured(monkeypatch), cases.linear(3)
    training = Training(rounds=1, local_steps=K, batch=4, precision="float64", evaluate_every=0)
    method = CFlag(lr, adaptive=adaptive, case=case, L=L, size=100, sample=100)
    found = train(module, Fixed(shards), method, training, losses=cases.half_squares)
    x0, own = seen.start.numpy(), {k: v.numpy() for k, v in seen.local.own.items()}
    f = np.mean([x.numpy().T @ (x.numpy() @ x0 - y.numpy()) / len(y) for x, y in shards[0]], 0)  # all of task 1 is kept
    deltas, inner = [], []
    for i in range(3):
        a = own["total"][i]
        lam = f @ a
        inner.append(lam)
        alpha, beta = lr, lr
        if adaptive and lam > 0:
            beta = (1 - L * lr) * lam / (L * (3 if case == "worst" else 1) / 3 * a @ a)
        elif adaptive:
            alpha = lr * (1 - lam / (f @ f))
        deltas.append(alpha * f + beta * (K * own["correction"][i] + a))
    assert min(inner) < 0 < max(inner)  # both cases occur
    np.testing.assert_allclose(found.w.numpy(), x0 - np.mean(deltas, 0), atol=1e-13)
    whole = own["total"].mean(0)
    gamma = L * lr**2 / 2 * whole @ whole - lr * (1 - L * lr) * np.mean(inner)  # (15)
    assert found.diagnostics["forgetting"] == pytest.approx([0.0, gamma])


def test_adaptive_rates_forget_less() -> None:
    """Lemmas 6 and 7 of `cflag` in the worst case: every client's contribution (189) is at most that of fixed rates."""
    source, lr, L, S = torch.Generator().manual_seed(3), 0.03, 5.0, 6
    method, share = CFlag(lr, L=L), torch.full((S,), 1 / S, dtype=torch.float64)
    for _ in range(50):
        a, f = (torch.randn(n, 4, generator=source, dtype=torch.float64) for n in (S, 1))
        inner = a @ f[0]
        alpha, beta = method.rates(inner, a, share, f[0])
        part = [L * b**2 / 2 * a.square().sum(1) - b * (1 - L * al) * inner for al, b in ((lr, lr), (alpha, beta))]
        assert (part[1] <= part[0] + 1e-15).all()


# CFL


def test_taylor_terms_of_a_quadratic_are_its_data() -> None:
    """With a diagonal Hessian both are exact, so remembering terms and remembering everything agree: one client,
    new data each round, uniform weights. Also says that Hutchinson's probes are exact on a diagonal."""
    dim, K = 3, 3
    rounds = []
    for t in range(4):
        source = torch.Generator().manual_seed(t)
        q, _ = torch.linalg.qr(torch.randn(9, dim, generator=source, dtype=torch.float64))
        x = q * torch.rand(dim, generator=source, dtype=torch.float64) * 6
        rounds.append([(x, torch.randn(9, generator=source, dtype=torch.float64))])
    stream = cases.Changing(rounds)
    training = Training(rounds=4, local_steps=K, batch=None, precision="float64", evaluate_every=0)
    for weights in ("uniform", "lemma-b.4"):
        a, b = (
            train(cases.linear(dim), stream, method, training, losses=cases.half_squares)
            for method in (
                Regularization(0.1, layers="all", weights=weights, R2=0.5),
                CoreSet(0.1, size=9, weights=weights, R2=0.5),
            )
        )
        assert (a.w - b.w).abs().max() < 1e-13
        assert (
            a.w - train(cases.linear(dim), stream, FedAvg(0.1), training, losses=cases.half_squares).w
        ).norm() > 0.01


def test_regularization_keeps_forty_matrices_and_the_top_layers() -> None:
    rounds = [[cases.images(6, 100 * t + s) for s in range(3)] for t in range(5)]
    training = Training(rounds=5, local_steps=1, batch=6, evaluate_every=0)
    found = train(cases.conv(), cases.Changing(rounds), Regularization(LR, buffer=7, curvature="fisher"), training)
    assert [t["matrices"] for t in found.state["terms"]] == [3, 3]
    top = 8 * 3 + 3
    assert found.state["beta"].tolist() == pytest.approx([0.1] * (64 * 8 + 8) + [1.0] * top)
    assert all((t["slope"] >= 0).all() and len(t["slope"]) == 64 * 8 + 8 + top for t in found.state["terms"])


def net_and_examples() -> tuple[Net, torch.Tensor, Examples]:
    net = Net(cases.seeded(torch.nn.Flatten(), torch.nn.Linear(9, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)).double())
    x, y = cases.images(10, 5, side=3)
    return net, net.start(), Examples.of(x.double(), y, 0)


def test_curvature() -> None:
    net, w, examples = net_and_examples()
    batch = {"x": examples.x, "y": examples.y, "weight": examples.weight / 10}
    H = torch.func.hessian(net.loss)(w, batch)
    g = [
        torch.func.grad(net.loss)(w, {"x": x[None], "y": y[None], "weight": x.new_ones(1)})
        for x, y in zip(*examples[:2], strict=True)
    ]
    assert torch.allclose(curvature.gradient(net, w, examples, batch=4), torch.stack(g).mean(0), atol=1e-14)
    assert torch.allclose(curvature.fisher(net, w, examples, chunk=3), torch.stack(g).square().mean(0), atol=1e-14)
    probes = 400
    found = curvature.hutchinson(net, w, examples, probes, torch.Generator().manual_seed(0), batch=4)
    variance = (H.square().sum(1) - H.diag().square()) / probes  # of z_i (H z)_i, Rademacher z
    z = (found - H.diag()) / variance.sqrt()
    assert 0.7 < z.square().mean() < 1.4
    assert z.abs().max() < 5


def test_herding_is_algorithm_3() -> None:
    net, w, shard = net_and_examples()

    class One:
        pass

    cohort = One()
    cohort.net, cohort.shards = net, [shard]  # type: ignore[attr-defined]
    phi, chosen = net.features(w, shard.x), []
    for c in shard.y.unique():
        members = [j for j in range(10) if shard.y[j] == c]
        mu, picked = phi[members].mean(0), []
        for k in range(1, 3):
            free = [j for j in members if j not in picked]
            picked.append(min(free, key=lambda j: float((mu - (phi[j] + sum(phi[p] for p in picked)) / k).norm())))
        chosen += picked
    found = herding(cohort, 0, w, 2 * len(shard.y.unique()))  # type: ignore[arg-type]
    assert torch.equal(found.x, shard.x[chosen])


def test_generated_samples_look_like_their_class_to_the_model() -> None:
    stream = Fixed([[cases.images(30, 3)]])
    far, near = (
        train(
            cases.batch_norm(),
            stream,
            Generative(LR, size=20, walk=walk, heat=0.0),
            Training(rounds=2, evaluate_every=0),
        )
        for walk in (0, 40)
    )
    x, y = stream.shards[0][0]

    def energy(found: Run) -> float:
        held = found.state["memory"][0][0]
        with found.net.mode(training=False):
            phi = found.net.features(found.w, x)
            return sum(
                float((p - phi[y == c].mean(0)).square().sum())
                for p, c in zip(found.net.features(found.w, held["x"]), held["y"], strict=True)
            )

    assert energy(near) < 0.5 * energy(far)
    held = near.state["memory"][0][0]["x"]
    assert held.min() >= 0
    assert held.max() <= 1


# Memory


def test_memory_leaves_out_the_present_set_and_drops_the_oldest() -> None:
    seen: list[dict[int, int]] = []
    rounds = [[cases.images(10, t)] for t in range(4)]

    def look(found: Run, cohort: object) -> None:
        seen.append({key: len(v["y"]) for key, v in found.state["memory"][0].items()})
        assert (
            sum(e.size for e in memory.recall(found.state, 0, besides=found.round or 4)) == sum(seen[-1].values()) - 4
        )

    train(
        cases.conv(),
        cases.Changing(rounds),
        ER(LR, size=4, capacity=9),
        Training(rounds=4, evaluate_every=0),
        after_round=look,
    )
    assert seen == [{1: 4}, {1: 4, 2: 4}, {2: 4, 3: 4}, {3: 4, 4: 4}]


def test_a_ring_is_class_balanced() -> None:
    x, y = cases.images(40, 0)
    y = torch.where(torch.arange(40) < 34, 0, torch.where(torch.arange(40) < 38, 1, 2))
    found = run(ER(LR, size=8), Fixed([[(x, y)]]))
    assert torch.bincount(found.state["memory"][0][0]["y"]).tolist() == [3, 3, 2]


def test_er_step_is_the_joint_batch() -> None:
    """One step on both minibatches is a step on their union; here memory is all of task 1."""
    shards = [[cases.regression(6, 3, 1)], [cases.regression(6, 3, 2)]]
    training = Training(rounds=1, local_steps=1, batch=None, precision="float64", evaluate_every=0)
    first = train(cases.linear(3), Fixed(shards[:1]), FedAvg(LR), training, losses=cases.half_squares).w
    found = train(cases.linear(3), Fixed(shards), ER(LR, size=6, memory_batch=6), training, losses=cases.half_squares)
    x, y = (torch.cat(parts) for parts in zip(shards[0][0], shards[1][0], strict=True))
    assert torch.allclose(found.w, first - LR * x.T @ (x @ first - y) / 12, atol=1e-14)


def test_ewc_pulls_to_the_earlier_model_with_its_fisher_information() -> None:
    shards = [[cases.regression(6, 3, 1)], [cases.regression(6, 3, 2)]]
    training = Training(rounds=1, local_steps=2, batch=None, precision="float64", evaluate_every=0)
    v = train(cases.linear(3), Fixed(shards[:1]), FedAvg(LR), training, losses=cases.half_squares).w
    found = train(cases.linear(3), Fixed(shards), EWC(LR, penalty=0.8), training, losses=cases.half_squares)
    (x0, y0), (x, y) = shards[0][0], shards[1][0]
    F, w = (x0 * (x0 @ v - y0)[:, None]).square().mean(0), v
    for _ in range(2):
        w = w - LR * (x.T @ (x @ w - y) / 6 + 0.8 * F * (w - v))
    assert torch.allclose(found.w, w, atol=1e-14)


def test_distillation_holds_the_earlier_answers() -> None:
    """The stronger the teacher, the nearer the answers on new data stay to the old model's."""
    stream = cases.two_tasks(None)
    x = stream.shards[1][1][0]
    distance = []
    for strength in (0.0, 1.0, 10.0):
        found = run(LwF(0.05, strength=strength), stream, precision="float32")
        old = run(FedAvg(0.05), Fixed(stream.shards[:1]), precision="float32")
        distance.append(float((found.net.logits(found.w, x) - old.net.logits(old.w, x)).norm()))
    assert distance[0] > 1.2 * distance[1] > 1.2 * distance[2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedAvg(0.0), "method.lr = 0.0"),
        (lambda: FedProx(LR, prox=-1), "method.prox = -1"),
        (lambda: CFlag(0.2), "must be < 1/L"),
        (lambda: NCCL(0.2), "must be < 1/L"),
        (lambda: FLwF2T(LR, alpha=0.9, beta=0.2), "method.beta"),
        (lambda: Regularization(LR, layers="some"), "method.layers"),
        (lambda: CoreSet(LR, weights="thm"), "method.weights"),
        (lambda: FedEve(LR, gain=2), "method.gain"),
    ],
)
def test_bad_fields_are_named(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInput, match=message):
        make()
