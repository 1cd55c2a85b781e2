"""The article's own statements, as it prints them; only the schema comes from our installer, and the wide GRANT is left out."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.crew import add, column, do, rows, task, value

CONFIG_OF_THE_TEXT = """
INSERT INTO octop_config VALUES
  ('scheduler.interval_seconds', '{"value": 5}'),
  ('task.timeout_seconds', '{"value": 300}');
"""
CONFIG_OF_5_2 = """
INSERT INTO octop_config (key, value) VALUES
  ('scheduler.interval_seconds', '{"value": 5}'),
  ('task.default_timeout_seconds', '{"value": 300}'),
  ('db.connection_pool_size', '{"value": 10}');
"""
TEST_TASK_OF_5_3 = """
INSERT INTO octop_tasks (task_type, scheduled_at, payload, max_retries)
VALUES ('test', NOW(), '{"message": "Hello from Octop"}', 1);
"""
REPORT_OF_6_1 = """
CREATE TABLE login_report_tasks (
  id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
  report_date DATE NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'success', 'failed', 'frozen')),
  created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
  started_at TIMESTAMPTZ NULL,
  completed_at TIMESTAMPTZ NULL,
  last_error TEXT NULL CHECK (length(last_error) <= 1024)
);
CREATE INDEX idx_login_report_tasks_date_status ON login_report_tasks (report_date, status) WHERE status = 'pending';
INSERT INTO login_report_tasks (report_date, status, created_at) VALUES ('2024-06-16', 'pending', NOW());
INSERT INTO octop_tasks ( task_type, scheduled_at, payload, max_retries )
VALUES ( 'login_report_daily', '2024-06-16 01:00:00+00', '{"report_date": "2024-06-16"}', 2 );
"""
SUMMARY_OF_6_3 = """
CREATE OR REPLACE VIEW octop_task_summary AS
SELECT status,
       COUNT(*) as count,
       MIN(scheduled_at) as earliest_scheduled,
       MAX(scheduled_at) as latest_scheduled,
       AVG(EXTRACT(EPOCH FROM (NOW() - scheduled_at))) as avg_delay_seconds
FROM octop_tasks GROUP BY status;
"""
FAILED_OF_6_3 = """
CREATE OR REPLACE VIEW octop_failed_tasks AS
SELECT id, task_type, scheduled_at, created_at, last_error,
       EXTRACT(EPOCH FROM (NOW() - created_at)) as age_seconds
FROM octop_tasks WHERE status IN ('failed', 'frozen') ORDER BY created_at DESC LIMIT 10;
"""
UNIQUE_INDEX_OF_4 = (
    "CREATE UNIQUE INDEX idx_octop_tasks_unique_key ON {} (task_type, (payload->>'user_id')) WHERE status = 'pending'"
)
COLUMNS_OF_5_2 = {
    "id": "uuid",
    "task_type": "text",
    "scheduled_at": "timestamp with time zone",
    "status": "text",
    "payload": "jsonb",
    "created_at": "timestamp with time zone",
    "started_at": "timestamp with time zone",
    "completed_at": "timestamp with time zone",
    "retry_count": "integer",
    "max_retries": "integer",
    "last_error": "text",
}


@pytest.fixture
def octop_app(database):
    """The application's login of 5.1, with what it needs and no more."""
    return database.make_role("octop_producer", "octop_worker", name="octop_app")


def test_the_configuration_rows_of_the_article_are_taken_over_ours(database):
    database.psql(CONFIG_OF_THE_TEXT + CONFIG_OF_5_2)
    found = database.psql(
        "SELECT key, value FROM octop_config WHERE key IN ('scheduler.interval_seconds', 'task.default_timeout_seconds',"
        " 'task.timeout_seconds', 'db.connection_pool_size') ORDER BY key",
        flags=["-At"],
    )
    assert found.splitlines() == [
        'db.connection_pool_size|{"value": 10}',
        'scheduler.interval_seconds|{"value": 5}',
        'task.default_timeout_seconds|{"value": 300}',
        'task.timeout_seconds|{"value": 300}',
    ]


def test_the_table_has_the_columns_of_the_article_with_their_types(database):
    shown = database.psql(r"\d octop_tasks", flags=["-At"])
    found = {line.split("|")[0]: line.split("|")[1] for line in shown.splitlines() if line.count("|") >= 4}
    assert {name: found[name] for name in COLUMNS_OF_5_2} == COLUMNS_OF_5_2


def test_backslash_dt_lists_both_tables_of_the_article(database):
    listed = {line.split("|")[1] for line in database.psql(r"\dt octop_*", flags=["-At"]).splitlines()}
    assert {"octop_tasks", "octop_config"} <= listed


def test_the_applications_role_registers_the_test_task_and_it_becomes_success(database, dba, hire, octop_app):
    database.psql(TEST_TASK_OF_5_3, role=octop_app)
    ((task_id, status, retries),) = rows(
        dba, "select id, status, max_retries from octop_tasks where task_type = 'test'"
    )
    assert (status, retries) == ("pending", 1)
    worker = hire(types=["test"])
    with database.connect(octop_app) as connection:
        worker.connection = connection
        claimed = worker.claim_one()
        assert claimed.payload == '{"message": "Hello from Octop"}'
        assert task(dba, task_id)["status"] == "running"
        assert worker.succeed(claimed) == []
    done = task(dba, task_id)
    assert done["status"] == "success"
    assert done["started_at"] <= done["completed_at"]


def test_the_report_of_6_1_is_registered_beside_the_applications_own_table(database, dba, hire):
    database.psql(REPORT_OF_6_1)
    claimed = hire(types=["login_report_daily"]).claim_one()
    assert (claimed.task_type, claimed.payload) == ("login_report_daily", '{"report_date": "2024-06-16"}')
    assert value(dba, "select count(*) from login_report_tasks") == 1


def test_the_applications_role_has_no_create_and_no_delete(database, dba, octop_app):
    task_id = add(dba)
    for statement in (
        "create table mine (a int)",
        "create function mine() returns int language sql as 'select 1'",
        "delete from octop_tasks",
        "truncate octop_tasks",
        "drop view octop_task_summary",
        "delete from octop_config",
    ):
        answer = database.psql(statement, role=octop_app, check=False)
        assert "permission denied" in answer or "must be owner" in answer, statement
    assert task(dba, task_id)["status"] == "pending"


def test_the_applications_role_cannot_set_a_status_by_hand(database, dba, octop_app):
    task_id = add(dba)
    for statement in (
        "UPDATE octop_tasks SET status = 'success', completed_at = NOW()",
        "UPDATE octop_tasks SET status = 'running', started_at = NOW()",
        "INSERT INTO octop_tasks (task_type, status) VALUES ('t', 'success')",
        "INSERT INTO octop_tasks (task_type, retry_count) VALUES ('t', 3)",
    ):
        assert "permission denied" in database.psql(statement, role=octop_app, check=False), statement
    assert column(dba, "select status from octop_tasks") == ["pending"]
    assert task(dba, task_id)["attempt"] == 0


def test_a_frozen_task_comes_back_by_the_owners_update_and_has_all_its_tries(database, dba, hire):
    task_id = add(dba, max_retries=1, retry_policy='{"delays": [0]}')
    worker = hire()
    assert [worker.end(worker.claim_one()) for _ in range(2)] == ["failed", "frozen"]
    database.psql(f"SET ROLE octop_owner; UPDATE octop_tasks SET status = 'pending' WHERE id = '{task_id}';")
    back = task(dba, task_id)
    assert (back["status"], back["retry_count"], back["attempt"]) == ("pending", 0, 2)
    assert [worker.end(worker.claim_one()) for _ in range(2)] == ["failed", "frozen"]


def test_pending_to_anything_but_cancelled_by_hand_is_refused_and_changes_nothing(dba):
    for status in ["success", "running", "failed", "frozen", "blocked"]:
        task_id = add(dba)
        with pytest.raises(psycopg.Error) as refused:
            do(dba, "update octop_tasks set status = %s where id = %s", status, task_id)
        assert refused.value.sqlstate == "OC102"
        assert refused.value.diag.message_hint
        assert task(dba, task_id)["status"] == "pending"


def test_the_summary_view_has_the_columns_and_types_of_the_article(dba):
    do(dba, SUMMARY_OF_6_3.replace("octop_task_summary", "theirs"))
    described = (
        "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid ="
        " %s::regclass and attnum > 0 order by attnum"
    )
    assert rows(dba, described, "octop_task_summary") == rows(dba, described, "theirs")


def test_both_views_of_the_article_can_be_created_over_ours_and_ours_over_them(database, dba):
    from octop.engine.install import install

    add(dba)
    for role in ("", "SET ROLE octop_owner;"):
        database.psql(role + SUMMARY_OF_6_3 + FAILED_OF_6_3)
    assert rows(dba, "select status, count from octop_task_summary") == [("pending", 1)]
    # an upgrade puts ours back
    do(dba, "update octop_migrations set checksum = 'older' where name = 'functions'")
    assert install(database.url).current
    assert "_octop_summary" in value(dba, "select pg_get_viewdef('octop_task_summary'::regclass)")
    assert rows(dba, "select status, count from octop_task_summary") == [("pending", 1)]


def test_the_failed_tasks_view_answers_what_the_articles_does(database, dba, hire):
    do(dba, FAILED_OF_6_3.replace("octop_failed_tasks", "theirs"))
    database.clock.advance(0)
    worker = hire()
    for tries in (0, 5):
        add(dba, max_retries=tries)
        worker.end(worker.claim_one(), error_class="ValueError", error_message="no")
    ours = rows(dba, "select id, task_type, scheduled_at, created_at, last_error from octop_failed_tasks")
    assert ours == rows(dba, "select id, task_type, scheduled_at, created_at, last_error from theirs")
    assert [row[4] for row in ours] == ["ValueError: no"] * 2


def test_the_articles_first_index_can_be_created_on_the_table(dba):
    do(
        dba,
        "CREATE INDEX idx_octop_tasks_scheduled_status ON octop_tasks (scheduled_at, status) WHERE status = 'pending'",
    )
    assert add(dba)


def test_the_articles_unique_index_stands_on_the_live_leaf_and_refuses_a_second_waiting_task(dba, hire):
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        do(dba, UNIQUE_INDEX_OF_4.format("octop_tasks"))  # PostgreSQL: it would have to hold the partition key
    do(dba, UNIQUE_INDEX_OF_4.format("octop_tasks_live"))
    add(dba, "sync", payload='{"user_id": 1}')
    for again in (
        "select octop_enqueue('sync', '{\"user_id\": 1}')",
        "insert into octop_tasks (task_type, payload) values ('sync', '{\"user_id\": 1}')",
    ):
        with pytest.raises(psycopg.errors.UniqueViolation):
            do(dba, again)
    add(dba, "sync", payload='{"user_id": 2}')
    worker = hire(types=["sync"])
    (first, second) = worker.claim(2)
    add(dba, "sync", payload='{"user_id": 1}')  # the first one runs: it waits no more
    assert worker.succeed(first, second) == []
