"""What a transactional task does on its connection, and its success, are one: both once, or neither."""

from __future__ import annotations

import pytest

from tests.system.apps.running import enqueue, one, status, until

APPLICATION = "tests.system.apps.paying:octop"
PLACES = ("pay", "pay_in_thread", "pay_in_process")


@pytest.fixture
def payments(rows):
    rows.execute("create table payments (job text, attempt int); create table deaths (step text)")
    return lambda job: [row[0] for row in rows.execute("select attempt from payments where job = %s", (job,))]


def receipts(rows):
    return one(rows, "select count(*) from octop_tasks where queue = 'receipts'")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("step", "attempt"),
    [
        ("begun", 2),
        ("paid", 2),
        ("success written, not committed", 2),
        ("committed, not known to the worker", 1),
    ],
)
@pytest.mark.long
def test_a_kill_at_any_step_leaves_everything_or_nothing(start, rows, payments, place, step, attempt):
    rows.execute("insert into deaths values (%s)", (step,))
    worker = start(application=APPLICATION).ready()
    task_id = enqueue(rows, place, {"job": "a"})
    until(lambda: status(rows, task_id) == "success", "it succeeded", worker.log)
    until(lambda: "ended by SIGKILL" in worker.text() or "SIGKILL" in worker.text(), "the process died", worker.log)
    assert one(rows, "select count(*) from deaths") == 0, "it was killed there"
    assert payments("a") == [attempt]
    assert receipts(rows) == 1, "what it enqueued on that connection belongs to it"
    assert one(rows, "select result from octop_tasks where id = %s", task_id) == "a"


@pytest.mark.parametrize("how", ["raise", "snooze", "retry", "commit", "terminated", "over its limit"])
def test_only_a_success_keeps_what_was_done(start, rows, payments, how):
    worker = start(application=APPLICATION).ready()
    task_id = enqueue(rows, "ends_otherwise", {"how": how}, timeout_seconds=2)
    until(lambda: status(rows, task_id) == "success", "it succeeded", worker.log)
    assert payments("ends otherwise") == [2], "of the first attempt nothing is left"
    if how == "commit":
        message = one(rows, "select error_message from octop_attempts where task_id = %s and attempt = 1", task_id)
        assert "commit() is forbidden in a transactional task" in message


@pytest.mark.parametrize(("what", "end"), [("cancel", "cancelled"), ("too large", "frozen"), ("no JSON", "frozen")])
def test_a_result_that_can_not_be_kept_keeps_nothing(start, rows, payments, what, end):
    worker = start(application=APPLICATION).ready()
    task_id = enqueue(rows, "can_not_be_kept", {"what": what})
    until(lambda: status(rows, task_id) == end, f"it is {end}", worker.log)
    assert payments("ends otherwise") == []


@pytest.mark.parametrize("place", PLACES)
def test_an_attempt_that_was_taken_away_commits_nothing(start, rows, payments, place):
    worker = start(application=APPLICATION).ready()
    task_id = enqueue(rows, place, {"job": "a", "seconds": 1.5})
    until(lambda: status(rows, task_id) == "running", "it runs", worker.log)
    rows.execute("update octop_tasks set status = 'pending' where id = %s", (task_id,))
    until(lambda: status(rows, task_id) == "success", "it succeeded", worker.log)
    assert payments("a") == [one(rows, "select attempt from octop_tasks where id = %s", task_id)] != [1]
    assert receipts(rows) == 1


def test_a_connection_that_died_while_nobody_used_it_costs_no_try(start, rows, payments):
    worker = start(application=APPLICATION).ready()
    for number, place in enumerate(("pay", "pay_in_thread") * 2):  # a child keeps none
        enqueue(rows, place, {"job": str(number)})
        until(
            lambda: one(rows, "select bool_and(status = 'success') from octop_tasks where queue = 'q'"),
            "it succeeded",
            worker.log,
        )
        killed = rows.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'octop worker task'"
        )
        assert killed.rowcount >= 1
        assert payments(str(number)) == [1]


def test_a_person_who_holds_the_row_is_waited_for(start, rows, payments, database):
    worker = start(application=APPLICATION).ready()
    task_id = enqueue(rows, "pay", {"job": "a", "seconds": 0.5})
    until(lambda: status(rows, task_id) == "running", "it runs", worker.log)
    with database.connect() as other, other.transaction():
        other.execute("select from octop_tasks_live where id = %s for update", (task_id,))
        waiting = "select count(*) from pg_stat_activity where application_name = 'octop worker task' and state = 'idle in transaction'"
        until(lambda: one(rows, f"{waiting} and query like 'rollback%%'"), "it tried in vain", worker.log)
        assert status(rows, task_id) == "running"
    until(lambda: status(rows, task_id) == "success", "it succeeded", worker.log)
    assert payments("a") == [1]


@pytest.mark.parametrize("task", ["is_taken_away", "is_taken_away_in_thread"])
def test_the_fence_of_the_success_undoes_what_was_done_when_it_is_no_longer_ours(start, rows, payments, task):
    # told of nothing, and without a place for the next attempt, which would cut this one
    worker = start(application="tests.system.apps.deaf:octop", queues={"q": 1}).ready()
    task_id = enqueue(rows, task)
    until(lambda: status(rows, task_id) == "success", "it succeeded", worker.log)
    assert payments("taken") == [2]


def test_the_connection_is_the_users(start, rows, payments):
    worker = start(application=APPLICATION).ready()
    task_id = enqueue(rows, "keeps_the_connection")
    until(lambda: status(rows, task_id) == "success", "it succeeded", worker.log)
    assert one(rows, "select result from octop_tasks where id = %s", task_id) == "UUID datetime read committed"
    task_id = enqueue(rows, "not_transactional")
    until(lambda: status(rows, task_id) == "frozen", "it failed", worker.log)
    assert "not_transactional has no transaction here" in one(
        rows, "select last_error from octop_tasks where id = %s", task_id
    )


def test_one_that_kills_its_process_costs_its_neighbours_one_try(start, rows, payments):
    worker = start(application=APPLICATION).ready()
    task_id = enqueue(rows, "kills_its_process")
    until(lambda: status(rows, task_id) == "frozen", "it is frozen", worker.log)
    assert one(rows, "select attempt from octop_tasks where id = %s", task_id) == 3
    assert worker.text().count("starting another") == 1, "the other tries had a process of their own"
    assert payments("killed") == []
