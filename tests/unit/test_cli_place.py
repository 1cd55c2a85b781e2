"""Where a command line leads, in words that can be typed again."""

import shlex
import subprocess
import sys

import psycopg
import pytest

from octop.cli.invocation import Invocation
from octop.cli.place import exports, flags, hint, psql_options
from octop.engine.failures import translated
from octop.model.errors import DatabaseUnreachableError, SchemaMissingError, SchemaVersionError
from octop.model.settings import load_settings

URL = "postgresql://ann:secret@db/shop"


def test_what_a_flag_or_a_variable_says_the_next_terminal_is_told_without_a_password(tmp_path, monkeypatch):
    def told(environment=None, **given):
        return exports(load_settings(environment=environment or {}, folder=tmp_path, **given))

    assert told() == ""
    line = "export OCTOP_DSN='postgresql://ann:***@db/shop' OCTOP_SCHEMA=two   # the password in place of ***"
    assert told(dsn=URL, schema="two") == line
    assert told({"DATABASE_URL": "host=db"}) == "export OCTOP_DSN=host=db"
    monkeypatch.setenv("PGPORT", "5433")
    monkeypatch.setenv("PGUSER", "bob the builder")
    monkeypatch.setenv("PGPASSWORD", "secret")
    assert told({"PGPORT": "5433"}) == "export PGPORT=5433 PGUSER='bob the builder'"
    (tmp_path / "octop.toml").write_text('dsn = "host=db"\nschema = "two"\n')
    assert told() == "", "the file is there in the other terminal, too"
    assert told(schema="three") == "export OCTOP_SCHEMA=three"


def test_flags_come_again_in_the_command_that_cures():
    def told(error, **given):
        invocation = Invocation(**given)
        invocation.settings = load_settings(dsn=given.get("dsn"), schema=given.get("schema"), environment={})
        return hint(error, invocation)

    missing = SchemaMissingError("x", hint="Run: octop migrate   (or give a DBA the output of: octop sql install)")
    again = "octop migrate --dsn 'postgresql://ann:***@db/shop' --schema nosuch"
    assert told(missing, dsn=URL, schema="nosuch").startswith(f"Run: {again}   (or give")
    assert told(SchemaVersionError("x", hint="Run: octop migrate"), schema="two") == "Run: octop migrate --schema two"
    assert told(missing) == "Run: octop dev   (it installs what is missing; alone: octop migrate)"


def test_who_cannot_reach_a_database_hears_what_led_there(tmp_path):
    error = DatabaseUnreachableError("x", hint="Check it.")

    def told(environment, dsn=None):
        invocation = Invocation(dsn=dsn)
        invocation.settings = load_settings(dsn=dsn, environment=environment, folder=tmp_path)
        return hint(error, invocation)

    assert told({"PGPORT": "1"}) == "Check it. It was led there by the variable PGPORT."
    assert told({"OCTOP_DSN": "host=db"}) == "Check it. It was led there by the variable OCTOP_DSN."
    assert told({}, "host=db") == told({}) == "Check it."
    (tmp_path / "octop.toml").write_text('\ndsn = "host=db"\n')
    assert told({}) == f"Check it. It was led there by {tmp_path}/octop.toml:2."


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ('FATAL:  database "nodb" does not exist', "createdb nodb"),
        ('FATAL:  role "bob" does not exist', "createuser bob"),
        ('FATAL:  password authentication failed for user "bob"', "PGPASSWORD"),
        ("fe_sendauth: no password supplied", "PGPASSWORD"),
        ("FATALE:  la base de données « x » n'existe pas", "Check that the server runs"),
    ],
)
def test_a_refused_login_has_its_own_cure(said, cure):
    found = translated(psycopg.OperationalError(f"connection failed: {said}"))
    assert isinstance(found, DatabaseUnreachableError)
    assert cure in found.hint


@pytest.mark.parametrize("schema", ["two", "My shop", 'a"b', "a\\b", "Größe"])
def test_the_shell_keeps_the_search_path_of_any_schema(schema):
    line = f"PGOPTIONS={shlex.quote(psql_options(schema))} {shlex.quote(sys.executable)} -c"
    script = "import os; print(os.environ['PGOPTIONS'])"
    answer = subprocess.run(
        ["/bin/sh", "-c", f"{line} {shlex.quote(script)}"], capture_output=True, text=True, check=True
    )
    assert answer.stdout.rstrip("\n") == psql_options(schema)
    assert psql_options("public") == ""


def test_only_flags_are_repeated_not_variables():
    assert flags(load_settings(environment={"OCTOP_DSN": URL, "OCTOP_SCHEMA": "two"})) == ""
