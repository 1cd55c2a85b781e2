"""saq on PostgreSQL. It has no bulk enqueue: single calls are awaited concurrently.

https://saq-py.readthedocs.io/en/latest/ and the class's own documentation: a pool of 20 connections; `concurrency` is how many jobs
run at once. Its `dequeue` takes `concurrency` jobs per statement at most. Tried: 5, 10, 20, 50; they differ by less than the noise.
"""

import logging
from typing import Any

import contest
import psycopg
from saq import Worker
from saq.queue.postgres import PostgresQueue


class Saq(contest.Contender):
    bulk = False

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        logging.disable(logging.CRITICAL)
        self.queue: Any = None

    async def setup(self) -> None:
        await self.open()

    async def open(self) -> None:
        if self.queue is not None:  # a second one in the same process hangs, once in four runs
            return
        self.queue = PostgresQueue.from_url(self.dsn, name="bench", min_size=4, max_size=20)
        await self.queue.connect()
        self.connection = await psycopg.AsyncConnection.connect(self.dsn, autocommit=True)

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.queue.enqueue("no_op", **payload)

    async def work(self) -> None:
        async def no_op(_context: dict[str, Any], *, n: int, text: str = "") -> None:
            self.ran()

        await Worker(self.queue, functions=[("no_op", no_op)], concurrency=self.options.get("concurrency", 20)).start()

    async def left(self) -> bool:
        cursor = await self.connection.execute(
            "select exists (select from saq_jobs where status in ('new', 'queued', 'active'))"
        )
        row = await cursor.fetchone()
        return bool(row and row[0])


if __name__ == "__main__":
    contest.run(Saq)
