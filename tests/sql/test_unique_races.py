"""Unique keys under race: many sessions, transactions that are left open, workers and retries beside them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from octop.engine import calls
from octop.model import errors
from octop.model.ids import new_id
from octop.model.work import NewTask
from tests.sql.crew import column, do, task, value
from tests.sql.sessions import Worker as Beside
from tests.sql.sessions import sessions
from tests.sql.unique import add_unique, counted, keyed, many, send


def test_C016_a_hundred_sessions_enqueue_one_key_and_get_the_same_id(database, dba):
    barrier = Barrier(100)

    def enqueue(session):
        barrier.wait(30)
        return session.run(calls.octop_enqueue_many([keyed(42)]))[0]

    with sessions(database, 100) as made, ThreadPoolExecutor(100) as threads:
        answers = list(threads.map(enqueue, made))
    assert len(answers) == 100
    assert len({id for id, _ in answers}) == 1
    assert sum(created for _, created in answers) == 1
    assert value(dba, "select count(*) from octop_tasks") == 1


def test_C016_who_loses_waits_and_takes_over_when_the_winner_rolls_back(database, dba):
    with sessions(database, 5) as made:
        winner, *others = made
        winner.execute("begin")
        winner.run(calls.octop_enqueue_many([keyed(42)]))
        waiting, id = [], ""
        for session in others:
            session.execute("begin")
            waiting.append(
                session.start(partial(session.run, calls.octop_enqueue_many([keyed(42)]))).wait_until_blocked()
            )
        winner.execute("rollback")
        for left in range(4, 0, -1):
            held = next_of(waiting)
            ((id, created),) = held.result()
            assert created
            waiting.remove(held)
            held.session.execute("rollback" if left > 1 else "commit")
    assert column(dba, "select id::text from octop_tasks") == [id]
    counted(dba)


def next_of(waiting):
    """Return the session that has taken over."""
    from concurrent.futures import FIRST_COMPLETED, wait

    done, _ = wait([each.future for each in waiting], timeout=15, return_when=FIRST_COMPLETED)
    return next(each for each in waiting if each.future in done)


def test_who_is_told_that_a_task_exists_can_name_a_committed_one(database, dba):
    with sessions(database, 2) as (winner, loser):
        winner.execute("begin")
        ((first, _),) = winner.run(calls.octop_enqueue_many([keyed(42)]))
        waits = loser.start(partial(loser.run, calls.octop_enqueue_many([keyed(42)]))).wait_until_blocked()
        winner.execute("commit")
        assert waits.result() == [(first, False)]
    assert task(dba, first)["status"] == "pending"


@pytest.mark.parametrize("scope", ["pending", "live", "1 hour"])
def test_a_window_and_a_scope_wait_for_a_decision_that_is_open(database, dba, scope):
    with sessions(database, 2) as (winner, loser):
        winner.execute("begin")
        winner.run(calls.octop_enqueue_many([keyed(42, unique_scope=scope)]))
        new = keyed(42, unique_scope=scope)
        waits = loser.start(partial(loser.run, calls.octop_enqueue_many([new]))).wait_until_blocked()
        winner.execute("rollback")
        assert waits.result() == [(new.id, True)]


def test_C120_waiting_for_a_key_is_bounded_and_an_enqueue_without_a_key_waits_for_nobody(database, dba):
    with sessions(database, 4) as (holder, waiting, other_key, plain):
        holder.execute("begin")
        holder.run(calls.octop_enqueue_many([keyed(42)]))
        for session in (waiting, other_key, plain):
            session.execute("set lock_timeout = '200ms'")
        with pytest.raises(errors.TryAgainError):
            waiting.run(calls.octop_enqueue_many([keyed(42)]))
        assert other_key.run(calls.octop_enqueue_many([keyed(43)]))[0][1]
        assert plain.run(calls.octop_enqueue_many([NewTask("t", "{}", new_id())]))[0][1]
        holder.execute("commit")
        assert not waiting.run(calls.octop_enqueue_many([keyed(42)]))[0][1]


@pytest.mark.parametrize("scope", ["pending", "live"])
def test_C017_a_task_that_waits_for_its_retry_and_its_twin_stop_nobody(dba, database, hire, scope):
    worker = hire()
    first, _ = add_unique(dba, unique_scope=scope)
    worker.end(*worker.claim())
    assert task(dba, first)["status"] == "failed"
    twin, created = add_unique(dba, unique_scope=scope)
    assert created is (scope == "pending"), "live: the key is still held"
    do(dba, "insert into octop_tasks (task_type) select 't' from generate_series(1, 20)")
    database.clock.advance(60)
    worker.beat()
    claimed = worker.claim(100)
    assert {first, twin} <= {each.id for each in claimed}
    assert len(claimed) == 20 + len({first, twin})
    worker.succeed(*claimed)
    assert set(column(dba, "select status from octop_tasks")) == {"success"}


def test_releases_and_rescues_of_unique_tasks_collide_with_nobody(dba, database, hire):
    lost, other = hire(), hire()
    first, _ = add_unique(dba)
    lost.claim()
    twin, _ = add_unique(dba)
    released = other.claim()
    other.end(released[0], "released")
    third, created = add_unique(dba)
    assert created, "released: it has been started, and holds nothing"
    for _ in range(4):
        database.clock.advance(25)
        other.beat()
    other.become_judge(dba)
    other.sweep()
    assert task(dba, first)["status"] == "failed"
    assert {task(dba, each)["status"] for each in (twin, third)} == {"pending"}
    counted(dba)


def test_tasks_without_a_key_have_no_entry_in_its_index(dba, hire):
    worker = hire()
    do(dba, "insert into octop_tasks (task_type) select 't' from generate_series(1, 500)")
    many(dba, [NewTask("t", "{}", new_id()) for _ in range(500)])
    worker.succeed(*worker.claim(1000))
    assert value(dba, "select pg_relation_size('octop_tasks_live_one_per_unique_key')") == 8192, "its first page alone"


def handed_in(worker, successes):
    """Hand in as workers do: with care where a producer holds a row; return what is to be sent once more."""
    try:
        answer = worker.exchange(successes=successes)
    except errors.TryAgainError:
        answer = worker.exchange(successes=successes, careful=True)
    again = {each.id for each in answer.settled if each.verdict == "again"}
    return [each for each in successes if each.fence.id in again]


def test_a_worker_and_a_bulk_of_unique_tasks_at_once_end_well(database, dba):
    """Claims and completions beside two producers of the same few keys: no error, no task twice for a key at once."""
    with sessions(database, 3) as (first, second, third):
        worker = Beside(third, types=("t",))

        def batches():
            return (calls.octop_enqueue_many([keyed(n % 6, unique_scope="live") for n in range(12)]) for _ in range(60))

        busy = [session.start(partial(send, session, batches())) for session in (first, second)]
        most = 0
        left: list[Any] = []
        while left or not all(each.future.done() for each in busy):
            claimed = worker.claim(20)
            most = max(most, len(claimed) + len(left))
            left = handed_in(worker, left + claimed)
        for each in busy:
            each.result()
    assert 0 < most <= 6
    counted(dba)


def test_repeatable_read_is_told_to_try_again_and_never_sees_a_twin(database, dba):
    with database.connect() as old:
        old.execute("begin isolation level repeatable read")
        old.execute("select 1 from octop_tasks")
        first, _ = add_unique(dba)
        with pytest.raises(errors.TryAgainError):
            many(old, [keyed(42)])
        old.execute("rollback")
    assert column(dba, "select id::text from octop_tasks") == [first]
