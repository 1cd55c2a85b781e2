"""The application of the benchmarks: tasks that do nothing but count their calls, in a worker of its own process."""

import asyncio
import os
import time
from pathlib import Path

from benchmarks.peers.programs import contest
from octop import Octop

octop = Octop()
FOLDER = Path(os.environ.get("BENCH_STAMPS", "."))
stamp = contest.Stamp(FOLDER)


@octop.task(queue="bench", name="no_op")
async def no_op(n: int, text: str = "") -> None:
    """Count the call."""
    stamp.ran()


@octop.task(queue="bench", name="mark")
async def mark(kind: str, since: float) -> None:
    """Write down how long ago `since` (seconds of the machine's wall clock, which is also the database's) is."""
    late = time.time() - since
    with (FOLDER / "marks").open("a") as file:
        file.write(f"{kind} {late}\n")
    stamp.ran()


@octop.task(queue="bench", name="mark_slot")
async def mark_slot(kind: str, slot: str) -> None:
    """As ``mark``, of a slot in whole seconds."""
    await mark(kind, float(slot))


@octop.task(queue="bench", name="hold")
async def hold(seconds: float) -> None:
    """Count the call, and take a place for so long."""
    stamp.ran()
    await asyncio.sleep(seconds)
