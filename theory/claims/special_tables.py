"""`special`: the arithmetic of Tables 1-4, 6 and 8-30, and what the text says of them."""

from __future__ import annotations

from hypothesis import strategies as st

from .ledger import Case, Comparison, claim, untested
from .special_numbers import (
    ALLOWED,
    CLASSES,
    CONFIGURED,
    DATASETS,
    LANGUAGE,
    MAIN,
    PARTS,
    PER_TASK,
    ROUNDS,
    SENSITIVITY,
    TASKS,
    TIMES,
    rows,
)

TABLES = {table: rows(text) for table, text in (PER_TASK | MAIN).items()}
TWO_DECIMALS = 0.01 + 1e-9  # per cent: half a unit of the last digit on either side
METHODS = list(TABLES[1])
OTHERS = [m for m in METHODS if m != "SPECIAL"]


# --- Means ------------------------------------------------------------------------------------------------------------


def _mean_error(case: Case) -> Comparison:
    """|mean of the row − ACC|, in per cent."""
    *tasks, acc = TABLES[case["table"]][case["method"]]
    return _against_mean(tasks, acc)


def _against_mean(tasks: list[float], acc: float) -> Comparison:
    return Comparison(abs(sum(tasks) / len(tasks) - acc) / 100, TWO_DECIMALS)


def _entries(table: int) -> st.SearchStrategy[dict[str, object]]:
    return st.sampled_from([{"table": table, "method": m} for m in TABLES[table]])


@claim(
    "special/table-means",
    at="ACC of Tables 11, 17-20, 22-25 and 27-30, by (10)",
    sense="<=",
    verdict="holds",
    why="117 of 117 rows, to the rounding of four decimals; Table 2 repeats two rows of Table 10. The others are "
    "special/table-9, -10 and -12.",
    cases=st.sampled_from([{"table": t} for t in PER_TASK if t not in (9, 10, 12)]),
)
def means_of_rows(case: Case) -> Comparison:
    """ACC is the mean of the row.

    Measured: the largest difference in the table, in per cent. Claimed: what rounding explains.
    """
    return max(_mean_error({**case, "method": m}) for m in TABLES[case["table"]])


@claim(
    "special/table-9",
    at="Table 9, column ACC",
    sense="<=",
    verdict="refuted",
    why="Four of nine: SR-FDIL's entries average 59.63 and 61.63 is printed (and used in Table 1, half a point below "
    "SPECIAL); FedAvg 58.91 against 58.69, FedProx 58.99 against 58.69 (Table 1 has 58.99), FLwF-2T 47.52 against "
    "47.39. Averaging over seeds commutes with averaging over tasks, so seeds do not explain it. Whether ACC or an "
    "entry is wrong cannot be told.",
    cases=_entries(9),
    repair="0.5891, 0.5899, 0.5963, 0.4752 for FedAvg, FedProx, SR-FDIL, FLwF-2T, if the entries are right",
)
def digit_means(case: Case) -> Comparison:
    """ACC on Digit-10 (N = 4) is the mean of the row."""
    return _mean_error(case)


def _transposed(case: Case) -> Comparison:
    """0.4983 for SR-FDIL."""
    *tasks, acc = TABLES[10][case["method"]]
    return _against_mean(tasks, 4983 if case["method"] == "SR-FDIL" else acc)


@claim(
    "special/table-10",
    at="Table 10, column ACC",
    sense="<=",
    verdict="misprint",
    why="SR-FDIL: the entries average 49.83, 49.38 is printed, here and in Table 1: two digits transposed. The other "
    "eight rows are right.",
    cases=_entries(10),
    repair="0.4983 for SR-FDIL, and 49.83 in Table 1",
    repaired=_transposed,
)
def vlcs_means(case: Case) -> Comparison:
    """ACC on VLCS (N = 4) is the mean of the row."""
    return _mean_error(case)


@claim(
    "special/table-12",
    at="Table 12, column ACC",
    sense="<=",
    verdict="refuted",
    why="SPECIAL-C: the entries average 19.71, 19.88 is printed, here and in Table 1. The other seven rows are right; "
    "FedProx, which Table 1 has, is missing. Whether ACC or an entry is wrong cannot be told.",
    cases=_entries(12),
    repair="0.1971 for SPECIAL-C, if the entries are right",
)
def dn4il_means(case: Case) -> Comparison:
    """ACC on DN4IL (N = 4) is the mean of the row."""
    return _mean_error(case)


# The numbers that the tables by tasks give for a summary, and (Table 9) the other way round.
MENDED_SUMMARY = {(1, "PACS", "FedProx"): 37.99, (26, "PACS", "SPECIAL-C"): 43.50}
MENDED_PART = {(1, "Digit-10", "FedProx"): 58.99}


def _carried_over(case: Case, mended: bool = False) -> Comparison:
    """|ACC of the summary − ACC of the table by tasks|, in per cent."""
    place, key = DATASETS.index(case["dataset"]), (case["table"], case["dataset"], case["method"])
    whole = TABLES[case["table"]][case["method"]][2 * place]
    part = TABLES[PARTS[case["table"]][place]][case["method"]][-1] / 100
    if mended:
        whole, part = MENDED_SUMMARY.get(key, whole), MENDED_PART.get(key, part)
    return Comparison(abs(whole - part), TWO_DECIMALS)


def _carried_over_mended(case: Case) -> Comparison:
    """With the numbers of the repair."""
    return _carried_over(case, mended=True)


def _summaries(table: int) -> list[dict[str, object]]:
    return [
        {"table": table, "dataset": d, "method": m}
        for place, d in enumerate(DATASETS)
        for m in TABLES[PARTS[table][place]]
    ]


@claim(
    "special/table-1",
    at="Table 1 against Tables 9-12",
    sense="<=",
    verdict="misprint",
    why="FedProx on PACS is 42.99 in Table 1 and 37.99 in Table 11, whose entries average 37.99: five points. FedProx "
    "on Digit-10 is 58.99 here, the mean of Table 9's entries, and Table 9 has 58.69, FedAvg's. 33 of 35 agree.",
    cases=st.sampled_from(_summaries(1)),
    repair="37.99 for FedProx on PACS; 0.5899 for FedProx in Table 9",
    repaired=_carried_over_mended,
)
def summary(case: Case) -> Comparison:
    """ACC in Table 1 is ACC in the tables by tasks. Measured: the difference. Claimed: what rounding explains."""
    return _carried_over(case)


@claim(
    "special/table-26",
    at="Table 26 against Tables 27-30",
    sense="<=",
    verdict="misprint",
    why="SPECIAL-C on PACS: 42.50 here, 43.50 in Table 29, whose entries average 43.50. 35 of 36 agree.",
    cases=st.sampled_from(_summaries(26)),
    repair="43.50",
    repaired=_carried_over_mended,
)
def summary_of_all(case: Case) -> Comparison:
    """ACC in Table 26 (full participation) is ACC in the tables by tasks."""
    return _carried_over(case)


@claim(
    "special/table-16",
    at="Tables 16 and 21 against 17-20 and 22-25",
    sense="<=",
    verdict="holds",
    why="72 of 72.",
    cases=st.sampled_from(_summaries(16) + _summaries(21)),
)
def summaries_of_fewer(case: Case) -> Comparison:
    """ACC in Tables 16 and 21 (N = 2 and 6) is ACC in the tables by tasks."""
    return _carried_over(case)


# --- Forgetting -------------------------------------------------------------------------------------------------------


@claim(
    "special/table-8",
    at="Table 8 against the BWT of Table 1",
    sense="<=",
    verdict="refuted",
    why="BWT is the mean of the drops A_{K,i} − A_{i,i} and Table 8 their minimum, so no entry of Table 8 may exceed "
    "its BWT, for means over seeds either. On VLCS FedCIL has −8.54 against a mean of −8.88, MFCL −9.69 against "
    "−11.03. The other 34 are possible.",
    cases=st.fixed_dictionaries({"dataset": st.sampled_from(DATASETS), "method": st.sampled_from(METHODS)}),
    repair="The two tables cannot come from the same runs (or the same metric).",
)
def worst_drop(case: Case) -> Comparison:
    """The worst drop of an earlier task is at most the mean drop. Measured and claimed: both plus 100."""
    place = DATASETS.index(case["dataset"])
    worst, mean = TABLES[8][case["method"]][place], TABLES[1][case["method"]][2 * place + 1]
    return Comparison(100 + worst, 100 + mean)


COLUMNS = st.fixed_dictionaries({"table": st.sampled_from(list(PARTS)), "dataset": st.sampled_from(DATASETS)})


@claim(
    "special/table-bwt",
    at="BWT of Tables 1, 16, 21 and 26 with the tables by tasks",
    sense="<=",
    verdict="holds",
    why="The implied mean of A_{i,i} is possible everywhere; 90 per cent is the most (FedAvg on Digit-10, N = 4).",
    cases=COLUMNS,
)
def implied_accuracy(case: Case) -> Comparison:
    """The mean accuracy right after each earlier task, ACC's summands less BWT, is at most 100 per cent.

    Measured: the largest in a column.
    """
    place, table = DATASETS.index(case["dataset"]), case["table"]
    implied = []
    for method, (*tasks, _) in TABLES[PARTS[table][place]].items():
        implied.append(sum(tasks[:-1]) / (len(tasks) - 1) / 100 - TABLES[table][method][2 * place + 1])
    return Comparison(max(implied), 100.0)


# --- What the text says -----------------------------------------------------------------------------------------------


@claim(
    "special/table-1-best",
    at="Section 5 and F.8: SPECIAL has the highest ACC on all datasets",
    sense=">=",
    verdict="holds",
    why="For N = 2, 4, 6 and 8, and against recomputed means too. In 11 of the 16 columns the lead over the next is "
    "within the larger of the two deviations (Digit-10, N = 4: 62.12 ± 0.18 against 61.63 ± 1.47).",
    cases=COLUMNS,
)
def highest_accuracy(case: Case) -> Comparison:
    """SPECIAL's ACC is at least that of each other method. Measured: SPECIAL's. Claimed: the best other's."""
    place, table = 2 * DATASETS.index(case["dataset"]), TABLES[case["table"]]
    return Comparison(table["SPECIAL"][place], max(table[m][place] for m in OTHERS))


@claim(
    "special/table-1-client",
    at="Section 5, where the proximal term is applied",
    sense=">=",
    verdict="holds",
    why="On VLCS, PACS and DN4IL in both metrics. On Digit-10 SPECIAL-C has the better BWT and an ACC called slightly "
    "lower: 50.61 against 62.12, the widest of the four gaps. Its λ, 0.2 or (PACS) 0.1, weighs as twice as much in "
    "SPECIAL and acts in every local step (special/prox, special/eq-4), so the two differ in strength as well as in "
    "place.",
    cases=st.fixed_dictionaries(
        {"dataset": st.sampled_from(["VLCS", "PACS", "DN4IL"]), "metric": st.sampled_from([0, 1])}
    ),
)
def server_side_is_better(case: Case) -> Comparison:
    """SPECIAL is above SPECIAL-C in ACC and BWT. Measured and claimed: both plus 100."""
    place = 2 * DATASETS.index(case["dataset"]) + case["metric"]
    return Comparison(100 + TABLES[1]["SPECIAL"][place], 100 + TABLES[1]["SPECIAL-C"][place])


@claim(
    "special/table-2",
    at="Table 2; Section 5, per-task performance",
    sense=">=",
    verdict="holds",
    why="On all four domains, by 1.1 to 2.8 points.",
    cases=st.fixed_dictionaries({"task": st.integers(0, 3)}),
)
def every_domain(case: Case) -> Comparison:
    """SPECIAL is above FLwF-2T on every domain of VLCS."""
    return Comparison(TABLES[10]["SPECIAL"][case["task"]], TABLES[10]["FLwF-2T"][case["task"]])


ROUND, TIME = rows(ROUNDS), rows(TIMES)
PLACES = st.fixed_dictionaries({"dataset": st.sampled_from(DATASETS), "method": st.sampled_from(METHODS)})


@claim(
    "special/table-3",
    at="Table 3, rounds to the best model",
    sense="<=",
    verdict="holds",
    why="If a task's best may come while a later task is trained. If it is sought among the task's own T rounds, the "
    "most is T times the number of tasks, and FedAvg's 83 on Digit-10 is above 80, alone among the 36 entries.",
    cases=PLACES,
)
def rounds_to_best(case: Case) -> Comparison:
    """The rounds to each task's best performance, summed over tasks, are possible with T rounds a task.

    Measured: the entry. Claimed: the rounds from each task's start to the end, summed.
    """
    place, tasks = DATASETS.index(case["dataset"]), TASKS[case["dataset"]]
    return Comparison(ROUND[case["method"]][place], ALLOWED[case["dataset"]] * tasks * (tasks + 1) // 2)


@claim(
    "special/table-3-fewest",
    at="Section 5, complexity: the fewest rounds on all datasets",
    sense="<=",
    verdict="holds",
    why="By 4 to 11 rounds. FedProx on PACS is read as 77: the text extracted from the page leaves 7 possible.",
    cases=PLACES,
)
def fewest_rounds(case: Case) -> Comparison:
    """SPECIAL reaches its best model in the fewest rounds. Measured: SPECIAL's rounds. Claimed: the method's."""
    place = DATASETS.index(case["dataset"])
    return Comparison(ROUND["SPECIAL"][place], ROUND[case["method"]][place])


WITH_TRANSFER = [m for m in OTHERS if m not in ("FedAvg", "FedProx", "SPECIAL-C")]
RANK = {"Digit-10": 1, "VLCS": 2, "PACS": 1, "DN4IL": 1}


@claim(
    "special/table-3-times",
    at="Section 5, complexity: time a round against methods with knowledge transfer",
    sense="==",
    verdict="holds",
    why="Against the methods of others. On VLCS its own variant SPECIAL-C (283.86 s) is faster too, as is FLwF-2T "
    "(291.40 s): with SPECIAL-C, which Section 5 lists among the baselines, SPECIAL (294.76 s) is third there.",
    cases=st.fixed_dictionaries({"dataset": st.sampled_from(DATASETS)}),
)
def time_per_round(case: Case) -> Comparison:
    """SPECIAL has the best time a round on three datasets and the second-best on VLCS. Measured: its rank."""
    place = DATASETS.index(case["dataset"])
    ahead = sum(TIME[m][place] < TIME["SPECIAL"][place] for m in WITH_TRANSFER)
    return Comparison(1 + ahead, RANK[case["dataset"]])


@claim(
    "special/table-4",
    at="Tables 4 and 14: the best ACC and BWT",
    sense=">=",
    verdict="holds",
    why="On the language tasks and on Split CIFAR-100. In Table 4 the deviation of BWT, 2.93, exceeds the lead of "
    "1.47.",
    cases=st.sampled_from(
        [
            {"table": table, "method": m, "metric": metric}
            for table, text in ((4, LANGUAGE), (14, CLASSES))
            for m in rows(text)
            for metric in (0, 1)
        ]
    ),
)
def best_beyond_vision(case: Case) -> Comparison:
    """SPECIAL has the best ACC and the best BWT. Measured and claimed: SPECIAL's and the method's, plus 100."""
    table = rows(LANGUAGE if case["table"] == 4 else CLASSES)
    return Comparison(100 + table["SPECIAL"][case["metric"]], 100 + table[case["method"]][case["metric"]])


@claim(
    "special/table-6",
    at="Table 6, rounds",
    sense="==",
    verdict="misprint",
    why="20 rounds for PACS here, 30 in Section 5 and F.2. (Digit-10 has 110k images here and 380,548 + 78,039 in "
    "F.1; a subset may be meant.)",
    cases=st.fixed_dictionaries({"dataset": st.sampled_from(DATASETS)}),
    repair="30 rounds for PACS",
    repaired=lambda case: Comparison((CONFIGURED | {"PACS": 30})[case["dataset"]], ALLOWED[case["dataset"]]),
)
def configured_rounds(case: Case) -> Comparison:
    """The rounds in Table 6 are those of Section 5."""
    return Comparison(CONFIGURED[case["dataset"]], ALLOWED[case["dataset"]])


@claim(
    "special/table-13",
    at="Table 13; F.5: the trade-off in λ",
    sense="<=",
    verdict="holds",
    why="BWT rises with every step of λ; ACC rises once and then falls.",
    cases=st.sampled_from([{"metric": m, "step": k} for m in SENSITIVITY for k in range(5)]),
)
def stability_and_plasticity(case: Case) -> Comparison:
    """Along λ = 0, 0.2, ..., 1 BWT rises, and ACC rises to 0.2 and then falls. Compared: neighbours, plus 100."""
    low, high = (100 + SENSITIVITY[case["metric"]][case["step"] + k] for k in (0, 1))
    return Comparison(low, high) if case["metric"] == "BWT" or case["step"] == 0 else Comparison(high, low)


untested(
    "special/table-13-repeat",
    at="Table 13 at λ = 0.2 against SPECIAL-C in Table 1",
    statement="Table 13's run at λ = 0.2, the λ of SPECIAL-C on Digit-10 in Table 7, is that of Table 1.",
    why="Nowhere said. ACC agrees, 50.26 and 50.61 ± 2.89; BWT does not, −8.81 and −16.42 ± 0.57. λ = 0 leaves "
    "SPECIAL-C without anchor, yet Table 13 has 47.89 and −10.45 there where FedAvg has 58.69 and −40.44 in Table 1. "
    "Table 13's runs differ in something that is not stated.",
)
untested(
    "special/fig-4",
    at="Figures 2, 3 and 4; F.4",
    statement="BWT rises with λ and ACC is unimodal; ACC rises with T and BWT is U-shaped in T; smaller α lowers ACC.",
    why="Curves that are not in the text.",
)
