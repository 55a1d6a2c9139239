"""FedEve: momentum predicts the round, clients observe it, a Kalman gain fuses both (Eq. (12a)-(12f) of `fedeve`).

The two variances are estimated by (13); ``gain`` fixes K instead. The paper does not say where sigma_0^2 begins: we
take 0. Where both variances vanish the gain is 1, that of an exact observation. ``predict = False`` leaves (12a) out:
clients begin at w, and with gain 1 that is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nqm.check import flag

from ..local import Carried, Cohort
from ..network import Net
from .base import State, mean
from .fedavg import FedAvg


@dataclass(frozen=True)
class FedEve(FedAvg):
    """gain: a fixed K in place of (12c). predict: whether clients begin at the prediction (12a), or at w."""

    gain: float | None = None
    predict: bool = True
    name: ClassVar[str] = "fedeve"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gain is not None:
            self.check("gain", 0.0, 1.0)
        flag("method.predict", self.predict)

    def begin(self, net: Net, w: Tensor) -> State:
        return {"M": torch.zeros_like(w), "variance": 0.0, "gain": 0.0, "period_var": 0.0, "client_var": 0.0}

    def start(self, w: Tensor, state: State) -> Tensor:
        return w - self.server_lr * state["M"] if self.predict else w  # (12a)

    def collect(self, cohort: Cohort, start: Tensor, ends: Tensor, own: Carried, state: State) -> tuple[Tensor, State]:
        S, d = ends.shape
        seen = start - ends
        average = mean(cohort.share, seen)
        period = (state["M"] - average).square().sum() / (S * d)  # (13)
        client = (seen - average).square().sum() / (S**2 * d)
        return -average, state | {"period_var": float(period), "client_var": float(client)}

    def server_step(self, w: Tensor, update: Tensor, state: State) -> tuple[Tensor, State]:
        predicted = state["variance"] + state["period_var"]  # (12b)
        total = predicted + state["client_var"]
        K = self.gain
        if K is None:
            K = predicted / total if total > 0 else 1.0  # (12c)
        M = (1 - K) * state["M"] - K * update  # (12d), written so that K = 1 forgets M exactly
        state = state | {"M": M, "variance": (1 - K) * predicted, "gain": K}  # (12f)
        return w - self.server_lr * M, state  # (12e)

    def diagnostics(self, state: State) -> dict[str, float]:
        return {name: state[name] for name in ("gain", "period_var", "client_var")}
