"""Octop: `octop worker` in a process of its own, as in production; all features on, history kept.

`-q bench=500`: 500 tasks at once, as in `octop bench`. Nothing is switched off: history, fence, time limits, retries, heartbeat.
"""

import asyncio
import os
from typing import Any

import contest
import psycopg

from benchmarks.octop_worker import BATCH, octop_worker
from octop import Octop
from octop.engine.install import install


class OctopItself(contest.Contender):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.octop = Octop(self.dsn)

        @self.octop.task(queue="bench", name="no_op")
        async def no_op(n: int, text: str = "") -> None:
            self.ran()

        self.no_op = no_op

    async def setup(self) -> None:
        install(self.dsn)
        with psycopg.connect(self.dsn) as connection:
            connection.execute("create table if not exists caller(n bigint)")

    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.dsn, autocommit=True)

    async def enqueue_many(self, payloads: list[dict[str, Any]]) -> None:
        await self.octop.enqueue_many(self.no_op.call(**each) for each in payloads)

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.no_op.enqueue(**payload)

    async def enqueue_in_transaction(self, payload: dict[str, Any]) -> None:
        async with self.connection.transaction():
            await self.connection.execute("insert into caller values (%s)", (payload["n"],))
            await self.no_op.using(connection=self.connection).enqueue(**payload)

    async def phase_enqueue(self) -> dict[str, Any]:
        """One call for all: it streams any iterator, and all or nothing is enqueued."""
        payloads = self.payloads(self.tasks)
        await self.open()
        began = contest.time.monotonic()
        await self.enqueue_many(payloads)
        return {"enqueue_seconds": contest.time.monotonic() - began}

    async def phase_drain(self) -> dict[str, Any]:
        await self.open()
        with octop_worker(self.dsn, processes=self.options.get("processes", 1)) as worker:
            await asyncio.to_thread(worker.wait_for, self.tasks)
            return await contest.drained(worker.folder, self.tasks, self.left) | {
                "worker_megabytes": max(worker.megabytes())
            }

    async def work(self) -> None:
        await self.octop.worker(queues={"bench": BATCH})

    async def left(self) -> bool:
        cursor = await self.connection.execute("select exists (select from octop_tasks_live)")
        row = await cursor.fetchone()
        return bool(row and row[0])


if __name__ == "__main__":
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    contest.run(OctopItself)
