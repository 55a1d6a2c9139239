"""Speed as ratios within one run: to an honest NumPy yardstick, and to the random numbers that sampling needs.

`driftproof bench` prints what `run` measures; `peers` does the same work in other libraries, `growth` finds how cost
grows, and `page` writes both down; `deep` trains networks at once and one by one. Times are medians. Machines are
shared and noisy: quote ratios.
"""

from .measure import run
from .report import show, show_growth, show_networks, show_peers

__all__ = ["run", "show", "show_growth", "show_networks", "show_peers"]
