"""The PostgreSQL on which tests run: one that is named, else a private one that lasts as long as anybody tests."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from octop.engine.private_user import roomy_memory
from octop.model.errors import ConfigurationError, PrivateDatabaseError
from octop.model.settings import DEFAULT_SCHEMA
from octop.testing.database import Database

if TYPE_CHECKING:
    from octop.engine.throwaway import Throwaways

VARIABLE: Final = "OCTOP_TEST_DSN"
SETTINGS: Final = {
    # what is thrown away need not reach the disk
    "fsync": "off",
    "full_page_writes": "off",
    # and little of it is kept: the folder may lie in memory
    "min_wal_size": "32MB",
    "max_wal_size": "64MB",
    "max_connections": "400",
}


class Server:
    """Makes databases for tests. Nothing is started before the first one is asked for.

    Without a DSN it is a private PostgreSQL (the extra ``dev``, or the system's): one for all test runs of this user, with
    the templates kept from run to run, started by the first run and stopped by the last. Its folder lies in memory where
    there is room, else beside that of ``octop dev``.

    Args:
        dsn: A server of your own: a URL or key=value words of a login that may create databases (and roles, if nobody
            has installed Octop there). None = the variable OCTOP_TEST_DSN, else the private one.

    Examples:
        >>> with Server() as server, server.database() as database:
        ...     database.enqueued()
        []
    """

    def __init__(self, dsn: str | None = None) -> None:
        """Start nothing yet."""
        self._dsn = dsn or os.environ.get(VARIABLE) or None
        self._lock = threading.Lock()
        self._throwaways: Throwaways | None = None
        self._private: _PrivateServer | None = None
        self._has_kept = False

    def __enter__(self) -> "Server":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @contextlib.contextmanager
    def database(self, schema: str = DEFAULT_SCHEMA, *, keep: bool = False) -> Iterator[Database]:
        """Make a database with Octop in it for the length of a `with`, in some tens of milliseconds.

        Args:
            schema: Where Octop is installed in it.
            keep: Leave it there afterwards; a private server then goes on running.

        Yields:
            The database; nothing else uses it.

        Raises:
            PrivateDatabaseError: There is no PostgreSQL on this machine.
            DatabaseUnreachableError: The server that was named does not answer.
            NotPermittedError: The login may not create databases.
        """
        throwaways = self._opened()
        with self._lock:
            name = throwaways.create(schema, keep=keep)
        self._has_kept = self._has_kept or keep
        database = Database(throwaways.url(name), name, schema)
        try:
            yield database
        finally:
            database.close()
            if not keep:
                with self._lock:
                    throwaways.drop(name)

    def close(self) -> None:
        """Drop what is left, and stop a private server that nobody else uses and that holds nothing to be kept."""
        with self._lock:
            if self._throwaways is not None:
                self._throwaways.close()
                self._throwaways = None
            if self._private is not None:
                self._private.leave(stop=not self._has_kept)
                self._private = None

    def _opened(self) -> "Throwaways":
        from octop.engine.throwaway import Throwaways  # noqa: PLC0415 - loads psycopg

        with self._lock:
            if self._throwaways is None:
                dsn = self._dsn
                if dsn is None:
                    self._private = self._private or _PrivateServer()
                    dsn = self._private.url
                self._throwaways = Throwaways(dsn)
            return self._throwaways


def private_folder() -> Path:
    """Name the folder of the private server of all test runs of this user; it need not exist.

    Raises:
        ConfigurationError: Somebody else has made it.
    """
    from octop.engine.private_database import default_directory  # noqa: PLC0415 - loads psycopg

    on_disk = default_directory().with_name("tests")
    with contextlib.suppress(OSError):
        if (memory := roomy_memory()) is not None:
            folder = memory / f"octop-tests-{os.geteuid()}"
            # every user of the machine may write there: it must be ours, and no link to somewhere else
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            if folder.is_symlink() or found.st_uid != os.geteuid():
                message = f"{folder} belongs to somebody else"
                raise ConfigurationError(message, hint=f"Remove it, or set {VARIABLE}.")
            return _passable(folder)
    on_disk.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _passable(on_disk)


def _passable(folder: Path) -> Path:
    if os.geteuid() == 0:
        folder.chmod(0o711)  # the server then runs as another user, who must get to its own folder inside
    return folder


class _PrivateServer:
    """This process's share in the private server: the last of all processes that leave it stops it."""

    def __init__(self) -> None:
        """Start it, or attach to it."""
        from octop.engine import private_database  # noqa: PLC0415 - loads psycopg

        folder = private_folder()
        self._directory = folder / "server"
        self._users = (folder / "users").open("w")
        fcntl.flock(self._users, fcntl.LOCK_SH)
        try:
            try:
                running = private_database.start(self._directory, settings=SETTINGS)
            except PrivateDatabaseError:
                # After a power cut, or with another version's data: nothing in it is worth anything. But who has no
                # PostgreSQL at all is told so by the second try.
                private_database.reset(self._directory)
                running = private_database.start(self._directory, settings=SETTINGS)
        except BaseException:
            self._users.close()
            raise
        self.url = running.url

    def leave(self, *, stop: bool) -> None:
        """Let go of it, and stop it unless it is in use or to be kept."""
        from octop.engine import private_database  # noqa: PLC0415 - loads psycopg

        with self._users, contextlib.suppress(BlockingIOError):
            fcntl.flock(self._users, fcntl.LOCK_UN)
            if stop:
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                private_database.stop(self._directory)
