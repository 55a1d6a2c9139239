"""pfl-research: its simulated backend and its federated averaging, with a model in NumPy.

The library's own PyTorch model keeps updates in float32 and differentiates a loss; a model in NumPy keeps float64 and
knows its gradient. pfl has no axis for seeds and visits one client after the other, with the bookkeeping of
private federated learning around each.
"""

from __future__ import annotations

import numpy as np

from .work import Array, Run, Work


def prepare(work: Work) -> Run:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import ModelHyperParams
    from pfl.metrics import Metrics
    from pfl.model.base import StatefulModel
    from pfl.stats import MappedVectorStatistics

    keep = 1.0 - work.lr * work.lam

    class Point(StatefulModel):
        """w - w*, and nothing else."""

        def __init__(self) -> None:
            self.e = work.start.copy()

        def get_parameters(self, placeholders=None):
            return MappedVectorStatistics({"e": self.e.copy()})

        def set_parameters(self, w) -> None:
            self.e = w["e"].copy()

        def get_model_difference(self, other_parameters, clone=False):
            return MappedVectorStatistics({"e": self.e - other_parameters["e"]})

        def apply_model_update(self, statistics):
            self.e += statistics["e"]
            return self, Metrics()

        def evaluate(self, dataset, name_formatting_fn, eval_params=None):
            return Metrics()

        def save(self, dir_path: str) -> None:
            raise NotImplementedError

        load = save

    class LocalSGD(FederatedAveraging):
        """K local steps in NumPy, where the library has them for its deep-learning frameworks alone."""

        def __init__(self, rng: np.random.Generator) -> None:
            super().__init__()
            self.rng = rng

        def train_one_user(self, initial_model_state, model, user_dataset, central_context):
            push = self.rng.standard_normal((work.local_steps, work.dim))
            push *= -work.lr * work.sd_noise
            push -= work.lr * user_dataset.raw_data[0]
            for row in push:
                model.e *= keep
                model.e += row
            return model.get_model_difference(initial_model_state), Metrics()

    parameters = NNAlgorithmParams(
        central_num_iterations=work.rounds,
        evaluation_frequency=work.rounds,
        train_cohort_size=work.clients,
        val_cohort_size=0,
    )

    def run(stream: int) -> Array:
        rng = np.random.default_rng(stream)
        delta = work.sd_client * rng.standard_normal((work.clients, work.dim))
        users = {i: Dataset((delta[i : i + 1],)) for i in range(work.clients)}
        sampler = get_user_sampler("minimize_reuse", list(users))  # a cohort of N is every client once
        data = FederatedDataset(users.__getitem__, sampler)
        model = LocalSGD(rng).run(
            parameters, SimulatedBackend(data, data), Point(), ModelHyperParams(), send_metrics_to_platform=False
        )
        return work.excess_loss(model.e[None])

    return run
