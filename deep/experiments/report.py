"""What an experiment found, beside the paper's numbers: as JSON, and as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from .declare import Experiment

PER_CENT = ("best5", "final", "ACC", "BWT", "forgetting", "worst_drop")
NAMES = {
    "best5": "mean of the 5 best rounds, %",
    "final": "final accuracy, %",
    "ACC": "ACC, %",
    "BWT": "BWT, %",
    "forgetting": "forgetting, %",
    "worst_drop": "worst drop, %",
    "information_loss": "information loss",
    "mean_gain": "mean Kalman gain",
    "mean_forgetting_term": "mean of Γ(t)",
    "final_loss": "final test loss",
    "predicted_loss_error": "error of the loss predicted from round 0, as a share of its fall",
    "undisturbed_loss_error": "the same without drift and noise",
    "restarted_loss_error": "the same from the latest measurement",
}
ACROSS = 4  # numbers beside each other that a terminal has room for


class Grid(NamedTuple):
    """A table ready to print: header, rows of cells (a cell may have several lines), and notes with what they list."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[tuple[str, Sequence[str]]]


def title(experiment: Experiment, data: xr.Dataset) -> str:
    """What was run, at which scale and on which data."""
    if data.attrs["scale"] == "paper":
        return f"{experiment.id}, paper scale: {experiment.title}"
    sets = " / ".join(dict.fromkeys(json.loads(data.attrs["data"]).values()))
    return f"{experiment.id}, smoke scale on {sets}, not comparable with the paper: {experiment.title}"


def summary(experiment: Experiment, data: xr.Dataset) -> dict[str, Any]:
    """Ours and the paper's numbers as JSON can hold them."""
    scale = data.attrs["scale"]
    rows = []
    shown = [a.label for a in experiment.arms]
    absent = [m for m in dict.fromkeys(m for m, _, _ in experiment.paper) if m not in shown]
    for method in (*shown, *absent):
        for setting in data["setting"].values.tolist():
            numbers = {}
            for metric in experiment.metrics:
                values = _values(data, method, setting, metric) if method in shown else np.empty(0)
                paper = experiment.paper.get((method, setting, metric))
                numbers[metric] = {
                    "mean": float(values.mean()) if values.size else None,
                    "sd": float(values.std(ddof=1)) if values.size > 1 else None,
                    "paper": paper if isinstance(paper, str) or paper is None else paper[0],
                    "paper_sd": None if isinstance(paper, str) or paper is None else paper[1],
                }
            rows.append({"method": method, "setting": setting, **numbers})
    return {
        "id": experiment.id,
        "title": title(experiment, data),
        "scale": scale,
        "comparable": scale == "paper",
        "data": json.loads(data.attrs["data"]),
        "seeds": [int(s) for s in data["seed"].values],
        "rows": rows,
        "notes": list(experiment.open),
        "diverged": json.loads(data.attrs["diverged"]),
    }


def _values(data: xr.Dataset, method: str, setting: str, metric: str) -> np.ndarray:
    """One number a seed, per cent where the papers give per cent; runs that diverged are left out."""
    if metric not in data:
        return np.empty(0)
    values = data[metric].sel({"method": method, "setting": setting}).values.ravel()
    values = values[np.isfinite(values)]
    return 100 * values if metric in PER_CENT else values


def table(experiment: Experiment, found: Mapping[str, Any]) -> Grid:
    """`summary` as a table: ours, and below it the paper's. Methods or settings go across where they are few."""
    metrics, by = experiment.metrics, {(row["method"], row["setting"]): row for row in found["rows"]}
    methods, settings = (list(dict.fromkeys(row[k] for row in found["rows"])) for k in ("method", "setting"))

    def across(names: Sequence[str]) -> list[tuple[str, str]]:
        return [(name, m) for name in names for m in metrics]

    def head(name: str, metric: str) -> str:
        return name if len(metrics) == 1 else f"{name}: {metric}"

    if len(across(settings)) <= ACROSS:
        header = ["method", *(head(*c) for c in across(settings))]
        rows = [[method, *(_cell(m, by[method, s][m]) for s, m in across(settings))] for method in methods]
    elif len(across(methods)) <= ACROSS:
        header = ["setting", *(head(*c) for c in across(methods))]
        rows = [[s, *(_cell(m, by[method, s][m]) for method, m in across(methods))] for s in settings]
    else:
        header = ["setting", "method", *metrics]
        rows = [[s, method, *(_cell(m, by[method, s][m]) for m in metrics)] for s in settings for method in methods]
    notes = [(f"Shown: {', '.join(NAMES[m] for m in metrics)}; mean ± deviation over {_seeds(found)}.", ())]
    if found["scale"] == "smoke":
        notes.append(("Smoke scale shows that everything runs; the paper's numbers belong to other data.", ()))
    if any(row[m]["mean"] is None and row[m]["paper"] is not None for row in found["rows"] for m in metrics):
        notes.append(("A method without a number of ours is not implemented here, or diverged.", ()))
    if found["diverged"]:
        notes.append(("Diverged:", found["diverged"]))
    if found["notes"]:
        notes.append(("Where the paper is silent, or we differ:", found["notes"]))
    return Grid(header, rows, notes)


def _seeds(found: Mapping[str, Any]) -> str:
    seeds = found["seeds"]
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}"


def _cell(metric: str, number: Mapping[str, Any]) -> str:
    def shown(value: float | str | None, spread: float | None) -> str:
        if value is None or isinstance(value, str):
            return value or "–"
        form = ".2f" if metric in PER_CENT else ".4g"
        return f"{value:{form}}" + ("" if spread is None else f" ± {spread:{form}}")

    ours = shown(number["mean"], number["sd"])
    return ours if number["paper"] is None else f"{ours}\npaper {shown(number['paper'], number['paper_sd'])}"
