"""octop.testing drains: tasks run in this process, on the real engine, and their failures are the test's."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from datetime import date, timedelta

import psycopg
import pytest

from octop import Cancel, Context, Retry, Snooze, Status
from octop.model.errors import ConfigurationError, DatabaseUnreachableError
from octop.testing import DrainLimitError
from tests.system.testing.asking import NINE, ask


@pytest.mark.all_versions
def test_drain_runs_what_is_due_on_the_real_engine_and_says_what_ran(place, octop):
    send, report = octop.named("send"), octop.named("report")
    send.enqueue_sync(42)
    handle = report.enqueue_sync(date(2031, 1, 6))
    send.using(delay=60).enqueue_sync(43)
    ran = place.drain()
    assert [(each.task, each.status, each.result) for each in ran] == [
        ("send", Status.SUCCESS, "sent to 42"),
        ("report", Status.SUCCESS, {"day": date(2031, 1, 6)}),
    ]
    assert (ran[0].arguments, ran[0].queue, ran[0].attempt, ran[0].error) == ({"user_id": 42}, "mail", 1, None)
    assert handle.result_sync(timeout=1) == {"day": date(2031, 1, 6)}
    assert place.drain() == []
    assert ask(place.dsn, "select count(*) from octop_workers") == 0
    assert [task.payload for task in place.enqueued()] == [{"user_id": 43}]


def test_drain_runs_what_tasks_enqueue_also_in_queues_that_nobody_named(place, octop):
    send = octop.named("send")

    @octop.task
    async def fan_out() -> None:
        for number in range(3):
            await send.using(queue="elsewhere", lane=f"lane {number}").enqueue(number)

    fan_out.enqueue_sync()
    ran = place.drain()
    assert [each.task for each in ran] == ["fan_out", "send", "send", "send"]
    assert len(ran.of("send")) == 3


def test_a_commit_whose_answer_was_lost_is_a_success(place, octop, monkeypatch):
    @octop.task(transactional=True, max_retries=0)
    async def pay() -> None: ...

    def lost(_self, _status):
        raise DatabaseUnreachableError("the connection broke")

    monkeypatch.setattr("octop.engine.task_transaction.AsyncTaskTransaction._committed", lost)
    pay.enqueue_sync()
    (ran,) = place.drain()
    assert (ran.status, ran.error) == (Status.SUCCESS, None)


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_transactional_task_commits_with_what_it_did_or_not_at_all(place, octop, kind):
    if kind == "async":

        @octop.task(transactional=True, max_retries=0)
        async def pay(ctx: Context, amount: int) -> int:
            await ctx.connection.execute("insert into payments values (%s)", (amount,))
            return 100 // amount
    else:

        @octop.task(transactional=True, max_retries=0)
        def pay(ctx: Context, amount: int) -> int:
            ctx.connection.execute("insert into payments values (%s)", (amount,))
            return 100 // amount

    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("create table payments (amount int)")
    for amount in (4, 0):
        pay.enqueue_sync(amount)
    with pytest.raises(ZeroDivisionError):
        place.drain()
    assert ask(place.dsn, "select payload->>'amount' from octop_tasks where status = 'frozen'") == "0"
    assert ask(place.dsn, "select array_agg(amount) from payments") == [4]
    assert ask(place.dsn, "select result from octop_tasks where status = 'success'") == 25


def test_the_worst_priority_comes_last_and_what_is_paused_stays(place, octop):
    send = octop.named("send")
    for priority in (9, 0, 5):
        send.using(priority=priority).enqueue_sync(priority)
    assert [ran.arguments["user_id"] for ran in place.drain()] == [0, 5, 9]
    send.enqueue_sync(1)
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("select octop_pause('mail')")
    assert place.drain() == []
    assert len(place.enqueued(send)) == 1


def test_tasks_of_unknown_types_and_hundreds_of_lanes_do_not_stand_in_the_way(place, octop):
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute(
            "insert into octop_tasks (task_type, queue) select 'stranger', 'mail' from generate_series(1, 60)"
        )
        connection.execute(
            """insert into octop_tasks (task_type, queue, lane, payload, scheduled_at)
               select 'send', 'mail', 'lane ' || lpad(n::text, 4, '0'), jsonb_build_object('user_id', n), now() + interval '1 day'
                 from generate_series(1, 1500) n"""
        )
    octop.named("send").using(lane="zz").enqueue_sync(7)
    assert [ran.arguments for ran in place.drain()] == [{"user_id": 7}]
    assert {task.status for task in place.enqueued("stranger")} == {Status.BLOCKED}


def test_a_failure_is_raised_with_the_tasks_own_traceback(place, octop):
    @octop.task(max_retries=1)
    def fail() -> None:
        message = "no 7"
        raise ValueError(message)

    fail.enqueue_sync()
    with pytest.raises(ValueError, match="no 7") as raised:
        place.drain()
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (last.name, last.filename) == ("fail", __file__)
    (note,) = raised.value.__notes__
    assert note.startswith("the task fail ")
    assert note.endswith("attempt 1, is failed now")


def test_several_failures_are_raised_together(place, octop):
    for number in range(2):
        octop.named("refuse").enqueue_sync(number)
    octop.named("send").enqueue_sync(1)
    with pytest.raises(ExceptionGroup, match=r"2 of 3 tasks failed: refuse \(2\)") as raised:
        place.drain()
    assert [str(error) for error in raised.value.exceptions] == ["no 0", "no 1"]
    assert all(traceback.extract_tb(each.__traceback__)[-1].name == "refuse" for each in raised.value.exceptions)


def test_failures_may_be_looked_at_instead(place, octop):
    octop.named("refuse").enqueue_sync(7)
    ran = place.drain(raise_failures=False)
    assert [(each.status, str(each.error)) for each in ran.failures] == [(Status.FAILED, "no 7")]
    assert ask(place.dsn, "select error_message from octop_attempts") == "no 7"


def test_with_scheduled_delays_and_retries_come_to_their_end(place, octop):
    tries = []

    @octop.task(max_retries=2, retry=[60, 600])
    def second_time_lucky(context: Context) -> int:
        tries.append(context.attempt)
        if context.attempt < 3:
            raise OSError
        return context.attempt

    place.clock.freeze(NINE)
    second_time_lucky.using(delay=3600).enqueue_sync()
    ran = place.drain(with_scheduled=True)
    assert tries == [1, 2, 3]
    assert [each.status for each in ran] == [Status.FAILED, Status.FAILED, Status.SUCCESS]
    assert ran.failures == [], "it succeeded in the end"
    assert place.clock.now() == NINE + timedelta(hours=1, seconds=660)


def test_until_goes_no_further(place, octop):
    place.clock.freeze(NINE)
    send = octop.named("send")
    for hours in (1, 2, 3):
        send.using(delay=hours * 3600).enqueue_sync(hours)
    assert [ran.arguments["user_id"] for ran in place.drain(until=timedelta(hours=2))] == [1, 2]
    assert place.clock.now() == NINE + timedelta(hours=2)
    assert [ran.arguments["user_id"] for ran in place.drain(until=NINE + timedelta(hours=4))] == [3]
    assert place.clock.now() == NINE + timedelta(hours=4)


def test_a_task_that_enqueues_itself_for_ever_is_found_out(place, octop):
    @octop.task
    def again() -> None:
        again.enqueue_sync()

    again.enqueue_sync()
    with pytest.raises(DrainLimitError, match="after 5 tasks, and there is more to do; it ran again 5 times") as raised:
        place.drain(max_tasks=5)
    assert "enqueue each other" in raised.value.hint
    (left,) = place.enqueued()
    assert left.status == Status.PENDING, "what was claimed is given back"


def test_a_task_that_does_not_end_is_named(place, octop):
    began = []

    @octop.task
    async def waits() -> None:
        began.append(True)
        await asyncio.Event().wait()

    waits.enqueue_sync()
    seconds = 0.1
    while True:  # on a busy machine the time may be over before the task has begun
        with pytest.raises(DrainLimitError, match=rf"after {seconds:g} s") as raised:
            place.drain(seconds=seconds)
        (left,) = place.enqueued()
        assert (left.task, left.status) == ("waits", Status.PENDING)
        if began:
            break
        seconds *= 2
    assert "still running: waits" in str(raised.value)


def test_concurrency_lets_tasks_wait_for_each_other(place, octop):
    @octop.task
    async def inner() -> int:
        return 7

    @octop.task
    async def outer() -> int:
        return await (await inner.enqueue()).result(timeout=5)

    outer.enqueue_sync()
    with pytest.raises(DrainLimitError, match="still running: outer") as stopped:
        place.drain(seconds=0.3)
    assert "concurrency=2" in stopped.value.hint
    assert {ran.task: ran.result for ran in place.drain(concurrency=2)} == {"outer": 7, "inner": 7}


def test_snooze_cancel_and_retry_are_no_failures_and_a_time_limit_is_one(place, octop):
    @octop.task
    def snoozes() -> object:
        return Snooze(60)

    @octop.task
    def cancels() -> None:
        reason = "not needed"
        raise Cancel(reason)

    @octop.task
    def wants_again() -> None:
        raise Retry(delay=60)

    @octop.task(timeout=0.05, max_retries=0)
    async def slow() -> None:
        await asyncio.sleep(30)

    for each in (snoozes, cancels, wants_again):
        each.enqueue_sync()
    assert [ran.status for ran in place.drain()] == [Status.PENDING, Status.CANCELLED, Status.FAILED]
    slow.enqueue_sync()
    with pytest.raises(Exception, match=r"over its time limit of 0\.05 s"):
        place.drain()


def test_an_exit_of_a_task_does_not_end_the_test_run(place, octop):
    @octop.task(max_retries=0)
    def leaves() -> None:
        sys.exit(3)

    leaves.enqueue_sync()
    with pytest.raises(Exception, match=r"leaves .* is frozen now: it raised SystemExit\(3\)"):
        place.drain()


def test_a_result_that_postgresql_can_not_keep_fails_its_task(place, octop):
    @octop.task
    def too_deep() -> object:
        return {"text": "\x00"}

    too_deep.enqueue_sync()
    with pytest.raises(Exception, match="NUL|\\\\u0000|x00"):
        place.drain()
    assert ask(place.dsn, "select status from octop_tasks") == "frozen"


def test_process_tasks_and_hooks_run_here(place, octop, monkeypatch):
    told = []
    octop.on_worker_start(lambda: told.append("start"))
    octop.on_worker_stop(lambda: told.append("stop"))
    octop.on_freeze(lambda context, error: told.append(f"freeze {error}"))

    @octop.middleware
    async def around(context, call_next):
        told.append(f"before {context.task_type}")
        return await call_next()

    @octop.task(run_in="process")
    def pid() -> int:
        return os.getpid()

    pid.enqueue_sync()
    octop.named("refuse").using(max_retries=0).enqueue_sync(1)
    ran = place.drain(raise_failures=False)
    assert ran[0].result == os.getpid()
    assert told == ["start", "before pid", "before refuse", "freeze no 1", "stop"]


def test_drain_inside_a_loop_says_what_to_do(place):
    async def story():
        with pytest.raises(ConfigurationError, match="running event loop") as refused:
            place.drain()
        return refused.value.hint, await place.drain_async()

    hint, ran = asyncio.run(story())
    assert "await drain_async()" in hint
    assert ran == []


def test_a_lock_that_the_test_itself_holds_is_reported(place, octop):
    @octop.task
    def locked() -> None:
        holder.execute("select from octop_tasks for update")

    locked.enqueue_sync()
    with psycopg.connect(place.dsn) as holder, pytest.raises(DrainLimitError, match="holds a lock"):
        place.drain(seconds=0.3)
