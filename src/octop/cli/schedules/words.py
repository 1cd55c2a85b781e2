"""Schedules in words: rule, times in the schedule's own zone, what became of a slot; and the options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from octop.cli.completing import schedule_names
from octop.cli.moments import spoken
from octop.cli.policy import nearest
from octop.engine import schedules
from octop.engine.call import run
from octop.model.errors import ScheduleNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octop.engine.connect import EngineConnection


def name_argument(function: Any) -> Any:
    """Take the name of a schedule, completed by the shell, and its tenant."""
    return click.argument("name", shell_complete=schedule_names)(tenant_option(function))


def tenant_option(function: Any) -> Any:
    """Take whose schedule it is."""
    return click.option("--tenant", default="", help="Whose schedule it is.")(function)


def required(connection: EngineConnection, name: str, tenant: str) -> dict[str, Any]:
    """Return all about a schedule.

    Raises:
        ScheduleNotFoundError: There is none; the hint names one that is like it.
    """
    row = run(connection, schedules.schedule(name, tenant))
    if row is None:
        of = f" of the tenant {tenant}" if tenant else ""
        message = f"there is no schedule {name}{of}"
        known = run(connection, schedules.schedule_names())
        raise ScheduleNotFoundError(message, hint=nearest(name, known, "octop schedules list"))
    return row


def in_words(row: Mapping[str, Any]) -> str:
    """Return a rule in words, with its zone and the next time.

    Example:
        >>> in_words(
        ...     {"explained": "At 09:00, Monday to Friday.", "timezone": "Europe/Berlin", "next_in_seconds": 10800.0}
        ... )
        'at 09:00, Monday to Friday, Europe/Berlin; next in 3h'
    """
    return f"{rule_told(row)}; {next_told(row)}"


def rule_told(row: Mapping[str, Any]) -> str:
    """Return a rule in words, with its zone; what it does where the clocks change, `octop schedules explain` says."""
    explained = str(row["explained"] or row["rule"]).partition(". ")[0].rstrip(".")
    return f"{explained[:1].lower()}{explained[1:]}, {row['timezone']}"


def next_told(row: Mapping[str, Any]) -> str:
    """Return how far the next slot is.

    Example:
        >>> [next_told({"next_in_seconds": each}) for each in (90.0, -5.0, None)]
        ['next in 1m 30s', 'overdue for 5 s', 'never again']
        >>> next_told({"next_in_seconds": 90.0, "paused_at": "2030-01-01T00:00:00+00:00"})
        'paused'
    """
    if row.get("paused_at"):
        return "paused"
    seconds = row["next_in_seconds"]
    if seconds is None:
        return "never again"
    return f"overdue for {spoken(-float(seconds))}" if seconds < 0 else f"next in {spoken(float(seconds))}"


def local_told(moment: str | None) -> str:
    """Return a moment with its offset as people read it, without fractions of a second.

    Example:
        >>> local_told("2030-01-07T09:00:00+01:00")
        '2030-01-07 09:00:00+01:00'
    """
    return "-" if moment is None else moment.replace("T", " ")


def offset(seconds: int) -> str:
    """Return an offset from UTC as people write it.

    Example:
        >>> [offset(each) for each in (0, 19800, -12600)]
        ['+00:00', '+05:30', '-03:30']
    """
    return schedules.offset_text(seconds)
