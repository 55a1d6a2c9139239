"""FEMNIST in LEAF's JSON: handwritten characters with their writers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nqm.check import InvalidInput, memory

from .images import Images, bad, from_pixels

CLASSES = 62
PIXELS = 28 * 28


def read_femnist(folder: Path, split: str, name: str) -> Images:
    """All JSON files of ``folder``/train or test; groups are the writers, in the order of their names."""
    paths = sorted((folder / split).glob("*.json"))
    people: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for path in paths:
        # A number of the text becomes an object of about 32 bytes and takes at least two characters.
        memory(16 * path.stat().st_size, f"{path}", "split the file by users")
        try:
            data = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise bad(path, f"is no JSON ({error})") from None
        for user, samples in _users(data, path):
            if user in people:
                raise bad(path, f"user {user!r} appears twice")
            people[user] = samples
    if not people:
        raise bad(folder / split, "has no users")
    names = tuple(sorted(people))
    pixels = np.concatenate([people[user][0] for user in names])
    labels = np.concatenate([people[user][1] for user in names])
    groups = np.repeat(np.arange(len(names)), [len(people[user][1]) for user in names])
    images = from_pixels(pixels.reshape(-1, 1, 28, 28), labels, CLASSES, name, folder / split, top=1.0)
    return dataclasses.replace(images, groups=torch.from_numpy(groups), group_names=names)


def _users(data: Any, path: Path) -> list[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """The samples of every user of one file, after the file's own account of itself."""
    try:
        users, counts, content = data["users"], data["num_samples"], data["user_data"]
        if set(users) != set(content) or len(users) != len(counts):
            raise bad(path, "users, num_samples and user_data name different users")
        result = []
        for user, count in zip(users, counts, strict=True):
            x, y = np.array(content[user]["x"], dtype=np.float32), np.array(content[user]["y"])
            if x.shape != (count, PIXELS) or y.shape != (count,) or y.dtype.kind not in "iu":
                raise bad(path, f"user {user!r}: must have {count} samples of {PIXELS} pixels, each with a whole label")
            result.append((str(user), (x, y)))
        return result
    except InvalidInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise bad(path, f"is not LEAF's format ({error!r})") from None
