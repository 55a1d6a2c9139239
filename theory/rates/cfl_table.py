"""`cfl`, Table 1, row by row: rates of earlier work as the table quotes them, with time drift put in, and its own.

The table leaves out L and ‖w_0 − w*‖, which are one here, and prescribes no step to earlier work: those rows are tuned
freely. Where it has G, all clients take part and f is their mean, as in the works it quotes; two kinds of clients with
curvatures half as much and half again then have the term that local steps bring in. Time drift is the table's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from theory.bounds import cfl_rates as bounds

from . import cfl
from .claims import Rate, declare
from .sweeps import Formula, rows
from .world import PARTS, World

CONVENTIONAL = World("sc", eps=1e-6, G2=1.0, N=2, K=10, clients="all")
FLAT_CONVENTIONAL = World("gc", eps=1e-5, G2=1e-4, N=2, K=10, clients="all")
FLAT_TIME = World("gc", eps=1e-5, D2=1e-4)
FLAT_DEEP = World("gc", eps=1e-7, D2=1.0)
STEEP = World("sc", eps=1e-12, mu=1e-5)
CROWD = World("sc", eps=1e-4, N=10**14, sigma2=1e4)
MANY = World("sc", eps=1e-8, A2=1e3)
FLAT_MANY = World("gc", eps=1e-3, A2=1e3)
LARGE = World("sc", eps=1e-5, D2=1e4)
FLAT_LARGE = World("gc", eps=1e-5, D2=1e-2)
PUT_IN = (
    "The quoted works have no time drift; with D put in where they have G, the cell is below what N·T draws of drift "
    "can give."
)
PER_ROUND = "A client's drift stays the same through its K local steps: they do not average it."
CONVENTION = "All clients in every round, f their mean; commuting quadratics, so faster is about them only."


def cell(row: str, column: str) -> Formula:
    """A cell of the table as a function of a world."""
    found = getattr(bounds.TABLE_1[row], column)

    def value(w: World) -> float:
        names = ("eps", "mu", "N", "K", "sigma2", "G2", "D2", "R2", "A2", "B2")
        return float(found(bounds.World(**{name: getattr(w, name) for name in names})))

    return value


def table_rows(row: str, ledger: str = "", prescribed: bool = False, method: str = "fedavg") -> Any:
    """A function that makes rows of one line of the table: (term, world, exponents, ...) as in `sweeps.rows`."""
    name = row.lower().replace(", ", "-")

    def make(term: str, world: World, exponents: Mapping[str, float], **more: Any) -> list[Rate]:
        column = "strongly" if world.part == "sc" else "general"
        options: dict[str, Any] = {"prescribed": prescribed, "method": method} | more
        return rows(f"cfl/table-1/{name}", ledger, term, world, exponents, formula=cell(row, column), **options)

    return make


SIGMA, DRIFT, CLIENT, SLOPE = ({name: 0.0} for name in ("sigma2", "D2", "G2", "A2"))
NOISY = {"eps": -1, "sigma": 2, "N": -1, "K": -1, "mu": -1}
FLAT_NOISY = {"eps": -2, "sigma": 2, "N": -1, "K": -1}

_sgd = table_rows("SGD", method="sgd")
declare(
    *_sgd("1/μ", cfl.START, {"mu": -1}),
    *_sgd("σ²/(μNKε)", cfl.NOISE, NOISY, rest=SIGMA),
    *_sgd("1/ε", cfl.FLAT_START, {"eps": -1}),
    *_sgd("σ²/(NKε²)", cfl.FLAT_NOISE, FLAT_NOISY, rest=SIGMA),
)

_li = table_rows("FedAvg, Li")
declare(
    *_li("σ²/(μ²NKε)", cfl.NOISE, NOISY | {"mu": -2}, rest=SIGMA),
    *_li("D²K/(μ²ε)", cfl.TIME, {"eps": -1, "D": 2, "N": 0, "K": 1, "mu": -2}, rest=DRIFT),
    *_li("G²K/(μ²ε)", cfl.NEW, {"eps": -1, "G": 2}, rest=CLIENT, note=cfl.NEW_CLIENTS),
)

_khaled = table_rows("FedAvg, Khaled", "cfl/table-1-khaled")
declare(
    *_khaled("σ²/(μNKε)", cfl.NOISE, NOISY, rest=SIGMA),
    *_khaled("D²/(μNKε)", cfl.TIME, {"eps": -1, "D": 2, "N": -1, "mu": -1}, rest=DRIFT),
    *_khaled("D²/(μNKε)", cfl.TIME, {"K": -1}, rest=DRIFT, note=f"{PUT_IN} {PER_ROUND}"),
    *_khaled("G²/(μNKε)", CONVENTIONAL, {"eps": -1, "G": 2}, rest=CLIENT, note=CONVENTION),
    *_khaled("N A²/μ", MANY, {"A": 2, "N": 1}, rest=SLOPE),
    *_khaled("σ²/(NKε²)", cfl.FLAT_NOISE, {"eps": -2, "sigma": 2}, rest=SIGMA),
    *_khaled("D²/(NKε²)", FLAT_DEEP, {"eps": -2, "D": 2, "N": -1}, rest=DRIFT),
    *_khaled("D²/(NKε²)", FLAT_DEEP, {"K": -1}, rest=DRIFT, note=f"{PUT_IN} {PER_ROUND}"),
    *_khaled("N A²/ε", FLAT_MANY, {"A": 2, "eps": -1}, rest=SLOPE),
)

_karimireddy = table_rows("FedAvg, Karimireddy", "cfl/table-1-match")
declare(
    *_karimireddy("c_pB/μ", cfl.START, {"mu": -1}),
    *_karimireddy("c_pB/μ", MANY, {"A": 2, "N": 0}, rest=SLOPE),
    *_karimireddy("σ²/(μNKε)", cfl.NOISE, NOISY, rest=SIGMA),
    *_karimireddy("G/(μ√ε)", CONVENTIONAL, {"eps": -0.5, "G": 1, "mu": -1}, rest=CLIENT, note=CONVENTION),
    *_karimireddy("D/(μ√ε)", cfl.TIME, {"eps": -0.5, "D": 1}, rest=DRIFT, note=PUT_IN),
    *_karimireddy("σ²/(NKε²)", cfl.FLAT_NOISE, FLAT_NOISY, rest=SIGMA),
    *_karimireddy("G/ε^(3/2)", FLAT_CONVENTIONAL, {"eps": -1.5, "G": 1}, rest=CLIENT, note=CONVENTION),
    *_karimireddy("D/ε^(3/2)", FLAT_TIME, {"eps": -1.5, "D": 1}, rest=DRIFT, note=PUT_IN),
)

_woodworth = table_rows("FedAvg, Woodworth")
declare(
    *_woodworth("√c_pB/(K√(με))", STEEP, {"eps": -0.5, "K": -1, "mu": -0.5}),
    *_woodworth("σ²c_pB/(NKε²)", cfl.NOISE, NOISY | {"eps": -2, "mu": 0}, rest=SIGMA),
    *_woodworth("G/(μ√ε)", CONVENTIONAL, {"eps": -0.5, "G": 1, "mu": -1}, rest=CLIENT, note=CONVENTION),
    *_woodworth("D/(μ√ε)", LARGE, {"eps": -0.5, "D": 1}, rest=DRIFT, note=PUT_IN),
    *_woodworth("σ/(μ√(Kε))", CROWD, {"eps": -0.5, "sigma": 1}, rest=SIGMA, note=cfl.QUADRATICS),
    *_woodworth("c_pB/(Kε)", cfl.FLAT_START, {"eps": -1, "K": -1}),
    *_woodworth("σ²c_pB/(NKε²)", cfl.FLAT_NOISE, FLAT_NOISY, rest=SIGMA),
    *_woodworth("G c_pB/ε^(3/2)", FLAT_CONVENTIONAL, {"eps": -1.5, "G": 1}, rest=CLIENT, note=CONVENTION),
    *_woodworth("D c_pB/ε^(3/2)", FLAT_LARGE, {"eps": -1.5, "D": 1}, rest=DRIFT, note=PUT_IN),
)

_fedavg = table_rows("FedAvg, ours", "cfl/table-1-ours", prescribed=True)
declare(
    *_fedavg("c_pB/μ", cfl.START, {"mu": -1}),
    *_fedavg("c_pB/μ", cfl.GROWS, {"A": 2}, rest=SLOPE),
    *_fedavg("σ²/(μNKε)", cfl.NOISE, NOISY, rest=SIGMA),
    *_fedavg("G²/(με)", cfl.NEW, {"eps": -1, "G": 2, "N": 0, "mu": -1}, rest=CLIENT, note=cfl.NEW_CLIENTS),
    *_fedavg("D²/(με)", cfl.TIME, {"eps": -1, "D": 2, "N": 0, "mu": -1}, rest=DRIFT),
    *_fedavg("c_pB/ε", cfl.FLAT_START, {"eps": -1}),
    *_fedavg("σ²/(NKε²)", cfl.FLAT_NOISE, FLAT_NOISY, rest=SIGMA),
    *_fedavg("G²/ε²", cfl.FLAT_NEW, {"eps": -2, "G": 2, "N": 0}, rest=CLIENT, note=cfl.NEW_CLIENTS),
    *_fedavg("D²/ε²", cfl.FLAT_TIME, {"eps": -2, "D": 2, "N": 0}, rest=DRIFT),
)

NOT_READ = "The table and Remark 4.2 disagree on what the cited work has, and neither version of it was read."
declare(
    *(
        Rate("cfl/table-1/cl-yin", "cfl/table-1-yin", PARTS["sc"], "μ/ε", p, e, t, "", note=NOT_READ)
        for p, e, t in (("ε", -1.0, "small"), ("μ", 1.0, "small"))
    )
)

_cl = table_rows("CL, ours", "cfl/table-1-cl", prescribed=True, method="cfl")
declare(
    *_cl("(1 + A²)/μ", cfl.START, {"mu": -1}),
    *_cl("σ²/(μKε)", cfl.NOISE, {"eps": -1, "sigma": 2, "K": -1, "mu": -1}, rest=SIGMA),
    *_cl("c_A/(με)", cfl.FORGETS, {"eps": -1, "D": 2}, rest=DRIFT, note=cfl.FORGETTING),
    *_cl("c_A/(με)", cfl.KEEPS, {"R": 2, "eps": -1}, rest=DRIFT, note=cfl.KEEPING),
    *cfl.alone_rows("cfl/table-1/cl-ours", ("cfl/remark-4.2", "cfl/remark-4.2")),
    *_cl("σ²/(Kε²)", cfl.FLAT_NOISE, {"eps": -2, "sigma": 2, "K": -1}, rest=SIGMA),
)

_cfl = table_rows("CFL, ours", "cfl/table-1-ours", prescribed=True, method="cfl")
declare(
    *_cfl("c_pB/μ", cfl.START, {"mu": -1}),
    *_cfl("σ²/(μNKε)", cfl.NOISE, NOISY, rest=SIGMA),
    *_cfl("G²/(με)", cfl.NEW, {"eps": -1, "G": 2, "N": 0}, rest=CLIENT, note=cfl.NEW_CLIENTS),
    *_cfl("c_A/(με)", cfl.FORGETS, {"eps": -1, "D": 2, "N": 0}, rest=DRIFT, note=cfl.FORGETTING),
    *_cfl("c_A/(με)", cfl.KEEPS, {"R": 2, "eps": -1}, rest=DRIFT, note=cfl.KEEPING),
    *_cfl("c_pB/ε", cfl.FLAT_START, {"eps": -1}),
    *_cfl("σ²/(NKε²)", cfl.FLAT_NOISE, FLAT_NOISY, rest=SIGMA),
    *_cfl("G²/ε²", cfl.FLAT_NEW, {"eps": -2, "G": 2, "N": 0}, rest=CLIENT, note=cfl.NEW_CLIENTS),
)
