"""Going to sleep without missing anything: say so, look once more, and look again while somebody may have missed it."""

import math
import time
from collections.abc import Iterable
from typing import Final

from octop.engine import calls
from octop.worker.link import Link

AWAKE_SECONDS: Final = 0.05
POLL_SECONDS: Final = 0.005
DOUBT_SECONDS_MAX: Final = 0.25
SLEEP_SECONDS_MIN: Final = 0.001


class Sleeper:
    """Knows when to look next while nothing is found."""

    def __init__(self, worker_id: str, link: Link) -> None:
        """Begin awake.

        Args:
            worker_id: Who sleeps.
            link: The connection of the exchange: the order of its calls matters.
        """
        self._worker_id = worker_id
        self._link = link
        self._asleep: frozenset[str] | None = None
        self._must_clear = False
        self._found_at = time.monotonic()
        self._look_at = 0.0
        self._wake_at = math.inf
        self._doubt: str | None = None
        self._step = POLL_SECONDS

    def look_at(self, queues: Iterable[str], now: float) -> float:
        """Return the monotonic moment of the next look.

        Args:
            queues: Those that have free places; one that was full when we fell asleep is looked at now.
            now: The present moment.
        """
        if self._asleep is None:
            return self._look_at
        return min(self._look_at, self._wake_at) if self._asleep.issuperset(queues) else now

    def wake(self) -> None:
        """Be awake, because somebody called or the connection was lost; in both cases look at once."""
        if self._asleep is not None:
            self._asleep = None
            self._doubt = None
            self._must_clear = True
        self._found_at = time.monotonic()
        self._look_at = 0.0

    def must_clear(self) -> bool:
        """Tell, once after each sleep, whether the next exchange must take back what was said."""
        found, self._must_clear = self._must_clear, False
        return found

    async def ask_doubt(self) -> None:
        """Ask, before a look out of doubt, whether the doubt is over: then this look is the last."""
        if (
            self._asleep is not None
            and self._doubt is not None
            and not await self._link.call(calls.octop_doubtful(self._doubt))
        ):
            self._doubt = None

    async def looked(self, queues: Iterable[str], *, found: bool, interval_seconds: float) -> None:
        """Take note of a look, and fall asleep when it is time.

        Args:
            queues: Those that were looked at.
            found: Something was there.
            interval_seconds: The longest sleep.
        """
        now = time.monotonic()
        if found:
            self.wake()
            self._look_at = now + POLL_SECONDS
        elif self._asleep is None and now - self._found_at < AWAKE_SECONDS:
            self._look_at = now + POLL_SECONDS
        elif self._asleep is None or now >= self._wake_at or not self._asleep.issuperset(queues):
            await self._fall_asleep(sorted(queues), interval_seconds)
        elif self._doubt is None:
            self._look_at = math.inf
        else:
            self._look_at = now + self._step
            self._step = min(self._step * 2, DOUBT_SECONDS_MAX)

    async def _fall_asleep(self, queues: list[str], interval_seconds: float) -> None:
        seconds = await self._link.call(calls.octop_sleep(self._worker_id, queues, interval_seconds))
        self._asleep = frozenset(queues)
        self._wake_at = time.monotonic() + max(SLEEP_SECONDS_MIN, min(seconds, interval_seconds))
        self._doubt = await self._link.call(calls.octop_doubt())
        self._step = POLL_SECONDS
        self._look_at = 0.0  # the second look, at once
