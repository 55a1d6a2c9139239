"""The measurements as tables that a person reads."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from .page import GROWTH_COLUMNS, PEER_COLUMNS, TEXT_COLUMNS, growth_rows, peer_rows


def show(result: dict[str, Any], console: Console) -> None:
    """Print everything that `benchmarks.run` found."""
    machine = result["machine"]
    configs = result["configs"]
    names = list(dict.fromkeys(r["config"] for r in result["rows"]))
    title = "ns per client, local step and direction, one thread; × is the ratio to the yardstick"
    table = Table(title=title, caption=_caption(configs, names, result["rounds"], machine))
    table.add_column("variant")
    for name in names:
        table.add_column(name, justify="right")
    rows = {(r["config"], r["variant"]): r for r in result["rows"]}
    for variant in dict.fromkeys(r["variant"] for r in result["rows"]):
        table.add_row(variant, *(_cell(rows[name, variant]) for name in names))
    console.print(table)

    sweep, weights, starts = result["sweep"], result["weights"], result["latency"]
    compile_times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in starts["compile"].items())
    console.print(
        f"Table 3 sweep, {sweep['runs']} exact runs: {sweep['numpy_seconds']:.2f} s in NumPy, "
        f"{sweep['compiled_seconds']:.3f} s compiled."
    )
    console.print(
        f"Theorem 4.9 at t = {weights['t']}: closed form {weights['formula_ratio']:,.0f} × faster than the LU solve, "
        f"{weights['call_ratio']:,.0f} × with checks against building and solving, "
        f"{weights['schedule_ratio']:,.0f} × for all rounds."
    )
    console.print(
        f"New process: import {starts['import']:.2f} s, then first exact result {starts['first_exact']:.3f} s, "
        f"first compiled result {starts['cached_compiled']:.2f} s from the cache. First compilation: {compile_times}."
    )
    aims = Table(title="Aims")
    for column in ("aim", "value", "target", ""):
        aims.add_column(column, justify="left" if column in ("aim", "") else "right")
    for aim in result["aims"]:
        word = "[green]reached[/]" if aim["reached"] else "[yellow]not reached[/]"
        aims.add_row(aim["aim"], f"{aim['value']:.3g}", f"{aim['target']:g}", word)
    console.print(aims)


def show_networks(rows: list[dict[str, Any]], console: Console) -> None:
    """Print what `benchmarks.deep.run` found."""
    table = Table(title="FedAvg on 28x28 images, 5 local steps: clients trained per second, one thread")
    table.add_column("model")
    for column in ("parameters", "batch", "clients", "at once", "looped", "ratio"):
        table.add_column(column, justify="right")
    for r in rows:
        sizes = (f"{r['parameters']:,}", str(r["batch"]), str(r["clients"]))
        speeds = (f"{r['at_once_per_second']:.0f}", f"{r['looped_per_second']:.0f}", f"{r['ratio']:.2f}")
        table.add_row(r["model"], *sizes, *speeds)
    console.print(table)


def show_peers(result: dict[str, Any], console: Console) -> None:
    """Print what `benchmarks.peers.run` found."""
    shapes = "; ".join(
        f"{name}: n = {w['dim']}, N = {w['clients']}, K = {w['local_steps']}, T = {w['rounds']}"
        for name, w in result["works"].items()
    )
    title = "FedAvg with client drift and step noise; time of a round of one seed, one core"
    console.print(_plain(title, PEER_COLUMNS, peer_rows(result), caption=shapes))


def show_growth(rows: list[dict[str, Any]], console: Console) -> None:
    """Print what `benchmarks.growth.run` found."""
    console.print(_plain("Exponents of cost, 95 %", GROWTH_COLUMNS, growth_rows(rows)))


def _plain(title: str, columns: tuple[str, ...], rows: list[list[str]], caption: str | None = None) -> Table:
    table = Table(title=title, caption=caption)
    for column in columns:
        table.add_column(column.replace("`", ""), justify="left" if column in TEXT_COLUMNS else "right")
    for row in rows:
        table.add_row(*(cell.replace("`", "") for cell in row))
    return table


def _cell(row: dict[str, Any]) -> str:
    text = f"{row['ns']:.3g}"
    if row["ratio"] != 1.0:
        text += f"  ×{row['ratio']:,.0f}" if row["ratio"] >= 100 else f"  ×{row['ratio']:.1f}"
    if "over_floor" in row:
        text += f"  ({row['over_floor']:.2f} floor)"
    return text


def _caption(configs: dict[str, Any], names: list[str], rounds: int, machine: dict[str, Any]) -> str:
    shapes = "; ".join(
        f"{name}: n = {configs[name]['dim']}, N = {configs[name]['clients']}, K = {configs[name]['local_steps']}"
        for name in names
    )
    return (
        f"{shapes}; T = {rounds}, CFL with information loss. Python {machine['python']}, NumPy {machine['numpy']}, "
        f"{machine['vectors']}, {machine['cores']} cores."
    )
