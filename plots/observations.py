"""What a paper says about one of its figures, held against the data of ours.

A judge is a small function of the data that returns an `Observation`; captions are put together from these, so that
a caption can't say other than its figure.
"""

from __future__ import annotations

import inspect
import json
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nqm.result import package_version

Array = NDArray[np.float64]
CLEAR = 3.0  # standard errors that make a difference clear


class Observation(NamedTuple):
    """statement: what the paper sees, in our words. seen: whether our data show it. numbers: those that decide."""

    statement: str
    seen: bool
    numbers: str


Judge = Callable[[xr.Dataset], Observation]
"""Its docstring is the criterion, stated with the figure and stored beside its data. Criteria and settings are ours."""


def caption(opening: str, observations: Iterable[Observation], closing: str = "") -> str:
    """The opening, then what of the paper is seen on the model and what is not, each with its numbers."""
    told = [opening]
    judged = list(observations)
    for heading, verdict in (("Of the paper, seen on the model: ", True), ("Not seen: ", False)):
        listed = [f"{o.statement} ({o.numbers})" for o in judged if o.seen == verdict]
        if listed:
            told.append(heading + "; ".join(listed) + ".")
    return " ".join([*told, closing]).strip()


def attributes(
    id: str, opening: str, data: xr.Dataset, judges: Sequence[Judge], ours: str, closing: str = ""
) -> dict[str, Any]:
    """Attributes of a figure's dataset: the caption, the verdicts and criteria behind it, and the settings, ours."""
    judged = [judge(data) for judge in judges]
    rows = [o._asdict() | {"criterion": inspect.getdoc(judge)} for o, judge in zip(judged, judges, strict=True)]
    return {
        "id": id,
        "caption": caption(opening, judged, closing),
        "observations": json.dumps(rows, ensure_ascii=False),
        "ours": f"The settings are ours: {ours}.",
        "version": package_version(),
    }


def standard_error(runs: Array) -> Array:
    """Of the mean over the first axis, whose entries are independent runs."""
    return runs.std(axis=0, ddof=1) / np.sqrt(len(runs))


def z_score(differences: Array) -> float:
    """The mean of paired differences in standard errors; 0 if they all vanish, infinite if they are all the same."""
    mean, error = float(differences.mean()), float(standard_error(differences))
    return mean / error if error > 0 else math.copysign(math.inf, mean) if mean else 0.0


def sign_score(differences: Array) -> float:
    """How many more of paired differences are positive than negative, in standard errors; their size does not count."""
    up, down = int((differences > 0).sum()), int((differences < 0).sum())
    return (up - down) / math.sqrt(up + down) if up + down else 0.0


def tell_settings(figure: Any, data: xr.Dataset) -> None:
    """Write below a figure that its settings are ours, and which."""
    from .style import MUTED

    columns = int(19 * figure.get_figwidth())
    figure.supxlabel(textwrap.fill(data.attrs["ours"], columns), fontsize=6.5, color=MUTED)
