"""What every figure that is judged against its paper has to satisfy."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import xarray as xr

import nqm
from plots import registry


def verdicts(data: xr.Dataset) -> list[dict]:
    return json.loads(data.attrs["observations"])


def assert_caption_follows(data: xr.Dataset, judges) -> None:
    """The stored verdicts are what the judges say about the stored data, and the caption sorts them so."""
    rows = verdicts(data)
    assert len(rows) == len(judges)
    caption = data.attrs["caption"]
    if all(row["seen"] for row in rows):
        assert "Not seen" not in caption
    for row, judge in zip(rows, judges, strict=True):
        statement, seen, numbers = judge(data)
        assert row == {"statement": statement, "seen": seen, "numbers": numbers, "criterion": row["criterion"]}
        assert len(row["criterion"]) > 20
        told = caption.index(f"{statement} ({numbers})")
        assert (told < caption.find("Not seen: ") or "Not seen: " not in caption) == seen
    assert data.attrs["ours"].startswith("The settings are ours: ")


def assert_files(id: str, data: xr.Dataset, out: Path) -> None:
    """Drawn by the registry from its file: three files, labelled axes, nothing but finite numbers, the settings."""
    entry = registry.find("figure", [id])[0]
    paths = registry.draw(dataclasses.replace(entry, measure=lambda progress: data), out)
    assert all(path.stat().st_size > 0 for path in paths)
    stored = nqm.load(paths[0])
    xr.testing.assert_equal(stored, data)
    from plots.style import styled

    with styled():
        drawn = entry.show(stored)
    assert "settings are ours" in drawn.get_supxlabel()
    for panel in drawn.axes:
        shares = panel.get_shared_x_axes().get_siblings(panel), panel.get_shared_y_axes().get_siblings(panel)
        assert any(other.get_xlabel() for other in shares[0])
        row = [other for other in drawn.axes if other.get_subplotspec().rowspan == panel.get_subplotspec().rowspan]
        assert any(other.get_ylabel() for other in {*shares[1], *row})
        for line in panel.lines:
            assert np.isfinite(np.asarray(line.get_ydata(), dtype=float)).all()
