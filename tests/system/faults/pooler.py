"""PgBouncer in transaction mode, between the proxies and the database."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

from octop.engine.private_user import make_temporary_directory, server_user

START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 10.0
PORT = 6432
POOL_SIZE = 12
"""Fewer than there are clients: they share."""


class Pooler:
    """One pgbouncer; `with` starts and ends it."""

    def __init__(self, server_socket: Path, user: str) -> None:
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if program is None:
            raise RuntimeError("there is no pgbouncer on this machine (Debian: pgbouncer)")
        self._program = program
        self._user = server_user()
        self._server = server_socket
        self._login = user
        self.folder = make_temporary_directory("octop-pooler-", self._user)
        self.socket = self.folder / f".s.PGSQL.{PORT}"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Pooler:
        settings = f"""
            [databases]
            octop = host={self._server.parent} port={self._server.suffix[1:]} dbname=octop user={self._login}
            [pgbouncer]
            listen_addr =
            listen_port = {PORT}
            unix_socket_dir = {self.folder}
            auth_type = any
            pool_mode = transaction
            default_pool_size = {POOL_SIZE}
            max_client_conn = 300
            ignore_startup_parameters = extra_float_digits, options
            logfile = {self.folder / "pgbouncer.log"}
        """
        (self.folder / "pgbouncer.ini").write_text("\n".join(line.strip() for line in settings.splitlines()))
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop(signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.socket.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [self._program, "--quiet", str(self.folder / "pgbouncer.ini")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=None if self._user is None else self._user.uid,
            group=None if self._user is None else self._user.gid,
            extra_groups=None if self._user is None else [],
            cwd="/",
            start_new_session=True,
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("pgbouncer does not start")
            time.sleep(0.02)

    def stop(self, number: signal.Signals) -> None:
        """End it: SIGTERM at once, SIGINT after the transactions under way, SIGKILL as a crash does."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
