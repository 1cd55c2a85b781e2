"""What does it cost to fire many schedules that are due at the same minute?

    python -m benchmarks.bench_schedules [--full]

10,000 schedules are due at one instant. One session, or two at once, call `octop_tick` for at most 500 until nothing is due; seconds until
all tasks are there. Beside it `octop_enqueue_many` of as many plain tasks, 500 a call, from one session: what the tasks alone cost.
"""

import contextlib
import threading
import time
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
from octop.model.work import NewTask

BASE: Final = "enqueue_many"
CASES: Final = {BASE: 0, "one ticker": 1, "two tickers": 2}
AT_ONCE: Final = 500


def _enqueue(connection: Connection[Any], count: int) -> None:
    for _ in range(0, count, AT_ONCE):
        run(connection, calls.octop_enqueue_many([NewTask("job", '{"user_id": 1}', new_id()) for _ in range(AT_ONCE)]))


def _fire(url: str, gate: threading.Barrier) -> None:
    with contextlib.closing(open_connection(url, application_name="bench schedules")) as connection:
        gate.wait()
        while True:
            ((fired, _, seconds),) = connection.execute(
                "select fired, skipped, next_seconds from octop_tick(%s)", [AT_ONCE]
            ).fetchall()
            if not fired and (seconds is None or seconds >= 1):
                return


def _round(arena: Arena, tickers: int, count: int) -> float:
    with arena.server.database() as url:
        install(url)
        with contextlib.closing(open_connection(url, application_name="bench schedules")) as connection:
            if not tickers:
                began = time.perf_counter()
                _enqueue(connection, count)
                return time.perf_counter() - began
            # yearly: nothing else becomes due meanwhile
            connection.execute(
                "insert into octop_schedules (name, rule, task_type, payload)"
                " select 's' || n, '0 0 1 1 *', 'job', '{\"user_id\": 1}' from generate_series(1, %s::integer) n",
                [count],
            )
            connection.execute("update octop_schedules set next_slot = date_trunc('minute', now())")
            connection.execute("analyze octop_schedules")
            gate = threading.Barrier(tickers + 1)
            threads = [threading.Thread(target=_fire, args=(url, gate)) for _ in range(tickers)]
            for each in threads:
                each.start()
            gate.wait()
            began = time.perf_counter()
            for each in threads:
                each.join()
            seconds = time.perf_counter() - began
            ((made,),) = connection.execute("select count(*) from octop_tasks").fetchall()
            if made != count:
                message = f"{made} tasks of {count} schedules"
                raise RuntimeError(message)
            return seconds


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    count = extent.count or 10_000
    found: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(extent.turns(3, 9)):
        for case, tickers in CASES.items():
            found[case].append(_round(arena, tickers, count))
    return [
        Answer(
            f"Fire {count:,} schedules that are due at the same minute",
            "s",
            base=BASE,
            better="less",
            lines=[Line(case, median(samples), samples) for case, samples in found.items()],
        )
    ]


if __name__ == "__main__":
    main(measure, __doc__)
