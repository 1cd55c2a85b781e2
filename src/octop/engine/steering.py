"""What people look at and change while it runs: queues and task types.

Reads answer rows as JSON objects, as in ``octop.engine.reads``. What has no SQL function of its own is the UPDATE that a DBA types too:
the operator's grants allow it, triggers check it, write it to the audit and let running workers follow within a second.
"""

from collections.abc import Sequence
from typing import Final, LiteralString

from octop.engine.call import Call
from octop.engine.rows import Row, many, one
from octop.model.origins import policy_origins

QUEUE_VALUES: Final = ("worker_limit", "max_retries", "timeout_seconds", "retry_policy")
LIMITS: Final = (
    "global_limit",
    "lane_limit",
    "rate",
    "burst",
    "lane_rate",
    "lane_burst",
    "ordered",
    "lane_weights",
    "ageing_seconds",
    "windows",
    "watermark_high",
    "watermark_low",
    "critical",
    "keep_success_days",
    "keep_cancelled_days",
    "keep_frozen_days",
)
TYPE_VALUES: Final = (
    "queue",
    "priority",
    "max_retries",
    "timeout_seconds",
    "retry_policy",
    "freeze_type_on_exhaustion",
)
"""The columns that an operator may set; what the application declared for them stands in `declared`."""


# --- queues -----------------------------------------------------------------------------------------------------------


# What both reads of queues say of each: the row of the summary, values that are set, and what is used of the limits, from the gates that
# the claim asks.
_QUEUE: Final[LiteralString] = """
               to_jsonb(s) || jsonb_build_object(
                 'oldest_due_seconds', extract(epoch from _octop_now() - s.oldest_due_at),
                 'limits_now', to_jsonb(l) - 'name')
               || (select jsonb_object_agg(k, to_jsonb(q) -> k) from unnest(%(values)s::text[]) k)
"""
_ORIGINS: Final[LiteralString] = """
               jsonb_build_object('declared', coalesce(q.declared, '{}'),
                 'set_by', (select coalesce(jsonb_object_agg(x.key, jsonb_build_object('role', x.role, 'at', x.at)), '{}')
                    from (select distinct on (k.key) k.key, a.role, a.at
                            from octop_audit a cross join unnest(%(values)s::text[]) k (key)
                           where a.subject = s.name and a.action = 'set queue'
                             and a.detail #> array['from', k.key] is distinct from a.detail #> array['to', k.key]
                           order by k.key, a.seq desc) x))
"""
_QUEUES: Final[LiteralString] = """
          from octop_queue_summary s
          left join octop_queues q on q.name = s.name
          left join octop_queue_limits l on l.name = s.name
"""

_COUNTED: Final[LiteralString] = """
        with counted as materialized (
          select x.task_type, count(*) as n
            from (select t.task_type from octop_tasks t
                   where t.status in ('pending', 'failed') and t.queue = %(name)s::text limit 10000) x
           group by x.task_type
        )
        select """
_MORE: Final[LiteralString] = """ || jsonb_build_object(
          'served_by', (select coalesce(jsonb_agg(jsonb_build_object('id', w.id, 'name', w.name, 'host', w.host,
                                        'pid', w.pid, 'state', w.state,
                                        'running', (select count(*) from octop_tasks t where t.status = 'running'
                                                       and t.queue = s.name and t.worker_id = w.id))
                                        order by w.started_at, w.id), '[]')
             from octop_worker_summary w where s.name = any (w.queues) and w.state <> 'silent'),
          'busiest_lane', case when l.lane_limit is not null then (
             select jsonb_build_object('lane', t.lane, 'tenant', t.tenant, 'running', count(*)) from octop_tasks t
              where t.status = 'running' and t.queue = s.name and t.lane <> ''
              group by t.lane, t.tenant order by count(*) desc, t.lane, t.tenant limit 1) end,
          'task_types', (select coalesce(jsonb_agg(jsonb_build_object('name', y.name, 'waiting', coalesce(c.n, 0))
                                                   order by y.name), '[]')
             from (select t.name from octop_task_types t where coalesce(t.queue, 'default') = s.name
                   union select c.task_type from counted c) y
             left join counted c on c.task_type = y.name),
          'ended', (select coalesce(jsonb_object_agg(e.status, e.total), '{}')
             from (select p.status, sum(p.total) as total from octop_throughput p
                    where p.queue = s.name group by p.status) e))
        """


def list_queues(*, with_origins: bool = False) -> Call[list[Row]]:
    """Read all queues with what waits and runs, their values and limits, who paused them, and how many workers serve them.

    Args:
        with_origins: Also ``declared`` and ``set_by``, as in ``queue``; that looks into the audit for each of them.

    Returns:
        The columns of ``octop_queue_summary``, ``oldest_due_seconds``, ``QUEUE_VALUES``, ``LIMITS``, and ``limits_now`` (what holds and is
        used in this moment, as in ``octop_queue_limits``; None = no limits).
    """
    return many(
        "select "
        + _QUEUE
        + " || case when %(with_origins)s::boolean then "
        + _ORIGINS
        + " else '{}' end"
        + _QUEUES
        + " order by s.name",
        {"values": [*QUEUE_VALUES, *LIMITS], "with_origins": with_origins},
    )


def queue(name: str) -> Call[Row | None]:
    """Read all about one queue; None when nothing has ever named it.

    Returns:
        A row of ``list_queues`` with ``declared``, ``set_by`` (by column: role and moment of its last change), ``served_by`` (living
        workers, and how many of its tasks each runs), ``busiest_lane`` (the lane that runs most, where lanes have a limit), ``task_types``
        (those that name the queue as theirs, or wait in it, with counts among the first 10,000) and ``ended`` (totals by status).
    """
    return Call(
        _COUNTED + _QUEUE + " || " + _ORIGINS + _MORE + _QUEUES + " where s.name = %(name)s::text",
        {"name": name, "values": [*QUEUE_VALUES, *LIMITS]},
        one,
    )


def with_origins(row: Row) -> Row:
    """Return a queue that was read ``with_origins`` with who says each of its values: ``origins`` in place of ``set_by``."""
    origins = policy_origins(row, (*QUEUE_VALUES, *LIMITS))
    return {key: value for key, value in row.items() if key != "set_by"} | {"origins": origins}


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
        with was as (
          select to_jsonb(q) as it from octop_queues q where q.name = %(queue)s::text
        ), reset as (
          select octop_set_queue(%(queue)s::text, (select jsonb_object_agg(k, null) from unnest(%(values)s::text[]) k)) as it
            from was
        )
        select exists (select from unnest(%(values)s::text[]) k
                        where nullif(was.it -> k, 'null') is distinct from nullif(reset.it -> k, 'null'))
          from was, reset
        """,
        {"queue": queue, "values": [*QUEUE_VALUES, *LIMITS]},
        lambda rows: bool(rows and rows[0][0]),
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


# --- task types -------------------------------------------------------------------------------------------------------


def list_task_types() -> Call[list[Row]]:
    """Read all task types that a worker declared, a waiting task names or an operator froze.

    Returns:
        ``name``, the columns of ``octop_task_types`` (None for a type that no worker has declared, ``known`` is false),
        ``workers`` (living ones that know it), ``waiting``, ``blocked`` and ``running`` (among the first 10,000 tasks of that
        status each; ``counts_cut`` tells that there are more), ``frozen`` with ``freeze_reason``, ``frozen_by``, ``frozen_at``,
        ``freeze_ends_at``.
    """
    return many(
        """
        with waiting as materialized (
          select t.task_type from octop_tasks t where t.status in ('pending', 'failed') limit 10000
        ), blocked as materialized (
          select t.task_type from octop_tasks t where t.status = 'blocked' limit 10000
        ), running as materialized (
          select t.task_type from octop_tasks t where t.status = 'running' limit 10000
        ), w as (select x.task_type, count(*) as n from waiting x group by x.task_type
        ), b as (select x.task_type, count(*) as n from blocked x group by x.task_type
        ), r as (select x.task_type, count(*) as n from running x group by x.task_type
        ), n as (
          select y.name from octop_task_types y
          union select w.task_type from w union select b.task_type from b union select r.task_type from r
          union select h.target from octop_holds h where h.kind = 'task_type'
        )
        select jsonb_build_object(
          'name', n.name, 'known', y.name is not null,
          'queue', y.queue, 'priority', y.priority, 'max_retries', y.max_retries, 'timeout_seconds', y.timeout_seconds,
          'retry_policy', y.retry_policy, 'freeze_type_on_exhaustion', y.freeze_type_on_exhaustion,
          'run_in', y.run_in, 'description', y.description,
          'declared', coalesce(y.declared, '{}'),
          'workers', (select count(*) from octop_workers k where n.name = any (k.task_types) and not k.draining
                       and k.beat_at > _octop_now()
                           - make_interval(secs => _octop_setting('worker.lease_seconds')::double precision)),
          'waiting', coalesce(w.n, 0), 'blocked', coalesce(b.n, 0), 'running', coalesce(r.n, 0),
          'counts_cut', (select count(*) from waiting) >= 10000 or (select count(*) from blocked) >= 10000
                        or (select count(*) from running) >= 10000,
          'frozen', h.id is not null, 'freeze_reason', h.reason, 'frozen_by', h.author, 'frozen_at', h.created_at,
          'freeze_ends_at', h.ends_at)
          from n
          left join octop_task_types y on y.name = n.name
          left join lateral (select x.* from octop_holds x where x.kind = 'task_type' and x.target = n.name
                                and coalesce(x.ends_at > _octop_now(), true) order by x.cause <> 'order', x.id limit 1) h on true
          left join w on w.task_type = n.name
          left join b on b.task_type = n.name
          left join r on r.task_type = n.name
         order by n.name
        """
    )


def task_type_is_declared(name: str) -> Call[bool]:
    """Tell whether a worker has declared this task type."""
    return Call(
        "select exists (select from octop_task_types y where y.name = %(name)s::text)",
        {"name": name},
        lambda rows: bool(rows[0][0]),
    )


def task_type_details(name: str) -> Call[Row]:
    """Read what the list leaves out of one task type: ``set_by`` (by column) and ``known_by`` (living workers, with versions)."""
    return Call(
        """
        select jsonb_build_object(
          'set_by', (select coalesce(jsonb_object_agg(x.key, jsonb_build_object('role', x.role, 'at', x.at)), '{}')
             from (select distinct on (k.key) k.key, a.role, a.at
                     from octop_audit a cross join unnest(%(values)s::text[]) k (key)
                    where a.subject = %(name)s::text and a.action = 'set task type'
                      and a.detail #> array['from', k.key] is distinct from a.detail #> array['to', k.key]
                    order by k.key, a.seq desc) x),
          'known_by', (select coalesce(jsonb_agg(jsonb_build_object('id', w.id, 'name', w.name, 'host', w.host,
                                       'pid', w.pid, 'state', w.state, 'queues', w.queues,
                                       'version', coalesce(k.versions[array_position(k.task_types, %(name)s::text)], 1))
                                       order by w.started_at, w.id), '[]')
             from octop_worker_summary w join octop_workers k on k.id = w.id
            where %(name)s::text = any (k.task_types) and w.state <> 'silent'))
        """,
        {"name": name, "values": list(TYPE_VALUES)},
        lambda rows: one(rows) or {},
    )


def set_task_type(
    name: str,
    *,
    set_: Sequence[str],
    queue: str | None = None,
    priority: int | None = None,
    max_retries: int | None = None,
    timeout_seconds: float | None = None,
    retry_policy: str | None = None,
    freeze_type_on_exhaustion: bool | None = None,
) -> Call[Row | None]:
    """Set values of a task type for tasks that name none; those that ``set_`` does not name stay.

    Args:
        name: A type that a worker has declared.
        set_: Which of ``TYPE_VALUES`` to set; None for one of them = what the application declared, else nothing.
        queue: Where its tasks go from now on.
        priority: 0 runs first, 9 last.
        max_retries: Further tries, 0 to 1,000.
        timeout_seconds: Time limit of one attempt, above 0, at most 31 days.
        retry_policy: JSON text.
        freeze_type_on_exhaustion: Freeze the type when one of its tasks uses up its retries.

    Returns:
        The values that hold now; None when no worker has declared such a type.

    Raises:
        InvalidOptionError: A value is out of bounds.
    """
    return Call(
        """
        update octop_task_types y set
          queue = case when 'queue' = any (%(set)s::text[])
            then coalesce(%(queue)s::text, y.declared ->> 'queue') else y.queue end,
          priority = case when 'priority' = any (%(set)s::text[])
            then coalesce(%(priority)s::integer, (y.declared ->> 'priority')::integer) else y.priority end,
          max_retries = case when 'max_retries' = any (%(set)s::text[])
            then coalesce(%(max_retries)s::integer, (y.declared ->> 'max_retries')::integer) else y.max_retries end,
          timeout_seconds = case when 'timeout_seconds' = any (%(set)s::text[])
            then coalesce(%(timeout_seconds)s::float8, (y.declared ->> 'timeout_seconds')::float8) else y.timeout_seconds end,
          retry_policy = case when 'retry_policy' = any (%(set)s::text[])
            then coalesce(%(retry_policy)s::text::jsonb, nullif(y.declared -> 'retry_policy', 'null')) else y.retry_policy end,
          freeze_type_on_exhaustion = case when 'freeze_type_on_exhaustion' = any (%(set)s::text[])
            then coalesce(%(freezes)s::boolean, (y.declared ->> 'freeze_type_on_exhaustion')::boolean)
            else y.freeze_type_on_exhaustion end
         where y.name = %(name)s::text
        returning jsonb_build_object('queue', y.queue, 'priority', y.priority, 'max_retries', y.max_retries,
                                     'timeout_seconds', y.timeout_seconds, 'retry_policy', y.retry_policy,
                                     'freeze_type_on_exhaustion', y.freeze_type_on_exhaustion)
        """,
        {
            "freezes": freeze_type_on_exhaustion,
            "name": name,
            "set": list(set_),
            "queue": queue,
            "priority": priority,
            "max_retries": max_retries,
            "timeout_seconds": timeout_seconds,
            "retry_policy": retry_policy,
        },
        one,
    )


def reset_task_type(name: str) -> Call[bool | None]:
    """Bring back what was declared for a task type; answer whether that was anything, None when there is no such type."""
    return Call(
        """
        with it as (
          select y.name, (y.queue, y.priority, y.max_retries, y.timeout_seconds, y.retry_policy,
                          y.freeze_type_on_exhaustion) is distinct from
                 (y.declared ->> 'queue', (y.declared ->> 'priority')::smallint, (y.declared ->> 'max_retries')::integer,
                  (y.declared ->> 'timeout_seconds')::float8, nullif(y.declared -> 'retry_policy', 'null'),
                  (y.declared ->> 'freeze_type_on_exhaustion')::boolean) as differs
            from octop_task_types y where y.name = %(name)s::text
        ), done as (
          update octop_task_types y
             set queue = y.declared ->> 'queue', priority = (y.declared ->> 'priority')::smallint,
                 max_retries = (y.declared ->> 'max_retries')::integer,
                 timeout_seconds = (y.declared ->> 'timeout_seconds')::float8,
                 retry_policy = nullif(y.declared -> 'retry_policy', 'null'),
                 freeze_type_on_exhaustion = (y.declared ->> 'freeze_type_on_exhaustion')::boolean
            from it where y.name = it.name and it.differs
        )
        select it.differs from it
        """,
        {"name": name},
        lambda rows: bool(rows[0][0]) if rows else None,
    )


def forget_task_type(name: str) -> Call[bool]:
    """Delete the row of a task type, if no worker, no unfinished or frozen task and no freeze names it; answer whether it did.

    Raises:
        NotPermittedError: The caller may not delete it.
    """
    return Call(
        """
        delete from octop_task_types y where y.name = %(name)s::text
           and not exists (select from octop_workers w where y.name = any (w.task_types))
           and not exists (select from octop_holds h where h.kind = 'task_type' and h.target = y.name)
           and not exists (select from octop_tasks t where t.task_type = y.name
                            and t.status in ('pending', 'failed', 'running', 'blocked', 'frozen'))
        returning y.name
        """,
        {"name": name},
        bool,
    )
