"""Several calls in one transaction, with our own errors also for what PostgreSQL checks at commit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection

from octop.engine.failures import translated


@contextmanager
def transaction(connection: Connection[Any]) -> Iterator[None]:
    """Run the calls of a `with` in one transaction of a blocking connection; an exception rolls it back.

    Raises:
        SettingsDisagreeError: Settings that must agree are checked at commit, not by the call that changes one.
        OctopError: Whatever else the commit is refused for.
    """
    try:
        with connection.transaction():
            yield
    except psycopg.Error as error:
        raise translated(error) from error
