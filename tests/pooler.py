"""A real PgBouncer before a database of the tests."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests import servers

START_SECONDS_MAX = 10
STOP_SECONDS_MAX = 10


@contextlib.contextmanager
def pgbouncer(url: str, *, mode: str = "transaction", size: int = 3) -> Iterator[str]:
    """Run PgBouncer before the database of a URL, and give the URL that leads through it.

    Args:
        url: Of the database itself.
        mode: Its `pool_mode`.
        size: How many connections to the server it has.
    """
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("there is no pgbouncer on this machine")
    place = psycopg.conninfo.conninfo_to_dict(url)
    name, login, host, port = (str(place[key]) for key in ("dbname", "user", "host", "port"))
    owner = Path(host).owner()  # root it refuses to be, and the server's socket is its user's alone
    folder = servers.run_directory() / f"pooler-{uuid4().hex[:6]}"
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        door = free.getsockname()[1]
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{name} = host={host} port={port} user={login}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {door}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = {mode}\ndefault_pool_size = {size}\nserver_lifetime = 3600\nlogfile = {folder}/log\n"
    )
    shutil.chown(folder, owner)
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen([program, "-u", owner, str(folder / "pgbouncer.ini")], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not _answers(door):
            assert process.poll() is None, (folder / "output").read_text()
            assert time.monotonic() < deadline, "the pooler does not listen"
            time.sleep(0.01)
        yield f"postgresql://{login}@127.0.0.1:{door}/{name}"
    finally:
        process.terminate()
        process.wait(STOP_SECONDS_MAX)
        shutil.rmtree(folder)


def _answers(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0
