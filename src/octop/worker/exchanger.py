"""When to ask the database, and what to do with its answer. One connection, one round trip for everything hot."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from octop.engine import calls
from octop.model.errors import (
    DatabaseUnreachableError,
    InvalidTaskError,
    OctopError,
    TryAgainError,
    UnexpectedDatabaseError,
)
from octop.model.task import Claimed, Exchanged, Outcome, OutcomeKind, Success
from octop.worker.holdings import LINGER_SECONDS, Holdings
from octop.worker.lease import Lease
from octop.worker.link import Link
from octop.worker.marks import Marks
from octop.worker.pool import Pool
from octop.worker.report import plain_failure
from octop.worker.rounds import Rounds
from octop.worker.sleeper import Sleeper
from octop.worker.trouble import Trouble, is_about_values

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
        on_idle: Called when nothing was found, or may be asked for, and nothing is held.
    """

    def __init__(
        self,
        worker_id: str,
        link: Link,
        holdings: Holdings,
        pools: Mapping[str, Pool],
        task_types: Mapping[str, int],
        lease: Lease,
    ) -> None:
        """Begin without having asked.

        Args:
            worker_id: Whose tasks these are.
            link: The connection of the exchange, used by nobody else.
            holdings: What we hold.
            pools: Places by queue.
            task_types: All names that the registry knows, with the version of their code.
            lease: Nothing is claimed while it is over or in doubt: it could not be started.
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
        # most applications count no versions: nothing is sent for them
        self._versions = None if set(task_types.values()) <= {1} else list(task_types.values())
        self._lanes: dict[str, str] = {}
        self._more: set[str] = set()
        self._marks = Marks()
        self._lease = lease
        self._sleeper = Sleeper(worker_id, link)
        self._rounds = Rounds()
        self._trouble = Trouble("the exchange is refused", worker_id)
        self._again_at = 0.0
        self._idle_at = 0.0
        self._nudged = True
        self._was_short = False
        self._ended = False
        holdings.is_roomy = self._is_roomy
        holdings.take_back = self._take_back
        holdings.on_ready = self._start_later

    def nudge(self) -> None:
        """Look at once: something may have come."""
        self._nudged = True
        self._holdings.urgent.set()

    def end(self) -> None:
        """Claim no more, hand in what is left, and return from ``run`` when nothing is held."""
        self.claiming = False
        self._ended = True
        self._holdings.urgent.set()

    def give_up(self) -> None:
        """Wait for the database no longer: the lease covers what could not be handed in."""
        self._link.give_up()
        self._holdings.urgent.set()

    async def run(self) -> None:
        """Exchange until ``end`` was called and everything was handed in, or it is no use to try any longer.

        Raises:
            OctopError: What no further try would mend: the schema or the rights are gone.
        """
        while not (self._ended and not self._holdings.active and not len(self._holdings.outbox)):
            await self._wait(self._pause())
            if self._is_hopeless():
                return
            try:
                await self._cycle()
            except OctopError as error:
                self._sleeper.wake()
                self._nudged = True
                if self._is_hopeless():
                    return
                unreachable = isinstance(error, DatabaseUnreachableError)
                await self._link.pause(None if unreachable else self._trouble.bear(error))

    # --- when -----------------------------------------------------------------------------------------------------------

    def _is_roomy(self) -> bool:
        return any(
            pool.is_roomy and pool.held < pool.limit and name in self._more for name, pool in self._pools.items()
        )

    def _is_hopeless(self) -> bool:
        return self._link.is_over

    def _take_back(self, claimed: Claimed) -> bool:
        pool = self._pools.get(claimed.queue)
        return pool is not None and pool.remove(claimed)

    def _start_later(self, claimed: Claimed) -> None:
        self._pools[claimed.queue].add([claimed])

    def _wanted(self) -> dict[str, int]:
        if not self.claiming or time.monotonic() >= self._lease.until:
            return {}
        return {name: pool.free for name, pool in self._pools.items() if name not in self.held_queues and pool.free > 0}

    def _pause(self) -> float | None:
        """Return how many seconds to wait unless something urgent happens; None = until then."""
        now = time.monotonic()
        waits: list[float] = []
        outbox = self._holdings.outbox
        if len(outbox):
            hurried = not self._holdings.active or self._is_roomy() or self._ended
            # what is locked by somebody is not sent again and again without a breath
            waits.append(max(now if hurried else outbox.since + LINGER_SECONDS, self._again_at) - now)
        wanted = self._wanted()
        if wanted:
            if (
                self._nudged
                or self._was_short
                or not self._more.isdisjoint(name for name in wanted if self._pools[name].is_roomy)
            ):
                return 0.0
            if not self._more.isdisjoint(wanted):
                waits.append(LINGER_SECONDS)
            waits.append(self._sleeper.look_at(wanted, now) - now)
        elif self.claiming:
            waits.append(self._idle_at + self.interval_seconds - now)
        return max(0.0, min(waits)) if waits else None

    async def _wait(self, seconds: float | None) -> None:
        urgent = self._holdings.urgent
        if seconds == 0.0:
            # Not one turn of the loop: the tasks that have just come would run first, and the database be idle. They run while it works.
            urgent.clear()
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
            self._idle_at = time.monotonic()
            if self.claiming and not self._holdings.active:
                await self.on_idle()  # all queues are paused, or have no places
            return
        if self._stray_looks and time.monotonic() >= self._stray_look_at:
            await self._release_strays()
        if wanted and (self._nudged or self._was_short):
            if self._nudged:
                self._marks.forget()
            self._nudged = self._was_short = False
            self._sleeper.wake()
        elif wanted:
            await self._sleeper.ask_doubt()
        began = time.monotonic()
        from_front = bool(wanted) and not self._marks.current(began)
        answer = await self._exchange(wanted, awake=self._sleeper.must_clear())
        if from_front:
            self._marks.looked(began=began, now=time.monotonic())
        if wanted:
            await self._looked(answer, wanted)
        self._trouble.over()

    async def _looked(self, answer: Exchanged, wanted: Mapping[str, int]) -> None:
        before = dict(self._lanes)
        short = self._deliver(answer, wanted)
        if self._ended:
            return
        found = bool(answer.tasks) or answer.parked > 0
        if found:
            self._rounds.found()
        self._was_short = short  # the marks of that queue are gone; those of the others hold
        look_on = answer.parked > 0 or (not found and self._rounds.go_on(before, answer.lanes))
        await self._sleeper.looked(wanted, found=found or look_on or short, interval_seconds=self.interval_seconds)
        if look_on:
            self._nudged = True
        elif not found and not short and not self._holdings.active and not len(self._holdings.outbox):
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
                "released tasks whose claim never reached us: %d", released, extra={"worker_id": self._worker_id}
            )

    def _deliver(self, answer: Exchanged, wanted: Mapping[str, int]) -> bool:
        """Give the tasks to their queues; True when a look behind marks found too little: there may be something before them."""
        self._lanes.update(answer.lanes)
        by_queue: dict[str, int] = dict.fromkeys(wanted, 0)
        fresh = self._holdings.accept(answer.tasks)
        if self._ended:
            # told to stop while the answer was on its way
            for claimed in (*fresh, *self._holdings.withdraw_waiting()):
                self._holdings.outcome(
                    Outcome(claimed.fence, OutcomeKind.RELEASED, error_message="its worker stopped before the start")
                )
            return False
        for claimed in answer.tasks:
            by_queue[claimed.queue] = by_queue.get(claimed.queue, 0) + 1
        for name in by_queue:
            mine = [claimed for claimed in fresh if claimed.queue == name] if len(by_queue) > 1 else fresh
            if mine:
                self._pools[name].add(mine)
        short = False
        for name, count in wanted.items():
            # a batch that came back full: there is probably more
            if by_queue[name] >= count:
                self._more.add(name)
                if name not in answer.lanes:
                    self._marks.claimed(name, [each for each in answer.tasks if each.queue == name])
            else:
                self._more.discard(name)
                short |= self._marks.short(name)
        return short

    async def _exchange(self, wanted: Mapping[str, int], *, awake: bool) -> Exchanged:
        successes, outcomes = self._holdings.outbox.take()
        try:
            answer = await self._hand_in(wanted, successes, outcomes, awake=awake)
        except (InvalidTaskError, UnexpectedDatabaseError) as error:
            if not (successes or outcomes) or not is_about_values(error):
                self._holdings.outbox.put_back(successes, outcomes)
                raise
            await self._one_by_one(successes, outcomes)
            return Exchanged([], [], {}, 0)
        except BaseException as error:
            if wanted and isinstance(error, DatabaseUnreachableError):
                self._stray_looks = STRAY_LOOKS
                self._stray_look_at = 0.0
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
                        versions=self._versions,
                        marks=self._marks.by_queue,
                    )
                )
            except TryAgainError:
                if self._link.is_over:
                    raise
                if careful:
                    await asyncio.sleep(AGAIN_SECONDS)
                careful = True

    async def _one_by_one(self, successes: list[Success], outcomes: list[Outcome]) -> None:
        """Find the outcome that the database can not keep: it fails alone.

        Raises:
            OctopError: Not all could be handed in; what is left waits for the next exchange.
        """
        rest: list[tuple[list[Success], list[Outcome]]] = [([success], []) for success in successes]
        rest += [([], [outcome]) for outcome in outcomes]
        refused: list[tuple[list[Success], list[Outcome]]] = []
        problem: OctopError | None = None
        try:
            for one in list(rest):
                error = await self._alone(*one)
                rest.pop(0)
                if error is not None:
                    problem = error
                    refused.append(one)
        finally:
            for left in (*reversed(rest), *reversed(refused)):
                self._holdings.outbox.put_back(*left)
        if problem is not None:
            raise problem

    async def _alone(self, successes: list[Success], outcomes: list[Outcome]) -> OctopError | None:
        """Hand in one outcome, or a failure in its place. Return the error when not even that is kept: it is not the outcome's fault."""
        try:
            self._settle(await self._hand_in({}, successes, outcomes, awake=False), successes, outcomes)
        except (InvalidTaskError, UnexpectedDatabaseError) as error:
            if not is_about_values(error):
                raise
            problem: OctopError = error
        else:
            return None
        fence = (successes or outcomes)[0].fence
        known = outcomes[0].error_class if outcomes else None
        replacement = plain_failure(
            fence,
            "OutcomeRefused",
            f"the database can not keep the outcome{f' ({known!a})' if known else ''}: {problem.message}",
            final=bool(successes),
        )
        try:
            self._settle(await self._hand_in({}, [], [replacement], awake=False), [], [replacement])
        except (InvalidTaskError, UnexpectedDatabaseError) as error:
            if not is_about_values(error):
                raise
            return error
        log.error("the database can not keep an outcome: %s", problem.message, extra={"task_id": fence.id})
        return None

    def _settle(self, answer: Exchanged, successes: list[Success], outcomes: list[Outcome]) -> None:
        for settled in answer.settled:
            if settled.verdict == "again":
                self._again_at = time.monotonic() + AGAIN_SECONDS
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
