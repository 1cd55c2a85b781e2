"""pgqueuer: asyncpg (its default driver) and uvloop, as its command line uses them.

https://pgqueuer.readthedocs.io/en/latest/guides/performance-tuning/ says: run `pgq autovac`; raise `batch_size` for short jobs; a single
connection for the worker. Tried: batches of 50, 100, 250, 500 and 1,000; from 250 on they differ by less than the noise. Durability stays
`durable`, as all contenders keep their tasks over a crash.
"""

import json
from datetime import timedelta
from typing import Any

import asyncpg
import contest
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries


class Pgqueuer(contest.Contender):
    async def setup(self) -> None:
        connection = await asyncpg.connect(self.dsn)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.execute("create table if not exists caller(n bigint)")
        await connection.close()

    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(self.dsn, min_size=5, max_size=20)
        self.queries = Queries(AsyncpgPoolDriver(self.pool))

    async def enqueue_many(self, payloads: list[dict[str, Any]]) -> None:
        count = len(payloads)
        bodies: list[bytes | None] = [json.dumps(each).encode() for each in payloads]
        await self.queries.enqueue(["no_op"] * count, bodies, [0] * count)

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.queries.enqueue("no_op", json.dumps(payload).encode())

    async def enqueue_in_transaction(self, payload: dict[str, Any]) -> None:
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute("insert into caller values ($1)", payload["n"])
            await Queries(AsyncpgDriver(connection)).enqueue("no_op", json.dumps(payload).encode())

    async def work(self) -> None:
        pgq = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.dsn)))

        @pgq.entrypoint("no_op")
        async def no_op(job: Job) -> None:
            self.ran()

        await pgq.run(batch_size=self.options.get("batch", 500), dequeue_timeout=timedelta(seconds=10))

    async def left(self) -> bool:
        return bool(await self.pool.fetchval("select exists (select from pgqueuer)"))


if __name__ == "__main__":
    contest.run(Pgqueuer, uvloop.run)
