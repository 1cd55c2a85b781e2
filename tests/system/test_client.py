"""The client on the real engine; the worker's part is played by plain SQL or by a worker in this process."""

import asyncio
import contextlib
import dataclasses
import datetime as dt
import os
import subprocess
import sys
import threading
import time
import uuid

import pytest

from octop import Octop, Snooze, Status
from octop.engine.install import install
from octop.model.errors import (
    DatabaseUnreachableError,
    InvalidArgumentsError,
    InvalidTaskError,
    NotJsonError,
    OctopError,
    PayloadTooLargeError,
    SchemaMissingError,
    TaskFailedError,
    TaskNotFoundError,
    TaskStatusError,
    WaitTimeoutError,
)


@dataclasses.dataclass
class Report:
    day: dt.date
    lines: int


@pytest.fixture
def octop(database):
    made = Octop(database.url)
    yield made
    made.close()


@pytest.fixture
def send(octop):
    @octop.task(queue="mail", priority=3, max_retries=5)
    def send(user_id: int, day: dt.date | None = None) -> Report:
        return Report(day or dt.date(2030, 1, 1), user_id)

    return send


@pytest.fixture
def count(database):
    def count(where="true"):
        with database.connect() as connection:
            return connection.execute(f"select count(*) from octop_tasks where {where}").fetchone()[0]

    return count


def row(database, id, columns):
    with database.connect() as connection:
        return connection.execute(f"select {columns} from octop_tasks where id = %s", (id,)).fetchone()


def drain(octop, **options):
    asyncio.run(asyncio.wait_for(octop.worker(drain=True, **options), 60))


def test_a_task_is_enqueued_by_name_with_its_types(octop, send, database):
    handle = send.enqueue_sync(42, day=dt.date(2030, 1, 31))
    assert isinstance(handle.id, uuid.UUID)
    assert handle.created
    assert row(database, handle.id, "task_type, queue, priority, payload, status, max_retries") == (
        "send", "mail", 3, {"user_id": 42, "day": "2030-01-31"}, "pending", None,
    )  # fmt: skip
    assert handle.status_sync() is Status.PENDING


def test_the_asynchronous_form_does_the_same_in_any_number_of_loops(octop, send, count):
    async def story():
        handle = await send.enqueue(1)
        assert await handle.status() is Status.PENDING
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(send.enqueue(number))

    for _ in range(2):
        asyncio.run(story())
    assert count() == 102


def test_C015_zero_none_and_unset_reach_the_row(send, database):
    handle = send.using(max_retries=0, delay=0, priority=0).enqueue_sync(1)
    assert row(database, handle.id, "max_retries, priority") == (0, 0)
    handle = send.using(max_retries=0).using(max_retries=None).enqueue_sync(1)
    assert row(database, handle.id, "max_retries, priority") == (None, 3)


def test_every_option_reaches_the_row(send, database):
    at = dt.datetime(2040, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))
    handle = send.using(
        queue="other", lane="l", tenant="t", at=at, timeout=dt.timedelta(minutes=1), retry=[1, 5],
        tags=['a "b" \\ ,{}', "c"], meta={"trace": "x"},
    ).enqueue_sync(1)  # fmt: skip
    assert row(database, handle.id, "queue, lane, tenant, scheduled_at, timeout_seconds, retry_policy, tags, meta") == (
        "other", "l", "t", at, 60.0, {"delays": [1, 5]}, ['a "b" \\ ,{}', "c"], {"trace": "x"},
    )  # fmt: skip


def test_a_delay_is_counted_on_the_databases_clock(send, database):
    handle = send.using(delay=dt.timedelta(seconds=90)).enqueue_sync(1)
    (delay,) = row(database, handle.id, "extract(epoch from scheduled_at - created_at)::float8")
    assert delay == pytest.approx(90, abs=0.5)


@pytest.mark.parametrize("zone", ["America/Chicago", "Asia/Kolkata", "UTC"])
def test_C036_a_moment_is_an_instant_whatever_the_zones(send, database, zone, monkeypatch):
    with database.connect() as connection:
        connection.execute(f"alter database {database.name} set timezone = 'Asia/Kolkata'")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        at = dt.datetime(2040, 1, 1, 12, tzinfo=dt.UTC)
        handle = send.using(at=at.astimezone()).enqueue_sync(1)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert row(database, handle.id, "scheduled_at")[0] == at


def test_the_same_id_twice_is_one_task(send, count):
    id = uuid.uuid4()
    first = send.using(id=id).enqueue_sync(1)
    second = send.using(id=str(id)).enqueue_sync(1)
    assert (first.created, second.created, first == second, first.id) == (True, False, True, id)
    prepared = send.call(2)
    octop_ids = {send._app.submit_sync(prepared).id for _ in range(2)}
    assert len(octop_ids) == 1
    assert count() == 2


def test_what_is_refused_leaves_nothing_behind(send, count):
    for bad in (lambda: send.enqueue_sync(), lambda: send.enqueue_sync("x")):
        with pytest.raises(InvalidTaskError):
            bad()
    with pytest.raises(InvalidArgumentsError):
        asyncio.run(send.enqueue(nobody=1))
    assert count() == 0


@pytest.mark.parametrize("bad", ["a\0b", float("nan"), float("inf"), "\ud800", {"k\0": 1}, [[["\0"]]]], ids=ascii)
def test_C041_C043_what_jsonb_refuses_is_refused_before_it_is_sent(octop, count, bad):
    @octop.task
    def f(value): ...

    with pytest.raises(NotJsonError, match=r"^\$\.value"):
        f.enqueue_sync(bad)
    assert count() == 0


def test_C041_text_that_looks_like_an_escape_is_kept(octop, database):
    @octop.task
    def f(value): ...

    value = {"a": "\\u0000", "b": "\\\\u0000 %(x)s %% {} '"}
    assert row(database, f.enqueue_sync(value).id, "payload") == ({"value": value},)


def test_C039_size_and_alphabet_of_a_payload_do_not_matter(octop, database):
    @octop.task(name="😀" * 100)
    def f(value: str): ...

    for value in ("x" * 7_900, "x" * 8_100, "€" * 8_000, "😀" * 8_000, "x" * 900_000):
        handle = f.using(queue="€" * 200).enqueue_sync(value)
        assert row(database, handle.id, "payload") == ({"value": value},)


def test_C040_a_payload_over_the_limit_is_refused_with_the_limit(octop, count):
    @octop.task
    def f(value: str): ...

    for length in (3_000_000, 100_000_000):
        with pytest.raises(PayloadTooLargeError, match="payload_bytes_max"):
            f.enqueue_sync("x" * length)
    assert count() == 0


def test_C040_many_large_payloads_are_sent_in_pieces_of_bounded_size(octop, count):
    @octop.task
    def f(value: str): ...

    assert octop.enqueue_many_sync(f.call("x" * 900_000) for _ in range(40)) == 40
    assert count() == 40


@pytest.mark.parametrize("number", [0, 1, 999, 1_000, 1_001, 7_000])
def test_C003_many_are_counted_exactly(octop, send, count, number):
    assert octop.enqueue_many_sync(send.call(i) for i in range(number)) == number
    assert count() == number


@pytest.mark.slow
@pytest.mark.long
def test_C003_two_hundred_thousand_in_one_transaction(octop, count):
    @octop.task
    def f(n: int): ...

    ids = asyncio.run(octop.enqueue_many((f.call(i) for i in range(200_000)), return_ids=True))
    assert len(set(ids)) == 200_000
    assert count() == 200_000


@pytest.mark.parametrize("where", [0, 999, 1_500, 2_999])
def test_C003_one_bad_call_among_many_leaves_nothing(octop, send, count, where):
    too_large = octop.named("f").using(meta={"x": "y" * 70_000})
    calls = [too_large.call() if i == where else send.call(i) for i in range(3_000)]
    with pytest.raises(InvalidTaskError, match="task "):
        octop.enqueue_many_sync(calls)
    with pytest.raises(InvalidTaskError):
        asyncio.run(octop.enqueue_many(calls))
    with pytest.raises(RuntimeError):
        octop.enqueue_many_sync(_calls_that_break(send))
    assert count() == 0


def _calls_that_break(send):
    for number in range(2_500):
        yield send.call(number)
    raise RuntimeError("the user's generator")


def test_many_take_any_iterable_and_give_ids_in_order(octop, send, database):
    async def stream():
        for number in range(1_200):
            await asyncio.sleep(0)
            yield send.call(number)

    ids = asyncio.run(octop.enqueue_many(stream(), return_ids=True))
    with database.connect() as connection:
        rows = connection.execute("select id, payload ->> 'user_id' from octop_tasks order by seq").fetchall()
    assert [(id, str(number)) for number, id in enumerate(ids)] == rows
    for wrong in ([1], [send], [send.using(connection=object()).call(1)]):
        with pytest.raises(InvalidTaskError):
            octop.enqueue_many_sync(wrong)


def test_tasks_of_other_code_bases_are_enqueued_by_name(octop, database):
    handle = octop.enqueue_sync("elsewhere", {"day": dt.date(2030, 1, 1)}, queue="q", delay=60)
    assert row(database, handle.id, "task_type, payload, queue") == ("elsewhere", {"day": "2030-01-01"}, "q")
    handle = asyncio.run(octop.enqueue("elsewhere"))
    assert row(database, handle.id, "payload") == ({},)


def test_a_result_comes_back_as_the_type_of_the_return_annotation(octop, send):
    handle = send.enqueue_sync(42, dt.date(2030, 1, 31))
    drain(octop)
    assert handle.result_sync(timeout=5) == Report(dt.date(2030, 1, 31), 42)
    assert asyncio.run(handle.result()) == Report(dt.date(2030, 1, 31), 42)
    assert octop.handle(handle.id).result_sync() == {"day": "2030-01-31", "lines": 42}
    assert octop.handle(str(handle.id), "send").result_sync() == Report(dt.date(2030, 1, 31), 42)
    assert handle.wait_sync() is Status.SUCCESS


def test_waiting_ends_while_the_worker_runs(octop, send):
    async def story():
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(octop.worker(stop=stop))
            handle = await send.enqueue(7)
            assert await handle.result(timeout=30) == Report(dt.date(2030, 1, 1), 7)
            stop.set()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_task_that_froze_or_was_cancelled_has_no_result_but_an_error(octop):
    @octop.task(max_retries=0)
    def fail() -> int:
        raise ValueError("the reason")

    @octop.task
    async def later() -> Snooze:
        return Snooze(3600)

    frozen, snoozed = fail.enqueue_sync(), later.using(delay=3600).enqueue_sync()
    with contextlib.suppress(TimeoutError):
        asyncio.run(asyncio.wait_for(octop.worker(drain=True, queues={"default": None}), 3))
    with pytest.raises(TaskFailedError, match="the reason") as caught:
        frozen.result_sync(timeout=5)
    assert caught.value.status == "frozen"
    assert asyncio.run(snoozed.cancel("not needed")) == "cancelled"
    assert snoozed.cancel_sync() == "cancelled"
    with pytest.raises(TaskFailedError) as caught:
        asyncio.run(snoozed.result(timeout=5))
    assert caught.value.status == "cancelled"


def test_waiting_has_an_end_and_says_how_far_the_task_is(send):
    handle = send.enqueue_sync(1)
    waits: dict[float | dt.timedelta, str] = {0: "0 s", 0.05: "0.05 s", dt.timedelta(milliseconds=50): "0.05 s"}
    for timeout, said in waits.items():
        with pytest.raises(WaitTimeoutError, match=f"is pending after waiting for {said}") as caught:
            handle.result_sync(timeout=timeout)
        assert f"octop tasks show {handle.id}" in caught.value.hint
        with pytest.raises(WaitTimeoutError):
            asyncio.run(handle.wait(timeout))
    with pytest.raises(OctopError, match="timeout"):
        handle.wait_sync(-1)


def test_a_task_that_does_not_exist_is_said_to_be_missing(octop):
    handle = octop.handle(uuid.uuid4())
    for ask in (handle.status_sync, handle.result_sync, handle.cancel_sync, handle.retry_sync):
        with pytest.raises(TaskNotFoundError):
            ask()


def test_a_finished_task_is_repeated_as_a_new_one_and_can_not_be_cancelled(octop, send, database):
    handle = send.enqueue_sync(1)
    drain(octop)
    with pytest.raises(TaskStatusError):
        handle.cancel_sync()
    again = handle.retry_sync()
    assert again.id != handle.id
    assert row(database, again.id, "retry_of")[0] == handle.id


def test_a_lost_connection_is_replaced_and_nothing_is_doubled(octop, send, database, count):
    send.enqueue_sync(1)
    asyncio.run(_twice_over_a_cut(send, database))
    _cut_clients(database)
    assert send.enqueue_sync(2).created
    assert count() == 4


async def _twice_over_a_cut(send, database):
    await send.enqueue(1)
    await asyncio.to_thread(_cut_clients, database)
    assert (await send.enqueue(1)).created


def _cut_clients(database):
    with database.connect() as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'octop client' and datname = current_database()"
        )


def test_a_fork_leaves_the_parents_connections_alone(octop, send, count):
    send.enqueue_sync(1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            send.enqueue_sync(2)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    send.enqueue_sync(3)
    assert count() == 3


def test_threads_share_a_few_connections(octop, send, database, count):
    def work():
        for number in range(20):
            send.enqueue_sync(number)

    threads = [threading.Thread(target=work) for _ in range(25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count() == 500
    with database.connect() as connection:
        clients = "select count(*) from pg_stat_activity where application_name = 'octop client' and datname = current_database()"
        assert connection.execute(clients).fetchone()[0] <= 10


def test_blocking_calls_inside_an_event_loop_work(octop, send, count):
    async def story():
        send.enqueue_sync(1)

    asyncio.run(story())
    assert count() == 1


def test_no_database_and_no_schema_are_errors_of_their_own(empty_database):
    octop = Octop("postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=2")
    octop.task(name="f")(lambda: None)
    for enqueue in (lambda o: o.enqueue_sync("f"), lambda o: asyncio.run(o.enqueue("f"))):
        with pytest.raises(DatabaseUnreachableError):
            enqueue(octop)
        with pytest.raises(SchemaMissingError, match=r"octop migrate"):
            enqueue(Octop(empty_database.url))


def test_a_login_that_may_only_read_is_told_where_that_stands_and_not_to_look_for_the_server(database):
    role = database.make_role("octop_producer")
    with database.connect() as connection:
        connection.execute(f"alter role {role} set default_transaction_read_only = on".encode())
    octop = Octop(database.url_as(role))
    with pytest.raises(DatabaseUnreachableError, match="read-only transaction") as error:
        octop.enqueue_sync("f")
    assert "RESET default_transaction_read_only" in error.value.hint
    assert "standby" in error.value.hint
    assert "Check that the server runs" not in error.value.hint
    octop.close()


def test_another_schema_works_the_same(empty_database):
    install(empty_database.url, schema="odd Jobs")
    octop = Octop(empty_database.url, schema="odd Jobs")
    handle = octop.enqueue_sync("f", {"a": 1})
    assert handle.status_sync() is Status.PENDING
    with empty_database.connect() as connection:
        assert connection.execute('select count(*) from "odd Jobs".octop_tasks').fetchone()[0] == 1
    octop.close()


def test_C117_a_killed_client_leaves_as_many_tasks_as_business_rows(database):
    with database.connect() as connection:
        connection.execute("create table business (n int)")
    script = (
        "import sys, psycopg; from octop import Octop; url = sys.argv[1]; octop = Octop(url); connection = psycopg.connect(url)\n"
        "send = octop.named('send').using(connection=connection)\n"
        "for n in range(10**6):\n"
        "    connection.execute('insert into business values (%s)', (n,)); send.enqueue_sync({'n': n}); connection.commit()\n"
    )
    for wait in (0.0, 0.05, 0.11):
        process = subprocess.Popen([sys.executable, "-c", script, database.url])
        _until_rows(database)
        time.sleep(wait)
        process.kill()
        process.wait()
    with database.connect() as connection:
        numbers = connection.execute(
            "select (select count(*) from business), (select count(*) from octop_tasks where task_type = 'send')"
        ).fetchone()
    assert numbers[0] == numbers[1] > 0


def _until_rows(database):
    with database.connect() as connection:
        before = connection.execute("select count(*) from business").fetchone()[0]
        end = time.monotonic() + 30
        while connection.execute("select count(*) from business").fetchone()[0] <= before + 5:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_role_that_may_only_produce_can_enqueue_follow_and_cancel_its_own(database):
    octop = Octop(database.url_as(database.make_role("octop_producer")))
    handle = octop.enqueue_sync("f")
    assert handle.status_sync() is Status.PENDING
    assert handle.cancel_sync() == "cancelled"
    octop.close()
