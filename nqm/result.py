"""The one result type: a labelled `xarray.Dataset`, whatever engine made it, and how it goes to a file and back."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .check import InvalidInput
from .draws import SCHEME
from .experiment import Experiment

VARIABLES = {
    "grad_norm": ("‖Aw + b‖", "norm of the global gradient"),
    "grad_norm_sq": ("‖Aw + b‖²", "squared norm of the global gradient"),
    "excess_loss": ("f(w) − f*", "excess loss"),
    "excess_loss_var": ("Var f(w)", "variance of the loss"),
    "distance_sq": ("‖w − w*‖²", "squared distance to the nearest minimiser"),
    "moved_sq": ("‖w − w₀‖²", "squared distance from where the task began"),
    "loss_of_task": ("f_j(w) − f_j*", "excess loss of each task"),
    "gain": ("K_t", "Kalman gain"),
    "period_var": ("σ_Q²", "variance of the prediction, as the server takes it"),
    "client_var": ("σ_R²", "variance of the observation, as the server takes it"),
    "forgetting": ("Γ(t)", "forgetting term of the round"),
    "overfitting": ("B(t)", "overfitting term of the round"),
    "transference": ("Λ_t", "inner product of the gradients on the memory and on the current task"),
    "client_transference": ("Λ_{t,i}", "the same, of each client's own gradients"),
    "interfering": ("share of Λ_{t,i} ≤ 0", "share of clients whose update interferes with the memory"),
}

JUDGED = ("grad_norm_sq", "excess_loss", "distance_sq")
"""A run has diverged when one of these is no longer finite."""


def package_version() -> str:
    try:
        return version("driftproof")
    except PackageNotFoundError:
        return "unknown"


def dataset(
    experiment: Experiment,
    engine: str,
    curves: Mapping[str, NDArray[np.float64]],
    coords: Mapping[str, Any],
    **attributes: Any,
) -> xr.Dataset:
    """Curves over (..., round) as a dataset that knows where it comes from.

    A curve that leaves the finite numbers is +inf from that round on, and ``diverged_at`` names the round (-1: never).
    The variance of the loss, a fourth moment, overflows earlier and does not count. A sequence of tasks adds the
    dimension ``task`` before ``round``. What a method traces has no value in round 0, before its first step.
    """
    if experiment.federation.tasks > 1:
        coords = {**coords, "task": np.arange(1, experiment.federation.tasks + 1)}
    dims = (*coords, "round")
    diverged_at = np.full(curves["grad_norm_sq"].shape[:-1], -1)
    gone: NDArray[np.bool_] | None = None
    if not all(np.isfinite(curves[name]).all() for name in JUDGED):
        finite = np.logical_and.reduce([np.isfinite(curves[name]) for name in JUDGED])
        gone = ~np.logical_and.accumulate(finite, axis=-1)
        diverged_at = np.where(gone.any(axis=-1), gone.argmax(axis=-1), -1)
    traced = (*experiment.method.traces, *experiment.method.client_traces)
    variables: dict[str, Any] = {}
    for name, values in curves.items():
        symbol, long_name = VARIABLES[name]
        if gone is not None or name not in (*JUDGED, "grad_norm"):  # a root is finite where its square is
            lost = np.isinf(values) | np.isnan(values) & (name not in traced)
            if gone is not None:
                lost |= gone[..., None] if values.ndim > gone.ndim else gone
            values = np.where(lost, np.inf, values)
        inner = dims
        if name == "loss_of_task":
            inner = (*dims, "of_task")
        elif name in experiment.method.client_traces:
            inner = (*dims, "client")
        variables[name] = (inner, values, {"long_name": long_name, "symbol": symbol})
    variables["diverged_at"] = (
        tuple(coords),
        diverged_at,
        {"long_name": "round at which the run left the finite numbers, -1 if it did not"},
    )
    rounds = np.arange(experiment.federation.rounds + 1)
    attrs = {
        "engine": engine,
        "experiment": json.dumps(experiment.config()),
        "version": package_version(),
        "random_scheme": SCHEME,
    }
    if "loss_of_task" in curves:
        coords = {**coords, "of_task": coords["task"]}
    return xr.Dataset(variables, coords={**coords, "round": rounds}, attrs=attrs | attributes)


def save(data: xr.Dataset, path: str | Path) -> Path:
    """Write netCDF under a temporary name and rename, so that a file is whole or absent."""
    path = Path(path)
    with writing(path) as temporary:
        data.to_netcdf(temporary, engine="h5netcdf")
    return path


class writing:
    """``with writing(path) as temporary``: fill the temporary file; it becomes ``path`` only if nothing went wrong."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __enter__(self) -> Path:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".", suffix=self.path.suffix)
        except OSError as error:
            raise InvalidInput(f"{self.path.parent}: can't be written to ({error.strerror or error})") from None
        os.close(handle)
        os.chmod(name, 0o644)
        self.temporary = Path(name)
        return self.temporary

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            try:
                os.replace(self.temporary, self.path)
                return
            except OSError as failed:
                error = failed
        self.temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InvalidInput(f"{self.path}: can't be written ({error.strerror or error})") from None


def load(path: str | Path) -> xr.Dataset:
    """Read a result back into memory; a file that is not one, or is damaged, is one clear line."""
    path = Path(path)
    if not path.is_file():
        raise InvalidInput(f"{path}: no such file")
    try:
        with xr.open_dataset(path, engine="h5netcdf") as data:
            return data.load()
    except Exception as error:  # h5py raises OSError, KeyError, RuntimeError or ValueError, by what is damaged
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(f"{path}: not a readable result ({reason}); make it again") from None
