"""When to ask the database, and what to do with its answer. One connection, one round trip for everything hot."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from octop.engine import calls
from octop.model.errors import (
    DatabaseUnreachableError,
    InvalidTaskError,
    OctopError,
    TryAgainError,
    UnexpectedDatabaseError,
)
from octop.model.task import Exchanged, Outcome, OutcomeKind, Success
from octop.worker.holdings import LINGER_SECONDS, Holdings
from octop.worker.link import Link
from octop.worker.pool import Pool
from octop.worker.report import plain_failure
from octop.worker.sleeper import Sleeper

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 0.05
STRAY_LOOKS: Final = 3
STRAY_SECONDS: Final = 5.0


class Exchanger:
    """Hands in outcomes and claims tasks, again and again.

    Attributes:
        interval_seconds: Setting ``scheduler.interval_seconds``: the longest sleep.
        held_queues: Queues that are paused: not asked for.
        claiming: False = it only hands in.
        on_settled: Called with id and verdict of each outcome that was no plain success.
        on_idle: Called when nothing was found and nothing is held.
    """

    def __init__(
        self,
        worker_id: str,
        link: Link,
        holdings: Holdings,
        pools: Mapping[str, Pool],
        task_types: Sequence[str],
    ) -> None:
        """Begin without having asked.

        Args:
            worker_id: Whose tasks these are.
            link: The connection of the exchange, used by nobody else.
            holdings: What we hold.
            pools: Places by queue.
            task_types: All names that the registry knows.
        """
        self.interval_seconds = 5.0
        self.held_queues: frozenset[str] = frozenset()
        self.claiming = True
        self._stray_looks = 0
        self._stray_look_at = 0.0
        self.on_settled: Callable[[str, str], None] = lambda _id, _verdict: None
        self.on_idle: Callable[[], Awaitable[None]] = _nothing
        self._worker_id = worker_id
        self._link = link
        self._holdings = holdings
        self._pools = pools
        self._task_types = list(task_types)
        self._lanes: dict[str, str] = {}
        self._more: set[str] = set()
        self._sleeper = Sleeper(worker_id, link)
        self._nudged = True
        self._ended = False
        holdings.is_roomy = self._is_roomy

    def nudge(self) -> None:
        """Look at once: something may have come."""
        self._nudged = True
        self._holdings.urgent.set()

    def end(self) -> None:
        """Claim no more, hand in what is left, and return from ``run`` when nothing is held."""
        self.claiming = False
        self._ended = True
        self._holdings.urgent.set()

    async def run(self) -> None:
        """Exchange until ``end`` was called and everything was handed in.

        Raises:
            OctopError: What no further try would mend: the schema or the rights are gone.
        """
        while not (self._ended and not self._holdings.active and not len(self._holdings.outbox)):
            await self._wait(self._pause())
            try:
                await self._cycle()
            except DatabaseUnreachableError:
                self._sleeper.wake()
                self._nudged = True
                if self._link.is_over:
                    return
                await self._link.pause()

    # --- when -----------------------------------------------------------------------------------------------------------

    def _is_roomy(self) -> bool:
        return any(
            pool.is_roomy and pool.held < pool.limit and name in self._more for name, pool in self._pools.items()
        )

    def _wanted(self) -> dict[str, int]:
        if not self.claiming:
            return {}
        return {name: pool.free for name, pool in self._pools.items() if name not in self.held_queues and pool.free > 0}

    def _pause(self) -> float | None:
        """Return how many seconds to wait unless something urgent happens; None = until then."""
        now = time.monotonic()
        waits: list[float] = []
        outbox = self._holdings.outbox
        if len(outbox):
            if not self._holdings.active or self._is_roomy() or self._ended:
                return 0.0
            waits.append(outbox.since + LINGER_SECONDS - now)
        wanted = self._wanted()
        if wanted:
            if self._nudged or not self._more.isdisjoint(name for name in wanted if self._pools[name].is_roomy):
                return 0.0
            if not self._more.isdisjoint(wanted):
                waits.append(LINGER_SECONDS)
            waits.append(self._sleeper.look_at(wanted, now) - now)
        return max(0.0, min(waits)) if waits else None

    async def _wait(self, seconds: float | None) -> None:
        urgent = self._holdings.urgent
        if seconds == 0.0:
            urgent.clear()
            await asyncio.sleep(0)
            return
        if not urgent.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await urgent.wait()
        urgent.clear()

    # --- what -----------------------------------------------------------------------------------------------------------

    async def _cycle(self) -> None:
        wanted = self._wanted()
        if not wanted and not len(self._holdings.outbox):
            return
        if self._stray_looks and time.monotonic() >= self._stray_look_at:
            await self._release_strays()
        if wanted and self._nudged:
            self._nudged = False
            self._sleeper.wake()
        elif wanted:
            await self._sleeper.ask_doubt()
        answer = await self._exchange(wanted, awake=self._sleeper.must_clear())
        if not wanted:
            return
        self._deliver(answer, wanted)
        found = bool(answer.tasks) or answer.parked > 0
        if self._ended:
            return
        await self._sleeper.looked(wanted, found=found, interval_seconds=self.interval_seconds)
        if answer.parked:
            self._nudged = True
        if not found and not self._holdings.active and not len(self._holdings.outbox):
            await self.on_idle()

    async def _release_strays(self) -> None:
        """Give back what an exchange claimed whose answer got lost: the database believes that we run it.

        Not once only: the server may still have been at work on that exchange when we came back.
        """
        released = await self._link.call(calls.octop_release_unheld(self._worker_id, self._holdings.held()))
        self._stray_looks -= 1
        self._stray_look_at = time.monotonic() + STRAY_SECONDS
        if released:
            log.warning(
                "released %d tasks whose claim never reached us", released, extra={"worker_id": self._worker_id}
            )

    def _deliver(self, answer: Exchanged, wanted: Mapping[str, int]) -> None:
        self._lanes.update(answer.lanes)
        by_queue: dict[str, int] = dict.fromkeys(wanted, 0)
        fresh = self._holdings.accept(answer.tasks)
        if self._ended:
            # told to stop while the answer was on its way
            for claimed in fresh:
                self._holdings.outcome(
                    Outcome(claimed.fence, OutcomeKind.RELEASED, error_message="its worker stopped before the start")
                )
            return
        for claimed in answer.tasks:
            by_queue[claimed.queue] = by_queue.get(claimed.queue, 0) + 1
        for name in by_queue:
            mine = [claimed for claimed in fresh if claimed.queue == name] if len(by_queue) > 1 else fresh
            if mine:
                self._pools[name].add(mine)
        for name, count in wanted.items():
            # a batch that came back full: there is probably more
            if by_queue[name] >= count:
                self._more.add(name)
            else:
                self._more.discard(name)

    async def _exchange(self, wanted: Mapping[str, int], *, awake: bool) -> Exchanged:
        successes, outcomes = self._holdings.outbox.take()
        try:
            answer = await self._hand_in(wanted, successes, outcomes, awake=awake)
        except (InvalidTaskError, UnexpectedDatabaseError) as error:
            if not successes and not outcomes:
                raise
            await self._one_by_one(successes, outcomes, error)
            return Exchanged([], [], {}, 0)
        except DatabaseUnreachableError:
            if wanted:
                self._stray_looks = STRAY_LOOKS
                self._stray_look_at = 0.0
            self._holdings.outbox.put_back(successes, outcomes)
            raise
        except BaseException:
            self._holdings.outbox.put_back(successes, outcomes)
            raise
        self._settle(answer, successes, outcomes)
        return answer

    async def _hand_in(
        self, wanted: Mapping[str, int], successes: list[Success], outcomes: list[Outcome], *, awake: bool
    ) -> Exchanged:
        careful = False
        while True:
            try:
                return await self._link.call(
                    calls.octop_exchange(
                        self._worker_id,
                        wanted=wanted,
                        task_types=self._task_types,
                        lanes_after=self._lanes,
                        successes=successes,
                        outcomes=outcomes,
                        careful=careful,
                        awake=awake,
                    )
                )
            except TryAgainError:
                if careful:
                    await asyncio.sleep(AGAIN_SECONDS)
                careful = True

    async def _one_by_one(self, successes: list[Success], outcomes: list[Outcome], error: OctopError) -> None:
        """Find the outcome that the database can not keep: it fails alone."""
        rest: list[tuple[list[Success], list[Outcome]]] = [([success], []) for success in successes]
        rest += [([], [outcome]) for outcome in outcomes]
        while rest:
            one_success, one_outcome = rest[0]
            try:
                answer = await self._hand_in({}, one_success, one_outcome, awake=False)
            except (InvalidTaskError, UnexpectedDatabaseError) as problem:
                fence = (one_success or one_outcome)[0].fence
                log.error("the database can not keep an outcome: %s", problem.message, extra={"task_id": fence.id})
                known = one_outcome[0].error_class if one_outcome else None
                replacement = plain_failure(
                    fence,
                    "OutcomeRefused",
                    f"the database can not keep the outcome{f' ({known!a})' if known else ''}: {problem.message}",
                    final=bool(one_success),
                )
                if one_outcome and one_outcome[0].error_class == "OutcomeRefused":
                    raise error from problem  # not even that: it is not the outcome's fault
                rest[0] = ([], [replacement])
                continue
            except DatabaseUnreachableError:
                for left_successes, left_outcomes in rest:
                    self._holdings.outbox.put_back(left_successes, left_outcomes)
                raise
            self._settle(answer, one_success, one_outcome)
            rest.pop(0)

    def _settle(self, answer: Exchanged, successes: list[Success], outcomes: list[Outcome]) -> None:
        for settled in answer.settled:
            if settled.verdict == "again":
                self._holdings.outbox.put_back(
                    [success for success in successes if success.fence.id == settled.id],
                    [outcome for outcome in outcomes if outcome.fence.id == settled.id],
                )
            elif settled.verdict == "lost":
                log.warning(
                    "an outcome came too late: the attempt was no longer this worker's, so nothing was written",
                    extra={"task_id": settled.id},
                )
            self.on_settled(settled.id, settled.verdict)


async def _nothing() -> None:
    return
