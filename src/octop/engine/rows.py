"""Rows that PostgreSQL made into JSON objects, one in each, and how a call reads them.

The command, the dashboard and `--json` so show the same values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, LiteralString

from octop.engine.call import Call, Rows

Row = dict[str, Any]


def objects(rows: Rows) -> list[Row]:
    """Return the JSON object of each row, also where the driver left it text."""
    return [row[0] if isinstance(row[0], dict) else json.loads(row[0]) for row in rows]


def one(rows: Rows) -> Row | None:
    """Return the JSON object of the first row; None without rows."""
    found = objects(rows)
    return found[0] if found else None


def only(rows: Rows) -> Row:
    """Return the JSON object of the only row, of a statement that always answers one."""
    return objects(rows)[0]


def many(text: LiteralString, values: Mapping[str, object] | None = None) -> Call[list[Row]]:
    """Describe a read of any number of JSON objects.

    Args:
        text: The statement, as in ``octop.engine.call.Call``.
        values: Its values.
    """
    return Call(text, values or {}, objects)
