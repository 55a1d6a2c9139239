"""An experiment in the form that the fast engines share: variances per direction, and who keeps what for how long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .check import InvalidInput, fail, integer, memory
from .draws import Purpose, normal_pairs, stream
from .drift import Drift
from .experiment import Experiment
from .federation import Federation
from .methods import Linear, Method, Server
from .problem import Quadratic
from .schedule import Weights

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Clients:
    """The clients themselves, in the eigenbasis: drift ``delta`` and relative slope ``slope``, both (clients, dim)."""

    delta: Array
    slope: Array


def draw_clients(problem: Quadratic, drift: Drift, federation: Federation, seed: int = 0, task: int = 1) -> Clients:
    """The clients that ``seed`` draws for a task (1, 2, ...), for conditioning on them."""
    integer("task", task, 1, federation.tasks)
    if drift.fresh or federation.stateless:
        raise InvalidInput("clients: there is nothing to condition on when clients are redrawn every round")
    size = f"clients = {federation.clients}, dim = {problem.dim}"
    memory(80 * federation.clients * problem.dim, f"drawing the clients ({size})", "lower clients or dim")
    who = np.arange(federation.clients)[:, None]
    delta, slope = normal_pairs(stream(seed, Purpose.CLIENT, task - 1, client=who), np.arange(problem.dim))
    return Clients(np.sqrt(drift.client / problem.dim) * delta, np.sqrt(drift.client_slope) * slope)


@dataclass(frozen=True, eq=False)
class Plan:
    """What the engines need to know of one task. Every ``var_`` is of one client and one direction.

    task: counted from 0; ``experiment.problem`` is this task's own.
    sequence: the problems of all tasks, if there are several: every round is then also judged by each of them.
    """

    experiment: Experiment
    clients: Clients | None = None
    task: int = 0
    sequence: tuple[Quadratic, ...] = ()

    def __post_init__(self) -> None:
        federation = self.federation
        self.method.check_federation(federation)
        for name in ("sample", "sample_slope"):
            if getattr(self.drift, name) > 0 and not federation.samples:
                raise fail(f"drift.{name}", getattr(self.drift, name), "needs federation.samples > 0")
        if federation.cohort != "own" and self.redrawn:
            raise fail(
                "federation.cohort",
                federation.cohort,
                "must be 'own' when clients are redrawn every round (stateless, or drift.fresh)",
            )
        if federation.samples:
            self.method.check_finite(self.drift)
            if self.clients is not None:
                raise InvalidInput("clients: can't be given on a finite sum (federation.samples); seeds draw them")
            if self.experiment.problem.gradient_bound is not None:
                bound = self.experiment.problem.gradient_bound
                raise fail("problem.gradient_bound", bound, "must be left out on a finite sum (federation.samples)")
            if federation.partial or federation.stateless or federation.cohort != "own":
                raise InvalidInput(
                    f"federation.samples = {federation.samples}: a finite sum is run with all clients in every round, "
                    "each on its own data"
                )
        if self.clients is not None:
            if self.redrawn:
                raise InvalidInput("clients: there is nothing to condition on when clients are redrawn every round")
            shape = (federation.clients, self.experiment.problem.dim)
            for name in ("delta", "slope"):
                if np.shape(getattr(self.clients, name)) != shape:
                    raise InvalidInput(
                        f"clients.{name} has shape {np.shape(getattr(self.clients, name))}: must be {shape}"
                    )

    @classmethod
    def of_tasks(cls, experiment: Experiment, clients: list[Clients] | None = None) -> list[Plan]:
        """One plan a task; ``clients``, if given, for every task."""
        tasks = experiment.federation.tasks
        if clients is not None and len(clients) != tasks:
            raise InvalidInput(f"clients: {len(clients)} given, must be one for each of the {tasks} tasks")
        problems = experiment.problem.sequence(tasks)
        several = tuple(problems) if tasks > 1 else ()
        return [
            cls(replace(experiment, problem=p), clients[k] if clients else None, k, several)
            for k, p in enumerate(problems)
        ]

    @property
    def rows(self) -> int:
        """Numbers that a round is judged by: the model's own three, those of a sequence, those of the method."""
        return self.own_rows + len(self.method.traces) + self.federation.slots * len(self.method.client_traces)

    @property
    def own_rows(self) -> int:
        """Those of them that every method has."""
        return 3 + (1 + len(self.sequence) if self.sequence else 0)

    @cached_property
    def others(self) -> tuple[Array, Array]:
        """Eigenvalues of every task, and this task's optimum as seen from each, (tasks, dim) both."""
        here = self.experiment.problem.optimum_eigen
        lam = np.array([p.eigenvalues for p in self.sequence]).reshape(-1, self.dim)
        away = np.array([here - p.optimum_eigen for p in self.sequence]).reshape(-1, self.dim)
        return lam, away

    @cached_property
    def server(self) -> Server | None:
        return self.method.server(self.federation, self.task + 1)

    @property
    def drift(self) -> Drift:
        return self.experiment.drift

    @property
    def federation(self) -> Federation:
        return self.experiment.federation

    @property
    def method(self) -> Method:
        return self.experiment.method

    @property
    def dim(self) -> int:
        return self.experiment.problem.dim

    @property
    def redrawn(self) -> bool:
        """Whether delta and E belong to a round rather than to a client."""
        return self.drift.fresh or self.federation.stateless

    @cached_property
    def weights(self) -> Weights:
        T = self.federation.rounds
        memory(8 * 8 * T, f"federation.rounds = {T}", "lower rounds")
        return self.method.weights_for(self.federation.rounds)

    @cached_property
    def remembers(self) -> bool:
        return self.weights.remembers

    @cached_property
    def forgotten(self) -> Array:
        """1 - p_t: the weight of all that is remembered, which the information loss multiplies."""
        return 1.0 - self.weights.current

    @cached_property
    def linear(self) -> Linear:
        return self.method.linear(self.federation.local_steps)

    @cached_property
    def loss_shared(self) -> Array:
        """The mean of the information loss that all clients share: I*U*1, not I*1, in the eigenbasis."""
        if self.drift.loss_mean == 0 or self.drift.loss_per_client or not self.remembers:
            return np.zeros(self.dim)
        return self.drift.loss_mean * self.experiment.problem.to_eigen(np.ones(self.dim))

    @property
    def var_client(self) -> float:
        """Client drift that is drawn here: zero when the clients are given."""
        return 0.0 if self.clients is not None else self.drift.client / self.dim

    @property
    def var_stays(self) -> float:
        """Drift that stays with a client and is drawn here: delta_i, and the constant part of the time drift."""
        if self.federation.stateless:
            return 0.0
        return self.drift.overlap / self.dim + (0.0 if self.redrawn else self.var_client)

    @property
    def var_redrawn(self) -> float:
        """Client drift that is drawn anew every round."""
        return self.drift.client / self.dim if self.redrawn else 0.0

    @property
    def var_time(self) -> float:
        """Time drift that moves. A client seen once has nothing that stays."""
        stays = 0.0 if self.federation.stateless else self.drift.overlap
        return (self.drift.time - stays) / self.dim

    @property
    def alpha(self) -> float:
        return 0.0 if self.federation.stateless else self.drift.correlation

    @property
    def var_noise(self) -> float:
        return self.drift.noise / self.dim

    @property
    def var_loss(self) -> float:
        return self.drift.loss_var

    @property
    def var_loss_client(self) -> float:
        """Mean information loss that each client draws for itself."""
        return self.drift.loss_mean * self.drift.loss_mean if self.drift.loss_per_client else 0.0

    @property
    def slope_stays(self) -> float:
        return 0.0 if self.redrawn else self.drift.client_slope

    @property
    def slope_moves(self) -> float:
        """Variance of the slope that is drawn per client and round."""
        return self.drift.time_slope + (self.drift.client_slope if self.redrawn else 0.0)

    @property
    def slopes(self) -> bool:
        given = self.clients is not None and bool(np.any(self.clients.slope))
        return given or self.slope_stays > 0 or self.slope_moves > 0

    @property
    def persists(self) -> bool:
        """Whether anything random of one round is felt again in a later one (except through w)."""
        memory = self.remembers and (self.var_time > 0 or self.var_redrawn > 0)
        correlated = self.alpha > 0 and self.var_time > 0
        own_loss = self.remembers and self.var_loss_client > 0 and not self.federation.stateless
        return self.var_stays > 0 or memory or correlated or own_loss or self.clients is not None


def geometric(a: Array, terms: int) -> Array:
    """1 + a + ... + a^(terms-1), by doubling: exact at a = 1, and O(log terms)."""
    total = np.zeros_like(a)
    power = np.ones_like(a)
    for bit in bin(terms)[2:]:
        total = total * (1.0 + power)
        power = power * power
        if bit == "1":
            total = total * a + 1.0
            power = power * a
    return total
