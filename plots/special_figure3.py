"""Figure 3 of `special`: the weight of the server's anchor, between stability and plasticity."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

import nqm

from .observations import Observation, attributes, tell_settings
from .registry import Progress, figure, quiet
from .special_nqm import (
    CHOICES,
    SHIFTS,
    Choices,
    across,
    by_shift,
    dips,
    exact,
    least_loss,
    rate,
    rises,
    scores,
)

# The paper searches [0, 1] in steps of 0.2, then finer. The zero is drawn where the axis begins.
PAPER = np.round(np.linspace(0.0, 1.0, 6), 1)
PROX = np.unique(np.concatenate([[0.0], np.round(np.geomspace(0.002, 20.0, 41), 6), PAPER]))
LEFT = 1e-3


def draw(data: xr.Dataset) -> Any:
    """The trade-off, and both of its sides against the weight."""
    from matplotlib.lines import Line2D

    from .style import BLUE, GREEN, INK, MUTED, ORANGE, VERMILION, grid_of_panels, panel_title, plain_decimals

    looks = [(BLUE, "o"), (GREEN, "^"), (ORANGE, "s"), (VERMILION, "D")]
    fig, ((plane, loss, transfer),) = grid_of_panels(1, 3, 8.4, 3.3)
    for (color, marker), shift in zip(looks, data["shift"].values, strict=True):
        of = data.sel(shift=shift)
        x = np.where(data["prox"] == 0, LEFT, data["prox"])
        style = {"color": color, "lw": 1.2, "zorder": 2}
        plane.plot(of["average_loss"], of["backward_transfer"], **style)
        loss.plot(x, of["average_loss"], **style)
        transfer.plot(x, of["backward_transfer"], **style)
        best = of.sel(prox=best_prox(of))
        for at in PAPER:
            one = of.sel(prox=at)
            x1, face = max(at, LEFT), "white" if at == 0 else color
            spots = {plane: (one["average_loss"], one["backward_transfer"]), loss: (x1, one["average_loss"]),
                     transfer: (x1, one["backward_transfer"])}  # fmt: skip
            for panel, (px, py) in spots.items():
                panel.plot(px, py, marker, color=color, mfc=face, ms=4.2, mew=0.9, zorder=3)
        for panel, (px, py) in {plane: (best["average_loss"], best["backward_transfer"]),
                                loss: (best["prox"], best["average_loss"]),
                                transfer: (best["prox"], best["backward_transfer"])}.items():  # fmt: skip
            panel.plot(px, py, "*", color=color, mec=INK, mew=0.6, ms=9, zorder=4)
    plane.set(xscale="log", xlabel="average loss / $J$   (better: right)", ylabel="backward transfer / $J$")
    plane.invert_xaxis()
    loss.set(xscale="log", yscale="log", ylabel="average loss / $J$")
    plain_decimals(plane.xaxis)
    plain_decimals(loss.yaxis)
    for panel in (loss, transfer):
        panel.set(xscale="log", xlabel="$\\lambda$", xlim=(LEFT / 1.3, float(data["prox"][-1])))
        ticks = [LEFT, 0.01, 0.1, 1.0, 10.0]
        panel.set_xticks(ticks, ["0", *(f"{t:g}" for t in ticks[1:])])
        panel.axvspan(LEFT / 1.3, 1.0, color=MUTED, alpha=0.07, lw=0, zorder=0)
    transfer.set_ylabel("backward transfer / $J$")
    for panel in (plane, transfer):
        panel.axhline(0.0, color=MUTED, lw=0.8, zorder=1)
    panel_title(plane, "Trade-off", "filled: λ = 0.2, 0.4, …, 1")
    panel_title(loss, "Average loss", "shaded: the paper's range")
    panel_title(transfer, "Backward transfer", "")
    handles: list[Any] = [
        Line2D([], [], color=c, marker=m, ms=4.5, lw=1.2, label=f"$\\sigma_T^2={s:g}$")
        for (c, m), s in zip(looks, data["shift"].values, strict=True)
    ]
    handles += [
        Line2D([], [], color=MUTED, marker="o", mfc="white", ls="none", ms=4.5, label="$\\lambda=0$"),
        Line2D([], [], color=MUTED, marker="*", mec=INK, ls="none", ms=9, label="least average loss"),
    ]
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    tell_settings(fig, data)
    return fig


def best_prox(of: xr.Dataset) -> float:
    """The weight of least average loss, at one distance of the tasks."""
    return float(of["prox"][int(of["average_loss"].values.argmin())])


def transfer_rises(data: xr.Dataset) -> Observation:
    """Backward transfer rises from each weight to the next, up to 1, where the paper's range ends."""
    within = data.sel(prox=data["prox"] <= 1.0)
    return across(
        "(i) backward transfer rises with λ", by_shift(within, lambda of: rises(of["backward_transfer"].values))
    )


def loss_is_unimodal(data: xr.Dataset) -> Observation:
    """Over all weights drawn the average loss falls to one least value, at a weight inside (0, 1), and then rises."""

    def test(of: xr.Dataset) -> Any:
        return dips(of["average_loss"].values) and 0 < best_prox(of) < 1

    return across("(ii) ACC is unimodal", by_shift(data, test))


def middle_is_best(data: xr.Dataset) -> Observation:
    """The weight of least average loss is inside (0, 1), and backward transfer is better there than at λ = 0."""

    def test(of: xr.Dataset) -> Any:
        transfer, best = of["backward_transfer"], best_prox(of)
        return 0 < best < 1 and transfer.sel(prox=best) > transfer.sel(prox=0.0)

    return across("(iii) the best joint performance is at mid-range λ", by_shift(data, test))


FINDINGS = (transfer_rises, loss_is_unimodal, middle_is_best)


@figure(
    "special/fig-3",
    draw=draw,
    paper="special",
    title="Figure 3: stability against plasticity over the anchor's weight, on the model",
    expected="Left, four curves from λ = 0 below that turn back at a star and end near zero backward transfer. Middle, "
    "a valley for each distance of the tasks. Right, backward transfer rises to a flat top and, far beyond the "
    "paper's range, returns to zero: a frozen model neither gains nor forgets.",
    runtime="5 s",
)
def figure_3(progress: Progress = quiet, choices: Choices = CHOICES) -> xr.Dataset:
    """Average loss and backward transfer of SPECIAL over λ, exactly, for tasks at four distances."""
    lr = rate(choices)
    values = np.empty((2, len(SHIFTS), len(PROX)))
    for i, shift in enumerate(SHIFTS):
        progress(f"tasks apart by σ_T² = {shift:g}: {len(PROX)} weights")
        unit = least_loss(choices, shift)
        for j, prox in enumerate(PROX):
            values[:, i, j] = scores(exact(choices, shift, nqm.Special(lr, prox=float(prox))), unit)
    by = ("shift", "prox")
    data = xr.Dataset(
        {
            "average_loss": (by, values[0], {"long_name": "average excess loss at the end, in units of J"}),
            "backward_transfer": (by, values[1], {"long_name": "backward transfer of loss, in units of J"}),
        },
        coords={"shift": list(SHIFTS), "prox": PROX},
    )
    opening = (
        f"SPECIAL on sequences of {choices.tasks} tasks at four distances σ_T² (the model's counterpart of four "
        "datasets), exact expectations. Average loss (ACC's counterpart, lower is better) and backward transfer "
        "(BWT's: the loss of a task when it was learned less that at the end) in units of J, the least average loss "
        "that one model can have."
    )
    return data.assign_attrs(attributes("special/fig-3", opening, data, FINDINGS, str(choices), closing(data)))


def closing(data: xr.Dataset) -> str:
    """Where the extremes are."""
    best, peak, flat = [], [], []
    for shift in data["shift"].values:
        of = data.sel(shift=shift)
        best.append(f"{best_prox(of):.2g}")
        peak.append(f"{float(of['prox'][int(of['backward_transfer'].values.argmax())]):.2g}")
        near = of["prox"].values[of["average_loss"].values <= 1.05 * float(of["average_loss"].min())]
        flat.append(f"{near[0]:.2g} to {near[-1]:.2g}")
    return (
        f"By rising σ_T²: the average loss is least at λ = {', '.join(best)} (stars) and within 5 % of that for λ from "
        f"{', '.join(flat)}; backward transfer is largest at λ = {', '.join(peak)} and then returns to zero, because "
        "a frozen model changes nothing. λ = 0 is FedAvg with the same global rate 1/i."
    )
