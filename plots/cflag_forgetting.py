"""Figure 4 of `cflag`: the forgetting term Gamma(t) over tasks, with fixed and with adaptive rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from .cflag_nqm import CHOICES, LEVELS, Choices, cflag, newest, runs
from .observations import CLEAR, Array, Observation, attributes, sign_score, tell_settings
from .registry import Progress, figure, quiet

RATES = {"fixed": "none", "adaptive, average case": "average", "adaptive, worst case": "worst"}
BLOWN = 1e6  # times the loss that a run began with


def _variation(data: xr.Dataset, rates: str) -> xr.DataArray:
    """Standard deviation of Gamma over all rounds of a run, (level, seed)."""
    return data["gamma"].sel(rates=rates).std(("task", "step")).transpose("level", "seed")


def iid_varies_more(data: xr.Dataset) -> Observation:
    """More: with fixed rates, Gamma(t) has a larger standard deviation over a run than at either other level.

    Larger in so many runs that the sign test is clear.
    """
    of = _variation(data, "fixed")
    z = [sign_score((of.sel(level="low") - of.sel(level=other)).values) for other in ("medium", "high")]
    told = ", ".join(f"{float(of.sel(level=level).median()):.3g} at {level}" for level in data["level"].values)
    return Observation("Γ(t) varies more for iid clients", min(z) > CLEAR, f"median standard deviation {told}")


def _mitigates(data: xr.Dataset, rates: str) -> Observation:
    peak = data["gamma"].max("step")
    lower = peak.sel(rates="fixed") - peak.sel(rates=rates)
    fails = [
        (level, task)
        for level in data["level"].values
        for task in data["task"].values
        if sign_score(lower.sel(level=level, task=task).values) <= CLEAR
    ]
    share = (lower > 0).mean(("seed", "task"))
    told = ", ".join(f"{100 * float(share.sel(level=level)):.0f} % at {level}" for level in data["level"].values)
    listed = "; not clear: " + ", ".join(f"task {task} at {level}" for level, task in fails) if fails else ""
    statement = f"adaptive rates for the {rates.split(', ')[1]} lower the peaks of Γ(t)"
    return Observation(statement, not fails, f"in {told} of runs and tasks{listed}")


def average_case_mitigates(data: xr.Dataset) -> Observation:
    """Lower: in every task, at every level, a run's largest Gamma(t) is below that with fixed rates, by sign test."""
    return _mitigates(data, "adaptive, average case")


def worst_case_mitigates(data: xr.Dataset) -> Observation:
    """Lower: in every task, at every level, a run's largest Gamma(t) is below that with fixed rates, by sign test."""
    return _mitigates(data, "adaptive, worst case")


def draw(data: xr.Dataset) -> Any:
    """Above: Gamma(t), below: the current task's loss, round by round; a column a level."""
    from .style import BLUE, GREEN, INK, MUTED, VERMILION, grid_of_panels, panel_title

    looks = dict(zip(RATES, ((BLUE, "solid"), (VERMILION, (0, (1.4, 1.2))), (GREEN, (0, (5, 1.6)))), strict=True))
    fig, panels = grid_of_panels(2, 3, 9.6, 5.4, sharex=True, sharey="row")
    T = data.sizes["step"]
    for column, level in enumerate(data["level"].values):
        for row, name in enumerate(("gamma", "current_loss")):
            panel = panels[row, column]
            for rates, (color, dashes) in looks.items():
                for k, task in enumerate(data["task"].values):
                    of = data[name].sel(level=level, rates=rates, task=task).transpose("seed", "step").values
                    x = (int(task) - 1) * T + data["step"].values
                    first, median, third = np.quantile(of, (0.25, 0.5, 0.75), axis=0)
                    panel.fill_between(x, first, third, color=color, alpha=0.2, lw=0)
                    panel.plot(x, median, color=color, ls=dashes, lw=1.4, label=None if k else rates)
            for task in data["task"].values:
                panel.axvline((int(task) - 1) * T + 0.5, color=MUTED, lw=0.6, zorder=1)
                if row == 0:
                    panel.text((int(task) - 0.5) * T, 0.98, f"task {int(task)}", color=MUTED, fontsize=7, ha="center",
                               va="top", transform=panel.get_xaxis_transform())  # fmt: skip
        panels[0, column].axhline(0.0, color=INK, lw=0.7, zorder=1)
        panel_title(panels[0, column], f"Heterogeneity: {level}", f"h = {float(data['heterogeneity'][column]):g}")
        panels[1, column].set_xlabel("round")
    # Quartiles of runs that overshoot would flatten all the rest: the axis is made for the medians.
    median = data["gamma"].median("seed")
    low, high = float(median.min()), float(median.max())
    panels[0, 0].set_ylim(low - 0.1 * (high - low), high + 0.2 * (high - low))
    panels[0, 0].set_ylabel("forgetting term $\\Gamma(t)$, unit of loss")
    panels[1, 0].set(ylabel="excess loss of the current task", yscale="log")
    fig.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    tell_settings(fig, data)
    return fig


@figure(
    "cflag/fig-4",
    draw=draw,
    paper="cflag",
    title="Figure 4: the forgetting term over tasks, with fixed and adaptive rates",
    expected="With fixed rates Γ(t) begins a task below zero, peaks within ten rounds and falls slowly. Adaptive rates "
    "keep it lower and flat from the third task on; those for the average case jump up in the second task's first "
    "round when clients are alike. Below, adaptive rates hardly learn the current task.",
    runtime="5 s",
)
def figure_4(progress: Progress = quiet, choices: Choices = CHOICES) -> xr.Dataset:
    """Gamma(t) and the current task's loss from the second task on, the first that has a past."""
    gamma, current = [], []
    blown: dict[str, list[int]] = {"average case": [], "AdapLR": []}

    def count(name: str, loss: Array) -> None:
        blown[name].append(int((loss[:, -1, -1] > BLOWN * loss[:, 0, 0]).sum()))

    for name, level in LEVELS.items():
        progress(f"heterogeneity {name}")
        found = [runs(choices, level, cflag(choices, adapt=adapt)) for adapt in RATES.values()]
        gamma.append([run["forgetting"].transpose("seed", "task", "round").values[:, 1:, 1:] for run in found])
        current.append([newest(run)[:, 1:, 1:] for run in found])
        count("average case", newest(found[1]))
        count("AdapLR", newest(runs(choices, level, cflag(choices, adapt="worst", form="printed"))))
    by = ("level", "rates", "seed", "task", "step")
    data = xr.Dataset(
        {
            "gamma": (by, np.array(gamma), {"long_name": "forgetting term Γ(t) of (15)"}),
            "current_loss": (by, np.array(current), {"long_name": "excess loss of the current task"}),
        },
        coords={
            "level": list(LEVELS),
            "heterogeneity": ("level", list(LEVELS.values())),
            "rates": list(RATES),
            "seed": np.arange(choices.runs),
            "task": np.arange(2, choices.tasks + 1),
            "step": np.arange(1, choices.rounds + 1),
        },
    )
    end = data["current_loss"].isel(step=-1).median(("seed", "task", "level"))
    ends = ", ".join(f"{float(end.sel(rates=r)):.2g} ({r})" for r in RATES)
    counts = {name: ", ".join(map(str, each)) for name, each in blown.items()}
    data.attrs = attributes(
        "cflag/fig-4",
        "Γ(t) of (15), which has (L/2)β² where (10) prints Lβ², and the loss of the current task from the second task "
        "on; lines: median of the runs, bands: quartiles. Adaptive rates are those of Table 1 as derived.",
        data,
        (iid_varies_more, average_case_mitigates, worst_case_mitigates),
        f"{choices}, base rate α = β",
        f"A task ends with an excess loss of {ends}. Clients that are alike can make the average case overshoot "
        f"N-fold: {counts['average case']} of {choices.runs} runs at low, medium, high ended above {BLOWN:.0e} times "
        "the loss they began with. With AdapLR as printed, whose step is too long by 1/β (not drawn), "
        f"{counts['AdapLR']} did.",
    )
    return data
