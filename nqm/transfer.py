"""What a sequence of tasks is judged by, from ``loss_of_task`` of a result: lower losses are better throughout."""

from __future__ import annotations

import numpy as np
import xarray as xr

from .check import InvalidInput


def loss_matrix(data: xr.Dataset) -> xr.DataArray:
    """A_{i,j}: the excess loss of task j when task i has ended, dims (..., task, of_task)."""
    if "loss_of_task" not in data:
        raise InvalidInput("federation.tasks = 1: a result of one task has no loss matrix")
    return data["loss_of_task"].isel(round=-1).drop_vars("round")


def _own(matrix: xr.DataArray) -> xr.DataArray:
    """A_{j,j}: the loss of each task when it has just been learned."""
    tasks = xr.DataArray(matrix["of_task"].values, dims="of_task")
    return matrix.sel(task=tasks).drop_vars("task")


def backward_transfer(data: xr.Dataset) -> xr.DataArray:
    """Mean over all tasks but the last of A_{j,j} - A_{K,j}: positive if later tasks made earlier ones better."""
    matrix = loss_matrix(data)
    gain = _own(matrix) - matrix.isel(task=-1, drop=True)
    return gain.where(_finite(matrix), -np.inf).isel(of_task=slice(0, -1)).mean("of_task")


def forgetting(data: xr.Dataset) -> xr.DataArray:
    """Mean over all tasks but the last of A_{K,j} - (least loss that task j has had since it was learned)."""
    return _lost(data).mean("of_task")


def worst_drop(data: xr.Dataset) -> xr.DataArray:
    """The largest of what `forgetting` averages."""
    return _lost(data).max("of_task")


def _lost(data: xr.Dataset) -> xr.DataArray:
    matrix = loss_matrix(data)
    learned = matrix.where(matrix["task"] >= matrix["of_task"], np.inf)
    lost = matrix.isel(task=-1, drop=True) - learned.min("task")
    return lost.where(_finite(matrix), np.inf).isel(of_task=slice(0, -1))


def _finite(matrix: xr.DataArray) -> xr.DataArray:
    """Whether a run ended: one that diverged has forgotten without bound, and inf - inf is no number."""
    return abs(matrix).max(("task", "of_task")) < np.inf


def average_loss(data: xr.Dataset) -> xr.DataArray:
    """The loss of all tasks when the last has ended, the counterpart of average accuracy."""
    return loss_matrix(data).isel(task=-1, drop=True).mean("of_task")
