"""Applications that use a test's database for a while."""

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from octop.app import Octop
from octop.testing import active

if TYPE_CHECKING:
    from octop.testing.database import Database


class Override:
    """Points applications at a database, as a context manager of either kind.

    Args:
        database: Where to.
        applications: Which.
    """

    def __init__(self, database: "Database", applications: Sequence[Octop]) -> None:
        """Change nothing yet."""
        self._database = database
        self._applications = applications
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Database":
        """Change them, and return the database."""
        with contextlib.ExitStack() as stack:
            for app in self._applications:
                stack.enter_context(app.pointed_at(self._database.dsn, self._database.schema))
            for each in self._applications or (None,):
                active.push(self._database, each)
                stack.callback(active.remove, self._database, each)
            self._stack = stack.pop_all()
        return self._database

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put everything back."""
        self._stack.close()

    async def __aenter__(self) -> "Database":
        """Change them, and return the database."""
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put everything back, and close the connections of this event loop first."""
        for app in self._applications:
            await app.close_async()
        self._stack.close()
