"""One server of the private database: initdb, start, stop, and what PostgreSQL says of itself in its lock files.

Who stops a throw-away server when its owner dies by `kill -9`? Each server with a lifeline has a guard: a few lines of
shell that started it, hold the reading end of a pipe and wait. Whatever ends the owner, the kernel closes the writing
end; then the guard stops the server and deletes its folder. A normal end goes the same way, so it is always tested.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from octop.engine.private_user import User, make_temporary_directory, run_as
from octop.model.errors import PrivateDatabaseError

NAME: Final = "octop"
"""The database, and the superuser that owns it."""

LOOPBACK: Final = "127.0.0.1"

SOCKET_PORT: Final = 5432
"""The number in the socket's name when there is no TCP port."""

SOCKET_PATH_BYTES_MAX: Final = 107 if sys.platform == "linux" else 103
"""`sun_path` less its closing zero: PostgreSQL refuses a longer socket path."""

START_SECONDS_MAX: Final = 60.0
"""After an unclean end the server first replays its log; on a small machine that takes seconds, not a minute."""

STOP_SECONDS_MAX: Final = 20.0

POLL_SECONDS: Final = 0.005

ZOMBIE_SECONDS_MAX: Final = 3.0
"""How long the init process may take to reap a dead server; some never do."""

KEPT_SETTINGS: Final[Mapping[str, str]] = {
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "jit": "off",
    # To lose the last 0.6 s in a power cut is fine for development; a broken folder would not be: fsync stays on.
    "synchronous_commit": "off",
    # One server, no standby: less to write.
    "wal_level": "minimal",
    "max_wal_senders": "0",
}

GUARD: Final = """
log=$1 folder=$2 socket_folder=$3
shift 3
exec 3<&0
(
    "$@" >"$log" 2>&1 </dev/null 3<&- &
    server=$!
    echo $server
    exec >/dev/null 2>&1
    [ "$folder" ] || exit 0
    read -r _ <&3
    kill -QUIT $server
    wait $server
    cd /
    rm -rf -- "$folder" ${socket_folder:+"$socket_folder"}
) &
"""
"""Starts the server; if there is a folder to delete, waits for the end of the lifeline (standard input), deletes it.

The server is its child, so that its pid can not become another process's before the guard has stopped it. SIGQUIT: data
that is thrown away need not be written first.
"""


@dataclass(frozen=True, slots=True)
class PrivateDatabase:
    """Tell where a running private database is.

    Attributes:
        url: For psycopg, libpq and psql; logs in as the superuser `octop` to the database `octop`.
        data_directory: PostgreSQL's own folder.
        socket_directory: Holds the Unix socket; mode 0700.
        bin_directory: The binaries that it was started with; not always with psql beside them.
        server_pid: The postmaster's process id.
        port: The TCP port on 127.0.0.1, or, without TCP, the number in the socket's name.
    """

    url: str
    data_directory: Path
    socket_directory: Path
    bin_directory: Path
    server_pid: int
    port: int


def _write_password(path: Path, user: User | None) -> None:
    """Write a new password for TCP. The folder may be another user's: follow no link that lies there."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        if user is not None:
            os.fchown(descriptor, user.uid, user.gid)
        file.write(secrets.token_urlsafe(24) + "\n")


def initialise(directory: Path, binaries: Path, user: User | None) -> None:
    """Make the data folder. Over the socket its folder's mode decides who may enter; over TCP, a password."""
    data = directory / "data"
    _write_password(directory / "password", user)
    command = [
        str(binaries / "initdb"),
        f"--pgdata={data}",
        f"--username={NAME}",
        f"--pwfile={directory / 'password'}",
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
        "--encoding=UTF8",
        "--no-sync",
        "--no-instructions",
    ]
    answer = None
    # Text sorts by code point, alike everywhere. Where there is no C.UTF-8, C differs in upper and lower case alone.
    for locale in ("C.UTF-8", "C"):
        shutil.rmtree(data, ignore_errors=True)  # what an initdb that was killed left
        answer = run_as(user, [*command, f"--locale={locale}"])
        if answer.returncode == 0:
            return
        if "locale" not in answer.stderr:
            break
    detail = answer.stderr.strip() if answer else ""
    message = f"initdb failed in {directory}: {detail}"
    raise PrivateDatabaseError(message, hint="Is the disk full, or the folder another user's?")


def launch(
    directory: Path,
    binaries: Path,
    user: User | None,
    *,
    port: int | None,
    settings: Mapping[str, str],
    lifeline: int | None,
) -> PrivateDatabase:
    """Start the server, wait until it answers, and make the database on its first start."""
    number = _free_port() if port == 0 else port or SOCKET_PORT
    socket_directory = _socket_directory(directory, user, number)
    chosen = {
        **KEPT_SETTINGS,
        "listen_addresses": "" if port is None else LOOPBACK,
        **settings,
        "port": str(number),
        "unix_socket_directories": str(socket_directory),
        "unix_socket_permissions": "0700",
    }
    command = [str(binaries / "postgres"), "-D", str(directory / "data")]
    command += [part for name, value in chosen.items() for part in ("-c", f"{name}={value}")]
    _forget_dead_server(directory, socket_directory / f".s.PGSQL.{number}.lock")
    log = directory / "server.log"
    arguments = [
        str(log),
        str(directory) if lifeline is not None else "",
        str(socket_directory) if socket_directory.parent != directory else "",
    ]
    guard = run_as(
        user,
        ["/bin/sh", "-c", GUARD, "octop-private-database", *arguments, *command],
        stdin=subprocess.DEVNULL if lifeline is None else lifeline,
        new_session=True,  # a terminal's Ctrl-C is for us, not for the server
    )
    pid = int(guard.stdout)
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and _is_alive(pid):
        running = running_server(directory)
        if running is not None:
            _make_database(running)
            return running
        time.sleep(POLL_SECONDS)
    _send(pid, signal.SIGQUIT)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:]) if log.exists() else guard.stderr
    message = f"the private database in {directory} does not start:\n{tail}"
    raise PrivateDatabaseError(
        message, hint=f"The whole log is in {log}. To start afresh (the data is deleted): octop db reset"
    )


def _make_database(running: PrivateDatabase) -> None:
    """Name the database `octop` if it is not there: a start may have been cut short before.

    The one that initdb made is renamed: `create database` takes 60 to 450 ms more. So there is no database `postgres`;
    whoever needs another one to stand in takes template1.
    """
    import psycopg  # noqa: PLC0415 - costs 100 ms, and `octop db --help` needs none of it

    try:
        psycopg.connect(_socket_url(running.socket_directory, running.port, NAME), options="").close()
    except psycopg.OperationalError:
        # Whatever it was: either this mends it, or it fails with the reason.
        url = _socket_url(running.socket_directory, running.port, "template1")
        with psycopg.connect(url, options="", autocommit=True) as connection:
            connection.execute("alter database postgres rename to octop")
        # As 15 and newer have it; on 14 the installer would rightly refuse the schema.
        with psycopg.connect(
            _socket_url(running.socket_directory, running.port, NAME), options="", autocommit=True
        ) as connection:
            connection.execute("revoke create on schema public from public")


def _socket_directory(directory: Path, user: User | None, port: int) -> Path:
    """Make the folder of the socket: inside ours, or, if its path is too long for a socket, in a short one."""
    folder = directory / "socket"
    too_long = len(os.fsencode(folder / f".s.PGSQL.{port}")) > SOCKET_PATH_BYTES_MAX
    if too_long or re.search(r'[,"\s]', str(folder)):  # PostgreSQL takes a list here, and these would divide it
        return make_temporary_directory("octop-socket-", user)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        if user is not None:
            os.chown(folder, user.uid, user.gid, follow_symlinks=False)
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        number: int = probe.getsockname()[1]
        return number


@dataclass(frozen=True, slots=True)
class _LockFile:
    """What PostgreSQL says of itself in postmaster.pid (miscadmin.h: LOCK_FILE_LINE_*)."""

    pid: int
    port: int
    socket_directory: Path
    listens_on_tcp: bool
    ready: bool


def read_lock_file(directory: Path) -> _LockFile | None:
    """Read postmaster.pid; None when there is none, or when it is still being written."""
    try:
        lines = (directory / "data" / "postmaster.pid").read_text().splitlines()
        pid, port, socket_directory, address, state = (lines[index] for index in (0, 3, 4, 5, 7))
        return _LockFile(int(pid), int(port), Path(socket_directory), bool(address), state.strip() == "ready")
    except (OSError, ValueError, IndexError):
        return None


def running_server(directory: Path) -> PrivateDatabase | None:
    """Tell where the server is, if it is ready."""
    found = read_lock_file(directory)
    if found is None or not found.ready or not _is_server(found.pid, directory):
        return None
    if found.listens_on_tcp:
        password = (directory / "password").read_text().strip()
        url = f"postgresql://{NAME}:{quote(password)}@{LOOPBACK}:{found.port}/{NAME}"
    else:
        url = _socket_url(found.socket_directory, found.port, NAME)
    with (directory / "data" / "postmaster.opts").open() as options:
        program = options.readline().partition(' "')[0]
    return PrivateDatabase(
        url=url,
        data_directory=directory / "data",
        socket_directory=found.socket_directory,
        bin_directory=Path(program).parent,
        server_pid=found.pid,
        port=found.port,
    )


def attached_server(directory: Path) -> PrivateDatabase | None:
    """Find the running server; one that is still starting (its starter was killed) is waited for."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        running = running_server(directory)
        found = read_lock_file(directory)
        if running is not None or found is None or not _is_server(found.pid, directory):
            return running
        time.sleep(POLL_SECONDS)
    return None


def _socket_url(socket_directory: Path, port: int, database: str) -> str:
    return f"postgresql:///{database}?" + urlencode(
        {"host": str(socket_directory), "port": port, "user": NAME}, safe="/", quote_via=quote
    )


def stop_server(directory: Path) -> bool:
    """Stop the server of a folder; answer whether one was running.

    Raises:
        PrivateDatabaseError: It is still running after 20 s.
    """
    found = read_lock_file(directory)
    if found is None or not _is_server(found.pid, directory):
        return False
    beginning = time.monotonic()
    _send(found.pid, signal.SIGINT)
    urged = False
    while _is_alive(found.pid):
        waited = time.monotonic() - beginning
        if waited > STOP_SECONDS_MAX:
            message = f"the private database in {directory} (process {found.pid}) does not stop"
            raise PrivateDatabaseError(message, hint=f"Look into {directory / 'server.log'}; as a last resort end it.")
        if waited > STOP_SECONDS_MAX / 2 and not urged:
            _send(found.pid, signal.SIGQUIT)  # its log is replayed at the next start
            urged = True
        time.sleep(POLL_SECONDS)
    if found.socket_directory.parent != directory:
        shutil.rmtree(found.socket_directory, ignore_errors=True)
    return True


def _forget_dead_server(directory: Path, socket_lock: Path) -> None:
    """Remove the lock files of a server whose number now belongs to another program, or to a zombie.

    PostgreSQL itself removes them when no such process exists. In a container the same small numbers come back at each
    start, or nobody reaps the dead, and it would refuse to start because of an innocent process. After a kill -9 there
    is a short wait first: postmaster.pid also guards against backends that outlive their postmaster.
    """
    for lock in (directory / "data" / "postmaster.pid", socket_lock):
        try:
            pid = int(lock.read_text().splitlines()[0])
        except (OSError, ValueError, IndexError):
            continue
        if _is_server(pid, directory):
            return
        deadline = time.monotonic() + ZOMBIE_SECONDS_MAX
        while _exists(pid) and not _is_alive(pid) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if _exists(pid):
            lock.unlink(missing_ok=True)


def _exists(pid: int) -> bool:
    """Tell whether PostgreSQL would take this process for a living one; it counts zombies."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, so it exists
    return True


def _is_server(pid: int, directory: Path) -> bool:
    """Tell whether this process is the server of this folder, as far as the system lets us look."""
    if not _is_alive(pid):
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True  # no /proc here: believe postmaster.pid
    return os.fsencode(directory / "data") in command.split(b"\0")


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # if we are process 1 of a container, orphans are ours to reap
    if not _exists(pid):
        return False
    try:
        # A zombie has ended: only its parent has not looked yet.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return not Path("/proc/self/stat").exists()  # without /proc: alive; with it: it ended between the two looks


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
