"""What people and programs do to tasks and queues: each act is one function, in the audit, and says what it did."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest

from tests.sql.crew import acts, add, add_many, column, do, refused, rows, task, value


def in_status(dba, hire, status):
    """Make one task in a status; return its id and, when it runs, its worker with the claim."""
    worker = hire(types=["t"])
    if status == "blocked":
        task_id = add(dba, "unknown")
        worker.exchange(1)
        return task_id, worker, None
    task_id = add(dba, max_retries=0 if status == "frozen" else 3, retry_policy='{"delays": [60]}')
    claimed = worker.claim_one() if status != "pending" else None
    if status == "success":
        worker.succeed(claimed, result="1")
    elif status in {"failed", "frozen"}:
        worker.end(claimed)
    elif status == "cancelled":
        worker.end(claimed, "cancelled")
    assert task(dba, task_id)["status"] == status
    return task_id, worker, claimed


@pytest.mark.parametrize("status", ["pending", "failed", "blocked", "frozen"])
def test_cancels_what_does_not_run_at_once_with_reason_and_audit(database, dba, hire, operator, status):
    now = database.clock.advance(0)
    task_id, worker, _ = in_status(dba, hire, status)
    assert value(operator, "select octop_cancel(%s, 'not needed')", task_id) == "cancelled"
    found = task(dba, task_id)
    assert (found["status"], found["completed_at"], found["last_error"]) == ("cancelled", now, "not needed")
    assert (found["blocked_by"], found["worker_id"], found["claim_id"]) == (None,) * 3
    assert value(operator, "select octop_cancel(%s)", task_id) == "cancelled"  # again: harmless
    assert acts(dba) == [("octop_operator", "desk", "cancel", task_id, {"was": status, "reason": "not needed"})]
    assert worker.claim(5) == []


def test_a_running_task_is_asked_and_its_worker_told(database, dba, hire, operator):
    task_id, worker, claimed = in_status(dba, hire, "running")
    with database.connect() as ear:
        ear.execute("listen octop_wake")
        assert value(operator, "select octop_cancel(%s)", task_id) == "requested"
        assert [each.payload for each in ear.notifies(timeout=5, stop_after=1)] == [""]
    first = task(dba, task_id)["cancel_requested_at"]
    assert value(operator, "select octop_cancel(%s)", task_id) == "requested"
    assert task(dba, task_id)["cancel_requested_at"] == first
    assert worker.end(claimed, "cancelled", error_message="asked for") == "cancelled"
    assert task(dba, task_id)["last_error"] == "asked for"


def test_a_task_that_finished_or_never_was_cannot_be_cancelled(dba, hire, operator):
    task_id, *_ = in_status(dba, hire, "success")
    refused("OC104", operator, "select octop_cancel(%s)", task_id)
    refused("OC103", operator, "select octop_cancel(%s)", uuid4())
    assert "the id of the task is null" in refused("OC103", operator, "select octop_cancel(null)")
    assert acts(dba) == []


@pytest.mark.parametrize("status", ["frozen", "failed", "pending"])
def test_retry_of_a_waiting_or_frozen_task_is_the_same_task_now(database, dba, hire, operator, status):
    task_id, worker, _ = in_status(dba, hire, status)
    do(dba, "update octop_tasks set scheduled_at = '2900-01-01 00:00:00+00' where id = %s", task_id)
    now = database.clock.advance(0)
    assert str(value(operator, "select octop_retry(%s)", task_id)) == task_id
    found = task(dba, task_id)
    assert (found["status"], found["scheduled_at"]) == ("pending", now)
    assert found["retry_count"] == (1 if status == "failed" else 0)
    assert acts(dba)[-1][2:4] == ("retry", task_id)
    assert worker.claim_one().id == task_id


@pytest.mark.parametrize("status", ["success", "cancelled"])
def test_retry_of_a_finished_task_makes_a_new_one_that_names_the_old(dba, hire, operator, status):
    task_id, worker, _ = in_status(dba, hire, status)
    new = value(operator, "select octop_retry(%s)", task_id)
    assert str(new) != task_id
    old, again = task(dba, task_id), task(dba, new)
    assert old["status"] == status
    assert (again["status"], str(again["retry_of"]), again["attempt"]) == ("pending", task_id, 0)
    for same in (
        "task_type",
        "queue",
        "lane",
        "tenant",
        "payload",
        "priority",
        "max_retries",
        "timeout_seconds",
        "retry_policy",
        "tags",
        "meta",
    ):
        assert again[same] == old[same], same
    assert acts(dba)[-1][2:] == ("retry", task_id, {"was": status, "new": str(new)})
    assert worker.claim_one().id == str(new)


@pytest.mark.parametrize("status", ["running", "blocked"])
def test_retry_of_a_running_or_blocked_task_is_refused(dba, hire, operator, status):
    task_id, *_ = in_status(dba, hire, status)
    refused("OC104", operator, "select octop_retry(%s)", task_id)
    refused("OC103", operator, "select octop_retry(%s)", uuid4())
    assert "the id of the task is null" in refused("OC103", operator, "select octop_retry(null)")


def test_a_frozen_task_that_comes_back_has_all_its_tries_again(dba, hire, operator):
    task_id = add(dba, max_retries=1, retry_policy='{"delays": [0]}')
    worker = hire()
    for _ in range(2):
        assert [worker.end(worker.claim_one()) for _ in range(2)] == ["failed", "frozen"]
        do(operator, "select octop_retry(%s)", task_id)
    assert task(dba, task_id)["attempt"] == 4
    assert column(dba, "select attempt from octop_attempts order by 1") == [1, 2, 3, 4]


def test_delete_takes_frozen_tasks_only(dba, hire, operator):
    frozen, *_ = in_status(dba, hire, "frozen")
    pending = add(dba)
    assert [value(operator, "select octop_delete(%s)", each) for each in (frozen, frozen, pending)] == [
        True,
        False,
        False,
    ]
    assert column(dba, "select id::text from octop_tasks") == [pending]
    ((role, application, action, subject, detail),) = acts(dba)
    assert (role, application, action, subject, detail["was"]) == (
        "octop_operator",
        "desk",
        "delete",
        frozen,
        "frozen",
    )


def test_the_audit_names_the_person_behind_set_role_and_security_definer(database, dba):
    person = database.make_role("octop_operator", name="ann")
    task_id, other = add(dba), add(dba)
    with database.connect(person) as connection:
        do(connection, "select octop_cancel(%s)", task_id)
        do(connection, "set role octop_operator")
        do(connection, "select octop_cancel(%s)", other)
    assert [each[0] for each in acts(dba)] == [person, "octop_operator"]
    assert column(dba, "select login from octop_audit order by seq") == [person, person]
    assert value(dba, "select count(distinct xid) from octop_audit") == 2


def test_an_act_that_is_rolled_back_leaves_no_entry(dba, operator):
    task_id = add(dba)
    with operator.transaction(force_rollback=True):
        do(operator, "select octop_cancel(%s)", task_id)
    assert acts(dba) == []
    assert task(dba, task_id)["status"] == "pending"


def test_cancel_and_completion_at_once_end_in_one_state(database, dba, hire, operator):
    task_id, worker, claimed = in_status(dba, hire, "running")
    with worker.connection.transaction():
        assert worker.succeed(claimed) == []
        operator.execute("set statement_timeout = '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):  # it waits for the row
            do(operator, "select octop_cancel(%s)", task_id)
    operator.execute("reset statement_timeout")
    refused("OC104", operator, "select octop_cancel(%s)", task_id)
    assert value(dba, "select count(*) from octop_tasks") == 1


def test_a_thousand_are_cancelled_by_one_query(dba, operator):
    add_many(dba, 300)
    assert rows(operator, "select octop_cancel(id), count(*) from octop_tasks group by 1") == [("cancelled", 300)]
