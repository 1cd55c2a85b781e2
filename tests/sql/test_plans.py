"""Plans of the hot functions, read inside them: the named index or a TID scan on live, and no more rows than are taken.

Each state of the tables is one test; in each, every call is made on one connection, because a session keeps plans.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from psycopg import Connection

from octop.engine import calls
from octop.engine.call import run
from octop.model.task import NIL, Claimed, Fence, Outcome, OutcomeKind, Success
from octop.model.work import NewTask, TaskTypePolicy
from tests.servers import Database, Server
from tests.sql.plans import BLOCKED, LIVE, PKEY, READY, RUNNING, Judge

pytestmark = pytest.mark.slow  # tables are filled with up to a million rows

# Pages that a call may touch which looks at a few rows: nearly all are of the catalog, and more of them when autovacuum has just
# made the session read it again. `rows` is the sharp limit of such calls.
CATALOG = 3000
TYPES = [f"type_{n}" for n in range(200)]
POLICIES = [TaskTypePolicy(name, max_retries=5) for name in TYPES]


@pytest.fixture
def at(postgres: Server) -> Iterator[Database]:
    """A database whose statistics are ours alone."""
    with postgres.database(installed=True) as made:
        with made.connect() as connection:
            for table in (LIVE, "octop_tasks_frozen", "octop_attempts", "_octop_counter_deltas"):
                connection.execute(f"alter table {table} set (autovacuum_enabled = off)")
            connection.execute("select octop_make_days()")
        yield made


def fill(connection: Connection[Any], *, ready: int = 0, future: int = 0, lanes: int = 0, attempts: int = 0) -> None:
    """Write tasks into the leaf: due ones of priority 5, future ones of priority 0, one in each lane, all of known types."""
    connection.execute("set statement_timeout = '110s'")
    ready_index = ""
    if future:  # an index over a million rows in its order is made in a fifth of the time that it takes to grow
        (ready_index,) = connection.execute("select pg_get_indexdef(%s::regclass)", [READY]).fetchone() or ("",)
        connection.execute(f"drop index {READY}")
    # what the defaults say, too; they would ask a million times who is there
    insert = (
        "insert into octop_tasks_live (id, task_type, queue, lane, priority, scheduled_at, created_by, created_at)"
        " select (lpad(to_hex(g), 8, '0') || '-0000-4000-8000-000000000000')::uuid, 'type_' || g %% 200"
    )
    made = ", %s, now() from generate_series(%s::integer, %s::integer) g"
    me = connection.info.user
    connection.execute(
        f"{insert}, 'default', '', 0, now() + interval '1 day' + g * interval '1 ms' {made}",
        [me, 200_000_001, 200_000_000 + future],
    )
    connection.execute(
        f"{insert}, 'default', '', 5, now() - interval '1 h' + g * interval '1 ms' {made}", [me, 1, ready]
    )
    connection.execute(
        f"{insert}, 'lanes', 'lane ' || g, 5, now() - interval '1 h' {made}", [me, 400_000_001, 400_000_000 + lanes]
    )
    if future:
        connection.execute(ready_index)
    connection.execute(
        "insert into octop_attempts (task_id, attempt, tenant, queue, task_type, ended_at, outcome)"
        " select gen_random_uuid(), 1, '', 'default', 'type_1', now() - interval '60 days', 'failure'"
        " from generate_series(1, %s) g",
        [attempts],
    )


def register(connection: Connection[Any]) -> str:
    """Register a worker of 200 types that may judge others."""
    worker = str(uuid4())
    run(
        connection,
        calls.octop_register(
            worker,
            name="plans",
            host="",
            pid=1,
            supervisor_id=None,
            version="0",
            queues=["default", "lanes"],
            task_types=POLICIES,
        ),
    )
    connection.execute("update octop_workers set beating_since = now() - interval '1 day' where id = %s", [worker])
    return worker


def enqueue(connection: Connection[Any], count: int, **options: Any) -> list[str]:
    tasks = [NewTask("type_1", "{}", str(uuid4()), **options) for _ in range(count)]
    return [id for id, _ in run(connection, calls.octop_enqueue_many(tasks))]


def outcomes(tasks: list[Claimed]) -> list[Outcome]:
    kinds = list(OutcomeKind)
    return [
        Outcome(task.fence, kinds[n % len(kinds)], error_class="E", final=n % 2 == 0) for n, task in enumerate(tasks)
    ]


def hot_calls(judge: Judge, worker: str) -> None:
    """Claim 200, hand in 100 successes and 24 other ends, with right and with stale fences, in both forms."""
    connection = judge.connection
    run(connection, calls.octop_beat([worker]))  # filling the tables may have taken long

    def exchange(queue: str = "default", wanted: int = 100, **rest: Any) -> list[Claimed]:
        call = calls.octop_exchange(worker, wanted={queue: wanted}, task_types=TYPES, **rest)
        return run(connection, call).tasks

    def claimed(tasks: list[Claimed]) -> list[Claimed]:
        assert len(tasks) == 100
        return tasks

    # one look at the front, one by TID; 3 pages a task for heap, primary key and ready index, and what a lookup costs
    claim = {"rows": 250, "buffers": 5000, "allowed": (READY,)}
    first = claimed(judge("claim", exchange, **claim))
    marks = {first[-1].queue: {each.priority: (each.scheduled_at, each.id) for each in first}}
    second = claimed(judge("claim behind the marks", partial(exchange, marks=marks), **claim))
    successes = [Success(task.fence, '{"ok": 1}') for task in first]
    for form, part in (("fast", successes[:50]), ("careful", successes[50:])):
        judge(
            f"completion, {form}",
            partial(exchange, wanted=0, successes=part, careful=form == "careful"),
            rows=250,
            buffers=5000,
        )
    judge("completion, again", lambda: exchange(wanted=0, successes=successes[:10]), rows=60, buffers=5000)
    for form, some in (("fast", second[:12]), ("careful", second[12:24])):
        judge(
            f"settle, {form}",
            partial(exchange, wanted=0, outcomes=outcomes(some), careful=form == "careful"),
            rows=60,
            buffers=8000,
        )
    judge("settle, again", lambda: exchange(wanted=0, outcomes=outcomes(second[:12])), rows=60, buffers=8000)
    stale = [Success(Fence(task.id, task.attempt + 1, task.claim_id)) for task in second[24:34]]
    judge("completion, stale", lambda: exchange(wanted=0, successes=stale), rows=60, buffers=3000)
    judge(
        "all at once",
        lambda: exchange(wanted=10, successes=[Success(task.fence) for task in second[40:50]]),
        rows=100,
        buffers=3000,
        allowed=(PKEY, READY),
    )
    fences = [task.fence for task in second[50:]]
    owned = judge("owned", lambda: run(connection, calls.octop_owned(worker, fences)), rows=60, buffers=CATALOG)
    assert len(owned) == 50
    control = judge(
        "control of what is held",
        lambda: run(connection, calls.octop_control(worker, [*fences, Fence(str(uuid4()), 1, NIL)])),
        rows=1100,
        buffers=4000,
        allowed=(PKEY, "octop_tasks_live_cancel"),
    )
    assert len(control.lost) == 1


def quiet_calls(judge: Judge, worker: str) -> None:
    """What is called each second, before a sleep, by the sweep and by people."""
    connection = judge.connection
    sleep = calls.octop_sleep(worker, ["default", "lanes"], 5)
    # per priority one row, per lane (201 at most) a jump and ten looks
    judge("sleep", lambda: run(connection, sleep), rows=5000, buffers=25000, allowed=(READY,))
    judge(
        "control",
        lambda: run(connection, calls.octop_control(worker)),
        rows=1000,
        buffers=4000,
        allowed=(PKEY, "octop_tasks_live_cancel"),
    )

    waiting = enqueue(connection, 3)
    (running,) = run(connection, calls.octop_exchange(worker, wanted={"default": 1}, task_types=TYPES)).tasks
    assert (
        judge("cancel", lambda: run(connection, calls.octop_cancel(waiting[0])), rows=10, buffers=CATALOG)
        == "cancelled"
    )
    assert (
        judge("cancel, running", lambda: run(connection, calls.octop_cancel(running.id)), rows=10, buffers=CATALOG)
        == "requested"
    )
    assert (
        judge("retry", lambda: run(connection, calls.octop_retry(waiting[1])), rows=10, buffers=CATALOG) == waiting[1]
    )
    found = judge("task, live", lambda: run(connection, calls.octop_task(waiting[2])), rows=10, buffers=CATALOG)
    assert found is not None
    found = judge("task, done", lambda: run(connection, calls.octop_task(waiting[0])), rows=10, buffers=CATALOG)
    assert found is not None
    nobody = str(uuid4())
    assert judge("task, unknown", lambda: run(connection, calls.octop_task(nobody)), rows=10, buffers=CATALOG) is None
    judge(
        "enqueue",
        lambda: run(connection, calls.octop_enqueue_many([NewTask("type_1", "{}", nobody)] * 10, fresh=False)),
        rows=50,
        buffers=5000,
    )


def people(judge: Judge) -> None:
    """Plain INSERT and repairs by hand: what their triggers do."""
    connection = judge.connection

    def insert() -> str:
        row = connection.execute("insert into octop_tasks (task_type) values ('type_1') returning id").fetchone()
        assert row is not None
        return str(row[0])

    id = judge("insert", insert, rows=5, buffers=CATALOG)
    for assignment in ("priority = 1", "scheduled_at = now() + interval '1 h'", "status = 'cancelled'"):
        update = f"update octop_tasks set {assignment} where id = %s"
        judge(f"update, {assignment}", partial(connection.execute, update, [id]), rows=10, buffers=2000, ours=False)


def sweeps(judge: Judge, worker: str, *, lost: int = 100) -> None:
    """Rescue, deadlines, what was parked, purge; bounded by what they take and by what runs."""
    connection = judge.connection
    run(connection, calls.octop_beat([worker]))
    other = register(connection)
    connection.execute("update octop_workers set beating_since = now() - interval '1 day'")  # both may judge
    for _ in range(2):
        run(connection, calls.octop_exchange(other, wanted={"default": lost // 2}, task_types=TYPES))
    connection.execute("update octop_workers set beat_at = now() - interval '1 h' where id = %s", [other])
    connection.execute(
        f"update {LIVE} set deadline_at = now() - interval '1 h' where status = 'running' and worker_id = %s", [worker]
    )
    enqueue(connection, 50)
    connection.execute(
        f"update {LIVE} set status = 'blocked', blocked_by = 'task_type:type_7' where ctid in"
        f" (select ctid from {LIVE} where queue = 'default' and priority = 5 and status = 'pending' limit 50)"
    )
    connection.execute("update _octop_chores set next_at = '-infinity'")
    # each running row is seen by: who has no worker, whose worker is silent, who is overdue, the purge of workers
    swept = judge(
        "sweep",
        lambda: run(connection, calls.octop_sweep(worker)),
        rows=12 * 300 + 5000,
        buffers=150000,
        allowed=(PKEY, RUNNING, BLOCKED),
    )
    assert (swept.rescued, swept.unparked) == (lost, 50)
    assert swept.overdue > 0
    again = {"rows": 100, "buffers": 5000, "allowed": (PKEY, RUNNING, BLOCKED)}
    judge("sweep, nothing to do", lambda: run(connection, calls.octop_sweep(worker)), **again)
    run(connection, calls.octop_exchange(worker, wanted={"default": 50}, task_types=TYPES))
    judge(
        "deregister",
        lambda: run(connection, calls.octop_deregister(worker)),
        rows=300,
        buffers=8000,
        allowed=(PKEY, RUNNING),
    )


@contextmanager
def judged(database: Database) -> Iterator[tuple[Judge, str]]:
    with database.connect() as connection:
        judge = Judge(connection)
        yield judge, register(connection)
    assert not judge.found, "\n" + "\n".join(judge.found)


def test_empty_tables_that_were_never_analyzed(at):
    with judged(at) as (judge, worker):
        fill(judge.connection, ready=400)
        hot_calls(judge, worker)
        quiet_calls(judge, worker)
        people(judge)
        sweeps(judge, worker)


@pytest.mark.long
def test_a_million_future_tasks_in_front_and_20000_lanes_with_fresh_statistics(at):
    with judged(at) as (judge, worker):
        connection = judge.connection
        fill(connection, ready=100_000, future=1_000_000, lanes=20_000, attempts=50_000)
        connection.execute("analyze")
        hot_calls(judge, worker)
        # at most 200 lanes twice: a jump, and one task of the lane found by walking its ten priorities
        lanes = calls.octop_exchange(worker, wanted={"lanes": 100}, task_types=TYPES)
        got = judge("claim, lanes", lambda: run(connection, lanes), rows=1000, buffers=25000, allowed=(READY,))
        assert len({task.lane for task in got.tasks}) == 100
        quiet_calls(judge, worker)
        people(judge)
        sweeps(judge, worker)


def test_statistics_of_empty_tables_in_a_session_that_knows_them_empty(at):
    with judged(at) as (judge, worker):
        connection = judge.connection
        connection.execute("analyze")
        for _ in range(7):  # more than the five custom plans that a session makes before it keeps a generic one
            fill(connection, ready=0)
            hot = run(connection, calls.octop_exchange(worker, wanted={"default": 10, "lanes": 1}, task_types=TYPES))
            assert hot.tasks == []
            run(connection, calls.octop_sleep(worker, ["default"], 1))
            run(connection, calls.octop_control(worker))
            run(connection, calls.octop_sweep(worker))
            run(connection, calls.octop_owned(worker, [Fence(str(uuid4()), 1, str(uuid4()))]))
            (one,) = enqueue(connection, 1, delay_seconds=3600)
            assert run(connection, calls.octop_retry(one)) == one
            assert run(connection, calls.octop_cancel(one)) == "cancelled"
        connection.execute("analyze")
        fill(connection, ready=100_000)
        hot_calls(judge, worker)
        quiet_calls(judge, worker)
        people(judge)
        sweeps(judge, worker)


def test_statistics_of_full_tables_that_are_empty_now(at):
    with judged(at) as (judge, worker):
        connection = judge.connection
        fill(connection, ready=100_000, lanes=1000)
        connection.execute(f"update {LIVE} set status = 'running', worker_id = %s, claim_id = %s", [worker, worker])
        connection.execute("analyze")
        connection.execute(f"truncate {LIVE}")
        fill(connection, ready=400)
        hot_calls(judge, worker)
        quiet_calls(judge, worker)
        people(judge)
        sweeps(judge, worker)


def nobody_looks_back(connection: Connection[Any]) -> None:
    """Wait until what is dead may be marked so: no snapshot here is older, and no transaction of any database, for a snapshot reckons with all."""
    now = connection.execute("select pg_current_xact_id()::text").fetchone()
    assert now is not None
    ready = """
        select pg_snapshot_xmin(pg_current_snapshot()) > %s::xid8 and not exists (
          select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_xmin is not null)"""
    deadline = time.monotonic() + 60
    while connection.execute(ready, now).fetchone() != (True,):
        assert time.monotonic() < deadline, "a session keeps its snapshot"
        time.sleep(0.05)


def test_dead_rows_cost_the_first_look_and_completion_nothing(at):
    with judged(at) as (judge, worker):
        connection = judge.connection
        # an autovacuum under way would keep the first look from marking what is dead
        connection.execute(f"alter table {LIVE} set (autovacuum_enabled = off)")
        fill(connection, ready=60_000)
        connection.execute("analyze")
        connection.execute(
            f"update {LIVE} set status = 'running', worker_id = %s, claim_id = %s"
            f" where scheduled_at < (select max(scheduled_at) - interval '1 s' from {LIVE})",
            [worker, worker],
        )
        connection.execute(f"delete from {LIVE} where status = 'running'")
        nobody_looks_back(connection)
        # the first look at each index marks what is dead there
        run(connection, calls.octop_exchange(worker, wanted={"default": 1}, task_types=TYPES))
        run(connection, calls.octop_control(worker))
        hot_calls(judge, worker)
        quiet_calls(judge, worker)
        people(judge)
        sweeps(judge, worker)
