"""Sweeps on the noisy quadratic model: one parameter over two decades, everything else held, and the rows they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from . import limits
from .claims import Curve, Rate
from .rounds import Reached, decreasing, phi, rounds_to
from .world import PARTS, World, moved

POINTS = 7
TOWARDS = {"eps": "small", "mu": "small"}
WHOLE = (1, 2, 4, 10, 20, 45, 100)
SYMBOLS = {"eps": "ε", "mu": "μ", "sigma": "σ", "gap": "f₀−f*"}

Formula = Callable[[World], float]


def values(world: World, parameter: str, up: float) -> tuple[float, ...]:
    """Two decades from the world's own value (N, K: from 1), the deepest in the regime last."""
    if parameter in ("N", "K"):
        return tuple(float(n) for n in WHOLE)
    square = getattr(world, parameter + "2", None)
    here = math.sqrt(square) if square is not None else getattr(world, parameter)
    return tuple(float(x) for x in here * np.geomspace(1.0, up, POINTS))


def at(world: World, parameter: str, value: float) -> World:
    """The world with the parameter moved. What has to go along goes along, see ``held``."""
    w = moved(world, parameter, value)
    if parameter == "mu" and world.part == "sc":
        # A smaller mu would start closer: hold mu H, the error of the start in the flattest direction.
        w = replace(w, H=world.H * world.mu / value)
    if parameter == "F":
        w = replace(w, D2=w.F2 + world.D2 - world.F2)
    return w


def held(world: World, parameter: str) -> str:
    """What goes along with a parameter, in words."""
    if parameter == "mu" and world.part == "sc":
        return "μH held. "
    return "D² − F² held. " if parameter == "F" else ""


@cache
def sweep(world: World, parameter: str, xs: tuple[float, ...], method: str, prescribed: bool, falls: bool) -> Curve:
    """Rounds to eps + phi along a parameter, with prescribed and with free tuning, and the limits."""
    worlds = [at(world, parameter, x) for x in xs]
    free = [rounds_to(w, method) for w in worlds]
    own = [rounds_to(w, method, "prescribed") for w in worlds] if prescribed else []
    targets = [w.eps + phi(w, method) for w in worlds]
    histories = method == "cfl" and world.clients == "new"
    lines = {
        "information": np.array([limits.information(w, e, histories) for w, e in zip(worlds, targets, strict=True)]),
        "computation": np.array([limits.computation(w, e) for w, e in zip(worlds, targets, strict=True)]),
    }
    still = np.array([limits.standing_still(w) / e for w, e in zip(worlds, targets, strict=True)])
    falling = decreasing(world, np.array(xs)) if falls else None
    rounds = np.array([r.rounds for r in free])
    steps = np.array([r.rounds for r in own]) if prescribed else None
    return Curve(np.array(xs), "rounds", steps, rounds, falling, lines, still, _said([*own, *free]))


def _said(found: list[Reached]) -> tuple[str, ...]:
    gone = [str(r) for r in found if math.isinf(r.rounds)]
    return (f"{gone[-1]}.",) if gone else ()


def rows(
    claim: str,
    ledger: str,
    term: str,
    world: World,
    exponents: Mapping[str, float],
    *,
    formula: Formula,
    rest: Mapping[str, float] | None = None,
    method: str = "fedavg",
    prescribed: bool = True,
    falls: bool = False,
    note: str = "",
    notes: Mapping[str, str] | None = None,
    towards: Mapping[str, str] | None = None,
    span: float = 100.0,
) -> list[Rate]:
    """A row for every parameter of a term. ``rest``: fields that take the term away; what is left is not its share.

    Without ``rest`` all terms of the formula have the same exponents, and the share is that of the formula.
    """
    made = []
    for parameter, predicted in exponents.items():
        towards_ = (towards or {}).get(parameter, TOWARDS.get(parameter, "large"))
        xs = values(world, parameter, 1 / span if towards_ == "small" else span)

        def claimed(x: float, parameter: str = parameter) -> float:
            return formula(at(world, parameter, x))

        def share(x: float, parameter: str = parameter) -> float:
            w = at(world, parameter, x)
            return 1.0 - (formula(replace(w, **rest)) / formula(w) if rest else 0.0)  # type: ignore[arg-type]

        def curve(parameter: str = parameter, xs: tuple[float, ...] = xs) -> Curve:
            return sweep(world, parameter, xs, method, prescribed, falls and parameter == "eps")

        numbers = ", ".join(f"{SYMBOLS.get(k, k)} = {v:g}" for k, v in _given(world, parameter).items())
        how = f"the term's share of the claim is above 90 % at both ends; {held(world, parameter)}{numbers}"
        said = " ".join(x for x in (note, (notes or {}).get(parameter, "")) if x)
        made.append(
            Rate(
                claim,
                ledger,
                PARTS[world.part],
                term,
                SYMBOLS.get(parameter, parameter),
                float(predicted),
                towards_,
                how,
                curve,
                claimed,
                share,
                said,
            )
        )
    return made


def _given(world: World, parameter: str) -> dict[str, float]:
    """The fields that the regime is made of, as a reader would name them."""
    fields = ("eps", "mu", "L", "H", "gap", "N", "K", "sigma2", "G2", "D2", "F2", "R2", "A2", "B2")
    skip = {"sc": ("gap",), "gc": ("mu", "gap"), "nc": ("mu", "H")}[world.part]
    found = {name: float(getattr(world, name)) for name in fields if name not in skip}
    return {name: value for name, value in found.items() if value and name.rstrip("2") != parameter}
