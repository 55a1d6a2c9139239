"""Results that survive: a folder of chunks, each found by the content of the question it answers.

A chunk is one file. Its first line names the format and the SHA-256 of all that follows; the second is JSON: the keys
it answers and what is written about them; the rest are the answers. Chunks are written under a temporary name and
renamed, never changed and never indexed in a shared file, so that two sweeps can use one folder, and a crash leaves
whole chunks or none.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from .check import InvalidInput
from .draws import SCHEME
from .result import package_version, writing

FORMAT = "driftproof-chunk-1"
SUFFIX = ".chunk"
LEFT_BEHIND = 24 * 3600.0  # seconds after which a temporary file belongs to nobody

# They schedule, store and gather, but decide no number.
UNDECIDED = ("gather.py", "grid.py", "store.py", "sweep.py", "workers.py")

_in_use: ContextVar[Store | None] = ContextVar("store", default=None)


class Damaged(Exception):
    """A chunk that is not what was written; the message names the file."""


class Chunk(NamedTuple):
    keys: list[str]
    about: dict[str, Any]
    content: memoryview


class Store:
    """A folder of chunks. A ``fresh`` store takes no notice of those that were there before it."""

    def __init__(self, folder: str | Path, fresh: bool = False) -> None:
        self.folder = Path(folder)
        self.fresh = fresh
        self._own: set[Path] = set()
        self._headers: dict[Path, dict[str, Any]] = {}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in self.folder.glob(f".*{SUFFIX}"):
                if time.time() - path.stat().st_mtime > LEFT_BEHIND:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise InvalidInput(f"{self.folder}: can't be written to ({error.strerror or error})") from None

    def path(self, keys: Sequence[str]) -> Path:
        """Where the chunk of these keys lies."""
        return self.folder / (digest(keys) + SUFFIX)

    def write(self, keys: Sequence[str], about: Mapping[str, Any], pieces: Iterable[NDArray[Any]] = ()) -> Path:
        """Write a chunk: what is ``about`` its keys, and its content in ``pieces`` one after the other."""
        header = {"keys": list(keys), "about": dict(about)}
        content: list[bytes | memoryview] = [
            json.dumps(header, allow_nan=False).encode() + b"\n",
            *(piece.data.cast("B") for piece in pieces),
        ]
        seal = hashlib.sha256()
        for part in content:
            seal.update(part)
        path = self.path(keys)
        with writing(path) as temporary, open(temporary, "wb") as file:
            file.write(f"{FORMAT} {seal.hexdigest()}\n".encode())
            for part in content:
                file.write(part)
        self._headers[path] = header
        self._own.add(path)
        return path

    def read(self, path: Path) -> Chunk:
        """A whole chunk, if it is what was written."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise Damaged(f"{path} ({error.strerror or error})") from None
        first = content.find(b"\n")
        name, _, seal = content[:first].decode(errors="replace").partition(" ")
        second = content.find(b"\n", first + 1)
        if first < 0 or second < 0 or name != FORMAT:
            raise Damaged(f"{path} (not a chunk)")
        if hashlib.sha256(memoryview(content)[first + 1 :]).hexdigest() != seal:
            raise Damaged(f"{path} (wrong checksum)")
        header = json.loads(content[first + 1 : second])
        return Chunk(header["keys"], header["about"], memoryview(content)[second + 1 :])

    def locate(self) -> tuple[dict[str, tuple[Path, int]], list[Path]]:
        """Where every key lies, as (chunk, row), by the headers alone; and the files that are not chunks."""
        found: dict[str, tuple[Path, int]] = {}
        broken = []
        for path in sorted(self.folder.glob(f"[!.]*{SUFFIX}")):
            if not self._counts(path):
                continue
            try:
                keys = self.header(path)["keys"]
            except FileNotFoundError:  # another sweep has just found it damaged
                continue
            except (OSError, ValueError, KeyError, TypeError):
                broken.append(path)
                continue
            found |= {key: (path, row) for row, key in enumerate(keys)}
        return found, broken

    def header(self, path: Path) -> dict[str, Any]:
        """Keys and what is written about them, not yet checked."""
        if path not in self._headers:
            with open(path, "rb") as file:
                if not file.readline().startswith(FORMAT.encode()):
                    raise ValueError("not a chunk")
                header = json.loads(file.readline())
            if not all(isinstance(key, str) for key in header["keys"]) or not isinstance(header["about"], dict):
                raise TypeError("not a header")
            self._headers[path] = header
        return self._headers[path]

    def discard(self, path: Path) -> None:
        self._headers.pop(path, None)
        path.unlink(missing_ok=True)

    def note(self, key: str, about: Mapping[str, Any]) -> None:
        """Keep a few words under one key."""
        self.write([key], about)

    def noted(self, key: str) -> dict[str, Any] | None:
        """The words kept under ``key``; None if there are none, or none that can be trusted."""
        path = self.path([key])
        try:
            return self.read(path).about if self._counts(path) else None
        except Damaged:
            return None

    def _counts(self, path: Path) -> bool:
        return not self.fresh or path in self._own


@contextmanager
def using(store: Store | None) -> Iterator[None]:
    """Within this block `nqm.sweep.run_points` keeps its runs in ``store``. No number depends on it."""
    before = _in_use.set(store)
    try:
        yield
    finally:
        _in_use.reset(before)


def in_use() -> Store | None:
    return _in_use.get()


def digest(value: Any) -> str:
    """A name for a value of plain numbers, texts, lists and dicts."""
    return hashlib.sha256(canonical(value)).hexdigest()[:32]


def canonical(value: Any) -> bytes:
    """The one spelling of a plain value: keys in order, floats by their shortest exact digits."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no canonical spelling")


@cache
def engine_version() -> str:
    """Everything that decides a number but the configuration: package, random scheme, sources, numerical libraries."""
    from importlib.metadata import version

    here = Path(__file__).parent
    sources = [path for path in sorted(here.rglob("*.py")) if path.relative_to(here).as_posix() not in UNDECIDED]
    libraries = [f"{name}-{version(name)}" for name in ("numpy", "scipy", "numba")]
    return "+".join([package_version(), SCHEME, digest_files(sources, here), *libraries])


def digest_files(paths: Sequence[Path], root: Path) -> str:
    """A name for the content of files and where below ``root`` they lie."""
    seal = hashlib.sha256()
    for path in paths:
        seal.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        seal.update(path.read_bytes())
    return seal.hexdigest()[:16]
