"""What passes between client, worker and engine besides claimed tasks: requests, settings, answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

RunIn = Literal["loop", "thread", "process"]


class NewTask(NamedTuple):
    """One task to be registered. A tuple: to make a frozen dataclass of so many fields would be a third of the cost of binding a call.

    Attributes:
        task_type: 1 to 200 characters.
        payload: JSON text of an object.
        id: UUID as text, made by the caller.
        queue: None = the task type's, else ``default``.
        lane: Empty = none.
        tenant: Empty = the only one.
        priority: 0 (first) to 9; None = the task type's, else 5.
        scheduled_at: ISO 8601 with offset; None = now. Not together with delay_seconds.
        delay_seconds: From the database's now on, 0 or more.
        max_retries: Further tries, 0 to 1,000; None = inherited. 0 and None differ.
        timeout_seconds: Above 0, at most 31 days; None = inherited.
        retry_policy: JSON text; None = inherited.
        tags: Labels, at most 50.
        meta: JSON text of an object.
        retry_of: The finished task that this one repeats.
        declared_queue: What the code says; holds until a worker has declared the type, then the type's row does.
        declared_priority: Likewise.
        min_version: Workers whose code of the type is older leave it to others; None = any may run it.
        unique_by: Payload fields that make it unique; empty = all of them; None = it is not, or by unique_key.
        unique_key: A text that makes it unique, 1 to 1,000 characters.
        unique_scope: ``pending``, ``live`` or an interval as PostgreSQL reads it; None = ``pending``.
        on_conflict: ``keep``, ``raise``, ``replace`` or ``move``; None = ``keep``.
    """

    task_type: str
    payload: str
    id: str
    queue: str | None = None
    lane: str = ""
    tenant: str = ""
    priority: int | None = None
    scheduled_at: str | None = None
    delay_seconds: float | None = None
    max_retries: int | None = None
    timeout_seconds: float | None = None
    retry_policy: str | None = None
    tags: Sequence[str] | None = None
    meta: str | None = None
    retry_of: str | None = None
    declared_queue: str | None = None
    declared_priority: int | None = None
    min_version: int | None = None
    unique_by: Sequence[str] | None = None
    unique_key: str | None = None
    unique_scope: str | None = None
    on_conflict: str | None = None

    @property
    def keyed(self) -> bool:
        """Tell whether another task may stand in its way."""
        return self.unique_by is not None or self.unique_key is not None


@dataclass(frozen=True, slots=True)
class TaskTypePolicy:
    """What the code declares about a task type; an operator may change it in ``octop_task_types``.

    Attributes are those of the table; None = the queue's or the configuration's default. ``version`` is that of the
    code, and stands in the row of each worker.
    """

    name: str
    queue: str | None = None
    priority: int | None = None
    max_retries: int | None = None
    timeout_seconds: float | None = None
    retry_policy: Mapping[str, Any] | None = None
    freeze_type_on_exhaustion: bool | None = None
    run_in: RunIn = "thread"
    description: str = ""
    version: int = 1


@dataclass(frozen=True, slots=True)
class Control:
    """The answer to a worker's look each second.

    Attributes:
        version: Rises with every change of settings, queues, types and holds.
        cancel: Ids of this worker's running tasks that are to be cancelled.
        lost: Ids of those that it named and that are no longer its own.
    """

    version: int
    cancel: list[str]
    lost: list[str]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that rule while it runs.

    Attributes:
        version: The control version that they belong to.
        values: All keys of ``octop_config``; None only where the key allows it.
        worker_limits: By queue, the operator's limit per worker process.
        held_queues: Queues that are paused until somebody resumes them: they are not asked for.
        paused_queues: All queues that are paused: nothing of them begins.
        type_queues: By task type, the queue for tasks that name none.
    """

    version: int
    values: Mapping[str, float | None]
    worker_limits: Mapping[str, int]
    held_queues: frozenset[str]
    paused_queues: frozenset[str]
    type_queues: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many processes a supervisor should run next.

    Attributes:
        processes: So many.
        quiet: For how many looks it could have done with fewer; handed in with the next question.
        due: Due tasks of its queues, counted up to some ten thousands.
        oldest_seconds: For how long the oldest of them has been due.
    """

    processes: int
    quiet: int
    due: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did, in tasks, tasks, tasks, rows, days and days."""

    rescued: int
    overdue: int
    unparked: int
    folded: int
    days_made: int
    days_dropped: int


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task as it is now. Times are ISO 8601 text in UTC; payload, result and meta are JSON text."""

    id: str
    seq: int
    tenant: str
    queue: str
    lane: str
    task_type: str
    payload: str
    status: str
    priority: int
    scheduled_at: str
    due_at: str | None
    created_at: str
    started_at: str | None
    completed_at: str | None
    retry_count: int
    max_retries: int | None
    last_error: str | None
    result: str | None
    timeout_seconds: float | None
    min_version: int | None
    deadline_at: str | None
    attempt: int
    lost_count: int
    worker_id: str | None
    blocked_by: str | None
    tags: list[str] | None
    meta: str | None
    retry_of: str | None
    created_by: str
