"""Where a value comes from: a flag, a variable, a line of a file, the application, an operator, or nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octop.cli.moments import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octop.model.settings import Settings

FLAGS: Final = {"dsn": "--dsn", "schema": "--schema", "app": "--app"}
NO_DSN: Final = "the private database"
NO_APP: Final = None


def start_settings(settings: Settings) -> list[dict[str, Any]]:
    """Return the settings that start a process, as rows: setting, value (no passwords), default, origin, set_by, set_at.

    Args:
        settings: As they were found.
    """
    from octop.model.settings import DEFAULT_SCHEMA, LIBPQ_DSN, masked_dsn  # noqa: PLC0415 - keeps help fast

    dsn = settings.dsn
    values = {
        "dsn": (
            None if dsn is None else "libpq's own variables" if dsn == LIBPQ_DSN else masked_dsn(dsn),
            NO_DSN,
        ),
        "schema": (settings.schema, DEFAULT_SCHEMA),
        "app": (settings.app, NO_APP),
    }
    return [
        {
            "setting": key,
            "value": value if value is not None else default,
            "default": default,
            "origin": FLAGS[key] if settings.origins[key] == "argument" else settings.origins[key],
            "set_by": None,
            "set_at": None,
        }
        for key, (value, default) in values.items()
    ]


def running_settings(
    rows: Sequence[Mapping[str, Any]], changes: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the settings that rule while it runs, as rows of the same form.

    Args:
        rows: Of `octop.engine.audit.list_config`.
        changes: Of `octop.engine.audit.config_origins`.
    """
    found = []
    for row in rows:
        changed = row["value"] != row["default"]
        last = changes.get(row["key"], {})
        found.append(
            {
                "setting": row["key"],
                "value": row["value"],
                "default": row["default"],
                "origin": "operator" if changed else "default",
                "set_by": last.get("role") if changed else None,
                # a change that the audit does not know was made with it switched off, or long ago
                "set_at": (last.get("at") or row["updated_at"]) if changed else None,
            }
        )
    return found


def told(value: str, origin: Mapping[str, Any]) -> str:
    """Return a value with who set it, for people.

    Example:
        >>> told("5", {"origin": "operator", "role": "ann", "at": "2030-01-31T09:00:00.5+00:00"})
        '5  (operator ann, 2030-01-31 09:00:00+00:00)'
        >>> told("-", {"origin": None, "role": None, "at": None})
        '-'
    """
    if origin["origin"] is None:
        return value
    who = " ".join(filter(None, (origin["origin"], origin["role"])))
    when = f", {shortened(origin['at'])}" if origin["at"] else ""
    return f"{value}  ({who}{when})"
