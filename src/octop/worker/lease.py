"""The right of a living worker to its tasks, as the worker itself sees it: never longer than the database does."""

import threading
import time
from collections.abc import Callable
from typing import Final

TRUSTED_PART: Final = 2 / 3
ANSWER_SECONDS_MIN: Final = 2.0
ANSWER_SECONDS_MAX: Final = 15.0


def patience(lease_seconds: float) -> float:
    """Return how long to wait for the answer of an exchange, in seconds: 2 to 15.

    If the network fell silent with the question, the last beat was accepted before it. Two thirds of a lease later nothing may be started
    any more: whatever an answer brings then comes too late, and meanwhile outcomes and places lie idle. While beats are accepted nothing
    is lost by giving up, either: outcomes are handed in again, and what was claimed is given back. A server that is merely busy gets two
    seconds, however short the lease.

    Args:
        lease_seconds: Setting ``worker.lease_seconds``.

    Example:
        >>> patience(30.0), patience(6.0), patience(0.5)
        (15.0, 4.0, 2.0)
    """
    return min(ANSWER_SECONDS_MAX, max(ANSWER_SECONDS_MIN, lease_seconds * TRUSTED_PART))


class Lease:
    """Until when may something be started? Written by whoever beats, read before each start.

    Attributes:
        until: Monotonic moment after which nothing may be started. A plain float: reading it costs nothing.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        """Start with no right at all."""
        self.until = 0.0
        self._seconds = seconds
        self._last_beat = float("-inf")
        self._doubtful = False
        self._lock = threading.Lock()
        self.on_broken: Callable[[], None] = lambda: None
        self.on_renewed: Callable[[], None] = lambda: None

    def set_seconds(self, seconds: float) -> None:
        """Follow the setting ``worker.lease_seconds``."""
        with self._lock:
            self._seconds = seconds
            self._reckon()

    def beaten(self, at: float, *, unbroken: bool) -> None:
        """Take note of a beat that the database accepted. May be called from any thread.

        Args:
            at: Monotonic moment at which the beat was sent.
            unbroken: False = the beat before was too old, so tasks may have been given away: nothing starts until ``confirmed``.
        """
        with self._lock:
            was_over = time.monotonic() >= self.until
            self._last_beat = max(self._last_beat, at)
            broke = not unbroken
            self._doubtful = self._doubtful or broke
            self._reckon()
        if broke:
            self.on_broken()
        elif was_over:
            self.on_renewed()

    def confirmed(self) -> None:
        """Take note that what was lost has been dropped: the rest may go on."""
        with self._lock:
            self._doubtful = False
            self._reckon()
        self.on_renewed()

    @property
    def is_doubtful(self) -> bool:
        """Tell whether it must still be asked which tasks are left."""
        return self._doubtful

    def _reckon(self) -> None:
        self.until = 0.0 if self._doubtful else self._last_beat + self._seconds * TRUSTED_PART
