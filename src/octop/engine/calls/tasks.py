"""Register tasks and find them."""

from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final, Literal, LiteralString, overload

from octop.engine.array_text import array_text
from octop.engine.call import Call, Rows, first_value
from octop.engine.rows import Row, many
from octop.model.work import NewTask, TaskRecord

_ENQUEUE_MANY: Final = (
    "octop_enqueue_many(%(task_types)s::text::text[], %(payloads)s::text::text[], %(ids)s::text::uuid[],"
    " %(queues)s::text::text[], %(lanes)s::text::text[], %(tenants)s::text::text[], %(priorities)s::text::integer[],"
    " %(scheduled_at)s::text::timestamptz[], %(delay_seconds)s::text::double precision[], %(max_retries)s::text::integer[],"
    " %(timeout_seconds)s::text::double precision[], %(retry_policies)s::text::text[], %(tags)s::text::text[], %(metas)s::text::text[],"
    " %(retry_of)s::text::uuid[], %(fresh)s::boolean, %(declared_queues)s::text::text[], %(declared_priorities)s::text::integer[],"
    " %(min_versions)s::text::integer[])"
)
# Tasks that may meet others with the same key: what became of each must be told.
_ENQUEUE_KEYED: Final = (
    "octop_enqueue_many(%(task_types)s::text::text[], %(payloads)s::text::text[], %(ids)s::text::uuid[],"
    " %(queues)s::text::text[], %(lanes)s::text::text[], %(tenants)s::text::text[], %(priorities)s::text::integer[],"
    " %(scheduled_at)s::text::timestamptz[], %(delay_seconds)s::text::double precision[], %(max_retries)s::text::integer[],"
    " %(timeout_seconds)s::text::double precision[], %(retry_policies)s::text::text[], %(tags)s::text::text[], %(metas)s::text::text[],"
    " %(retry_of)s::text::uuid[], %(fresh)s::boolean, %(declared_queues)s::text::text[], %(declared_priorities)s::text::integer[],"
    " %(min_versions)s::text::integer[], %(unique_by)s::text::text[], %(unique_keys)s::text::text[], %(unique_scopes)s::text::text[],"
    " %(on_conflicts)s::text::text[])"
)
# What most enqueues say. The database reads the text of a statement anew each time, and a tenth of a single enqueue would go for
# parameters that are null.
_ENQUEUE_PLAIN: Final = (
    "octop_enqueue_many(%(task_types)s::text::text[], %(payloads)s::text::text[], %(ids)s::text::uuid[], fresh => %(fresh)s::boolean,"
    " declared_queues => %(declared_queues)s::text::text[], declared_priorities => %(declared_priorities)s::text::integer[])"
)
_PLAIN: Final = {"task_types", "payloads", "ids", "fresh", "declared_queues", "declared_priorities"}
_COUNTED: Final[LiteralString] = "select count(*) from " + _ENQUEUE_MANY  # noqa: S608 - two literals of ours
_COUNTED_PLAIN: Final[LiteralString] = "select count(*) from " + _ENQUEUE_PLAIN  # noqa: S608 - as above
_COUNTED_KEYED: Final[LiteralString] = "select count(*) filter (where created) from " + _ENQUEUE_KEYED  # noqa: S608 - as above
_WITH_IDS_KEYED: Final[LiteralString] = "select id::text, created from " + _ENQUEUE_KEYED  # noqa: S608 - as above
_WITH_IDS: Final[LiteralString] = "select id::text, created from " + _ENQUEUE_MANY  # noqa: S608 - as above
_PARAMETERS: Final = {
    "task_type": "task_types",
    "payload": "payloads",
    "id": "ids",
    "queue": "queues",
    "lane": "lanes",
    "tenant": "tenants",
    "priority": "priorities",
    "scheduled_at": "scheduled_at",
    "delay_seconds": "delay_seconds",
    "max_retries": "max_retries",
    "timeout_seconds": "timeout_seconds",
    "retry_policy": "retry_policies",
    "tags": "tags",
    "meta": "metas",
    "retry_of": "retry_of",
    "declared_queue": "declared_queues",
    "declared_priority": "declared_priorities",
    "min_version": "min_versions",
    "unique_by": "unique_by",
    "unique_key": "unique_keys",
    "unique_scope": "unique_scopes",
    "on_conflict": "on_conflicts",
}
"""The array for each field of a task."""


def _columns(tasks: Sequence[NewTask], *, fresh: bool) -> dict[str, object]:
    """Return an array for each field, or None where all tasks leave it unset: then nothing is sent."""
    found: dict[str, object] = {"fresh": fresh}
    for field, column in zip(NewTask._fields, zip(*tasks, strict=True) if tasks else repeat(()), strict=False):
        said = field not in NewTask._field_defaults or column.count(NewTask._field_defaults[field]) < len(column)
        found[_PARAMETERS[field]] = array_text(column) if said else None
    return found


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
        For each task its id and whether it is new, in the order of the input; or how many there were, of tasks with unique
        keys how many are new. A task that another one stands in for has that one's id.

    Raises:
        InvalidTaskError: A subclass says which task and what is wrong; nothing was written.
    """
    columns = _columns(tasks, fresh=fresh)
    if columns["unique_by"] is not None or columns["unique_keys"] is not None:
        if not return_ids:
            return Call(_COUNTED_KEYED, columns, lambda rows: int(first_value(rows)))
        return Call(_WITH_IDS_KEYED, columns, _ids_and_created)
    counted = _COUNTED_PLAIN if all(columns[name] is None for name in columns.keys() - _PLAIN) else _COUNTED
    if not return_ids:
        return Call(counted, columns, lambda rows: int(first_value(rows)))
    if fresh:  # the ids are the tasks' own, and all are new: the database need not say so
        return Call(counted, columns, lambda _: [(task.id, True) for task in tasks])
    return Call(_WITH_IDS, columns, _ids_and_created)


def repeatable(call: Call[Any]) -> Call[list[tuple[str, bool]]]:
    """Return the form of an enqueue that may be sent when nobody knows what became of the first one: it looks for the ids."""
    keyed = call.values["unique_by"] is not None or call.values["unique_keys"] is not None
    return Call(_WITH_IDS_KEYED if keyed else _WITH_IDS, {**call.values, "fresh": False}, _ids_and_created)


def task_record(row: Sequence[Any]) -> TaskRecord:
    """Return one row of the columns above as a value."""
    return TaskRecord(*row)


def octop_why(task_id: str) -> Call[list[Row]]:
    """Ask why a task does not run, or what happens to it next.

    Returns:
        Rows of ``reason``, ``message``, ``detail`` and ``advice``; what decides comes first.
    """
    return many("select to_jsonb(w) from octop_why(%(id)s::text::uuid) w", {"id": task_id})


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
