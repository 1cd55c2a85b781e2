"""Does a worker stay as fast when the database is full: of waiting tasks, of history, of tasks that may not start, of lanes, of dead rows?

    python -m benchmarks.bench_growth [--full]

Each case is measured against the small one in the same round: one worker process, the rate at which it runs the first tasks (the first
tenth is not counted). Tasks are put in by SQL. The last question is another one: a transaction held open while tasks come and go.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, LiteralString

from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, median, tell
from benchmarks.octop_worker import OctopWorker, octop_worker, pointed_at
from benchmarks.peers.peer import OCTOP
from benchmarks.script import Extent, main

SMALL: Final = "small"
FILL: Final[LiteralString] = """
insert into octop_tasks (task_type, queue, payload, lane, priority, scheduled_at)
select %s, 'bench', '{"n": 0}', case when %s > 1 then 'lane ' || n %% %s else '' end, %s, now() + %s * interval '1 second'
  from generate_series(1, %s) n
"""
HISTORY: Final[LiteralString] = """
insert into octop_tasks_done (status, task_type, queue, payload, scheduled_at, due_at, started_at, completed_at, attempt)
select 'success', 'no_op', 'bench', '{"n": 0}', now(), now(), now(), now(), 1 from generate_series(1, %s)
"""
"""Into the leaf, as only a benchmark may: all of it into today's partition, the one that the worker writes to."""
HELD_RULE: Final = (
    "Some 10,000 tasks always wait. A vacuum of an empty table gives the space of its rows back to the system; the pages of its "
    "indexes stay, empty, and the next tasks use them: hence the same load once more at the end. Autovacuum has its defaults, and "
    "looks once a minute."
)
WAITING: Final[LiteralString] = "select count(*) from octop_tasks_live where status = 'pending' and task_type = 'held'"


def fill(
    connection: Any, count: int, *, task_type: str = "no_op", lanes: int = 1, priority: int = 5, seconds: int = 0
) -> None:
    """Put tasks in, 250,000 per transaction."""
    for start in range(0, count, 250_000):
        some = min(250_000, count - start)
        connection.execute(FILL, (task_type, lanes, lanes, priority, seconds, some))


@dataclass(frozen=True, slots=True)
class Case:
    """What is in the database before the measured tasks are."""

    name: str
    prepare: Callable[[Any], None]
    lanes: int = 1
    extra: int = 0
    park: bool = False


def cases(extent: Extent) -> list[Case]:
    """Return the cases, the small one first."""
    backlog, history, front, lanes = (
        (1_000_000, 10_000_000, 100_000, 20_000) if extent.full else (60_000, 100_000, 20_000, 5_000)
    )

    def held(connection: Any) -> None:
        fill(connection, front, task_type="held", priority=0)
        connection.execute("select octop_freeze('held')")

    def done(connection: Any) -> None:
        for start in range(0, history, 500_000):
            connection.execute(HISTORY, (min(500_000, history - start),))

    return [
        Case(SMALL, lambda _: None),
        Case(f"backlog of {backlog:,}", lambda _: None, extra=backlog),
        Case(f"history of {history:,}", done),
        Case(
            f"{front:,} of a better priority, due tomorrow",
            lambda connection: fill(connection, front, priority=0, seconds=86_400),
        ),
        Case(f"{front:,} of a held type in front, met for the first time", held),
        Case(f"{front:,} of a held type, parked", held, park=True),
        Case("1,000 lanes", lambda _: None, lanes=1_000),
        Case(f"{lanes:,} lanes", lambda _: None, lanes=lanes),
    ]


def rate(arena: Arena, case: Case, count: int) -> float:
    """Return the tasks per second of one case."""

    def prepare(dsn: str) -> None:
        with arena.server.connect(dsn) as connection:
            case.prepare(connection)

    with arena.filled(OCTOP, case.name, prepare) as dsn, arena.server.connect(dsn) as connection:
        if case.park:
            with octop_worker(dsn) as worker:
                fill(connection, 1)
                worker.wait_for(1)
                deadline = time.monotonic() + 120
                while _value(connection, WAITING) and time.monotonic() < deadline:
                    time.sleep(0.1)
        fill(connection, count + case.extra, lanes=case.lanes)
        # as after a while: what filling has left behind is not still being analyzed, nor being written by server or kernel
        connection.execute("vacuum (analyze)")
        connection.execute("checkpoint")
        os.sync()
        with octop_worker(dsn) as worker:
            warm = worker.wait_for(count // 10)
            seen = worker.seen()[1]
            ended = worker.wait_for(count)
            return (worker.seen()[1] - seen) / (ended - warm)


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    count = extent.count or (150_000 if extent.full else 8_000)
    held = held_transaction(arena, 300.0 if extent.full else 5.0)
    chosen = cases(extent)
    rates: dict[str, list[float]] = {case.name: [] for case in chosen}
    absent = {}
    for turn in range(extent.turns(1, 3)):
        for case in chosen:
            tell(f"growth: round {turn + 1}: {case.name}")
            try:
                rates[case.name].append(rate(arena, case, count))
            except RuntimeError as error:
                absent[case.name] = str(error).splitlines()[0]
    answer = Answer("Growth: rate of the first tasks", "tasks/s", base=SMALL, absent=absent)
    answer.lines = [Line(name, median(found), found) for name, found in rates.items() if found]
    return [answer, held]


def held_transaction(arena: Arena, seconds: float) -> Answer:
    """Let tasks come and go, hold a transaction open in the midst, and compare rates and sizes: before, at its end, afterwards, again.

    The same load for as long without the transaction comes first: a database that has grown, and a machine that has become warm, are
    slower by themselves.
    """
    answer = Answer(f"A transaction held open for {seconds:.0f} s under load", "tasks/s", base="before", rule=HELD_RULE)
    part = max(2.0, seconds / 5)
    answer.lines = _without(arena, seconds, part) + _with(arena, seconds, part)
    return answer


@contextlib.contextmanager
def _loaded(arena: Arena) -> Iterator[tuple["Load", Any, str]]:
    """Run a worker of a fresh database; yield what loads it, a connection that looks, and its URL."""
    with (
        arena.fresh(OCTOP) as dsn,
        octop_worker(dsn) as worker,
        pointed_at(dsn) as app,
        arena.server.connect(dsn) as look,
    ):
        yield Load(app, worker), look, dsn


def _without(arena: Arena, seconds: float, part: float) -> list[Line]:
    tell(f"growth: {seconds:.0f} s of the same load without a transaction")
    with _loaded(arena) as (load, look, _):
        load.run(2.0)
        lines = [Line("without the transaction: at first", load.run(part), more=megabytes(look))]
        load.run(seconds - part)
        return [*lines, Line("without the transaction: as late", load.run(part), more=megabytes(look))]


def _with(arena: Arena, seconds: float, part: float) -> list[Line]:
    lines: list[Line] = []
    with _loaded(arena) as (load, look, dsn):

        def note(name: str, rate: float) -> None:
            lines.append(Line(name, rate, more=megabytes(look)))

        tell("growth: before the held transaction")
        load.run(2.0)
        note("before", load.run(part))
        tell(f"growth: a transaction held for {seconds:.0f} s")
        with arena.server.connect(dsn) as holder:
            holder.execute("begin isolation level repeatable read")
            holder.execute("select count(*) from octop_config")
            load.run(seconds - part)
            note("at its end", load.run(part))
            holder.execute("rollback")
        load.run(2.0)
        note("afterwards", load.run(part))
        tell("growth: drained and vacuumed")
        load.drain(look)
        note("empty, not vacuumed", 0.0)
        look.execute("vacuum octop_tasks_live")
        note("empty, vacuumed", 0.0)
        load.run(2.0)
        note("the same load again", load.run(part))
    return lines


class Load:
    """A producer that keeps some thousand tasks waiting."""

    def __init__(self, app: Any, worker: OctopWorker, waiting: int = 10_000) -> None:
        self._app, self._worker, self._waiting = app, worker, waiting
        self.added = 0

    def run(self, seconds: float) -> float:
        """Keep the queue filled for so many seconds; return the tasks that ended per second."""
        began, before = time.monotonic(), self._worker.seen()[1]
        while (now := time.monotonic()) - began < seconds:
            if self.added - self._worker.seen()[1] < self._waiting:
                self._app.octop.enqueue_many_sync([self._app.no_op.call(n) for n in range(2_000)])
                self.added += 2_000
            else:
                time.sleep(0.002)
        return (self._worker.seen()[1] - before) / (now - began)

    def drain(self, connection: Any, seconds: float = 60.0) -> None:
        """Wait until all have ended and the last acknowledgement is in: no row is left."""
        self._worker.wait_for(self.added)
        deadline = time.monotonic() + seconds
        while _value(connection, "select count(*) from octop_tasks_live"):
            if time.monotonic() > deadline:
                message = f"tasks were still there {seconds:.0f} s after the last call"
                raise RuntimeError(message)
            time.sleep(0.02)


def megabytes(connection: Any) -> dict[str, float]:
    """Return the size of the live table: its rows, and its indexes."""
    return {
        "rows MB": _value(connection, "select pg_table_size('octop_tasks_live')") / 1e6,
        "indexes MB": _value(connection, "select pg_indexes_size('octop_tasks_live')") / 1e6,
    }


def _value(connection: Any, statement: LiteralString) -> float:
    return float(connection.execute(statement).fetchone()[0])


if __name__ == "__main__":
    main(measure, __doc__)
