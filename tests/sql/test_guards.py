"""Birth and transitions by hand: what people may do to octop_tasks with INSERT, UPDATE and DELETE, and what the triggers fill."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.crew import add, add_many, do, refused, rows, task, value

STATUSES = ("pending", "running", "failed", "blocked", "frozen", "success", "cancelled")
LEGAL = {
    ("frozen", "pending"),
    ("failed", "pending"),
    ("running", "pending"),
    ("running", "failed"),
    *((old, "cancelled") for old in ("pending", "running", "failed", "blocked", "frozen")),
}


@pytest.fixture
def owner(database):
    """Act as the owner would: a login that is a member of octop_owner."""
    with database.connect("octop_owner") as connection:
        yield connection


@pytest.fixture
def one_of_each(dba, hire):
    """Make one task in every status, by the engine alone."""
    worker = hire(types=["t", "u"])
    ids = {}
    for status in ("success", "failed", "frozen", "cancelled", "running"):
        ids[status] = add(dba, max_retries=0 if status == "frozen" else 3, retry_policy='{"delays": [60]}')
        claimed = worker.claim_one()
        if status == "success":
            worker.succeed(claimed)
        elif status in {"failed", "frozen"}:
            worker.end(claimed)
        elif status == "cancelled":
            worker.end(claimed, "cancelled")
    ids["blocked"] = add(dba, "unknown")
    worker.claim(5)
    ids["pending"] = add(dba, delay_seconds=60.0)
    assert {status: task(dba, task_id)["status"] for status, task_id in ids.items()} == {each: each for each in ids}
    return ids


def truth_and_counters(connection):
    truth = rows(
        connection,
        "select _octop_counted_as(status), count(*) from octop_tasks where status <> 'running' group by 1 order by 1",
    )
    return truth, rows(
        connection, "select status, sum(n)::bigint from _octop_counted() group by 1 having sum(n) <> 0 order by 1"
    )


def test_a_task_is_born_pending_and_nothing_else(owner, dba):
    for status in STATUSES[1:]:
        with pytest.raises(psycopg.Error) as error:
            do(owner, "insert into octop_tasks (task_type, status, completed_at) values ('t', %s, now())", status)
        assert error.value.sqlstate == "OC101", status
        assert error.value.diag.message_hint
    with pytest.raises(psycopg.Error):  # one bad row among good ones
        do(owner, "insert into octop_tasks (task_type, status) values ('t', 'pending'), ('t', 'running')")
    with pytest.raises(psycopg.Error):  # a status that does not exist
        do(owner, "insert into octop_tasks (task_type, status) values ('t', 'wating')")
    assert value(dba, "select count(*) from octop_tasks") == 0


def test_a_finished_status_by_hand_is_refused_for_what_it_is_with_and_without_completed_at(owner, dba):
    task_id = add(dba)
    for moment in ("null", "now()"):
        said = refused(
            "OC101",
            owner,
            f"insert into octop_tasks (task_type, status, completed_at) values ('t', 'success', {moment})",
        )
        assert "a task is born pending, not success" in said
        said = refused("OC102", owner, f"update octop_tasks set status = 'success', completed_at = {moment}")
        assert f"task {task_id} cannot go from pending to success" in said
        assert "Only a worker sets success" in said
    refused("OC101", owner, "insert into octop_tasks (task_type, status) values ('t', 'cancelled')")


def test_a_done_row_without_completed_at_is_refused_where_a_leaf_is_named_too(owner):
    for leaf in ("done", "done_stray"):
        said = refused("OC101", owner, f"insert into octop_tasks_{leaf} (task_type, status) values ('t', 'success')")
        assert "a finished one has completed_at" in said


def test_a_finished_status_by_hand_says_from_what_the_task_comes(owner, one_of_each):
    for old in ("pending", "running", "failed", "blocked", "frozen"):
        said = refused("OC102", owner, "update octop_tasks set status = 'success' where id = %s", one_of_each[old])
        assert f"task {one_of_each[old]} cannot go from {old} to success" in said
    done = "update octop_tasks set completed_at = null where id = %s"
    assert "completed_at of the finished task" in refused("OC102", owner, done, one_of_each["success"])


def test_a_task_is_born_as_its_callers_and_without_a_past(owner, dba):
    for name, given in {
        "created_by": "'eve'",
        "attempt": "7",
        "retry_count": "1",
        "lost_count": "1",
        **dict.fromkeys(("due_at", "started_at", "completed_at", "deadline_at", "cancel_requested_at"), "now()"),
        **dict.fromkeys(("worker_id", "claim_id"), "octop_uuid7()"),
        **dict.fromkeys(("last_error", "blocked_by"), "'x'"),
        "result": "'1'",
    }.items():
        for values in (f"('t', {given})", f"('t', default), ('t', {given})"):
            refused("OC101", owner, f"insert into octop_tasks (task_type, {name}) values {values}")
    assert "its caller's (octop_owner), not as eve's" in refused(
        "OC101", owner, "insert into octop_tasks (task_type, created_by) values ('t', 'eve')"
    )
    assert value(dba, "select count(*) from octop_tasks") == 0
    do(owner, "insert into octop_tasks (task_type, created_by) values ('t', 'octop_owner')")


def test_the_engines_own_tasks_are_born_as_somebody_elses(owner, dba, hire):
    """A repetition keeps its maker, and a retried frozen task its past: they name the leaf."""
    worker = hire()
    done, frozen = add(dba), add(dba, max_retries=0)
    worker.succeed(worker.claim_one())
    worker.end(worker.claim_one())
    again = value(owner, "select octop_retry(%s)", done)
    do(owner, "select octop_retry(%s)", frozen)
    assert (task(dba, again)["created_by"], str(task(dba, again)["retry_of"])) == (task(dba, done)["created_by"], done)
    assert task(dba, again)["created_by"] != "octop_owner"
    assert (task(dba, frozen)["attempt"], task(dba, frozen)["status"]) == (1, "pending")


def test_what_the_worker_of_a_running_task_has_cannot_be_changed_but_with_its_status(owner, dba, hire):
    task_id = add(dba)
    worker = hire()
    claimed = worker.claim_one()
    for change in (
        "queue = 'b'",
        "lane = 'b'",
        "tenant = 'b'",
        "task_type = 'b'",
        "payload = '{\"a\": 1}'",
        "started_at = now() - interval '1 year'",
        "worker_id = octop_uuid7()",
        "claim_id = null",
    ):
        assert f"of the running task {task_id} cannot be changed" in refused(
            "OC102", owner, f"update octop_tasks set {change}"
        )
    do(owner, "update octop_tasks set priority = 1, max_retries = 9, tags = '{seen}', created_by = 'renamed'")
    assert worker.succeed(claimed) == []
    add(dba)
    worker.claim_one()
    do(owner, "update octop_tasks set status = 'pending', queue = 'b' where status = 'running'")
    truth, counted = truth_and_counters(dba)
    assert counted == truth


def test_only_the_repairs_of_the_contract_are_possible_and_counters_follow(owner, dba, one_of_each):
    for old in STATUSES:
        for new in STATUSES:
            if old == new:
                continue
            with owner.transaction(force_rollback=True):
                statement = "update octop_tasks set status = %s where id = %s"
                if (old, new) in LEGAL:
                    do(owner, statement, new, one_of_each[old])
                    assert task(owner, one_of_each[old])["status"] == new
                    truth, counted = truth_and_counters(owner)
                    assert counted == truth, (old, new)
                else:
                    with pytest.raises(psycopg.Error) as error, owner.transaction():
                        do(owner, statement, new, one_of_each[old])
                    assert error.value.sqlstate == "OC102", (old, new, str(error.value))
                    with pytest.raises(psycopg.Error) as error, owner.transaction():
                        do(
                            owner,
                            "update octop_tasks set status = %s, completed_at = now() where id = %s",
                            new,
                            one_of_each[old],
                        )
                    assert error.value.sqlstate == "OC102", (old, new, str(error.value))


def test_one_illegal_row_refuses_the_whole_statement(owner, dba, one_of_each):
    with pytest.raises(psycopg.Error) as error:
        do(owner, "update octop_tasks set status = 'pending'")
    assert error.value.sqlstate == "OC102"
    assert {status: task(dba, task_id)["status"] for status, task_id in one_of_each.items()} == {
        each: each for each in one_of_each
    }


def test_id_and_seq_are_for_life(owner, one_of_each):
    for change in (
        "id = octop_uuid7()",
        "seq = seq + 1000",
        "created_at = now() + interval '1 year'",
        "attempt = attempt + 1",
        "id = octop_uuid7(), status = 'cancelled'",
        "created_at = now() + interval '1 year', status = 'cancelled'",
    ):
        assert "seq, created_at and attempt" in refused(
            "OC102", owner, f"update octop_tasks set {change} where id = %s", one_of_each["pending"]
        )
    for task_id in one_of_each.values():
        refused("OC102", owner, "update octop_tasks set created_at = now() + interval '1 year' where id = %s", task_id)


def test_running_to_pending_fences_the_worker_and_notes_the_attempt(database, owner, dba, hire):
    now = database.clock.advance(0)
    task_id = add(dba, retry_policy='{"delays": [0]}')
    worker = hire()
    claimed = worker.claim_one()
    database.clock.advance(3)
    do(owner, "update octop_tasks set status = 'pending' where id = %s", task_id)
    back = task(dba, task_id)
    assert (back["status"], back["worker_id"], back["claim_id"], back["deadline_at"]) == ("pending", None, None, None)
    assert (back["retry_count"], back["attempt"]) == (0, 1)
    assert (back["scheduled_at"] - now).total_seconds() == 3
    assert worker.succeed(claimed) == ["lost"]
    assert worker.end(claimed) == "lost"
    assert rows(dba, "select attempt, outcome, error_message from octop_attempts") == [
        (1, "released", "taken back by octop_owner with UPDATE")
    ]
    assert worker.succeed(worker.claim_one()) == []


def test_running_to_failed_by_hand_waits_for_its_retry(owner, dba, hire):
    task_id = add(dba)
    worker = hire()
    claimed = worker.claim_one()
    do(
        owner,
        "update octop_tasks set status = 'failed', scheduled_at = _octop_now() + interval '1 hour' where id = %s",
        task_id,
    )
    assert worker.end(claimed) == "lost"
    assert worker.claim(5) == []
    found = task(dba, task_id)
    assert (found["status"], found["worker_id"], found["claim_id"]) == ("failed", None, None)


def test_cancelled_by_hand_has_its_moment_and_lies_in_its_day(database, owner, dba, one_of_each):
    for old in ["pending", "running", "failed", "blocked", "frozen"]:
        now = database.clock.advance(0)
        do(owner, "update octop_tasks set status = 'cancelled' where id = %s", one_of_each[old])
        found = task(dba, one_of_each[old])
        assert found["completed_at"] == now
        assert (found["worker_id"], found["claim_id"], found["blocked_by"], found["deadline_at"]) == (None,) * 4
        assert value(
            dba, "select tableoid::regclass::text from octop_tasks where id = %s", one_of_each[old]
        ).startswith("octop_tasks_done_2")


def test_frozen_to_pending_is_due_now_with_all_tries_unless_the_owner_says_otherwise(database, owner, dba, hire):
    now = database.clock.advance(0)
    worker = hire()
    plain, own = (
        add(dba, max_retries=1, retry_policy='{"delays": [0]}'),
        add(dba, max_retries=1, retry_policy='{"delays": [0]}'),
    )
    for _ in range(4):
        worker.end(worker.claim_one())
    database.clock.advance(10)
    worker.beat()
    do(owner, "update octop_tasks set status = 'pending' where id = %s", plain)
    do(
        owner,
        "update octop_tasks set status = 'pending', retry_count = 5, scheduled_at = %s where id = %s",
        now.replace(year=now.year + 1),
        own,
    )
    assert (task(dba, plain)["retry_count"], (task(dba, plain)["scheduled_at"] - now).total_seconds()) == (0, 10)
    assert (task(dba, own)["retry_count"], task(dba, own)["scheduled_at"].year) == (5, now.year + 1)


def test_other_columns_may_be_changed_and_wake_whom_they_concern(database, owner, dba, hire):
    worker = hire(queues=["a", "b"])
    task_id = add(dba, queue="a", delay_seconds=3600.0)
    do(worker.connection, "select octop_sleep(%s, '{a,b}', 60)", worker.id)
    with database.connect() as ear:
        ear.execute("listen octop_wake")
        do(owner, "update octop_tasks set priority = 1 where id = %s", task_id)
        do(owner, "update octop_tasks set queue = 'b', scheduled_at = now() where id = %s", task_id)
        assert [each.payload for each in ear.notifies(timeout=5, stop_after=1)] == ["b"]
    assert [each.priority for each in worker.claim(5)] == [1]
    for bad, bounds in (
        ("priority = 42", "priority_is_0_to_9"),
        ("scheduled_at = 'infinity'", "in_years_2000_to_2999"),
        ("payload = '[]'", "is_an_object"),
        ("queue = ''", "1_to_200_long"),
        ("max_retries = -1", "retries_and_version_to_1000"),
        ("timeout_seconds = 1e9", "timeout_to_31_days"),
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match=bounds):
            do(owner, f"update octop_tasks set {bad} where id = %s", task_id)


def test_every_change_by_hand_is_in_the_audit_task_by_task(owner, dba, one_of_each):
    do(owner, "update octop_tasks set status = 'cancelled' where id = %s", one_of_each["pending"])
    do(owner, "update octop_tasks set priority = 1, payload = '{\"a\": 1}' where id = %s", one_of_each["blocked"])
    do(owner, "update octop_tasks set priority = 1 where id = %s", one_of_each["blocked"])  # no change
    found = rows(dba, "select role, action, subject, detail from octop_audit where action = 'update' order by seq")
    assert found == [
        (
            "octop_owner",
            "update",
            one_of_each["pending"],
            {"from": {"status": "pending"}, "to": {"status": "cancelled"}},
        ),
        (
            "octop_owner",
            "update",
            one_of_each["blocked"],
            {"from": {"priority": 5, "payload": {}}, "to": {"priority": 1, "payload": {"a": 1}}},
        ),
    ]


def test_the_owner_may_delete_and_it_is_counted_and_the_audit_keeps_what_it_was(owner, dba, one_of_each):
    gone = ("success", "pending", "frozen", "running")
    do(owner, "delete from octop_tasks where status = any (%s)", list(gone))
    truth, counted = truth_and_counters(dba)
    assert counted == truth
    found = rows(
        dba, "select subject, detail ->> 'was', detail ->> 'task_type' from octop_audit where action = 'delete'"
    )
    assert set(found) == {(one_of_each[was], was, "t") for was in gone}
    do(owner, "delete from octop_tasks where false")
    assert value(dba, "select count(*) from octop_audit where action = 'delete'") == 4


def test_a_truncate_is_counted_and_audited(owner, dba, one_of_each):
    do(owner, "truncate octop_tasks")
    assert truth_and_counters(dba) == ([], [])
    assert rows(dba, "select status, count from octop_task_summary") == []
    assert rows(dba, "select role, subject from octop_audit where action = 'truncate'") == [
        ("octop_owner", "octop_tasks")
    ]


def test_a_thousand_tasks_are_cancelled_by_one_statement(owner, dba):
    add_many(dba, 1000)
    assert do(owner, "update octop_tasks set status = 'cancelled' where task_type = 't'") == 1000
    assert rows(dba, "select status, count from octop_task_summary") == [("cancelled", 1000)]
    assert value(dba, "select count(distinct subject) from octop_audit where action = 'update'") == 1000


def test_a_repair_by_hand_cannot_take_a_running_task_out_of_its_workers_hand_unseen(owner, dba, hire):
    add(dba)
    worker = hire()
    claimed = worker.claim_one()
    for change in ("worker_id = null", "claim_id = null", "attempt = attempt + 1", "worker_id = octop_uuid7()"):
        with pytest.raises(psycopg.Error) as error:
            do(owner, f"update octop_tasks set {change}")
        assert error.value.sqlstate == "OC102", change
    assert worker.succeed(claimed) == []
