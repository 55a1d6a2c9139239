"""Bad input gets one clear line: the field, the value, what is allowed."""

from __future__ import annotations

import dataclasses
import errno
import math

import numpy as np
import pytest
import xarray as xr

import nqm
from nqm import (
    CFL,
    CL,
    Drift,
    Experiment,
    FedAvg,
    Federation,
    FedProx,
    InvalidInput,
    Quadratic,
    Schedule,
    expect,
    simulate,
)
from nqm.check import available_memory
from theory.weights import lemma_b4, named, thm_49

NAN, INF = math.nan, math.inf
SMALL = (Quadratic(dim=3), Drift(time=1.0), Federation(4, rounds=5), FedAvg(0.01))


def line(error: pytest.ExceptionInfo[InvalidInput]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 300
    return text


@pytest.mark.parametrize("field", ["client", "client_slope", "time", "time_slope", "overlap", "noise", "loss_var"])
@pytest.mark.parametrize("value", [-1.0, NAN, INF, "much", True, None])
def test_variances(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as error:
        Drift(**{field: value})
    assert line(error) == f"drift.{field} = {value!r}: must be a finite number >= 0"


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Quadratic(mu=3.0, L=2.0), "problem.mu = 3.0: must be at most problem.L = 2"),
        (lambda: Quadratic(mu=-1.0), "problem.mu = -1.0: must be a finite number >= 0"),
        (lambda: Quadratic(dim=0), "problem.dim = 0: must be a whole number >= 1"),
        (lambda: Quadratic(dim=2.5), "problem.dim = 2.5: must be a whole number >= 1"),
        (
            lambda: Quadratic(spectrum="flat"),
            "problem.spectrum = 'flat': must be one of linspace, midpoint, uniform, log",
        ),
        (lambda: Quadratic(mu=0, spectrum="log"), "problem.mu = 0.0: must be > 0 for the log spectrum"),
        (lambda: Quadratic(dim=3, spectrum=(1.0, 2.0)), "problem.spectrum has 2 numbers: must have problem.dim = 3"),
        (lambda: Quadratic(dim=2, spectrum=(1.0, -2.0)), "problem.spectrum = -2.0: eigenvalues must lie in"),
        (lambda: Quadratic(dim=2, spectrum=(1.0, 9.0), L=5.0), "problem.spectrum = 9.0: eigenvalues must lie in"),
        (lambda: Quadratic(dim=2, b=(1.0, NAN)), "problem.b = nan: must be a finite number"),
        (
            lambda: Quadratic(dim=2, b=(1.0, 1.0), spectrum=(0.0, 1.0), rotation="none"),
            "problem.b has a part of size 1",
        ),
        (lambda: Quadratic(rotation="some"), "problem.rotation = 'some': must be one of haar, none"),
        (lambda: Federation(3, 4), "federation.sampled = 4: must be at most federation.clients = 3"),
        (lambda: Federation(0), "federation.clients = 0: must be a whole number >= 1"),
        (lambda: Federation(local_steps=0), "federation.local_steps = 0: must be a whole number >= 1"),
        (lambda: Federation(rounds=0), "federation.rounds = 0: must be a whole number >= 1"),
        (lambda: Federation(stateless="yes"), "federation.stateless = 'yes': must be true or false"),
        (lambda: Drift(correlation=1.0), "drift.correlation = 1.0: must be a finite number >= 0 and < 1"),
        (lambda: Drift(correlation=-0.1), "drift.correlation = -0.1: must be a finite number >= 0 and < 1"),
        (lambda: Drift(time=1.0, overlap=2.0), "drift.overlap = 2.0: must be at most drift.time = 1"),
        (lambda: FedAvg(0.0), "method.lr = 0.0: must be a finite number > 0"),
        (lambda: FedAvg(NAN), "method.lr = nan: must be a finite number > 0"),
        (lambda: FedProx(0.1, prox=-1), "method.prox = -1: must be a finite number >= 0"),
        (lambda: CFL(0.1, weights="best"), "method.weights = 'best': must be current, uniform, a schedule"),
        (
            lambda: CFL(0.1, weights=[[1.0], [0.6, 0.6]]),
            "method.weights[1] sums to 1.2: the weights of a round must sum to 1",
        ),
        (lambda: CFL(0.1, weights=[[1.0], [0.4, 0.6 + 1e-6]]), "method.weights[1] sums to 1.000001"),
        (lambda: Quadratic(seed=1e20), "problem.seed = 1e+20: must be a whole number >= 0 and <= 9007199254740992"),
        (
            lambda: Federation(rounds=10**30),
            "federation.rounds = 1000000000000000000000000000000: must be a whole number",
        ),
        (lambda: Federation(local_steps=1e308), "federation.local_steps = 1e+308: must be a whole number >= 1 and <="),
        (lambda: simulate(*SMALL[:2], Federation(4, local_steps=2**50), SMALL[3]), "years of work: lower one of them"),
        (lambda: CFL(0.1, weights=[[1.0], [NAN, 0.6]]), "method.weights[1] sums to nan"),
        (
            lambda: CFL(0.1, weights=[[1.0], [1.0, 0.0, 0.0]]),
            "method.weights[1] has 3 numbers: row t must have t + 1 = 2",
        ),
        (lambda: CFL(0.1, weights=[[0.5, 0.5], [0.5, 0.5]]), "method.weights: a round can't weigh the future"),
        (lambda: CFL(0.1, weights=3), "method.weights = 3: must be a schedule or a list"),
        (lambda: lemma_b4(5, -1.0, 1.0), "weights.D2 = -1.0: must be a finite number >= 0"),
        (lambda: lemma_b4(5, 0.0, 0.0), "weights.D2 = 0, weights.R2 = 0"),
        (lambda: thm_49(5, 1.0, 1.0, 1.0), "weights.alpha = 1.0: must be a finite number >= 0 and < 1"),
        (lambda: simulate(*SMALL, seeds=0), "seeds = 0: must be a whole number >= 1"),
        (lambda: simulate(*SMALL, seeds=[1, -1]), "seeds = -1: must be a whole number >= 0"),
        (lambda: simulate(*SMALL, seeds=[]), "seeds = []: must name at least one seed"),
        (lambda: simulate(*SMALL, engine="fast"), "engine = 'fast': must be one of reference, steps, collapsed"),
        (lambda: simulate(*SMALL, threads=0), "threads = 0: must be a whole number >= 1"),
        (lambda: expect(*SMALL, lr=[0.1, -1]), "lr = "),
        (lambda: expect(*SMALL[:3], CL(0.1)), "federation.clients = 4: must be 1 for method.name = 'cl'"),
        (
            lambda: expect(*SMALL[:3], CFL(0.1, weights=Schedule.uniform(3))),
            "method.weights has 3 rows: federation.rounds = 5",
        ),
        (lambda: nqm.tune(*SMALL, criterion="luck"), "criterion = 'luck': must be one of final, mean-log, rounds"),
        (lambda: nqm.tune(*SMALL, criterion="rounds"), "eps: missing"),
        (lambda: nqm.tune(*SMALL, lrs=[]), "lrs: empty"),
        (
            lambda: nqm.tune(*SMALL, lrs=[50.0, 60.0], criterion="rounds", eps=1e-9),
            "every rate diverges or stays above eps",
        ),
    ],
)
def test_one_line(build, says: str) -> None:
    with pytest.raises(InvalidInput) as error:
        build()
    assert says in line(error)


def toml(**tables: dict) -> dict:
    base = {
        "problem": {"dim": 3},
        "drift": {"time": 1.0},
        "federation": {"clients": 4, "rounds": 5},
        "method": {"name": "fedavg", "lr": 0.01},
    }
    return base | tables


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        (
            toml(method={"name": "fedsgd", "lr": 0.1}),
            "method.name = 'fedsgd': must be one of cfl, cflag, cl, fedavg, fedavgm, fedeve, fedopt, fedprox, "
            "fedtrack, mimelite, scaffold, sgd, special, special-c",
        ),
        (toml(method={"lr": 0.1}), "method.name: missing; must be one of"),
        (toml(method={"name": "fedavg"}), "method.lr: missing"),
        (toml(method={"name": "fedavg", "lr": 0.1, "prox": 1}), "method.prox: unknown field; allowed: lr, server_lr"),
        (toml(drift={"tmie": 1.0}), "drift.tmie: unknown field (did you mean time?)"),
        (toml(drfit={}), "[drfit]: unknown table (did you mean drift?)"),
        (toml(problem=3), "problem = 3: must be a table"),
        ({"problem": {}}, "[method]: missing"),
        (
            toml(method={"name": "cfl", "lr": 0.1, "weights": "thm-9"}),
            "method.weights = 'thm-9': must be one of lemma-b.4",
        ),
    ],
)
def test_experiment_files(tables: dict, says: str) -> None:
    with pytest.raises(InvalidInput) as error:
        Experiment.from_dict(tables, named)
    assert says in line(error)


def test_experiment_from_a_file(tmp_path) -> None:
    path = tmp_path / "e.toml"
    path.write_text(
        """
        [problem]
        spectrum = [1, 2.5, 4]
        rotation = "none"
        b = [1, 0, -1]
        w0 = 0
        [drift]
        time = 2
        loss_mean = 0.1
        [federation]
        clients = 3
        rounds = 7
        [method]
        name = "cfl"
        lr = 0.1
        weights = "lemma-b.4"
        """
    )
    experiment = Experiment.from_toml(path, named)
    assert experiment.problem.dim == 3
    assert experiment.problem.mu == 1
    assert experiment.problem.L == 4
    expected = lemma_b4(7, 2.0, 3 * 0.1**2)
    np.testing.assert_array_equal(experiment.method.weights_for(7).current, expected.current)
    own = Experiment.from_dict(
        toml(method={"name": "cfl", "lr": 0.1, "weights": "thm-4.9", "D2": 3, "R2": 1, "alpha": 0.5}), named
    )
    np.testing.assert_array_equal(own.method.weights_for(5).current, thm_49(5, 3.0, 1.0, 0.5).current)


@pytest.mark.parametrize("content", ["[problem", "name = \x00"])
def test_a_file_that_is_not_toml(tmp_path, content: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(content)
    with pytest.raises(InvalidInput, match="not a TOML file"):
        Experiment.from_toml(path)
    with pytest.raises(InvalidInput, match="can't be read"):
        Experiment.from_toml(tmp_path / "absent.toml")


def test_named_weights_take_their_constants_from_the_drift() -> None:
    """D^2 is all of the time drift, its overlap included; without drift and loss the limit of a vanishing drift."""
    drift = {"time": 3.0, "overlap": 1.0, "loss_mean": 0.5, "loss_var": 0.25}
    cfl = {"name": "cfl", "lr": 0.1, "weights": "lemma-b.4"}
    given = Experiment.from_dict(toml(drift=drift, method=cfl), named).method.weights_for(5)
    np.testing.assert_array_equal(given.current, lemma_b4(5, 3.0, 3 * (0.25 + 0.25)).current)
    still = Experiment.from_dict(toml(drift={}, method=cfl), named).method.weights_for(5)
    np.testing.assert_allclose(still.current, Schedule.uniform(5).current)
    for field, value in (("D2", -1), ("R2", NAN), ("alpha", "x")):
        with pytest.raises(InvalidInput, match=f"method.{field} = "):
            Experiment.from_dict(toml(method=cfl | {field: value}), named)


def test_only_the_distance_may_leave_the_finite_numbers() -> None:
    problem = Quadratic(dim=2, spectrum=(1e-160, 1e-160), rotation="none", b=0.0, w0=(1.1e154, 1.1e154))
    result = expect(problem, Drift(), Federation(1, rounds=3), FedAvg(0.1))
    assert int(result["diverged_at"]) == 0


def test_a_byte_order_mark_and_a_device(tmp_path) -> None:
    path = tmp_path / "e.toml"
    path.write_text('[method]\nname = "fedavg"\nlr = 0.1\n', encoding="utf-8-sig")
    assert Experiment.from_toml(path).method == FedAvg(0.1)
    with pytest.raises(InvalidInput, match="not a file"):
        Experiment.from_toml("/dev/zero")


def test_rotations_are_haar() -> None:
    """Entries have mean zero whatever LAPACK's sign convention: 2,000 seeds, z of one entry and of the trace."""
    matrices = np.array([Quadratic(dim=3, seed=s).rotation_matrix for s in range(2_000)])
    np.testing.assert_allclose(matrices @ matrices.swapaxes(1, 2), np.tile(np.eye(3), (2_000, 1, 1)), atol=1e-12)
    for sample in (matrices[:, 0, 0], np.trace(matrices, axis1=1, axis2=2)):
        assert abs(sample.mean()) < 4.5 * sample.std() / np.sqrt(2_000)


def test_what_does_not_fit_says_its_size_before_allocating() -> None:
    problem, drift, federation, method = SMALL
    big = int(available_memory() / 8)
    for build in (
        lambda: simulate(problem, drift, federation, method, seeds=big),
        lambda: expect(problem, drift, dataclasses.replace(federation, rounds=big), method),
        lambda: simulate(Quadratic(dim=1000, rotation="none"), drift, Federation(big // 1000), method, seeds=1),
        lambda: Quadratic(dim=int(math.sqrt(big))).rotation_matrix,
    ):
        with pytest.raises(InvalidInput, match=r"needs [\d.]+(e\+\d+)? [GTPE]B, .* are free: lower"):
            build()


class TestFiles:
    def test_round_trip(self, tmp_path) -> None:
        result = expect(*SMALL)
        path = nqm.save(result, tmp_path / "deep" / "er" / "r.nc")
        back = nqm.load(path)
        xr.testing.assert_identical(result, back)
        assert list(path.parent.iterdir()) == [path]

    @pytest.mark.parametrize("damage", ["empty", "text", "truncated", "garbled"])
    def test_damaged_file(self, tmp_path, damage: str) -> None:
        path = nqm.save(expect(*SMALL), tmp_path / "r.nc")
        whole = path.read_bytes()
        if damage == "garbled":
            whole = b"\x89HDF\r\n\x1a\n" + bytes(len(whole) - 8)
        path.write_bytes(
            {"empty": b"", "text": b"hello", "truncated": whole[: len(whole) // 2], "garbled": whole}[damage]
        )
        with pytest.raises(InvalidInput, match="not a readable result") as error:
            nqm.load(path)
        assert str(path) in line(error)

    def test_absent_file(self, tmp_path) -> None:
        with pytest.raises(InvalidInput, match="no such file"):
            nqm.load(tmp_path / "none.nc")

    def test_unwritable_folder(self, tmp_path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(InvalidInput, match="can't be written") as error:
            nqm.save(expect(*SMALL), tmp_path / "file" / "r.nc")
        line(error)

    def test_a_full_disk_leaves_the_old_file_and_no_rubbish(self, tmp_path, monkeypatch) -> None:
        path = nqm.save(expect(*SMALL), tmp_path / "r.nc")
        before = path.read_bytes()

        def full(*args: object, **kwargs: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(xr.Dataset, "to_netcdf", full)
        with pytest.raises(InvalidInput, match="No space left"):
            nqm.save(expect(*SMALL), path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]

    def test_a_folder_in_the_way(self, tmp_path) -> None:
        (tmp_path / "r.nc").mkdir()
        with pytest.raises(InvalidInput, match="can't be written"):
            nqm.save(expect(*SMALL), tmp_path / "r.nc")
        assert [p.name for p in tmp_path.iterdir()] == ["r.nc"]


@pytest.mark.parametrize(
    "legal",
    [
        lambda: expect(Quadratic(dim=1), Drift(), Federation(1, rounds=1, local_steps=1), FedAvg(0.01)),
        lambda: expect(
            Quadratic(dim=3, mu=0, L=1, spectrum="linspace"),
            Drift(client=0, time=1, noise=0),
            Federation(2, rounds=4),
            FedAvg(1),
        ),
        lambda: expect(
            Quadratic(dim=3),
            Drift(time=1, correlation=0),
            Federation(2, rounds=4),
            CFL(0.01, weights=lemma_b4(4, 0, 1)),
        ),
        lambda: simulate(Quadratic(dim=1), Drift(client=1), Federation(1, 1, 1, 1), FedAvg(0.01), seeds=1),
        lambda: simulate(Quadratic(dim=1), Drift(), Federation(1, 1, 1, 1), CL(0.01), seeds=1, engine="collapsed"),
    ],
)
def test_small_and_whole_numbers_are_legal(legal) -> None:
    assert np.isfinite(legal()["grad_norm"]).all()


def test_a_flat_direction_does_not_raise_the_floor() -> None:
    """mu = 0 with an exact zero eigenvalue: b is kept in the range of A, so the gradient can vanish."""
    problem = Quadratic(dim=4, mu=0, L=1, spectrum="linspace")
    assert problem.eigenvalues[0] == 0
    assert problem.b_eigen[0] == 0
    end = expect(problem, Drift(), Federation(1, rounds=4000), FedAvg(0.5))
    assert float(end["grad_norm"][-1]) < 1e-12
    assert float(end["distance_sq"][-1]) < 1e-12
