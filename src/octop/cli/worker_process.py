"""A worker in a process of its own, for demo and bench: it ends when we end, also when we are killed.

As with the private database, a few lines of shell are its parent. They hold the reading end of a pipe; whatever ends
us, the kernel closes the writing end, and they end the worker. A normal end goes the same way: it is always tested.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from octop.model.errors import OctopError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

STOP_SECONDS_MAX: Final = 10.0

GUARD: Final = """
exec 3<&0 </dev/null
"$@" 3<&- &
worker=$!
( read -r _ <&3; kill -TERM $worker; sleep 8; kill -KILL 0 ) 2>/dev/null >&2 &
exec 3<&-
wait $worker
"""
"""Runs the worker; when the lifeline (standard input) ends, asks it to stop, and after 8 s ends the whole group."""


class WorkerProcess:
    """A running `octop worker`."""

    def __init__(self, guard: subprocess.Popen[bytes], log: Path) -> None:
        """Keep the shell that guards it, and its log."""
        self._guard = guard
        self.log = log

    @property
    def ended(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self._guard.poll()

    def wait(self, seconds: float) -> int:
        """Wait for it to end by itself, as with `--drain`, and return its exit code.

        Raises:
            OctopError: It still runs.
        """
        try:
            return self._guard.wait(seconds)
        except subprocess.TimeoutExpired as error:
            message = f"the worker has not ended after {seconds:.0f} s"
            raise OctopError(message, detail=self.last_words()) from error

    def last_words(self, lines: int = 15) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@contextlib.contextmanager
def worker_process(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[WorkerProcess]:
    """Run `octop worker` for the length of a `with`.

    Args:
        arguments: Those of `octop worker`.
        environment: Added to ours: OCTOP_DSN, OCTOP_SCHEMA.
        log: Where its output goes.
    """
    reading, writing = os.pipe()
    try:
        with log.open("wb") as file:
            guard = subprocess.Popen(
                # -P: a file octop.py in the current folder must not be taken for us.
                ["/bin/sh", "-c", GUARD, "octop-worker", sys.executable, "-P", "-m", "octop", "worker", *arguments],
                stdin=reading,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                cwd="/",
                start_new_session=True,  # Ctrl-C in the terminal is for us; we stop the worker in good order
            )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        yield WorkerProcess(guard, log)
    finally:
        os.close(writing)
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(STOP_SECONDS_MAX)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(guard.pid, signal.SIGKILL)  # what is left: the watching shell
        guard.wait()
