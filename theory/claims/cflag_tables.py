"""`cflag`: what the text says of its own tables, recomputed from their entries."""

from __future__ import annotations

from hypothesis import strategies as st

from .ledger import Case, Comparison, claim, untested

# Tables 2 and 3, task-incremental: accuracy and forgetting on Split-CIFAR10, Split-CIFAR100, Split-TinyImageNet.
NON_IID = {
    "Fine-FL": [54.10, 6.08, 38.66, 20.87, 23.72, 23.85],
    "EWC-FL": [53.55, 5.22, 38.83, 19.20, 26.94, 20.29],
    "NCCL-FL": [63.35, 12.37, 32.25, 29.49, 28.49, 8.73],
    "Erg-FL": [79.11, 8.32, 31.25, 32.40, 21.90, 19.67],
    "C-FLAG": [65.02, 5.82, 43.47, 16.76, 28.63, 9.52],
}
IID = {
    "Fine-FL": [72.64, 26.51, 49.82, 30.00, 30.17, 31.91],
    "EWC-FL": [75.98, 22.34, 50.48, 30.16, 33.18, 28.38],
    "NCCL-FL": [83.43, 17.10, 41.65, 39.23, 28.93, 9.51],
    "FedTrk": [79.86, 17.62, 29.85, 18.11, 33.32, 28.57],
    "Erg-FL": [84.01, 16.50, 38.70, 43.66, 31.25, 32.40],
    "C-FLAG": [89.28, 7.23, 66.85, 7.30, 44.30, 7.65],
}
# Table 7, class-incremental: accuracy and forgetting on Split-CIFAR10 and Split-CIFAR100.
CLASSES_NON_IID = {
    "Finetune-FL": [14.18, 2.31, 16.24, 45.50],
    "EWC-FL": [12.92, 6.12, 17.25, 40.26],
    "LwF-FL": [12.45, 5.62, 22.38, 31.07],
    "iCARL-FL": [15.84, 50.75, 21.40, 32.46],
    "TARGET": [13.68, 9.73, 23.22, 27.65],
    "NCCL-FL": [14.42, 76.93, 9.96, 47.76],
    "FedTrack": [12.21, 61.89, 3.53, 17.83],
    "C-FLAG": [17.06, 43.04, 13.94, 51.49],
}
CLASSES_IID = {
    "Finetune-FL": [24.25, 55.54, 20.04, 65.67],
    "EWC-FL": [25.28, 57.04, 22.20, 62.69],
    "LwF-FL": [43.01, 32.07, 35.86, 35.72],
    "iCARL-FL": [47.98, 49.92, 24.13, 48.89],
    "TARGET": [20.08, 21.56, 31.04, 26.75],
    "NCCL-FL": [16.91, 93.15, 12.40, 60.61],
    "FedTrack": [14.54, 81.48, 5.49, 22.02],
    "C-FLAG": [26.37, 7.66, 31.68, 47.97],
}
TABLES = {"2": NON_IID, "3": IID, "7 non-IID": CLASSES_NON_IID, "7 IID": CLASSES_IID}
TASKS = [5, 5, 10]  # of the three data sets
# Table 8: clients, then accuracy and forgetting on Split-CIFAR10 (IID) and Split-CIFAR100 (non-IID).
TABLE_8 = {
    50: [90.67, 2.39, 35.20, 2.28],
    25: [90.77, 3.53, 32.60, 4.27],
    15: [91.05, 4.28, 35.48, 6.38],
    10: [90.52, 5.22, 35.95, 8.58],
    5: [87.89, 10.25, 38.43, 16.33],
}


def _rival(table: dict[str, list[float]], column: int) -> tuple[float, float]:
    """C-FLAG's entry and that of the best baseline, highest for accuracy, lowest for forgetting."""
    others = [row[column] for name, row in table.items() if name != "C-FLAG"]
    return table["C-FLAG"][column], max(others) if column % 2 == 0 else min(others)


@claim(
    "cflag/table-2-accuracy",
    at="Section 7, comparison with benchmarks; Tables 2 and 3",
    sense=">=",
    verdict="refuted",
    why="On Split-CIFAR10, non-IID, Erg-FL has 79.11 and C-FLAG 65.02, 1.8 of Erg-FL's standard deviations apart. In "
    "the other five columns of the two tables C-FLAG is the most accurate. Nor is its forgetting always the lowest "
    "(Section 1 has it consistently better in both): EWC-FL has 5.22 to its 5.82 on CIFAR10, NCCL-FL 8.73 to 9.52 on "
    "TinyImageNet, Table 2, within a standard deviation. FedTrk is missing from Table 2. Erg-FL's entries for "
    "TinyImageNet in Table 3, 31.25 ± 1.05 and 32.40 ± 1.69, are those for CIFAR100 in Table 2 to the last digit.",
    cases=st.fixed_dictionaries({"table": st.sampled_from(["2", "3"]), "data": st.integers(0, 2)}),
)
def most_accurate(case: Case) -> Comparison:
    """C-FLAG is more accurate than all baselines on all three data sets, IID and not.

    Measured: its accuracy. Claimed: the best baseline's.
    """
    return Comparison(*_rival(TABLES[case["table"]], 2 * case["data"]))


@claim(
    "cflag/fig-2",
    at="Section 7 on Figure 2, after the last task; Table 3",
    sense=">=",
    verdict="holds",
    why="After the last task, from Table 3. The margins are 5.3 and 16.4 points of accuracy, 9.3 and 10.8 of "
    "forgetting. Earlier tasks are only in the figure.",
    cases=st.fixed_dictionaries(
        {"column": st.integers(0, 3), "rival": st.sampled_from([n for n in IID if n != "C-FLAG"])}
    ),
)
def best_on_cifar(case: Case) -> Comparison:
    """On IID Split-CIFAR10 and Split-CIFAR100 C-FLAG has the highest accuracy and the lowest forgetting.

    Measured: its accuracy, or 100 minus its forgetting. Claimed: each baseline's.
    """
    k = case["column"]
    ours, theirs = IID["C-FLAG"][k], IID[case["rival"]][k]
    return Comparison(ours, theirs) if k % 2 == 0 else Comparison(100 - ours, 100 - theirs)


@claim(
    "cflag/fig-6",
    at="Appendix 4 on Figure 6 and Table 7: superior on non-IID Split-CIFAR10, class-incremental",
    sense=">=",
    verdict="holds",
    why="In accuracy, by 1.2 points over iCARL-FL with standard deviations of 2.6 and 4.2. Its forgetting, 43.04, is "
    'beaten by four of seven. "Comparable overall" covers 13.94 against TARGET\'s 23.22 on CIFAR100.',
    cases=st.fixed_dictionaries({"rival": st.sampled_from([n for n in CLASSES_NON_IID if n != "C-FLAG"])}),
)
def most_accurate_on_classes(case: Case) -> Comparison:
    """On non-IID Split-CIFAR10 with growing classes C-FLAG is the most accurate.

    Measured: its accuracy. Claimed: each baseline's.
    """
    return Comparison(CLASSES_NON_IID["C-FLAG"][0], CLASSES_NON_IID[case["rival"]][0])


@claim(
    "cflag/metrics",
    at="Section 7, metrics; Tables 2, 3 and 7",
    sense="<=",
    verdict="holds",
    why="Every pair of entries is possible: the tasks' accuracies just after learning, which the two metrics determine "
    "up to the last task's, need not exceed 100%.",
    cases=st.sampled_from(
        [
            {"table": name, "method": method, "data": data}
            for name, table in TABLES.items()
            for method, row in table.items()
            for data in range(len(row) // 2)
        ]
    ),
)
def metrics_fit(case: Case) -> Comparison:
    """Average accuracy and forgetting of a row fit each other: Σ_{i<S} a_{i,i} = (S−1)·Forget + S·Acc − a_{S,S}.

    Measured: the least mean accuracy just after learning that the two allow, at a_{S,S} = 100. Claimed: 100.
    """
    row, S = TABLES[case["table"]][case["method"]], TASKS[case["data"]]
    accuracy, forgetting = row[2 * case["data"]], row[2 * case["data"] + 1]
    return Comparison(forgetting + (S * accuracy - 100) / (S - 1), 100.0)


@claim(
    "cflag/table-8",
    at="Appendix 5.2 and Section 7 on Figure 5: robust to the number of clients; Table 8",
    sense="<=",
    verdict="holds",
    why="Forgetting falls with every addition of clients, from 10.25 to 2.39 and from 16.33 to 2.28. Accuracy on "
    "CIFAR100 falls too, 38.43 to 35.20 with a dip to 32.60, which a reader may or may not call consistent. At 5 "
    "clients Table 8 has 38.43 and Table 6 43.47 ± 1.64 for what seems the same setting.",
    cases=st.fixed_dictionaries({"more": st.sampled_from([50, 25, 15, 10]), "data": st.integers(0, 1)}),
)
def clients_do_no_harm(case: Case) -> Comparison:
    """More clients do not worsen C-FLAG's continual learning, in forgetting.

    Measured: forgetting with ``more`` clients. Claimed: with the next smaller number in Table 8.
    """
    counts = sorted(TABLE_8)
    fewer = counts[counts.index(case["more"]) - 1]
    column = 2 * case["data"] + 1
    return Comparison(TABLE_8[case["more"]][column], TABLE_8[fewer][column])


untested(
    "cflag/fig-4",
    at="Section 7 on Figure 4",
    statement="Γ(t) varies more for IID clients than for others, and adaptive rates hold it down when it shoots up.",
    why="Seen in one figure of a network trained with Adam on mini-batches, to which neither Γ(t) of (15) nor the "
    "rates of Table 1 apply; no numbers are printed.",
)
