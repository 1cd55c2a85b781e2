"""Workers of any contender: started, found with all their children, started again after each death, stopped in order at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.processes import birth_of, children_of, launched
from tests.servers import HOUSE
from tests.system.faults.peers.timing import RESTART_SECONDS

STOP_SECONDS_MAX = 25.0


class Crew:
    """One worker with all its processes, which is to run until the end, whatever happens to it.

    Args:
        name: Its name.
        command: The interpreter, and what it is to run.
        environment: What it finds there.
        folder: Where its log goes.
        runs_in: Which process runs the tasks: the main one, or its children.
        tell: Told of each process that is gone, and until when it was seen alive.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        runs_in: str,
        tell: Callable[[int, float], None],
    ) -> None:
        self.name = name
        self._command = command
        self._environment = {**os.environ, "PYTHONPATH": f"{HOUSE / 'src'}{os.pathsep}{HOUSE}", **environment}
        self._log = folder / f"{name}.log"
        self._runs_in = runs_in
        self._tell = tell
        self._births: dict[int, int] = {}
        self._alive_at: dict[int, float] = {}
        self._lock = threading.RLock()  # faults look from threads of their own
        self._again_at: float | None = None
        self.starts = 0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        python, *arguments = self._command
        return launched(python, arguments, self._environment, self._log)

    def keep(self) -> None:
        """Start it again if it has ended: after a while, and what it left behind is ended first."""
        self.processes()
        if self.process.poll() is None:
            return
        if self._again_at is None:
            self._again_at = time.monotonic() + RESTART_SECONDS
        elif time.monotonic() >= self._again_at:
            self._again_at = None
            self._clear()
            self.process = self._start()

    def processes(self) -> list[int]:
        """List its main process and all that descend from it, and remember them."""
        with self._lock:
            # A number that is free may be another's by now.
            found = [self.process.pid] if self.process.poll() is None else []
            for pid in found:
                found += children_of(pid)
            for pid in found:
                self._births.setdefault(pid, birth_of(pid))
            self._look()
            return [pid for pid in found if pid in self._births]

    def _look(self) -> None:
        for pid, born in list(self._births.items()):
            if born and birth_of(pid) == born:
                self._alive_at[pid] = time.monotonic()
            else:
                del self._births[pid]
                if pid in self._alive_at:
                    self._tell(pid, self._alive_at.pop(pid))

    def victims(self) -> list[int]:
        """List the processes that run tasks."""
        found = self.processes()
        return found[1:] if self._runs_in == "children" and len(found) > 1 else found[:1]

    def stop(self) -> str:
        """Stop it as an operator does; tell how it ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            ending = str(self.process.wait(STOP_SECONDS_MAX))
        except subprocess.TimeoutExpired:
            ending = "had to be killed"
        self.kill()
        return ending

    def kill(self) -> None:
        """End all of it."""
        self.processes()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._clear()

    def _clear(self) -> None:
        with self._lock:
            self._look()
            for pid in self._births:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in self._births:
                self._tell(pid, self._alive_at[pid])
            self._births.clear()
            self._alive_at.clear()
