"""A worker whose database falls silent: it neither waits for ever nor for long, and its stop uses up no try."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time

import pytest

from octop import Octop
from octop.engine import listener
from octop.engine.call import Call
from octop.model.errors import OctopError
from octop.worker.link import Link
from octop.worker.options import WorkerOptions
from tests.system.apps.running import enqueue, one, status, until
from tests.system.faults.proxy import LOOPBACK, Proxy

USER = "octop"
EXCHANGE, CONTROL, LISTEN = (f"octop worker {purpose}" for purpose in ("exchange", "control", "listen"))
EVERYTHING = "octop worker"
GRACE_SECONDS = 0.3
STOP_SECONDS_MAX = 6.0
"""The grace time, a second, and a machine that does five other things. Who waits for an answer, or to be connected, takes ten and more."""


@pytest.fixture
def network(database):
    """Stand between a worker and the database."""
    running = database.server.running
    with Proxy(running.socket_directory / f".s.PGSQL.{running.port}") as proxy:
        yield proxy


@pytest.fixture
def dsn(database, network):
    return f"postgresql://{USER}@{LOOPBACK}:{network.port}/{database.name}?sslmode=disable&gssencmode=disable"


@pytest.fixture
def start_behind(start, dsn):
    return lambda **options: start(**{"dsn": dsn, "grace_seconds": GRACE_SECONDS, **options})


@contextlib.contextmanager
def silence(network, *purposes, cut=False):
    """Let connections lead nowhere, new ones as well; `cut`: there are no others than new ones."""
    with contextlib.ExitStack() as stack:
        for purpose in purposes:
            stack.enter_context(network.hole(purpose, reset=True))
        if cut:
            network.reset(EVERYTHING)
        yield


def connecting(network, purpose):
    """Tell whether somebody has begun to connect, and waits for the first answer."""
    return any(pair.purpose == purpose and pair.server is None for pair in tuple(network._pairs))


def runs(start_behind, rows, **options):
    """Start a worker, and a task that takes longer than anything here."""
    worker = start_behind(**options).ready()
    task_id = enqueue(rows, "nap", {"seconds": 60, "note": "nap"}, max_retries=3)
    until(lambda: one(rows, "select count(*) from ledger where job = 'nap'") == 1, "it runs", worker.log)
    return worker, task_id


def cost(rows, task_id):
    """Return what a task has lost: tries, and processes that it may have brought down."""
    return rows.execute("select retry_count, lost_count from octop_tasks_live where id = %s", (task_id,)).fetchone()


@pytest.mark.parametrize("silent", [[EXCHANGE], [EXCHANGE, CONTROL]], ids=["by itself", "by its supervisor"])
def test_what_a_stopped_worker_can_not_hand_in_is_released(start_behind, rows, network, silent):
    worker, task_id = runs(start_behind, rows)
    with silence(network, *silent):
        assert worker.stop(seconds=STOP_SECONDS_MAX) == 0, worker.text()
        assert status(rows, task_id) == "pending"
        assert cost(rows, task_id) == (0, 0), "a stop uses up no try"
        assert one(rows, "select outcome from octop_attempts where task_id = %s", task_id) == "released"
        assert one(rows, "select count(*) from octop_workers") == 0
    by_supervisor = "gave back 1 task of the dead process" in worker.text()
    assert by_supervisor is (CONTROL in silent), worker.text()


def test_a_body_that_had_ended_runs_again_when_its_outcome_is_lost_and_no_try_is_used_up(start_behind, rows, network):
    worker = start_behind().ready()
    task_id = enqueue(rows, "nap", {"seconds": 0.5, "note": "nap"}, max_retries=0)
    until(lambda: one(rows, "select count(*) from ledger where job = 'nap'") == 1, "it runs", worker.log)
    with silence(network, EXCHANGE, CONTROL):
        until(lambda: "no database (exchange)" in worker.text(), "its outcome has found no way", worker.log)
        assert worker.stop(seconds=STOP_SECONDS_MAX) == 0, worker.text()
    assert cost(rows, task_id) == (0, 0)
    assert status(rows, task_id) == "pending", "whoever claims next runs it again"


@pytest.mark.parametrize(("busy", "cut"), [(False, True), (True, False)], ids=["idle, connecting", "busy, asking"])
def test_a_stop_in_a_silent_network_takes_the_grace_time_and_a_second(start_behind, rows, network, busy, cut):
    worker, task_id = runs(start_behind, rows) if busy else (start_behind().ready(), "")
    with silence(network, EVERYTHING, cut=cut):
        if cut:
            for purpose in (CONTROL, LISTEN):
                until(lambda: connecting(network, purpose), f"{purpose} connects", worker.log)  # noqa: B023 - waits in here
        assert worker.stop(seconds=STOP_SECONDS_MAX) == 0, worker.text()
        assert "Traceback" not in worker.text()
        assert not busy or status(rows, task_id) == "running", "nobody could say so: its lease covers it"


def test_what_ended_while_the_network_was_silent_is_handed_in_within_the_grace_time(start_behind, rows, network):
    worker = start_behind(grace_seconds=20).ready()
    task_id = enqueue(rows, "nap", {"seconds": 0.5, "note": "nap"})
    until(lambda: one(rows, "select count(*) from ledger where job = 'nap'") == 1, "it runs", worker.log)
    with silence(network, EVERYTHING, cut=True):
        worker.process.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in worker.text(), "it stops", worker.log)
        until(lambda: connecting(network, EXCHANGE), "its outcome has found no way", worker.log)
    assert worker.wait() == 0, worker.text()
    assert status(rows, task_id) == "success"
    assert one(rows, "select attempt from octop_tasks where id = %s", task_id) == 1


def test_an_answer_is_not_waited_for_beyond_the_lease(start_behind, rows, network):
    worker, task_id = runs(start_behind, rows, grace_seconds=0)
    with silence(network, EXCHANGE):
        enqueue(rows, "noop")  # an exchange asks for it
        until(lambda: "no database (exchange)" in worker.text(), "it waits no longer", worker.log, seconds=8)
    last = enqueue(rows, "noop")
    until(lambda: status(rows, last) == "success", "it goes on", worker.log)
    assert one(rows, "select attempt from octop_tasks where id = %s", task_id) == 1, "what runs was not touched"
    assert one(rows, "select count(*) from octop_attempts where outcome <> 'released'") == 0


def test_a_listener_that_waits_for_an_answer_can_be_cancelled(dsn, network, monkeypatch):
    monkeypatch.setattr(listener, "PROOF_SECONDS", 0.05)
    answered = listener._answered

    async def scene():
        asked = asyncio.Event()

        async def asks(connection, statement):
            if statement == "select 1":
                asyncio.get_running_loop().call_soon(asked.set)
            await answered(connection, statement)

        async def listen():
            async for _ in listener.notifications(dsn, schema="public"):
                network._loop.call_soon_threadsafe(network._dig, LISTEN)

        monkeypatch.setattr(listener, "_answered", asks)
        listening = asyncio.get_running_loop().create_task(listen())
        await asked.wait()
        listening.cancel()
        async with asyncio.timeout(3):  # psycopg alone waits for five seconds, and five more
            await asyncio.wait([listening])
        assert listening.cancelled()

    asyncio.run(scene())


def test_a_link_knows_when_it_was_answered_last(database):
    async def scene():
        link = Link(WorkerOptions(dsn=database.url), "test", "w")
        began = time.monotonic()
        await link.call(Call("select 1"))
        answered_at = link.answered_at
        assert answered_at >= began
        with pytest.raises(OctopError):
            await link.call(Call("select 1 / 0"))
        assert link.answered_at > answered_at, "a refusal is an answer"
        await link.close()

    asyncio.run(scene())


def test_an_embedded_worker_that_is_stopped_while_it_begins_in_a_silent_network_ends(dsn, network):
    async def scene():
        stop = asyncio.Event()
        with network.hole(EVERYTHING, reset=True):
            working = asyncio.get_running_loop().create_task(
                Octop(dsn=dsn).worker(stop=stop, queues={"q": 1}, concurrency=1)
            )
            await asyncio.to_thread(until, lambda: connecting(network, CONTROL), "it connects")
            stop.set()
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await working

    asyncio.run(scene())
