"""What a task may cost a worker beside its own work: statements, commits, asyncio tasks, timers, log records, calls, objects."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import sys
import time
import uuid
from collections import Counter

import pytest

from octop.app import Octop
from octop.engine.call import run_async
from octop.engine.calls.exchange import _exchanged, octop_exchange
from octop.model.hooks import Hooks
from octop.model.task import NIL
from octop.worker.children import Children
from octop.worker.holdings import Holdings
from octop.worker.lease import Lease
from octop.worker.pool import Pool
from octop.worker.runner import Runner
from octop.worker.transactions import Transactions
from tests.system.apps.running import one, until

COUNT = 2_000
PLACES = 100


@pytest.fixture
def octop(database):
    made = Octop(database.url)

    @made.task(queue="q")
    async def no_op(number: int) -> None: ...

    yield made
    made.close()


class Economy:
    """Counts what an event loop and a worker's connections are asked for."""

    def __init__(self, monkeypatch):
        self.statements: Counter[str] = Counter()
        self.tasks = 0
        self.timers = 0

        async def counted(connection, call):
            self.statements[re.findall(r"octop_\w+", call.text)[0]] += 1
            return await run_async(connection, call)

        monkeypatch.setattr("octop.worker.link.run_async", counted)

    def follow(self, loop):
        def made(loop, coroutine, **more):
            self.tasks += 1
            return asyncio.Task(coroutine, loop=loop, **more)

        loop.set_task_factory(made)
        call_at = loop.call_at

        def counted(*arguments, **more):
            self.timers += 1
            return call_at(*arguments, **more)

        loop.call_at = counted


def test_a_thousand_tasks_cost_a_handful_of_statements_commits_asyncio_tasks_timers_and_log_records(
    octop, database, rows, monkeypatch, caplog
):
    caplog.set_level(logging.INFO)
    rows.execute(
        "insert into octop_tasks (queue, task_type, payload)"
        " select 'q', 'no_op', jsonb_build_object('number', n) from generate_series(1, %s) n",
        (COUNT,),
    )
    commits = "select xact_commit from pg_stat_database where datname = current_database()"
    others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    until(lambda: one(rows, others) == 0, "the fixtures' sessions have gone")
    rows.execute("select pg_stat_clear_snapshot()")
    before = one(rows, commits)
    economy = Economy(monkeypatch)

    async def story():
        economy.follow(asyncio.get_running_loop())
        await octop.worker(queues={"q": PLACES}, drain=True)

    asyncio.run(asyncio.wait_for(story(), 60))
    assert one(rows, "select count(*) from octop_tasks where status = 'success'") == COUNT
    exchanges = economy.statements.pop("octop_exchange")
    # half of the places is the smallest batch while there is more; then it looks for 50 ms before it sleeps
    assert COUNT / PLACES <= exchanges <= 2 * COUNT / PLACES + 20
    rest = sum(economy.statements.values())
    assert rest <= 40, economy.statements
    until(lambda: one(rows, others) == 0, "the worker's sessions have gone")
    looks = 60  # of this test, while it waited; and the heart, the installer's check, the registration
    assert one(rows, commits) - before <= exchanges + rest + looks
    assert economy.tasks <= 60, "tasks that never wait share the places of a few"
    # psycopg sets one for each wait on the socket, and an answer comes in pieces
    assert economy.timers <= 8 * (exchanges + rest) + 100
    assert len(caplog.records) <= 10


def claims(count):
    claim = str(uuid.uuid4())
    when = "2030-01-01 00:00:00+00"
    return [
        ("run", str(uuid.uuid4()), 1, claim, "", "q", "", "no_op", f'{{"number": {number}}}', 5, 0, 3, 300.0)
        + (when, when, False, None, None)
        for number in range(count)
    ]


async def run_all(octop, count, between):
    """Let a pool run what an exchange has brought, up to the call that hands the outcomes in."""
    lease, holdings = Lease(), Holdings()
    lease.beaten(time.monotonic(), unbroken=True)
    runner = Runner(
        octop.registry,
        Hooks(),
        holdings,
        Children(None, None),
        lambda _queue: None,
        Transactions("", "public", NIL),
        lease,
    )
    pool = Pool(count, lease, runner.begin, asyncio.Event())
    answer = claims(count)
    between()
    pool.add(holdings.accept(_exchanged(answer).tasks))
    while pool.held:  # noqa: ASYNC110 - what is looked at has no event
        await asyncio.sleep(0)
    successes, outcomes = holdings.outbox.take()
    assert (len(successes), outcomes) == (count, [])
    octop_exchange("w", wanted={"q": count}, task_types=["no_op"], successes=successes)
    between()
    await pool.close(1)
    runner.close()
    return successes


def test_a_task_that_does_nothing_costs_few_calls_of_python(octop):
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    switch = iter((count, None))
    asyncio.run(run_all(octop, 1_000, lambda: sys.setprofile(next(switch))))
    assert calls <= 22 * 1_000


def test_a_task_that_has_ended_keeps_few_objects(octop):
    blocks = []

    def note():
        gc.collect()
        blocks.append(sys.getallocatedblocks())

    asyncio.run(run_all(octop, 1_000, note))
    before, after = blocks
    assert after - before <= 4 * 1_000, "what is on its way to the database, and nothing else"
