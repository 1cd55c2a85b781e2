"""As whom the private database runs, and the folders that this user can reach: PostgreSQL refuses to run as root."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from octop.model.errors import PrivateDatabaseError


@dataclass(frozen=True, slots=True)
class User:
    """The user that the server runs as, when this process may not (root); else nobody in particular."""

    uid: int
    gid: int
    name: str


MEMORY_FOLDER: Final = Path("/dev/shm")
MEMORY_STATE: Final = Path("/proc/meminfo")
MEMORY_BYTES_MIN: Final = 4 * 1024**3
"""What must be free, of the folder and of memory, before data is put there: its own size promises more than there is."""


def server_user(directory: Path | None = None) -> User | None:
    """Choose the user for the server: ourselves, or, as root, the owner of the data, `postgres` or `nobody`."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(FileNotFoundError, KeyError):
        owner = (directory / "data").stat().st_uid if directory else 0
        if owner != 0:
            entry = pwd.getpwuid(owner)
            return User(entry.pw_uid, entry.pw_gid, entry.pw_name)
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return User(entry.pw_uid, entry.pw_gid, entry.pw_name)
    message = "PostgreSQL does not run as root, and this machine has no user `postgres` or `nobody`"
    raise PrivateDatabaseError(message, hint="Run Octop as an ordinary user.")


def _environment() -> dict[str, str]:
    """Hide the user's own PG* variables: PGDATA, PGPORT or PGOPTIONS would bend the server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG") and name != "LANGUAGE"}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def run_as(
    user: User | None, command: Sequence[str], *, stdin: int = subprocess.DEVNULL, new_session: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a program as the server's user, from a folder and with an environment that do not bend it."""
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


def _may_enter(folder: Path, user: User) -> bool:
    info = folder.stat()
    if info.st_uid == user.uid:
        return bool(info.st_mode & stat.S_IXUSR)
    if info.st_gid == user.gid:
        return bool(info.st_mode & stat.S_IXGRP)
    return bool(info.st_mode & stat.S_IXOTH)


def make_directory(directory: Path, user: User | None) -> None:
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


def make_temporary_directory(prefix: str, user: User | None = None, *, in_memory: bool = False) -> Path:
    """Make an empty folder with a short path, which the server's user owns and can reach."""
    user = user or server_user()
    bases = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    if in_memory and (memory := roomy_memory()) is not None:
        bases.insert(0, memory)
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


def roomy_memory() -> Path | None:
    """Return the folder that lies in memory, if we may write to it and both it and memory have room; else None."""
    try:
        available = re.search(r"^MemAvailable: +(\d+) kB", MEMORY_STATE.read_text(), re.MULTILINE)
        free = min(int(available[1]) * 1024 if available else 0, shutil.disk_usage(MEMORY_FOLDER).free)
    except OSError:
        return None
    return MEMORY_FOLDER if free >= MEMORY_BYTES_MIN and os.access(MEMORY_FOLDER, os.W_OK) else None


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
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
