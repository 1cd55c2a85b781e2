"""Tasks that a function gets many at a time, and what comes of each."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from octop.model.context import Context
from octop.model.control_flow import Snooze
from octop.model.errors import InvalidOptionError, InvalidTaskError
from octop.model.options import checked_delay, checked_whole

A = TypeVar("A")
SIZE_MAX: Final = 10_000
WAIT_SECONDS_MAX: Final = 5.0
"""Less than the least time after which a sweep would end what is over its limit: waiting is not the task's time."""


class Batch(NamedTuple):
    """How a task type is gathered.

    Attributes:
        size: Tasks at once, at most.
        wait_seconds: How long the first of them waits for others.
    """

    size: int
    wait_seconds: float


class Ended(NamedTuple):
    """What one task of a batch ended with, as if its function had raised or returned it."""

    error: BaseException | None
    value: object = None


class BatchTask(Generic[A]):
    """One task of a batch. A function that is called with a list of these may end each by itself.

    Args:
        args: Its arguments, typed as the annotation ``list[BatchTask[Mail]]`` says: a ``Mail``.
        context: The attempt: id, number, ``cancelled`` and so on. None in a test that calls the function by itself.

    Examples:
        >>> task = BatchTask({"user_id": 42})
        >>> task.succeed("sent")
        >>> task.ended
        Ended(error=None, value='sent')
    """

    __slots__ = ("_ended", "_tell", "args", "context")

    def __init__(self, args: A, context: Context | None = None) -> None:
        """Begin without an end."""
        self.args = args
        self.context: Any = context
        self._ended: Ended | None = None
        self._tell: Callable[[Ended], None] = lambda _ended: None

    def __repr__(self) -> str:
        """Return arguments and context."""
        return f"<BatchTask {self.args!r} {self.context!r}>"

    @property
    def ended(self) -> Ended | None:
        """Return what it ended with; None = what the function returns or raises will count."""
        return self._ended

    def succeed(self, result: object = None) -> None:
        """End this task with success now, whatever becomes of the others. The first word counts.

        Args:
            result: As if a function of this task alone had returned it.
        """
        self._end(Ended(None, result))

    def fail(self, error: BaseException) -> None:
        """End this task with a failure now; ``Retry`` and ``Cancel`` mean what they mean elsewhere. The first word counts.

        Args:
            error: As if a function of this task alone had raised it.
        """
        self._end(Ended(error))

    def snooze(self, delay: float) -> None:
        """Put this task off without using a try. The first word counts.

        Args:
            delay: Seconds from now on.
        """
        self._end(Ended(None, Snooze(delay)))

    def heard_by(self, tell: Callable[[Ended], None]) -> None:
        """Call a function when it ends by itself; for the worker."""
        self._tell = tell

    def _end(self, ended: Ended) -> None:
        if self._ended is None:
            self._ended = ended
            self._tell(ended)


def spread(tasks: Sequence[BatchTask[Any]], value: object) -> list[Ended]:
    """Return what each task ended with, by what it said itself, else by what the function returned.

    Args:
        tasks: As they were handed to the function.
        value: None = all succeeded without a result; a list of as many: a result, or an exception, for each.
    """
    if value is None:
        each: list[object] = [None] * len(tasks)
    elif isinstance(value, list | tuple) and len(value) == len(tasks):
        each = list(value)
    else:
        what = f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, list | tuple) else "")
        message = (
            f"a batch of {len(tasks)} tasks returned {what}: None, or a list with a result or an exception for each"
        )
        each = [TypeError(message) for _ in tasks]
    return [
        task.ended or (Ended(found) if isinstance(found, BaseException) else Ended(None, found))
        for task, found in zip(tasks, each, strict=True)
    ]


def checked_batch(name: str, size: object, wait: object, *, run_in: str, transactional: bool) -> Batch | None:
    """Return how a task type is gathered, or refuse it; None = its function gets one task.

    Raises:
        InvalidOptionError: A number is out of bounds, or ``batch_wait`` stands alone.
        InvalidTaskError: It can not be gathered where it runs.
    """
    if size is None:
        if wait is not None:
            message = f"batch_wait of {name} says nothing without batch_size"
            raise InvalidOptionError(message, hint="Say how many tasks at once: batch_size=100.")
        return None
    found = Batch(
        checked_whole(size, "batch_size", 1, SIZE_MAX), 0.5 if wait is None else checked_delay(wait, "batch_wait")
    )
    if found.wait_seconds > WAIT_SECONDS_MAX:
        message = f"batch_wait is 0 to {WAIT_SECONDS_MAX:g} seconds, not {wait!r}"
        raise InvalidOptionError(message, hint="To gather for longer, enqueue with a delay.")
    if run_in == "process" or transactional:
        what = "in a process of their own" if run_in == "process" else "in a transaction each"
        message = f"{name} can not be a batch: its tasks run {what}"
        raise InvalidTaskError(message, hint="async def, or def in a thread, without transactional=True.")
    return found
