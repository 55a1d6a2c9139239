"""Where the tasks of a sweep run: threads or processes of this machine, or a Dask cluster.

All three are a `concurrent.futures.Executor`, so that a sweep knows no difference. Compiled kernels let go of Python's
lock and share one process; what runs in NumPy gets a process a job.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.connection import wait as wait_for
from types import TracebackType
from typing import Any

from .check import InvalidInput
from .store import engine_version
from .task import needs_norm

TIMEOUT = 10.0  # seconds in which a scheduler, and a first worker, must answer
PATIENCE = 60.0  # seconds that a sweep waits for new workers when all are gone


class Workers:
    """``with workers``: an ``executor``, and what a sweep must know of it.

    slots: how many tasks it can run at once. ahead: how many more should wait for their turn.
    here: whether it is on this machine.
    """

    executor: Executor
    slots: int
    ahead: int
    here = True

    def __enter__(self) -> Workers:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.executor.shutdown(wait=True, cancel_futures=True)

    def check(self) -> None:
        """Raise if nobody is left to work."""


class Local(Workers):
    """``jobs`` threads or processes of this machine."""

    def __init__(self, jobs: int | None, engine: str, keep: tuple[str, ...] | None) -> None:
        self.slots = jobs or available_cores()
        self.threads = self.slots == 1 or not (engine == "reference" or needs_norm(engine, keep))
        self.ahead = self.slots + 2 if self.threads else 1  # what a pool of processes has taken, Ctrl-C must wait for

    def open(self) -> None:
        if self.threads:
            self.executor = ThreadPoolExecutor(self.slots, thread_name_prefix="sweep")
        else:
            # Spawned, because a fork copies the locks of threads that it does not copy.
            context = multiprocessing.get_context("spawn")
            self.executor = ProcessPoolExecutor(self.slots, mp_context=context, initializer=_begin)


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin() -> None:
    """A worker process leaves Ctrl-C to its parent, and ends when that is no more, even by kill -9."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


class Cluster(Workers):
    """The workers of a Dask scheduler. Each must run the engines in our version."""

    here = False

    def __init__(self, address: str) -> None:
        self.address = address
        self.seen = time.monotonic()

    def open(self) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise InvalidInput(
                "--scheduler needs the package distributed: pip install 'driftproof[cluster]' (or distributed itself)"
            ) from None
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what goes wrong is told in one line below
        if "://" not in self.address:
            raise InvalidInput(f"--scheduler {self.address}: must be an address such as tcp://127.0.0.1:8786")
        self.client: Any = None
        try:
            self.client = Client(self.address, timeout=TIMEOUT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InvalidInput(f"--scheduler {self.address}: not reached in {TIMEOUT:g} s ({reason})") from None
        try:
            self._meet()
        except BaseException:
            self.close()
            raise
        self.executor = self.client.get_executor(pure=False)

    def _meet(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=TIMEOUT)
        except TimeoutError:
            raise InvalidInput(f"--scheduler {self.address}: has no workers; start some with: dask worker") from None
        threads = self.client.nthreads()
        self.slots = sum(threads.values())
        self.ahead = self.slots + 2
        versions = self.client.run(engine_version, on_error="return")
        for worker, version in versions.items():
            if isinstance(version, Exception):
                raise InvalidInput(f"worker {worker}: can't run the engines ({version}); install driftproof there")
            if version != engine_version():
                raise InvalidInput(
                    f"worker {worker} runs another version of the engines: {version}, not {engine_version()}; "
                    "install the same there"
                )

    def check(self) -> None:
        if self.client.status != "running":
            raise InvalidInput(f"--scheduler {self.address}: lost")
        if self.client.nthreads():
            self.seen = time.monotonic()
        elif time.monotonic() - self.seen > PATIENCE:
            raise InvalidInput(f"--scheduler {self.address}: all its workers are gone")

    def close(self) -> None:
        if self.client is not None:
            self.client.close(timeout=TIMEOUT)
