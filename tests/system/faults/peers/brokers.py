"""What keeps the tasks: a PostgreSQL or a Redis of the run's own, which is restarted in mid-run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg import sql

from octop.engine.install import install
from tests import servers
from tests.processes import wait_for_end
from tests.servers import Server
from tests.system.faults.database_faults import SESSIONS
from tests.system.faults.proxy import LOOPBACK
from tests.system.faults.stage import APPLICATION_ROLE, DATABASE_SETTINGS, picked

NOBODY = "nobody"
"""There was nothing to strike."""

STOP_SECONDS_MAX = 20.0
START_SECONDS_MAX = 20.0
ALL_FROM = 0.5
"""Of the plan's choice: above it all sessions end, below it one."""


class Broker(Protocol):
    """One of the two."""

    version: str
    socket: Path

    def url(self, port: int) -> str:
        """Return the URL for who comes by TCP at this port."""

    def prepare_octop(self) -> None:
        """Install Octop as its owner."""

    def restart(self, number: signal.Signals, seconds: float) -> str:
        """Stop it by a signal, keep it away for so long, and start it again; return who it was."""

    def terminate(self, pick: float) -> str:
        """Let it end one session of workers or producers, or all of them; return which."""


class Postgres:
    """Durable over every crash of its own: `synchronous_commit` is on. (fsync is off: the machine does not crash.)"""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.socket = server.running.socket_directory / f".s.PGSQL.{server.running.port}"
        with psycopg.connect(server.url(), autocommit=True) as connection:
            self.version = f"PostgreSQL {connection.info.parameter_status('server_version')}"
            role = sql.Identifier(APPLICATION_ROLE)
            connection.execute(sql.SQL("create role {} login").format(role))
            connection.execute(sql.SQL("grant create on schema public to {}").format(role))

    def url(self, port: int) -> str:
        return f"postgresql://{APPLICATION_ROLE}@{LOOPBACK}:{port}/octop?sslmode=disable"

    def prepare_octop(self) -> None:
        install(self.server.url())
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            role = sql.Identifier(APPLICATION_ROLE)
            connection.execute(sql.SQL("grant octop_worker, octop_producer, octop_viewer to {}").format(role))

    def restart(self, number: signal.Signals, seconds: float) -> str:
        pid = self.server.running.server_pid
        os.kill(pid, number)
        wait_for_end(pid, STOP_SECONDS_MAX)
        time.sleep(seconds)
        self.server.start()
        return str(pid)

    def terminate(self, pick: float) -> str:
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            rows = connection.execute(SESSIONS, (APPLICATION_ROLE,)).fetchall()
            victims = _one_or_all([row[0] for row in rows], pick)
            connection.execute("select pg_terminate_backend(p) from unnest(%s::int[]) p", (victims,))
        return ", ".join(map(str, victims)) or NOBODY


class Redis:
    """Each command is in its log before it is answered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.version = f"Redis {_redis('--version').split('v=')[1].split()[0]}"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        options = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder), "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "everysec", "--logfile", str(self.folder / "redis.log")]
        process = subprocess.Popen(["redis-server", *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if time.monotonic() > deadline:
                raise RuntimeError("redis-server does not start: the run proves nothing")
            time.sleep(0.02)
        return process

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self._asked("PING").startswith(b"+PONG")  # while it reads its log, it says -LOADING
        return False

    def _asked(self, command: str) -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(str(self.socket))
            client.sendall(f"{command}\r\nQUIT\r\n".encode())  # it answers both, and hangs up
            return b"".join(iter(lambda: client.recv(65536), b""))

    def url(self, port: int) -> str:
        return f"redis://{LOOPBACK}:{port}/0"

    def prepare_octop(self) -> None:
        raise NotImplementedError

    def restart(self, number: signal.Signals, seconds: float) -> str:
        pid = self.process.pid
        self.process.send_signal(signal.SIGTERM if number == signal.SIGINT else signal.SIGKILL)
        self.process.wait(STOP_SECONDS_MAX)
        time.sleep(seconds)
        self.process = self._start()
        return str(pid)

    def terminate(self, pick: float) -> str:
        clients = re.findall(rb"^id=(\d+) .* cmd=(\S+)", self._asked("CLIENT LIST"), re.MULTILINE)
        victims = _one_or_all([number.decode() for number, command in clients if command != b"client|list"], pick)
        for each in victims:
            self._asked(f"CLIENT KILL ID {each}")
        return ", ".join(victims) or NOBODY

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def _one_or_all(sessions: list[Any], pick: float) -> list[Any]:
    return sessions if pick > ALL_FROM else [each for each in [picked(sessions, pick / ALL_FROM)] if each is not None]


def _redis(*arguments: str) -> str:
    if shutil.which("redis-server") is None:
        raise FileNotFoundError("there is no redis-server on this machine (Debian: redis-server)")
    return subprocess.run(["redis-server", *arguments], capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def broker(kind: str, version: int, folder: Path) -> Iterator[Broker]:
    """Run one for the length of a `with`."""
    if kind == "postgres":
        with servers.own_server(version, DATABASE_SETTINGS) as server:
            yield Postgres(server)
        return
    redis = Redis(folder)
    try:
        yield redis
    finally:
        redis.stop()
