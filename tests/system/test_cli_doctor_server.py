"""`octop doctor` where the whole server matters: its settings, prepared transactions, replication, pg_stat_statements."""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct

import psycopg
import pytest

from octop.cli import entry
from octop.engine.connect import open_connection
from octop.engine.diagnosis import look, server
from octop.engine.install import install
from tests import servers
from tests.sql.crew import add_many, rows, value
from tests.system.doctor import Doctor, wait_for
from tests.system.provoked import provokes


@pytest.fixture(scope="module")
def whole(postgres):
    """A server as a careful DBA would set it up, but for the first and second: nothing here waits for the disk."""
    settings = {
        "max_connections": "60", "wal_level": "logical", "max_wal_senders": "4", "max_prepared_transactions": "4",
        "shared_preload_libraries": "pg_stat_statements", "synchronous_commit": "on",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        # what stands on the command line, ALTER SYSTEM can not change
        patch.setattr(servers, "SETTINGS", {})
        with servers.own_server(postgres.version, settings) as made:
            yield made


@pytest.fixture
def doctor(alone, whole, monkeypatch, capsys):
    with whole.database(installed=True) as database:
        monkeypatch.setenv("OCTOP_DSN", database.url)
        yield Doctor(database, capsys)


def sees(doctor, setting, wanted):
    """Wait until new sessions have this value: the server reads its file when it gets round to it."""
    for _ in range(500):
        with doctor.database.connect() as connection:
            if value(connection, "select current_setting(%s)", setting) == wanted:
                return
    pytest.fail(f"{setting} never became {wanted}")


def test_a_well_kept_server_has_no_findings(doctor):
    assert doctor.findings("--skip", "statements,clocks,package", "--strict", code=0) == []


OFF = ("autovacuum", "track_counts", "track_activities", "fsync", "full_page_writes")


@provokes(*(f"settings.{name}" for name in OFF))
def test_settings_of_the_whole_server_are_put_right(doctor):
    assert doctor.findings("--only", "settings", "--strict", code=0) == []
    for name in OFF:
        doctor.database.psql(f"alter system set {name} = off")
    doctor.database.psql("select pg_reload_conf()")
    for name in OFF:
        sees(doctor, name, "off")
    found = doctor.findings("--only", "settings", code=1)
    assert {each["id"] for each in found} == {f"settings.{name}" for name in OFF}
    assert {each["hint"] for each in found} == {"In psql as a superuser."}
    for each in found:
        doctor.cure(each)
    for name in OFF:
        sees(doctor, name, "on")
    assert doctor.findings("--only", "settings", code=0) == []


def test_what_the_command_line_says_is_changed_there(doctor, database, monkeypatch):
    monkeypatch.setenv("OCTOP_DSN", database.url)
    found = {each["id"]: each for each in doctor.findings("--only", "settings", code=1)}
    assert found["settings.fsync"]["cure"] == [
        {
            "in": "shell",
            "run": "postgres -c fsync=on   # it was started with off: change its command line and restart it",
        }
    ]


def test_the_private_database_is_not_asked_what_is_its_own_doing(alone, postgres, monkeypatch, tmp_path, capsys):
    home = servers.run_directory() / f"home-{tmp_path.name}"
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    (home / "octop").mkdir(parents=True)
    private = servers.Server(postgres.version, home / "octop" / "postgresql")
    try:
        assert entry.run(["migrate"]) == 0
        doctor = Doctor(private, capsys)
        with psycopg.connect(private.url(), application_name="octop worker exchange"):
            assert doctor.findings("--skip", "package,days", "--strict", code=0) == []
            text = doctor("--skip", "package,days", code=0)
            assert "no application works as owner or superuser: not asked on the private database" in text
            assert text.count("not asked on the private database") == 4
            monkeypatch.setenv("OCTOP_DSN", private.url())  # as `octop db url` prints it
            assert doctor.findings("--skip", "package,days", "--strict", code=0) == []
            monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # any other server
            assert "roles.application_is_mighty" in {each["id"] for each in doctor.findings(code=1)}
    finally:
        private.stop()


def test_a_viewer_learns_what_he_lacks_for_the_libraries_of_the_server(doctor, database, monkeypatch):
    viewer = database.make_role("octop_viewer")
    monkeypatch.setenv("OCTOP_DSN", database.url_as(viewer))
    finding = doctor.one("statements.not_recorded")
    assert [step["run"] for step in finding["cure"]] == ["create extension if not exists pg_stat_statements;"]
    assert "to see it: pg_read_all_settings" in finding["hint"]


def test_a_viewer_learns_that_the_extension_stands_in_a_closed_schema(doctor, monkeypatch):
    viewer = doctor.database.make_role("octop_viewer", "pg_read_all_stats")
    doctor.database.psql("create schema closed; create extension pg_stat_statements schema closed")
    monkeypatch.setenv("OCTOP_DSN", doctor.database.url_as(viewer))
    (finding,) = doctor.findings("--only", "statements", code=0)
    assert (finding["id"], finding["cure"][0]["run"]) == (
        "doctor.not_looked_at",
        f'grant usage on schema "closed" to "{viewer}";',
    )
    doctor.cure(finding)
    assert "doctor.not_looked_at" not in {each["id"] for each in doctor.findings("--only", "statements", code=0)}


# --- logins, and what is set for them ----------------------------------------------------------------------------------

HURT = {
    "synchronous_commit": "off",
    "jit": "on",
    "idle_session_timeout": "'10min'",
    "default_transaction_isolation": "'repeatable read'",
    "default_transaction_read_only": "on",
    "statement_timeout": "'2s'",
    "idle_in_transaction_session_timeout": "'10s'",
    "session_replication_role": "replica",
    "lock_timeout": "'1s'",
    "track_activities": "off",
}


@provokes("roles.member_of_owner", "roles.installer", "roles.application_is_mighty")
def test_the_logins_of_applications_are_looked_at(doctor):
    app, installer = (
        doctor.database.make_role("octop_worker", "octop_owner", name="app"),
        doctor.database.make_role("octop_owner", name="installer"),
    )
    doctor.database.psql(f"alter role {app} createrole bypassrls")
    found = {each["id"]: each for each in doctor.findings("--only", "roles", code=1)}
    assert set(found) == {"roles.member_of_owner", "roles.installer", "roles.application_is_mighty"}
    assert found["roles.installer"]["what"].startswith(installer)
    assert "may bypass row security and may create roles" in found["roles.application_is_mighty"]["what"]
    for each in found.values():
        doctor.cure(each)
    assert doctor.findings("--only", "roles", "--strict", code=0) == []


def test_a_superuser_at_work_is_found_by_its_session(doctor):
    mighty = doctor.database.make_role(name="mighty")
    doctor.database.psql(f"alter role {mighty} superuser")
    with psycopg.connect(doctor.database.url_as(mighty), application_name="octop worker exchange"):
        finding = doctor.one("roles.application_is_mighty")
        assert finding["what"] == f"{mighty}, with which Octop works, is a superuser"
        doctor.cure(finding)
        assert doctor.findings("--only", "roles", code=0) == []


def test_the_last_superuser_that_can_log_in_stays_one(doctor, monkeypatch):
    viewer = doctor.database.make_role("octop_viewer")
    with psycopg.connect(doctor.database.url, application_name="octop worker exchange"):
        for url in (doctor.database.url_as(viewer), doctor.database.url):
            monkeypatch.setenv("OCTOP_DSN", url)
            finding = doctor.one("roles.application_is_mighty")
            assert (
                finding["what"]
                == "octop, with which Octop works, is a superuser and may bypass row security and may create roles"
            )
            assert finding["cure"] == []
            assert "a login of its own" in finding["hint"]


@provokes(*(f"settings.{name}" for name in HURT))
def test_settings_of_a_login_that_works_with_octop_are_reset(doctor):
    app, other = doctor.database.make_role("octop_worker", name="app"), doctor.database.make_role(name="other")
    for name, bad in HURT.items():
        doctor.database.psql(f"alter role {app} set {name} = {bad}; alter role {other} set {name} = {bad}")
    found = [
        each for each in doctor.findings("--only", "settings", code=1) if "on the whole server" not in each["what"]
    ]
    assert {each["id"] for each in found} == {f"settings.{name}" for name in HURT}
    assert all(f"for the role {app}" in each["what"] for each in found)
    for each in found:
        doctor.cure(each)
    assert not [each for each in doctor.findings("--only", "settings") if "on the whole server" not in each["what"]]


@provokes("settings.transaction_timeout")
def test_a_limit_for_transactions_is_reset(doctor):
    if doctor.database.version < 17:
        pytest.skip("since PostgreSQL 17")
    app = doctor.database.make_role("octop_worker", name="app")
    doctor.database.psql(f"alter role {app} set transaction_timeout = '30s'")
    assert doctor.heals("settings.transaction_timeout")["what"] == f"transaction_timeout is 30s for the role {app}"


def test_settings_of_the_database_are_reset(doctor):
    doctor.database.psql(
        f"alter database {doctor.database.name} set idle_session_timeout = '1h'; alter role octop in database {doctor.database.name} set jit = on"
    )
    assert (
        doctor.heals("settings.idle_session_timeout")["what"]
        == f"idle_session_timeout is 1h for every role in the database {doctor.database.name}"
    )


# --- who holds back vacuum --------------------------------------------------------------------------------------------


@provokes("vacuum.prepared_transaction")
def test_a_prepared_transaction_is_rolled_back(doctor):
    doctor.database.psql("begin; create table t (a int); prepare transaction 'it''s mine'")
    assert doctor.findings("--only", "vacuum", code=0) == []
    finding = doctor.heals("vacuum.prepared_transaction", "--longer-than", "0")
    assert finding["hint"] == "In psql as the role that prepared it, or a superuser, in this database."
    assert finding["what"].startswith("the prepared transaction it's mine of octop is ")


@provokes("vacuum.unused_slot")
def test_slots_that_nobody_uses_are_dropped(doctor):
    doctor.database.psql(
        "select pg_create_physical_replication_slot('left', true), pg_create_logical_replication_slot('behind', 'pgoutput')"
    )
    first, second = doctor.findings("--only", "vacuum.unused_slot", code=1)
    assert "the logical replication slot behind: it is there and keeps " in first["what"]
    assert first["what"].endswith("and dead rows")
    assert not second["what"].endswith("and dead rows")
    for each in (first, second):
        doctor.cure(each)
    assert doctor.findings("--only", "vacuum", code=0) == []


@pytest.mark.parametrize("slot", ["", "kept"], ids=["without a slot", "by a slot"])
@provokes("vacuum.standby_feedback")
def test_the_feedback_of_a_standby_is_ended(doctor, slot):
    """By a slot the feedback stands in the slot, and not with the session."""
    with (
        doctor.database.connect() as connection,
        psycopg.connect(
            doctor.database.url, replication="true", application_name="standby_1", autocommit=True
        ) as standby,
    ):
        if slot:
            connection.execute("select pg_create_physical_replication_slot(%s)", [slot])
        oldest = value(connection, "select pg_current_xact_id()::text::bigint")
        # each block with an exception clause that writes takes a transaction id
        connection.execute(
            "create temporary table x (a int); do $$ begin for i in 1..20100 loop"
            " begin insert into x values (i); exception when others then raise; end; end loop; end $$"
        )
        here = value(connection, "select pg_current_wal_lsn()::text")
        by = f"SLOT {slot} " if slot else ""
        standby.pgconn.send_query(f"START_REPLICATION {by}PHYSICAL {here}".encode())
        answer = standby.pgconn.get_result()
        assert answer
        assert answer.status == psycopg.pq.ExecStatus.COPY_BOTH
        # what a standby says: hot standby feedback (now, xmin, its epoch, catalog xmin, its epoch)
        standby.pgconn.put_copy_data(struct.pack("!cqIIII", b"h", 0, oldest, 0, 0, 0))
        standby.pgconn.flush()
        heard = (
            "select xmin is not null from pg_replication_slots"
            if slot
            else "select backend_xmin is not null from pg_stat_replication"
        )
        wait_for(connection, heard)
        finding = doctor.heals("vacuum.standby_feedback")
        with contextlib.suppress(psycopg.OperationalError):
            standby.close()
        who = "the standby standby_1, by its replication slot kept," if slot else "the standby standby_1"
        assert finding["what"].startswith(f"{who} keeps the dead rows of 20,")
        if slot:
            left = doctor.heals("vacuum.unused_slot")  # it keeps them when the standby has gone, too
            assert left["what"].endswith("and dead rows")


def held(doctor, how, stack):
    """Let a session, a prepared transaction or a replication slot keep what dies from now on; return how it is named."""
    if how == "session":
        stack.enter_context(contextlib.suppress(psycopg.OperationalError))  # it will be ended
        connection = stack.enter_context(doctor.database.connect(autocommit=False, application_name="report"))
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select count(*) from octop_tasks")
        return f"the session {connection.info.backend_pid} of octop (report), idle in transaction, for "
    if how == "prepared transaction":
        doctor.database.psql("begin; create table t (a int); prepare transaction 'half done'")
        return "the prepared transaction half done, for "
    standby = stack.enter_context(psycopg.connect(doctor.database.url, replication="true", autocommit=True))
    with doctor.database.connect() as connection:
        connection.execute("select pg_create_physical_replication_slot('gone', true)")
        oldest = value(connection, "select pg_current_xact_id()::text::bigint")
        here = value(connection, "select pg_current_wal_lsn()::text")
        standby.pgconn.send_query(f"START_REPLICATION SLOT gone PHYSICAL {here}".encode())
        standby.pgconn.get_result()
        standby.pgconn.put_copy_data(struct.pack("!cqIIII", b"h", 0, oldest, 0, 0, 0))
        standby.pgconn.flush()
        wait_for(connection, "select xmin is not null from pg_replication_slots where slot_name = 'gone'")
        standby.close()
        wait_for(connection, "select not active from pg_replication_slots where slot_name = 'gone'")
    return "the replication slot gone: "


@pytest.mark.parametrize("how", ["session", "prepared transaction", "replication slot"])
def test_c072_dead_rows_that_somebody_keeps_are_told_with_who_it_is(doctor, how):
    kinds = {
        "session": "vacuum.old_transaction",
        "prepared transaction": "vacuum.prepared_transaction",
        "replication slot": "vacuum.unused_slot",
    }
    with contextlib.ExitStack() as stack:
        who = held(doctor, how, stack)
        doctor.database.psql(
            "insert into octop_workers (id, draining) values (gen_random_uuid(), true);"
            " do $$ begin for i in 1..3000 loop update octop_workers set pid = i; end loop; end $$"
        )
        with doctor.database.connect() as connection:
            dead = "select n_dead_tup {} from pg_stat_user_tables where relname = 'octop_workers'"
            wait_for(connection, dead.format("> 2500"))
            connection.execute("vacuum octop_workers")
            wait_for(connection, dead.format("> 2500"))
            finding = doctor.one("vacuum.dead_rows", "--longer-than", "0")
            (line,) = finding["detail"]
            assert line.startswith(f"held back by {who}"), line
            assert "end first what holds it back" in finding["hint"]
            doctor.cure(doctor.one(kinds[how], "--longer-than", "0"))
            doctor.cure(finding)
            wait_for(connection, dead.format("< 100"))
        assert doctor.findings("--only", "vacuum", "--longer-than", "0", code=0) == []


@provokes("statements.costliest", "statements.not_recorded")
def test_the_costliest_statements_are_listed_when_they_are_recorded(doctor):
    finding = doctor.one("statements.not_recorded")
    assert finding["cure"] == [{"in": "psql", "run": "create extension if not exists pg_stat_statements;"}]
    doctor.cure(finding)
    with doctor.database.connect() as connection:
        add_many(connection, 100)
        for _ in range(20):
            rows(connection, "select count(*) from octop_tasks")
    assert doctor.findings("--only", "statements.not_recorded", "--strict", code=0) == []
    (finding,) = doctor.findings("--only", "statements", code=0)
    assert 1 <= len(finding["detail"]) <= 5
    assert any(
        line.startswith("20 calls, ") and line.endswith("select count(*) from octop_tasks")
        for line in finding["detail"]
    )
    assert finding["cure"] == []


def test_no_statement_is_shown_as_it_was_typed(doctor):
    """PostgreSQL puts $1 for the values of what reads and writes alone, and records all the rest."""
    role = doctor.database.make_role(name="octop_app")
    doctor.database.psql(
        "create extension if not exists pg_stat_statements; create schema other; create table other.octop_notes (a text)"
    )
    with doctor.database.connect() as connection:
        rows(connection, "select pg_stat_statements_reset()")
        connection.execute(f"alter role \"{role}\" password 'S3cret'")
        connection.execute("set application_name = 'octop_tasks S3cret'")
        connection.execute("do $$ begin perform 'octop_tasks S3cret'; end $$")
        connection.execute("select count(*) from other.octop_notes")
        connection.execute("with one as (select 'S3cret') select (select count(*) from one), count(*) from octop_tasks")
    (finding,) = doctor.findings("--only", "statements", code=0)
    assert "S3cret" not in json.dumps(finding)
    with open_connection(doctor.database.url, application_name="test") as connection:
        found = look(connection, server.costliest_statements("public", most=1000), also="public")
    assert {re.split(r"\W", each["text"])[0].lower() for each in found} <= {
        "select",
        "insert",
        "update",
        "delete",
        "with",
    }
    assert any(each["text"].startswith("with one as (select $1)") for each in found)
    assert not any("octop_notes" in each["text"] for each in found)


def test_where_the_library_is_not_loaded_the_others_stay(doctor, database, monkeypatch):
    monkeypatch.setenv("OCTOP_DSN", database.url)
    assert [step["run"] for step in doctor.one("statements.not_recorded")["cure"]] == [
        "alter system set shared_preload_libraries = 'pg_stat_statements';   -- and restart the server",
        "create extension if not exists pg_stat_statements;",
    ]


@provokes("settings.standby")
def test_a_standby_is_told_from_its_primary(own_server, whole, monkeypatch, tmp_path, capsys):
    standby = own_server(wal_level="replica", max_wal_senders="2")
    with psycopg.connect(standby.url(), autocommit=True) as connection:
        connection.execute("revoke create on schema public from public")
    install(standby.url())
    standby.stop()
    signal = standby.directory / "data" / "standby.signal"
    signal.touch()
    owner = signal.parent.stat()
    os.chown(signal, owner.st_uid, owner.st_gid)
    standby.start()
    monkeypatch.chdir(tmp_path)
    with whole.database(installed=True) as primary:
        monkeypatch.setenv("OCTOP_DSN", standby.url())
        doctor = Doctor(primary, capsys)
        found = [each["id"] for each in doctor.findings(code=1)]
        assert "settings.standby" in found
        assert "doctor.failed" not in found
        finding = doctor.one("settings.standby")
        assert "target_session_attrs=read-write" in finding["cure"][0]["run"]
        hosts = ",".join(each.running.socket_directory.as_posix() for each in (standby, whole))
        both = servers.database_url(standby.url(), host=hosts, target_session_attrs="read-write")
        assert "settings.standby" not in [each["id"] for each in doctor.findings("--only", "settings", "--dsn", both)]
