"""What an enqueue returns: the way back to the task."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import UUID

from octop.model.errors import TaskFailedError, TaskNotFoundError, WaitTimeoutError
from octop.model.options import checked_delay
from octop.model.task import Status
from octop.model.work import TaskRecord

if TYPE_CHECKING:
    from octop.engine.call import Call
    from octop.engine.pools import Pools

R = TypeVar("R")
POLL_SECONDS_MIN: Final = 0.005
POLL_SECONDS_MAX: Final = 0.25
POLL_GROWTH: Final = 1.5
__tracebackhide__ = True  # a test that fails in here shows the line that called


class Handle(Generic[R]):
    """One task, from outside. Each act has a form to be awaited, and one ending in ``_sync``.

    Args:
        id: The task's id, as text.
        pools: Connections of the application.
        decode: Turns the stored JSON text into the function's return type.
        created: False = a task with this id or unique key existed already, and nothing was enqueued.
    """

    __slots__ = ("_decode", "_id", "_pools", "created")

    def __init__(
        self,
        id: str,
        pools: "Pools",
        decode: Callable[[str | None], Any],
        *,
        created: bool = True,
    ) -> None:
        """Keep the id; nothing is asked yet."""
        self._id = id
        self._pools = pools
        self._decode = decode
        self.created = created

    def __repr__(self) -> str:
        """Return the id."""
        return f"<Handle of task {self._id}>"

    def __eq__(self, other: object) -> bool:
        """Compare by id."""
        return isinstance(other, Handle) and other._id == self._id

    def __hash__(self) -> int:
        """Return the hash of the id."""
        return hash(self._id)

    @property
    def existed(self) -> bool:
        """Tell whether this is a task that existed before the enqueue: with the same id, or the same unique key."""
        return not self.created

    @property
    def id(self) -> UUID:
        """Return the task's id."""
        return UUID(self._id)

    async def record(self) -> TaskRecord:
        """Return the task's row as it is now.

        Raises:
            TaskNotFoundError: There is none: not committed yet, rolled back, not yours, or its day has been dropped.
        """
        return self._there(await self._pools.run_async(*_twice(_calls().octop_task(self._id))))

    def record_sync(self) -> TaskRecord:
        """Return the task's row as it is now; see ``record``."""
        return self._there(self._pools.run(*_twice(_calls().octop_task(self._id))))

    async def status(self) -> Status:
        """Return the task's status now.

        Raises:
            TaskNotFoundError: See ``record``.
        """
        return Status((await self.record()).status)

    def status_sync(self) -> Status:
        """Return the task's status now; see ``status``."""
        return Status(self.record_sync().status)

    async def wait(self, timeout: float | timedelta | None = None) -> Status:
        """Wait until the task has ended: success, cancelled or frozen.

        Args:
            timeout: Seconds or a timedelta; 0 = look once; None = for ever.

        Returns:
            The final status.

        Raises:
            WaitTimeoutError: It has not ended in this time; the task goes on.
            TaskNotFoundError: See ``record``. A task that an open transaction enqueued can not be waited for.
        """
        return Status((await self._ended(timeout)).status)

    def wait_sync(self, timeout: float | timedelta | None = None) -> Status:
        """Wait until the task has ended; see ``wait``."""
        return Status(self._ended_sync(timeout).status)

    async def result(self, timeout: float | timedelta | None = None) -> R:
        """Wait until the task has ended, and return what its function returned, as the type of its annotation.

        Args:
            timeout: Seconds or a timedelta; 0 = look once; None = for ever.

        Raises:
            TaskFailedError: It ended frozen or cancelled; the message holds the last error.
            WaitTimeoutError: It has not ended in this time; the task goes on.
            TaskNotFoundError: See ``record``.
        """
        return self._result_of(await self._ended(timeout))

    def result_sync(self, timeout: float | timedelta | None = None) -> R:
        """Wait for the result; see ``result``. Blocks: inside an event loop use ``await result()``."""
        return self._result_of(self._ended_sync(timeout))

    async def cancel(self, reason: str = "") -> str:
        """Cancel the task.

        Args:
            reason: Kept with the task and in the audit.

        Returns:
            ``cancelled``, or ``requested`` when it runs: its worker ends it within a second or so.

        Raises:
            TaskNotFoundError: There is none, or it is not yours.
            TaskStatusError: It has finished with success.
        """
        found: str = await self._pools.run_async(*_twice(_calls().octop_cancel(self._id, reason)))
        return found

    def cancel_sync(self, reason: str = "") -> str:
        """Cancel the task; see ``cancel``."""
        found: str = self._pools.run(*_twice(_calls().octop_cancel(self._id, reason)))
        return found

    async def retry(self) -> "Handle[R]":
        """Try the task again, now: a frozen or failed one itself; for a finished one a new task is made, which names
        this one.

        Returns:
            The handle of the task that will run.

        Raises:
            TaskNotFoundError: There is none.
            TaskStatusError: It runs or is blocked.
        """
        return Handle(await self._pools.run_async(_calls().octop_retry(self._id)), self._pools, self._decode)

    def retry_sync(self) -> "Handle[R]":
        """Try the task again; see ``retry``."""
        return Handle(self._pools.run(_calls().octop_retry(self._id)), self._pools, self._decode)

    def _there(self, record: TaskRecord | None) -> TaskRecord:
        if record is None:
            message = f"there is no task {self._id}"
            raise TaskNotFoundError(
                message, hint="Its transaction is not committed or was rolled back, or its day was dropped."
            )
        return record

    async def _ended(self, timeout: float | timedelta | None) -> TaskRecord:
        import asyncio  # noqa: PLC0415 - 25 ms of the command's start, and who awaits has it loaded

        for seconds in _waits(timeout):
            record = await self.record()
            if Status(record.status).final:
                return record
            await asyncio.sleep(seconds)
        return self._ended_or_refused(await self.record(), timeout)

    def _ended_sync(self, timeout: float | timedelta | None) -> TaskRecord:
        for seconds in _waits(timeout):
            record = self.record_sync()
            if Status(record.status).final:
                return record
            time.sleep(seconds)
        return self._ended_or_refused(self.record_sync(), timeout)

    def _ended_or_refused(self, record: TaskRecord, timeout: float | timedelta | None) -> TaskRecord:
        if Status(record.status).final:
            return record
        from octop.engine.admission import databases_of_tests  # noqa: PLC0415 - with the engine: only here

        waited = "" if timeout is None else f" after waiting for {checked_delay(timeout, 'timeout'):g} s"
        message = f"task {self._id} is {record.status}{waited}"
        hint = f"It goes on. Wait longer, or look at it: octop tasks show {self._id}"
        if databases_of_tests and record.status != Status.RUNNING:
            hint = (
                "In a test nothing runs until octop_database.drain(): call it first, with_scheduled=True for what is due"
                " later or waits for its next try."
            )
        raise WaitTimeoutError(message, hint=hint)

    def _result_of(self, record: TaskRecord) -> R:
        if record.status == Status.SUCCESS:
            found: R = self._decode(record.result)
            return found
        message = f"task {self._id} ({record.task_type}) ended {record.status}"
        hint = f"octop tasks show {self._id}" if record.status == Status.CANCELLED else f"octop tasks retry {self._id}"
        raise TaskFailedError(message, status=record.status, detail=record.last_error or "", hint=hint)


def _calls() -> ModuleType:
    from octop.engine import calls  # noqa: PLC0415 - loads psycopg: only when the database is asked

    return calls


def _twice(call: "Call[Any]") -> "tuple[Call[Any], Call[Any]]":
    """Return a call that may be sent again on a new connection: to ask, and to cancel, twice does no harm."""
    return call, call


def _waits(timeout: float | timedelta | None) -> Iterator[float]:
    """Yield how long to sleep after each look: 5 ms at first, growing to 250 ms, until the time is over."""
    end = None if timeout is None else time.monotonic() + checked_delay(timeout, "timeout")
    pause = POLL_SECONDS_MIN
    while True:
        left = pause if end is None else end - time.monotonic()
        if left <= 0:
            return
        yield min(pause, left)
        pause = min(pause * POLL_GROWTH, POLL_SECONDS_MAX)
