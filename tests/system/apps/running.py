"""Start worker processes and watch what they do."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.servers import HOUSE, Database

START = """
import json, os, sys
from octop.worker import WorkerOptions, charge, health, run

charge.SILENT_SECONDS_MIN = float(os.environ["SILENT_SECONDS"])
health.UNABLE_SECONDS_MIN = float(os.environ["UNABLE_SECONDS"])
sys.exit(run(WorkerOptions(**json.loads(os.environ["OPTIONS"]))))
"""
EVERYDAY = "tests.system.apps.everyday:octop"
SECONDS_MAX = 25.0


class Worker:
    """A supervisor that a test has started, with its worker processes."""

    def __init__(
        self,
        database: Database,
        log: Path,
        *,
        silent_seconds: float = 30.0,
        unable_seconds: float = 2.5,
        before: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.log = log
        self._database = database
        self._is_in_container = bool(before)
        chosen = {"dsn": database.url, "application": EVERYDAY, "queues": {"q": 8}, **options}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-c", START],
                env={
                    **os.environ,
                    "OPTIONS": json.dumps(chosen),
                    "SILENT_SECONDS": str(silent_seconds),
                    "UNABLE_SECONDS": str(unable_seconds),
                },
                stderr=output,
                stdout=output,
                cwd=HOUSE,
            )

    def pids(self) -> list[int]:
        """List the worker processes that have registered; of those in a container the numbers mean nothing here."""
        if self._is_in_container:
            return []
        with self._database.connect() as connection:
            found = connection.execute("select pid from octop_workers where pid is not null order by started_at")
            return [row[0] for row in found if Path(f"/proc/{row[0]}").exists()]

    def ready(self) -> Worker:
        until(lambda: self.pids() or self.process.poll() is not None, "a worker has registered", self.log)
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM, *, seconds: float = SECONDS_MAX) -> int:
        self.process.send_signal(number)
        return self.wait(seconds)

    def wait(self, seconds: float = SECONDS_MAX) -> int:
        return self.process.wait(seconds)

    def text(self) -> str:
        return self.log.read_text()


class Starter:
    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._count = 0

    def __call__(self, **options: Any) -> Worker:
        self._count += 1
        worker = Worker(self.database, self._folder / f"worker-{self._count}.log", **options)
        self._stack.callback(_end, worker)
        return worker

    def close(self) -> None:
        self._stack.close()


def _end(worker: Worker) -> None:
    pids = worker.pids()
    if worker.process.poll() is None:
        worker.process.kill()
        worker.process.wait()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def prepare(database: Database) -> None:
    """Make the ledger, and shorten the lease so that a test need not wait."""
    with database.connect() as connection:
        connection.execute("create table ledger (job text, pid int, at timestamptz not null default clock_timestamp())")
        with connection.transaction():
            for key, value in {
                "worker.heartbeat_seconds": 0.5,
                "worker.lease_seconds": 1.5,
                "worker.rescue_seconds": 0.3,
                "worker.deadline_grace_seconds": 3,
                "task.retry_base_seconds": 0.05,
                "task.retry_cap_seconds": 0.1,
            }.items():
                connection.execute("select octop_config_set(%s, %s::jsonb)", (key, json.dumps(value)))


def enqueue(
    connection: psycopg.Connection[Any], task_type: str, payload: dict[str, Any] | None = None, **more: Any
) -> str:
    names = "".join(f", {name} => %({name})s" for name in more)
    statement = f"select id::text from octop_enqueue(%(task_type)s, %(payload)s::jsonb, queue => 'q'{names})"
    row = connection.execute(
        statement.encode(), {"task_type": task_type, "payload": json.dumps(payload or {}), **more}
    ).fetchone()
    assert row is not None
    return str(row[0])


def one(connection: psycopg.Connection[Any], statement: str, *values: Any) -> Any:
    row = connection.execute(statement.encode(), values).fetchone()
    return None if row is None else row[0]


def status(connection: psycopg.Connection[Any], task_id: str) -> str | None:
    return one(connection, "select status from octop_tasks where id = %s", task_id)


def until(look: Callable[[], Any], what: str, log: Path | None = None, *, seconds: float = SECONDS_MAX) -> Any:
    """Look until it is true; fail with the worker's log when it does not come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.03)
    text = log.read_text()[-4000:] if log is not None and log.exists() else ""
    raise AssertionError(f"waited {seconds} s in vain until {what}\n{text}")


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
