"""How long a new process takes to its first result."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import numpy as np

PREPARE = """
import time
begin = time.perf_counter()
import nqm
imported = time.perf_counter()
parts = nqm.Quadratic(), nqm.Drift(client=0.01, time=1.0, noise=1e-5), nqm.Federation(20, rounds=100), nqm.FedAvg(0.01)
half = nqm.Federation(20, 10, rounds=100)
"""
EXACT = PREPARE + "nqm.expect(*parts); print(imported - begin, time.perf_counter() - imported)"
STEPS = PREPARE + "nqm.simulate(*parts, seeds=4); print(imported - begin, time.perf_counter() - imported)"
KERNELS = {
    "steps": PREPARE + "nqm.simulate(*parts, seeds=4, threads=1); print(0, time.perf_counter() - imported)",
    "collapsed": PREPARE
    + "nqm.simulate(*parts[:2], half, parts[3], seeds=4, engine='collapsed', threads=1);"
    + "print(0, time.perf_counter() - imported)",
    "average": PREPARE
    + "nqm.simulate(*parts, seeds=4, engine='collapsed', threads=1); print(0, time.perf_counter() - imported)",
    "moments": PREPARE + "nqm.expect(*parts, norm=False, compiled=True); print(0, time.perf_counter() - imported)",
}


def run(repeats: int) -> dict[str, object]:
    """Seconds: import, first exact result, first compiled result with and without a cache."""
    exact = [_process(EXACT) for _ in range(repeats)]
    with tempfile.TemporaryDirectory() as cold:
        compile_times = {name: _process(code, cache=f"{cold}/{name}")[1] for name, code in KERNELS.items()}
        cached = [_process(STEPS, cache=f"{cold}/steps")[1] for _ in range(repeats)]
    return {
        "import": float(np.median([e[0] for e in exact])),
        "first_exact": float(np.median([e[1] for e in exact])),
        "cached_compiled": float(np.median(cached)),
        "compile": compile_times,
    }


def _process(code: str, cache: str | None = None) -> tuple[float, float]:
    environment = dict(os.environ)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    first, second = done.stdout.split()
    return float(first), float(second)
