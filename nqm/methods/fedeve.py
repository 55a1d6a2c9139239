"""FedEve: a Kalman filter weighs what momentum predicts against what the clients report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..check import InvalidInput, choice, flag, number
from ..federation import Federation
from .base import Array, Round, Server, server
from .fedavg import FedAvg

VARIANCES = ("paper", "raw", "corrected", "oracle")


@dataclass(frozen=True)
class FedEve(FedAvg):
    r"""Equations (12a)-(12f) of `fedeve`. The model's variance and the momentum M begin as 0.

    variances: where sigma_Q^2 (of the prediction) and sigma_R^2 (of the observation) come from, with
        D_k = w_start - w_k and D their average over S clients:

        ``"paper"``: (13), ||M - D||^2 / (S d) and sum_k ||D_k - D||^2 / (S^2 d).
        ``"raw"``: ||D||^2 / (S d) for the first, as public code has it: it does not look at the prediction.
        ``"corrected"``: R = sum_k ||D_k - D||^2 / (S (S - 1) d), unbiased for clients drawn anew, and what the
        innovation ||M - D||^2 / d, whose mean is sigma_t^2 + sigma_Q^2 + R, leaves over: never less than 0.
        ``"oracle"``: the exact ones given w and M, ||M - E D||^2 / d and Var D / d: with them no gain is better.
    gain: a fixed gain in place of (12c), which makes the method linear.
    predict: whether clients start at the prediction w - server_lr M (12a) or at w. Without it, gain 1 is FedAvg.
    """

    variances: str = "paper"
    gain: float | None = None
    predict: bool = True
    name: ClassVar[str] = "fedeve"
    rule: ClassVar[str] = "kalman"
    traces: ClassVar[tuple[str, ...]] = ("gain", "period_var", "client_var")

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("method.variances", self.variances, VARIANCES)
        flag("method.predict", self.predict)
        if self.gain is not None:
            object.__setattr__(self, "gain", number("method.gain", self.gain, 0.0, 1.0))

    def check_federation(self, federation: Federation) -> None:
        if federation.S < 2 and self.gain is None and self.variances != "oracle":
            raise InvalidInput(
                f"federation.sampled = {federation.S}: method.name = 'fedeve' estimates a variance between clients, "
                "which needs at least 2 (or a fixed gain, or variances = 'oracle')"
            )

    def start(self, r: Round) -> Array:
        return r.w - self.server_lr * r.kept("M") if self.predict else r.w  # (12a)

    def server_step(self, r: Round, update: Array) -> Array:
        M, D, S, d = r.kept("M"), -update, r.federation.S, r.w.size
        before = r.memory.get("variance", 0.0)
        innovation = float((M - D) @ (M - D)) / d
        within = float(sum((moved - update) @ (moved - update) for moved in r.updates.values())) / d
        if self.variances == "paper":  # (13)
            period, client = innovation / S, within / S**2
        elif self.variances == "raw":
            period, client = float(D @ D) / (S * d), within / S**2
        elif self.variances == "corrected":
            client = within / (S * (S - 1))
            period = max(0.0, innovation - before - client)
        else:
            mean, client = r.foresight(r.start)
            period, before = float((M + mean) @ (M + mean)) / d, 0.0
        prior = before + period  # (12b)
        gain = prior / (prior + client) if prior + client > 0 else 1.0  # (12c)
        gain = gain if self.gain is None else self.gain
        r.memory["M"] = M + gain * (D - M)  # (12d)
        r.memory["variance"] = (1 - gain) * prior  # (12f)
        r.trace.update(gain=gain, period_var=period, client_var=client)
        return r.w - self.server_lr * r.memory["M"]  # (12e)

    def server(self, federation: Federation, task: int) -> Server:
        """With a gain in hand: M <- (1 - gain) M - gain d, e <- e - server_lr M."""
        eta, gain = self.server_lr, self.gain if self.gain is not None else np.nan
        return server(
            self.lr,
            start=[1, -eta if self.predict else 0],
            carry=[[1, -eta * (1 - gain)], [0, 1 - gain]],
            gain=[eta * gain, -gain],
        )
