"""Figure 2 of `special`: the anchor on the clients or on the server, while the second of two tasks is learned."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

import nqm

from .observations import Observation, attributes, caption, tell_settings
from .registry import Progress, figure, quiet
from .special_nqm import (
    CHOICES,
    CLIENT_PROX,
    SERVER_PROX,
    Choices,
    across,
    by_shift,
    drift,
    exact,
    federation,
    least_loss,
    matched,
    problem,
    rate,
)

NEAR_AND_FAR = (1.0, 16.0)
JUDGES = ("task 1", "task 2", "union")
NONE, SERVER, CLIENT, AS_STRONG = "no anchor", "server side", "client side", "client side, as strong"
EARLY, LATER = 5, 10  # rounds: our reading of "initial rounds", and the paper's "after 10 rounds"


def variants(choices: Choices) -> dict[str, nqm.Method]:
    """What is compared: the paper's two weights, and the client-side weight that holds as fast as the server's."""
    lr, strong = rate(choices), matched(SERVER_PROX, choices, task=2)
    return {
        NONE: nqm.Special(lr, prox=0.0),
        SERVER: nqm.Special(lr, prox=SERVER_PROX),
        CLIENT: nqm.SpecialC(lr, prox=CLIENT_PROX),
        AS_STRONG: nqm.SpecialC(lr, prox=strong),
    }


def draw(data: xr.Dataset) -> Any:
    """A row a distance of the tasks; task 1, task 2 and their union across."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from .style import BLUE, GREEN, MUTED, ORANGE, VERMILION, grid_of_panels, panel_title, plain_decimals

    looks: dict[str, tuple[str, Any, str]] = {
        NONE: (ORANGE, (0, (1.2, 1.2)), "o"),
        SERVER: (BLUE, "solid", "^"),
        CLIENT: (VERMILION, (0, (5, 1.6)), "s"),
        AS_STRONG: (GREEN, (0, (3.2, 1.2, 1, 1.2)), "D"),
    }
    shifts = data["shift"].values
    fig, panels = grid_of_panels(len(shifts), 3, 7.6, 2.3 * len(shifts) + 0.8, sharex=True)
    for row, shift in zip(panels, shifts, strict=True):
        for panel, judge in zip(row, JUDGES, strict=True):
            for k, (name, (color, dashes, marker)) in enumerate(looks.items()):
                of = data.sel(shift=shift, judge=judge, variant=name)
                if name in (SERVER, CLIENT):
                    panel.fill_between(data["round"], of["low"], of["high"], color=color, alpha=0.14, lw=0, zorder=2)
                panel.plot(
                    data["round"], of["loss"], color=color, ls=dashes, lw=1.4, marker=marker, ms=4.0, mec="white",
                    mew=0.5, markevery=(1 + k, 5), zorder=4,
                )  # fmt: skip
            if judge == "union":
                panel.axhline(1.0, color=MUTED, lw=0.8, ls=(0, (1, 2)), zorder=1)
            panel.set(yscale="log", xlim=(0, float(data["round"][-1])))
            plain_decimals(panel.yaxis)
            if shift == shifts[-1]:
                panel.set_xlabel("round of task 2")
            panel_title(panel, judge.capitalize(), f"$\\sigma_T^2={shift:g}$")
        row[0].set_ylabel("excess loss / $J$")
    prox = dict(zip(data["variant"].values, data["prox"].values, strict=True))
    handles: list[Any] = [
        Line2D(
            [], [], color=c, ls=d, marker=m, ms=5, lw=1.4, mec="white", mew=0.5, label=f"{n} ($\\lambda={prox[n]:g}$)"
        )
        for n, (c, d, m) in looks.items()
    ]
    handles.append(Patch(color=MUTED, alpha=0.25, lw=0, label="middle 90 % of runs, λ > 0 of the paper"))
    handles.append(Line2D([], [], color=MUTED, lw=0.8, ls=(0, (1, 2)), label="least of any model"))
    fig.legend(handles=handles, loc="outside upper center", ncols=3, columnspacing=1.6, handlelength=3.2)
    tell_settings(fig, data)
    return fig


def _curves(data: xr.Dataset, judge: str, client: str) -> tuple[np.ndarray, np.ndarray]:
    """The losses of the client-side and of the server-side term by round."""
    loss = data["loss"].sel(judge=judge)
    return loss.sel(variant=client).values, loss.sel(variant=SERVER).values


def keeps_task_1(data: xr.Dataset, client: str = CLIENT) -> Observation:
    """In rounds 1 to 5 of task 2 the loss on task 1 is lower with the client-side term than with the server's."""

    def test(of: xr.Dataset) -> Any:
        here, there = _curves(of, "task 1", client)
        return np.all(here[1 : EARLY + 1] < there[1 : EARLY + 1])

    return across("the client side keeps task 1 better in the first rounds", by_shift(data, test))


def learns_task_2_slowly(data: xr.Dataset, client: str = CLIENT) -> Observation:
    """In every round from the first on the loss on task 2 is higher with the client-side term."""

    def test(of: xr.Dataset) -> Any:
        here, there = _curves(of, "task 2", client)
        return np.all(here[1:] > there[1:])

    return across("the client side learns task 2 more slowly", by_shift(data, test))


def _ends_better(judge: str, client: str) -> Callable[[xr.Dataset], Any]:
    def test(of: xr.Dataset) -> Any:
        here, there = _curves(of, judge, client)
        return there[-1] < here[-1]

    return test


def ends_better_on_task_2(data: xr.Dataset, client: str = CLIENT) -> Observation:
    """After the last round the loss on task 2 is lower with the server-side term."""
    return across("the server side ends better on task 2", by_shift(data, _ends_better("task 2", client)))


def forgets_no_more(data: xr.Dataset, client: str = CLIENT) -> Observation:
    """After the last round the loss on task 1 is lower with the server-side term."""
    return across("the server side forgets no more of task 1", by_shift(data, _ends_better("task 1", client)))


def task_1_recovers(data: xr.Dataset, client: str = CLIENT) -> Observation:
    """With the server-side term the loss on task 1 is lower after the last round of task 2 than after its tenth."""

    def test(of: xr.Dataset) -> Any:
        there = _curves(of, "task 1", client)[1]
        return there[-1] < there[LATER]

    return across("on the server side task 1 gets better after round 10 of task 2", by_shift(data, test))


def ends_better_on_both(data: xr.Dataset, client: str = CLIENT) -> Observation:
    """After the last round the loss on the union is lower with the server-side term."""
    return across("the server side ends better on the union", by_shift(data, _ends_better("union", client)))


FINDINGS = (
    keeps_task_1,
    learns_task_2_slowly,
    ends_better_on_task_2,
    forgets_no_more,
    task_1_recovers,
    ends_better_on_both,
)


@figure(
    "special/fig-2",
    draw=draw,
    paper="special",
    title="Figure 2: client-side and server-side proximal term, on the model",
    expected="Two rows (tasks near and far), three columns. At the paper's weights the client-side curve stays nearest "
    "to its start, on task 1 and on task 2; at a weight that holds as fast as the server's the two curves all but "
    "coincide.",
    runtime="5 s",
)
def figure_2(progress: Progress = quiet, choices: Choices = CHOICES) -> xr.Dataset:
    """Exact losses on task 1, task 2 and their mean in every round of task 2, and the spread of simulated runs."""
    two = dataclasses.replace(choices, tasks=2)
    methods = variants(two)
    shape = len(NEAR_AND_FAR), len(methods), len(JUDGES), two.rounds + 1
    loss, low, high = np.empty(shape), np.empty(shape), np.empty(shape)
    for i, shift in enumerate(NEAR_AND_FAR):
        progress(f"tasks apart by σ_T² = {shift:g}")
        unit = least_loss(two, shift)
        for j, method in enumerate(methods.values()):
            loss[i, j] = _judged(exact(two, shift, method), unit)
            runs = nqm.simulate(
                problem(two, shift), drift(two), federation(two), method, seeds=two.paths, engine="collapsed"
            )
            low[i, j], high[i, j] = np.quantile(_judged(runs, unit), (0.05, 0.95), axis=-1)
    by = ("shift", "variant", "judge", "round")
    data = xr.Dataset(
        {
            "loss": (by, loss, {"long_name": "expected excess loss, in units of J"}),
            "low": (by, low, {"long_name": "5 % quantile of simulated runs"}),
            "high": (by, high, {"long_name": "95 % quantile of simulated runs"}),
        },
        coords={
            "shift": list(NEAR_AND_FAR),
            "variant": list(methods),
            "judge": list(JUDGES),
            "round": np.arange(two.rounds + 1),
            "prox": ("variant", [m.prox for m in methods.values()]),  # type: ignore[attr-defined]
        },
    )
    opening = (
        "Two tasks on the noisy quadratic model, near (above) and far; excess losses (lower is better) in units of J, "
        "the least that one model can have on their union. Lines: exact expectations; bands: the middle 90 % of "
        f"{two.paths} simulated runs, seeds 0 to {two.paths - 1}."
    )
    return data.assign_attrs(attributes("special/fig-2", opening, data, FINDINGS, str(two), closing(data)))


def _judged(data: xr.Dataset, unit: float) -> np.ndarray:
    """Losses of task 1, of task 2 and their mean while task 2 is learned, (judge, round, ...)."""
    loss = data["loss_of_task"].sel(task=2).transpose("of_task", "round", ...).values / unit
    return np.concatenate([loss, loss.mean(axis=0, keepdims=True)])


def closing(data: xr.Dataset) -> str:
    """What remains of the observations when both anchors are equally strong."""
    gap = data["loss"].sel(variant=AS_STRONG) / data["loss"].sel(variant=SERVER) - 1.0
    strong = float(data["prox"].sel(variant=AS_STRONG))
    opening = (
        f"But at the weights that the paper selects (λ = {SERVER_PROX:g} on the server, {CLIENT_PROX:g} on the "
        f"clients) the client-side anchor is {CLIENT_PROX / strong:.2g} times as strong: it pulls in every local step, "
        f"by 2λ, and is not held against the global rate. A client-side λ/(2Eγ_G) = {strong:g} rests at the same place "
        "to first order in the local rate; its curves differ from the server's by at most "
        f"{100 * float(np.abs(gap).max()):.0f} %. At equal strength."
    )
    return caption(opening, [judge(data, AS_STRONG) for judge in FINDINGS])
