"""The picture of the schema: every object that this package installs, and every right on it.

It is made from a fresh install by `tools/schema_picture.py`, committed so that each change shows in review, and the same
on all supported versions of PostgreSQL (a test compares). The doctor compares it with what it finds.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from psycopg import Connection

from octop.engine.diagnosis import catalog
from octop.engine.diagnosis.look import look
from octop.engine.rows import Row

FILE: Final = "picture.json"
SECTIONS: Final = ("tables", "parts", "functions", "grants")


@dataclass(frozen=True, slots=True)
class Picture:
    """What stands in a schema.

    Attributes:
        tables: Tables, sequences and views by name.
        parts: Indexes, constraints and triggers by kind, table and name.
        functions: Functions by name with argument types.
        grants: Kind, object, column (or None), grantee and privilege of each right that is not the owner's. In the
            committed picture the grantee is the last part of the role's name: ``viewer``.
    """

    tables: Mapping[str, Row]
    parts: Mapping[tuple[str, str, str], Row]
    functions: Mapping[str, Row]
    grants: frozenset[tuple[str, str, str | None, str, str]]


def _picture(found: Mapping[str, Iterable[Row]]) -> Picture:
    return Picture(
        {row["name"]: row for row in found["tables"]},
        {(row["kind"], row["table"], row["name"]): row for row in found["parts"]},
        {row["name"]: row for row in found["functions"]},
        frozenset(
            (row["kind"], row["object"], row["column"], row["grantee"], row["privilege"]) for row in found["grants"]
        ),
    )


@cache
def expected() -> Picture:
    """Return the picture that this package brings."""
    return _picture(json.loads(resources.files("octop.sql").joinpath(FILE).read_text(encoding="utf-8")))


def taken(connection: Connection[Any], schema: str, *, seconds: float) -> Picture:
    """Take the picture of the schema as it is now; each of its sections within so many seconds."""
    return _picture({name: look(connection, getattr(catalog, name)(schema), seconds=seconds) for name in SECTIONS})


def text(connection: Connection[Any], schema: str, role_prefix: str) -> str:
    """Return the picture of a fresh install as the committed file holds it: one object a line.

    Args:
        connection: To the database of the install.
        schema: Its schema.
        role_prefix: Taken off the names of the grantees.
    """
    sections = []
    for name in SECTIONS:
        rows = look(connection, getattr(catalog, name)(schema))
        for row in rows:
            row.pop("owner", None)
            row.pop("state", None)
            if "grantee" in row:
                row["grantee"] = row["grantee"].removeprefix(role_prefix)
        lines = sorted(json.dumps(_without_nothing(row), sort_keys=True) for row in rows)
        sections.append(f'"{name}": [\n' + ",\n".join(lines) + "\n]")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _without_nothing(row: Row) -> Row:
    kept = {key: value for key, value in row.items() if value is not None and value is not False}
    if "columns" in kept:
        kept["columns"] = [_without_nothing(each) for each in kept["columns"]]
    if "grantee" in row:
        kept["column"] = row["column"]
    return kept
