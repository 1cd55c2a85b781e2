"""Who says what a queue or a task type has: the application, an operator, or nobody."""

from collections.abc import Mapping, Sequence
from typing import Any


def policy_origins(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return by column who says what a queue or a task type has: `application`, `operator` (with role and moment), or None.

    Args:
        row: With the columns, `declared` and `set_by`.
        columns: Those that an operator may set.
    """
    found: dict[str, dict[str, Any]] = {}
    for column in columns:
        declared = row["declared"].get(column)
        origin = None if row[column] is None and declared is None else "application"
        last: Mapping[str, Any] = {}
        if row[column] != declared:
            origin, last = "operator", row["set_by"].get(column, {})
        found[column] = {"origin": origin, "role": last.get("role"), "at": last.get("at")}
    return found
