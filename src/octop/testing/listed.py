"""What is enqueued, what a test wants to be, and how the two differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from octop.model.codec import ANY, encode, plain
from octop.model.errors import InvalidOptionError
from octop.model.json_text import from_text, to_text
from octop.model.options import checked_delay
from octop.model.task import Status
from octop.task import Task

if TYPE_CHECKING:
    from octop.testing.database import Database

TASKS_MAX: Final = 10_000
SHOWN_MAX: Final = 10
TEXT_MAX: Final = 200
NOWHERE: Final = object()


@dataclass(frozen=True, slots=True)
class EnqueuedTask:
    """One task that is neither finished nor frozen.

    Attributes:
        id: The task.
        task: Name of the task type.
        payload: Its arguments: plain values by name, those that were passed.
        status: ``pending``, ``failed`` (waits for a retry), ``running`` or ``blocked``.
        queue: Where it waits.
        lane: In which lane; empty = none.
        tenant: Whose it is.
        priority: 0 to 9.
        scheduled_at: When it may start next.
        due_in_seconds: The same, from the database's now on; negative = it is due.
        tags: Its labels.
        meta: What it carries, such as a trace context.
        max_retries: Further tries; None = inherited.
        timeout_seconds: Of one attempt; None = inherited.
    """

    id: UUID
    task: str
    payload: Mapping[str, Any]
    status: Status
    queue: str
    lane: str
    tenant: str
    priority: int
    scheduled_at: datetime
    due_in_seconds: float
    tags: tuple[str, ...]
    meta: Mapping[str, Any]
    max_retries: int | None
    timeout_seconds: float | None

    def __str__(self) -> str:
        """Return one line that says what a person looks for."""
        due = "due" if self.due_in_seconds <= 0 else f"due in {timedelta(seconds=round(self.due_in_seconds, 3))}"
        more = [f"queue={self.queue}", f"priority={self.priority}", f"{self.status.value}, {due}"]
        more += [f"{name}={value}" for name in ("lane", "tenant") if (value := getattr(self, name))]
        more += [f"tags={list(self.tags)}"] if self.tags else []
        return f"{self.task} {_short(self.payload)}  {' '.join(more)}  {self.id}"


def listed(database: "Database") -> list[EnqueuedTask]:
    """Read what is there, in the order of enqueue."""
    from octop.engine import queued  # noqa: PLC0415 - loads psycopg

    return [
        EnqueuedTask(
            UUID(row["id"]),
            row["task_type"],
            row["payload"],
            Status(row["status"]),
            row["queue"],
            row["lane"],
            row["tenant"],
            row["priority"],
            datetime.fromisoformat(row["scheduled_at"]),
            float(row["due_in_seconds"]),
            tuple(row["tags"] or ()),
            row["meta"] or {},
            row["max_retries"],
            row["timeout_seconds"],
        )
        for row in database.run(queued.unfinished(TASKS_MAX))
    ]


@dataclass(frozen=True)
class Wanted:
    """What a test looks for.

    Attributes:
        task: Name of the task type; None = any.
        payload: Arguments that must be there, as plain values.
        exact: Whether no others may be.
        fields: What else must be equal, by name.
        tags: Labels that must be there.
        within_seconds: Due at most so long from now.
    """

    task: str | None
    payload: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False
    fields: Mapping[str, object] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    within_seconds: float | None = None

    @classmethod
    def of(
        cls,
        task: object,
        *,
        payload: Mapping[str, object] | None = None,
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        tags: Sequence[str] | None = None,
        within: float | timedelta | None = None,
        **fields: object,
    ) -> "Wanted":
        """Make one of what ``assert_enqueued`` was told.

        Raises:
            InvalidOptionError: Things that exclude each other, or no task.
            InvalidArgumentsError: The task could not be called like that.
        """
        exact = args is not None or kwargs is not None
        if exact and payload is not None:
            message = "payload= names some of the arguments, args= and kwargs= all of them: give one or the other"
            raise InvalidOptionError(message)
        if not isinstance(task, Task | str | None):
            message = f"a task is a decorated function or the name of a task type, not {task!r}"
            raise InvalidOptionError(message)
        if exact and not isinstance(task, Task):
            message = "args= and kwargs= need the decorated function; with a name give payload="
            raise InvalidOptionError(message)
        found: Any = {}
        if isinstance(task, Task) and exact:
            found = from_text(task.definition.bind(tuple(args or ()), kwargs or {}))
        elif payload is not None:
            found = _plain(task, payload)
        return cls(
            task.name if isinstance(task, Task) else task,
            found,
            exact,
            {name: value for name, value in fields.items() if value is not None},
            tuple(tags or ()),
            None if within is None else checked_delay(within, "within"),
        )

    def __str__(self) -> str:
        """Return it as the message names it."""
        parts = [f"{name} {value!r}" for name, value in self.fields.items()]
        parts += [f"tags {list(self.tags)}"] if self.tags else []
        parts += [] if self.within_seconds is None else [f"due within {timedelta(seconds=self.within_seconds)}"]
        if self.exact or self.payload:
            parts.insert(0, f"payload {'exactly ' if self.exact else ''}{_short(self.payload)}")
        return f"{self.task or 'any task'}{' with ' if parts else ''}{', '.join(parts)}"

    def differences(self, task: EnqueuedTask) -> list[str]:
        """Return how a task differs from this one, a phrase each."""
        found: list[str] = []
        if self.task is not None and task.task != self.task:
            found.append(f"its type is {task.task}, not {self.task}")
        for name, value in self.payload.items():
            if name not in task.payload:
                found.append(f"payload.{name} is not there, not {_short(value)}")
            elif not _equal(task.payload[name], value):
                found.append(f"payload.{name} is {_short(task.payload[name])}, not {_short(value)}")
        if self.exact:
            found += [f"payload.{name} is there" for name in task.payload if name not in self.payload]
        for name, value in self.fields.items():
            if getattr(task, name) != value:
                found.append(f"{name} is {getattr(task, name)!r}, not {value!r}")
        found += [f"tag {tag!r} is not there" for tag in self.tags if tag not in task.tags]
        if self.within_seconds is not None and task.due_in_seconds > self.within_seconds:
            due, most = (timedelta(seconds=round(each, 3)) for each in (task.due_in_seconds, self.within_seconds))
            found.append(f"it is due in {due}, not within {most}")
        return found

    def fits(self, task: EnqueuedTask) -> bool:
        """Tell whether a task is what is wanted."""
        return not self.differences(task)


def require_enqueued(tasks: Sequence[EnqueuedTask], wanted: Wanted, count: int | None) -> list[EnqueuedTask]:
    """Return the tasks that fit.

    Raises:
        AssertionError: There is none, or not as many as were to be.
    """
    __tracebackhide__ = True
    found = [task for task in tasks if wanted.fits(task)]
    if len(found) == count or (found and count is None):
        return found
    if found or count == 0 or not tasks:
        number = f"{len(found)} enqueued" if found else "not enqueued"
        message = f"{number}: {wanted}" if count is None else f"{len(found)} enqueued, not {count}: {wanted}"
    else:
        message = f"not enqueued: {wanted}" + _nearest(tasks, wanted)
    raise AssertionError(message + _what_is_there(tasks))


def refuse_enqueued(tasks: Sequence[EnqueuedTask], wanted: Wanted) -> None:
    """Do nothing if no task fits.

    Raises:
        AssertionError: One does.
    """
    __tracebackhide__ = True
    found = [task for task in tasks if wanted.fits(task)]
    if found:
        message = f"{len(found)} enqueued, not 0: {wanted}" + _lines(found)
        raise AssertionError(message)


def _plain(task: Task[..., Any, Any] | str | None, payload: Mapping[str, object]) -> dict[str, Any]:
    """Write expected values as they are stored: dates as text, and so on."""
    if not isinstance(task, Task):
        found = from_text(encode(dict(payload), dict[str, Any]))
        return found if isinstance(found, dict) else {}
    plan = task.definition.plan
    values = {name: plain(value, plan.codecs.get(name) or plan.rest or ANY) for name, value in payload.items()}
    found = from_text(to_text(values))
    return found if isinstance(found, dict) else {}


def _equal(found: object, wanted: object) -> bool:
    # in JSON true is not 1, for Python it is
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)


def _short(value: object) -> str:
    text = to_text(value)
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


def _nearest(tasks: Sequence[EnqueuedTask], wanted: Wanted) -> str:
    same = [task for task in tasks if wanted.task in (None, task.task)]
    if not same:
        near = get_close_matches(wanted.task or "", {task.task for task in tasks}, n=1)
        return f"; did you mean {near[0]}?" if near else f"; none of the type {wanted.task} is there"
    nearest = min(same, key=lambda task: len(wanted.differences(task)))
    return f"\nnearest: {nearest}\n" + "\n".join(f"         {each}" for each in wanted.differences(nearest))


def _what_is_there(tasks: Sequence[EnqueuedTask]) -> str:
    if not tasks:
        return "\nNothing is enqueued. Was the transaction committed? Did a drain run it already?"
    return f"\n{len(tasks)} unfinished:" + _lines(tasks)


def _lines(tasks: Sequence[EnqueuedTask]) -> str:
    lines = [f"\n  {task}" for task in tasks[:SHOWN_MAX]]
    lines += [f"\n  … and {len(tasks) - SHOWN_MAX} more"] if len(tasks) > SHOWN_MAX else []
    return "".join(lines)
