"""The command line: ``driftproof --help``.

Heavy imports stand inside the commands, so that help comes at once.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    import xarray as xr
    from rich.console import Console

    from plots.registry import Entry
    from theory.claims import Row
    from theory.rates import Found

CURVES = ("grad_norm_sq", "grad_norm", "excess_loss", "distance_sq")
SHOWN_FAILURES = 5


class OneLineErrors(TyperGroup):
    """What a user can get wrong ends in one line on stderr and exit code 2; Ctrl-C in one line and 130."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except BrokenPipeError:  # the reader of a pipe has had enough; keep the interpreter from writing at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        except MemoryError as error:
            code = _complain(f"out of memory ({error}): lower dim, clients, rounds or seeds")
        except Exception as error:
            if hasattr(error, "format_message"):  # click's usage errors, whichever click typer brings
                message = error.format_message()
                code = _complain(f"{message.rstrip('.')}. See driftproof --help." if message else "")
            elif _is_invalid_input(error):
                code = _complain(str(error))
            else:
                raise
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None


def _complain(message: str) -> int:
    if message:
        print("error: " + " ".join(message.split()), file=sys.stderr)
    return 2


def _is_invalid_input(error: Exception) -> bool:
    check = sys.modules.get("nqm.check")  # an InvalidInput can only come from there
    return check is not None and isinstance(error, check.InvalidInput)


def _epilog(*lines: str) -> str:
    """Lines that Rich keeps apart and does not read as markup."""
    return "\n".join(line.replace("[", "\\[") for line in lines)


SAMPLE = (
    "",
    "Ready to run: examples/fedavg.toml, examples/cfl.toml, examples/special.toml, examples/fedeve.toml,",
    "examples/cflag.toml. A sample EXPERIMENT.toml:",
    "    [problem]",
    "    dim = 50",
    "    mu = 1.0",
    "    L = 20.0",
    "    [drift]",
    "    client = 0.01      # G², E‖δᵢ‖² of every client",
    "    time = 100.0       # D², E‖ξₜᵢ‖² of every client and round",
    "    noise = 1e-5       # σ² of every local step",
    "    [federation]",
    "    clients = 100",
    "    sampled = 20       # leave out for all",
    "    local_steps = 10",
    "    rounds = 500",
    "    [method]",
    '    name = "cfl"       # or fedavg, fedprox, scaffold, special, ...',
    "    lr = 0.05",
    '    weights = "lemma-b.4"',
)

GRID_SAMPLE = (
    "",
    "A sample GRID.toml (ready to run: examples/sweep.toml; all there is: docs/sweeps.md):",
    '    engine = "expect"           # or steps, collapsed, reference',
    "    [base.drift]                # the tables of an experiment",
    "    time = 100.0",
    "    [base.federation]",
    "    rounds = 100",
    "    [base.method]",
    '    name = "fedavg"',
    "    [grid]                      # every combination",
    '    "drift.client" = [0.01, 1.0]',
    '    "method.lr" = [0.001, 0.01]',
)

app = typer.Typer(
    cls=OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The convergence theory of federated learning under drift, as software that runs.",
    epilog=_epilog(
        "Begin with:  driftproof expect examples/fedavg.toml",
        "All figures and tables:  driftproof reproduce",
        "Every command explains itself:  driftproof simulate --help",
    ),
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout and nothing else.")]
ExperimentFile = Annotated[
    Path,
    typer.Argument(metavar="EXPERIMENT.toml", show_default=False, help="Problem, drift, federation and method."),
]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE.nc", show_default=False, help="Also write all curves as netCDF."),
]
OutFolder = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the files go.")]
Listed = Annotated[bool, typer.Option("--list", help="Only list what there is.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Make everything anew, whatever the folder holds.")]


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}: must be a whole number >= 1") from None


Jobs = Annotated[
    int | None,
    typer.Option("--jobs", parser=_whole, metavar="N", show_default=False, help="How many at once; all cores."),
]


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}: must be a number") from None


def _version(wanted: bool) -> None:
    if wanted:
        from nqm.result import package_version

        print(f"driftproof {package_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog=_epilog("Example:  driftproof expect examples/cfl.toml --out cfl.nc", *SAMPLE))
def expect(experiment: ExperimentFile, out: OutFile = None, as_json: Json = False) -> None:
    """Exact expectations of every round, without sampling."""
    import nqm

    e = _read(experiment)
    _check_file(out)
    with _working("computing expectations"):
        data = nqm.expect(e.problem, e.drift, e.federation, e.method)
    if out:
        nqm.save(data, out)
    if as_json:
        _print_json(_curves(data) | {"diverged_at": _rounds(data["diverged_at"].values), "notes": _notes(data)})
        return
    console = _console()
    console.print(f"[bold]Exact expectations[/bold] · {_describe(e)}", highlight=False)
    if e.federation.tasks > 1:
        _show_tasks(console, data)
    else:
        _show_curves(console, {name: data[name].values for name in CURVES})
    ended = data["diverged_at"].values.ravel()
    _show_ending(console, e, data, out)
    if (ended < 0).all():
        _hint(console, f"driftproof simulate {experiment}", "draws sample paths beside these curves")


@app.command(
    epilog=_epilog(
        "Example:  driftproof simulate examples/cfl.toml --engine collapsed --seeds 100 --out paths.nc",
        *SAMPLE,
    )
)
def simulate(
    experiment: ExperimentFile,
    engine: Annotated[str, typer.Option(help="steps, collapsed (the same in law, quicker) or reference.")] = "steps",
    seeds: Annotated[int, typer.Option(parser=_whole, metavar="N", help="How many sample paths.")] = 10,
    threads: Annotated[
        int | None,
        typer.Option(parser=_whole, metavar="N", show_default=False, help="Paths at once; all cores by default."),
    ] = None,
    out: OutFile = None,
    as_json: Json = False,
) -> None:
    """Sample paths, one a seed."""
    import nqm

    e = _read(experiment)
    _check_file(out)
    with _working(f"simulating {seeds} seeds", total=seeds) as step:
        data = nqm.simulate(
            e.problem,
            e.drift,
            e.federation,
            e.method,
            seeds=seeds,
            engine=engine,
            threads=threads,
            progress=step,
        )
    if out:
        nqm.save(data, out)
    mean, error = _over_seeds(data)
    ended = data["diverged_at"].values.max(axis=-1) if e.federation.tasks > 1 else data["diverged_at"].values
    if as_json:
        _print_json(
            _curves(data)
            | {
                "seeds": data["seed"].values.tolist(),
                "mean": {name: _plain(values) for name, values in mean.items()},
                "standard_error": {name: _plain(values) for name, values in error.items()},
                "diverged_at": _rounds(data["diverged_at"].values),
                "notes": _notes(data),
            }
        )
        return
    console = _console()
    error_bars = "" if e.federation.tasks > 1 else " ± standard error"
    console.print(
        f"[bold]Mean of {len(ended)} seeds{error_bars}[/bold], engine {engine} · {_describe(e)}",
        highlight=False,
    )
    mean.pop("grad_norm_sq")  # four columns with errors are too wide for a terminal
    if e.federation.tasks > 1:
        _show_tasks(console, data)
    else:
        _show_curves(console, mean, error)
    _show_ending(console, e, data, out)
    if _expects(e):
        _hint(console, f"driftproof expect {experiment}", "gives the same curves exactly, without sampling")


@app.command(epilog=_epilog("Example:  driftproof figures cfl/fig-2 --out out"))
def figures(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", show_default=False, help="Which; all by default.")
    ] = None,
    listed: Listed = False,
    out: OutFolder = Path("out"),
    fresh: Fresh = False,
) -> None:
    """Draw figures of the papers: .png, .pdf and .nc each, and a gallery index.html."""
    from plots import gallery, registry

    chosen = registry.find("figure", ids or ())
    console = _console()
    if listed:
        return _show_entries(console, chosen)
    _check_folder(out)
    store = _store(out, fresh)
    made, kept = [], 0
    with _working("drawing") as say:
        for entry in chosen:
            kept += registry.is_made(entry, out, store)
            made += registry.draw(entry, out, say, store)
    made.append(gallery.write(out))
    for path in made:
        console.print(str(path), highlight=False, soft_wrap=True)
    _show_kept(console, kept, len(chosen))


@app.command(epilog=_epilog("Example:  driftproof tables cfl/table-3 --json"))
def tables(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", show_default=False, help="Which; all by default.")
    ] = None,
    listed: Listed = False,
    as_json: Json = False,
) -> None:
    """Print tables of the papers, the paper's value beside ours."""
    from plots import registry

    chosen = registry.find("table", ids or ())
    if listed and as_json:
        return _print_json([{"id": e.id, "paper": e.paper, "title": e.title, "runtime": e.runtime} for e in chosen])
    console = _console()
    if listed:
        return _show_entries(console, chosen)
    with _working("measuring") as say:
        measured = {entry.id: entry.measure(say) for entry in chosen}
    if as_json:
        return _print_json(measured)
    for entry in chosen:
        _show_table(console, entry.title, entry.show(measured[entry.id]))


@app.command(epilog=_epilog("Example:  driftproof reproduce --out out, then open out/index.html"))
def reproduce(out: OutFolder = Path("out"), fresh: Fresh = False, jobs: Jobs = None) -> None:
    """Make every figure and table that needs no GPU, and a gallery of them.

    What the folder holds and these sources made is kept, so a second time takes seconds.
    """
    from plots import gallery, registry

    _check_folder(out)
    store = _store(out, fresh)
    console = _console()
    figures, tables = registry.find("figure"), registry.find("table")
    with _working("reproducing") as say:
        kept = sum(registry.is_made(entry, out, store) for entry in figures + tables)
        measured = registry.make_all(figures + tables, out, store, jobs or os.cpu_count() or 1, say)
        index = gallery.write(out)
    for entry in tables:
        _show_table(console, entry.title, entry.show(measured[entry.id]))
    console.print(f"\nFigures, data and tables: {index}", highlight=False, soft_wrap=True)
    _show_kept(console, kept, len(figures) + len(tables))


@app.command(
    epilog=_epilog(
        "Example:  driftproof sweep examples/sweep.toml --out out, then xarray.open_dataset('out/sweep.nc')",
        "On a Dask cluster:  driftproof sweep examples/sweep.toml --scheduler tcp://127.0.0.1:8786",
        "The same command goes on where an interrupted sweep was, and computes only what a longer grid adds.",
        *GRID_SAMPLE,
    )
)
def sweep(
    grid: Annotated[
        Path, typer.Argument(metavar="GRID.toml", show_default=False, help="A base experiment and what varies.")
    ],
    jobs: Jobs = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="tcp://…", show_default=False, help="Run on this Dask cluster instead of this machine."),
    ] = None,
    out: OutFolder = Path("out"),
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Run a grid of experiments into one dataset, FOLDER/GRID.nc; what is known already is not run again.

    Exit code 0 if every point was run, 1 if some could not be.
    """
    from nqm import InvalidInput
    from nqm.check import integer
    from nqm.grid import Grid
    from nqm.sweep import Interrupted
    from nqm.sweep import sweep as run
    from nqm.workers import Cluster, Local, Workers
    from theory import weights

    if jobs is not None and scheduler is not None:
        raise InvalidInput("--jobs and --scheduler: give one of them; a cluster has its own workers")
    asked = Grid.from_toml(grid)
    _check_folder(out)
    file = out / f"{grid.stem}.nc"
    where: Workers = (
        Cluster(scheduler)
        if scheduler
        else Local(None if jobs is None else integer("--jobs", jobs, 1), asked.engine, asked.keep)
    )
    try:
        with _counting(asked) as count:
            summary = run(asked, file, _store(out, fresh), where, weights.named, count)
    except Interrupted as stopped:
        again = f"driftproof sweep {grid} --out {out}" + (f" --scheduler {scheduler}" if scheduler else "")
        print(f"interrupted: {stopped}; go on with: {again}", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        _print_json(
            {
                "file": str(file),
                "points": summary.points,
                "computed": summary.computed,
                "cached": summary.cached,
                "failed": [{"point": f.point, "error": f.error} for f in summary.failed],
                "damaged": summary.damaged,
                "seconds": summary.seconds,
                "engine_share": summary.engine_share,
                "busy_share": summary.busy_share,
                "peak_memory": summary.peak_memory,
            }
        )
    else:
        _show_sweep(_console(), summary, file)
    if summary.failed:
        raise typer.Exit(1)


@app.command(
    epilog=_epilog(
        "Example:  driftproof weights --rounds 4 --D2 1 --R2 0.5 --alpha 0.8",
        "The same without negative weights:  driftproof weights --rounds 4 --D2 1 --R2 0.5 --alpha 0.8 --nonnegative",
    )
)
def weights(
    rounds: Annotated[int, typer.Option(parser=_whole, metavar="T", help="How many rounds, the current one included.")],
    D2: Annotated[float, typer.Option("--D2", metavar="X", parser=_real, help="D², the time drift E‖ξ‖².")],
    R2: Annotated[float, typer.Option("--R2", metavar="X", parser=_real, help="R², the information loss E‖Δ‖².")],
    alpha: Annotated[float, typer.Option(parser=_real, metavar="X", help="AR(1) correlation (Theorem 4.9).")] = 0.0,
    overlap: Annotated[
        float, typer.Option(parser=_real, metavar="X", help="F², constant correlation (Theorem 4.7).")
    ] = 0.0,
    nonnegative: Annotated[bool, typer.Option("--nonnegative", help="Allow no weight below zero.")] = False,
    solver: Annotated[str, typer.Option(help="auto, closed, dense (LU, as the paper does) or cvxpy.")] = "auto",
    as_json: Json = False,
) -> None:
    """The history weights of round T that minimise the error bound, and the value they reach."""
    from theory.weights import optimal

    best = optimal(rounds, D2, R2, alpha=alpha, overlap=overlap, nonnegative=nonnegative, solver=solver)
    if as_json:
        value = {"weights": best.weights.tolist(), "value": float(best.value), "solver": best.solver}
        return _print_json(value)
    console = _console()
    console.print(f"[bold]Optimal weights of round {rounds}[/bold], by {best.solver}", highlight=False)
    shown = [f"p_{i + 1} = {p:.6g}" for i, p in enumerate(best.weights)]
    if len(shown) > 12:
        shown = [*shown[:5], f"… {len(shown) - 10} more …", *shown[-5:]]
    for line in shown:
        console.print("  " + line, highlight=False)
    console.print(f"Minimised value, client drift left out: {best.value:.6g}", highlight=False)


@app.command(
    epilog=_epilog(
        "Example:  driftproof audit --paper cfl",
        "One claim, with its evidence:  driftproof audit cfl/thm-4.9 --json",
        "As a page:  driftproof audit --paper cfl --paper cfl22 --out docs/audit-cfl.md",
    )
)
def audit(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", show_default=False, help="Which claims; all by default.")
    ] = None,
    paper: Annotated[
        list[str] | None, typer.Option(metavar="P", show_default=False, help="Only this paper's; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.md", show_default=False, help="Also write a page of Markdown."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the papers' claims one by one: verdict, evidence, repair.

    Exit code 0 whatever the verdicts are; 1 if a stored counterexample no longer reproduces.
    """
    from nqm.result import writing
    from theory.claims import report
    from theory.claims.audit import audit as run
    from theory.claims.ledger import select

    _check_file(out)
    chosen = [c for name in paper for c in select(ids or (), name)] if paper else select(ids or ())
    with _working("auditing", total=len(chosen)) as step:

        def tell(id: str) -> None:
            step(f"auditing {id}")
            step(1)

        rows = run(chosen, progress=tell)
    if out:
        title = "Audit of " + ", ".join(dict.fromkeys(row.paper for row in rows))
        command = "driftproof audit" + "".join(f" --paper {name}" for name in paper or ())
        with writing(out) as temporary:
            temporary.write_text(report.markdown(rows, title, command), encoding="utf-8")
    if as_json:
        _print_json([row.plain() for row in rows])
    else:
        _show_audit(_console(), rows, out)
    if any(row.lost for row in rows):
        raise typer.Exit(1)


@app.command(
    epilog=_epilog(
        "Example:  driftproof deep cfl/table-6, in seconds on the digits of scikit-learn",
        "As the paper did it, on a GPU:  driftproof deep cfl/table-6 --scale paper --data-dir ~/data",
        "After a kill:  the same with --resume",
        "A network beside the noisy quadratic model:  driftproof deep bridge/digits",
    )
)
def deep(
    id: Annotated[
        str | None, typer.Argument(metavar="ID", show_default=False, help="Which experiment; see --list.")
    ] = None,
    scale: Annotated[
        str, typer.Option(help="smoke: embedded data, seconds on a CPU. paper: the paper's data, networks and rounds.")
    ] = "smoke",
    device: Annotated[str, typer.Option(help="auto, cuda, mps or cpu.")] = "auto",
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", show_default=False, help="Where data sets lie; also $DRIFTPROOF_DATA."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a killed run left off.")] = False,
    listed: Listed = False,
    out: OutFolder = Path("out"),
    as_json: Json = False,
) -> None:
    """Rerun a deep-network experiment of a paper: a table, and .nc, .json, .png and .pdf in FOLDER/deep."""
    from nqm import InvalidInput

    try:
        from deep import experiments
    except ImportError as error:
        raise InvalidInput(str(error)) from None
    if listed:
        return _show_experiments([*experiments.EXPERIMENTS.values()], as_json)
    if id is None:
        raise InvalidInput("ID: is missing; driftproof deep --list shows them")
    chosen = experiments.find(id)
    _check_folder(out)
    with _working(chosen.id) as say:
        found, files = experiments.make(
            chosen, out, scale, device=device, data_dir=data_dir, resume=resume, progress=say
        )
    if as_json:
        return _print_json(found | {"files": [str(path) for path in files]})
    console = _console()
    _show_table(console, found["title"], experiments.table(chosen, found))
    console.print("Files: " + " ".join(map(str, files)), highlight=False, soft_wrap=True)


@app.command(
    epilog=_epilog(
        "Example:  driftproof rates cfl/thm-4.4",
        "All claims, with every curve and interval:  driftproof rates --json > rates.json",
    )
)
def rates(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", show_default=False, help="Which claims; all by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how rounds or errors grow with every parameter of a rate claim, and compare with the predicted exponents.

    agrees, faster (the claim is loose in that parameter) or slower (refuted in that regime).
    """
    from theory.rates import measure, select

    chosen = [rate for rows in select(ids or ()).values() for rate in rows]
    found = []
    with _working("measuring", total=len(chosen)) as step:
        for rate in chosen:
            step(f"{rate.claim}, {rate.parameter}")
            found.append(measure(rate))
            step(1)
    if as_json:
        return _print_json([one.plain() for one in found])
    _show_rates(_console(), found)


@app.command(
    epilog=_epilog(
        "Example:  driftproof bench --json > bench.json",
        "As a page, in about two minutes:  driftproof bench --out docs/benchmarks.md",
    )
)
def bench(
    peers: Annotated[bool, typer.Option("--peers", help="The same work in NumPy, PyTorch, JAX and others.")] = False,
    growth: Annotated[bool, typer.Option("--growth", help="Exponents of cost in n, N, K, T and seeds.")] = False,
    networks: Annotated[
        bool, typer.Option("--deep", help="Local training of deep networks: all clients at once against the loop.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PAGE.md", help="Write peers and growth as a page in Markdown.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Time the engines against a vectorised NumPy yardstick and the random-number floor."""
    import benchmarks

    if networks:
        return _bench_networks(as_json)
    if peers or growth or out:
        return _bench_elsewhere(peers or out is not None, growth or out is not None, out, as_json)
    with _working("timing") as say:
        result = benchmarks.run(quick=False, progress=say)
    if as_json:
        return _print_json(result)
    benchmarks.show(result, _console())


def _bench_networks(as_json: bool) -> None:
    import benchmarks.deep

    with _working("training"):
        rows = benchmarks.deep.run()
    if as_json:
        return _print_json(rows)
    benchmarks.show_networks(rows, _console())


def _bench_elsewhere(peers: bool, growth: bool, out: Path | None, as_json: bool) -> None:
    import benchmarks
    import benchmarks.peers
    from benchmarks.page import markdown
    from nqm.result import writing

    _check_file(out)
    result: dict[str, Any] = {}
    with _working("timing") as say:
        if peers:
            result["peers"] = benchmarks.peers.run(progress=say)
        if growth:
            result["growth"] = benchmarks.growth.run(progress=say)
    if out:
        with writing(out) as temporary:
            temporary.write_text(markdown(result["peers"], result["growth"]), encoding="utf-8")
    if as_json:
        return _print_json(result)
    console = _console()
    if peers:
        benchmarks.show_peers(result["peers"], console)
    if growth:
        benchmarks.show_growth(result["growth"], console)
    if out:
        console.print(str(out), highlight=False, soft_wrap=True)


def _read(path: Path) -> Any:
    import nqm
    from theory import weights

    return nqm.Experiment.from_toml(path, named_weights=weights.named)


def _check_folder(folder: Path) -> None:
    """Refuse a folder that can't be written to before the work begins, not after."""
    from tempfile import TemporaryFile

    from nqm import InvalidInput

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInput(f"--out {folder}: can't be written to ({error.strerror or error})") from None


def _store(out: Path, fresh: bool = False) -> Any:
    """The store of an output folder; a fresh one is empty, and takes the place of the old piece by piece."""
    from nqm.store import Store

    return Store(out / ".store", fresh=fresh)


def _show_kept(console: Console, kept: int, total: int) -> None:
    console.print(f"{kept} of {total} unchanged and kept, {total - kept} made.", highlight=False)


def _check_file(path: Path | None) -> None:
    from nqm import InvalidInput

    if path is None:
        return
    if path.is_dir():
        raise InvalidInput(f"--out {path}: is a folder; give the name of a file, such as {path / 'result.nc'}")
    _check_folder(path.parent)


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


@contextmanager
def _working(what: str, total: int | None = None) -> Iterator[Callable[[Any], None]]:
    """Progress on stderr; yields a function to call with a number of steps done, or with a few words."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = _console(stderr=True)
    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *([BarColumn()] if total else []),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)

        def step(news: Any) -> None:
            if isinstance(news, str):
                progress.update(task, description=news)
            else:
                progress.advance(task, news)

        yield step


@contextmanager
def _counting(grid: Any) -> Iterator[Callable[[str, int], None]]:
    """The progress of a sweep on stderr: done, cached, failed, rate, time left."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from nqm.sweep import units

    console = _console(stderr=True)
    counts = {"done": 0, "cached": 0, "failed": 0}
    begin = time.monotonic()
    columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        total = units(grid)
        task = progress.add_task(f"{total} runs", total=total)

        def count(what: str, number: int) -> None:
            counts[what] += number
            told = ", ".join(f"{n} {name}" for name, n in counts.items())
            rate = counts["done"] / max(time.monotonic() - begin, 1e-9)
            left = total - sum(counts.values())
            ahead = f", {rate:.3g}/s, {left / rate:.0f} s left" if rate else ""
            progress.update(task, advance=number, description=f"{told} of {total}{ahead}")

        yield count


def _show_sweep(console: Console, summary: Any, file: Path) -> None:
    from nqm.check import human_size
    from nqm.grid import label

    s = summary
    console.print(
        f"[bold]{s.points} points[/bold]: {s.computed} computed, {s.cached} from the store, {len(s.failed)} failed.",
        highlight=False,
    )
    for name in s.damaged:
        console.print(f"Damaged, and computed again: {name}", highlight=False, soft_wrap=True)
    for failure in s.failed[:SHOWN_FAILURES]:
        console.print(f"Failed: {label(failure.point)}: {failure.error}", highlight=False, soft_wrap=True, markup=False)
    if len(s.failed) > SHOWN_FAILURES:
        console.print(f"… and {len(s.failed) - SHOWN_FAILURES} more; the variable error of the file has all.")
    console.print(
        f"{s.seconds:.3g} s on {s.slots} workers; inside the engines: {100 * s.engine_share:.0f} % of the processor "
        f"time, {100 * s.busy_share:.0f} % of the workers' time; peak memory {human_size(s.peak_memory)}.",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"All curves: {file}", highlight=False, soft_wrap=True)


def _plain(values: Any) -> Any:
    """Numbers as nested lists, with null for what is not finite: JSON knows no infinity."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(listed, list):
        return [_plain(x) for x in listed]
    return None if isinstance(listed, float) and not math.isfinite(listed) else listed


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def _expects(e: Any) -> bool:
    """Whether `expect` gives the same curves exactly, over all that is random."""
    from nqm import InvalidInput, exact_servers
    from nqm.plan import Plan

    plan = Plan.of_tasks(e)[0]
    try:
        exact_servers.check(plan)
    except InvalidInput:
        return False
    return not plan.slopes and (e.method.rule == "linear" or getattr(e.method, "gain", None) is not None)


def _rounds(diverged_at: Any) -> Any:
    """Rounds of divergence, null for what did not diverge."""
    listed = diverged_at.tolist() if hasattr(diverged_at, "tolist") else diverged_at
    if isinstance(listed, list):
        return [_rounds(x) for x in listed]
    return None if listed < 0 else listed


def _curves(data: xr.Dataset) -> dict[str, Any]:
    names = [str(name) for name in data.data_vars if name != "diverged_at"]
    axes = {name: data[name].values.tolist() for name in ("task", "round") if name in data.dims}
    return axes | {name: _plain(data[name].values) for name in names}


def _notes(data: xr.Dataset) -> list[str]:
    """What a reader of the numbers must know: what they are conditioned on, and where they are not exact."""
    notes = []
    if data.attrs.get("conditioned_on", "nothing") != "nothing":
        notes.append(f"given {data.attrs['conditioned_on']}")
    if data.attrs.get("law", "gaussian") != "gaussian":
        notes.append(data.attrs["law"])
    return notes


def _over_seeds(data: xr.Dataset) -> tuple[dict[str, Any], dict[str, Any]]:
    """Mean and standard error over the seeds; infinite from the round on at which any seed has diverged."""
    import numpy as np

    mean, error = {}, {}
    count = data.sizes["seed"]
    with np.errstate(all="ignore"):
        for name in CURVES:
            values = data[name].values
            mean[name] = values.mean(axis=0)
            spread = values.std(axis=0, ddof=1) if count > 1 else np.full(values.shape[1:], np.nan)
            error[name] = np.where(np.isfinite(mean[name]), spread / math.sqrt(count), np.inf)
    return mean, error


def _describe(e: Any) -> str:
    f = e.federation
    return (
        f"{e.method.name}, lr {e.method.lr:g}, {f.S} of {f.clients} clients, "
        f"K = {f.local_steps}, T = {f.rounds}, n = {e.problem.dim}" + (f", {f.tasks} tasks" if f.tasks > 1 else "")
    )


def _show_curves(console: Console, curves: dict[str, Any], errors: dict[str, Any] | None = None) -> None:
    """A few rounds of every curve, evenly apart on a logarithmic scale."""
    from rich import box
    from rich.table import Table

    from nqm.result import VARIABLES

    T = len(curves["grad_norm"]) - 1
    rounds = sorted({0, T, *(10**k for k in range(12) if 10**k < T), T // 2})
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("round", *(VARIABLES[name][0] for name in curves)):
        table.add_column(heading, justify="right")

    def cell(name: str, t: int) -> str:
        value = curves[name][t]
        if not math.isfinite(value):
            return "diverged"
        spread = errors[name][t] if errors else 0.0
        return f"{value:.4g}" + (f" ± {spread:.1g}" if spread > 1e-12 * value else "")

    for t in rounds:
        table.add_row(str(t), *(cell(name, t) for name in curves))
    console.print(table)


def _show_tasks(console: Console, data: xr.Dataset) -> None:
    """The excess loss of every task after each, and what follows from it."""
    from rich import box
    from rich.table import Table

    from nqm import transfer

    several = "seed" in data.dims

    def mean(values: Any) -> Any:
        return values.mean("seed") if several else values

    matrix = mean(transfer.loss_matrix(data))
    table = Table(box=box.SIMPLE_HEAD, title="excess loss of each task")
    table.add_column("after task", justify="right")
    for task in matrix["of_task"].values:
        table.add_column(f"task {task}", justify="right")
    for i, row in zip(matrix["task"].values, matrix.values, strict=True):
        table.add_row(str(i), *(f"{x:.4g}" if math.isfinite(x) else "diverged" for x in row))
    console.print(table)
    if math.isfinite(float(matrix.max())):
        console.print(
            f"average loss {float(mean(transfer.average_loss(data))):.4g}, "
            f"backward transfer {float(mean(transfer.backward_transfer(data))):.4g} (positive: later tasks helped), "
            f"forgetting {float(mean(transfer.forgetting(data))):.4g}, "
            f"worst drop {float(mean(transfer.worst_drop(data))):.4g}",
            highlight=False,
        )


def _show_ending(console: Console, e: Any, data: xr.Dataset, out: Path | None) -> None:
    """Divergence, what the numbers are conditioned on, and where they went."""
    at = data["diverged_at"]
    if bool((at >= 0).any()):
        runs = (at >= 0).any("task") if "task" in at.dims else at >= 0
        who = f"{int(runs.sum())} of {runs.size} seeds diverged, the first" if runs.ndim else "Diverged"
        where = ""
        if "task" in at.dims:
            task = int(at["task"][(at >= 0).any([d for d in at.dims if d != "task"]).values][0])
            at, where = at.sel(task=task), f" of task {task}"
        largest = max(p.L for p in e.problem.sequence(e.federation.tasks))
        console.print(
            f"{who} at round {int(at.where(at >= 0).min())}{where}: lower method.lr = {e.method.lr:g}; "
            f"plain gradient descent is stable below 2/L = {2 / largest:.3g}.",
            highlight=False,
        )
    for note in _notes(data):
        console.print(f"Note: {note}.", highlight=False)
    if out:
        console.print(f"All {data.sizes['round']} rounds: {out}", highlight=False, soft_wrap=True)
    else:
        _hint(console, "--out FILE.nc", "keeps all rounds; --json prints them")


def _hint(console: Console, command: str, effect: str) -> None:
    console.print(f"[bold]{command}[/bold] {effect}.", highlight=False, soft_wrap=True)


def _show_entries(console: Console, chosen: list[Entry]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    for entry in chosen:
        console.print(Text.assemble((entry.id, "bold"), f"  {entry.title} (about {entry.runtime})"))
        console.print(Padding(Text(entry.expected, style="dim"), (0, 0, 0, 4)))


def _show_experiments(chosen: list[Any], as_json: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if as_json:
        return _print_json([{"id": e.id, "title": e.title, "finding": e.finding} for e in chosen])
    console = _console()
    for e in chosen:
        console.print(Text.assemble((e.id, "bold"), f"  {e.title}"))
        console.print(Padding(Text(e.finding, style="dim"), (0, 0, 0, 4)))


VERDICT_STYLES = {
    "holds": "green",
    "loose": "cyan",
    "misprint": "yellow",
    "gap": "yellow",
    "vacuous": "magenta",
    "refuted": "red",
    "untested": "dim",
}


def _show_audit(console: Console, rows: list[Row], out: Path | None) -> None:
    from collections import Counter

    from rich import box
    from rich.table import Table
    from rich.text import Text

    from theory.claims.report import number

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("claim", "verdict", "number"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(f"{row.id}", Text(row.verdict, style=VERDICT_STYLES[row.verdict]), number(row))
    console.print(table)
    if len(rows) == 1:
        row = rows[0]
        for text in (row.statement, row.why, f"Repair: {row.repair}" if row.repair else ""):
            if text:
                console.print(Text(text))
    counts = Counter(row.verdict for row in rows)
    console.print(", ".join(f"{n} {verdict}" for verdict, n in counts.most_common()) + ".", highlight=False)
    for row in rows:
        if not row.stands:
            console.print(f"[red]{row.id}: the evidence no longer bears out '{row.verdict}'[/red]", highlight=False)
    if out:
        console.print(f"The whole as a page: {out}", highlight=False, soft_wrap=True)
    elif len(rows) > 1:
        _hint(console, "driftproof audit ID", "shows one claim in full; --json has all evidence")


RATE_STYLES = {"agrees": "green", "faster": "cyan", "slower": "red", "unmeasured": "dim"}


def _show_rates(console: Console, found: list[Found]) -> None:
    from collections import Counter

    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("claim, term", "in", "predicted", "measured", "tuned freely", "verdict"):
        table.add_column(heading, overflow="fold")
    last = ""
    for one in found:
        r = one.rate
        head = f"{r.claim}{', ' + r.part if r.part else ''}"
        if head != last:
            table.add_row(Text(head, style="bold"))
            last = head
        own, free = (str(one.fits.get(name) or "—") for name in ("prescribed", "free"))
        verdict = Text(one.verdict, style=RATE_STYLES[one.verdict])
        table.add_row(f"  {r.term}", r.parameter, f"{r.predicted:g}", own, free, verdict)
    console.print(table)
    if len({one.rate.claim for one in found}) == 1:
        for note in dict.fromkeys(f"{one.rate.term}, {one.rate.parameter}: {one.note}" for one in found if one.note):
            console.print(Text(note))
    counts = Counter(one.verdict for one in found)
    console.print(", ".join(f"{n} {verdict}" for verdict, n in counts.most_common()) + ".", highlight=False)
    _hint(console, "driftproof figures rates/summary", "draws predicted against measured; --json has all curves")


def _show_table(console: Console, title: str, grid: Any) -> None:
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, leading=1, pad_edge=False, collapse_padding=True)
    for heading in grid.header:
        table.add_column(heading, no_wrap=True)
    for row in grid.rows:
        cells = (cell.partition("\n") for cell in row)
        table.add_row(*(Text.assemble((head, "bold"), line, (rest, "dim")) for head, line, rest in cells))
    console.print(f"[bold]{title}[/bold]", highlight=False)
    console.print(table)
    for sentence, items in grid.notes:
        console.print(sentence, highlight=False, markup=False)
        for item in items:
            console.print(Padding(Text(item, style="dim"), (0, 0, 0, 2)))


def main() -> None:
    app(prog_name="driftproof")


if __name__ == "__main__":
    main()
