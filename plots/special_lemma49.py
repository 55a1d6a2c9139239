"""Lemma 4.9 of `special`: how far a task moves from where it began, measured and bounded, over the anchor's weight."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

import nqm
from theory.bounds.special import drift as radius

from .observations import Observation, attributes, tell_settings
from .registry import Progress, figure, quiet
from .special_nqm import CHOICES, Choices, across, falls, federation, problem, rate

PROX = np.round(np.geomspace(0.01, 100.0, 17), 6)
ROUNDING = 1e-7  # a distance of 1e-6 between points of size 40 has nine digits
TASKS_SEEN = 20  # beginnings of tasks at which gradients are measured


class World(NamedTuple):
    """Bounded gradients. ``cut``: what an exact gradient is bent to, so that B = cut + sigma.

    A cut far above the gradients that occur leaves them alone; one far below makes them constant, the lemma's worst.
    """

    cut: float
    client: float
    noise: float
    shift: float

    @property
    def B(self) -> float:
        """Assumption 4.1's bound: an exact gradient is at most ``cut`` long, a step's noise exactly sigma."""
        return self.cut + math.sqrt(self.noise)


WORLDS = {
    "gradients mostly below their bound": World(cut=10.0, client=5.0, noise=5.0, shift=16.0),
    "gradients at their bound": World(cut=0.1, client=0.0, noise=0.0, shift=1600.0),
}


def draw(data: xr.Dataset) -> Any:
    """A panel a world: bound and drift over the weight."""
    from .style import BLUE, INK, MUTED, ORANGE, VERMILION, grid_of_panels, panel_title

    fig, (panels,) = grid_of_panels(1, len(data["world"]), 7.6, 3.4, sharex=True)
    for panel, world in zip(panels, data["world"].values, strict=True):
        of = data.sel(world=world)
        panel.plot(data["prox"], of["bound"], color=VERMILION, lw=1.5, label="(8)")
        panel.plot(data["prox"], of["bound_of_T"], color=VERMILION, lw=1.1, ls=(0, (4, 1.6)),
                   label="(8) with its $(1-(1+\\lambda)^{-T})^2$")  # fmt: skip
        panel.plot(data["prox"], of["largest"], "o", color=ORANGE, mfc="white", ms=4.6, mew=1.0,
                   label="measured, largest of all runs")  # fmt: skip
        panel.plot(data["prox"], of["mean"], ".", color=BLUE, ms=4.5, label="measured, mean")
        panel.plot(data["prox"], of["first_task"], color=MUTED, lw=1.1, ls=(0, (1, 1.4)),
                   label="task 1, without anchor")  # fmt: skip
        panel.set(xscale="log", yscale="log", xlabel="$\\lambda$", xlim=(data["prox"][0] / 1.3, data["prox"][-1] * 1.3))
        panel_title(panel, str(world).capitalize(), f"$B={float(of['B']):.3g}$")
    panels[0].set_ylabel("largest $\\|\\theta_i^t-\\theta_i^0\\|^2$ of a task's rounds")
    handles, labels = panels[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=3, labelcolor=INK)
    tell_settings(fig, data)
    return fig


@figure(
    "special/lemma-4.9",
    draw=draw,
    paper="special",
    title="Lemma 4.9: drift from the task's start against its bound",
    expected="Left, the measured drift lies under the bound by orders of magnitude and levels off for small λ, where "
    "the bound goes on rising. Right, it lies on the dashed bound throughout. Both fall like 1/λ² for large λ. Task 1, "
    "which has no anchor, does not see λ and crosses the bound.",
    runtime="10 s",
)
def lemma_4_9(progress: Progress = quiet, choices: Choices = CHOICES) -> xr.Dataset:
    """Squared drift over the weight, at the round and the task i > 1 where it is largest: mean and largest of runs."""
    lr, fed = rate(choices), federation(choices)
    shape = len(WORLDS), len(PROX)
    mean, largest, first = np.empty(shape), np.empty(shape), np.empty(shape)
    for i, (name, world) in enumerate(WORLDS.items()):
        progress(f"{name}: {choices.paths} runs of {len(PROX)} weights")
        parts = _parts(world, choices)
        for j, prox in enumerate(PROX):
            method = nqm.Special(lr, prox=float(prox), decay=False)  # one global rate, hence one bound for all tasks
            moved = nqm.simulate(*parts, fed, method, seeds=choices.paths)["moved_sq"]
            later = moved.sel(task=moved["task"] > 1)
            mean[i, j], largest[i, j] = later.mean("seed").max(), later.max()
            first[i, j] = moved.sel(task=1).mean("seed").max()
    worlds = list(WORLDS.values())
    E, T = choices.local_steps, choices.rounds
    by = ("world", "prox")

    def bound(rounds: float) -> np.ndarray:
        return np.array([[radius(lr, 1.0, E, w.B, float(x), rounds) ** 2 for x in PROX] for w in worlds])

    data = xr.Dataset(
        {
            "mean": (by, mean, {"long_name": "largest over rounds and tasks i ≥ 2 of the mean of ‖θ_i^t − θ_i^0‖²"}),
            "largest": (by, largest, {"long_name": "largest ‖θ_i^t − θ_i^0‖² of any run, round and task i ≥ 2"}),
            "first_task": (by, first, {"long_name": "largest over rounds of the mean of ‖θ_1^t − θ_1^0‖²"}),
            "bound": (by, bound(math.inf), {"long_name": "γ_G²γ_L²E²B²/λ², (8)"}),
            "bound_of_T": (by, bound(T), {"long_name": "the same times (1 − (1+λ)^{−T})²"}),
            "B": ("world", [w.B for w in worlds], {"long_name": "bound of every stochastic gradient"}),
            "longest_gradient": (
                "world",
                [longest_gradient(w, choices) for w in worlds],
                {"long_name": "longest stochastic gradient seen"},
            ),
        },
        coords={"world": list(WORLDS), "prox": PROX},
    )
    length = (data["longest_gradient"] / data["B"]).values
    opening = (
        "Squared distance from where a task began, the largest over its rounds and over all tasks from the second on, "
        "against Lemma 4.9 (γ_G = 1 throughout). Every client's loss is bent so that no exact gradient is longer than "
        "a cut, and step noise has two values, ±σ/√n a coordinate, so that Assumption 4.1 holds with B = cut + σ: the "
        f"longest of {TASKS_SEEN * choices.paths} stochastic gradients has {length[0]:.3g} B (left) and "
        f"{length[1]:.3g} B (right). {choices.paths} runs, seeds 0 to {choices.paths - 1}."
    )
    return data.assign_attrs(attributes("special/lemma-4.9", opening, data, FINDINGS, _ours(choices), closing(data)))


def _parts(world: World, choices: Choices) -> tuple[nqm.Quadratic, nqm.Drift]:
    bent = dataclasses.replace(problem(choices, world.shift), gradient_bound=world.cut)
    return bent, nqm.Drift(client=world.client, noise=world.noise)


def longest_gradient(world: World, choices: Choices) -> float:
    """The longest stochastic gradient met where tasks begin: one client, one step, so that the move is lr times it."""
    lr = rate(choices)
    alone = nqm.Federation(clients=choices.clients, sampled=1, local_steps=1, rounds=1, tasks=TASKS_SEEN)
    method = nqm.Special(lr, prox=0.0, decay=False)
    moved = nqm.simulate(*_parts(world, choices), alone, method, seeds=choices.paths)["moved_sq"].isel(round=1)
    return math.sqrt(float(moved.max())) / lr


def _sides(data: xr.Dataset, test: Callable[[xr.Dataset], Any]) -> dict[str, bool]:
    return {side: bool(test(data.sel(world=w))) for side, w in zip(("left", "right"), WORLDS, strict=True)}


def stays_within(data: xr.Dataset) -> Observation:
    """In no run, round and task from the second on is the squared distance above (8)."""
    by = _sides(data, lambda of: (of["largest"] <= of["bound"] * (1 + ROUNDING)).all())
    return across("from the second task on (8) holds, in every run", by)


def first_task_stays_within(data: xr.Dataset) -> Observation:
    """In no round of task 1 is the mean squared distance above (8), at any λ."""
    by = _sides(data, lambda of: (of["first_task"] <= of["bound"] * (1 + ROUNDING)).all())
    return across("(8) holds for every task, the first included", by)


def anchor_suppresses_drift(data: xr.Dataset) -> Observation:
    """The mean squared distance falls from each λ to the next."""
    return across("a larger λ means less drift", _sides(data, lambda of: falls(of["mean"].values)))


def falls_like_the_bound(data: xr.Dataset) -> Observation:
    """Between the last two λ the mean squared distance falls with an exponent within 0.1 of -2."""

    def test(of: xr.Dataset) -> Any:
        slope = np.diff(np.log(of["mean"].values[-2:])) / np.diff(np.log(of["prox"].values[-2:]))
        return abs(slope[0] + 2.0) < 0.1

    return across("the drift falls like 1/λ², for large λ", _sides(data, test))


FINDINGS = (stays_within, first_task_stays_within, anchor_suppresses_drift, falls_like_the_bound)


def closing(data: xr.Dataset) -> str:
    """How sharp the bound is, and where the first task leaves it."""
    ratio = (data["largest"] / data["bound"]).max("prox").values
    sharp = (data["largest"] / data["bound_of_T"]).max("prox").values
    crossed = data["prox"].where(data["first_task"] > data["bound"]).min("prox").values
    return (
        f"Measured over bound is at most {ratio[0]:.2g} (left) and {ratio[1]:.3g} (right), and {sharp[0]:.2g} and "
        f"{sharp[1]:.3g} if the bound keeps its (1 − (1+λ)^(−T))² (dashed). As λ → 0 the drift of T rounds stays "
        "finite and (8) does not. Task 1, which Section 3 leaves without an anchor, is above the bound from "
        f"λ = {crossed[0]:.2g} (left) and {crossed[1]:.2g} (right) on."
    )


def _ours(choices: Choices) -> str:
    worlds = "; ".join(
        f"cut {w.cut:g}, G² = {w.client:g}, σ² = {w.noise:g}, σ_T² = {w.shift:g}" for w in WORLDS.values()
    )
    c = choices
    return (
        f"{worlds} (left; right); n = {c.dim}, eigenvalues {c.mu:g} to {c.L:g}, local rate {rate(c):.2g}, global rate "
        f"1; taken over from the paper: {c.sampled} of {c.clients} clients a round, E = {c.local_steps}, "
        f"T = {c.rounds}, {c.tasks} tasks"
    )
