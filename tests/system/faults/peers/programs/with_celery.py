"""Celery on Redis: prefork, JSON, acknowledged late.

`task_acks_late` with `task_reject_on_worker_lost`: without them a task is acknowledged before it runs, and a worker that dies takes it along
(https://docs.celeryq.dev/en/stable/userguide/configuration.html#task-reject-on-worker-lost). `worker_prefetch_multiplier=1` goes with it
(…/userguide/optimizing.html). `visibility_timeout` in all three places that …/getting-started/backends-and-brokers/redis.html names:
30 seconds, not the hour that is the default; it counts from the delivery, there is no heartbeat. `unacked_restore_interval` and `…_throttle`, so that a
sweep comes every SWEEP_SECONDS and not every 100. `unacked_mutex_expire`, so that a worker that dies while it sweeps hinders the others for 30 seconds
and not for 300 (both are kombu's, and in its page on Redis). `worker_cancel_long_running_tasks_on_connection_loss` is the default from Celery 6 on: what can
not be acknowledged any more ends, and does not run beside its successor. `task_publish_retry_policy` without a limit: by default sending is given up
after three retries, within a second.

Redis can not join the caller's transaction. So the producer commits, then sends (`delay_on_commit`). The caller's database is a SQLite
file here. If the sending fails in spite of the retries, the caller is told, after the commit: noted as `unsent`.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis  # type: ignore[import-not-found]
from celery import Celery  # type: ignore[import-not-found]  # lives in an environment of its own

from tests.system.faults.peers.programs.book import note, recorded
from tests.system.faults.peers.programs.program import BROKER, Program, Task, run
from tests.system.faults.peers.timing import LEASE_SECONDS, SWEEP_SECONDS

VISIBILITY = {"visibility_timeout": LEASE_SECONDS}

app = Celery("with_celery", broker=os.environ.get(BROKER, ""))
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options=VISIBILITY
    | {
        "unacked_restore_interval": SWEEP_SECONDS,
        "unacked_restore_throttle": 1,
        "unacked_mutex_expire": LEASE_SECONDS,
    },
    result_backend_transport_options=VISIBILITY,
    visibility_timeout=LEASE_SECONDS,
    task_ignore_result=True,
    task_publish_retry_policy={"max_retries": None, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.2},
    task_default_queue="work",
)


@app.task(name="work")
def work(key: str, seconds: float) -> None:
    with recorded(key):
        time.sleep(seconds)


class CeleryOnRedis(Program):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.connection = sqlite3.connect(Path(options["folder"], "caller.sqlite"), isolation_level=None, timeout=30)
        self.tasks: Sequence[Task] = ()

    async def setup(self) -> None:
        self.connection.execute("create table caller (key text primary key)")

    async def begin(self) -> None:
        self.connection.execute("begin immediate")

    async def enqueue(self, tasks: Sequence[Task]) -> None:
        self.connection.executemany("insert into caller values (?)", [(each.key,) for each in tasks])
        self.tasks = tasks

    async def commit(self) -> None:
        self.connection.execute("commit")
        for each in self.tasks:
            try:
                work.apply_async(kwargs=each._asdict())
            except Exception as error:
                note("unsent", key=each.key, error=f"{type(error).__name__}: {error}"[:200])

    async def roll_back(self) -> None:
        self.connection.execute("rollback")

    async def drop(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("rollback")

    async def states(self) -> dict[str, list[str]]:
        client = redis.Redis.from_url(self.broker)
        waiting = [json.loads(each) for name in client.scan_iter("work*") for each in client.lrange(name, 0, -1)]
        running = [json.loads(each)[0] for each in client.hvals("unacked")]
        return {
            "committed": [row[0] for row in self.connection.execute("select key from caller")],
            "waiting": [key_of(each) for each in waiting],
            "running": [key_of(each) for each in running],
            "failed": [],
        }


def key_of(message: dict[str, Any]) -> str:
    """Read the task's key out of a message of kombu."""
    _, kwargs, _ = json.loads(base64.b64decode(message["body"]))
    return str(kwargs["key"])


if __name__ == "__main__":
    run(CeleryOnRedis)
