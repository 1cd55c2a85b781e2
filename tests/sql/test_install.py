"""Install and upgrade: one transaction, harmless to repeat, from anywhere, by anyone who may, at the same time."""

from __future__ import annotations

import multiprocessing
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from octop.engine import calls, script
from octop.engine.call import run
from octop.engine.connect import open_connection
from octop.engine.install import install, require, status
from octop.model import errors
from octop.model.ids import new_id
from octop.model.task import Success
from octop.model.work import NewTask, TaskTypePolicy
from tests.sql.crew import column, do, rows, value

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
CATALOG = """
  select 'table ' || c.relname || ' ' || c.relkind::text || coalesce(c.reloptions::text, '') || coalesce(c.relacl::text, '')
         || pg_get_userbyid(c.relowner) || coalesce(pg_get_expr(c.relpartbound, c.oid), '') || coalesce(obj_description(c.oid, 'pg_class'), '')
    from pg_class c where c.relnamespace = %(schema)s::regnamespace
  union all
  select 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || a.attnotnull || a.attnum
         || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || coalesce(a.attacl::text, '') || coalesce(col_description(c.oid, a.attnum), '')
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
   where c.relnamespace = %(schema)s::regnamespace
  union all
  select 'constraint ' || conrelid::regclass || conname || pg_get_constraintdef(oid)
    from pg_constraint where connamespace = %(schema)s::regnamespace
  union all
  select 'function ' || pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '')
         || pg_get_userbyid(p.proowner) || obj_description(p.oid, 'pg_proc')
    from pg_proc p where p.pronamespace = %(schema)s::regnamespace
  union all
  select 'trigger ' || pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
   where not t.tgisinternal and c.relnamespace = %(schema)s::regnamespace
  union all
  select 'view ' || c.relname || pg_get_viewdef(c.oid) from pg_class c where c.relkind = 'v' and c.relnamespace = %(schema)s::regnamespace
   order by 1"""


@pytest.fixture
def empty(empty_database):
    """An empty database as PostgreSQL 15 and newer make it: PUBLIC may not create in the schema public."""
    with empty_database.connect() as connection:
        do(connection, "revoke create on schema public from public")
    return empty_database


def own_prefix(database, text="") -> str:
    """Make up a prefix of roles that no other test uses; they are dropped with the database."""
    prefix = f"{text}{uuid4().hex[:8]}_"
    database.roles += [prefix + role for role in script.ROLES]
    return prefix


def catalog(database, schema):
    with database.connect() as connection:
        return [
            row[0]
            for row in connection.execute(
                CATALOG, {"schema": f'"{schema}"' if schema != "public" else schema}
            ).fetchall()
        ]


def smoke(url, schema):
    """Register, claim and finish one task in a schema, through the calls alone."""
    with open_connection(url, application_name="smoke", schema=schema) as connection:
        require(connection, schema)
        worker = new_id()
        run(
            connection,
            calls.octop_register(
                worker,
                name="",
                host="",
                pid=1,
                supervisor_id=None,
                version="",
                queues=["q"],
                task_types=[TaskTypePolicy("t")],
            ),
        )
        ((task_id, created),) = run(connection, calls.octop_enqueue_many([NewTask("t", "{}", new_id(), queue="q")]))
        (claimed,) = run(connection, calls.octop_exchange(worker, wanted={"q": 5}, task_types=["t"])).tasks
        assert (created, claimed.id) == (True, task_id)
        assert (
            run(
                connection,
                calls.octop_exchange(worker, wanted={}, task_types=["t"], successes=[Success(claimed.fence)]),
            ).settled
            == []
        )
        run(connection, calls.octop_sweep(worker))
        found = run(connection, calls.octop_task(task_id))
        assert found is not None
        assert found.status == "success"
        run(connection, calls.octop_pause("q"))
        run(connection, calls.octop_config_set("task.default_max_retries", "5"))
        assert run(connection, calls.octop_settings()).held_queues == {"q"}


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
        script.install_script(script.Place(role_prefix=prefix), "1").removesuffix("commit;\n")
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


def test_refuses_a_schema_in_which_public_may_create_and_its_hint_is_the_cure(empty_database):
    with empty_database.connect() as connection:
        do(connection, "grant create on schema public to public")
        prefix = own_prefix(empty_database)
        with pytest.raises(errors.PublicMayCreateError) as refused:
            install(empty_database.url, role_prefix=prefix)
        cure = refused.value.hint[refused.value.hint.index("REVOKE") :]
        do(connection, cure)
        assert install(empty_database.url, role_prefix=prefix).current


def test_refuses_a_schema_in_which_a_role_of_ours_may_create(empty):
    prefix = own_prefix(empty)
    with empty.connect() as connection:
        do(connection, f'create role "{prefix}producer"')
        do(connection, f'grant create on schema public to "{prefix}producer"')
        with pytest.raises(errors.PublicMayCreateError) as refused:
            install(empty.url, role_prefix=prefix)
        do(connection, refused.value.hint[refused.value.hint.index("REVOKE") :])
        assert install(empty.url, role_prefix=prefix).current


def test_without_the_right_to_make_roles_the_hint_holds_the_statements(empty):
    login, prefix = empty.make_role(), own_prefix(empty)
    with empty.connect() as connection:
        do(connection, f'grant create on database "{empty.name}" to {login}')
        with pytest.raises(errors.RoleMissingError) as refused:
            install(empty.url_as(login), schema="jobs", role_prefix=prefix)
        for statement in refused.value.hint.partition(": ")[2].split(";"):
            assert not statement.strip() or statement.strip().startswith(("CREATE ROLE", "GRANT"))
        # what the hint says, for each role that is missing
        do(connection, f'create role "{prefix}owner" nologin')
        for role in script.ROLES[1:]:
            do(connection, f'create role "{prefix}{role}" nologin')
        with pytest.raises(errors.RoleMissingError) as refused:
            install(empty.url_as(login), schema="jobs", role_prefix=prefix)
        do(connection, refused.value.hint.partition(": ")[2])
        assert install(empty.url_as(login), schema="jobs", role_prefix=prefix).current
        assert value(connection, "select count(*) from pg_namespace where nspname = 'jobs'") == 1
    smoke(empty.url, "jobs")


def test_a_login_that_may_not_make_the_schema_is_told_so(empty):
    login = empty.make_role()
    with empty.connect() as connection:
        prefix = own_prefix(empty)
        do(connection, f"alter role {login} createrole")
        with pytest.raises(errors.NotPermittedError) as refused:
            install(empty.url_as(login), schema="jobs", role_prefix=prefix)
        do(connection, refused.value.hint.partition(": ")[2])
        assert install(empty.url_as(login), schema="jobs", role_prefix=prefix).current


def test_refuses_an_owner_who_is_a_superuser(empty):
    prefix = own_prefix(empty)
    with empty.connect() as connection:
        do(connection, f'create role "{prefix}owner" superuser')
        with pytest.raises(errors.OwnerIsSuperuserError) as refused:
            install(empty.url, role_prefix=prefix)
        do(connection, refused.value.hint.partition(";")[0])
        assert install(empty.url, role_prefix=prefix).current


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


@pytest.mark.parametrize(
    "theirs",
    [
        "create table octop_tasks (n int)",
        "create view octop_task_summary as select 1",
        "create table t (n int); create index octop_audit_at on t (n)",
        "create table octop_migrations (n int)",
        "create function octop_pause(text) returns int language sql as 'select 1'",
    ],
)
def test_a_name_of_ours_that_somebody_else_has_is_refused_in_a_few_lines(empty, theirs):
    prefix = own_prefix(empty)
    empty.psql(theirs)
    before = catalog(empty, "public")
    answer = empty.psql(script.install_script(script.Place(role_prefix=prefix), "1"), check=False)
    assert "schema public holds something else under a name of Octop's" in answer
    (name,) = re.findall(r"octop_\w+", theirs)
    assert f".{name}" in answer
    assert ", owned by " in answer
    assert "--schema NAME" in answer
    assert len(answer.splitlines()) == 4, answer
    with pytest.raises(errors.SchemaError, match="holds something else") as refused:
        install(empty.url, role_prefix=prefix)
    assert name in refused.value.detail
    assert catalog(empty, "public") == before
    # and the hint's way out
    assert install(empty.url, schema="jobs", role_prefix=prefix).current
    assert catalog(empty, "public") == before


def test_a_table_of_ours_that_was_given_to_somebody_else_is_named_before_an_upgrade(empty):
    prefix = own_prefix(empty)
    install(empty.url, role_prefix=prefix)
    with empty.connect() as connection:
        do(connection, "alter table octop_queues owner to current_user")
        with pytest.raises(errors.SchemaError, match="holds something else") as refused:
            install(empty.url, role_prefix=prefix, again=True)
        assert "octop_queues" in refused.value.detail
        assert f"{prefix}owner" in refused.value.hint
        do(connection, f'alter table octop_queues owner to "{prefix}owner"')
        assert install(empty.url, role_prefix=prefix, again=True).current


def test_every_name_that_the_installer_makes_is_looked_for(database):
    with database.connect() as connection:
        made = set(
            column(
                connection,
                "select c.relname::text from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'S', 'i', 'I')"
                # those of a constraint or an identity, and those of a day, go with their table
                " and not exists (select from pg_depend d where d.objid = c.oid and d.deptype in ('i', 'a') and (d.classid, c.relkind) in "
                " (('pg_class'::regclass, 'S'))) and not exists (select from pg_constraint k where k.conindid = c.oid)"
                " and not exists (select from pg_inherits h where h.inhrelid = c.oid and c.relname !~ '^octop_tasks_(live|frozen|done|done_stray|unknown)$')",
            )
        )
        functions = set(column(connection, "select proname::text from pg_proc where proname ~ '^_?octop_'"))
    assert made == set(script.relation_names())
    assert functions == set(script.function_names())


def test_an_upgrade_by_a_plain_member_of_the_owner_says_nothing(empty):
    prefix = own_prefix(empty)
    login = empty.make_role()
    install(empty.url, schema="jobs", role_prefix=prefix)
    with empty.connect() as connection:
        do(connection, f'grant "{prefix}owner" to {login}')
        do(connection, "update jobs.octop_migrations set version = '0' where name = 'functions'")
        before = catalog(empty, "jobs")
        rights = value(connection, "select nspacl::text from pg_namespace where nspname = 'jobs'")
        text = script.install_script(script.Place("jobs", prefix), "2")
        for role in (login, None):  # what psql says goes to stderr, which check=False returns too
            assert empty.psql(text, role=role, check=False).strip() == ""
        assert value(connection, "select version from jobs.octop_migrations where name = 'functions'") == "2"
        assert catalog(empty, "jobs") == before
        assert value(connection, "select nspacl::text from pg_namespace where nspname = 'jobs'") == rights
        # a right that is gone, and that this login may not grant
        do(connection, f'revoke usage on schema jobs from "{prefix}viewer"')
        with pytest.raises(errors.NotPermittedError, match="may not grant rights on schema jobs") as refused:
            install(empty.url_as(login), schema="jobs", role_prefix=prefix, again=True)
        do(connection, refused.value.hint.rpartition("superuser: ")[2])
        assert install(empty.url_as(login), schema="jobs", role_prefix=prefix, again=True).current


def the_database_owner(empty):
    """A database owner in a schema that is not his, as `public` is in PostgreSQL 14."""
    login = empty.make_role()
    with empty.connect() as connection:
        do(connection, f'alter role {login} createrole; alter database "{empty.name}" owner to {login}')
        do(connection, "alter schema public owner to current_user; grant create on schema public to public")
    return login


def test_a_database_owner_whose_schema_public_is_a_superusers_is_told_all_that_is_needed_at_once(empty):
    login, prefix = the_database_owner(empty), own_prefix(empty, "p")
    with pytest.raises(errors.PublicMayCreateError) as refused:
        install(empty.url_as(login), role_prefix=prefix)
    before, _, cure = refused.value.hint.partition(": REVOKE ")
    assert "a superuser (or choose a schema of your own: --schema NAME)" in before
    with empty.connect() as connection:
        do(connection, f"REVOKE {cure}")
    assert install(empty.url_as(login), role_prefix=prefix).current
    smoke(empty.url, "public")


def test_after_the_revoke_alone_the_missing_right_is_named_instead_of_a_bare_permission_denied(empty):
    login, prefix = the_database_owner(empty), own_prefix(empty, "p")
    with empty.connect() as connection:
        do(connection, "revoke create on schema public from public")
        answer = empty.psql(script.install_script(script.Place(role_prefix=prefix), "1"), role=login, check=False)
        assert f"{prefix}owner may not create objects in schema public, and {login} may not grant it" in answer
        assert f"GRANT USAGE, CREATE ON SCHEMA public TO {prefix}owner;" in answer
        with pytest.raises(errors.NotPermittedError) as refused:
            install(empty.url_as(login), role_prefix=prefix)
        do(connection, refused.value.hint.partition("--schema NAME): ")[2])
    assert install(empty.url_as(login), role_prefix=prefix).current
    # the other way out
    assert install(empty.url_as(login), schema="jobs", role_prefix=own_prefix(empty)).current


# --- the printed script ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["superuser", "plain login with CREATEROLE"])
def test_the_printed_script_by_psql_makes_the_same_catalog_as_the_installer(empty, postgres, who):
    prefix = own_prefix(empty)
    with postgres.database(installed=False) as second:
        if who == "superuser":
            second.psql(script.install_script(script.Place("jobs", prefix), "1"))
        else:
            login = second.make_role()
            postgres.execute(sql.SQL("alter role {} createrole").format(sql.Identifier(login)))
            postgres.execute(
                sql.SQL("grant create on database {} to {}").format(sql.Identifier(second.name), sql.Identifier(login))
            )
            for _ in range(2):  # and again
                second.psql(script.install_script(script.Place("jobs", prefix), "1"), role=login)
        install(empty.url, schema="jobs", role_prefix=prefix, version="1")
        assert catalog(second, "jobs") == catalog(empty, "jobs")
        with second.connect() as connection:
            assert column(connection, "select checksum from jobs.octop_migrations order by name") == [
                *(file.checksum for file in script.migrations()),
                script.functions_checksum(),
            ]
            do(connection, "select jobs.octop_enqueue('t')")
            assert value(connection, "select count(*) from jobs.octop_tasks") == 1


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
    monkeypatch.setattr(script, "opening", lambda place: opening.replace("'3s'", "'20ms'"))
    monkeypatch.setattr(sys.modules["octop.engine.install"], "LOCK_TRIES", 2)
    with database.connect() as dba, database.connect(autocommit=False) as busy:
        do(dba, "update octop_migrations set checksum = 'older' where name = 'functions'")
        do(busy, "insert into octop_tasks (task_type) values ('t')")
        with pytest.raises(errors.TryAgainError):
            install(database.url)
        busy.rollback()
        assert value(dba, "select checksum from octop_migrations where name = 'functions'") == "older"


def test_errors_of_psycopg_never_leave_the_installer(empty):
    with pytest.raises(errors.OctopError):
        install(empty.url_as("nobody_at_all"))
    assert not issubclass(errors.OctopError, psycopg.Error)
