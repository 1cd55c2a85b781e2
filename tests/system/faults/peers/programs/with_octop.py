"""Octop by its defaults: `octop worker`, one process each; the task joins the caller's transaction by `connection=`.

By default a worker that was silent for 30 seconds loses its tasks, and each worker looks every 5 seconds
(docs/explanation/guarantees.md). Only `max_retries` is raised, as everybody's here: the harness kills a worker more often than a
task's default of 3 retries allows for, and nobody's tasks are to be given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg

from octop import Octop
from tests.system.faults.peers.programs.book import recorded
from tests.system.faults.peers.programs.on_psycopg import TABLE, OnPsycopg
from tests.system.faults.peers.programs.program import PATIENT, Task, run

octop = Octop()


@octop.task(name="work", queue="work", max_retries=PATIENT)
async def work(key: str, seconds: float) -> None:
    with recorded(key):
        await asyncio.sleep(seconds)


class OctopItself(OnPsycopg):
    WAITING = "select payload ->> 'key' from octop_tasks where status in ('pending', 'failed', 'blocked')"
    RUNNING = "select payload ->> 'key' from octop_tasks where status = 'running'"
    FAILED = "select payload ->> 'key' from octop_tasks where status in ('frozen', 'cancelled')"

    async def setup(self) -> None:
        """The schema is installed already, by the owner: a worker and a producer need no more than their roles."""
        async with await psycopg.AsyncConnection.connect(self.broker, autocommit=True) as connection:
            await connection.execute(TABLE)

    async def enqueue_on(self, connection: psycopg.AsyncConnection[Any], tasks: Sequence[Task]) -> None:
        calls = [work.call(key=each.key, seconds=each.seconds) for each in tasks]
        await octop.enqueue_many(calls, connection=connection)


if __name__ == "__main__":
    run(OctopItself)
