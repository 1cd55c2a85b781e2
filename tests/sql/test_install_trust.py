"""Who installs may be a superuser, and what is installed runs as its owner: nobody else's code or login gets in."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest

from octop.engine import script
from octop.engine.install import install
from octop.model import errors
from tests.sql.crew import column, do, rows, value

pytestmark = pytest.mark.slow  # each installs at least once


@pytest.fixture
def prefix(empty_database):
    made = f"i{uuid4().hex[:8]}_"
    empty_database.roles += [made + role for role in script.ROLES]
    return made


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
