"""What the doors show: reads only, each a Call. Rows are answered as JSON objects (ids and moments as text).

A row is made into JSON by PostgreSQL, so that the command, the dashboard and `--json` show the same values.
"""

from octop.engine.call import Call, first_value
from octop.engine.rows import Row, many, one


def summary() -> Call[list[Row]]:
    """Count tasks by status: status, count, earliest_scheduled, latest_scheduled, avg_delay_seconds."""
    return many("select to_jsonb(s) from octop_task_summary s")


def latest_failures(limit: int = 20) -> Call[list[Row]]:
    """Read the latest attempts that failed, timed out or were lost, at most 100."""
    return many("select to_jsonb(f) from octop_latest_failures f limit %(limit)s", {"limit": limit})


def task(task_id: str) -> Call[Row | None]:
    """Read one task by its id, wherever it is; None when there is none or it is not the caller's."""
    return Call("select to_jsonb(t) from octop_task(%(id)s::uuid) t", {"id": task_id}, one)


def ids_like(first: str, last: str, limit: int = 11) -> Call[list[str]]:
    """Find the tasks whose id lies between two, both included: those that begin with the same digits."""
    return Call(
        "select t.id::text from octop_tasks t where t.id >= %(first)s::text::uuid and t.id <= %(last)s::text::uuid"
        " order by t.id limit %(limit)s",
        {"first": first, "last": last, "limit": limit},
        lambda rows: [row[0] for row in rows],
    )


def failed_tasks(limit: int) -> Call[list[Row]]:
    """Read the newest tasks that wait for a retry or are frozen, with the age of each in seconds."""
    # Two reads, each along its own index; "in (failed, frozen)" would walk all that is live.
    return many(
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


def attempts_of(task_id: str) -> Call[list[Row]]:
    """Read the ended attempts of a task that were no plain success, the first one first."""
    return many(
        """
        select to_jsonb(a) || jsonb_build_object('seconds', extract(epoch from a.ended_at - a.started_at))
          from octop_attempts a where a.task_id = %(id)s::uuid order by a.attempt
        """,
        {"id": task_id},
    )


def list_workers() -> Call[list[Row]]:
    """Read all registered workers, the oldest first."""
    return many(
        """
        select to_jsonb(w) || jsonb_build_object('up_seconds', extract(epoch from _octop_now() - w.started_at))
          from octop_worker_summary w order by w.started_at, w.id
        """
    )


def running_tasks(limit: int = 100) -> Call[list[Row]]:
    """Read what runs now, the longest running first."""
    return many(
        "select to_jsonb(r) from (select * from octop_running_tasks order by started_at limit %(limit)s) r",
        {"limit": limit},
    )


def running_by_type() -> Call[list[Row]]:
    """Count what runs now by worker and task type: worker_id, task_type, count, running_seconds (of the longest)."""
    return many(
        """
        select to_jsonb(x) from (
          select r.worker_id, r.task_type, count(*) as count, max(r.running_seconds) as running_seconds
            from octop_running_tasks r group by r.worker_id, r.task_type order by 4 desc) x
        """
    )


def throughput() -> Call[list[Row]]:
    """Read how many tasks have ended, by queue and status: the difference of two looks is the rate."""
    return many("select to_jsonb(t) from octop_throughput t")


def schemas() -> Call[list[str]]:
    """Read the schemas of this database in which Octop is installed, the connection's own or not."""
    return Call(
        """
        select n.nspname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
          join pg_attribute a on a.attrelid = c.oid and a.attname = 'checksum'
         where c.relname = 'octop_migrations' and c.relkind = 'r' order by 1
        """,
        {},
        lambda rows: [row[0] for row in rows],
    )


def connected_workers() -> Call[int]:
    """Count the worker processes that are connected to this database, whatever their schema."""
    # Each process has one connection of this name; a supervisor's is `octop worker heart`.
    return Call(
        """
        select count(*)::int from pg_stat_activity
         where datname = current_database() and application_name = 'octop worker control'
        """,
        {},
        first_value,
    )
