"""Figure 2 of `cfl`: five methods on the noisy quadratic model, in eight settings."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import xarray as xr

from nqm.result import package_version

from .cfl_nqm import CHOICES, METHODS, SETTINGS, Choices, all_runs, setting_coordinates
from .registry import Progress, figure, quiet

DRAWN_PATHS = 3
# Rounds at which each method carries its marker: not the same, so that curves that coincide can be told.
MARKED = [(2, 20, 180), (3, 28, 240), (1, 13, 90), (5, 42, 320), (8, 64, 420)]

CAPTION = (
    "Norm of the global gradient over rounds, each method at its tuned rate (Table 3). Thick: exact "
    "expectation; band: two standard deviations to either side; thin: three sample paths. Time drift is "
    "what memory removes. Under big drift (below) CFL and CFL-0.001 keep falling like a power of the round, "
    "while FedAvg and FedProx, driven to small rates, descend late and level off. Under small drift (above) "
    "all but one end close together: CFL lowest and smoothest, CFL-0.01 highest, at the bias that its "
    "information loss leaves."
)


def draw(data: xr.Dataset) -> Any:
    """Eight panels; a row shares its axis. Rounds are logarithmic, where a power of t is a straight line."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from .style import LOOKS, MUTED, grid_of_panels, panel_title

    fig, panels = grid_of_panels(2, 4, 10.0, 5.4, sharex=True, sharey="row")
    T = int(data["round"][-1])
    for i, (panel, setting) in enumerate(zip(panels.flat, data["setting"].values, strict=True)):
        row = data.isel(setting=slice(i - i % 4, i - i % 4 + 4))
        low, high = _limits(row)
        one = data.sel(setting=setting)
        diverged = []
        for j, name in enumerate(data["method"].values):
            of, look = one.sel({"method": name}), LOOKS[name]
            end = int(of["diverged_at"])
            if end >= 0:
                diverged.append(f"{name} diverges at round {end}")
            kept = slice(None) if end < 0 else slice(end)
            x, mean, std = (of[k].values[kept] for k in ("round", "grad_norm", "grad_norm_std"))
            panel.fill_between(
                x,
                np.maximum(mean - 2 * std, low),
                mean + 2 * std,
                color=look.color,
                alpha=0.18,
                lw=0,
                zorder=2,
            )
            for path in of["path_grad_norm"].values:
                finite = np.isfinite(path)
                panel.plot(of["round"].values[finite], path[finite], color=look.color, lw=0.3, alpha=0.6, zorder=3)
            marks = [k for k in MARKED[j] if k < len(x)]
            style = {"color": look.color, "ls": look.dashes, "marker": look.marker, "markevery": marks}
            panel.plot(x, mean, lw=1.4, ms=4.2, mec="white", mew=0.5, zorder=4 + 0.1 * j, **style)
        details = f"$L={one['L']:g}$,  $\\mu={one['mu']:g}$,  $E\\|\\xi\\|^2={one['time']:g}$"
        panel_title(panel, setting, details)
        if diverged:
            panel.text(0.97, 0.97, "\n".join(diverged), transform=panel.transAxes, ha="right", va="top", fontsize=6.5)
        panel.set_xscale("symlog", linthresh=1, linscale=0.35)
        ticks = [0, *(t for t in (1, 10, 100) if t < T / 2), T]
        panel.set_xticks(ticks, [str(t) for t in ticks])
        panel.set_xticks([], minor=True)
        panel.set(yscale="log", ylim=(low, high), xlim=(0, T))
        if i % 4 == 0:
            panel.set_ylabel("$\\|Aw+b\\|$")
        if i >= 4:
            panel.set_xlabel("round")
    handles: list[Any] = [
        Line2D(
            [],
            [],
            color=k.color,
            ls=k.dashes,
            marker=k.marker,
            ms=5,
            lw=1.4,
            mec="white",
            mew=0.5,
            label=name,
        )
        for name, k in ((name, LOOKS[name]) for name in data["method"].values)
    ]
    handles += [
        Patch(color=MUTED, alpha=0.25, lw=0, label="± 2 std"),
        Line2D([], [], color=MUTED, lw=0.5, label="sample paths"),
    ]
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles), columnspacing=1.6, handlelength=2.8)
    fig.supxlabel(data.attrs["ours"], fontsize=6.5, color=MUTED)
    return fig


def _limits(data: xr.Dataset) -> tuple[float, float]:
    """Limits of an axis: all that is finite, with a little air."""
    shown = np.concatenate([data["grad_norm"].values.ravel(), data["path_grad_norm"].values.ravel()])
    shown = shown[np.isfinite(shown) & (shown > 0)]
    return float(shown.min()) * 0.7, float(shown.max()) * 1.5


@figure(
    "cfl/fig-2",
    draw=draw,
    paper="cfl",
    title="Figure 2: five methods on the noisy quadratic model",
    expected="Eight panels. Above (small round drift) all curves level off within fifty rounds, CFL-0.01 "
    "highest. Below (big round drift) the three CFL curves fall at once and far under FedAvg and "
    "FedProx.",
    runtime="10 s",
)
def figure_2(progress: Progress = quiet, choices: Choices = CHOICES) -> xr.Dataset:
    """Exact curves, their standard deviations and sample paths of all methods in all settings."""
    runs = all_runs(choices, progress)

    def stack(pick: Any) -> np.ndarray:
        return np.array([[pick(runs[s.name, m]) for m in METHODS] for s in SETTINGS])

    grad_norm = stack(lambda r: r.curve["grad_norm"].values)
    grad_norm_sq = stack(lambda r: r.curve["grad_norm_sq"].values)
    with np.errstate(invalid="ignore"):
        variance = np.where(np.isfinite(grad_norm_sq), np.maximum(grad_norm_sq - grad_norm**2, 0.0), np.inf)
    paths = stack(lambda r: r.paths["grad_norm"].values[:DRAWN_PATHS])
    curve = ("setting", "method", "round")
    return xr.Dataset(
        {
            "grad_norm": (curve, grad_norm, {"long_name": "E‖Aw + b‖"}),
            "grad_norm_sq": (curve, grad_norm_sq, {"long_name": "E‖Aw + b‖²"}),
            "grad_norm_std": (curve, np.sqrt(variance), {"long_name": "standard deviation of ‖Aw + b‖"}),
            "path_grad_norm": (
                ("setting", "method", "seed", "round"),
                paths,
                {"long_name": "‖Aw + b‖ of a sample path"},
            ),
            "lr": (
                ("setting", "method"),
                stack(lambda r: r.tuned.best),
                {"long_name": "tuned learning rate"},
            ),
            "diverged_at": (("setting", "method"), stack(lambda r: int(r.curve["diverged_at"]))),
        },
        coords={
            "method": list(METHODS),
            "seed": np.arange(paths.shape[2]),
            "round": np.arange(choices.rounds + 1),
            **setting_coordinates(),
        },
        attrs={
            "id": "cfl/fig-2",
            "caption": CAPTION,
            "ours": f"Not given by the paper, chosen by us: {choices}.",
            "choices": json.dumps(dataclasses.asdict(choices)),
            "version": package_version(),
        },
    )
