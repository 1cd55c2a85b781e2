"""Dramatiq with Redis: its command line's defaults, one process per core with eight threads each, and its default middleware.

https://dramatiq.io/reference.html#redis-broker and https://dramatiq.io/advanced.html: the number of messages that a process fetches ahead
is the variable `dramatiq_queue_prefetch`; tried: 16 (its default), 100, 1,000, the last was the
fastest. It has no bulk call.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import contest
import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

URL = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:1")
dramatiq.set_broker(RedisBroker(url=URL))
stamp = contest.Stamp(Path(os.environ.get("BENCH_STAMPS", ".")), last=True)
LEFT = "dramatiq:bench.msgs"
"""Its hash of messages: one is taken out when it is acknowledged."""


@dramatiq.actor(queue_name="bench")
def no_op(n: int, text: str = "") -> None:
    stamp.ran()


class DramatiqOnRedis(contest.Contender):
    async def open(self) -> None:
        self.redis = redis.Redis.from_url(self.options["redis"])

    async def setup(self) -> None:
        await self.open()
        self.redis.flushall()

    async def enqueue_many(self, payloads: list[dict[str, Any]]) -> None:
        for each in payloads:
            no_op.send(**each)

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        no_op.send(**payload)

    async def phase_drain(self) -> dict[str, Any]:
        await self.open()
        return await self.drained_by(*self.worker())

    async def phase_latency(self) -> dict[str, Any]:
        await self.open()
        return await self.latency_of(*self.worker())

    def worker(self) -> tuple[list[str], dict[str, str], Path]:
        """Return the command of a worker, its environment, and the folder of its stamps."""
        folder = Path(tempfile.mkdtemp(prefix="octop-bench-"))
        environment = {**os.environ, "BENCH_STAMPS": str(folder), "PYTHONPATH": str(Path(__file__).parent)}
        environment["dramatiq_queue_prefetch"] = str(self.options.get("prefetch", 1_000))
        command = [sys.executable, "-m", "dramatiq", "with_dramatiq", "--queues", "bench", "--skip-logging"]
        return command, environment, folder

    async def left(self) -> bool:
        return bool(self.redis.hlen(LEFT))


if __name__ == "__main__":
    contest.run(DramatiqOnRedis, asyncio.run)
