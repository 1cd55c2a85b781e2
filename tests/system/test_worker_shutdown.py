"""How workers stop, and what happens when the supervisor or the database goes away."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from pathlib import Path

import pytest

from tests.processes import children_of
from tests.system.apps.running import Starter, enqueue, one, prepare, status, until

STOPS = 4


def running(rows):
    return one(rows, "select count(*) from octop_tasks where status = 'running'")


def started(rows, times):
    return one(rows, "select count(*) from ledger where job = 'n'") == times


def test_c054_the_first_signal_lets_tasks_end_while_the_heart_beats(start, rows):
    worker = start(grace_seconds=20).ready()
    task_id = enqueue(rows, "nap", {"seconds": 4})
    until(lambda: running(rows) == 1, "it runs", worker.log)
    worker.process.send_signal(signal.SIGTERM)
    other = start().ready()
    assert worker.wait() == 0, worker.text()
    assert status(rows, task_id) == "success"
    assert one(rows, "select attempt from octop_tasks where id = %s", task_id) == 1
    assert other.process.poll() is None


def test_c012_sigterm_uses_up_no_try_however_often(start, rows):
    task_id = enqueue(
        rows, "nap", {"seconds": 60, "note": "n"}, max_retries=0
    )  # the first that counted would be the last
    for times in range(1, STOPS + 1):
        worker = start(grace_seconds=0)
        until(functools.partial(started, rows, times), "it runs", worker.log)
        assert worker.stop() == 0, worker.text()
        assert status(rows, task_id) == "pending"
    assert one(rows, "select retry_count from octop_tasks where id = %s", task_id) == 0
    assert (
        one(rows, "select count(*) from octop_attempts where task_id = %s and outcome = 'released'", task_id) == STOPS
    )


@pytest.mark.parametrize(("second", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_c056_a_second_signal_releases_at_once(start, rows, second, code):
    worker = start(grace_seconds=60).ready()
    ids = [
        enqueue(rows, "nap", {"seconds": 60}),
        enqueue(rows, "nap_in_process", {"seconds": 60}),
        enqueue(rows, "swallow"),
    ]
    until(lambda: running(rows) == 3, "all run", worker.log)
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: "running tasks have 60 s" in worker.text(), "it says so", worker.log)
    began = time.monotonic()
    assert worker.stop(second) == code, worker.text()
    assert time.monotonic() - began < 5
    assert {status(rows, task_id) for task_id in ids} == {"pending"}
    assert "Traceback" not in worker.text()


@pytest.mark.parametrize("while_it", ["starts", "is idle", "works"])
def test_c056_a_terminal_whose_ctrl_c_is_pressed_five_times_gets_its_prompt_back(start, rows, while_it):
    """A terminal signals its whole foreground group; the processes that a worker starts stand outside of it."""
    worker = start(grace_seconds=60, before=["setsid"])
    tasks = ("nap", "nap_in_thread", "nap_in_process") if while_it == "works" else ()
    ids = [enqueue(rows, task, {"seconds": 60}) for task in tasks]
    if while_it == "starts":
        until(worker.text, "it says its first word", worker.log)
    else:
        until(lambda: one(rows, "select count(*) from octop_workers") == 1, "it has registered", worker.log)
    until(lambda: running(rows) == len(ids), "all run", worker.log)

    def press():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.process.pid, signal.SIGINT)

    press()
    until(
        lambda: worker.process.poll() is not None or "running tasks have 60 s" in worker.text(),
        "it ends, or says for what it waits",
        worker.log,
    )
    for _ in range(4):
        press()
    assert worker.wait(10) in {0, 130}, worker.text()
    assert {status(rows, task_id) for task_id in ids} <= {"pending"}
    assert one(rows, "select coalesce(max(retry_count), 0) from octop_tasks") == 0
    assert one(rows, "select count(*) from octop_workers") == 0, "it has taken its leave"
    assert "Traceback" not in worker.text()


@pytest.mark.parametrize("task", ["nap_in_thread", "block", "swallow"])
def test_c055_a_task_that_does_not_end_is_given_back_in_time(start, rows, task):
    worker = start(grace_seconds=1).ready()
    task_id = enqueue(rows, task, {} if task == "swallow" else {"seconds": 60}, max_retries=1)
    until(lambda: running(rows) == 1, "it runs", worker.log)
    until(
        lambda: one(rows, "select count(*) from ledger where job = 'block'") or task != "block", "it blocks", worker.log
    )
    began = time.monotonic()
    assert worker.stop() == 0, worker.text()
    assert time.monotonic() - began < 5
    assert status(rows, task_id) == "pending"
    assert one(rows, "select retry_count from octop_tasks where id = %s", task_id) == 0


def test_workers_whose_supervisor_was_killed_end_their_tasks_and_stop(start, rows):
    worker = start(grace_seconds=20).ready()
    task_id = enqueue(rows, "nap", {"seconds": 3})
    until(lambda: running(rows) == 1, "it runs", worker.log)
    pid = worker.pids()[0]
    worker.process.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the process has stopped", worker.log)
    assert status(rows, task_id) == "success"
    assert one(rows, "select attempt from octop_tasks where id = %s", task_id) == 1
    assert one(rows, "select count(*) from octop_workers") == 0


def test_a_worker_process_that_dies_is_replaced(start, rows):
    worker = start().ready()
    pid = worker.pids()[0]
    os.kill(pid, signal.SIGKILL)
    until(lambda: worker.pids() and worker.pids() != [pid], "another was started", worker.log)
    task_id = enqueue(rows, "noop")
    until(lambda: status(rows, task_id) == "success", "it works", worker.log)
    assert worker.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a container's first process")
def test_as_process_1_of_a_container_it_ends_on_sigterm_and_takes_leave_of_orphans(start, rows):
    worker = start(before=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
    task_id = enqueue(rows, "leaves_an_orphan", {"seconds": 0.2})
    until(lambda: status(rows, task_id) == "success", "it ran", worker.log)
    (first,) = children_of(worker.process.pid)
    until(lambda: len(children_of(first)) == 1, "only the worker process is left under process 1", worker.log)
    os.kill(first, signal.SIGTERM)
    assert worker.wait(15) == 0, worker.text()
    assert one(rows, "select count(*) from octop_workers") == 0, "it has taken its leave"


def test_no_database_at_the_start_is_an_error(database, tmp_path, start):
    worker = start(dsn="host=127.0.0.1 port=1 user=nobody")
    assert worker.wait() == 4, worker.text()


def test_reload_restarts_the_worker_when_a_file_changes(start, rows, tmp_path):
    module = tmp_path / "reloaded_app.py"
    text = (
        "from octop.app import Octop\noctop = Octop()\n\n@octop.task(queue='q')\ndef answer() -> int:\n    return {}\n"
    )
    module.write_text(text.format(1))
    worker = start(application=str(module), reload=True).ready()
    first = enqueue(rows, "answer")
    until(lambda: status(rows, first) == "success", "it ran", worker.log)
    module.write_text(text.format(22))

    def answers_anew():
        task_id = enqueue(rows, "answer")
        until(lambda: status(rows, task_id) == "success", "it ran", worker.log)
        return one(rows, "select result::text from octop_tasks where id = %s", task_id) == "22"

    until(answers_anew, "the new code runs", worker.log)


@pytest.mark.slow
def test_c059_c061_tasks_and_outcomes_survive_a_restart_of_the_database(own_server, tmp_path):
    server = own_server()
    with server.database(installed=True) as database:
        prepare(database)
        start = Starter(database, tmp_path)
        try:
            worker = start().ready()
            with database.connect() as rows:
                ids = [enqueue(rows, "nap", {"seconds": 1.5}) for _ in range(5)]
                until(lambda: running(rows) == 5, "they run", worker.log)
            server.stop()
            time.sleep(2)  # the tasks end while nobody can write it down
            server.start()
            with database.connect() as rows:
                until(
                    lambda: one(rows, "select count(*) from octop_tasks where status = 'success'") == 5,
                    "kept",
                    worker.log,
                )
                assert one(rows, "select max(attempt) from octop_tasks where id = any (%s::text[]::uuid[])", ids) == 1
                assert worker.text().count("\n") < 60
                until(lambda: len(worker.pids()) == 1, "the same process is there", worker.log)
            assert worker.stop() == 0, worker.text()
        finally:
            start.close()
