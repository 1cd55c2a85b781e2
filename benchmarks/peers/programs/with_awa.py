"""awa-pg: Python over a Rust core.

https://github.com/hardbyte/awa/blob/main/docs/configuration.md and the page of the package: `enqueue_many_copy` for much at once,
`(queue, workers)` for how many jobs run at once. Tried: 50, 200, 500.
"""

import json
import logging
from dataclasses import dataclass
from typing import Any

import awa
import contest
import psycopg


@dataclass
class NoOp:
    n: int
    text: str = ""


class Awa(contest.Contender):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        logging.disable(logging.CRITICAL)

    async def setup(self) -> None:
        await awa.AsyncClient(self.dsn).migrate()
        # In an empty database the first worker chooses the newer storage engine, and only then is there a bulk enqueue.
        await self.open()
        await self.start()
        while json.loads(await self.client.storage_status())["state"] != "active":
            await contest.asyncio.sleep(0.05)
        await self.client.shutdown()
        with psycopg.connect(self.dsn) as connection:
            connection.execute("create table if not exists caller(n bigint)")

    async def open(self) -> None:
        self.client = awa.AsyncClient(self.dsn, max_connections=20)
        self.connection = await psycopg.AsyncConnection.connect(self.dsn, autocommit=True)

    async def enqueue_many(self, payloads: list[dict[str, Any]]) -> None:
        await self.client.enqueue_many_copy([NoOp(**each) for each in payloads], queue="bench")

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.client.insert(NoOp(**payload), queue="bench")

    async def enqueue_in_transaction(self, payload: dict[str, Any]) -> None:
        async with await self.client.transaction() as transaction:
            await transaction.execute("insert into caller values ($1)", payload["n"])
            await transaction.insert(NoOp(**payload), queue="bench")

    async def work(self) -> None:
        await self.start()
        await contest.asyncio.Event().wait()

    async def start(self) -> None:
        @self.client.task(NoOp, queue="bench")
        async def no_op(_job: Any) -> None:
            self.ran()

        await self.client.start([("bench", self.options.get("concurrency", 500))])

    async def left(self) -> bool:
        # Not `queue_stats`, whose counts lag seconds behind, nor its view of finished jobs, which takes seconds to count.
        cursor = await self.connection.execute(
            "select (select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches)"
            " + (select count(*) from awa.done_entries)"
        )
        row = await cursor.fetchone()
        return row is None or row[0] < self.expected


if __name__ == "__main__":
    contest.run(Awa)
