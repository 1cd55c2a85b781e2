"""One exchange over one connection: outcomes go, tasks come, and what can not be handed in goes back into the outbox."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from octop.engine import calls
from octop.model.errors import InvalidTaskError, OctopError, TryAgainError, UnexpectedDatabaseError
from octop.model.task import Exchanged, Outcome, Success
from octop.worker.claims import Claims
from octop.worker.holdings import Holdings
from octop.worker.link import Link
from octop.worker.marks import Mark
from octop.worker.report import plain_failure
from octop.worker.trouble import is_about_values

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 0.05


class Exchange:
    """Hands in what waits in the outbox and asks for tasks, once per call.

    Attributes:
        link: The connection, used by nobody else for exchanges.
        is_under_way: Something is under way.
        carries_outcomes: What is under way hands in something.
    """

    def __init__(
        self,
        worker_id: str,
        link: Link,
        holdings: Holdings,
        claims: Claims,
        task_types: Mapping[str, int],
        on_settled: Callable[[str, str], None],
    ) -> None:
        """Be ready.

        Args:
            worker_id: Whose tasks these are.
            link: The connection.
            holdings: Where outcomes come from.
            claims: Where walks over lanes, and claims, begin.
            task_types: All names that the registry knows, with the version of their code.
            on_settled: Called with id and verdict of each outcome that was no plain success.
        """
        self.link = link
        self.is_under_way = self.carries_outcomes = False
        self._worker_id = worker_id
        self._holdings = holdings
        self._claims = claims
        self._on_settled = on_settled
        self._task_types = list(task_types)
        # most applications count no versions: nothing is sent for them
        self._versions = None if set(task_types.values()) <= {1} else list(task_types.values())

    async def run(
        self,
        wanted: Mapping[str, int],
        marks: Mapping[str, Mapping[int, Mark]],
        *,
        awake: bool = False,
        seconds: float | None = None,
    ) -> Exchanged:
        """Make one exchange.

        Args:
            wanted: How many tasks to ask for, by queue.
            marks: Behind what to look, by queue and priority.
            awake: Take back what the worker said when it fell asleep.
            seconds: How long to wait for the answer; None = as long as the link says.

        Raises:
            OctopError: The outcomes are in the outbox again. After DatabaseUnreachableError tasks may have been claimed all the same.
        """
        self.is_under_way = True
        self._claims.ask(wanted)
        successes, outcomes = self._holdings.outbox.take()
        self.carries_outcomes = bool(successes or outcomes)
        try:
            answer = await self._hand_in(wanted, successes, outcomes, marks, awake=awake, seconds=seconds)
        except (InvalidTaskError, UnexpectedDatabaseError) as error:
            if not (successes or outcomes) or not is_about_values(error):
                self._holdings.outbox.put_back(successes, outcomes)
                raise
            await self._one_by_one(successes, outcomes)
            return Exchanged([], [], {}, 0)
        except BaseException:
            self._holdings.outbox.put_back(successes, outcomes)
            raise
        finally:
            self._claims.answered(wanted)
            self.is_under_way = self.carries_outcomes = False
        self._settle(answer, successes, outcomes)
        return answer

    async def _hand_in(
        self,
        wanted: Mapping[str, int],
        successes: list[Success],
        outcomes: list[Outcome],
        marks: Mapping[str, Mapping[int, Mark]] | None = None,
        *,
        awake: bool = False,
        seconds: float | None = None,
    ) -> Exchanged:
        careful = False
        while True:
            try:
                return await self.link.call(
                    calls.octop_exchange(
                        self._worker_id,
                        wanted=wanted,
                        task_types=self._task_types,
                        lanes_after=self._claims.lanes,
                        successes=successes,
                        outcomes=outcomes,
                        careful=careful,
                        awake=awake,
                        versions=self._versions,
                        marks=marks,
                    ),
                    seconds=seconds,
                )
            except TryAgainError:
                if self.link.is_over:
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
            self._settle(await self._hand_in({}, successes, outcomes), successes, outcomes)
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
            self._settle(await self._hand_in({}, [], [replacement]), [], [replacement])
        except (InvalidTaskError, UnexpectedDatabaseError) as error:
            if not is_about_values(error):
                raise
            return error
        log.error("the database can not keep an outcome: %s", problem.message, extra={"task_id": fence.id})
        return None

    def _settle(self, answer: Exchanged, successes: list[Success], outcomes: list[Outcome]) -> None:
        outbox = self._holdings.outbox
        for settled in answer.settled:
            if settled.verdict == "again":
                outbox.not_before = time.monotonic() + AGAIN_SECONDS
                outbox.put_back(
                    [success for success in successes if success.fence.id == settled.id],
                    [outcome for outcome in outcomes if outcome.fence.id == settled.id],
                )
            elif settled.verdict == "lost":
                log.warning(
                    "an outcome came too late: the attempt was no longer this worker's, so nothing was written",
                    extra={"task_id": settled.id},
                )
            self._on_settled(settled.id, settled.verdict)
