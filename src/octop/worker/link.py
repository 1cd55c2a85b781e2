"""A connection that is replaced when it is of no use any more. No wait on the database is without a deadline."""

import asyncio
import contextlib
import logging
import time
import zlib
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from octop.engine.call import Call, run_async
from octop.engine.connect import open_connection_async
from octop.engine.listener import cut
from octop.model.errors import DatabaseUnreachableError, OctopError

R = TypeVar("R")
log = logging.getLogger(__name__)

CALL_SECONDS_MAX: Final = 15.0
CONNECT_SECONDS_MAX: Final = 10.0
PAUSE_SECONDS_MIN: Final = 0.1
PAUSE_SECONDS_MAX: Final = 5.0
QUIET_SECONDS: Final = 30.0
LAST_WORD_SECONDS: Final = 0.3
CUT: Final = "the call was given up before it was made"


class Place(Protocol):
    """Where a link leads to."""

    @property
    def dsn(self) -> str:
        """Where the database is."""

    @property
    def schema(self) -> str:
        """In which schema the engine is installed."""


def pause_before_try(number: int, salt: str) -> float:
    """Return the seconds to wait before a further try: growing to 5, spread over the workers so that they do not come back at once.

    Args:
        number: How many tries have failed in a row, from 1.
        salt: What differs between workers, such as their id.
    """
    longest = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * float(1 << min(number - 1, 10)))
    return longest * (0.5 + 0.5 * (zlib.crc32(f"{salt}/{number}".encode()) & 0xFFFF) / 0xFFFF)


class Link:
    """One connection of one purpose, opened when it is first used and opened again after each failure.

    Attributes:
        seconds_max: How long a call waits for its answer, where it does not say so itself.
        answered_at: Monotonic moment at which the database last said something here, if only that it refuses.
    """

    def __init__(
        self,
        place: Place,
        purpose: str,
        salt: str,
        *,
        is_over: Callable[[], bool] = lambda: False,
        lack: str | None = None,
    ) -> None:
        """Remember where to and what for.

        Args:
            place: Where the database is.
            purpose: Shown as part of ``application_name``.
            salt: Spreads the pauses of several workers.
            is_over: Tells ``patiently`` to give up.
            lack: What to say when there is no connection; None = that there is no database.
        """
        self.seconds_max = CALL_SECONDS_MAX
        self.answered_at = float("-inf")
        self._place = place
        self._purpose = purpose
        self._salt = salt
        self._is_over = is_over
        self._lack = lack or f"no database ({purpose}), trying again"
        self._connection: Any = None
        self._attempt: asyncio.Timeout | None = None
        self._cuts = 0
        self._lock = asyncio.Lock()
        self._failures = 0
        self._complained_at = float("-inf")
        self._closing = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Tell whether nobody needs an answer any more."""
        return self._closing.is_set() or self._is_over()

    async def call(self, call: Call[R], *, seconds: float | None = None) -> R:
        """Run one call, once.

        Args:
            call: What to run.
            seconds: After so long the connection is cut and replaced: a half-open one would be silent for ever; None = ``seconds_max``.

        Raises:
            DatabaseUnreachableError: No answer; whether the call took effect is not known.
            OctopError: What the engine said.
        """
        cuts = self._cuts
        async with self._lock:
            seconds = self.seconds_max if seconds is None else seconds
            try:
                if cuts != self._cuts:
                    raise DatabaseUnreachableError(CUT)
                connection = await self._opened(seconds)
                timer = asyncio.get_running_loop().call_later(seconds, cut, connection)
                try:
                    answer = await run_async(connection, call)
                finally:
                    timer.cancel()
            except DatabaseUnreachableError as error:
                self._failures += 1
                self._complain(error)
                await self._drop()
                raise
            except BaseException as error:
                if isinstance(error, OctopError):
                    self.answered_at = time.monotonic()
                if self._connection is not None and self._connection.closed:
                    await self._drop()
                raise
            self.answered_at = time.monotonic()
        if self._failures:
            self._failures = 0
            self._complained_at = float("-inf")
            log.info("the database answers again (%s)", self._purpose)
        return answer

    async def open(self, *, seconds: float = CONNECT_SECONDS_MAX) -> None:
        """Make sure that there is a connection, before anything is handed over to it.

        Raises:
            DatabaseUnreachableError: There is none. Nothing was asked for.
        """
        async with self._lock:
            try:
                await self._opened(seconds)
            except DatabaseUnreachableError as error:
                self._failures += 1
                self._complain(error)
                raise

    async def rest(self) -> None:
        """Close a connection that nobody uses; the next call opens another."""
        async with self._lock:
            await self._drop()

    async def patiently(self, make: Callable[[], Call[R]], *, seconds: float | None = None) -> R:
        """Run a call until the database has answered, with growing pauses.

        Raises:
            DatabaseUnreachableError: The work is over, and still nobody answers.
            OctopError: What the engine said.
        """
        while True:
            try:
                return await self.call(make(), seconds=seconds)
            except DatabaseUnreachableError:
                if self.is_over:
                    raise
                await self.pause()

    async def pause(self, seconds: float | None = None) -> None:
        """Wait before the next try.

        Args:
            seconds: How long; None = the longer, the more tries have failed.
        """
        if seconds is None:
            seconds = pause_before_try(max(1, self._failures), self._salt)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def cut(self) -> None:
        """End what is under way, a call or an attempt to connect, and calls that wait for it: they get DatabaseUnreachableError.

        An idle connection stays as it is.
        """
        self._cuts += 1
        if self._attempt is not None:
            if not self._attempt.expired():
                self._attempt.reschedule(asyncio.get_running_loop().time())
        elif self._connection is not None and self._lock.locked():
            cut(self._connection)

    def give_up(self) -> None:
        """Let nobody wait for an answer any longer; a last call may still be made."""
        self._closing.set()
        self.cut()

    async def close(self) -> None:
        """Close the connection. A call under way may end, for a moment: one that is cut is a FATAL in the server's log."""
        self._closing.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_SECONDS), self._lock:
                await self._drop()
                return
        self.cut()
        async with self._lock:
            await self._drop()

    async def _opened(self, seconds: float) -> Any:
        if self._connection is None:
            name = f"octop worker {self._purpose}"
            try:
                async with asyncio.timeout(min(seconds, CONNECT_SECONDS_MAX)) as self._attempt:
                    self._connection = await open_connection_async(
                        self._place.dsn, application_name=name, schema=self._place.schema
                    )
            except TimeoutError as error:
                message = "the database did not answer in time"
                raise DatabaseUnreachableError(
                    message, hint="Check the network between here and the server."
                ) from error
            finally:
                self._attempt = None
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _complain(self, error: DatabaseUnreachableError) -> None:
        now = time.monotonic()
        if now - self._complained_at >= QUIET_SECONDS and not self._closing.is_set():
            self._complained_at = now
            log.warning("%s: %s", self._lack, error.message)
