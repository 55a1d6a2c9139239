"""Figure 2(a) of `fedeve`: two Gaussians, a prediction and an observation, and what Theorem 3.4 makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from theory.bounds.fedeve import blended_variance, fused_mean, fused_variance, kalman_gain

from .observations import Observation, attributes, tell_settings
from .registry import Progress, figure, quiet

PREDICTION, OBSERVATION = (0.5, 1.0), (2.0, 0.5)  # mean and variance of each
CORRELATIONS = (-0.5, 0.0, 0.5, 0.9)


def narrower(data: xr.Dataset) -> Observation:
    """Less: the variance of the product of the two densities, integrated on the grid, is below either variance."""
    fused = float(data["variance"].sel(law="fused"))
    least = float(data["variance"].sel(law=["prediction", "observation"]).min())
    return Observation(
        "the fused model varies less than prediction and observation", fused < least, f"{fused:.3g} against {least:.3g}"
    )


def combines_linearly(data: xr.Dataset) -> Observation:
    """The mean of the product, integrated on the grid, agrees with (8) as printed to six digits."""
    found, printed = float(data["mean"].sel(law="fused")), data.attrs["printed_mean"]
    same = abs(found - printed) <= 1e-6 * max(1.0, abs(found))
    return Observation(
        "the mean of (8) as printed, whose denominator lacks one of the variances", same,
        f"{printed:.3g} against {found:.3g}, which the full denominator gives",
    )  # fmt: skip


def needs_independence(data: xr.Dataset) -> Observation:
    """At the gain of (12c), the variance stays below either for every correlation of the two errors."""
    at_gain = data["blended"].sel(gain=data.attrs["gain"], method="nearest")
    least = float(data["variance"].sel(law=["prediction", "observation"]).min())
    fails = [f"{c:g}" for c in data["correlation"].values if float(at_gain.sel(correlation=c)) >= least]
    return Observation(
        "the same whatever the errors of the two have in common", not fails,
        f"not at a correlation of {', '.join(fails)}" if fails else "at every correlation drawn",
    )  # fmt: skip


def draw(data: xr.Dataset) -> Any:
    """The densities, and the variance of every blend of the two."""
    from .style import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SKY, VERMILION, grid_of_panels, panel_title

    fig, ((left, right),) = grid_of_panels(1, 2, 7.2, 3.0)
    looks: dict[str, tuple[str, Any]] = {
        "prediction": (BLUE, (0, (5, 1.6))),
        "observation": (ORANGE, (0, (1.4, 1.2))),
        "fused": (GREEN, "solid"),
    }
    x = data["x"].values
    for law, (color, dashes) in looks.items():
        of = data.sel(law=law)
        words = f"{law}: {float(of['mean']):.2g}, {float(of['variance']):.2g}"
        left.plot(x, of["density"], color=color, ls=dashes, lw=1.6, label=words)
        left.fill_between(x, of["density"], color=color, alpha=0.12, lw=0)
    left.axvline(data.attrs["printed_mean"], color=VERMILION, lw=1.0, ls=(0, (3, 1.4)))
    left.text(data.attrs["printed_mean"], 0.4, " mean of (8)\n as printed", color=VERMILION, fontsize=7, va="center",
              transform=left.get_xaxis_transform())  # fmt: skip
    left.set(xlabel="one coordinate of the model", ylabel="density", ylim=(0, 1.02), xlim=(-3, 6.5))
    left.legend(loc="upper left", title="mean, variance", fontsize=7, title_fontsize=7)
    left.get_legend().set_alignment("left")
    panel_title(left, "Fusing two Gaussians", f"gain {data.attrs['gain']:.3g}")

    styles: list[tuple[str, Any]] = [
        (SKY, (0, (1.4, 1.2))),
        (GREEN, "solid"),
        (PURPLE, (0, (5, 1.6))),
        (INK, (0, (3, 1, 1, 1))),
    ]
    for (color, dashes), c in zip(styles, data["correlation"].values, strict=True):
        blended = data["blended"].sel(correlation=c)
        right.plot(data["gain"], blended, color=color, ls=dashes, lw=1.5, label=f"{c:g}")
        least = int(np.argmin(blended.values))
        right.plot(data["gain"][least], blended[least], "o", color=color, ms=4, mec="white", mew=0.6, zorder=4)
    right.axvline(data.attrs["gain"], color=MUTED, lw=0.8, zorder=1)
    right.text(data.attrs["gain"], 0.02, "gain of (12c) ", color=MUTED, fontsize=7, ha="right",
               transform=right.get_xaxis_transform())  # fmt: skip
    right.axhline(float(data["variance"].sel(law="observation")), color=ORANGE, lw=0.9, ls=(0, (1.4, 1.2)), zorder=1)
    right.text(0.01, float(data["variance"].sel(law="observation")), "observation alone", color=INK, fontsize=7,
               va="bottom")  # fmt: skip
    right.set(xlabel="gain", ylabel="variance of the blend", xlim=(0, 1), ylim=(0, 1.05))
    right.legend(loc="lower left", title="correlation of the errors", ncols=2, fontsize=7, title_fontsize=7)
    panel_title(right, "Any other gain", "dots: least variance")
    tell_settings(fig, data)
    return fig


@figure(
    "fedeve/fig-2a",
    draw=draw,
    paper="fedeve",
    title="Figure 2(a): fusing prediction and observation",
    expected="The fused density is narrower than either and lies between them, nearer to the narrower; the printed "
    "mean lies elsewhere. The variance of a blend is least at the Kalman gain if the errors are independent.",
    runtime="1 s",
)
def fusion(progress: Progress = quiet, points: int = 1201) -> xr.Dataset:
    """Densities on a grid, the fused one as their normalised product, and the variance of every linear blend."""
    x = np.linspace(-6.0, 8.0, points)
    laws = [np.exp(-0.5 * (x - m) ** 2 / v) / np.sqrt(2 * np.pi * v) for m, v in (PREDICTION, OBSERVATION)]
    product = laws[0] * laws[1]
    laws.append(product / np.trapezoid(product, x))
    mean = np.array([np.trapezoid(x * law, x) for law in laws])
    variance = np.array([np.trapezoid((x - m) ** 2 * law, x) for m, law in zip(mean, laws, strict=True)])
    (mu_1, predicted), (mu_2, client) = PREDICTION, OBSERVATION
    gains = np.linspace(0.0, 1.0, 401)
    blended = [[blended_variance(k, predicted, client, c) for k in gains] for c in CORRELATIONS]
    data = xr.Dataset(
        {
            "density": (("law", "x"), np.array(laws)),
            "mean": ("law", mean, {"long_name": "mean, integrated on the grid"}),
            "variance": ("law", variance, {"long_name": "variance, integrated on the grid"}),
            "blended": (("correlation", "gain"), np.array(blended), {"long_name": "variance of the blend"}),
        },
        coords={"law": ["prediction", "observation", "fused"], "x": x, "gain": gains, "correlation": [*CORRELATIONS]},
        attrs={
            "gain": kalman_gain(predicted, client),
            "printed_mean": fused_mean(mu_1, mu_2, predicted, client, printed=True),
            "theorem_mean": fused_mean(mu_1, mu_2, predicted, client),
            "theorem_variance": fused_variance(predicted, client),
        },
    )
    data.attrs |= attributes(
        "fedeve/fig-2a",
        "Left: the densities of a prediction and an observation and their normalised product. Right: the variance of "
        "(1 - K) prediction + K observation; the gain of (12c) is the best if the two err independently, as momentum "
        "made of clients that come back need not.",
        data,
        (narrower, combines_linearly, needs_independence),
        f"prediction of mean {mu_1:g} and variance {predicted:g}, observation of mean {mu_2:g} and variance {client:g}",
    )
    return data
