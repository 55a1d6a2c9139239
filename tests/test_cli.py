"""The command line: pure JSON, one-line errors, exit codes, help that teaches."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import driftproof
import nqm

ROOT = Path(driftproof.__file__).parent
EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.toml") if p.name != "sweep.toml")
COMMANDS = ("expect", "simulate", "figures", "tables", "reproduce", "sweep", "bench")

BASE = {
    "problem": {"dim": "4", "mu": "1.0", "L": "5.0"},
    "drift": {"client": "0.1", "time": "1.0", "noise": "0.01"},
    "federation": {"clients": "3", "local_steps": "2", "rounds": "6"},
    "method": {"name": '"cfl"', "lr": "0.1", "weights": '"lemma-b.4"'},
}


def run(*args: object):
    return CliRunner().invoke(driftproof.app, [str(a) for a in args])


def shell(*args: object, **kwargs) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "driftproof.py"), *(str(a) for a in args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **kwargs)


@pytest.fixture
def toml(tmp_path):
    """Write an experiment: the fields of BASE, changed by ``table__field = "TOML value"`` or None."""

    def write(**changes: str | None) -> Path:
        tables = {name: dict(fields) for name, fields in BASE.items()}
        for key, value in changes.items():
            table, field = key.split("__")
            tables.setdefault(table, {})[field] = value
        lines = []
        for name, fields in tables.items():
            lines += [f"[{name}]", *(f"{k} = {v}" for k, v in fields.items() if v is not None)]
        path = tmp_path / "experiment.toml"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    return write


def assert_one_line(result, *words: str) -> None:
    """Exit code 2, nothing on stdout, and one line on stderr that holds all ``words``."""
    code = result.returncode if isinstance(result, subprocess.CompletedProcess) else result.exit_code
    assert code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


TASKS = {
    "federation__tasks": "3",
    "problem__task_shift": "4.0",
    "method__name": '"special"',
    "method__weights": None,
}


class TestTasks:
    """A sequence of tasks is shown as its loss matrix, and all of it is in the JSON."""

    def test_expect(self, toml):
        path = toml(**TASKS)
        shown = run("expect", path)
        assert shown.exit_code == 0
        for text in ("excess loss of each task", "after task", "backward transfer", "forgetting", "3 tasks"):
            assert text in " ".join(shown.stdout.split())
        found = json.loads(run("expect", path, "--json").stdout)
        e = nqm.Experiment.from_toml(path)
        data = nqm.expect(e.problem, e.drift, e.federation, e.method)
        assert found["task"] == [1, 2, 3]
        assert found["diverged_at"] == [None] * 3
        np.testing.assert_array_equal(found["loss_of_task"], data["loss_of_task"])
        np.testing.assert_array_equal(found["moved_sq"], data["moved_sq"])

    def test_simulate(self, toml):
        path = toml(**TASKS)
        shown = run("simulate", path, "--seeds", 3)
        assert shown.exit_code == 0
        assert "excess loss of each task" in shown.stdout
        found = json.loads(run("simulate", path, "--seeds", 3, "--json").stdout)
        assert np.shape(found["mean"]["excess_loss"]) == (3, 7)
        assert found["diverged_at"] == [[None] * 3] * 3

    def test_tables_of_tasks(self, toml):
        path = toml(**TASKS | {"problem__task_shift": None})
        more = "\n[[problem.tasks]]\n[[problem.tasks]]\nL = 2.0\n[[problem.tasks]]\ndim = 5\n"
        path.write_text(path.read_text() + more)
        assert_one_line(run("expect", path), "problem.tasks[3].dim = 5: must be problem.dim = 4")

    def test_divergence_names_its_task(self, toml):
        path = toml(**TASKS | {"method__lr": "3.0", "federation__rounds": "400", "drift__noise": "1.0"})
        assert "Diverged at round" in " ".join(run("expect", path).stdout.split())
        shown = " ".join(run("simulate", path, "--seeds", 2).stdout.split())
        assert "2 of 2 seeds diverged, the first at round" in shown
        assert "of task 1: lower method.lr = 3" in shown

    def test_simulate_promises_expect_only_where_it_runs(self, toml):
        sampled = toml(**TASKS | {"method__name": '"scaffold"', "federation__sampled": "2"})
        assert "without sampling" not in run("simulate", sampled, "--seeds", 2).stdout
        assert "without sampling" in " ".join(run("simulate", toml(**TASKS), "--seeds", 2).stdout.split())

    def test_a_method_without_a_closed_recursion_is_named(self, toml):
        path = toml(method__name='"fedopt"', method__weights=None)
        assert_one_line(
            run("expect", path), "expect can't run method.name = 'fedopt'", "use engine = steps or collapsed"
        )


class TestExpect:
    def test_json_is_what_the_library_says(self, toml):
        path = toml()
        result = run("expect", path, "--json")
        assert result.exit_code == 0
        assert result.stderr == ""
        told = json.loads(result.stdout)
        from theory.weights import named

        e = nqm.Experiment.from_toml(path, named_weights=named)
        exact = nqm.expect(e.problem, e.drift, e.federation, e.method)
        assert told["round"] == list(range(7))
        assert told["diverged_at"] is None
        assert told["notes"] == []
        for name in ("grad_norm_sq", "grad_norm", "excess_loss", "distance_sq"):
            np.testing.assert_array_equal(told[name], exact[name].values)

    def test_json_of_a_diverged_run_is_valid(self, toml):
        result = run("expect", toml(method__lr="1e60", federation__rounds="9"), "--json")

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        told = json.loads(result.stdout, parse_constant=refuse)
        end = told["diverged_at"]
        assert 0 < end <= 9
        assert told["grad_norm"][end:] == [None] * (10 - end)
        assert None not in told["grad_norm"][:end]

    def test_notes_say_what_is_not_exact(self, toml):
        told = json.loads(run("expect", toml(federation__sampled="2"), "--json").stdout)
        assert "closure" in " ".join(told["notes"])
        told = json.loads(run("expect", toml(drift__client_slope="0.01"), "--json").stdout)
        assert "clients of seed 0" in " ".join(told["notes"])

    def test_summary_tells_the_end_and_what_to_do_next(self, toml):
        result = run("expect", toml())
        assert result.exit_code == 0
        assert "simulate" in result.stdout
        assert "--json" in result.stdout

    def test_summary_of_a_diverged_run_names_the_round_and_the_remedy(self, toml):
        path = toml(method__lr="1e60", federation__rounds="9")
        end = json.loads(run("expect", path, "--json").stdout)["diverged_at"]
        shown = " ".join(run("expect", path).stdout.split())
        assert f"Diverged at round {end}: lower method.lr" in shown
        assert "nan" not in shown
        assert "inf" not in shown

    def test_out_keeps_all_rounds(self, toml, tmp_path):
        out = tmp_path / "new" / "curve.nc"
        assert run("expect", toml(), "--out", out).exit_code == 0
        assert nqm.load(out).sizes["round"] == 7


class TestSimulate:
    @pytest.mark.parametrize("engine", nqm.ENGINES)
    def test_json(self, toml, engine):
        result = run("simulate", toml(), "--engine", engine, "--seeds", 3, "--json")
        assert result.exit_code == 0, result.stderr
        assert result.stderr == ""
        told = json.loads(result.stdout)
        assert told["seeds"] == [0, 1, 2]
        assert told["diverged_at"] == [None] * 3
        paths = np.array(told["grad_norm"])
        assert paths.shape == (3, 7)
        np.testing.assert_allclose(told["mean"]["grad_norm"], paths.mean(axis=0))
        np.testing.assert_allclose(told["standard_error"]["grad_norm"], paths.std(axis=0, ddof=1) / 3**0.5, atol=1e-15)

    def test_threads_do_not_change_the_numbers(self, toml):
        one, two = (run("simulate", toml(), "--threads", n, "--seeds", 4, "--json").stdout for n in (1, 2))
        assert one == two

    def test_one_seed_has_no_standard_error(self, toml):
        told = json.loads(run("simulate", toml(), "--seeds", 1, "--json").stdout)
        assert told["standard_error"]["grad_norm"] == [None] * 7

    def test_diverged_seeds_are_named(self, toml):
        path = toml(method__lr="1e60", federation__rounds="9")
        told = json.loads(run("simulate", path, "--seeds", 2, "--json").stdout)
        assert all(t is not None and t <= 9 for t in told["diverged_at"])
        assert told["mean"]["grad_norm"][-1] is None
        assert "2 of 2 seeds diverged" in run("simulate", path, "--seeds", 2).stdout

    def test_summary_and_file(self, toml, tmp_path):
        result = run("simulate", toml(), "--seeds", 2, "--engine", "collapsed", "--out", tmp_path / "paths.nc")
        assert result.exit_code == 0
        assert "engine collapsed" in result.stdout
        assert nqm.load(tmp_path / "paths.nc").sizes == {"seed": 2, "round": 7}


BAD_FIELDS = {
    "unknown method": ({"method__name": '"fedsgd"'}, ["method.name", "fedsgd", "fedavg"]),
    "unknown field": ({"drift__tiem": "1.0"}, ["drift.tiem", "did you mean time"]),
    "unknown table": ({"drfit__time": "1.0"}, ["[drfit]", "did you mean drift"]),
    "negative variance": ({"drift__time": "-1.0"}, ["drift.time", "-1.0", ">= 0"]),
    "not a number": ({"drift__noise": "nan"}, ["drift.noise", "nan", "finite"]),
    "infinite": ({"problem__L": "inf"}, ["problem.L", "inf", "finite"]),
    "mu above L": ({"problem__mu": "6.0"}, ["problem.mu", "6.0", "problem.L = 5"]),
    "more sampled than there are": (
        {"federation__sampled": "4"},
        ["federation.sampled", "4", "federation.clients = 3"],
    ),
    "no local step": ({"federation__local_steps": "0"}, ["federation.local_steps", "0", ">= 1"]),
    "correlation of one": ({"drift__correlation": "1.0"}, ["drift.correlation", "1.0", "< 1"]),
    "overlap above time drift": ({"drift__overlap": "2.0"}, ["drift.overlap", "2.0", "drift.time = 1"]),
    "weights that miss one": (
        {"method__weights": "[[1.0], [0.5, 0.4]]", "federation__rounds": "2"},
        ["method.weights[1]", "0.9", "sum to 1"],
    ),
    "unknown weights": ({"method__weights": '"lemma"'}, ["method.weights", "lemma", "thm-4.9"]),
    "no rate": ({"method__lr": None}, ["method.lr", "missing"]),
    "text for a number": ({"problem__dim": '"many"'}, ["problem.dim", "many"]),
}


class TestBadInput:
    @pytest.mark.parametrize("command", ["expect", "simulate"])
    @pytest.mark.parametrize("case", BAD_FIELDS)
    def test_field(self, toml, command, case):
        changes, words = BAD_FIELDS[case]
        assert_one_line(run(command, toml(**changes)), *words)

    @pytest.mark.parametrize("command", ["expect", "simulate"])
    def test_json_does_not_change_the_error(self, toml, command):
        assert_one_line(run(command, toml(drift__time="-1.0"), "--json"), "drift.time")

    def test_in_a_process_of_its_own(self, toml):
        assert_one_line(shell("expect", toml(problem__mu="6.0"), "--json"), "problem.mu")

    def test_too_large_for_memory(self, toml):
        huge = toml(
            problem__dim="1000000",
            federation__rounds="1000000000",
            method__name='"fedavg"',
            method__weights=None,
        )
        assert_one_line(run("expect", huge), "needs", "are free", "lower")
        assert_one_line(run("simulate", huge), "needs", "are free", "lower")
        assert_one_line(run("simulate", toml(), "--seeds", 10**14), "needs", "are free", "lower seeds")

    def test_out_of_memory_after_all(self, toml, monkeypatch):
        def greedy(*args, **kwargs):
            raise MemoryError("Unable to allocate 1. TiB")

        monkeypatch.setattr(nqm, "expect", greedy)
        assert_one_line(run("expect", toml()), "out of memory", "1. TiB", "lower")

    @pytest.mark.parametrize("command", ["expect", "simulate"])
    def test_output_below_a_file(self, toml, tmp_path, command):
        (tmp_path / "file").write_text("")
        result = run(command, toml(), "--out", tmp_path / "file" / "curve.nc")
        assert_one_line(result, "--out", str(tmp_path / "file"), "can't be written")

    @pytest.mark.parametrize("command", ["figures", "reproduce"])
    def test_output_folder_below_a_file(self, tmp_path, command):
        (tmp_path / "file").write_text("")
        result = run(command, "--out", tmp_path / "file" / "out")
        assert_one_line(result, "--out", str(tmp_path / "file" / "out"), "can't be written")

    def test_output_is_a_folder(self, toml, tmp_path):
        assert_one_line(run("expect", toml(), "--out", tmp_path), "--out", "is a folder")

    def test_missing_file(self, tmp_path):
        assert_one_line(run("expect", tmp_path / "none.toml"), "none.toml", "No such file")

    def test_not_toml(self, tmp_path):
        path = tmp_path / "bad.toml"
        path.write_text("dim: 50")
        assert_one_line(run("expect", path), "bad.toml", "not a TOML file")

    def test_unknown_engine(self, toml):
        assert_one_line(run("simulate", toml(), "--engine", "magic"), "engine", "magic", "collapsed")

    @pytest.mark.parametrize("seeds", [0, -3, "many", 2.5])
    def test_seeds(self, toml, seeds):
        assert_one_line(run("simulate", toml(), "--seeds", seeds), "seeds", str(seeds), "whole number >= 1")

    def test_threads(self, toml):
        assert_one_line(run("simulate", toml(), "--threads", 0), "threads", "0", ">= 1")

    def test_unknown_figure(self):
        assert_one_line(run("figures", "cfl/fig-22"), "cfl/fig-22", "did you mean cfl/fig-2?", "cfl/table-3")

    def test_unknown_table(self):
        assert_one_line(run("tables", "cfl/table-9", "--json"), "cfl/table-9", "allowed: cfl/table-3")

    @pytest.mark.parametrize(
        "args", [["nonsense"], ["expect"], ["expect", "--bogus"], ["tables", "--out", "x"]], ids=" ".join
    )
    def test_usage(self, args):
        assert_one_line(run(*args), "--help")

    def test_corrupted_result(self, toml, tmp_path):
        out = tmp_path / "curve.nc"
        run("expect", toml(), "--out", out)
        whole = out.read_bytes()
        for damaged in (whole[: len(whole) // 2], b"", b"not a result" * 100):
            out.write_bytes(damaged)
            with pytest.raises(nqm.InvalidInput, match=r"curve\.nc: not a readable result") as caught:
                nqm.load(out)
            assert "\n" not in str(caught.value)

    def test_a_bug_is_not_hidden(self, toml, monkeypatch):
        def broken(*args, **kwargs):
            raise ZeroDivisionError

        monkeypatch.setattr(nqm, "expect", broken)
        assert isinstance(run("expect", toml()).exception, ZeroDivisionError)


def test_interrupt_is_one_line(toml, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(nqm, "simulate", interrupted)
    result = run("simulate", toml())
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_reader_of_a_pipe_may_leave(toml):
    command = [
        sys.executable,
        str(ROOT / "driftproof.py"),
        "expect",
        toml(federation__rounds="20000"),
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == ""


class TestHelp:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_every_command_has_an_example(self, command):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert f"driftproof {command}" in result.stdout
        assert "Example:" in result.stdout

    @pytest.mark.parametrize("command", ["expect", "simulate"])
    def test_the_sample_in_the_help_runs(self, command, tmp_path):
        sample = tmp_path / "sample.toml"
        sample.write_text("\n".join(line.strip() for line in driftproof.SAMPLE if line.startswith("    ")))
        shown = run(command, "--help").stdout
        assert all(line.split("#")[0].strip() in shown for line in sample.read_text().splitlines())
        assert run("expect", sample, "--json").exit_code == 0

    @pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
    def test_examples_run(self, example):
        told = json.loads(run("simulate", example, "--seeds", 2, "--json").stdout)
        norms = np.array(told["mean"]["grad_norm"])
        if norms.ndim == 1:
            assert norms[-1] < 0.1 * norms[0]
        else:  # of a sequence, only the first task begins far away and is learned alone
            assert norms[0, -1] < 0.2 * norms[0, 0]
        assert told["diverged_at"] == np.full(np.shape(told["diverged_at"]), None).tolist()
        assert f"examples/{example.name}" in " ".join(run("expect", "--help").stdout.split())

    def test_without_arguments(self):
        assert "reproduce" in run().output

    def test_version(self):
        result = run("--version")
        assert result.exit_code == 0
        assert result.stdout.startswith("driftproof ")

    def test_help_imports_nothing_heavy(self):
        heavy = ("numpy", "xarray", "matplotlib", "numba", "nqm", "plots")
        code = f"import sys, driftproof; assert not [m for m in {heavy} if m in sys.modules]"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)

    def test_expect_compiles_and_draws_nothing(self, toml):
        code = (
            "import sys, driftproof\n"
            f"try: driftproof.app(['expect', {str(toml())!r}, '--json'])\n"
            "except SystemExit as end: assert end.code == 0\n"
            "assert not [m for m in ('matplotlib', 'numba', 'cvxpy', 'torch') if m in sys.modules]"
        )
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def test_bench_calls_the_benchmarks(monkeypatch):
    fake = types.ModuleType("benchmarks")
    fake.run = lambda quick, progress: {"quick": quick}  # type: ignore[attr-defined]
    fake.show = lambda result, console: console.print(f"shown {result}")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks", fake)
    assert json.loads(run("bench", "--json").stdout) == {"quick": False}
    assert "shown" in run("bench").stdout
