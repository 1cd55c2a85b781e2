"""Workers, queues, task types and tasks, as a viewer may see them; each count is bounded."""

from octop.engine.call import Call
from octop.engine.rows import Row, objects, only


def workers() -> Call[list[Row]]:
    """Read all workers with what they run: id, name, host, pid, version, queues, state, silent_seconds, running."""
    return Call("select to_jsonb(w) from octop_worker_summary w order by w.started_at, w.id", {}, objects)


def lease_seconds() -> Call[float]:
    """Read how long a worker may be silent."""
    return Call("select _octop_setting('worker.lease_seconds')::float8", {}, lambda rows: float(rows[0][0]))


def unserved(most: int = 10_000) -> Call[list[Row]]:
    """Read the queues with due tasks that no living worker serves and nobody paused: name, due, oldest_due_seconds.

    Args:
        most: Count at most so many tasks of each queue.
    """
    return Call(
        """
        with recursive q (name) as (
          (select t.queue from octop_tasks t where t.status in ('pending', 'failed') order by t.queue limit 1)
          union all
          select (select t.queue from octop_tasks t where t.status in ('pending', 'failed') and t.queue > q.name order by t.queue limit 1)
            from q where q.name is not null),
        served as (
          select distinct s.queue from octop_workers w, unnest(w.queues) s (queue)
           where not w.draining and w.beat_at > _octop_now() - make_interval(secs => _octop_setting('worker.lease_seconds')::float8))
        select jsonb_build_object('name', q.name, 'due', d.n, 'oldest_due_seconds', extract(epoch from _octop_now() - d.oldest))
          from q cross join lateral (
            select count(*) as n, min(x.scheduled_at) as oldest from (
              select t.scheduled_at from octop_tasks t
               where t.status in ('pending', 'failed') and t.queue = q.name and t.scheduled_at <= _octop_now() limit %(most)s::integer) x) d
         where q.name is not null and q.name not in (select s.queue from served s) and d.n > 0
           and not exists (select from octop_holds h where h.kind = 'queue' and h.target = q.name)
         order by d.oldest
        """,
        {"most": most},
        objects,
    )


def stopped(most: int = 10_000) -> Call[list[Row]]:
    """Read the queues with due tasks whose limit is 0 and that nobody paused: name, due, oldest_due_seconds.

    Args:
        most: Count at most so many tasks of each queue.
    """
    return Call(
        """
        select jsonb_build_object('name', q.name, 'due', d.n, 'oldest_due_seconds', extract(epoch from _octop_now() - d.oldest))
          from octop_queues q cross join lateral (
            select count(*) as n, min(x.scheduled_at) as oldest from (
              select t.scheduled_at from octop_tasks t
               where t.status in ('pending', 'failed') and t.queue = q.name and t.scheduled_at <= _octop_now() limit %(most)s::integer) x) d
         where q.worker_limit = 0 and d.n > 0
           and not exists (select from octop_holds h where h.kind = 'queue' and h.target = q.name)
         order by d.oldest
        """,
        {"most": most},
        objects,
    )


def parked(most: int = 10_000) -> Call[list[Row]]:
    """Read which types of parked tasks no living worker of their queue knows: type, queue, version, count, held, workers.

    Args:
        most: Look at so many parked tasks.
    """
    return Call(
        """
        with alive as (
          select w.queues, w.task_types, w.versions from octop_workers w
           where not w.draining and w.beat_at > _octop_now() - make_interval(secs => _octop_setting('worker.lease_seconds')::float8)),
        parked as (
          select t.task_type, t.queue, t.min_version from octop_tasks t
           where t.status = 'blocked' and t.blocked_by ~ '^(task_type|version):' limit %(most)s::integer),
        grouped as (select p.task_type, p.queue, p.min_version, count(*) as n from parked p group by 1, 2, 3)
        select jsonb_build_object('type', g.task_type, 'queue', g.queue, 'version', g.min_version, 'count', g.n,
                                  'held', exists (select from octop_holds h where h.kind = 'task_type' and h.target = g.task_type),
                                  'workers', (select count(*) from alive a where g.queue = any (a.queues)))
          from grouped g
         where not exists (
           select from alive a where g.queue = any (a.queues) and g.task_type = any (a.task_types)
              and (g.min_version is null or g.min_version <= coalesce(a.versions[array_position(a.task_types, g.task_type)], 1)))
            or exists (select from octop_holds h where h.kind = 'task_type' and h.target = g.task_type)
         order by g.n desc, g.task_type, g.queue
        """,
        {"most": most},
        objects,
    )


def holds() -> Call[list[Row]]:
    """Read all holds: kind, target, reason, author, seconds."""
    return Call(
        "select to_jsonb(h) || jsonb_build_object('seconds', extract(epoch from _octop_now() - h.created_at))"
        " from octop_holds h order by h.kind, h.target",
        {},
        objects,
    )


def frozen() -> Call[Row]:
    """Count the frozen tasks: count, and of the newest 10,000 the oldest's age and the commonest type."""
    return Call(
        """
        with f as materialized (
          select t.task_type, t.created_at from octop_tasks t where t.status = 'frozen' order by t.created_at desc limit 10000)
        select jsonb_build_object(
          'count', coalesce((select s.count from octop_task_summary s where s.status = 'frozen'), 0),
          'oldest_seconds', (select extract(epoch from _octop_now() - min(f.created_at)) from f),
          'type', (select f.task_type from f group by 1 order by count(*) desc, 1 limit 1))
        """,
        {},
        only,
    )


def counters(most: int = 50_000) -> Call[list[Row]]:
    """Compare the counters with the tasks themselves, in one snapshot: status, counted, truth (None = too many to count).

    Args:
        most: Count at most so many tasks of each status.
    """
    return Call(
        """
        with counted as materialized (select c.status, sum(c.n) as n from _octop_counted() c group by 1),
        asked (status) as (values ('waiting'), ('blocked'), ('frozen'), ('success'), ('cancelled'))
        select jsonb_build_object('status', a.status, 'counted', coalesce(c.n, 0), 'truth',
          case when coalesce(c.n, 0) > %(most)s::bigint then null
               when a.status = 'waiting' then (select count(*) from (
                 select from octop_tasks t where t.status in ('pending', 'failed') limit %(most)s::bigint * 2) x)
               when a.status = 'blocked' then (select count(*) from (
                 select from octop_tasks t where t.status = 'blocked' limit %(most)s::bigint * 2) x)
               when a.status = 'frozen' then (select count(*) from (
                 select from octop_tasks t where t.status = 'frozen' limit %(most)s::bigint * 2) x)
               when a.status = 'success' then (select count(*) from (
                 select from octop_tasks t where t.status = 'success' limit %(most)s::bigint * 2) x)
               else (select count(*) from (select from octop_tasks t where t.status = 'cancelled' limit %(most)s::bigint * 2) x) end)
          from asked a left join counted c on c.status = a.status
        """,
        {"most": most},
        objects,
    )


def stuck_queues(seconds: float, most: int = 10_000) -> Call[list[Row]]:
    """Read the queues that stand still: name, due, oldest_due_seconds, workers, busy_elsewhere (tasks that these run of other queues).

    Tasks are due for longer, living workers serve the queue, nobody paused it, its limit is not 0, and yet none of its tasks runs.

    Args:
        seconds: How long a task may be due.
        most: Count at most so many tasks of each queue.
    """
    return Call(
        """
        with recursive q (name) as (
          (select t.queue from octop_tasks t where t.status in ('pending', 'failed') order by t.queue limit 1)
          union all
          select (select t.queue from octop_tasks t where t.status in ('pending', 'failed') and t.queue > q.name order by t.queue limit 1)
            from q where q.name is not null),
        alive as materialized (
          select w.id, w.queues, (select count(*) from octop_running_tasks r where r.worker_id = w.id) as busy from octop_workers w
           where not w.draining and w.beat_at > _octop_now() - make_interval(secs => _octop_setting('worker.lease_seconds')::float8))
        select jsonb_build_object('name', q.name, 'due', d.n, 'oldest_due_seconds', extract(epoch from _octop_now() - d.oldest),
                                  'workers', a.n, 'busy_elsewhere', a.busy)
          from q
          cross join lateral (select count(*) as n, coalesce(sum(a.busy), 0) as busy from alive a where q.name = any (a.queues)) a
          cross join lateral (
            select count(*) as n, min(x.scheduled_at) as oldest from (
              select t.scheduled_at from octop_tasks t
               where t.status in ('pending', 'failed') and t.queue = q.name
                 and t.scheduled_at <= _octop_now() - make_interval(secs => %(seconds)s::float8) limit %(most)s::integer) x) d
         where q.name is not null and a.n > 0 and d.n > 0
           and not exists (select from octop_running_tasks r where r.queue = q.name)
           and not exists (select from octop_holds h where h.kind = 'queue' and h.target = q.name)
           and not exists (select from octop_queues l where l.name = q.name and l.worker_limit = 0)
         order by d.oldest
        """,
        {"seconds": seconds, "most": most},
        objects,
    )


def stuck_tasks(seconds: float) -> Call[Row]:
    """Read the running tasks that nobody ends: overdue and orphaned, each with count, ids (the longest first, at most ten), oldest_seconds.

    Overdue is what is past its time limit and the grace time, when a sweep should have ended it; orphaned, what names no worker, or one
    that has no row, so that nobody's silence can be judged.

    Args:
        seconds: Since when they should have been seen to.
    """
    return Call(
        """
        with r as materialized (
          select t.id, t.started_at, extract(epoch from _octop_now() - t.deadline_at) as late, w.id is null as orphaned
            from octop_running_tasks t left join octop_workers w on w.id = t.worker_id
           where t.started_at <= _octop_now() - make_interval(secs => %(seconds)s::float8)),
        kinds as (
          select 'overdue' as kind, r.id, r.late as seconds from r
           where r.late > _octop_setting('worker.deadline_grace_seconds')::float8 + %(seconds)s::float8
          union all
          select 'orphaned', r.id, extract(epoch from _octop_now() - r.started_at) from r where r.orphaned)
        select jsonb_object_agg(a.kind, jsonb_build_object(
                 'count', (select count(*) from kinds k where k.kind = a.kind),
                 'oldest_seconds', (select max(k.seconds) from kinds k where k.kind = a.kind),
                 'ids', (select coalesce(jsonb_agg(x.id order by x.seconds desc), '[]')
                           from (select k.id, k.seconds from kinds k where k.kind = a.kind order by k.seconds desc limit 10) x)))
          from (values ('overdue'), ('orphaned')) a (kind)
        """,
        {"seconds": seconds},
        only,
    )
