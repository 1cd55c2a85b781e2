"""Register tasks and find them."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, LiteralString, overload

from octop.engine.call import Call, Rows, first_value
from octop.model.work import NewTask, TaskRecord

_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"'})


def _array_literal(tags: Sequence[str] | None) -> str | None:
    if tags is None:
        return None
    return "{" + ",".join(f'"{tag.translate(_ESCAPED)}"' for tag in tags) + "}"


def _column(tasks: Sequence[NewTask], read: Callable[[NewTask], Any], unset: object = None) -> list[Any] | None:
    """Return one value per task, or None when all are unset: then nothing is sent."""
    values = [read(task) for task in tasks]
    return None if all(value == unset for value in values) else values


_ENQUEUE_MANY: Final = (
    "octop_enqueue_many(%(task_types)s::text[], %(payloads)s::text[], %(ids)s::text[]::uuid[],"
    " %(queues)s::text[], %(lanes)s::text[], %(tenants)s::text[], %(priorities)s::integer[], %(scheduled_at)s::text[]::timestamptz[],"
    " %(delay_seconds)s::double precision[], %(max_retries)s::integer[], %(timeout_seconds)s::double precision[],"
    " %(retry_policies)s::text[], %(tags)s::text[], %(metas)s::text[], %(retry_of)s::text[]::uuid[], %(fresh)s::boolean,"
    " %(declared_queues)s::text[], %(declared_priorities)s::integer[], %(min_versions)s::integer[])"
)


def _columns(tasks: Sequence[NewTask], *, fresh: bool) -> dict[str, object]:
    return {
        "task_types": [task.task_type for task in tasks],
        "payloads": [task.payload for task in tasks],
        "ids": [task.id for task in tasks],
        "queues": _column(tasks, lambda task: task.queue),
        "lanes": _column(tasks, lambda task: task.lane, ""),
        "tenants": _column(tasks, lambda task: task.tenant, ""),
        "priorities": _column(tasks, lambda task: task.priority),
        "scheduled_at": _column(tasks, lambda task: task.scheduled_at),
        "delay_seconds": _column(tasks, lambda task: task.delay_seconds),
        "max_retries": _column(tasks, lambda task: task.max_retries),
        "timeout_seconds": _column(tasks, lambda task: task.timeout_seconds),
        "retry_policies": _column(tasks, lambda task: task.retry_policy),
        "tags": _column(tasks, lambda task: _array_literal(task.tags)),
        "metas": _column(tasks, lambda task: task.meta),
        "retry_of": _column(tasks, lambda task: task.retry_of),
        "fresh": fresh,
        "declared_queues": _column(tasks, lambda task: task.declared_queue),
        "declared_priorities": _column(tasks, lambda task: task.declared_priority),
        "min_versions": _column(tasks, lambda task: task.min_version),
    }


def _ids_and_created(rows: Rows) -> list[tuple[str, bool]]:
    return [(str(row[0]), row[1]) for row in rows]


@overload
def octop_enqueue_many(
    tasks: Sequence[NewTask], *, fresh: bool = True, return_ids: Literal[True] = True
) -> Call[list[tuple[str, bool]]]: ...
@overload
def octop_enqueue_many(tasks: Sequence[NewTask], *, fresh: bool = True, return_ids: Literal[False]) -> Call[int]: ...
def octop_enqueue_many(tasks: Sequence[NewTask], *, fresh: bool = True, return_ids: bool = True) -> Call[Any]:
    """Register tasks in the transaction of the connection, all or nothing.

    Args:
        tasks: At most some thousands; stream larger numbers in chunks.
        fresh: The ids were just made, so do not look whether they exist already.
        return_ids: False = only how many there were: the ids of a million tasks need not come back.

    Returns:
        For each task its id and whether it is new, in the order of the input; or how many there were.

    Raises:
        InvalidTaskError: A subclass says which task and what is wrong; nothing was written.
    """
    if return_ids:
        text: LiteralString = "select id::text, created from " + _ENQUEUE_MANY  # noqa: S608 - two literals of ours
        return Call(text, _columns(tasks, fresh=fresh), _ids_and_created)
    text = "select count(*) from " + _ENQUEUE_MANY  # noqa: S608 - as above
    return Call(text, _columns(tasks, fresh=fresh), lambda rows: int(first_value(rows)))


def task_record(row: Sequence[Any]) -> TaskRecord:
    """Return one row of the columns above as a value."""
    return TaskRecord(*row)


def octop_task(id: str) -> Call[TaskRecord | None]:
    """Find one task, finished or not; None if there is none or it is not yours."""
    return Call(
        "select id::text, seq, tenant, queue, lane, task_type, payload::text, status, priority,"
        " to_json(scheduled_at)#>>'{}', to_json(due_at)#>>'{}', to_json(created_at)#>>'{}', to_json(started_at)#>>'{}',"
        " to_json(completed_at)#>>'{}', retry_count, max_retries, last_error, result::text, timeout_seconds, min_version,"
        " to_json(deadline_at)#>>'{}', attempt, lost_count, worker_id::text, blocked_by, tags, meta::text, retry_of::text, created_by"
        " from octop_task(%(id)s::text::uuid)",
        {"id": id},
        lambda rows: task_record(rows[0]) if rows else None,
    )
