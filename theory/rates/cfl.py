"""The rates of `cfl`, Theorems 4.1, 4.4, 4.7, B.5, B.6 and Remark 4.2, parameter by parameter.

Theorems 4.1 and 4.4 coincide where there is no time drift to remember: CFL's weights are then on the current round.
The parts on noise, client drift and the transient are thus one measurement, judged by each theorem's formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from theory.bounds import cfl_rates as bounds

from .claims import Rate, declare
from .sweeps import Formula, rows
from .world import PARTS, World


def _common(w: World) -> dict[str, Any]:
    return {"N": w.N, "K": w.K, "sigma2": w.sigma2}


def strongly(w: World, full: bool = False, R2: float | None = None) -> float:
    """Rounds of Theorem 4.1 (R2 = inf: 4.4; F2 > 0: 4.7), strongly convex; ``full`` with the terms of B.5."""
    drift: dict[str, Any] = {"G2": w.G2, "D2": w.D2 - w.F2, "R2": w.R2 if R2 is None else R2, "A2": w.A2, "B2": w.B2}
    return bounds.cfl_rounds_sc(w.eps, mu=w.mu, L=w.L, full=full, **_common(w), **drift)


def general(w: World, full: bool = False, R2: float | None = None) -> float:
    """The same, general convex."""
    drift: dict[str, Any] = {"G2": w.G2, "D2": w.D2 - w.F2, "R2": w.R2 if R2 is None else R2, "A2": w.A2, "B2": w.B2}
    return bounds.cfl_rounds_gc(w.eps, L=w.L, H=w.H, full=full, **_common(w), **drift)


def nonconvex(w: World, R2: float = math.inf) -> float:
    """The same, non-convex, c_m = 1/2 − L² as for FedAvg without slopes."""
    return bounds.cfl_rounds_nc(w.eps, L=w.L, gap=w.gap, c_m=0.5 - w.L**2, D2=w.D2, R2=R2, full=False, **_common(w))


def fedavg(formula: Callable[..., float], full: bool = False) -> Formula:
    """The formula for FedAvg, R without bound."""
    return lambda w: formula(w, full=full, R2=math.inf)


def cfl(formula: Callable[..., float], full: bool = False) -> Formula:
    return lambda w: formula(w, full=full)


# Regimes. One term at a time: what does not belong to it is zero, and eps so small that it outweighs the transient.
START = World("sc", eps=1e-8, mu=0.01)
GROWS = World("sc", eps=1e-8, A2=10.0)
NOISE = World("sc", eps=1e-8, sigma2=1.0)
NOISE_EPS = World("sc", eps=1e-3, sigma2=1.0)  # few enough rounds for a falling step, which is iterated
TIME = World("sc", eps=1e-8, D2=1.0)
NEW = World("sc", eps=1e-8, G2=1.0)
FLAT_START = World("gc", eps=1e-3)
FLAT_GROWS = World("gc", eps=1e-3, A2=10.0)
FLAT_NOISE = World("gc", eps=1e-5, sigma2=1.0)
FLAT_TIME = World("gc", eps=1e-5, D2=1.0)
FLAT_NEW = World("gc", eps=1e-5, G2=1.0)

NEW_CLIENTS = "Clients are drawn anew in each round; if they return, an error of order G²/(μN) stays for ever."
LOGARITHM = "A constant step pays a logarithm; a falling one does not."
MEAN_OF_N = "Drifts of N clients are independent, and their mean has a variance N times smaller."
NO_L = "c_O H/ε lacks the L that gradient descent needs, as a misprint; the ledger's repair has it."


def convex_rows(claim: str, sc: str, gc: str, formulas: tuple[Formula, Formula], drift: bool = True) -> list[Rate]:
    """What the theorems share: transient, noise, client drift, and for FedAvg time drift."""
    s, g = formulas
    made = [
        *rows(claim, sc, "L c_O/μ", START, {"L": 1, "mu": -1, "eps": 0}, formula=s),
        *rows(claim, sc, "L c_O/μ", GROWS, {"A": 2}, formula=s, rest={"A2": 0.0}, note="N = 1, the worst."),
        *rows(
            claim, sc, "σ²/(μNKε)", NOISE_EPS, {"eps": -1}, formula=s, rest={"sigma2": 0.0}, falls=True, note=LOGARITHM,
        ),
        *rows(
            claim, sc, "σ²/(μNKε)", NOISE, {"sigma": 2, "N": -1, "K": -1, "mu": -1}, formula=s, rest={"sigma2": 0.0},
        ),
        *rows(
            claim, sc, "G²/(με)", NEW, {"eps": -1, "G": 2, "N": 0, "mu": -1},
            formula=s, rest={"G2": 0.0}, note=NEW_CLIENTS, notes={"N": MEAN_OF_N},
        ),
        *rows(claim, gc, "c_O H/ε", FLAT_START, {"eps": -1, "H": 1, "L": 0}, formula=g, notes={"L": NO_L}),
        *rows(claim, gc, "c_O H/ε", FLAT_GROWS, {"A": 2}, formula=g, rest={"A2": 0.0}, note="N = 1, the worst."),
        *rows(
            claim, gc, "σ²H/(NKε²)", FLAT_NOISE, {"eps": -2, "sigma": 2, "N": -1, "K": -1, "H": 1},
            formula=g, rest={"sigma2": 0.0},
        ),
        *rows(
            claim, gc, "G²H/ε²", FLAT_NEW, {"eps": -2, "G": 2, "N": 0, "H": 1},
            formula=g, rest={"G2": 0.0}, note=NEW_CLIENTS, notes={"N": MEAN_OF_N},
        ),
    ]  # fmt: skip
    if drift:
        made += [
            *rows(
                claim, sc, "D²/(με)", TIME, {"eps": -1, "D": 2, "N": 0, "K": 0, "mu": -1},
                formula=s, rest={"D2": 0.0}, notes={"N": MEAN_OF_N},
            ),
            *rows(
                claim, gc, "D²H/ε²", FLAT_TIME, {"eps": -2, "D": 2, "N": 0, "K": 0, "H": 1},
                formula=g, rest={"D2": 0.0}, notes={"N": MEAN_OF_N},
            ),
        ]  # fmt: skip
    return made


LOCAL = World("sc", eps=1e-10, L=100.0, N=10**14, sigma2=1.0)
QUADRATICS = "Clients with one Hessian have no such term: this is about quadratics only."


def local_rows(claim: str, sc: str, formula: Formula) -> list[Rate]:
    """The term of the full theorems that local steps bring in; it dominates for very many clients only."""
    return rows(
        claim, sc, "√(Lσ²/(μ²Kε))", LOCAL, {"eps": -0.5, "sigma": 1},
        formula=formula, rest={"sigma2": 0.0}, note=QUADRATICS,
    )  # fmt: skip


# Non-convex: the mean of ‖∇f‖² over the rounds, on f = Lw²/2 with 2L² < 1.
FALL = World("nc", eps=1.0, L=0.3, gap=1e6)
SHAKE = World("nc", eps=1e-2, L=0.1, gap=1.0, sigma2=1e6)
BARE = World("nc", eps=1e-4, L=0.35, gap=0.1, D2=1.0)
NO_DRIFT = "The claim has no drift at all where a squared gradient should stand."


def nonconvex_rows(claim: str, ledger: str) -> list[Rate]:
    return [
        *rows(
            claim, ledger, "(L(f₀−f*)/(c_m ε))²/(NK)", FALL, {"eps": -2, "gap": 2, "N": -1, "K": -1},
            formula=nonconvex, rest={"gap": 0.0},
        ),
        *rows(
            claim, ledger, "(L(f₀−f*)/(c_m ε))²/(NK)", FALL, {"L": 2},
            formula=nonconvex, rest={"gap": 0.0}, towards={"L": "small"},
            note="L < √½ by the theorem, so it is moved down; the gap is held.",
        ),
        *rows(
            claim, ledger, "σ⁴/(NKε²)", SHAKE, {"eps": -2, "sigma": 4, "N": -1, "K": -1},
            formula=nonconvex, rest={"sigma2": 0.0},
        ),
    ]  # fmt: skip


def bare_rows(claim: str, ledger: str) -> list[Rate]:
    """FedAvg's drift term, which has no drift in it."""
    return [
        *rows(
            claim, ledger, "KN/(L²ε²)", BARE, {"eps": -2, "D": 0, "N": 1, "K": 1}, formula=nonconvex,
            notes={"D": NO_DRIFT, "N": MEAN_OF_N},
        ),
        *rows(claim, ledger, "KN/(L²ε²)", BARE, {"L": -2}, formula=nonconvex, towards={"L": "small"}),
    ]  # fmt: skip


# ---- Theorems 4.4 and B.6: FedAvg ----

for _claim, _full in (("cfl/thm-4.4", False), ("cfl/thm-b.6", True)):
    declare(
        *convex_rows(_claim, f"{_claim}-sc", f"{_claim}-gc", (fedavg(strongly, _full), fedavg(general, _full))),
        *(local_rows(_claim, f"{_claim}-sc", fedavg(strongly, True)) if _full else []),
        *nonconvex_rows(_claim, f"{_claim}-nc"),
        *bare_rows(_claim, f"{_claim}-nc"),
    )


# ---- Theorems 4.1 and B.5: CFL. New clients bring a history of their own ----

FORGETS = World("sc", eps=1e-8, D2=1.0, R2=math.inf)
FORGETS_R = World("sc", eps=1e-3, D2=1.0, R2=1e12)
KEEPS = World("sc", eps=1e-6, H=100.0, D2=100.0, R2=1e-4)
MEMORY = World("sc", eps=1e-6, D2=1.0)
FLAT_MEMORY = World("gc", eps=0.3, D2=2.5e3)
FLAT_MEMORY_D = World("gc", eps=0.3, D2=100.0)
FORGETTING = "R ≫ D (infinite unless it moves): hardly any memory, and φ far below ε."
KEEPING = "R ≪ D: φ = 2R‖w₀ − w*‖ covers far more than the rounds claimed could win."


def memory_rows(claim: str, full: bool) -> list[Rate]:
    """Time drift with memory: large information loss, small, and for the full theorem none."""
    sc, gc, s = f"{claim}-sc", f"{claim}-gc", cfl(strongly)
    drift: dict[str, Any] = {"rest": {"D2": 0.0}, "method": "cfl"}
    made = [
        *rows(
            claim, sc, "D²R²/(R²+D²)/(με)", FORGETS, {"eps": -1, "D": 2, "N": 0}, formula=s, note=FORGETTING, **drift
        ),
        *rows(claim, sc, "D²R²/(R²+D²)/(με)", FORGETS_R, {"R": 0}, formula=s, note=FORGETTING, **drift),
        *rows(claim, sc, "D²R²/(R²+D²)/(με)", KEEPS, {"R": 2, "eps": -1}, formula=s, note=KEEPING, **drift),
    ]
    if full:
        s, g = cfl(strongly, True), cfl(general, True)
        exponents = {"eps": -0.5, "D": 1, "N": 0, "mu": -0.5}
        made += [
            *rows(claim, sc, "√(c_B/(με)), c_B = D²", MEMORY, exponents, formula=s, note=NO_LOSS, **drift),
            *rows(
                claim, gc, "√(c_B H)/ε, c_B = D²", FLAT_MEMORY, {"eps": -1, "N": 0}, formula=g, note=NO_LOSS, **drift,
            ),
            *rows(claim, gc, "√(c_B H)/ε, c_B = D²", FLAT_MEMORY_D, {"D": 1}, formula=g, note=NO_LOSS, **drift),
        ]  # fmt: skip
    return made


NO_LOSS = (
    "R = 0, so that φ = 0, and new clients who bring a history of their own; see cfl/remark-4.2 for returning ones."
)
WITH_BIAS = (
    "The claim holds up to Section B.5's own φ, which does not vanish: with it no rounds are needed, without it the "
    "accuracy is never reached."
)


def biased(claim: str, ledger: str, parameter: str, predicted: float) -> Rate:
    """A parameter of the non-convex c_R1 term, which no sweep can isolate."""
    return Rate(
        claim, ledger, PARTS["nc"], "KN c_R1⁴/(L²ε²)", parameter, predicted, "large",
        "R ≪ D", note=WITH_BIAS,
    )  # fmt: skip


for _claim, _full in (("cfl/thm-4.1", False), ("cfl/thm-b.5", True)):
    declare(
        *convex_rows(_claim, f"{_claim}-sc", f"{_claim}-gc", (cfl(strongly, _full), cfl(general, _full)), drift=False),
        *(local_rows(_claim, f"{_claim}-sc", cfl(strongly, True)) if _full else []),
        *memory_rows(_claim, _full),
        *nonconvex_rows(_claim, f"{_claim}-nc"),
        *(biased(_claim, f"{_claim}-nc", p, e) for p, e in (("R", 4 if _full else 8), ("D", -4 if _full else -8))),
    )


# ---- Remark 4.2: one client, who comes back ----

ALONE = World("sc", eps=1e-2, D2=1.0, clients="returning")
ALONE_D = World("sc", eps=0.02, H=0.8, D2=1.0, clients="returning")
FLAT_ALONE = World("gc", eps=0.3, D2=4.0, clients="returning")
COMES_BACK = "R = 0, φ = 0, N = 1: T drifts cannot be averaged below D²/T. B.5's lower-order terms are granted."


def alone_rows(claim: str, ledgers: tuple[str, str]) -> list[Rate]:
    drift: dict[str, Any] = {"rest": {"D2": 0.0}, "method": "cfl", "note": COMES_BACK}
    return [
        *rows(claim, ledgers[0], "√(c_B/(με)), c_B = D²", ALONE, {"eps": -0.5}, formula=cfl(strongly, True), **drift),
        *rows(claim, ledgers[0], "√(c_B/(με)), c_B = D²", ALONE_D, {"D": 1}, formula=cfl(strongly, True), **drift),
        *rows(
            claim, ledgers[1], "all terms, R = 0", FLAT_ALONE, {"eps": -1}, formula=cfl(general, True), method="cfl",
            note=COMES_BACK,
        ),
    ]  # fmt: skip


declare(*alone_rows("cfl/remark-4.2", ("cfl/remark-4.2", "cfl/remark-4.2")))


# ---- Theorem 4.7: overlap ----

EQUAL = World("sc", eps=1e-6, D2=1.0, F2=1.0)
HALF = World("sc", eps=1e-2, D2=1.0, F2=0.5)
FLAT_EQUAL = World("gc", eps=1e-4, D2=1.0, F2=1.0)
SHARED = "F = D, so M = 0, φ = 0 and the claim is free of the drift, which new clients still have."

declare(
    *convex_rows("cfl/thm-4.7", "cfl/thm-4.7-sc", "cfl/thm-4.7-gc", (cfl(strongly), cfl(general)), drift=False),
    *rows(
        "cfl/thm-4.7", "cfl/thm-4.7-sc", "all terms, F = D", EQUAL, {"eps": 0, "F": 0, "N": 0}, formula=cfl(strongly),
        method="cfl", note=SHARED,
    ),
    *rows(
        "cfl/thm-4.7", "cfl/thm-4.7-sc", "all, F² = D²/2", HALF, {"eps": -0.5},
        formula=cfl(strongly, True), rest={"D2": 0.0, "F2": 0.0}, method="cfl",
        note="R = 0, φ = 0; B.5's lower-order terms granted.",
    ),
    *rows(
        "cfl/thm-4.7", "cfl/thm-4.7-gc", "all terms, F = D", FLAT_EQUAL, {"eps": -1, "F": 0, "N": 0},
        formula=cfl(general), method="cfl", note=SHARED,
    ),
    *nonconvex_rows("cfl/thm-4.7", "cfl/thm-4.7-nc"),
    *(biased("cfl/thm-4.7", "cfl/thm-4.7-nc", p, e) for p, e in (("R", 8), ("F", -8))),
)  # fmt: skip
