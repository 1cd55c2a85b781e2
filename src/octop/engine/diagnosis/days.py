"""Days of history and the chores of the sweep."""

from octop.engine.call import Call
from octop.engine.rows import Row, objects, only


def days() -> Call[Row]:
    """Read which days have a partition, which are missing, which are over, and how many tasks lie in the stray partition.

    Returns:
        missing: Days from today to the last but one of history.days_ahead without a partition, in order. The last one is
            made by the first sweeps of a day.
        detached: Days whose table is there, and no partition of the history: its name is in the way of a new one.
        today: The day of the database clock, UTC.
        over: Days in which nothing had to be kept one day ago: time enough for the sweep to drop them.
        stray: Tasks that found no day, at most 10,000.
    """
    return Call(
        """
        with d as materialized (
          select (m)[1]::timestamptz as from_at, (m)[2]::timestamptz as to_at
            from pg_inherits i join pg_class c on c.oid = i.inhrelid
            cross join lateral regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''([^'']+)''\\) TO \\(''([^'']+)''\\)') m
           where i.inhparent = 'octop_tasks_done'::regclass and m is not null),
        gaps as (
          select coalesce(lag(d.to_at) over (order by d.from_at), '-infinity') as a, d.from_at as b from d
          union all
          select coalesce(max(d.to_at), '-infinity'), 'infinity' from d),
        today as (select (_octop_now() at time zone 'UTC')::date as day)
        select jsonb_build_object(
          'today', t.day,
          'missing', (select coalesce(jsonb_agg(x.day order by x.day), '[]') from (
             select t.day + g as day from generate_series(0, greatest(0, _octop_setting('history.days_ahead')::integer - 1)) g) x
              where not exists (select from d where d.from_at <= x.day::timestamptz and d.to_at > x.day::timestamptz)),
          -- the last day ahead too: whoever makes days makes it with the others
          'detached', (select coalesce(jsonb_agg(x.day order by x.day), '[]') from (
             select t.day + g as day from generate_series(0, _octop_setting('history.days_ahead')::integer) g) x
              join pg_class c on c.relname = 'octop_tasks_done_' || to_char(x.day, 'YYYYMMDD') and not c.relispartition
               and c.relnamespace = (select o.relnamespace from pg_class o where o.oid = 'octop_tasks_done'::regclass)),
          'over', (select coalesce(jsonb_agg(o.day order by o.day), '[]') from octop_days_over(1) o (day)),
          'stray', (select count(*) from (
             select from gaps g cross join lateral (
               -- the limit keeps it a query of its own, which reads the partitions of its gap alone
               select from octop_tasks k where k.status in ('success', 'cancelled') and k.completed_at >= g.a and k.completed_at < g.b
                limit 10000) s
              where g.a < g.b limit 10000) y))
          from today t
        """,
        {},
        only,
    )


def chores() -> Call[list[Row]]:
    """Read the chores of the sweep: name, next_at, overdue_seconds (None = never done yet)."""
    return Call("select to_jsonb(c) from octop_chores c order by c.name", {}, objects)
