"""A command that was led to a place where Octop is not: what it is told to type works there."""

import shlex

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from octop.cli.place import psql_options


def hinted(octop):
    return octop.err.partition("hint: ")[2].strip()


def test_another_schema_that_has_octop_is_named_and_the_flags_come_again(octop, database, monkeypatch):
    for command in (["tasks", "list"], ["enqueue", "nap"], ["worker", "-A", "octop.cli.demo.tasks:octop"]):
        octop(*command, "--schema", "nosuch", code=5)
        assert "Octop is not installed in schema nosuch" in octop.err
        assert hinted(octop) == (
            "Octop is in another schema here; did you mean --schema public? Else: octop migrate --schema nosuch"
        )


def test_where_octop_is_nowhere_the_hint_installs_it_there(octop, empty_database, monkeypatch):
    monkeypatch.delenv("OCTOP_DSN")
    octop("tasks", "list", "--dsn", empty_database.url, "--schema", "two", code=5)
    words = shlex.split(hinted(octop).partition("   ")[0].removeprefix("Run: octop "))
    assert words[:2] == ["migrate", "--dsn"]
    octop(*words)
    assert octop.json("tasks", "list", "--dsn", empty_database.url, "--schema", "two") == []


@pytest.mark.parametrize(
    ("word", "cure"), [({"dbname": "nodb"}, "createdb nodb"), ({"user": "bob"}, "createuser bob")], ids=["db", "role"]
)
def test_a_database_or_a_role_that_is_not_there_is_made_or_named(octop, database, monkeypatch, word, cure):
    monkeypatch.setenv("OCTOP_DSN", make_conninfo(database.url, **word))
    octop("tasks", "list", code=4)
    assert "does not exist" in octop.err
    assert cure in hinted(octop)
    assert "the variable OCTOP_DSN" in hinted(octop)


@pytest.mark.parametrize("schema", ["two", "My shop", 'a"b\\c'])
def test_psql_finds_the_tables_of_any_schema(empty_database, schema):
    with psycopg.connect(empty_database.url, options=psql_options(schema)) as connection:
        assert connection.execute("select (current_schemas(false))").fetchone() == ([],)
        connection.execute(psycopg.sql.SQL("create schema {}").format(psycopg.sql.Identifier(schema)))
        assert connection.execute("select current_schemas(false)").fetchone() == ([schema],)
