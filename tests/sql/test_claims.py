"""Claims by octop_exchange: what a worker gets, in which order, and what is set aside."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from octop.engine import calls
from octop.engine.call import run
from tests.sql.crew import add, add_many, column, do, rows, task, value


def test_a_claim_is_a_start_numbered_from_one_and_says_all_that_a_worker_must_know(database, dba, hire):
    now = database.clock.advance(0)
    task_id = add(
        dba,
        queue="q",
        tenant="x",
        priority=1,
        payload='{"a": [1, "b"]}',
        max_retries=7,
        timeout_seconds=2.5,
        tags=["g"],
        meta='{"m": 1}',
    )
    worker = hire(queues=["q"])
    claimed = worker.claim_one()
    assert (claimed.id, claimed.attempt, claimed.queue, claimed.tenant, claimed.priority) == (task_id, 1, "q", "x", 1)
    assert (claimed.payload, claimed.max_retries, claimed.timeout_seconds) == ('{"a": [1, "b"]}', 7, 2.5)
    assert (claimed.tags, claimed.meta, claimed.isolated, claimed.retry_count) == (["g"], '{"m": 1}', False, 0)
    running = task(dba, task_id)
    assert (running["status"], running["attempt"], running["started_at"]) == ("running", 1, now)
    assert (str(running["worker_id"]), str(running["claim_id"])) == (worker.id, claimed.claim_id)
    assert (running["deadline_at"] - now).total_seconds() == 2.5
    assert running["due_at"] == now


def test_C075_order_is_priority_then_time_and_never_the_future(database, dba, hire):
    now = database.clock.advance(0)
    expected = []
    for priority in (9, 5, 0):
        for offset in (-5, -10, 60):
            task_id = add(dba, priority=priority, scheduled_at=now + timedelta(seconds=offset))
            if offset < 0:
                expected.append((priority, offset, task_id))
    # how long whoever is kept waiting has waited can be seen
    assert value(dba, "select oldest_due_at from octop_queue_summary") == now - timedelta(seconds=10)
    assert [each.id for each in hire().claim(100)] == [task_id for _, _, task_id in sorted(expected)]


def test_a_task_starts_at_its_second_and_not_before(database, dba, hire):
    database.clock.advance(0)
    worker = hire()
    add(dba, delay_seconds=10.0)
    database.clock.advance(9.999)
    assert worker.claim(5) == []
    database.clock.advance(0.001)
    assert len(worker.claim(5)) == 1


def test_takes_at_most_what_was_wanted_from_each_queue(dba, hire):
    for queue in ("a", "b"):
        add_many(dba, 20, queue=queue)
    worker = hire(queues=["a", "b"])
    got = run(worker.connection, calls.octop_exchange(worker.id, wanted={"a": 3, "b": 5}, task_types=["t"])).tasks
    assert sorted(each.queue for each in got) == ["a"] * 3 + ["b"] * 5
    assert len({each.claim_id for each in got}) == 1
    for nothing in (0, -1, None):
        assert (
            rows(
                worker.connection,
                "select * from octop_exchange(%s, array['a'], array[%s::int], array['t'])",
                worker.id,
                nothing,
            )
            == []
        )
    assert worker.claim(100)[0].claim_id != got[0].claim_id


def test_two_workers_never_get_the_same_task(database, dba, hire):
    ids = set(add_many(dba, 200))
    one, two = hire(), hire()
    with one.connection.transaction():
        first = {each.id for each in one.claim(100)}
        second = {each.id for each in two.claim(150)}  # while the first claim is not committed
    assert len(first) == 100
    assert len(second) == 100
    assert first | second == ids


def test_lanes_take_turns_and_none_is_left_out(dba, hire):
    for lane in ("a", "b", "c"):
        do(dba, "insert into octop_tasks (task_type, lane) select 't', %s from generate_series(1, 50)", lane)
    worker = hire()
    taken: list[str] = []
    lanes: dict[str, str] = {}
    for _ in range(6):
        done = worker.exchange(2, lanes_after=lanes)
        lanes = lanes | done.lanes
        taken += [each.lane for each in done.tasks]
    assert len(taken) == 12
    assert {lane: taken.count(lane) for lane in "abc"} == {"a": 4, "b": 4, "c": 4}


def test_only_a_registered_worker_whose_heart_beats_gets_tasks(database, dba, hire):
    add(dba)
    database.clock.advance(0)
    worker = hire()
    stranger = replace(worker, id=str(uuid4()))
    assert stranger.claim(5) == []
    database.clock.advance(20.001)  # two thirds of the lease
    assert worker.claim(5) == []
    worker.beat()
    assert len(worker.claim(5)) == 1


def test_a_draining_worker_gets_nothing_and_its_outcomes_are_taken(dba, hire):
    add_many(dba, 2)
    worker = hire()
    claimed = worker.claim_one()
    run(worker.connection, calls.octop_drain(worker.id))
    assert worker.claim(5) == []
    assert worker.succeed(claimed) == []


def test_C078_a_paused_queue_gives_nothing_from_the_commit_on_and_running_tasks_end(dba, hire):
    add_many(dba, 3)
    worker = hire()
    claimed = worker.claim_one()
    do(dba, "select octop_pause('default')")
    assert worker.claim(5) == []
    assert worker.succeed(claimed) == []
    do(dba, "select octop_resume('default')")
    assert len(worker.claim(5)) == 2


def test_the_exchange_refuses_other_isolation_levels_and_uneven_arrays(hire):
    worker = hire()
    for level in ("repeatable read", "serializable"):
        do(worker.connection, f"set default_transaction_isolation = '{level}'")
        with pytest.raises(psycopg.Error) as refused:
            do(worker.connection, "select * from octop_exchange(%s)", worker.id)
        assert refused.value.sqlstate == "OC301"
    do(worker.connection, "reset default_transaction_isolation")
    for uneven in (
        "done_ids => array[octop_uuid7()]",
        "done_ids => array[octop_uuid7()], done_attempts => array[1], done_claims => array[octop_uuid7()]",
        "queues => array['a']",
        "queues => array['a'], wanted => array[1, 2]",
    ):
        with pytest.raises(psycopg.Error) as refused:
            do(worker.connection, f"select * from octop_exchange(%s, {uneven})", worker.id)
        assert refused.value.sqlstate == "OC302", uneven


# --- unknown task types ----------------------------------------------------------------------------------------------


def test_C124_an_old_worker_parks_what_nobody_knows_and_a_new_one_runs_it_as_attempt_one(dba, hire):
    ids = add_many(dba, 100, "new")
    old = hire(types=["old"])
    done = old.exchange(10)
    assert (done.tasks, done.parked) == ([], 100)
    assert rows(dba, "select status, blocked_by, attempt, count(*) from octop_tasks group by 1, 2, 3") == [
        ("blocked", "task_type:new", 0, 100)
    ]
    assert rows(dba, "select status, count from octop_task_summary") == [("blocked", 100)]
    new = hire(types=["new"])
    got = new.claim(1000)
    assert {each.id for each in got} == set(ids)
    assert {each.attempt for each in got} == {1}
    assert new.succeed(*got) == []


def test_C124_what_another_living_worker_of_the_queue_knows_is_left_to_it(dba, hire):
    add_many(dba, 3, "new")
    old, new = hire(types=["old"]), hire(types=["new"])
    assert old.exchange(10).parked == 0
    assert len(new.claim(10)) == 3


def test_C125_each_type_is_only_ever_run_by_workers_that_know_it(database, dba, hire):
    database.clock.advance(0)
    one, two = hire(types=["a"], queues=["qa"]), hire(types=["b"], queues=["qb"])
    add(dba, "a", queue="qa", retry_policy='{"delays": [0]}')
    one.claim_one()
    for _ in range(10):
        database.clock.advance(5)
        two.beat()
        two.sweep()
    assert column(dba, "select status from octop_tasks") == ["failed"]
    assert two.claim(5) == []
    again = hire(types=["a"], queues=["qa"])
    assert again.claim_one().attempt == 2


def test_C129_an_unknown_name_at_the_head_does_not_hold_up_those_behind_it(dba, hire):
    add_many(dba, 600, "removed")
    add_many(dba, 10, "t")
    assert len(hire().claim(10)) == 10


def test_unknown_types_parked_behind_many_come_without_losing_one(dba, hire):
    add_many(dba, 5000, "removed")
    worker = hire()
    add_many(dba, 3, "t")
    got, looks = 0, 0
    while got < 3 and looks < 20:
        got += len(worker.claim(10))
        looks += 1
    assert got == 3
    assert looks <= 5
