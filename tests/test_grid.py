"""Grids: which points a file asks for, in which order, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nqm
from nqm.grid import Grid, label

BASE = {"federation": {"rounds": 5}, "method": {"name": "fedavg", "lr": 0.01}}


def points(**parts) -> list[dict]:
    grid = Grid.from_dict({"base": BASE, **parts})
    return [grid.point(i) for i in range(len(grid))]


class TestPoints:
    def test_product_with_the_rate_innermost(self):
        told = points(grid={"method.lr": [0.1, 0.2], "drift.time": [1.0, 2.0], "drift.client": [3.0]})
        assert told == [
            {"drift.time": time, "drift.client": 3.0, "method.lr": lr} for time in (1.0, 2.0) for lr in (0.1, 0.2)
        ]

    def test_zip_moves_together(self):
        told = points(zip={"problem.mu": [0.0, 1.0], "problem.L": [5.0, 20.0]}, grid={"method.lr": [0.1, 0.2]})
        assert [(p["problem.mu"], p["problem.L"], p["method.lr"]) for p in told] == [
            (0.0, 5.0, 0.1),
            (0.0, 5.0, 0.2),
            (1.0, 20.0, 0.1),
            (1.0, 20.0, 0.2),
        ]

    def test_list_has_fields_of_its_own(self):
        told = points(list=[{"method.name": "fedprox", "method.prox": 0.5}, {"method.name": "fedavg"}])
        assert told == [{"method.name": "fedprox", "method.prox": 0.5}, {"method.name": "fedavg"}]

    def test_values_may_be_lists(self):
        told = points(grid={"problem.spectrum": [[1.0, 2.0], [1.0, 3.0]]})
        assert [p["problem.spectrum"] for p in told] == [[1.0, 2.0], [1.0, 3.0]]

    def test_dots_need_no_quotes(self):
        assert points(grid={"method": {"lr": [0.1]}, "drift": {"time": [1.0]}}) == [
            {"drift.time": 1.0, "method.lr": 0.1}
        ]

    def test_tables_are_the_base_with_the_point_over_it(self):
        grid = Grid.from_dict({"base": BASE, "grid": {"method.lr": [0.5], "drift.time": [2.0]}})
        assert grid.tables(0) == {
            "federation": {"rounds": 5},
            "method": {"name": "fedavg", "lr": 0.5},
            "drift": {"time": 2.0},
        }
        assert BASE["method"]["lr"] == 0.01

    def test_label(self):
        assert label({"method.name": "cfl", "method.lr": 0.5}) == "method.name = 'cfl', method.lr = 0.5"

    @given(
        st.lists(st.integers(1, 4), min_size=1, max_size=4),
        st.integers(0, 3),
        st.integers(0, 3),
    )
    def test_every_combination_once(self, lengths, zipped, listed):
        names = ["drift.time", "method.lr", "drift.client", "problem.seed"][: len(lengths)]
        product = {name: list(range(1, n + 1)) for name, n in zip(names, lengths, strict=True)}
        together = {"problem.mu": list(range(zipped)), "problem.L": list(range(zipped))} if zipped else {}
        one_by_one = [{"federation.clients": i} for i in range(listed)]
        told = points(grid=product, zip=together, list=one_by_one)
        assert len(told) == math.prod(lengths) * max(1, zipped) * max(1, listed)
        assert len({tuple(sorted(p.items())) for p in told}) == len(told)
        assert all(p.get("problem.mu") == p.get("problem.L") for p in told)
        asked = Grid.from_dict({"grid": product, "zip": together, "list": one_by_one})
        for name in asked.fields:
            values, which = asked.column(name)
            assert [values[i] for i in which] == [p.get(name) for p in told]

    def test_seeds_are_a_count_or_a_list(self):
        assert Grid.from_dict({"seeds": 3, "grid": {"method.lr": [0.1]}}).seeds == (0, 1, 2)
        assert Grid.from_dict({"seeds": [7, 3], "grid": {"method.lr": [0.1]}}).seeds == (7, 3)


REFUSED = {
    "unknown field": ({"grid": {"drift.tiem": [1.0]}}, ["drift.tiem", "did you mean time"]),
    "unknown field of a method": ({"list": [{"method.proxy": 1.0}]}, ["method.proxy", "did you mean prox"]),
    "unknown field of the base": ({"base": {"drift": {"tiem": 1.0}}}, ["drift.tiem", "did you mean time"]),
    "unknown table": ({"grid": {"drfit.time": [1.0]}}, ["drfit.time", "did you mean drift"]),
    "no table": ({"grid": {"lr": [1.0]}}, ["lr", "method."]),
    "unknown part": ({"gird": {"method.lr": [1.0]}}, ["gird", "did you mean grid"]),
    "empty grid": ({"grid": {}}, ["grid", "empty", "at least one field"]),
    "nothing at all": ({}, ["grid", "empty"]),
    "empty list of values": ({"grid": {"method.lr": []}}, ["method.lr", "empty", "at least one value"]),
    "empty setting": ({"list": [{}]}, ["list", "empty setting"]),
    "no list of values": ({"grid": {"method.lr": 0.1}}, ["method.lr", "0.1", "must be a list"]),
    "unequal lengths": (
        {"zip": {"problem.mu": [0.0], "problem.L": [1.0, 2.0]}},
        ["zip", "problem.mu has 1", "problem.L has 2"],
    ),
    "varied twice": (
        {"grid": {"method.lr": [0.1]}, "zip": {"method.lr": [0.1]}},
        ["method.lr", "varied twice"],
    ),
    "unknown engine": ({"engine": "magic", "grid": {"method.lr": [0.1]}}, ["engine", "magic", "collapsed"]),
    "unknown curve": ({"keep": ["norm"], "grid": {"method.lr": [0.1]}}, ["keep", "norm", "grad_norm"]),
    "nothing kept": ({"keep": [], "grid": {"method.lr": [0.1]}}, ["keep", "must be a list"]),
    "no seed": ({"seeds": 0, "grid": {"method.lr": [0.1]}}, ["seeds", "0", ">= 1"]),
    "a seed twice": ({"seeds": [1, 1], "grid": {"method.lr": [0.1]}}, ["seeds", "different"]),
    "a grid that is no table": ({"grid": [1]}, ["grid", "must be a table"]),
    "a list that is a table": ({"list": {"method.lr": 1.0}}, ["list", "[[list]]"]),
    "too many points": (
        {"grid": {f"drift.{name}": list(range(10_000)) for name in ("time", "client", "noise")}},
        ["1000000000000 points", "split"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(case):
    given, words = REFUSED[case]
    with pytest.raises(nqm.InvalidInput) as caught:
        Grid.from_dict(given)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_the_example_is_a_grid():
    grid = Grid.from_toml(Path(__file__).parent.parent / "examples" / "sweep.toml")
    assert len(grid) == 30
    assert grid.rates == (0.001, 0.003, 0.01, 0.03, 0.09)
