"""What an enqueue sends: how many statements, and what is done while the database works. Counted in the protocol, never timed."""

import asyncio
import contextlib
import tempfile

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from octop import Octop
from octop.engine.call import run_each, run_each_async
from octop.engine.calls import octop_enqueue_many
from octop.engine.connect import open_connection, open_connection_async
from octop.model.errors import InvalidTaskError
from octop.model.ids import new_id
from octop.model.work import NewTask


@pytest.fixture
def octop(database):
    made = Octop(database.url, pool_size=1)
    yield made
    made.close()


@pytest.fixture
def send(octop):
    @octop.task(queue="mail")
    def send(user_id: int) -> None: ...

    return send


@pytest.fixture
def count(database):
    def count():
        with database.connect() as connection:
            return connection.execute("select count(*) from octop_tasks").fetchone()[0]

    return count


@contextlib.contextmanager
def _statements(connection):
    """Yield a list in which there is, at the end, each statement that libpq sent: its last message."""
    found: list[str] = []
    with tempfile.TemporaryFile("w+") as file:
        connection.pgconn.trace(file.fileno())
        try:
            yield found
        finally:
            connection.pgconn.untrace()
        file.seek(0)
        messages = [line.split("\t") for line in file]
    found += [each[3] for each in messages if each[1] == "F" and each[3] in ("Execute", "Query")]


def _only_connection(octop):
    with octop._pools.connection() as connection:
        return connection


async def _only_connection_async(octop):
    async with (await octop._pools._loop_pool()).connection() as connection:
        return connection


def test_a_lone_enqueue_is_one_statement(octop, send, count):
    send.enqueue_sync(0)
    with _statements(_only_connection(octop)) as sent:
        send.enqueue_sync(1)
        send.using(delay=60, lane="a").enqueue_sync(2)
    assert len(sent) == 2
    assert count() == 3


def test_a_lone_awaited_enqueue_is_one_statement(octop, send, count):
    async def story():
        await send.enqueue(0)
        with _statements(await _only_connection_async(octop)) as sent:
            await send.enqueue(1)
            await send.using(delay=60, lane="a").enqueue(2)
        assert len(sent) == 2

    asyncio.run(story())
    assert count() == 3


def test_an_enqueue_in_the_callers_transaction_adds_one_statement(database, send):
    with psycopg.connect(database.url) as connection:
        connection.execute("create table orders ()")
        with _statements(connection) as sent:
            send.using(connection=connection).enqueue_sync(1)
        assert len(sent) == 1
        connection.rollback()


def test_a_bulk_is_one_statement_for_a_thousand_tasks(octop, send, count):
    async def story():
        await send.enqueue(0)
        with _statements(await _only_connection_async(octop)) as sent:
            await octop.enqueue_many(send.call(number) for number in range(4_500))
        assert len(sent) == 5 + 2  # begin and commit

    asyncio.run(story())
    assert count() == 4_501


def _one_more():
    return octop_enqueue_many([NewTask("t", "{}", new_id())], return_ids=False)


def test_the_next_statement_is_made_while_the_database_works_on_the_one_before(database):
    asked = []
    with contextlib.closing(open_connection(database.url, application_name="test")) as connection:

        def made():
            for _ in range(3):
                asked.append(connection.pgconn.transaction_status)
                yield _one_more()

        with connection.transaction():
            assert run_each(connection, made()) == [1, 1, 1]
    assert asked == [TransactionStatus.INTRANS, TransactionStatus.ACTIVE, TransactionStatus.ACTIVE]


def test_an_event_loop_makes_the_next_statement_while_the_database_works_on_the_one_before(database):
    asked = []

    async def story():
        async with await open_connection_async(database.url, application_name="test") as connection:

            async def made():
                for _ in range(3):
                    asked.append(connection.pgconn.transaction_status)
                    yield _one_more()

            async with connection.transaction():
                assert await run_each_async(connection, made()) == [1, 1, 1]

    asyncio.run(story())
    assert asked == [TransactionStatus.INTRANS, TransactionStatus.ACTIVE, TransactionStatus.ACTIVE]


class _OfTheUserError(Exception):
    pass


async def _breaking(send, after):
    for number in range(after):
        yield send.call(number)
    raise _OfTheUserError


@pytest.mark.parametrize("after", [0, 500, 1_000, 2_500])
def test_an_iterator_that_breaks_while_a_statement_is_on_its_way_leaves_nothing(octop, send, count, after):
    async def story():
        with pytest.raises(_OfTheUserError):
            await octop.enqueue_many(_breaking(send, after))
        await send.enqueue(1)  # with the only connection that there may be

    asyncio.run(story())
    assert count() == 1


def test_a_refused_statement_is_the_error_though_the_next_one_was_made(octop, send, count):
    too_large = octop.named("f").using(meta={"x": "y" * 70_000})

    async def story():
        with pytest.raises(InvalidTaskError, match="task 1 of 1000"):
            await octop.enqueue_many([too_large.call(), *(send.call(number) for number in range(2_999))])
        await send.enqueue(1)

    asyncio.run(story())
    assert count() == 1


def test_a_bulk_that_is_cancelled_while_the_database_works_leaves_nothing(octop, send, database, count):
    async def story():
        await send.enqueue(0)
        with database.connect() as other, other.transaction():
            other.execute("lock table octop_tasks_live in share row exclusive mode")
            bulk = asyncio.create_task(octop.enqueue_many(send.call(number) for number in range(2_500)))
            waits = (
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'octop_enqueue_many'"
            )
            while not other.execute(waits).fetchone()[0]:  # noqa: ASYNC110 - it happens in the server
                await asyncio.sleep(0.005)
            bulk.cancel()
            with pytest.raises(asyncio.CancelledError):
                await bulk
        await asyncio.wait_for(send.enqueue(1), 30)

    asyncio.run(story())
    assert count() == 2


def test_a_cancelled_bulk_leaves_nothing_and_its_connection_usable_or_closed(octop, send, count):
    async def story():
        came = asyncio.Event()

        async def slow():
            for number in range(1_500):
                yield send.call(number)
            came.set()
            await asyncio.Event().wait()

        bulk = asyncio.create_task(octop.enqueue_many(slow()))
        await came.wait()
        bulk.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bulk
        await asyncio.wait_for(send.enqueue(1), 30)

    asyncio.run(story())
    assert count() == 1


@pytest.mark.parametrize("how", ["enqueue_many", "submit", "submit_sync"])
def test_a_call_that_is_sent_twice_is_one_task(octop, send, count, how):
    twice = send.call(1)

    async def story():
        if how == "enqueue_many":
            assert len(set(await octop.enqueue_many([twice, twice], return_ids=True))) == 1
        elif how == "submit":
            assert await octop.submit(twice) == await octop.submit(twice)
        else:
            assert octop.submit_sync(twice) == octop.submit_sync(twice)
        assert await octop.enqueue_many([twice, send.call(2)]) == 2

    asyncio.run(story())
    assert count() == 2
