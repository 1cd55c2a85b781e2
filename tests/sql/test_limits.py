"""Limits of queues and lanes, exchange by exchange."""

from __future__ import annotations

import random

import pytest

from octop.engine import calls
from octop.engine.call import run
from octop.model.errors import InvalidOptionError
from octop.model.task import Success
from tests.sql.crew import add, add_many, column, do, rows, task, value


def limit(connection, queue="default", **columns):
    """Set columns of a queue by hand."""
    do(connection, "insert into octop_queues (name) values (%s) on conflict do nothing", queue)
    for name, given in columns.items():
        do(connection, f"update octop_queues set {name} = %s where name = %s", given, queue)


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


def test_a_lane_limit_holds_for_each_lane_of_each_tenant_and_leaves_the_others_alone(dba, hire):
    limit(dba, lane_limit=2)
    for lane, tenant in (("a", ""), ("a", "x"), ("b", ""), ("", "")):
        for _ in range(5):
            add(dba, lane=lane, tenant=tenant)
    worker = hire()
    got = worker.claim(100)
    by_lane: dict[tuple[str, str], int] = {}
    for each in got:
        by_lane[each.lane, each.tenant] = by_lane.get((each.lane, each.tenant), 0) + 1
    assert by_lane == {("a", ""): 2, ("a", "x"): 2, ("b", ""): 2, ("", ""): 5}
    assert worker.claim(100) == []
    (one, *_) = [each for each in got if (each.lane, each.tenant) == ("a", "x")]
    worker.succeed(one)
    assert [(each.lane, each.tenant) for each in worker.claim(100)] == [("a", "x")]


def test_a_strict_order_goes_by_enqueue_and_its_head_holds_up_the_lane(database, dba, hire):
    database.clock.advance(0)
    limit(dba, ordered=True)
    late = add(dba, lane="a", priority=9)
    soon = add(dba, lane="a", priority=0)
    other = add(dba, lane="b")
    worker = hire()
    got = {each.id: each for each in worker.claim(10)}
    assert got.keys() == {late, other}
    assert worker.claim(10) == []
    assert worker.end(got[late], delay_seconds=10.0) == "failed"
    assert worker.claim(10) == []  # a failed head holds it up
    database.clock.advance(11)
    worker.beat()
    (again,) = worker.claim(10)
    assert again.id == late
    assert worker.end(again, final=True) == "frozen"
    assert worker.claim(10) == []  # and so does a frozen one
    do(dba, "select octop_retry(%s)", late)
    (again,) = worker.claim(10)
    assert again.id == late
    assert worker.end(again, final=True) == "frozen"
    do(dba, "select octop_cancel(%s)", late)
    assert [each.id for each in worker.claim(10)] == [soon]


def test_who_ends_a_head_that_held_up_its_lane_wakes_those_who_sleep(database, dba, hire):
    limit(dba, ordered=True)
    worker = hire()
    for way in (
        "select octop_cancel(%s)",
        "select octop_delete(%s)",
        "update octop_tasks set status = 'cancelled' where id = %s",
    ):
        head, behind = add(dba, lane="a"), add(dba, lane="a")
        assert worker.end(worker.claim_one(), final=True) == "frozen"
        do(dba, "select octop_sleep(%s::uuid, '{default}', 5)", worker.id)
        with database.connect() as ear:
            ear.execute("listen octop_wake")
            do(dba, way, head)
            assert [each.payload for each in ear.notifies(timeout=5, stop_after=1)] == ["default"], way
        claimed = worker.claim_one()
        assert claimed.id == behind
        worker.succeed(claimed)


def test_behind_a_head_that_waits_nobody_is_told_to_hurry(database, dba, hire):
    database.clock.advance(0)
    limit(dba, ordered=True)
    add(dba, lane="a", delay_seconds=60.0)
    add(dba, lane="a")
    worker = hire()
    assert worker.claim(5) == []
    assert value(dba, "select _octop_limits_due('default')") is None
    assert value(dba, "select _octop_next_due('default') - _octop_now()").total_seconds() == 60
    assert rows(dba, "select head_id is not null, held_up_by, room from octop_lanes('default')") == [(True, None, 0)]


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
    assert value(dba, "select count(*) from _octop_buckets") == 2
    database.clock.advance(10)
    worker.beat()
    assert sorted(each.lane for each in worker.claim(100)) == ["a", "b"]
    database.clock.advance(30)
    worker.beat()
    do(dba, "select _octop_purge_buckets(100)")
    assert value(dba, "select count(*) from _octop_buckets") == 0
    assert len(worker.claim(100)) == 4


def test_lanes_take_turns_by_their_weights_also_one_at_a_time(dba, hire):
    limit(dba, lane_weights='{"a": 3}')
    for lane in ("a", "b", "c"):
        for _ in range(30):
            add(dba, lane=lane)
    worker = hire()
    lanes: dict[str, str] = {}
    got = []
    for _ in range(20):
        answer = worker.exchange(1, lanes_after=lanes)
        lanes.update(answer.lanes)
        got += [each.lane for each in answer.tasks]
    assert "".join(got) == "aaabc" * 4
    many = worker.exchange(20, lanes_after=lanes)
    assert "".join(sorted(each.lane for each in many.tasks)) == "a" * 12 + "b" * 4 + "c" * 4


def test_C075_what_has_waited_long_is_before_what_is_new_and_better(database, dba, hire):
    database.clock.advance(0)
    limit(dba, ageing_seconds=10.0)
    old = add(dba, priority=9)
    database.clock.advance(35)
    better = [add(dba, priority=priority) for priority in (4, 5, 6)]
    laned = {lane: [add(dba, priority=9, lane=lane, queue="l") for _ in range(1)] for lane in ("a", "b")}
    worker = hire()
    worker.beat()
    assert [each.id for each in worker.claim(1)] == [better[0]]
    assert [each.id for each in worker.claim(1)] == [better[1]]
    assert [each.id for each in worker.claim(1)] == [old]
    assert [each.id for each in worker.claim(1)] == [better[2]]
    limit(dba, "l", ageing_seconds=10.0)
    database.clock.advance(100)
    for lane in laned:
        add(dba, priority=0, lane=lane, queue="l")
    other = hire(queues=["l"])
    assert {each.id for each in other.claim(2)} == {each for (each,) in laned.values()}


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


def test_C075_beside_a_stream_of_urgent_tasks_the_others_start_within_their_bound(database, dba, hire):
    database.clock.advance(0)
    limit(dba, ageing_seconds=10.0)
    low = [add(dba, priority=9) for _ in range(10)]
    worker = hire()
    started: list[tuple[str, int]] = []
    # ten tasks a second may start, and as many urgent ones come: the low ones get nothing from strict priorities
    for second in range(130):
        worker.beat()
        for _ in range(10):
            add(dba, priority=0)
        claimed = worker.claim(10)
        started += [(each.id, second) for each in claimed]
        worker.succeed(*claimed)
        database.clock.advance(1)
    when = {task_id: second for task_id, second in started if task_id in low}
    assert list(when) == sorted(low), "of one moment: by id"
    assert max(when.values()) <= 92, "nine steps of ten seconds, and what stands before them"
    assert min(when.values()) >= 80


def test_a_lane_with_few_tasks_gets_its_share_beside_one_with_many(dba, hire):
    limit(dba, global_limit=10)
    do(dba, "insert into octop_tasks (task_type, lane) select 't', 'a' from generate_series(1, 20000)")
    for _ in range(100):
        add(dba, lane="b")
    worker, lanes, done, exchanges = hire(), {}, 0, 0
    while done < 100:
        answer = worker.exchange(10, lanes_after=lanes)
        lanes.update(answer.lanes)
        worker.succeed(*answer.tasks)
        done += sum(each.lane == "b" for each in answer.tasks)
        exchanges += 1
    assert exchanges <= 20, "alone it would take ten"


def test_lanes_behind_frozen_blocked_and_full_heads_are_reached(dba, hire):
    limit(dba, ordered=True, lane_limit=1)
    for lane in range(300):
        add(dba, lane=f"a {lane:03}")
        add(dba, lane=f"a {lane:03}")
    worker = hire()
    lanes: dict[str, str] = {}
    for _ in range(10):  # all heads fail for good
        answer = worker.exchange(100, lanes_after=lanes)
        lanes.update(answer.lanes)
        for each in answer.tasks:
            worker.end(each, final=True)
    assert value(dba, "select count(*) from octop_tasks where status = 'frozen'") == 300
    open_ = add(dba, lane="b")
    found: list[str] = []
    for _ in range(4):
        answer = worker.exchange(5, lanes_after=lanes)
        lanes.update(answer.lanes)
        found += [each.id for each in answer.tasks]
    assert found == [open_]
