"""One worker process, as its supervisor sees it."""

import asyncio
import contextlib
import math
import signal
import time
from pathlib import Path
from typing import Final

from octop.worker.frames import Message, encoded

SILENT_SECONDS_MIN: Final = 30.0
SILENT_SECONDS_NAMED: Final = 2.5


class WorkerProcess:
    """One worker process, as its supervisor sees it.

    Attributes:
        worker_id: New at each start.
        registered: The database knows of it, so it is to be beaten for.
        leaving: It is about to deregister, so it is beaten for no more.
        left: It has deregistered.
        ended: It said so as its last word: no task brought it down, and what it held it had given up.
        delivering_at: Monotonic moment at which all its tasks had ended; minus infinity = not yet.
        fatal: Exit code of an error that no further start would mend; None = none.
        mendable: A saved file may mend it: the task module is there, but does not import.
        drained: It ended because nothing was left.
        kill_at: Monotonic moment at which a stopping one is killed.
        killed: It was, so what it held is released without using a try.
        replaced: It was told to make room for new code: that it ends is no failure, however it does.
        culprit: What keeps its loop from turning, as far as it could say so; None = nothing.
        retired: It was told to end when its tasks have, because fewer processes are needed.
        recycled: Why it ended to make room for a fresh one; empty = it did not.
        beat_at: Monotonic moment of the last beat that the database accepted for it.
        able_at: Monotonic moment at which it could last claim, as it says.
        unable: What keeps it from claiming, as it says; empty = nothing.
        good_before: Monotonic moment at which the process that had its place before could last work.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        worker_id: str,
    ) -> None:
        """Keep the process and the two ways to it."""
        self.worker_id = worker_id
        self.process = process
        self.reader = reader
        self.registered = False
        self.leaving = False
        self.left = False
        self.ended = False
        self.delivering_at = -math.inf
        self.fatal: int | None = None
        self.mendable = False
        self.drained = False
        self.kill_at = math.inf
        self.killed = False
        self.replaced = False
        self.started_at = time.monotonic()
        self.culprit: str | None = None
        self.recycled = ""
        self.retired = False
        self.beat_at = -math.inf
        self.able_at = -math.inf
        self.unable = ""
        self.good_before = -math.inf
        self._writer = writer
        self._pulse_at = math.inf
        self._longest_seconds = 0.0
        self._deadline: float | None = None
        self._watched = True

    @property
    def is_alive(self) -> bool:
        """Tell whether it runs and is not stopped: one in state T is not beaten for, whatever it holds."""
        return self.process.returncode is None and not is_stopped(self.process.pid)

    @property
    def good_at(self) -> float:
        """Return the monotonic moment at which the process in this place could last do its work: it was beaten for, and could claim."""
        return max(self.good_before, min(self.beat_at, self.able_at))

    def heard(self, message: Message) -> None:
        """Take note of what it says about itself."""
        if "pulse" in message:
            self.turned(float(message["pulse"]))
            if (at := message.get("able_at")) is not None:
                self.able_at = float(at)
            self.unable = str(message.get("unable") or "")
        elif "blocked" in message:
            self.blocked(message["blocked"], message["deadline"])
        elif "registered" in message:
            self.registered = True
        elif "delivering" in message:
            self.delivering_at = time.monotonic()
            self.unwatch()
        elif "leaving" in message:
            self.unwatch()
            self.leaving = True
        elif "left" in message:
            self.left = True
        elif "fatal" in message:
            self.ended = True
            self.fatal = int(message["fatal"])
            self.mendable = bool(message.get("mendable"))
        elif "ended" in message:
            self.ended = True
            self.drained = bool(message["drained"])
            self.recycled = str(message.get("recycled") or "")

    # --- the turning of its loop --------------------------------------------------------------------------------------

    def turned(self, longest_seconds: float) -> None:
        """Take note that its loop turns.

        Args:
            longest_seconds: The longest time limit among the tasks that it holds.
        """
        if self._watched:
            self._pulse_at = time.monotonic()
            self._longest_seconds = longest_seconds
            self.culprit = self._deadline = None

    def blocked(self, culprit: str, deadline: float | None) -> None:
        """Take note that its loop does not turn.

        Args:
            culprit: What keeps it.
            deadline: Monotonic moment at which the time of that task is over; None = no task does it.
        """
        if self._watched:
            self.culprit, self._deadline = culprit, deadline

    def unwatch(self) -> None:
        """Watch its loop no more: its tasks have ended, and ``kill_at`` bounds what is left to do."""
        self._watched = False
        self._pulse_at = math.inf

    def forgive(self, seconds: float) -> None:
        """Take out of the reckoning a time in which it, or we, were stopped."""
        self._pulse_at += seconds
        if self._deadline is not None:
            self._deadline += seconds

    def silent_until(self, grace_seconds: float) -> float:
        """Return the monotonic moment after which a silent loop is taken to be blocked for good; infinity = it is not watched.

        Args:
            grace_seconds: Setting ``worker.deadline_grace_seconds``.
        """
        if self._deadline is not None:
            return max(self._deadline + grace_seconds, self._pulse_at + SILENT_SECONDS_NAMED)
        # it could not say who: somebody holds the interpreter's lock, and might be any of its tasks
        return self._pulse_at + max(SILENT_SECONDS_MIN, self._longest_seconds + grace_seconds)

    # --- the ways to it -----------------------------------------------------------------------------------------------

    def tell(self, message: Message) -> None:
        """Send a message; one that is gone does not hear it."""
        if not self._writer.is_closing():
            self._writer.write(encoded(message))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        with contextlib.suppress(ProcessLookupError):
            if self.process.returncode is None:
                self.process.send_signal(number)

    def close(self) -> None:
        """Close the way to it."""
        self._writer.close()


def is_stopped(pid: int) -> bool:
    """Tell whether a process is stopped by a signal or a debugger; False where there is no ``/proc``."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False
