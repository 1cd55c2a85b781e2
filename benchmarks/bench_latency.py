"""How long from enqueue, or from the due time, to the start of the task function? How long does a claim take while the pool is busy?

    python -m benchmarks.bench_latency [--full] [--only octop,graphile-worker]

*Peers, idle*: producer and worker in one process, one task at a time, from before the enqueue call to the first line of the function.
Celery's and Dramatiq's workers are processes of their own, as they always are.
*Octop*: `octop worker` in a process of its own. Idle; under load (a producer adds some 2,000 tasks/s to the same queue); from the due
time; from the slot of one of ten schedules that fire each second. *Claims*: one process per core, and as many as
`db.connection_pool_size`, claim and complete without a pause.

Beside them, in the same run: a bare round trip, NOTIFY on one connection, wake-up and SELECT on another. On a noisy machine the multiple
of it says more than the milliseconds.
"""

import os
import statistics
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg

from benchmarks import claimers
from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, percentile, rounds, tell
from benchmarks.octop_worker import OctopWorker, octop_worker, pointed_at
from benchmarks.peers.peer import CONTENDERS, OCTOP, Peer
from benchmarks.script import Extent, main

PEERS: Final = tuple(peer for peer in CONTENDERS if peer.name != "octop-inside")
APART: Final = {peer.name for peer in CONTENDERS if peer.needs_redis}
BARE: Final = "bare NOTIFY, SELECT"
CLAIMERS: Final = (os.cpu_count() or 1, 10)
"""One per core: nobody waits for a processor. And the default of db.connection_pool_size."""


def line(name: str, runs: list[list[float]], bare: float) -> Line:
    """Make a line of samples in milliseconds, one list per round."""
    values = [value for found in runs for value in found]
    medians = [statistics.median(found) for found in runs]
    more = {"p99": percentile(values, 0.99), "max": max(values), "bare round trips": statistics.median(values) / bare}
    return Line(name, statistics.median(values), medians, more=more)


def bare_round_trips(dsn: str, samples: int) -> list[float]:
    """Return milliseconds from before a NOTIFY until another connection has woken up and has its SELECT answered."""
    found = []
    with psycopg.connect(dsn, autocommit=True) as sender, psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute("listen bench")
        for _ in range(samples + 3):
            time.sleep(0.02)
            began = time.monotonic()
            sender.execute("notify bench")
            next(listener.notifies(timeout=5, stop_after=1))
            listener.execute("select 1").fetchone()
            found.append(1000 * (time.monotonic() - began))
    return found[3:]


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    samples = 100 if extent.full else 10
    turns = extent.turns(1, 5)
    bare: list[list[float]] = []
    busy: dict[int, list[list[float]]] = {}

    def one(peer: Peer) -> dict[str, Any]:
        with arena.fresh(peer) as dsn:
            return arena.run(peer, dsn, ["latency"], samples=samples, tasks=1, idle_seconds=0.8)

    peers = arena.present(extent.peers(PEERS))
    found: dict[str, list[dict[str, Any]]] = {}
    octop: dict[str, list[list[float]]] = {}
    for turn in range(turns):
        with arena.fresh(OCTOP) as dsn:
            bare.append(bare_round_trips(dsn, samples))
        for name, runs in rounds(arena, peers, 1, one, f"latency {turn + 1} of {turns}").items():
            found.setdefault(name, []).extend(runs)
        tell(f"latency {turn + 1} of {turns}: octop worker")
        for name, values in octop_cases(arena, samples).items():
            octop.setdefault(name, []).append(values)
        for number in CLAIMERS:
            busy.setdefault(number, []).append(claimers.milliseconds(arena, number, 10 if extent.full else 1.5))
    one_trip = statistics.median(value for values in bare for value in values)
    idle = Answer(
        "Enqueue to start, idle worker in the producer's process",
        "ms, median",
        base="octop",
        better="less",
        absent=arena.missing(),
    )
    idle.lines = [line(name, [run["latency_ms"] for run in runs], one_trip) for name, runs in found.items()]
    for each in idle.lines:
        if each.name in APART:
            each.note = "worker in processes of its own"
    idle.lines.sort(key=lambda each: each.value)
    own = Answer("Octop's latencies, worker in a process of its own", "ms, median", base=BARE, better="less")
    own.lines = [
        line(BARE, bare, one_trip),
        *(line(name, runs, one_trip) for name, runs in octop.items()),
    ]
    claims = Answer(
        f"Claim and complete {claimers.BATCH} tasks, beside others that do so without a pause",
        "ms, median",
        base=BARE,
        better="less",
    )
    claims.lines = [line(BARE, bare, one_trip)]
    claims.lines += [line(f"{number} at once", runs, one_trip) for number, runs in busy.items()]
    return [idle, own, claims]


def octop_cases(arena: Arena, samples: int) -> dict[str, list[float]]:
    """Measure one round of Octop's own cases."""
    with arena.fresh(OCTOP) as dsn, octop_worker(dsn) as worker, pointed_at(dsn) as app:
        app.mark.enqueue_sync("warm", time.time())
        worker.wait_for(1)
        time.sleep(1.0)  # it goes to sleep
        expected = 1
        for n in range(samples):
            time.sleep(0.06 + (n * 7 % 13) * 0.006)
            app.mark.enqueue_sync("enqueue to start, idle", time.time())
            expected += 1
            worker.wait_for(expected)
        # Due times that lie apart, and that are known to the worker well before.
        begin = datetime.now(UTC) + timedelta(seconds=1.5)
        for n in range(samples):
            at = begin + timedelta(milliseconds=37 * n)
            app.mark.using(at=at).enqueue_sync("due to start", at.timestamp())
        expected += samples
        worker.wait_for(expected)
        expected += _slots(app, samples)
        worker.wait_for(expected)
        _under_load(app, worker, samples, expected)
        return _marks(worker)


def _slots(app: Any, samples: int) -> int:
    """Make ten schedules with a slot each second; return how many slots they have until they end."""
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    end = begin + timedelta(seconds=max(1, samples // 10) - 1)
    for n in range(10):
        app.octop.schedules.put_sync(
            f"slots {n}",
            "* * * * * *",
            app.mark_slot,
            kwargs={"kind": "slot of a schedule to start", "slot": "{{slot.epoch}}"},
            starts_at=begin,
            ends_at=end,
            catch_up="all",
        )
    return 10 * max(1, samples // 10)


def _under_load(app: Any, worker: OctopWorker, samples: int, expected: int) -> None:
    """Enqueue marked tasks while a thread adds 20 others every 10 ms to the same queue."""
    stop = threading.Event()
    added = 0

    def produce() -> None:
        nonlocal added
        due = time.monotonic()
        while not stop.is_set():
            app.octop.enqueue_many_sync([app.no_op.call(n) for n in range(20)])
            added += 20
            due = max(due + 0.01, time.monotonic() - 0.1)
            stop.wait(max(0.0, due - time.monotonic()))

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        time.sleep(0.5)
        for _ in range(samples):
            time.sleep(0.02)
            app.mark.enqueue_sync("enqueue to start, under load", time.time())
    finally:
        stop.set()
        producer.join()
    worker.wait_for(expected + samples + added)


def _marks(worker: OctopWorker) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for text in (worker.folder / "marks").read_text().splitlines():
        kind, _, late = text.rpartition(" ")
        if kind != "warm":
            found.setdefault(kind, []).append(1000 * float(late))
    return found


if __name__ == "__main__":
    main(measure, __doc__)
