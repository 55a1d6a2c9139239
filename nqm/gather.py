"""From chunks to datasets: one file for a whole grid, or a point as its engine would have returned it."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .check import InvalidInput
from .draws import SCHEME
from .experiment import Experiment
from .grid import Grid
from .result import package_version, writing
from .store import Damaged, Store, canonical, engine_version
from .task import BLOCK, Piece, Request


class Variable(NamedTuple):
    dims: list[str]
    dtype: np.dtype[Any]
    attrs: dict[str, Any]


def gather(
    grid: Grid,
    request: Request,
    store: Store,
    places: dict[Path, list[tuple[int, int]]],
    out: Path,
    failed: dict[int, str],
) -> None:
    """All curves in one netCDF file, a chunk at a time; points that lack one have nan there.

    places: (unit, row) of everything that is wanted of a chunk.
    """
    import h5netcdf

    abouts = {}
    for path in places:
        try:
            abouts[path] = store.header(path)["about"]
        except (OSError, ValueError, KeyError, TypeError):
            raise Damaged(f"{path} (not a chunk)") from None
    sizes, coords, variables, whole = _shape(grid, request, abouts.values())
    whole = whole and not failed
    try:
        with writing(out) as temporary:
            _reserve(temporary, sizes, variables)
            with h5netcdf.File(temporary, "w") as file:
                file.dimensions = sizes
                for name, values in coords.items():
                    file.create_variable(name, (name,), values.dtype, data=values)
                for name, v in variables.items():
                    missing = None if whole else v.dtype.type(np.nan if v.dtype.kind == "f" else np.iinfo(v.dtype).min)
                    file.create_variable(name, ("point", *v.dims), v.dtype, fillvalue=missing).attrs.update(v.attrs)
                _write_labels(file, grid, places, abouts, request, failed)
                for path in places:
                    _write_chunk(file, store, path, places[path], request, variables)
    except InvalidInput as error:
        raise InvalidInput(f"{error}; all runs are kept in {store.folder}") from None


def _reserve(path: Path, sizes: dict[str, int], variables: dict[str, Variable]) -> None:
    """Find out that a disk is full before HDF5 does, which may not survive it."""
    numbers = sum(math.prod(sizes[dim] for dim in ("point", *v.dims)) for v in variables.values())
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, 8 * numbers + 64 * sizes["point"])


def _shape(
    grid: Grid, request: Request, abouts: Iterable[dict[str, Any]]
) -> tuple[dict[str, int], dict[str, Any], dict[str, Variable], bool]:
    """Sizes, coordinates and variables that hold all forms of curves, and whether there is but one form."""
    sizes: dict[str, int] = {"point": len(grid)}
    coords: dict[str, Any] = {}
    if request.engine != "expect":
        coords["seed"] = np.array(request.seeds, dtype=np.int64)
        sizes["seed"] = len(request.seeds)
    variables: dict[str, Variable] = {}
    forms = {}
    for about in abouts:
        shape = {
            name: (v["dims"], [n for d, n in zip(v["dims"], v["shape"], strict=True) if d != "seed"])
            for name, v in about["variables"].items()
        }
        forms[canonical(shape)] = about
    for about in forms.values():
        for name, v in about["variables"].items():
            known = variables.get(name)
            dims = v["dims"] if known is None or len(v["dims"]) > len(known.dims) else known.dims
            variables[name] = Variable(dims, np.dtype(v["dtype"]), v["attrs"])
            for dim, n in zip(v["dims"], v["shape"], strict=True):
                if dim != "seed":
                    sizes[dim] = max(sizes.get(dim, 0), n)
        for name, values in about["coords"].items():
            if name not in coords or len(values) > len(coords[name]):
                coords[name] = np.array(values)
    return sizes, coords, variables, len(forms) == 1


def _write_chunk(
    file: Any, store: Store, path: Path, places: list[tuple[int, int]], request: Request, variables: dict[str, Variable]
) -> None:
    """Rows of a chunk to where their units belong, neighbours together."""
    chunk = store.read(path)
    per = len(request.blocks)
    runs = list(_runs(places, per))
    for name, values in zip(chunk.about["variables"], _arrays(chunk), strict=True):
        about, v = chunk.about["variables"][name], variables[name]
        own = [dim in about["dims"] for dim in v.dims]
        shape = iter(about["shape"])
        inner = [next(shape) if there else 1 for there in own]
        values = values.reshape(len(chunk.keys), *inner)
        for first, row, count in runs:
            point, block = divmod(first, per)
            index: list[Any] = [slice(point, point + count)]
            for dim, n in zip(v.dims, inner, strict=True):
                at = block * BLOCK if dim == "seed" else 0
                index.append(slice(at, at + n))
            file[name][tuple(index)] = values[row : row + count]


def _runs(places: list[tuple[int, int]], per: int) -> Iterator[tuple[int, int, int]]:
    """Places as (first unit, first row, count): neighbouring points in neighbouring rows."""
    places = sorted(places, key=lambda place: (place[0] % per, place[0]))
    start = 0
    for i in range(1, len(places) + 1):
        if i == len(places) or places[i][0] != places[i - 1][0] + per or places[i][1] != places[i - 1][1] + 1:
            yield *places[start], i - start
            start = i


def _arrays(chunk: Any) -> Iterator[np.ndarray[Any, Any]]:
    """The arrays of a chunk, (keys, ...), without a copy."""
    at = 0
    for v in chunk.about["variables"].values():
        shape = (len(chunk.keys), *v["shape"])
        values = np.frombuffer(chunk.content, v["dtype"], int(np.prod(shape)), at).reshape(shape)
        at += values.nbytes
        yield values


def _write_labels(
    file: Any,
    grid: Grid,
    all_places: dict[Path, list[tuple[int, int]]],
    abouts: dict[Path, dict[str, Any]],
    request: Request,
    failed: dict[int, str],
) -> None:
    """The varied fields as coordinates of ``point``, what an engine says of its results, the configuration."""
    for name in grid.fields:
        _write_column(file, name, *grid.column(name))
    said: dict[str, dict[int, str]] = {}
    for path, places in all_places.items():
        for name, value in abouts[path]["attributes"].items():
            said.setdefault(name, {}).update((unit // len(request.blocks), value) for unit, _ in places)
    for name, of_point in said.items():
        values = list(dict.fromkeys([*of_point.values(), *([""] if len(of_point) < len(grid) else [])]))
        if len(values) == 1:
            file.attrs[name] = values[0]
        else:
            _write_column(file, name, values, np.array([values.index(of_point.get(i, "")) for i in range(len(grid))]))
    if failed:
        told = ["", *dict.fromkeys(failed.values())]
        _write_column(file, "error", told, np.array([told.index(failed.get(i, "")) for i in range(len(grid))]))
    file.attrs.update(
        {
            "engine": grid.engine,
            "grid": json.dumps(grid.plain(), ensure_ascii=False),
            "version": package_version(),
            "engine_version": engine_version(),
            "random_scheme": SCHEME,
            "coordinates": " ".join(grid.fields),
        }
    )


def _write_column(file: Any, name: str, values: list[Any], which: NDArray[np.int64]) -> None:
    """One of ``values`` a point: as numbers if all are, else as text, with lists in JSON; None is nan, or nothing."""
    import h5py

    there = [x for x in values if x is not None]
    if all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in there):
        numbers = np.array(there) if len(there) == len(values) else np.array(values, dtype=float)
        if numbers.dtype.kind in "if":  # a whole number beyond 64 bits is neither
            file.create_variable(name, ("point",), numbers.dtype, data=numbers[which])
            return
    texts = ["" if x is None else x if isinstance(x, str) else json.dumps(x) for x in values]
    file.create_variable(name, ("point",), h5py.string_dtype(), data=np.array(texts, dtype=object)[which])


def read_one(store: Store, found: dict[str, tuple[Path, int]], key: str) -> Piece | None:
    """A unit from the store; a damaged chunk is as good as none."""
    if key not in found:
        return None
    path, row = found[key]
    try:
        chunk = store.read(path)
    except Damaged as damage:
        print(f"damaged, made again: {damage}", file=sys.stderr)
        store.discard(path)
        return None
    return Piece([0], chunk.about, [values[row : row + 1] for values in _arrays(chunk)])


def point_dataset(request: Request, experiment: Experiment, pieces: list[Piece]) -> xr.Dataset:
    """One point's blocks as a dataset, as the engine itself would have returned it."""
    about = pieces[0].about
    variables = {}
    for i, (name, v) in enumerate(about["variables"].items()):
        parts = [piece.arrays[i][0] for piece in pieces]
        along = v["dims"].index("seed") if "seed" in v["dims"] else None
        variables[name] = (v["dims"], parts[0] if along is None else np.concatenate(parts, axis=along), v["attrs"])
    coords = dict(about["coords"])
    if request.engine != "expect":
        coords["seed"] = np.array(request.seeds, dtype=np.int64)
    attrs = {
        "engine": request.engine,
        "experiment": json.dumps(experiment.config()),
        "version": package_version(),
        "random_scheme": SCHEME,
    }
    return xr.Dataset(variables, coords=coords, attrs=attrs | about["attributes"])
