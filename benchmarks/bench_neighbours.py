"""What do tasks that may not start, or that are another tenant's, cost those beside them?

    python -m benchmarks.bench_neighbours [--full]

Claims and completions by the engine's own calls, one session, no-op tasks, batches of 100; each case in a database of its own, in turn.
*Beside a held lane*: 100,000 tasks of one lane wait for a hold, and those of 20 others run. *Beside a held type*: as many as 1,000,000 of a
task type wait for one. *While they are set aside*: the same from the moment of the hold on, when each exchange also sets some aside.
*Fairness*: another tenant's 1,000,000 tasks, each tenant in a lane of its own, and 100 that are enqueued behind them: how long these take,
against the same 100 alone.
"""

import time
from dataclasses import dataclass
from typing import Any, Final, LiteralString

import psycopg

from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, median
from benchmarks.script import Extent, main
from octop.engine import calls
from octop.engine.call import run
from octop.engine.install import install
from octop.model.ids import new_id
from octop.model.task import Claimed, Success
from octop.model.work import TaskTypePolicy

BATCH: Final = 100
QUEUE: Final = "default"
BEAT_SECONDS: Final = 3
"""A worker without heartbeats gets no tasks after two thirds of its lease."""
FILL: Final[LiteralString] = """
insert into octop_tasks (task_type, lane)
select %(type)s, %(lane)s || case when %(lanes)s = 0 then '' else ' ' || n %% nullif(%(lanes)s, 0) end from generate_series(1, %(count)s) n
"""


@dataclass(frozen=True, slots=True)
class Case:
    """Tasks that run, and what waits beside them.

    Args:
        name: As it is printed.
        lanes: Among how many lanes the tasks that run are dealt out; 0 = none has a lane.
        held: How many wait for a hold: of the lane `held` where there are lanes, else of the type `held`.
        aside: They have been set aside before the clock starts.
    """

    name: str
    lanes: int = 0
    held: int = 0
    aside: bool = True


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    """Return the rates beside held tasks, and how long 100 tasks take behind another tenant's."""
    count, many = extent.count or (100_000 if extent.full else 20_000), 1_000_000 if extent.full else 100_000
    cases = (
        Case("nothing is held"),
        Case(f"beside a held type, {many:,}", held=many),
        Case(f"while {many:,} are set aside", held=many, aside=False),
        Case("20 lanes", 20),
        Case("20 lanes beside a held lane, 100,000", 20, held=100_000),
    )
    rates: dict[str, list[float]] = {case.name: [] for case in cases}
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(extent.turns(1, 5)):
        for case in cases:
            rates[case.name].append(_rate(arena, case, count))
        alone.append(_hundred(arena, 0))
        beside.append(_hundred(arena, many))
    lines = {name: Line(name, median(samples), samples) for name, samples in rates.items()}
    names = list(lines)
    hundred = Answer("100 tasks of a tenant", "s", base="alone", better="less")
    hundred.lines += [Line("alone", median(alone), alone), Line(f"behind {many:,} of another", median(beside), beside)]
    return [
        Answer("Claims and completions", "tasks/s", base=names[0], lines=[lines[name] for name in names[:3]]),
        Answer("The same with lanes", "tasks/s", base=names[3], lines=[lines[name] for name in names[3:]]),
        hundred,
    ]


def _rate(arena: Arena, case: Case, count: int) -> float:
    with arena.server.database() as url:
        install(url)
        with psycopg.connect(url, autocommit=True) as connection:
            crew = Crew(connection)
            if case.held and case.lanes:
                _fill(connection, case.held, lane="held")
                run(connection, calls.octop_hold("lane", "held", queue=QUEUE))
            elif case.held:
                _fill(connection, case.held, task_type="held")
                run(connection, calls.octop_hold("task_type", "held"))
            while case.aside and case.held and _waiting(connection):
                crew.exchange()
            _fill(connection, count, lane="lane" if case.lanes else "", lanes=case.lanes)
            connection.execute("vacuum analyze octop_tasks_live")
            began = time.monotonic()
            crew.drain(count)
            return count / (time.monotonic() - began)


def _hundred(arena: Arena, before: int) -> float:
    with arena.server.database() as url:
        install(url)
        with psycopg.connect(url, autocommit=True) as connection:
            crew = Crew(connection)
            _fill(connection, before + BATCH, lane="A")
            connection.execute("vacuum analyze octop_tasks_live")
            crew.drain(BATCH)  # a session plans its statements in its first exchanges
            began = time.monotonic()
            _fill(connection, 100, lane="B")
            crew.drain(100, "B")
            return time.monotonic() - began


def _waiting(connection: psycopg.Connection[Any]) -> bool:
    found = connection.execute("select exists (select from octop_tasks_live where status = 'pending')").fetchone()
    return bool(found and found[0])


def _fill(
    connection: psycopg.Connection[Any], count: int, *, task_type: str = "noop", lane: str = "", lanes: int = 0
) -> None:
    connection.execute(FILL, {"type": task_type, "lane": lane, "lanes": lanes, "count": count})


class Crew:
    """One worker of both task types: it claims, and hands in successes with the next claim."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.worker = new_id()
        self.lanes: dict[str, str] = {}
        self.successes: list[Success] = []
        self.beats_at = time.monotonic() + BEAT_SECONDS
        call = calls.octop_register(
            self.worker,
            name="bench",
            host="",
            pid=1,
            supervisor_id=None,
            version="",
            queues=[QUEUE],
            task_types=[TaskTypePolicy("noop"), TaskTypePolicy("held")],
        )
        run(connection, call)

    def exchange(self, wanted: int = BATCH) -> list[Claimed]:
        """Hand in what was claimed before, as done, and claim."""
        if time.monotonic() >= self.beats_at:
            run(self.connection, calls.octop_beat([self.worker]))
            self.beats_at = time.monotonic() + BEAT_SECONDS
        call = calls.octop_exchange(
            self.worker,
            wanted={QUEUE: wanted} if wanted else {},
            task_types=["noop", "held"],
            lanes_after=self.lanes,
            successes=self.successes,
        )
        answer = run(self.connection, call)
        self.lanes.update(answer.lanes)
        self.successes = [Success(task.fence, None) for task in answer.tasks]
        return answer.tasks

    def drain(self, count: int, lane: str | None = None) -> None:
        """Claim and complete until so many tasks, of this lane where one is named, are done."""
        done = 0
        while done < count:
            done += sum(lane in (None, task.lane) for task in self.exchange())
        self.exchange(0)


if __name__ == "__main__":
    main(measure, __doc__)
