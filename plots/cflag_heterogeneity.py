"""Figure 3 of `cflag`: C-FLAG, FedTrack and FedAvg over tasks, at three levels of heterogeneity."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

import nqm

from .cflag_nqm import CHOICES, LEVELS, Choices, average_so_far, cflag, forgetting_so_far, newest, runs
from .observations import CLEAR, Observation, attributes, standard_error, tell_settings, z_score
from .registry import Progress, figure, quiet

BASELINES = ("FedAvg", "FedTrack")
OURS = ("C-FLAG, α = β", "C-FLAG, α = Eβ")


def _ahead(data: xr.Dataset, name: str, one: str, other: str) -> xr.DataArray:
    """By how much ``one`` is below ``other``, run by run."""
    return data[name].sel(algorithm=other) - data[name].sel(algorithm=one)


def outperforms(data: xr.Dataset) -> Observation:
    """Outperforms: after the last task, its average loss is clearly below FedTrack's, whatever the rate of memory."""
    last = data.isel(task=-1)
    clear, told = True, []
    for one in OURS:
        less = []
        for level in data["level"].values:
            gap = _ahead(last, "average_loss", one, "FedTrack").sel(level=level)
            clear &= z_score(gap.values) > CLEAR
            base = last["average_loss"].sel(algorithm="FedTrack", level=level)
            less.append(f"{100 * float(gap.mean() / base.mean()):.0f} %")
        told.append(f"by {', '.join(less)} at {one.split(', ')[1]}")
    return Observation("C-FLAG ends below FedTrack at every heterogeneity", bool(clear), ", ".join(told))


def forgets_least(data: xr.Dataset) -> Observation:
    """Least: after each task from the second on, clearly below both baselines, at every level and rate."""
    worst = min(
        z_score(_ahead(data, "forgetting", one, other).sel(level=level).isel(later_task=k).values)
        for one in OURS
        for other in BASELINES
        for level in data["level"].values
        for k in range(data.sizes["later_task"])
    )
    top = data["forgetting"].isel(later_task=-1).sel(level="high").mean("seed")
    told = "at the end, high: " + ", ".join(f"{m} {float(top.sel(algorithm=m)):.2g}" for m in data["algorithm"].values)
    return Observation("C-FLAG forgets least after each task", worst > CLEAR, told)


def best_on_average(data: xr.Dataset) -> Observation:
    """Best: after each task from the second on, average loss clearly below both baselines."""
    late = data.isel(task=slice(1, None))
    fails = [
        f"{one} after task {int(task)} ({level})"
        for one in OURS
        for level in data["level"].values
        for task in late["task"].values
        if min(z_score(_ahead(late, "average_loss", one, o).sel(level=level, task=task).values) for o in BASELINES)
        <= CLEAR
    ]
    told = f"not {', '.join(fails)}" if fails else "at every level and rate"
    return Observation("C-FLAG has the best average after each task", not fails, told)


def price(data: xr.Dataset) -> str:
    """What memory may cost: the loss of a task when it has just been learned."""
    own = data["newest_loss"].sel(level="high").mean("seed")
    return "A task itself ends, at high heterogeneity, with an excess loss of " + ", ".join(
        f"{m} {float(own.sel(algorithm=m)):.2g}" for m in data["algorithm"].values
    )


def draw(data: xr.Dataset) -> Any:
    """Columns: heterogeneity. Above: average loss, below: forgetting, after each task."""
    from .style import BLUE, GREEN, INK, MUTED, ORANGE, grid_of_panels, panel_title

    looks = {
        "FedAvg": (ORANGE, "solid", "o"),
        "FedTrack": (MUTED, (0, (5, 1.6)), "s"),
        OURS[0]: (BLUE, "solid", "^"),
        OURS[1]: (GREEN, (0, (1.4, 1.2)), "D"),
    }
    fig, panels = grid_of_panels(2, 3, 9.6, 5.4, sharex=True, sharey="row")
    for column, level in enumerate(data["level"].values):
        for panel, name, tasks in (
            (panels[0, column], "average_loss", "task"),
            (panels[1, column], "forgetting", "later_task"),
        ):
            for method, (color, dashes, marker) in looks.items():
                values = data[name].sel(level=level, algorithm=method).transpose("seed", tasks).values
                mean, error = values.mean(axis=0), standard_error(values)
                panel.fill_between(data[tasks], mean - 2 * error, mean + 2 * error, color=color, alpha=0.2, lw=0)
                panel.plot(data[tasks], mean, color=color, ls=dashes, marker=marker, lw=1.4, ms=4.2, mec="white",
                           mew=0.5, label=method)  # fmt: skip
            panel.set_xticks(data["task"].values)
        panel_title(panels[0, column], f"Heterogeneity: {level}", f"h = {float(data['heterogeneity'][column]):g}")
        panels[1, column].set_xlabel("tasks learned")
        panels[1, column].axhline(0.0, color=INK, lw=0.7, zorder=1)
    panels[0, 0].set_ylim(bottom=0)
    panels[0, 0].set_ylabel("excess loss, mean of the tasks learned")
    panels[1, 0].set_ylabel("forgetting: rise of the\nearlier tasks' excess loss")
    fig.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    tell_settings(fig, data)
    return fig


@figure(
    "cflag/fig-3",
    draw=draw,
    paper="cflag",
    title="Figure 3: C-FLAG, FedTrack and FedAvg at three levels of heterogeneity",
    expected="Losses rise with the number of tasks, FedTrack's and FedAvg's most and almost alike, C-FLAG's less, and "
    "least when its memory has the same say as the current task. Heterogeneity lifts all curves a little.",
    runtime="5 s",
)
def figure_3(progress: Progress = quiet, choices: Choices = CHOICES) -> xr.Dataset:
    """Average loss and forgetting after each task."""
    methods = {
        "FedAvg": nqm.FedAvg(choices.lr),
        "FedTrack": nqm.FedTrack(choices.lr),
        OURS[0]: cflag(choices),
        OURS[1]: cflag(choices, weight=choices.local_steps),
    }
    average, forgotten, own = [], [], []
    for name, level in LEVELS.items():
        progress(f"heterogeneity {name}")
        found = [runs(choices, level, method) for method in methods.values()]
        average.append([average_so_far(run) for run in found])
        forgotten.append([forgetting_so_far(run) for run in found])
        own.append([newest(run)[..., -1].mean(axis=1) for run in found])
    by = ("level", "algorithm", "seed")
    data = xr.Dataset(
        {
            "average_loss": ((*by, "task"), np.array(average), {"long_name": "mean excess loss of the tasks learned"}),
            "forgetting": ((*by, "later_task"), np.array(forgotten), {"long_name": "rise of earlier tasks' loss"}),
            "newest_loss": (by, np.array(own), {"long_name": "excess loss of a task when it ends, mean over tasks"}),
        },
        coords={
            "level": list(LEVELS),
            "heterogeneity": ("level", list(LEVELS.values())),
            "algorithm": list(methods),
            "seed": np.arange(choices.runs),
            "task": np.arange(1, choices.tasks + 1),
            "later_task": np.arange(2, choices.tasks + 1),
        },
    )
    data.attrs = attributes(
        "cflag/fig-3",
        "Excess loss and forgetting after each task, on the same finite sums; bands: mean ± 2 standard errors. C-FLAG "
        "with the one rate that the paper's experiments have, and with α = Eβ, which gives memory as much say as the "
        "current task. EWC is not on the model, which has losses but no likelihood to take a Fisher information from; "
        "FedAvg on the current task is the paper's Fine-FL.",
        data,
        (outperforms, best_on_average, forgets_least),
        str(choices),
        price(data) + ".",
    )
    return data
