"""The methods. A file of this folder is a family; adding a method touches one file."""

from __future__ import annotations

import importlib
import pkgutil

from .base import METHODS, Linear, Method

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

from .cfl import CFL, CL  # noqa: E402
from .fedavg import FedAvg, FedProx  # noqa: E402
from .sgd import SGD  # noqa: E402

__all__ = ["CFL", "CL", "METHODS", "SGD", "FedAvg", "FedProx", "Linear", "Method"]
