"""oban (oban-py): one queue; uvloop, as its command line uses it. Pruning keeps finished jobs for a day, its default.

https://oban.pro/docs/py/defining_queues.html: a queue's limit is how many jobs run at once; asynchronous jobs that wait for nothing bear
a high one. Tried: 20, 50, 100, 200, 500; from 50 on they differ by less than the noise.
"""

import logging
from typing import Any

import contest
import uvloop
from oban import Oban, job
from oban.schema import install
from psycopg_pool import AsyncConnectionPool


class ObanPy(contest.Contender):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        logging.disable(logging.CRITICAL)

        @job(queue="bench")
        async def no_op(n: int, text: str = "") -> None:
            self.ran()

        self.no_op = no_op

    async def open(self) -> None:
        self.pool = AsyncConnectionPool(self.dsn, min_size=4, max_size=20, open=False)
        await self.pool.open(wait=True)
        self.oban = Oban(pool=self.pool)

    async def setup(self) -> None:
        await self.open()
        await install(self.pool)
        async with self.pool.connection() as connection:
            await connection.execute("create table if not exists caller(n bigint)")

    async def enqueue_many(self, payloads: list[dict[str, Any]]) -> None:
        await self.oban.enqueue_many(self.no_op.new(**each) for each in payloads)

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.oban.enqueue(self.no_op.new(**payload))

    async def enqueue_in_transaction(self, payload: dict[str, Any]) -> None:
        async with self.pool.connection() as connection:
            await connection.execute("insert into caller values (%s)", (payload["n"],))
            await self.oban.enqueue(self.no_op.new(**payload), conn=connection)

    async def work(self) -> None:
        self.oban = Oban(pool=self.pool, queues={"bench": self.options.get("concurrency", 200)})
        await self.oban.start()
        await contest.asyncio.Event().wait()

    async def left(self) -> bool:
        async with self.pool.connection() as connection:
            cursor = await connection.execute(
                "select exists (select from oban_jobs where state in ('available', 'executing', 'scheduled', 'retryable'))"
            )
            row = await cursor.fetchone()
        return bool(row and row[0])


if __name__ == "__main__":
    contest.run(ObanPy, uvloop.run)
