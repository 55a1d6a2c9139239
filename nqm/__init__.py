"""The noisy quadratic model: client, time and period drift for every method, sampled or exact.

import nqm
curve = nqm.expect(nqm.Quadratic(dim=50, L=20), nqm.Drift(time=100), nqm.Federation(), nqm.FedAvg(lr=0.01))
"""

from . import transfer
from .check import InvalidInput
from .drift import Drift
from .exact import expect
from .experiment import Experiment
from .federation import Federation
from .methods import (
    CFL,
    CL,
    METHODS,
    SGD,
    CFlag,
    FedAvg,
    FedAvgM,
    FedEve,
    FedOpt,
    FedProx,
    FedTrack,
    Method,
    MimeLite,
    Scaffold,
    Special,
    SpecialC,
)
from .plan import Clients, draw_clients
from .problem import Quadratic
from .result import load, save
from .schedule import Schedule, Table
from .simulate import ENGINES, simulate
from .tune import Tuned, stability_limit, tune

__all__ = [
    "CFL",
    "CL",
    "ENGINES",
    "METHODS",
    "SGD",
    "CFlag",
    "Clients",
    "Drift",
    "Experiment",
    "FedAvg",
    "FedAvgM",
    "FedEve",
    "FedOpt",
    "FedProx",
    "FedTrack",
    "Federation",
    "InvalidInput",
    "Method",
    "MimeLite",
    "Quadratic",
    "Scaffold",
    "Schedule",
    "Special",
    "SpecialC",
    "Table",
    "Tuned",
    "draw_clients",
    "expect",
    "load",
    "save",
    "simulate",
    "stability_limit",
    "transfer",
    "tune",
]
