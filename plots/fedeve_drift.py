"""Figure 3 of `fedeve`: clients' and cohorts' drift, and what either does to FedAvg, alone and together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

import nqm

from .fedeve_nqm import CHOICES, Choices, paths, population
from .observations import CLEAR, Array, Observation, attributes, standard_error, tell_settings, z_score
from .registry import Progress, figure, quiet

SETTINGS = {"no drift": None, "client drift only": "dealt", "period drift only": "pooled", "both": "own"}
LEVELS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
STEPS = (1, 2, 5, 10, 20, 50)
DRAWN = (0.01, 0.1, 1.0)  # levels whose drift is drawn
DRAWN_ROUNDS = 20


def _at_highest(data: xr.Dataset) -> dict[str, xr.DataArray]:
    """Late loss by seed in each setting, at the highest heterogeneity."""
    top = data["late_loss"].isel(heterogeneity=-1)
    return {name: top.sel(setting=name) for name in SETTINGS}


def _mean(values: Any) -> float:
    return float(np.mean(values))


def drifts_grow(data: xr.Dataset) -> Observation:
    """Grows: the spread within a round and that of the rounds' means rise from each level drawn to the next."""
    within, between = (data[name].values for name in ("spread_within", "spread_between"))
    grows = bool((np.diff(within) > 0).all() and (np.diff(between) > 0).all())
    told = f"within a round {within[0]:.2g} to {within[-1]:.2g}, between rounds {between[0]:.2g} to {between[-1]:.2g}"
    return Observation("drift within a round and between rounds grows with heterogeneity", grows, told)


def effects_grow(data: xr.Dataset) -> Observation:
    """Grow: what either drift adds to the loss is clearly more at the highest heterogeneity than at the lowest."""
    loss = data["late_loss"]
    added = {name: loss.sel(setting=name) - loss.sel(setting="no drift") for name in list(SETTINGS)[1:3]}
    grows = all(z_score((a[-1] - a[0]).values) > CLEAR for a in added.values())
    told = ", ".join(f"{name} adds {_mean(a[0]):.1e} to {_mean(a[-1]):.1e}" for name, a in added.items())
    return Observation("the effects of both drifts show as heterogeneity grows", grows, told)


def client_drift_is_like_iid(data: xr.Dataset) -> Observation:
    """Like iid: at the highest heterogeneity at most a tenth of the way from no drift to both."""
    of = {name: _mean(values) for name, values in _at_highest(data).items()}
    share = (of["client drift only"] - of["no drift"]) / (of["both"] - of["no drift"])
    told = f"{100 * share:.2g} % of what both add, {of['client drift only'] / of['no drift']:.3g} times the loss of iid"
    return Observation("client drift alone is like iid data beside what both do", share <= 0.1, told)


def period_drift_disrupts(data: xr.Dataset) -> Observation:
    """Disrupts: at least doubles the late loss and its fluctuation over rounds."""
    of, top = _at_highest(data), data["late_swing"].isel(heterogeneity=-1).mean("seed")
    loss = _mean(of["period drift only"]) / _mean(of["no drift"])
    swing = float(top.sel(setting="period drift only") / top.sel(setting="no drift"))
    told = f"loss times {loss:.3g}, its swings times {swing:.3g}"
    return Observation("period drift alone disrupts convergence and stability", min(loss, swing) >= 2, told)


def both_are_worst(data: xr.Dataset) -> Observation:
    """Worst: clearly above each of the others, cohorts and noise being the same."""
    of = _at_highest(data)
    z = {name: z_score((of["both"] - of[name]).values) for name in list(SETTINGS)[:3]}
    more = _mean(of["both"]) / _mean(of["period drift only"]) - 1
    told = f"{100 * more:.2g} % above period drift alone, {z['period drift only']:.1f} standard errors"
    return Observation("both drifts together are worst", min(z.values()) > CLEAR, told)


def period_over_client(data: xr.Dataset) -> Observation:
    """More: at the highest heterogeneity, period drift's loss is clearly above client drift's."""
    of = _at_highest(data)
    z = z_score((of["period drift only"] - of["client drift only"]).values)
    base = _mean(of["no drift"])
    ratio = (_mean(of["period drift only"]) - base) / (_mean(of["client drift only"]) - base)
    told = f"it adds {ratio:.3g} times as much"
    return Observation("period drift weighs more than client drift", z > CLEAR, told)


FINDINGS = (
    drifts_grow,
    effects_grow,
    client_drift_is_like_iid,
    period_drift_disrupts,
    both_are_worst,
    period_over_client,
)


def draw(data: xr.Dataset) -> Any:
    """Above: offsets of the sampled clients, round by round. Below: loss over rounds, heterogeneity, local steps."""
    from .style import BLUE, GREEN, INK, MUTED, VERMILION, Look, grid_of_panels, panel_title

    looks = {
        "no drift": Look(MUTED, "solid", "o"),
        "client drift only": Look(GREEN, (0, (5, 1.6)), "s"),
        "period drift only": Look(BLUE, "solid", "^"),
        "both": Look(VERMILION, (0, (1.4, 1.2)), "D"),
    }
    fig, panels = grid_of_panels(2, 3, 9.6, 5.6)
    most = 1.1 * float(np.abs(data["offset"]).max())
    for panel, level in zip(panels[0], data["drawn_level"].values, strict=True):
        offset = data["offset"].sel(drawn_level=level)
        rounds = data["drawn_round"].values
        panel.axhline(0.0, color=INK, lw=0.7, zorder=1)
        panel.plot(np.repeat(rounds, offset.shape[1]), offset.values.ravel(), "o", color=GREEN, ms=2.2, alpha=0.6,
                   mew=0, zorder=2, label="a client")  # fmt: skip
        panel.plot(rounds, offset.mean("member"), "-^", color=BLUE, ms=4.2, lw=0.9, mec="white", mew=0.5, zorder=3,
                   label="mean of the round's clients")  # fmt: skip
        panel.set(ylim=(-most, most), xlabel="round", xlim=(0, rounds[-1] + 1))
        panel.set_xticks([1, 5, 10, 15, 20])
        panel_title(panel, f"Drift, h = {level:g}", "")
    for panel in panels[0, 1:]:
        panel.tick_params(labelleft=False)
    panels[0, 0].set_ylabel("offset of the gradient,\none direction")
    panels[0, 0].legend(loc="upper left", fontsize=7, ncols=2, columnspacing=1.0, handletextpad=0.4)

    rounds, level, steps = panels[1]
    half = float(data["round"][-1]) / 2
    for name, look in looks.items():
        style: Any = {"color": look.color, "ls": look.dashes, "lw": 1.4}
        hollow = name == "both"  # what lies below stays visible
        mark: Any = {"marker": look.marker, "ms": 7 if hollow else 4, "mfc": "none" if hollow else look.color}
        curve = data["curve"].sel(setting=name)
        mean, error = curve.mean("seed").values, standard_error(curve.transpose("seed", ...).values)
        rounds.fill_between(data["round"], mean - 2 * error, mean + 2 * error, color=look.color, alpha=0.25, lw=0)
        rounds.plot(data["round"], mean, **style)
        late = data["late_loss"].sel(setting=name).transpose("seed", ...).values
        mean, error = late.mean(axis=0), standard_error(late)
        level.fill_between(data["heterogeneity"], mean - 2 * error, mean + 2 * error, color=look.color, alpha=0.25)
        level.plot(data["heterogeneity"], mean, **style, **mark, label=name)
        if name == "no drift":
            continue
        mean = data["added_by_steps"].sel(setting=name).mean("seed").values
        shown = mean > 1e-12  # what one step leaves of client drift is rounding
        steps.plot(data["local_steps"].values[shown], mean[shown], **style, **mark)
    rounds.axvspan(half, 2 * half, color=MUTED, alpha=0.08, lw=0)
    rounds.text(1.5 * half, 0.97, "judged", color=MUTED, fontsize=7, ha="center", va="top",
                transform=rounds.get_xaxis_transform())  # fmt: skip
    rounds.set(yscale="log", xlabel="round", ylabel="excess loss $f(w)-f^*$", xlim=(0, 2 * half))
    panel_title(rounds, "FedAvg over rounds", f"h = {float(data['heterogeneity'][-1]):g}")
    level.set(xscale="log", yscale="log", xlabel="heterogeneity $h$", ylabel="excess loss, last half")
    panel_title(level, "Over heterogeneity", "")
    steps.set(xscale="log", yscale="log", xlabel="local steps $K$", ylabel="excess loss added by drift")
    steps.set_xticks(data["local_steps"].values, [str(k) for k in data["local_steps"].values])
    steps.set_xticks([], minor=True)
    if float(np.abs(data["added_by_steps"].sel(setting="client drift only", local_steps=1)).max()) < 1e-12:
        steps.text(1.0, 0.3, "client drift: none at K = 1", color=GREEN, fontsize=7,
                   transform=steps.get_xaxis_transform())  # fmt: skip
    panel_title(steps, "Over local steps", f"h = {float(data['heterogeneity'][-1]):g}")
    fig.legend(*level.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    tell_settings(fig, data)
    return fig


def _drawn(choices: Choices, level: float) -> Array:
    """Offsets in the first direction of the clients that 20 rounds sample, (round, member)."""
    rng = np.random.default_rng(0)
    delta = population(choices, level).delta[:, 0]
    size = choices.sampled
    return np.array([delta[rng.choice(choices.clients, size, replace=False)] for _ in range(DRAWN_ROUNDS)])


@figure(
    "fedeve/fig-3",
    draw=draw,
    paper="fedeve",
    title="Figure 3: period drift, client drift and FedAvg",
    expected="Above, clients scatter and their means wander the more the higher the heterogeneity. Below, period drift "
    "alone and both drifts almost coincide, orders of magnitude above client drift alone, which stays near no drift "
    "and grows with the number of local steps.",
    runtime="5 s",
)
def figure_3(progress: Progress = quiet, choices: Choices = CHOICES) -> xr.Dataset:
    """FedAvg in the four settings of Appendix B.2, over rounds, heterogeneity and local steps."""
    half, method = choices.rounds // 2, nqm.FedAvg(choices.lr)

    def loss(level: float, name: str, chosen: Choices) -> Array:
        cohort = SETTINGS[name]
        return paths(chosen, level if cohort else 0.0, method, cohort or "own")["excess_loss"].values

    curves = np.empty((len(LEVELS), len(SETTINGS), choices.seeds, choices.rounds + 1))
    for i, level in enumerate(LEVELS):
        progress(f"heterogeneity {level:g}")
        for j, name in enumerate(SETTINGS):
            curves[i, j] = loss(level, name, choices) if i == 0 or SETTINGS[name] else curves[0, j]
    added = np.empty((len(STEPS), len(SETTINGS), choices.seeds))
    for i, K in enumerate(STEPS):
        progress(f"{K} local steps")
        chosen = replace(choices, local_steps=K)
        ends = np.array([loss(LEVELS[-1], name, chosen)[:, half:].mean(axis=1) for name in SETTINGS])
        added[i] = ends - ends[0]
    offset = np.array([_drawn(choices, level) for level in DRAWN])
    late = curves[..., half:]
    by = ("heterogeneity", "setting", "seed")
    data = xr.Dataset(
        {
            "offset": (("drawn_level", "drawn_round", "member"), offset, {"long_name": "offset in one direction"}),
            "spread_within": ("drawn_level", offset.std(axis=2, ddof=1).mean(axis=1)),
            "spread_between": ("drawn_level", offset.mean(axis=2).std(axis=1, ddof=1)),
            "curve": (("setting", "seed", "round"), curves[-1], {"long_name": "excess loss, highest heterogeneity"}),
            "late_loss": (by, late.mean(axis=-1), {"long_name": "excess loss, mean of the last half of the rounds"}),
            "late_swing": (by, late.std(axis=-1), {"long_name": "its standard deviation over those rounds"}),
            "added_by_steps": (("local_steps", "setting", "seed"), added, {"long_name": "late loss over no drift's"}),
        },
        coords={
            "setting": list(SETTINGS),
            "heterogeneity": [*LEVELS],
            "local_steps": [*STEPS],
            "drawn_level": [*DRAWN],
            "drawn_round": np.arange(1, DRAWN_ROUNDS + 1),
            "seed": np.arange(choices.seeds),
            "round": np.arange(choices.rounds + 1),
        },
    )
    data.attrs = attributes(
        "fedeve/fig-3",
        "Above: the sampled clients' offsets round by round, and their means: client drift is the scatter, period "
        "drift the wandering. Below: FedAvg without drift, with either and with both, made as Appendix B.2 has it; "
        "bands: mean ± 2 standard errors.",
        data,
        FINDINGS,
        str(choices),
        "With one Hessian for all, or one local step, client drift would cancel in the average exactly; what is left "
        "of it comes from the Hessians' spread.",
    )
    return data
