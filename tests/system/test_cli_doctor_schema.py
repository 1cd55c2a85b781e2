"""`octop doctor` about the schema: each drift is found, and gone after the very command that is named."""

from __future__ import annotations

import json
import uuid

import pytest

from octop import __version__
from octop.cli import entry
from tests.sql.crew import add, value
from tests.system.doctor import SHORT_OF_A_WHOLE_SERVER, Doctor
from tests.system.provoked import provokes


@provokes("schema.missing")
def test_no_schema_is_a_finding_and_the_exit_code_5(alone, empty_database, monkeypatch, capsys):
    monkeypatch.setenv("OCTOP_DSN", empty_database.url)
    doctor = Doctor(empty_database, capsys)
    empty_database.psql("revoke create on schema public from public")
    finding = doctor.one("schema.missing")
    assert [each["id"] for each in doctor.findings("--only", "grants", code=5)] == ["schema.missing"]
    doctor.cure(finding)
    assert doctor.findings("--only", "schema", "--only", "grants", code=0) == []


def test_no_database_is_the_exit_code_4_after_what_this_machine_shows(doctor, monkeypatch):
    monkeypatch.setenv("OCTOP_DSN", "postgresql://nobody@127.0.0.1:1/nothing")
    monkeypatch.setenv("OCTOP_DNS", "x")
    text = doctor(code=4)
    assert "OCTOP_DNS means nothing" in text
    assert "cannot be used now" in doctor.err


@provokes("schema.older")
def test_an_older_schema_is_migrated(doctor):
    doctor.database.psql("update octop_migrations set checksum = 'x', version = '0.0.1' where name = 'functions'")
    finding = doctor.heals("schema.older")
    assert "is that of Octop 0.0.1" in finding["what"]


def test_other_functions_under_the_same_version_are_told_by_their_checksum(doctor):
    doctor.database.psql("update octop_migrations set checksum = 'x' where name = 'functions'")
    what = doctor.heals("schema.older")["what"]
    assert what == (
        f"the schema public says {__version__}, as this package does, but its functions are not those of this package"
        " (their checksum differs)"
    )


@provokes("schema.newer", "schema.migration_changed")
def test_a_newer_schema_and_a_changed_migration_are_told_apart(doctor):
    doctor.database.psql("insert into octop_migrations (name, checksum, version) values ('9999_later.sql', 'x', '9.0')")
    assert "octop-scheduler>=" in doctor.one("schema.newer")["cure"][0]["run"]
    doctor.database.psql(
        "delete from octop_migrations where name = '9999_later.sql'; update octop_migrations set checksum = 'x' where name ~ '^0001'"
    )
    assert "0001_core.sql" in doctor.one("schema.migration_changed")["what"]


# By id what is broken, and how it is said. Many at once: each doctor run and each cure costs as much as for one.
DRIFT = {
    "code": [
        ("schema.code_differs", "create or replace function octop_uuid7() returns uuid language sql as 'select gen_random_uuid()'",
         "the function octop_uuid7() has another body"),
        ("schema.code_differs", "alter function octop_control(uuid, uuid[], integer[]) security invoker",
         "the function octop_control(worker_id uuid, ids uuid[], attempts integer[]) has another declaration"),
        ("schema.code_differs", "alter function octop_beat(uuid[]) reset search_path", "the function octop_beat(worker_ids uuid[]) has another declaration"),
        ("schema.code_differs", "drop function octop_doubt()", "the function octop_doubt() is missing"),
        ("schema.code_differs", "drop view octop_running_tasks", "the view octop_running_tasks is missing"),
        ("schema.code_differs", "create or replace view octop_failed_tasks as select t.id, t.task_type, t.scheduled_at, t.created_at,"
         " t.last_error, 1::numeric as age_seconds from octop_tasks t", "the view octop_failed_tasks is another one"),
        ("schema.code_differs", "drop view octop_latest_failures; create view octop_latest_failures as select 1 as one",
         "the view octop_latest_failures is another one"),
        ("schema.code_differs", "drop trigger octop_queues_audit on octop_queues", "the trigger octop_queues_audit on octop_queues is missing"),
        ("schema.trigger_disabled", "alter table octop_tasks disable trigger octop_tasks_born_pending",
         "the trigger octop_tasks_born_pending on octop_tasks is disabled"),
        ("schema.trigger_disabled", "alter table octop_tasks_done_stray disable trigger all", "the trigger octop_tasks_done_stray_refuse on"),
        ("schema.owner_differs", "alter function octop_sweep(uuid) owner to current_user", "the function octop_sweep(worker_id uuid) belongs to octop,"),
        ("schema.owner_differs", "alter table octop_audit owner to current_user", "the table octop_audit belongs to octop,"),
    ],
    "parts": [
        ("schema.index_missing", "drop index octop_tasks_live_ready", "the index octop_tasks_live_ready is missing"),
        ("schema.index_missing", "drop index octop_tasks_done_id", "the index octop_tasks_done_id is missing"),
        ("schema.index_missing", "drop index octop_tasks_live_failed; create index octop_tasks_live_failed on octop_tasks_live (created_at)",
         "the index octop_tasks_live_failed is another one"),
        ("schema.index_invalid", "update pg_index set indisvalid = false where indexrelid = 'octop_audit_at'::regclass",
         "the index octop_audit_at is invalid"),
        ("schema.constraint_differs", "alter table octop_tasks_live drop constraint octop_tasks_live_payload_is_an_object",
         "the constraint octop_tasks_live_payload_is_an_object is missing"),
        ("schema.constraint_differs", "alter table octop_tasks_live drop constraint octop_tasks_live_pkey",
         "the constraint octop_tasks_live_pkey is missing"),
        ("schema.constraint_differs", "alter table octop_queues drop constraint octop_queues_max_retries_is_in_range;"
         " alter table octop_queues add constraint octop_queues_max_retries_is_in_range check (max_retries between 0 and 1000) not valid",
         "the constraint octop_queues_max_retries_is_in_range is not validated"),
        ("schema.constraint_differs", "alter table octop_queues drop constraint octop_queues_worker_limit_is_in_range;"
         " alter table octop_queues add constraint octop_queues_worker_limit_is_in_range check (worker_limit > 0)",
         "the constraint octop_queues_worker_limit_is_in_range is another one"),
    ],
    "tables": [
        ("schema.table_missing", "drop table octop_attempts cascade", "the table octop_attempts is missing"),
        ("schema.table_missing", "drop table octop_tasks_frozen cascade", "the table octop_tasks_frozen is missing"),
        ("schema.table_missing", "drop table _octop_sleepers", "the table _octop_sleepers is missing"),
        ("schema.table_differs", "alter table octop_queues drop column created_at", "the column octop_queues.created_at is missing"),
        ("schema.table_differs", "alter table octop_workers alter column draining drop default", "the column octop_workers.draining has another"),
        ("schema.table_differs", "alter table octop_workers alter column name drop not null", "the column octop_workers.name has another"),
        ("schema.table_differs", "alter table octop_audit alter column application type varchar(200)", "the column octop_audit.application has another"),
        ("schema.table_differs", "alter table octop_tasks detach partition octop_tasks_live", "the table octop_tasks_live is no partition of octop_tasks"),
        ("schema.table_differs", "alter table octop_config set unlogged", "the table octop_config is not logged"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("group", DRIFT)
@provokes(by={"group": {group: {kind for kind, _, _ in broken} for group, broken in DRIFT.items()}})
def test_drift_is_found_and_put_right(doctor, group):
    doctor.database.psql("set client_min_messages = warning; " + ";".join(broken for _, broken, _ in DRIFT[group]))
    found = doctor.findings("--only", "schema", code=1)
    said = [(each["id"], words) for each in found for words in (each["what"], *each["detail"])]
    for kind, _, words in DRIFT[group]:
        assert any(kind == each and text.startswith(words) for each, text in said), (words, said)
    for each in found:
        doctor.cure(each)
    for each in doctor.findings("--only", "schema,grants"):  # the rights on a table that is there again
        doctor.cure(each)
    assert doctor.findings("--only", "schema,grants", "--strict", code=0) == []


def test_migrate_again_says_what_it_did_and_keeps_what_is_there(doctor, database):
    with database.connect() as connection:
        task_id = add(connection)
        connection.execute("update octop_config set value = '{\"value\": 7}' where key = 'worker.concurrency'")
        assert entry.run(["migrate", "--again"]) == 0
        assert (
            "Put functions, views, triggers and grants of the schema public in place again."
            in doctor.capsys.readouterr().out
        )
        assert entry.run(["migrate", "--again", "--json"]) == 0
        assert json.loads(doctor.capsys.readouterr().out)["did"] == "repeated"
        assert value(connection, "select count(*) from octop_tasks where id = %s", task_id) == 1
        assert value(connection, "select value ->> 'value' from octop_config where key = 'worker.concurrency'") == "7"


@provokes("schema.foreign_trigger")
def test_triggers_of_others_on_our_tables_are_taken_off(doctor):
    doctor.database.psql(
        "create function copies() returns trigger language plpgsql as 'begin return new; end';"
        'create trigger "Copies" after insert on octop_tasks for each row execute function copies();'
        "create trigger counts after update on octop_workers for each statement execute function copies()"
    )
    found = doctor.findings("--only", "schema", code=1)
    assert {(each["id"], each["what"]) for each in found} == {
        ("schema.foreign_trigger", "the trigger Copies on octop_tasks is not ours"),
        ("schema.foreign_trigger", "the trigger counts on octop_workers is not ours"),
    }
    for each in found:
        doctor.cure(each)
    assert doctor.findings("--only", "schema", "--strict", code=0) == []


@provokes("schema.foreign_column", "schema.code_differs")
def test_columns_of_others_in_our_tables_are_named_and_dropped(doctor):
    """The view as an older release made it, so that it holds the column too: it goes first."""
    doctor.database.psql(
        'alter table octop_tasks add column "Cost" int, add column tax int; alter table octop_queues add column team text;'
        "drop view octop_my_tasks; create view octop_my_tasks as select t.* from octop_tasks t;"
        "alter view octop_my_tasks owner to octop_owner"
    )
    found = doctor.findings("--only", "schema", code=1)
    assert [(each["id"], each["what"]) for each in found] == [
        ("schema.code_differs", "the view octop_my_tasks is another one"),
        ("schema.foreign_column", "the column octop_tasks.Cost is not ours"),
        ("schema.foreign_column", "the column octop_tasks.tax is not ours"),
        ("schema.foreign_column", "the column octop_queues.team is not ours"),
    ]
    assert found[1]["cure"] == [{"in": "psql", "run": 'alter table public.octop_tasks drop column "Cost";'}]
    assert "copy it away first" in found[1]["hint"]
    for each in found:
        doctor.cure(each)
    assert doctor.findings("--only", "schema,grants", "--strict", code=0) == []


def test_what_others_add_is_no_drift(doctor):
    doctor.database.psql(
        "create index my_own on octop_tasks_live (tenant); create table my_table (a int); create view my_view as select * from octop_task_summary"
    )
    assert doctor.findings("--only", "schema,grants", "--strict", code=0) == []


@pytest.mark.all_versions
def test_c108_drift_is_the_same_in_a_schema_of_another_name_and_with_other_roles(
    alone, empty_database, monkeypatch, capsys
):
    prefix = f'My "{uuid.uuid4().hex[:6]}" '
    monkeypatch.setenv("OCTOP_DSN", empty_database.url)
    monkeypatch.setenv("OCTOP_SCHEMA", 'My "own" jobs')
    empty_database.roles += [f"{prefix}{role}" for role in ("owner", "producer", "worker", "operator", "viewer")]
    assert entry.run(["migrate", "--role-prefix", prefix]) == 0
    doctor = Doctor(empty_database, capsys)
    skipped = [word for each in SHORT_OF_A_WHOLE_SERVER for word in ("--skip", each)]
    assert doctor.findings(*skipped, "--strict", code=0) == []
    empty_database.psql(
        'set search_path = "My ""own"" jobs"; drop index octop_tasks_live_ready; drop function octop_doubt();'
        "alter table octop_queues drop constraint octop_queues_max_retries_is_in_range; grant update on octop_tasks to public"
    )
    found = doctor.findings(*skipped, code=1)
    assert {each["id"] for each in found} == {
        "schema.code_differs", "schema.index_missing", "schema.constraint_differs", "grants.too_wide",
    }  # fmt: skip
    for each in found:
        doctor.cure(each)
    assert doctor.findings(*skipped, "--strict", code=0) == []
