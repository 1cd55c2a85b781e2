"""A pause, a freeze and a hold take effect on all real workers at once: what is enqueued after it never starts, and after its end all of it does."""

from __future__ import annotations

import functools
import time

import pytest

from tests.system.apps.running import enqueue, one, until

pytestmark = pytest.mark.slow  # twenty processes
HOLDS = {
    "queue": "'queue', 'q'",
    "task_type": "'task_type', 'note'",
    "tenant": "'tenant', 'acme'",
    "lane": "'lane', 'a', queue => 'q', tenant => 'acme'",
}


def test_C078_twenty_idle_workers_start_nothing_that_is_enqueued_after_a_pause(start, rows):
    start(application="tests.system.apps.alerting:octop", processes=20)
    until(lambda: one(rows, "select count(*) from octop_workers") == 20, "all have registered", seconds=120)
    enqueue(rows, "note", {"job": "before"})
    until(lambda: one(rows, "select count(*) from ledger") == 1, "they run tasks")

    def ran(kind):
        return one(rows, "select count(*) from ledger where job = %s", kind) == 100

    for kind, target in HOLDS.items():
        # in one round trip: the first task comes microseconds after the commit of the order
        rows.execute(f"select octop_hold({target})".encode())
        rows.execute(
            "insert into octop_tasks (task_type, payload, queue, tenant, lane)"
            " select 'note', jsonb_build_object('job', %s::text), 'q', 'acme', 'a' from generate_series(1, 100)",
            (kind,),
        )
        time.sleep(3)  # that nothing happens can only be waited for
        assert one(rows, "select count(*) from ledger where job = %s", kind) == 0, kind
        assert one(rows, "select count(*) from octop_tasks where attempt > 0 and payload ->> 'job' = %s", kind) == 0
        began = time.monotonic()
        rows.execute(f"select octop_lift({target})".encode())
        until(functools.partial(ran, kind), f"{kind} goes on", seconds=60)
        assert time.monotonic() - began < 30


def test_what_runs_when_its_queue_is_paused_runs_on_and_a_backlog_stops_within_a_second(start, rows):
    start(application="tests.system.apps.alerting:octop", processes=2).ready()
    rows.execute(
        "insert into octop_tasks (task_type, payload, queue)"
        " select 'note', '{\"job\": \"x\"}', 'q' from generate_series(1, 20000)"
    )
    until(lambda: one(rows, "select count(*) from ledger") > 20, "they run tasks")
    rows.execute("select octop_pause('q')")
    (paused_at,) = rows.execute("select clock_timestamp()").fetchone()
    until(lambda: one(rows, "select count(*) from octop_tasks where status = 'running'") == 0, "what ran has ended")
    done = one(rows, "select count(*) from octop_tasks where status = 'success'")
    assert done < 20_000
    # a claim that had begun before the commit is all that may start after it
    assert one(rows, "select count(*) from octop_tasks where started_at > %s", paused_at) == 0
    time.sleep(2)  # that nothing happens can only be waited for
    assert one(rows, "select count(*) from octop_tasks where status = 'success'") == done
    assert one(rows, "select count(*) from octop_tasks where status = 'success' and attempt <> 1") == 0
