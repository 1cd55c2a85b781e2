"""The measurements of `octop bench`, one function each; every one says what it did and how long it took."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from octop import __version__
from octop.cli.bench import tasks
from octop.cli.worker_process import worker_process
from octop.engine import calls, script, steering
from octop.engine.call import run
from octop.model.errors import OctopError
from octop.model.ids import new_id
from octop.model.work import TaskTypePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

BATCH: Final = 500
"""Tasks that the worker runs at once, and those in one exchange inside the database."""

DRAIN_SECONDS_MAX: Final = 900.0
POLL_SECONDS: Final = 0.5
"""Counting what waits costs a little; it is taken from the worker."""
SINGLES_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Rate:
    """So many tasks in so many seconds."""

    tasks: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Return the rate."""
        return self.tasks / max(self.seconds, 1e-6)


def look_into(connection: Any, schema: str) -> None:
    """Let the SQL files of the bench, which name no schema, find what they measure."""
    connection.execute("select set_config('search_path', %s, false)", (script.quoted(schema),))


def enqueue_many(count: int, progress: Callable[[int], None]) -> Rate:
    """Enqueue through the client's bulk call, arguments bound and checked like any other."""

    def counted() -> Iterator[Any]:
        for n in range(count):
            if n % 1000 == 0:
                progress(n)
            yield tasks.no_op.call(n)

    began = time.monotonic()
    tasks.octop.enqueue_many_sync(counted())
    seconds = time.monotonic() - began
    progress(count)
    return Rate(count, seconds)


def enqueue_one_by_one(progress: Callable[[int], None]) -> Rate:
    """Enqueue single tasks, each in its own transaction, one after the other, for two seconds."""
    began = time.monotonic()
    done = 0
    while (passed := time.monotonic() - began) < SINGLES_SECONDS:
        tasks.no_op.enqueue_sync(done)
        done += 1
        progress(done)
    return Rate(done, passed)


def enqueue_together(count: int) -> Rate:
    """Enqueue single tasks that are awaited concurrently, as the requests of a web server do."""

    async def all_of_them() -> float:
        await tasks.no_op.enqueue(0)  # opens the pool
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for n in range(count):
                group.create_task(tasks.no_op.enqueue(n))
        return time.monotonic() - began

    return Rate(count, asyncio.run(all_of_them()))


def drain(
    connection: Any, processes: int, environment: Mapping[str, str], log: Path, progress: Callable[[int], None]
) -> Rate:
    """Let a real worker run everything that waits; from the first start to the last end, by the database's clock."""
    count = _waiting(connection)
    after = _last_seq(connection)
    arguments = [
        "-A",
        "octop.cli.bench.tasks:octop",
        "--drain",
        "-q",
        f"{tasks.QUEUE}={BATCH}",
        "--processes",
        str(processes),
    ]
    with worker_process(arguments, environment, log) as worker:
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        while worker.ended is None and time.monotonic() < deadline:
            with contextlib.suppress(OctopError):
                worker.wait(POLL_SECONDS)
            progress(count - _waiting(connection))
        code = worker.ended
    if code != 0:
        message = (
            f"the worker ended with exit code {code}" if code is not None else "the worker did not drain the queue"
        )
        raise OctopError(message, detail=worker.last_words())
    return _span(connection, after, count)


def inside(connection: Any) -> Rate:
    """Run the same exchanges in a loop inside the database, without any Python."""
    worker = new_id()
    count = _waiting(connection)
    policy = TaskTypePolicy(name=tasks.no_op.name, queue=tasks.QUEUE, run_in="loop")
    register = calls.octop_register(
        worker,
        name="bench",
        host="inside",
        pid=os.getpid(),
        supervisor_id=None,
        version=__version__,
        queues=[tasks.QUEUE],
        task_types=[policy],
    )
    run(connection, register)
    connection.execute(_text("inside.sql"))
    began = time.monotonic()
    drained = connection.execute(
        "call pg_temp.octop_bench_drain(%s::uuid, %s, %s, %s, 0)", (worker, tasks.QUEUE, tasks.no_op.name, BATCH)
    ).fetchone()[0]
    seconds = time.monotonic() - began
    run(connection, calls.octop_deregister(worker))
    if drained != count:
        message = f"the loop inside the database ran {drained} of {count} tasks"
        raise OctopError(message)
    return Rate(drained, seconds)


def _text(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()


def _waiting(connection: Any) -> int:
    rows = run(connection, steering.list_queues())
    return sum(row["waiting"] + row["running"] for row in rows if row["name"] == tasks.QUEUE)


def _last_seq(connection: Any) -> int:
    return int(_span_row(connection, 0)[2] or 0)


def _span_row(connection: Any, after: int) -> Any:
    return connection.execute(_text("span.sql"), (tasks.QUEUE, after)).fetchone()


def _span(connection: Any, after: int, count: int) -> Rate:
    done, seconds, _ = _span_row(connection, after)
    if done != count:
        message = f"the worker finished {done} of {count} tasks"
        raise OctopError(message)
    return Rate(done, seconds)
