"""Batches: a function gets a list of tasks, and each of them keeps its own outcome, fence, retries, time limit and cancellation."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import pytest

from octop import BatchTask, Cancel, Octop, OctopError, Retry
from octop.model.errors import InvalidArgumentsError, InvalidOptionError, InvalidTaskError, OutsideTaskError
from octop.testing.draining import drain_application, run_here
from tests.system.apps.running import enqueue, until


@dataclass
class Mail:
    user_id: int
    text: str = "hello"


class Row(TypedDict):
    n: int
    note: NotRequired[str]


CALLS: list[list[int]] = []
GO = threading.Event()


@pytest.fixture
def shop(database):
    CALLS.clear()
    GO.clear()
    made = Octop(database.url)
    yield made
    GO.set()
    made.close()


@pytest.fixture
def ask(database):
    with database.connect() as connection:

        def ask(text: str, *values: object) -> list[Any]:
            return connection.execute(text.encode(), values or None).fetchall()

        yield ask


def work(shop, **options):
    """Run a worker until nothing is left."""
    asyncio.run(asyncio.wait_for(shop.worker(drain=True, **{"concurrency": 100, **options}), 25))


def drain(shop, database):
    """Run what is due, and nothing of what is due later."""
    return run_here(
        drain_application(
            shop, dsn=database.url, schema="public", clock=None, until=None, max_tasks=100, seconds=30, concurrency=1
        )
    )


def statuses(ask):
    return dict(ask("select status, count(*) from octop_tasks group by 1"))


WAYS = ["async", "thread"]


def batch(shop, way, body, **options):
    """Register a batch type that runs a body on the loop or in a thread."""
    if way == "async":

        @shop.task(name="send", **{"batch_size": 100, "batch_wait": 0.3, **options})
        async def send_async(tasks: list[BatchTask[Mail]]) -> list[Any] | None:
            CALLS.append([task.args.user_id for task in tasks])
            return body(tasks)

        return send_async

    @shop.task(name="send", **{"batch_size": 100, "batch_wait": 0.3, **options})
    def send(tasks: list[BatchTask[Mail]]) -> list[Any] | None:
        CALLS.append([task.args.user_id for task in tasks])
        return body(tasks)

    return send


# --- what it gets, and what comes of it -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_function_gets_a_list_and_each_task_its_own_result(shop, ask, way):
    send = batch(shop, way, lambda tasks: [f"{task.args.text} {task.args.user_id}" for task in tasks])
    shop.enqueue_many_sync(send.call(n, text="hi") for n in range(250))
    work(shop)
    assert statuses(ask) == {"success": 250}
    assert ask("select count(*) from octop_tasks where result #>> '{}' = 'hi ' || (payload ->> 'user_id')") == [(250,)]
    assert sorted(n for each in CALLS for n in each) == list(range(250))
    assert [len(each) for each in CALLS] == [100, 100, 50]


@pytest.mark.parametrize("way", WAYS)
def test_each_task_has_its_own_outcome(shop, database, ask, way):
    def body(tasks):
        ends = {
            0: "well",
            1: ValueError("bad"),
            2: Retry(delay=3600, reason="later"),
            3: Cancel("not needed"),
            4: None,
        }
        return [ends[task.args.user_id] for task in tasks]

    send = batch(shop, way, body, max_retries=0)
    for n in range(5):
        send.using(max_retries=1 if n == 2 else 0).enqueue_sync(n)
    drain(shop, database)
    found = ask("select status, result #>> '{}', last_error from octop_tasks order by seq")
    assert found == [
        ("success", "well", None),
        ("frozen", None, "ValueError: bad"),
        ("failed", None, "octop.Retry: later"),
        ("cancelled", None, "not needed"),
        ("success", None, None),
    ]
    assert len(CALLS) == 1


@pytest.mark.parametrize("way", WAYS)
def test_what_raises_for_all_fails_all_of_them_with_their_own_attempts_and_retries(shop, ask, way):
    def body(tasks):
        message = "the provider is away"
        raise ConnectionError(message)

    send = batch(shop, way, body)
    for n in range(3):
        send.using(max_retries=n).enqueue_sync(n)
    send.using(max_retries=0, retry=[0.01]).enqueue_sync(9)
    work(shop)
    assert (
        ask("select status, last_error from octop_tasks where max_retries = 0 order by seq")
        == [("frozen", "ConnectionError: the provider is away")] * 2
    )
    attempts = ask(
        "select error_class, traceback like '%%the provider is away%%', traceback like '%%in body%%' from octop_attempts"
    )
    assert len(attempts) >= 4
    assert set(attempts) == {("ConnectionError", True, True)}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_task_has_said_itself_counts_whatever_becomes_of_the_others(shop, database, ask, way):
    def body(tasks):
        tasks[0].succeed("early")
        tasks[0].fail(RuntimeError("the first word counts"))
        tasks[1].fail(KeyError("x"))
        tasks[2].snooze(3600)
        message = "and then it broke"
        raise RuntimeError(message)

    send = batch(shop, way, body, max_retries=0)
    for n in range(4):
        send.enqueue_sync(n)
    drain(shop, database)
    found = ask("select status, result #>> '{}', last_error from octop_tasks order by seq")
    assert found == [
        ("success", "early", None),
        ("frozen", None, "KeyError: 'x'"),
        ("pending", None, None),
        ("frozen", None, "RuntimeError: and then it broke"),
    ]


@pytest.mark.parametrize("answer", [[1], "abc", {"a": 1}, [1, 2, 3, 4]])
def test_an_answer_that_fits_nobody_fails_all(shop, ask, answer):
    send = batch(shop, "thread", lambda _tasks: answer, max_retries=0)
    for n in range(3):
        send.enqueue_sync(n)
    work(shop)
    assert statuses(ask) == {"frozen": 3}
    assert "a batch of 3 tasks returned a" in ask("select last_error from octop_tasks limit 1")[0][0]


def test_a_payload_that_can_not_be_read_and_a_result_that_is_no_json_harm_that_task_alone(shop, ask):
    send = batch(
        shop, "async", lambda tasks: [object() if task.args.user_id == 2 else 1 for task in tasks], max_retries=0
    )
    shop.enqueue_many_sync(send.call(n) for n in range(3))
    shop.enqueue_sync("send", {"user_id": 7})
    ask(
        "insert into octop_tasks (task_type, payload, max_retries) values ('send', '{\"user_id\": \"x\"}', 0) returning id"
    )
    ask("insert into octop_tasks (task_type, payload, max_retries) values ('send', '{}', 0) returning id")
    work(shop)
    assert statuses(ask) == {"success": 3, "frozen": 3}
    assert [len(each) for each in CALLS] == [4]


def test_each_task_knows_its_own_attempt_and_there_is_no_current_one(shop):
    seen: list[Any] = []

    @shop.task(batch_size=3, batch_wait=0.2)
    async def send(tasks: list[BatchTask[Mail]]) -> None:
        with pytest.raises(OutsideTaskError):
            shop_current()
        seen.extend((task.context.task_id, task.context.attempt, task.context.priority) for task in tasks)

    def shop_current():
        from octop import current

        return current()

    handles = [send.using(priority=n).enqueue_sync(n) for n in range(3)]
    work(shop)
    assert seen == [(handle.id, 1, n) for n, handle in enumerate(handles)]


# --- gathering --------------------------------------------------------------------------------------------------------


def test_waiting_is_bounded_and_full_places_wait_for_nobody(shop, ask):
    send = batch(shop, "async", lambda _tasks: None, batch_wait=5)
    shop.enqueue_many_sync(send.call(n) for n in range(20))
    began = time.monotonic()
    work(shop, concurrency=10)
    assert [len(each) for each in CALLS] == [10, 10], "the limit counts tasks, and no more could come"
    assert time.monotonic() - began < 5
    assert statuses(ask) == {"success": 20}


def test_types_and_queues_are_gathered_apart_and_other_tasks_run_beside(shop, ask):
    send = batch(shop, "async", lambda _tasks: None)

    @shop.task(batch_size=10, queue="other")
    def other(tasks: list[BatchTask[Row]]) -> None:
        CALLS.append([-task.args["n"] for task in tasks])

    @shop.task
    def plain(n: int) -> None: ...

    for n in range(1, 4):
        send.enqueue_sync(n)
        send.using(queue="other").enqueue_sync(n + 10)
        other.enqueue_sync(n=n)
        plain.enqueue_sync(n)
    work(shop)
    assert sorted(map(sorted, CALLS)) == [[-3, -2, -1], [1, 2, 3], [11, 12, 13]]
    assert statuses(ask) == {"success": 12}


# --- time limit, cancellation, shutdown, death ------------------------------------------------------------------------


def test_waiting_for_others_is_not_the_tasks_time_and_each_has_its_own_limit(shop, ask):
    @shop.task(name="send", batch_size=100, batch_wait=0.8, max_retries=0)
    async def send(tasks: list[BatchTask[Mail]]) -> None:
        CALLS.append([task.args.user_id for task in tasks])
        await asyncio.sleep(0.6)

    send.using(timeout=0.4).enqueue_sync(1)
    send.using(timeout=30).enqueue_sync(2)
    work(shop)
    found = ask("select payload ->> 'user_id', status, last_error from octop_tasks order by seq")
    assert found == [("1", "frozen", "TimeoutError: over its time limit of 0.4 s"), ("2", "success", None)]
    assert CALLS == [[1, 2]], "the limit began with the call"


@pytest.mark.parametrize("way", WAYS)
def test_one_of_them_can_be_cancelled_and_the_others_go_on(shop, ask, way):
    if way == "async":

        @shop.task(name="send", batch_size=3, batch_wait=0.2)
        async def send(tasks: list[BatchTask[Mail]]) -> None:
            CALLS.append([1])
            await asyncio.to_thread(GO.wait, 30)
    else:

        @shop.task(name="send", batch_size=3, batch_wait=0.2)
        def send(tasks: list[BatchTask[Mail]]) -> None:
            CALLS.append([1])
            until(lambda: tasks[1].context.cancelled, "it is told")
            tasks[1].fail(Cancel("seen"))
            assert GO.wait(30)

    handles = [send.enqueue_sync(n) for n in range(3)]

    async def story():
        worker = asyncio.create_task(shop.worker(drain=True, concurrency=10))
        await asyncio.to_thread(until, lambda: CALLS, "it runs")
        await handles[1].cancel()
        assert await handles[1].wait(timeout=20) == "cancelled"
        assert await handles[0].status() == "running"
        GO.set()
        await worker

    asyncio.run(asyncio.wait_for(story(), 60))
    assert statuses(ask) == {"success": 2, "cancelled": 1}


@pytest.mark.parametrize("way", WAYS)
def test_a_shutdown_begins_what_was_gathered_and_releases_what_does_not_end(shop, ask, way):
    def body(_tasks):
        return None if GO.wait(30) else None

    if way == "async":

        @shop.task(name="send", batch_size=50, batch_wait=5)
        async def send(tasks: list[BatchTask[Mail]]) -> None:
            CALLS.append([task.args.user_id for task in tasks])
            await asyncio.sleep(60)
    else:
        send = batch(shop, "thread", body, batch_size=50, batch_wait=5)
    for n in range(3):
        send.enqueue_sync(n)

    began: list[int] = []
    all_began = asyncio.Event()

    @shop.middleware
    async def seen(_context, call_next):
        began.append(1)
        if len(began) == 3:
            all_began.set()
        return await call_next()

    async def story():
        stop = asyncio.Event()
        worker = asyncio.create_task(shop.worker(stop=stop, concurrency=10, grace_seconds=0.5))
        await all_began.wait()
        assert CALLS == []
        stop.set()
        await worker

    asyncio.run(asyncio.wait_for(story(), 60))
    assert CALLS == [[0, 1, 2]]
    assert statuses(ask) == {"pending": 3}
    assert set(ask("select outcome from octop_attempts")) == {("released",)}
    assert ask("select max(retry_count) from octop_tasks") == [(0,)]


def test_a_task_that_was_lost_runs_alone_in_a_process_of_its_own(start, ask, rows):
    """Its function gets a list of one."""
    ids = [enqueue(rows, "gather", {"note": f"n{n}"}) for n in range(3)]
    ask("update octop_tasks_live set lost_count = 1 where id::text = %s returning id", ids[1])
    worker = start(application="tests.system.apps.gathering:octop").ready()
    until(lambda: statuses(ask) == {"success": 3}, "they ended", worker.log)
    results = {row[0]: row[1:] for row in ask("select id::text, result ->> 'count', result ->> 'pid' from octop_tasks")}
    assert [results[each][0] for each in ids] == ["2", "1", "2"]
    assert results[ids[1]][1] != results[ids[0]][1]


# --- refused ----------------------------------------------------------------------------------------------------------


def test_arguments_are_bound_by_the_fields_of_one_task(shop):
    send = batch(shop, "thread", lambda _tasks: None)
    assert send.call(1).task.payload == '{"user_id":1}'
    assert send.call(user_id=1, text="x").task.payload == '{"user_id":1,"text":"x"}'
    for wrong in ({"user": 1}, {"text": "x"}, {"user_id": "x"}):
        with pytest.raises(InvalidArgumentsError):
            send.call(**wrong)

    @shop.task(batch_size=2)
    def rows(tasks: list[BatchTask[Row]]) -> None: ...

    assert rows.call(n=1).task.payload == '{"n":1}'
    with pytest.raises(InvalidArgumentsError):
        rows.call(note="x")

    @shop.task(batch_size=2)
    def anything(tasks): ...

    assert anything.call(a=1, b=[2]).task.payload == '{"a":1,"b":[2]}'


def test_what_can_be_no_batch_is_refused(shop):
    def f(tasks: list[BatchTask[Mail]]) -> None: ...

    def two(tasks: list[BatchTask[Mail]], more: int) -> None: ...

    for function, options in (
        (f, {"run_in": "process"}),
        (f, {"transactional": True}),
        (f, {"batch_size": 0}),
        (f, {"batch_size": 10_001}),
        (f, {"batch_wait": -1}),
        (f, {"batch_wait": 60}),
        (two, {}),
    ):
        with pytest.raises((InvalidTaskError, InvalidOptionError)):
            shop.task(**{"batch_size": 5, **options})(function)
    with pytest.raises(InvalidOptionError, match="says nothing without batch_size"):
        shop.task(batch_wait=1)(f)
    with pytest.raises(OctopError):
        shop.task(batch_size=True)(f)


def test_the_function_stays_a_function(shop):
    send = batch(shop, "thread", lambda tasks: [task.args.text for task in tasks])
    assert send([BatchTask(Mail(1)), BatchTask(Mail(2, "x"))]) == ["hello", "x"]


# --- octop.testing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_drain_gathers_what_is_due(shop, database, ask, way):
    send = batch(shop, way, lambda tasks: [task.args.user_id for task in tasks], batch_size=4, batch_wait=5)

    @shop.task
    def plain() -> None: ...

    shop.enqueue_many_sync(send.call(n) for n in range(10))
    plain.enqueue_sync()
    began = time.monotonic()
    done = drain(shop, database)
    assert len(done) == 11
    assert [len(each) for each in CALLS] == [4, 4, 2]
    assert time.monotonic() - began < 5, "nobody waited for who does not come"
    assert statuses(ask) == {"success": 11}


def test_a_field_with_a_factory_may_be_left_out_of_a_unique_task(shop):
    @dataclass
    class Many:
        user_id: int
        words: list[str] = field(default_factory=list)

    globals()["Many"] = Many

    @shop.task(batch_size=2, unique=True)
    def send(tasks: list[BatchTask[Many]]) -> None: ...

    assert send.enqueue_sync(1) == send.enqueue_sync(user_id=1)
    assert send.enqueue_sync(1, ["x"]).created
