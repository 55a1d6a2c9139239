"""Figure 4 of `special`: rounds, local steps and heterogeneity, at the weight that the paper selects."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import xarray as xr

import nqm

from .observations import CLEAR, Observation, attributes, standard_error, tell_settings
from .registry import Progress, figure, quiet
from .special_nqm import (
    CHOICES,
    SERVER_PROX,
    SHIFTS,
    Choices,
    across,
    by_shift,
    dips,
    drift,
    exact,
    falls,
    federation,
    least_loss,
    problem,
    rate,
    rises,
    scores,
)

ROUNDS = (1, 2, 3, 5, 7, 10, 14, 20, 30)  # the paper has 1, 5, 10, 20, 30
STEPS = (1, 2, 3, 4, 5, 7, 10)  # the paper has 1, 3, 5, 10
CLIENT = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
SLOPE = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)

LABELS = {
    "rounds": ("Rounds", "$T$ a task"),
    "local_steps": ("Local steps", "$E$ a round"),
    "client": ("Client drift", "$G^2=E\\|\\delta_i\\|^2$"),
    "slope": ("Clients' curvatures", "relative variance"),
}


def draw(data: xr.Dataset) -> Any:
    """Average loss above, backward transfer below; a column for each thing that is varied."""
    from matplotlib.lines import Line2D

    from .style import BLUE, GREEN, MUTED, ORANGE, VERMILION, grid_of_panels, panel_title, plain_decimals

    looks = [(BLUE, "o"), (GREEN, "^"), (ORANGE, "s"), (VERMILION, "D")]
    fig, panels = grid_of_panels(2, 4, 9.0, 4.4, sharey="row", sharex="col")
    for column, (name, (title, label)) in zip(panels.T, LABELS.items(), strict=True):
        for panel, what in zip(column, ("average_loss", "backward_transfer"), strict=True):
            for (color, marker), shift in zip(looks, data["shift"].values, strict=True):
                of = data[f"{what}_by_{name}"].sel(shift=shift)
                error = data[f"{what}_error_by_{name}"].sel(shift=shift) if name == "slope" else 0.0 * of
                panel.errorbar(
                    data[name], of, 2 * error, color=color, marker=marker, lw=1.2, ms=4.0, mec="white", mew=0.5,
                    elinewidth=0.8,
                )  # fmt: skip
            panel.axvline(data.attrs[f"base_{name}"], color=MUTED, lw=0.8, ls=(0, (1, 2)), zorder=1)
        column[1].axhline(0.0, color=MUTED, lw=0.8, zorder=1)
        column[1].set_xlabel(label)
        panel_title(column[0], title, "simulated" if name == "slope" else "exact")
    for panel in panels[:, 2]:
        panel.set_xscale("symlog", linthresh=0.5, linscale=0.4)
        panel.set_xlim(-0.15, 75.0)
        panel.set_xticks([0, 1, 10, 50], ["0", "1", "10", "50"])
        panel.set_xticks([], minor=True)
    panels[0, 0].set(yscale="log", ylabel="average loss / $J$")
    panels[1, 0].set_yscale("symlog", linthresh=0.5, linscale=1.2)
    panels[1, 0].set_yticks([-0.5, -0.25, 0, 0.25, 0.5, 1, 2, 5, 10], ["−0.5", "", "0", "", "0.5", "1", "2", "5", "10"])
    panels[1, 0].set_yticks([], minor=True)
    panels[1, 0].set_ylabel("backward transfer / $J$")
    plain_decimals(panels[0, 0].yaxis)
    handles: list[Any] = [
        Line2D([], [], color=c, marker=m, ms=4.5, mec="white", lw=1.2, label=f"$\\sigma_T^2={s:g}$")
        for (c, m), s in zip(looks, data["shift"].values, strict=True)
    ]
    handles.append(Line2D([], [], color=MUTED, lw=0.8, ls=(0, (1, 2)), label="value in the other panels"))
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    tell_settings(fig, data)
    return fig


def loss_falls_with_rounds(data: xr.Dataset) -> Observation:
    """The average loss falls from each T to the next."""
    return across("ACC rises with T", by_shift(data, lambda of: falls(of["average_loss_by_rounds"].values)))


def transfer_is_a_u(data: xr.Dataset) -> Observation:
    """Backward transfer falls to one least value at a T that is neither the first nor the last, and then rises."""
    return across("BWT over T is a U", by_shift(data, lambda of: dips(of["backward_transfer_by_rounds"].values)))


def loss_falls_with_steps(data: xr.Dataset) -> Observation:
    """The average loss falls from each E to the next, and by less for every step that is added."""

    def test(of: xr.Dataset) -> Any:
        loss = of["average_loss_by_local_steps"].values
        return falls(loss) and falls(-np.diff(loss) / np.diff(of["local_steps"].values))

    return across("ACC rises with E, with diminishing returns", by_shift(data, test))


def transfer_falls_with_steps(data: xr.Dataset) -> Observation:
    """Backward transfer falls from each E to the next."""
    return across(
        "BWT declines with E", by_shift(data, lambda of: falls(of["backward_transfer_by_local_steps"].values))
    )


def client_drift_hurts(data: xr.Dataset) -> Observation:
    """The average loss rises from each G² to the next."""
    by = by_shift(data, lambda of: rises(of["average_loss_by_client"].values))
    return across("heterogeneity lowers ACC, as drift of the clients' gradients", by)


def curvature_hurts(data: xr.Dataset) -> Observation:
    """From equal curvatures to the widest spread the average loss rises by more than three standard errors, paired."""

    def test(of: xr.Dataset) -> Any:
        loss = of["average_loss_by_slope"].values
        return loss[-1] - loss[0] > CLEAR * of["rise_error"]

    return across("heterogeneity lowers ACC, as spread of the clients' curvatures", by_shift(data, test))


FINDINGS = (
    loss_falls_with_rounds,
    transfer_is_a_u,
    loss_falls_with_steps,
    transfer_falls_with_steps,
    client_drift_hurts,
    curvature_hurts,
)


@figure(
    "special/fig-4",
    draw=draw,
    paper="special",
    title="Figure 4: rounds, local steps and heterogeneity, on the model",
    expected="Loss falls with rounds and local steps and levels off; it rises with client drift, and most for near "
    "tasks, whose losses are small; the spread of curvatures, within the range drawn, moves little.",
    runtime="5 s",
)
def figure_4(progress: Progress = quiet, choices: Choices = CHOICES) -> xr.Dataset:
    """Average loss and backward transfer of SPECIAL over T, E, G² (exact) and the clients' curvatures (simulated)."""
    lr = rate(choices)  # one rate for all: what is varied is not tuned for
    method = nqm.Special(lr, prox=SERVER_PROX)
    grids: dict[str, tuple[Any, ...]] = {"rounds": ROUNDS, "local_steps": STEPS, "client": CLIENT}
    data = xr.Dataset(coords={"shift": list(SHIFTS), **{k: list(v) for k, v in grids.items()}, "slope": list(SLOPE)})
    units = [least_loss(choices, shift) for shift in SHIFTS]
    for name, grid in grids.items():
        progress(f"over {LABELS[name][0].lower()}")
        values = np.array(
            [
                [scores(exact(dataclasses.replace(choices, **{name: x}), shift, method), unit) for x in grid]
                for shift, unit in zip(SHIFTS, units, strict=True)
            ]
        )
        data[f"average_loss_by_{name}"] = ("shift", name), values[..., 0]
        data[f"backward_transfer_by_{name}"] = ("shift", name), values[..., 1]
    progress(f"over clients' curvatures: {choices.paths} runs of {len(SLOPE)} spreads")
    runs = np.array(
        [
            [scores(_runs(choices, shift, slope, method), unit) for slope in SLOPE]
            for shift, unit in zip(SHIFTS, units, strict=True)
        ]
    )  # (shift, slope, which, seed)
    error = standard_error(np.moveaxis(runs, -1, 0))
    for k, what in enumerate(("average_loss", "backward_transfer")):
        data[f"{what}_by_slope"] = ("shift", "slope"), runs[:, :, k].mean(axis=-1)
        data[f"{what}_error_by_slope"] = ("shift", "slope"), error[:, :, k]
    rise = runs[:, -1, 0] - runs[:, 0, 0]  # seed by seed, for all spreads share their draws
    data["rise_error"] = "shift", standard_error(rise.T)
    for key, values_of in data.items():
        what = "backward transfer of loss" if "transfer" in str(key) else "average excess loss at the end"
        values_of.attrs["long_name"] = f"{what}, in units of J" + (", standard error" if "error" in str(key) else "")
    base = {f"base_{name}": getattr(choices, name) for name in grids} | {"base_slope": 0.0}
    opening = (
        f"SPECIAL (λ = {SERVER_PROX:g}) on sequences of {choices.tasks} tasks at four distances σ_T²: average loss "
        "(ACC's counterpart, lower is better) and backward transfer (BWT's), both in units of J, the least average "
        "loss that one model can have. One thing is varied at a time, the local rate stays. Exact expectations, but "
        f"for the clients' curvatures: the mean of {choices.paths} runs, seeds 0 to {choices.paths - 1}, ± 2 standard "
        "errors. More heterogeneity, to the right in the last two columns, is the paper's smaller Dirichlet parameter."
    )
    return data.assign_attrs(attributes("special/fig-4", opening, data, FINDINGS, str(choices)) | base)


def _runs(choices: Choices, shift: float, slope: float, method: nqm.Method) -> xr.Dataset:
    own = dataclasses.replace(drift(choices), client_slope=slope)
    engine = "collapsed"
    return nqm.simulate(problem(choices, shift), own, federation(choices), method, seeds=choices.paths, engine=engine)
