"""What waits, read with its payloads: for ``octop check``, which compares it with the code, and for ``octop.testing``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg.rows import tuple_row

from octop.engine.call import Call, Rows, qualified, schema_of
from octop.engine.failures import translated
from octop.engine.rows import Row, objects

PAGE_ROWS: Final = 200
"""Payloads may have a megabyte each, so few of them are in memory at once."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Tasks of one type whose payloads have the same keys, with values of the same JSON types.

    Attributes:
        task_type: Name of the type.
        keys: Names in the payload.
        min_version: Smallest version of the code that may run them; None = any.
        count: How many tasks.
        first_id: The oldest of them, by the moment in its id.
    """

    task_type: str
    keys: tuple[str, ...]
    min_version: int | None
    count: int
    first_id: str


@contextmanager
def _pages(connection: Connection[Any], call: Call[Any]) -> Iterator[Iterator[tuple[Any, ...]]]:
    """Read the rows of a call through a cursor of the server: a page at a time is in memory."""
    text = qualified(call.text, schema_of(connection))
    try:
        with connection.transaction(), connection.cursor("octop_check", row_factory=tuple_row) as cursor:
            cursor.itersize = PAGE_ROWS
            cursor.execute(text, call.values or None)
            yield iter(cursor)
    except psycopg.Error as error:
        raise translated(error) from error


@contextmanager
def shapes(connection: Connection[Any]) -> Iterator[Iterator[Shape]]:
    """Read the distinct shapes of all payloads that are unfinished or frozen. PostgreSQL sorts them out; a million take seconds."""
    call: Call[Rows] = Call(
        # Two payloads with the same keys hold them in the same order: jsonb sorts them.
        "select t.task_type, array(select jsonb_object_keys(t.payload)) as keys, t.min_version,"
        '       count(*), min(t.id::text collate "C"),'
        "       array(select jsonb_typeof(e.value) from jsonb_each(t.payload) e) as kinds"
        "  from octop_tasks t where t.status in ('pending', 'running', 'failed', 'blocked', 'frozen')"
        " group by 1, 2, 3, 6"
    )
    with _pages(connection, call) as rows:
        yield (Shape(row[0], tuple(row[1]), row[2], row[3], row[4]) for row in rows)


@contextmanager
def sample(
    connection: Connection[Any], per_type: int | None, counts: dict[str, int], ids: Sequence[str]
) -> Iterator[Iterator[tuple[str, str, str]]]:
    """Read payloads: id, task type and JSON text.

    Which ones is decided by a hash of the id, so that two runs look at the same tasks.

    Args:
        connection: Of ``octop.engine.connect``.
        per_type: About so many of each task type; all where there are no more; None = all of them.
        counts: How many there are by task type.
        ids: These in any case.
    """
    types = list(counts)
    # a little more than asked for: the hash spreads evenly, not exactly
    shares = [2.0 if per_type is None or counts[name] <= per_type else 1.1 * per_type / counts[name] for name in types]
    call: Call[Rows] = Call(
        "select t.id::text, t.task_type, t.payload::text from octop_tasks t"
        "  left join unnest(%(types)s::text[], %(shares)s::float8[]) s (task_type, share) on s.task_type = t.task_type"
        " where t.status in ('pending', 'running', 'failed', 'blocked', 'frozen')"
        "   and ((uuid_hash_extended(t.id, 0) & 1073741823) < s.share * 1073741824"
        "        or t.id = any (%(ids)s::text[]::uuid[]))",
        {"types": types, "shares": shares, "ids": list(ids)},
    )
    with _pages(connection, call) as rows:
        yield ((row[0], row[1], row[2]) for row in rows)


@contextmanager
def ids_of(
    connection: Connection[Any], keys_by_type: Sequence[tuple[str, Sequence[str]]]
) -> Iterator[Iterator[tuple[str, str, tuple[str, ...]]]]:
    """Read the ids of the tasks whose payloads have exactly these keys: id, task type, keys.

    Args:
        connection: Of ``octop.engine.connect``.
        keys_by_type: Task type and keys, at most some hundreds.
    """
    wanted = [{"task_type": name, "keys": list(keys)} for name, keys in keys_by_type]
    call: Call[Rows] = Call(
        "select t.id::text, t.task_type, w.keys from octop_tasks t"
        "  join jsonb_to_recordset(%(wanted)s::text::jsonb) w (task_type text, keys text[])"
        "    on w.task_type = t.task_type and w.keys = array(select jsonb_object_keys(t.payload))"
        " where t.status in ('pending', 'running', 'failed', 'blocked', 'frozen')",
        {"wanted": json.dumps(wanted)},
    )
    with _pages(connection, call) as rows:
        yield ((row[0], row[1], tuple(row[2])) for row in rows)


def living_workers() -> Call[list[Row]]:
    """Read the workers that live: id, name, host, pid, version, queues, task_types, versions (of the code of these types)."""
    return Call(
        "select jsonb_build_object('id', w.id, 'name', coalesce(nullif(w.name, ''), w.host || ':' || w.pid),"
        "         'version', w.version, 'queues', w.queues, 'task_types', w.task_types, 'versions', w.versions)"
        "  from octop_workers w where not w.draining"
        "   and w.beat_at > _octop_now() - make_interval(secs => _octop_setting('worker.lease_seconds')::double precision)"
        " order by w.started_at, w.id",
        {},
        objects,
    )


def queues_of_types() -> Call[Mapping[str, str]]:
    """Read the queue of each task type for which an operator or the code named one."""
    return Call("select y.name, y.queue from octop_task_types y where y.queue is not null", {}, dict)


def unfinished(limit: int) -> Call[list[Row]]:
    """Read what is not finished, in the order of enqueue, with payloads.

    Args:
        limit: At most so many.
    """
    return Call(
        "select to_jsonb(x) from ("
        " select t.id, t.task_type, t.payload, t.status, t.queue, t.lane, t.tenant, t.priority, t.scheduled_at, t.max_retries,"
        "        t.timeout_seconds, t.tags, t.meta, t.attempt, extract(epoch from t.scheduled_at - _octop_now()) as due_in_seconds"
        "   from octop_tasks t where t.status in ('pending', 'running', 'failed', 'blocked')"
        "  order by t.seq limit %(limit)s) x",
        {"limit": limit},
        objects,
    )


def startable(task_types: Sequence[str]) -> Call[list[tuple[str, int, str | None]]]:
    """Read by queue how many tasks of these types could start now, and when the next one is due after that.

    Args:
        task_types: Names.

    Returns:
        Queue, tasks that are due, next due time as ISO 8601 text or None; without what is held or limited to nothing.
    """
    return Call(
        "select t.queue, count(*) filter (where t.scheduled_at <= _octop_now()),"
        "       to_char(min(t.scheduled_at) filter (where t.scheduled_at > _octop_now()) at time zone 'UTC',"
        "               'YYYY-MM-DD\"T\"HH24:MI:SS.US+00:00')"
        "  from octop_tasks t"
        " where t.status in ('pending', 'failed') and t.task_type = any (%(types)s::text[])"
        "   and not exists (select from octop_holds h"
        "                    where coalesce(h.ends_at > _octop_now(), true)"
        "                      and ((h.kind, h.target) in (('queue', t.queue), ('task_type', t.task_type), ('tenant', t.tenant))"
        "                           or (h.kind, h.target, h.queue, h.tenant) = ('lane', t.lane, t.queue, t.tenant)))"
        "   and not exists (select from octop_queues q where q.name = t.queue and q.worker_limit = 0)"
        " group by t.queue order by t.queue",
        {"types": list(task_types)},
        lambda rows: [(row[0], row[1], row[2]) for row in rows],
    )
