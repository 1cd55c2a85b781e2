"""pgqueuer, on asyncpg: `pgqueuer.run`, which does what `pgq run` does, with `shutdown_on_listener_failure`, under a supervisor that restarts it.

That is how https://pgqueuer.readthedocs.io/en/latest/guides/deployment/ has it. (The command `pgq run` of 1.6.0 ends at once with the Typer that is
installed with it: its log level is a string where it expects a member of an enumeration.) A job whose heartbeat is older than `heartbeat_timeout` is
picked again by whoever looks; 30 seconds is the default. `dequeue_timeout` is how long an idle worker waits before it looks (default 30,
here SWEEP_SECONDS). `DatabaseRetryEntrypointExecutor`, from its page on reliability: a job that raises is put back, and not logged as
an exception for good.

The task joins the caller's transaction: the driver is made of the caller's connection. A job leaves the table when it ends; what became of
it stands in a log by its number, so the caller's table keeps the number.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import pgqueuer  # type: ignore[import-not-found]
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]
from pgqueuer.executors import DatabaseRetryEntrypointExecutor  # type: ignore[import-not-found]
from pgqueuer.models import Job  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]

from tests.system.faults.peers.programs.book import recorded
from tests.system.faults.peers.programs.program import BROKER, CONNECT_SECONDS, PATIENT, PLACES, Program, Task, run
from tests.system.faults.peers.timing import LEASE_SECONDS, SWEEP_SECONDS

WAITING = "select convert_from(payload, 'utf8')::json ->> 'key' from pgqueuer where status not in ('picked', 'failed')"
RUNNING = "select convert_from(payload, 'utf8')::json ->> 'key' from pgqueuer where status = 'picked'"
FAILED = """
select c.key from caller c where exists (
  select from pgqueuer_log l where l.job_id = c.job and l.status in ('exception', 'canceled', 'deleted', 'failed'))
"""


def retried(parameters: Any) -> Any:
    return DatabaseRetryEntrypointExecutor(
        parameters=parameters,
        max_attempts=PATIENT,
        initial_delay=timedelta(seconds=0.05),
        max_delay=timedelta(seconds=1),
    )


@contextlib.asynccontextmanager
async def worker() -> AsyncIterator[Any]:
    """Make a worker."""
    connection = await asyncpg.connect(os.environ[BROKER])
    pgq = PgQueuer(AsyncpgDriver(connection))

    @pgq.entrypoint("work", executor_factory=retried)
    async def work(job: Job) -> None:
        task = json.loads(job.payload)
        with recorded(task["key"]):
            await asyncio.sleep(task["seconds"])

    yield pgq


class Pgqueuer(Program):
    async def work(self) -> None:
        """Be a worker until SIGTERM."""
        await pgqueuer.run(
            worker,
            batch_size=PLACES // 2,  # it asks for places that are twice a batch
            max_concurrent_tasks=PLACES,
            heartbeat_timeout=timedelta(seconds=LEASE_SECONDS),
            dequeue_timeout=timedelta(seconds=SWEEP_SECONDS),
            shutdown_on_listener_failure=True,
        )

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.connection: Any = None
        self.transaction: Any = None

    async def setup(self) -> None:
        connection = await asyncpg.connect(self.broker)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.execute("create table caller (key text primary key, job bigint)")
        await connection.close()

    async def begin(self) -> None:
        if self.connection is None:
            self.connection = await asyncpg.connect(self.broker, timeout=CONNECT_SECONDS)
        self.transaction = self.connection.transaction()
        await self.transaction.start()

    async def enqueue(self, tasks: Sequence[Task]) -> None:
        bodies: list[bytes | None] = [json.dumps(each._asdict()).encode() for each in tasks]
        count = len(tasks)
        jobs = await Queries(AsyncpgDriver(self.connection)).enqueue(["work"] * count, bodies, [0] * count)
        keys = [each.key for each in tasks]
        await self.connection.execute("insert into caller select * from unnest($1::text[], $2::bigint[])", keys, jobs)

    async def commit(self) -> None:
        await self.transaction.commit()

    async def roll_back(self) -> None:
        await self.transaction.rollback()

    async def drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.terminate()

    async def states(self) -> dict[str, list[str]]:
        connection = await asyncpg.connect(self.broker)
        statements = {"committed": "select key from caller", "waiting": WAITING, "running": RUNNING, "failed": FAILED}
        return {name: [row[0] for row in await connection.fetch(text)] for name, text in statements.items()}


if __name__ == "__main__":
    run(Pgqueuer)
