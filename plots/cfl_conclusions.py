"""The three conclusions of Section 5.1 of `cfl`, by a criterion fixed before any result was seen.

Each is judged panel by panel.

1. CFL tolerates higher rates. Supported in a panel if the upper end of CFL's 5 % plateau exceeds those of
   both FedAvg and FedProx by at least 10 %; contrary if it is at least 10 % below either; else a tie. The
   stability limits of the three methods are reported besides, and judge nothing.
2. CFL converges better and smoother. Better if CFL's mean-log score at its best rate is at least 5 % below
   both FedAvg's and FedProx's at theirs. Smoother if CFL's roughness is smaller than that of both: the
   standard deviation, over the last half of the rounds, of the change of log ||g|| from one round to the
   next, median over 20 sample paths. Supported needs both.
3. More information loss is worse. Supported if score(CFL) <= score(CFL-0.001) <= score(CFL-0.01), each at its
   own best rate, and the last is at least 1 % above the first.

The score is what `nqm.tune` minimises: the geometric mean of sqrt(E||g||^2) over rounds 1..T.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

BASELINES = ("FedAvg", "FedProx")
LEVELS = ("CFL", "CFL-0.001", "CFL-0.01")

Panel = Mapping[str, Mapping[str, Any]]
"""Method -> its entry of Table 3: ``plateau``, ``score``, ``roughness``."""


def roughness(grad_norm: NDArray[np.float64]) -> float:
    """How much log ||g|| jumps from round to round in the last half, median over the paths (path, round)."""
    T = grad_norm.shape[1] - 1
    late = grad_norm[:, T - T // 2 :]
    if not np.isfinite(late).all():
        return float("inf")
    return float(np.median(np.diff(np.log(late), axis=1).std(axis=1)))


def tolerates_higher_rates(panel: Panel) -> tuple[str, str]:
    upper = {m: panel[m]["plateau"][1] for m in (*BASELINES, "CFL")}
    others = [upper[m] for m in BASELINES]
    numbers = "plateau reaches " + ", ".join(f"{m} {x:.3g}" for m, x in upper.items())
    if all(upper["CFL"] >= 1.1 * x for x in others):
        return "supported", numbers
    return ("contrary" if any(upper["CFL"] <= 0.9 * x for x in others) else "tie"), numbers


def better_and_smoother(panel: Panel) -> tuple[str, str]:
    better = all(panel["CFL"]["score"] <= 0.95 * panel[m]["score"] for m in BASELINES)
    smoother = all(panel["CFL"]["roughness"] < panel[m]["roughness"] for m in BASELINES)
    pairs = [f"{m} {panel[m]['score']:.3g} / {panel[m]['roughness']:.2g}" for m in (*BASELINES, "CFL")]
    words = f"{'better' if better else 'not better'}, {'smoother' if smoother else 'not smoother'}"
    return ("supported" if better and smoother else "not supported"), f"{words}: score / roughness " + ", ".join(pairs)


def loss_is_worse(panel: Panel) -> tuple[str, str]:
    score = [panel[m]["score"] for m in LEVELS]
    ordered = score[0] <= score[1] <= score[2] and score[2] >= 1.01 * score[0]
    numbers = "score " + ", ".join(f"{m} {x:.3g}" for m, x in zip(LEVELS, score, strict=True))
    return ("supported" if ordered else "not supported"), numbers


CONCLUSIONS = (
    ("higher-rates", "CFL tolerates higher learning rates than FedAvg and FedProx", tolerates_higher_rates),
    (
        "better-smoother",
        "CFL converges better and more smoothly than FedAvg and FedProx",
        better_and_smoother,
    ),
    ("loss-is-worse", "CFL gets worse as information loss grows", loss_is_worse),
)


def conclude(panels: Mapping[str, Panel]) -> list[dict[str, Any]]:
    """The verdict on each conclusion: in how many panels it holds, and what each panel says, with numbers."""
    results = []
    for id, statement, judge in CONCLUSIONS:
        judged = {name: judge(panel) for name, panel in panels.items()}
        results.append(
            {
                "id": id,
                "statement": statement,
                "supported": sum(verdict == "supported" for verdict, _ in judged.values()),
                "of": len(panels),
                "panels": [{"setting": name, "verdict": v, "numbers": n} for name, (v, n) in judged.items()],
            }
        )
    return results
