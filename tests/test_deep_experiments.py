"""The experiments of `deep`: complete declarations, smoke runs, tables, resumption, the command line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

import driftproof
import nqm
from deep import draw
from deep.data import Images, load, present
from deep.experiments import EXPERIMENTS, SCALES, find, make, run, summary, table
from deep.experiments.bridge import quadratic
from deep.experiments.declare import Experiment, Setting, World, numbers
from deep.experiments.report import NAMES
from deep.experiments.runner import Sets
from deep.experiments.streams import EVEN, Dirichlet, Evolving, Mixed, Stateless, Users, Windows
from deep.measure import Measured
from deep.partition import class_tasks, of_classes
from deep.train import Training
from nqm import InvalidInput

torch.set_num_threads(1)

ASKED = {
    "cfl": [*(f"table-{n}" for n in range(4, 10)), "fig-1", "fig-3", "fig-5", "fig-6", "fig-7"],
    "special": ["table-1", "table-13", "table-14", "fig-2", "fig-3", "fig-4"],
    "fedeve": ["table-1", "table-3", "fig-3", "fig-4"],
    "cflag": ["table-2", "table-3", "table-7", "table-8", *(f"fig-{n}" for n in (2, 3, 4, 5, 7))],
}
QUICK = ["cfl/fig-1", "cfl/fig-6", "special/fig-2", "fedeve/fig-3", "cflag/fig-4"]
FASHION = "cfl/fashion-mnist"


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRIFTPROOF_DATA", raising=False)


def tiny(id: str, **changes: Any) -> Experiment:
    """An experiment with its smoke scale changed."""
    e = find(id)
    return dataclasses.replace(e, smoke=dataclasses.replace(e.smoke, **changes))


# --- declarations -------------------------------------------------------------------------------------------------


def test_every_table_and_figure_is_there() -> None:
    asked = {f"{paper}/{name}" for paper, these in ASKED.items() for name in these}
    assert asked | {FASHION, "bridge/digits"} == set(EXPERIMENTS)


@pytest.mark.parametrize("id", EXPERIMENTS)
def test_declarations_are_complete(id: str) -> None:
    e = find(id)
    assert e.title
    assert e.finding
    assert e.figure in draw.FIGURES
    assert set(e.metrics) <= set(NAMES)
    for scale in SCALES:
        plan = e.at(scale)
        assert plan.settings
        assert plan.seeds
        assert len({s.label for s in plan.settings}) == len(plan.settings)
        assert len({a.label for a in plan.arms}) == len(plan.arms)
        for setting in plan.settings:
            Training(**{**plan.training, **setting.training})
            for name in setting.world.data:
                present(name)  # refuses a name that no reader knows
            for arm in plan.arms:
                assert plan.method(arm, setting).name == arm.method
    smoke = e.at("smoke")
    if id != FASHION:
        assert all(present(name) or s.world.at_hand for s in smoke.settings for name in s.world.data)
    assert e.seeds
    assert e.training["rounds"] >= smoke.training["rounds"]


@pytest.mark.parametrize("id", [id for id, e in EXPERIMENTS.items() if "/table-" in id])
def test_tables_hold_the_papers_numbers(id: str) -> None:
    e = find(id)
    settings = {s.label for s in e.settings}
    assert {s for _, s, _ in e.paper} == settings, "a column without a number, or a number without a column"
    assert {m for _, _, m in e.paper} <= set(e.metrics)
    for arm in e.arms:
        assert any(method == arm.label for method, _, _ in e.paper), arm.label
    for setting in e.at("smoke").settings:
        assert setting.label in settings or id == "special/table-13", "the paper's number stands beside a smoke run"


@pytest.mark.parametrize(
    ("id", "key", "value"),
    [
        ("cfl/table-4", ("Naive (Large Set)", "CIFAR10", "best5"), (78.90, 0.09)),
        ("cfl/table-6", ("CFL-Core-Set", "α = 0.2", "best5"), (84.41, 0.11)),
        ("cfl/table-8", ("CFL-Core-Set", "stateless", "best5"), "×"),
        ("special/table-1", ("SPECIAL", "DN4IL", "BWT"), (-19.50, 0.41)),
        ("special/table-1", ("FedAvg", "DN4IL", "worst_drop"), (-78.81, 0.80)),
        ("special/table-13", ("SPECIAL-C", "λ = 1", "BWT"), (2.56, None)),
        ("fedeve/table-3", ("FedEve", "α = 0.01, E = 5", "final"), (74.56, 2.05)),
        ("cflag/table-3", ("C-FLAG", "TinyIN", "ACC"), (44.30, 0.71)),
        ("cflag/table-7", ("TARGET", "CIFAR100 IID", "forgetting"), (26.75, 5.61)),
        ("cflag/table-8", ("C-FLAG", "CIFAR100 non-IID, 5 clients", "ACC"), (38.43, None)),
    ],
)
def test_numbers_as_printed(id: str, key: tuple[str, str, str], value: object) -> None:
    assert find(id).paper[key] == value


def test_the_papers_scale() -> None:
    """A few numbers of each paper that decide what paper scale means."""
    ids = ("cfl/table-6", "special/table-1", "fedeve/table-1", "cflag/table-3")
    cfl, special, fedeve, cflag = (find(id).at("paper") for id in ids)
    assert (cfl.lr, cfl.training["rounds"]) == (0.01, 500)
    assert cfl.settings[0].world == World(("cifar10",), "resnet18", Evolving(0.1, clients=7, subsets=30))
    assert special.seeds == (25, 225, 2025)
    assert special.lr == 1e-3
    assert [special.rounds(s) for s in special.settings] == [20, 20, 30, 30]
    proxes = [special.method(special.arms[-1], s).config()["prox"] for s in special.settings]
    assert proxes == [0.25, 0.40, 0.05, 0.10]
    assert fedeve.training["rounds"] == 1500
    assert fedeve.settings[0].world.partition == Users(10)
    assert cflag.seeds == (1234, 1235, 1236)
    assert cflag.settings[2].world.model == "resnet50"


def test_numbers_from_text() -> None:
    found = numbers(("a", ("b", "ACC")), "X y | 1.5 ± 0.2 | -3\n Z | ✓ | -")
    assert found == {("X y", "a", "best5"): (1.5, 0.2), ("X y", "b", "ACC"): (-3.0, None), ("Z", "a", "best5"): "✓"}


# --- streams ------------------------------------------------------------------------------------------------------

DIGITS = load("digits", "train")


def keys(stream: Any, rounds: int) -> dict[tuple[int, int], list[torch.Tensor]]:
    """Data sets by (client, key), over all rounds."""
    found: dict[tuple[int, int], list[torch.Tensor]] = {}
    for t in range(1, rounds + 1):
        for client in stream.sampled(0, t):
            shard = stream.data(0, t, client)
            found.setdefault((client, shard.key), []).append(shard.x)
    return found


@pytest.mark.parametrize(
    "split",
    [
        Evolving(0.2, subsets=5),
        Windows(0.1, 0.5, subsets=5),
        Stateless(0.2, subsets=8),
        Dirichlet(0.3, 20, 5),
        Mixed(0.1, 0.1, 20, 5),
    ],
)
def test_a_key_names_one_data_set(split: Any) -> None:
    stream, again = (split.stream([DIGITS], 30, 3) for _ in range(2))
    for (client, key), sets in keys(stream, 30).items():
        assert all(torch.equal(x, sets[0]) for x in sets), (client, key)
    for t in (30, 1, 7):
        assert stream.sampled(0, t) == again.sampled(0, t)
        for client in stream.sampled(0, t):
            assert torch.equal(stream.data(0, t, client).y, again.data(0, t, client).y)


def test_windows_come_back_under_their_key() -> None:
    found = keys(Windows(0.5, 0.5, clients=3, subsets=4).stream([DIGITS], 40, 0), 40)
    counts = [len(sets) for sets in found.values()]
    assert min(counts) > 1
    assert len(found) == 3 * 7


def test_stateless_clients_are_seen_once() -> None:
    stream = Stateless(0.2, clients=7).stream([DIGITS], 20, 0)
    seen = [c for t in range(1, 21) for c in stream.sampled(0, t)]
    assert len(set(seen)) == len(seen) == stream.clients == 140


@pytest.mark.parametrize("within", [EVEN, 0.05])
def test_dealing_anew_keeps_the_pool(within: float) -> None:
    """`fedeve`, B.2: period drift is the pool's and stays; client drift is the deal's."""
    plain = Dirichlet(0.05, 20, 5).stream([DIGITS], 10, 1)
    mixed = Mixed(0.05, within, 20, 5).stream([DIGITS], 10, 1)
    spread = []
    for t in (1, 5):
        assert plain.sampled(0, t) == mixed.sampled(0, t)
        pools = []
        for stream in (plain, mixed):
            labels = [stream.data(0, t, c).y for c in stream.sampled(0, t)]
            pools.append(torch.cat(labels).bincount(minlength=10))
        assert torch.equal(*pools)
        fractions = np.array([np.bincount(y, minlength=10) / len(y) for y in labels])
        spread.append(np.abs(fractions - pools[1].numpy() / pools[1].sum().item()).sum(1).max())
    assert max(spread) < 0.2 if within == EVEN else min(spread) > 0.5


def test_every_task_has_its_own_partition() -> None:
    parts = Dirichlet(0.3, 6).parts([DIGITS, DIGITS], 0)
    for task in parts:
        assert sorted(np.concatenate(task)) == list(range(len(DIGITS)))
    assert any(len(a) != len(b) for a, b in zip(*parts, strict=True))


# --- runs ---------------------------------------------------------------------------------------------------------


def smoke(id: str, out: Path) -> tuple[dict[str, Any], xr.Dataset]:
    e = find(id)
    found, files = make(e, out, device="cpu")
    assert [p.suffix for p in files] == [".nc", ".json", ".png", ".pdf"]
    assert all(p.stat().st_size > 300 for p in files)
    assert json.loads(files[1].read_text()) == json.loads(json.dumps(found))
    assert sorted(p.name for p in files[0].parent.iterdir()) == sorted(p.name for p in files), "something was left"
    assert "smoke scale" in found["title"]
    assert found["comparable"] is False
    data = nqm.load(files[0])
    grid = table(e, found)
    assert all(len(row) == len(grid.header) for row in grid.rows)
    assert found["diverged"] == []
    for row in found["rows"]:
        if any(row["method"] == a.label for a in e.arms):
            assert any(row[m]["mean"] is not None for m in e.metrics), row
    if e.arms:
        curve = data["curve_accuracy"]
        assert float(curve.min()) >= 0
        assert float(curve.max()) <= 1
        best, start = curve.mean("test").max("point"), curve.mean("test").isel(point=0)
        assert bool((best > start).all()), "nothing was learned"
    return found, data


@pytest.mark.parametrize("id", QUICK)
def test_quick_smoke_runs(id: str, tmp_path: Path) -> None:
    _, data = smoke(id, tmp_path)
    if id == "cfl/fig-1":
        assert data["count"].sum(("participant", "class")).values.tolist()[0] == pytest.approx([180] * 10, abs=7)
    if id == "cfl/fig-6":
        past, test = data["past_loss"].values.ravel(), data["curve_loss"].values.ravel()[1:]
        assert np.corrcoef(past, test)[0, 1] > 0.9  # the figure's point, which the digits bear out
    if id == "fedeve/fig-3":
        final = data["final"].values[0, :, 0]
        by = dict(zip(data["setting"].values, final, strict=True))
        assert by["α = 0.01: client drift only"] > by["α = 0.01: period drift only"] + 0.2
    if id == "cflag/fig-4":
        term = data["forgetting_term"].values[0, :, 0]
        rounds = find(id).at("smoke").training["rounds"]
        assert (term[:, :rounds] == 0).all()
        assert (term[:, rounds:] != 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("id", [id for id in EXPERIMENTS if id not in QUICK and id != FASHION])
def test_all_smoke_runs(id: str, tmp_path: Path) -> None:
    smoke(id, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not present("fashion-mnist"), reason="needs Debian's dataset-fashion-mnist")
def test_core_sets_beat_fedavg_on_fashion_mnist(tmp_path: Path) -> None:
    """Seeds 0, 1, 2: in each, and with as many local steps, too."""
    _, data = smoke(FASHION, tmp_path)
    gain = data["best5"].sel({"method": "CFL-Core-Set"}) - data["best5"].sel({"method": "FedAvg"})
    assert gain.shape == (2, 3)
    assert float(gain.min()) > 0


def test_core_sets_of_stateless_clients_are_never_replayed() -> None:
    data = run(tiny("cfl/table-8", keep=("stateless",)), rounds=3)
    a, b = (data["curve_loss"].sel({"method": m}).values for m in ("FedAvg", "CFL-Core-Set"))
    assert np.array_equal(a, b)


def test_a_killed_experiment_resumes_to_the_same_bits(tmp_path: Path) -> None:
    e = tiny("cfl/fig-6", seeds=(0, 1))
    options = {"rounds": 6, "checkpoint_every": 2}
    whole = run(e, checkpoints=tmp_path / "a", **options)

    class Killed(Exception):
        pass

    def kill(message: str) -> None:
        if "run 2 of 2" in message and "round 5 of 6" in message:
            raise Killed

    with pytest.raises(Killed):
        run(e, checkpoints=tmp_path / "b", progress=kill, **options)
    rounds: list[str] = []
    resumed = run(e, checkpoints=tmp_path / "b", resume=True, progress=rounds.append, **options)
    assert [m[-12:] for m in rounds if "round" in m] == ["round 5 of 6", "round 6 of 6"]
    assert whole.identical(resumed)


def test_without_resume_old_checkpoints_go(tmp_path: Path) -> None:
    e, rounds = tiny("cfl/fig-6"), []
    run(e, checkpoints=tmp_path / "c", rounds=2)
    run(e, checkpoints=tmp_path / "c", rounds=2, progress=rounds.append)
    assert sum("round" in m for m in rounds) == 2


def test_divergence_is_a_result(tmp_path: Path) -> None:
    e = tiny("cfl/fig-7", methods={"FedAvg": {"lr": 1e20}})
    found, _ = make(e, tmp_path, rounds=2)
    assert len(found["diverged"]) == 1
    assert "FedAvg · CIFAR10 · seed 0: task 0, round" in found["diverged"][0]
    assert [row["final_loss"]["mean"] is None for row in found["rows"]] == [True, False]
    assert any("Diverged" in sentence for sentence, _ in table(e, found).notes)
    with pytest.raises(InvalidInput, match="every run diverged"):
        run(tiny("cfl/fig-7", lr=1e20), rounds=2)


def test_table_has_the_papers_number_beside_ours() -> None:
    e = tiny("special/table-14", training={"rounds": 1, "epochs": 1})
    found = summary(e, run(e))
    grid = table(e, found)
    row = next(row for row in grid.rows if row[0] == "SPECIAL")
    assert row[1].endswith("\npaper 40.68")
    assert row[2].endswith("\npaper -9.00")
    assert next(row for row in grid.rows if row[0] == "MFCL")[1] == "–\npaper 28.37"
    by = {row["method"]: row for row in found["rows"]}
    assert by["FedAvg"]["ACC"]["mean"] is not None
    assert by["MFCL"]["ACC"]["mean"] is None


SHAPES = {"femnist": (1, 28, 62), "cifar10": (3, 32, 10), "usps": (3, 32, 10)}
MANY = {"femnist": 3600, "cifar10": 300, "usps": 40}


def stand_in(world: World, data_dir: object = None) -> Sets:
    """Noise of the shape of a paper's data."""
    source = torch.Generator().manual_seed(0)
    name = world.data[0]
    channels, side, classes = SHAPES[name]

    def images(n: int) -> Images:
        users = (torch.arange(n) % 40, tuple(map(str, range(40)))) if name == "femnist" else (None, ())
        x = torch.rand(n, channels, side, side, generator=source)
        return Images(x, torch.arange(n) % classes, classes, "noise", *users)

    train, test = ([images(n) for _ in world.data] for n in (50 if world.tasks > 1 else MANY[name], 2 * classes))
    if world.tasks == 1:
        return Sets(train, test, world.data)
    split = class_tasks(classes, world.tasks)
    train, test = ([s[0].take(of_classes(s[0].y, c)) for c in split] for s in (train, test))
    return Sets(train, test, world.data, split if world.heads else None)


@pytest.mark.slow
@pytest.mark.parametrize("id", ["cfl/table-4", "special/table-1", "fedeve/table-1", "cflag/table-3"])
def test_paper_scale_on_noise(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One round of the papers' networks, partitions and methods, where only the data are not theirs."""
    monkeypatch.setattr("deep.experiments.runner.read", stand_in)
    e = find(id)
    first = e.settings[0]
    short = {**first.training, "rounds": 1, "epochs": 1}
    quick = {**first.methods, "MCMC": {"size": 2, "walk": 2}}
    setting = dataclasses.replace(first, training=short, methods=quick)
    data = run(dataclasses.replace(e, settings=(setting,), seeds=e.seeds[:1]), "paper")
    assert json.loads(data.attrs["diverged"]) == []
    assert bool(np.isfinite(data["final_loss"]).all())


# --- the bridge ---------------------------------------------------------------------------------------------------


def measured(diagonal: tuple[float, ...], side: tuple[float, ...]) -> Measured:
    nothing = {"G2": 0.0, "D2": 0.0, "noise": 0.0, "sampling": 0.0, "R2": None, "R2_shared": None}
    ends = {"L": 3.0, "mu": -1.0, "L_error": 0.0, "mu_error": 0.0}
    return Measured(**nothing, **ends, grad_sq=4.0, diagonal=diagonal, side=side, batch=16, size=100)


def test_the_model_keeps_the_gradient() -> None:
    for found in (measured((1.0, 2.0, 1.5), (0.3, 0.2)), measured((-0.5, 2.0, 0.5), (0.8, 0.4))):
        problem = quadratic(found)
        assert np.sum(np.square(problem.b)) == pytest.approx(found.grad_sq)
        lr, few = 1e-6, nqm.Federation(clients=2, local_steps=5, rounds=1)
        loss = nqm.expect(problem, nqm.Drift(), few, nqm.FedAvg(lr))["excess_loss"].values
        assert loss[0] - loss[1] == pytest.approx(5 * lr * found.grad_sq, rel=1e-4)
    convex = measured((1.0, 2.0, 1.5), (0.3, 0.2))
    assert np.allclose(quadratic(convex).spectrum, convex.problem().spectrum)


def test_the_prediction_begins_right() -> None:
    e = tiny("bridge/digits", keep=("α = 10",), lr=0.02)
    data = run(e, rounds=3, batch=1000)
    loss, predicted, quiet = (data[n].values.ravel() for n in ("train_loss", "predicted_loss", "undisturbed_loss"))
    start = float(2 * quiet[0] - quiet[1])  # the first rounds are nearly straight
    assert quiet[0] - loss[0] == pytest.approx(0, abs=0.1 * (start - loss[0]))
    assert (predicted >= quiet).all()
    assert data["measured_at"].values.ravel().tolist() == [0]


# --- bad input, and the command line ------------------------------------------------------------------------------


def cli(*args: object) -> Any:
    return CliRunner().invoke(driftproof.app, ["deep", *map(str, args)])


def one_line(result: Any, *words: str) -> None:
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr, result.stderr


def test_list() -> None:
    shown = cli("--list")
    assert shown.exit_code == 0
    assert all(id in shown.stdout for id in EXPERIMENTS)
    plain = json.loads(cli("--list", "--json").stdout)
    assert [e["id"] for e in plain] == list(EXPERIMENTS)
    assert all(e["title"] and e["finding"] for e in plain)


def test_help_teaches() -> None:
    text = " ".join(cli("--help").stdout.split())
    for word in ("--scale", "--device", "--data-dir", "--resume", "driftproof deep cfl/table-6", "--list"):
        assert word in text


def test_bad_input_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one_line(cli("cfl/tabel-6"), "unknown id", "did you mean cfl/table-6?")
    one_line(cli(), "ID", "--list")
    one_line(cli("cfl/table-6", "--scale", "large"), "--scale", "smoke, paper")
    one_line(cli("cfl/table-6", "--device", "tpu"), "device", "cuda, mps, cpu")
    one_line(cli("cfl/table-6", "--data-dir", tmp_path / "none"), "data-dir", "directory")
    taken = tmp_path / "file"
    taken.write_text("")
    one_line(cli("cfl/table-6", "--out", taken), "--out")
    if not torch.cuda.is_available():
        one_line(cli("cfl/table-6", "--device", "cuda"), "not available")


def test_missing_data_say_what_to_get(tmp_path: Path) -> None:
    wanted = ("cifar-10-binary.tar.gz", "data_batch_1.bin", "30.7 MB", str(tmp_path))
    one_line(cli("cfl/table-6", "--scale", "paper", "--data-dir", tmp_path, "--out", tmp_path / "out"), *wanted)
    for id in ("special/table-1", "fedeve/fig-4", "cflag/table-7"):
        with pytest.raises(InvalidInput, match="get:"):
            run(find(id), "paper", data_dir=tmp_path)


def test_json_is_one_value(tmp_path: Path) -> None:
    shown = cli("cfl/fig-1", "--json", "--out", tmp_path)
    value = json.loads(shown.stdout)
    assert value["id"] == "cfl/fig-1"
    assert value["scale"] == "smoke"
    assert len(value["files"]) == 4
    shown = cli("special/fig-2", "--out", tmp_path)
    assert shown.exit_code == 0
    assert "not comparable with the paper" in " ".join(shown.stdout.split())


def test_settings_may_change_methods() -> None:
    plan = find("cfl/fig-3").at("paper")
    sizes = [plan.method(plan.arms[0], s).config()["size"] for s in plan.settings]
    assert sizes[0] == 20
    assert sizes[-1] == 150
    broken = dataclasses.replace(plan.settings[0], methods={"CFL-Core-Set": {"sise": 3}})
    with pytest.raises(TypeError, match="sise"):
        plan.method(plan.arms[0], broken)
    everyone = Setting("", plan.settings[0].world, {"": {"size": 7, "unknown": 1}})
    assert plan.method(plan.arms[0], everyone).config()["size"] == 7
