"""The committed picture of the schema is that of a fresh install, on every PostgreSQL, in whatever schema."""

from __future__ import annotations

import contextlib

from octop.engine.connect import open_connection
from octop.engine.diagnosis.picture import text
from octop.engine.install import install
from tools.schema_picture import PAGE


def test_the_picture_is_that_of_a_fresh_install(database):
    with contextlib.closing(open_connection(database.url, application_name="test")) as connection:
        assert text(connection, "public", "octop_") == PAGE.read_text(encoding="utf-8"), (
            "python tools/schema_picture.py takes it again"
        )


def test_the_picture_does_not_depend_on_the_schema(empty_database):
    schema = 'My "own" jobs'
    install(empty_database.url, schema=schema)
    with contextlib.closing(open_connection(empty_database.url, application_name="test", schema=schema)) as connection:
        assert text(connection, schema, "octop_") == PAGE.read_text(encoding="utf-8")
