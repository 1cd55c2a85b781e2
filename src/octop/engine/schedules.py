"""What people look at of schedules: reads only. Rows are answered as JSON objects, as in ``octop.engine.reads``."""

from octop.engine.call import Call
from octop.engine.rows import Row, many, one


def list_schedules() -> Call[list[Row]]:
    """Read all schedules in words, by tenant and name, with next and last slot, at most 10,000.

    Each with ``next_wall`` and ``next_offset_seconds`` (what the clocks of its own zone show then) and ``next_in_seconds``.
    """
    return many(
        """
        select to_jsonb(s) || jsonb_build_object(
                 'next_wall', to_char(s.next_slot at time zone s.timezone, 'YYYY-MM-DD"T"HH24:MI:SS'),
                 'next_offset_seconds', extract(epoch from (s.next_slot at time zone s.timezone)
                                                          - (s.next_slot at time zone 'UTC'))::integer,
                 'next_in_seconds', extract(epoch from s.next_slot - _octop_now()))
          from octop_schedule_list s order by s.tenant, s.name limit 10000
        """
    )


def schedule(name: str, tenant: str = "") -> Call[Row | None]:
    """Read all about one schedule, its backfills included; None = there is none."""
    return Call(
        """
        select to_jsonb(c) - 'parsed' || to_jsonb(s) || jsonb_build_object(
                 'next_wall', to_char(s.next_slot at time zone s.timezone, 'YYYY-MM-DD"T"HH24:MI:SS'),
                 'next_offset_seconds', extract(epoch from (s.next_slot at time zone s.timezone)
                                                          - (s.next_slot at time zone 'UTC'))::integer,
                 'next_in_seconds', extract(epoch from s.next_slot - _octop_now()),
                 'backfills', (select coalesce(jsonb_agg(to_jsonb(b) order by b.created_at desc), '[]')
                                 from (select * from octop_backfills f where f.schedule_id = c.id
                                        order by f.created_at desc limit 10) b))
          from octop_schedules c join octop_schedule_list s on s.name = c.name and s.tenant = c.tenant
         where c.name = %(name)s::text and c.tenant = %(tenant)s::text
        """,
        {"name": name, "tenant": tenant},
        one,
    )


def history(name: str, tenant: str = "", most: int = 100) -> Call[list[Row]]:
    """Read the latest slots of a schedule, the newest first, with their tasks.

    Each with ``slot_wall`` and ``slot_offset_seconds``, what the clocks of the schedule's zone showed.
    """
    return many(
        """
        select to_jsonb(h) || jsonb_build_object(
                 'slot_wall', to_char(h.slot at time zone c.timezone, 'YYYY-MM-DD"T"HH24:MI:SS'),
                 'slot_offset_seconds', extract(epoch from (h.slot at time zone c.timezone)
                                                          - (h.slot at time zone 'UTC'))::integer)
          from octop_schedules c
          join octop_schedule_history h on h.name = c.name and h.tenant = c.tenant
         where c.name = %(name)s::text and c.tenant = %(tenant)s::text
         order by h.slot desc limit %(most)s::integer
        """,
        {"name": name, "tenant": tenant, "most": most},
    )


def schedule_names() -> Call[list[str]]:
    """Read the names of schedules, at most 1,000."""
    return Call(
        "select distinct s.name from octop_schedules s order by s.name limit 1000",
        {},
        lambda rows: [str(row[0]) for row in rows],
    )
