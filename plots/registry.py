"""What can be made: figures and tables by the numbers their papers give them.

Each has two functions. The first measures and returns plain data: an `xarray.Dataset` for a figure, a dict
that JSON can hold for a table. The second shows that data and nothing else, so that what is stored is all
that is drawn.
"""

from __future__ import annotations

import difflib
import importlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nqm import InvalidInput, save
from nqm.result import writing

MODULES = ("plots.cfl_figure2", "plots.cfl_table3", "plots.cfl_weights")

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


def draw(entry: Entry, out: Path, progress: Progress = quiet) -> list[Path]:
    """Measure and draw a figure; leaves .png, .pdf and .nc."""
    from .style import styled

    data = entry.measure(progress)
    progress(f"{entry.id}: drawing")
    made = [save(data, entry.path(out, ".nc"))]
    with styled():
        drawn = entry.show(data)
        # No date and no version inside: the same data give the same bytes.
        for suffix, metadata in (
            (".png", {"Software": None}),
            (".pdf", {"CreationDate": None, "Producer": None}),
        ):
            path = entry.path(out, suffix)
            with writing(path) as temporary:
                drawn.savefig(temporary, metadata=metadata)
            made.append(path)
    return made


def tabulate(entry: Entry, out: Path, progress: Progress = quiet) -> Any:
    """Measure a table; leaves .json."""
    data = entry.measure(progress)
    with writing(entry.path(out, ".json")) as temporary:
        temporary.write_text(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return data
