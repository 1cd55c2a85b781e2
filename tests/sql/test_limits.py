"""Limits of queues and lanes, exchange by exchange."""

from __future__ import annotations

import random

import pytest

from octop.engine import calls
from octop.engine.call import run
from octop.model.errors import InvalidOptionError
from octop.model.task import Success
from tests.sql.crew import add, add_many, column, do, limit, rows, task, value


def success(claimed):
    return Success(claimed.fence, None)


def test_a_global_limit_holds_over_all_workers_and_a_place_is_free_when_its_task_has_ended(dba, hire):
    limit(dba, global_limit=3)
    add_many(dba, 20)
    one, two = hire(), hire()
    first = one.claim(2)
    second = two.claim(10)
    assert (len(first), len(second)) == (2, 1)
    assert one.claim(5) == two.claim(5) == []
    assert one.succeed(*first) == []
    assert len(two.claim(10)) == 2
    do(dba, "update octop_queues set global_limit = 5")
    assert len(one.claim(10)) == 2
    do(dba, "update octop_queues set global_limit = 1")
    assert one.claim(10) == []
    do(dba, "update octop_queues set global_limit = null")
    assert len(one.claim(10)) == 10


def test_C087_what_waits_for_its_retry_takes_no_place(dba, hire):
    limit(dba, global_limit=2)
    worker = hire()
    add_many(dba, 2)
    for claimed in worker.claim(2):
        assert worker.end(claimed, delay_seconds=600.0) == "failed"
    add_many(dba, 5)
    assert len(worker.claim(5)) == 2


def test_C081_never_more_than_rate_times_time_and_the_burst_in_any_span(database, dba, hire):
    start = database.clock.advance(0)
    limit(dba, rate=1.0, burst=4)
    add_many(dba, 200)
    workers = [hire(), hire()]
    for step in range(480):
        database.clock.advance(0.25 if step % 50 else 3.0)
        for worker in workers:
            worker.beat()
            worker.claim(3)
    starts = [
        (at - start).total_seconds()
        for at in column(dba, "select started_at from octop_tasks where started_at is not null order by 1")
    ]
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            assert last - first + 1 <= starts[last] - starts[first] + 4 + 1e-6
    assert len(starts) >= 0.95 * starts[-1]


def test_a_rate_of_each_lane_leaves_the_others_alone_and_full_buckets_are_removed(database, dba, hire):
    database.clock.advance(0)
    limit(dba, lane_rate=0.1, lane_burst=2)
    for lane in ("a", "b", ""):
        for _ in range(5):
            add(dba, lane=lane)
    worker = hire()
    assert sorted(each.lane for each in worker.claim(100)) == [""] * 5 + ["a", "a", "b", "b"]
    assert worker.claim(100) == []
    assert value(dba, "select count(*) from _octop_gates") == 2
    database.clock.advance(10)
    worker.beat()
    assert sorted(each.lane for each in worker.claim(100)) == ["a", "b"]
    database.clock.advance(30)
    worker.beat()
    do(dba, "select _octop_purge_buckets(100)")
    assert value(dba, "select count(*) from _octop_gates") == 0
    assert len(worker.claim(100)) == 4


def test_a_window_changes_a_limit_by_the_time_of_day(database, dba, hire):
    now = database.clock.advance(0)
    wait = (now.replace(hour=23, minute=0, second=0, microsecond=0) - now).total_seconds() % 86400
    database.clock.advance(wait)
    limit(
        dba,
        global_limit=1,
        windows='[{"from": "22:00", "until": "06:00", "timezone": "UTC", "global_limit": 4}]',
    )
    add_many(dba, 20)
    worker = hire()
    got = worker.claim(10)
    assert len(got) == 4
    database.clock.advance(7 * 3600)
    worker.beat()
    worker.succeed(*got[:3])
    assert worker.claim(10) == []
    worker.succeed(got[3])
    assert len(worker.claim(10)) == 1
    assert value(dba, "select _octop_limits_due('default') - _octop_now()").total_seconds() == 16 * 3600


def test_one_exchange_at_a_time_starts_tasks_of_a_limited_queue_and_another_does_not_wait(database, dba, hire):
    limit(dba, global_limit=5)
    add_many(dba, 5)
    one, two = hire(), hire()
    one.connection.autocommit = False
    assert len(one.claim(2)) == 2
    assert two.claim(2) == []  # it did not wait, and took nothing
    assert value(dba, "select octop_sleep(%s::uuid, '{default}', 5)", two.id) < 0.2  # and is not sent to sleep
    one.connection.commit()
    assert len(two.claim(9)) == 3


def test_a_place_that_becomes_free_wakes_who_sleeps_and_no_one_else(database, dba, hire):
    limit(dba, global_limit=1)
    add_many(dba, 3)
    one, two = hire(), hire()
    claimed = one.claim_one()
    assert two.claim(1) == []
    assert value(dba, "select octop_sleep(%s::uuid, '{default}', 5)", two.id) > 4
    with database.connect() as ear:
        ear.execute("listen octop_wake")
        # who ends it takes the next one: nobody else is woken
        answer = one.exchange(1, successes=[success(claimed)])
        assert list(ear.notifies(timeout=0.2)) == []
        one.succeed(*answer.tasks)
        assert [each.payload for each in ear.notifies(timeout=5, stop_after=1)] == ["default"]
        failing = one.claim_one()
        one.end(failing, final=True)
    assert rows(dba, "select count(*) from octop_tasks where status = 'frozen'") == [(1,)]


def test_who_frees_two_places_and_takes_one_wakes_the_others(database, dba, hire):
    limit(dba, global_limit=2)
    add_many(dba, 5)
    one, two = hire(), hire()
    both = one.claim(2)
    assert two.claim(1) == []
    do(dba, "select octop_sleep(%s::uuid, '{default}', 5)", two.id)
    with database.connect() as ear:
        ear.execute("listen octop_wake")
        assert len(one.exchange(1, successes=[success(each) for each in both]).tasks) == 1
        assert [each.payload for each in ear.notifies(timeout=5, stop_after=1)] == ["default"]
    assert len(two.claim(5)) == 1


def test_C085_a_place_is_free_however_its_task_ended_and_what_is_shown_is_what_runs(dba, hire):
    limit(dba, global_limit=2)
    add_many(dba, 300)
    do(dba, "update octop_queues set max_retries = 1000, retry_policy = '{\"delays\": [0.001]}'")
    chance = random.Random(5)
    worker, used = hire(), set()
    for _ in range(50):
        got = worker.claim(chance.choice((1, 2, 5)))
        assert value(dba, "select count(*) from octop_tasks where status = 'running'") == len(got) <= 2
        assert rows(dba, "select running, room from octop_queue_limits") == [(len(got), 2 - len(got))]
        for each in got:
            way = chance.choice(
                ("killed", "cancelled", "timeout", "failure", "snoozed", "taken back", "unheld", "success")
            )
            used.add(way)
            if way == "killed":
                do(dba, "select octop_lost(%s)", worker.id)
                worker.register()
                break
            if way == "taken back":
                do(dba, "update octop_tasks set status = 'pending' where id = %s", each.id)
            elif way == "unheld":
                others = [other.id for other in got if other.id != each.id]
                run(worker.connection, calls.octop_release_unheld(worker.id, others))
            elif way == "success":
                worker.succeed(each)
            else:
                if way == "cancelled":
                    do(dba, "select octop_cancel(%s)", each.id)
                worker.end(each, way)
    assert len(used) == 8
    do(dba, "update octop_tasks set scheduled_at = now() where status = 'failed'")
    assert len(worker.claim(5)) == 2


def test_C087_workers_that_declare_different_limits_share_one_and_an_operator_wins(dba, hire):
    one, two = hire(), hire()
    for each, declared in ((one, 1), (two, 5)):
        run(each.connection, calls.octop_declare_queues({"default": {"global_limit": declared, "rate": 100.0}}))
    add_many(dba, 20)
    assert value(dba, "select global_limit from octop_queue_limits") == 5
    assert len(one.claim(10)) + len(two.claim(10)) == 5
    run(dba, calls.octop_set_queue("default", {"global_limit": 7}))
    run(one.connection, calls.octop_declare_queues({"default": {"global_limit": 1}}))
    assert rows(dba, "select global_limit, rate, declared from octop_queues") == [(7, None, {"global_limit": 1})]
    assert run(dba, calls.octop_set_queue("default", {"global_limit": None}))["global_limit"] == 1
    said = column(dba, "select action from octop_audit where subject = 'default' order by seq")
    assert said == ["declare queue"] * 3 + ["set queue", "declare queue", "set queue"]
    for bad in ({"default": {"global_limit": -1}}, {"default": {"speed": 1}}):
        with pytest.raises(InvalidOptionError):
            run(one.connection, calls.octop_declare_queues(bad))


def test_who_may_start_nothing_now_is_told_when_the_next_token_comes(database, dba, hire):
    database.clock.advance(0)
    limit(dba, rate=0.5)
    worker = hire()
    add_many(dba, 3)
    assert len(worker.claim(3)) == 1
    assert value(dba, "select _octop_limits_due('default') - _octop_now()").total_seconds() == 2
    limit(dba, rate=None, lane_rate=0.25)
    add(dba, lane="a")
    add(dba, lane="a")
    assert len(worker.claim(10)) == 3
    assert value(dba, "select _octop_limits_due('default') - _octop_now()").total_seconds() == 4


def test_the_reason_names_the_limit_and_who_holds_it(dba, hire):
    limit(dba, global_limit=3, lane_limit=1)
    first, second = add(dba, lane="a"), add(dba, lane="a")
    worker = hire()
    assert [each.id for each in worker.claim(5)] == [first]
    ask = "select reason, bound::int, used, task_ids::text[] from octop_tasks_live t, _octop_limit_reasons(t) where id = %s"
    assert rows(dba, ask, second) == [("lane_limit", 1, 1, [first])]
    others = [add(dba, lane=lane) for lane in ("b", "c", "d")]
    assert len(worker.claim(5)) == 2
    assert [each[:3] for each in rows(dba, ask, others[2])] == [("global_limit", 3, 3)]
    limit(dba, global_limit=None, lane_limit=None, ordered=True)
    third = add(dba, lane="a")
    assert rows(dba, ask, third) == [("ordered", 1, None, [first])]
    assert rows(dba, "select id::text, _octop_ahead(t) from octop_tasks_live t where lane = 'a' order by seq") == [
        (first, 0),
        (second, 1),
        (third, 2),
    ]
    limit(dba, ordered=None)
    assert rows(dba, ask, third) == []
    assert task(dba, third)["status"] == "pending"
