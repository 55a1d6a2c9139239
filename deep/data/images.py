"""A labelled set of images, and the few things done to one: normalise, resize, rotate, invert."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

from nqm.check import InvalidInput, integer, memory, number


@dataclass(frozen=True, eq=False)
class Images:
    """A data set in memory.

    x: float32 (n, channels, height, width), in [0, 1] as read. y: int64 (n,), below `classes`.
    groups: where samples come from, int64 (n,): the writers of FEMNIST, the domains of PACS, by `group_names`.
    """

    x: Tensor
    y: Tensor
    classes: int
    name: str
    groups: Tensor | None = None
    group_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.x)
        if self.x.ndim != 4 or self.x.dtype != torch.float32:
            raise InvalidInput(f"{self.name}: x is {self.x.dtype} {tuple(self.x.shape)}: must be float32 (n, c, h, w)")
        for label, values, count in (("y", self.y, self.classes), ("groups", self.groups, len(self.group_names))):
            if values is None:
                continue
            if values.shape != (n,) or values.dtype != torch.int64:
                raise InvalidInput(
                    f"{self.name}: {label} is {values.dtype} {tuple(values.shape)}: must be int64 ({n},)"
                )
            if n and not 0 <= int(values.min()) <= int(values.max()) < count:
                raise InvalidInput(f"{self.name}: {label} must lie in 0..{count - 1}")

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        c, h, w = self.x.shape[1:]
        return c, h, w

    def take(self, index: ArrayLike) -> Images:
        """The samples of an index array, in its order."""
        at = torch.as_tensor(np.asarray(index, dtype=np.int64))
        groups = None if self.groups is None else self.groups[at]
        return dataclasses.replace(self, x=self.x[at], y=self.y[at], groups=groups)


def bad(path: Path, what: str) -> InvalidInput:
    """The exception for a file that can't be taken; the caller raises it."""
    return InvalidInput(f"{path}: {what}")


def from_pixels(pixels: NDArray, labels: ArrayLike, classes: int, name: str, source: Path, top: float = 255) -> Images:
    """Pixels (n, c, h, w) in 0..top and their labels, checked and scaled to [0, 1]."""
    y = np.asarray(labels)
    if len(y) != len(pixels):
        raise bad(source, f"{len(pixels)} images and {len(y)} labels: must be as many")
    if not len(y):
        raise bad(source, "has no images")
    # Compared as they were read: a cast could bring a wild label back into range.
    if not ((y >= 0) & (y < classes) & (y == np.floor(y))).all():
        raise bad(source, f"labels from {y.min()} to {y.max()}: must be whole numbers in 0..{classes - 1}")
    if not ((pixels >= 0) & (pixels <= top)).all():  # false for nan, too
        raise bad(source, f"pixels must lie in 0..{top:g}")
    memory(
        4 * pixels.size, f"{name}: {len(y)} images of {'x'.join(map(str, pixels.shape[1:]))}", "use fewer or smaller"
    )
    x = torch.from_numpy(pixels.astype(np.float32, order="C")).div_(top)
    return Images(x, torch.from_numpy(y.astype(np.int64)), classes, name)


def hold_out(images: Images, split: str) -> Images:
    """The train or test part of a set that has no published split: of every class (and group), in the order of the
    file, each fifth sample is for testing."""
    group = torch.zeros_like(images.y) if images.groups is None else images.groups
    kind = (group * images.classes + images.y).numpy()
    order = np.argsort(kind, kind="stable")
    starts = np.searchsorted(kind[order], kind[order])
    test = np.zeros(len(kind), dtype=bool)
    test[order] = (np.arange(len(kind)) - starts) % 5 == 4
    return images.take(np.flatnonzero(test if split == "test" else ~test))


def normalise(images: Images, like: Images | None = None) -> Images:
    """Mean 0 and variance 1 a channel, by the statistics of `like` (the training set; by default its own)."""
    x = (images if like is None else like).x
    mean, std = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True, correction=0)
    # A channel without variation carries nothing: it becomes zero.
    return dataclasses.replace(images, x=(images.x - mean) / torch.where(std > 0, std, 1.0))


def resize(images: Images, size: int, channels: int | None = None) -> Images:
    """Bilinear (averaging where it shrinks) to size x size, and one grey channel repeated where more are asked for."""
    size, x = integer("size", size, 1), images.x
    if channels is not None and channels != x.shape[1]:
        if x.shape[1] != 1:
            raise InvalidInput(f"{images.name}: {x.shape[1]} channels can't become {channels}")
        x = x.expand(-1, channels, -1, -1)
    memory(4 * len(x) * x.shape[1] * size * size, f"{images.name} at {size}x{size}", "use fewer or smaller")
    if x.shape[2:] != (size, size):
        x = interpolate(x, (size, size), mode="bilinear", align_corners=False, antialias=True).clamp(0.0, 1.0)
    return dataclasses.replace(images, x=x.contiguous())


def rotate(images: Images, degrees: float) -> Images:
    """Turned counter-clockwise about the centre, corners filled with 0; exact for multiples of 90."""
    degrees = number("degrees", degrees, -360, 360)
    name = f"{images.name}/rotated-{degrees:g}"
    if degrees % 90 == 0:
        return dataclasses.replace(images, x=torch.rot90(images.x, int(degrees // 90), (2, 3)).contiguous(), name=name)
    n, c, h, w = images.x.shape
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # Where an output pixel comes from, in coordinates that run from -1 to 1 over each side.
    theta = torch.tensor([[cos, -sin * h / w, 0.0], [sin * w / h, cos, 0.0]]).expand(n, 2, 3)
    grid = affine_grid(theta, [n, c, h, w], align_corners=False)
    return dataclasses.replace(images, x=grid_sample(images.x, grid, align_corners=False), name=name)


def invert(images: Images) -> Images:
    """Black for white."""
    return dataclasses.replace(images, x=1.0 - images.x, name=f"{images.name}/inverted")
