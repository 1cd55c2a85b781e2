"""procrastinate: psycopg, its recommended asynchronous connector.

https://procrastinate.readthedocs.io/en/stable/howto/production/concurrency.html: asynchronous tasks run concurrently in one worker
(`concurrency`). Its connector's pool is sized to match. Tried: 5, 20, 50; they differ
by less than the noise. Finished jobs are kept, its default.
"""

import logging
from typing import Any

import contest
import procrastinate
import psycopg


class Procrastinate(contest.Contender):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.concurrency = options.get("concurrency", 20)
        logging.disable(logging.CRITICAL)
        connector = procrastinate.PsycopgConnector(conninfo=self.dsn, min_size=4, max_size=self.concurrency + 4)
        self.app = procrastinate.App(connector=connector)

        @self.app.task(name="no_op", queue="bench")
        async def no_op(n: int, text: str = "") -> None:
            self.ran()

        self.no_op = no_op

    async def setup(self) -> None:
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self.app.open_async().__aenter__()
        self.connection = await psycopg.AsyncConnection.connect(self.dsn, autocommit=True)

    async def enqueue_many(self, payloads: list[dict[str, Any]]) -> None:
        await self.no_op.batch_defer_async(*payloads)

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.no_op.defer_async(**payload)

    async def work(self) -> None:
        await self.app.run_worker_async(
            queues=["bench"], concurrency=self.concurrency, install_signal_handlers=False, shutdown_graceful_timeout=1
        )

    async def left(self) -> bool:
        cursor = await self.connection.execute(
            "select exists (select from procrastinate_jobs where status in ('todo', 'doing'))"
        )
        row = await cursor.fetchone()
        return bool(row and row[0])


if __name__ == "__main__":
    contest.run(Procrastinate)
