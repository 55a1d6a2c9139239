"""One look for all figures: small, vector-friendly, and legible in grey or with any colour vision."""

from __future__ import annotations

from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

# Okabe and Ito's palette, whose colours stay apart for all common forms of colour blindness.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, MUTED, HAIRLINE = "#222222", "#666666", "#DDDDDD"


class Look(NamedTuple):
    """Colour, dashes and marker of a method; any two of the three tell methods apart."""

    color: str
    dashes: Any
    marker: str


LOOKS = {
    "FedAvg": Look(ORANGE, "solid", "o"),
    "FedProx": Look(PURPLE, (0, (5, 1.6)), "s"),
    "CFL": Look(BLUE, "solid", "^"),
    "CFL-0.001": Look(GREEN, (0, (3.2, 1.4)), "v"),
    "CFL-0.01": Look(VERMILION, (0, (1.2, 1.2)), "D"),
}

RC: Any = {
    "pdf.fonttype": 42,  # TrueType, so that text stays text in a PDF
    "ps.fonttype": 42,
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"],
    "mathtext.fontset": "dejavusans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": HAIRLINE,
    "grid.linewidth": 0.5,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "savefig.dpi": 200,
}


def grid_of_panels(rows: int, columns: int, width: float, height: float, **shared: Any) -> tuple[Figure, Any]:
    """A figure of ``rows`` by ``columns`` panels, outside pyplot's global state; call it within `styled`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def styled() -> Any:
    """The context in which figures are drawn and saved."""
    return matplotlib.rc_context(RC)


def panel_title(panel: Any, name: str, details: str) -> None:
    """The setting's name in bold on the left, its numbers on the right."""
    panel.set_title(name, loc="left", fontweight="bold", color=INK)
    panel.set_title(details, loc="right", fontsize=7, color=MUTED)


def plain_decimals(axis: Any) -> None:
    """A logarithmic axis of a decade or two, labelled 0.5, 1, 2, 3 instead of by powers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())
