"""Speed as ratios within one run: to an honest NumPy yardstick, and to the random numbers that sampling needs.

`driftproof bench` prints what `run` measures. Times are medians. Machines are shared and noisy: quote ratios.
"""

from .measure import run
from .report import show

__all__ = ["run", "show"]
