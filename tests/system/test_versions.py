"""Code changes while tasks wait: renamed tasks, new signatures, old and new workers side by side."""

from __future__ import annotations

import signal

import pytest

from tests.system.apps.running import one, status, until
from tests.system.apps.versions import first, second

OLD = "tests.system.apps.versions.first:octop"
NEW = "tests.system.apps.versions.second:octop"
NEWER = "tests.system.apps.versions.third:octop"


@pytest.fixture(autouse=True)
def here(database, monkeypatch):
    """Point the clients of both applications at the database of the test."""
    monkeypatch.setenv("OCTOP_DSN", database.url)
    for application in (first.octop, second.octop):
        monkeypatch.setattr(application, "_dsn", database.url)
        for cached in ("settings", "_pools"):
            application.__dict__.pop(cached, None)
    yield
    for application in (first.octop, second.octop):
        application.close()
        for cached in ("settings", "_pools"):
            application.__dict__.pop(cached, None)


def result(rows, handle):
    return one(rows, "select result from octop_tasks where id = %s", str(handle.id))


def ended(rows, *handles, log=None):
    final = ("success", "frozen", "cancelled")
    until(lambda: all(status(rows, str(each.id)) in final for each in handles), "all have ended", log)


def test_C127_a_renamed_task_runs_under_its_old_name_where_the_new_one_has_an_alias(start, rows):
    handle = first.send_letter.using(delay=0.3).enqueue_sync("Ann")
    worker = start(application=NEW)
    ended(rows, handle, log=worker.log)
    assert result(rows, handle) == "a mail to Ann"
    assert one(rows, "select task_type from octop_tasks") == "send_letter"


def test_C127_without_an_alias_it_is_parked_and_comes_back_with_code_that_knows_it(start, rows):
    handle = first.send_letter.enqueue_sync("Ann")
    worker = start(application=NEWER)
    until(lambda: status(rows, str(handle.id)) == "blocked", "the task is parked", worker.log)
    assert one(rows, "select blocked_by from octop_tasks") == "task_type:send_letter"
    assert one(rows, "select attempt from octop_tasks") == 0
    worker = start(application=NEW)
    ended(rows, handle, log=worker.log)
    assert status(rows, str(handle.id)) == "success"


def test_C129_a_task_whose_function_is_gone_does_not_hold_up_those_behind_it(start, rows):
    gone = first.send_letter.using(priority=0).enqueue_sync("Ann")
    good = [second.send_mail.enqueue_sync(str(number)) for number in range(10)]
    worker = start(application=NEWER, queues={"q": 1})
    ended(rows, *good, log=worker.log)
    assert status(rows, str(gone.id)) == "blocked"


def test_C130_a_parameter_inserted_before_an_old_one_moves_nothing(start, rows):
    handle = first.invite.enqueue_sync(1, "a", True)
    worker = start(application=NEW)
    ended(rows, handle, log=worker.log)
    assert result(rows, handle) == ["second", 1, "a", None, True]


def test_C130_an_argument_that_is_gone_fails_before_the_body_with_its_name(start, rows):
    handle = first.invite.enqueue_sync(1, "a", True)
    worker = start(application=NEWER)
    ended(rows, handle, log=worker.log)
    assert status(rows, str(handle.id)) == "frozen"
    error = one(rows, "select last_error from octop_tasks where id = %s", str(handle.id))
    assert "unexpected argument 'email'" in error
    assert one(rows, "select result from octop_tasks where id = %s", str(handle.id)) is None


def test_C133_old_workers_leave_new_tasks_to_new_ones_and_nothing_is_stranded(start, rows):
    old = start(application=OLD, queues={"q": 4}).ready()
    new = start(application=NEW, queues={"q": 4}).ready()
    plain = [first.resize.enqueue_sync(f"plain {number}") for number in range(40)]
    wide = [second.resize.enqueue_sync(f"wide {number}", 200) for number in range(40)]
    ended(rows, *plain, *wide, log=old.log)
    assert {str(result(rows, each)).split()[0] for each in wide} == {"second"}
    assert one(rows, "select array_agg(distinct attempt) from octop_tasks") == [1]  # nobody's try was used up
    assert one(rows, "select array_agg(distinct status) from octop_tasks") == ["success"]

    old.stop(signal.SIGTERM)
    last = [first.resize.enqueue_sync("last plain"), second.resize.enqueue_sync("last wide")]
    ended(rows, *last, log=new.log)
    assert {result(rows, each) for each in last} == {"second last plain 100", "second last wide 100"}


def test_C133_without_new_workers_new_tasks_are_parked_and_come_back_with_the_first(start, rows):
    old = start(application=OLD).ready()
    wide = second.resize.enqueue_sync("wide")
    anyone = second.resize.using(min_version=1).enqueue_sync("anyone", 100)
    until(lambda: status(rows, str(wide.id)) == "blocked", "the new task is parked", old.log)
    assert one(rows, "select blocked_by from octop_tasks where id = %s", str(wide.id)) == "version:2:resize"
    ended(rows, anyone, log=old.log)  # asked for with min_version=1: even code that can not read it may try
    assert "unexpected argument 'width'" in one(
        rows, "select last_error from octop_tasks where id = %s", str(anyone.id)
    )
    new = start(application=NEW)
    ended(rows, wide, log=new.log)
    assert result(rows, wide) == "second wide 100"
