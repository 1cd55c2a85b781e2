"""The database of the test that runs, for code that has no fixture at hand: ``from octop.testing import drain``."""

from typing import TYPE_CHECKING, Any, Final

from octop.engine.admission import databases_of_tests
from octop.model.errors import ConfigurationError
from octop.testing.bent_clock import Clock

if TYPE_CHECKING:
    from octop.app import Octop
    from octop.testing.database import Database
    from octop.testing.listed import EnqueuedTask
    from octop.testing.ran import Drained

# One test runs at a time in a process. No context variable: a fixture's context is not the test's under every plugin.
_pairs: "Final[list[tuple[Database, Octop | None]]]" = []


def push(database: "Database", app: "Octop | None") -> None:
    """Make a database, and perhaps an application that points at it, the one that is meant.

    Applications that lead anywhere else are refused meanwhile: a test must not write into a real database.
    """
    _pairs.append((database, app))
    databases_of_tests.append(database.dsn)


def remove(database: "Database", app: "Octop | None") -> None:
    """Take back the latest ``push`` of these two."""
    for at in range(len(_pairs) - 1, -1, -1):
        if _pairs[at][0] is database and _pairs[at][1] is app:
            del _pairs[at]
            databases_of_tests.remove(database.dsn)
            return


def current() -> "Database":
    """Return the database of the test that runs.

    Raises:
        ConfigurationError: There is none.
    """
    if not _pairs:
        message = "no test database is in use here"
        hint = "Let the test ask for the fixture octop_database, or call this inside `with database.override(octop):`."
        raise ConfigurationError(message, hint=hint)
    return _pairs[-1][0]


def application(database: "Database") -> "Octop":
    """Return the application that was pointed at a database last.

    Raises:
        ConfigurationError: None was.
    """
    for known, app in reversed(_pairs):
        if known is database and app is not None:
            return app
    message = "which application? None was pointed at this database"
    hint = "Set `octop_app = module:attribute` in pytest's settings, or use `with octop_database.override(octop):`."
    raise ConfigurationError(message, hint=hint)


clock: Final = Clock(current)


def drain(app: "Octop | None" = None, **options: Any) -> "Drained":
    """Run all tasks that are due in the test's database; see ``Database.drain``."""
    __tracebackhide__ = True
    return current().drain(app, **options)


async def drain_async(app: "Octop | None" = None, **options: Any) -> "Drained":
    """Run all tasks that are due in the test's database; see ``Database.drain``."""
    __tracebackhide__ = True
    return await current().drain_async(app, **options)


def enqueued(task: Any = None, **options: Any) -> "list[EnqueuedTask]":
    """List the unfinished tasks in the test's database; see ``Database.enqueued``."""
    return current().enqueued(task, **options)


def assert_enqueued(task: Any, **wanted: Any) -> "list[EnqueuedTask]":
    """Fail unless such a task waits in the test's database; see ``Database.assert_enqueued``."""
    __tracebackhide__ = True
    return current().assert_enqueued(task, **wanted)


def assert_not_enqueued(task: Any, **wanted: Any) -> None:
    """Fail if such a task waits in the test's database; see ``Database.assert_not_enqueued``."""
    __tracebackhide__ = True
    current().assert_not_enqueued(task, **wanted)
