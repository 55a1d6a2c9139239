"""The three fast engines of `nqm` at the same work, on one thread."""

from __future__ import annotations

import nqm

from .work import Array, Run, Work

MANY = 64  # seeds of `collapsed` for each of `steps`: it has so little to do that a call would cost more than the work


def steps(work: Work) -> Run:
    return _simulate(work, "steps", work.seeds)


def collapsed(work: Work) -> Run:
    return _simulate(work, "collapsed", MANY * work.seeds)


def expect(work: Work) -> Run:
    def run(stream: int) -> Array:
        return nqm.expect(*work.parts, norm=False, compiled=True)["excess_loss"].values[-1:]

    return run


def _simulate(work: Work, engine: str, seeds: int) -> Run:
    def run(stream: int) -> Array:
        names = range(stream * seeds, (stream + 1) * seeds)
        return nqm.simulate(*work.parts, seeds=names, engine=engine, threads=1)["excess_loss"].values[:, -1]

    return run
