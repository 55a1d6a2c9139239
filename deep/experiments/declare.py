"""What an experiment is: a declaration of settings, methods and the paper's numbers, at the paper's scale and at one
that runs anywhere in seconds."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from nqm.check import choice

from ..local import Cohort
from ..methods import METHODS, Method
from ..train import Run, Training
from .streams import Indexed, Partition

SCALES = ("smoke", "paper")
Fields = Mapping[str, Any]
Number = tuple[float, float | None] | str


@dataclass(frozen=True)
class World:
    """Data, clients and network.

    data: one set, or one a task (domains that share their classes). tasks: split one set by its classes into so many.
    heads: classes of other tasks don't compete (task-incremental). pixels: the side that images are resized to.
    at_hand: sets that are not there are left out.
    """

    data: tuple[str, ...]
    model: str
    partition: Partition
    tasks: int = 1
    heads: bool = False
    pixels: int | None = None
    norm: str = "batch"
    at_hand: bool = False


@dataclass(frozen=True)
class Setting:
    """A column of a table or a panel of a figure. methods: fields that methods have here, by the methods' labels
    ("": all methods that have such a field). training: what differs from the experiment's."""

    label: str
    world: World
    methods: Mapping[str, Fields] = field(default_factory=dict)
    training: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class Arm:
    """A row: a method under the name that the paper gives it."""

    label: str
    method: str
    fields: Fields = field(default_factory=dict)


Watch = Callable[[Setting, nn.Module, Indexed, Method, Training], Callable[[Run, Cohort], None]]


@dataclass(frozen=True)
class Smoke:
    """What becomes of an experiment on embedded data.

    world, partition, training: fields that are replaced. methods: as in a setting. keep: labels of the settings that
    are run, or ``settings`` of its own.
    """

    lr: float
    training: Fields
    world: Fields = field(default_factory=dict)
    partition: Fields = field(default_factory=dict)
    methods: Mapping[str, Fields] = field(default_factory=dict)
    keep: tuple[str, ...] | None = None
    settings: tuple[Setting, ...] | None = None
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Plan:
    """An experiment at one scale."""

    scale: str
    settings: tuple[Setting, ...]
    arms: tuple[Arm, ...]
    lr: float
    training: Mapping[str, Any]
    seeds: tuple[int, ...]
    methods: Mapping[str, Fields] = field(default_factory=dict)

    def method(self, arm: Arm, setting: Setting) -> Method:
        known = {f.name for f in dataclasses.fields(METHODS[arm.method])}
        fields: dict[str, Any] = {"lr": self.lr, **arm.fields}
        for source in (self.methods, setting.methods):
            fields |= {name: value for name, value in source.get("", {}).items() if name in known}
            fields |= source.get(arm.label, {})
        return METHODS[arm.method](**fields)

    def rounds(self, setting: Setting) -> int:
        return int({**self.training, **setting.training}["rounds"])


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    metrics: what its table shows. figure: how it is drawn, a function of `deep.draw`. finding: what the paper reports.
    settings, arms, lr, training, seeds: at the paper's scale. open: what the paper leaves open and we chose, and
    where our run differs from it. paper: its numbers by (method, setting, metric), in per cent where accuracies are.
    watch: makes a function that adds a number a round to the run's diagnostics.
    """

    id: str
    title: str
    finding: str
    settings: tuple[Setting, ...]
    arms: tuple[Arm, ...]
    lr: float
    training: Mapping[str, Any]
    seeds: tuple[int, ...]
    smoke: Smoke
    metrics: tuple[str, ...] = ("best5",)
    figure: str = "curves"
    open: tuple[str, ...] = ()
    paper: Mapping[tuple[str, str, str], Number] = field(default_factory=dict)
    watch: Watch | None = None
    counted: int = 0
    """Rounds of which the classes of every client's data are counted."""

    def at(self, scale: str) -> Plan:
        choice("--scale", scale, SCALES)
        if scale == "paper":
            return Plan("paper", self.settings, self.arms, self.lr, self.training, self.seeds)
        s = self.smoke
        chosen = s.settings or tuple(
            dataclasses.replace(x, world=_shrunk(x.world, s))
            for x in self.settings
            if s.keep is None or x.label in s.keep
        )
        return Plan("smoke", chosen, self.arms, s.lr, {**self.training, **s.training}, s.seeds, s.methods)


def _shrunk(world: World, smoke: Smoke) -> World:
    known = {f.name for f in dataclasses.fields(world.partition)}  # type: ignore[arg-type]
    changes = {name: value for name, value in smoke.partition.items() if name in known}
    small = {"data": ("digits",), "model": "mlp", "pixels": None, **smoke.world}
    return dataclasses.replace(world, partition=dataclasses.replace(world.partition, **changes), **small)  # type: ignore[type-var]


_number = re.compile(r"(-?\d+(?:\.\d+)?)(?: ?± ?(\d+(?:\.\d+)?))?")


def numbers(columns: Sequence[str | tuple[str, str]], text: str, metric: str = "best5") -> dict:
    """The paper's numbers from a table in plain text: a method a line, cells between bars, "-" where there is none.

    columns: the settings, or (setting, metric).
    """
    found: dict[tuple[str, str, str], Number] = {}
    for line in text.strip().splitlines():
        label, *cells = (cell.strip() for cell in line.split("|"))
        for column, cell in zip(columns, cells, strict=True):
            setting, kind = (column, metric) if isinstance(column, str) else column
            match = _number.fullmatch(cell)
            if match:
                found[label, setting, kind] = float(match[1]), float(match[2]) if match[2] else None
            elif cell != "-":
                found[label, setting, kind] = cell
    return found
