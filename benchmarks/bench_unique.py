"""What does a unique key cost, and what does it cost tasks that have none?

    python -m benchmarks.bench_unique [--full]

Enqueues of 500 tasks a call and claims and successes of 500 an exchange, from one session, in seconds per 1,000 tasks. `no keys` is this
schema; `no keys, no index` the same without the unique index, which is what tasks without a key could pay for; `keys` gives each task a
key of its own; `kept` enqueues keys that are held already, and drains nothing. Rounds are interleaved; a second copy of the base shows
what cannot be told apart on this machine.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

from psycopg import Connection

from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, median
from benchmarks.script import Extent, main
from octop.engine import calls
from octop.engine.call import run
from octop.engine.connect import open_connection
from octop.engine.install import install
from octop.model.ids import new_id
from octop.model.task import Success
from octop.model.work import NewTask, TaskTypePolicy

BASE: Final = "no keys"
CASES: Final = (BASE, "no keys, again", "no keys, no index", "keys", "kept")
AT_ONCE: Final = 500


@contextlib.contextmanager
def _stage(arena: Arena, case: str) -> Iterator[Connection[Any]]:
    with arena.server.database() as url:
        install(url)
        with contextlib.closing(open_connection(url, application_name="bench unique")) as connection:
            if case == "no keys, no index":
                connection.execute("drop index octop_tasks_live_one_per_unique_key")
            yield connection


def _tasks(case: str, begin: int) -> list[NewTask]:
    if case.startswith("no keys"):
        return [NewTask("job", '{"user_id": 1}', new_id()) for _ in range(AT_ONCE)]
    return [
        NewTask("job", f'{{"user_id": {number}}}', new_id(), unique_by=("user_id",))
        for number in range(begin, begin + AT_ONCE)
    ]


def _enqueue(connection: Connection[Any], case: str, count: int) -> float:
    batches = [_tasks(case, begin) for begin in range(0, count, AT_ONCE)]
    if case == "kept":
        for batch in batches:
            run(connection, calls.octop_enqueue_many(batch))
        batches = [_tasks(case, begin) for begin in range(0, count, AT_ONCE)]
    began = time.perf_counter()
    for batch in batches:
        run(connection, calls.octop_enqueue_many(batch))
    return time.perf_counter() - began


def _drain(connection: Connection[Any], count: int) -> float:
    worker = new_id()
    run(
        connection,
        calls.octop_register(
            worker,
            name="",
            host="",
            pid=1,
            supervisor_id=None,
            version="",
            queues=["default"],
            task_types=[TaskTypePolicy("job")],
        ),
    )
    done: list[Success] = []
    left = count
    began = time.perf_counter()
    while left or done:
        call = calls.octop_exchange(worker, wanted={"default": AT_ONCE}, task_types=["job"], successes=done)
        tasks = run(connection, call).tasks
        done = [Success(each.fence) for each in tasks]
        left -= len(tasks)
        if not tasks and left:
            message = f"{left} tasks were not claimed"
            raise RuntimeError(message)
    return time.perf_counter() - began


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    count = extent.count or (50_000 if extent.full else 5_000)
    enqueues: dict[str, list[float]] = {case: [] for case in CASES}
    drains: dict[str, list[float]] = {case: [] for case in CASES if case != "kept"}
    for _ in range(extent.turns(3, 9)):
        for case in CASES:
            with _stage(arena, case) as connection:
                enqueues[case].append(_enqueue(connection, case, count) * 1_000 / count)
                if case in drains:
                    drains[case].append(_drain(connection, count) * 1_000 / count)
    return [
        Answer(
            question,
            "s per 1,000 tasks",
            base=BASE,
            better="less",
            lines=[Line(case, median(samples), samples) for case, samples in found.items()],
        )
        for question, found in (("Enqueue with and without unique keys", enqueues), ("Claim and succeed", drains))
    ]


if __name__ == "__main__":
    main(measure, __doc__)
