"""octop.testing points applications at a test's database and back."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from octop.model.errors import ConfigurationError
from octop.testing import active
from tests.system.testing.asking import ask, wait_for


def test_an_application_is_pointed_at_the_database_and_back(testing, octop):
    send = octop.named("send")
    before = octop.settings
    with testing.database() as outer, outer.override(octop):
        send.enqueue_sync(1)
        with testing.database() as inner, inner.override(octop):
            send.enqueue_sync(2)
            assert active.current() is inner
            assert [ran.result for ran in inner.drain()] == ["sent to 2"]
        send.enqueue_sync(3)
        assert (
            ask(
                outer.dsn,
                "select count(*) from pg_stat_activity where datname = %s and application_name = 'octop client'",
                inner.name,
            )
            == 0
        )
        assert active.current() is outer
        assert [ran.result for ran in outer.drain()] == ["sent to 1", "sent to 3"]
    assert octop.settings is before
    with pytest.raises(ConfigurationError, match="no test database is in use"):
        active.current()


def test_async_code_finds_its_way_too_and_leaves_no_connection(testing, octop):
    send = octop.named("send")

    async def story():
        with testing.database() as made:
            async with made.override(octop):
                handle = await send.enqueue(5)
                assert await octop.enqueue_many(send.call(number) for number in range(3)) == 3
                ran = await made.drain_async(concurrency=2)
                assert await handle.result(timeout=1) == "sent to 5"
            clients = "select count(*) from pg_stat_activity where datname = %s and application_name = 'octop client'"
            wait_for(made.dsn, clients.replace("count(*)", "count(*) = 0"), made.name)
            return len(ran)

    assert asyncio.run(story()) == 4


def test_without_an_application_drain_asks_which(testing, octop):
    with testing.database() as made:
        with pytest.raises(ConfigurationError, match="which application"):
            made.drain()
        with made.override(octop):
            octop.named("send").enqueue_sync(1)
        assert len(made.drain(octop)) == 1


def test_enqueue_in_a_transaction_of_the_test(place, octop):
    send = octop.named("send")
    engine = create_engine(place.dsn.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        send.using(connection=session).enqueue_sync(1)
        place.assert_not_enqueued(send)
        session.rollback()
        send.using(connection=session).enqueue_sync(2)
        session.commit()
    engine.dispose()
    place.assert_enqueued(send, args=(2,), count=1)
