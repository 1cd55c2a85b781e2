"""How does the drain grow with worker processes, 1 to 8?

    python -m benchmarks.bench_processes [--full] [--only octop,graphile-worker]

`octop worker --processes N`; of a peer its program N times, which is what its documentation says to start. More processes than cores
share them, with the database.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, ContenderError, median, tell
from benchmarks.peers.peer import CONTENDERS, OCTOP, Peer
from benchmarks.script import Extent, main

NAMES: Final = ("octop", "graphile-worker", "pgqueuer", "oban")
SCALERS: Final = tuple(peer for peer in CONTENDERS if peer.name in NAMES)
RULE: Final = (
    "From the first call of the task function in any process to the moment when nothing is left. Peers' processes begin to work "
    "at one moment, connected; Octop's are started by `octop worker`."
)
START_SECONDS: Final = 2.0
"""A peer's process has started and is connected within so long; it waits for the others."""


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    peers = arena.present(extent.peers(SCALERS if extent.full or extent.only else SCALERS[:3]))
    answer = Answer(
        f"Drain by several worker processes on {os.cpu_count()} cores", "tasks/s", base="octop, 1 process", rule=RULE
    )
    rates: dict[tuple[str, int], list[float]] = {}
    failed: dict[str, str] = {}
    for turn in range(extent.turns(1, 3)):
        for peer in peers:
            for number in numbers(full=extent.full):
                if peer.name in failed:
                    continue
                tell(f"processes: round {turn + 1}: {peer.name} {number}")
                try:
                    found = rate(arena, peer, number, extent.tasks(peer, 5.0 if extent.full else 0.5))
                    rates.setdefault((peer.name, number), []).append(found)
                except ContenderError as error:
                    tell(str(error))
                    failed[peer.name] = str(error).splitlines()[-1]
    for (name, number), found_rates in rates.items():
        answer.lines.append(Line(line_name(name, number), median(found_rates), found_rates))
    answer.absent = {**arena.absent, **failed}
    return [answer]


def numbers(*, full: bool) -> tuple[int, ...]:
    """Return with how many processes each contender is measured."""
    return (1, 2, 4, 8) if full else (1, 2)


def line_name(name: str, number: int) -> str:
    """Name a line."""
    return f"{name}, {number} process{'es' if number > 1 else ''}"


def rate(arena: Arena, peer: Peer, number: int, count: int) -> float:
    """Return the tasks per second of one drain by so many processes."""
    with arena.fresh(peer) as dsn:
        if peer is OCTOP:
            run: dict[str, Any] = arena.run(peer, dsn, ["enqueue", "drain"], tasks=count, processes=number)
            return count / float(run["drain_seconds"])
        arena.run(peer, dsn, ["enqueue"], tasks=count)
        begin = time.monotonic() + START_SECONDS
        with ThreadPoolExecutor(number) as threads:
            parts = [
                threads.submit(arena.run, peer, dsn, ["share"], tasks=count, begin_at=begin) for _ in range(number)
            ]
            runs = [part.result() for part in parts]
    return together(runs, count)


def together(runs: list[dict[str, Any]], count: int) -> float:
    """Return the tasks per second of processes that worked off so many tasks together.

    Raises:
        ContenderError: They have not run all of them.
    """
    ran = sum(run["count"] for run in runs)
    if ran < count:
        message = f"{ran} of {count} tasks were run by {len(runs)} processes"
        raise ContenderError(message)
    first = min(run["first_at"] for run in runs if run["first_at"] is not None)
    # all ask, and the first to hear that nothing is left is right
    return count / float(min(run["done_at"] for run in runs) - first)


if __name__ == "__main__":
    main(measure, __doc__)
