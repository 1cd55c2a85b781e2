"""A link to a server that accepts connections, and never says a word."""

from __future__ import annotations

import asyncio
import socket

import pytest

from octop.engine.call import Call
from octop.model.errors import DatabaseUnreachableError
from octop.worker.lease import patience
from octop.worker.link import Link
from octop.worker.options import WorkerOptions

QUESTION: Call[object] = Call("select 1")
AT_ONCE = 3.0
"""A link that nobody ends waits for ten seconds to be connected, and for fifteen for an answer."""


@pytest.fixture
def silent():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def link_to(server):
    port = server.getsockname()[1]
    return Link(WorkerOptions(dsn=f"host=127.0.0.1 port={port} user=nobody sslmode=disable"), "test", "w")


async def arrived(server):
    return await asyncio.to_thread(server.accept)


@pytest.mark.parametrize("how", ["cut", "give_up", "close"])
def test_an_attempt_to_connect_ends_when_nobody_needs_it_any_more(silent, how):
    async def scene():
        link = link_to(silent)
        asking = asyncio.get_running_loop().create_task(link.call(QUESTION))
        came, _ = await arrived(silent)
        with came:
            async with asyncio.timeout(AT_ONCE):
                if how == "close":
                    await link.close()
                else:
                    getattr(link, how)()
                with pytest.raises(DatabaseUnreachableError):
                    await asking
        assert link.is_over is (how != "cut")

    asyncio.run(scene())


def test_after_it_was_given_up_a_last_call_may_still_be_made(silent):
    async def scene():
        link = link_to(silent)
        link.give_up()
        link.cut()  # nothing is under way
        asking = asyncio.get_running_loop().create_task(link.call(QUESTION, seconds=0.2))
        came, _ = await arrived(silent)
        with came, pytest.raises(DatabaseUnreachableError):
            await asking

    asyncio.run(scene())


def test_a_call_waits_as_long_as_the_link_says_where_it_does_not_say_so_itself(silent):
    async def scene():
        link = link_to(silent)
        link.seconds_max = 0.2
        async with asyncio.timeout(AT_ONCE):
            with pytest.raises(DatabaseUnreachableError):
                await link.call(QUESTION)
        assert link.answered_at == float("-inf"), "nobody said anything"

    asyncio.run(scene())


@pytest.mark.parametrize(("lease_seconds", "seconds"), [(0.5, 2), (3, 2), (9, 6), (22.5, 15), (30, 15), (3600, 15)])
def test_an_answer_is_waited_for_while_a_beat_before_the_question_would_hold(lease_seconds, seconds):
    assert patience(lease_seconds) == seconds
