"""Schedules as rows: what is refused, what is fired and when, and that each slot makes one task."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import psycopg
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
    do(dba, "insert into octop_schedules (name, rule, task_type, payload) values ('report', '*/5 * * * *', 'report', '{\"n\": 1}')")
    assert value(dba, "select next_slot from octop_schedules") == NOON + timedelta(minutes=5)
    assert tick(dba) == (0, 0)
    clock.set(NOON + timedelta(minutes=5))
    assert tick(dba) == (1, 0)
    assert tick(dba) == (0, 0)
    assert tasks(dba) == [(NOON + timedelta(minutes=5), {"n": 1})]
    assert rows(dba, "select meta from octop_tasks") == [({"schedule": "report", "slot": "2030-01-07T12:05:00+00:00"},)]
