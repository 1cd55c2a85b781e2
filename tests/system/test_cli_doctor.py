"""`octop doctor` as a whole: what it prints, what it looks at, as whom it asks, and that it changes nothing."""

from __future__ import annotations

import re
import sys

import pytest

from octop.engine.call import Call, Rows
from octop.engine.connect import open_connection
from octop.engine.diagnosis import look
from octop.model.errors import OctopError
from tests.sql.crew import add, do, rows, value
from tests.system.doctor import SHORT_OF_A_WHOLE_SERVER
from tests.system.provoked import provokes


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
