"""When to ask the database, and what its answer means: something, nothing, or that it is time to sleep."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from octop.engine import calls
from octop.model.errors import DatabaseUnreachableError, OctopError
from octop.model.task import Exchanged
from octop.worker.acceptance import Acceptance
from octop.worker.claims import Claims
from octop.worker.exchange import Exchange
from octop.worker.holdings import LINGER_SECONDS, Holdings
from octop.worker.link import Link
from octop.worker.rounds import Rounds
from octop.worker.sleeper import Sleeper
from octop.worker.trouble import Trouble

log = logging.getLogger(__name__)

STRAY_LOOKS: Final = 3
STRAY_SECONDS: Final = 5.0
SECOND_SECONDS_MAX: Final = 3.0
SECOND_IDLE_SECONDS: Final = 30.0
SECOND_REST_SECONDS: Final = 30.0
LAST_ANSWER_SECONDS: Final = 1.0


class Exchanger:
    """Hands in outcomes and claims tasks, again and again.

    All is done by one exchange after the other. While a backlog is worked off, a second connection helps: what it carries is on its way
    while the database works on the first, and the answer of one is read while the database works on the other. It never looks from the
    front of a queue, never sleeps, and rests when anything is in doubt.

    Attributes:
        interval_seconds: Setting ``scheduler.interval_seconds``: the longest sleep.
        on_settled: Called with id and verdict of each outcome that was no plain success.
        on_idle: Called when nothing was found, or may be asked for, and nothing is held.
        on_spent: Called when this process has served and nothing is held: it is to end.
        acceptance: What has been accepted, and what has not.
    """

    def __init__(
        self,
        worker_id: str,
        link: Link,
        second_link: Link,
        holdings: Holdings,
        claims: Claims,
        task_types: Mapping[str, int],
    ) -> None:
        """Begin without having asked.

        Args:
            worker_id: Whose tasks these are.
            link: The connection of the exchange, used by nobody else.
            second_link: The connection that helps; opened when it is first of use.
            holdings: What we hold.
            claims: What may be asked for.
            task_types: All names that the registry knows, with the version of their code.
        """
        self.interval_seconds = 5.0
        self.on_settled: Callable[[str, str], None] = lambda _id, _verdict: None
        self.on_idle: Callable[[], Awaitable[None]] = _nothing
        self.on_spent: Callable[[], None] = self.end
        self.acceptance = Acceptance()
        self._worker_id = worker_id
        self._holdings = holdings
        self._claims = claims
        self._first, self._second = (
            Exchange(worker_id, each, holdings, claims, task_types, lambda *answer: self.on_settled(*answer))
            for each in (link, second_link)
        )
        self._sleeper = Sleeper(worker_id, link)
        self._rounds = Rounds()
        self._trouble = Trouble("the exchange is refused", worker_id)
        self._stray_looks = 0
        self._stray_look_at = 0.0
        self._idle_at = 0.0
        self._nudged = True
        self._was_short = False
        self._first_is_under_way = asyncio.Event()
        self._second_used_at = 0.0
        self._second_trouble = Trouble("the second exchange is refused", worker_id, endless=True)

    def nudge(self) -> None:
        """Look at once: something may have come."""
        self._nudged = True
        self._holdings.urgent.set()

    def end(self) -> None:
        """Claim no more, hand in what is left, and return from ``run`` when nothing is held."""
        self._claims.claiming = False
        self._claims.ended = True
        self._holdings.urgent.set()
        # what it carries can go with the first
        asyncio.get_running_loop().call_later(LAST_ANSWER_SECONDS, self._second.link.cut)

    @property
    def has_outcomes(self) -> bool:
        """Tell whether something waits to be handed in, or is on its way."""
        return len(self._holdings.outbox) > 0 or self._first.carries_outcomes or self._second.carries_outcomes

    @property
    def answered_at(self) -> float:
        """Return the monotonic moment at which the database last said something."""
        return max(self._first.link.answered_at, self._second.link.answered_at)

    def be_patient(self, seconds: float) -> None:
        """Wait so long, and no longer, for an answer.

        Args:
            seconds: See ``lease.patience``.
        """
        self._first.link.seconds_max = seconds
        self._second.link.seconds_max = min(seconds, SECOND_SECONDS_MAX)

    def give_up(self) -> None:
        """Wait for the database no longer: the lease covers what could not be handed in."""
        self._first.link.give_up()
        self._second.link.give_up()
        self._holdings.urgent.set()

    async def run(self) -> None:
        """Exchange until ``end`` was called and everything was handed in, or it is no use to try any longer.

        Raises:
            ExceptionGroup: With an OctopError, which no further try would mend: the schema or the rights are gone.
        """
        async with asyncio.TaskGroup() as group:
            second = group.create_task(self._exchange_besides())
            await self._lead()
            second.cancel()

    async def _lead(self) -> None:
        while not (self._claims.ended and not self._holds_anything()):
            if self._claims.is_spent and not self._claims.ended and not self._holds_anything():
                self.on_spent()
                continue
            await self._wait(self._pause())
            if self._is_hopeless():
                return
            self.acceptance.tries()
            try:
                await self._cycle()
                self.acceptance.accepted()
            except OctopError as error:
                self.acceptance.refused(error)
                self._sleeper.wake()
                self._nudged = True
                if self._is_hopeless():
                    return
                unreachable = isinstance(error, DatabaseUnreachableError)
                await self._first.link.pause(None if unreachable else self._trouble.bear(error))

    def _holds_anything(self) -> bool:
        return bool(self._holdings.active) or len(self._holdings.outbox) > 0 or self._second.is_under_way

    # --- when -----------------------------------------------------------------------------------------------------------

    def _is_hopeless(self) -> bool:
        return self._first.link.is_over

    def _pause(self) -> float | None:
        """Return how many seconds to wait unless something urgent happens; None = until then."""
        now = time.monotonic()
        waits: list[float] = []
        outbox, claims = self._holdings.outbox, self._claims
        if len(outbox):
            hurried = not self._holdings.active or claims.is_roomy() or claims.ended
            waits.append(max(now if hurried else outbox.since + LINGER_SECONDS, outbox.not_before) - now)
        wanted = claims.wanted()
        if wanted:
            if (
                self._nudged
                or self._was_short
                or not claims.more.isdisjoint(name for name in wanted if claims.pools[name].is_roomy)
            ):
                return 0.0
            if not claims.more.isdisjoint(wanted):
                waits.append(LINGER_SECONDS)
            waits.append(self._sleeper.look_at(wanted, now) - now)
        elif claims.claiming:
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
        wanted = self._claims.wanted()
        if not wanted and not len(self._holdings.outbox):
            self._idle_at = time.monotonic()
            if self._claims.claiming and not self._holds_anything():
                await self.on_idle()  # all queues are paused, or have no places
            return
        if self._stray_looks and time.monotonic() >= self._stray_look_at and not self._second.is_under_way:
            await self._release_strays()
        marks = self._claims.marks
        # after a short batch the marks of its queue are gone, where that is cheap; those of the others hold
        anew = bool(wanted) and (self._nudged or (self._was_short and marks.is_heavy))
        if wanted and (self._nudged or self._was_short):
            self._nudged = self._was_short = False
            self._sleeper.wake()
        elif wanted:
            await self._sleeper.ask_doubt()
        began = time.monotonic()
        current = marks.current(began, anew=anew) if wanted else marks.by_queue
        from_front, is_behind = bool(wanted) and not current, bool(current) and current is marks.by_queue
        generation = marks.generation
        self._first_is_under_way.set()
        try:
            answer = await self._first.run(wanted, current, awake=self._sleeper.must_clear())
        except DatabaseUnreachableError:
            self._suspect_strays(wanted)
            raise
        finally:
            self._first_is_under_way.clear()
        if from_front:
            marks.looked(began=began, now=time.monotonic())
        if wanted:
            await self._looked(answer, wanted, generation, is_behind=is_behind)
        self._trouble.over()

    def _suspect_strays(self, wanted: Mapping[str, int]) -> None:
        if wanted:
            self._stray_looks = STRAY_LOOKS
            self._stray_look_at = 0.0

    async def _looked(self, answer: Exchanged, wanted: Mapping[str, int], generation: int, *, is_behind: bool) -> None:
        before = dict(self._claims.lanes)
        short = self._claims.deliver(answer, wanted, generation, is_behind=is_behind)
        if self._claims.ended:
            return
        found = bool(answer.tasks) or answer.parked > 0
        if found:
            self._rounds.found()
        self._was_short |= short
        look_on = answer.parked > 0 or (not found and self._rounds.go_on(before, answer.lanes))
        awake = found or look_on or short or self._second.is_under_way
        await self._sleeper.looked(wanted, found=awake, interval_seconds=self.interval_seconds)
        if look_on:
            self._nudged = True
        elif not found and not short and not self._holds_anything():
            await self.on_idle()

    async def _release_strays(self) -> None:
        """Give back what an exchange claimed whose answer got lost: the database believes that we run it.

        Not once only: the server may still have been at work on that exchange when we came back. Never while another exchange is under
        way: what it claims is not known here yet, and would be given back too.
        """
        released = await self._first.link.call(calls.octop_release_unheld(self._worker_id, self._holdings.held()))
        self._stray_looks -= 1
        self._stray_look_at = time.monotonic() + STRAY_SECONDS
        if released:
            log.warning(
                "released tasks whose claim never reached us: %d", released, extra={"worker_id": self._worker_id}
            )

    # --- the second -----------------------------------------------------------------------------------------------------

    async def _exchange_besides(self) -> None:
        """Make exchanges on the second connection, each while the first is under way."""
        urgent, link = self._holdings.urgent, self._second.link
        while True:
            await self._first_is_under_way.wait()
            if time.monotonic() - self._second_used_at > SECOND_IDLE_SECONDS:
                await link.rest()  # what has been silent for long may be dead, and what it was given would wait
            await urgent.wait()
            if not self._first_is_under_way.is_set():
                continue  # it was meant for the first
            urgent.clear()
            if not self._wanted_besides():
                continue
            try:
                await link.open(seconds=SECOND_SECONDS_MAX)
            except OctopError:
                await link.pause(SECOND_REST_SECONDS)
                continue
            if self._first_is_under_way.is_set() and (wanted := self._wanted_besides()):
                await self._second_cycle(wanted)

    async def _second_cycle(self, wanted: Mapping[str, int]) -> None:
        generation = self._claims.marks.generation
        try:
            answer = await self._second.run(wanted, self._claims.marks.by_queue)
        except OctopError as error:
            self._nudged = True  # what it had is in the outbox again, and what it claimed lies before the marks
            self._holdings.urgent.set()
            unreachable = isinstance(error, DatabaseUnreachableError)
            if unreachable:
                self._suspect_strays(wanted)
            await self._second.link.pause(None if unreachable else self._second_trouble.bear(error))
            return
        finally:
            self._second_used_at = time.monotonic()
        self._second_trouble.over()
        self._was_short |= self._claims.deliver(answer, wanted, generation)
        self._nudged |= answer.parked > 0
        self._holdings.urgent.set()

    def _wanted_besides(self) -> dict[str, int]:
        """Return what the second may ask for now: nothing while strays may exist, or while a look from the front is due."""
        now = time.monotonic()
        if (
            self._stray_looks
            or self._nudged
            or now < self._holdings.outbox.not_before
            or self._claims.marks.is_look_due(now)
        ):
            return {}
        return self._claims.wanted_besides()


async def _nothing() -> None:
    return
