"""What a drain ran, and what it raises for those that failed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from octop.model.control_flow import Retry
from octop.model.errors import TaskFailedError
from octop.model.task import Status


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt that a drain made.

    Attributes:
        id: The task.
        task: Name of the task type.
        arguments: The payload: plain values by name.
        queue: Where it came from.
        attempt: Number of the start, from 1.
        status: Of the task afterwards: ``success``, ``failed`` (waits for a retry), ``frozen``, ``pending`` (snoozed),
            ``cancelled``.
        result: What the function returned, as the type of its annotation.
        error: What it raised; None = nothing.
    """

    id: UUID
    task: str
    arguments: Mapping[str, Any]
    queue: str
    attempt: int
    status: Status
    result: Any = None
    error: BaseException | None = None


class Drained(list[Ran]):
    """What a drain ran, in the order of the starts."""

    @property
    def failures(self) -> list[Ran]:
        """Return the last attempts of the tasks that did not come to a good end, whatever they raised."""
        last = {ran.id: ran for ran in self}
        return [ran for ran in last.values() if ran.status in (Status.FAILED, Status.FROZEN)]

    def of(self, task: Any) -> "Drained":
        """Return the attempts of one task type.

        Args:
            task: The decorated function, or a name.
        """
        name = task if isinstance(task, str) else task.name
        return Drained(ran for ran in self if ran.task == name)

    def raise_failures(self) -> None:
        """Raise what tasks failed with, if any did; ``raise Retry`` is a wish, and no failure while tries are left.

        Raises:
            BaseException: The task's own, with its traceback.
            ExceptionGroup: There are several.
        """
        __tracebackhide__ = True
        found = [ran for ran in self.failures if ran.status is Status.FROZEN or not isinstance(ran.error, Retry)]
        errors = [_told(ran) for ran in found]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            names = ", ".join(f"{name} ({number})" for name, number in Counter(ran.task for ran in found).items())
            message = f"{len(errors)} of {len({ran.id for ran in self})} tasks failed: {names}"
            raise ExceptionGroup(message, errors)


def _told(ran: Ran) -> Exception:
    """Return what is to be raised for a failure."""
    __tracebackhide__ = True
    what = f"the task {ran.task} {ran.id}, attempt {ran.attempt}, is {ran.status.value} now"
    if isinstance(ran.error, Exception):
        if what not in getattr(ran.error, "__notes__", ()):
            ran.error.add_note(what)
        return ran.error
    # SystemExit and its kind would end the test run itself
    wrapped = TaskFailedError(f"{what}: it raised {ran.error!r}", status=ran.status.value)
    wrapped.__cause__ = ran.error
    return wrapped
