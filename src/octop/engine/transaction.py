"""Several calls in one transaction, with our own errors also for what PostgreSQL checks at commit."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from octop.engine.failures import translated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection


@contextmanager
def transaction(connection: Connection[Any]) -> Iterator[None]:
    """Run the calls of a `with` in one transaction of a blocking connection; an exception rolls it back.

    Raises:
        SettingsDisagreeError: Settings that must agree are checked at commit, not by the call that changes one.
        OctopError: Whatever else the commit is refused for.
    """
    import psycopg  # noqa: PLC0415 - costs 100 ms, and whoever only describes calls needs none of it

    try:
        with connection.transaction():
            yield
    except psycopg.Error as error:
        raise translated(error) from error
