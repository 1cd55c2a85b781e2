"""Where a command line leads: which database and schema, in words that the reader can type again."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Final

from octop.model.errors import DatabaseUnreachableError, SchemaMissingError, SchemaVersionError
from octop.model.settings import DEFAULT_SCHEMA, LIBPQ_DSN, masked_dsn

if TYPE_CHECKING:
    from octop.cli.invocation import Invocation
    from octop.model.errors import OctopError
    from octop.model.settings import Settings

MIGRATE: Final = "octop migrate"


def flags(settings: Settings) -> str:
    """Return the flags of this command line that lead to the database, as another command takes them; "" = none.

    Example:
        >>> from octop.model.settings import load_settings
        >>> flags(load_settings(dsn="postgresql://ann:secret@db/shop", schema="two"))
        " --dsn 'postgresql://ann:***@db/shop' --schema two"
    """
    found = ""
    if settings.dsn is not None and settings.origins["dsn"] == "argument":
        found += f" --dsn {shlex.quote(masked_dsn(settings.dsn))}"
    if settings.origins["schema"] == "argument":
        found += f" --schema {shlex.quote(settings.schema)}"
    return found


def exports(settings: Settings) -> str:
    """Return the line that leads another terminal to the same database; "" = the files here lead it there.

    A password is never in it: `***` stands in its place.
    """
    words = []
    if settings.dsn == LIBPQ_DSN:
        words = [f"{name}={shlex.quote(os.environ[name])}" for name in settings.origins["dsn"].split(", ")]
        words += [f"PGUSER={shlex.quote(user)}"] if (user := os.environ.get("PGUSER")) else []
    elif settings.dsn is not None and not _is_in_a_file(settings, "dsn"):
        words.append(f"OCTOP_DSN={shlex.quote(masked_dsn(settings.dsn))}")
    if settings.origins["schema"] != "default" and not _is_in_a_file(settings, "schema"):
        words.append(f"OCTOP_SCHEMA={shlex.quote(settings.schema)}")
    line = f"export {' '.join(words)}" if words else ""
    return f"{line}   # the password in place of ***" if "***" in line else line


def psql_options(schema: str) -> str:
    """Return what PGOPTIONS must say so that psql finds the tables of a schema without its name; "" = nothing.

    Example:
        >>> psql_options("two"), psql_options("My shop"), psql_options("public")
        ('-csearch_path=two', '-csearch_path="My\\\\ shop"', '')
    """
    if schema == DEFAULT_SCHEMA:
        return ""
    plain = schema.isidentifier() and schema.isascii() and schema.islower()
    name = schema if plain else '"' + schema.replace('"', '""') + '"'
    return "-csearch_path=" + name.replace("\\", "\\\\").replace(" ", "\\ ")


def hint(error: OctopError, invocation: Invocation) -> str:
    """Return what to do about an error, with the flags that this command line had, and where its DSN comes from."""
    match error:
        case SchemaMissingError() | SchemaVersionError():
            again = MIGRATE + flags(invocation.settings)
            if isinstance(error, SchemaMissingError) and error.hint.startswith("Run:") and _is_private(invocation):
                return f"Run: octop dev   (it installs what is missing; alone: {again})"
            return error.hint.replace(MIGRATE, again, 1)
        case DatabaseUnreachableError():
            origin = invocation.settings.origins["dsn"]
            if origin in ("argument", "default"):
                return error.hint
            kind = "" if _is_in_a_file(invocation.settings, "dsn") else "the variable "
            return f"{error.hint} It was led there by {kind}{origin}."
    return error.hint


def _is_private(invocation: Invocation) -> bool:
    return invocation.settings.dsn is None


def _is_in_a_file(settings: Settings, key: str) -> bool:
    return "/" in settings.origins[key]
