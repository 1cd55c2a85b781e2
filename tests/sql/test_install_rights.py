"""Who may install and upgrade, and what who may not is told: the statements that give him the right."""

from __future__ import annotations

import pytest

from octop.engine import script
from octop.engine.install import install
from octop.model import errors
from tests.sql.crew import do, value
from tests.sql.installation import catalog, own_prefix, smoke

pytestmark = pytest.mark.slow  # each installs at least once


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


def test_an_upgrade_by_a_plain_member_of_the_owner_says_nothing_of_rights(empty):
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
            (said,) = empty.psql(text, role=role, check=False).splitlines()
            assert said.endswith("NOTICE:  octop: 2 is installed in schema jobs")
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
