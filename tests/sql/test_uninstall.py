"""`octop sql uninstall`: takes away what the installer made, nothing else, all or nothing."""

from __future__ import annotations

from uuid import uuid4

import pytest

from octop.engine import script
from octop.engine.install import install
from tests.sql.crew import add, column, do, rows, value

pytestmark = pytest.mark.slow  # each installs at least once

CATALOG = """
select 'class', n.nspname || '.' || c.relname || c.relkind::text, c.relacl::text from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname !~ '^pg_toast'
union all select 'proc', p.oid::regprocedure::text, p.proacl::text from pg_proc p
union all select 'type', n.nspname || '.' || t.typname, null from pg_type t join pg_namespace n on n.oid = t.typnamespace where n.nspname !~ '^pg_toast'
union all select 'schema', n.nspname, array(select x::text from aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) x order by 1)::text
            from pg_namespace n where n.nspname !~ '^pg_(toast|temp)'
union all select 'trigger', t.tgname, null from pg_trigger t
union all select 'constraint', c.conname, null from pg_constraint c
union all select 'default acl', d.defaclnamespace::text, d.defaclacl::text from pg_default_acl d
union all select 'comment', d.classoid::regclass::text || d.objoid || '.' || d.objsubid, d.description from pg_description d
union all select 'role', r.rolname, null from pg_roles r where r.rolname ~ %s
union all select 'member', m.roleid::regrole::text, m.member::regrole::text from pg_auth_members m where m.roleid::regrole::text ~ %s
union all select 'depends', s.classid::text, s.refobjid::text from pg_shdepend s
            where s.dbid = (select oid from pg_database where datname = current_database())
order by 1, 2, 3
"""


@pytest.fixture
def prefix(postgres):
    """Roles belong to the server, which other tests share: this test has its own."""
    return f"u{uuid4().hex[:8]}_"


def catalog(connection, prefix):
    return set(rows(connection, CATALOG, f"^{prefix}", f"^{prefix}"))


def refused(database, text):
    with pytest.raises(AssertionError, match="psql ended with 3") as error:
        database.psql(text)
    return str(error.value)


@pytest.mark.parametrize("schema", ["public", "jobs", 'odd "name"'])
def test_leaves_no_trace_in_the_catalog(empty_database, prefix, schema):
    with empty_database.connect() as dba:
        do(dba, "revoke create on schema public from public")  # the default since 15
        before = catalog(dba, prefix)
        place = script.Place(schema, prefix)
        install(empty_database.url, schema=schema, role_prefix=prefix)
        assert len(catalog(dba, prefix) - before) > 300
        empty_database.psql(script.uninstall_script(place, "1", roles=True))
        assert catalog(dba, prefix) == before


def test_roles_with_capitals_blanks_and_quotes_are_the_roles_that_are_meant(empty_database, prefix):
    with empty_database.connect() as dba:
        do(dba, "revoke create on schema public from public")
        do(dba, f"create role {prefix}owner")  # what a name with capitals becomes where nobody quotes it
        try:
            for odd in (prefix.upper(), f"{prefix} odd'\""):
                install(empty_database.url, schema="jobs", role_prefix=odd)
                empty_database.psql(script.uninstall_script(script.Place("jobs", odd), "1", roles=True))
                assert value(dba, "select count(*) from pg_class where relname ~ '^_?octop_'") == 0
                assert value(dba, "select count(*) from pg_roles where starts_with(rolname, %s)", odd) == 0
        finally:
            do(dba, f"drop role {prefix}owner")


def test_the_schema_of_the_logins_own_name_goes_too(empty_database, prefix):
    """Under `set role` the path's "$user" is another schema: no name may depend on the path."""
    login = empty_database.make_role()
    with empty_database.connect() as dba:
        do(dba, f"alter role {login} superuser")
        do(dba, f"create schema {login}")
        install(empty_database.url, schema=login, role_prefix=prefix)
        empty_database.psql(script.uninstall_script(script.Place(login, prefix), "1", roles=True), role=login)
        assert value(dba, "select count(*) from pg_class where relname ~ '^_?octop_'") == 0


def test_without_roles_it_leaves_the_roles_and_can_be_installed_again(empty_database, prefix):
    with empty_database.connect() as dba:
        for _ in range(2):
            install(empty_database.url, schema="jobs", role_prefix=prefix)
            empty_database.psql(script.uninstall_script(script.Place("jobs", prefix), "1"))
        assert value(dba, "select count(*) from pg_roles where rolname ~ %s", f"^{prefix}") == 5
        assert column(dba, "select nspname::text from pg_namespace where nspname = 'jobs'") == []
        # and nothing to do a second time
        place = script.Place("jobs", prefix)
        told = refused(empty_database, script.uninstall_script(place, "1"))
        assert "is not installed in schema jobs" in told
        assert f"HINT:  It is not in this database: {empty_database.name}." in told
        # nor does an upgrade install
        assert "is not installed in schema jobs" in refused(
            empty_database, script.install_script(place, "1", upgrade=True)
        )
        install(empty_database.url, schema="jobs", role_prefix=prefix)
        empty_database.psql(script.install_script(place, "1", upgrade=True))
        told = refused(empty_database, script.uninstall_script(script.Place("job", prefix), "1"))
        assert "HINT:  Here it is in: jobs. Print this script with --schema." in told
        empty_database.psql(script.uninstall_script(script.Place("jobs", prefix), "1", roles=True))


def test_roles_that_a_person_made_or_lets_log_in_stay(empty_database, prefix):
    with empty_database.connect() as dba:
        do(dba, f"create role {prefix}viewer")
        install(empty_database.url, schema="jobs", role_prefix=prefix)
        do(dba, f"alter role {prefix}worker login")
        empty_database.psql(script.uninstall_script(script.Place("jobs", prefix), "1", roles=True))
        assert column(dba, "select rolname::text from pg_roles where starts_with(rolname, %s) order by 1", prefix) == [
            f"{prefix}viewer",
            f"{prefix}worker",
        ]
        do(dba, f"drop role {prefix}viewer, {prefix}worker")


def test_what_is_not_ours_stays(database, dba):
    do(dba, "create table orders (id int)")
    do(dba, "create table octop_notes (id int)")  # the name of ours, the owner another
    do(dba, "create function octop_mine() returns int language sql as 'select 1'")
    add(dba)
    database.psql(script.uninstall_script(script.Place(), "1"))
    left = "select relname::text from pg_class where relnamespace = 'public'::regnamespace order by 1"
    assert column(dba, left) == ["octop_notes", "orders"]
    assert column(dba, "select proname::text from pg_proc where pronamespace = 'public'::regnamespace") == [
        "octop_mine"
    ]


OF_A_PERSON = {
    "create table octop_invoices (a int)": "table octop_invoices",
    "create table invoices (a int)": "table invoices",
    "create table octop_tasks_done_2026 (a int)": "table octop_tasks_done_2026",
    "create view octop_bills as select 1": "view octop_bills",
    "create materialized view bills as select 1": "materialized view bills",
    "create sequence octop_bill_numbers": "sequence octop_bill_numbers",
    "create function octop_bill() returns int language sql as 'select 1'": "function octop_bill()",
    "create domain octop_amount as int": "type octop_amount",
}


@pytest.mark.parametrize("schema", ["public", 'odd "name"'])
def test_what_a_person_gave_to_the_owners_role_is_named_and_nothing_is_removed(empty_database, prefix, schema):
    with empty_database.connect() as dba:
        do(dba, "revoke create on schema public from public")
        install(empty_database.url, schema=schema, role_prefix=prefix)
        quoted = script.quoted(schema)
        do(dba, f"set search_path = {quoted}; set role {prefix}owner; {';'.join(OF_A_PERSON)}")
        do(dba, "reset role")
        task_id = add(dba)
        text = script.uninstall_script(script.Place(schema, prefix), "1", roles=True)
        told = refused(empty_database, text)
        assert f"{prefix}owner owns something in schema {schema} that is not Octop's" in told
        found = told.partition("DETAIL:  ")[2].partition("\nHINT:")[0].splitlines()
        assert {line.replace(f"{quoted}.", "").replace("public.", "") for line in found} == set(OF_A_PERSON.values())
        assert column(dba, "select id::text from octop_tasks") == [task_id]
        do(dba, ";".join(f"drop {thing.replace('type', 'domain')}" for thing in OF_A_PERSON.values()))
        empty_database.psql(text)
        assert value(dba, "select to_regclass('octop_tasks')") is None


def test_days_go_attached_and_detached_and_with_indexes_of_a_person(database, dba):
    day = value(dba, "select partition::text from _octop_days order by from_at limit 1")
    do(dba, f"alter table octop_tasks_done detach partition {day}")
    do(
        dba,
        "create index my_own on octop_tasks_live (tenant); create statistics mine on queue, lane from octop_tasks_live",
    )
    do(dba, "alter statistics mine owner to octop_owner")
    database.psql(script.uninstall_script(script.Place(), "1"))
    assert column(dba, "select relname::text from pg_class where relnamespace = 'public'::regnamespace") == []


def test_refuses_while_workers_live_unless_it_is_told(database, dba, hire):
    hire()
    told = refused(database, script.uninstall_script(script.Place(), "1"))
    assert "octop: workers live: 1" in told
    assert value(dba, "select host || ', process ' || pid from octop_workers") in told
    assert value(dba, "select id::text from octop_workers") in told
    assert "Nothing was removed" in told
    assert value(dba, "select count(*) from octop_workers") == 1
    database.psql(script.uninstall_script(script.Place(), "1", force=True))
    assert value(dba, "select to_regclass('octop_workers')") is None


def test_a_silent_worker_is_no_obstacle(database, dba, hire):
    worker = hire()
    do(dba, "update octop_workers set beat_at = now() - interval '1 hour' where id = %s", worker.id)
    database.psql(script.uninstall_script(script.Place(), "1"))


@pytest.mark.parametrize(
    "statement",
    [
        "create view mine as select id from octop_tasks",
        "create table mine (at timestamptz default _octop_now())",
        "create materialized view mine as select * from octop_task_summary",
        "create function mine(t octop_tasks) returns int language sql begin atomic select 1; end",
        "create table mine (task octop_tasks)",
    ],
)
def test_names_what_stands_on_it_and_removes_nothing(database, dba, statement):
    task_id = add(dba)
    do(dba, statement)
    told = refused(database, script.uninstall_script(script.Place(), "1"))
    assert "stands on it" in told
    assert "mine" in told
    assert column(dba, "select id::text from octop_tasks") == [task_id]
    assert value(dba, "select count(*) from octop_task_summary") == 1


def test_roles_that_another_schema_needs_are_refused_whole(database, dba, prefix):
    for schema in ("one", "two"):
        install(database.url, schema=schema, role_prefix=prefix)
    told = refused(database, script.uninstall_script(script.Place("one", prefix), "1", roles=True))
    assert "is needed elsewhere" in told
    assert "without --roles" in told
    assert value(dba, "select to_regclass('one.octop_tasks')") is not None
    database.psql(script.uninstall_script(script.Place("one", prefix), "1"))
    database.psql(script.uninstall_script(script.Place("two", prefix), "1", roles=True))
    assert value(dba, "select count(*) from pg_roles where rolname ~ %s", f"^{prefix}") == 0


def test_a_stranger_may_not(database, dba):
    role = database.make_role("octop_operator")
    told = database.psql(script.uninstall_script(script.Place(), "1"), role=role, check=False)
    assert "may not act as octop_owner" in told
    assert value(dba, "select to_regclass('octop_tasks')") is not None
