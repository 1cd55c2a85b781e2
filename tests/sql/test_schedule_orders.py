"""Orders to schedules: what code declares, backfills over what was passed over, tenants, riders, and who may do what."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.sql.crew import column, do, refused, rows, value

NOON = datetime(2030, 1, 7, 12, 0, 0, tzinfo=UTC)
REPORT = {"name": "report", "rule": "0 9 * * *", "task_type": "report", "payload": {"kept": None}}


@pytest.fixture
def clock(database):
    database.clock.set(NOON)
    return database.clock


def declare(connection, *declared, **options):
    named = "".join(f", {name} => {str(given).lower()}" for name, given in options.items())
    found = rows(
        connection,
        f"select name, what, columns from octop_declare_schedules(%s::jsonb{named})",
        json.dumps(list(declared)),
    )
    return {name: (what, columns) for name, what, columns in found}


def test_what_somebody_dropped_does_not_come_back_with_a_deploy_but_by_hand(dba, clock):
    assert declare(dba, REPORT)["report"] == ("added", {})
    do(dba, "delete from octop_schedules")
    for _ in range(2):
        assert declare(dba, REPORT)["report"] == ("dropped", {})
    assert value(dba, "select count(*) from octop_schedules") == 0
    do(dba, "select octop_put_schedule('report', %s::jsonb)", json.dumps({"rule": "0 10 * * *", "task_type": "report"}))
    what, columns = declare(dba, REPORT)["report"]
    assert (what, sorted(columns)) == ("kept", ["payload", "rule"])


def test_what_is_declared_no_more_is_dropped_only_on_demand_and_only_if_nobody_changed_it(dba, clock):
    names = ("gone", "changed", "paused", "stays")
    declare(dba, *({**REPORT, "name": name} for name in names))
    do(dba, "select octop_put_schedule('changed', '{\"priority\": 1}')")
    do(dba, "select octop_pause_schedule('paused')")
    do(dba, "select octop_put_schedule('mine', %s::jsonb)", json.dumps({"rule": "@daily", "task_type": "t"}))
    stays = {**REPORT, "name": "stays"}
    expected = {
        "stays": ("same", {}),
        "changed": ("undeclared", {"priority": {"is": 1, "declared": None}}),
        "paused": ("undeclared", {}),
    }
    assert declare(dba, stays) == expected | {"gone": ("undeclared", {})}
    assert declare(dba, stays, prune=True, only_look=True) == expected | {"gone": ("pruned", {})}
    assert value(dba, "select count(*) from octop_schedules") == 5
    assert declare(dba, stays, prune=True) == expected | {"gone": ("pruned", {})}
    assert column(dba, "select name from octop_schedules order by 1") == ["changed", "mine", "paused", "stays"]
    # code that declares it again makes it again
    assert declare(dba, {**REPORT, "name": "gone"})["gone"] == ("added", {})


def test_a_declaration_of_an_instant_that_lies_behind_stops_no_other(dba, clock):
    once = {"name": "once", "rule": "@at 2030-01-07T11:00:00Z", "task_type": "t"}
    for look in (True, False):
        assert declare(dba, once, REPORT, only_look=look) == {"once": ("past", {}), "report": ("added", {})}
    assert "minute" in refused(
        "OC128", dba, "select octop_declare_schedules(%s::jsonb)", json.dumps([{**REPORT, "rule": "60 * * * *"}])
    )
    refused("OC141", dba, 'select octop_declare_schedules(\'[{"rule": "@daily"}]\')')
    refused("OC141", dba, "select octop_declare_schedules(%s::jsonb)", json.dumps([{**REPORT, "priority": "high"}]))


def test_the_list_says_what_was_changed_and_by_whom(dba, clock, operator):
    declare(dba, REPORT)
    do(operator, "update octop_schedules set rule = '0 8 * * *', timezone = 'Europe/Berlin' where name = 'report'")
    assert rows(
        operator, "select left(explained, 18), state, is_declared, changes, updated_by from octop_schedule_list"
    ) == [
        (
            "At 08:00 every day",
            "active",
            True,
            {
                "rule": {"is": "0 8 * * *", "declared": "0 9 * * *"},
                "timezone": {"is": "Europe/Berlin", "declared": "UTC"},
            },
            "octop_operator",
        )
    ]


def test_a_backfill_reaches_before_the_start_and_into_what_one_row_stands_for(dba, clock):
    do(
        dba,
        "insert into octop_schedules (name, rule, task_type, starts_at) values ('s', '* * * * *', 't', %s)",
        NOON,
    )
    clock.advance(minutes=150)
    do(dba, "select octop_tick()")
    ((first, through),) = rows(dba, "select slot, through from octop_schedule_slots where through is not null")
    do(
        dba,
        "select octop_backfill_schedule('s', %s, %s, 100)",
        NOON - timedelta(minutes=2),
        first + timedelta(minutes=2),
    )
    do(dba, "select octop_tick()")
    fired = column(dba, "select slot from octop_schedule_slots where origin = 'backfill' order by 1")
    assert fired == [NOON + timedelta(minutes=minute) for minute in range(-2, 3)]
    assert rows(dba, "select slot, through from octop_schedule_slots where through is not null") == [
        (first + timedelta(minutes=2), through)
    ]


def test_each_tenant_has_its_own_schedule_of_a_name_and_its_tasks_carry_riders(dba, clock):
    for tenant in ("", "acme"):
        do(
            dba,
            "select octop_put_schedule('s', %s::jsonb, %s)",
            json.dumps(
                {"rule": "* * * * *", "task_type": "t", "meta": {"trace": "x", "slot": "theirs"}, "tags": ["a"]}
            ),
            tenant,
        )
    refused("OC140", dba, "select octop_pause_schedule('s', 'why', 'other')")
    do(dba, "select octop_pause_schedule('s', 'why', 'acme')")
    clock.advance(60)
    do(dba, "select octop_tick()")
    assert rows(dba, "select tenant, tags, meta from octop_tasks") == [
        ("", ["a"], {"trace": "x", "schedule": "s", "slot": "2030-01-07T12:01:00+00:00"})
    ]


def test_run_now_is_never_an_instant_of_the_rule(dba, clock):
    do(dba, "insert into octop_schedules (name, rule, task_type) values ('s', '* * * * *', 't')")
    do(dba, "select octop_run_schedule('s') from generate_series(1, 3)")
    clock.advance(60)
    assert value(dba, "select fired from octop_tick()") == 1
    assert column(dba, "select count(*) from octop_schedule_slots where slot = date_trunc('second', slot)") == [1]


def test_workers_fire_and_declare_operators_order_viewers_look_and_producers_nothing(database, dba, clock):
    with (
        database.connect("octop_worker") as worker,
        database.connect("octop_viewer") as viewer,
        database.connect("octop_producer") as producer,
        database.connect("octop_operator") as operator,
    ):
        declare(worker, REPORT)
        do(operator, "insert into octop_schedules (name, rule, task_type) values ('mine', '* * * * *', 't')")
        clock.advance(60)
        assert value(worker, "select fired from octop_tick()") == 1
        assert column(viewer, "select task_status from octop_schedule_history") == ["pending"]
        assert column(viewer, "select state from octop_schedule_list") == ["active", "active"]
        do(operator, "select octop_run_schedule('mine')")
        do(operator, "delete from octop_schedules where name = 'mine'")
        for connection, statement in (
            (producer, "select octop_tick()"),
            (producer, "select * from octop_schedules"),
            (viewer, "select octop_pause_schedule('report')"),
            (viewer, "select octop_tick()"),
            (worker, "select octop_drop_schedule('report')"),
            (worker, "select octop_declare_schedules('[]', prune => true)"),
            (operator, "update octop_schedules set next_slot = now()"),
            (
                operator,
                "insert into octop_schedule_slots (schedule_id, slot, status) values (octop_uuid7(), now(), 'fired')",
            ),
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                do(connection, statement)


def test_history_and_backfills_are_kept_for_the_days_of_history(dba, clock):
    do(dba, "insert into octop_schedules (name, rule, task_type) values ('s', '@hourly', 't')")
    clock.advance(hours=1)
    do(dba, "select octop_tick()")
    clock.advance(days=6)
    do(dba, "select _octop_purge_slots(100)")
    assert value(dba, "select count(*) from octop_schedule_slots") == 1
    clock.advance(days=2)
    do(dba, "select _octop_purge_slots(100)")
    assert value(dba, "select count(*) from octop_schedule_slots") == 0
