"""procrastinate, on psycopg: `procrastinate worker`. The task joins the caller's transaction by `configure(connection=…)`.

Nobody retries the jobs of a dead worker by default: "if no specific action is taken, these stalled jobs will remain in the queue forever"
(https://procrastinate.readthedocs.io/en/stable/howto/production/retry_stalled_jobs.html). The periodic task below is the one of that page. There
it looks every ten minutes; here every SWEEP_SECONDS, so that it is measured and not waited for. Heartbeats every 10 seconds, and 30 seconds without
one before a job is stalled, are its defaults. `retry` with `max_attempts`: a job that raises is run again, as its page on retries
has it; a job that is cut off by a worker's end would be failed for good without.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import procrastinate  # type: ignore[import-not-found]  # lives in an environment of its own
import psycopg

from tests.system.faults.peers.programs.book import recorded
from tests.system.faults.peers.programs.on_psycopg import TABLE, OnPsycopg
from tests.system.faults.peers.programs.program import BROKER, PATIENT, PLACES, Task, run
from tests.system.faults.peers.timing import LEASE_SECONDS, SWEEP_SECONDS

connector = procrastinate.PsycopgConnector(conninfo=os.environ.get(BROKER, ""), min_size=1, max_size=PLACES + 4)
app = procrastinate.App(
    connector=connector,
    worker_defaults={
        "concurrency": PLACES,
        "update_heartbeat_interval": LEASE_SECONDS / 3,
        "stalled_worker_timeout": LEASE_SECONDS,
    },
)


@app.task(name="work", retry=procrastinate.RetryStrategy(max_attempts=PATIENT))
async def work(key: str, seconds: float) -> None:
    with recorded(key):
        await asyncio.sleep(seconds)


@app.periodic(cron=f"* * * * * */{SWEEP_SECONDS}")
@app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
async def retry_stalled_jobs(context: Any, timestamp: int) -> None:
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=LEASE_SECONDS):
        await app.job_manager.retry_job(job)


class Procrastinate(OnPsycopg):
    WAITING = "select args ->> 'key' from procrastinate_jobs where task_name = 'work' and status = 'todo'"
    RUNNING = "select args ->> 'key' from procrastinate_jobs where task_name = 'work' and status = 'doing'"
    FAILED = "select args ->> 'key' from procrastinate_jobs where task_name = 'work' and status in ('failed', 'aborted', 'cancelled')"

    async def setup(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
        async with await psycopg.AsyncConnection.connect(self.broker, autocommit=True) as connection:
            await connection.execute(TABLE)

    async def enqueue_on(self, connection: psycopg.AsyncConnection[Any], tasks: Sequence[Task]) -> None:
        await work.configure(connection=connection).batch_defer_async(*(each._asdict() for each in tasks))


if __name__ == "__main__":
    run(Procrastinate)
