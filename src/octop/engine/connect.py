"""Open connections as the engine needs them: no session state, no named statements, READ COMMITTED, safe behind a pooler."""

import contextlib
import logging
import os
from typing import Any, Final
from weakref import WeakSet

import psycopg
from psycopg import AsyncConnection, Connection, IsolationLevel
from psycopg.types.string import TextLoader

from octop.engine.failures import translated

log = logging.getLogger(__name__)

# A half-open connection must not hang for ever: the kernel gives up after about 30 s without an answer.
_KEEPALIVE: Final[dict[str, Any]] = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30000,
}


class EngineConnection(Connection[Any]):
    """A blocking connection that knows the schema it works in."""

    octop_schema: str = "public"


class AsyncEngineConnection(AsyncConnection[Any]):
    """An asynchronous connection that knows the schema it works in."""

    octop_schema: str = "public"


_opened: Final[WeakSet[EngineConnection | AsyncEngineConnection]] = WeakSet()


def leave_to_parent() -> None:
    """Take away all sessions, in a copy of this process that ``fork`` has made: its parent notices nothing of what it does with them.

    To close one there would say goodbye to the server in the parent's name.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for connection in list(_opened):
        with contextlib.suppress(psycopg.Error, OSError):  # it is closed
            os.dup2(null, connection.fileno(), inheritable=False)
    os.close(null)


def _hear(said: psycopg.errors.Diagnostic) -> None:
    """Pass on what the engine warns of, such as a chore that could not be done. Its notices are for people at psql."""
    if said.severity_nonlocalized == "WARNING" and (said.message_primary or "").startswith("octop: "):
        hint = f"\n  hint: {said.message_hint}" if said.message_hint else ""
        log.warning("%s%s", (said.message_primary or "").removeprefix("octop: "), hint)


def _prepare(connection: EngineConnection | AsyncEngineConnection, schema: str) -> None:
    connection.octop_schema = schema
    _opened.add(connection)
    connection.prepare_threshold = None
    connection.add_notice_handler(_hear)
    # ids and times pass through as text: a worker never needs them as objects
    for name in ("uuid", "timestamptz"):
        connection.adapters.register_loader(name, TextLoader)


def open_connection(
    dsn: str,
    *,
    application_name: str,
    schema: str = "public",
    autocommit: bool = True,
    connect_timeout: int = 10,
) -> EngineConnection:
    """Open a blocking connection.

    Args:
        dsn: URL or keywords; empty = libpq's environment.
        application_name: Shown in ``pg_stat_activity`` and written to the audit.
        schema: Where Octop is installed.
        autocommit: True = each call is its own transaction.
        connect_timeout: Seconds, at least 2.

    Raises:
        DatabaseUnreachableError: No database answers.
    """
    try:
        connection = EngineConnection.connect(
            dsn, autocommit=autocommit, application_name=application_name, connect_timeout=connect_timeout, **_KEEPALIVE
        )
    except psycopg.Error as error:
        raise translated(error) from error
    _prepare(connection, schema)
    connection.isolation_level = None if autocommit else IsolationLevel.READ_COMMITTED
    return connection


async def open_connection_async(
    dsn: str,
    *,
    application_name: str,
    schema: str = "public",
    autocommit: bool = True,
    connect_timeout: int = 10,
) -> AsyncEngineConnection:
    """Open an asynchronous connection; see ``open_connection``."""
    try:
        connection = await AsyncEngineConnection.connect(
            dsn, autocommit=autocommit, application_name=application_name, connect_timeout=connect_timeout, **_KEEPALIVE
        )
    except psycopg.Error as error:
        raise translated(error) from error
    _prepare(connection, schema)
    if not autocommit:
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    return connection
