"""What a claim looks at beside held tasks: no more than without them once they are parked, and a bounded number until then."""

from __future__ import annotations

import pytest

from octop.engine import calls
from octop.engine.call import run
from tests.sql.crew import Worker, do, value
from tests.sql.plans import BLOCKED, LIVE, PKEY, READY, Judge, watched

pytestmark = pytest.mark.slow

HELD = {
    "task_type": ("'task_type', 'held'", "'held', '', ''"),
    "tenant": ("'tenant', 'acme'", "'t', 'acme', ''"),
    "lane": ("'lane', 'full', queue => 'default'", "'t', '', 'full'"),
}


@pytest.fixture
def worker(database, dba):
    for table in (LIVE, "_octop_counter_deltas"):
        do(dba, f"alter table {table} set (autovacuum_enabled = off)")
    made = Worker(dba, types=("t", "held"))
    made.register()
    return made


def fill(dba, count, columns, *, lane="", ahead="2 h"):
    do(
        dba,
        "insert into octop_tasks_live (id, task_type, tenant, lane, queue, scheduled_at, created_by)"
        f" select octop_uuid7(), {columns}, 'default', now() - interval '{ahead}' + g * interval '1 ms', 'x' from generate_series(1, {count}) g",
    )


@pytest.mark.parametrize("kind", HELD)
def test_of_100000_held_tasks_each_claim_looks_at_so_many_and_then_at_none(dba, worker, kind):
    target, columns = HELD[kind]
    fill(dba, 100_000, columns)
    lanes = "'t', '', 'free'" if kind == "lane" else "'t', '', ''"
    fill(dba, 3000, lanes, ahead="1 h")
    do(dba, f"analyze {LIVE}")
    do(dba, f"select octop_hold({target})")
    judge = Judge(dba)

    def beat():
        run(dba, calls.octop_beat([worker.id]))  # what comes before may have taken long

    def claim():
        return worker.exchange(100)

    beat()
    parked = judge("parks", claim, rows=20_000, buffers=200_000, allowed=(READY, PKEY)).parked
    assert parked >= 4000
    for _ in range(200):
        beat()
        answer = claim()
        parked += answer.parked
        if parked == 100_000:
            break
    assert parked == 100_000
    assert (
        value(dba, "select count(*) from octop_tasks where status = 'blocked' and blocked_by like 'hold:%'") == 100_000
    )
    do(dba, f"vacuum {LIVE}")
    beat()
    answer = judge("claims beside them", claim, rows=450, buffers=6000, allowed=(READY, PKEY))
    assert (len(answer.tasks), answer.parked) == (100, 0)
    # coming back is bounded, too
    do(dba, f"select octop_lift({target})")
    judge(
        "sweep",
        worker.sweep,
        rows=12_000,
        buffers=200_000,
        allowed=(READY, PKEY, BLOCKED, "octop_tasks_live_running", "octop_tasks_live_cancel"),
    )
    assert judge.found == []


def test_without_holds_a_claim_asks_for_none(dba, worker):
    """A queue that nobody holds pays for one look whether there is any hold."""
    fill(dba, 100, "'t', '', ''")
    worker.exchange(1)
    with watched(dba) as seen:
        assert len(worker.exchange(10).tasks) == 10
    asked = [
        each for each in seen for scan in each.scans if "octop_holds" in scan.relation or "lifted" in scan.relation
    ]
    assert len(asked) == 2, [each.text for each in asked]  # both in one statement
    assert len({id(each) for each in asked}) == 1
