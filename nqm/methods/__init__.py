"""The methods. A file of this folder is a family; adding a method touches one file."""

from __future__ import annotations

import importlib
import pkgutil

from .base import METHODS, Linear, Method, Server

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

from .cfl import CFL, CL  # noqa: E402
from .cflag import CFlag, FedTrack  # noqa: E402
from .fedavg import FedAvg, FedProx  # noqa: E402
from .fedeve import FedEve  # noqa: E402
from .momentum import FedAvgM, FedOpt, MimeLite  # noqa: E402
from .scaffold import Scaffold  # noqa: E402
from .sgd import SGD  # noqa: E402
from .special import Special, SpecialC  # noqa: E402

__all__ = [
    "CFL",
    "CL",
    "METHODS",
    "SGD",
    "CFlag",
    "FedAvg",
    "FedAvgM",
    "FedEve",
    "FedOpt",
    "FedProx",
    "FedTrack",
    "Linear",
    "Method",
    "MimeLite",
    "Scaffold",
    "Server",
    "Special",
    "SpecialC",
]
