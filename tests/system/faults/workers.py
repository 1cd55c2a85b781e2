"""Real `octop worker` processes: started, found, started again after each death, and stopped in order at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.processes import birth_of, children_of, launched
from tests.system.faults.history import Ending
from tests.system.faults.ledger import VARIABLE

APPLICATION = "tests.system.faults.bodies:octop"
QUEUES = "quick=6,slow=6,heavy=2,alone=3,three=4,laned=6,strict=6"
WORKER, CHILD = b"octop.worker.process", b"octop.worker.child"
"""Modules, as they stand in the command line of a process."""
GRACE_SECONDS = 2
STOP_SECONDS_MAX = 25.0


class Supervisor:
    """One `octop worker` that is to run until the end, whatever happens to it."""

    def __init__(
        self, name: str, dsn: str, ledger: str, folder: Path, processes: int, *, listens: bool, clock: Path | None
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._environment = {**os.environ, "OCTOP_DSN": dsn, VARIABLE: ledger}
        if clock is not None:
            self._environment |= bent(clock)
        self.processes = processes
        self._options = ["--name", name, "--grace", str(GRACE_SECONDS), *([] if listens else ["--poll-only"])]
        self._seen: dict[int, int] = {}
        self.starts = 0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        command = ["-m", "octop", "worker", "-A", APPLICATION, "-q", QUEUES, "--processes", str(self.processes)]
        return launched(sys.executable, [*command, *self._options], self._environment, self.log)

    def keep(self) -> None:
        """Start it again if it has ended, and remember its children."""
        if self.process.poll() is not None:
            self.process = self._start()
        self.children()

    def children(self) -> list[int]:
        """List its worker processes."""
        found = [pid for pid in children_of(self.process.pid) if WORKER in command_of(pid)]
        self._seen.update((pid, birth_of(pid)) for pid in found)
        return found

    def grandchildren(self) -> list[int]:
        """List the processes in which its workers run one task each."""
        return [pid for worker in self.children() for pid in children_of(worker) if CHILD in command_of(pid)]

    def stop(self) -> Ending:
        """Stop it as an operator does, and see how it ends."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return Ending(self.name, self.process.wait(STOP_SECONDS_MAX))
        except subprocess.TimeoutExpired:
            self.kill()
            return Ending(self.name, None)

    def kill(self) -> None:
        """End it and all that it has started."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.survivors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def survivors(self, *, seconds: float = 0.0) -> list[int]:
        """List those of its worker processes that still live after so many seconds, this and earlier starts'."""
        deadline = time.monotonic() + seconds
        while True:
            alive = [pid for pid, born in self._seen.items() if born and birth_of(pid) == born]
            if not alive or time.monotonic() >= deadline:
                return alive
            time.sleep(0.05)


def library() -> Path | None:
    """Find libfaketime; None = there is none on this machine."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def bent(clock: Path) -> dict[str, str]:
    """Return the environment in which the wall clock is what a file says; durations stay true.

    Raises:
        FileNotFoundError: There is no libfaketime on this machine.
    """
    found = library()
    if found is None:
        raise FileNotFoundError("there is no libfaketime on this machine (Debian: libfaketime)")
    return {
        "LD_PRELOAD": str(found),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
