"""An SQL call as plain data, and the ways to run one, or many after each other.

There are no twins: a function in ``octop.engine.calls`` returns a Call; ``run`` runs it on a blocking connection, ``run_async`` on an
asynchronous one (``run_each`` and ``run_each_async`` many), ``octop.engine.foreign`` on a connection of another driver. psycopg is
loaded by the first run, not by the description: the help of every command imports the calls that it would make.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, LiteralString, TypeVar

from octop.engine.failures import translated

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

R = TypeVar("R")
Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One call of one SQL function.

    Attributes:
        text: The statement, with ``%(name)s`` for each value. Casts stand in the text, so that any driver can send text.
        values: Values by name: None, bool, int, float, str, and lists of these only.
        read: Turns the rows into the answer.
    """

    text: LiteralString
    values: Mapping[str, object] = field(default_factory=dict)
    read: Callable[[Rows], R] = field(default=lambda rows: rows)


# Names of ours in our own literal texts: not after a dot, a quote or another letter.
_OURS: Final = re.compile(r"""(?<![\w."'])(_?octop_\w+)""")


@lru_cache(maxsize=1024)
def qualified(text: LiteralString, schema: str) -> bytes:
    """Return the statement with each name of ours qualified, so that no session needs a search path (poolers forget it).

    Args:
        text: One of our own literal texts.
        schema: Where Octop is installed.

    Example:
        >>> qualified("select octop_doubt()", "jobs")
        b'select "jobs".octop_doubt()'
    """
    place = '"' + schema.replace('"', '""') + '".'
    if "%(" in text:  # where a driver looks for placeholders, a percent sign is written twice
        place = place.replace("%", "%%")
    return _OURS.sub(lambda match: place + match[1], text).encode()


def schema_of(connection: object) -> str:
    """Return the schema that a connection of ours was opened for; ``public`` for others."""
    return getattr(connection, "octop_schema", "public")


def run(connection: Connection[Any], call: Call[R]) -> R:
    """Run a call on a blocking psycopg connection, in its transaction if one is open.

    Raises:
        OctopError: The class that belongs to the SQLSTATE, see ``octop.engine.failures``.
    """
    import psycopg  # noqa: PLC0415 - costs 100 ms, and whoever only describes calls needs none of it
    from psycopg.rows import tuple_row  # noqa: PLC0415 - likewise

    try:
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(qualified(call.text, schema_of(connection)), call.values or None, prepare=False)
            rows = cursor.fetchall() if cursor.rownumber is not None else []  # description is made column by column
    except psycopg.Error as error:
        raise translated(error) from error
    return call.read(rows)


async def run_async(connection: AsyncConnection[Any], call: Call[R]) -> R:
    """Run a call on an asynchronous psycopg connection, in its transaction if one is open.

    Raises:
        OctopError: The class that belongs to the SQLSTATE, see ``octop.engine.failures``.
    """
    import psycopg  # noqa: PLC0415 - costs 100 ms, and whoever only describes calls needs none of it
    from psycopg.rows import tuple_row  # noqa: PLC0415 - likewise

    try:
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(qualified(call.text, schema_of(connection)), call.values or None, prepare=False)
            rows = await cursor.fetchall() if cursor.rownumber is not None else []  # as in run
    except psycopg.Error as error:
        raise translated(error) from error
    return call.read(rows)


def run_each(connection: Connection[Any], calls: Iterable[Call[R]]) -> list[R]:
    """Run calls one after the other; each is made while the database works on the one before.

    Through libpq's pipeline, with never more than one statement on its way: so memory stays bounded, and poolers see nothing new.

    Args:
        connection: Inside a transaction, so that an error leaves nothing.
        calls: From any iterable, read one ahead.

    Raises:
        OctopError: The class that belongs to the SQLSTATE, see ``octop.engine.failures``.
    """
    import psycopg  # noqa: PLC0415 - costs 100 ms, and whoever only describes calls needs none of it
    from psycopg.rows import tuple_row  # noqa: PLC0415 - likewise

    answers: list[R] = []
    before: Call[R] | None = None
    cursor = connection.cursor(row_factory=tuple_row)
    try:
        with connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext():
            for call in calls:
                if before is not None:
                    answers.append(before.read(cursor.fetchall()))
                cursor.execute(qualified(call.text, schema_of(connection)), call.values or None, prepare=False)
                before = call
            if before is not None:
                answers.append(before.read(cursor.fetchall()))
    except psycopg.Error as error:
        raise translated(error) from error
    return answers


async def run_each_async(connection: AsyncConnection[Any], calls: AsyncIterable[Call[R]]) -> list[R]:
    """Run calls one after the other; each is made while the database works on the one before. See ``run_each``."""
    import psycopg  # noqa: PLC0415 - costs 100 ms, and whoever only describes calls needs none of it
    from psycopg.rows import tuple_row  # noqa: PLC0415 - likewise

    answers: list[R] = []
    before: Call[R] | None = None
    cursor = connection.cursor(row_factory=tuple_row)
    try:
        async with connection.pipeline() if psycopg.AsyncPipeline.is_supported() else nullcontext():
            async for call in calls:
                if before is not None:
                    answers.append(before.read(await cursor.fetchall()))
                await cursor.execute(qualified(call.text, schema_of(connection)), call.values or None, prepare=False)
                before = call
            if before is not None:
                answers.append(before.read(await cursor.fetchall()))
    except psycopg.Error as error:
        raise translated(error) from error
    return answers


def first_value(rows: Rows) -> Any:
    """Return the first column of the first row, or None without rows."""
    return rows[0][0] if rows else None
