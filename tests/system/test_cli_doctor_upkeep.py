"""`octop doctor` about what keeps a database well: days and their sweep, vacuum, room for connections."""

from __future__ import annotations

import contextlib
import re
import uuid

import psycopg
import pytest

from tests.sql.crew import add_many, do, value
from tests.system.doctor import wait_for
from tests.system.provoked import provokes

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
        assert "7 days ahead without a partition, today's among them," in found["days.missing"]
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
    assert found["days.missing"] == f"1 day ahead without a partition, today's among them, from {today} to {today}"
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
    assert "1 day older than the retention time" in finding["what"]


@provokes("days.nobody_sweeps", "days.no_worker")
def test_chores_that_nobody_does_are_done(doctor, database, hire):
    worker = hire()
    with database.connect() as connection:
        connection.execute("select octop_sweep(octop_uuid7())")
        do(connection, "update _octop_chores set next_at = now() - interval '1 hour'")
        finding = doctor.heals("days.nobody_sweeps")
        assert finding["what"] == "chores are overdue: alerts for 1h, days for 1h, purge for 1h"
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
    assert doctor.one("days.missing")["what"].startswith("1 day ahead without a partition, from ")


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
    database.psql(f"alter database {database.name} connection limit 28")
    finding = doctor.heals("connections.too_few")
    # the room is what is left by the connections of this test, of which one or two may be closing at this moment
    assert re.match(
        "4 workers need 24 connections, and 64 when their pools of 10 are full; there is room for 2[3-8]",
        finding["what"],
    )
    database.psql(f"alter database {database.name} connection limit 18")
    assert "connection limit" in doctor.heals("connections.too_few")["cure"][0]["run"]


@provokes("connections.too_few")
def test_workers_whose_login_may_have_few_connections_find_no_room(doctor, database):
    login = database.make_role("octop_worker")
    with contextlib.ExitStack() as stack:
        for purpose in ("control", "exchange", "heart", "task"):
            url = database.url_as(login)
            stack.enter_context(psycopg.connect(url, application_name=f"octop worker {purpose}", autocommit=True))
        assert doctor.findings("--only", "connections", code=0) == []
        for limit, cure in (
            (20, f"octop config set db.connection_pool_size {(20 - 5) // 2}"),
            (6, f'alter role "{login}" connection limit'),
        ):
            database.psql(f"alter role {login} connection limit {limit}")
            finding = doctor.heals("connections.too_few")
            assert finding["what"] == (
                f"workers of the login {login} need 6 connections, and 26 when their pools of 10 are full;"
                f" its limit leaves room for {limit}"
            )
            assert finding["cure"][0]["run"].startswith(cure)
            database.psql("select octop_config_set('db.connection_pool_size', '10')")
