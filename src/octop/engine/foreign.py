"""Run a call on a connection that the user opened, in the transaction that is open there.

psycopg, psycopg2, asyncpg, SQLAlchemy (Session, AsyncSession, Connection, AsyncConnection, scoped sessions) and
Django's connection. None of them is imported here: an object says by its class what it is. SQLAlchemy is asked to run
the statement itself, so that its session knows that its transaction has begun.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final, LiteralString, TypeVar
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row

from octop.engine.call import Call, Rows, qualified
from octop.engine.failures import translated
from octop.model.errors import ForeignConnectionError

R = TypeVar("R")


class Kind(Enum):
    """What a user may hand over as ``connection=``."""

    PSYCOPG = "psycopg"
    PSYCOPG_ASYNC = "psycopg, asynchronous"
    PSYCOPG2 = "psycopg2"
    ASYNCPG = "asyncpg"
    SQLALCHEMY = "SQLAlchemy"
    SQLALCHEMY_ASYNC = "SQLAlchemy, asynchronous"
    DJANGO = "Django"

    @property
    def is_async(self) -> bool:
        """Tell whether it must be awaited."""
        return self in (Kind.PSYCOPG_ASYNC, Kind.ASYNCPG, Kind.SQLALCHEMY_ASYNC)


# By package and class anywhere among the bases: SQLModel's Session and a pool's wrappers are what they derive from.
_KINDS: Final = {
    ("psycopg", "Connection"): Kind.PSYCOPG,
    ("psycopg", "AsyncConnection"): Kind.PSYCOPG_ASYNC,
    ("psycopg2", "connection"): Kind.PSYCOPG2,
    ("asyncpg", "Connection"): Kind.ASYNCPG,
    ("asyncpg", "PoolConnectionProxy"): Kind.ASYNCPG,
    ("sqlalchemy", "Session"): Kind.SQLALCHEMY,
    ("sqlalchemy", "scoped_session"): Kind.SQLALCHEMY,
    ("sqlalchemy", "Connection"): Kind.SQLALCHEMY,
    ("sqlalchemy", "AsyncSession"): Kind.SQLALCHEMY_ASYNC,
    ("sqlalchemy", "async_scoped_session"): Kind.SQLALCHEMY_ASYNC,
    ("sqlalchemy", "AsyncConnection"): Kind.SQLALCHEMY_ASYNC,
    ("django", "BaseDatabaseWrapper"): Kind.DJANGO,
}
_INSTEAD: Final = (
    "Hand over a connection or session of psycopg, psycopg2, asyncpg, SQLAlchemy or Django; "
    "a pool or an engine has no transaction."
)


def kind_of(connection: object) -> Kind:
    """Say what an object is.

    Raises:
        ForeignConnectionError: Nothing that a task can be enqueued on.
    """
    known = _kind_of_class(type(connection))
    if known is None:
        what = f"{type(connection).__module__}.{type(connection).__qualname__}"
        message = f"connection= got {what}, which has no transaction that a task can join"
        raise ForeignConnectionError(message, hint=_INSTEAD)
    return known


def _kind_of_class(kind: type) -> Kind | None:
    for base in kind.__mro__:
        # psycopg2's class says psycopg2.extensions, asyncpg's asyncpg.connection.
        found = _KINDS.get((base.__module__.partition(".")[0], base.__name__))
        if found is not None:
            return found
    return None


def run_foreign(connection: object, call: Call[R], *, schema: str) -> R:
    """Run a call on a blocking connection of the user's.

    Args:
        connection: What ``kind_of`` knows.
        call: What to run.
        schema: Where Octop is installed.

    Raises:
        ForeignConnectionError: It is asynchronous, or nothing that we know.
        OctopError: What the engine says, by SQLSTATE.
    """
    kind = kind_of(connection)
    if kind.is_async:
        message = f"a connection of {kind.value} can not be used here: nothing would await it"
        raise ForeignConnectionError(
            message, hint="Use `await ….enqueue(…)` with it, or hand over a blocking connection."
        )
    place: Any = connection
    if kind is Kind.SQLALCHEMY:
        return call.read(_through_sqlalchemy(place, call, schema))
    if kind is Kind.DJANGO:
        place.ensure_connection()
        return run_foreign(place.connection, call, schema=schema)
    text = qualified(call.text, schema)
    with _errors(), place.cursor(**({"row_factory": tuple_row} if kind is Kind.PSYCOPG else {})) as cursor:
        cursor.execute(text, dict(call.values) or None)
        rows = cursor.fetchall() if cursor.description else []
    return call.read(_plain(rows))


async def run_foreign_async(connection: object, call: Call[R], *, schema: str) -> R:
    """Run a call on any connection of the user's; a blocking one blocks the event loop for one round trip.

    Args:
        connection: What ``kind_of`` knows.
        call: What to run.
        schema: Where Octop is installed.

    Raises:
        ForeignConnectionError: Nothing that we know.
        OctopError: What the engine says, by SQLSTATE.
    """
    kind = kind_of(connection)
    place: Any = connection
    if kind is Kind.PSYCOPG_ASYNC:
        with _errors():
            async with place.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(qualified(call.text, schema), dict(call.values) or None)
                rows = await cursor.fetchall() if cursor.description else []
        return call.read(_plain(rows))
    if kind is Kind.ASYNCPG:
        text, names = numbered(call.text, schema)
        with _errors():
            records = await place.fetch(text, *(as_text(call.values[name]) for name in names))
        return call.read(_plain([tuple(record) for record in records]))
    if kind is Kind.SQLALCHEMY_ASYNC:
        inner = place if _is_a(place, "AsyncConnection") else await place.connection()
        return call.read(await inner.run_sync(lambda sync: _through_sqlalchemy(sync, call, schema)))
    return run_foreign(connection, call, schema=schema)


def _is_a(connection: object, name: str) -> bool:
    return any(base.__name__ == name for base in type(connection).__mro__)


def _through_sqlalchemy(place: Any, call: Call[Any], schema: str) -> Rows:
    # A session's connection() begins its transaction; a connection's exec_driver_sql does.
    connection = place if _is_a(place, "Connection") else place.connection()
    dialect = connection.dialect
    if dialect.name != "postgresql" or dialect.paramstyle not in ("pyformat", "numeric_dollar"):
        message = f"SQLAlchemy's {dialect.name}+{dialect.driver} is no driver that a task can be enqueued with"
        raise ForeignConnectionError(message, hint="Use postgresql+psycopg, postgresql+psycopg2 or postgresql+asyncpg.")
    with _errors():
        if dialect.paramstyle == "pyformat":
            result = connection.exec_driver_sql(qualified(call.text, schema).decode(), dict(call.values) or None)
        else:
            text, names = numbered(call.text, schema)
            result = connection.exec_driver_sql(text, tuple(as_text(call.values[name]) for name in names))
        return _plain([tuple(row) for row in result.fetchall()] if result.returns_rows else [])


_PARAMETER: Final = re.compile(r"%\((?P<name>\w+)\)s(?:::(?P<cast>[a-z_ ]+[a-z_](?:\[\])?))?|%%")


@lru_cache(maxsize=1024)
def numbered(text: LiteralString, schema: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with ``$n`` parameters that are all text, and their names in order.

    asyncpg encodes each parameter as the type that the server infers, and its users may have given jsonb or arrays
    codecs of their own. Text is text everywhere; the server casts.

    Args:
        text: One of our own literal texts.
        schema: Where Octop is installed.

    Examples:
        >>> numbered("select octop_scale(%(queue)s::text, %(limit)s::integer)", "jobs")
        ('select "jobs".octop_scale($1::text, $2::text::integer)', ('queue', 'limit'))
    """
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name, cast = match["name"], match["cast"]
        if name is None:
            return "%"
        if name not in names:
            names.append(name)
        parameter = f"${names.index(name) + 1}"
        array = "[]" if cast and cast.endswith("[]") else ""
        return f"{parameter}::text{array}" + (f"::{cast}" if cast and cast not in ("text", "text[]") else "")

    return _PARAMETER.sub(number, qualified(text, schema).decode()), tuple(names)


def as_text(value: object) -> object:
    """Return a value of a Call as text, which the server casts: a list element by element, None as it is."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Sequence):
        return [as_text(each) for each in value]
    return repr(value)


def _plain(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return [tuple(str(value) if isinstance(value, UUID) else value for value in row) for row in rows]


class _Diagnostic:
    """What the server said, from a driver's error: psycopg2 keeps it like psycopg, asyncpg in the error itself."""

    def __init__(self, error: Any) -> None:
        diagnostic = getattr(error, "diag", None)
        self.message_primary = getattr(diagnostic, "message_primary", None) or getattr(error, "message", None)
        self.message_hint = getattr(diagnostic, "message_hint", None) or getattr(error, "hint", None)
        self.message_detail = getattr(diagnostic, "message_detail", None) or getattr(error, "detail", None)
        self.constraint_name = getattr(diagnostic, "constraint_name", None) or getattr(error, "constraint_name", None)


class _ForeignError(psycopg.Error):
    """An error of another driver in the shape that ``octop.engine.failures`` reads."""

    def __init__(self, error: BaseException, sqlstate: str | None) -> None:
        super().__init__(str(error))
        self.sqlstate = sqlstate
        self._foreign = _Diagnostic(error)

    @property
    def diag(self) -> Any:
        return self._foreign


def _state_of(error: object) -> str | None:
    found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return found if isinstance(found, str) else None


def _driver_error(error: BaseException) -> BaseException:
    """Return the driver's own error: SQLAlchemy wraps it, and its asyncpg layer once more."""
    inner = getattr(error, "orig", None) or error
    cause = inner.__cause__
    return cause if cause is not None and _state_of(cause) else inner


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        inner = _driver_error(error)
        if isinstance(inner, psycopg.Error):
            raise translated(inner) from error
        if state := _state_of(inner):
            raise translated(_ForeignError(inner, state)) from error
        raise
