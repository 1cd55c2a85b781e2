"""Schedules: rules that make tasks. Each change of one is written to the audit."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from octop.engine.call import Call, first_value
from octop.engine.rows import Row, many, only


class Tick(NamedTuple):
    """What one tick did.

    Attributes:
        fired: Slots that made a task.
        skipped: Slots that were recorded without one.
        next_seconds: Until the next slot by the database's clock, 0 = more is due now; None = there is none.
    """

    fired: int
    skipped: int
    next_seconds: float | None


def octop_tick(most: int = 500) -> Call[Tick]:
    """Fire what is due, in one transaction; whoever else does so meanwhile takes other schedules.

    Args:
        most: Slots at most, 1 to 10,000.
    """
    return Call(
        "select t.fired, t.skipped, t.next_seconds from octop_tick(%(most)s::integer) t",
        {"most": most},
        lambda rows: Tick(int(rows[0][0]), int(rows[0][1]), None if rows[0][2] is None else float(rows[0][2])),
    )


def octop_put_schedule(name: str, settings: Mapping[str, object], tenant: str = "") -> Call[Row]:
    """Make a schedule, or change what is named of one that exists.

    Args:
        name: Of the schedule.
        settings: By column of ``octop_schedules``; None = the default.
        tenant: Whose.

    Returns:
        The values that hold now.

    Raises:
        InvalidScheduleError: The rule cannot be read, never fires, or the server knows no such zone.
        InvalidScheduleValueError: A value is out of bounds, or there is none of that name.
    """
    return Call(
        "select octop_put_schedule(%(name)s::text, %(settings)s::text::jsonb, %(tenant)s::text)",
        {"name": name, "settings": json.dumps(dict(settings)), "tenant": tenant},
        only,
    )


def octop_drop_schedule(name: str, tenant: str = "") -> Call[Any]:
    """Drop a schedule; its tasks stay. Answer whether there was one."""
    return Call(
        "select octop_drop_schedule(%(name)s::text, %(tenant)s::text)", {"name": name, "tenant": tenant}, first_value
    )


def octop_pause_schedule(name: str, reason: str = "", tenant: str = "") -> Call[bool]:
    """Fire no slot of a schedule until it is resumed; False = it was paused already, and the first reason stays.

    Raises:
        ScheduleNotFoundError: There is none.
    """
    return Call(
        "select octop_pause_schedule(%(name)s::text, %(reason)s::text, %(tenant)s::text)",
        {"name": name, "reason": reason, "tenant": tenant},
        first_value,
    )


def octop_resume_schedule(name: str, tenant: str = "") -> Call[bool]:
    """Fire slots of a schedule again, from the next one on; False = it was not paused.

    Raises:
        ScheduleNotFoundError: There is none.
    """
    return Call(
        "select octop_resume_schedule(%(name)s::text, %(tenant)s::text)", {"name": name, "tenant": tenant}, first_value
    )


def octop_run_schedule(name: str, tenant: str = "") -> Call[Any]:
    """Make a task of a schedule now; return its id.

    Raises:
        ScheduleNotFoundError: There is none.
    """
    return Call(
        "select octop_run_schedule(%(name)s::text, %(tenant)s::text)::text",
        {"name": name, "tenant": tenant},
        first_value,
    )


def octop_backfill_schedule(name: str, since: str, until: str, most_running: int = 1, tenant: str = "") -> Call[Any]:
    """Make the tasks of past slots that have none; return the backfill's id.

    Args:
        name: Of the schedule.
        since: First moment, as ISO 8601 text with an offset.
        until: A later one, which is not included.
        most_running: Its tasks that have not ended, at most, 1 to 100.
        tenant: Whose.

    Raises:
        ScheduleNotFoundError: There is none.
        InvalidBackfillError: The range has no slot, more than 100,000, or is not past; or most_running is out of bounds.
    """
    return Call(
        "select octop_backfill_schedule(%(name)s::text, %(since)s::text::timestamptz, %(until)s::text::timestamptz,"
        " %(most_running)s::integer, %(tenant)s::text)::text",
        {"name": name, "since": since, "until": until, "most_running": most_running, "tenant": tenant},
        first_value,
    )


def octop_cancel_backfill(backfill_id: str) -> Call[Any]:
    """End a backfill; the tasks that it made stay."""
    return Call("select octop_cancel_backfill(%(id)s::text::uuid)", {"id": backfill_id}, first_value)


def octop_declare_schedules(
    declarations: Sequence[Mapping[str, object]], *, prune: bool = False, only_look: bool = False
) -> Call[list[Row]]:
    """Declare schedules, as an application's code says them; what somebody changed, paused or dropped stays.

    Args:
        declarations: By column of ``octop_schedules``, each with its name.
        prune: Drop those that code declared before and this code does not, unless somebody changed or paused them; for operators.
        only_look: Change nothing; answer what would be.

    Returns:
        For each: name, tenant, what (``added``, ``changed``, ``kept``, ``paused``, ``dropped``, ``past``, ``same``; of those of
        other code ``undeclared``, ``pruned``) and columns: new values; of ``kept`` by column what it ``is`` and what is ``declared``.

    Raises:
        InvalidScheduleError: A rule cannot be read, never fires, or the server knows no such zone.
        InvalidScheduleValueError: A value is out of bounds.
        TryAgainError: Another open transaction has changed one.
    """
    return many(
        "select to_jsonb(d) from octop_declare_schedules(%(declarations)s::text::jsonb, %(prune)s::boolean,"
        " %(only_look)s::boolean) d",
        {
            "declarations": json.dumps([dict(each) for each in declarations]),
            "prune": prune,
            "only_look": only_look,
        },
    )
