"""Figure 5 of `cflag`: C-FLAG over the number of clients and the size of the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from .cflag_nqm import CHOICES, LEVELS, Choices, average_so_far, cflag, forgetting_so_far, runs
from .observations import CLEAR, Array, Observation, attributes, standard_error, tell_settings, z_score
from .registry import Progress, figure, quiet

SHOWN = ("low", "high")
CLIENTS = (5, 10, 15, 25, 50)  # those of Table 8
MEMORIES = (1, 2, 5, 10, 20, 40)
CONSISTENT, MATERIAL = 1.1, 0.01
FEWER = replace(CHOICES, runs=40)
MEASURES = {
    "average_loss": "excess loss, mean of all tasks",
    "forgetting": "forgetting: rise of earlier tasks' loss",
    "overfitting": "|B(t)| of (9), mean over rounds of task 2",
}


def _ends(data: xr.Dataset, name: str, over: str, level: str = "high") -> xr.DataArray:
    """By how much the measure falls from the smallest number to the largest, run by run, (alpha, seed)."""
    of = data[f"{name}_{over}"].sel(level=level).transpose(over, "alpha", "seed")
    return of[0] - of[-1]


def consistent_over_clients(data: xr.Dataset) -> Observation:
    """Consistent: over all numbers of clients the mean average loss varies by at most a tenth; non-iid."""
    mean = data["average_loss_clients"].sel(level="high").mean("seed")
    ratio = (mean.max("clients") / mean.min("clients")).values
    told = ", ".join(f"{100 * r - 100:.0f} % at {a}" for r, a in zip(ratio, data["alpha"].values, strict=True))
    return Observation("the average is consistent over the number of clients", bool(ratio.max() <= CONSISTENT), told)


def more_clients_do_no_harm(data: xr.Dataset) -> Observation:
    """No harm: with most clients, average loss and forgetting exceed those with fewest by at most a tenth."""
    ratios, told = [], []
    for name, words in {"average_loss": "average loss", "forgetting": "forgetting"}.items():
        mean = data[f"{name}_clients"].mean("seed")
        ratios.append(float((mean.isel(clients=-1) / mean.isel(clients=0)).max()))
        one = mean.sel(level="high").isel(alpha=0).values
        told.append(f"{words} {one[0]:.3g} to {one[-1]:.3g}")
    return Observation("more clients do no harm", max(ratios) <= CONSISTENT, ", ".join(told) + " (high, α = β)")


def forgetting_falls_with_clients(data: xr.Dataset) -> Observation:
    """Falls: clearly lower with most clients than with fewest, at both levels and each alpha, as in Table 8."""
    z = [z_score(gap.values) for level in SHOWN for gap in _ends(data, "forgetting", "clients", level)]
    of = data["forgetting_clients"].mean("seed").isel(alpha=0)
    told = ", ".join(f"{float(of.sel(level=v)[0]):.3g} to {float(of.sel(level=v)[-1]):.3g} ({v})" for v in SHOWN)
    return Observation("forgetting falls with the number of clients (Table 8)", min(z) > CLEAR, told)


def _memory(data: xr.Dataset) -> tuple[Array, Array, str]:
    """Fall of the average loss from the smallest to the largest memory, as a share and in standard errors, by alpha."""
    z = [z_score(gap.values) for gap in _ends(data, "average_loss", "memory")]
    mean = data["average_loss_memory"].sel(level="high").mean("seed")
    told = ", ".join(
        f"{float(mean.sel(alpha=a)[0]):.4g} to {float(mean.sel(alpha=a)[-1]):.4g} at {a}, "
        f"{abs(score):.1f} standard errors"
        for a, score in zip(data["alpha"].values, z, strict=True)
    )
    return 1 - (mean.isel(memory=-1) / mean.isel(memory=0)).values, np.array(z), told


def memory_hurts(data: xr.Dataset) -> Observation:
    """Worse: from the smallest memory to the largest the average loss rises clearly, by 1 %; non-iid, each alpha."""
    share, z, told = _memory(data)
    worse = (z < -CLEAR) & (share <= -MATERIAL)
    return Observation("more memory makes the average worse (Split-CIFAR10)", bool(worse.all()), told)


def memory_helps(data: xr.Dataset) -> Observation:
    """Better: from the smallest memory to the largest the average loss falls clearly, by 1 %; non-iid, each alpha."""
    share, z, told = _memory(data)
    better = (z > CLEAR) & (share >= MATERIAL)
    return Observation("more memory makes the average better (Split-CIFAR100)", bool(better.all()), told)


def bias_of_a_whole_memory(data: xr.Dataset) -> str:
    """What is left of B(t) in the second task with the largest memory and the smallest."""
    left = float(data["overfitting_memory"].isel(memory=-1).max())
    some = float(data["overfitting_memory"].isel(memory=0).mean())
    whole = int(data["memory"][-1])
    return (
        f"In the second task a memory of {whole} samples leaves |B(t)| = {left:.0e}, one of a single sample {some:.2g}"
    )


def draw(data: xr.Dataset) -> Any:
    """Columns: clients, memory. Rows: average loss, forgetting, the bias term."""
    from matplotlib.lines import Line2D

    from .style import BLUE, MUTED, VERMILION, grid_of_panels, panel_title

    fig, panels = grid_of_panels(3, 2, 7.2, 6.6, sharey="row", sharex="col")
    colors = dict(zip(SHOWN, ((BLUE, "o"), (VERMILION, "^")), strict=True))
    dashes = dict(zip(data["alpha"].values, ("solid", (0, (4, 1.6))), strict=True))
    for column, over in enumerate(("clients", "memory")):
        for row, name in enumerate(MEASURES):
            panel = panels[row, column]
            for level, (color, marker) in colors.items():
                for alpha, line in dashes.items():
                    of = data[f"{name}_{over}"].sel(level=level, alpha=alpha).transpose("seed", over).values
                    mean, error = of.mean(axis=0), standard_error(of)
                    shown = mean > 1e-12 if name == "overfitting" else np.ones(len(mean), dtype=bool)
                    x = data[over].values[shown]
                    low, high = (mean - 2 * error)[shown], (mean + 2 * error)[shown]
                    panel.fill_between(x, low, high, color=color, alpha=0.2, lw=0)
                    panel.plot(
                        x, mean[shown], color=color, ls=line, marker=marker, lw=1.4, ms=4.4, mec="white", mew=0.5
                    )
            panel.set_xscale("log")
            panel.set_xticks(data[over].values, [str(v) for v in data[over].values])
            panel.set_xticks([], minor=True)
            if name == "overfitting":
                panel.set_yscale("log")
            else:
                panel.set_ylim(bottom=0)
    whole = float(data["overfitting_memory"].isel(memory=-1).max()) < 1e-12
    if whole:
        panels[2, 1].text(float(data["memory"][-1]), 0.04, "none ", color=MUTED, fontsize=7, ha="center",
                          transform=panels[2, 1].get_xaxis_transform())  # fmt: skip
    for row, words in enumerate(MEASURES.values()):
        panels[row, 0].set_ylabel(words.replace(": ", ":\n").replace(", mean", ",\nmean"))
    panels[2, 0].set_xlabel("clients $N$")
    panels[2, 1].set_xlabel("memory $m_0$, samples a client")
    panel_title(panels[0, 0], "Clients", f"$m_0={data.attrs['memory']}$")
    panel_title(panels[0, 1], "Memory", f"$N={data.attrs['clients']}$")
    handles: list[Any] = [
        Line2D([], [], color=c, marker=m, mec="white", lw=1.4, label=f"heterogeneity {level}, h = {LEVELS[level]:g}")
        for level, (c, m) in colors.items()
    ]
    handles += [Line2D([], [], color=MUTED, ls=line, lw=1.4, label=alpha) for alpha, line in dashes.items()]
    fig.legend(handles=handles, loc="outside upper center", ncols=4, columnspacing=1.2)
    tell_settings(fig, data)
    return fig


@figure(
    "cflag/fig-5",
    draw=draw,
    paper="cflag",
    title="Figure 5: C-FLAG over clients and memory",
    expected="Average loss falls with the number of clients where they differ and hardly moves where they don't; "
    "memory beyond a few samples changes little; the bias term falls with both and is gone when all is remembered.",
    runtime="8 s",
)
def figure_5(progress: Progress = quiet, choices: Choices = FEWER) -> xr.Dataset:
    """Loss and forgetting after the last task, and the bias term in the second."""
    weights = {"α = β": 1.0, "α = Eβ": float(choices.local_steps)}
    memories = [m for m in MEMORIES if m <= choices.samples]
    sweeps = {
        "clients": [replace(choices, clients=n) for n in CLIENTS],
        "memory": [replace(choices, memory=m) for m in memories],
    }
    variables: dict[str, Any] = {}
    for over, points in sweeps.items():
        found: dict[str, list[Any]] = {name: [] for name in MEASURES}
        for level in SHOWN:
            for weight in weights.values():
                progress(f"{over}: heterogeneity {level}, memory's rate times {weight:g}")
                each = [runs(point, LEVELS[level], cflag(point, weight)) for point in points]
                found["average_loss"].append([average_so_far(run)[:, -1] for run in each])
                found["forgetting"].append([forgetting_so_far(run)[:, -1] for run in each])
                bias = [run["overfitting"].isel(task=1).transpose("seed", "round").values[:, 1:] for run in each]
                found["overfitting"].append([np.abs(b).mean(axis=1) for b in bias])
        for name, words in MEASURES.items():
            values = np.array(found[name]).reshape(len(SHOWN), len(weights), len(points), choices.runs)
            variables[f"{name}_{over}"] = (("level", "alpha", over, "seed"), values, {"long_name": words})
    coords = {"level": list(SHOWN), "alpha": list(weights), "clients": [*CLIENTS], "memory": memories}
    data = xr.Dataset(variables, coords=coords | {"seed": np.arange(choices.runs)})
    data.attrs = attributes(
        "cflag/fig-5",
        "After the last task, over the number of clients and over the samples that each keeps; bands: mean ± 2 "
        "standard errors. The clients' mean offset, of size G²/N, is part of the loss: they are drawn, not a partition "
        "of one data set.",
        data,
        (consistent_over_clients, more_clients_do_no_harm, forgetting_falls_with_clients, memory_hurts, memory_helps),
        f"{choices}, unless drawn otherwise",
        bias_of_a_whole_memory(data) + ".",
    )
    data.attrs |= {"memory": choices.memory, "clients": choices.clients}
    return data
