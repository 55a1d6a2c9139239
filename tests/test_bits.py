"""The same bits for any number of threads, batches and processes."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from cases import CASES, SAMPLED_ONLY, Case

from nqm import simulate

CHOSEN = {
    name: (CASES | SAMPLED_ONLY)[name]
    for name in (
        "fedavg",
        "cfl",
        "cfl, ar(1), sampled",
        "cfl, any weights, ar(1)",
        "cfl, time slope",
        "fedprox, fresh slopes",
    )
}


def bits(case: Case, engine: str, seeds: object, threads: int) -> np.ndarray:
    paths = simulate(*case.parts, seeds=seeds, engine=engine, threads=threads, clients=case.clients)
    return np.stack([paths[name].values for name in ("grad_norm", "grad_norm_sq", "excess_loss", "distance_sq")])


@pytest.mark.parametrize("engine", ["steps", "collapsed"])
@pytest.mark.parametrize("case", CHOSEN.values(), ids=CHOSEN.keys())
class TestBits:
    def test_threads_and_batches_do_not_matter(self, case: Case, engine: str) -> None:
        together = bits(case, engine, 100, threads=1)
        np.testing.assert_array_equal(bits(case, engine, 100, threads=2), together)
        parts = [bits(case, engine, range(i, i + 10), threads=2) for i in range(0, 100, 10)]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), together)

    def test_order_of_seeds_does_not_matter(self, case: Case, engine: str) -> None:
        forwards = bits(case, engine, range(20), threads=2)
        backwards = bits(case, engine, range(19, -1, -1), threads=2)
        np.testing.assert_array_equal(forwards, backwards[:, ::-1])


SCRIPT = """
import hashlib, sys
sys.path.insert(0, "tests")
from cases import CASES
from nqm import expect, simulate
parts = CASES["cfl, sampled"].parts
digest = hashlib.sha256()
for engine in ("steps", "collapsed"):
    digest.update(simulate(*parts, seeds=30, engine=engine)["excess_loss"].values.tobytes())
digest.update(expect(*parts)["grad_norm"].values.tobytes())
print(digest.hexdigest())
"""


def test_two_processes_agree(request: pytest.FixtureRequest) -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, cwd=request.config.rootpath
        ).stdout
        for _ in range(2)
    }
    assert len(digests) == 1
    assert len(digests.pop().strip()) == len(hashlib.sha256().hexdigest())


def test_methods_share_their_noise() -> None:
    """Common random numbers: CFL with all weight on the current round walks FedAvg's very path."""
    case = CASES["fedavg"]
    from nqm import CFL

    plain = bits(case, "steps", 5, 1)
    same = bits(Case(case.drift, case.federation, CFL(case.method.lr, weights="current")), "steps", 5, 1)
    np.testing.assert_array_equal(plain, same)
