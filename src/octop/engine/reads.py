"""What the doors show: reads only, each a Call that answers rows as JSON objects (ids and moments as text).

A row is made into JSON by PostgreSQL, so that the command, the dashboard and `--json` show the same values.
"""

import json
from collections.abc import Mapping
from typing import Any, LiteralString

from octop.engine.call import Call, Rows

Row = dict[str, Any]


def _objects(rows: Rows) -> list[Row]:
    return [row[0] if isinstance(row[0], dict) else json.loads(row[0]) for row in rows]


def _one(rows: Rows) -> Row | None:
    found = _objects(rows)
    return found[0] if found else None


def _many(text: LiteralString, values: Mapping[str, object] | None = None) -> Call[list[Row]]:
    return Call(text, values or {}, _objects)


def summary() -> Call[list[Row]]:
    """Count tasks by status: status, count, earliest_scheduled, latest_scheduled, avg_delay_seconds."""
    return _many("select to_jsonb(s) from octop_task_summary s")


def failed_tasks(limit: int = 10) -> Call[list[Row]]:
    """Read the newest tasks that wait for a retry or are frozen."""
    # Two reads, each along its own index; "in (failed, frozen)" would walk all that is live.
    return _many(
        """
        select to_jsonb(x) || jsonb_build_object('age_seconds', extract(epoch from _octop_now() - x.created_at)) from (
          (select t.id, t.task_type, t.queue, t.status, t.attempt, t.retry_count, t.scheduled_at, t.created_at, t.last_error
             from octop_tasks t where t.status = 'failed' order by t.created_at desc limit %(limit)s)
          union all
          (select t.id, t.task_type, t.queue, t.status, t.attempt, t.retry_count, t.scheduled_at, t.created_at, t.last_error
             from octop_tasks t where t.status = 'frozen' order by t.created_at desc limit %(limit)s)
          order by created_at desc limit %(limit)s) x
        """,
        {"limit": limit},
    )


def latest_failures(limit: int = 20) -> Call[list[Row]]:
    """Read the latest attempts that failed, timed out or were lost, at most 100."""
    return _many("select to_jsonb(f) from octop_latest_failures f limit %(limit)s", {"limit": limit})


def list_tasks(
    *,
    status: str | None = None,
    queue: str | None = None,
    task_type: str | None = None,
    tenant: str | None = None,
    since_seconds: float | None = None,
    limit: int = 50,
) -> Call[list[Row]]:
    """Read the latest tasks, by the moment in their id, without payload and result.

    Args:
        status: Only this status; with one, only the partitions that can hold it are read.
        queue: Only this queue.
        task_type: Only this type.
        tenant: Only this tenant.
        since_seconds: Only those registered within so many seconds.
        limit: At most so many.
    """
    return _many(
        """
        select to_jsonb(x) from (
          select t.id, t.task_type, t.queue, t.lane, t.tenant, t.status, t.priority, t.scheduled_at, t.created_at,
                 t.started_at, t.completed_at, t.attempt, t.retry_count, t.last_error, t.blocked_by, t.tags
            from octop_tasks t
           where (%(status)s::text is null or t.status = %(status)s::text)
             and (%(queue)s::text is null or t.queue = %(queue)s::text)
             and (%(task_type)s::text is null or t.task_type = %(task_type)s::text)
             and (%(tenant)s::text is null or t.tenant = %(tenant)s::text)
             and (%(since)s::float8 is null or t.created_at >= _octop_now() - make_interval(secs => %(since)s::float8))
           order by t.id desc
           limit %(limit)s) x
        """,
        {
            "status": status,
            "queue": queue,
            "task_type": task_type,
            "tenant": tenant,
            "since": since_seconds,
            "limit": limit,
        },
    )


def task(task_id: str) -> Call[Row | None]:
    """Read one task by its id, wherever it is; None when there is none or it is not the caller's."""
    return Call("select to_jsonb(t) from octop_task(%(id)s::uuid) t", {"id": task_id}, _one)


def ids_like(first: str, last: str, limit: int = 11) -> Call[list[str]]:
    """Find the tasks whose id lies between two, both included: those that begin with the same digits."""
    return Call(
        "select t.id::text from octop_tasks t where t.id >= %(first)s::text::uuid and t.id <= %(last)s::text::uuid"
        " order by t.id limit %(limit)s",
        {"first": first, "last": last, "limit": limit},
        lambda rows: [row[0] for row in rows],
    )


def prospects(task_id: str) -> Call[Row | None]:
    """Read what decides about the next step of a task: holds, workers, time left.

    Returns:
        due_in_seconds, deadline_in_seconds, max_retries (the one that holds), hold_reason (None = its queue is not
        paused), workers (how many living ones would take it), worker_name.
    """
    return Call(
        """
        select jsonb_build_object(
          'due_in_seconds', extract(epoch from t.scheduled_at - _octop_now()),
          'deadline_in_seconds', extract(epoch from t.deadline_at - _octop_now()),
          'max_retries', coalesce(t.max_retries, y.max_retries, q.max_retries,
                                  _octop_setting('task.default_max_retries')),
          'hold_reason', (select h.reason from octop_holds h where h.kind = 'queue' and h.target = t.queue),
          'workers', (select count(*) from octop_workers w
                       where t.queue = any (w.queues) and t.task_type = any (w.task_types) and not w.draining
                         and w.beat_at > _octop_now()
                             - make_interval(secs => _octop_setting('worker.lease_seconds')::double precision)),
          'worker_name', (select coalesce(nullif(w.name, ''), w.host || ':' || w.pid)
                            from octop_workers w where w.id = t.worker_id))
          from octop_task(%(id)s::uuid) t
          left join octop_task_types y on y.name = t.task_type
          left join octop_queues q on q.name = t.queue
        """,
        {"id": task_id},
        _one,
    )


def attempts_of(task_id: str) -> Call[list[Row]]:
    """Read the ended attempts of a task that were no plain success, the first one first."""
    return _many(
        """
        select to_jsonb(a) || jsonb_build_object('seconds', extract(epoch from a.ended_at - a.started_at))
          from octop_attempts a where a.task_id = %(id)s::uuid order by a.attempt
        """,
        {"id": task_id},
    )


def list_queues() -> Call[list[Row]]:
    """Read all queues with what waits and runs, who paused them, and how many workers serve them."""
    return _many(
        """
        select to_jsonb(q)
               || jsonb_build_object('oldest_due_seconds', extract(epoch from _octop_now() - q.oldest_due_at))
          from octop_queue_summary q order by q.name
        """
    )


def queue_is_known(queue: str) -> Call[bool]:
    """Tell whether a task, a worker, a task type or an operator has named this queue before."""
    return Call(
        """
        select exists (select from octop_queues q where q.name = %(queue)s::text)
            or exists (select from octop_task_types y where y.queue = %(queue)s::text)
            or exists (select from octop_workers w where %(queue)s::text = any (w.queues))
            or exists (select from octop_tasks t where t.status in ('pending', 'failed') and t.queue = %(queue)s::text)
            or exists (select from octop_tasks t where t.status = 'running' and t.queue = %(queue)s::text)
            or exists (select from octop_tasks t where t.status = 'blocked' and t.queue = %(queue)s::text)
            or exists (select from octop_throughput s where s.queue = %(queue)s::text and s.total > 0)
        """,
        {"queue": queue},
        lambda rows: bool(rows[0][0]),
    )


def reset_queue(queue: str) -> Call[bool]:
    """Bring back what was declared for a queue, in place of what operators set; answer whether that was anything."""
    return Call(
        """
        update octop_queues q
           set worker_limit = (q.declared ->> 'worker_limit')::integer,
               max_retries = (q.declared ->> 'max_retries')::integer,
               timeout_seconds = (q.declared ->> 'timeout_seconds')::double precision,
               retry_policy = nullif(q.declared -> 'retry_policy', 'null')
         where q.name = %(queue)s::text
           and (q.worker_limit, q.max_retries, q.timeout_seconds, q.retry_policy) is distinct from
               ((q.declared ->> 'worker_limit')::integer, (q.declared ->> 'max_retries')::integer,
                (q.declared ->> 'timeout_seconds')::double precision, nullif(q.declared -> 'retry_policy', 'null'))
         returning q.name
        """,
        {"queue": queue},
        bool,
    )


def queue_is_unused(queue: str) -> Call[bool]:
    """Tell whether the row of a queue can go: nothing names it, and the caller may delete it."""
    return Call(
        """
        select has_table_privilege(q.tableoid, 'delete')
           and not exists (select from octop_task_types y where y.queue = %(queue)s::text)
           and not exists (select from octop_workers w where %(queue)s::text = any (w.queues))
           and not exists (select from octop_holds h where h.kind = 'queue' and h.target = %(queue)s::text)
           and not exists (select from octop_tasks t where t.status in ('pending', 'failed') and t.queue = %(queue)s::text)
           and not exists (select from octop_tasks t where t.status = 'running' and t.queue = %(queue)s::text)
           and not exists (select from octop_tasks t where t.status in ('blocked', 'frozen') and t.queue = %(queue)s::text)
          from octop_queues q where q.name = %(queue)s::text
        """,
        {"queue": queue},
        lambda rows: bool(rows and rows[0][0]),
    )


def forget_queue(queue: str) -> Call[bool]:
    """Delete the row of a queue that nothing uses; answer whether there was one."""
    return Call("delete from octop_queues q where q.name = %(queue)s::text returning q.name", {"queue": queue}, bool)


def list_workers() -> Call[list[Row]]:
    """Read all registered workers, the oldest first."""
    return _many(
        """
        select to_jsonb(w) || jsonb_build_object('up_seconds', extract(epoch from _octop_now() - w.started_at))
          from octop_worker_summary w order by w.started_at, w.id
        """
    )


def running_tasks(limit: int = 100) -> Call[list[Row]]:
    """Read what runs now, the longest running first."""
    return _many(
        "select to_jsonb(r) from (select * from octop_running_tasks order by started_at limit %(limit)s) r",
        {"limit": limit},
    )


def running_by_type() -> Call[list[Row]]:
    """Count what runs now by worker and task type: worker_id, task_type, count, running_seconds (of the longest)."""
    return _many(
        """
        select to_jsonb(x) from (
          select r.worker_id, r.task_type, count(*) as count, max(r.running_seconds) as running_seconds
            from octop_running_tasks r group by r.worker_id, r.task_type order by 4 desc) x
        """
    )


def throughput() -> Call[list[Row]]:
    """Read how many tasks have ended, by queue and status: the difference of two looks is the rate."""
    return _many("select to_jsonb(t) from octop_throughput t")


def list_config() -> Call[list[Row]]:
    """Read all settings: key, value, default, minimum, maximum, kind, alias_of, description, updated_at."""
    return _many(
        """
        select jsonb_build_object('key', k.key, 'value', coalesce(c.value -> 'value', k.default_value),
                                  'default', k.default_value,
                                  'minimum', k.minimum, 'maximum', k.maximum, 'kind', k.kind, 'alias_of', k.alias_of,
                                  'description', k.description, 'updated_at', c.updated_at)
          from octop_config_keys() k left join octop_config c on c.key = k.key order by k.key
        """
    )


def audit(limit: int = 50) -> Call[list[Row]]:
    """Read the latest acts of people and programs, the latest first."""
    return _many(
        "select to_jsonb(a) from (select * from octop_audit order by seq desc limit %(limit)s) a", {"limit": limit}
    )
