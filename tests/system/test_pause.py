"""A pause, a freeze and a hold take effect on all real workers at once: what is enqueued after it never starts, and after its end all of it does."""

from __future__ import annotations

import functools
import time

import pytest

from tests.system.apps.running import enqueue, one, until

pytestmark = pytest.mark.slow  # twenty processes
BUSY_SECONDS_MAX = 2.5
"""A worker sees a pause within a second; so much is asked of a machine on which other tests run, and whose loop is blocked for 0.05 s at a time."""
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


def test_C078_busy_workers_give_back_within_a_second_what_they_have_claimed_and_not_begun(start, rows):
    """Each of four workers has claimed sixty tasks of which it can run one after the other, and gathers a batch for five seconds."""
    start(application="tests.system.apps.pausing:octop", processes=4, queues={"q": 60}).ready()
    until(lambda: one(rows, "select count(*) from octop_workers") == 4, "all have registered", seconds=60)
    rows.execute("insert into octop_tasks (task_type, queue) select 'gathers', 'q' from generate_series(1, 4)")
    rows.execute(
        "insert into octop_tasks (task_type, payload, queue)"
        " select 'blocks', '{\"seconds\": 0.05}', 'q' from generate_series(1, 600)"
    )
    until(
        lambda: (
            one(rows, "select count(distinct pid) from ledger where job = 'blocks'") == 4
            and one(rows, "select count(*) from octop_tasks where status = 'running'") > 150
        ),
        "all are busy, and have more than they can begin",
    )
    rows.execute("select octop_pause('q')")
    (paused_at,) = rows.execute("select clock_timestamp()").fetchone()
    until(lambda: one(rows, "select count(*) from octop_tasks where status = 'running'") == 0, "nothing is kept")
    # no claim started anything later, as the rows themselves say, and nothing was entered after each worker had seen the pause
    assert one(rows, "select count(*) from octop_tasks where started_at > %s", paused_at) == 0
    began = rows.execute("select max(at) - %s from ledger where job = 'blocks'", (paused_at,)).fetchone()[0]
    assert began.total_seconds() < BUSY_SECONDS_MAX
    given_back = rows.execute(
        "select count(*), count(distinct worker_id), max(ended_at - %s) from octop_attempts"
        " where outcome = 'released' and error_message = 'its queue was paused before the start'",
        (paused_at,),
    ).fetchone()
    assert given_back[1] == 4, "each worker has seen it"
    assert given_back[0] > 20
    assert given_back[2].total_seconds() < BUSY_SECONDS_MAX + 0.3
    # the batch was let go of, too, and no try was used up
    assert one(rows, "select count(*) from ledger where job like 'gathers%%'") == 0
    assert one(rows, "select count(*) from octop_tasks where task_type = 'gathers' and status = 'pending'") == 4
    assert one(rows, "select count(*) from octop_tasks where retry_count > 0") == 0
    (lines,) = rows.execute("select count(*) from ledger").fetchone()
    time.sleep(2)  # that nothing happens can only be waited for
    assert one(rows, "select count(*) from ledger") == lines
    rows.execute("select octop_resume('q')")
    until(lambda: one(rows, "select count(*) from octop_tasks where status <> 'success'") == 0, "all go on", seconds=60)
    assert one(rows, "select count(*) from ledger where job = 'blocks'") == 600, "each began once"


def test_C078_a_pause_that_ends_by_itself_holds_back_what_was_claimed_and_nothing_else(start, rows):
    start(application="tests.system.apps.pausing:octop", queues={"q": 10}).ready()
    rows.execute("insert into octop_tasks (task_type, payload, queue) select 'lasts', '{\"seconds\": 2}', 'q'")
    rows.execute("insert into octop_tasks (task_type, queue) select 'gathers', 'q' from generate_series(1, 3)")
    until(lambda: one(rows, "select count(*) from octop_tasks where status = 'running'") == 4, "all are claimed")
    rows.execute("select octop_hold('queue', 'q', ends_at => now() + interval '3 seconds')")
    until(
        lambda: one(rows, "select count(*) from octop_tasks where status = 'pending'") == 3, "the batch is given back"
    )
    until(lambda: one(rows, "select count(*) from ledger where job = 'lasted'") == 1, "what had begun ends")
    assert one(rows, "select count(*) from octop_attempts where outcome = 'released'") == 3
    # its end is seen in time, and what is claimed then is not given back once more
    until(lambda: one(rows, "select count(*) from octop_tasks where status <> 'success'") == 0, "it goes on")
    assert one(rows, "select count(*) from octop_attempts where outcome = 'released'") == 3
    assert one(rows, "select count(*) from ledger where job = 'gathers 3'") == 1
