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
        "select octop_cancel_many(array(select id from octop_tasks))",
        "select octop_retry_many('{}')",
        "select octop_delete_many('{}')",
    ],
    "`UPDATE octop_config": [
        "update octop_config set value = value",
        "update octop_task_types set queue = null, priority = 1, max_retries = 1, timeout_seconds = 1, retry_policy = null",
        "update octop_queues set worker_limit = 1, max_retries = 1, timeout_seconds = 1, retry_policy = null",
    ],
    "`octop_make_days`": [
        "select octop_make_days()",
        "select octop_drop_days()",
        "select * from octop_recount()",
        "select octop_sweep(gen_random_uuid())",
        "select octop_lost(gen_random_uuid())",
    ],
    "`UPDATE octop_tasks": [
        "update octop_tasks set status = 'cancelled'",
        "update octop_tasks set scheduled_at = now()",
        "delete from octop_tasks",
        "delete from octop_audit",
    ],
    "`ALTER TABLE`, `CREATE INDEX`": [
        "alter table octop_queues alter name set statistics 10",
        "create index on octop_tasks_live (tenant)",
        "alter table octop_queues enable trigger octop_queues_audit",
        "alter table octop_tasks_done detach partition {day}",
    ],
    "`VACUUM`": ["vacuum octop_queues"],
    "`REVOKE CREATE": ["revoke create on schema public from public"],
    "`ALTER DATABASE": ["alter database {database} set jit = off"],
    "see what other logins' sessions do": [
        "do $$ begin if (select state from pg_stat_activity where pid = {pid}) is null then raise insufficient_privilege; end if; end $$"
    ],
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
                # tests/sql/test_install_rights.py, tests/sql/test_uninstall.py
                assert cure.startswith("`octop migrate`"), cure
                continue
            seen.add(found)
            for statement in CURES[found]:
                whole = re.sub(r"\{(\w+)\}", lambda name: str(words[name[1]]), statement)
                # a change of the whole server is not made here
                tried = {name: role for name, role in logins.items() if role or "system" not in whole}
                can = {name: may(database, role, whole) for name, role in tried.items()}
                says = {name: answer == "yes" for name, answer in zip(head[1:], told, strict=True) if name in can}
                assert can == says, whole
        assert seen == set(CURES)


# --- what the owner may change by hand -------------------------------------------------------------------------------

VALUES = {
    "uuid": "gen_random_uuid()",
    "timestamp with time zone": "now() + interval '1 hour'",
    "jsonb": """'{"base": 2}'""",
    "text[]": "'{a}'",
    "text": "'new'",
}


def test_the_columns_of_the_table_may_be_changed_by_hand_and_the_identity_of_a_task_may_not(database):
    page = (HOW_TO / "dba-day.md").read_text()
    told = {
        name
        for line in table(HOW_TO / "dba-day.md", "## Move a task to another time")
        for name in re.findall(r"`(\w+)`", line[0])
    }
    types = "select attname::text, format_type(atttypid, null) from pg_attribute where attrelid = 'octop_tasks'::regclass and attnum > 0"
    with database.connect() as connection:
        columns = dict(rows(connection, types))
        assert told < set(columns)
        do(
            connection,
            "insert into octop_tasks (task_type, queue, max_retries) select 't', 'q', n from generate_series(0, 1) n",
        )
        do(connection, "insert into octop_tasks (task_type, queue) values ('t', 'other')")
        register = """select octop_register(%s, '', '', 1, null, '', '{q}', '[{"name": "t"}]')"""
        dead, alive = uuid4(), uuid4()
        do(connection, register, dead)
        do(connection, "select * from octop_exchange(%s, '{q}', '{2}', '{t}')", dead)
        do(connection, "select octop_lost(%s)", dead)
        do(connection, "insert into octop_tasks (task_type, queue) values ('t', 'q')")
        do(connection, register, alive)
        do(connection, "select * from octop_exchange(%s, '{q}', '{1}', '{t}')", alive)
        found = rows(connection, "select status from octop_tasks order by 1")
        assert [each for (each,) in found] == ["failed", "frozen", "pending", "running"]
    with database.connect(database.make_role("octop_owner"), autocommit=False) as owner:
        for name in told:
            # a number that none of them has
            change = f"update octop_tasks set {name} = {VALUES.get(columns[name], 7)} where status <> 'running'"
            assert do(owner, change) == 3, name
            noted = rows(
                owner, "select detail -> 'to' from octop_audit where xid = pg_current_xact_id() and action = 'update'"
            )
            assert [list(each) for (each,) in noted] == [[name]] * 3
            owner.rollback()
        (refusals,) = re.findall(r"^(.*) are refused; of a task that runs also (.*?):", page, re.MULTILINE)
        for of_which, names in zip(("pending", "running"), refusals, strict=True):
            for name in re.findall(r"`(\w+)`", names):
                change = f"update octop_tasks set {name} = {VALUES.get(columns[name], 7)} where status = '{of_which}'"
                with pytest.raises(psycopg.Error) as refused:
                    do(owner, change)
                assert refused.value.sqlstate == "OC102", name
                owner.rollback()


def test_what_the_owner_does_behind_the_doors_is_not_in_the_audit_and_the_audit_may_be_trimmed(database):
    with database.connect() as connection:
        do(connection, "insert into octop_tasks (task_type) values ('t')")
        do(connection, "update octop_tasks_live set priority = 1")
        assert rows(connection, "select action from octop_audit") == []
        do(connection, "update octop_tasks set priority = 2")
        do(connection, "select octop_pause('q')")
        do(connection, "update octop_audit set at = at - interval '2 years' where action = 'update'")
    with database.connect(database.make_role("octop_owner")) as owner:
        do(owner, "delete from octop_audit where at < now() - interval '1 year'")
        assert rows(owner, "select action from octop_audit") == [("pause",)]


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_schema_and_roles_with_other_names_work_again_as_the_pages_say(empty_database):
    database, place = empty_database, script.Place("jobs", f"n{uuid4().hex[:8]}_")
    names = {each: f"{place.role_prefix}{each}" for each in ("owner", "producer", "worker", "operator", "viewer")}
    database.roles.extend(names.values())
    database.psql(script.install_script(place, "1"))
    enqueue = "insert into {}.octop_tasks (task_type) values ('t')"
    with database.connect() as connection:
        do(connection, "alter schema jobs rename to work")
        with pytest.raises((psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction)):
            do(connection, enqueue.format("work"))
        moved = script.Place("work", place.role_prefix)
        database.psql(script.install_script(moved, "1", upgrade=True))
        do(connection, enqueue.format("work"))

        do(connection, f"alter role {names['owner']} rename to {place.role_prefix}boss")
        do(connection, enqueue.format("work"))
        assert "belongs to the role" in database.psql(script.install_script(moved, "1", upgrade=True), check=False)
        assert "belongs to the role" in database.psql(script.uninstall_script(moved, "1"), check=False)
        do(connection, f"alter role {place.role_prefix}boss rename to {names['owner']}")
        database.psql(script.install_script(moved, "1", upgrade=True))
        database.psql(script.uninstall_script(moved, "1", roles=True))


def test_whoever_may_connect_can_listen(database):
    with database.connect(database.make_role()) as nobody, database.connect() as connection:
        do(nobody, "listen octop_wake")
        worker = uuid4()
        do(connection, """select octop_register(%s, '', '', 1, null, '', '{mail}', '[{"name": "t"}]')""", worker)
        do(connection, "select octop_sleep(%s, '{mail}', 60)", worker)
        do(connection, "insert into octop_tasks (task_type, queue) values ('t', 'mail')")
        (heard,) = nobody.notifies(timeout=10, stop_after=1)
        assert (heard.channel, heard.payload) == ("octop_wake", "mail")


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
    "octop_tasks_live_priority_is_0_to_9": ["(task_type, priority) values ('t', 10)"],
    "octop_tasks_live_retries_and_version_to_1000_timeout_to_31_days": [
        "(task_type, max_retries) values ('t', -1)",
        "(task_type, min_version) values ('t', 1001)",
        "(task_type, timeout_seconds) values ('t', 2678401)",
    ],
    "octop_tasks_live_times_are_in_years_2000_to_2999": ["(task_type, scheduled_at) values ('t', 'infinity')"],
}
PLAIN = {
    "23502": "(task_type) values (null)",
    "23505": "(task_type, id) select 't', id from octop_tasks",
    "22P02": "(task_type, payload) values ('t', '{')",
    "22P05": """(task_type, payload) values ('t', '{"a": "\\u0000"}')""",
    "22003": "(task_type, priority) values ('t', 100000)",
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


def test_days_that_are_made_or_dropped_in_an_open_transaction_keep_others_waiting_as_the_page_says(database):
    worker, read = uuid4(), "select count(*) from octop_tasks"
    hand_in = "select * from octop_exchange(%s, done_ids => array[%s], done_attempts => array[%s], done_claims => array[%s], done_results => '{null}')"
    cancel = "select octop_cancel(%s)"
    with database.connect() as connection, database.connect(autocommit=False) as other:
        ids = rows(connection, "insert into octop_tasks (task_type) select 't' from generate_series(1, 4) returning id")
        do(connection, """select octop_register(%s, '', '', 1, null, '', '{default}', '[{"name": "t"}]')""", worker)
        claim = "select id, attempt, claim_id from octop_exchange(%s, '{default}', '{2}', '{t}') where verdict = 'run'"
        first, second = rows(connection, claim, worker)
        running = {first[0], second[0]}
        waiting = [each for (each,) in ids if each not in running]
        do(connection, "set lock_timeout = '20ms'")

        def waits(statement: str, *values: object) -> bool:
            try:
                do(connection, statement, *values)
            except psycopg.errors.LockNotAvailable:
                return True
            return False

        assert value(other, "select octop_make_days(20)") > 0
        assert waits(read)
        assert not waits(hand_in, worker, *first)
        assert not waits(cancel, waiting[0])
        other.rollback()
        database.clock.advance(days=-9)
        do(connection, "select octop_make_days(0)")
        database.clock.advance(days=9)
        assert value(other, "select octop_drop_days(1)") == 1
        assert waits(read)
        assert waits(hand_in, worker, *second)
        assert waits(cancel, waiting[1])
        other.rollback()
        assert not waits(hand_in, worker, *second)


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
