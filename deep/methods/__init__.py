"""The methods. A file of this folder is a family; adding a method touches one file."""

from __future__ import annotations

import importlib
import pkgutil

from .base import METHODS, Method, State

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

from .cflag import CFlag, FedTrack  # noqa: E402
from .coreset import CoreSet, Generative  # noqa: E402
from .distill import FLwF2T, LwF  # noqa: E402
from .ewc import EWC  # noqa: E402
from .fedavg import FedAvg, FedProx  # noqa: E402
from .fedeve import FedEve  # noqa: E402
from .regularization import Regularization, RegularizationProx  # noqa: E402
from .replay import ER, NCCL  # noqa: E402
from .scaffold import MimeLite, Scaffold  # noqa: E402
from .server import FedAvgM, FedOpt  # noqa: E402
from .special import Special, SpecialC  # noqa: E402

__all__ = [
    "ER",
    "EWC",
    "METHODS",
    "NCCL",
    "CFlag",
    "CoreSet",
    "FLwF2T",
    "FedAvg",
    "FedAvgM",
    "FedEve",
    "FedOpt",
    "FedProx",
    "FedTrack",
    "Generative",
    "LwF",
    "Method",
    "MimeLite",
    "Regularization",
    "RegularizationProx",
    "Scaffold",
    "Special",
    "SpecialC",
    "State",
]
