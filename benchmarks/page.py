"""Peers and growth as tables of text, and as the page docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
from typing import Any

from .growth import FACTORS, PARAMETERS
from .measure import vectors
from .peers.measure import Z

PEER_COLUMNS = ("work", "library", "a round", "spread", "ns", "× `steps`", "off by", "seeds", "precision", "warm-up")
GROWTH_COLUMNS = ("engine", *PARAMETERS, "start")
NOTE_COLUMNS = ("library", "here", "made for")
TEXT_COLUMNS = {"work", "library", "precision", "engine", "start", "here", "made for"}

NOTES = [
    ["NumPy", "arrays over seeds and clients, in place", "arrays; most of the time goes into `standard_normal`"],
    [
        "PyTorch",
        "tensors over seeds and clients, `no_grad`, in place",
        "deep networks and accelerators; most of the time goes into float64 normals on a processor, not its aim",
    ],
    [
        "JAX",
        "one `jit`, `lax.scan` over rounds and steps, `vmap` over seeds and clients",
        "compiled array programs on accelerators; most of the time goes into float64 normals",
    ],
    [
        "FedJAX",
        "its `fed_avg` with its own optimisers; a client's data is its drift; no axis for seeds",
        "deep networks: every local step of every client is a call, whose cost fades as the model gets wide",
    ],
    [
        "pfl-research",
        "its `SimulatedBackend` and `FederatedAveraging`, a model in NumPy; no axis for seeds",
        "private federated learning of deep networks: bookkeeping around every client, which fades likewise",
    ],
]


def peer_rows(result: dict[str, Any]) -> list[list[str]]:
    """Cells under `PEER_COLUMNS`, one row for each work and library."""
    rows = []
    for row in result["rows"]:
        if "skipped" in row:
            rows.append([row["work"], row["peer"], "skipped: " + row["skipped"], *[""] * 7])
            continue
        off = f"{100 * row['off']:+.1f} % (z = {row['z']:+.1f})" if row["seeds"] else "exact"
        if not row["agrees"]:
            off = f"differs: {100 * row['off']:+.2g} %"
        rows.append(
            [
                row["work"],
                f"{row['peer']} {row['version']}",
                duration(row["round_seconds"]),
                f"{100 * row['spread']:.0f} %",
                f"{row['ns']:.3g}",
                f"{row['times_steps']:.3g}" if "times_steps" in row and row["agrees"] else "",
                off,
                str(row["seeds"] or ""),
                row["precision"],
                duration(row["warm_up_seconds"]) if row["warm_up_seconds"] > 0.01 else "",
            ]
        )
    return rows


def growth_rows(rows: list[dict[str, Any]]) -> list[list[str]]:
    """An engine a row, an exponent with its interval a column."""
    found = {(r["engine"], r["parameter"]): f"{r['exponent']:.2f} ± {r['half_width']:.2f}" for r in rows}
    return [
        [engine, *(found.get((engine, symbol), "none") for symbol in PARAMETERS), start]
        for engine, start in {r["engine"]: _start(r) for r in rows}.items()
    ]


def _start(row: dict[str, Any]) -> str:
    return ", ".join(f"{symbol} = {row['start'][field]}" for symbol, field in PARAMETERS.items())


def duration(seconds: float) -> str:
    """Three digits with the unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def markdown(peers: dict[str, Any], growth: list[dict[str, Any]]) -> str:
    """The page."""
    works = "\n".join(
        f"- **{name}**: n = {w['dim']:,} directions, N = {w['clients']} clients, K = {w['local_steps']} local steps, "
        f"T = {w['rounds']} rounds"
        for name, w in peers["works"].items()
    )
    where = "pinned to one core" if peers["pinned"] else "one thread each"
    return f"""# Benchmarks

Made by `driftproof bench --out docs/benchmarks.md`, which measures every number anew
(Python {platform.python_version()}, {vectors()}, {os.cpu_count()} cores). Machines are shared and noisy: quote ratios.
`driftproof bench` alone times the engines of `nqm` more closely, against the random numbers they need.

## The same work elsewhere

FedAvg on the noisy quadratic model, with client drift and step noise, full participation, in the eigenbasis of the
Hessian, so that nobody multiplies by a matrix. Many clients in few directions, where overheads show, and a wide
problem, where they fade:

{works}

{_table(PEER_COLUMNS, peer_rows(peers))}

- *a round*: one round of one seed, the median of {peers["repeats"]} runs, libraries in turns, {where}.
  *spread*: half the distance between its quartiles. *ns*: the same time per client, local step and direction.
  *warm-up*: by how much the first call took longer (compilation; Numba's from its cache where there is one; the
  import is not counted).
- *off by*: the mean final excess loss over all runs against the exact one of `nqm.expect`, and z, the same in its
  exact standard errors. Beyond |z| = {Z} a library does not do the same work, and gets no ratio.
- `collapsed` folds the K steps and, as everybody takes part, the clients into one Gaussian map: the same law from far
  fewer random numbers. `expect` draws nothing: its round stands for all seeds, and with so few rounds it is mostly
  the cost of a call.

How each is written, and what it is made for:

{_table(NOTE_COLUMNS, NOTES)}

No library here does what the engines of `nqm` are for, nor do these do what the libraries are for: the table says what
it costs to study a quadratic with them. FedJAX 0.0.17 is given back `jax.tree_map`, which newer JAX lacks.
pfl-research's own PyTorch model keeps updates in float32, hence the NumPy one. A library that is not installed is
skipped: `pip install 'driftproof[peers]'`.

## How cost grows

The exponent p of time ∝ (parameter)^p over a factor of {FACTORS[-1] // FACTORS[0]}, upwards from the start given, with
95 % intervals; one thread, the cost of an empty call taken off.

{_table(GROWTH_COLUMNS, growth_rows(growth))}

To be expected: 1 wherever there is more to do, and 0 where an engine folds: K for `collapsed`, N too when everybody
takes part, N and K for `expect`, which has no seeds at all. Costs are sums of powers, so an exponent depends on the
start. `steps` draws K + 2 normals per client, round and direction: a little below 1 in K. When half of the clients take
part, choosing them costs the same for any n, and the one draw that `collapsed` makes in a round the same for any N:
below 1 in both until n and N are large.
"""


def _table(columns: tuple[str, ...], rows: list[list[str]]) -> str:
    rule = [" --- " if c in TEXT_COLUMNS else " ---: " for c in columns]
    lines = ["| " + " | ".join(columns) + " |", "|" + "|".join(rule) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
