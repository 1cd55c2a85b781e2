"""C115, C118: a task is part of the caller's transaction, whatever driver the caller uses."""

import asyncio
import contextlib
import inspect
import json
import threading
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_asyncio

from octop import Octop
from octop.engine.install import install
from octop.model.errors import (
    DatabaseUnreachableError,
    ForeignConnectionError,
    InvalidTaskError,
    PayloadTooLargeError,
    SchemaMissingError,
)

TAGS = ['a "b" \\ ,{}', "ü€😀", "NULL"]


def engine(database, driver):
    module = {"psycopg": psycopg, "psycopg2": psycopg2}[driver]
    return sa.create_engine(
        f"postgresql+{driver}://", creator=lambda: module.connect(database.url), poolclass=sa.NullPool
    )


def asyncpg_arguments(database):
    found = psycopg.conninfo.conninfo_to_dict(database.url)
    return {
        "host": found["host"],
        "port": int(found.get("port") or 5432),
        "database": found["dbname"],
        "user": found.get("user"),
        "password": found.get("password"),
    }


def async_engine(database, driver):
    async def connect():
        if driver == "asyncpg":
            return await asyncpg.connect(**asyncpg_arguments(database))
        return await psycopg.AsyncConnection.connect(database.url)

    return sa_asyncio.create_async_engine(
        f"postgresql+{'asyncpg' if driver == 'asyncpg' else 'psycopg'}://", async_creator=connect, poolclass=sa.NullPool
    )


# Each is an (asynchronous) context manager that yields: the connection, execute(text), commit(), rollback().


@contextlib.asynccontextmanager
async def with_psycopg(database):
    with psycopg.connect(database.url) as connection:
        yield connection, connection.execute, connection.commit, connection.rollback


@contextlib.asynccontextmanager
async def with_psycopg_rows_as_dicts(database):
    with psycopg.connect(database.url, row_factory=psycopg.rows.dict_row) as connection:
        yield connection, connection.execute, connection.commit, connection.rollback


@contextlib.asynccontextmanager
async def with_psycopg_async(database):
    async with await psycopg.AsyncConnection.connect(database.url) as connection:
        yield connection, connection.execute, connection.commit, connection.rollback


@contextlib.asynccontextmanager
async def with_psycopg2(database):
    connection = psycopg2.connect(database.url)
    with contextlib.closing(connection), connection.cursor() as cursor:
        yield connection, cursor.execute, connection.commit, connection.rollback


@contextlib.asynccontextmanager
async def with_asyncpg(database):
    connection = await asyncpg.connect(**asyncpg_arguments(database))
    # a user's own codecs must not reach into ours
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection, connection.execute, transaction.commit, transaction.rollback
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def with_asyncpg_pool(database):
    async with (
        asyncpg.create_pool(**asyncpg_arguments(database), min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
    ):
        transaction = connection.transaction()
        await transaction.start()
        yield connection, connection.execute, transaction.commit, transaction.rollback


def _alchemy(driver, make):
    @contextlib.asynccontextmanager
    async def opened(database):
        made = engine(database, driver)
        with make(made) as place:
            yield place, lambda text: place.execute(sa.text(text)), place.commit, place.rollback
        made.dispose()

    return opened


def _alchemy_async(driver, make):
    @contextlib.asynccontextmanager
    async def opened(database):
        made = async_engine(database, driver)
        async with make(made) as place:
            yield place, lambda text: place.execute(sa.text(text)), place.commit, place.rollback
        await made.dispose()

    return opened


WAYS = {
    "psycopg": with_psycopg,
    "psycopg, rows as dicts": with_psycopg_rows_as_dicts,
    "psycopg, async": with_psycopg_async,
    "psycopg2": with_psycopg2,
    "asyncpg": with_asyncpg,
    "asyncpg, pool": with_asyncpg_pool,
    "Session on psycopg": _alchemy("psycopg", orm.Session),
    "Session on psycopg2": _alchemy("psycopg2", orm.Session),
    "scoped_session": _alchemy("psycopg", lambda made: contextlib.closing(orm.scoped_session(orm.sessionmaker(made)))),
    "Connection on psycopg": _alchemy("psycopg", lambda made: made.connect()),
    "Connection on psycopg2": _alchemy("psycopg2", lambda made: made.connect()),
    "AsyncSession on asyncpg": _alchemy_async("asyncpg", sa_asyncio.AsyncSession),
    "AsyncSession on psycopg": _alchemy_async("psycopg", sa_asyncio.AsyncSession),
    "AsyncConnection on asyncpg": _alchemy_async("asyncpg", lambda made: made.connect()),
    "AsyncConnection on psycopg": _alchemy_async("psycopg", lambda made: made.connect()),
}
ASYNC = {name for name in WAYS if "async" in name.lower()}


async def done(value):
    return await value if inspect.isawaitable(value) else value


@pytest.fixture
def octop(database):
    with database.connect() as connection:
        connection.execute("create table business (n int)")
    made = Octop(database.url)
    yield made
    made.close()


@pytest.fixture
def send(octop):
    @octop.task(queue="mail")
    def send(n: int, text: str = "") -> None: ...

    return send


@pytest.fixture
def seen(database):
    """What another session sees: business rows, tasks."""

    def seen():
        with database.connect() as connection:
            return connection.execute(
                "select (select count(*) from business), (select count(*) from octop_tasks)"
            ).fetchone()

    return seen


@pytest.mark.parametrize("way", WAYS)
def test_C115_a_rollback_leaves_no_task_and_a_commit_one(way, database, send, octop, seen):
    async def story():
        async with WAYS[way](database) as (connection, execute, commit, rollback):
            await done(execute("insert into business values (1)"))
            handle = await send.using(connection=connection, tags=TAGS, meta={"a": "%s %(x)s :y $1"}).enqueue(
                1, text="%s :x $1 '\\"
            )
            assert seen() == (0, 0)
            await done(rollback())
            assert seen() == (0, 0)
        async with WAYS[way](database) as (connection, execute, commit, rollback):
            # the task first: nothing else has begun the transaction
            handle = await send.using(
                connection=connection,
                tags=TAGS,
                meta={"a": "%s :y $1"},
                delay=1.5,
                priority=0,
                max_retries=0,
                retry=[1, 2],
            ).enqueue(1, text="%s :x $1 '\\")
            await done(execute("insert into business values (1)"))
            assert seen() == (0, 0)
            await done(commit())
        assert seen() == (1, 1)
        return await handle.record()

    record = asyncio.run(story())
    assert json.loads(record.payload) == {"n": 1, "text": "%s :x $1 '\\"}
    assert (record.tags, json.loads(record.meta), record.priority, record.max_retries) == (
        TAGS,
        {"a": "%s :y $1"},
        0,
        0,
    )


@pytest.mark.parametrize("way", WAYS)
def test_C115_many_tasks_join_the_transaction_as_well(way, database, send, octop, seen):
    async def story():
        for end in (1, 0):
            async with WAYS[way](database) as (connection, _, *ends):
                calls = (send.call(n) for n in range(2_500))
                assert await octop.enqueue_many(calls, connection=connection) == 2_500
                assert await octop.enqueue_many([], connection=connection) == 0
                assert seen() == (0, 0)
                await done(ends[end]())

    asyncio.run(story())
    assert seen() == (0, 2_500)


@pytest.mark.parametrize("way", WAYS)
def test_C117_a_refused_enqueue_fails_the_callers_transaction(way, database, send, octop, seen):
    async def story():
        async with WAYS[way](database) as (connection, execute, commit, rollback):
            await done(execute("insert into business values (1)"))
            with pytest.raises(PayloadTooLargeError, match="payload_bytes_max"):
                await send.using(connection=connection).enqueue(1, text="x" * 3_000_000)
            with pytest.raises(Exception, match="abort|InFailed|rolled back"):
                await done(execute("insert into business values (2)"))
            await done(rollback())

    asyncio.run(story())
    assert seen() == (0, 0)


@pytest.mark.parametrize("way", sorted(set(WAYS) - ASYNC))
def test_blocking_connections_take_blocking_calls(way, database, send, octop, seen):
    async def story():  # asynchronous only to open and close in the way of the others
        async with WAYS[way](database) as (connection, _, commit, _):
            handle = send.using(connection=connection).enqueue_sync(1)
            assert octop.enqueue_many_sync([send.call(2)], connection=connection) == 1
            assert seen() == (0, 0)
            commit()
            assert seen() == (0, 2)
            assert handle.status_sync().value == "pending"

    asyncio.run(story())


@pytest.mark.parametrize("way", sorted(ASYNC))
def test_an_asynchronous_connection_is_refused_where_nothing_awaits(way, database, send, octop, seen):
    async def story():
        async with WAYS[way](database) as (connection, *_):
            with pytest.raises(ForeignConnectionError, match="nothing would await it"):
                send.using(connection=connection).enqueue_sync(1)
            with pytest.raises(ForeignConnectionError):
                octop.enqueue_many_sync([send.call(1)], connection=connection)

    asyncio.run(story())
    assert seen() == (0, 0)


def test_what_has_no_transaction_is_refused(database, send, seen):
    made = engine(database, "psycopg")
    sqlite = sa.create_engine("sqlite://")
    with psycopg.connect(database.url) as connection, connection.cursor() as cursor, orm.Session(sqlite) as session:
        for thing in (made, cursor, database.url, object(), orm.sessionmaker(made)):
            with pytest.raises(ForeignConnectionError, match=r"pool or an engine|Hand over"):
                send.using(connection=thing).enqueue_sync(1)
        with pytest.raises(ForeignConnectionError, match="sqlite"):
            send.using(connection=session).enqueue_sync(1)
    assert seen() == (0, 0)


def test_djangos_connection_is_opened_and_used(database, send, seen):
    base = type("BaseDatabaseWrapper", (), {"__module__": "django.db.backends.base.base"})

    class DatabaseWrapper(base):  # type: ignore[misc, valid-type]
        connection: psycopg.Connection | None = None

        def ensure_connection(self):
            if self.connection is None:
                self.connection = psycopg.connect(database.url)

    wrapper: Any = DatabaseWrapper()
    send.using(connection=wrapper).enqueue_sync(1)
    assert seen() == (0, 0)
    wrapper.connection.commit()
    wrapper.connection.close()
    assert seen() == (0, 1)


def test_in_autocommit_many_are_still_all_or_nothing(database, octop, send, seen):
    bad = octop.named("f").using(meta={"x": "y" * 70_000})
    with psycopg.connect(database.url, autocommit=True) as connection:
        with pytest.raises(InvalidTaskError):
            octop.enqueue_many_sync(
                (bad.call() if n == 2_500 else send.call(n) for n in range(3_000)), connection=connection
            )
        assert seen() == (0, 0)
        send.using(connection=connection).enqueue_sync(1)
    assert seen() == (0, 1)


def test_errors_of_every_driver_are_ours(empty_database):
    octop = Octop(empty_database.url)

    async def story():
        for way in WAYS.values():
            async with way(empty_database) as (connection, _, _, rollback):
                with pytest.raises(SchemaMissingError):
                    await octop.enqueue("f", connection=connection)
                await done(rollback())

    asyncio.run(story())


def test_a_connection_that_is_cut_is_an_error_of_ours(database, send):
    with psycopg.connect(database.url) as connection:
        with database.connect() as other:
            other.execute("select pg_terminate_backend(%s)", (connection.info.backend_pid,))
        with pytest.raises(DatabaseUnreachableError):
            send.using(connection=connection).enqueue_sync(1)


@pytest.mark.parametrize("way", WAYS)
def test_the_schema_need_not_be_on_the_callers_path(way, empty_database):
    install(empty_database.url, schema="jobs")
    with empty_database.connect() as connection:
        connection.execute(
            sql.SQL("alter database {} set search_path = pg_catalog").format(sql.Identifier(empty_database.name))
        )
    octop = Octop(empty_database.url, schema="jobs")

    async def story():
        async with WAYS[way](empty_database) as (connection, _, commit, _):
            await octop.enqueue("f", connection=connection)
            await done(commit())

    asyncio.run(story())
    with empty_database.connect() as connection:
        assert connection.execute("select count(*) from jobs.octop_tasks").fetchone() == (1,)


def test_C118_no_start_before_the_commit_and_the_first_start_sees_the_row(database, octop):
    seen_rows: list[int] = []
    stop = threading.Event()

    @octop.task
    def look(n: int) -> None:
        with database.connect() as connection:
            seen_rows.append(connection.execute("select count(*) from business where n = %s", (n,)).fetchone()[0])
        stop.set()

    async def story():
        end = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(octop.worker(stop=end))
            async with await psycopg.AsyncConnection.connect(database.url) as connection:
                await look.using(connection=connection).enqueue(7)
                await asyncio.sleep(1.0)
                assert not seen_rows
                await connection.execute("insert into business values (7)")
                await connection.commit()
            assert await asyncio.to_thread(stop.wait, 20)
            end.set()

    asyncio.run(asyncio.wait_for(story(), 60))
    assert seen_rows == [1]
