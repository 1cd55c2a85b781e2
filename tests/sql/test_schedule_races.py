"""Several fire at once, die in the middle, or take back what they did: each slot makes exactly one task."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from functools import partial

import psycopg
import pytest

from tests.sql.crew import column, do, rows, value
from tests.sql.sessions import sessions

NOON = datetime(2030, 1, 7, 12, 0, 0, tzinfo=UTC)
EACH_ONCE = """
    select count(*), count(distinct o.task_id), count(t.id), count(distinct (t.meta ->> 'schedule', t.meta ->> 'slot'))
      from octop_schedule_slots o full join octop_tasks_live t on t.id = o.task_id
"""


@pytest.fixture
def clock(database):
    database.clock.set(NOON)
    return database.clock


def schedules(dba, count, rule="* * * * *"):
    do(
        dba,
        "insert into octop_schedules (name, rule, task_type) select 's' || n, %s, 'report' from generate_series(1, %s) n",
        rule,
        count,
    )


def all_at_once(crew, act):
    """Let all sessions begin in the same moment; return what each answered, or its error."""
    start = threading.Barrier(len(crew))

    def begin(session):
        start.wait(10)
        try:
            return act(session)
        except psycopg.Error as error:
            return error

    return [each.result() for each in [session.start(lambda s=session: begin(s)) for session in crew]]


def fired(session, most=500):
    return session.execute("select fired from octop_tick(%s)", [most])[0][0]


def drained(session, most=500):
    total = 0
    while True:
        count, wait = session.execute("select fired, next_seconds from octop_tick(%s)", [most])[0]
        total += count
        if wait != 0:
            return total


def test_eight_tickers_at_one_slot_make_one_task(database, dba, clock):
    schedules(dba, 1)
    with sessions(database, 8) as crew:
        for minute in range(1, 11):
            clock.set(NOON + timedelta(minutes=minute))
            assert sorted(all_at_once(crew, fired)) == [0] * 7 + [1]
    assert rows(dba, EACH_ONCE) == [(10, 10, 10, 10)]


def test_two_tickers_share_ten_thousand_schedules_of_one_minute(database, dba, clock):
    schedules(dba, 10_000)
    clock.advance(60)
    with sessions(database, 2) as crew:
        counts = all_at_once(crew, drained)
    assert sum(counts) == 10_000
    assert min(counts) > 0
    assert rows(dba, EACH_ONCE) == [(10_000,) * 4]


def test_what_a_tick_took_back_is_fired_by_the_next_one(database, dba, clock):
    schedules(dba, 3)
    clock.advance(60)
    with sessions(database, 1) as (ticker,):
        ticker.execute("begin")
        assert fired(ticker) == 3
        assert rows(dba, "select fired, skipped, next_seconds from octop_tick()") == [(0, 0, 0.05)]
        ticker.execute("rollback")
    assert value(dba, "select fired from octop_tick()") == 3
    assert rows(dba, EACH_ONCE) == [(3,) * 4]


def test_C032_tickers_that_are_killed_in_the_middle_leave_no_slot_unfired_and_none_fired_twice(database, dba, clock):
    schedules(dba, 5)
    for minute in range(1, 31):
        clock.set(NOON + timedelta(minutes=minute))
        with sessions(database, 3) as crew:
            victim = crew[0]
            if minute % 3:
                # dies while it holds what it has fired
                victim.execute("begin")
                assert fired(victim, 1 + minute % 5) > 0
                do(dba, "select pg_terminate_backend(%s, 5000)", victim.pid)
                all_at_once(crew[1:], drained)
            else:
                # dies while it fires, or before, or after
                dying = victim.start(partial(fired, victim))
                others = [session.start(partial(drained, session)) for session in crew[1:]]
                do(dba, "select pg_terminate_backend(%s, 5000)", victim.pid)
                for each in others:
                    each.result()
                dying.thread.join(15)
        value(dba, "select fired from octop_tick()")
    assert rows(dba, EACH_ONCE) == [(150,) * 4]


def test_C136_a_second_ticker_enters_while_a_long_pass_is_under_way_and_both_fire_each_slot_once(database, dba, clock):
    schedules(dba, 1200)
    clock.advance(60)
    with sessions(database, 3) as (slow, second, third):
        slow.execute("begin")
        assert fired(slow) == 500
        assert drained_while_locked(second) == 700
        assert fired(third) == 0
        slow.execute("commit")
        assert fired(third) == 0
    assert rows(dba, EACH_ONCE) == [(1200,) * 4]


def drained_while_locked(session):
    total = 0
    while count := fired(session):
        total += count
    return total


def test_schedules_made_by_several_at_once_are_one(database, dba, clock):
    declared = '[{"name": "report", "rule": "* * * * *", "task_type": "report"}]'
    with sessions(database, 4) as crew:
        answers = all_at_once(
            crew, lambda s: s.execute("select what from octop_declare_schedules(%s::jsonb)", [declared])[0][0]
        )
    assert {str(each) for each in answers} <= {"added", "same"}
    assert column(dba, "select name from octop_schedules") == ["report"]


def test_a_backfill_and_a_tick_do_not_fire_one_slot_twice(database, dba, clock):
    schedules(dba, 1, "0 * * * *")
    clock.advance(hours=2)
    do(dba, "select octop_backfill_schedule('s1', %s, %s, 10)", NOON, NOON + timedelta(hours=2))
    with sessions(database, 4) as crew:
        all_at_once(crew, fired)
    assert sorted(column(dba, "select meta ->> 'slot' from octop_tasks_live")) == [
        f"2030-01-07T{hour}:00:00+00:00" for hour in (12, 13, 14)
    ]
