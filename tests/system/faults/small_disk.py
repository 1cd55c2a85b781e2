"""A small file system for the data of a server, so that it can be filled (disk_faults.py). It must be mounted; who may not has size_faults.py."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import uuid4

from octop.engine.private_user import make_directory, server_user
from tests.servers import Server, run_directory

SIZE = "256m"
SETTINGS = {"min_wal_size": "32MB", "max_wal_size": "64MB"}
"""So that the log leaves most of it to tables."""

# Takes the file system away when the run has ended, however it ends: the reading end of the run's FIFO is its standard input.
UNMOUNT = 'read -r _; umount --lazy -- "$1" 2>/dev/null'


@functools.cache
def may_mount() -> bool:
    """Try it: a container may take the right away from root, or give it and forbid the call."""
    with tempfile.TemporaryDirectory(prefix="octop-mount-") as folder:
        try:
            _mount(Path(folder))
        except (RuntimeError, FileNotFoundError):
            return False
        _unmount(Path(folder))
    return True


@contextlib.contextmanager
def server_on_small_disk(version: int, settings: Mapping[str, str]) -> Iterator[Server]:
    """Run a server with its data, its log and its temporary files on a file system of their own, in memory.

    Raises:
        RuntimeError: Nothing can be mounted here.
    """
    directory = run_directory() / f"{version}-{uuid4().hex[:6]}"
    user = server_user()
    make_directory(directory, user)
    data = directory / "data"
    data.mkdir()
    _mount(data, "" if user is None else f",uid={user.uid},gid={user.gid}")
    server = None
    guard = _guarded(data)
    try:
        server = Server(version, directory, {**settings, **SETTINGS})
        yield server
    finally:
        if server is not None:
            server.stop()
        guard.kill()
        guard.wait()
        _unmount(data)


def _mount(folder: Path, owner: str = "") -> None:
    options = f"size={SIZE},mode=0700{owner}"
    command = ["mount", "-t", "tmpfs", "-o", options, "octop-faults", str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RuntimeError(f"a small disk can not be mounted: {answer.stderr.strip()}")


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _guarded(data: Path) -> subprocess.Popen[bytes]:
    lifeline = os.open(run_directory() / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.set_blocking(lifeline, True)
        return subprocess.Popen(
            ["/bin/sh", "-c", UNMOUNT, "octop-unmount", str(data)],
            stdin=lifeline,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(lifeline)
