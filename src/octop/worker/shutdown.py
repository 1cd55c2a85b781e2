"""How a worker stops: no more claims, time for what runs, then an end, and nothing is left behind as running."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from octop.model.task import Outcome, OutcomeKind
from octop.worker.exchanger import Exchanger
from octop.worker.holdings import Holdings
from octop.worker.pool import Pool
from octop.worker.runner import Runner
from octop.worker.slot import Reason

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.02
GRACE_FACTOR: Final = 1.2
GRACE_SECONDS_MAX: Final = 60.0
UNWIND_SECONDS: Final = 1.0
DELIVERY_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 1.5
"""After the grace time who hears nothing from the database for so long hands in no more: whatever ends a worker would not wait either."""
HURRIED_UNWIND_SECONDS: Final = 0.2
HURRIED_DELIVERY_SECONDS: Final = 1.5


class Shutdown:
    """Leads a worker to its end.

    Attributes:
        on_stopping: Called with the seconds of grace.
        on_delivering: Called when all tasks have ended, but their outcomes could not yet be handed in.
        delivering_at: Monotonic moment at which that was; infinity = not yet.
        is_hopeless: It is no use to wait any longer for the connection over which outcomes go.
    """

    def __init__(
        self,
        holdings: Holdings,
        pools: Mapping[str, Pool],
        runner: Runner,
        exchanger: Exchanger,
        grace_seconds: float | None,
    ) -> None:
        """Be ready.

        Args:
            holdings: What must be handed in.
            pools: Where tasks may still wait for their start.
            runner: Ends tasks.
            exchanger: Told to hand in and return.
            grace_seconds: What the options say.
        """
        self.on_stopping: Callable[[float], None] = lambda _seconds: None
        self.on_delivering: Callable[[], None] = lambda: None
        self._holdings = holdings
        self._pools = pools
        self._runner = runner
        self._exchanger = exchanger
        self._grace_seconds = grace_seconds
        self._hurried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.delivering_at = float("inf")
        self.is_hopeless = False

    @property
    def has_begun(self) -> bool:
        """Tell whether the worker is stopping."""
        return self._task is not None

    @property
    def is_hurried(self) -> bool:
        """Tell whether no more time is given."""
        return self._hurried.is_set()

    def begin(self, configured: float | None) -> None:
        """Stop claiming, release what has not been started, and give the rest its time.

        Args:
            configured: Setting ``worker.grace_seconds``.
        """
        self._runner.batches.flush()  # nothing more will come to what has been gathered
        seconds = self._grace(configured)
        unstarted = self._holdings.withdraw_waiting()
        for pool in self._pools.values():
            unstarted += pool.take_back()
        for claimed in unstarted:
            self._holdings.outcome(
                Outcome(claimed.fence, OutcomeKind.RELEASED, error_message="its worker stopped before the start")
            )
        count = len(self._holdings.active)
        if count:
            log.info(
                "stopping: %d running %s %g s to end; a second signal releases them at once",
                count,
                "task has" if count == 1 else "tasks have",
                seconds,
            )
        else:
            log.info("stopping: no task runs")
        self.on_stopping(seconds)
        self._task = asyncio.get_running_loop().create_task(self._lead(seconds))
        self._exchanger.end()

    def hurry(self) -> None:
        """Give no more time."""
        self._hurried.set()

    def _grace(self, configured: float | None) -> float:
        if self._grace_seconds is not None:
            return self._grace_seconds
        if configured is not None:
            return configured
        longest = max((claimed.timeout_seconds for claimed in self._holdings.active.values()), default=0.0)
        # a database that is away may come back before what has ended must be run again
        waits = DELIVERY_SECONDS if self._exchanger.has_outcomes else 0.0
        return min(GRACE_SECONDS_MAX, max(GRACE_FACTOR * longest, waits))

    async def _lead(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        await self._until_free_or_hurried(seconds)
        for slot in list(self._holdings.running.values()):
            self._runner.interrupt(slot, Reason.SHUTDOWN)
        await self._until_free(HURRIED_UNWIND_SECONDS if self._hurried.is_set() else UNWIND_SECONDS)
        for slot in list(self._holdings.running.values()):
            self._runner.give_up(slot)
        for claimed in list(self._holdings.active.values()):
            self._holdings.outcome(Outcome(claimed.fence, OutcomeKind.RELEASED, error_message="its worker stopped"))
        self._exchanger.nudge()
        self.delivering_at = time.monotonic()
        self.on_delivering()
        await self._until_hopeless(ends_at)
        self.is_hopeless = True
        self._exchanger.give_up()

    async def _until_hopeless(self, ends_at: float) -> None:
        """Let outcomes be handed in until the grace time is over, and after it for as long as the database answers."""
        latest = self.delivering_at + DELIVERY_SECONDS
        while True:
            heard_at = max(ends_at, self.delivering_at, self._exchanger.answered_at)
            left = min(latest, heard_at + SILENCE_SECONDS) - time.monotonic()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._hurried.wait()
                await asyncio.sleep(min(left, HURRIED_DELIVERY_SECONDS))
                return

    async def _until_free_or_hurried(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._holdings.active and time.monotonic() < end and not self._hurried.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_SECONDS, max(0.0, end - time.monotonic()))):
                    await self._hurried.wait()

    async def _until_free(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._holdings.active and time.monotonic() < end:  # noqa: ASYNC110 - an event would cost each task something
            await asyncio.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
