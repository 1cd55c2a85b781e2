"""Enqueues that are awaited at the same time share a statement and a commit.

Whoever comes first lets those that are ready to run do their part, then sends what has gathered and tells the others; while it waits
for the database, the next ones gather. So a lone enqueue waits for nobody, and a thousand at once cost a few round trips. Of many, the
first are sent as soon as they are enough: the database works while Python binds the rest. No background task: the callers themselves do it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from octop.engine.call import Call
from octop.engine.calls import octop_enqueue_many
from octop.engine.calls.tasks import repeatable
from octop.model.errors import InvalidTaskError, OctopError
from octop.model.work import NewTask

Answer = tuple[str, bool]
Run = Callable[[Call[list[Answer]], Call[list[Answer]]], Awaitable[list[Answer]]]
LEADERS_MAX: Final = 2
KEYED_MAX: Final = 4
"""Of those that may have to wait for somebody's transaction so many are on their way at once: the others keep connections."""
ENOUGH: Final = 100
"""So many are sent without waiting for more: the database works on them while Python binds the rest."""
TASKS_MAX: Final = 500
PAYLOAD_CHARACTERS_MAX: Final = 1_000_000


class _Order(Enum):
    LEAD = "send what has gathered"
    ALONE = "send your own"


@dataclass(slots=True, eq=False)
class _Waiting:
    """One caller; its answer is that of the database, an order, or the error of all."""

    task: NewTask
    fresh: bool
    answer: "asyncio.Future[Answer | _Order]"


class JoinedEnqueue:
    """The enqueues of one event loop.

    Args:
        run: Runs a call in a transaction of its own, or its second form after a broken connection.
        connections: How many there are: those with unique keys take at most half of them, and at most four.
    """

    def __init__(self, run: Run, connections: int = 2 * KEYED_MAX) -> None:
        """Begin without callers."""
        self._run = run
        self._queue: deque[_Waiting] = deque()
        self._leaders = 0
        self._gathering = False
        self._keyed = asyncio.Semaphore(max(1, min(KEYED_MAX, connections // 2)))

    async def enqueue(self, task: NewTask, *, fresh: bool) -> Answer:
        """Enqueue one task; return its id, and whether it is new.

        Args:
            task: What to enqueue.
            fresh: The id was just made.

        Raises:
            OctopError: As if it had been sent alone: the fault of one is not the fault of the others.
        """
        if task.keyed:
            return await self._alone(task, fresh=fresh)
        me = _Waiting(task, fresh, asyncio.get_running_loop().create_future())
        if self._leaders < LEADERS_MAX:
            if not self._gathering:
                await self._gather()
                return await self._lead(me)
            if len(self._queue) + 1 >= ENOUGH:
                self._leaders += 1
                return await self._lead(me)
        self._queue.append(me)
        try:
            answer = await me.answer
        except asyncio.CancelledError:
            if me.answer.done() and not me.answer.cancelled() and me.answer.result() is _Order.LEAD:
                self._pass_on()
            raise
        if answer is _Order.LEAD:
            return await self._lead(me)
        if isinstance(answer, _Order):
            # What became of the common statement may be unknown, so the database looks whether the id exists.
            again = octop_enqueue_many([task], fresh=False)
            return (await self._run(again, again))[0]
        return answer

    async def _alone(self, task: NewTask, *, fresh: bool) -> Answer:
        """Enqueue a task with a unique key by itself: it waits for whoever is about to take the same key, and nobody else shall."""
        async with self._keyed:
            call = octop_enqueue_many([task], fresh=fresh)
            return (await self._run(call, repeatable(call)))[0]

    async def _gather(self) -> None:
        """Become a leader, when those that are ready to run have done their part."""
        self._leaders += 1
        self._gathering = True
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._pass_on()
            raise
        finally:
            self._gathering = False

    async def _lead(self, me: _Waiting) -> Answer:
        batch = [me, *self._gathered(len(me.task.payload))]
        try:
            answers = await self._outcomes(batch)
            for other, answer in zip(batch[1:], answers[1:], strict=True):
                if other.answer.done():
                    continue
                if isinstance(answer, OctopError):
                    other.answer.set_exception(answer)
                else:
                    other.answer.set_result(answer)
            if isinstance(answers[0], OctopError):
                raise answers[0]
            return answers[0]
        finally:
            for other in batch[1:]:
                if not other.answer.done():  # we were cancelled, and do not know what became of the statement
                    other.answer.set_result(_Order.ALONE)
            self._pass_on()

    async def _outcomes(self, batch: list[_Waiting]) -> list[Answer | OctopError]:
        """Send a batch; if one of its tasks is refused, its halves, until that one is alone."""
        call = octop_enqueue_many([each.task for each in batch], fresh=all(each.fresh for each in batch))
        try:
            return list(await self._run(call, repeatable(call)))
        except InvalidTaskError as error:
            if len(batch) == 1:
                return [error]
            half = len(batch) // 2
            return [*await self._outcomes(batch[:half]), *await self._outcomes(batch[half:])]
        except OctopError as error:
            # One each: a traceback that several tasks add to tells nobody anything.
            return [error, *(type(error)(error.message, hint=error.hint, detail=error.detail) for _ in batch[1:])]

    def _gathered(self, characters: int) -> list[_Waiting]:
        found: list[_Waiting] = []
        while self._queue and len(found) < TASKS_MAX and characters < PAYLOAD_CHARACTERS_MAX:
            other = self._queue.popleft()
            if not other.answer.done():  # else it was cancelled
                found.append(other)
                characters += len(other.task.payload)
        return found

    def _pass_on(self) -> None:
        while self._queue:
            following = self._queue.popleft()
            if not following.answer.done():
                following.answer.set_result(_Order.LEAD)
                return
        self._leaders -= 1
