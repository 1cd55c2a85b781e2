"""A worker in the user's own process: `octop.worker()` and `octop.run_worker()`."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
import traceback
import weakref

import pytest

from octop.app import Octop
from tests.servers import HOUSE
from tests.system.apps.running import enqueue, one, prepare, status, until

OWN_PROCESS = """
from tests.system.apps.everyday import octop

octop.run_worker(queues={"q": 4}, grace_seconds=%s)
"""

BEGAN: list[int] = []


@pytest.fixture
def rows(database):
    prepare(database)
    with database.connect() as connection:
        yield connection


@pytest.fixture
def octop(database):
    BEGAN.clear()
    made = Octop(database.url)

    @made.task(queue="q", max_retries=2)
    async def nap(seconds: float) -> None:
        BEGAN.append(1)
        await asyncio.sleep(seconds)

    yield made
    made.close()


async def running(worker):
    while not BEGAN:
        assert not worker.done()
        await asyncio.sleep(0.02)


def test_a_cancelled_worker_lets_its_tasks_end_and_beats_until_they_have(octop, rows):
    task_id = enqueue(rows, "nap", {"seconds": 4})

    async def story():
        worker = asyncio.create_task(octop.worker(queues={"q": 2}, grace_seconds=20))
        await running(worker)
        worker.cancel()
        await asyncio.sleep(2.5)
        assert one(rows, "select clock_timestamp() - max(beat_at) < '1.5 s' from octop_workers"), "more than a lease"
        await asyncio.wait([worker], timeout=20)
        assert worker.cancelled()

    asyncio.run(asyncio.wait_for(story(), 60))
    assert status(rows, task_id) == "success"
    assert one(rows, "select count(*) from octop_workers") == 0


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_a_worker_whose_start_waits_for_an_open_transaction_can_be_stopped(octop, database, rows, how, caplog):
    async def story():
        stop = asyncio.Event()
        worker = asyncio.create_task(octop.worker(queues={"q": 2}, stop=stop))
        while "octop_register waits" not in caplog.text:
            assert not worker.done()
            await asyncio.sleep(0.02)
        if how == "cancel":
            worker.cancel()
        else:
            stop.set()
        await asyncio.wait([worker], timeout=10)
        assert worker.done()
        assert worker.cancelled() == (how == "cancel")
        assert worker.cancelled() or worker.exception() is None

    with database.connect() as other, other.transaction(force_rollback=True):
        other.execute("insert into octop_task_types (name) values ('nap')")
        asyncio.run(asyncio.wait_for(story(), 60))
    assert one(rows, "select count(*) from octop_workers") == 0


@pytest.mark.all_versions
@pytest.mark.parametrize("first", ["cancel", "stop"])
def test_a_second_cancellation_releases_at_once(octop, rows, first):
    task_id = enqueue(rows, "nap", {"seconds": 60})

    async def story():
        stop = asyncio.Event()
        worker = asyncio.create_task(octop.worker(queues={"q": 2}, grace_seconds=60, stop=stop))
        await running(worker)
        if first == "cancel":
            worker.cancel()
        else:
            stop.set()
        await asyncio.sleep(0.3)
        assert not worker.done()
        began = time.monotonic()
        worker.cancel()
        await asyncio.wait([worker], timeout=20)
        assert worker.cancelled()
        assert time.monotonic() - began < 4

    asyncio.run(asyncio.wait_for(story(), 60))
    assert status(rows, task_id) == "pending"
    assert one(rows, "select retry_count from octop_tasks where id = %s", task_id) == 0
    assert one(rows, "select count(*) from octop_workers") == 0


def test_c093_a_hook_sees_where_a_time_limit_ended_the_task_and_nothing_of_it_stays_afterwards(octop, rows):
    class Big:
        pass

    told, held, kept = [], [], []

    @octop.task(queue="q", max_retries=0, timeout=0.05)
    async def slow() -> None:
        big = Big()
        held.append(weakref.ref(big))
        await asyncio.sleep(60)

    stop = asyncio.Event()

    @octop.on_freeze
    def froze(context, error) -> None:
        told.append("".join(traceback.format_exception(error)))
        kept.append(error)  # as one that reports it later would
        stop.set()

    enqueue(rows, "slow", {})
    asyncio.run(asyncio.wait_for(octop.worker(queues={"q": 2}, stop=stop), 30))
    assert "await asyncio.sleep(60)" in told[0]
    assert "over its time limit" in told[0]
    gc.collect()
    assert held[0]() is None


def test_a_worker_that_is_cancelled_before_it_began_ends(octop):
    async def story():
        worker = asyncio.create_task(octop.worker(queues={"q": 2}))
        await asyncio.sleep(0)
        worker.cancel()
        await asyncio.wait([worker], timeout=10)
        assert worker.cancelled()

    asyncio.run(asyncio.wait_for(story(), 30))


@pytest.mark.parametrize(
    ("signals", "code", "left"),
    [
        ([signal.SIGTERM], 0, "success"),
        ([signal.SIGTERM, signal.SIGTERM], 143, "pending"),
        ([signal.SIGTERM, signal.SIGINT], 130, "pending"),
    ],
)
def test_run_worker_ends_with_the_code_of_its_second_signal(database, rows, tmp_path, signals, code, left):
    seconds = 1.5 if len(signals) == 1 else 60
    task_id = enqueue(rows, "nap", {"seconds": seconds, "note": "n"})
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", OWN_PROCESS % 60],
            env={**os.environ, "OCTOP_DSN": database.url},
            stdout=output,
            stderr=output,
            cwd=HOUSE,
        )
    try:
        until(lambda: one(rows, "select count(*) from ledger where job = 'n'"), "it runs", log)
        for number in signals:
            process.send_signal(number)
            time.sleep(0.3)
        assert process.wait(10) == code, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert status(rows, task_id) == left
    assert one(rows, "select retry_count from octop_tasks where id = %s", task_id) == 0
