"""MATLAB files of version 5: SVHN (cropped digits) and USPS (the resampled set).

Read here and not by SciPy, whose reader can take Python down with it when a file is damaged. A file is a header of 128
bytes and elements of (type, size, data); an array is an element of elements: flags, dimensions, name, numbers; and
any element may be a zlib stream of another. Arrays of numbers are all that is read.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .idx import DEFLATE
from .images import Images, bad, from_pixels

# Types of elements that hold numbers, and the two that hold elements.
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
MATRIX, ZLIB = 14, 15
CLASSES = range(6, 14)  # arrays of double, single and the integers up to 32 bits; 2 is a struct, 17 an object
COMPLEX = 0x0800
Shape = tuple[int | None, ...]


class _Damaged(Exception):
    """What is wrong with an element."""


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """(type, content) of the elements that fill ``data``."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise _Damaged("ends within an element")
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16:  # type, size and up to four bytes of content in eight bytes
            kind, size, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
            if size > 4:
                raise _Damaged(f"has a short element of {size} bytes")
        else:
            start = at + 8
            end = start + size + (-size % 8 if kind != ZLIB else 0)
        if start + size > len(data):
            raise _Damaged(f"has an element of {size} bytes, {len(data) - start} are left")
        yield kind, data[start : start + size]
        at = end


def _unzip(data: memoryview, order: str) -> tuple[int, memoryview]:
    """The element inside a zlib stream; its stated size bounds what is unpacked."""
    stream = zlib.decompressobj()
    head = stream.decompress(data, 8)
    if len(head) < 8:
        raise _Damaged("has an empty zlib stream")
    kind, size = struct.unpack(f"{order}II", head)
    if size > DEFLATE * len(data):
        raise _Damaged(f"asks for {size} bytes from a zlib stream of {len(data)}")
    body = stream.decompress(stream.unconsumed_tail, size) if size else b""
    if len(body) != size:
        raise _Damaged(f"has a zlib stream of {len(body)} bytes where {size} are stated")
    return kind, memoryview(body)


def _array(data: memoryview, order: str, wanted: dict[str, Shape]) -> tuple[str, NDArray] | None:
    """Name and numbers of an array that is wanted; None for any other."""
    parts = _elements(data, order)
    (_, flags), (_, dims), (_, letters) = next(parts), next(parts), next(parts)
    name = bytes(letters).decode("latin-1")
    if name not in wanted:
        return None
    if len(flags) != 8 or len(dims) % 4:
        raise _Damaged(f"{name} has no flags or dimensions")
    flag = struct.unpack_from(f"{order}I", flags)[0]
    shape = struct.unpack(f"{order}{len(dims) // 4}i", dims)
    want = wanted[name]
    fits = len(shape) == len(want) and all(w in (None, n) and n >= 0 for n, w in zip(shape, want, strict=True))
    if flag & 0xFF not in CLASSES or flag & COMPLEX or not fits:
        raise _Damaged(
            f"{name} is of class {flag & 0xFF} and shape {shape}: must be numbers {want}".replace("None", "n")
        )
    kind, content = next(parts)
    if kind not in NUMBERS:
        raise _Damaged(f"{name} holds elements of type {kind}: must be numbers")
    dtype = np.dtype(f"{order}{NUMBERS[kind]}")
    if math.prod(shape) * dtype.itemsize != len(content):
        raise _Damaged(
            f"{name} states {math.prod(shape)} numbers of {dtype.itemsize} bytes, and has {len(content)} bytes"
        )
    return name, np.frombuffer(content, dtype).reshape(shape, order="F")


def read_mat(path: Path, wanted: dict[str, Shape]) -> dict[str, NDArray]:
    """Arrays of numbers by name; None in a shape stands for any length."""
    data = memoryview(path.read_bytes())
    order = {b"IM": "<", b"MI": ">"}.get(bytes(data[126:128]), "")
    if not order or struct.unpack_from(f"{order}H", data, 124)[0] != 0x0100:
        raise bad(path, "is no MATLAB file of version 5, which is the published one")
    found: dict[str, NDArray] = {}
    try:
        for kind, content in _elements(data[128:], order):
            if kind == ZLIB:
                kind, content = _unzip(content, order)
            array = _array(content, order, wanted) if kind == MATRIX else None
            if array is not None:
                found[array[0]] = array[1]
    except (_Damaged, zlib.error) as error:
        raise bad(path, f"{error}: truncated or damaged") from None
    except StopIteration:
        raise bad(path, "has an array without its parts: damaged") from None
    for name in wanted:
        if name not in found:
            raise bad(path, f"{name} is not in it")
    return found


def read_svhn(folder: Path, split: str, name: str) -> Images:
    """32 x 32 colour images, the digit 0 labelled 10."""
    path = folder / f"{split}_32x32.mat"
    data = read_mat(path, {"X": (32, 32, 3, None), "y": (None, 1)})
    labels = data["y"][:, 0]
    if not ((labels >= 1) & (labels <= 10)).all():
        raise bad(path, f"labels from {labels.min()} to {labels.max()}: must lie in 1..10")
    return from_pixels(data["X"].transpose(3, 2, 0, 1), labels % 10, 10, name, path)


def read_usps(folder: Path, split: str, name: str) -> Images:
    """16 x 16 images in [-1, 1], labels as one +1 among ten -1."""
    path = folder / "usps_resampled.mat"
    data = read_mat(path, {f"{split}_patterns": (256, None), f"{split}_labels": (10, None)})
    pixels, marks = data[f"{split}_patterns"], data[f"{split}_labels"]
    if not (np.isin(marks, (-1, 1)).all() and ((marks == 1).sum(0) == 1).all()):
        raise bad(path, f"{split}_labels must have one 1 a column, and -1 else")
    return from_pixels((pixels.T.reshape(-1, 1, 16, 16) + 1.0) / 2.0, marks.argmax(0), 10, name, path, top=1.0)
