"""The running task, as its own code sees it."""

import functools
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from octop.model.errors import OutsideTaskError
from octop.model.json_text import from_text
from octop.model.task import Claimed


class _TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the task's id, type and attempt to each record, and keeps what the caller adds."""

    def process(self, msg: object, kwargs: "logging._MutableMapping") -> "tuple[object, logging._MutableMapping]":  # type: ignore[name-defined]
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


def _never() -> bool:
    return False


class Context:
    """One attempt of one task. A parameter annotated with this class gets it, and is not part of the payload.

    Args:
        claimed: The task as the exchange gave it.
        cancelled: Tells whether the attempt should stop: cancelled, over its time limit, or lost.

    Examples:
        >>> from octop.model.task import NIL, Claimed
        >>> claimed = Claimed(
        ...     id=NIL,
        ...     attempt=1,
        ...     claim_id=NIL,
        ...     tenant="",
        ...     queue="default",
        ...     lane="",
        ...     task_type="send",
        ...     payload="{}",
        ...     priority=5,
        ...     retry_count=0,
        ...     max_retries=3,
        ...     timeout_seconds=300,
        ...     scheduled_at="2030-01-01 00:00:00+00",
        ...     due_at="2030-01-01 00:00:00+00",
        ...     isolated=False,
        ...     tags=None,
        ...     meta=None,
        ... )
        >>> Context(claimed).is_last_attempt
        False
    """

    _connection: Any = None
    """Only transactional tasks have one of their own."""

    def __init__(self, claimed: Claimed, *, cancelled: Callable[[], bool] = _never) -> None:
        """Keep the task and the way back to the worker."""
        self._claimed = claimed
        self._is_cancelled = cancelled

    def __repr__(self) -> str:
        """Return type, id and attempt."""
        return f"<Context of {self.task_type} {self._claimed.id}, attempt {self.attempt}>"

    @functools.cached_property
    def task_id(self) -> UUID:
        """Return the task's id."""
        return UUID(self._claimed.id)

    @property
    def attempt(self) -> int:
        """Return the number of this start, from 1; releases and snoozes count."""
        return self._claimed.attempt

    @property
    def task_type(self) -> str:
        """Return the name of the task type."""
        return self._claimed.task_type

    @property
    def queue(self) -> str:
        """Return the queue that the task came from."""
        return self._claimed.queue

    @property
    def tenant(self) -> str:
        """Return whose task this is; empty without tenants."""
        return self._claimed.tenant

    @property
    def lane(self) -> str:
        """Return the lane inside the queue; empty without lanes."""
        return self._claimed.lane

    @property
    def priority(self) -> int:
        """Return the priority, 0 (first) to 9."""
        return self._claimed.priority

    @property
    def retry_count(self) -> int:
        """Return how many tries were used up before this one."""
        return self._claimed.retry_count

    @property
    def max_retries(self) -> int:
        """Return how many further tries the task had after its first."""
        return self._claimed.max_retries

    @property
    def is_last_attempt(self) -> bool:
        """Tell whether the task freezes if this attempt fails."""
        return self._claimed.retry_count >= self._claimed.max_retries

    @property
    def timeout_seconds(self) -> float:
        """Return the time limit of this attempt."""
        return self._claimed.timeout_seconds

    @functools.cached_property
    def scheduled_at(self) -> datetime:
        """Return when this attempt was due."""
        return datetime.fromisoformat(self._claimed.scheduled_at)

    @functools.cached_property
    def due_at(self) -> datetime:
        """Return when the task was first due."""
        return datetime.fromisoformat(self._claimed.due_at)

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the task's labels."""
        return tuple(self._claimed.tags or ())

    @functools.cached_property
    def meta(self) -> Mapping[str, object]:
        """Return the riders that were enqueued with the task, such as a trace context."""
        found = from_text(self._claimed.meta) if self._claimed.meta else {}
        return found if isinstance(found, dict) else {}

    @property
    def schedule(self) -> str | None:
        """Return the name of the schedule that made the task; None = it was enqueued."""
        found = self.meta.get("schedule")
        return found if isinstance(found, str) and self.slot is not None else None

    @functools.cached_property
    def slot(self) -> datetime | None:
        """Return the moment of its schedule for which the task was made, whenever it runs; None = no schedule made it."""
        found = self.meta.get("slot")
        try:
            slot = datetime.fromisoformat(found) if isinstance(found, str) else None
        except ValueError:
            return None  # a rider of the same name
        return slot if slot is not None and slot.tzinfo is not None else None

    @functools.cached_property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """Return a logger whose records carry task_id, task_type and attempt."""
        extra = {"task_id": self._claimed.id, "task_type": self.task_type, "attempt": self.attempt}
        return _TaskLogger(logging.getLogger("octop.task"), extra)

    @property
    def connection(self) -> Any:
        """Return the connection on which the success of this task will commit, inside its transaction: a psycopg ``AsyncConnection`` in
        an ``async def``, a ``Connection`` in a ``def``. What is done there and the success are one: both happen, once, or neither.

        Only for ``@octop.task(transactional=True)``, and only while the function runs.

        Raises:
            OutsideTaskError: The task type is not transactional, or the function has ended.
        """
        if self._connection is None:
            message = f"{self.task_type} has no transaction here"
            raise OutsideTaskError(
                message, hint="Say @octop.task(transactional=True), and use the connection while the function runs."
            )
        return self._connection

    @property
    def cancelled(self) -> bool:
        """Tell whether the attempt should stop. A thread can not be stopped from outside: long loops ask.

        In a process of its own (``run_in="process"``) it is always False: the process is killed instead.
        """
        return self._is_cancelled()


context_variable: Final[ContextVar[Context | None]] = ContextVar("octop_current_task", default=None)


def current() -> Context:
    """Return the context of the task that runs here.

    Raises:
        OutsideTaskError: No task runs here: the function was called directly, or in a thread of its own.
    """
    found = context_variable.get()
    if found is None:
        message = "octop.current() was called outside of a task"
        raise OutsideTaskError(message, hint="Call it inside the task's function, or in code that the function calls.")
    return found
