"""octop_recount: counters are brought back to the truth, exactly, also while somebody works."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.crew import add, add_many, do, rows, value

COUNTED = "select status, sum(n)::integer from _octop_counted() group by 1 having sum(n) <> 0 order by 1"


def test_it_answers_what_was_wrong_and_writes_it_to_the_audit(dba, hire):
    worker = hire()
    add_many(dba, 5)
    worker.succeed(*worker.claim(2))
    assert rows(dba, "select * from octop_recount()") == []
    do(
        dba,
        "insert into _octop_counter_deltas (tenant, queue, status, day, n) values ('', 'default', 'waiting', '-infinity', 7)",
    )
    do(
        dba,
        "insert into _octop_counters (tenant, queue, status, day, n) values ('ann', 'gone', 'frozen', '-infinity', 3)",
    )
    assert rows(dba, "select * from octop_recount() order by queue") == [
        ("", "default", "waiting", 10, 3),
        ("ann", "gone", "frozen", 3, 0),
    ]
    assert rows(dba, COUNTED) == [("success", 2), ("waiting", 3)]
    assert value(dba, "select count(*) from octop_audit where action = 'recount'") == 2


def test_the_summary_is_the_same_before_and_after(dba, hire):
    worker = hire()
    add_many(dba, 9)
    worker.succeed(*worker.claim(4))
    do(
        dba,
        "update octop_tasks set status = 'cancelled' where id = (select id from octop_tasks where status = 'pending' limit 1)",
    )
    statement = "select status, count, earliest_scheduled, latest_scheduled from octop_task_summary order by 1"
    before = rows(dba, statement)
    assert value(dba, "select count(*) from octop_recount()") == 0
    assert rows(dba, statement) == before


def test_it_waits_for_whoever_is_between_a_task_and_its_count(database, dba):
    with database.connect(autocommit=False) as other, database.connect(options="-c lock_timeout=0") as mine:
        add(other)
        mine.execute("alter function octop_recount() set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
            mine.execute("select octop_recount()")
        who = f"session {other.info.backend_pid}"
        assert (
            caught.value.diag.message_primary
            == f"octop: nothing was counted: tasks were changed in {who} and not committed"
        )
        assert "pg_terminate_backend" in (caught.value.diag.message_hint or "")
        other.commit()
    assert rows(dba, "select * from octop_recount()") == []
    assert rows(dba, COUNTED) == [("waiting", 1)]


def test_it_refuses_an_old_snapshot(database):
    with database.connect(autocommit=False) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.Error) as refused:
            connection.execute("select octop_recount()")
    assert refused.value.sqlstate == "OC301"


def test_only_operators_and_the_owner_may(database):
    for role in ("producer", "worker", "viewer"):
        with database.connect(f"octop_{role}") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select octop_recount()")
    with database.connect("octop_operator") as connection:
        connection.execute("select octop_recount()")


def test_the_chores_are_seen_by_viewers(database, dba):
    dba.execute("select octop_sweep(octop_uuid7())")
    do(dba, "update _octop_chores set next_at = now() - interval '90 seconds' where name = 'purge'")
    do(dba, "update _octop_chores set next_at = '-infinity' where name = 'days'")
    with database.connect("octop_viewer") as connection:
        assert rows(
            connection,
            "select name, next_at is null, round(overdue_seconds::numeric, -1)::integer from octop_chores order by 1",
        ) == [
            ("alerts", False, 0),
            ("days", True, None),
            ("purge", False, 90),
        ]
