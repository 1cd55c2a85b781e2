"""oban (oban-py): `oban start`, which its guide for production recommends. The task joins the caller's transaction by `conn=`.

Rescue is on by default, and by age alone: "jobs are rescued if their attempted_at timestamp is older than the configured rescue_after
threshold" (https://oban.pro/docs/py/job_maintenance.html; by default 300 seconds, a look every 60). Here 30 and 5. One leader does it; how long the
others wait before they replace a dead leader (30 seconds for its place to expire, up to 30 more until one of them looks) can not be set.
`pool_check`: a connection that was cut is found before it is used. `max_attempts` is raised, as everybody's here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from oban import Oban, job  # type: ignore[import-not-found]  # lives in an environment of its own
from oban.schema import install_sql  # type: ignore[import-not-found]
from psycopg_pool import AsyncConnectionPool

from tests.system.faults.peers.programs.book import recorded
from tests.system.faults.peers.programs.on_psycopg import TABLE, OnPsycopg
from tests.system.faults.peers.programs.program import PATIENT, PLACES, Task, run
from tests.system.faults.peers.timing import LEASE_SECONDS, SWEEP_SECONDS

MODULE = "tests.system.faults.peers.programs.with_oban"
CONFIGURATION = f"""
pool_check = true
[queues]
work = {PLACES}
[lifeline]
interval = {SWEEP_SECONDS}
rescue_after = {LEASE_SECONDS}
"""


@job(queue="work", max_attempts=PATIENT)
async def work(key: str, seconds: float) -> None:
    with recorded(key):
        await asyncio.sleep(seconds)


class ObanPy(OnPsycopg):
    WAITING = "select args ->> 'key' from oban_jobs where state in ('available', 'scheduled', 'retryable', 'suspended')"
    RUNNING = "select args ->> 'key' from oban_jobs where state = 'executing'"
    FAILED = "select args ->> 'key' from oban_jobs where state in ('discarded', 'cancelled')"

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        # Never opened: every enqueue is on the caller's connection.
        self.oban = Oban(pool=AsyncConnectionPool(self.broker, open=False))

    async def setup(self) -> None:
        async with await psycopg.AsyncConnection.connect(self.broker, autocommit=True) as connection:
            await connection.execute(install_sql())
            await connection.execute(TABLE)
        await asyncio.to_thread(Path(self.options["folder"], "oban.toml").write_text, CONFIGURATION)

    async def enqueue_on(self, connection: psycopg.AsyncConnection[Any], tasks: Sequence[Task]) -> None:
        jobs = [work.new(key=each.key, seconds=each.seconds) for each in tasks]
        for each in jobs:
            each.worker = f"{MODULE}.work"  # this module is called __main__ here
        await self.oban.enqueue_many(jobs, conn=connection)


if __name__ == "__main__":
    run(ObanPy)
