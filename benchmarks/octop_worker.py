"""`octop worker` in a process of its own, watched by how often its task function was called."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.environments import HOUSE
from benchmarks.peers.programs import contest
from octop.cli.worker_process import WorkerProcess, worker_process

BATCH: Final = 500
"""Tasks at once, as in `octop bench`. Nothing is switched off: history, fence, time limits, retries, heartbeat."""


class OctopWorker:
    """A running worker."""

    def __init__(self, process: WorkerProcess, folder: Path) -> None:
        self._process = process
        self.folder = folder

    def seen(self) -> tuple[float | None, int]:
        """Return the moment of the first call (monotonic) and the number of calls so far."""
        return contest.stamped(self.folder)

    def wait_for(self, count: int, seconds: float = 600.0) -> float:
        """Wait until its functions were called so often; return the moment.

        Raises:
            RuntimeError: It ended, or took too long.
        """
        deadline = time.monotonic() + seconds
        while (seen := self.seen())[1] < count:
            if self._process.ended is not None or time.monotonic() > deadline:
                message = f"the worker made {seen[1]} of {count} calls: {self._process.last_words()}"
                raise RuntimeError(message)
            time.sleep(contest.pause_before(count, *seen))
        return time.monotonic()

    def megabytes(self) -> list[float]:
        """Return the resident memory of each process that runs tasks."""
        pids = [int(each.name.partition("-")[2]) for each in self.folder.glob("stamp-*")]
        return [contest.resident_megabytes(pid) for pid in pids]


@contextlib.contextmanager
def octop_worker(dsn: str, *, processes: int = 1, batch: int = BATCH, queue: str = "bench") -> Iterator[OctopWorker]:
    """Run `octop worker` on the application of `programs/octop_app.py` for the length of a `with`."""
    folder = Path(tempfile.mkdtemp(prefix="octop-bench-"))
    arguments = [
        "-A",
        "benchmarks.peers.programs.octop_app:octop",
        "-q",
        f"{queue}={batch}",
        "--processes",
        str(processes),
        "--grace",
        "1",
    ]
    environment = {"OCTOP_DSN": dsn, "BENCH_STAMPS": str(folder), "PYTHONPATH": str(HOUSE)}
    try:
        with worker_process(arguments, environment, folder / "worker.log") as process:
            yield OctopWorker(process, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def pointed_at(dsn: str) -> Iterator[Any]:
    """Import the application of the benchmarks in this process, for a database; yield its module."""
    from benchmarks.peers.programs import octop_app  # noqa: PLC0415 - it counts calls in a folder of its own

    with octop_app.octop.pointed_at(dsn, "public"):
        yield octop_app
