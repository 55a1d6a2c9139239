"""The rates of `special` (Lemma 4.9, Corollary 4.12), `cflag` (Lemmas 3, 4, 18, Theorem 5) and `fedeve` (Theorem C.2).

They claim errors after T rounds, not rounds to an error. Quadratics are run in closed form; where the ledger has a
worse world, with losses that are no quadratics, its own check is run, so that the two cannot drift apart (imported when
needed: the ledger is slow to load).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from theory.bounds import fedeve as fedeve_bounds
from theory.bounds import special

from .claims import Curve, Rate, declare
from .limits import gradient_after

Measure = Callable[[float], float]
UP = tuple(float(x) for x in np.geomspace(1.0, 100.0, 7))
WHOLE = (1.0, 2.0, 4.0, 10.0, 20.0, 45.0, 100.0)


def up(first: float, whole: bool = True) -> tuple[float, ...]:
    """Two decades from ``first``."""
    return tuple(float(round(first * x)) if whole else first * x for x in UP)


def row(
    claim: str,
    term: str,
    parameter: str,
    predicted: float,
    xs: Iterable[float],
    quantity: str,
    prescribed: Measure | None,
    free: Measure | None,
    regime: str,
    *,
    formula: Measure,
    still: Measure | None = None,
    computation: Measure | None = None,
    note: str = "",
    ledger: str = "",
    part: str = "",
) -> Rate:
    """A row on an error as a function of one parameter, which goes up."""

    @cache
    def curve() -> Curve:
        x = np.array(list(xs))

        def along(measure: Measure | None) -> Any:
            return None if measure is None else np.array([measure(float(v)) for v in x])

        lines = {} if computation is None else {"computation": along(computation)}
        return Curve(x, quantity, along(prescribed), along(free), None, lines, along(still))

    return Rate(
        claim, ledger or claim, part, term, parameter, predicted, "large", regime, curve, formula, None, note
    )  # fmt: skip


# ---- SPECIAL ----

LAM, B, FAR = 1.0, 1.0, 1.0


def special_gradient(T: float, lr: float, glr: float, E: float, lam: float = LAM, L: float = 1.0) -> float:
    """min_{t ≤ T} ‖∇f_{1:2}(θ_t)‖²: two tasks of curvature L at 0 and 1, the second from the first's optimum, (6).

    θ moves from 0 towards λθ = γ_G a (1 − θ), a = 1 − (1 − γ_L L)^E, and the gradient L(2θ − 1) falls until θ = ½.
    """
    a = -math.expm1(E * math.log1p(-lr * L))
    rest = glr * a * FAR / (lam + glr * a)
    rate = (1 - glr * a) / (1 + lam)
    reached = rest * (1 - rate**T)
    return (L * max(FAR - 2 * reached, 0.0)) ** 2 if reached < FAR / 2 else 0.0


def special_prescribed(T: float, N: int, E: int, lam: float = LAM, M: int = 1024) -> float:
    """With the steps of Corollary 4.12, which have to meet Theorem 4.10's conditions; gradients stay below B = 1."""
    lr, glr = special.corollary_steps(lam, 1.0, E, N, 2, T)
    setting = special.Setting(M, N, 2, E, 1.0, B, lam, lr, glr)
    assert special.admissible(setting), setting
    return special_gradient(T, lr, glr, E, lam)


def special_free(T: float, E: int, lam: float = LAM) -> float:
    """With the best of all steps that Theorem 4.10 admits."""
    steps = np.geomspace(1e-4, 1.0, 41) / (8 * E)
    return min(special_gradient(T, float(lr), 1.0, E, lam) for lr in steps)


FROZEN = (
    "With these steps the run cannot leave a ball whose radius falls like 1/√T (Lemma 4.9), so the gradient stays that "
    "of the start."
)
COROLLARY = "quadratics of curvature 1 at distance 1, K = 2, λ = {}, no noise, equal clients; Theorem 4.10's steps"
LONG, STIFF = 10**8, 32.0


def corollary(parameter: str, predicted: float, xs: Iterable[float], given: dict[str, float], note: str) -> Rate:
    lam = given["lam"]

    def at(x: float) -> dict[str, float]:
        return given | {parameter: x}

    def own(x: float) -> float:
        c = at(x)
        return special_prescribed(c["T"], int(c["N"]), int(c["E"]), lam, int(c["M"]))

    return row(
        "special/cor-4.12", "√(E/(NT))", parameter, predicted, xs, "min ‖∇f‖²", own,
        lambda x: special_free(at(x)["T"], int(at(x)["E"]), lam), COROLLARY.format(f"{lam:g}"),
        formula=lambda x: math.sqrt(at(x)["E"] / (at(x)["N"] * at(x)["T"])), still=lambda x: 1.0,
        computation=lambda x: gradient_after(2.0, 0.25, at(x)["T"] * at(x)["E"]), note=note,
    )  # fmt: skip


STANDARD = {"T": 1e4, "N": 1, "E": 1, "M": 1024, "lam": LAM}
WIDE = {"T": float(LONG), "N": 1, "E": 1, "M": 1024, "lam": STIFF}
declare(
    corollary("T", -0.5, up(1000), STANDARD, FROZEN),
    corollary("N", -0.5, WHOLE, WIDE, FROZEN),
    corollary("E", 0.5, WHOLE, WIDE, "The gradient stays that of the start, whatever E is."),
    corollary("M", 0.0, up(10), STANDARD, ""),
)


def pulled(t: int, lr: float, glr: float, E: float, bound: float, lam: float) -> float:
    """‖θ_t − θ_0‖² when every gradient is ``bound`` in one direction, by t rounds of (6)."""
    theta = 0.0
    for _ in range(t):
        theta = special.server_prox(theta + glr * lr * E * bound, 0.0, lam)
    return theta**2


DRAWN = {"t": 4000.0, "lr": 0.01, "glr": 0.1, "E": 1.0, "B": 1.0, "lam": 0.01}


def lemma_49(parameter: str, predicted: float, xs: Iterable[float]) -> Rate:
    def own(x: float) -> float:
        c = DRAWN | {parameter: x}
        return pulled(int(c["t"]), c["lr"], c["glr"], c["E"], c["B"], c["lam"])

    def claimed(x: float) -> float:
        c = DRAWN | {parameter: x}
        return special.drift(c["lr"], c["glr"], int(c["E"]), c["B"], c["lam"]) ** 2

    symbol = {"lr": "γ_L", "glr": "γ_G", "lam": "λ"}.get(parameter, parameter)
    return row(
        "special/lemma-4.9", "(γ_Gγ_LEB/λ)²", symbol, predicted, xs, "‖θ_t − θ_0‖²", own, None,
        "all gradients equal to B, the worst case; λt = 40 or more", formula=claimed,
    )  # fmt: skip


declare(
    lemma_49("lr", 2, up(0.01, False)), lemma_49("glr", 2, up(0.1, False)), lemma_49("E", 2, WHOLE),
    lemma_49("B", 2, up(1.0, False)), lemma_49("lam", -2, up(0.01, False)), lemma_49("t", 0, up(1000)),
)  # fmt: skip


# ---- C-FLAG ----


RESTS = (
    "C-FLAG rests where ∇f† + Σ∇g = 0, which is no stationary point of h̃; the path starts beyond it (from the current "
    "task's optimum), so that no earlier round is better."
)


def two_tasks(rate: float) -> tuple[float, float]:
    """C-FLAG with α = β = rate and E = 2 on x²/2 (all in memory) and (x − 1)²/2: x' − rest = gain (x − rest)."""
    lost = 1 - (1 - rate) ** 2  # what two local steps on the current task do
    return 1 - rate - lost, lost / (rate + lost)


def from_current(T: float, tuned: bool = False) -> float:
    """min_t ‖∇h̃(x_t)‖² from the current task's optimum x = 1: the path falls to its point of rest, above ½."""
    rates = np.geomspace(1e-3, 1.0, 31) / 4 if tuned else [1 / 60]
    ends = [(rest, gain) for gain, rest in map(two_tasks, rates)]
    return min(float((rest + (1 - rest) * gain**T - 0.5) ** 2) for rest, gain in ends)


def union_from_current(T: float) -> float:
    """The same by (67)-(68): a step on h̃ at the server and two local ones. It rests at the optimum of h̃."""
    gain, _ = two_tasks(1 / 60)
    return float((0.5 * gain**T) ** 2)


TWO_TASKS = "two quadratic tasks of curvature 1 at distance 1, all of the past in memory, E = 2, α = β = 1/(30LE)"
declare(
    row(
        "cflag/lemma-3", "60L Δ_h̃/T", "T", -1, up(1000), "min ‖∇h̃‖²", from_current, lambda T: from_current(T, True),
        TWO_TASKS + "; free: the best α = β", formula=lambda T: 60 * 0.125 / T, still=lambda T: 0.25,
        computation=lambda T: gradient_after(1.0, 0.25, 2 * T), note=RESTS,
    ),
    row(
        "cflag/lemma-3", "60L Δ_h̃/T, by (67)-(68)", "T", -1, up(50), "min ‖∇h̃‖²", union_from_current, None,
        TWO_TASKS, formula=lambda T: 60 * 0.125 / T, still=lambda T: 0.25,
        note="The method that the proof is about; strongly convex quadratics converge geometrically.",
    ),
    Rate(
        "cflag/lemma-3", "cflag/lemma-3", "", "60L Δ_h̃/T", "L", 1, "large", "",
        note="On quadratics L cannot move alone: Δ_h̃ and ‖∇h̃‖² move with it, and both sides scale alike.",
    ),
)  # fmt: skip


def mean_forgetting(T: float, c: float = 0.25) -> float:
    from theory.claims import cflag_joint

    case = {"T": int(T), "q": 0.4, "s": 0.1, "E": 2, "alphaL": 0.8, "c": c}
    return cflag_joint.mean_forgetting(case).measured


declare(
    row(
        "cflag/lemma-4", "1/√T", "T", -0.5, up(60), "mean Γ", mean_forgetting, None,
        "the ledger's world: a past that flattens out, a current task that pulls back, α fixed, β = c/√T",
        formula=lambda T: 1 / T + 1 / math.sqrt(T),
    )
)  # fmt: skip


def past_gradient(T: float) -> float:
    """‖∇f‖² where C-FLAG rests on two quadratics of curvature 1 at distance 1: α = 1/2 (m = 1), β = 0.1/√T, E = 2."""
    lost = 1 - (1 - 0.1 / math.sqrt(T)) ** 2
    gain = 1 - 0.5 - lost
    return (lost / (0.5 + lost) * (1 - gain**T) + gain**T) ** 2


def flat_memory(T: float, c: float = 0.005) -> float:
    from theory.claims import cflag_joint

    return cflag_joint.least_gradient_of_the_past({"T": int(T), **cflag_joint.WORLD_5, "c": c}).measured


declare(
    row(
        "cflag/thm-5", "1/√T, m > 1", "T", -0.5, up(150), "min E‖∇f‖²", flat_memory,
        lambda T: min(flat_memory(T, c) for c in (0.0005, 0.002, 0.0083)),
        "the ledger's world: two clients with opposing pulls, m = 3.3, one sample each in memory; free: c of β = c/√T",
        formula=lambda T: 1 / math.sqrt(T), still=lambda T: 1.0,
        note="One memory for all rounds can be stationary where the past is not; the ledger asks for m < 1.",
    ),
    row(
        "cflag/thm-5", "1/√T, whole past in memory", "T", -0.5, up(1000), "min E‖∇f‖²", past_gradient, None,
        "two quadratic tasks of curvature 1 at distance 1, α = 1/(L(1 + m)), m = 1, β = 0.1/√T, E = 2",
        formula=lambda T: 1 / math.sqrt(T), still=lambda T: 1.0, note="On quadratics only.",
    ),
)  # fmt: skip


def constant_rates(T: float, L: float = 1.0, alphaL: float = 0.5) -> float:
    """The mean of Γ with β = 1/(60LE) on the ledger's two quadratics; far = 1/L holds every gradient."""
    from theory.claims import cflag_joint

    case = {"L": L, "E": 2, "T": int(T), "alphaL": alphaL, "memory": 0.5, "far": 1 / L, "x0": 0.5 / L}
    return cflag_joint.constant_rate_bound(case).measured


def unstable(T: float, alphaL: float = 1.99) -> float:
    """The mean of Γ for past and current task equal, x²/2, one client, E = 1, β = 1/60, from x = 1."""
    x = (1 - alphaL - 1 / 60) ** np.arange(int(T))
    return float(np.mean((1 / 7200 - (1 - alphaL) / 60) * x**2))


declare(
    row(
        "cflag/lemma-18", "O(1), αL = ½", "T", 0, up(30), "mean Γ", constant_rates, None,
        "two quadratic tasks of one curvature, β = 1/(60LE), E = 2", formula=lambda T: 1 / T + 1,
    ),
    row(
        "cflag/lemma-18", "11/(60L)·ω² + …, αL = ½", "L", -1, up(0.1, False), "mean Γ",
        lambda L: constant_rates(300, L), None, "T = 300, distances as 1/L so that gradients and ω are held",
        formula=lambda L: 1 / L,
    ),
    row(
        "cflag/lemma-18", "O(1), αL = 1.99", "T", 0, up(20), "mean Γ", unstable,
        lambda T: min(unstable(T, a) for a in (1.985, 1.99, 1.995)),
        "two equal quadratic tasks, m = 0.001, β = 1/(60LE), E = 1; free: αL near its limit 2/(1 + m)",
        formula=lambda T: 1 / T + 1,
        note="β adds to α, and the round expands. This is the step that the ledger's gap names; m > 1 repairs it.",
    ),
)  # fmt: skip


# ---- FedEve ----


def distance(T: float = 1000, n: float = 10, L: float = 1.0, sigma: float = 1.0, falling: bool = True) -> float:
    from theory.claims import fedeve_generalisation

    case = {"T": int(T), "L": L, "n": n, "sigma": sigma, "mu": 0.1, "falling": falling}
    return fedeve_generalisation.generalisation_bound(case).measured


WORST = "curvature −L and one local step, the worst case, at the largest steps allowed, 1/(L(t + 1)) unless said"
TERM = "L_p TΣ/(nL_m)"


def stability(parameter: str, predicted: float, xs: Iterable[float], name: str) -> Rate:
    def own(x: float) -> float:
        changed: dict[str, Any] = {name: x}
        return distance(**changed)

    def claimed(x: float) -> float:
        c = {"T": 1000.0, "n": 10.0, "L": 1.0, "sigma": 1.0} | {name: x}
        return c["T"] * c["sigma"] / (c["n"] * c["L"])

    return row("fedeve/thm-c.2", TERM, parameter, predicted, xs, "E|w − w′|", own, None, WORST, formula=claimed)


declare(
    stability("T", 1, up(100), "T"), stability("n", -1, up(10), "n"), stability("L_m", -1, up(1.0, False), "L"),
    stability("Σ", 1, up(1.0, False), "sigma"),
    row(
        "fedeve/thm-c.2", TERM, "T", 1, up(100), "E|w − w′|", lambda T: distance(T, falling=False), None,
        WORST + ": here 1/(LT) in all rounds", formula=lambda T: T / 10, note="A constant step hardly moves the model.",
    ),
    Rate(
        "fedeve/thm-c.2", "fedeve/thm-c.2", "", TERM, "L_p", 1, "large", "",
        note="L_p multiplies both sides by definition: the loss of a distance.",
    ),
)  # fmt: skip


def mean_square(T: float, step: float) -> float:
    """The mean of ‖∇R(w_t)‖² over T rounds on a quadratic of curvature 1/10 from Δ₀ = 1, L = 1, without noise."""
    keep = (1 - 0.1 * step) ** 2
    return 0.2 * (1 - keep**T) / (T * (1 - keep))


def mean_square_free(T: float) -> float:
    return min(mean_square(T, float(step)) for step in np.geomspace(1e-3, 1.0, 31))


def taken_over(term: str, prescribed: Measure, regime: str, note: str) -> Rate:
    return row(
        "fedeve/c.4-convergence", term, "T", -1, up(100), "mean ‖∇R‖²", prescribed, mean_square_free,
        f"a quadratic of curvature L/10, no noise, {regime}; free: the best constant step up to 1/L",
        formula=lambda T: fedeve_bounds.mean_square_gradient(1.0, 1.0, 0.0, 10, 1, int(T)), still=lambda T: 0.2,
        note=note,
    )  # fmt: skip


declare(
    taken_over("L_mΔ₀/T, tuned steps", lambda T: mean_square(T, 1.0), "one local step of 1/L", ""),
    taken_over(
        "L_mΔ₀/T, Theorem C.2's steps", lambda T: mean_square(T, 1 / T), "one local step of 1/(L_mKT)",
        "Such steps add up to 1/L over the whole run. This is the step that the ledger's gap names.",
    ),
)  # fmt: skip
