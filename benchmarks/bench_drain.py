"""How fast does one worker process drain a queue of tasks that do nothing?

    python -m benchmarks.bench_drain [--full] [--only octop,graphile-worker] [--rounds 5]

All peers, Octop with everything switched on and history kept, and Octop's own statements in a loop inside the database. The rule stands
in `benchmarks/peers/__init__.py`: from the start of the first task function until nothing is left in the contender's own tables.
"""

from typing import Any

from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, median, rounds
from benchmarks.peers.peer import CONTENDERS, Peer
from benchmarks.script import Extent, main

RULE = (
    "No-op tasks per second, one worker process (Celery and Dramatiq: their default, one per core), from the start of the first task "
    "function to the last acknowledgement. `octop-inside` is the same exchange called by a loop inside the database."
)


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    seconds = 4.0 if extent.full else 0.5

    def one(peer: Peer) -> dict[str, Any]:
        with arena.fresh(peer) as dsn:
            count = extent.tasks(peer, seconds)
            return arena.run(peer, dsn, ["enqueue", "drain"], tasks=count)

    peers = arena.present(extent.peers(CONTENDERS))
    found = rounds(arena, peers, extent.turns(2, 5), one, "drain", slow_once=not extent.full)
    answer = Answer("Drain", "tasks/s", base="octop", rule=RULE, absent=arena.missing())
    for name, runs in found.items():
        rates = [run["tasks"] / run["drain_seconds"] for run in runs]
        answer.lines.append(Line(name, median(rates), rates, more={"tasks": runs[0]["tasks"]}))
    answer.lines.sort(key=lambda line: -line.value)
    return [answer]


if __name__ == "__main__":
    main(measure, __doc__)
