"""Real worker processes on a real PostgreSQL: what they run, how tasks end, and what is followed while they run."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from tests.system.apps.running import enqueue, one, status, stopped, until


def counts(rows, job):
    return one(rows, "select count(*) from ledger where job = %s", job)


def finished(rows, ids):
    return one(
        rows,
        "select count(*) from octop_tasks where id = any (%s::text[]::uuid[]) and status in ('success', 'frozen', 'cancelled')",
        ids,
    ) == len(ids)


@pytest.mark.all_versions
def test_runs_tasks_on_the_loop_in_threads_and_in_processes_and_drains(start, rows):
    ids = [
        enqueue(rows, "noop"),
        enqueue(rows, "nap_in_thread", {"seconds": 0}),
        enqueue(rows, "nap_in_process", {"seconds": 0}),
    ]
    worker = start(drain=True, processes=2)
    assert worker.wait() == 0, worker.text()
    assert finished(rows, ids)
    found = rows.execute("select status, result::text from octop_tasks order by seq").fetchall()
    assert [row[0] for row in found] == ["success"] * 3
    assert found[1][1] == '"slept"'
    assert found[2][1].startswith('"slept in ')
    assert counts(rows, "worker start") == counts(rows, "worker stop") >= 1
    assert one(rows, "select count(*) from octop_workers") == 0


KINDS = [
    "SystemExit", "exit 0", "KeyboardInterrupt", "BaseException", "MemoryError", "StopIteration", "StopAsyncIteration",
    "GeneratorExit", "CancelledError", "group", "RecursionError", "str raises", "str exits", "str is int", "bad text",
]  # fmt: skip


@pytest.mark.long
def test_c047_c048_c049_whatever_a_task_raises_is_its_own_failure(start, rows):
    worker = start().ready()
    pids = worker.pids()
    ids = {
        (place, kind): enqueue(rows, f"raise_{place}", {"which": kind})
        for place in ("on_loop", "in_thread", "in_process")
        for kind in KINDS
    }
    for kind in ("child task", "cancelled child"):
        ids["on_loop", kind] = enqueue(rows, "raise_on_loop", {"which": kind})
    until(lambda: finished(rows, list(ids.values())), "all have ended", worker.log)
    states = {key: status(rows, task_id) for key, task_id in ids.items()}
    assert set(states.values()) == {"frozen"}, states
    assert one(
        rows, "select count(*) from octop_attempts where outcome = 'failure' and error_class is not null"
    ) == len(ids)
    assert one(rows, "select max(length(error_message)) from octop_attempts") == 10_000
    assert (
        one(rows, "select error_class from octop_attempts where task_id = %s", ids["in_thread", "SystemExit"])
        == "SystemExit"
    )
    assert worker.pids() == pids, "the worker process must live on"
    last = enqueue(rows, "noop")
    until(lambda: status(rows, last) == "success", "the next task runs", worker.log)


def test_c040_c041_c043_a_result_that_can_not_be_kept_fails_once_and_is_not_run_again(start, rows):
    worker = start().ready()
    ids = [enqueue(rows, "bad_result", {"which": which}) for which in ("nan", "set", "nul", "big", "lone")]
    until(lambda: finished(rows, ids), "all have ended", worker.log)
    assert {status(rows, task_id) for task_id in ids} == {"frozen"}
    assert one(rows, "select count(*) from ledger where job like 'result %%'") == len(ids)
    until(lambda: counts(rows, "freeze ResultTooLargeError") == 1, "the hook was told", worker.log)


def test_c049_time_limits_end_async_process_and_swallowing_tasks_and_the_worker_goes_on(start, rows):
    worker = start().ready()
    ids = [
        enqueue(rows, "nap", {"seconds": 60}, timeout_seconds=0.5, max_retries=0),
        enqueue(rows, "spin", timeout_seconds=1.5),
        enqueue(rows, "swallow", timeout_seconds=0.3),
        enqueue(rows, "nap_in_thread", {"seconds": 3}, timeout_seconds=1),
    ]
    until(lambda: finished(rows, ids), "all were ended", worker.log)
    assert {status(rows, task_id) for task_id in ids} == {"frozen"}
    assert one(rows, "select count(*) from octop_attempts where outcome = 'timeout'") == len(ids)
    told = [one(rows, "select coalesce(traceback, '') from octop_attempts where task_id = %s", each) for each in ids]
    assert not any("octop/worker" in each for each in told), told
    assert "await asyncio.sleep(" in told[0]
    assert "    time.sleep(seconds)\n" in told[3], "a thread shows the line in which it stands"
    last = [enqueue(rows, "noop"), enqueue(rows, "nap_in_process", {"seconds": 0})]
    until(lambda: finished(rows, last), "the worker goes on", worker.log)
    assert worker.stop(seconds=10) == 0, worker.text()


def test_c049_a_running_task_is_cancelled_wherever_it_runs(start, rows):
    worker = start().ready()
    ids = [
        enqueue(rows, "nap", {"seconds": 60}),
        enqueue(rows, "spin"),
        enqueue(rows, "watchful", {"seconds": 60}),
    ]
    until(lambda: one(rows, "select count(*) from octop_tasks where status = 'running'") == 3, "all run", worker.log)
    for task_id in ids:
        assert one(rows, "select octop_cancel(%s, 'not needed')", task_id) == "requested"
    until(lambda: finished(rows, ids), "all have ended", worker.log)
    assert {status(rows, task_id) for task_id in ids} == {"cancelled"}


def test_c124_a_task_nobody_knows_is_parked_and_run_by_a_newer_worker(start, rows):
    ids = [enqueue(rows, "added_later") for _ in range(20)]
    behind = enqueue(rows, "noop")
    old = start().ready()
    until(lambda: status(rows, behind) == "success", "the task behind them is not kept waiting", old.log)
    until(
        lambda: one(rows, "select count(*) from octop_tasks where status = 'blocked'") == 20, "they are parked", old.log
    )
    new = start(application="tests.system.apps.newer:octop").ready()
    until(lambda: finished(rows, ids), "the newer worker ran them", new.log)
    assert rows.execute(
        "select distinct status, attempt from octop_tasks where task_type = 'added_later'"
    ).fetchall() == [("success", 1)]


@pytest.mark.parametrize(
    ("application", "words"),
    [
        ("tests.system.apps.broken:octop", "tests.system.apps.broken does not import: SystemExit"),
        ("tests.system.apps.nowhere:octop", "no module tests.system.apps.nowhere"),
        ("tests.system.apps.everyday:absent", "no attribute absent"),
    ],
)
def test_c121_an_application_that_does_not_import_is_fatal_and_touches_no_task(start, rows, application, words):
    task_id = enqueue(rows, "noop")
    worker = start(application=application)
    assert worker.wait() == 1
    assert words in worker.text()
    assert status(rows, task_id) == "pending"
    assert one(rows, "select attempt from octop_tasks where id = %s", task_id) == 0


def test_settings_limits_and_pauses_are_followed_within_a_second_or_so(start, rows):
    worker = start(listen=False).ready()
    rows.execute("select octop_scale('q', 0)")
    # the look that takes note of it comes each second; until then the old limit holds
    time.sleep(1.3)
    held = enqueue(rows, "noop")
    time.sleep(0.5)
    assert status(rows, held) == "pending"
    rows.execute("select octop_scale('q', 2)")
    until(lambda: status(rows, held) == "success", "it runs again", worker.log, seconds=4)
    assert "queue q: an operator's limit of 2 holds, not the 8 of -q" in worker.text()
    ids = [enqueue(rows, "nap", {"seconds": 1}) for _ in range(4)]
    until(
        lambda: one(rows, "select count(*) from octop_tasks where status = 'running'") == 2,
        "two run",
        worker.log,
        seconds=8,
    )
    assert one(rows, "select count(*) from octop_tasks where status = 'running'") == 2
    until(lambda: finished(rows, ids), "all ran", worker.log)


def test_a_new_default_time_limit_holds_for_the_next_task(start, rows):
    worker = start().ready()
    rows.execute("update octop_config set value = '{\"value\": 0.2}' where key = 'task.default_timeout_seconds'")
    task_id = enqueue(rows, "nap", {"seconds": 60}, max_retries=0)
    until(lambda: status(rows, task_id) == "frozen", "the new limit holds", worker.log, seconds=5)


def test_an_idle_worker_starts_a_task_in_milliseconds_and_a_due_one_on_time(start, rows):
    rows.execute("select octop_config_set('scheduler.interval_seconds', '30')")
    worker = start().ready()
    until(lambda: one(rows, "select count(*) from _octop_sleepers where wake_at > now()") == 1, "it sleeps", worker.log)
    task_id = enqueue(rows, "noop", delay_seconds=1.0)
    until(lambda: status(rows, task_id) == "success", "it ran", worker.log, seconds=5)
    late = one(rows, "select extract(epoch from started_at - due_at)::float8 from octop_tasks where id = %s", task_id)
    assert 0 <= late < 0.5, late


@pytest.mark.long
def test_c051_a_task_that_blocks_the_loop_is_named_and_not_doubled(start, rows):
    first = start().ready()
    task_id = enqueue(rows, "block", {"seconds": 5})
    until(lambda: counts(rows, "block") == 1, "it blocks", first.log)
    second = start().ready()
    until(lambda: status(rows, task_id) == "success", "it ended", first.log)
    assert counts(rows, "block") == 1
    assert f"blocked for more than 1 s by the task block {task_id}" in first.text()
    assert second.process.poll() is None


def test_c012_a_task_that_kills_its_process_freezes_and_no_other_fails(start, rows):
    worker = start(queues={"q": 4}).ready()
    killer = enqueue(rows, "kill_own_process")
    others = [enqueue(rows, "nap", {"seconds": 0.2}) for _ in range(30)]
    until(lambda: status(rows, killer) == "frozen", "it is frozen", worker.log)
    until(lambda: finished(rows, others), "the others have ended", worker.log)
    assert counts(rows, "kill") == 3, "max_retries + 1 starts"
    assert {status(rows, task_id) for task_id in others} == {"success"}
    assert one(rows, "select max(retry_count) from octop_tasks where task_type = 'nap'") <= 1
    assert one(rows, "select count(*) from octop_attempts where task_id = %s and outcome = 'lost'", killer) == 3
    assert "SIGKILL" in one(
        rows, "select error_message from octop_attempts where task_id = %s order by attempt desc limit 1", killer
    )


def test_c001_c137_a_task_whose_worker_was_killed_is_started_again_by_another(start, rows):
    first = start().ready()
    task_id = enqueue(rows, "nap", {"seconds": 2, "note": "n"}, timeout_seconds=3600)
    until(lambda: counts(rows, "n") == 1, "it runs", first.log)
    second = start().ready()
    for pid in [first.process.pid, *first.pids()[:1]]:
        os.kill(pid, signal.SIGKILL)
    until(lambda: counts(rows, "n") == 2, "it runs again", second.log)
    until(lambda: status(rows, task_id) == "success", "it ended", second.log)
    assert one(rows, "select retry_count from octop_tasks where id = %s", task_id) == 1
    assert one(rows, "select outcome from octop_attempts where task_id = %s", task_id) == "lost"


@pytest.mark.parametrize("whole", [False, True], ids=["its process", "its machine"])
def test_c007_a_worker_that_was_stopped_beyond_its_lease_changes_nothing(start, rows, whole):
    first = start().ready()
    task_id = enqueue(rows, "nap", {"seconds": 2, "note": "n"})
    until(lambda: counts(rows, "n") == 1, "it runs", first.log)
    with contextlib.ExitStack() as stack:
        for pid in [first.process.pid] * whole + first.pids()[:1]:
            stack.enter_context(stopped(pid))
        second = start().ready()
        until(lambda: counts(rows, "n") == 2, "another runs it", second.log)
    until(lambda: status(rows, task_id) == "success", "it ended", second.log)
    until(lambda: "the lease was broken" in first.text(), "the first one noticed", first.log)
    assert one(rows, "select attempt from octop_tasks where id = %s", task_id) == 2
    assert one(rows, "select count(*) from octop_attempts where task_id = %s", task_id) == 1, "the one that was lost"
    assert counts(rows, "n") == 2
    after = enqueue(rows, "noop")
    until(lambda: status(rows, after) == "success", "work goes on", first.log)
