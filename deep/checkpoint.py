"""Checkpoints: tensors and plain values only, written to a temporary name and renamed, read with ``weights_only``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from nqm.check import InvalidInput

FORMAT = 1


def save(path: str | Path, content: dict[str, Any]) -> None:
    """Replace the file in one step: a run killed while writing leaves the previous checkpoint whole."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save({"format": FORMAT, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: str | Path, device: torch.device, identity: str) -> dict[str, Any] | None:
    """The checkpoint of the run that ``identity`` names, ``None`` if there is none; another run's is refused."""
    path = Path(path)
    if not path.exists():
        return None
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except Exception as problem:
        first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise InvalidInput(
            f"training.checkpoint = {str(path)!r}: can't be read as a checkpoint ({first[:120]})"
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InvalidInput(f"training.checkpoint = {str(path)!r}: is not a checkpoint of this version")
    if content["identity"] != identity:
        raise InvalidInput(
            f"training.checkpoint = {str(path)!r}: belongs to another run; give another path, or delete it"
        )
    return content
