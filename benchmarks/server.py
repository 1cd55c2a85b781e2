"""The one PostgreSQL of a run, and its Redis: both private, on this machine, thrown away afterwards. The same settings for all."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from octop.engine import private_database
from octop.engine.throwaway import url_of

SETTINGS: Final = {
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "max_connections": "300",
}
"""For a busy server of a small machine. fsync and synchronous_commit are off: what is compared is work, not the disk; who commits
once per task gains most by it."""
DURABLE: Final = {**SETTINGS, "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


@dataclass(frozen=True, slots=True)
class Server:
    """A running PostgreSQL."""

    url: str
    version: str
    pid: int
    settings: dict[str, str]

    @contextlib.contextmanager
    def database(self, name: str = "", *, template: str = "template1", keep: bool = False) -> Iterator[str]:
        """Make a database for the length of a `with`; yield its URL.

        Args:
            name: Default: any.
            template: Copied. `template1` is empty.
            keep: Leave it to the end of the server.
        """
        name = name or f"bench_{secrets.token_hex(4)}"
        with self.connect() as connection:
            create = sql.SQL("create database {} template {} strategy file_copy")
            connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        url = url_of(self.url, name)
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("revoke create on schema public from public")
            yield url
        finally:
            with self.connect() as connection:
                if keep:  # to be a template it must have no visitors
                    connection.execute(
                        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", (name,)
                    )
                else:
                    drop = sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
                    connection.execute(drop)
                connection.execute("checkpoint")  # so that nobody pays for the one before

    def connect(self, url: str | None = None) -> psycopg.Connection[Any]:
        """Connect, every statement its own transaction."""
        return psycopg.connect(url or self.url, autocommit=True)


@contextlib.contextmanager
def postgres(*, durable: bool = False, in_memory: bool = True) -> Iterator[Server]:
    """Run PostgreSQL for the length of a `with`.

    Args:
        durable: Wait for the disk at each commit, on a real disk.
        in_memory: Keep the data in memory if there is room; for much data: False.
    """
    settings = DURABLE if durable else SETTINGS
    with private_database.temporary(port=0, settings=settings, in_memory=in_memory and not durable) as database:
        with psycopg.connect(database.url) as connection:
            version = connection.execute("show server_version").fetchone()
            names = [*SETTINGS, "fsync", "synchronous_commit", "full_page_writes"]
            rows = connection.execute(
                "select name, current_setting(name) from pg_settings where name = any(%s)", (names,)
            ).fetchall()
        assert version is not None
        yield Server(database.url, version[0], database.server_pid, dict(rows))


@contextlib.contextmanager
def redis() -> Iterator[str | None]:
    """Run Redis on a free port of the loopback address for the length of a `with`; None where it can not be had."""
    program = shutil.which("redis-server") or _installed_redis()
    if program is None:
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="octop-redis-")
    # Nothing is written to disk, as PostgreSQL here does not wait for it.
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
    with subprocess.Popen([program, *options], stdout=subprocess.DEVNULL) as process:
        try:
            _wait_for(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
    shutil.rmtree(folder, ignore_errors=True)


def _installed_redis() -> str | None:
    """Install redis-server where this is Debian and we may."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("benchmarks: installing redis-server …", file=sys.stderr, flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "-qq", "update"], ["apt-get", "-qq", "--yes", "install", "redis-server"]):
            subprocess.run(command, check=False, env=environment, capture_output=True)
    return shutil.which("redis-server")


def _wait_for(port: int, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if time.monotonic() > deadline:
            message = f"redis-server does not answer on port {port}"
            raise RuntimeError(message)
        time.sleep(0.05)
