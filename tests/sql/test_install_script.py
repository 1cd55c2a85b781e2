"""The printed script, run by psql: it does what the installer does, says so, and finds out what was installed and is gone."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from psycopg import sql

from octop.engine import calls, script
from octop.engine.call import run
from octop.engine.install import install
from octop.model import errors
from tests.sql.crew import column, do, value
from tests.sql.installation import catalog, own_prefix

pytestmark = pytest.mark.slow  # most of them install


@pytest.fixture
def prefix(empty):
    return own_prefix(empty)


# --- the printed script ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["superuser", "plain login with CREATEROLE"])
def test_the_printed_script_by_psql_makes_the_same_catalog_as_the_installer(empty, postgres, prefix, who):
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


def test_the_printed_script_says_at_the_end_what_is_there_now(empty, prefix):
    for text in (
        script.install_script(script.Place("jobs", prefix), "1.2"),
        script.install_script(script.Place("jobs", prefix), "1.3", upgrade=True),
    ):
        version = text.split()[2].removesuffix(":")
        said = empty.psql(text, check=False).splitlines()
        assert [line.partition("NOTICE:  ")[2] for line in said] == [f"octop: {version} is installed in schema jobs"]


STRINGS_OFF = "set standard_conforming_strings = off;\n"
SHOWN = r"do $$ begin raise notice '%, %', current_setting('standard_conforming_strings'), '\'; end $$;" + "\n"


def test_a_session_with_other_strings_is_given_those_that_the_scripts_mean(empty, prefix):
    """With standard_conforming_strings = off a backslash in a plain literal means something else."""
    place = script.Place("jobs", prefix)
    for text in (script.install_script(place, "1"), script.uninstall_script(place, "1")):
        before, commit, after = text.rpartition("commit;\n")
        said = empty.psql(
            f"{STRINGS_OFF}{before}set local client_min_messages = notice;{SHOWN}{commit}{after}", check=False
        )
        shown = [line.partition("NOTICE:  ")[2] for line in said.splitlines()]
        assert "on, \\" in shown, said
        assert all(shown), said  # no warning of a backslash that PostgreSQL finds strange
    grants = script.grants_script(script.Place("jobs", prefix))
    assert grants.index("standard_conforming_strings = on") < grants.index("search_path")


def test_an_installer_with_other_strings_makes_the_same(empty, postgres, prefix):
    with postgres.database(installed=False) as second:
        other = quote("-c standard_conforming_strings=off")
        install(f"{second.url}&options={other}", schema="jobs", role_prefix=prefix, version="1")
        install(empty.url, schema="jobs", role_prefix=prefix, version="1")
        assert catalog(second, "jobs") == catalog(empty, "jobs")


# --- broken ----------------------------------------------------------------------------------------------------------


def test_a_table_that_is_gone_leads_to_the_statements_that_make_it_again(database):
    database.psql("drop table octop_config cascade")
    answer = database.psql(script.install_script(script.Place(), "1"), check=False)
    assert "schema public lacks what was installed there: octop_config\n" in answer
    assert "octop doctor --only schema" in answer
    with pytest.raises(errors.SchemaError, match="lacks what was installed there: octop_config") as refused:
        install(database.url, again=True)
    assert "octop doctor --only schema" in refused.value.hint
    # and whoever works meanwhile is not sent to the installer alone
    with database.connect() as connection, pytest.raises(errors.SchemaMissingError, match="octop_config") as missing:
        run(connection, calls.octop_config_set("worker.concurrency", "5"))
    assert "octop migrate" in missing.value.hint
    assert "octop doctor --only schema" in missing.value.hint


def test_every_table_and_sequence_that_the_migrations_make_is_looked_for(database):
    with database.connect() as connection:
        made = column(
            connection,
            "select c.relname::text from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'S')"
            " and c.relname not in ('octop_migrations') and c.relname !~ '_[0-9]{8}$'"
            " and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'i' and c.relkind = 'S')",
        )
    assert set(script.table_names()) == set(made)


def test_a_column_of_others_does_not_get_into_a_view_by_an_upgrade(database):
    with database.connect() as connection:
        do(connection, "alter table octop_tasks add column cost int")
        assert install(database.url, again=True).current
        do(connection, "alter table octop_tasks drop column cost")
