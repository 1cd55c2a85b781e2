"""What people look at of schedules: reads only. Rows are answered as JSON objects, as in ``octop.engine.reads``.

Moments have their offset. Beside a slot stands the same moment as the clocks of the schedule's own zone show it (``next_local``,
``last_local``, ``slot_local``): PostgreSQL converts it, once, so that the zones of client, session and server change nothing.
"""

from octop.engine.call import Call, Rows
from octop.engine.rows import Row, objects, one


def list_schedules() -> Call[list[Row]]:
    """Read all schedules in words, by tenant and name, with next and last slot, at most 10,000."""
    return Call(
        """
        select to_jsonb(s) || jsonb_build_object(
                 'next_in_seconds', extract(epoch from s.next_slot - _octop_now()),
                 'next_local', jsonb_build_array(to_char(s.next_slot at time zone s.timezone, 'YYYY-MM-DD"T"HH24:MI:SS'),
                   extract(epoch from (s.next_slot at time zone s.timezone) - (s.next_slot at time zone 'UTC'))::integer),
                 'last_local', jsonb_build_array(to_char(s.last_slot at time zone s.timezone, 'YYYY-MM-DD"T"HH24:MI:SS'),
                   extract(epoch from (s.last_slot at time zone s.timezone) - (s.last_slot at time zone 'UTC'))::integer))
          from octop_schedule_list s order by s.tenant, s.name limit 10000
        """,
        {},
        _with_local,
    )


def schedule(name: str, tenant: str = "") -> Call[Row | None]:
    """Read all about one schedule, its ten latest backfills included; None = there is none."""
    return Call(
        """
        select to_jsonb(c) - 'parsed' || to_jsonb(s) || jsonb_build_object(
                 'next_in_seconds', extract(epoch from c.next_slot - _octop_now()),
                 'next_local', jsonb_build_array(to_char(c.next_slot at time zone c.timezone, 'YYYY-MM-DD"T"HH24:MI:SS'),
                   extract(epoch from (c.next_slot at time zone c.timezone) - (c.next_slot at time zone 'UTC'))::integer),
                 'last_local', jsonb_build_array(to_char(c.last_slot at time zone c.timezone, 'YYYY-MM-DD"T"HH24:MI:SS'),
                   extract(epoch from (c.last_slot at time zone c.timezone) - (c.last_slot at time zone 'UTC'))::integer),
                 'backfills', (select coalesce(jsonb_agg(to_jsonb(b) order by b.created_at desc), '[]')
                                 from (select * from octop_backfills f where f.schedule_id = c.id
                                        order by f.created_at desc limit 10) b))
          from octop_schedules c join octop_schedule_list s on s.name = c.name and s.tenant = c.tenant
         where c.name = %(name)s::text and c.tenant = %(tenant)s::text
        """,
        {"name": name, "tenant": tenant},
        lambda rows: next(iter(_with_local(rows)), None),
    )


def history(name: str, tenant: str = "", most: int = 100) -> Call[list[Row]]:
    """Read the latest slots of a schedule, the newest first, with their tasks: ``start_seconds`` from the slot to
    its latest start, ``took_seconds``.
    """
    return Call(
        """
        select to_jsonb(h) || jsonb_build_object(
                 'start_seconds', extract(epoch from h.started_at - h.slot),
                 'took_seconds', extract(epoch from h.completed_at - h.started_at),
                 'slot_local', jsonb_build_array(to_char(h.slot at time zone c.timezone, 'YYYY-MM-DD"T"HH24:MI:SS'),
                   extract(epoch from (h.slot at time zone c.timezone) - (h.slot at time zone 'UTC'))::integer))
          from octop_schedules c
          join octop_schedule_history h on h.name = c.name and h.tenant = c.tenant
         where c.name = %(name)s::text and c.tenant = %(tenant)s::text
         order by h.slot desc limit %(most)s::integer
        """,
        {"name": name, "tenant": tenant, "most": most},
        _with_local,
    )


def rule_of(name: str, tenant: str = "") -> Call[Row | None]:
    """Read rule, zone, start and end of a schedule; None = there is none."""
    return Call(
        """
        select jsonb_build_object('rule', s.rule, 'timezone', s.timezone, 'ends_at', s.ends_at,
                 'after', case when s.starts_at > _octop_now() then s.starts_at - interval '1 microsecond' end)
          from octop_schedules s where s.name = %(name)s::text and s.tenant = %(tenant)s::text
        """,
        {"name": name, "tenant": tenant},
        one,
    )


def schedule_names() -> Call[list[str]]:
    """Read the names of schedules, at most 1,000."""
    return Call(
        "select distinct s.name from octop_schedules s order by s.name limit 1000",
        {},
        lambda rows: [str(row[0]) for row in rows],
    )


def overdue() -> Call[list[Row]]:
    """Read the schedules that should have fired and did not, the longest overdue first, at most 100: name, tenant, overdue_seconds."""
    return Call(
        """
        select jsonb_build_object('name', s.name, 'tenant', s.tenant,
                                  'overdue_seconds', extract(epoch from _octop_now() - s.next_slot))
          from octop_schedules s
         where s.paused_at is null and s.next_slot < _octop_now() - make_interval(secs => s.late_after_seconds)
         order by s.next_slot limit 100
        """,
        {},
        objects,
    )


def failing(most: int) -> Call[list[Row]]:
    """Read the schedules whose last slot made no task: name, tenant, last_error.

    Args:
        most: At most so many.
    """
    return Call(
        """
        select jsonb_build_object('name', s.name, 'tenant', s.tenant, 'last_error', s.last_error)
          from octop_schedules s where s.last_error is not null and s.paused_at is null
         order by s.tenant, s.name limit %(most)s::integer
        """,
        {"most": most},
        objects,
    )


def offset_text(seconds: int) -> str:
    """Return an offset from UTC as ISO 8601 has it.

    Args:
        seconds: How far the zone is ahead.

    Example:
        >>> [offset_text(each) for each in (0, 19800, -12600, 3208)]
        ['+00:00', '+05:30', '-03:30', '+00:53:28']
    """
    hours, rest = divmod(abs(seconds), 3600)
    text = f"{'-' if seconds < 0 else '+'}{hours:02}:{rest // 60:02}"
    return f"{text}:{rest % 60:02}" if rest % 60 else text


def _with_local(rows: Rows) -> list[Row]:
    found = objects(rows)
    for row in found:
        for key in ("next_local", "last_local", "slot_local"):
            if key in row:
                wall, seconds = row[key]
                row[key] = None if wall is None else f"{wall}{offset_text(seconds)}"
    return found
