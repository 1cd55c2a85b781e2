"""Errors by SQLSTATE: never by their text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from octop.model import errors

if TYPE_CHECKING:
    import psycopg


_REFUSALS: Final = (
    (r'database "(?P<name>[^"]+)" does not exist', "Make it: createdb {name}. Or name another: dbname= in the DSN."),
    (r'role "(?P<name>[^"]+)" does not exist', "Log in as another: user= in the DSN. Or make it: createuser {name}."),
    (r"password authentication failed|no password supplied", "Give the password in PGPASSWORD or ~/.pgpass."),
)
"""Of a refused login libpq hands on the text alone. Only a hint hangs on it: in another language it is the general one."""

_READ_ONLY: Final = (
    "A standby: name the primary in the DSN (target_session_attrs=read-write finds it among several hosts). Or the login or the "
    "database may only read: ALTER ROLE … RESET default_transaction_read_only; ALTER DATABASE … the same."
)


def _all_below(base: type[errors.OctopError]) -> list[type[errors.OctopError]]:
    return [base, *(found for child in base.__subclasses__() for found in _all_below(child))]


BY_SQLSTATE: Final = {c.sqlstate: c for c in _all_below(errors.OctopError) if c.sqlstate}

BY_CONSTRAINT: Final[dict[str, type[errors.OctopError]]] = {
    "octop_tasks_live_names_are_1_to_200_long": errors.InvalidNameError,
    "octop_tasks_live_payload_is_an_object": errors.InvalidPayloadError,
    "octop_tasks_live_priority_is_0_to_9": errors.InvalidOptionError,
    "octop_tasks_live_retries_and_version_to_1000_timeout_to_31_days": errors.InvalidOptionError,
    "octop_tasks_live_times_are_in_years_2000_to_2999": errors.InvalidTimeError,
    "octop_tasks_live_one_per_unique_key": errors.TaskExistsError,
    "octop_queues_name_is_1_to_200_long": errors.InvalidNameError,
    "octop_queues_worker_limit_is_in_range": errors.InvalidOptionError,
    "octop_queues_max_retries_is_in_range": errors.InvalidOptionError,
    "octop_queues_timeout_is_in_range": errors.InvalidOptionError,
    "octop_task_types_name_is_1_to_200_long": errors.InvalidNameError,
    "octop_task_types_queue_is_1_to_200_long": errors.InvalidNameError,
    "octop_task_types_priority_is_in_range": errors.InvalidOptionError,
    "octop_task_types_max_retries_is_in_range": errors.InvalidOptionError,
    "octop_task_types_timeout_is_in_range": errors.InvalidOptionError,
    "octop_task_types_run_in_is_known": errors.InvalidOptionError,
}

# The same call again, in its careful form or on a new connection, will do.
TRY_AGAIN: Final = frozenset({"55P03", "40001", "40P01", "57014"})
# The connection, or the node behind it, is of no use any more: 08 connection, 57P01-05 shutdown, 25006 read-only, 53300 too many.
UNREACHABLE_CLASSES: Final = frozenset({"08"})
UNREACHABLE: Final = frozenset({"57P01", "57P02", "57P03", "57P04", "57P05", "25006", "53300", "25P03"})
SCHEMA_MISSING: Final = frozenset({"42P01", "42883", "3F000"})


def _is_about_the_dsn(error: psycopg.Error) -> bool:
    """Tell whether psycopg could not even read the DSN: the error was raised where it takes one apart."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and place.tb_frame.f_globals.get("__name__") == "psycopg.conninfo"


def _cure(message: str) -> str:
    for pattern, cure in _REFUSALS:
        if refused := re.search(pattern, message):
            return cure.format_map({"name": "", **refused.groupdict()})
    return "Check that the server runs and that the DSN leads to it."


def translated(error: psycopg.Error) -> errors.OctopError:
    """Return the error of ours that says what happened, with the cure.

    Args:
        error: What psycopg raised.

    Returns:
        An OctopError; never raises.
    """
    import psycopg  # noqa: PLC0415 - whoever has an error of it has loaded it

    sqlstate = error.sqlstate or ""
    if not sqlstate and isinstance(error, psycopg.ProgrammingError) and _is_about_the_dsn(error):
        # libpq's own words may quote a part of a password
        return errors.ConfigurationError("the DSN is not a PostgreSQL URL or key=value words", hint=errors.DSN_HINT)
    diagnostic = error.diag
    message = diagnostic.message_primary or str(error).strip() or type(error).__name__
    hint = diagnostic.message_hint or ""
    if known := BY_SQLSTATE.get(sqlstate):
        return known(
            message.removeprefix("octop: "),
            detail=diagnostic.message_detail or "",
            hint=hint or (known.__doc__ or "").partition("\n")[0],
        )
    if known := BY_CONSTRAINT.get(diagnostic.constraint_name or ""):
        return known(message, hint=(known.__doc__ or "").partition("\n")[0])
    if sqlstate == "23514":
        return errors.InvalidTaskError(message, hint="A rule that this database has of its own refuses it.")
    if sqlstate in TRY_AGAIN:
        return errors.TryAgainError(
            message.removeprefix("octop: "),
            detail=diagnostic.message_detail or "",
            # PostgreSQL's own hints lead into the server's log
            hint=(sqlstate == "55P03" and hint) or "Try the same again.",
        )
    if (
        sqlstate in UNREACHABLE
        or sqlstate[:2] in UNREACHABLE_CLASSES
        or (isinstance(error, psycopg.OperationalError) and not sqlstate)
    ):
        return errors.DatabaseUnreachableError(
            f"the database cannot be used now: {message}",
            hint=_READ_ONLY if sqlstate == "25006" else _cure(message),
        )
    if sqlstate in SCHEMA_MISSING and ("octop" in message or sqlstate == "3F000"):  # the schema's name may be any
        # an upgrade never makes a table of an installed migration again
        gone = "" if sqlstate == "3F000" else "   (if a part of it is gone: octop doctor --only schema)"
        return errors.SchemaMissingError(message, hint=f"Install or upgrade the schema: octop migrate{gone}")
    if sqlstate in {"22P02", "22P05", "22021", "22023"}:
        return errors.InvalidPayloadError(
            message, detail=diagnostic.message_detail or "", hint="PostgreSQL cannot keep this value."
        )
    return errors.UnexpectedDatabaseError(f"{message} (SQLSTATE {sqlstate or 'unknown'})", hint=hint)
