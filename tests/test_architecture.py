"""Imports go one way, and what a user waits for is not imported before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "nqm": {"nqm"},
    "theory": {"nqm", "theory"},
    "plots": {"nqm", "theory", "plots"},
    "deep": {"nqm", "theory", "deep"},
    "benchmarks": {"nqm", "theory", "deep", "benchmarks"},
}
OURS = set(ALLOWED) | {"driftproof"}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_go_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        assert imported(path) & OURS <= ALLOWED[package], path


def test_expect_needs_no_compiler_and_no_plots() -> None:
    code = (
        "import sys, nqm;"
        "nqm.expect(nqm.Quadratic(dim=5), nqm.Drift(time=1.0), nqm.Federation(rounds=5), nqm.FedAvg(0.01));"
        "print([m for m in ('numba', 'llvmlite', 'matplotlib', 'cvxpy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_nothing_that_is_read_can_run_code() -> None:
    for package in ALLOWED:
        for path in (ROOT / package).rglob("*.py"):
            assert "pickle" not in imported(path), path
