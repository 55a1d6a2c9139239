"""What can be made: figures and tables by the numbers their papers give them.

Each has two functions. The first measures and returns plain data: an `xarray.Dataset` for a figure, a dict
that JSON can hold for a table. The second shows that data and nothing else, so that what is stored is all
that is drawn.

With a store, what lies in the folder and was made by these very sources from these very data is not made again.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from nqm import InvalidInput, load, save
from nqm.result import writing
from nqm.store import Store, digest, digest_files, engine_version, using

MODULES = (
    "plots.cfl_figure2",
    "plots.cfl_table3",
    "plots.cfl_weights",
    "plots.tight",
    "plots.rates",
    "plots.special_figure2",
    "plots.special_figure3",
    "plots.special_figure4",
    "plots.special_table13",
    "plots.special_lemma49",
    "plots.fedeve_fusion",
    "plots.fedeve_drift",
    "plots.fedeve_gain",
    "plots.cflag_heterogeneity",
    "plots.cflag_forgetting",
    "plots.cflag_scale",
    "plots.rates",
)

Progress = Callable[[str], None]
"""Called with a few words whenever another piece of work begins."""


def quiet(message: str) -> None:
    """The progress report that nobody reads."""


class Grid(NamedTuple):
    """A table ready to print: a header, rows of cells (a cell may have several lines), and notes to go below.

    A note is a sentence and what it has to list.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class Entry:
    """One figure or table.

    expected: the picture to expect, in words. runtime: roughly, on two cores.
    measure: ``measure(progress)`` returns the data. show: turns them into a matplotlib figure or a `Grid`.
    """

    kind: str
    id: str
    paper: str
    title: str
    expected: str
    runtime: str
    measure: Callable[..., Any]
    show: Callable[[Any], Any]

    @property
    def command(self) -> str:
        return f"driftproof {self.kind}s {self.id}"

    def path(self, out: Path, suffix: str) -> Path:
        """Where its file goes: cfl/fig-2 lies at out/cfl/fig-2.png."""
        return out / f"{self.id}{suffix}"


_entries: dict[tuple[str, str], Entry] = {}


def _register(kind: str, id: str, show: Callable[[Any], Any], **words: str) -> Callable[[Callable], Callable]:
    def keep(measure: Callable) -> Callable:
        _entries[kind, id] = Entry(kind=kind, id=id, measure=measure, show=show, **words)
        return measure

    return keep


def figure(
    id: str, *, draw: Callable[[Any], Any], paper: str, title: str, expected: str, runtime: str
) -> Callable[[Callable], Callable]:
    """Register the function that measures figure ``id``; ``draw`` turns its dataset into a figure."""
    return _register("figure", id, draw, paper=paper, title=title, expected=expected, runtime=runtime)


def table(
    id: str, *, layout: Callable[[Any], Grid], paper: str, title: str, expected: str, runtime: str
) -> Callable[[Callable], Callable]:
    """Register the function that measures table ``id``; ``layout`` turns its dict into a `Grid`."""
    return _register("table", id, layout, paper=paper, title=title, expected=expected, runtime=runtime)


def entries(kind: str) -> list[Entry]:
    """All figures or all tables, in the order of the papers."""
    for module in MODULES:
        importlib.import_module(module)
    return [entry for (k, _), entry in _entries.items() if k == kind]


def find(kind: str, ids: Iterable[str] = ()) -> list[Entry]:
    """The entries of these ids, or all when none is given; an unknown id is one line that names the known."""
    known = {entry.id: entry for entry in entries(kind)}
    wanted = list(dict.fromkeys(ids))
    for id in wanted:
        if id not in known:
            close = difflib.get_close_matches(id, known, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise InvalidInput(f"{kind} {id!r}: unknown id{hint}; allowed: {', '.join(known)}")
    return [known[id] for id in wanted] if wanted else list(known.values())


def draw(entry: Entry, out: Path, progress: Progress = quiet, store: Store | None = None) -> list[Path]:
    """Measure and draw a figure; leaves .png, .pdf and .nc."""
    paths = nc, png, pdf = [entry.path(out, suffix) for suffix in (".nc", ".png", ".pdf")]
    known = _known(entry, out, store)
    if len(known) == len(paths):
        return paths
    from .style import styled

    if ".nc" in known:
        data = load(nc)
    else:
        data = _measure(entry, progress, store)
        save(data, nc)
    progress(f"{entry.id}: drawing")
    with styled():
        drawn = entry.show(data)
        # No date and no version inside: the same data give the same bytes.
        for path, metadata in ((png, {"Software": None}), (pdf, {"CreationDate": None, "Producer": None})):
            with writing(path) as temporary:
                drawn.savefig(temporary, metadata=metadata)
    _remember(entry, paths, store)
    return paths


def tabulate(entry: Entry, out: Path, progress: Progress = quiet, store: Store | None = None) -> Any:
    """Measure a table; leaves .json."""
    path = entry.path(out, ".json")
    if _known(entry, out, store):
        return json.loads(path.read_text(encoding="utf-8"))
    data = _measure(entry, progress, store)
    with writing(path) as temporary:
        temporary.write_text(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    _remember(entry, [path], store)
    return data


def make_all(chosen: Sequence[Entry], out: Path, store: Store, jobs: int, progress: Progress = quiet) -> dict[str, Any]:
    """Draw and tabulate entries, ``jobs`` modules at a time in processes of their own; the tables' data by id.

    Entries of one module share what they measure, so they stay together; the module with most of them goes first.
    """
    left: dict[str, list[Entry]] = {}
    for entry in chosen:
        if not is_made(entry, out, store):
            left.setdefault(entry.measure.__module__, []).append(entry)
    if jobs > 1 and len(left) > 1:
        groups = sorted(left.values(), key=len, reverse=True)
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            futures = [pool.submit(_make, [(e.kind, e.id) for e in group], out, store) for group in groups]
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                progress(f"{done} of {len(groups)} groups of figures made")
        store = Store(store.folder)  # what the processes have just made is known by now
    return {entry.id: made for entry in chosen if (made := _make_entry(entry, out, store, progress)) is not None}


def _make(names: Sequence[tuple[str, str]], out: Path, store: Store) -> None:
    """Some entries, in a process that knows nothing yet."""
    for kind, id in names:
        _make_entry(find(kind, [id])[0], out, store)


def _make_entry(entry: Entry, out: Path, store: Store, progress: Progress = quiet) -> Any:
    """A table's data; a figure leaves files alone."""
    if entry.kind == "table":
        return tabulate(entry, out, progress, store)
    draw(entry, out, progress, store)
    return None


def is_made(entry: Entry, out: Path, store: Store | None) -> bool:
    """Whether all its files lie in ``out`` as these sources make them."""
    return len(_known(entry, out, store)) == (3 if entry.kind == "figure" else 1)


def _measure(entry: Entry, progress: Progress, store: Store | None) -> Any:
    with using(store):
        return entry.measure(progress)


def _known(entry: Entry, out: Path, store: Store | None) -> set[str]:
    """Suffixes of the files that still are what was made of this entry."""
    seals = store.noted(_key(entry)) if store else None
    return {suffix for suffix, seal in (seals or {}).items() if _seal(entry.path(out, suffix)) == seal}


def _remember(entry: Entry, paths: list[Path], store: Store | None) -> None:
    if store:
        store.note(_key(entry), {path.suffix: _seal(path) for path in paths})


def _seal(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _key(entry: Entry) -> str:
    """A name for all that decides an entry: what it calls of ours, and the libraries that compute and draw."""
    libraries = [f"{name}-{version(name)}" for name in ("cvxpy", "matplotlib", "xarray", "h5netcdf")]
    return digest(["entry", entry.kind, entry.id, engine_version(), _sources(entry.measure.__module__), libraries])


@cache
def _sources(module: str) -> str:
    """A digest of ``module``, of the modules of this package that it imports in turn, and of all of `theory`."""
    here = Path(__file__).parent
    found: set[Path] = set()
    left = [module.split(".")[1:]]
    while left:
        base = here.joinpath(*left.pop())
        for path in (base.parent / f"{base.name}.py", base / "__init__.py"):
            if path.is_file() and path not in found:
                found.add(path)
                left += _imports(path, here)
    assert found, module
    kinds = (".py", ".json", ".toml")
    found |= {path for path in (here.parent / "theory").rglob("*") if path.suffix in kinds}
    found |= {path for path in here.rglob("*") if path.suffix in kinds[1:]}
    return digest_files(sorted(found), here.parent)


def _imports(path: Path, here: Path) -> Iterator[list[str]]:
    """What a file imports of this package, as parts of a path below it; names that are no modules do no harm."""
    inside = list(path.relative_to(here).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1:] for alias in node.names if alias.name.startswith("plots."))
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            if node.level:
                parts = inside[: len(inside) - node.level + 1] + parts
            elif parts[0] == "plots":
                del parts[0]
            else:
                continue
            yield parts
            yield from ([*parts, alias.name] for alias in node.names)
