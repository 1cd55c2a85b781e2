"""What do limits cost: those who have none, those beside a full lane, and those who have them?

    [OCTOP_BENCH_BEFORE=FOLDER] python -m benchmarks.bench_flow [--full]

Claims and completions by the engine's own calls, one session, no-op tasks, batches of 100; each case in a database of its own, in turn.
*Plain*: no limit anywhere; OCTOP_BENCH_BEFORE names the folder src of an earlier version, which installs its own schema and is the base.
*Beside a full lane*: 100,000 tasks of one lane that may start nothing, and those of 20 others. *20,000 lanes*: with and without a limit
per lane. *Global limit 10,000*: never reached, so that only its gate is paid for. *Rate*: 10,000 a second with a burst of a million,
likewise.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import psycopg

from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, median
from benchmarks.script import Extent, main
from octop.engine import calls
from octop.engine.call import run
from octop.model.task import Success
from octop.model.work import TaskTypePolicy

BATCH: Final = 100
QUEUE: Final = "default"
FILL: Final = """
insert into octop_tasks (task_type, lane)
select 'noop', case when %(lanes)s = 0 then '' else 'lane ' || n %% nullif(%(lanes)s, 0) end from generate_series(1, %(count)s) n
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One way to use a queue.

    Args:
        name: As it is printed.
        lanes: Among how many lanes the tasks are dealt out; 0 = none has a lane.
        limits: Columns of the queue.
        full: So many tasks wait in a lane that is full.
    """

    name: str
    lanes: int = 0
    limits: dict[str, Any] = field(default_factory=dict)
    full: int = 0


PLAIN: Final = Case("plain")
LANED: Final = Case("20 lanes", 20)
CASES: Final = (
    PLAIN,
    Case("global limit 10,000", limits={"global_limit": 10_000}),
    Case("rate 10,000/s", limits={"rate": 10_000, "burst": 1_000_000}),
    Case("ageing", limits={"ageing_seconds": 60}),
    LANED,
    Case("20 lanes, limit 1,000 each", 20, {"lane_limit": 1000}),
    Case("the same beside a full lane", 20, {"lane_limit": 1000}, full=100_000),
    Case("20,000 lanes", 20_000),
    Case("20,000 lanes, limit 100 each", 20_000, {"lane_limit": 100}),
    Case("20,000 lanes in order", 20_000, {"ordered": True}),
)


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    count = extent.count or (100_000 if extent.full else 20_000)
    before = os.environ.get("OCTOP_BENCH_BEFORE")
    found: dict[str, list[float]] = {case.name: [] for case in CASES}
    earlier: list[float] = []
    for _ in range(extent.turns(1, 5)):
        if before:
            earlier.append(_rate(arena, PLAIN, count, source=before))
        for case in CASES:
            found[case.name].append(_rate(arena, case, count))
    plain = Answer("Claims and completions of a queue", "tasks/s", base="before" if earlier else PLAIN.name)
    laned = Answer("The same with lanes", "tasks/s", base=LANED.name)
    if earlier:
        plain.lines.append(Line("before", median(earlier), earlier))
    for case in CASES:
        line = Line(case.name, median(found[case.name]), found[case.name])
        (laned if case.lanes else plain).lines.append(line)
    return [plain, laned]


def _rate(arena: Arena, case: Case, count: int, *, source: str | None = None) -> float:
    with arena.server.database() as url:
        environment = {**os.environ, "OCTOP_DSN": url, **({"PYTHONPATH": source} if source else {})}
        subprocess.run([sys.executable, "-m", "octop", "migrate"], env=environment, check=True, capture_output=True)
        with psycopg.connect(url, autocommit=True) as connection:
            worker = _hired(connection)
            if case.limits:
                run(connection, calls.octop_set_queue(QUEUE, case.limits))
            if case.full:
                _fill_lane(connection, worker, case)
            connection.execute(FILL, {"lanes": case.lanes, "count": count})
            connection.execute("analyze octop_tasks_live")
            return _drained(connection, worker, count)


def _fill_lane(connection: psycopg.Connection[Any], worker: str, case: Case) -> None:
    """Let a lane be full, and have many tasks that wait."""
    limit = int(case.limits["lane_limit"])
    statement = "insert into octop_tasks (task_type, lane) select 'noop', 'full' from generate_series(1, %s)"
    connection.execute(statement, (limit + case.full,))
    taken = run(connection, calls.octop_exchange(worker, wanted={QUEUE: limit}, task_types=["noop"])).tasks
    if len(taken) != limit:
        message = f"{len(taken)} tasks of the lane run, and {limit} should"
        raise RuntimeError(message)


def _drained(connection: psycopg.Connection[Any], worker: str, count: int) -> float:
    done, lanes, successes = 0, dict[str, str](), list[Success]()
    began = time.monotonic()
    while done < count:
        answer = run(
            connection,
            calls.octop_exchange(
                worker, wanted={QUEUE: BATCH}, task_types=["noop"], lanes_after=lanes, successes=successes
            ),
        )
        lanes.update(answer.lanes)
        successes = [Success(each.fence, None) for each in answer.tasks]
        done += len(successes)
    run(connection, calls.octop_exchange(worker, wanted={}, task_types=[], successes=successes))
    return count / (time.monotonic() - began)


def _hired(connection: psycopg.Connection[Any]) -> str:
    worker = str(uuid4())
    call = calls.octop_register(
        worker,
        name="bench",
        host="",
        pid=1,
        supervisor_id=None,
        version="",
        queues=[QUEUE],
        task_types=[TaskTypePolicy("noop")],
    )
    run(connection, call)
    return worker


if __name__ == "__main__":
    main(measure, __doc__)
