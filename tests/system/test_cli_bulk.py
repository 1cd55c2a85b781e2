"""`octop tasks retry`, `cancel` and `delete` by a filter."""

import dataclasses
import sys
import uuid

import click
import pytest

from octop.cli import progress
from octop.cli.tasks import acts
from octop.engine import calls
from tests.system.by_hand import add_frozen, enqueue, fill_shop, finish, statuses


@pytest.fixture
def shop(octop, database):
    return fill_shop(octop, database)


@pytest.fixture
def person(monkeypatch):
    """Sit at a terminal and answer each question."""
    questions = []

    def sits(answer):
        monkeypatch.setattr("octop.cli.tasks.bulk.can_ask", lambda: True)

        def confirm(text, err):
            questions.append(text)
            assert err
            return answer

        monkeypatch.setattr(click, "confirm", confirm)
        return questions

    return sits


def test_many_are_retried_in_steps_of_their_own_and_each_is_in_the_audit(octop, rows):
    add_frozen(rows, 1203)
    add_frozen(rows, 5, task_type="other")
    assert octop.json("tasks", "retry", "type:fails", "--yes") == {"count": 1203, "verdicts": {"retried": 1203}}
    assert statuses(rows) == {"pending": 1203, "frozen": 5}
    (steps, subjects) = rows.execute(
        "select count(distinct xid), count(distinct subject) from octop_audit where action = 'retry'"
    ).fetchone()
    assert (steps, subjects) == (3, 1203)
    assert octop("tasks", "cancel", "type:fails", "--yes", "--reason", "enough") == "1,203 tasks cancelled.\n"
    assert octop("tasks", "delete", "type:other", "-y") == "5 tasks deleted.\n"
    assert statuses(rows) == {"cancelled": 1203}
    octop("tasks", "delete", "type:other", "-y")
    assert "No such task that is frozen" in octop.err


def test_a_dry_run_says_how_many_shows_some_and_does_nothing(octop, rows, shop):
    add_frozen(rows, 30)
    before = statuses(rows)
    text = octop("tasks", "retry", "type:fails", "--dry-run")
    assert text.startswith("Would retry 32 failed or frozen tasks (type:fails); nothing was done.\n")
    assert len(text.splitlines()) == 1 + 1 + 10
    assert "The latest 10 of 32." in octop.err
    assert octop("tasks", "cancel", "id:01111111", "--queue", "default", "--dry-run").startswith(
        "Would cancel 1 unfinished task (id:01111111 queue:default); nothing was done.\n"
    )
    found = octop.json("tasks", "cancel", "id:01111111", "--dry-run")
    assert (found["count"], [each["id"] for each in found["tasks"]]) == (1, [shop["frozen"]])
    assert octop.json("tasks", "delete", shop["frozen"], "--dry-run") == {"count": 1, "ids": [shop["frozen"]]}
    assert octop.json("tasks", "delete", "type:fails", "--limit", 3, "--dry-run")["count"] == 3
    assert octop.json("tasks", "retry", "--type", "fails", "--since", "1h", "--dry-run")["count"] == 32
    assert octop.json("tasks", "retry", "--type", "wombat", "--since", "1h", "--dry-run") == {"count": 0, "tasks": []}
    assert statuses(rows) == before
    assert rows.execute(
        "select count(*) from octop_audit where action in ('retry', 'cancel', 'delete')"
    ).fetchone() == (0,)


def test_without_a_terminal_a_filter_acts_with_yes_alone_and_ids_at_once(octop, rows, shop):
    for act in ("retry", "cancel", "delete"):
        octop("tasks", act, "type:*", code=2)
        assert "only with --yes" in octop.err
        assert "--dry-run" in octop.err
    assert statuses(rows) == {"pending": 2, "failed": 1, "frozen": 1, "success": 1}
    octop("tasks", "cancel", shop["pending"], shop["later"])
    assert statuses(rows) == {"cancelled": 2, "failed": 1, "frozen": 1, "success": 1}


def test_a_person_is_asked_once_with_the_number_about_a_filter_and_about_several_ids(octop, rows, shop, person):
    questions = person(answer=False)
    octop("tasks", "retry", "type:fails", code=1)
    assert octop.err == "Nothing was done.\n"
    octop("tasks", "cancel", shop["pending"], shop["later"], code=1)
    assert questions == ["Retry 2 failed or frozen tasks (type:fails)?", "Cancel 2 tasks?"]
    octop("tasks", "cancel", "status:pending", "type:send_*,SendMail", code=1)
    assert questions.pop() == "Cancel 2 tasks (status:pending type:send_*,SendMail)?"  # the filter as it was typed
    assert statuses(rows) == {"pending": 2, "failed": 1, "frozen": 1, "success": 1}
    octop("tasks", "cancel", "status:frozen", code=1)
    assert questions.pop() == "Cancel 1 task (status:frozen)?"  # the filter may mean another than one thinks
    octop("tasks", "delete", "status:frozen", "--yes")
    octop("tasks", "cancel", shop["pending"])
    octop("tasks", "cancel", "queue:nosuch")
    assert "No such task" in octop.err
    octop("tasks", "cancel", "queue:*", "--yes")
    assert len(questions) == 2
    assert statuses(rows) == {"cancelled": 3, "success": 1}
    person(answer=True)
    octop("tasks", "retry", "status:cancelled")
    assert questions[2:] == ["Retry 3 tasks (status:cancelled)?"]
    assert statuses(rows) == {"cancelled": 3, "success": 1, "pending": 3}


def test_retry_by_a_filter_means_frozen_and_failed_unless_it_names_a_status(octop, rows, shop):
    assert octop("tasks", "retry", "queue:*", "--yes") == "2 tasks pending again.\n"
    assert statuses(rows) == {"pending": 4, "success": 1}
    assert (
        octop("tasks", "retry", "status:success,running", "--yes") == "1 task had ended, and run again as new tasks.\n"
    )
    assert "running left out" in octop.err
    assert statuses(rows) == {"pending": 5, "success": 1}


def test_what_an_act_is_not_for_is_said_with_what_to_do(octop, shop):
    for act, word, says in (
        (
            "delete",
            "status:success",
            "delete is for frozen; this filter asks for success. What is not finished can be cancelled",
        ),
        ("delete", "-status:frozen", "history.retention_days"),
        ("cancel", "status:success", "Finished tasks stay what they are"),
        ("retry", "status:running", "Running and blocked tasks are cancelled first"),
    ):
        octop("tasks", act, word, "--yes", code=2)
        assert says in octop.err
    octop("tasks", "delete", shop["pending"], code=8)
    assert "is pending, and only frozen tasks can be deleted" in octop.err
    octop("tasks", "delete", str(uuid.uuid4()), code=3)
    assert octop.json("tasks", "delete", shop["frozen"]) == [{"id": shop["frozen"], "verdict": "deleted"}]
    octop("tasks", "show", shop["frozen"], code=3)


def test_ids_and_filters_do_not_mix_and_nothing_is_meant_by_nothing(octop, shop):
    for act in ("retry", "cancel", "delete"):
        octop("tasks", act, code=2)
        assert "name the tasks" in octop.err
        octop("tasks", act, shop["pending"], "type:*", "--yes", code=2)
        assert "not by both" in octop.err
        octop("tasks", act, shop["pending"], "--limit", 1, code=2)
        octop("tasks", act, "failed", code=2)
        assert "Did you mean status:failed?" in octop.err
        octop("tasks", act, "wombat", code=2)
        assert "not a task's id" in octop.err


def test_a_limit_takes_the_latest(octop, rows):
    add_frozen(rows, 3)
    (latest,) = octop.json("tasks", "list", "--limit", 1)
    assert octop.json("tasks", "delete", "status:frozen", "--limit", 1, "--yes") == {
        "count": 1,
        "verdicts": {"deleted": 1},
    }
    octop("tasks", "show", latest["id"], code=3)


def test_a_bar_is_shown_on_a_terminal_alone(octop, rows, monkeypatch):
    add_frozen(rows, 600)
    octop("tasks", "export")
    assert octop.err == ""
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0)
    monkeypatch.setenv("TERM", "xterm")  # a dumb terminal gets no bar
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    octop("tasks", "export", "--quiet")
    assert octop.err == ""
    octop("tasks", "export")
    assert "export 600" in octop.err
    octop("tasks", "delete", "status:frozen", "--yes")
    assert "600/600" in octop.err


def test_an_act_that_is_interrupted_says_how_far_it_came_and_goes_on_when_repeated(octop, rows, monkeypatch):
    add_frozen(rows, 1200)
    steps = []
    act = calls.octop_retry_many

    def interrupted(ids):
        steps.append(len(ids))
        if len(steps) == 3:
            raise KeyboardInterrupt
        return act(ids)

    monkeypatch.setattr("octop.cli.tasks.acts.RETRY", dataclasses.replace(acts.RETRY, many=interrupted))
    octop("tasks", "retry", "status:frozen", "--yes", code=130)
    assert (
        "stopped after 1,000 tasks: what was done stays done, and the same command goes on with the rest" in octop.err
    )
    assert statuses(rows) == {"pending": 1000, "frozen": 200}
    assert octop.json("tasks", "retry", "status:frozen", "--yes")["count"] == 200
    assert steps == [500, 500, 200, 200]


def test_what_is_repeated_and_ends_meanwhile_is_not_repeated_again(octop, rows, database, monkeypatch):
    # ids that a client chose are in no order: those of the repetitions lie between them, and meet the pages to come
    rows.execute(
        "insert into octop_tasks_done (id, task_type, status, completed_at)"
        " select gen_random_uuid(), 'fails', 'success', _octop_now() from generate_series(1, 1100)"
    )
    act = calls.octop_retry_many

    def drained(ids):
        finish(database, 500)  # those of the step before
        return act(ids)

    monkeypatch.setattr("octop.cli.tasks.acts.RETRY", dataclasses.replace(acts.RETRY, many=drained))
    assert octop.json("tasks", "retry", "status:success", "--yes") == {"count": 1100, "verdicts": {"repeated": 1100}}
    assert statuses(rows) == {"success": 2100, "pending": 100}
    assert rows.execute(
        "select count(*), count(distinct retry_of) from octop_tasks where retry_of is not null"
    ).fetchone() == (1100, 1100)


def test_one_task_that_cannot_be_repeated_does_not_stop_the_others(octop, rows, database):
    big = enqueue(octop, "fails", "text=" + "x" * 2000)
    small = enqueue(octop, "fails")
    finish(database)
    # a rule of the DBA's own, made later; a limit of the configuration holds for what is enqueued, not for what was
    octop("config", "set", "task.payload_bytes_max", 1024)
    rows.execute(
        "alter table octop_tasks_live add constraint ours_are_short check (octet_length(payload::text) < 1000) not valid"
    )
    assert octop("tasks", "retry", "status:success", "--yes", code=2).splitlines() == [
        "1 task had ended, and run again as new tasks.",
        "1 task refused.",
    ]
    assert f"{big}: " in octop.err
    assert "ours_are_short" in octop.err
    assert rows.execute("select retry_of::text from octop_tasks where status = 'pending'").fetchall() == [(small,)]


def test_an_operator_may_act_and_a_viewer_look(octop, rows, database):
    add_frozen(rows, 2)
    viewer, operator = (database.url_as(database.make_role(f"octop_{role}")) for role in ("viewer", "operator"))
    assert len(octop.json("--dsn", viewer, "tasks", "list", "payload.a:1", "-worker:x")) == 0
    assert len(octop.json("--dsn", viewer, "tasks", "list", "status:frozen", "-worker:x")) == 2
    octop("--dsn", viewer, "tasks", "retry", "status:frozen", "--yes", code=6)
    octop("--dsn", operator, "tasks", "retry", "status:frozen", "--yes")
    assert statuses(rows) == {"pending": 2}
    assert octop.json("--dsn", viewer, "failures", "status:pending") == []
