"""IDX, the format of MNIST and its kin: a header with the sizes, then one byte a pixel or label; gzipped or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .images import Images, bad, from_pixels

DEFLATE = 1032  # the most bytes that one byte of a deflate stream can stand for
SIDE = 28


def read_idx(path: Path, dims: int) -> NDArray[np.uint8]:
    """The array of an IDX file of unsigned bytes; sizes are believed only as far as the file can hold them."""
    zipped = path.suffix == ".gz"
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            head = file.read(4 + 4 * dims)
            if len(head) < 4 + 4 * dims or head[:3] != b"\x00\x00\x08" or head[3] != dims:
                raise bad(path, f"is no IDX file of bytes in {dims} dimensions")
            shape = struct.unpack(f">{dims}I", head[4:])
            need = math.prod(shape)
            room = path.stat().st_size * (DEFLATE if zipped else 1)
            if need > room:
                raise bad(path, f"header asks for {need} bytes, the file can hold {room}: truncated or forged")
            body = file.read(need + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise bad(path, f"can't be read ({error}): truncated or damaged") from None
    if len(body) != need:
        raise bad(path, f"header asks for {need} bytes, the file has {'more' if len(body) > need else len(body)}")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def either(folder: Path, name: str) -> Path:
    """The file as it is, or gzipped."""
    return folder / name if (folder / name).exists() else folder / f"{name}.gz"


def read(folder: Path, split: str, name: str, *, classes: int = 10, prefix: str = "", test: str = "t10k") -> Images:
    """MNIST, Fashion-MNIST (prefix "") or EMNIST, whose images are stored transposed."""
    stem = f"{prefix}{'train' if split == 'train' else test}"
    path = either(folder, f"{stem}-images-idx3-ubyte")
    pixels = read_idx(path, 3)
    if pixels.shape[1:] != (SIDE, SIDE):
        raise bad(path, f"images of {pixels.shape[1]}x{pixels.shape[2]}: must be {SIDE}x{SIDE}")
    if prefix:
        pixels = pixels.transpose(0, 2, 1)
    return from_pixels(pixels[:, None], read_idx(either(folder, f"{stem}-labels-idx1-ubyte"), 1), classes, name, path)
