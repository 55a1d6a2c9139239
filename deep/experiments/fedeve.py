"""The experiments of `fedeve`: many clients of which ten take part in a round (Section 4 and Appendix B)."""

from __future__ import annotations

from .declare import Arm, Experiment, Setting, Smoke, World, numbers
from .streams import EVEN, Dirichlet, Mixed, Users

TRAINING = {"rounds": 1500, "epochs": 1, "batch": 32}
LR = 0.01
SEEDS = (0, 1, 2, 3, 4)
WRITERS = 3400
OPEN = (
    "Batch size and the baselines' own settings are not given: 32, prox 0.1, server momentum 0.9, Adam with rate 0.1 "
    "and tau 1e-3. Clients count equally.",
    "The number of clients of a Dirichlet partition is not given: 3400 for FEMNIST, 100 for CIFAR-100.",
)


def femnist(alpha: float | None) -> World:
    split = Users(10) if alpha is None else Dirichlet(alpha, WRITERS, 10)
    return World(("femnist",), "lenet5", split)


def cifar100(alpha: float) -> World:
    return World(("cifar100",), "resnet18", Dirichlet(alpha, 100, 10), norm="group")


ALPHAS = (1.0, 0.1, 0.01)
FEMNIST = {"natural": femnist(None), **{f"α = {a:g}": femnist(a) for a in ALPHAS}}

ARMS = (
    Arm("FedAvg", "fedavg"),
    Arm("FedAvgM", "fedavgm", {"momentum": 0.9}),
    Arm("FedProx", "fedprox", {"prox": 0.1}),
    Arm("SCAFFOLD", "scaffold"),
    Arm("FedOpt", "fedopt", {"rule": "adam", "server_lr": 0.1}),
    Arm("FedEve", "fedeve", {"server_lr": 1.0}),
)
FEDAVG, FEDEVE = ARMS[0], ARMS[-1]
DEALT = {"clients": 50, "sampled": 5}


def smoke(rounds: int, **more: object) -> Smoke:
    return Smoke(
        lr=0.1,
        training={"rounds": rounds, "batch": 16},
        world={"norm": "batch"},
        partition=DEALT,
        methods={"FedOpt": {"server_lr": 0.01}, "FedAvgM": {"momentum": 0.5}},
        **more,  # type: ignore[arg-type]
    )


TABLE_3 = tuple(
    Setting(f"{label}, E = {epochs}", world, training={"epochs": epochs})
    for label, world in FEMNIST.items()
    for epochs in (1, 3, 5)
)


def drifts(alpha: float) -> tuple[Setting, ...]:
    """Figure 3 (b): which of the two drifts there are."""
    worlds = {
        "both drifts": femnist(alpha),
        "period drift only": World(("femnist",), "lenet5", Mixed(alpha, EVEN, WRITERS, 10)),
        "client drift only": World(("femnist",), "lenet5", Mixed(EVEN, alpha, WRITERS, 10)),
    }
    return tuple(Setting(f"α = {alpha:g}: {name}", world) for name, world in worlds.items())


EXPERIMENTS = (
    Experiment(
        id="fedeve/table-1",
        title="FEMNIST and CIFAR-100, ten clients a round",
        finding="FedEve is best in every column, by most where data are most heterogeneous.",
        settings=(
            *(Setting(f"FEMNIST {label}", world) for label, world in FEMNIST.items()),
            *(Setting(f"CIFAR-100 α = {a:g}", cifar100(a)) for a in ALPHAS),
        ),
        arms=ARMS,
        lr=LR,
        training=TRAINING,
        seeds=SEEDS,
        smoke=smoke(40, keep=tuple(f"FEMNIST α = {a:g}" for a in ALPHAS)),
        metrics=("final",),
        open=(
            *OPEN,
            "SCAFFOLD and FedOpt have the same 47.26 ± 1.49 on CIFAR-100 with α = 1 in print: one may be a slip.",
            "5.13 on FEMNIST and 1.00 on CIFAR-100 are runs that failed.",
        ),
        paper=numbers(
            [f"FEMNIST {label}" for label in FEMNIST],
            """
            FedAvg | 82.37 ± 0.18 | 83.60 ± 0.11 | 82.02 ± 0.23 | 73.23 ± 1.36
            FedAvgM | 82.53 ± 0.43 | 83.67 ± 0.10 | 82.30 ± 0.49 | 74.96 ± 2.34
            FedProx | 82.34 ± 0.17 | 83.58 ± 0.11 | 82.04 ± 0.27 | 74.16 ± 1.19
            SCAFFOLD | 81.66 ± 0.28 | 83.06 ± 0.14 | 79.82 ± 0.42 | 5.13 ± 0.00
            FedOpt | 5.13 ± 0.00 | 81.86 ± 0.38 | 78.13 ± 0.39 | 5.13 ± 0.00
            FedEve | 82.68 ± 0.19 | 83.81 ± 0.09 | 82.69 ± 0.31 | 75.99 ± 1.61
            """,
            metric="final",
        )
        | numbers(
            [f"CIFAR-100 α = {a:g}" for a in ALPHAS],
            """
            FedAvg | 47.04 ± 0.21 | 43.93 ± 0.36 | 30.11 ± 0.53
            FedAvgM | 48.22 ± 0.19 | 44.74 ± 0.40 | 31.59 ± 0.98
            FedProx | 46.86 ± 0.38 | 43.74 ± 0.27 | 30.10 ± 0.55
            SCAFFOLD | 47.26 ± 1.49 | 36.36 ± 4.98 | 1.00 ± 0.00
            FedOpt | 47.26 ± 1.49 | 45.43 ± 1.18 | 32.17 ± 1.38
            FedEve | 48.38 ± 0.24 | 45.68 ± 0.16 | 32.68 ± 0.62
            """,
            metric="final",
        ),
    ),
    Experiment(
        id="fedeve/table-3",
        title="FEMNIST with one, three and five local epochs",
        finding="FedEve leads nearly everywhere, and does not break down with many epochs.",
        settings=TABLE_3,
        arms=ARMS,
        lr=LR,
        training=TRAINING,
        seeds=SEEDS,
        smoke=smoke(20, keep=tuple(f"α = {a:g}, E = {e}" for a in (1.0, 0.1) for e in (1, 3))),
        metrics=("final",),
        open=(
            *OPEN,
            "With E = 1 it should repeat Table 1, and doesn't quite: FedAvg at α = 0.01 has 74.51 here, 73.23 there.",
            "Deviations over 30 points beside means over 80 (FedProx 82.65 ± 31.26, FedOpt 83.90 ± 37.69) can't belong "
            "together: accuracies end at 100. They stand as printed.",
            "FedEve is said to lead in all; FedOpt's printed mean is higher with α = 1 and E = 3.",
        ),
        paper=numbers(
            [s.label for s in TABLE_3[0:6]],
            """
            FedAvg | 82.46 ± 0.18 | 81.95 ± 0.26 | 66.38 ± 30.63 | 83.64 ± 0.11 | 83.57 ± 0.12 | 83.38 ± 0.09
            FedAvgM | 82.55 ± 0.43 | 81.99 ± 0.42 | 50.97 ± 37.43 | 83.67 ± 0.10 | 83.79 ± 0.11 | 83.65 ± 0.08
            FedProx | 82.43 ± 0.17 | 81.90 ± 0.27 | 51.07 ± 37.51 | 83.62 ± 0.11 | 83.52 ± 0.14 | 82.65 ± 31.26
            SCAFFOLD | 81.66 ± 0.28 | 81.08 ± 0.36 | 80.76 ± 0.30 | 83.18 ± 0.14 | 82.75 ± 0.16 | 82.46 ± 0.16
            FedOpt | 5.13 ± 0.00 | 5.13 ± 0.00 | 5.13 ± 0.00 | 81.86 ± 0.38 | 83.90 ± 37.69 | 83.66 ± 37.39
            FedEve | 82.66 ± 0.19 | 82.20 ± 0.20 | 81.93 ± 0.16 | 83.81 ± 0.09 | 83.88 ± 0.08 | 83.72 ± 0.05
            """,
            metric="final",
        )
        | numbers(
            [s.label for s in TABLE_3[6:12]],
            """
            FedAvg | 82.12 ± 0.23 | 81.91 ± 0.23 | 81.70 ± 0.26 | 74.51 ± 1.36 | 73.43 ± 1.73 | 72.67 ± 1.39
            FedAvgM | 82.36 ± 0.49 | 82.23 ± 0.26 | 82.16 ± 0.34 | 75.18 ± 2.34 | 74.20 ± 2.81 | 73.79 ± 3.13
            FedProx | 82.17 ± 0.27 | 82.12 ± 0.19 | 81.94 ± 0.30 | 75.07 ± 1.19 | 74.38 ± 1.46 | 60.22 ± 27.56
            SCAFFOLD | 79.82 ± 0.42 | 79.00 ± 0.65 | 78.44 ± 0.70 | 5.13 ± 0.00 | 5.13 ± 0.00 | 5.13 ± 0.00
            FedOpt | 78.13 ± 0.39 | 5.13 ± 0.00 | 5.13 ± 0.00 | 5.13 ± 0.00 | 5.13 ± 0.00 | 5.13 ± 0.00
            FedEve | 82.69 ± 0.31 | 82.66 ± 0.18 | 82.52 ± 0.19 | 75.99 ± 1.61 | 75.00 ± 2.24 | 74.56 ± 2.05
            """,
            metric="final",
        ),
    ),
    Experiment(
        id="fedeve/fig-3",
        title="period drift seen, and FedAvg with either drift, both or none",
        finding="Client drift alone costs little, period drift alone disturbs the run, both together most.",
        settings=(
            Setting("iid", femnist(EVEN)),
            *(setting for alpha in ALPHAS for setting in drifts(alpha)),
        ),
        arms=(FEDAVG,),
        lr=LR,
        training=TRAINING,
        seeds=(0,),
        smoke=smoke(40, keep=("iid", *(s.label for a in (0.1, 0.01) for s in drifts(a)))),
        metrics=("final",),
        figure="drifts",
        counted=20,
        open=(*OPEN, "Concentrations other than 0.01 are not given for (b): those of Table 1."),
    ),
    Experiment(
        id="fedeve/fig-4",
        title="FedEve's Kalman gain by heterogeneity and local epochs",
        finding="The gain grows with heterogeneity and hardly changes with local epochs.",
        settings=TABLE_3,
        arms=(FEDEVE,),
        lr=LR,
        training=TRAINING,
        seeds=(0,),
        smoke=smoke(40, keep=tuple(f"α = {a:g}, E = {e}" for a in ALPHAS for e in (1, 3))),
        metrics=("mean_gain", "final"),
        figure="gains",
        open=OPEN,
    ),
)
