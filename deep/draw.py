"""Figures of deep experiments, from their datasets alone. matplotlib is imported when something is drawn."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from nqm.result import writing

COLOURS = ("#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#222222")  # Okabe and Ito
DASHES = ("solid", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (3.2, 1.4)), (0, (5, 1, 1, 1)), "solid", (0, (2, 2)))
MARKERS = "os^vDPX"
STYLE: Any = {
    "pdf.fonttype": 42,
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.3,
    "savefig.dpi": 200,
}
SMOOTHED = 5  # rounds of the mean filter

Draw = Callable[[xr.Dataset, Any], None]
FIGURES: dict[str, Draw] = {}


def figure(draw: Draw) -> Draw:
    FIGURES[draw.__name__] = draw
    return draw


def save(kind: str, data: xr.Dataset, title: str, base: Path) -> list[Path]:
    """Draw ``data`` and leave base.png and base.pdf."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    paths = []
    with matplotlib.rc_context(STYLE):
        canvas = Figure(figsize=(6.8, 2.9), layout="constrained")
        FIGURES[kind](data, canvas)
        canvas.suptitle(title, fontsize=7, color="#666666", wrap=True)
        # No date and no version inside: the same data give the same bytes.
        for suffix, metadata in ((".png", {"Software": None}), (".pdf", {"CreationDate": None, "Producer": None})):
            path = base.with_name(base.name + suffix)
            with writing(path) as temporary:
                canvas.savefig(temporary, metadata=metadata)
            paths.append(path)
    return paths


def look(k: int) -> dict[str, Any]:
    return {"color": COLOURS[k % 7], "linestyle": DASHES[k % 7]}


def dots(k: int) -> dict[str, Any]:
    return {"color": COLOURS[k % 7], "linestyle": DASHES[k % 7], "marker": MARKERS[k % 7], "markersize": 3.5}


def panels(canvas: Any, labels: list[str], height: float = 2.2, most: int = 4) -> list[Any]:
    columns = min(len(labels), most)
    rows = -(-len(labels) // columns)
    canvas.set_size_inches(6.8 if columns > 1 else 4.2, max(2.9, height * rows + 0.4))
    found = canvas.subplots(rows, columns, squeeze=False).ravel()
    for panel, label in zip(found, labels, strict=False):
        panel.set_title(label, loc="left", fontweight="bold")
    for panel in found[len(labels) :]:
        panel.set_visible(False)
    return list(found[: len(labels)])


def _legend(canvas: Any, panel: Any) -> None:
    """One for all panels, below them."""
    handles, labels = panel.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 3))


def names(data: xr.Dataset, dim: str) -> list[str]:
    return [str(v) for v in data[dim].values]


def _lines(data: xr.Dataset, canvas: Any, variable: str, what: str, width: int = 1) -> None:
    """A panel a setting, a line a method: the mean over tests and seeds against the round."""
    found = panels(canvas, names(data, "setting"))
    for panel, setting in zip(found, names(data, "setting"), strict=True):
        for k, method in enumerate(names(data, "method")):
            cell = data.sel({"setting": setting, "method": method})
            y = cell[variable].mean(("seed", "test"), skipna=True).values
            x = cell["curve_round"].mean("seed", skipna=True).values
            there = np.isfinite(y) & np.isfinite(x)
            x, y = x[there], y[there]
            if width > 1 and len(y) > width:
                x, y = x[width // 2 : len(x) - width // 2], np.convolve(y, np.ones(width) / width, "valid")
            panel.plot(x, y, label=method, **look(k))
        panel.set_xlabel("round")
    found[0].set_ylabel(what)
    _legend(canvas, found[0])


@figure
def curves(data: xr.Dataset, canvas: Any) -> None:
    _lines(data, canvas, "curve_accuracy", "test accuracy")


@figure
def smooth_curves(data: xr.Dataset, canvas: Any) -> None:
    _lines(data, canvas, "curve_accuracy", f"test accuracy, mean of {SMOOTHED} rounds", SMOOTHED)


@figure
def loss_curves(data: xr.Dataset, canvas: Any) -> None:
    _lines(data, canvas, "curve_loss", "test loss")


def _series(data: xr.Dataset, canvas: Any, lines: dict[str, str], what: str) -> None:
    """A panel a setting, a line a variable with one number a round."""
    found = panels(canvas, names(data, "setting"))
    for panel, setting in zip(found, names(data, "setting"), strict=True):
        for k, (name, label) in enumerate(lines.items()):
            y = data[name].sel(setting=setting).mean(("seed", "method")).values
            panel.plot(np.arange(1, len(y) + 1), y, label=label, **look(k))
        panel.set_xlabel("round")
    found[0].set_ylabel(what)
    _legend(canvas, found[0])


@figure
def past_loss(data: xr.Dataset, canvas: Any) -> None:
    tests = data["curve_loss"].mean("test").isel(point=slice(1, None)).values
    with_tests = data.assign(test_loss=(data["past_loss"].dims, tests))
    _series(with_tests, canvas, {"test_loss": "global test data", "past_loss": "training data seen so far"}, "loss")


@figure
def predictions(data: xr.Dataset, canvas: Any) -> None:
    lines = {
        "train_loss": "network",
        "predicted_loss": "model, measured at round 0",
        "undisturbed_loss": "the same without drift and noise",
        "restarted_loss": "model, measured every 10 rounds",
    }
    _series(data, canvas, lines, "training loss")


@figure
def forgetting_term(data: xr.Dataset, canvas: Any) -> None:
    _series(data, canvas, {"forgetting_term": "Γ(t)"}, "Γ(t)")


@figure
def tasks(data: xr.Dataset, canvas: Any) -> None:
    """The average accuracy on the tasks seen so far, after each task."""
    found = panels(canvas, names(data, "setting"))
    matrix = data["accuracy"]
    for panel, setting in zip(found, names(data, "setting"), strict=True):
        for k, method in enumerate(names(data, "method")):
            A = matrix.sel({"setting": setting, "method": method}).mean("seed").values
            count = int(np.isfinite(A[:, 0]).sum())
            panel.plot(range(1, count + 1), [A[i, : i + 1].mean() for i in range(count)], label=method, **dots(k))
        panel.set_xlabel("tasks learned")
        panel.set_ylim(0, 1.02)
    found[0].set_ylabel("average accuracy")
    _legend(canvas, found[0])


@figure
def second_task(data: xr.Dataset, canvas: Any) -> None:
    """Accuracy on the first task, the second, and both together, while the second is learned."""
    labels = ["task 1", "task 2", "both"]
    found = panels(canvas, labels)
    rounds = (data.sizes["point"] - 1) // 2
    for k, method in enumerate(names(data, "method")):
        cell = data.isel(setting=0).sel({"method": method}).mean("seed")
        A, n = cell["curve_accuracy"].values[rounds:], cell["test_size"].values
        for panel, y in zip(found, (A[:, 0], A[:, 1], A @ n / n.sum()), strict=True):
            panel.plot(range(len(y)), y, label=method, **look(k))
            panel.set_xlabel("round of task 2")
    found[0].set_ylabel("test accuracy")
    found[-1].legend()


def _split(label: str) -> tuple[str, float]:
    """What a setting's label says before its last number, and that number."""
    match = re.search(r"^(.*?)(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\D*$", label)
    assert match is not None, label
    kind = " ".join((match[1] + label[match.end(2) :]).split()).strip(" ,=")
    return kind, float(match[2])


def _groups(data: xr.Dataset) -> dict[str, list[tuple[float, str]]]:
    found: dict[str, list[tuple[float, str]]] = {}
    for label in names(data, "setting"):
        kind, value = _split(label)
        found.setdefault(kind, []).append((value, label))
    return {kind: sorted(points) for kind, points in found.items()}


AXES = {
    "ACC": "ACC",
    "BWT": "BWT",
    "forgetting": "forgetting",
    "best5": "accuracy (5 best rounds)",
    "information_loss": "information loss",
}


@figure
def against(data: xr.Dataset, canvas: Any) -> None:
    """Two numbers of a run against a parameter; a panel a kind of setting, the second number on its own axis."""
    groups = _groups(data)
    found = panels(canvas, [kind or "core set size" for kind in groups], most=2)
    pair = ("information_loss", "best5") if "information_loss" in data else ("ACC", "BWT")
    if "forgetting_term" in data:
        pair = ("ACC", "forgetting")
    for panel, (_, points) in zip(found, groups.items(), strict=True):
        axes = (panel, panel.twinx())
        for k, (axis, name) in enumerate(zip(axes, pair, strict=True)):
            y = [float(data[name].sel(setting=label).mean()) for _, label in points]
            axis.plot([x for x, _ in points], y, label=AXES[name], **dots(k))
            axis.set_ylabel(AXES[name], color=COLOURS[k])
            axis.spines["right"].set_visible(k == 1)
        axes[1].grid(False)


@figure
def ablations(data: xr.Dataset, canvas: Any) -> None:
    """ACC and BWT, a panel a parameter."""
    groups = _groups(data)
    found = panels(canvas, [kind.strip() for kind in groups])
    for panel, (kind, points) in zip(found, groups.items(), strict=True):
        for k, name in enumerate(("ACC", "BWT")):
            y = [float(data[name].sel(setting=label).mean()) for _, label in points]
            panel.plot([x for x, _ in points], y, label=name, **dots(k))
        panel.set_xlabel(kind)
        if kind.startswith("α"):
            panel.set_xscale("log")
    found[-1].legend()


@figure
def trade_off(data: xr.Dataset, canvas: Any) -> None:
    """(ACC, BWT), one marker a data set, the colour by the proximal weight."""
    (panel,) = panels(canvas, [""])
    groups = _groups(data)
    for k, (kind, points) in enumerate(groups.items()):
        labels = [label for _, label in points]
        cell = data.sel(setting=labels).mean(("seed", "method"))
        shown = panel.scatter(
            cell["ACC"],
            cell["BWT"],
            c=[x for x, _ in points],
            marker=MARKERS[k],
            cmap="viridis",
            label=kind.split(",")[0],
        )
    canvas.colorbar(shown, ax=panel, label="λ")
    panel.set(xlabel="ACC", ylabel="BWT")
    panel.legend()


def _balls(data: xr.Dataset, panel: Any, setting: str) -> None:
    """A ball a class and client, its size by the number of samples; clients of a round side by side, by colour."""
    count = data["count"].sel(setting=setting).values
    rounds, clients, _ = count.shape
    most = max(int(count.max()), 1)
    for client in range(clients):
        t, c = np.nonzero(count[:, client])
        shift = 0.8 * (client / max(clients - 1, 1) - 0.5)
        size = 30 * count[t, client, c] / most
        panel.scatter(t + 1 + shift, c, s=size, color=COLOURS[client % 7], alpha=0.7, linewidths=0)
    panel.set(xlabel="round", ylabel="class", xlim=(0.4, rounds + 0.6))


@figure
def balls(data: xr.Dataset, canvas: Any) -> None:
    for panel, setting in zip(panels(canvas, names(data, "setting")), names(data, "setting"), strict=True):
        _balls(data, panel, setting)


@figure
def drifts(data: xr.Dataset, canvas: Any) -> None:
    """Above the classes of the clients of each round with both drifts, below the accuracy with either drift."""
    alphas = list(dict.fromkeys(s.split(":")[0] for s in names(data, "setting") if ":" in s))
    found = panels(canvas, [*alphas, *alphas], height=2.4, most=len(alphas))
    for panel, alpha in zip(found, alphas, strict=False):
        _balls(data, panel, f"{alpha}: both drifts")
    for panel, alpha in zip(found[len(alphas) :], alphas, strict=True):
        for k, setting in enumerate(["iid", *(s for s in names(data, "setting") if s.startswith(f"{alpha}:"))]):
            cell = data.isel(method=0).sel(setting=setting).mean("seed")
            y = cell["curve_accuracy"].mean("test").values
            panel.plot(cell["curve_round"], y, label=setting.split(": ")[-1], **look(k))
        panel.set(xlabel="round", ylabel="test accuracy")
    _legend(canvas, found[-1])


@figure
def gains(data: xr.Dataset, canvas: Any) -> None:
    """Boxes of the Kalman gain over rounds."""
    (panel,) = panels(canvas, [""])
    canvas.set_size_inches(6.8, 3.2)
    labels = names(data, "setting")
    values = [data["gain"].sel(setting=s).values.ravel() for s in labels]
    panel.boxplot([v[np.isfinite(v)] for v in values], widths=0.6, medianprops={"color": COLOURS[1]})
    panel.set_xticks(range(1, len(labels) + 1), labels, rotation=30, ha="right")
    panel.set_ylabel("Kalman gain")
