"""Table 3 of `cfl`: the best learning rate of each method in each setting, its plateau, and the paper's."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import xarray as xr

from nqm.result import package_version

from .cfl_conclusions import conclude, roughness
from .cfl_nqm import CHOICES, METHODS, SETTINGS, Choices, all_runs, setting_coordinates
from .registry import Grid, Progress, figure, quiet, table

# The paper's best rates, in the order of SETTINGS; it gives none for the methods with information loss.
PAPER = {
    "FedAvg": (0.03, 0.08, 0.33, 0.09, 0.02, 0.01, 0.09, 0.02),
    "FedProx": (0.04, 0.07, 0.35, 0.09, 0.02, 0.01, 0.26, 0.02),
    "CFL": (0.2, 0.09, 0.35, 0.09, 0.25, 0.08, 0.3, 0.08),
}

TITLE = "Table 3: best learning rates on the noisy quadratic model"


def layout(data: dict[str, Any]) -> Grid:
    """A row a setting, a column a method; a cell holds our best rate, its plateau and the paper's value."""
    rows = []
    for setting in data["settings"]:
        cells = [setting.replace(" ", "\n")]
        for method in data["methods"]:
            e = _entry(data, setting, method)
            cell = f"{e['best']:.3g}\n{e['plateau'][0]:.2g}–{e['plateau'][1]:.2g}"
            if e["paper"] is not None:
                cell += f"\npaper {e['paper']:g} {'✓' if e['paper_in_plateau'] else '✗'}"
            cells.append(cell)
        rows.append(cells)
    given = [e["paper_in_plateau"] for e in data["entries"] if e["paper"] is not None]
    notes: list[tuple[str, list[str]]] = [
        (
            "A cell: our best rate, by the geometric mean of √E‖g‖² over all rounds; the plateau of rates "
            "within 5 % of that score; the paper's rate, ✓ if it lies in our plateau.",
            [],
        ),
        (f"The paper's rate lies in our plateau in {sum(given)} of {len(given)} entries.", []),
        (data["ours"], []),
    ]
    for number, c in enumerate(data["conclusions"], 1):
        against = [
            f"{p['setting']}: {p['verdict']}; {p['numbers']}" for p in c["panels"] if p["verdict"] != "supported"
        ]
        notes.append(
            (
                f"Conclusion {number}. {c['statement']}: supported in {c['supported']} of {c['of']} panels.",
                against,
            )
        )
    limits = []
    for setting in data["settings"][: len(data["settings"]) // 2]:  # the limit does not depend on the drift
        values = [f"{_entry(data, setting, m)['stability_limit']:.3g}" for m in PAPER]
        limits.append(f"{setting.split()[1]}: {' / '.join(values)}")
    notes.append((f"Stability limits of {' / '.join(PAPER)}, the same for both drifts:", limits))
    return Grid(["Setting", *data["methods"]], rows, notes)


def _entry(data: dict[str, Any], setting: str, method: str) -> dict[str, Any]:
    return next(e for e in data["entries"] if (e["setting"], e["method"]) == (setting, method))


@table(
    "cfl/table-3",
    layout=layout,
    paper="cfl",
    title=TITLE,
    expected="Under small round drift plateaus overlap, most of them up to the stability limit; under big "
    "drift FedAvg and FedProx need rates far below CFL's.",
    runtime="10 s",
)
def table_3(progress: Progress = quiet, choices: Choices = CHOICES) -> dict[str, Any]:
    """Tuned rates, plateaus, stability limits, the paper's values, and the verdict on its conclusions."""
    runs = all_runs(choices, progress)
    entries: list[dict[str, Any]] = []
    panels = {}
    for i, setting in enumerate(SETTINGS):
        panel = {}
        for method in METHODS:
            run = runs[setting.name, method]
            low, high = run.tuned.plateau
            paper = PAPER[method][i] if method in PAPER else None
            panel[method] = {
                "setting": setting.name,
                "method": method,
                "best": run.tuned.best,
                "plateau": [low, high],
                "score": run.tuned.score,
                "stability_limit": run.limit,
                "roughness": roughness(run.paths["grad_norm"].values),
                "paper": paper,
                "paper_in_plateau": None if paper is None else low <= paper <= high,
            }
        entries += panel.values()
        panels[setting.name] = panel
    conclusions = conclude(panels)
    for entry in entries:
        if not np.isfinite(entry["roughness"]):  # a path left the finite numbers; JSON has no infinity
            entry["roughness"] = None
    return {
        "id": "cfl/table-3",
        "criterion": "mean-log",
        "settings": [s.name for s in SETTINGS],
        "methods": list(METHODS),
        "entries": entries,
        "conclusions": conclusions,
        "choices": dataclasses.asdict(choices),
        "ours": f"Not given by the paper, chosen by us: {choices}.",
    }


CAPTION = (
    "Bars: rates whose score is within 5 % of the best. Markers: our best rate; upright strokes: the "
    "paper's; dashed line: the stability limit of FedAvg and CFL, which memory does not move. A long bar "
    "says that the best rate by itself means little. Under small drift (above) most bars end at the "
    "limit; under big drift (below) only CFL can use large rates, and the paper's rates for FedAvg and "
    "FedProx lie right of our plateaus."
)


def draw(data: xr.Dataset) -> Any:
    """A panel a setting, a bar a method."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from .style import INK, LOOKS, MUTED, grid_of_panels, panel_title

    fig, panels = grid_of_panels(2, 4, 10.0, 4.4, sharex=True, sharey=True)
    methods = list(data["method"].values)
    rows = np.arange(len(methods))[::-1]
    low_end, high_end = 0.6 * float(data["plateau_low"].min()), 1.6 * float(data["stability_limit"].max())
    for i, (panel, setting) in enumerate(zip(panels.flat, data["setting"].values, strict=True)):
        one = data.sel(setting=setting)
        panel.grid(axis="y", visible=False)
        panel.axvline(
            float(one["stability_limit"].sel({"method": "FedAvg"})),
            color=MUTED,
            lw=0.8,
            ls=(0, (4, 2)),
            zorder=1,
        )
        for y, name in zip(rows, methods, strict=True):
            of, look = one.sel({"method": name}), LOOKS[name]
            low, high = float(of["plateau_low"]), float(of["plateau_high"])
            panel.barh(y, high - low, left=low, height=0.5, color=look.color, alpha=0.35, lw=0, zorder=2)
            panel.plot(of["best"], y, look.marker, color=look.color, ms=5.5, mec="white", mew=0.6, zorder=5)
            if np.isfinite(of["paper"]):
                panel.plot(of["paper"], y, "|", color=INK, ms=11, mew=1.5, zorder=4)
        details = f"$L={one['L']:g}$,  $\\mu={one['mu']:g}$,  $E\\|\\xi\\|^2={one['time']:g}$"
        panel_title(panel, setting, details)
        panel.set(xscale="log", xlim=(low_end, high_end), ylim=(-0.6, len(methods) - 0.4))
        panel.set_yticks(rows, methods)
        panel.tick_params(axis="y", length=0)
        if i >= 4:
            panel.set_xlabel("learning rate")
    handles: list[Any] = [
        Patch(color=MUTED, alpha=0.35, lw=0, label="within 5 % of the best"),
        Line2D([], [], color=MUTED, marker="o", ls="none", ms=5, label="our best"),
        Line2D([], [], color=INK, marker="|", ls="none", ms=11, mew=1.5, label="paper's best"),
        Line2D([], [], color=MUTED, lw=0.8, ls=(0, (4, 2)), label="stability limit of FedAvg and CFL"),
    ]
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    fig.supxlabel(data.attrs["ours"], fontsize=6.5, color=MUTED)
    return fig


@figure(
    "cfl/table-3",
    draw=draw,
    paper="cfl",
    title=f"{TITLE}, drawn",
    expected="Bars overlap above; below, short ones at small rates for FedAvg and FedProx, long for CFL.",
    runtime="10 s",
)
def table_3_drawn(progress: Progress = quiet, choices: Choices = CHOICES) -> xr.Dataset:
    """The numbers of Table 3 as arrays over (setting, method)."""
    data = table_3(progress, choices)

    def stack(pick: Any) -> tuple[tuple[str, str], np.ndarray]:
        values = [[pick(_entry(data, s, m)) for m in data["methods"]] for s in data["settings"]]
        return ("setting", "method"), np.array(values, dtype=float)  # None becomes nan

    return xr.Dataset(
        {
            "best": stack(lambda e: e["best"]),
            "plateau_low": stack(lambda e: e["plateau"][0]),
            "plateau_high": stack(lambda e: e["plateau"][1]),
            "stability_limit": stack(lambda e: e["stability_limit"]),
            "score": stack(lambda e: e["score"]),
            "roughness": stack(lambda e: e["roughness"]),
            "paper": stack(lambda e: e["paper"]),
        },
        coords={"method": data["methods"], **setting_coordinates()},
        attrs={
            "id": data["id"],
            "caption": CAPTION,
            "ours": data["ours"],
            "version": package_version(),
        },
    )
