"""Who has which samples, and when: index arrays into a data set, a function of the seed alone.

A part is an array of sample numbers. A federation is a list of parts, one a client; where data move with time it is a
list of such lists. Every draw comes from a generator named by the seed and what it is for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nqm.check import InvalidInput, fail, integer, number

from .draws import numpy_generator as generator

Index = NDArray[np.int64]
Floats = NDArray[np.float64]

SMALLEST_ALPHA = 1e-6  # one class a part long before; log-weights stay finite for millions of classes


# --- Algorithms 4 to 6 of `cfl` -----------------------------------------------------------------------------------


def renormalise(theta: ArrayLike, i: int) -> Floats:
    """The weights of the other classes once class i is used up: theta_j / sum of theta_l over l != i (Algorithm 5).

    In print the divisor is sum(theta / theta[i]) = 1/theta[i], so that the rest would sum to theta_i (1 - theta_i)
    and could not be drawn from; it is also taken again inside the loop that changes theta. Read as a set difference,
    the divisor is right if it is taken once. And theta keeps its entry i while Algorithm 6 takes the class out of G,
    after which theta[j] and G[j] name different classes: here the entry leaves, too.
    """
    rest = np.delete(np.asarray(theta, dtype=float), i)
    total = rest.sum()
    if not total > 0:
        raise fail("theta", list(rest), "the remaining weights must have a positive sum")
    return rest / total


def _log_dirichlet(rng: np.random.Generator, concentration: Floats) -> Floats:
    """Logarithms of a Dirichlet draw, up to a constant: log Gamma(a) = log Gamma(a + 1) + log(U) / a in law.

    With small concentrations the weights themselves underflow to zero, and nothing is left to renormalise.
    """
    gammas = rng.standard_gamma(concentration + 1.0)
    return np.log(gammas) - rng.standard_exponential(len(concentration)) / concentration


def _weights(logs: Floats) -> Floats:
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def lda(
    index: ArrayLike, labels: ArrayLike, sizes: Sequence[int], alpha: float, rng: np.random.Generator
) -> list[Index]:
    """Parts of the given sizes, each with its own mixture of classes (Algorithm 6).

    Part m draws theta ~ Dirichlet(alpha p), p the fractions of the classes in all of `index` (the prior of Hsu et
    al.), then sample after sample: a class by theta, an unused sample of that class uniformly. A class that runs out
    is removed and theta renormalised; a class that ran out earlier takes no part in the draw, which is the same in
    law, since the rest of a Dirichlet vector, renormalised, is Dirichlet again.

    The last parts take what the others left: with everything handed out they differ from p even as alpha grows.

    labels: of the samples in `index`, in the same order. Samples beyond sum(sizes) stay unused. A part is in the order
    in which it was drawn.
    """
    index, labels = np.asarray(index, dtype=np.int64), np.asarray(labels)
    alpha = number("alpha", alpha, SMALLEST_ALPHA)
    if sum(sizes) > len(index):
        raise InvalidInput(f"parts of {sum(sizes)} samples in all: there are {len(index)}")
    classes, counts = np.unique(labels, return_counts=True)
    prior = counts / max(len(index), 1)
    # A random order a class: taking the next one is a uniform draw without replacement.
    stock = [rng.permutation(index[labels == c]) for c in classes]
    used = np.zeros(len(classes), dtype=np.int64)
    parts = []
    for size in sizes:
        live = np.flatnonzero(used < counts)  # G
        logs = _log_dirichlet(rng, alpha * prior[live])
        uniform = rng.random(size)
        part = np.empty(size, dtype=np.int64)
        done = 0
        while done < size:
            # All that is left is drawn at once, and kept up to the draw that empties a class.
            cuts = np.cumsum(_weights(logs))
            drawn = np.minimum(np.searchsorted(cuts, uniform[done:], side="right"), len(live) - 1)
            last, empty = len(drawn), None
            for k, c in enumerate(live):
                hits = np.flatnonzero(drawn == k)
                left = counts[c] - used[c]
                if len(hits) >= left and hits[left - 1] < last:
                    last, empty = int(hits[left - 1]) + 1, k
            for k, c in enumerate(live):
                hits = np.flatnonzero(drawn[:last] == k)
                part[done + hits] = stock[c][used[c] : used[c] + len(hits)]
                used[c] += len(hits)
            done += last
            if empty is not None:  # Algorithm 5, in logarithms
                live, logs = np.delete(live, empty), np.delete(logs, empty)
        parts.append(part)
    return parts


def even(total: int, parts: int) -> list[int]:
    """Sizes that differ by at most one and sum to ``total``."""
    return [total // parts + (k < total % parts) for k in range(parts)]


def evolving(
    labels: ArrayLike,
    alpha: float,
    *,
    clients: int = 7,
    subsets: int = 30,
    beta: float | None = None,
    size: int | None = None,
    seed: int = 0,
) -> list[list[Index]]:
    """Each client's disjoint subsets, [client][subset]: the time-evolving data of `cfl` (Algorithm 4).

    The data are split between the clients with concentration alpha, then each client's among its subsets with beta
    (alpha unless given). In print, the second split has an undefined number of parts (``cluster_num``) of the size
    of an undefined D_m over T: here `subsets` parts of client i's data.

    size: of every subset, with the rest of the data unused; by default everything is handed out, in sizes that
    differ by at most one.
    """
    labels = np.asarray(labels)
    clients, subsets = integer("clients", clients, 1), integer("subsets", subsets, 1)
    if size is None:
        if len(labels) < clients * subsets:
            raise InvalidInput(f"{clients} x {subsets} subsets of {len(labels)} samples: lower clients or subsets")
        # Sizes of all subsets first, so that they differ by one between clients, too.
        small = even(len(labels), clients * subsets)
        sizes = [small[i::clients] for i in range(clients)]
    else:
        sizes = [[integer("size", size, 1)] * subsets] * clients
    first = lda(np.arange(len(labels)), labels, [sum(s) for s in sizes], alpha, generator(seed, "clients"))
    second = alpha if beta is None else beta
    return [lda(first[i], labels[first[i]], sizes[i], second, generator(seed, "subsets", i)) for i in range(clients)]


def drawn_subsets(rounds: int, clients: int = 7, subsets: int = 30, *, seed: int = 0) -> Index:
    """Which subset each client trains on in each round, (rounds, clients): uniform, independent, with repetition."""
    rounds, clients = integer("rounds", rounds, 0), integer("clients", clients, 1)
    subsets = integer("subsets", subsets, 1)
    draws = [generator(seed, "drawn", t).integers(subsets, size=clients) for t in range(rounds)]
    return np.array(draws, dtype=np.int64).reshape(rounds, clients)


def moving_window(subsets: Sequence[Index], rounds: int, overlap: float, size: int | None = None) -> list[Index]:
    """One client's data of every round: a window over its subsets in sequence (`cfl`, Appendix C.1.1, Figure 4).

    The window starts at a pointer that moves on by (1 - overlap) of the window each round, and comes back to the
    start when the window would not fit any more. size: of the window, by default that of the smallest subset.
    The paper's step of 213 or 142 samples in a window of 285 is an overlap of 25 or 50 per cent, rounded down. (285
    is 60,000 / 210; CIFAR-10, of which it is said, has 50,000 images for training and gives 238.)
    """
    overlap = number("overlap", overlap, 0.0, 1.0, open_high=True)
    sequence = np.concatenate(subsets) if len(subsets) else np.zeros(0, dtype=np.int64)
    size = min((len(s) for s in subsets), default=0) if size is None else size
    size = integer("size", size, 1)
    if size > len(sequence):
        raise fail("size", size, f"must be at most the {len(sequence)} samples of the client")
    # A decimal such as 0.9 must not lose a sample to its last bit.
    step = max(1, int(np.floor((1.0 - overlap) * size + 1e-9)))
    windows, start = [], 0
    for _ in range(integer("rounds", rounds, 0)):
        windows.append(sequence[start : start + size])
        start += step
        if start + size > len(sequence):
            start = 0
    return windows


def stateless(labels: ArrayLike, alpha: float, *, clients: int, size: int, round: int, seed: int = 0) -> list[Index]:
    """The data of the clients of one round, none of whom is seen again: Algorithm 6 anew on the whole data set
    (`cfl`, Section 5.3.4). Within a round the clients share no sample."""
    labels = np.asarray(labels)
    sizes = [integer("size", size, 1)] * integer("clients", clients, 1)
    rng = generator(seed, "stateless", integer("round", round, 0))
    return lda(np.arange(len(labels)), labels, sizes, alpha, rng)


# --- Dirichlet by class -------------------------------------------------------------------------------------------


def dirichlet(labels: ArrayLike, alpha: float, *, clients: int, least: int = 1, seed: int = 0) -> list[Index]:
    """Each class is shared out by its own Dirichlet(alpha) over the clients: sizes differ, every sample is used once.

    The partition of `special` and `cflag` (there zeta). least: a client with fewer samples takes them from the
    largest, so that nobody is left with nothing to train on; 0 leaves the draw as it is.
    """
    labels = np.asarray(labels)
    return _dirichlet(np.arange(len(labels)), labels, alpha, clients, least, generator(seed, "dirichlet"))


def dirichlet_by_task(
    labels: ArrayLike, tasks: Sequence[Index], alpha: float, *, clients: int, least: int = 1, seed: int = 0
) -> list[list[Index]]:
    """The samples of every task shared out among the same clients, [task][client], each task by its own draw."""
    labels = np.asarray(labels)
    return [
        _dirichlet(task, labels[task], alpha, clients, least, generator(seed, "dirichlet-task", k))
        for k, task in enumerate(tasks)
    ]


def _dirichlet(
    index: Index, labels: NDArray, alpha: float, clients: int, least: int, rng: np.random.Generator
) -> list[Index]:
    alpha = number("alpha", alpha, SMALLEST_ALPHA)
    clients, least = integer("clients", clients, 1), integer("least", least, 0)
    if clients * least > len(index):
        raise fail("clients", clients, f"{least} samples each need more than the {len(index)} there are")
    shares: list[list[Index]] = [[] for _ in range(clients)]
    for c in np.unique(labels):
        samples = rng.permutation(index[labels == c])
        weights = _weights(_log_dirichlet(rng, np.full(clients, alpha)))
        cuts = np.rint(np.cumsum(weights)[:-1] * len(samples)).astype(np.int64)
        for share, part in zip(shares, np.split(samples, cuts), strict=True):
            share.append(part)
    parts = [np.concatenate(share) if share else np.zeros(0, dtype=np.int64) for share in shares]
    for k in range(clients):
        while len(parts[k]) < least:
            rich = max(range(clients), key=lambda j: len(parts[j]))
            at = int(rng.integers(len(parts[rich])))
            parts[k] = np.append(parts[k], parts[rich][at])
            parts[rich] = np.delete(parts[rich], at)
    return [np.sort(part) for part in parts]


# --- tasks and users ----------------------------------------------------------------------------------------------


def class_tasks(classes: int, tasks: int, *, shuffle: bool = False, seed: int = 0) -> list[tuple[int, ...]]:
    """The classes of every task, the same number each (`cflag`: 5 tasks of 2 or of 20 classes, 10 of 20).

    Task- and class-incremental learning share this split. They differ in what the network is told: a head of its
    own a task with labels counted within the task (`within`), or one head over all classes and labels as they are.
    """
    classes, tasks = integer("classes", classes, 1), integer("tasks", tasks, 1)
    if classes % tasks:
        raise fail("tasks", tasks, f"must divide the number of classes, {classes}")
    order = generator(seed, "classes").permutation(classes) if shuffle else np.arange(classes)
    return [tuple(sorted(int(c) for c in part)) for part in order.reshape(tasks, -1)]


def of_classes(labels: ArrayLike, classes: Sequence[int]) -> Index:
    """The samples of the given classes, in order: of a training or of a test set."""
    return np.flatnonzero(np.isin(np.asarray(labels), list(classes)))


def within(labels: ArrayLike, classes: Sequence[int]) -> Index:
    """Labels counted within a task: its smallest class is 0, the next 1."""
    labels, known = np.asarray(labels), np.array(sorted(classes))
    if not np.isin(labels, known).all():
        raise fail("labels", sorted(set(labels.tolist()) - set(classes)), f"must be classes of the task {tuple(known)}")
    return np.searchsorted(known, labels).astype(np.int64)


def users(groups: ArrayLike, least: int = 1) -> list[Index]:
    """One client a natural user (the writers of FEMNIST), in the order of their numbers; those with fewer than
    `least` samples are left out."""
    groups, least = np.asarray(groups), integer("least", least, 1)
    order = np.argsort(groups, kind="stable").astype(np.int64)
    _, starts = np.unique(groups[order], return_index=True)
    return [part for part in np.split(order, starts[1:]) if len(part) >= least] if len(groups) else []
