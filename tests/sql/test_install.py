"""Install and upgrade: one transaction, harmless to repeat, from anywhere, at the same time.

Who may do it is in ``test_install_rights.py``, whom it trusts in ``test_install_trust.py``, what psql prints of it and what it
makes of a schema that is no longer whole in ``test_install_script.py``.
"""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql

from octop.engine import script
from octop.engine.install import install, require, status
from octop.model import errors
from tests.pooler import pgbouncer
from tests.sql.crew import column, do, rows, value
from tests.sql.installation import catalog, own_prefix, smoke

pytestmark = pytest.mark.slow  # most of them install again and again

ODD_NAMES = (
    "My.schema-1",
    "user",
    'a"b$$',
    "o'br\\ien",
    "50% %s %(x)s",
    "'x; drop table t",
    "sche\u0301ma" + "é" * 27,
)


# --- again and at once -----------------------------------------------------------------------------------------------


def test_installing_again_does_nothing(database):
    with database.connect() as connection:
        before = rows(connection, "select * from octop_migrations order by 1")
        xmin = column(connection, "select xmin::text from pg_proc where proname ~ '^_?octop_'")
        assert install(database.url).current
        assert rows(connection, "select * from octop_migrations order by 1") == before
        assert column(connection, "select xmin::text from pg_proc where proname ~ '^_?octop_'") == xmin


def test_an_upgrade_keeps_tasks_settings_and_grants_and_repairs_functions(database):
    with database.connect() as connection:
        before = catalog(database, "public")
        do(connection, "select octop_config_set('task.default_max_retries', '7'), octop_enqueue('t')")
        do(connection, "create or replace function octop_uuid7() returns uuid language sql as 'select null::uuid'")
        do(connection, "grant execute on function octop_uuid7() to public")
        do(connection, "update octop_migrations set checksum = 'older', version = '0.0.1' where name = 'functions'")
        assert status(connection).functions_current is False
        with pytest.raises(errors.SchemaVersionError):
            require(connection)
        assert install(database.url).current
        assert catalog(database, "public") == before
        assert value(connection, "select _octop_setting('task.default_max_retries')") == 7
        assert value(connection, "select count(*) from octop_tasks") == 1


def test_C106_twenty_processes_at_once_install_into_an_empty_database(empty):
    prefix = own_prefix(empty)
    server = multiprocessing.get_context("forkserver")  # twenty interpreters would take half a minute to start
    server.set_forkserver_preload(["octop.engine.install"])
    processes = [server.Process(target=install, args=(empty.url,), kwargs={"role_prefix": prefix}) for _ in range(20)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
    assert [process.exitcode for process in processes] == [0] * 20
    with empty.connect() as connection:
        assert value(connection, "select count(*) from octop_migrations") == len(script.migrations()) + 1
    smoke(empty.url, "public")


def test_C106_installers_at_once_through_a_pooler_install_once_and_upgrade_once(empty):
    """Session locks mean nothing there: two statements of one client may run in two sessions of the server."""
    prefix = own_prefix(empty)
    with pgbouncer(empty.url) as through, empty.connect() as connection, ThreadPoolExecutor(6) as pool:
        for upgrade in (False, True):
            if upgrade:
                do(connection, "update octop_migrations set checksum = 'older' where name = 'functions'")
                do(connection, "drop function octop_doubt()")
            made = list(pool.map(lambda _: install(through, role_prefix=prefix), range(6)))
            assert all(each.current for each in made)
            assert value(connection, "select count(*) from octop_migrations") == len(script.migrations()) + 1
        smoke(through, "public")


def test_two_databases_of_one_cluster_at_once(empty, postgres):
    with postgres.database(installed=False) as second, second.connect() as connection:
        do(connection, "revoke create on schema public from public")
        prefix = own_prefix(second)
        empty.roles += second.roles  # both own objects: dropped after the last of them
        second.roles.clear()
        with ThreadPoolExecutor(6) as pool:
            done = list(pool.map(lambda url: install(url, role_prefix=prefix).current, [empty.url, second.url] * 3))
        assert done == [True] * 6
        for database in (empty, second):
            smoke(database.url, "public")


def test_an_installer_that_fails_leaves_nothing(empty):
    prefix = own_prefix(empty)
    text = (
        script.install_script(script.Place(role_prefix=prefix), "1").rpartition("commit;\n")[0]
        + "select 1/0;\ncommit;\n"
    )
    assert "division by zero" in empty.psql(text, check=False)
    with empty.connect() as connection:
        assert value(connection, "select count(*) from pg_class where relname ~ 'octop'") == 0
        assert column(connection, "select rolname::text from pg_roles where starts_with(rolname, %s)", prefix) == []


# --- places ----------------------------------------------------------------------------------------------------------


def test_C108_any_name_of_schema_and_roles_works_twice(empty):
    for odd in ODD_NAMES:
        prefix = own_prefix(empty, odd[:8])
        for _ in range(2):
            assert install(empty.url, schema=odd, role_prefix=prefix).current, odd
        smoke(empty.url, odd)
    with empty.connect() as connection:
        assert value(
            connection,
            "select count(distinct nspname) from pg_namespace n join pg_class c on c.relnamespace = n.oid where relname = 'octop_tasks'",
        ) == len(ODD_NAMES)


def test_C108_the_printed_script_quotes_odd_names_for_psql_too(empty):
    for odd in ("a\"b'c$$d\\", ':"owner"'):
        prefix = own_prefix(empty, odd[:8])
        empty.psql(script.install_script(script.Place(odd, prefix), "1"))
        with empty.connect() as connection:
            assert (
                value(
                    connection,
                    "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace"
                    " where nspname = %s and relname = 'octop_tasks'",
                    odd,
                )
                == 1
            )


def test_C108_C109_names_that_cannot_be_are_refused_before_any_sql():
    for bad in ("", "x" * 64, "é" * 32, "pg_jobs", "a\x00b", "x$octop_place$; create table pwned (); --"):
        with pytest.raises(errors.ConfigurationError):
            script.Place(bad)
        with pytest.raises(errors.ConfigurationError):
            install("", role_prefix=bad)


def test_C109_a_crafted_name_runs_no_other_statement(empty):
    crafted = 'x"; create table pwned(); --'
    assert install(empty.url, schema=crafted, role_prefix=own_prefix(empty, "';--\"")).current
    smoke(empty.url, crafted)
    with empty.connect() as connection:
        assert value(connection, "select count(*) from pg_class where relname = 'pwned'") == 0


def test_two_schemas_of_one_database_do_not_know_each_other(empty):
    for schema in ("one", "two"):
        install(empty.url, schema=schema, role_prefix=own_prefix(empty))
        smoke(empty.url, schema)
    with empty.connect() as connection:
        assert rows(
            connection, "select (select count(*) from one.octop_tasks), (select count(*) from two.octop_tasks)"
        ) == [(1, 1)]


@pytest.mark.parametrize("renamed", ["shop", "Odd name"])
def test_a_schema_that_was_renamed_is_not_current_until_it_is_upgraded(empty, renamed):
    prefix = own_prefix(empty)
    install(empty.url, schema="jobs", role_prefix=prefix)
    with empty.connect() as connection:
        assert status(connection, "jobs").current
        do(connection, f'alter schema jobs rename to "{renamed}"')
        assert not status(connection, renamed).current
        assert install(empty.url, schema=renamed, role_prefix=prefix).current
    smoke(empty.url, renamed)


def test_other_things_in_the_schema_stay_as_they_are(empty):
    with empty.connect() as connection:
        do(connection, "create table app (id int)")
        do(connection, "create function app() returns int language sql as 'select 1'")
        before = rows(
            connection,
            "select relname::text, relacl::text, relowner::regrole::text from pg_class where relname"
            " = 'app' union all select proname::text, proacl::text, proowner::regrole::text from pg_proc where proname = 'app'",
        )
        install(empty.url, role_prefix=own_prefix(empty))
        assert (
            rows(
                connection,
                "select relname::text, relacl::text, relowner::regrole::text from pg_class where"
                " relname = 'app' union all select proname::text, proacl::text, proowner::regrole::text from pg_proc where proname = 'app'",
            )
            == before
        )


# --- refused ---------------------------------------------------------------------------------------------------------


def test_refuses_a_changed_migration_in_python_and_in_psql(database):
    with database.connect() as connection:
        do(connection, "update octop_migrations set checksum = 'other' where name = '0001_core.sql'")
        with pytest.raises(errors.MigrationChangedError):
            install(database.url)
        with pytest.raises(errors.MigrationChangedError):
            require(connection)
        answer = database.psql("\\set VERBOSITY verbose\n" + script.install_script(script.Place(), "1"), check=False)
        assert "OC504" in answer


def test_C107_refuses_a_newer_schema_in_python_and_in_psql_and_changes_nothing(database):
    with database.connect() as connection:
        do(connection, "insert into octop_migrations (name, checksum, version) values ('9999_future.sql', 'x', '99')")
        do(connection, "update octop_migrations set checksum = 'x', version = '99' where name = 'functions'")
        before = catalog(database, "public")
        with pytest.raises(errors.NewerSchemaError):
            install(database.url)
        with pytest.raises(errors.NewerSchemaError):
            require(connection)
        answer = database.psql("\\set VERBOSITY verbose\n" + script.install_script(script.Place(), "1"), check=False)
        assert "OC506" in answer
        assert "9999_future.sql" in answer
        assert catalog(database, "public") == before
        assert value(connection, "select version from octop_migrations where name = 'functions'") == "99"


def test_refuses_a_server_that_is_too_old(empty):
    opening = script.opening(script.Place(role_prefix=own_prefix(empty)))
    assert "140000" in opening
    assert "OC505" in empty.psql("\\set VERBOSITY verbose\n" + opening.replace("140000", "990000"), check=False)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_refuses_a_database_that_is_not_utf8(postgres, empty, encoding):
    prefix, name = own_prefix(empty), f"{empty.name}_other"
    other = sql.Identifier(name)
    postgres.execute(
        sql.SQL("create database {} encoding {} locale 'C' template template0").format(other, sql.Literal(encoding))
    )
    try:
        with psycopg.connect(postgres.url(name)) as connection:
            connection.execute("revoke create on schema public from public")
        with pytest.raises(errors.SchemaError, match=f"{name} has the encoding {encoding}") as refused:
            install(postgres.url(name), role_prefix=prefix)
        assert "ENCODING 'UTF8' TEMPLATE template0" in refused.value.hint
    finally:
        postgres.execute(sql.SQL("drop database {} with (force)").format(other))
    assert install(empty.url, role_prefix=prefix).current


def test_a_missing_schema_and_an_unreachable_server_have_their_own_errors(empty):
    with empty.connect() as connection, pytest.raises(errors.SchemaMissingError) as missing:
        require(connection)
    assert "octop migrate" in missing.value.hint
    with pytest.raises(errors.DatabaseUnreachableError):
        install("postgresql://127.0.0.1:1/nowhere?connect_timeout=2")


def test_another_role_prefix_than_the_installed_one_is_named_by_upgrade_and_uninstall(empty):
    prefix, other = own_prefix(empty, "shop_"), own_prefix(empty)
    install(empty.url, schema="jobs", role_prefix=prefix)
    before = catalog(empty, "jobs")
    place = script.Place("jobs", other)
    for text in (script.install_script(place, "1"), script.uninstall_script(place, "1", roles=True)):
        answer = empty.psql(text, check=False)
        assert f"Octop in schema jobs was installed with the role prefix {prefix}\n" in answer
        assert f"Use --role-prefix {prefix} (here it is {other})." in answer
        assert len(answer.splitlines()) == 3  # ERROR, HINT, CONTEXT
    with pytest.raises(errors.SchemaError, match="installed with the role prefix") as refused:
        install(empty.url, schema="jobs", role_prefix=other, again=True)
    assert f"--role-prefix {prefix} " in refused.value.hint
    assert catalog(empty, "jobs") == before
    with empty.connect() as connection:
        assert column(connection, "select rolname::text from pg_roles where starts_with(rolname, %s)", other) == []
        # objects that a restore gave to somebody else
        do(connection, "alter table jobs.octop_migrations owner to current_user")
    with pytest.raises(errors.SchemaError, match="belongs to the role"):
        install(empty.url, schema="jobs", role_prefix=prefix, again=True)


# --- under load ------------------------------------------------------------------------------------------------------


def test_an_upgrade_under_load_waits_with_a_lock_timeout_lets_others_pass_and_tries_again(database, monkeypatch):
    opening = script.opening(script.Place())
    assert "lock_timeout = '3s'" in opening
    monkeypatch.setattr(script, "opening", lambda place: opening.replace("'3s'", "'200ms'"))
    with database.connect() as dba, database.connect(autocommit=False) as busy, ThreadPoolExecutor(1) as pool:
        do(dba, "update octop_migrations set checksum = 'older' where name = 'functions'")
        do(busy, "insert into octop_tasks (task_type) values ('t')")  # a long transaction of an application
        upgrade = pool.submit(install, database.url)
        seen: set[int] = set()
        while len(seen) < 2:  # a second connection waits: it has tried again
            assert not upgrade.done()
            seen |= set(
                column(
                    dba,
                    "select pid from pg_stat_activity where application_name = 'octop migrate' and wait_event_type = 'Lock'",
                )
            )
        with database.connect(options="-c lock_timeout=2s") as other:
            do(
                other, "insert into octop_tasks (task_type) values ('t')"
            )  # is never stopped for longer than the timeout
        busy.commit()
        assert upgrade.result(timeout=60).current
        assert value(dba, "select count(*) from octop_tasks") == 2


def test_an_upgrade_that_never_gets_its_lock_gives_up_with_a_clear_error(database, monkeypatch):
    opening = script.opening(script.Place())
    monkeypatch.setattr(script, "opening", lambda place, present=False: opening.replace("'3s'", "'20ms'"))
    monkeypatch.setattr(sys.modules["octop.engine.install"], "LOCK_TRIES", 2)
    with database.connect() as dba, database.connect(autocommit=False) as busy:
        do(dba, "update octop_migrations set checksum = 'older' where name = 'functions'")
        do(busy, "insert into octop_tasks (task_type) values ('t')")
        with pytest.raises(errors.TryAgainError, match="octop_tasks is in use by a transaction") as refused:
            install(database.url)
        pid = value(busy, "select pg_backend_pid()")
        assert refused.value.detail.startswith(f"process {pid}: octop, ")
        assert f"select pg_terminate_backend({pid});" in refused.value.hint
        answer = database.psql(script.install_script(script.Place(), "1"), check=False)
        assert "octop_tasks is in use by a transaction that has not ended" in answer
        assert f"process {pid}: octop, " in answer
        busy.rollback()
        assert value(dba, "select checksum from octop_migrations where name = 'functions'") == "older"


def test_errors_of_psycopg_never_leave_the_installer(empty):
    with pytest.raises(errors.OctopError):
        install(empty.url_as("nobody_at_all"))
    assert not issubclass(errors.OctopError, psycopg.Error)
