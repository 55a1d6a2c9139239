"""What `driftproof bench` measures."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import nqm
from nqm import CFL, Drift, Experiment, Federation, Quadratic, compiled, exact
from nqm.plan import Plan
from nqm.result import package_version
from theory.weights import closed_form, lemma_b4, optimal, thm_49

from . import latency, yardstick

ROUNDS = 500
LOSS = 0.01
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Config:
    """CFL with information loss under full participation, as in PERFORMANCE: n directions, N clients, K local steps."""

    name: str
    dim: int
    clients: int
    local_steps: int

    @property
    def experiment(self) -> Experiment:
        drift = Drift(client=0.01, time=100.0, noise=1e-5, loss_mean=LOSS, loss_var=LOSS / 1000)
        method = CFL(0.01, weights=lemma_b4(ROUNDS, drift.time, drift.loss_sq(self.dim)))
        return Experiment(
            Quadratic(dim=self.dim),
            drift,
            Federation(self.clients, local_steps=self.local_steps, rounds=ROUNDS),
            method,
        )

    @property
    def unit(self) -> int:
        """Client steps x directions in one round."""
        return self.clients * self.local_steps * self.dim


CONFIGS = (Config("A", 20, 10, 10), Config("B", 100, 100, 10), Config("D", 100, 1000, 20))


def run(quick: bool = False, progress: Progress | None = None) -> dict[str, Any]:
    """All measurements as one plain dict. ``quick`` takes fewer repetitions and leaves the largest
    configuration out.
    """
    tell = progress or (lambda text: None)
    repeats = 3 if quick else 7
    rows = []
    for config in CONFIGS[: 2 if quick else 3]:
        tell(f"engines, n = {config.dim}, N = {config.clients}, K = {config.local_steps}")
        rows += engines(config, repeats)
    tell("grids of learning rates")
    sweep = table_3_sweep(repeats)
    tell("weights")
    weights = closed_weights(repeats)
    tell("start-up times (compiles once into an empty cache)")
    starts = latency.run(1 if quick else 3)
    result = {
        "version": package_version(),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "vectors": vectors(),
        },
        "rounds": ROUNDS,
        "configs": {c.name: {"dim": c.dim, "clients": c.clients, "local_steps": c.local_steps} for c in CONFIGS},
        "rows": rows,
        "sweep": sweep,
        "weights": weights,
        "latency": starts,
    }
    return result | {"aims": aims(result)}


EVE = "FedEve, collapsed, client by client"


def medians(tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each task, taken in turns so that a busy neighbour disturbs all alike."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for task in tasks.values():
        task()
    for _ in range(repeats):
        for name, task in tasks.items():
            begin = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - begin)
    return {name: float(np.median(t)) for name, t in times.items()}


def engines(config: Config, repeats: int) -> list[dict[str, Any]]:
    """Nanoseconds per client, local step and direction, on one thread, and ratios to the yardstick and to the floor."""
    from nqm.kernels import folded
    from nqm.kernels.random import random_floor

    e = config.experiment
    parts = (e.problem, e.drift, e.federation, e.method)
    plan = Plan(e)
    K, unit = config.local_steps, config.unit
    yard_seeds = max(1, min(20, int(2e6 / (config.clients * config.dim))))
    yard_rounds = min(ROUNDS, max(2, int(2e7 / unit / yard_seeds)))
    steps_seeds = max(1, int(2e8 / (unit * ROUNDS)))
    folded_seeds = max(1, int(2e8 * K / (unit * ROUNDS)))
    average_seeds = 2000 if config.dim < 50 else 500
    numbers = compiled.model(plan)
    width = numbers.lam.size
    out = np.empty((folded_seeds, 3, ROUNDS + 1))
    begin = np.tile(compiled.padded(e.problem.start), (folded_seeds, 1))
    eve = dataclasses.replace(e, method=nqm.FedEve(e.method.lr))
    eve_parts = (eve.problem, eve.drift, eve.federation, eve.method)
    names = np.arange(max(steps_seeds, folded_seeds), dtype=np.uint64)
    floor_pairs = max(1, int(2e7 / width))
    tasks: dict[str, Callable[[], Any]] = {
        "yardstick": lambda: yardstick.run(e, yard_seeds, yard_rounds),
        "floor": lambda: random_floor(names[:1], width, floor_pairs),
        "steps": lambda: nqm.simulate(*parts, seeds=steps_seeds, threads=1),
        "per client": lambda: folded.run(
            numbers, None, compiled.room(numbers), names[:folded_seeds], begin.copy(), out
        ),
        "average": lambda: nqm.simulate(*parts, seeds=average_seeds, engine="collapsed", threads=1),
        "fedeve yardstick": lambda: yardstick.fedeve(eve, yard_seeds, yard_rounds),
        "fedeve": lambda: nqm.simulate(*eve_parts, seeds=folded_seeds, engine="collapsed", threads=1),
        "expect": lambda: nqm.expect(*parts, norm=False),
        "expect compiled": lambda: nqm.expect(*parts, norm=False, compiled=True),
        "recursion": _recursion(plan),
    }
    seconds = medians(tasks, repeats)
    whole = unit * ROUNDS
    yard = seconds["yardstick"] / (unit * yard_rounds * yard_seeds) * 1e9
    normal = seconds["floor"] / (floor_pairs * 2 * config.dim) * 1e9  # per normal that is used: padding counts
    rows = [
        _row(config, "NumPy, vectorised (the yardstick)", yard, yard),
        _row(config, "random-number floor of steps", normal * (K + 2) / K, yard),
        _row(config, "steps", seconds["steps"] / (whole * steps_seeds) * 1e9, yard),
        _row(config, "collapsed, client by client", seconds["per client"] / (whole * folded_seeds) * 1e9, yard),
        _row(config, "collapsed, averaged", seconds["average"] / (whole * average_seeds) * 1e9, yard),
    ]
    rows[2]["over_floor"] = rows[2]["ns"] / rows[1]["ns"]
    eve_yard = seconds["fedeve yardstick"] / (unit * yard_rounds * yard_seeds) * 1e9
    rows.append(_row(config, "FedEve, NumPy, vectorised (its own yardstick)", eve_yard, eve_yard))
    each = seconds["fedeve"] / (whole * folded_seeds) * 1e9
    rows.append(_row(config, EVE, each, eve_yard))
    for name, key in (
        ("expect, NumPy, in place of 100 seeds", "expect"),
        ("expect, compiled, in place of 100 seeds", "expect compiled"),
        ("  its recursion alone", "recursion"),
    ):
        row = _row(config, name, seconds[key] / (whole * 100) * 1e9, yard)
        row["ns_per_round_and_direction"] = seconds[key] / (ROUNDS * config.dim) * 1e9
        rows.append(row)
    return rows


def _row(config: Config, variant: str, ns: float, yard: float) -> dict[str, Any]:
    return {"config": config.name, "variant": variant, "ns": ns, "ratio": yard / ns}


def _recursion(plan: Plan) -> Callable[[], None]:
    """The compiled recursion with everything around it prepared."""
    from nqm.kernels.moments import run as recursion

    arguments = exact.compiled_arguments(plan, [plan.method])
    return lambda: recursion(*arguments)


def table_3_sweep(repeats: int) -> dict[str, float]:
    """All of Table 3: 8 settings x 5 methods x 24 rates, n = 50, T = 500, exactly."""
    runs: list[tuple[Experiment, float]] = []
    for time_, L, mu in ((t, L, mu) for t in (0.01, 100.0) for L in (5.0, 20.0) for mu in (0.0, 1.0)):
        for loss in (None, None, 0.0, 0.001, 0.01):
            drift = Drift(client=0.01, time=time_, noise=1e-5, loss_mean=loss or 0.0, loss_var=(loss or 0.0) / 1000)
            method: nqm.Method = nqm.FedAvg(0.1)
            if loss is not None:
                method = CFL(0.1, weights=lemma_b4(ROUNDS, time_, drift.loss_sq(50)))
            e = Experiment(Quadratic(dim=50, mu=mu, L=L), drift, Federation(100, rounds=ROUNDS), method)
            runs.append((e, 2 / L))
    rates = np.geomspace(0.01, 1.0, 24)

    def sweep(fast: bool) -> None:
        for e, top in runs:
            nqm.expect(e.problem, e.drift, e.federation, e.method, lr=rates * top, norm=False, compiled=fast)

    seconds = medians({"numpy": lambda: sweep(False), "compiled": lambda: sweep(True)}, min(repeats, 5))
    return {"runs": len(runs) * len(rates), "numpy_seconds": seconds["numpy"], "compiled_seconds": seconds["compiled"]}


def closed_weights(repeats: int, t: int = 500) -> dict[str, float]:
    """Theorem 4.9's weights in closed form against LU of the KKT system (7), as the paper does.

    Three ways to compare: the formula against the solve of a system that stands ready; a whole checked call against
    building and solving; and the schedule of all rounds up to t against one solve for each (taken as t/4 of the
    largest, as a solve grows with the cube of the round).
    """
    D2, R2, alpha = 1.0, 0.5, 0.8
    right = np.zeros(t + 1)
    right[t] = 1.0

    def build() -> np.ndarray:
        lag = np.abs(np.subtract.outer(np.arange(t), np.arange(t)))
        system = np.zeros((t + 1, t + 1))
        system[:t, :t] = D2 * alpha**lag
        system[: t - 1, : t - 1] += R2
        system[t, :t] = system[:t, t] = 1.0
        return system

    ready = build()

    def often(task: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(100):
                task()

        return run

    tasks: dict[str, Callable[[], Any]] = {
        "solve": lambda: np.linalg.solve(ready, right),
        "build_and_solve": lambda: np.linalg.solve(build(), right),
        "formula": often(lambda: closed_form(t, D2, R2, alpha)),
        "call": often(lambda: optimal(t, D2, R2, alpha, solver="closed")),
        "schedule": often(lambda: thm_49(t, D2, R2, alpha)),
    }
    seconds = medians(tasks, max(repeats, 7))
    for name in ("formula", "call", "schedule"):
        seconds[name] /= 100
    return {
        "t": t,
        **{f"{name}_seconds": value for name, value in seconds.items()},
        "formula_ratio": seconds["solve"] / seconds["formula"],
        "call_ratio": seconds["build_and_solve"] / seconds["call"],
        "schedule_ratio": seconds["solve"] * t / 4 / seconds["schedule"],
    }


def vectors() -> str:
    """The widest vectors that the compiler may use here."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    for name, label in (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("neon", "NEON")):
        if features.get(name):
            return label
    return "none"


def aims(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The aims, each with what was reached."""
    rows = {(r["config"], r["variant"].strip()): r for r in result["rows"]}
    steps_aim = 10.0 if result["machine"]["vectors"] == "AVX-512" else 4.5
    weights, sweep, starts = result["weights"], result["sweep"], result["latency"]
    found: list[tuple[str, float, float, bool]] = []  # text, value, aim, larger is better
    for name in {r["config"] for r in result["rows"]}:
        found += [
            (f"steps over its floor ({name})", rows[name, "steps"]["over_floor"], 1.25, False),
            (f"steps against the yardstick ({name})", rows[name, "steps"]["ratio"], steps_aim, True),
            (f"collapsed, client by client ({name})", rows[name, "collapsed, client by client"]["ratio"], 60.0, True),
            (f"FedEve, client by client ({name})", rows[name, EVE]["ratio"], 100.0, True),
        ]
    for name, aim in (("A", 600.0), ("B", 5000.0)):
        found.append((f"collapsed, averaged ({name})", rows[name, "collapsed, averaged"]["ratio"], aim, True))
    recursion = rows["B", "its recursion alone"]
    found += [
        ("expect against the yardstick with 100 seeds (B)", recursion["ratio"], 5e5, True),
        ("expect, ns a round and direction (B)", recursion["ns_per_round_and_direction"], 1.0, False),
        ("Table 3 sweep, NumPy, seconds", sweep["numpy_seconds"], 1.0, False),
        ("Theorem 4.9 at t = 500, closed form against the LU solve", weights["formula_ratio"], 1000.0, True),
        ("first exact result after import, seconds", starts["first_exact"], 0.1, False),
        ("cached compiled process to its first result, seconds", starts["cached_compiled"], 0.6, False),
        ("slowest first compilation of a kernel, seconds", max(starts["compile"].values()), 1.6, False),
    ]
    return [
        {"aim": text, "value": value, "target": aim, "reached": bool(value >= aim if larger else value <= aim)}
        for text, value, aim, larger in sorted(found)
    ]
