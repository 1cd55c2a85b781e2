"""`octop worker --processes 1-3`: processes come with the backlog, and go when they are not needed, never from under a task."""

from __future__ import annotations

import json
import time
import urllib.request

import pytest

from octop.model.errors import ConfigurationError
from octop.worker.options import WorkerOptions
from tests.system.apps.running import enqueue, one, status, until


@pytest.fixture
def soon(start, rows):
    for key, value in {"scale_seconds": 0.2, "scale_age_seconds": 0.3, "scale_quiet_seconds": 1}.items():
        rows.execute("select octop_config_set(%s, %s::jsonb)", (f"worker.{key}", json.dumps(value)))
    return start


@pytest.mark.slow
def test_processes_follow_the_backlog_and_a_busy_one_is_never_cut(soon, rows):
    worker = soon(queues={"q": 1}, processes=3, processes_min=1, grace_seconds=0.2, health_port=0).ready()
    assert len(worker.pids()) == 1
    ids = [enqueue(rows, "nap", {"seconds": 1.0}) for _ in range(9)]
    last = enqueue(rows, "nap", {"seconds": 6}, priority=9)
    until(lambda: len(worker.pids()) == 3, "there are three processes", worker.log)
    until(lambda: {status(rows, each) for each in ids} == {"success"}, "they ended", worker.log)
    until(lambda: status(rows, last) == "running", "the long one runs", worker.log)
    until(lambda: len(worker.pids()) < 3, "one that is not needed ends", worker.log)
    until(lambda: status(rows, last) == "success", "the long one ended", worker.log)
    assert one(rows, "select max(attempt) from octop_tasks") == 1
    assert one(rows, "select count(*) from octop_attempts") == 0
    until(lambda: len(worker.pids()) == 1, "one is left", worker.log)
    text = worker.text()
    assert "2 worker processes instead of 1: " in text
    assert " due, the oldest for " in text
    assert "1 worker process instead of 2: nothing is due" in text
    assert "killed" not in text
    assert worker.stop() == 0


@pytest.mark.slow
def test_a_process_that_is_not_needed_and_runs_a_task_shows_as_draining_until_it_has_ended(soon, rows):
    worker = soon(queues={"q": 1}, processes=2, processes_min=1).ready()
    ids = [enqueue(rows, "nap", {"seconds": 15}) for _ in range(2)]
    until(lambda: [status(rows, each) for each in ids] == ["running"] * 2, "both run", worker.log)
    # the first process is free again, and the second one is told to go while it works
    rows.execute(
        "select octop_cancel(id) from octop_tasks where worker_id = (select id from octop_workers order by started_at limit 1)"
    )
    until(lambda: one(rows, "select state from octop_worker_summary where state = 'draining'"), "it drains", worker.log)
    assert one(rows, "select running from octop_worker_summary where state = 'draining'") == 1
    until(lambda: {status(rows, each) for each in ids} == {"cancelled", "success"}, "it ended", worker.log)
    until(lambda: len(worker.pids()) == 1, "one is left", worker.log)


@pytest.mark.slow
def test_health_tells_of_the_number_and_is_well_while_it_changes(soon, rows):
    worker = soon(queues={"q": 1}, processes=3, processes_min=1, health_port=0).ready()
    address = until(
        lambda: next((w for w in worker.text().split() if w.startswith("http://")), ""), "a port", worker.log
    )
    address = address.partition("/healthz")[0].rstrip("/,;.")

    def look():
        with urllib.request.urlopen(f"{address}/readyz", timeout=5) as answer:
            return json.loads(answer.read())

    def ready():
        try:
            return look()
        except OSError:
            return None

    until(ready, "it is ready", worker.log)
    for _ in range(12):
        enqueue(rows, "nap", {"seconds": 0.5})
    most, end = 1, time.monotonic() + 20
    while one(rows, "select count(*) from octop_tasks where status <> 'success'") and time.monotonic() < end:
        found = look()  # an answer other than 200 raises
        most = max(most, found["scaling"]["processes"])
        assert (found["scaling"]["minimum"], found["scaling"]["maximum"]) == (1, 3)
    assert most == 3


@pytest.mark.slow
def test_a_drain_ends_all_places(soon, rows):
    for _ in range(6):
        enqueue(rows, "nap", {"seconds": 0.5})
    worker = soon(queues={"q": 1}, processes=3, processes_min=1, drain=True)
    assert worker.wait() == 0
    assert one(rows, "select count(*) from octop_tasks where status = 'success'") == 6


@pytest.mark.parametrize("bounds", [(0, 3), (4, 3), (1, 257)])
def test_bounds_that_are_none_are_refused(bounds):
    with pytest.raises(ConfigurationError):
        WorkerOptions(dsn="", processes_min=bounds[0], processes=bounds[1])


@pytest.mark.parametrize("words", ["0", "257", "0-3", "4-2", "1-", "-3", "a", "1-2-3"])
def test_the_command_refuses_what_is_no_number_of_processes(octop, words):
    octop("worker", "-A", "nothing:here", f"--processes={words}", code=2)
    assert "processes" in octop.err
