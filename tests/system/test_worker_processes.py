"""Tasks in processes of their own, on a real worker: one question, one answer."""

from __future__ import annotations

import pytest

from tests.processes import is_alive
from tests.system.apps.running import enqueue, one, status, stopped, until

APPLICATION = "tests.system.apps.processes:octop"


@pytest.fixture
def worker(start):
    return start(application=APPLICATION, queues={"q": 1}).ready()


def ended(rows, ids, worker):
    final = ("success", "frozen", "cancelled")
    until(lambda: all(status(rows, task_id) in final for task_id in ids), "all have ended", worker.log, seconds=60)


def test_each_task_gets_its_own_answer_beside_forked_copies_that_come_back(worker, rows):
    expected = {}
    for number in range(60):
        if number % 10 == 0:
            expected[enqueue(rows, "fork", {"seconds": 0.05 + number / 200})] = "FORKER"
        else:
            expected[enqueue(rows, "say", {"word": f"word {number}"})] = f"word {number}"
    ended(rows, expected, worker)
    found = dict(rows.execute("select id::text, result #>> '{}' from octop_tasks").fetchall())
    assert found == expected
    assert one(rows, "select max(attempt) from octop_tasks") == 1


def test_a_result_that_can_not_be_kept_fails_once_in_a_process_as_in_a_thread(worker, rows):
    kinds = ("large", "huge", "deep", "levels", "object", "coroutine", "unbound")
    ids = {
        (place, which): enqueue(rows, f"result_in_{place}", {"which": which})
        for which in kinds
        for place in ("process", "thread")
        if (place, which) != ("thread", "unbound")
    }
    ended(rows, list(ids.values()), worker)
    for key, task_id in ids.items():
        assert status(rows, task_id) == "frozen", key
        assert one(rows, "select attempt from octop_tasks where id = %s", task_id) == 1, key

    def name(place, which):
        return one(rows, "select error_class from octop_attempts where task_id = %s", ids[place, which])

    for which in kinds[:-1]:
        assert name("process", which) == name("thread", which), which
    assert name("process", "large").endswith("ResultTooLargeError")
    assert name("process", "coroutine").endswith("NotJsonError")
    assert name("process", "unbound").endswith("NotJsonError")


def test_an_exception_that_refuses_to_be_looked_at_is_stored_and_the_next_task_runs(worker, rows):
    pids = worker.pids()
    ids = {which: enqueue(rows, "fail", {"which": which}) for which in ("UnboundError", "SilentError", "OddCancel")}
    number = enqueue(rows, "fail", {"which": "Cancel"})
    last = enqueue(rows, "say", {"word": "last"})
    ended(rows, [*ids.values(), number, last], worker)
    assert (status(rows, number), one(rows, "select last_error from octop_tasks where id = %s", number)) == (
        "cancelled",
        "5",
    )
    outcomes = rows.execute("select outcome from octop_attempts where task_id::text = any(%s)", (list(ids.values()),))
    assert [row[0] for row in outcomes] == ["failure"] * 3
    assert status(rows, last) == "success"
    assert worker.pids() == pids


def test_a_task_over_its_limit_ends_though_its_worker_stands_still(worker, rows, tmp_path):
    """Others end the attempt in the database soon after the limit, and begin the next one: the process must not run beside it."""
    (pid,) = worker.pids()
    begun = tmp_path / "begun"
    task_id = enqueue(rows, "hold", {"seconds": 3_000, "begun": str(begun)})
    child = int(until(lambda: begun.exists() and begun.read_text(), "it has begun", worker.log))
    with stopped(pid):
        until(lambda: not is_alive(child), "its process has ended", worker.log)
        assert status(rows, task_id) == "running", "nobody else is there who would end it"
    ended(rows, [task_id], worker)
    found = rows.execute("select outcome, error_message from octop_attempts where task_id = %s", (task_id,)).fetchall()
    assert found == [("timeout", "over its time limit of 2 s")]
    assert "hold" in worker.log.read_text(), "the log says where it stood"
