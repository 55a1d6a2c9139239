"""Figure 4 of `fedeve`: the Kalman gain over heterogeneity and local steps, by where its variances come from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

import nqm
from theory.bounds.fedeve import largest_gain, local_slope

from .fedeve_nqm import CHOICES, Choices, paths
from .observations import Observation, attributes, tell_settings
from .registry import Progress, figure, quiet

LEVELS = (0.001, 0.01, 0.1, 1.0)
STEPS = (2, 6, 10)  # one, three and five epochs of two steps
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
VARIANCES = {"paper": "as printed, (13)", "raw": "public code", "corrected": "corrected", "oracle": "exact"}
MARGINAL = 0.1
FEWER = replace(CHOICES, seeds=24)  # 200 rounds each


def _median(data: xr.Dataset, variances: str) -> np.ndarray:
    """(heterogeneity, local steps)"""
    of = data["gain"].sel(variances=variances, quantile=0.5)
    return of.transpose("heterogeneity", "local_steps").values


def grows_with_heterogeneity(data: xr.Dataset, variances: str = "paper") -> Observation:
    """Grows: the median gain rises from every level to the next, for every K."""
    median = _median(data, variances)
    lowest, highest = median[0], median[-1]
    steps = data["local_steps"].values
    told = ", ".join(f"{a:.2f} to {b:.2f} at K = {k}" for a, b, k in zip(lowest, highest, steps, strict=True))
    return Observation("the gain grows with heterogeneity", bool((np.diff(median, axis=0) > 0).all()), told)


def hardly_depends_on_steps(data: xr.Dataset, variances: str = "paper") -> Observation:
    """Hardly: over K the median varies by at most a tenth, at every heterogeneity."""
    median = _median(data, variances)
    change = np.ptp(median, axis=1) / median.min(axis=1)
    told = ", ".join(f"{100 * c:.0f} % at h = {h:g}" for c, h in zip(change, data["heterogeneity"].values, strict=True))
    return Observation("the gain hardly changes with local steps", bool(change.max() <= MARGINAL), told)


def others(data: xr.Dataset) -> str:
    """What the other estimators say about the same two observations."""
    told = []
    for name in list(VARIANCES)[1:]:
        up, flat = grows_with_heterogeneity(data, name).seen, hardly_depends_on_steps(data, name).seen
        words = f"{'grows' if up else 'does not grow'} with heterogeneity and {'hardly ' if flat else ''}changes with K"
        told.append(f"{VARIANCES[name]}: it {words}")
    return "By the other variances, " + "; ".join(told) + "."


def at_the_end(data: xr.Dataset) -> str:
    """The gain when the start is forgotten, where there is one number a case."""
    late = data["late_gain"].sel(variances="paper").isel(local_steps=-1).values
    told = ", ".join(f"{g:.3f} at h = {h:g}" for g, h in zip(late, data["heterogeneity"].values, strict=True))
    return f"In the last quarter of the rounds the median of (13) is {told}, for most local steps."


def draw(data: xr.Dataset) -> Any:
    """A panel an estimator; boxes: quartiles and median, whiskers: 5 to 95 %."""
    from matplotlib.patches import Patch

    from .style import BLUE, GREEN, ORANGE, grid_of_panels, panel_title

    fig, panels = grid_of_panels(1, 4, 9.6, 3.2, sharey=True)
    colors = dict(zip(data["local_steps"].values, (BLUE, GREEN, ORANGE), strict=True))
    levels = data["heterogeneity"].values
    for panel, (name, words) in zip(panels.flat, VARIANCES.items(), strict=True):
        for j, (K, color) in enumerate(colors.items()):
            boxes: list[dict[str, Any]] = []
            for level in levels:
                low, first, median, third, high = data["gain"].sel(variances=name, heterogeneity=level, local_steps=K)
                box = {"whislo": low, "q1": first, "med": median, "q3": third, "whishi": high}
                boxes.append({k: float(v) for k, v in box.items()} | {"fliers": []})
            look: Any = {"color": color, "lw": 0.9}
            drawn = panel.bxp(
                boxes,
                positions=np.arange(len(levels)) + 0.26 * (j - 1),
                widths=0.2,
                showfliers=False,
                patch_artist=True,
                boxprops={"facecolor": color, "edgecolor": color, "alpha": 0.75, "lw": 0.6},
                medianprops={"color": "white", "lw": 1.4},
                whiskerprops=look,
                capprops=look,
            )
            for line in drawn["medians"]:
                line.set_zorder(5)
        panel.set_xticks(np.arange(len(levels)), [f"{h:g}" for h in levels])
        panel.set_xlabel("heterogeneity $h$")
        panel.grid(axis="x", visible=False)
        panel_title(panel, words, "shared Hessian" if name == "oracle" else "")
    panels[0, 0].set(ylim=(0, 1.02), ylabel="Kalman gain")
    handles = [Patch(color=color, alpha=0.75, label=f"K = {K} local steps") for K, color in colors.items()]
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    tell_settings(fig, data)
    return fig


@figure(
    "fedeve/fig-4",
    draw=draw,
    paper="fedeve",
    title="Figure 4: the Kalman gain over heterogeneity and local steps",
    expected="Four panels of boxes. In all of them the gain falls as heterogeneity grows; with exact variances it "
    "falls furthest, with those of public code it starts highest.",
    runtime="4 s",
)
def figure_4(progress: Progress = quiet, choices: Choices = FEWER) -> xr.Dataset:
    """Quantiles of the gain over all rounds and seeds."""
    shape = len(VARIANCES), len(LEVELS), len(STEPS)
    gain, late = np.empty((*shape, len(QUANTILES))), np.empty(shape)
    for i, variances in enumerate(VARIANCES):
        progress(f"variances {VARIANCES[variances]}")
        method = nqm.FedEve(choices.lr, variances=variances)
        for j, level in enumerate(LEVELS):
            for k, steps in enumerate(STEPS):
                chosen = replace(choices, local_steps=steps)
                runs = paths(chosen, level, method, shared_hessian=variances == "oracle")
                drawn = runs["gain"].values[:, 1:]
                gain[i, j, k] = np.quantile(drawn, QUANTILES)
                late[i, j, k] = np.median(drawn[:, -(choices.rounds // 4) :])
    slope = local_slope(choices.L, choices.lr, max(STEPS))
    data = xr.Dataset(
        {
            "gain": (
                ("variances", "heterogeneity", "local_steps", "quantile"),
                gain,
                {"long_name": "quantiles of the Kalman gain over rounds and seeds"},
            ),
            "late_gain": (
                ("variances", "heterogeneity", "local_steps"),
                late,
                {"long_name": "median of the Kalman gain in the last quarter of the rounds"},
            ),
        },
        coords={
            "variances": list(VARIANCES),
            "heterogeneity": [*LEVELS],
            "local_steps": [*STEPS],
            "quantile": [*QUANTILES],
        },
    )
    data.attrs = attributes(
        "fedeve/fig-4",
        f"Gains of all {choices.rounds} rounds: boxes from quartile to quartile with the median, whiskers from 5 to "
        "95 %, by where the variances come from.",
        data,
        (grows_with_heterogeneity, hardly_depends_on_steps),
        f"{choices}, but K as drawn",
        f"{others(data)} {at_the_end(data)} Exact variances are at hand for clients that share one Hessian. With at "
        f"most {max(STEPS)} steps the round contracts at any gain below {largest_gain(slope):.3g}.",
    )
    return data
