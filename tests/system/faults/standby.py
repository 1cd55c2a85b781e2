"""A streaming standby of the database: it takes over when the primary is gone (failover_faults.py)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import psycopg

from octop.engine.private_user import make_directory, run_as, server_user
from tests.processes import birth_of
from tests.servers import Server

KINDS = ("sync", "async")
"""Whether a commit waits for the standby."""

NAME = "standby"
STREAM_SECONDS_MAX = 30.0
PRIMARY_SETTINGS = {
    "max_wal_senders": "4",
    "wal_keep_size": "512MB",
    # what it lacks after a restart of the primary it asks for at once, not after 5 s
    "wal_retrieve_retry_interval": "100ms",
}
STREAMS = "select pid from pg_stat_replication where application_name = %s and state = 'streaming'"


@contextlib.contextmanager
def standing_by(primary: Server, kind: str) -> Iterator[Server]:
    """Add a standby to a server that was started with the settings above; `synchronous_commit` alone does not make a commit wait for it.

    The copy is that of a server that was stopped: unlike pg_basebackup, `cp` comes with every version.
    """
    primary.stop()
    user = server_user(primary.directory)
    directory = primary.directory.with_name(f"{primary.directory.name}-s")
    make_directory(directory, user)
    data = directory / "data"
    for command in (["cp", "-a", f"{primary.directory / 'data'}", f"{data}"], ["touch", f"{data / 'standby.signal'}"]):
        answer = run_as(user, command)
        if answer.returncode != 0:
            raise RuntimeError(f"the standby can not be made: {answer.stderr}")
    settings = dict(primary.settings)
    if kind == "sync":
        primary.settings["synchronous_standby_names"] = NAME
    running = primary.start()
    socket = f"host={running.socket_directory} port={running.port} user=octop"
    standby = Server(primary.version, directory, {**settings, "primary_conninfo": f"{socket} application_name={NAME}"})
    try:
        with psycopg.connect(primary.url(), autocommit=True) as connection:
            senders(connection)
        yield standby
    finally:
        standby.stop()
        _tidy(primary)


def _tidy(primary: Server) -> None:
    """Let a server whose processes were killed all at once take what they shared out of memory: it does that when it starts again."""
    if not birth_of(primary.running.server_pid):
        # else the start waits for a zombie that nobody will reap
        for lock in (*primary.directory.glob("data/postmaster.pid"), *primary.running.socket_directory.glob("*.lock")):
            lock.unlink()
        primary.start()


def senders(connection: psycopg.Connection[Any]) -> list[int]:
    """Wait until the standby streams, and list the processes of the primary that send to it.

    Raises:
        RuntimeError: It does not.
    """
    deadline = time.monotonic() + STREAM_SECONDS_MAX
    while time.monotonic() < deadline:
        if found := connection.execute(STREAMS, (NAME,)).fetchall():
            return [row[0] for row in found]
        time.sleep(0.02)
    raise RuntimeError("the standby does not stream: the run proves nothing")
