"""Celery with Redis: prefork with its default number of children, one per core; JSON; no results kept, as nobody asks for them.

https://docs.celeryq.dev/en/stable/userguide/optimizing.html: for many short tasks a large prefetch multiplier (64 or 128; tried: 4 and 128,
which differ by less than the noise). It has no bulk call: tasks are sent one after the other on one connection of its producer pool.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import contest
import redis
from celery import Celery

URL = os.environ.get("BENCH_REDIS", "")
app = Celery("with_celery", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_default_queue="bench",
    worker_prefetch_multiplier=int(os.environ.get("BENCH_PREFETCH", "128")),
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)
stamp = contest.Stamp(Path(os.environ.get("BENCH_STAMPS", ".")), last=True)


@app.task(name="no_op", ignore_result=True)
def no_op(n: int, text: str = "") -> None:
    stamp.ran()


class CeleryOnRedis(contest.Contender):
    async def open(self) -> None:
        self.redis = redis.Redis.from_url(self.options["redis"])
        app.conf.broker_url = self.options["redis"]

    async def setup(self) -> None:
        await self.open()
        self.redis.flushall()

    async def enqueue_many(self, payloads: list[dict[str, Any]]) -> None:
        with app.producer_pool.acquire(block=True) as producer:
            for each in payloads:
                no_op.apply_async(kwargs=each, producer=producer)

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        no_op.apply_async(kwargs=payload)

    async def phase_drain(self) -> dict[str, Any]:
        await self.open()
        return await self.drained_by(*self.worker())

    async def phase_latency(self) -> dict[str, Any]:
        await self.open()
        return await self.latency_of(*self.worker())

    def worker(self) -> tuple[list[str], dict[str, str], Path]:
        """Return the command of a worker, its environment, and the folder of its stamps."""
        folder = Path(tempfile.mkdtemp(prefix="octop-bench-"))
        environment = {**os.environ, "BENCH_REDIS": self.options["redis"], "BENCH_STAMPS": str(folder)}
        environment["PYTHONPATH"] = str(Path(__file__).parent)
        command = [sys.executable, "-m", "celery", "-A", "with_celery", "worker", "--queues=bench", "--loglevel=ERROR"]
        environment["BENCH_PREFETCH"] = str(self.options.get("prefetch", 128))
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat", "--pidfile="]
        return command, environment, folder

    async def left(self) -> bool:
        return bool(self.redis.llen("bench") or self.redis.hlen("unacked"))


if __name__ == "__main__":
    contest.run(CeleryOnRedis, asyncio.run)
