"""What the pages for DBAs say in tables and in passing, tried out: rights, refusals, transactions left open, two-phase commit."""

from __future__ import annotations

import json
import re
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner

from octop.cli.root import root
from octop.engine import script
from octop.engine.failures import BY_CONSTRAINT
from tests.docs.pages import HOUSE, HOW_TO
from tests.docs.story import Story
from tests.sql.crew import do, rows, value
from tools.errors_page import PAGE as ERRORS

# --- who may run which cure ------------------------------------------------------------------------------------------

CURES = {
    "`octop_retry`": [
        "select octop_pause('q', '')",
        "select octop_resume('q')",
        "select octop_cancel(id) from octop_tasks",
        "select octop_freeze('t', '')",
        "select octop_thaw('t')",
        "select octop_scale('q', 1)",
    ],
    "`UPDATE octop_config": ["update octop_config set value = value"],
    "`octop_make_days`": [
        "select octop_make_days()",
        "select octop_drop_days()",
        "select * from octop_recount()",
        "select octop_sweep(gen_random_uuid())",
        "select octop_lost(gen_random_uuid())",
    ],
    "`UPDATE octop_tasks": ["update octop_tasks set status = 'cancelled'"],
    "`ALTER TABLE`, `CREATE INDEX`": [
        "alter table octop_queues alter name set statistics 10",
        "create index on octop_tasks_live (tenant)",
        "alter table octop_queues enable trigger octop_queues_audit",
        "alter table octop_tasks_done detach partition {day}",
    ],
    "`VACUUM`": ["vacuum octop_queues"],
    "`REVOKE CREATE": ["revoke create on schema public from public"],
    "`ALTER DATABASE": ["alter database {database} set jit = off"],
    "`pg_terminate_backend`": ["select pg_terminate_backend({pid})"],
    "`ALTER SYSTEM`": ["alter role {other} set jit = off", "alter system set jit = off"],
}


def table(page, heading: str) -> list[list[str]]:
    text = page.read_text().partition(heading)[2]
    lines = re.findall(r"^\| (.*) \|$", text.partition("\n## ")[0], re.MULTILINE)
    return [line.split(" | ") for line in lines]


def may(database, role: str | None, statement: str) -> bool:
    """Try it and undo it."""
    said: list[str] = []
    alone = statement.startswith(("vacuum", "alter system"))
    with database.connect(role, autocommit=alone) as connection:
        connection.add_notice_handler(lambda notice: said.append(f"{notice.sqlstate} {notice.message_primary}"))
        try:
            connection.execute(statement)
        except psycopg.errors.InsufficientPrivilege:
            return False
        finally:
            connection.rollback()
    # VACUUM and REVOKE only warn
    return not any("permission denied" in each or each.startswith("01006") for each in said)


def test_the_table_of_cures_says_who_may_and_who_may_not(database):
    member, operator = database.make_role("octop_owner"), database.make_role("octop_operator")
    owner, other = database.make_role(), database.make_role()
    with database.connect() as connection, database.connect(autocommit=True) as victim:
        do(connection, "insert into octop_tasks (task_type, queue) values ('t', 'q')")
        do(connection, f"alter database {database.name} owner to {owner}")
        do(connection, "alter schema public owner to pg_database_owner; grant create on schema public to public")
        words = {
            "database": database.name,
            "other": other,
            "pid": value(victim, "select pg_backend_pid()"),
            "day": value(connection, "select partition::text from _octop_days order by from_at desc limit 1"),
        }
        head, *lines = table(HOW_TO / "least-privilege.md", "## 8. Who may run which cure")
        assert head == ["cure", "superuser", "owner's member", "operator", "owner of the database"]
        # the superuser last: he ends the session
        logins = {"operator": operator, "owner of the database": owner, "owner's member": member, "superuser": None}
        seen = set()
        for cure, *told in lines:
            found = next((begin for begin in CURES if cure.startswith(begin)), None)
            if found is None:
                # tests/sql/test_install.py, tests/sql/test_uninstall.py
                assert cure.startswith("`octop migrate`"), cure
                continue
            seen.add(found)
            for statement in CURES[found]:
                whole = statement.format_map(words)
                # a change of the whole server is not made here
                tried = {name: role for name, role in logins.items() if role or "system" not in whole}
                can = {name: may(database, role, whole) for name, role in tried.items()}
                says = {name: answer == "yes" for name, answer in zip(head[1:], told, strict=True) if name in can}
                assert can == says, whole
        assert seen == set(CURES)


# --- refusals --------------------------------------------------------------------------------------------------------

AGAINST = {
    "octop_tasks_live_names_are_1_to_200_long": [
        "(task_type) values ('')",
        "(task_type, queue) values ('t', repeat('x', 201))",
    ],
    "octop_tasks_live_payload_is_an_object": [
        "(task_type, payload) values ('t', '[]')",
        "(task_type, meta) values ('t', '1')",
    ],
    "octop_tasks_live_numbers_are_in_range": [
        "(task_type, priority) values ('t', 10)",
        "(task_type, max_retries) values ('t', -1)",
    ],
    "octop_tasks_live_times_are_finite": ["(task_type, scheduled_at) values ('t', 'infinity')"],
}
PLAIN = {
    "23502": "(task_type) values (null)",
    "23505": "(task_type, id) select 't', id from octop_tasks",
    "22P02": "(task_type, payload) values ('t', '{')",
    "22P05": """(task_type, payload) values ('t', '{"a": "\\u0000"}')""",
    "22003": "(task_type, priority) values ('t', 100000)",
    "23514": "(task_type, status) values ('t', 'done')",
    "42501": "(task_type, attempt) values ('t', 3)",
    "OC101": "(task_type, status) values ('t', 'running')",
}


def refusal(connection, what: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as refused:
        do(connection, f"insert into octop_tasks {what}")
    return refused.value


def test_a_plain_insert_is_refused_with_the_constraint_that_the_page_explains(database):
    page = ERRORS.read_text()
    checks = "select conname::text from pg_constraint where contype = 'c' and conname ~ '^octop_' and "
    with database.connect() as connection:
        for name, statements in AGAINST.items():
            for statement in statements:
                error = refusal(connection, statement)
                assert (error.sqlstate, error.diag.constraint_name) == ("23514", name)
            assert re.search(
                rf"^\| `{name}` \| `octop_tasks` \| .* `{BY_CONSTRAINT[name].__name__}` \|$", page, re.MULTILINE
            )
        of_tasks = rows(connection, f"{checks} conrelid = 'octop_tasks_live'::regclass")
        assert {name for (name,) in of_tasks} == set(AGAINST)
        named = rows(connection, f"{checks} connamespace = 'public'::regnamespace")
        assert len(named) > len(AGAINST)
        assert [name for (name,) in named if f"| `{name}` |" not in page] == []


def test_a_plain_insert_is_refused_with_the_sqlstates_that_the_page_lists(database):
    told = re.findall(r"^\| `(\w{5})`", ERRORS.read_text().partition("What else a plain INSERT")[2], re.MULTILINE)
    assert sorted(told) == sorted(PLAIN)
    with database.connect() as connection, database.connect("octop_producer") as producer:
        do(connection, "insert into octop_tasks (task_type) values ('t')")
        for sqlstate, statement in PLAIN.items():
            error = refusal(producer if sqlstate == "42501" else connection, statement)
            assert error.sqlstate == sqlstate, statement
            assert sqlstate != "23514" or error.diag.constraint_name is None


# --- days ------------------------------------------------------------------------------------------------------------


def detached_day(connection) -> str:
    do(connection, "insert into octop_tasks (task_type) values ('t')")
    do(connection, "select octop_cancel(id) from octop_tasks")
    day = value(connection, "select tableoid::regclass::text from octop_tasks")
    do(connection, f"alter table octop_tasks_done detach partition {day}")
    return day


def test_a_detached_day_is_found_by_the_doctor_and_deleted_by_the_uninstallation(database):
    with database.connect() as connection:
        day = detached_day(connection)
        database.clock.advance(days=1)  # it is over
        do(connection, "select octop_make_days()")

        def found() -> list[str]:
            words = ["doctor", "--json", "--only", "tasks", "--only", "days", "--only", "grants"]
            answer = CliRunner().invoke(root, words, env={"OCTOP_DSN": database.url})
            return [each["id"] for each in json.loads(answer.stdout)]

        assert found() == ["tasks.counters_drifted"]
        do(connection, "select * from octop_recount()")
        assert found() == []
        database.psql(script.uninstall_script(script.Place(), "1"))
        assert value(connection, "select to_regclass(%s)::text", day) is None


def test_a_day_that_was_moved_away_with_its_defaults_is_named_by_the_uninstallation(database):
    with database.connect() as connection:
        day = detached_day(connection)
        do(connection, f"create schema archive; alter table {day} owner to current_user")
        do(connection, f"alter table {day} set schema archive")
        text = script.uninstall_script(script.Place(), "1")
        assert f"default value for column id of table archive.{day}" in database.psql(text, check=False)
        do(connection, f"alter table archive.{day} alter id drop default, alter seq drop default")
        do(connection, f"alter table archive.{day} alter scheduled_at drop default, alter created_at drop default")
        database.psql(text)
        assert value(connection, f"select count(*) from archive.{day}") == 1


# --- transactions ----------------------------------------------------------------------------------------------------


def test_a_transaction_that_enqueues_cannot_be_prepared_when_a_worker_sleeps(own_server):
    server = own_server(max_prepared_transactions="2")
    with server.database(installed=True) as database, database.connect() as connection:
        enqueue = "begin; insert into octop_tasks (task_type) values ('t')"
        do(connection, enqueue)
        do(connection, "prepare transaction 'p'")
        do(connection, "commit prepared 'p'")
        worker = uuid4()
        do(connection, """select octop_register(%s, '', '', 1, null, '', '{default}', '[{"name": "t"}]')""", worker)
        do(connection, "select octop_sleep(%s, '{default}', 60)", worker)
        do(connection, enqueue)
        with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
            do(connection, "prepare transaction 'p'")
        assert refused.value.sqlstate == "0A000"
        assert value(connection, "select count(*) from octop_tasks") == 1
        assert value(connection, "select count(*) from pg_prepared_xacts") == 0
    page = (HOUSE / "docs" / "explanation" / "guarantees.md").read_text()
    assert "PREPARE TRANSACTION" in page
    assert "0A000" in page


def test_connections_of_octop_never_idle_in_a_transaction(database, tmp_path):
    login = database.make_role("octop_producer", "octop_worker")
    with database.connect() as connection:
        do(connection, f"alter role {login} set idle_in_transaction_session_timeout = '50ms'")
        do(connection, "insert into octop_tasks (task_type) select 'nap' from generate_series(1, 60)")
    (tmp_path / "tasks.py").write_text(
        "import asyncio\nfrom octop import Octop\n\noctop = Octop()\n\n\n@octop.task\nasync def nap() -> None:\n"
        "    await asyncio.sleep(0.1)\n    await after.enqueue()\n\n\n@octop.task\nasync def after() -> None: ...\n"
    )
    story = Story(HOW_TO / "run-in-production.md", tmp_path, url=database.url_as(login))
    story.command("octop worker -A tasks:octop --drain")
    with database.connect() as connection:
        found = rows(connection, "select status, count(*), max(attempt) from octop_tasks group by 1")
        assert found == [("success", 120, 1)]
        fatal = "select sessions_fatal from pg_stat_database where datname = current_database()"
        assert value(connection, fatal) == 0
