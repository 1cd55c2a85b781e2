"""How does the drain grow with worker processes, 1 to 8?

    python -m benchmarks.bench_processes [--full]

`octop worker --processes N` against one process. More processes than cores share them, with the database.
"""

import os
from typing import Any

from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, median, tell
from benchmarks.peers.peer import OCTOP
from benchmarks.script import Extent, main


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    numbers = (1, 2, 4, 8) if extent.full else (1, 2, 4)
    count = extent.count or (200_000 if extent.full else 40_000)
    rates: dict[int, list[float]] = {number: [] for number in numbers}
    for turn in range(extent.turns(1, 5)):
        for number in numbers:
            tell(f"processes: round {turn + 1}: {number}")
            with arena.fresh(OCTOP) as dsn:
                run: dict[str, Any] = arena.run(OCTOP, dsn, ["enqueue", "drain"], tasks=count, processes=number)
            rates[number].append(count / run["drain_seconds"])
    answer = Answer(f"Drain by several worker processes on {os.cpu_count()} cores", "tasks/s", base="1 process")
    for number in numbers:
        name = "1 process" if number == 1 else f"{number} processes"
        answer.lines.append(Line(name, median(rates[number]), rates[number]))
    return [answer]


if __name__ == "__main__":
    main(measure, __doc__)
