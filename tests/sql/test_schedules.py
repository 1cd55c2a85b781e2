"""Schedules as rows: what is refused, what is fired and when, and that each slot makes one task."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.sql.crew import column, do, refused, rows, value

NOON = datetime(2030, 1, 7, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def clock(database):
    database.clock.set(NOON)
    return database.clock


def put(dba, name="report", tenant="", **values):
    given = {"rule": "* * * * *", "task_type": "report", **values}
    return value(dba, "select octop_put_schedule(%s, %s::jsonb, %s)", name, json.dumps(given), tenant)


def tick(dba, most=500):
    return tuple(rows(dba, "select fired, skipped from octop_tick(%s)", most)[0])


def slots(dba, name="report"):
    return rows(
        dba,
        "select o.slot, o.status, o.reason from octop_schedule_slots o join octop_schedules s on s.id = o.schedule_id where s.name = %s order by 1",
        name,
    )


def tasks(dba):
    return rows(dba, "select scheduled_at, payload from octop_tasks order by scheduled_at, seq")


def test_a_plain_insert_is_a_schedule_and_fires_each_slot_once(dba, clock):
    do(
        dba,
        "insert into octop_schedules (name, rule, task_type, payload) values ('report', '*/5 * * * *', 'report', '{\"n\": 1}')",
    )
    assert value(dba, "select next_slot from octop_schedules") == NOON + timedelta(minutes=5)
    assert tick(dba) == (0, 0)
    clock.set(NOON + timedelta(minutes=5))
    assert tick(dba) == (1, 0)
    assert tick(dba) == (0, 0)
    assert tasks(dba) == [(NOON + timedelta(minutes=5), {"n": 1})]
    assert rows(dba, "select meta from octop_tasks") == [({"schedule": "report", "slot": "2030-01-07T12:05:00+00:00"},)]


def test_values_are_changed_one_by_one_and_null_is_the_default(dba, clock):
    put(dba, payload={"n": 1}, catch_up="all", priority=3)
    put(dba, catch_up=None, priority=None, jitter_seconds=2)
    assert rows(dba, "select payload, catch_up, priority, jitter_seconds from octop_schedules") == [
        ({"n": 1}, "last", None, 2.0)
    ]


@pytest.mark.parametrize(
    ("values", "code", "word"),
    [
        ({"rule": "* * *"}, "OC128", "three|3 fields"),
        ({"rule": "60 * * * *"}, "OC128", "minute"),
        ({"rule": "0 0 31 2 *"}, "OC129", "never meet"),
        ({"rule": None}, "OC128", "rule is null"),
        ({"rule": "@at 2020-01-01T00:00:00Z"}, "OC129", "would never fire"),
        ({"rule": "@at 2040-01-01T00:00:00"}, "OC128", "no moment"),
        ({"timezone": "CET"}, "OC130", "time zone"),
        ({"task_type": ""}, "OC141", "task_type"),
        ({"payload": [1]}, "OC141", "payload"),
        ({"payload": {"a": "{{slott}}"}}, "OC141", "slott"),
        ({"priority": 10}, "OC141", "priority"),
        ({"priority": "high"}, "OC141", "cannot be read"),
        ({"catch_up": "some"}, "OC141", "catch_up"),
        ({"catch_up_max": 0}, "OC141", "catch_up_max"),
        ({"overlap": "no"}, "OC141", "overlap"),
        ({"jitter_seconds": -1}, "OC141", "jitter_seconds"),
        ({"deadline_seconds": 0}, "OC141", "deadline_seconds"),
        ({"starts_at": "2030-01-01 09:00"}, "OC114", "offset"),
        ({"starts_at": "2031-01-01T00:00Z", "ends_at": "2030-02-01T00:00Z"}, "OC141", "before starts_at"),
        ({"ends_at": "2029-01-01T00:00Z"}, "OC129", "never fire"),
        ({"cron": "* * * * *"}, "OC141", "no value named cron"),
    ],
    ids=str,
)
def test_what_could_not_fire_or_would_be_refused_is_refused_and_named(dba, clock, values, code, word):
    given = {"rule": "* * * * *", "task_type": "report", **values}
    said = refused(code, dba, "select octop_put_schedule('report', %s::jsonb)", json.dumps(given))
    assert any(each in said for each in word.split("|")), said
    assert rows(dba, "select * from octop_schedules") == []


@pytest.mark.parametrize(
    ("catch_up", "after", "fired", "skipped"),
    [
        ("last", 30, 1, 0),
        ("last", 300, 1, 4),
        ("skip", 300, 1, 4),
        ("skip", 359, 1, 4),
        ("all", 300, 5, 0),
        ("all", 600, 7, 1),
    ],
)
def test_C029_after_an_outage_as_many_slots_fire_as_catch_up_says(dba, clock, catch_up, after, fired, skipped):
    put(dba, catch_up=catch_up, catch_up_max=7)
    clock.set(NOON + timedelta(seconds=60 + after - 60 if after >= 60 else 60 + after))
    found = tick(dba)
    assert found[0] == fired
    assert len(tasks(dba)) == fired
    assert tick(dba) == (0, 0)
    assert sum(1 for _, status, _ in slots(dba) if status == "skipped") == found[1] == skipped
    # the next minute goes on as if nothing had been
    clock.advance(60)
    assert tick(dba) == (1, 0)


def test_a_late_slot_is_skipped_where_catch_up_says_skip_and_an_alert_says_so(dba, clock):
    put(dba, rule="0 * * * *", catch_up="skip", late_after_seconds=60)
    clock.set(NOON + timedelta(hours=1, seconds=61))
    assert tick(dba) == (0, 1)
    assert slots(dba) == [(NOON + timedelta(hours=1), "skipped", "late")]
    assert column(dba, "select kind from octop_alerts") == ["schedule_missed"]


def test_C030_ninety_days_of_minutes_make_one_task_or_as_many_as_are_allowed(dba, clock):
    put(dba)
    put(dba, "all", catch_up="all", catch_up_max=50)
    for name in ("report", "all"):
        do(dba, "update octop_schedules set next_slot = %s where name = %s", NOON - timedelta(days=90), name)
    assert tick(dba)[0] == 51
    last = NOON
    assert [slot for slot, status, _ in slots(dba) if status == "fired"] == [last]
    assert len([1 for _, status, _ in slots(dba, "all") if status == "fired"]) == 50
    # what was passed over is there: one row for all that are too many
    (through,) = rows(
        dba,
        "select slot, through from octop_schedule_slots o join octop_schedules s on s.id = o.schedule_id where name = 'report' and through is not null",
    )
    assert through == (NOON - timedelta(days=90), NOON - timedelta(minutes=100))
    assert sorted(column(dba, "select kind from octop_alerts")) == [
        "schedule_late",
        "schedule_missed",
        "schedule_missed",
    ]


def test_jitter_is_the_same_for_a_slot_and_lies_within_its_bounds(dba, clock):
    put(dba, jitter_seconds=30, catch_up="all")
    clock.advance(minutes=20)
    tick(dba)
    found = rows(
        dba, "select o.slot, t.scheduled_at from octop_schedule_slots o join octop_tasks t on t.id = o.task_id"
    )
    later = [(at - slot).total_seconds() for slot, at in found]
    assert len(later) == 20
    assert all(0 <= each < 30 for each in later)
    assert len(set(later)) > 15
    assert all(
        value(dba, "select %s + _octop_slot_jitter(s, %s) from octop_schedules s", slot, slot) == at
        for slot, at in found
    )


def test_texts_of_the_payload_are_filled_in_for_the_slot(dba, clock):
    names = ["slot", "slot.local", "slot.date", "slot.time", "slot.epoch", "previous", "next", "schedule"]
    put(
        dba,
        'say "hi"',
        rule="30 0 * * *",
        timezone="Asia/Shanghai",
        payload={name: "{{" + name + "}}" for name in names} | {"n": [{"deep": "on {{slot.date}}"}]},
    )
    clock.set("2030-01-07T16:30:00Z")
    tick(dba)
    clock.set("2030-01-08T16:30:00Z")
    tick(dba)
    assert tasks(dba)[1][1] == {
        "slot": "2030-01-08T16:30:00+00:00",
        "slot.local": "2030-01-09T00:30:00+08:00",
        "slot.date": "2030-01-09",
        "slot.time": "00:30:00",
        "slot.epoch": str(int(datetime(2030, 1, 8, 16, 30, tzinfo=UTC).timestamp())),
        "previous": "2030-01-07T16:30:00+00:00",
        "next": "2030-01-09T16:30:00+00:00",
        "schedule": 'say "hi"',
        "n": [{"deep": "on 2030-01-09"}],
    }


def done(dba):
    do(dba, "delete from octop_tasks_live")


def test_overlap_skip_makes_no_task_while_the_earlier_one_has_not_ended(dba, clock):
    put(dba, overlap="skip")
    for expected in [(1, 0), (0, 1), (0, 1)]:
        clock.advance(60)
        assert tick(dba) == expected
    assert {reason for _, status, reason in slots(dba) if status == "skipped"} == {"overlap"}
    do(dba, "select octop_cancel(id) from octop_tasks")
    clock.advance(60)
    assert tick(dba) == (1, 0)


def test_overlap_queue_makes_the_task_when_the_earlier_one_has_ended_in_order(dba, clock):
    put(dba, overlap="queue", catch_up_max=2)
    for expected in [(1, 0), (0, 0), (0, 0), (0, 1)]:
        clock.advance(60)
        assert tick(dba) == expected
    assert [status for _, status, _ in slots(dba)] == ["fired", "waiting", "waiting", "skipped"]
    assert value(dba, "select next_seconds from octop_tick()") <= 1
    for count in (2, 3):
        do(dba, "select octop_cancel(id) from octop_tasks_live")
        assert tick(dba) == (1, 0)
        assert [status for _, status, _ in slots(dba)].count("fired") == count
    assert [at for at, _ in tasks(dba)] == [NOON + timedelta(minutes=minute) for minute in (1, 2, 3)]
    assert value(dba, "select waiting from octop_schedules") == 0


def test_a_pause_fires_nothing_and_is_no_outage(dba, clock):
    put(dba, catch_up="all")
    assert value(dba, "select octop_pause_schedule('report', 'holidays')") is True
    assert value(dba, "select octop_pause_schedule('report')") is False
    clock.advance(minutes=10)
    assert tick(dba) == (0, 0)
    assert value(dba, "select octop_resume_schedule('report')") is True
    assert tick(dba) == (0, 0)
    assert rows(dba, "select slot, through, status, reason from octop_schedule_slots") == [
        (NOON + timedelta(minutes=1), NOON + timedelta(minutes=10), "skipped", "paused")
    ]
    clock.advance(minutes=1)
    assert tick(dba) == (1, 0)
    assert column(dba, "select action from octop_audit where action like 'schedule%%' order by seq") == [
        "schedule.add",
        "schedule.pause",
        "schedule.resume",
    ]
    refused("OC140", dba, "select octop_pause_schedule('no such')")


def test_run_now_makes_a_task_and_leaves_the_slots_alone(dba, clock):
    put(dba)
    do(dba, "select octop_pause_schedule('report')")
    made = [value(dba, "select octop_run_schedule('report')") for _ in range(2)]
    assert sorted(made) == sorted(column(dba, "select task_id from octop_schedule_slots where origin = 'run_now'"))
    do(dba, "select octop_resume_schedule('report')")
    clock.advance(60)
    assert tick(dba) == (1, 0)


def test_a_schedule_whose_task_is_refused_stops_no_other_and_goes_on(dba, clock):
    put(dba, "bad", payload={"text": "x" * 900})
    put(dba, "good")
    do(dba, "select octop_config_set('task.payload_bytes_max', '1024')")
    do(
        dba,
        "update octop_schedules set payload = jsonb_build_object('text', repeat('{{slot}}', 60)) where name = 'bad'",
    )
    clock.advance(60)
    assert tick(dba) == (1, 1)
    assert column(dba, "select meta ->> 'schedule' from octop_tasks") == ["good"]
    assert "payload" in value(dba, "select last_error from octop_schedules where name = 'bad'")
    assert column(dba, "select kind from octop_alerts") == ["schedule_failed"]
    assert value(dba, "select state from octop_schedule_list where name = 'bad'") == "failing"
    clock.advance(60)
    assert tick(dba) == (1, 1)


def test_backfill_fires_what_made_no_task_so_many_at_once(dba, clock):
    put(dba, rule="0 * * * *")
    clock.advance(hours=1)
    assert tick(dba) == (1, 0)
    do(dba, "select octop_backfill_schedule('report', %s, %s, 2)", NOON - timedelta(hours=3), NOON + timedelta(hours=1))
    made = []
    for _ in range(4):
        tick(dba)
        made.append(value(dba, "select count(*) from octop_tasks_live where meta ->> 'slot' < '2030-01-07T13'"))
        do(dba, "select octop_cancel(id) from octop_tasks_live where meta ->> 'slot' < '2030-01-07T13'")
    assert made == [2, 2, 0, 0]
    assert rows(dba, "select status, made, passed from octop_backfills") == [("done", 4, 0)]
    refused("OC142", dba, "select octop_backfill_schedule('report', %s, %s)", NOON, NOON)
    refused("OC142", dba, "select octop_backfill_schedule('report', %s, %s)", NOON, NOON + timedelta(days=1))
    put(dba, "second", rule="* * * * * *")
    assert "100,000" in refused(
        "OC142", dba, "select octop_backfill_schedule('second', %s, %s)", NOON - timedelta(days=3), NOON
    )


def declare(dba, *declared, look=False):
    found = rows(
        dba,
        "select name, what, columns from octop_declare_schedules(%s::jsonb, only_look => %s)",
        json.dumps(list(declared)),
        look,
    )
    return {name: (what, columns) for name, what, columns in found}


def test_code_does_not_overwrite_what_an_operator_has_changed_or_paused(dba, clock):
    first = {"name": "report", "rule": "0 9 * * *", "task_type": "report", "payload": {"n": 1}}
    assert declare(dba, first) == {"report": ("added", {})}
    assert declare(dba, first) == {"report": ("same", {})}
    do(dba, "select octop_put_schedule('report', '{\"rule\": \"0 10 * * *\"}')")
    second = {**first, "rule": "0 8 * * *", "payload": {"n": 2}}
    kept = {"rule": {"is": "0 10 * * *", "declared": "0 8 * * *"}}
    assert declare(dba, second, look=True) == {"report": ("kept", kept)}
    assert rows(dba, "select rule, payload from octop_schedules") == [("0 10 * * *", {"n": 1})]
    assert declare(dba, second) == {"report": ("kept", kept)}
    assert rows(dba, "select rule, payload from octop_schedules") == [("0 10 * * *", {"n": 2})]
    # back to what the code says: it follows the code again
    do(dba, "select octop_put_schedule('report', '{\"rule\": \"0 8 * * *\"}')")
    do(dba, "select octop_pause_schedule('report', 'strike')")
    third = {**second, "rule": "0 7 * * *"}
    assert declare(dba, third)["report"][0] == "changed"
    assert rows(dba, "select rule, pause_reason from octop_schedules") == [("0 7 * * *", "strike")]
    assert declare(dba, third)["report"] == ("paused", {})
    assert declare(dba) == {"report": ("undeclared", {})}
    assert value(dba, "select count(*) from octop_schedules") == 1


def test_a_hand_made_schedule_of_the_same_name_stays(dba, clock):
    put(dba, rule="0 1 * * *")
    assert declare(dba, {"name": "report", "rule": "0 9 * * *", "task_type": "report"})["report"][0] == "kept"
    assert value(dba, "select rule from octop_schedules") == "0 1 * * *"


def test_a_slot_whose_task_misses_its_deadline_or_runs_long_raises_one_alert(dba, clock, hire):
    put(dba, rule="0 * * * *", deadline_seconds=600, expected_seconds=300)
    worker = hire(types=["report"])
    clock.advance(hours=1)
    tick(dba)
    do(dba, "update octop_workers set beat_at = _octop_now()")
    assert len(worker.exchange(1).tasks) == 1
    clock.advance(301)
    for _ in range(2):
        tick(dba)
        assert column(dba, "select kind from octop_alerts") == ["schedule_slow"]
    clock.advance(300)
    for _ in range(2):
        tick(dba)
        assert sorted(column(dba, "select kind from octop_alerts")) == ["schedule_deadline", "schedule_slow"]
    assert column(dba, "select check_at from octop_schedule_slots where check_at is not null") == []


def test_start_end_and_one_instant(dba, clock):
    put(dba, rule="0 * * * *", starts_at="2030-01-07T14:00:00Z", ends_at="2030-01-07T15:30:00Z", catch_up="all")
    put(dba, "once", rule="@at 2030-01-07T14:00:00+01:00")
    clock.set("2030-01-08T00:00:00Z")
    assert tick(dba)[0] == 3
    assert [slot.hour for slot, _, _ in slots(dba)] == [14, 15]
    assert [slot.hour for slot, _, _ in slots(dba, "once")] == [13]
    assert column(dba, "select state from octop_schedule_list") == ["ended", "ended"]
    assert value(dba, "select next_seconds from octop_tick()") is None
