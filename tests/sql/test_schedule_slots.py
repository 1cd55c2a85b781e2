"""Whatever the rule, the zone and the outages: the slots that were fired or skipped are those of the rule, each once."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from tests.sql.crew import column, do, rows, value

START = datetime(2030, 3, 8, tzinfo=UTC)
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Asia/Shanghai",
    "Antarctica/Troll",
    "America/Havana",
)
RULES = (
    *(
        "* * * * *",
        "*/5 * * * *",
        "*/7 8-17 * * MON-FRI",
        "0 * * * *",
        "30 2 * * *",
        "0 0 * * *",
        "15 1,2,3 * * *",
        "0 9 L * *",
        "30 */10 * * * *",
    ),
    *(
        "@every 90s",
        "@every 7m",
        "@every 5h from 2030-01-01T00:30:00Z",
        "@hourly",
        "@weekly",
        "@at 2030-03-31T02:30:00+01:00",
    ),
    *("DTSTART:20300101T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=TU", "0 6 * * MON#1", "* 2 * * SUN"),
)


def slots(dba, schedule_id):
    """Return (slot, how often it is in the history) by the rows of a schedule, those of a range one by one."""
    return rows(
        dba,
        """
        select x.slot, count(*) from octop_schedule_slots o join octop_schedules s on s.id = o.schedule_id
          cross join lateral (
            with recursive each (slot) as (
              select o.slot union all select _octop_next_slot(s, each.slot) from each where each.slot < o.through)
            select each.slot from each) x
         where o.schedule_id = %s group by 1 order by 1
        """,
        schedule_id,
    )


def listed(dba, rule, zone, until):
    """Return the slots of a rule from START on as octop_cron_next_n lists them."""
    found = column(dba, "select octop_cron_next_n(%s, %s, %s, 1000)", rule, zone, START)
    while found and len(found) % 1000 == 0 and found[-1] <= until:
        found += column(dba, "select octop_cron_next_n(%s, %s, %s, 1000)", rule, zone, found[-1])
    return [slot for slot in found if slot <= until]


@pytest.mark.parametrize("seed", range(2))
def test_C029_fired_and_skipped_slots_are_exactly_those_of_the_rule_whatever_the_outages(database, dba, seed):
    draw = random.Random(seed)
    database.clock.set(START)
    made = {}
    for n in range(25):
        catch_up = draw.choice(("skip", "last", "all"))
        values = (
            draw.choice(RULES),
            draw.choice(ZONES),
            catch_up,
            draw.choice((1, 5, 100, 300)),
            draw.choice((1, 60, 7200)),
        )
        made[f"s{n}"] = (*values, str(value(dba, "insert into octop_schedules (name, rule, timezone, catch_up, catch_up_max, late_after_seconds, task_type)"
                               " values (%s, %s, %s, %s, %s, %s, 't') returning id::text", f"s{n}", *values)))  # fmt: skip
    at, seconds = START, 0.0
    while seconds < 25 * 86400:
        pause = draw.choice((draw.uniform(1, 200), draw.uniform(60, 7200), draw.uniform(3600, 86400 * 12)))
        seconds += pause
        at += timedelta(seconds=pause)
        database.clock.set(at)
        while value(dba, "select next_seconds from octop_tick(%s)", draw.choice((20, 500))) == 0:
            pass
    for name, (rule, zone, _, _, _, schedule_id) in made.items():
        found = slots(dba, schedule_id)
        assert {count for _, count in found} <= {1}, (name, rule, zone)
        expected = listed(dba, rule, zone, at)
        assert [slot for slot, _ in found] == expected, (name, rule, zone)
    # and each that was fired has its task, no other has one
    assert rows(
        dba,
        "select count(*) from octop_schedule_slots o full join octop_tasks_live t on t.id = o.task_id where (o.status = 'fired') is distinct from (t.id is not null)",
    ) == [(0,)]


def test_C020_a_schedule_that_does_not_advance_is_stopped_and_said_and_the_others_fire(database, dba):
    database.clock.set(START)
    for name, rule in (("good", "* * * * *"), ("bad", "*/2 * * * *"), ("other", "* * * * *")):
        do(dba, "insert into octop_schedules (name, rule, task_type) values (%s, %s, 't')", name, rule)
    do(dba, "alter function _octop_cron_next(bigint[], text, timestamptz) rename to _octop_real_next")
    do(
        dba,
        "create function _octop_cron_next(rule bigint[], timezone text, after timestamptz) returns timestamptz language plpgsql as $$ begin"
        " return case when rule = _octop_cron_parse('*/2 * * * *') then after else _octop_real_next(rule, timezone, after) end; end $$",
    )
    database.clock.advance(minutes=2)
    assert rows(dba, "select fired, skipped from octop_tick()") == [(2, 2)]
    assert rows(dba, "select fired, skipped, next_seconds > 0 from octop_tick()") == [(0, 0, True)]
    assert rows(dba, "select name, next_slot from octop_schedules where last_error is not null") == [("bad", None)]
    assert value(dba, "select state from octop_schedule_list where name = 'bad'") == "stopped"
    ((kind, subject, message),) = rows(
        dba, "select kind, subject, message from octop_alerts where kind = 'schedule_failed'"
    )
    assert (kind, subject) == ("schedule_failed", "bad")
    assert "not after" in message
    # corrected, it fires again
    do(dba, "update octop_schedules set rule = '*/3 * * * *' where name = 'bad'")
    database.clock.advance(minutes=1)
    assert value(dba, "select fired from octop_tick()") == 3


def test_an_outage_of_many_slots_is_made_up_for_in_short_ticks(database, dba):
    database.clock.set(START)
    do(
        dba,
        "insert into octop_schedules (name, rule, task_type, catch_up, catch_up_max) values ('all', '* * * * * *', 't', 'all', 1500)",
    )
    database.clock.advance(hours=1)
    made = [rows(dba, "select fired, skipped from octop_tick(400)")[0] for _ in range(5)]
    assert made == [(400, 1), (400, 0), (400, 0), (300, 0), (0, 0)]
    assert value(
        dba, "select max(slot) - min(slot) filter (where status = 'fired') from octop_schedule_slots"
    ) == timedelta(seconds=1499)


def test_the_slots_beside_a_slot_are_those_of_the_rule_also_of_the_first_and_after_a_change(database, dba):
    database.clock.set(START)
    do(
        dba,
        "insert into octop_schedules (name, rule, task_type, payload) values ('s', '0 9 29 2 *', 't', '{\"a\": \"{{previous}} {{next}}\"}')",
    )
    do(dba, "update octop_schedules set next_slot = '2032-02-29T09:00Z'")
    database.clock.set("2032-02-29T09:00:00Z")
    do(dba, "select octop_tick()")
    do(dba, "update octop_schedules set rule = '0 0 1 * *'")
    database.clock.set("2032-03-01T00:00:00Z")
    do(dba, "select octop_tick()")
    assert column(dba, "select payload ->> 'a' from octop_tasks_live order by seq") == [
        "2028-02-29T09:00:00+00:00 2036-02-29T09:00:00+00:00",
        "2032-02-01T00:00:00+00:00 2032-04-01T00:00:00+00:00",
    ]
