"""Training itself: against plain torch, keyed minibatches, BatchNorm, heads, options, and what a user is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import deep_cases as cases  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

import deep.local  # noqa: E402
import nqm.result  # noqa: E402
from deep import metrics  # noqa: E402
from deep.draws import generator  # noqa: E402
from deep.methods import CoreSet, FedAvg, FedProx, Generative, LwF  # noqa: E402
from deep.models import build  # noqa: E402
from deep.network import Net  # noqa: E402
from deep.settings import CACHE, at_once  # noqa: E402
from deep.train import Diverged, Fixed, Shard, Training, evaluate, train  # noqa: E402
from nqm.check import InvalidInput  # noqa: E402

ROOT = Path(__file__).parent.parent


def plain_round(module: torch.nn.Module, x, y, lr: float, plan) -> dict:  # type: ignore[no-untyped-def]
    """What a client does, in the words of any torch tutorial."""
    import copy

    module = copy.deepcopy(module).train()
    optimiser = torch.optim.SGD(module.parameters(), lr=lr)
    for index in plan:
        optimiser.zero_grad()
        cross_entropy(module(x[index]), y[index]).backward()
        optimiser.step()
    return {k: v.detach() for k, v in module.state_dict().items()}


@pytest.mark.parametrize("make", [cases.conv, cases.batch_norm])
@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_a_round_is_what_torch_does(make, weighting: str) -> None:  # type: ignore[no-untyped-def]
    """Weights and running statistics after one round of FedAvg over unequal clients, by module and optimiser."""
    shards, cohorts = [cases.images(n, n) for n in (20, 7, 33)], []
    module = make()
    training = Training(rounds=1, epochs=2, batch=8, weighting=weighting, seed=3)
    run = train(module, Fixed([shards]), FedAvg(0.2), training, after_round=lambda run, cohort: cohorts.append(cohort))
    ends = [plain_round(module, x, y, 0.2, cohorts[0].steps_of(i)) for i, (x, y) in enumerate(shards)]
    p = np.array([20, 7, 33]) / 60 if weighting == "size" else np.full(3, 1 / 3)
    after = run.net.parts(run.w) | run.net.buffers
    for name, value in after.items():
        if value.is_floating_point():
            expected = sum(q * end[name] for q, end in zip(p, ends, strict=True))
            assert torch.allclose(value, expected.float(), atol=2e-6), name
    assert torch.equal(run.net.start(), torch.cat([q.detach().flatten() for q in module.parameters()]))


def test_every_epoch_sees_every_example_once() -> None:
    cohorts: list = []
    train(
        cases.conv(),
        cases.two_tasks(),
        FedAvg(0.1),
        Training(rounds=1, epochs=3, batch=8),
        after_round=lambda r, c: cohorts.append(c),
    )
    for cohort in cohorts:
        for i, shard in enumerate(cohort.shards):
            plan = cohort.steps_of(i)
            each = -(-shard.size // 8)
            assert len(plan) == 3 * each == cohort.steps(i)
            epochs = [torch.cat(plan[e * each : (e + 1) * each]) for e in range(3)]
            assert all(sorted(e.tolist()) == list(range(shard.size)) for e in epochs)
            if shard.size > 8:
                assert not torch.equal(epochs[0], epochs[1])


def test_minibatches_have_names_not_turns() -> None:
    """The order in which clients are listed changes nothing but the order of a sum."""

    class Turned(Fixed):
        def sampled(self, task: int, round: int) -> list[int]:
            return super().sampled(task, round)[::-1]

    shards = cases.two_tasks().shards
    training = Training(rounds=2, batch=8, precision="float64", evaluate_every=0)
    a, b = (train(cases.conv(), kind(shards), FedAvg(0.1), training) for kind in (Fixed, Turned))
    assert (a.w - b.w).abs().max() < 1e-14
    assert not torch.equal(
        train(cases.conv(), Fixed(shards), FedAvg(0.1), Training(rounds=2, batch=8, seed=1)).w, a.w.float()
    )
    assert generator(1, "a", 2).initial_seed() != generator(1, "a", 3).initial_seed()
    assert generator(1, "a", 2).initial_seed() == generator(1, "a", 2).initial_seed()


def test_who_trains_at_once() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    small, norm = Net(cases.conv()), Net(cases.batch_norm())
    large = Net(torch.nn.Linear(CACHE // 8, 1))
    assert at_once(small, cpu, 5, Training(rounds=1)) == 5
    assert at_once(small, cpu, 10**6, Training(rounds=1)) == CACHE // small.size
    assert at_once(small, cpu, 5, Training(rounds=1, vmap="off")) == 0
    assert at_once(small, cpu, 5, Training(rounds=1, client_chunk=2)) == 2
    assert at_once(large, cpu, 5, Training(rounds=1)) == 0
    assert at_once(large, gpu, 5, Training(rounds=1)) == 5
    assert at_once(norm, gpu, 5, Training(rounds=1)) == 0
    with pytest.raises(InvalidInput, match=r"training.vmap = 'on': BatchNorm"):
        at_once(norm, cpu, 5, Training(rounds=1, vmap="on"))


@pytest.mark.parametrize(("method", "refreshed"), [(Generative(0.1, size=30, walk=2), True), (FedAvg(0.1), False)])
def test_batch_norm_is_refreshed_on_real_data(method, refreshed, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """The refreshed running mean is that of the first layer's output on the clients' own data, and on nothing else."""
    shards, ends = [cases.images(40, 1), cases.images(40, 2)], []
    inner = deep.local.train
    monkeypatch.setattr(deep.local, "train", lambda *given: ends.append(inner(*given)) or ends[-1])
    run = train(cases.batch_norm(), Fixed([shards]), method, Training(rounds=3, batch=None, evaluate_every=0))
    means = []
    for end, (x, _) in zip(ends[-1].ends, shards, strict=True):
        parts = run.net.parts(end)
        means.append(torch.nn.functional.conv2d(x, parts["0.weight"], parts["0.bias"]).mean((0, 2, 3)))
    assert torch.allclose(run.net.buffers["1.running_mean"], torch.stack(means).mean(0), atol=1e-5) is refreshed


def test_heads_compete_within_their_task() -> None:
    """Task-incremental: rows of the last layer that belong to the other task's classes stay as they were."""
    x, y = cases.images(40, 0, classes=4)
    first, second = y < 2, y >= 2
    stream = Fixed([[(x[first], y[first])], [(x[second], y[second])]], heads=[[0, 1], [2, 3]])
    module = cases.seeded(torch.nn.Flatten(), torch.nn.Linear(36, 4))
    tests = [(x[first], y[first]), (x[second], y[second])]
    begun = train(
        module, Fixed(stream.shards[:1], heads=stream.heads), FedAvg(0.05), Training(rounds=3, batch=8), tests=tests
    )
    before, after = module[1].weight, begun.net.parts(begun.w)["1.weight"]
    assert torch.equal(before[2:], after[2:])
    assert not torch.equal(before[:2], after[:2])
    for vmap in ("on", "off"):
        settings = Training(rounds=3, batch=8, vmap=vmap)
        plain, replay, taught = (
            train(module, stream, method, settings, tests=tests)
            for method in (FedAvg(0.05), CoreSet(0.05, size=6), LwF(0.05))
        )
        assert torch.equal(plain.net.parts(plain.w)["1.weight"][:2], after[:2])
        assert not torch.equal(replay.net.parts(replay.w)["1.weight"][:2], after[:2])  # old examples, old head
        for run in (plain, replay, taught):
            assert np.isfinite(run.curve["loss"]).all()
            assert run.curve["loss"][-1, 1] < run.curve["loss"][3, 1]


def test_evaluation_is_in_batches_and_by_heart() -> None:
    net = Net(cases.conv())
    x, y = cases.images(50, 4)
    w = net.start()
    outputs = net.module(x).detach()
    accuracy, loss = evaluate(net, w, x, y, batch=7)
    assert accuracy == pytest.approx(float((outputs.argmax(1) == y).float().mean()))
    assert loss == pytest.approx(float(cross_entropy(outputs, y)))


def test_curves_matrix_and_file(tmp_path: Path) -> None:
    tests = [cases.images(30, 90), cases.images(30, 91)]
    run = train(cases.conv(), cases.two_tasks(), FedAvg(0.1), Training(rounds=4, evaluate_every=3), tests=tests)
    assert list(zip(run.curve["task"], run.curve["round"], strict=True)) == [(0, 0), (0, 3), (0, 4), (1, 3), (1, 4)]
    np.testing.assert_array_equal(run.accuracy, run.curve["accuracy"][[2, 4]])
    data = run.dataset()
    nqm.result.save(data, tmp_path / "run.nc")
    assert (tmp_path / "run.nc").stat().st_size > 0


def test_metrics() -> None:
    A = [[0.9, 0.1, 0.2], [0.7, 0.8, 0.3], [0.5, 0.75, 0.6]]
    assert metrics.acc(A) == pytest.approx((0.5 + 0.75 + 0.6) / 3)
    assert metrics.bwt(A) == pytest.approx((-0.4 - 0.05) / 2)
    assert metrics.forgetting(A) == pytest.approx(0.225)
    assert metrics.worst_drop(A) == pytest.approx(-0.4)
    assert np.isnan(metrics.bwt([[0.5]]))
    with pytest.raises(InvalidInput, match="one test set a task"):
        metrics.acc([[0.5, 0.5]])


def test_information_loss() -> None:
    """Footnote 6 of `cfl`: 0 where all is kept, the average norm of gradients where nothing is, less in between."""
    stream = cases.two_tasks()
    training = Training(rounds=2, batch=8, precision="float64", evaluate_every=0)
    found = {size: train(cases.conv(), stream, CoreSet(0.1, size=size), training) for size in (0, 4, 12, 100)}
    loss = {size: metrics.information_loss(run, stream) for size, run in found.items()}
    assert loss[100] < 1e-12 < loss[12] < loss[4]
    run, norms = found[0], []
    for task in range(2):
        for t in (1, 2):
            for client in stream.sampled(task, t):
                x, y, _ = stream.data(task, t, client)
                batch = {"x": x.double(), "y": y, "weight": torch.full((len(y),), 1 / len(y), dtype=torch.float64)}
                norms.append(float(torch.func.grad(run.net.loss)(run.w, batch).norm()))
    assert loss[0] == pytest.approx(np.mean(norms))
    with pytest.raises(InvalidInput, match="keeps no examples"):
        metrics.information_loss(train(cases.conv(), stream, FedAvg(0.1), training), stream)


def test_options_leave_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"rounds": 2, "batch": 8, "evaluate_every": 0}
    run = train(cases.conv(), cases.two_tasks(), FedAvg(0.1), Training(**settings))
    for way in ("on", "off"):
        twin = train(
            cases.conv(),
            cases.two_tasks(),
            FedAvg(0.1),
            Training(**settings, channels_last=True, deterministic=True, vmap=way),
        )
        assert (run.w - twin.w).abs().max() < 1e-5
        low = train(cases.conv(), cases.two_tasks(), FedAvg(0.1), Training(**settings, precision="bfloat16", vmap=way))
        assert low.w.dtype == torch.float32
        assert 1e-7 < (run.w - low.w).abs().max() < 0.02
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.slow
def test_compiled_training_is_the_same() -> None:
    settings = {"rounds": 2, "batch": 8, "evaluate_every": 0, "vmap": "on"}
    a, b = (
        train(cases.conv(), cases.two_tasks(), FedProx(0.1), Training(**settings, compile=c)) for c in (False, True)
    )
    assert (a.w - b.w).abs().max() < 1e-5


def test_lr_decays_within_each_task() -> None:
    used: list[float] = []

    class Noted(FedAvg):
        name = "noted"

        def collect(self, *given):  # type: ignore[no-untyped-def]
            used.append(self.lr)
            return super().collect(*given)

    from deep.methods import METHODS

    del METHODS["noted"]
    train(cases.conv(), cases.two_tasks(), Noted(0.1), Training(rounds=3, lr_decay=0.5, evaluate_every=0))
    assert used == pytest.approx([0.1, 0.05, 0.025] * 2)


# What a user is told


@pytest.mark.parametrize("vmap", ["on", "off"])
def test_divergence_names_task_round_and_client(vmap: str) -> None:
    class Poisoned(Fixed):
        def data(self, task: int, round: int, client: int) -> Shard:
            x, y, key = super().data(task, round, client)
            bad = (task, round, client) == (1, 2, 3)
            return Shard(x * float("nan") if bad else x, y, key)

    with pytest.raises(Diverged, match=r"task 1, round 2, client 3: weights are not finite"):
        train(cases.conv(), Poisoned(cases.two_tasks().shards), FedAvg(0.1), Training(rounds=3, vmap=vmap))
    with pytest.raises(Diverged, match=r"task 0, round \d+, "):
        train(
            cases.linear(2),
            Fixed([[cases.regression(5, 2, 0)]]),
            FedAvg(1e20),
            Training(rounds=30),
            losses=cases.half_squares,
        )


@pytest.mark.parametrize(
    ("vmap", "advice"),
    [
        ("on", r"lower training.client_chunk \(now 2 clients at once\) or training.batch \(now 8\)"),
        ("off", r"lower training.batch \(now 8\)"),
    ],
)
def test_out_of_gpu_memory_says_what_to_lower(vmap: str, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given):  # type: ignore[no-untyped-def]
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.\nMore.")

    monkeypatch.setattr(deep.local, "train", full)
    with pytest.raises(InvalidInput, match=r"out of GPU memory in task 0, round 1: " + advice) as told:
        train(cases.conv(), cases.two_tasks(), FedAvg(0.1), Training(rounds=1, batch=8, vmap=vmap, client_chunk=2))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rounds": 0}, "training.rounds = 0"),
        ({"batch": 0}, "training.batch = 0"),
        ({"device": "tpu"}, "training.device = 'tpu'"),
        ({"precision": "float8"}, "training.precision"),
        ({"weighting": "loud"}, "training.weighting"),
        ({"lr_decay": 0}, "training.lr_decay"),
    ],
)
def test_bad_settings_are_named(fields: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        train(cases.conv(), cases.two_tasks(), FedAvg(0.1), Training(**{"rounds": 1, **fields}))


def test_a_device_that_is_not_there_is_refused() -> None:
    absent = [
        n for n, here in (("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available())) if not here
    ]
    for name in absent:
        with pytest.raises(InvalidInput, match="is not available here"):
            train(cases.conv(), cases.two_tasks(), FedAvg(0.1), Training(rounds=1, device=name))


def test_a_client_without_data_is_named() -> None:
    stream = Fixed([[cases.images(5, 0), cases.images(0, 1)]])
    with pytest.raises(InvalidInput, match="task 0, round 1, client 1: has no data"):
        train(cases.conv(), stream, FedAvg(0.1), Training(rounds=1))


def test_without_torch_the_message_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None\nimport deep"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "deep needs torch: pip install 'driftproof[deep]'" in done.stderr


@pytest.mark.parametrize(("name", "side"), [("mlp", 8), ("lenet5", 16), ("resnet18", 8)])
def test_the_papers_models_train_at_once(name: str, side: int) -> None:
    torch.manual_seed(0)
    model = build(name, (1, side, side), 3, norm="group")
    shards = [cases.images(n, n, side=side) for n in (4, 3)]
    settings = {"rounds": 1, "local_steps": 1, "batch": 4, "evaluate_every": 0}
    a, b = (train(model, Fixed([shards]), FedAvg(0.05), Training(**settings, vmap=way)) for way in ("on", "off"))
    assert (a.w - a.net.start()).abs().max() > 1e-4
    assert (a.w - b.w).abs().max() < 1e-5
    if name == "resnet18":
        assert [n for n, _ in a.net.layers()[-2:]] == ["layer4", "fc"]  # the top layers of `cfl`, C.1.2
