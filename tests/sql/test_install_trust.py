"""Who installs may be a superuser, and what is installed runs as its owner: nobody else's code, table or login gets in."""

from __future__ import annotations

import re

import pytest

from octop.engine import script
from octop.engine.install import install
from octop.model import errors
from tests.sql.crew import column, do, rows, value
from tests.sql.installation import catalog, own_prefix

pytestmark = pytest.mark.slow  # each installs at least once


@pytest.fixture
def prefix(empty_database):
    return own_prefix(empty_database, "i")


@pytest.fixture
def stranger(empty_database):
    """A login without any right but the one that PUBLIC had in a database before PostgreSQL 15."""
    login = empty_database.make_role(name="stranger")
    with empty_database.connect() as dba:
        do(dba, "grant create on schema public to public")
    return login


def plant(database, login, *texts):
    """Leave functions in public that fit better than PostgreSQL's variadic ones, and betray who calls them.

    They differ in their kinds of arguments, as a caller's do; a body that raised would show itself in the first test.
    """
    with database.connect() as dba:
        called = {name for text in texts for name in re.findall(r"\b([a-z_]+)\(", text)}
        names = column(
            dba,
            "select distinct p.proname::text from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f'"
            " and (p.provariadic <> 0 or exists (select from unnest(p.proargtypes) t where t = any"
            " ('{anyelement,anyarray,anynonarray,anycompatible,anycompatiblearray}'::regtype[]))) and p.proname = any (%s)",
            list(called),
        )
    assert "format" in names
    with database.connect(login) as connection:
        do(connection, "create table public.betrayed (who text, name text)")
        do(connection, "grant insert on public.betrayed to public")
        for name in names:
            for types in (
                "text",
                "text, text",
                "text, text, text",
                "text, name",
                "text, jsonb",
                "text[], text",
                "text, integer",
            ):
                do(
                    connection,
                    f"create function public.{name}({types}) returns text language plpgsql as $$ begin"
                    f" insert into public.betrayed values (current_user, '{name}'); return 'planted'; end $$",
                )


def test_a_superuser_who_installs_upgrades_and_uninstalls_calls_no_function_of_others(empty_database, stranger, prefix):
    place = script.Place("jobs", prefix)
    texts = [script.install_script(place, "1"), script.uninstall_script(place, "1", roles=True)]
    plant(empty_database, stranger, *texts)
    empty_database.psql(texts[0])
    install(empty_database.url, schema="jobs", role_prefix=prefix, again=True)
    empty_database.psql(script.install_script(place, "1", upgrade=True))
    empty_database.psql(texts[1])
    with empty_database.connect() as dba:
        assert rows(dba, "select distinct * from public.betrayed") == []


@pytest.mark.parametrize(
    ("planted", "named"),
    [
        (
            "create function public.jsonb_build_object(text, jsonb) returns jsonb language sql as $$ select '{}'::jsonb $$",
            "function public.jsonb_build_object(text,jsonb)",
        ),
        (
            "create function public.same(text, uuid) returns boolean language sql as 'select true';"
            "create operator public.= (leftarg = text, rightarg = uuid, function = public.same)",
            "operator public.=(text,uuid)",
        ),
    ],
)
def test_what_could_pose_as_postgresqls_in_the_schema_is_refused_before_and_after(
    empty_database, stranger, prefix, planted, named
):
    """Whoever could create objects there before the REVOKE owns them still, and may replace them at any time."""
    with empty_database.connect(stranger) as connection:
        for statement in planted.split(";"):
            do(connection, statement)
    with empty_database.connect() as dba:
        do(dba, "revoke create on schema public from public")
        with pytest.raises(errors.PublicMayCreateError, match="functions or operators of others") as refused:
            install(empty_database.url, role_prefix=prefix)
        assert refused.value.detail == f"{named}, owned by {stranger}"
        told = empty_database.psql(script.install_script(script.Place("public", prefix), "1"), check=False)
        assert "OC501" in empty_database.psql(
            "\\set VERBOSITY verbose\n" + script.install_script(script.Place("public", prefix), "1"), check=False
        )
        assert "Nothing was changed" in told
        assert column(dba, "select 1 from pg_class where relname = 'octop_migrations'") == []
        # the hint's second way out, then its first
        assert install(empty_database.url, schema="jobs", role_prefix=prefix).current
        do(dba, f"drop owned by {stranger}")
        assert install(empty_database.url, role_prefix=prefix).current


def test_functions_of_a_superuser_or_of_who_installs_or_under_other_names_are_no_obstacle(
    empty_database, stranger, prefix
):
    body = "returns integer language sql as 'select 1'"
    with empty_database.connect(stranger) as connection:
        do(connection, f"create function public.my_total(integer) {body}")
    with empty_database.connect() as dba:
        do(dba, f"create function public.round(integer, integer, integer) {body}")
        do(dba, "revoke create on schema public from public")
    assert install(empty_database.url, role_prefix=prefix).current


def test_a_login_does_not_become_one_of_the_roles(empty_database, prefix):
    place = script.Place("jobs", prefix)
    with empty_database.connect() as dba:
        do(dba, f'create role "{prefix}viewer" login')
        with pytest.raises(errors.SchemaError, match=f"{prefix}viewer is a login already") as refused:
            install(empty_database.url, schema="jobs", role_prefix=prefix)
        assert "--role-prefix" in refused.value.hint
        assert f"{prefix}viewer is a login already" in empty_database.psql(
            script.install_script(place, "1"), check=False
        )
        assert column(dba, "select rolname::text from pg_roles where starts_with(rolname, %s)", prefix) == [
            f"{prefix}viewer"
        ]
        do(dba, f'alter role "{prefix}viewer" nologin')
        assert install(empty_database.url, schema="jobs", role_prefix=prefix).current
        # what a DBA decides later is his
        do(dba, f'alter role "{prefix}viewer" login')
        assert install(empty_database.url, schema="jobs", role_prefix=prefix, again=True).current
        assert value(dba, "select rolcanlogin from pg_roles where rolname = %s", f"{prefix}viewer")


POWERS = {
    "operator": ["BYPASSRLS"],
    "owner": ["CREATEROLE", "CREATEDB"],
    "producer": ["REPLICATION"],
    "viewer": ["SUPERUSER"],
}


def test_roles_with_power_over_the_server_do_not_become_ours(empty, prefix):
    with empty.connect() as dba:
        for role, powers in POWERS.items():
            do(dba, f'create role "{prefix}{role}" {" ".join(powers)}')
        with pytest.raises(errors.SchemaError, match="is there already, and has power over the server") as refused:
            install(empty.url, role_prefix=prefix)
        assert refused.value.detail.splitlines() == [
            f"{prefix}{role} has {', '.join(powers)}" for role, powers in POWERS.items()
        ]
        printed = script.install_script(script.Place(role_prefix=prefix), "1")
        assert "has power over the server" in empty.psql(printed, check=False)
        assert value(dba, "select count(*) from pg_roles where starts_with(rolname, %s)", prefix) == len(POWERS)
        # the hint's two ways out; and what a DBA decides later is his
        assert "Choose another --role-prefix." in refused.value.hint
        do(dba, refused.value.hint.partition("superuser: ")[2])
        assert install(empty.url, role_prefix=prefix).current
        do(dba, f'alter role "{prefix}viewer" createdb')
        assert install(empty.url, role_prefix=prefix, again=True).current


def test_members_that_a_role_had_before_are_named_to_who_installs(empty, prefix):
    people = [empty.make_role(name=name) for name in ("ann", "bob")]
    text = script.install_script(script.Place("jobs", prefix), "1")
    with empty.connect() as dba:
        do(dba, f'create role "{prefix}owner"; grant "{prefix}owner" to {", ".join(people)}, current_user')
        said = empty.psql(text, check=False)
        assert (
            f"WARNING:  octop: the role {prefix}owner was there before and has members: {', '.join(people)}\n" in said
        )
        cure = re.findall(r"REVOKE .*;", said)
        assert len(cure) == 1
        do(dba, cure[0])
        assert value(
            dba,
            "select array_agg(member::regrole::text) from pg_auth_members where roleid::regrole::text = %s",
            f"{prefix}owner",
        ) == ["octop"]
        # those that the installer has made, in another schema of this server, have their members by somebody's intent
        do(dba, f'grant "{prefix}viewer" to {people[0]}')
        assert "WARNING" not in empty.psql(script.install_script(script.Place("more", prefix), "1"), check=False)


def test_refuses_a_schema_in_which_public_may_create_and_its_hint_is_the_cure(empty_database, prefix):
    with empty_database.connect() as connection:
        do(connection, "grant create on schema public to public")
        with pytest.raises(errors.PublicMayCreateError) as refused:
            install(empty_database.url, role_prefix=prefix)
        cure = refused.value.hint[refused.value.hint.index("REVOKE") :]
        do(connection, cure)
        assert install(empty_database.url, role_prefix=prefix).current


def test_refuses_a_schema_in_which_a_role_of_ours_may_create(empty, prefix):
    with empty.connect() as connection:
        do(connection, f'create role "{prefix}producer"')
        do(connection, f'grant create on schema public to "{prefix}producer"')
        with pytest.raises(errors.PublicMayCreateError) as refused:
            install(empty.url, role_prefix=prefix)
        do(connection, refused.value.hint[refused.value.hint.index("REVOKE") :])
        assert install(empty.url, role_prefix=prefix).current


def test_refuses_an_owner_who_is_a_superuser(empty, prefix):
    with empty.connect() as connection:
        do(connection, f'create role "{prefix}owner" superuser')
        with pytest.raises(errors.OwnerIsSuperuserError) as refused:
            install(empty.url, role_prefix=prefix)
        do(connection, refused.value.hint.partition(";")[0])
        assert install(empty.url, role_prefix=prefix).current


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
def test_a_name_of_ours_that_somebody_else_has_is_refused_in_a_few_lines(empty, prefix, theirs):
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


def test_a_table_of_ours_that_was_given_to_somebody_else_is_named_before_an_upgrade(empty, prefix):
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
