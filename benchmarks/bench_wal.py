"""How many bytes of write-ahead log does a task cost: enqueued in bulk, and run?

    python -m benchmarks.bench_wal [--full] [--only octop,pgqueuer]

The log is what a disk, a replica and an archive have to carry. Read between the phases, each a process of its own, from
pg_current_wal_insert_lsn(); full_page_writes is off, so that no checkpoint decides. What starting and stopping a worker writes is in it,
shared by all tasks of the run.
"""

from typing import Any, Final

from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, median, rounds
from benchmarks.peers.peer import CONTENDERS, Peer
from benchmarks.script import Extent, main

WRITERS: Final = tuple(peer for peer in CONTENDERS if not peer.needs_redis and peer.name != "octop-inside")
SLOW: Final = 1_000


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    def position() -> int:
        with arena.server.connect() as connection:
            row = connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return int(row[0])

    def one(peer: Peer) -> dict[str, Any]:
        count = extent.count or (
            (50_000 if peer.rate > SLOW else 2_000) if extent.full else 8_000 if peer.rate > 4 * SLOW else 400
        )
        with arena.fresh(peer) as dsn:
            before = position()
            arena.run(peer, dsn, ["enqueue"], tasks=count)
            between = position()
            arena.run(peer, dsn, ["drain"], tasks=count)
            after = position()
        return {"enqueue": (between - before) / count, "drain": (after - between) / count}

    peers = arena.present(extent.peers(WRITERS))
    found = rounds(arena, peers, extent.turns(1, 3), one, "WAL")
    answer = Answer(
        "Write-ahead log per task, enqueue and run", "bytes", base="octop", better="less", absent=arena.missing()
    )
    for name, runs in found.items():
        sums = [run["enqueue"] + run["drain"] for run in runs]
        more = {"enqueue": median(run["enqueue"] for run in runs), "run": median(run["drain"] for run in runs)}
        answer.lines.append(Line(name, median(sums), sums, more=more))
    answer.lines.sort(key=lambda line: line.value)
    return [answer]


if __name__ == "__main__":
    main(measure, __doc__)
