"""The deep-network experiments by the numbers their papers give them.

from deep.experiments import find, run
data = run(find("cfl/table-6"), "smoke")
"""

from __future__ import annotations

import difflib

from nqm.check import InvalidInput

from . import bridge, cfl, cflag, fedeve, special
from .declare import SCALES, Experiment
from .report import summary, table
from .runner import make, run

__all__ = ["EXPERIMENTS", "SCALES", "Experiment", "find", "make", "run", "summary", "table"]

EXPERIMENTS = {e.id: e for paper in (cfl, special, fedeve, cflag, bridge) for e in paper.EXPERIMENTS}


def find(id: str) -> Experiment:
    """The experiment of this id; an unknown one is one line that names the known."""
    if id not in EXPERIMENTS:
        close = difflib.get_close_matches(id, EXPERIMENTS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise InvalidInput(f"deep {id!r}: unknown id{hint}; allowed: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[id]
