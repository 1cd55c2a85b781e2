"""The heartbeat. It has a connection of its own, and where the tasks share its process, a thread of its own."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from octop.engine import calls
from octop.model.errors import DatabaseUnreachableError, OctopError
from octop.worker.lease import Lease
from octop.worker.link import LAST_WORD_SECONDS, Link, Place
from octop.worker.trouble import Trouble

log = logging.getLogger(__name__)

BEAT_SECONDS_MAX: Final = 5.0
BLOCKED_SECONDS: Final = 1.0
TELL_SECONDS: Final = 1.0


class Rhythm:
    """When to beat next: at intervals, earlier when poked, never after the end.

    Attributes:
        seconds: Time between two beats.
        is_over: It was stopped.
    """

    def __init__(self, seconds: float = 10.0) -> None:
        """Begin with the default of ``worker.heartbeat_seconds``."""
        self.seconds = seconds
        self.is_over = False
        self._poked = asyncio.Event()

    def follow(self, seconds: float) -> None:
        """Beat at other intervals from now on."""
        if seconds != self.seconds:
            self.seconds = seconds
            self._poked.set()

    def poke(self) -> None:
        """Beat now: there is somebody new to beat for."""
        self._poked.set()

    def stop(self) -> None:
        """Beat no more."""
        self.is_over = True
        self._poked.set()

    async def wait(self, since: float) -> None:
        """Wait until it is time again.

        Args:
            since: Monotonic moment of the last beat.
        """
        try:
            async with asyncio.timeout(max(0.01, since + self.seconds - time.monotonic())):
                await self._poked.wait()
        except TimeoutError:
            return
        self._poked.clear()


async def beat(
    link: Link,
    rhythm: Rhythm,
    ids: Callable[[], Sequence[str]],
    beaten: Callable[[str, float, bool], None],
    refused: Callable[[OctopError], None] = lambda _error: None,
) -> None:
    """Beat until told to stop.

    Args:
        link: The connection of the heartbeat, used for nothing else.
        rhythm: When to beat.
        ids: For whom to beat, asked before each beat.
        beaten: Called with the id, the monotonic moment at which the beat was sent, and whether the lease was unbroken.
        refused: Called when a beat was not accepted.
    """
    trouble = Trouble("the heartbeat is refused", str(id(rhythm)), endless=True)
    while not rhythm.is_over:
        chosen = ids()
        at = time.monotonic()
        if chosen:
            wait = min(BEAT_SECONDS_MAX, max(1.0, 2 * rhythm.seconds))
            try:
                answers = await link.call(calls.octop_beat(chosen), seconds=wait)
            except DatabaseUnreachableError as error:
                refused(error)
                await link.pause()
                continue
            except OctopError as error:
                refused(error)
                await link.pause(min(trouble.bear(error), rhythm.seconds))
                continue
            else:
                trouble.over()
                for worker_id, unbroken in answers.items():
                    beaten(worker_id, at, unbroken)
        await rhythm.wait(at)


class HeartThread:
    """Beats for a worker in its own process, so that a task that blocks the event loop can not silence it."""

    def __init__(self, place: Place, worker_id: str, lease: Lease, seconds: float = 10.0) -> None:
        """Begin without beating.

        Args:
            place: Where the database is.
            worker_id: For whom.
            lease: Told of each beat.
            seconds: Time between two beats.
        """
        self._seconds = seconds
        self._place = place
        self._worker_id = worker_id
        self._lease = lease
        self._rhythm: Rhythm | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: Link | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="octop-heart", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()
        self._ready.wait()

    def follow(self, seconds: float) -> None:
        """Beat at other intervals from now on."""
        self._seconds = seconds
        if self._rhythm is not None:
            self._tell(self._rhythm.follow, seconds)

    def stop(self) -> None:
        """End; wait a little for a beat under way."""
        if self._rhythm is not None:
            self._tell(self._rhythm.stop)
            self._thread.join(timeout=LAST_WORD_SECONDS)
            if self._link is not None and self._thread.is_alive():
                self._tell(self._link.give_up)
                self._thread.join(timeout=1)

    def _tell(self, act: Callable[..., None], *arguments: object) -> None:
        if self._loop is not None and self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(act, *arguments)
            except RuntimeError:
                log.debug("the heart has stopped")

    def _run(self) -> None:
        asyncio.run(self._beat())

    async def _beat(self) -> None:
        self._loop, rhythm = asyncio.get_running_loop(), Rhythm(self._seconds)
        self._rhythm = rhythm
        link = self._link = Link(self._place, "heart", self._worker_id, is_over=lambda: rhythm.is_over)
        self._ready.set()
        try:
            await beat(
                link,
                rhythm,
                lambda: [self._worker_id],
                lambda _id, at, unbroken: self._lease.beaten(at, unbroken=unbroken),
            )
        finally:
            await link.close()


class Culprit(NamedTuple):
    """What keeps the event loop from turning.

    Attributes:
        name: How to call it.
        deadline: Monotonic moment at which its time is over; None = it is no task that has a time limit.
    """

    name: str
    deadline: float | None


class Pulse:
    """Notices when the event loop does not turn, and says which task keeps it."""

    def __init__(
        self,
        culprit: Callable[[float], Culprit],
        *,
        on_turn: Callable[[], None] = lambda: None,
        on_blocked: Callable[[Culprit], None] = lambda _culprit: None,
    ) -> None:
        """Begin watching.

        Args:
            culprit: Returns what runs on the loop since a monotonic moment; called from a thread.
            on_turn: Called on the loop, about each second.
            on_blocked: Called from the thread, once for each time that the loop is blocked.
        """
        self._turned_at = time.monotonic()
        self._told_at = float("-inf")
        self._culprit = culprit
        self._on_turn = on_turn
        self._on_blocked = on_blocked
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._turn()
        self._thread = threading.Thread(target=self._watch, name="octop-pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        self._turned_at = time.monotonic()
        if self._turned_at - self._told_at >= TELL_SECONDS:
            self._told_at = self._turned_at
            self._on_turn()
        self._timer = self._loop.call_later(BLOCKED_SECONDS / 4, self._turn)

    def _watch(self) -> None:
        told_of = 0.0
        while not self._stop.wait(BLOCKED_SECONDS / 2):
            turned_at = self._turned_at
            if time.monotonic() - turned_at > BLOCKED_SECONDS and turned_at != told_of:
                told_of = turned_at
                culprit = self._culprit(turned_at)
                self._on_blocked(culprit)
                log.warning(
                    "the event loop has been blocked for more than %g s by %s: use `def` or run_in='process' for what blocks",
                    BLOCKED_SECONDS,
                    culprit.name,
                )
