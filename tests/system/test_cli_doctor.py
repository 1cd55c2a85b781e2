"""`octop doctor`: each finding is provoked, and is gone after the very command that it names."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import uuid

import psycopg
import pytest

from octop import __version__
from octop.cli import entry
from octop.cli.doctor.kinds import BY_ID
from octop.engine.call import Call, Rows
from octop.engine.connect import open_connection
from octop.engine.diagnosis import look
from octop.model.errors import OctopError
from tests.servers import HOUSE
from tests.sql.crew import Worker, add, add_many, ages, do, rows, value
from tests.system.provoked import provokes, saw

SHORT_OF_A_WHOLE_SERVER = (
    # what the servers of the tests are like, who else tests there, and from where the tests may be started
    "settings", "roles", "statements", "clocks", "package",
)  # fmt: skip


class Doctor:
    """Runs `octop doctor` on one database, and the cures that it names."""

    def __init__(self, database, capsys):
        self.database = database
        self.capsys = capsys

    def __call__(self, *arguments, code=None):
        self.capsys.readouterr()
        ended = entry.run(["doctor", *map(str, arguments)])
        printed = self.capsys.readouterr()
        self.err = printed.err
        if code is not None:
            assert ended == code, printed
        return printed.out

    def findings(self, *arguments, code=None):
        found = json.loads(self(*arguments, "--json", code=code))
        saw(each["id"] for each in found)
        return found

    def one(self, kind, *arguments):
        """Return the only finding of this kind, and see that its exit code is that of its severity."""
        bad = BY_ID[kind].severity > 1
        schema = kind in {"schema.missing", "schema.older", "schema.newer", "schema.migration_changed"}
        (finding,) = self.findings("--only", kind, *arguments, code=5 if schema else int(bad))
        assert finding["id"] == kind
        assert finding["severity"] == str(BY_ID[kind].severity)
        assert finding["what"]
        assert finding["why"]
        return finding

    def cure(self, finding):
        """Run what the finding names, as a person would type it."""
        for place in ("psql", "shell"):
            lines = [step["run"] for step in finding["cure"] if step["in"] == place]
            if place == "psql" and lines:
                self.database.psql("\n".join(lines))
            for line in lines if place == "shell" else []:
                words = shlex.split(line, comments=True)
                if words[0] == "octop":
                    assert entry.run(words[1:]) == 0, line
                else:
                    subprocess.run(["/bin/sh", "-c", line], check=True)

    def heals(self, kind, *arguments):
        """Find it, run its cure, and find it no more."""
        finding = self.one(kind, *arguments)
        assert finding["cure"], "a finding names its cure"
        self.cure(finding)
        assert self.findings("--only", kind, *arguments, code=0) == []
        return finding


@pytest.fixture
def doctor(database, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCTOP_DSN", database.url)
    for name in ("DATABASE_URL", "OCTOP_SCHEMA", "OCTOP_APP", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Doctor(database, capsys)


@pytest.fixture
def hire(database):
    """Register workers on connections of their own."""
    made = []

    def new(**options):
        connection = open_connection(database.url, application_name="test")
        made.append(connection)
        worker = Worker(connection, **options)
        worker.register()
        return worker

    yield new
    for connection in made:
        connection.close()


# --- as a whole -------------------------------------------------------------------------------------------------------


def test_a_fresh_installation_has_no_findings(doctor):
    skipped = [word for each in SHORT_OF_A_WHOLE_SERVER for word in ("--skip", each)]
    assert doctor.findings(*skipped, "--strict", code=0) == []
    text = doctor(*skipped, code=0)
    assert "ok      tables, indexes, constraints, triggers, functions and views are as installed" in text
    fine = text.count("\n  ok      ")
    assert fine > 15
    assert text.splitlines()[-1] == f"{fine} checks are fine."
    assert "\x1b" not in text


def test_a_finding_says_what_and_why_and_the_command(doctor):
    doctor.database.psql("drop index octop_tasks_live_ready")
    text = doctor("--only", "schema", code=1)
    assert "warning the index octop_tasks_live_ready is missing  [schema.index_missing]" in text
    assert "grow slow with the backlog" in text
    assert "=> CREATE INDEX CONCURRENTLY octop_tasks_live_ready ON octop_tasks_live USING btree" in text
    assert text.endswith("Lines with => are typed in psql, lines with $ in the shell.\n2 checks are fine, 1 warning.\n")


def test_only_and_skip_take_ids_and_subjects(doctor):
    doctor.database.psql(
        "drop index octop_tasks_live_ready; alter table octop_tasks disable trigger octop_tasks_born_pending"
    )
    assert {each["id"] for each in doctor.findings("--only", "schema", code=1)} == {
        "schema.index_missing",
        "schema.trigger_disabled",
    }
    assert [each["id"] for each in doctor.findings("--only", "schema.index_missing,grants", code=1)] == [
        "schema.index_missing"
    ]
    assert (
        doctor.findings(
            "--only", "schema", "--skip", "schema.index_missing", "--skip", "schema.trigger_disabled", code=0
        )
        == []
    )
    doctor("--only", "schema.index_mising", code=2)
    assert "did you mean schema.index_missing?" in doctor.err


def test_what_is_only_worth_knowing_is_no_failure_unless_strict(doctor, database):
    with database.connect() as connection:
        add(connection, "t")
        do(connection, "update octop_tasks set status = 'cancelled' where status = 'pending'")
        do(
            connection,
            "insert into octop_holds (kind, target, created_at) values ('queue', 'mail', now() - interval '3 days')",
        )
    doctor.one("queues.paused")
    doctor("--only", "queues", "--strict", code=1)


def contents(connection):
    """Return all rows of all tables, each with the transaction that wrote it: no count of the server, which others move."""
    names = rows(
        connection,
        """
        select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
          where c.relkind = 'r' and n.nspname !~ '^(pg_|information_schema)' order by 1
        """,
    )
    return {name: rows(connection, f"select xmin::text, x::text from {name} x order by ctid") for (name,) in names}


def test_it_changes_nothing_and_cannot(doctor, database):
    with database.connect() as connection:
        before = contents(connection)
        doctor()
        assert contents(connection) == before


def test_what_it_asks_with_refuses_to_write(database):
    write: Call[Rows] = Call("insert into octop_holds (kind, target) values ('queue', 'mail')")
    with open_connection(database.url, application_name="test") as connection:
        with pytest.raises(OctopError, match="read-only"):
            look(connection, write)
        assert value(connection, "select count(*) from octop_holds") == 0
        assert value(connection, "show statement_timeout") == "2min"  # as before


@pytest.mark.all_versions
@provokes("doctor.not_looked_at")
def test_it_asks_as_a_viewer_and_says_what_it_may_not_see(doctor, database, monkeypatch):
    viewer = database.make_role("octop_viewer")
    monkeypatch.setenv("OCTOP_DSN", database.url_as(viewer))
    skipped = [word for each in SHORT_OF_A_WHOLE_SERVER for word in ("--skip", each)]
    (finding,) = doctor.findings(*skipped, code=0)
    assert (finding["id"], finding["severity"]) == ("doctor.not_looked_at", "info")
    assert "needs pg_read_all_stats" in finding["what"]
    doctor.cure(finding)
    assert doctor.findings(*skipped, code=0) == []


def test_without_the_role_of_a_viewer_each_check_says_so_and_none_stops_the_others(doctor, database, monkeypatch):
    nobody = database.make_role()
    monkeypatch.setenv("OCTOP_DSN", database.url_as(nobody))
    with database.connect() as connection:
        connection.execute(f"grant usage on schema public to {nobody}; grant select on octop_migrations to {nobody}")
        connection.execute("drop index octop_tasks_live_ready")
    found = doctor.findings("--only", "schema", "--only", "workers", "--only", "tasks.frozen", code=1)
    ids = [each["id"] for each in found]
    assert "schema.index_missing" in ids
    assert ids.count("doctor.not_looked_at") == 3
    doctor.cure(next(each for each in found if each["id"] == "doctor.not_looked_at"))
    assert [
        each["id"]
        for each in doctor.findings("--only", "schema", "--only", "workers", "--only", "tasks.frozen", code=1)
    ] == ["schema.index_missing"]


@provokes("doctor.failed")
def test_a_check_that_takes_too_long_is_a_finding_and_stops_no_other(doctor, database):
    with database.connect(autocommit=False) as connection:
        connection.execute("lock table octop_workers in access exclusive mode")
        found = doctor.findings(
            "--only", "workers", "--only", "schema.index_missing", "--check-timeout", "300ms", code=1
        )
        assert {each["id"] for each in found} == {"doctor.failed"}
        connection.rollback()
        assert "--check-timeout 60s" in found[0]["cure"][0]["run"]
        doctor.cure(found[0])


def test_a_locked_table_of_migrations_holds_up_nothing(doctor, database):
    with database.connect(autocommit=False) as connection:
        connection.execute("lock table octop_migrations in access exclusive mode")
        found = doctor.findings("--only", "vacuum,queues", "--check-timeout", "300ms", code=1)
        connection.rollback()
    assert [each["id"] for each in found] == ["doctor.failed"]
    assert "migrations and functions are those of this package" in found[0]["what"]
    assert "--check-timeout 60s" in found[0]["cure"][0]["run"]
    assert doctor.findings("--only", "vacuum,queues", code=0) == []


def test_the_picture_of_the_schema_is_taken_within_the_time_of_one_question(doctor):
    found = doctor.findings("--only", "schema.index_missing", "--check-timeout", "1ms", code=1)
    assert "tables, indexes, constraints" in found[-1]["what"]
    assert "longer than 0.001 s" in found[-1]["what"]


def test_on_a_terminal_it_has_colours_and_fits(doctor, monkeypatch):
    doctor.database.psql("drop index octop_tasks_live_ready")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    text = doctor("--only", "schema", code=1)
    assert "\x1b[33m  warning \x1b[0mthe index octop_tasks_live_ready is missing" in text
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    # a command is never wrapped: it is to be copied
    assert max(len(line) for line in bare if "=> " not in line) <= 60
    assert "\x1b" not in doctor("--only", "schema", "--json", code=1)
    assert "\x1b[3" not in doctor("--only", "schema", "--no-color", code=1)


def test_c113_a_password_is_in_no_output(doctor, database, monkeypatch, tmp_path):
    secret = "S3cr%40t"
    (tmp_path / "octop.toml").write_text(f'dsn = "postgresql://octop:{secret}@127.0.0.1:1/nothing"')
    monkeypatch.delenv("OCTOP_DSN")
    for arguments in ([], ["-v"], ["--json"]):
        text = doctor(*arguments, code=4)
        assert "environment.readable_password" in text
        assert "S3cr" not in text + doctor.err
    url = database.url.replace("?", f"?password={secret}&")
    database.psql("drop function octop_doubt()")
    for arguments in ([], ["-v"], ["--json"]):
        text = doctor("--dsn", url, "--only", "schema,environment", *arguments, code=1)
        assert "octop migrate --again --dsn" in text
        assert "S3cr" not in text + doctor.err


# --- the schema -------------------------------------------------------------------------------------------------------


@provokes("schema.missing")
def test_no_schema_is_a_finding_and_the_exit_code_5(empty_database, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
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
        ("schema.code_differs", "alter function octop_control(uuid) security invoker", "the function octop_control(worker_id uuid) has another declaration"),
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


def test_what_others_add_is_no_drift(doctor):
    doctor.database.psql(
        "create index my_own on octop_tasks_live (tenant); create table my_table (a int); create view my_view as select * from octop_task_summary"
    )
    assert doctor.findings("--only", "schema,grants", "--strict", code=0) == []


@pytest.mark.all_versions
def test_c108_drift_is_the_same_in_a_schema_of_another_name_and_with_other_roles(
    empty_database, postgres, monkeypatch, tmp_path, capsys
):
    prefix = f'My "{uuid.uuid4().hex[:6]}" '
    monkeypatch.chdir(tmp_path)
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


# --- rights -----------------------------------------------------------------------------------------------------------


@provokes("grants.public_creates")
def test_public_that_may_create_is_shut_out(doctor):
    doctor.database.psql("grant create on schema public to public")
    doctor.heals("grants.public_creates")


@provokes("grants.others_create")
def test_another_role_that_may_create_is_shut_out(doctor, database):
    other = database.make_role()
    database.psql(f"grant create on schema public to {other}")
    doctor.heals("grants.others_create")


@provokes("grants.too_wide", "grants.on_leaf", "grants.direct")
def test_the_wide_grant_of_the_article_is_taken_back_and_the_application_goes_on(doctor, database):
    app = database.make_role(name="octop_app")
    database.psql(
        f"GRANT USAGE ON SCHEMA public TO {app}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {app};"
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {app}"
    )
    found = doctor.findings("--only", "grants", code=1)
    assert {each["id"] for each in found} == {"grants.too_wide", "grants.on_leaf", "grants.direct"}
    leaves = json.dumps(next(each for each in found if each["id"] == "grants.on_leaf")["cure"])
    assert all(f"public.{leaf}" in leaves for leaf in ("octop_tasks_live", "octop_tasks_done_2", "_octop_counters"))
    assert "public.octop_config" not in leaves
    wide = next(each for each in found if each["id"] == "grants.too_wide")
    assert wide["hint"].startswith(
        f"If it runs workers: grant octop_worker to {app}; In psql as a superuser, or a role with ADMIN"
    )
    assert not any("octop_worker " in step["run"] for step in wide["cure"])
    for each in found:
        doctor.cure(each)
    assert doctor.findings("--only", "grants", "--strict", code=0) == []
    with database.connect() as connection:
        assert not value(connection, "select pg_has_role(%s, 'octop_worker', 'member')", app)
    with database.connect(app) as connection:
        connection.execute("insert into octop_tasks (task_type) values ('t')")
        assert rows(connection, "select status from octop_tasks") == [("pending",)]
        for statement in (
            "update octop_tasks set status = 'cancelled'",
            "select from octop_tasks_live",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_a_login_with_a_wide_grant_that_is_seen_to_run_workers_stays_one(doctor, database):
    app, other = database.make_role(name="octop_app"), database.make_role(name="octop_web")
    database.psql(f"grant select, insert on octop_tasks to {app}, {other}")
    with psycopg.connect(database.url_as(app), application_name="octop worker exchange"):
        cures = {
            role: [step["run"] for step in each["cure"]]
            for each in doctor.findings("--only", "grants.too_wide", code=1)
            for role in (app, other)
            if role in each["what"]
        }
    assert f"grant octop_worker to {app};" in cures[app]
    assert not any("octop_worker" in line for line in cures[other])


@provokes("grants.public_execute")
def test_rights_of_public_on_functions_and_columns_are_taken_back(doctor):
    doctor.database.psql(
        "grant execute on function octop_sweep(uuid) to public; grant update (status) on octop_tasks to octop_producer;"
        "grant execute on function _octop_audit_write(text, text, jsonb) to octop_viewer"
    )
    found = doctor.findings("--only", "grants", code=1)
    assert sorted((each["id"], each["what"]) for each in found) == [
        ("grants.public_execute", "PUBLIC has EXECUTE on octop_sweep"),
        ("grants.too_wide", "octop_producer has UPDATE on octop_tasks"),
        ("grants.too_wide", "octop_viewer has EXECUTE on _octop_audit_write"),
    ]
    for each in found:
        doctor.cure(each)
    assert doctor.findings("--only", "grants", "--strict", code=0) == []


@provokes("grants.missing")
def test_a_right_that_is_gone_comes_back(doctor):
    doctor.database.psql(
        "revoke execute on function octop_beat(uuid[]) from octop_worker; revoke insert (payload) on octop_tasks from octop_producer"
    )
    finding = doctor.heals("grants.missing")
    assert "EXECUTE on octop_beat(worker_ids uuid[]) of worker" in finding["what"].replace("octop_worker", "worker")


@provokes("roles.owner_is_mighty")
def test_an_owner_with_power_loses_it(empty_database, monkeypatch, tmp_path, capsys):
    prefix = f"d{uuid.uuid4().hex[:8]}_"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCTOP_DSN", empty_database.url)
    empty_database.psql("revoke create on schema public from public")
    empty_database.roles += [f"{prefix}{role}" for role in ("owner", "producer", "worker", "operator", "viewer")]
    assert entry.run(["migrate", "--role-prefix", prefix]) == 0
    empty_database.psql(f"alter role {prefix}owner superuser login")
    finding = Doctor(empty_database, capsys).heals("roles.owner_is_mighty")
    assert finding["what"] == f"{prefix}owner is a superuser and can log in"


# --- workers, queues, tasks -------------------------------------------------------------------------------------------


@provokes("workers.silent")
def test_a_silent_worker_loses_what_it_holds(doctor, database, hire):
    worker = hire()
    with database.connect() as connection:
        add(connection)
        worker.claim(1)
        ages(connection, 31, worker.id)
    finding = doctor.heals("workers.silent")
    assert "has been silent for 31" in finding["what"]
    assert finding["what"].endswith("and holds 1 tasks")
    assert doctor.findings("--only", "workers", "--strict", code=0) == []


@provokes("workers.left_behind")
def test_a_worker_that_left_nothing_behind_is_only_worth_knowing(doctor, database, hire):
    with database.connect() as connection:
        ages(connection, 31, hire().id)
    doctor.heals("workers.left_behind")


@provokes("workers.older_than_schema", "workers.mixed_versions")
def test_workers_of_other_versions(doctor, database, hire):
    old, new = hire(), hire()
    with database.connect() as connection:
        do(connection, "update octop_workers set version = '0.1.0' where id = %s", new.id)
        do(connection, "update octop_migrations set version = '0.1.0' where name = 'functions'")
        do(connection, "update octop_workers set version = '0.0.9' where id = %s", old.id)
        finding = doctor.one("workers.older_than_schema")
        (drain,) = [step["run"] for step in finding["cure"] if step["in"] == "psql"]
        database.psql(drain)
        assert value(connection, "select draining from octop_workers where id = %s", old.id)
        do(connection, "select octop_deregister(%s)", old.id)  # what a worker does that has ended its tasks
        assert doctor.findings("--only", "workers", code=0) == []
        hire()
        do(connection, "update octop_workers set version = '0.2.0' where version <> '0.1.0'")
    assert doctor.one("workers.mixed_versions")["what"] == "living workers run 0.1.0, 0.2.0"


@provokes("queues.unserved")
def test_a_queue_that_nobody_serves_gets_its_worker(doctor, database, monkeypatch):
    with database.connect() as connection:
        add(connection, "noop", queue="mail")
    assert "-A MODULE:ATTRIBUTE -q mail" in doctor.one("queues.unserved")["cure"][0]["run"]
    monkeypatch.setenv("OCTOP_APP", "tests.system.apps.everyday:octop")
    monkeypatch.chdir(HOUSE)
    finding = doctor.one("queues.unserved")
    assert finding["what"].startswith("1 tasks of the queue mail are due")
    finding["cure"][0]["run"] += " --drain"
    doctor.cure(finding)
    assert doctor.findings("--only", "queues.unserved", code=0) == []


def test_many_queues_that_nobody_serves_are_one_finding(doctor, database, hire):
    with database.connect() as connection:
        do(connection, "insert into octop_tasks (task_type, queue) select 't', 'q' || i from generate_series(1, 15) i")
        finding = doctor.one("queues.unserved")
        assert finding["what"] == "15 queues hold due tasks and nobody serves them"
        assert len(finding["detail"]) == 11
        assert finding["detail"][-1] == "and 5 more"
        assert len(finding["cure"][0]["run"].split()[-1].split(",")) == 15
        hire(queues=[f"q{number}" for number in range(1, 15)])
        connection.execute("select octop_drain(%s)", [hire(queues=["q15"]).id])
        assert doctor.one("queues.unserved")["what"].startswith("1 tasks of the queue q15 are due")
        connection.execute("select octop_pause('q15')")
        assert doctor.findings("--only", "queues.unserved", code=0) == []


@provokes("queues.stopped")
def test_a_queue_that_its_limit_stops_is_set_free(doctor, database):
    with database.connect() as connection:
        connection.execute("select octop_scale('mail', 0), octop_scale('idle', 0), octop_scale('slow', 1)")
        for queue in ("mail", "mail", "slow"):
            add(connection, "noop", queue=queue)
        add(connection, "noop", queue="idle", delay_seconds=3600)
        finding = doctor.heals("queues.stopped")
        assert finding["what"].startswith("2 tasks of the queue mail are due, the oldest since")
        assert finding["what"].endswith("and its limit is 0")
        assert value(connection, "select worker_limit from octop_queues where name = 'idle'") == 0
        connection.execute("select octop_scale('mail', 0), octop_pause('mail')")
        assert doctor.findings("--only", "queues.stopped", "--strict", code=0) == []


@provokes("types.unknown")
def test_parked_tasks_of_a_type_that_nobody_knows_get_their_worker(doctor, database, hire):
    worker = hire(types=["known"])
    with database.connect() as connection:
        for _ in range(3):
            add(connection, "unheard_of")
        assert worker.claim(5) == []
        finding = doctor.one("types.unknown")
        assert finding["what"] == (
            "parked in the queue default: 3 of the type unheard_of, none of its living workers (1) knows it"
        )
        hire(types=["unheard_of"])
        assert doctor.findings("--only", "types", code=0) == []
        assert value(connection, "select count(*) from octop_tasks where status = 'pending'") == 3


@provokes("queues.paused", "types.frozen")
def test_forgotten_pauses_and_freezes_are_lifted(doctor, database):
    with database.connect() as connection:
        connection.execute("select octop_pause('mail', 'the provider is down'), octop_freeze('send')")
        assert doctor.findings("--only", "queues,types", "--strict", code=0) == []
        do(connection, "update octop_holds set created_at = now() - interval '25 hours'")
    finding = doctor.heals("queues.paused")
    assert "is paused for 1d 1h, by octop: the provider is down" in finding["what"]
    doctor.heals("types.frozen")


@provokes("tasks.frozen")
def test_frozen_tasks_are_counted(doctor, database, hire):
    worker = hire()
    with database.connect() as connection:
        add(connection, "t", max_retries=0)
        worker.end(worker.claim_one(), error_class="ValueError", error_message="no")
    finding = doctor.one("tasks.frozen")
    assert finding["what"].startswith("1 frozen tasks, the commonest type is t,")
    assert [step["run"] for step in finding["cure"]] == [
        "octop failures status:frozen",
        "octop tasks retry status:frozen",
    ]
    finding["cure"][1]["run"] += " --yes"
    doctor.cure(finding)
    assert doctor.findings("--only", "tasks", "--strict", code=0) == []


@provokes("tasks.counters_drifted")
def test_counters_that_drifted_are_counted_anew(doctor, database, hire):
    worker = hire()
    with database.connect() as connection:
        add_many(connection, 6)
        worker.succeed(*worker.claim(2))
        assert doctor.findings("--only", "tasks", "--strict", code=0) == []
        do(
            connection,
            "insert into _octop_counter_deltas (tenant, queue, status, day, n) values ('', 'default', 'waiting', '-infinity', 5)",
        )
        do(connection, "delete from _octop_counter_deltas where status = 'success'")
        do(connection, "delete from _octop_counters where status = 'success'")
    finding = doctor.heals("tasks.counters_drifted")
    assert finding["what"] == "the counters say waiting 9 instead of 4, success 0 instead of 2"


# --- days and sweep ---------------------------------------------------------------------------------------------------


@provokes("days.missing", "days.stray")
def test_days_that_are_missing_are_made_and_strays_go_home(doctor, database, hire):
    worker = hire()
    with database.connect() as connection:
        database.clock.advance(days=20)
        worker.beat()
        add_many(connection, 3)
        worker.succeed(*worker.claim(3))
        found = {each["id"]: each["what"] for each in doctor.findings("--only", "days.missing,days.stray", code=1)}
        assert found["days.stray"] == "3 finished tasks lie in the stray partition"
        assert "7 days ahead have no partition, today's among them," in found["days.missing"]
        doctor.heals("days.stray")
        assert doctor.findings("--only", "days.missing", code=0) == []


def test_a_missing_day_in_the_middle_and_its_strays_are_found(doctor, database, hire):
    worker = hire()
    with database.connect() as connection:
        today = value(connection, "select (now() at time zone 'UTC')::date")
        connection.execute(f"drop table octop_tasks_done_{today:%Y%m%d}")
        add_many(connection, 2)
        worker.succeed(*worker.claim(2))
    found = {each["id"]: each["what"] for each in doctor.findings("--only", "days", code=1)}
    assert found["days.missing"] == f"1 days ahead have no partition, today's among them, from {today} to {today}"
    assert found["days.stray"] == "2 finished tasks lie in the stray partition"
    doctor.heals("days.missing")
    assert doctor.findings("--only", "days", "--strict", code=0) == []


def test_a_day_that_somebody_detached_is_attached_again(doctor, database):
    with database.connect() as connection:
        today = value(connection, "select (now() at time zone 'UTC')::date")
        day = f"octop_tasks_done_{today:%Y%m%d}"
        connection.execute(f"alter table octop_tasks_done detach partition {day}")
        finding = doctor.heals("days.missing")
        assert f"detached, and in the way of new ones: {day}" in finding["what"]
        assert [step["run"].split(" for values")[0] for step in finding["cure"]] == [
            f"alter table public.octop_tasks_done attach partition public.{day}",
            "select public.octop_make_days();",
        ]
        assert value(connection, "select relispartition from pg_class where relname = %s", day)


def test_a_detached_day_in_whose_place_strays_came_makes_room(doctor, database, hire):
    worker = hire()
    with database.connect() as connection:
        today = value(connection, "select (now() at time zone 'UTC')::date")
        day = f"octop_tasks_done_{today:%Y%m%d}"
        connection.execute(f"alter table octop_tasks_done detach partition {day}")
        add_many(connection, 2)
        worker.succeed(*worker.claim(2))
        finding = doctor.heals("days.missing")
        assert finding["cure"][0]["run"] == f"alter table public.{day} rename to detached_{day};"
        assert value(connection, f"select count(*) from {day}") == 2
    assert doctor.findings("--only", "days,schema", "--strict", code=0) == []


@provokes("days.not_dropped")
def test_days_beyond_the_retention_time_are_dropped(doctor, database):
    database.clock.advance(days=9)
    finding = doctor.heals("days.not_dropped")
    assert "1 days are older than the retention time" in finding["what"]


@provokes("days.nobody_sweeps", "days.no_worker")
def test_chores_that_nobody_does_are_done(doctor, database, hire):
    worker = hire()
    with database.connect() as connection:
        connection.execute("select octop_sweep(octop_uuid7())")
        do(connection, "update _octop_chores set next_at = now() - interval '1 hour'")
        finding = doctor.heals("days.nobody_sweeps")
        assert finding["what"] == "chores are overdue: days for 1h, purge for 1h"
        do(connection, "update _octop_chores set next_at = now() - interval '1 hour'")
        do(connection, "select octop_deregister(%s)", worker.id)
    finding = doctor.one("days.no_worker")
    assert finding["what"].startswith("no worker lives, and chores are overdue")
    finding["cure"] = finding["cure"][:1]
    doctor.cure(finding)
    assert doctor.findings("--only", "days", "--strict", code=0) == []


def test_the_last_day_ahead_may_wait_for_the_first_sweep_of_the_day(doctor, database):
    database.clock.advance(days=1)
    assert doctor.findings("--only", "days.missing", code=0) == []
    database.clock.advance(days=1)
    assert doctor.one("days.missing")["what"].startswith("1 days ahead have no partition, from ")


# --- vacuum -----------------------------------------------------------------------------------------------------------


@provokes("vacuum.old_transaction")
def test_an_old_transaction_is_named_by_its_pid_and_ended(doctor, database):
    with database.connect(autocommit=False, application_name="report") as connection:
        connection.execute("select pg_current_xact_id()")
        assert doctor.findings("--only", "vacuum", code=0) == []
        finding = doctor.heals("vacuum.old_transaction", "--longer-than", "0")
        assert "of octop (report), idle in transaction, has been open for" in finding["what"]
        assert str(connection.info.backend_pid) in finding["cure"][0]["run"]
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")


@provokes("vacuum.dead_rows")
def test_a_hot_table_with_dead_rows_is_vacuumed(doctor, database):
    with database.connect() as connection:
        hired = str(uuid.uuid4())
        do(connection, "insert into octop_workers (id, draining) values (%s, true)", hired)
        connection.execute(
            "do $$ begin for i in 1..3000 loop update octop_workers set pid = i; end loop; end $$; select pg_stat_force_next_flush()"
            if database.version >= 15
            else "do $$ begin for i in 1..3000 loop update octop_workers set pid = i; end loop; end $$"
        )
    with database.connect() as connection:
        wait_for(connection, "select n_dead_tup > 2500 from pg_stat_user_tables where relname = 'octop_workers'")
    finding = doctor.one("vacuum.dead_rows")
    assert finding["what"].startswith("octop_workers has ")
    doctor.cure(finding)
    with database.connect() as connection:
        wait_for(connection, "select n_dead_tup < 100 from pg_stat_user_tables where relname = 'octop_workers'")
    assert doctor.findings("--only", "vacuum", code=0) == []


def wait_for(connection, statement):
    """Wait until a statement answers true; the statistics of PostgreSQL come late."""
    for _ in range(500):
        if value(connection, statement):
            return
        connection.execute("select pg_sleep(0.02)")
    pytest.fail(f"never true: {statement}")


@provokes("vacuum.off_for_table")
def test_autovacuum_that_is_off_for_a_table_is_set_free(doctor):
    doctor.database.psql("alter table octop_tasks_live set (autovacuum_enabled = off)")
    doctor.heals("vacuum.off_for_table")


# --- connections ------------------------------------------------------------------------------------------------------


@provokes("connections.too_few")
def test_workers_with_their_pools_find_no_room(doctor, database, hire):
    for _ in range(4):
        hire()
    assert doctor.findings("--only", "connections", code=0) == []
    database.psql(f"alter database {database.name} connection limit 24")
    finding = doctor.heals("connections.too_few")
    # the room is what is left by the connections of this test, of which one or two may be closing at this moment
    assert re.match(
        "4 workers need 12 connections, and 52 when their pools of 10 are full; there is room for (19|2[0-4])",
        finding["what"],
    )
    database.psql(f"alter database {database.name} connection limit 14")
    assert "connection limit" in doctor.heals("connections.too_few")["cure"][0]["run"]
