"""Firing schedules: one loop for all processes of a worker, on a connection of its own, so that no task and no full queue delays it.

What is due, and that each slot makes one task, the database alone knows: any number of these loops may run, on hosts whose clocks are
wrong. Each only decides when to ask again.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from octop.engine import calls
from octop.engine.calls.schedules import Tick
from octop.model.errors import DatabaseUnreachableError, OctopError
from octop.worker.link import Link
from octop.worker.trouble import Trouble

WAIT_SECONDS_MIN: Final = 0.001
BUSY_SECONDS_MIN: Final = 0.005
BUSY_SECONDS_MAX: Final = 0.25


class Ticker:
    """Asks for what is due when it is due, when called, and at least each ``interval_seconds``.

    Attributes:
        interval_seconds: Setting ``scheduler.interval_seconds``.
    """

    def __init__(self, link: Link, salt: str) -> None:
        """Begin without asking.

        Args:
            link: A connection for nothing else.
            salt: Spreads the pauses of several workers after errors.
        """
        self.interval_seconds = 5.0
        self._link = link
        self._salt = salt
        self._poked = asyncio.Event()
        self._is_over = False
        self._busy_seconds = BUSY_SECONDS_MIN

    def poke(self) -> None:
        """Ask now: a schedule may be new or changed."""
        self._poked.set()

    def stop(self) -> None:
        """Fire no more. What is under way ends, or not; the database keeps all of a tick or nothing."""
        self._is_over = True
        self._poked.set()
        self._link.give_up()

    async def close(self) -> None:
        """Stop, and close the connection."""
        self.stop()
        await self._link.close()

    async def run(self, is_ready: Callable[[], bool] = lambda: True) -> None:
        """Fire schedules until told to stop.

        Args:
            is_ready: Tells whether the schema was found to fit; until then nothing is asked.
        """
        trouble = Trouble("schedules can not be fired", self._salt, endless=True)
        while not self._is_over:
            self._poked.clear()
            wait = self.interval_seconds
            if is_ready():
                try:
                    wait = self.wait_after(await self._link.call(calls.octop_tick()))
                    trouble.over()
                except DatabaseUnreachableError:
                    await self._link.pause()
                    continue
                except OctopError as error:
                    # not cut short by who calls: each call would be one more error in the server's log
                    await self._link.pause(trouble.bear(error))
                    continue
            await self._rest(wait)

    def wait_after(self, told: Tick) -> float:
        """Return the seconds to the next question.

        Args:
            told: The answer to the last one. What is due and was not fired is in the hands of another worker.
        """
        if told.next_seconds is None:
            return self.interval_seconds
        if told.next_seconds > 0 or told.fired + told.skipped > 0:
            self._busy_seconds = BUSY_SECONDS_MIN
            return min(self.interval_seconds, max(0.0, told.next_seconds))
        wait, self._busy_seconds = self._busy_seconds, min(BUSY_SECONDS_MAX, 2 * self._busy_seconds)
        return min(self.interval_seconds, wait)

    async def _rest(self, seconds: float) -> None:
        """Wait; a clock of the database that was moved is noticed after one interval at the latest."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(WAIT_SECONDS_MIN, seconds)):
                await self._poked.wait()
