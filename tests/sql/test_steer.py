"""What people and programs order for queues and task types: rows that hold on all workers, in the audit, until they are lifted."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.crew import acts, add, add_many, ages, column, do, refused, rows, task, value


def test_pause_and_resume_say_whether_they_changed_anything(database, dba, operator, hire):
    hire(queues=["mail"])
    assert column(operator, "select octop_pause('mail', 'incident 7')") == [True]
    assert column(operator, "select octop_pause('mail', 'again')") == [False]
    assert rows(dba, "select name, paused, pause_reason, paused_by from octop_queue_summary") == [
        ("mail", True, "incident 7", "octop_operator")
    ]
    with database.connect() as ear:
        ear.execute("listen octop_wake")
        assert column(operator, "select octop_resume('mail')") == [True]
        assert [each.payload for each in ear.notifies(timeout=5, stop_after=1)] == ["mail"]
    assert column(operator, "select octop_resume('mail')") == [False]
    assert column(dba, "select action from octop_audit where subject = 'mail' order by seq") == [
        "declare queue",
        "pause",
        "resume",
    ]
    for bad in ("", None, "x" * 201):
        refused("OC110", operator, "select octop_pause(%s)", bad)
        refused("OC110", operator, "select octop_scale(%s, 1)", bad)


def test_scale_sets_and_takes_back_the_operators_limit(dba, operator):
    for limit in (5, 0, 10_000, None):
        do(operator, "select octop_scale('mail', %s)", limit)
        assert value(dba, "select worker_limit from octop_queues where name = 'mail'") == limit
    for bad in (-1, 10_001):
        refused("OC113", operator, "select octop_scale('mail', %s)", bad)
    assert [each[4].get("to", {}).get("worker_limit") for each in acts(dba)] == [5, 0, 10_000, None]
    do(operator, "select octop_scale('mail', null)")  # no change, no entry
    assert len(acts(dba)) == 4


def test_odd_queue_names_are_paused_scaled_and_resumed_like_others(dba, hire, operator):
    for odd in (
        "my-queue",
        "My.Queue",
        "user",
        'a"b',
        "o'brien",
        "a$$b",
        "a\\b",
        "'x; drop table octop_tasks",
        "é" * 200,
        " ",
        "%s",
    ):
        do(operator, "select octop_scale(%s, 3), octop_pause(%s)", odd, odd)
        worker = hire(queues=[odd], types=[odd])
        add(dba, odd, queue=odd)
        assert worker.claim(1) == [], odd
        do(operator, "select octop_resume(%s)", odd)
        assert worker.succeed(worker.claim_one()) == [], odd


# --- freeze and thaw --------------------------------------------------------------------------------------------------


def test_a_frozen_type_does_not_start_in_any_queue_and_thaw_brings_its_tasks_back(dba, operator, hire):
    worker = hire(queues=["mail", "sms"], types=["send", "other"])
    waiting = [add(dba, "send", queue=queue) for queue in ("mail", "sms")]
    other = add(dba, "other", queue="mail")
    assert column(operator, "select octop_freeze('send', 'incident 7')") == [True]
    assert column(operator, "select octop_freeze('send', 'again')") == [False]
    assert [each.id for each in worker.claim(10)] == [other]
    assert [(task(dba, each)["status"], task(dba, each)["blocked_by"]) for each in waiting] == [
        ("blocked", f"hold:{value(dba, 'select id from octop_holds')}")
    ] * 2
    late = add(dba, "send", queue="mail")
    assert worker.claim(10) == []
    assert worker.sweep().unparked == 0  # known, and held all the same
    assert column(operator, "select octop_thaw('send')") == [True]
    assert column(operator, "select octop_thaw('send')") == [False]
    claimed = worker.claim(10)
    assert {each.id for each in claimed} == {*waiting, late}
    assert {each.attempt for each in claimed} == {1}  # waiting has used up no try


def test_what_runs_when_its_type_is_frozen_ends_and_its_retry_waits(dba, operator, hire):
    worker = hire(types=["send"])
    task_id = add(dba, "send", max_retries=3, retry_policy='{"delays": [0]}')
    claimed = worker.claim_one()
    do(operator, "select octop_freeze('send')")
    assert worker.end(claimed) == "failed"
    assert worker.claim(1) == []
    assert task(dba, task_id)["status"] == "blocked"
    do(operator, "select octop_thaw('send')")
    assert (task(dba, task_id)["status"], task(dba, task_id)["retry_count"]) == ("failed", 1)
    assert worker.claim_one().id == task_id


def test_a_freeze_holds_for_workers_that_start_later(dba, operator, hire):
    hire(types=["send"])
    task_id = add(dba, "send")
    do(operator, "select octop_freeze('send')")
    again = hire(types=["send"])
    assert again.claim(1) == []
    hire(types=["send"])  # registering brings back what nobody knew, not what is held
    assert task(dba, task_id)["status"] == "blocked"
    assert value(dba, "select reason from octop_holds where kind = 'task_type' and target = 'send'") == ""


def test_thaw_brings_back_a_thousand_at_once_and_the_sweep_the_rest(dba, operator, hire):
    worker = hire(types=["send"])
    add_many(dba, 1200, "send")
    do(operator, "select octop_freeze('send')")
    while worker.claim(500) or value(dba, "select count(*) from octop_tasks where status = 'pending'"):
        pass
    assert value(dba, "select count(*) from octop_tasks where status = 'blocked'") == 1200
    do(operator, "select octop_thaw('send')")
    assert value(dba, "select count(*) from octop_tasks where status = 'pending'") == 1000
    assert worker.sweep().unparked == 200
    assert value(dba, "select count(*) from octop_tasks where status = 'blocked'") == 0


def test_freeze_and_thaw_stand_in_the_audit_with_role_and_reason(dba, operator):
    do(operator, "select octop_freeze('send', 'incident 7')")
    do(operator, "select octop_thaw('send')")
    found = acts(dba)
    assert [each[:4] for each in found] == [
        ("octop_operator", "desk", "freeze", "send"),
        ("octop_operator", "desk", "thaw", "send"),
    ]
    assert found[0][4]["to"]["reason"] == "incident 7"
    assert found[0][4]["to"]["author"] == "octop_operator"


def test_freeze_refuses_what_is_no_name_and_who_is_no_operator(database, dba, operator):
    for bad in ("", None, "x" * 201):
        refused("OC110", operator, "select octop_freeze(%s)", bad)
    for role in ("octop_viewer", "octop_producer", "octop_worker"):
        with database.connect(role) as connection:
            for act in ("octop_freeze('send')", "octop_thaw('send')"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    do(connection, f"select {act}")
    assert acts(dba) == []


# --- what an operator sets by UPDATE ----------------------------------------------------------------------------------


def test_an_operator_changes_queues_and_types_by_update_and_it_is_audited(dba, operator, hire):
    hire(queues=["mail"], types=["send"])
    do(operator, "update octop_queues set max_retries = 5, timeout_seconds = 60 where name = 'mail'")
    do(operator, "update octop_task_types set priority = 1, retry_policy = '{\"delays\": [1, 5]}' where name = 'send'")
    assert [(action, subject, detail["to"]["name"]) for _, _, action, subject, detail in acts(dba)] == [
        ("set queue", "mail", "mail"),
        ("set task type", "send", "send"),
    ]
    refused("OC113", operator, "update octop_queues set retry_policy = '{\"bse\": 1}' where name = 'mail'")


def test_a_limit_out_of_bounds_is_refused_with_the_bounds(dba, operator, hire):
    hire(queues=["mail"], types=["send"])
    for table, change, said in (
        ("queues", "worker_limit = 10001", "worker_limit must be 0 to 10000, not 10001"),
        ("queues", "max_retries = -1", "max_retries must be 0 to 1000, not -1"),
        ("queues", "timeout_seconds = 0", "timeout_seconds must be above 0 and at most 2678400 (31 days), not 0"),
        ("task_types", "priority = 10", "priority must be 0 to 9, not 10"),
        ("task_types", "max_retries = 1001", "max_retries must be 0 to 1000, not 1001"),
        ("task_types", "timeout_seconds = 'NaN'", "at most 2678400 (31 days), not NaN"),
        ("task_types", "timeout_seconds = 'infinity'", "at most 2678400 (31 days), not Infinity"),
    ):
        assert said in refused("OC113", operator, f"update octop_{table} set {change}")
    assert "loop, thread or process, not here" in refused("OC113", dba, "update octop_task_types set run_in = 'here'")
    assert "1 to 200 characters, not 0" in refused("OC110", operator, "update octop_task_types set queue = ''")
    assert "1 to 200 characters, not 201" in refused(
        "OC110", operator, "insert into octop_queues (name) values (repeat('x', 201))"
    )
    do(operator, "update octop_queues set worker_limit = null, max_retries = 1000, timeout_seconds = 2678400")
    do(operator, "update octop_task_types set priority = null, max_retries = 0, timeout_seconds = 0.001")


def test_a_reason_of_null_is_no_reason(dba, operator, hire):
    hire(queues=["mail"], types=["send"])
    do(operator, "select octop_pause('mail', null), octop_freeze('send', null)")
    assert rows(dba, "select kind, target, reason from octop_holds order by kind") == [
        ("queue", "mail", ""),
        ("task_type", "send", ""),
    ]


def test_a_queue_that_an_operator_makes_is_set_and_one_that_a_worker_makes_is_declared(dba, operator, hire):
    do(operator, "insert into octop_queues (name) values ('mail')")
    hire(queues=["sms"], types=["send"])
    do(dba, "insert into octop_task_types (name) values ('other')")
    found = rows(dba, "select action, subject from octop_audit where action ~ 'queue|type' order by action, subject")
    assert found == [
        ("declare queue", "sms"),
        ("declare task type", "send"),
        ("set queue", "mail"),
        ("set task type", "other"),
    ]


def test_a_name_that_no_worker_has_declared_is_held_and_said(operator, hire):
    hire(queues=["mail"], types=["send"])
    said = []
    operator.add_notice_handler(lambda notice: said.append(notice.message_primary))
    for act in ("octop_pause('mail')", "octop_freeze('send')", "octop_pause('mial')", "octop_freeze('sned')"):
        do(operator, f"select {act}")
    assert said == [
        'octop: no worker has declared the queue "mial" yet',
        'octop: no worker has declared the task type "sned" yet',
    ]


@pytest.mark.parametrize("order", ["octop_pause('mial')", "octop_scale('mial', 2)"])
def test_a_queue_that_is_served_is_known_also_without_its_row_and_any_other_is_said(
    database, dba, operator, hire, order
):
    said = []
    operator.add_notice_handler(lambda notice: said.append(notice.message_primary))
    do(operator, f"select {order}")
    assert said == ['octop: no worker has declared the queue "mial" yet']
    do(operator, "delete from octop_queues; select octop_resume('mial')")
    worker = hire(queues=["mial"])
    do(operator, "delete from octop_queues")
    do(operator, f"select {order}")
    assert len(said) == 1
    do(operator, "delete from octop_queues; select octop_resume('mial')")
    ages(dba, 3600, worker.id)  # it has gone
    do(operator, f"select {order}")
    assert len(said) == 2
