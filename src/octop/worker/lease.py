"""The right of a living worker to its tasks, as the worker itself sees it: never longer than the database does."""

import threading
import time
from collections.abc import Callable
from typing import Final

TRUSTED_PART: Final = 2 / 3


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
