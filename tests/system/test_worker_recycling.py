"""Worker processes that have served make room for fresh ones between tasks, and no task loses anything by it."""

from __future__ import annotations

import time

from octop.worker.memory import MB, resident_bytes
from tests.system.apps.probing import Probe
from tests.system.apps.running import enqueue, one, status, until

APPLICATION = "tests.system.apps.growing:octop"


def results(rows):
    """Count the tasks that each process has run."""
    return dict(
        rows.execute("select (result #>> '{}')::int, count(*) from octop_tasks where status = 'success' group by 1")
    )


def all_ended(rows, count):
    return one(rows, "select count(*) from octop_tasks where status in ('success', 'frozen')") == count


def untouched(rows):
    """Tell whether each task ran once, from its start to its end, and nobody was lost or released."""
    counts = rows.execute("select min(attempt), max(attempt), max(retry_count) from octop_tasks").fetchone()
    return (*counts, one(rows, "select count(*) from octop_attempts")) == (1, 1, 0, 0)


def test_a_process_runs_as_many_tasks_as_it_may_and_the_next_one_takes_over(start, rows):
    rows.execute("select octop_enqueue('where', '{\"seconds\": 0.05}', queue => 'q') from generate_series(1, 20)")
    worker = start(application=APPLICATION, max_tasks_per_process=5, queues={"q": 8})
    until(lambda: all_ended(rows, 20), "all have ended", worker.log, seconds=60)
    assert sorted(results(rows).values()) == [5, 5, 5, 5], worker.text()
    assert untouched(rows)
    assert worker.text().count("is replaced: it has run 5 tasks") >= 3
    assert "starting another" not in worker.text(), "it is no crash"
    assert worker.stop() == 0, worker.text()
    assert one(rows, "select count(*) from octop_workers") == 0


def test_the_end_of_a_process_that_has_served_cuts_no_task_and_a_signal_does(start, rows):
    worker = start(application=APPLICATION, max_tasks_per_process=3, queues={"q": 8}, grace_seconds=0).ready()
    (first,) = worker.pids()
    long = enqueue(rows, "where", {"seconds": 4})
    for _ in range(2):
        enqueue(rows, "where")
    late = enqueue(rows, "where", {"seconds": 60})
    until(lambda: status(rows, long) == "success", "it ends in its own time, whatever the grace", worker.log)
    until(lambda: status(rows, late) == "running", "the next process runs the fourth", worker.log)
    assert results(rows) == {first: 3}
    assert worker.pids() != [first]
    assert untouched(rows)
    for _ in range(2):
        enqueue(rows, "where")
    until(lambda: len(results(rows)) == 2, "it has served, but for one that runs", worker.log)
    assert worker.stop() == 0, worker.text()
    assert status(rows, late) == "pending"
    assert one(rows, "select retry_count from octop_tasks where id = %s", late) == 0


def test_a_process_over_its_memory_is_replaced_when_its_tasks_have_ended(start, rows):
    worker = start(application=APPLICATION, max_memory_mb=200, queues={"q": 8}).ready()
    (first,) = worker.pids()
    assert resident_bytes(first) < 150 * MB
    small = [enqueue(rows, "grow", {"megabytes": 1}) for _ in range(3)]
    until(lambda: all(status(rows, each) == "success" for each in small), "they ended", worker.log)
    large = enqueue(rows, "grow", {"megabytes": 250, "seconds": 4})
    until(lambda: status(rows, large) == "running" and resident_bytes(first) > 200 * MB, "it is heavy", worker.log)
    seen_at = time.monotonic()
    until(lambda: time.monotonic() > seen_at + 1.5, "it has weighed itself")
    waits = enqueue(rows, "where")
    until(lambda: status(rows, large) == "success", "the large one ends in its own time", worker.log)
    until(lambda: status(rows, waits) == "success", "the other one ran", worker.log)
    ran_in = dict(rows.execute("select id::text, (result #>> '{}')::int from octop_tasks").fetchall())
    assert ran_in[large] == first
    assert ran_in[waits] != first, "a heavy process claims no more"
    assert untouched(rows)
    assert "of memory, more than 200" in worker.text()
    assert "starting another" not in worker.text()


def test_an_application_that_is_over_the_cap_from_the_start_still_works(start, rows):
    ids = [enqueue(rows, "where") for _ in range(2)]
    worker = start(application=APPLICATION, max_memory_mb=1, queues={"q": 1})
    until(lambda: all(status(rows, each) == "success" for each in ids), "both ran", worker.log)
    until(lambda: "more than the cap of 1 MB: each task" in worker.text(), "it says so", worker.log)
    assert untouched(rows)


def test_the_process_of_a_task_that_grew_gets_no_other(start, rows):
    worker = start(application=APPLICATION, max_memory_mb=200, queues={"q": 1}).ready()
    for megabytes in (1, 1, 250, 1):
        task_id = enqueue(rows, "grow_in_process", {"megabytes": megabytes})
        until(lambda: status(rows, task_id) == "success", "it ended", worker.log)  # noqa: B023 - it is called here
    pids = [row[0] for row in rows.execute("select (result #>> '{}')::int from octop_tasks order by seq")]
    assert pids[0] == pids[1] == pids[2] != pids[3]
    assert "is replaced" not in worker.text(), "the worker itself is light"


def test_several_processes_are_replaced_and_stay_green(start, rows):
    for name, value in (("lease_seconds", 30), ("heartbeat_seconds", 10)):
        rows.execute("select octop_config_set('worker.' || %s, to_jsonb(%s::int))", (name, value))
    worker = start(application=APPLICATION, max_tasks_per_process=10, processes=2, queues={"q": 2}, health_port=0)
    probe = Probe(worker).green()
    rows.execute("select octop_enqueue('where', '{\"seconds\": 0.1}', queue => 'q') from generate_series(1, 40)")
    answers = []

    def look():
        answers.append(probe("/readyz"))
        return all_ended(rows, 40)

    until(look, "all have ended", worker.log, seconds=60)
    assert [body for code, body in answers if code != 200] == []
    assert any(row["state"] != "working" for _, body in answers for row in body["processes"]), (
        "it was looked at often enough"
    )
    assert max(results(rows).values()) <= 10
    assert len(results(rows)) >= 4
    assert untouched(rows)


def test_the_hooks_of_the_last_task_of_a_process_are_called(start, rows):
    worker = start(application=APPLICATION, max_tasks_per_process=1, queues={"q": 1})
    ids = [enqueue(rows, "fail") for _ in range(3)]
    until(lambda: {status(rows, each) for each in ids} == {"frozen"}, "all froze", worker.log)
    assert worker.stop() == 0, worker.text()
    told = {row[0] for row in rows.execute("select job from ledger where job like 'gave up%'")}
    assert told == {f"gave up {each}" for each in ids}


def test_drain_ends_although_the_last_process_has_just_served(start, rows):
    for _ in range(4):
        enqueue(rows, "where")
    worker = start(application=APPLICATION, max_tasks_per_process=2, queues={"q": 2}, drain=True)
    assert worker.wait(60) == 0, worker.text()
    assert sorted(results(rows).values()) == [2, 2]
