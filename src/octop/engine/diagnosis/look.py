"""The one way in which a diagnosis reads: it can change nothing, waits for nobody and ends in time."""

from typing import Any, Final, TypeVar

from psycopg import Connection

from octop.engine.call import Call, Rows, run, schema_of
from octop.engine.script import quoted
from octop.engine.transaction import transaction

R = TypeVar("R")
Row = dict[str, Any]
LOCK_MILLISECONDS: Final = 500


def look(connection: Connection[Any], call: Call[R], *, seconds: float = 5.0, also: str | None = None) -> R:
    """Run one call in a read-only transaction of its own.

    Names of ours and of other people are printed as seen from the schema of Octop, so that what PostgreSQL says of an
    object does not depend on where it is installed.

    Args:
        connection: In autocommit; its settings are as before afterwards.
        call: What to ask.
        seconds: After so long PostgreSQL ends the statement.
        also: Another schema whose names the call uses: that of an extension.

    Raises:
        TryAgainError: It took longer, or somebody held a lock for half a second.
        NotPermittedError: This login may not look.
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
        return run(connection, call)


def objects(rows: Rows) -> list[Row]:
    """Return the one JSON object of each row."""
    return [row[0] for row in rows]


def one(rows: Rows) -> Row:
    """Return the JSON object of the only row."""
    found: Row = rows[0][0]
    return found
