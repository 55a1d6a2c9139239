"""Rate claims: measured curves with the predicted slope and what no method can cross, and all exponents at a glance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from nqm.result import package_version
from theory import rates

from .registry import Progress, figure, quiet

COLUMNS = 4
VERDICTS = ("agrees", "faster", "slower", "unmeasured")
CURVES = ("prescribed", "free", "falling", "predicted", "information", "computation", "still")


def colors() -> dict[str, str]:
    from .style import BLUE, GREEN, MUTED, VERMILION

    return {"agrees": BLUE, "faster": GREEN, "slower": VERMILION, "unmeasured": MUTED}


def rows_of(found: list[rates.Found]) -> xr.Dataset:
    """What a figure or the summary needs of some rows, as plain arrays: curves are padded to one length."""
    length = max((len(one.curve.x) for one in found if one.curve), default=1)
    values = {name: np.full((len(found), length), np.nan) for name in ("x", *CURVES)}
    exponents = np.full((len(found), 4), np.nan)
    for i, one in enumerate(found):
        exponents[i, 0] = one.rate.predicted
        if one.fit is not None:
            exponents[i, 1:] = one.fit.exponent, one.fit.low, one.fit.high
        curve = one.curve
        if curve is None:
            continue
        n = len(curve.x)
        known = {"x": curve.x, "prescribed": curve.prescribed, "free": curve.free, "falling": curve.falling}
        known |= {"still": curve.still, "predicted": _scaled(one), **curve.lines}
        for name, y in known.items():
            if y is not None:
                values[name][i, :n] = np.where(np.isfinite(y), y, np.nan)
    words = {
        "claim": [one.rate.claim for one in found],
        "part": [one.rate.part for one in found],
        "term": [one.rate.term for one in found],
        "parameter": [one.rate.parameter for one in found],
        "quantity": [one.curve.quantity if one.curve else "" for one in found],
        "law": [one.fit.law if one.fit else "" for one in found],
        "verdict": [one.verdict for one in found],
        "note": [one.note for one in found],
    }
    return xr.Dataset(
        {name: (("row", "point"), y) for name, y in values.items()}
        | {"exponent": (("row", "what"), exponents)}
        | {name: ("row", np.array(texts, dtype=object).astype(str)) for name, texts in words.items()},
        coords={"what": ["predicted", "measured", "low", "high"]},
    )


def _scaled(one: rates.Found) -> np.ndarray | None:
    """The predicted power through the measured value at the middle point, which is where it is scaled."""
    curve = one.curve
    assert curve is not None
    own = curve.prescribed if curve.prescribed is not None else curve.free
    if own is None:
        return None
    middle = len(curve.x) // 2
    return np.asarray(own[middle] * (curve.x / curve.x[middle]) ** one.rate.predicted)


def draw_claim(data: xr.Dataset) -> Any:
    """A panel a parameter; rows that were not measured are left out."""
    from .style import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, VERMILION, grid_of_panels, panel_title

    shown = [i for i in range(data.sizes["row"]) if data["verdict"].values[i] != "unmeasured"]
    columns = min(COLUMNS, len(shown)) or 1
    lines = max(1, math.ceil(len(shown) / columns))
    fig, panels = grid_of_panels(lines, columns, 1.9 * columns + 0.6, 1.75 * lines + 0.6)
    looks: dict[str, tuple[str, dict[str, Any]]] = {
        "prescribed": ("the paper's steps", {"color": BLUE, "marker": "o", "ms": 3, "lw": 1.4}),
        "free": ("tuned freely", {"color": ORANGE, "marker": "s", "ms": 2.4, "lw": 1.0, "ls": (0, (4, 1.6))}),
        "falling": ("falling step", {"color": PURPLE, "marker": "v", "ms": 2.4, "lw": 1.0}),
        "predicted": ("predicted slope", {"color": VERMILION, "lw": 1.2, "ls": (0, (1, 1.4))}),
        "information": ("information limit", {"color": INK, "lw": 0.9}),
        "computation": ("computation limit", {"color": GREEN, "lw": 0.9, "ls": (0, (6, 2, 1, 2))}),
    }
    handles: dict[str, Any] = {}
    for panel, i in zip(panels.flat, shown, strict=False):
        row = data.isel(row=i)
        x = row["x"].values
        rounds = str(row["quantity"].values) == "rounds"
        for name, (words, look) in looks.items():
            y = row[name].values
            if np.any(y > 0):
                (handles[words],) = panel.plot(x, np.where(y > 0, y, np.nan), **look)
        still, label = row["still"].values, str(row["parameter"].values)
        if rounds and np.isfinite(still).any():
            ends = dict.fromkeys(f"{float(f'{v:.2g}'):g}" for v in (still[0], still[np.isfinite(still)][-1]))
            label += f"   (start: {' to '.join(ends)} × target)"
        elif np.any(still > 0):
            (handles["standing still"],) = panel.plot(x, still, color=MUTED, lw=0.9, ls=(0, (3, 1)))
        own = np.concatenate([row[name].values for name in ("prescribed", "free")])
        panel.set(xscale="log", yscale="log")
        panel.set_xlabel(label, fontsize=6)
        if not rounds or i == shown[0]:
            panel.set_ylabel(str(row["quantity"].values))
        predicted, measured = (float(row["exponent"].sel(what=w)) for w in ("predicted", "measured"))
        law = {"power x log": "·log", "exponential": " exp"}.get(str(row["law"].values), "")
        panel_title(panel, "", f"{predicted:g} → {_short(measured)}{law}")
        verdict = str(row["verdict"].values)
        panel.set_title(f"{row['term'].values}", loc="left", fontsize=5.6, color=colors()[verdict], fontweight="bold")
        panel.set_ylim(bottom=max(panel.get_ylim()[0], 1e-3 * np.min(own[own > 0])))  # limits may lie far below
        panel.tick_params(labelsize=5.5)
        panel.minorticks_off()  # on dozens of logarithmic axes they take most of the time to draw
    for panel in list(panels.flat)[len(shown) :]:
        panel.set_axis_off()
    if not shown:
        panels[0, 0].text(0.5, 0.5, "not measured", ha="center", color=MUTED)
    if handles:
        fig.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, fontsize=7)
    fig.draw_without_rendering()  # the layout is found once, not for every file
    fig.set_layout_engine("none")
    return fig


def _short(value: float) -> str:
    return f"{value:.2g}" if abs(value) >= 0.01 else "0"


def draw_summary(data: xr.Dataset) -> Any:
    """Every row: predicted exponent against measured, with its interval."""
    from .style import MUTED, grid_of_panels

    fig, panels = grid_of_panels(1, 2, 7.2, 4.2, width_ratios=(1.0, 1.25))
    plane, per_claim = panels.flat
    predicted, measured, low, high = (data["exponent"].sel(what=w).values for w in data["what"].values)
    verdict, claim = data["verdict"].values, data["claim"].values
    span = 4.6
    plane.plot([-span, span], [-span, span], color=MUTED, lw=0.8)
    names = list(dict.fromkeys(claim))
    for word in VERDICTS[:3]:
        at = (verdict == word) & np.isfinite(measured)
        error = np.stack([measured - low, high - measured])[:, at]
        error = np.where(np.isfinite(error), np.minimum(error, 3.0), 3.0)
        jitter = 0.06 * (np.arange(at.sum()) % 5 - 2)
        shown = np.clip(measured[at], -span, span)
        plane.errorbar(predicted[at] + jitter, shown, error, fmt="o", ms=2.6, lw=0.6, color=colors()[word],
                       label=f"{word} ({at.sum()})")  # fmt: skip
    plane.set(xlim=(-span, span), ylim=(-span, span), xlabel="predicted exponent", ylabel="measured exponent")
    plane.legend(loc="upper left", fontsize=7)
    left = np.zeros(len(names))
    for word in VERDICTS:
        count = np.array([np.sum((claim == name) & (verdict == word)) for name in names])
        per_claim.barh(np.arange(len(names)), count, left=left, color=colors()[word], height=0.7,
                       alpha=0.35 if word == "unmeasured" else 1.0, label=word)  # fmt: skip
        left += count
    per_claim.set_yticks(np.arange(len(names)), names, fontsize=6)
    per_claim.invert_yaxis()
    per_claim.set_xlabel("parameters")
    per_claim.grid(axis="y", visible=False)
    per_claim.legend(loc="lower right", fontsize=6.5)
    return fig


def _captioned(data: xr.Dataset, id: str, caption: str) -> xr.Dataset:
    return data.assign_attrs(id=id, caption=caption, version=package_version())


def _measure(id: str) -> Callable[..., xr.Dataset]:
    def measure(progress: Progress = quiet) -> xr.Dataset:
        progress(f"rates/{id}: measuring")
        found = list(rates.results(id))
        notes = " ".join(dict.fromkeys(f"{o.rate.term} in {o.rate.parameter}: {o.note}" for o in found if o.note))
        caption = (
            f"{id}: every parameter over two decades, all else held where its term dominates. Above each panel the "
            "term, and the predicted → measured exponent. The predicted power passes through the measured value of "
            "the middle point. Limits: no method gets below the information bound from N·T draws of drift, nor, on all "
            "spectra, below that of K·T gradients; a server that stands still keeps the error of the start, shown "
            f"below each panel. {notes}"
        )
        return _captioned(rows_of(found), f"rates/{id}", caption.strip())

    return measure


for _id in rates.registry():
    figure(
        f"rates/{_id}",
        draw=draw_claim,
        paper=_id.split("/")[0],
        title=f"Rates of {_id}: predicted slopes and measured curves",
        expected="Measured curves above the limits; dotted slopes along them where the verdict is agrees, "
        "steeper where it is faster, flatter where it is slower.",
        runtime="5 s",
    )(_measure(_id))


@figure(
    "rates/summary",
    draw=draw_summary,
    paper="all",
    title="All rate claims: predicted exponent against measured, and verdicts by claim",
    expected="Most points on the diagonal; off it, claims that are loose or that fail in some regime.",
    runtime="20 s",
)
def summary(progress: Progress = quiet) -> xr.Dataset:
    """All rows of all claims, measured once a process."""
    found: list[rates.Found] = []
    for id in rates.registry():
        progress(f"rates/summary: {id}")
        found += rates.results(id)
    count = {word: sum(one.verdict == word for one in found) for word in VERDICTS}
    caption = (
        "Exponents of rounds to an accuracy, or of errors after T rounds, as claimed and as measured without sampling. "
        "Bars are intervals that include curvature. " + ", ".join(f"{n} {word}" for word, n in count.items()) + "."
    )
    return _captioned(rows_of(found), "rates/summary", caption)
