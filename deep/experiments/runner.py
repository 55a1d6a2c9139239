"""Run any experiment: every method in every setting with every seed, as one dataset, and its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from nqm import save
from nqm.check import fail
from nqm.result import package_version, writing

from .. import metrics, models, partition
from ..data import Images, domains, load, present
from ..local import Cohort
from ..network import pick_device
from ..train import Diverged, Run, Training, train
from . import bridge
from .declare import Arm, Experiment, Plan, Setting, World
from .report import summary
from .streams import Indexed

Progress = Callable[[str], None]
"""Called with a few words whenever another round is done."""


def quiet(message: str) -> None:
    """The progress report that nobody reads."""


@dataclass(frozen=True)
class Sets:
    """The data of a world in memory: training and test images, one each a task."""

    train: list[Images]
    test: list[Images]
    names: tuple[str, ...]
    heads: list[tuple[int, ...]] | None = None

    @property
    def tests(self) -> list[tuple[Tensor, Tensor]]:
        return [(t.x, t.y) for t in self.test]


def read(world: World, data_dir: Path | str | None = None) -> Sets:
    """The sets that a world names; a missing one is one line that says what to get."""
    names = tuple(n for n in world.data if not world.at_hand or present(n, data_dir))
    if len(names) > 1 or world.at_hand:
        size = world.pixels or 28
        train, test = (domains(names, size, split, data_dir) for split in ("train", "test"))
        return Sets(train, test, names)
    train, test = ([load(names[0], split, data_dir, size=world.pixels)] for split in ("train", "test"))
    if world.tasks == 1:
        return Sets(train, test, names)
    classes = partition.class_tasks(train[0].classes, world.tasks)
    train, test = ([s[0].take(partition.of_classes(s[0].y, c)) for c in classes] for s in (train, test))
    return Sets(train, test, names, classes if world.heads else None)


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    setting: Setting
    arm: Arm
    seed: int
    place: tuple[int, int, int]

    @property
    def label(self) -> str:
        return f"{self.arm.label} · {self.setting.label} · seed {self.seed}"

    @property
    def file(self) -> str:
        return "-".join(map(str, self.place)) + ".pt"


def cells(plan: Plan) -> Iterator[Cell]:
    for i, arm in enumerate(plan.arms):
        for j, setting in enumerate(plan.settings):
            for k, seed in enumerate(plan.seeds):
                yield Cell(setting, arm, seed, (i, j, k))


def run(
    experiment: Experiment,
    scale: str = "smoke",
    *,
    device: str = "auto",
    data_dir: Path | str | None = None,
    checkpoints: Path | None = None,
    resume: bool = False,
    progress: Progress = quiet,
    **training: Any,
) -> xr.Dataset:
    """All runs of an experiment as one dataset (method, setting, seed, ...). All data are read before any training.

    checkpoints: a folder in which runs leave off; with ``resume`` they go on from there. training: fields of
    `deep.train.Training` that replace the plan's. A run that leaves the finite numbers is left empty and named in the
    attribute ``diverged``, unless all do.
    """
    plan = experiment.at(scale)
    pick_device(device)
    if data_dir is not None and not Path(data_dir).is_dir():
        raise fail("data-dir", str(data_dir), "must be a directory")
    sets: dict[Source, Sets] = {}
    for setting in plan.settings:
        key = _source(setting.world)
        if key not in sets:
            progress(f"{experiment.id}: reading {', '.join(setting.world.data)}")
            sets[key] = read(setting.world, data_dir)
    if checkpoints is not None and not resume and checkpoints.exists():
        shutil.rmtree(checkpoints)
    found: dict[tuple[int, int, int], dict[str, Any]] = {}
    diverged: list[str] = []
    grid = list(cells(plan))
    for number, cell in enumerate(grid, 1):
        file = None if checkpoints is None else checkpoints / cell.file
        options = {**plan.training, **cell.setting.training, **training}
        asked = Training(seed=cell.seed, device=device, checkpoint=file, **options)

        def say(message: str, number: int = number) -> None:
            progress(f"{experiment.id}, run {number} of {len(grid)}: {message}")

        try:
            found[cell.place] = _one(experiment, plan, cell, sets[_source(cell.setting.world)], asked, say)
        except Diverged as problem:
            diverged.append(f"{cell.label}: {problem}")
    if grid and not found:
        raise Diverged(f"{experiment.id}: every run diverged; the first: {diverged[0]}")
    data = _gather(plan, found)
    if experiment.counted:
        data = data.merge(_counts(experiment, plan, sets, training))
    used = {s.label: ", ".join(sets[_source(s.world)].names) for s in plan.settings}
    data.attrs = {
        "experiment": experiment.id,
        "scale": scale,
        "data": json.dumps(used),
        "seeds": list(plan.seeds),
        "diverged": json.dumps(diverged),
        "methods": json.dumps(
            {s.label: {a.label: plan.method(a, s).config() for a in plan.arms} for s in plan.settings}, default=str
        ),
        "training": json.dumps({**plan.training, **training}, default=str),
        "torch": str(torch.__version__),
        "version": package_version(),
    }
    return data


class Source(NamedTuple):
    """What decides which files a world reads."""

    data: tuple[str, ...]
    pixels: int | None
    tasks: int
    heads: bool
    at_hand: bool


def _source(world: World) -> Source:
    return Source(world.data, world.pixels, world.tasks, world.heads, world.at_hand)


def _one(
    experiment: Experiment, plan: Plan, cell: Cell, sets: Sets, training: Training, progress: Progress
) -> dict[str, Any]:
    """Train one cell; its numbers by name."""
    world, method = cell.setting.world, plan.method(cell.arm, cell.setting)
    stream = world.partition.stream(sets.train, training.rounds, cell.seed, sets.heads)
    module = models.build(world.model, sets.train[0].shape, sets.train[0].classes, norm=world.norm, seed=cell.seed)
    watch = None
    if experiment.watch is not None:
        watch = experiment.watch(cell.setting, module, stream, method, training)
    rounds = stream.tasks * training.rounds

    def after(run: Run, cohort: Cohort) -> None:
        if watch is not None:
            watch(run, cohort)
        progress(f"{cell.label}, round {cohort.time} of {rounds}")

    done = train(module, stream, method, training, sets.tests, after_round=after)
    return _numbers(experiment, done, stream, sets)


def _numbers(experiment: Experiment, done: Run, stream: Indexed, sets: Sets) -> dict[str, Any]:
    curve = done.curve
    sizes = np.array([len(t) for t in sets.test], dtype=float)
    found: dict[str, Any] = {
        "accuracy": done.accuracy,
        "curve_accuracy": curve["accuracy"],
        "curve_loss": curve["loss"],
        "curve_round": curve["task"] * done.training.rounds + curve["round"],
        "test_size": sizes,
        "final": float(done.accuracy[-1].mean()),
        "final_loss": float(curve["loss"][-1].mean()),
        "best5": float(np.sort(curve["accuracy"][1:].mean(1))[-5:].mean()),
    }
    if stream.tasks > 1:
        found |= {
            "ACC": metrics.acc(done.accuracy),
            "BWT": metrics.bwt(done.accuracy),
            "forgetting": metrics.forgetting(done.accuracy),
            "worst_drop": metrics.worst_drop(done.accuracy),
        }
    if "information_loss" in experiment.metrics and "memory" in done.state:
        found["information_loss"] = metrics.information_loss(done, stream)
    own = {name: np.array(values) for name, values in done.diagnostics.items()}
    if "gain" in own:
        found["mean_gain"] = float(own["gain"].mean())
    if "forgetting" in own:  # C-FLAG's forgetting term, not the metric
        own["forgetting_term"] = own.pop("forgetting")
        found["mean_forgetting_term"] = float(own["forgetting_term"].mean())
    for name in bridge.PREDICTED & own.keys():
        loss = own["train_loss"]
        found[f"{name}_error"] = float(np.abs(own[name] - loss).mean() / np.ptp(loss)) if np.ptp(loss) else np.nan
    return found | own


DIMS = {
    "accuracy": ("task", "test"),
    "curve_accuracy": ("point", "test"),
    "curve_loss": ("point", "test"),
    "curve_round": ("point",),
    "test_size": ("test",),
    **{name: ("measurement",) for name in ("measured_at", *bridge.CONSTANTS)},
}


def _gather(plan: Plan, found: Mapping[tuple[int, int, int], Mapping[str, Any]]) -> xr.Dataset:
    """The cells side by side; what a cell does not have, or has less of, is NaN."""
    outer = (len(plan.arms), len(plan.settings), len(plan.seeds))
    variables: dict[str, Any] = {}
    for name in dict.fromkeys(name for cell in found.values() for name in cell):
        values = {place: np.asarray(cell[name], dtype=float) for place, cell in found.items() if name in cell}
        shape = tuple(np.max([v.shape for v in values.values()], axis=0).astype(int))
        dims = DIMS.get(name, ("step",) if shape else ())
        whole = np.full(outer + shape, np.nan)
        for place, value in values.items():
            whole[place] = _padded(value, shape, np.nan)
        variables[name] = (("method", "setting", "seed", *dims), whole)
    coords = {
        "method": [a.label for a in plan.arms],
        "setting": [s.label for s in plan.settings],
        "seed": list(plan.seeds),
    }
    return xr.Dataset(variables, coords=coords)


def _padded(values: np.ndarray, shape: Sequence[int], fill: float) -> np.ndarray:
    ends = [(0, int(n) - m) for n, m in zip(shape, values.shape, strict=True)]
    return np.pad(values, ends, constant_values=fill) if ends else values


def _counts(experiment: Experiment, plan: Plan, sets: Mapping[Source, Sets], training: Mapping[str, Any]) -> xr.Dataset:
    """How many samples of each class the clients of the first rounds have, with the first seed."""
    seed = plan.seeds[0]
    found = []
    for setting in plan.settings:
        images = sets[_source(setting.world)].train
        rounds = max(experiment.counted, int({**plan.training, **setting.training, **training}["rounds"]))
        stream = setting.world.partition.stream(images, rounds, seed)
        rows = [
            [np.bincount(stream.data(0, t, c).y, minlength=images[0].classes) for c in stream.sampled(0, t)]
            for t in range(1, experiment.counted + 1)
        ]
        found.append(np.array(rows))
    shape = np.max([f.shape for f in found], axis=0)
    whole = np.stack([_padded(counts, shape, 0) for counts in found])
    return xr.Dataset(
        {"count": (("setting", "counted_round", "participant", "class"), whole)},
        coords={"counted_round": np.arange(1, shape[0] + 1)},
    )


def make(
    experiment: Experiment,
    out: Path,
    scale: str = "smoke",
    *,
    device: str = "auto",
    data_dir: Path | str | None = None,
    resume: bool = False,
    progress: Progress = quiet,
    **training: Any,
) -> tuple[dict[str, Any], list[Path]]:
    """Run an experiment and leave its files: .nc, .json, .png, .pdf. Returns its summary and the files."""
    from .. import draw

    base = out / "deep" / f"{experiment.id}-{scale}"
    checkpoints = base.parent / f".{base.name}"
    data = run(
        experiment,
        scale,
        device=device,
        data_dir=data_dir,
        checkpoints=checkpoints,
        resume=resume,
        progress=progress,
        **training,
    )
    found = summary(experiment, data)
    paths = [save(data, base.with_name(base.name + ".nc")), base.with_name(base.name + ".json")]
    with writing(paths[1]) as temporary:
        temporary.write_text(json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    progress(f"{experiment.id}: drawing")
    paths += draw.save(experiment.figure, data, found["title"], base)
    shutil.rmtree(checkpoints, ignore_errors=True)
    return found, paths
