"""Time limits: one timer for all tasks, and no more entries than places."""

import asyncio
import heapq
import math
import time
from collections.abc import Callable

from octop.worker.slot import Slot


class Watchdog:
    """Calls back when the deadline of a place has passed."""

    def __init__(self, bark: Callable[[Slot], None]) -> None:
        """Begin with nothing to watch.

        Args:
            bark: Called with each place whose deadline has passed.
        """
        self._loop = asyncio.get_running_loop()
        self._bark = bark
        self._heap: list[tuple[float, int, Slot]] = []
        self._serial = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def watch(self, slot: Slot, deadline: float) -> None:
        """Set the deadline of a place.

        A place has one entry, at its earliest alarm: a deadline that a later task has further off is looked up when that comes. So entries
        do not pile up however many tasks pass through.
        """
        slot.deadline = deadline
        if deadline < slot.alarm_at:
            slot.alarm_at = deadline
            self._serial += 1
            heapq.heappush(self._heap, (deadline, self._serial, slot))
            self._arm()

    def close(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._heap.clear()

    def _arm(self) -> None:
        if not self._heap:
            return
        earliest = self._heap[0][0]
        if self._timer is None or earliest < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = earliest
            self._timer = self._loop.call_later(max(0.0, earliest - time.monotonic()), self._look)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            at, _, slot = heapq.heappop(self._heap)
            if at != slot.alarm_at:
                continue  # replaced by an earlier one
            slot.alarm_at = math.inf
            if slot.claimed is None or slot.deadline == math.inf:
                continue
            if slot.deadline <= now:
                slot.deadline = math.inf
                self._bark(slot)
            else:
                self.watch(slot, slot.deadline)
        self._arm()
