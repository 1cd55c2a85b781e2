"""The one way in which a diagnosis reads: it can change nothing, waits for nobody and ends in time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from psycopg import Connection

from octop.engine.call import Call, Rows, run, schema_of
from octop.engine.script import quoted
from octop.engine.transaction import transaction

R = TypeVar("R")
LOCK_MILLISECONDS: Final = 500


@contextmanager
def looking(connection: Connection[Any], *, seconds: float, also: str | None = None) -> Iterator[None]:
    """Read in a read-only transaction, whose statements are bounded in time and wait for no lock.

    Names of ours and of other people are printed as seen from the schema of Octop, so that what PostgreSQL says of an
    object does not depend on where it is installed.

    Args:
        connection: In autocommit; its settings are as before afterwards.
        seconds: After so long PostgreSQL ends a statement.
        also: Another schema whose names the calls use: that of an extension.
    """
    path = ", ".join([*(quoted(each) for each in (schema_of(connection), also) if each), "pg_temp"])
    limits: Call[Rows] = Call(
        "select set_config('transaction_read_only', 'on', true), set_config('statement_timeout', %(statement)s::text, true),"
        " set_config('lock_timeout', %(lock)s::text, true), set_config('search_path', %(path)s::text, true),"
        " set_config('timezone', 'UTC', true), set_config('datestyle', 'ISO', true)",
        {"statement": str(max(1, int(seconds * 1000))), "lock": str(LOCK_MILLISECONDS), "path": path},
    )
    with transaction(connection):
        run(connection, limits)
        yield


def look(connection: Connection[Any], call: Call[R], *, seconds: float = 5.0, also: str | None = None) -> R:
    """Run one call as ``looking`` does.

    Raises:
        TryAgainError: It took longer, or somebody held a lock for half a second.
        NotPermittedError: This login may not look.
    """
    with looking(connection, seconds=seconds, also=also):
        return run(connection, call)
