"""What who waits for a task is told on stderr: why it does not run, what failed, and how to wait again."""

import re
import types

import pytest

from octop.cli.tasks import wait
from tests.system.by_hand import enqueue, finish, freeze


@pytest.fixture
def meanwhile(monkeypatch):
    """Let things happen instead of the pauses of a wait, each of which takes three seconds."""

    def happens(*things):
        left, now = list(things), [0.0]

        def sleep(_seconds):
            now[0] += 3
            left.pop(0)()

        monkeypatch.setattr(wait, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))

    return happens


def nothing():
    pass


def ctrl_c():
    raise KeyboardInterrupt


def test_who_waits_for_a_task_that_nobody_runs_is_told_why_once_and_how_to_wait_again(octop, rows, meanwhile):
    pause = "select octop_pause('default', 'lunch')"
    meanwhile(nothing, nothing, lambda: rows.execute(pause), ctrl_c)
    octop("enqueue", "npa", "--wait", code=130)
    ((task_id,),) = rows.execute("select id::text from octop_tasks").fetchall()
    lines = [re.sub(r", by \S+ since [^.]*\.", ".", each) for each in octop.err.splitlines()]
    assert lines == [
        f"waiting for {task_id}: It is due, and no living worker serves the queue default and knows the type npa."
        " Start one: octop worker -A module:attribute, or octop dev while you write",
        f"waiting for {task_id}: The queue default is paused (lunch). To go on: octop queues resume default",
        f"octop: interrupted; task {task_id} goes on: octop tasks wait {task_id}",
    ]


def test_each_attempt_that_fails_is_told_while_one_waits(octop, rows, database, meanwhile):
    task_id = enqueue(octop, "fails", "--max-retries", 2)
    due = "update octop_tasks_live set scheduled_at = now()"
    meanwhile(
        lambda: freeze(database, task_id, "TypeError", "unexpected argument 'userid'\nhint"),
        lambda: rows.execute(due),
        lambda: finish(database),
    )
    assert octop("tasks", "wait", task_id) == f"{task_id} success 3\n"
    first, *more = octop.err.splitlines()
    assert first.startswith("attempt 1 failed: TypeError: unexpected argument 'userid'; retry 1 of 2 in ")
    assert all("waiting for" in each for each in more)


def test_quiet_silences_it_and_before_two_seconds_nothing_is_said(octop, meanwhile):
    meanwhile(nothing, nothing)
    octop("--quiet", "enqueue", "npa", "--wait-timeout", 5, code=7)
    assert "waiting for" not in octop.err
    meanwhile(nothing)
    octop("enqueue", "npa", "--wait-timeout", 3, code=7)
    assert "waiting for" not in octop.err


def test_a_producer_waits_without_the_right_to_see_workers(octop, database, meanwhile):
    dsn = database.url_as(database.make_role("octop_producer"))
    task_id = octop("--dsn", dsn, "enqueue", "npa").strip()
    meanwhile(nothing, nothing)
    octop("--dsn", dsn, "tasks", "wait", task_id, "--timeout", 5, code=7)
    assert octop.err.splitlines()[0].startswith(f"waiting for {task_id}: It is due, and no living worker serves")


def test_a_wait_that_ends_between_two_tries_says_so(octop, database):
    task_id = enqueue(octop, "fails", "--max-retries", 2)
    freeze(database, task_id)
    octop("tasks", "wait", task_id, "--timeout", "20ms", code=7)
    assert f"task {task_id} still waits for its next try after 20 ms" in octop.err


def test_why_a_task_is_frozen_its_error_and_the_cure_are_lines_of_their_own(octop, database):
    expected = {0: "it has no retries", 1: "no retry follows its last error"}
    for retries, why in expected.items():
        task_id = enqueue(octop, "fails", "--max-retries", retries)
        with database.connect() as connection:
            connection.execute('update octop_tasks_live set retry_policy = \'{"final": ["ValueError"]}\'')
        freeze(database, task_id, "ValueError", "over its limit")
        lines = [line.removeprefix("frozen").strip() for line in octop("tasks", "why", task_id).splitlines()]
        assert lines == [
            f"Nothing by itself: {why}.",
            "The last error: ValueError: over its limit",
            f"To run it again: octop tasks retry {task_id}",
        ]
        assert f"next  {lines[0]}\n      {lines[1]}\n" in octop("tasks", "show", task_id)
