"""How much memory does a worker process take: idle, and over many tasks?

    python -m benchmarks.bench_memory [--full] [--only octop,oban]

Resident memory, shared pages counted. A peer's worker runs in the process of its program (Node's and Python's alike), Octop's in a process
of its own; its supervisor is not counted. Celery and Dramatiq: all processes of their default worker.
"""

import time
from typing import Any, Final

from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, median, rounds, tell
from benchmarks.octop_worker import octop_worker, pointed_at
from benchmarks.peers.peer import CONTENDERS, OCTOP, Peer
from benchmarks.script import Extent, main

HOLDERS: Final = tuple(peer for peer in CONTENDERS if peer.name != "octop-inside")


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    def one(peer: Peer) -> dict[str, Any]:
        with arena.fresh(peer) as dsn:
            if peer.kind == "octop":
                return {"worker_megabytes": idle(dsn, 5.0 if extent.full else 1.0)}
            if peer.needs_redis:  # their workers show themselves by running something
                return arena.run(peer, dsn, ["enqueue", "drain"], tasks=50)
            return arena.run(peer, dsn, ["idle"], tasks=1, idle_seconds=5.0 if extent.full else 1.0)

    peers = arena.present(extent.peers(HOLDERS))
    found = rounds(arena, peers, 1, one, "memory")
    answer = Answer("Memory of an idle worker", "MB", base="octop", better="less", absent=arena.missing())
    for name, runs in found.items():
        values = [run["worker_megabytes"] for run in runs]
        answer.lines.append(Line(name, median(values), values))
    answer.lines.sort(key=lambda each: each.value)
    return [answer, over_many(arena, 1_000_000 if extent.full else 30_000)]


def idle(dsn: str, seconds: float) -> float:
    """Return the memory of a worker that has run one task and waits."""
    with octop_worker(dsn) as worker, pointed_at(dsn) as app:
        app.no_op.enqueue_sync(0)
        worker.wait_for(1)
        time.sleep(seconds)
        return max(worker.megabytes())


def over_many(arena: Arena, count: int) -> Answer:
    """Look at a worker's memory while it runs many tasks."""
    answer = Answer(f"Memory of Octop's worker over {count:,} tasks", "MB", base="after the first tenth", better="less")
    with arena.fresh(OCTOP) as dsn, octop_worker(dsn) as worker, pointed_at(dsn) as app:
        added, samples = 0, []
        for part in range(10):
            tell(f"memory: {part + 1} of 10")
            while added < count * (part + 1) // 10:
                some = min(10_000, count - added)
                app.octop.enqueue_many_sync(app.no_op.call(n) for n in range(some))
                added += some
                worker.wait_for(added - 10_000)
            worker.wait_for(added)
            samples.append(max(worker.megabytes()))
    answer.lines = [
        Line("after the first tenth", samples[0]),
        Line("after all", samples[-1], more={"highest": max(samples)}),
    ]
    return answer


if __name__ == "__main__":
    main(measure, __doc__)
