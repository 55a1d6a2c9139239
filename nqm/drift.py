"""How the clients' gradients differ from the global one: client, time and step noise, information loss."""

from __future__ import annotations

from dataclasses import dataclass

from .check import fail, flag, number


@dataclass(frozen=True)
class Drift:
    r"""Variances of everything that moves a client's gradient. Squared norms are totals over the dimensions.

        grad f_{t,i}(w) = (A + E_i + E_{t,i}) (w - w*) + delta_i + xi_{t,i},     step noise nu_{t,i,k}

    client: G^2 = E||delta_i||^2, fixed per client.
    client_slope: B^2. E_i = diag(lambda_j e_ij) with e_ij ~ N(0, B^2), so that
        E||E_i (w - w*)||^2 = B^2 ||grad f(w)||^2: Assumption 3 of `cfl` with equality.
    fresh: redraw delta_i and E_i every round instead of keeping them with the client.
    time: D^2 = E||xi_{t,i}||^2.
    time_slope: A^2, as client_slope but drawn anew per client and round.
    overlap: F^2 <= D^2, E<xi_{t,i}, xi_{s,i}> for t != s (Assumption 6): a part of the time drift that stays.
    correlation: alpha in [0, 1), E<xi_{t,i}, xi_{s,i}> = alpha^|t-s| D^2 (Assumption 7). Together with an
        overlap, the part D^2 - F^2 that moves is the one that is correlated.
    noise: sigma^2 = E||nu_{t,i,k}||^2 of every local step.
    loss_mean: I, the mean of the information loss per coordinate: one vector I*(1, ..., 1) for all clients.
    loss_var: variance per coordinate of its random part, drawn per client and round (I/1000 in Section 5.1).
    loss_per_client: draw the constant part per client, N(0, I^2) per coordinate and kept with the client, instead
        of sharing one vector. Its mean square is the same; its average over clients is not.

    sample, sample_slope: when clients hold ``Federation.samples`` samples each, sample j of client i has the gradient
        (A + E_i + E_ij)(w - w*) + delta_i + zeta_ij with E||zeta_ij||^2 = sample and slopes of variance sample_slope,
        both centred over j, so that the mean over the samples is the client's own gradient.

    Both parts of the information loss multiply the remembered weight (1 - p_t), so methods without memory
    do not feel them.
    """

    client: float = 0.0
    client_slope: float = 0.0
    fresh: bool = False
    time: float = 0.0
    time_slope: float = 0.0
    overlap: float = 0.0
    correlation: float = 0.0
    noise: float = 0.0
    loss_mean: float = 0.0
    loss_var: float = 0.0
    loss_per_client: bool = False
    sample: float = 0.0
    sample_slope: float = 0.0

    def __post_init__(self) -> None:
        for name in (
            "client",
            "client_slope",
            "time",
            "time_slope",
            "overlap",
            "noise",
            "loss_var",
            "sample",
            "sample_slope",
        ):
            object.__setattr__(self, name, number(f"drift.{name}", getattr(self, name), 0.0))
        object.__setattr__(self, "correlation", number("drift.correlation", self.correlation, 0.0, 1.0, open_high=True))
        object.__setattr__(self, "loss_mean", number("drift.loss_mean", self.loss_mean))
        flag("drift.fresh", self.fresh)
        flag("drift.loss_per_client", self.loss_per_client)
        if self.overlap > self.time:
            raise fail("drift.overlap", self.overlap, f"must be at most drift.time = {self.time:g}")

    def loss_sq(self, dim: int) -> float:
        """R^2 = E||Delta||^2 in ``dim`` dimensions."""
        return dim * (self.loss_mean * self.loss_mean + self.loss_var)  # x**2 would raise where this overflows
