"""The connection that hears notifications, and how a connection is cut from outside."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from typing import Any, Final, LiteralString

import psycopg
from psycopg import AsyncConnection, Connection

from octop.engine.call import Call
from octop.engine.connect import open_connection_async
from octop.engine.failures import translated

CHANNEL: Final = "octop_wake"
PROOF_SECONDS: Final = 20.0
ANSWER_SECONDS_MAX: Final = 5.0


def cut(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Shut the socket of a connection, so that whoever waits on it gets an error at once.

    A cancelled query waits for the server to agree; behind a half-open network nobody ever does. A shut socket needs nobody.

    Args:
        connection: Open or closed; a closed one stays as it is.
    """
    try:
        duplicate = os.dup(connection.fileno())
    except (psycopg.Error, OSError):
        return
    with socket.socket(fileno=duplicate) as end:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


def call_out(word: str) -> Call[object]:
    """Send a notification to all who listen, as a worker does to find out whether it hears its own.

    Args:
        word: No name of a queue: nobody else does anything about it.
    """
    return Call("select pg_notify('octop_wake', %(word)s)", {"word": word}, lambda _rows: None)


async def notifications(dsn: str, *, schema: str) -> AsyncIterator[str]:
    """Yield the payload of each notification, and an empty one when the connection has just been opened.

    A notification is a hint to look: anyone may forge one, and one may be missed while the connection is replaced. Each 20 seconds without
    any the connection must prove that it lives.

    Args:
        dsn: Where the database is. Behind a pooler in transaction mode nothing is ever heard: workers poll as well.
        schema: Schema in which the engine is installed.

    Yields:
        The name of a queue, or an empty text for everything else.

    Raises:
        DatabaseUnreachableError: The connection failed or did not prove itself; open another.
        OctopError: What else the database said.
    """
    connection = await open_connection_async(dsn, application_name="octop worker listen", schema=schema)
    try:
        await _answered(connection, "listen octop_wake; listen octop_schedules")
        yield ""
        while True:
            async for notification in connection.notifies(timeout=PROOF_SECONDS):
                yield notification.payload
            await _answered(connection, "select 1")
    except psycopg.Error as error:
        raise translated(error) from error
    finally:
        cut(connection)
        await connection.close()


async def _answered(connection: AsyncConnection[Any], statement: LiteralString) -> None:
    """Run a statement that must be answered soon. Whoever is cancelled meanwhile leaves at once.

    psycopg would ask the server to end the statement, and wait up to ten seconds for a server that is not there.

    Raises:
        psycopg.Error: It was not answered, or refused.
    """
    loop = asyncio.get_running_loop()
    asking = loop.create_task(connection.execute(statement))
    timer = loop.call_later(ANSWER_SECONDS_MAX, cut, connection)
    try:
        await asyncio.shield(asking)
    finally:
        timer.cancel()
        if not asking.done():
            cut(connection)
            await asyncio.wait([asking])
            asking.exception()
