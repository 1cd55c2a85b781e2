"""Many prepared calls become few statements, while they are read."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from octop.model.errors import InvalidTaskError
from octop.task import PreparedCall

if TYPE_CHECKING:
    from octop.engine.call import Call

Enqueued = list[tuple[str, bool]]
Calls = Iterable[PreparedCall[Any]] | AsyncIterable[PreparedCall[Any]]
# Binding 1,000 calls takes about 10 ms: an event loop that enqueues a million tasks still answers in between.
TASKS_MAX: Final = 1_000
CHARACTERS_MAX: Final = 8_000_000
# One statement of PostgreSQL's protocol ends at 1 GB, and a character may have four bytes.
STATEMENT_CHARACTERS_MAX: Final = 200_000_000


class Chunks:
    """Gathers calls until there are enough for a statement.

    Args:
        return_ids: The statements answer ids; else how many tasks there were, so that a million of them need no memory here.
        whole: One statement for all, so that they are all or nothing also on a connection in autocommit (up to 200 million
            characters of payload); else at most 1,000 tasks a statement.
    """

    def __init__(self, *, return_ids: bool, whole: bool) -> None:
        """Begin empty."""
        self._return_ids = return_ids
        self._tasks_max = None if whole else TASKS_MAX
        self._characters_max = STATEMENT_CHARACTERS_MAX if whole else CHARACTERS_MAX
        self._gathered: list[PreparedCall[Any]] = []
        self._characters = 0
        self._fresh = True

    def statements(self, calls: Iterable[PreparedCall[Any]]) -> "Iterator[Call[Any]]":
        """Yield the statements for calls, while these are read.

        Raises:
            InvalidTaskError: Something is no prepared call, or names a connection of its own.
        """
        for prepared in calls:
            if self._add(prepared):
                yield self._statement()
        if self._gathered:
            yield self._statement()

    async def statements_async(self, calls: Calls) -> "AsyncIterator[Call[Any]]":
        """Yield the statements for calls from any iterable; see ``statements``."""
        if isinstance(calls, AsyncIterable):
            async for prepared in calls:
                if self._add(prepared):
                    yield self._statement()
            calls = ()
        for statement in self.statements(calls):
            yield statement

    def _add(self, prepared: object) -> bool:
        if not isinstance(prepared, PreparedCall):
            message = f"enqueue_many takes calls, not {type(prepared).__name__}"
            raise InvalidTaskError(message, hint="Write enqueue_many(send.call(user) for user in users).")
        if prepared.connection is not None:
            message = "a call inside enqueue_many can not name a connection of its own"
            raise InvalidTaskError(message, hint="Write enqueue_many(…, connection=…): all tasks join one transaction.")
        self._gathered.append(prepared)
        self._fresh = prepared.send() and self._fresh
        self._characters += len(prepared.task.payload)
        return len(self._gathered) == self._tasks_max or self._characters >= self._characters_max

    def _statement(self) -> "Call[Any]":
        from octop.engine.calls import octop_enqueue_many  # noqa: PLC0415 - loads psycopg

        gathered, self._gathered, self._characters = self._gathered, [], 0
        tasks, fresh, self._fresh = [each.task for each in gathered], self._fresh, True
        if self._return_ids:
            return octop_enqueue_many(tasks, fresh=fresh)
        return octop_enqueue_many(tasks, fresh=fresh, return_ids=False)


def summed(answers: Sequence[Any], *, return_ids: bool) -> int | list[UUID]:
    """Return what all statements together have enqueued."""
    return [UUID(id) for each in answers for id, _ in each] if return_ids else sum(answers)
