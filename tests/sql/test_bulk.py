"""Acts on many tasks at once: one verdict per id, one row of the audit per task, and no error because of one of them."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest

from octop.engine import calls
from octop.engine.call import run
from octop.engine.calls.bulk import octop_cancel_many, octop_delete_many, octop_retry_many
from octop.engine.connect import open_connection
from tests.sql.crew import add, add_many, column, do, rows, task, value
from tests.sql.plans import PKEY, watched
from tests.sql.sessions import sessions

COUNTED = "select coalesce(sum(c.n), 0) from _octop_counted() c where c.status = %s"
EVERY = ["pending", "failed", "blocked", "frozen", "running", "success", "cancelled"]


@pytest.fixture
def one_of_each(dba, hire):
    """One task in every status, by status, and an id that is nobody's."""
    worker = hire(types=["t"])
    made = {"blocked": add(dba, "unknown")}
    worker.exchange(1)
    for status in ("failed", "frozen", "success", "cancelled", "running"):
        made[status] = add(dba, max_retries=0 if status == "frozen" else 3, retry_policy='{"delays": [60]}')
        claimed = worker.claim_one()
        if status == "success":
            worker.succeed(claimed, result="1")
        elif status != "running":
            worker.end(claimed, "cancelled" if status == "cancelled" else "failure")
    made["pending"] = add(dba, delay_seconds=3600, min_version=2, tags=["a"], meta='{"a": 1}', lane="l")
    assert {status: task(dba, each)["status"] for status, each in made.items()} == {each: each for each in made}
    return {**made, "not found": str(uuid4())}


def verdicts(connection, statement, made, *values):
    found = rows(connection, statement, list(made.values()), *values)
    assert len(found) == len(made), "each id once"
    by_id = {str(row[0]): row[1] for row in found}
    return {status: by_id[each] for status, each in made.items()}


def audited(connection):
    return {
        (action, subject): detail
        for action, subject, detail in rows(
            connection, "select action, subject, detail from octop_audit where role = 'octop_operator'"
        )
    }


def counters_are_the_truth(connection):
    for counted, statuses in (
        ("waiting", ["pending", "failed"]),
        ("blocked", ["blocked"]),
        ("frozen", ["frozen"]),
        ("success", ["success"]),
        ("cancelled", ["cancelled"]),
    ):
        # a running task is counted as waiting by nobody
        truth = value(connection, "select count(*) from octop_tasks where status = any (%s)", statuses)
        assert value(connection, COUNTED, counted) == truth, counted


def test_cancel_answers_for_every_status(database, dba, operator, one_of_each):
    now = database.clock.advance(0)
    assert verdicts(operator, "select * from octop_cancel_many(%s::uuid[], %s)", one_of_each, "no more") == {
        **dict.fromkeys(("pending", "failed", "blocked", "frozen", "cancelled"), "cancelled"),
        "running": "requested",
        "success": "success",
        "not found": "not found",
    }
    for status in ("pending", "failed", "blocked", "frozen"):
        found = task(dba, one_of_each[status])
        assert (found["status"], found["last_error"], found["completed_at"]) == ("cancelled", "no more", now)
    assert task(dba, one_of_each["running"])["cancel_requested_at"] == now
    assert task(dba, one_of_each["success"])["status"] == "success"
    assert audited(dba) == {
        ("cancel", one_of_each[status]): {"was": status, "reason": "no more"}
        for status in ("pending", "failed", "blocked", "frozen", "running")
    }
    counters_are_the_truth(dba)


def test_retry_answers_for_every_status_and_says_under_which_id_it_runs(database, dba, operator, one_of_each):
    now = database.clock.advance(0)
    found = rows(
        operator,
        "select id::text, verdict, retried_as::text from octop_retry_many(%s::uuid[])",
        list(one_of_each.values()),
    )
    answers = {task_id: (verdict, new) for task_id, verdict, new in found}
    for status in ("pending", "failed", "frozen"):
        assert answers[one_of_each[status]] == ("retried", one_of_each[status])
        back = task(dba, one_of_each[status])
        assert (back["status"], back["scheduled_at"]) == ("pending", now)
    for status in ("running", "blocked", "not found"):
        assert answers[one_of_each[status]] == (status, None)
    for status in ("success", "cancelled"):
        verdict, new = answers[one_of_each[status]]
        assert verdict == "repeated"
        assert str(task(dba, new)["retry_of"]) == one_of_each[status]
        assert audited(dba)["retry", one_of_each[status]] == {"was": status, "new": new}
    assert audited(dba)["retry", one_of_each["frozen"]] == {"was": "frozen"}
    assert len(audited(dba)) == 5
    counters_are_the_truth(dba)


def test_delete_answers_for_every_status_and_takes_frozen_ones_only(dba, operator, one_of_each):
    assert verdicts(operator, "select * from octop_delete_many(%s::uuid[])", one_of_each) == {
        **{status: status for status in (*EVERY, "not found")},
        "frozen": "deleted",
    }
    assert audited(dba) == {
        ("delete", one_of_each["frozen"]): {
            "was": "frozen",
            "task_type": "t",
            "queue": "default",
            "tenant": "",
            "payload": {},
            "last_error": "",
        }
    }
    assert value(dba, "select count(*) from octop_tasks") == len(EVERY) - 1
    counters_are_the_truth(dba)


def test_a_task_keeps_all_that_it_is_when_it_comes_back_or_is_cancelled(dba, hire, operator):
    hire()
    changing = {
        "status",
        "scheduled_at",
        "completed_at",
        "last_error",
        "retry_count",
        "worker_id",
        "claim_id",
        "deadline_at",
    }
    ids = [
        add(
            dba,
            tenant="t",
            lane="l",
            priority=2,
            timeout_seconds=9,
            min_version=1,
            tags=["a", 'b"'],
            meta='{"m": 1}',
            max_retries=0,
        )
        for _ in range(2)
    ]
    do(
        dba,
        "with d as (delete from octop_tasks_live returning *) insert into octop_tasks_frozen"
        ' select (jsonb_populate_record(null::octop_tasks_frozen, to_jsonb(d) || \'{"status": "frozen"}\')).* from d',
    )
    before = [{key: each for key, each in task(dba, task_id).items() if key not in changing} for task_id in ids]
    do(operator, "select octop_retry_many(array[%s]::uuid[]), octop_cancel_many(array[%s]::uuid[])", *ids)
    assert [task(dba, each)["status"] for each in ids] == ["pending", "cancelled"]
    after = [{key: each for key, each in task(dba, task_id).items() if key not in changing} for task_id in ids]
    assert after == before


def test_every_column_is_named_where_a_task_is_moved(dba):
    """A column that is added later must not be lost on the way back or into history."""
    columns = set(
        column(
            dba,
            "select attname::text from pg_attribute where attrelid = 'octop_tasks'::regclass and attnum > 0 and not attisdropped",
        )
    )
    cleared = {"worker_id", "claim_id", "deadline_at", "cancel_requested_at", "blocked_by", "result"}
    # of a task that has ended nothing is held
    for name, target, left in (
        ("_octop_cancel_these", "octop_tasks_done", cleared | {"unique_hold"}),
        ("_octop_retry_these", "octop_tasks_live", cleared | {"completed_at"}),
    ):
        (source,) = column(dba, "select prosrc from pg_proc where proname = %s", name)
        named = source.partition(f"insert into {target} (")[2].partition(")")[0]
        assert {each.strip() for each in named.split(",")} == columns - left, name


def test_ids_may_come_twice_and_null_and_none(dba, operator):
    task_id = add(dba)
    assert rows(
        operator, "select id::text, verdict from octop_cancel_many(array[%s, null, %s]::uuid[])", task_id, task_id
    ) == [(task_id, "cancelled")]
    for name in ("octop_cancel_many", "octop_retry_many", "octop_delete_many"):
        assert rows(operator, f"select * from {name}('{{}}')") == []
        assert rows(operator, f"select * from {name}(null)") == []


def test_more_than_ten_thousand_ids_at_once_are_refused(operator):
    for name in ("octop_cancel_many", "octop_retry_many", "octop_delete_many"):
        with pytest.raises(psycopg.Error, match="10001 ids at once") as refused:
            do(operator, f"select {name}(array(select octop_uuid7() from generate_series(1, 10001)))")
        assert refused.value.sqlstate == "OC113"


def test_a_producer_cancels_its_own_and_retries_nothing(database, dba):
    role = database.make_role("octop_producer")
    with database.connect(role) as producer:
        own, foreign = add(producer), add(dba)
        assert dict(
            rows(producer, "select id::text, verdict from octop_cancel_many(array[%s, %s]::uuid[])", own, foreign)
        ) == {
            own: "cancelled",
            foreign: "not found",
        }
        for name in ("octop_retry_many", "octop_delete_many"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                do(producer, f"select {name}('{{}}')")
    assert task(dba, foreign)["status"] == "pending"


def test_C069_two_bulk_acts_in_opposite_orders_wait_for_each_other_and_never_in_a_circle(database, dba):
    ids = add_many(dba, 200)
    with database.connect("octop_operator") as first, database.connect("octop_operator") as second:
        with first.transaction():
            do(first, "select octop_retry_many(%s::uuid[])", ids)
            second.execute("set lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                do(second, "select octop_cancel_many(%s::uuid[])", ids[::-1])
        assert column(second, "select distinct verdict from octop_cancel_many(%s::uuid[])", ids[::-1]) == ["cancelled"]


def test_a_task_that_is_claimed_meanwhile_runs_on(database, dba, hire, operator):
    first, second = add(dba), add(dba)
    worker = hire()
    with worker.connection.transaction():
        (claimed,) = worker.claim(1)
        assert claimed.id == first
        operator.execute("set statement_timeout = '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):  # it waits for the claim
            do(operator, "select octop_retry_many(array[%s, %s]::uuid[])", first, second)
    operator.execute("reset statement_timeout")
    assert dict(
        rows(operator, "select id::text, verdict from octop_retry_many(array[%s, %s]::uuid[])", first, second)
    ) == {
        first: "running",
        second: "retried",
    }


def test_the_calls_say_what_the_functions_say(database, dba, one_of_each):
    ids = [one_of_each["frozen"], one_of_each["success"], one_of_each["not found"]]
    with open_connection(database.url, application_name="desk") as connection:
        answers = {row[0]: row[1:] for row in run(connection, calls.octop_retry_many(ids))}
        assert answers[ids[0]] == ("retried", ids[0])
        assert answers[ids[1]][0] == "repeated"
        assert answers[ids[2]] == ("not found", None)
        assert run(connection, calls.octop_cancel_many(ids[:1], "why")) == [(ids[0], "cancelled")]
        deleted = run(connection, calls.octop_delete_many(ids[1:]))
        assert sorted(deleted) == sorted([(ids[1], "success"), (ids[2], "not found")])
    assert task(dba, ids[0])["last_error"] == "why"


def test_many_are_found_by_their_keys_alone(dba):
    add_many(dba, 20_000)
    do(dba, "analyze octop_tasks_live")
    ids = add_many(dba, 300)
    for name, touched in (("octop_retry_many", 900), ("octop_cancel_many", 900)):
        with watched(dba) as seen:
            do(dba, f"select {name}(%s::uuid[])", ids)
        scans = [scan for statement in seen for scan in statement.scans if scan.relation == "octop_tasks_live"]
        assert {scan.index for scan in scans} == {PKEY}, name
        assert sum(scan.rows for scan in scans) <= touched, name


@pytest.mark.parametrize("held", ["live", "frozen"])
def test_acts_on_a_live_and_a_frozen_task_lock_in_one_order(database, dba, hire, held):
    """Retry and cancel of both at once, while a third holds one of the rows: who comes second waits, and nobody is a victim."""
    worker = hire(types=["t"])
    ids = {"frozen": add(dba, max_retries=0)}
    worker.end(worker.claim_one())
    ids["live"] = add(dba, delay_seconds=3600)
    both = list(ids.values())
    with sessions(database, 3) as (holder, first, second):
        with holder.connection.transaction():
            holder.execute("select from octop_tasks where id = %s for update", (ids[held],))
            retry = first.start(lambda: first.run(octop_retry_many(both))).wait_until_blocked()
            cancel = second.start(lambda: second.run(octop_cancel_many(both))).wait_until_blocked()
        assert {each[1] for each in retry.result()} == {"retried"}
        assert {each[1] for each in cancel.result()} == {"cancelled"}
    assert column(dba, "select distinct status from octop_tasks") == ["cancelled"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "verdict"),
    [(octop_cancel_many, "cancelled"), (octop_retry_many, "retried"), (octop_delete_many, "deleted")],
)
def test_C069_an_act_that_is_the_victim_of_a_circle_of_locks_begins_anew(database, dba, hire, act, verdict):
    worker = hire(types=["t"])
    first, second = sorted(add(dba, max_retries=0) for _ in range(2))
    for claimed in worker.claim(2):
        worker.end(claimed)
    lock = "select from octop_tasks where id = %s for update"
    with sessions(database, 2) as (holder, actor):
        holder.execute("set deadlock_timeout = '1h'")  # so that the victim is the other one
        actor.execute(
            "set deadlock_timeout = '3s'"
        )  # it looks for a circle once, after so long: by then there must be one
        with holder.connection.transaction():
            holder.execute(lock, (second,))
            acting = actor.start(lambda: actor.run(act([first, second]))).wait_until_blocked()
            holder.start(lambda: holder.execute(lock, (first,))).result()  # it is let go of
            assert not acting.future.done()
        assert {row[:2] for row in acting.result()} == {(first, verdict), (second, verdict)}


def test_ids_that_nobody_knows_are_looked_for_together(dba, operator):
    with watched(dba) as seen:
        do(dba, "select octop_cancel_many(array(select gen_random_uuid() from generate_series(1, 2000)))")
    assert len(seen) < 60  # statements, nested ones too: none per id
