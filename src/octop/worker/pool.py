"""The places of one queue: a set of coroutines that take from what was claimed. No asyncio task, timer or log record per task."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from octop.model.task import Claimed
from octop.worker.lease import Lease
from octop.worker.slot import Slot

BREATH_SECONDS: Final = 0.002


class Pool:
    """The places of one queue.

    Attributes:
        limit: How many tasks may be held at once; may change at any time.
        held: How many are: buffered, running, or given up and not yet ended.
        asked: How many more are asked for by exchanges that are under way.
    """

    def __init__(
        self,
        limit: int,
        lease: Lease,
        begin: Callable[[Slot, Claimed], Awaitable[None] | None],
        freed: asyncio.Event,
    ) -> None:
        """Begin without places.

        Args:
            limit: How many tasks may be held at once.
            lease: Says whether something may be started.
            begin: Begins one task in one place, and returns what to await until it has ended, or None when it has; never raises while the
                pool is open.
            freed: Set when there was no free place and now there is one.
        """
        self._freed = freed
        self.limit = limit
        self.held = 0
        self.asked = 0
        self._lease = lease
        self._begin = begin
        self._buffer: deque[Claimed] = deque()
        self._idle: list[Slot] = []
        self._slots: set[Slot] = set()
        self._closed = False
        self._breathed_at = 0.0
        self._renewed = asyncio.Event()

    @property
    def free(self) -> int:
        """Return how many more tasks may be asked for."""
        return max(0, self.limit - self.held - self.asked)

    @property
    def is_full(self) -> bool:
        """Tell whether each place has begun a task."""
        return self.held >= self.limit and not self._buffer

    @property
    def half(self) -> int:
        """Return half of the places, at least one."""
        return (self.limit + 1) // 2

    @property
    def is_roomy(self) -> bool:
        """Tell whether at least half of the places are free."""
        return self.free * 2 >= self.limit

    def add(self, tasks: Sequence[Claimed]) -> None:
        """Take tasks to be run, in this order."""
        self.held += len(tasks)
        self._buffer.extend(tasks)
        self.wake()

    def wake(self) -> None:
        """Let one more place look for work, if there is any. It wakes the next one when its task waits for something."""
        if not self._buffer or self._closed:
            return
        if self._idle:
            waiter = self._idle.pop().waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        elif len(self._slots) < self.held:
            slot = Slot()
            self._slots.add(slot)
            # owned by this pool: close() ends it
            slot.task = asyncio.get_running_loop().create_task(self._serve(slot))

    def remove(self, claimed: Claimed) -> bool:
        """Take back a task that has not been started; False when it has."""
        try:
            self._buffer.remove(claimed)
        except ValueError:
            return False
        self.held -= 1
        return True

    def take_back(self) -> list[Claimed]:
        """Take back all that has not been started."""
        tasks = list(self._buffer)
        self._buffer.clear()
        self.held -= len(tasks)
        return tasks

    def renew(self) -> None:
        """Let go on what waited for the lease."""
        self._renewed.set()

    async def close(self, seconds: float) -> bool:
        """End all places.

        Args:
            seconds: How long to wait for those whose task does not want to end.

        Returns:
            False when some did not end.
        """
        self._closed = True
        self._renewed.set()
        tasks = [slot.task for slot in self._slots if slot.task is not None]
        for task in tasks:
            task.cancel()
        if not tasks:
            return True
        _, late = await asyncio.wait(tasks, timeout=seconds)
        return not late

    async def _serve(self, slot: Slot) -> None:
        try:
            while not self._closed:
                if not self._buffer:
                    if len(self._slots) > max(self.limit, 1):
                        return
                    await self._wait(slot)
                    self._breathed_at = time.monotonic()
                elif time.monotonic() >= self._lease.until:
                    await self._wait_for_lease()
                else:
                    try:
                        if (rest := self._begin(slot, self._buffer.popleft())) is not None:
                            await rest
                    finally:
                        # also if it raised, which it must not: a fault may cost a task, never a place
                        self.held -= 1
                        if self.held == self.limit - 1 or not self.held:
                            self._freed.set()
                        slot.clear()
                    if time.monotonic() - self._breathed_at > BREATH_SECONDS:
                        # tasks that never wait would keep the loop from everything else
                        await asyncio.sleep(0)
                        self._breathed_at = time.monotonic()
        finally:
            self._slots.discard(slot)

    async def _wait(self, slot: Slot) -> None:
        slot.waiter = asyncio.get_running_loop().create_future()
        self._idle.append(slot)
        try:
            await slot.waiter
        finally:
            slot.waiter = None
            if slot in self._idle:
                self._idle.remove(slot)

    async def _wait_for_lease(self) -> None:
        self._renewed.clear()
        if time.monotonic() >= self._lease.until and not self._closed:
            await self._renewed.wait()
