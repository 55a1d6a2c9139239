"""Back to the model: what the noisy quadratic model predicts for a network, from constants measured on the network.

At the start, and again every few rounds, `deep.measure` takes G², D², σ² and the curvature along the gradient. The
exact expectations of `nqm` for that quadratic then stand beside the network's training loss. A network is no
quadratic: its curvature changes as it trains, so that the prediction from round 0 must fail in the end; predicting
from the latest measurement shows how long it lasts.

- Much of a network's gradient lies along negative curvature, where a quadratic has no minimum. `Measured.problem`
  leaves it out. Here such directions get a very small curvature instead and keep their gradient, so that the loss
  falls along them in a straight line: right for a while, and then too slow.
- The model spreads drift and noise evenly over its few directions, which networks do not. The curve without drift and
  noise shows how much of the prediction hangs on that.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

import nqm

from ..local import Cohort
from ..measure import Measured, measure
from ..methods import Method
from ..train import Run, Training, evaluate
from .declare import Arm, Experiment, Setting, Smoke, World
from .streams import Evolving, Indexed

CONSTANTS = ("G2", "D2", "noise", "sampling", "grad_sq", "L", "mu", "concave")
PREDICTED = {"predicted_loss", "undisturbed_loss", "restarted_loss"}
EVERY = 10
STRAIGHT = 1e-3  # the curvature, as a share of L, that stands for none


def quadratic(found: Measured) -> nqm.Quadratic:
    """The quadratic of `Measured.problem`, with the gradient along negative curvature kept."""
    side = np.array(found.side)
    values, vectors = np.linalg.eigh(np.diag(found.diagonal) + np.diag(side, 1) + np.diag(side, -1))
    bent = np.maximum(values, STRAIGHT * found.L)
    b = np.sqrt(found.grad_sq) * np.abs(vectors[0])
    return nqm.Quadratic(dim=len(bent), spectrum=tuple(bent), rotation="none", b=tuple(b), w0=0.0)


def predict(
    setting: Setting, module: nn.Module, stream: Indexed, method: Method, training: Training
) -> Callable[[Run, Cohort], None]:
    """Adds to the run: its training loss, both predictions, and the constants."""
    split, (images,) = setting.world.partition, stream.images
    assert isinstance(split, Evolving)
    assert training.batch is not None
    parts = split.parts(images, training.seed)
    largest = max(len(p) for own in parts for p in own)
    federation = nqm.Federation(
        clients=split.clients,
        local_steps=training.local_steps or training.epochs * math.ceil(largest / training.batch),
        rounds=training.rounds,
    )

    def constants(params: dict[str, Tensor]) -> Measured:
        where = next(iter(params.values())).device
        data = [
            [(images.x[own[s]].to(where), images.y[own[s]].to(where)) for own in parts] for s in range(split.subsets)
        ]
        return measure(module, params, data, batch=training.batch or 1, exhaustive=True)

    def curve(found: Measured, loss: float, drift: nqm.Drift) -> np.ndarray:
        """The expected loss of rounds 1, 2, ...: the model knows it up to a constant, which the start gives."""
        # f is the mean over these very clients, so that their drifts must sum to zero.
        clients = found.clients(split.clients, seed=training.seed) if drift.client else None
        expected = nqm.expect(quadratic(found), drift, federation, nqm.FedAvg(lr=method.lr), clients=clients)
        excess = expected["excess_loss"].values
        return loss + excess[1:] - excess[0]

    start = {name: p.detach() for name, p in module.named_parameters()}

    def note(run: Run, at: int, found: Measured) -> None:
        values = {name: getattr(found, name) for name in CONSTANTS if name != "concave"} | {"concave": found.concave()}
        for name, value in {"measured_at": at, **values}.items():
            run.diagnostics.setdefault(name, []).append(float(value))

    def after(run: Run, cohort: Cohort) -> None:
        own, t = run.diagnostics, cohort.round
        x, y = images.x.to(run.w), images.y.to(run.w.device)
        loss = evaluate(run.net, run.w, x, y)[1]
        if t == 1:
            begin = constants({name: p.to(run.w) for name, p in start.items()})
            level = evaluate(run.net, run.net.start().to(run.w), x, y)[1]
            first = curve(begin, level, begin.drift())
            own["predicted_loss"], own["restarted_loss"] = first.tolist(), first[:EVERY].tolist()
            own["undisturbed_loss"] = curve(begin, level, nqm.Drift()).tolist()
            note(run, 0, begin)
        own.setdefault("train_loss", []).append(loss)
        if t % EVERY == 0 and t < training.rounds:
            now = constants({name: p.detach() for name, p in run.net.parts(run.w).items()})
            own["restarted_loss"] += curve(now, loss, now.drift())[: min(EVERY, training.rounds - t)].tolist()
            note(run, t, now)

    return after


def digits(alpha: float) -> World:
    return World(("digits",), "mlp", Evolving(alpha, subsets=8))


EXPERIMENTS = (
    Experiment(
        id="bridge/digits",
        title="the training loss of FedAvg beside what the noisy quadratic model predicts from measured constants",
        finding="Ours: ten rounds are predicted well where drift is small; from round 0 alone the fall is too slow.",
        settings=tuple(Setting(f"α = {a:g}", digits(a)) for a in (10.0, 0.1)),
        arms=(Arm("FedAvg", "fedavg"),),
        lr=0.1,
        training={"rounds": 200, "epochs": 1, "batch": 16},
        seeds=(0, 1, 2),
        smoke=Smoke(lr=0.1, training={"rounds": 50}, partition={}),
        metrics=("predicted_loss_error", "undisturbed_loss_error", "restarted_loss_error"),
        figure="predictions",
        open=(
            "No paper has this experiment: at both scales it is optdigits with a two-layer MLP, at paper scale longer.",
            "The share of the gradient along negative curvature is in the variable concave of the .nc file.",
        ),
        watch=predict,
    ),
)
