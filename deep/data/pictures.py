"""Pictures in folders: TinyImageNet, PACS, VLCS, DomainNet. PNG and JPEG alone are read, of a bounded size."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from nqm.check import fail, memory

from .images import Images, bad, from_pixels, hold_out

SUFFIXES = {".png", ".jpg", ".jpeg"}
MOST_PIXELS = 1 << 26
MOST_TEXT = 100_000_000  # bytes of a list of files

DOMAINS = {
    "pacs": ("photo", "art_painting", "cartoon", "sketch"),
    "vlcs": ("VOC2007", "LabelMe", "Caltech101", "SUN09"),
    "domainnet": ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
}


def decode(path: Path, size: int | None = None) -> NDArray[np.uint8]:
    """RGB pixels (height, width, 3) of a picture, resized to size x size if asked; its header is checked first."""
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise bad(path, f"is {picture.width}x{picture.height}: at most {MOST_PIXELS} pixels are read")
            colours = picture.convert("RGB")
            if size is not None and colours.size != (size, size):
                colours = colours.resize((size, size), Image.Resampling.BILINEAR)
            return np.asarray(colours)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise bad(path, f"is no readable picture ({error})") from None


def collect(files: Sequence[tuple[Path, int]], size: int, classes: int, name: str, source: Path) -> Images:
    """The pictures of a list of (path, label), all at one size."""
    if not files:
        raise bad(source, "has no pictures")
    memory(5 * len(files) * 3 * size * size, f"{name}: {len(files)} pictures at {size}x{size}", "lower the size")
    pixels = np.empty((len(files), 3, size, size), dtype=np.uint8)
    for k, (path, _) in enumerate(files):
        pixels[k] = decode(path, size).transpose(2, 0, 1)
    return from_pixels(pixels, [label for _, label in files], classes, name, source)


def lines(path: Path) -> list[str]:
    if path.stat().st_size > MOST_TEXT:
        raise bad(path, "is too long for a list of files")
    try:
        return [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise bad(path, "is no text") from None


def below(folder: Path, name: str, source: Path) -> Path:
    """folder/name, where `source` names the file; names that lead out of the folder are refused."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise bad(source, f"names {name!r}, outside its folder")
    if not (folder / path).is_file():
        raise bad(source, f"names {name!r}, which is not there")
    return folder / path


def read_tinyimagenet(folder: Path, split: str, name: str, size: int | None) -> Images:
    """200 classes; testing on the published validation set, as the test labels are not published."""
    ids = [line.strip() for line in lines(folder / "wnids.txt")]
    if len(set(ids)) != len(ids) or not all(wnid.isalnum() for wnid in ids):
        raise bad(folder / "wnids.txt", "must name every class once, by letters and digits")
    label = {wnid: k for k, wnid in enumerate(sorted(ids))}
    files: list[tuple[Path, int]] = []
    if split == "train":
        for wnid, k in label.items():
            files += [(path, k) for path in pictures(folder / "train" / wnid / "images")]
    else:
        source = folder / "val" / "val_annotations.txt"
        for line in lines(source):
            file, wnid, *_ = [*line.split("\t"), ""]
            if wnid not in label:
                raise bad(source, f"gives {file!r} the class {wnid!r}, which is not in wnids.txt")
            files.append((below(folder / "val" / "images", file, source), label[wnid]))
    return collect(files, size or 64, len(ids), name, folder)


def pictures(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise bad(folder, "is not there")
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def read_domains(folder: Path, split: str, name: str, size: int | None) -> Images:
    """All domains of PACS, VLCS or DomainNet, or the one after the slash in ``name``; groups are the domains.

    DomainNet comes with its split (`<domain>_train.txt`, `<domain>_test.txt`); of the others each fifth picture of
    every class is for testing.
    """
    base, _, one = name.partition("/")
    known = DOMAINS[base]
    if one and one not in known:
        raise fail("data", name, f"the domains of {base} are " + ", ".join(known))
    wanted = (one,) if one else known
    if base == "domainnet":
        label = _listed_classes(folder, known)
    else:
        # Numbers in the sorted list of all class folders, so that domains share their labels.
        there = [folder / domain for domain in known if (folder / domain).is_dir()]
        label = {
            c: k for k, c in enumerate(sorted({d.name for domain in there for d in domain.iterdir() if d.is_dir()}))
        }
    files: list[tuple[Path, int]] = []
    groups: list[int] = []
    for number, domain in enumerate(wanted):
        if base == "domainnet":
            source = folder / f"{domain}_{split}.txt"
            found = [(below(folder, file, source), k) for file, _, k in _entries(source)]
        else:
            own = [(folder / domain / c, k) for c, k in label.items() if (folder / domain / c).is_dir()]
            found = [(picture, k) for directory, k in own for picture in pictures(directory)]
        if not found:
            raise bad(folder / domain, "has no pictures")
        files += found
        groups += [number] * len(found)
    images = collect(files, size or 224, len(label), name, folder)
    images = dataclasses.replace(images, groups=torch.tensor(groups), group_names=wanted)
    return images if base == "domainnet" else hold_out(images, split)


def _entries(source: Path) -> list[tuple[str, str, int]]:
    """(file, class, label) of the lines ``domain/class/picture.jpg label`` of one of DomainNet's lists."""
    entries = []
    for line in lines(source):
        file, _, label = line.rpartition(" ")
        parts = Path(file).parts
        if len(parts) != 3 or not label.isascii() or not label.isdigit() or len(label) > 4:
            raise bad(source, f"{line!r}: must be domain/class/picture and a label")
        entries.append((file, parts[1], int(label)))
    return entries


def _listed_classes(folder: Path, domains: Sequence[str]) -> dict[str, int]:
    """The label of every class by all lists that are there: one a class, and no number left out."""
    label: dict[str, int] = {}
    for source in (folder / f"{domain}_{split}.txt" for domain in domains for split in ("train", "test")):
        for file, name, k in _entries(source) if source.is_file() else ():
            if label.setdefault(name, k) != k:
                raise bad(source, f"{file!r} has label {k}: its class has {label[name]} elsewhere")
    if sorted(label.values()) != list(range(len(label))):
        raise bad(folder, f"the lists give {len(label)} classes labels that are not 0..{len(label) - 1}, each once")
    return label
