"""The connection of a transactional task: what a task can do to it, how it is waited for, and what becomes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
import time

import psycopg
import pytest
from psycopg.rows import dict_row

from octop import Octop, current
from octop.engine import task_transaction
from octop.engine.call import Call
from octop.engine.pools import Pools
from octop.engine.task_transaction import NotBegunError, begun, begun_async
from octop.model.errors import ConfigurationError, TransactionAbortedError, TransactionEndedError
from octop.worker import ways

NOTHING: Call[object] = Call("select 1")
SESSIONS = "select count(*) from pg_stat_activity where application_name = 'octop worker task'"
LEFT = "select count(*) from octop_tasks where status in ('pending', 'running', 'failed')"


@pytest.fixture
def pools(database, rows):
    rows.execute("create table payments (job text)")
    made = Pools(database.url, "public", size=5, name="octop worker task")
    yield made
    made.close()


def kept(rows):
    return [job for (job,) in rows.execute("select job from payments order by job")]


def pay(connection, job="a"):
    return connection.execute("insert into payments values (%s)", (job,))


def perform(pools, task, call=NOTHING, check=lambda _rows: None):
    """Lend a transaction to a task, and commit it with a call."""
    with begun(pools) as transaction:
        task(transaction.connection)
        transaction.succeed(call, check)


@pytest.fixture
def role(database, rows, pools):
    """Make a role that may pay, and nothing else."""
    name = database.make_role(name="payer")
    rows.execute(f"grant insert on payments to {name}")
    return name


# --- one transaction --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["commit", "rollback", "commit; begin", "rollback; begin", "commit and chain"])
def test_a_task_that_ends_its_transaction_is_told_so_and_its_connection_is_closed(pools, how):
    with pytest.raises(TransactionEndedError, match="ended its transaction itself"):
        perform(pools, lambda connection: connection.execute(how))
    assert not pools._idle.all()


def test_neither_end_waits_for_hours_for_one_that_has_lost_its_power(pools):
    """Over a Unix socket, which can not lose its other end, nothing of it has an effect; it is there all the same."""
    seen: list[str] = []

    def task(connection):
        ours = "select name from pg_settings where name ^@ 'tcp_keepalives' and source = 'session' order by name"
        seen.extend(name for (name,) in connection.execute(ours))
        parameters = connection.info.get_parameters()
        assert parameters["keepalives_idle"] == "10", "the worker's end"
        assert int(parameters["tcp_user_timeout"]) <= 30_000

    perform(pools, task)
    assert seen == ["tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval"], "the server's end"


def test_a_transaction_in_which_a_statement_failed_is_no_success(pools, rows):
    def task(connection):
        pay(connection)
        with contextlib.suppress(psycopg.Error):
            connection.execute("select 1/0")

    with pytest.raises(TransactionAbortedError, match="the task went on"):
        perform(pools, task)
    assert kept(rows) == []


def test_a_part_that_may_fail_has_a_savepoint(pools, rows):
    with begun(pools) as transaction:
        with contextlib.suppress(psycopg.Error), transaction.connection.transaction():
            pay(transaction.connection, "lost")
            transaction.connection.execute("select 1/0")
        with transaction.connection.transaction():
            pay(transaction.connection, "kept")
        transaction.succeed(NOTHING, lambda _rows: None)
    assert kept(rows) == ["kept"]


def test_rollback_of_psycopg_is_no_success(pools, rows):
    def task(connection):
        pay(connection)
        raise psycopg.Rollback

    with pytest.raises(TransactionAbortedError, match=r"psycopg\.Rollback"):
        perform(pools, task)
    assert kept(rows) == []


def test_what_a_deferred_constraint_says_is_told_as_it_is_and_with_the_rights_of_the_task(pools, rows, role):
    rows.execute(
        """create function refuse() returns trigger language plpgsql as $$ begin raise exception '% says no', current_user; end $$;
           create constraint trigger refuse after insert on payments deferrable initially deferred for each row execute function refuse()"""
    )

    def task(connection):
        connection.execute(f"set local role {role}")
        pay(connection)

    handed_in: list[object] = []
    with pytest.raises(psycopg.errors.RaiseException, match=f"{role} says no"):
        perform(pools, task, check=handed_in.append)
    assert handed_in == [], "it is known before the success is written"


def test_a_statement_that_was_left_running_is_no_success(pools):
    async def scene():
        async with begun_async(pools) as transaction:
            left = asyncio.get_running_loop().create_task(transaction.connection.execute("select pg_sleep(60)"))
            await asyncio.sleep(0.1)
            try:
                await transaction.succeed(NOTHING, lambda _rows: None)
            finally:
                left.cancel()

    with pytest.raises(TransactionAbortedError, match="still running"):
        asyncio.run(scene())


def test_roles_paths_and_limits_of_the_task_do_not_reach_into_what_is_ours(pools, role):
    ours = "select current_user, current_setting('search_path'), current_setting('statement_timeout'), current_setting('lock_timeout')"
    found: list[object] = []
    perform(pools, pay, Call(ours), found.append)

    def task(connection):
        for text in (f"role {role}", "search_path to pg_temp", "statement_timeout = 7777", "lock_timeout = 78"):
            connection.execute(f"set local {text}")
        connection.execute("insert into public.payments values ('a')")

    perform(pools, task, Call(ours), found.append)
    assert found[0] == found[1]


# --- one session after the other ------------------------------------------------------------------------------------


SPOIL = (
    "create temp table t ()",
    "select pg_advisory_lock(42)",
    "select set_config('app.tenant', 'a', false)",
)
LOOK = (
    "select current_user::text, session_user::text, current_setting('app.tenant', true), to_regclass('pg_temp.t')::text"
)


def test_nothing_of_a_session_is_left_for_the_next_task(pools, rows, role):
    expected = rows.execute("select current_user::text, session_user::text, '', null").fetchone()
    with begun(pools) as transaction:
        first = transaction.connection
        pid = first.info.backend_pid
        for text in (*SPOIL, f"set session authorization {role}", f"set role {role}"):
            first.execute(text)
        first.row_factory = dict_row
        first.prepare_threshold = 1
        transaction.succeed(NOTHING, lambda _rows: None)
    held = "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())"
    assert rows.execute(held).fetchone() == (0,)
    with begun(pools) as transaction:
        assert transaction.connection.info.backend_pid == pid, "the session is used again"
        assert transaction.connection.execute(LOOK).fetchone() == expected
        assert transaction.connection.prepare_threshold is None
        with pytest.raises(psycopg.OperationalError, match="closed"):
            first.execute("select 1")  # what an earlier task kept is no way into this transaction


def test_a_connection_that_was_cut_frees_its_locks_though_a_statement_runs(pools, rows):
    errors: list[BaseException] = []
    transactions = []

    def task():
        try:
            with begun(pools) as transaction:
                pay(transaction.connection)
                transactions.append(transaction)
                transaction.connection.execute("select pg_sleep(60)")
        except psycopg.Error as error:
            errors.append(error)

    thread = threading.Thread(target=task)
    thread.start()
    look("it sleeps", lambda: rows.execute(f"{SESSIONS} and query like '%%pg_sleep%%'").fetchone()[0])
    transactions[0].cut()
    thread.join(10)
    assert len(errors) == 1
    look("its session is gone", lambda: rows.execute(SESSIONS).fetchone() == (0,))
    transactions[0].cut()  # once more: nobody else is hurt


def look(what, found, seconds=10.0):
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.02)


# --- in a worker --------------------------------------------------------------------------------------------------------


@pytest.fixture
def configure(rows):
    def configure(**values):
        with rows.transaction():
            for key, value in values.items():
                rows.execute("select octop_config_set(%s, %s::jsonb)", (key.replace("__", "."), json.dumps(value)))

    configure(task__retry_base_seconds=0.05, scheduler__interval_seconds=0.2)
    return configure


def run(app, scene, **options):
    """Run a worker here, and a scene beside it."""

    async def both():
        stop = asyncio.Event()
        worker = asyncio.get_running_loop().create_task(app.worker(stop=stop, concurrency=8, **options))
        played = asyncio.get_running_loop().create_task(scene())
        await asyncio.wait([worker, played], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await worker
        await played

    asyncio.run(both())


async def until(found):
    async with asyncio.timeout(15):
        while not found():  # noqa: ASYNC110 - rows have no event
            await asyncio.sleep(0.03)


def ended(rows):
    return lambda: not rows.execute(LEFT).fetchone()[0]


def states(rows):
    return rows.execute("select task_type, status, attempt, retry_count from octop_tasks order by seq").fetchall()


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_waiting_for_a_connection_is_not_the_tasks_time_and_uses_no_try(database, rows, configure, monkeypatch, place):
    configure(db__connection_pool_size=1)
    monkeypatch.setattr(ways, "PLACE_SNOOZE_SECONDS", 0.1)
    app = Octop(database.url)
    begun: list[str] = []
    free = threading.Event()

    @app.task(transactional=True, timeout=60)
    def hold() -> None:
        begun.append("hold")
        free.wait()

    if place == "loop":

        @app.task(transactional=True, timeout=0.6, max_retries=0)
        async def late() -> None:
            begun.append("late")
            await asyncio.sleep(0.4)
    else:

        @app.task(transactional=True, timeout=0.6, max_retries=0)
        def late() -> None:
            begun.append("late")
            time.sleep(0.4)

    async def scene():
        await hold.enqueue()
        await until(lambda: begun)
        await late.enqueue()
        await until(lambda: rows.execute("select max(attempt) from octop_tasks").fetchone()[0] > 2)
        assert begun == ["hold"]
        free.set()
        await until(ended(rows))

    run(app, scene)
    hold_row, late_row = states(rows)
    assert hold_row == ("hold", "success", 1, 0)
    assert (late_row[1], late_row[3]) == ("success", 0)
    assert begun == ["hold", "late"]


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_a_database_that_refuses_connections_of_tasks_uses_no_try(database, rows, configure, monkeypatch, place):
    login = database.make_role("octop_worker")
    monkeypatch.setenv("OCTOP_TASK_DSN", database.url_as(login))
    app = Octop(database.url)
    ran: list[int] = []

    if place == "loop":

        @app.task(transactional=True, max_retries=0)
        async def work() -> None:
            ran.append(current().attempt)
    else:

        @app.task(transactional=True, max_retries=0)
        def work() -> None:
            ran.append(current().attempt)

    async def scene():
        await until(lambda: rows.execute("select count(*) from octop_workers").fetchone()[0])
        rows.execute(f"alter role {login} nologin")
        rows.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", (login,))
        await work.enqueue()
        await until(lambda: rows.execute("select attempt from octop_tasks").fetchone()[0] > 2)
        assert ran == []
        rows.execute(f"alter role {login} login")
        await until(ended(rows))

    run(app, scene)
    ((_, status, attempt, retry_count),) = states(rows)
    assert (status, retry_count, ran) == ("success", 0, [attempt])


def test_a_thread_that_was_given_up_holds_no_lock_and_no_place(database, rows, configure):
    configure(db__connection_pool_size=1)
    rows.execute("create table accounts (id int primary key, n int); insert into accounts values (1, 0)")
    app = Octop(database.url)
    free = threading.Event()

    @app.task(transactional=True, timeout=0.5, max_retries=0)
    def slow() -> None:
        current().connection.execute("update accounts set n = n + 1 where id = 1")
        free.wait()
        current().connection.execute("update accounts set n = n + 1 where id = 1")

    @app.task(transactional=True, timeout=10, max_retries=0)
    async def after() -> None:
        await current().connection.execute("update accounts set n = n + 10 where id = 1")

    async def scene():
        await slow.enqueue()
        await until(ended(rows))
        await after.enqueue()
        await until(ended(rows))
        free.set()

    run(app, scene)
    assert states(rows) == [("slow", "frozen", 1, 0), ("after", "success", 1, 0)]
    assert rows.execute("select n from accounts").fetchone() == (10,)


def test_a_coroutine_that_swallows_its_cancels_loses_its_transaction(database, rows, configure, monkeypatch):
    configure(db__connection_pool_size=1)
    monkeypatch.setattr("octop.worker.runner.AGAIN_SECONDS", 0.05)
    rows.execute("create table accounts (id int primary key, n int); insert into accounts values (1, 0)")
    app = Octop(database.url)
    free = asyncio.Event()

    @app.task(transactional=True, timeout=0.3, max_retries=0)
    async def deaf() -> None:
        await current().connection.execute("update accounts set n = n + 1 where id = 1")
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await free.wait()

    @app.task(transactional=True, timeout=10, max_retries=0)
    async def after() -> None:
        await current().connection.execute("update accounts set n = n + 10 where id = 1")

    async def scene():
        await deaf.enqueue()
        await until(ended(rows))
        await after.enqueue()
        await until(ended(rows))
        free.set()

    run(app, scene)
    assert states(rows) == [("deaf", "frozen", 1, 0), ("after", "success", 1, 0)]
    assert rows.execute("select n from accounts").fetchone() == (10,)


def test_a_thread_of_a_worker_that_has_ended_begins_nothing(database, rows, configure, monkeypatch):
    app = Octop(database.url)
    ran: list[str] = []
    arrived, go = threading.Event(), threading.Event()

    @app.task(transactional=True)
    def late() -> None:
        ran.append("late")

    begin = task_transaction._begin

    def slowly(*arguments):
        arrived.set()
        go.wait(20)
        return begin(*arguments)

    monkeypatch.setattr(task_transaction, "_begin", slowly)

    async def scene():
        await late.enqueue()
        await until(arrived.is_set)

    run(app, scene, grace_seconds=0.1)
    go.set()
    look("its thread has ended", lambda: rows.execute(f"{SESSIONS} and state <> 'idle'").fetchone() == (0,))
    look(
        "no thread is at it",
        lambda: not any("octop-task" in each.name and _is_at_it(each) for each in threading.enumerate()),
    )
    assert ran == []
    assert states(rows)[0][1] == "pending"


def _is_at_it(thread):
    frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        if frame.f_code.co_name == "run" and "transactions" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


@pytest.mark.parametrize(
    ("dsn", "words"),
    [
        ("", "OCTOP_TASK_DSN is empty"),
        ("postgresql://x@127.0.0.1:1/x", "get no connection"),
        ("nonsense", "not a PostgreSQL URL"),
    ],
)
def test_a_worker_whose_tasks_would_have_no_connection_does_not_start(database, monkeypatch, dsn, words):
    monkeypatch.setenv("OCTOP_TASK_DSN", dsn)
    app = Octop(database.url)

    @app.task(transactional=True)
    async def work() -> None: ...

    with pytest.raises(ConfigurationError, match=words):
        asyncio.run(app.worker())


@pytest.mark.parametrize("what", ["no rights", "another database"])
def test_a_login_that_could_write_no_success_is_refused_at_the_start(database, empty_database, monkeypatch, what):
    url = database.url_as(database.make_role()) if what == "no rights" else empty_database.url
    monkeypatch.setenv("OCTOP_TASK_DSN", url)
    app = Octop(database.url)

    @app.task(transactional=True)
    async def work() -> None: ...

    with pytest.raises(ConfigurationError, match="can not write their success"):
        asyncio.run(app.worker())


def test_no_connection_is_no_reason_to_fail(pools):
    nowhere = Pools("postgresql://x@127.0.0.1:1/x", "public", size=1, connect_timeout=2)
    with pytest.raises(NotBegunError), begun(nowhere):
        pass
