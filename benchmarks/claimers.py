"""Processes that claim and complete without a pause, each on a connection of its own, and how long each exchange took them."""

import multiprocessing
import os
import queue
import time
from typing import Any, Final, LiteralString

import psycopg

from benchmarks.contender import Arena
from benchmarks.peers.peer import OCTOP
from octop.engine import calls
from octop.engine.call import run
from octop.model.ids import new_id
from octop.model.task import Fence, Success
from octop.model.work import TaskTypePolicy

BATCH: Final = 10
WARM: Final = 5
"""Exchanges of each that are not counted: a session plans its statements in the first ones."""
FILL: Final[LiteralString] = (
    "insert into octop_tasks (task_type, queue, payload) "
    """select 'no_op', 'bench', '{"n": 0}' from generate_series(1, %s)"""
)


def milliseconds(arena: Arena, claimers: int, seconds: float) -> list[float]:
    """Return how long each exchange took that completes 10 tasks and claims 10, of all claimers together.

    Args:
        arena: Where.
        claimers: How many at once: processes, as workers are. Threads would wait for each other's interpreter lock.
        seconds: How long.
    """
    context = multiprocessing.get_context("spawn")
    with arena.fresh(OCTOP) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(FILL, (int(15_000 * seconds),))
        ready, found = context.Barrier(claimers), context.Queue()
        processes = [
            context.Process(target=_claim, args=(dsn, seconds, ready, found), daemon=True) for _ in range(claimers)
        ]
        for process in processes:
            process.start()
        try:
            own = [found.get(timeout=seconds + 120) for _ in processes]
        except queue.Empty as error:
            message = "a claimer did not answer"
            raise RuntimeError(message) from error
        for process in processes:
            process.join()
    return [value for values in own for value in values]


def _claim(dsn: str, seconds: float, ready: Any, found: Any) -> None:
    policy = TaskTypePolicy(name="no_op", queue="bench", run_in="loop")
    own: list[float] = []
    done: list[Success] = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        worker = new_id()
        run(
            connection,
            calls.octop_register(
                worker,
                name="bench",
                host="bench",
                pid=os.getpid(),
                supervisor_id=None,
                version="0",
                queues=["bench"],
                task_types=[policy],
            ),
        )
        ready.wait(60)
        until = time.monotonic() + seconds
        while (began := time.monotonic()) < until:
            call = calls.octop_exchange(worker, wanted={"bench": BATCH}, task_types=["no_op"], successes=done)
            answer = run(connection, call)
            own.append(1000 * (time.monotonic() - began))
            done = [Success(Fence(task.id, task.attempt, task.claim_id)) for task in answer.tasks]
    found.put(own[WARM:])
