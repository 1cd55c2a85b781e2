"""PgBouncer in transaction mode, between the proxies and the database."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from octop.engine.private_user import make_temporary_directory, server_user

START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 10.0
PORT = 6432
LOGIN_RETRY_SECONDS = 1
"""By default it lets nobody in for 15 s after the database was away for a moment."""
POOL_SIZE = 12
"""Fewer than there are clients: they share."""
PREPARES_SINCE = (1, 21)
"""The first version that knows prepared statements by name in transaction mode (`max_prepared_statements`)."""


def program() -> str | None:
    """Find it; None = there is none on this machine."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


def version(pgbouncer: str) -> tuple[int, int]:
    """Ask the program for its version."""
    answer = subprocess.run([pgbouncer, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"PgBouncer (\d+)\.(\d+)", answer.stdout)
    assert found is not None, answer.stdout
    return int(found[1]), int(found[2])


class Pooler:
    """One pgbouncer; `with` starts and ends it."""

    def __init__(
        self,
        server_socket: Path,
        user: str,
        *,
        database: str = "octop",
        pool_size: int = POOL_SIZE,
        prepared_max: int | None = None,
    ) -> None:
        """Be ready to start.

        Args:
            server_socket: The socket of the server.
            user: As whom all clients log in there.
            database: Its name, here and there.
            pool_size: So many connections to the server at most.
            prepared_max: max_prepared_statements; None, and where it is not known: not set.

        Raises:
            RuntimeError: There is no pgbouncer on this machine.
        """
        found = program()
        if found is None:
            raise RuntimeError("there is no pgbouncer on this machine (Debian: pgbouncer)")
        self._program = found
        self._database = database
        self._pool_size = pool_size
        self._prepared_max = prepared_max if version(found) >= PREPARES_SINCE else None
        self._user = server_user()
        self._server = server_socket
        self._login = user
        self.folder = make_temporary_directory("octop-pooler-", self._user)
        self.socket = self.folder / f".s.PGSQL.{PORT}"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Pooler:
        settings = f"""
            [databases]
            {self._database} = host={self._server.parent} port={self._server.suffix[1:]} user={self._login}
            [pgbouncer]
            listen_addr =
            listen_port = {PORT}
            unix_socket_dir = {self.folder}
            auth_type = any
            pool_mode = transaction
            default_pool_size = {self._pool_size}
            max_client_conn = 300
            server_login_retry = {LOGIN_RETRY_SECONDS}
            ignore_startup_parameters = extra_float_digits, options
            logfile = {self.folder / "pgbouncer.log"}
        """
        if self._prepared_max is not None:
            settings += f"max_prepared_statements = {self._prepared_max}\n"
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
