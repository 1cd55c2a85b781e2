"""Two sessions at once, in a forced order: nothing is lost, doubled, or waited for longer than promised."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from threading import Barrier
from uuid import uuid4

import psycopg
import pytest

from octop.engine import calls
from octop.model import errors
from octop.model.task import Outcome, OutcomeKind
from octop.model.work import NewTask
from tests.servers import Database
from tests.sql.sessions import Session, Worker, enqueue, sessions, status
from tests.system.faults.mutants import mutated


@pytest.fixture
def two(database: Database) -> Iterator[list[Session]]:
    with sessions(database, 2) as made:
        yield made


@pytest.fixture
def three(database: Database) -> Iterator[list[Session]]:
    with sessions(database, 3) as made:
        yield made


def test_an_exchange_against_an_open_update_stops_after_50_ms_and_its_careful_form_does_the_rest(two):
    mine, person = two
    worker = Worker(mine)
    enqueue(mine, 5)
    done = worker.claim()
    held = done[2].fence.id
    person.execute("begin")
    person.execute("update octop_tasks set tags = '{seen}' where id = %s", [held])

    began = time.monotonic()
    with pytest.raises(errors.TryAgainError):
        worker.exchange(successes=done)
    assert 0.05 <= time.monotonic() - began < 5
    assert {status(mine, each.fence.id) for each in done} == {"running"}

    answer = worker.exchange(successes=done, careful=True)
    assert [(it.id, it.verdict) for it in answer.settled] == [(held, "again")]
    assert [status(mine, each.fence.id) for each in done].count("success") == 4

    person.execute("commit")
    assert worker.exchange(successes=done, careful=True).settled == []
    assert status(mine, held) == "success"


@pytest.mark.parametrize("careful", [False, True])
def test_other_outcomes_against_an_open_update(two, careful):
    mine, person = two
    worker = Worker(mine)
    enqueue(mine, 3)
    ends = [Outcome(each.fence, OutcomeKind.FAILURE, error_class="E") for each in worker.claim()]
    held = ends[0].fence.id
    person.execute("begin")
    person.execute("update octop_tasks set tags = '{seen}' where id = %s", [held])
    if careful:
        verdicts = {it.id: it.verdict for it in worker.exchange(outcomes=ends, careful=True).settled}
        assert Counter(verdicts.values()) == {"failed": 2, "again": 1}
        assert verdicts[held] == "again"
    else:
        with pytest.raises(errors.TryAgainError):
            worker.exchange(outcomes=ends)
    person.execute("commit")
    answer = worker.exchange(outcomes=ends)
    assert Counter(it.verdict for it in answer.settled) == ({"kept": 2, "failed": 1} if careful else {"failed": 3})


def test_an_update_that_takes_a_running_task_back_beats_the_exchange_that_waits_for_it(two):
    mine, person = two
    worker = Worker(mine)
    (id,) = enqueue(mine)
    done = worker.claim()
    person.execute("begin")
    person.execute("update octop_tasks set status = 'pending' where id = %s", [id])
    mine.execute("begin")
    waiting = mine.start(lambda: worker.exchange(successes=done))
    waiting.wait_until_blocked()
    person.execute("commit")
    answer = waiting.result()
    mine.execute("commit")
    assert [(it.id, it.verdict) for it in answer.settled] == [(id, "lost")]
    assert status(mine, id) == "pending"
    assert [each.fence.attempt for each in worker.claim()] == [2]


def test_an_update_that_moves_a_row_to_history_while_the_exchange_wants_it(two):
    mine, person = two
    worker = Worker(mine)
    ids = enqueue(mine, 3)
    done = worker.claim()
    person.execute("begin")
    person.execute("update octop_tasks set status = 'cancelled' where id = %s", [ids[1]])
    with pytest.raises(errors.TryAgainError):
        worker.exchange(successes=done)
    answer = worker.exchange(successes=done, careful=True)
    assert [(it.id, it.verdict) for it in answer.settled] == [(ids[1], "again")]
    person.execute("commit")
    answer = worker.exchange(successes=done, careful=True)
    assert [(it.id, it.verdict) for it in answer.settled] == [(ids[1], "lost")]
    assert [status(mine, id) for id in ids] == ["success", "cancelled", "success"]


def test_a_claim_passes_rows_that_a_person_moves(two):
    mine, person = two
    worker = Worker(mine)
    ids = enqueue(mine, 3)
    person.execute("begin")
    person.execute("update octop_tasks set status = 'cancelled' where id = %s", [ids[0]])
    assert sorted(each.fence.id for each in worker.claim()) == sorted(ids[1:])
    person.execute("rollback")
    assert [each.fence.id for each in worker.claim()] == ids[:1]


def test_cancel_before_completion_the_success_stays_a_success(two):
    """The worker had not heard of it: what is done is done, and the person is told so."""
    mine, person = two
    worker = Worker(mine)
    (id,) = enqueue(mine)
    done = worker.claim()
    person.execute("begin")
    assert person.run(calls.octop_cancel(id)) == "requested"
    with pytest.raises(errors.TryAgainError):
        worker.exchange(successes=done)
    person.execute("commit")
    assert mine.run(calls.octop_control(worker.id)).cancel == [id]
    assert worker.exchange(successes=done).settled == []
    assert status(mine, id) == "success"


@pytest.mark.parametrize("guard", ["held", "taken out"])
def test_a_cancel_beside_a_claim_asks_the_worker_and_takes_nothing_from_it(database, two, guard):
    mine, person = two
    worker = Worker(mine)
    (id,) = enqueue(mine)
    with mutated(database.url, "lock") if guard == "taken out" else contextlib.nullcontext():
        mine.execute("begin")
        (claimed,) = worker.claim()
        waiting = person.start(lambda: person.run(calls.octop_cancel(id)))
        waiting.wait_until_blocked()
        mine.execute("commit")
        verdict, after = waiting.result(), status(mine, id)
    if guard == "held":
        assert (verdict, after) == ("requested", "running")
        assert worker.exchange(successes=[claimed]).settled == []
    else:
        assert (verdict, after) == ("cancelled", "cancelled"), "the body runs, and nobody says so"


def test_completion_before_cancel_the_person_hears_that_it_has_finished(two):
    mine, person = two
    worker = Worker(mine)
    (id,) = enqueue(mine)
    done = worker.claim()
    mine.execute("begin")
    assert worker.exchange(successes=done).settled == []
    waiting = person.start(lambda: person.run(calls.octop_cancel(id)))
    waiting.wait_until_blocked()
    mine.execute("commit")
    with pytest.raises(errors.TaskStatusError):
        waiting.result()


@pytest.mark.parametrize(
    ("kind", "final", "after"),
    [
        (OutcomeKind.FAILURE, False, "cancelled"),
        (OutcomeKind.FAILURE, True, "cancelled"),
        (OutcomeKind.RELEASED, False, "cancelled"),
    ],
)
def test_cancel_finds_a_task_that_the_engine_moves_in_that_moment(two, kind, final, after):
    mine, person = two
    worker = Worker(mine)
    (id,) = enqueue(mine)
    (done,) = worker.claim()
    mine.execute("begin")
    worker.exchange(outcomes=[Outcome(done.fence, kind, final=final)])
    waiting = person.start(lambda: person.run(calls.octop_cancel(id)))
    waiting.wait_until_blocked()
    mine.execute("commit")
    assert waiting.result() == "cancelled"
    assert status(mine, id) == after


def test_retry_against_retry_of_a_frozen_task(two):
    mine, other = two
    worker = Worker(mine)
    (id,) = enqueue(mine, max_retries=0)
    (done,) = worker.claim()
    worker.exchange(outcomes=[Outcome(done.fence, OutcomeKind.FAILURE)])
    assert status(mine, id) == "frozen"
    mine.execute("begin")
    assert mine.run(calls.octop_retry(id)) == id
    waiting = other.start(lambda: other.run(calls.octop_retry(id)))
    waiting.wait_until_blocked()
    mine.execute("commit")
    assert waiting.result() == id
    assert mine.execute("select count(*) from octop_tasks where id = %s", [id]) == [(1,)]
    assert mine.execute("select sum(n)::integer from _octop_counted() where status = 'waiting'") == [(1,)]
    assert mine.execute("select coalesce(sum(n), 0)::integer from _octop_counted() where status = 'frozen'") == [(0,)]


def test_retry_against_cancel_of_a_frozen_task(two):
    mine, other = two
    worker = Worker(mine)
    (id,) = enqueue(mine, max_retries=0)
    (done,) = worker.claim()
    worker.exchange(outcomes=[Outcome(done.fence, OutcomeKind.FAILURE)])
    mine.execute("begin")
    assert mine.run(calls.octop_retry(id)) == id
    waiting = other.start(lambda: other.run(calls.octop_cancel(id)))
    waiting.wait_until_blocked()
    mine.execute("commit")
    assert waiting.result() == "cancelled"
    assert status(mine, id) == "cancelled"


def test_transactions_that_enqueue_under_ids_of_their_own_do_not_wait_for_each_other(two):
    many = (
        "select count(*) from octop_enqueue_many(array_fill('job'::text, array[600]), array_fill('{}'::text, array[600]),"
        " ids => array(select gen_random_uuid() from generate_series(1, 600))) where created"
    )
    for session in two:
        session.execute("begin")
        session.execute("set local lock_timeout = '50ms'")
        assert session.execute(many) == [(600,)]
    for session in two:
        session.execute("commit")


def test_an_id_whose_task_ends_while_a_repeated_enqueue_waits_for_it_makes_nothing_twice(two):
    mine, other = two
    worker = Worker(mine)
    task_id = str(uuid4())
    again = "select created from octop_enqueue('job', id => %s)"
    mine.execute("begin")
    assert mine.execute(again, [task_id]) == [(True,)]
    waiting = other.start(lambda: other.execute(again, [task_id])).wait_until_blocked()
    worker.exchange(successes=worker.claim())
    mine.execute("commit")
    assert waiting.result() == [(False,)]
    assert mine.execute("select status from octop_tasks where id = %s", [task_id]) == [("success",)]
    assert mine.execute("select sum(n) from _octop_counter_deltas where status = 'waiting'") == [(0,)]
    assert worker.claim() == []


def test_two_claims_get_different_tasks_and_neither_waits(two):
    """C084's kind: what the other has not committed yet is passed, not counted and not waited for."""
    mine, other = two
    first, second = Worker(mine), Worker(other)
    ids = enqueue(mine, 6)
    mine.execute("begin")
    got = first.claim(4)
    other.execute("set lock_timeout = '50ms'")
    rest = second.claim(4)
    mine.execute("commit")
    assert (len(got), len(rest)) == (4, 2)
    assert sorted(each.fence.id for each in [*got, *rest]) == sorted(ids)


def test_two_claims_of_laned_tasks_get_different_ones(two):
    mine, other = two
    first, second = Worker(mine), Worker(other)
    for lane in ("a", "b", "c"):
        enqueue(mine, 2, lane=lane)
    mine.execute("begin")
    got = {each.fence.id for each in first.claim(4)}
    rest = {each.fence.id for each in second.claim(4)}
    mine.execute("commit")
    rest |= {each.fence.id for each in second.claim(4)}
    assert not got & rest
    assert len(got | rest) == 6


def test_C136_many_claims_at_once_start_every_task_once(database):
    with sessions(database, 8) as all_of_them:
        workers = [Worker(session) for session in all_of_them]
        ids = enqueue(all_of_them[0], 400)
        barrier = Barrier(len(workers))

        def drain(worker: Worker) -> list[str]:
            barrier.wait(10)
            got: list[str] = []
            while batch := worker.claim(7):
                got += [each.fence.id for each in batch]
                try:
                    assert worker.exchange(successes=batch).settled == []
                except errors.TryAgainError:  # a lock was not free within 50 ms: a worker sends it again, careful
                    while worker.exchange(successes=batch, careful=True).settled:
                        pass
            return got

        running = [worker.session.start(partial(drain, worker)) for worker in workers]
        started = Counter(id for each in running for id in each.result())
        assert started == Counter(ids)
        assert all_of_them[0].execute("select status, count(*) from octop_tasks group by 1") == [("success", 400)]


@pytest.mark.parametrize("what", ["reader", "writer"])
def test_roll_over_with_an_open_reader_or_writer_makes_days_and_leaves_dropping_for_later(three, database, what):
    mine, other, hot = three
    worker, other_worker = Worker(hot), Worker(other)
    enqueue(hot, 3)
    mine.execute("select octop_make_days()")
    other.execute("begin")
    if what == "reader":
        other.execute("select count(*) from octop_tasks")
    else:
        other_worker.exchange(successes=other_worker.claim(1))
    first, second = ([each] for each in worker.claim(2))
    (made,) = mine.execute("select octop_make_days(12)")[0]
    assert made in {0, 5}  # somebody reads: what could not be made now is left to the next call
    assert made == 5 or what == "reader"
    assert worker.exchange(successes=first).settled == []
    old = mine.execute("select min(from_at)::date::text from _octop_days")[0][0]
    database.clock.advance(days=20)
    assert mine.execute("select octop_drop_days(1)") == [(0,)]
    assert mine.execute("select min(from_at)::date::text from _octop_days") == [(old,)]
    assert worker.exchange(successes=second).settled == []
    other.execute("commit")
    assert mine.execute("select octop_drop_days(1)") == [(3,)]


def test_two_roll_overs_at_once_one_of_them_does_it(two):
    mine, other = two
    mine.execute("begin")
    assert mine.execute("select octop_make_days(20)")[0][0] > 0
    assert other.execute("select octop_make_days(20)") == [(0,)]
    mine.execute("commit")
    assert other.execute("select octop_make_days(20)") == [(0,)]


def test_two_sweeps_at_once_judge_each_task_once_and_do_not_wait(three):
    mine, other, third = three
    gone, first, second = Worker(third), Worker(mine), Worker(other)
    ids = enqueue(mine, 10)
    gone.claim()
    mine.execute("update octop_workers set beating_since = now() - interval '1 h'")
    mine.execute("update octop_workers set beat_at = now() - interval '1 h' where id = %s", [gone.id])
    mine.execute("begin")
    swept = mine.run(calls.octop_sweep(first.id))
    again = other.run(calls.octop_sweep(second.id))
    mine.execute("commit")
    assert (swept.rescued, again.rescued) == (10, 0)
    assert mine.execute("select outcome, count(*) from octop_attempts group by 1") == [("lost", 10)]
    rows = mine.execute(
        "select distinct status, retry_count, lost_count from octop_tasks where id = any(%s::uuid[])", [ids]
    )
    assert rows == [("failed", 1, 1)]


def test_a_rescue_against_the_outcome_of_the_worker_that_was_given_up(two):
    mine, other = two
    late, judge = Worker(mine), Worker(other)
    (id,) = enqueue(mine)
    done = late.claim()
    mine.execute("update octop_workers set beating_since = now() - interval '1 h'")
    mine.execute("update octop_workers set beat_at = now() - interval '1 h' where id = %s", [late.id])
    mine.execute("begin")
    assert late.exchange(successes=done).settled == []
    assert other.run(calls.octop_sweep(judge.id)).rescued == 0
    mine.execute("commit")
    assert other.run(calls.octop_sweep(judge.id)).rescued == 0
    assert status(other, id) == "success"


def test_C069_workers_that_register_at_once_wait_for_each_other_without_a_deadlock(database):
    with sessions(database, 6) as all_of_them:
        barrier = Barrier(len(all_of_them))

        def register(session: Session, number: int) -> None:
            types = tuple(f"type_{n}" for n in range(20))
            barrier.wait(10)
            for _ in range(5):
                Worker(session, ("one", "two"), types[::-1] if number % 2 else types)

        running = [session.start(partial(register, session, n)) for n, session in enumerate(all_of_them)]
        for each in running:
            each.result()
        assert all_of_them[0].execute("select count(*) from octop_workers") == [(30,)]
        assert all_of_them[0].execute("select count(*) from octop_task_types") == [(20,)]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_C016_two_sessions_enqueue_the_same_id(two, end):
    mine, other = two
    task = NewTask("job", "{}", str(uuid4()))
    mine.execute("begin")
    assert mine.run(calls.octop_enqueue_many([task], fresh=False)) == [(task.id, True)]
    waiting = other.start(lambda: other.run(calls.octop_enqueue_many([task], fresh=False)))
    waiting.wait_until_blocked()
    mine.execute(end)
    assert waiting.result() == [(task.id, end == "rollback")]
    assert other.execute("select count(*) from octop_tasks") == [(1,)]
    assert other.execute("select sum(n)::integer from _octop_counted()") == [(1,)]


def test_C016_callers_of_one_id_wait_for_who_was_first_and_take_over_when_he_rolls_back(database):
    """Of five open transactions each is rolled back in turn, but for the last: it makes the task, and all others know nothing of it."""
    task = NewTask("job", "{}", str(uuid4()))
    with sessions(database, 5) as made:
        for session in made:
            session.execute("begin")
        first, *others = made
        assert first.run(calls.octop_enqueue_many([task], fresh=False)) == [(task.id, True)]
        waiting = [
            (each, each.start(partial(each.run, calls.octop_enqueue_many([task], fresh=False)))) for each in others
        ]
        for _, call in waiting:
            call.wait_until_blocked()
        holder = first
        while waiting:
            holder.execute("rollback")
            deadline = time.monotonic() + 15
            while not (won := [(each, call) for each, call in waiting if call.future.done()]):
                assert time.monotonic() < deadline, "nobody took over"
            ((holder, call),) = won
            assert call.result() == [(task.id, True)], "a caller makes it, whoever rolled back before"
            waiting.remove((holder, call))
        assert first.execute("select count(*) from octop_tasks") == [(0,)]
        holder.execute("commit")
        assert first.execute("select id::text from octop_tasks") == [(task.id,)]
        assert first.run(calls.octop_enqueue_many([task], fresh=False)) == [(task.id, False)]
        assert first.execute("select sum(n)::integer from _octop_counted()") == [(1,)]


def test_C016_many_callers_of_one_id_make_one_task_and_are_told_the_same(database):
    task = NewTask("job", "{}", str(uuid4()))
    with sessions(database, 20) as made:
        barrier = Barrier(len(made))

        def call(session: Session) -> list[tuple[str, bool]]:
            barrier.wait(10)
            return [answer for _ in range(5) for answer in session.run(calls.octop_enqueue_many([task], fresh=False))]

        running = [session.start(partial(call, session)) for session in made]
        answers = Counter(answer for each in running for answer in each.result())
        assert answers == {(task.id, True): 1, (task.id, False): 99}
        assert made[0].execute("select count(*) from octop_tasks") == [(1,)]


def test_C005_config_writers_at_once_and_settings_that_would_disagree_together(two):
    mine, other = two
    mine.execute("begin")
    mine.run(calls.octop_config_set("worker.heartbeat_seconds", "9"))
    # an open transaction of a DBA keeps nobody waiting: neither another DBA nor a worker that registers
    assert other.run(calls.octop_config_set("worker.lease_seconds", "31")) == "31"
    Worker(other)
    mine.execute("commit")
    other.run(calls.octop_config_set("worker.lease_seconds", "28"))
    mine.execute("begin")
    mine.run(calls.octop_config_set("worker.heartbeat_seconds", "9.3"))
    other.execute("begin")
    other.run(calls.octop_config_set("worker.lease_seconds", "27.5"))
    # each agrees alone; the first to commit is checked alone, the second with both
    mine.execute("set constraints all immediate")
    waiting = other.start(lambda: other.execute("commit"))
    waiting.wait_until_blocked()
    mine.execute("commit")
    with pytest.raises(psycopg.Error) as refused:
        waiting.result()
    assert refused.value.sqlstate == "OC203"
    other.execute("rollback")
    (version,) = mine.execute("select version from _octop_control")[0]
    mine.run(calls.octop_config_set("task.retry_growth", "3"))
    assert mine.execute("select version from _octop_control")[0][0] > version


@pytest.mark.parametrize("later", [0, 50])
def test_a_task_that_commits_late_is_found_though_younger_ones_ran_before_it(two, later):
    """C118: no start before the commit, and what commits late is not passed for ever."""
    mine, producer = two
    worker = Worker(mine)
    producer.execute("begin")
    (late,) = enqueue(producer)
    younger = enqueue(mine, later)
    for _ in range(3):
        batch = worker.claim()
        assert late not in {each.fence.id for each in batch}
        worker.exchange(successes=batch)
    producer.execute("commit")
    assert [each.fence.id for each in worker.claim()] == [late]
    assert {status(mine, id) for id in younger} <= {"success"}


@pytest.mark.parametrize("how", ["enqueue", "insert", "killed"])
def test_a_task_of_a_rolled_back_transaction_never_starts(two, how):
    """C115: job and data vanish together, also when the client dies."""
    mine, producer = two
    worker = Worker(mine)
    producer.execute("begin")
    if how == "insert":
        producer.execute("insert into octop_tasks (task_type) values ('job')")
    else:
        enqueue(producer)
    assert worker.claim() == []
    if how == "killed":
        mine.execute("select pg_terminate_backend(%s, 5000)", [producer.pid])
        with pytest.raises(psycopg.OperationalError):
            producer.execute("commit")
    else:
        producer.execute("rollback")
    assert worker.claim() == []
    assert mine.execute("select count(*) from octop_tasks") == [(0,)]
    assert mine.execute("select coalesce(sum(n), 0)::integer from _octop_counted()") == [(0,)]
