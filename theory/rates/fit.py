r"""The exponent of a measured curve y(x), with an interval that reflects curvature and not only scatter.

The points come in the order in which the regime deepens: the last is the deepest. Let p be the slope of log y against
log x by least squares, and s_1, s_2, s_3 the slopes of the three thirds of the points. The interval is the hull of

    p,  s_1, s_2, s_3,  and  s_3 + 2 (s_3 - s_2),  the trend gone on for two more thirds,

each plus and minus the t-quantile of 95 % times its own standard error: all are linear in log y. The scatter behind
the errors is what a parabola through the logarithms leaves over, so that curvature is not taken for scatter. It covers
the exponent p of y = x^p (1 + a x^{-q}) if the correction falls fast enough, q >= 1/2 over two decades: a third then
leaves at most two thirds of the correction behind, so what is still to come is at most twice the last change.

A constant step pays a logarithm. Two laws of two constants each are compared,

    y = c x^p    and    y = x^p (a + b log x)  with p a simple fraction,

and the second is named if its factor grows towards the deep end and its largest residual is five times smaller. The
exponent and the interval are then those of y without the factor.

A curve that is no power at all, y = c exp(b x), is named by the same comparison: its exponent has no limit, so the
interval is open on the side to which the slopes run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nqm.check import InvalidInput

Array = NDArray[np.float64]

LEAST = 7  # points: three thirds that share their ends need two intervals each
BETTER = 5.0  # by how much a logarithm must improve a power
VISIBLE = 2e-3  # residuals below this are no reason to look for another law
SIMPLE = sorted({n / d for d in (1, 2, 3, 4) for n in range(-8 * d, 8 * d + 1)})
SHARE = 0.95
LAWS = {"power": "", "power x log": " x log", "exponential": " exp"}


@dataclass(frozen=True)
class Fit:
    """An exponent with its interval. slopes: of the three thirds. law: ``"power"``, ``"power x log"`` or
    ``"exponential"``.

    plain: the slope of the bare logarithms, which differs from ``exponent`` if a logarithm was named.
    """

    exponent: float
    low: float
    high: float
    slopes: tuple[float, float, float]
    law: str
    plain: float

    def __str__(self) -> str:
        numbers = (f"{x + 0.0:.2f}".replace("-0.00", "0.00") for x in (self.exponent, self.low, self.high))
        return "{} [{}, {}]".format(*numbers) + LAWS[self.law]


def fit(x: ArrayLike, y: ArrayLike) -> Fit:
    """The exponent of y in x; see the top of this module. Both must be positive and finite."""
    u, v = (_logarithms(name, values) for name, values in (("x", x), ("y", y)))
    if len(u) != len(v) or len(u) < LEAST:
        raise InvalidInput(f"x, y = {len(u)} and {len(v)} points: must be equally many, at least {LEAST}")
    if len(np.unique(u)) < len(u) or not (np.all(np.diff(u) > 0) or np.all(np.diff(u) < 0)):
        raise InvalidInput("x: must rise or fall throughout; the last point is the deepest in the regime")
    whole = _weights(u, 0, len(u))
    plain = float(whole @ v)
    cuts = [round(i * (len(u) - 1) / 3) for i in range(4)]
    thirds = [_weights(u, a, b + 1) for a, b in pairwise(cuts)]
    first, second, third = (float(third @ v) for third in thirds)
    if _is_exponential(u, v, plain):
        low, high = (min(first, third), math.inf) if third > first else (-math.inf, max(first, third))
        return Fit(third, low, high, (first, second, third), "exponential", plain)
    factor = _logarithm(u, v, plain)
    w = v if factor is None else v - factor
    functionals = np.stack([whole, *thirds, 3 * thirds[2] - 2 * thirds[1]])
    values, errors = functionals @ w, _scatter(u, w) * np.linalg.norm(functionals, axis=1)
    return Fit(
        float(values[0]),
        float(np.min(values - errors)),
        float(np.max(values + errors)),
        (float(values[1]), float(values[2]), float(values[3])),
        "power" if factor is None else "power x log",
        plain,
    )


def _logarithms(name: str, values: ArrayLike) -> Array:
    a = np.asarray(values, dtype=float)
    if a.ndim != 1 or not np.all(np.isfinite(a)) or np.any(a <= 0):
        raise InvalidInput(f"{name}: must be positive, finite numbers")
    return np.log(a)


def _weights(u: Array, begin: int, end: int) -> Array:
    """The least-squares slope of some of the points, as a linear functional of all log y."""
    weights = np.zeros(len(u))
    d = u[begin:end] - u[begin:end].mean()
    weights[begin:end] = d / (d @ d)
    return weights


def _scatter(u: Array, v: Array) -> float:
    """The t-quantile times the standard deviation of a point around a parabola."""
    from scipy.stats import t

    d = u - u.mean()
    left = v - np.polyval(np.polyfit(d, v, 2), d)
    freedom = len(u) - 3
    return float(t.ppf(0.5 + SHARE / 2, freedom) * math.sqrt(float(left @ left) / freedom))


def _is_exponential(u: Array, v: Array, plain: float) -> bool:
    """Whether log y is a straight line in x rather than in log x; a line that hardly leaves the level is neither."""
    x = np.exp(u - u.max())
    line = v - np.polyval(np.polyfit(x, v, 1), x)
    power = v - v.mean() - plain * (u - u.mean())
    return bool(np.ptp(v) > 2.0 and np.max(np.abs(line)) < np.max(np.abs(power)) / BETTER)


def _logarithm(u: Array, v: Array, plain: float) -> Array | None:
    """log(a + b log x) at the points, if x^p (a + b log x) with a simple p is much the better law; else None."""
    worst = float(np.max(np.abs(v - v.mean() - plain * (u - u.mean()))))
    if worst < VISIBLE:
        return None
    best: Array | None = None
    for p in (p for p in SIMPLE if abs(p - plain) <= 0.5):
        scaled = np.exp(v - p * u - np.mean(v - p * u))
        rows = np.stack([1 / scaled, (u - u.mean()) / scaled], axis=1)  # relative residuals
        a, b = np.linalg.lstsq(rows, np.ones(len(u)), rcond=None)[0]
        factor = a + b * (u - u.mean())
        if np.any(factor <= 0) or factor[-1] <= factor[0]:
            continue
        residual = float(np.max(np.abs(np.log(scaled / factor))))
        if residual < worst / BETTER:
            worst, best = residual * BETTER, np.log(factor)
    return best
