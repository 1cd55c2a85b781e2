"""`octop schedules list`, `show` and `history`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.columns import Column
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import shortened, spoken
from octop.cli.policy import hold_told
from octop.cli.schedules.words import in_words, local_told, name_argument, next_told, required, rule_told
from octop.engine import schedules
from octop.engine.call import run

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS: Final = (
    Column("schedule"),
    Column("tenant", rank=1),
    Column("rule", width_min=12),
    Column("task type", width_min=8, rank=4),
    Column("next", width_min=10),
    Column("local time", rank=3),
    Column("last", rank=2),
)
SLOTS: Final = (
    Column("slot"),
    Column("status"),
    Column("why", rank=3),
    Column("origin", rank=4),
    Column("task", width_min=8),
    Column("task status", short="became"),
    Column("started after", short="after", right=True, rank=2),
    Column("took", right=True, rank=1),
)
OF_TASKS: Final = ("queue", "lane", "priority", "max_retries", "timeout_seconds", "tags", "meta")


@click.command("list")
@global_options(reads=True)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the schedules in words, with their next times by the clocks of their own zones."""
    rows = invocation.ask(schedules.list_schedules())
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        COLUMNS,
        [
            [
                row["name"],
                row["tenant"],
                rule_told(row),
                row["task_type"],
                next_told(row),
                local_told(row["next_local"]),
                row.get("last_task_status"),
            ]
            for row in rows
        ],
        empty="No schedule yet: octop schedules add NAME RULE TYPE, or @octop.schedule in the code.",
    )


@click.command()
@name_argument
@global_options(reads=True)
@pass_invocation
def show(invocation: Invocation, name: str, tenant: str) -> None:
    """Show all about the schedule NAME: its rule in words, next and last slot, what its tasks are given, backfills."""
    with invocation.connection() as connection:
        row = required(connection, name, tenant)
    if invocation.as_json:
        invocation.output.json(row)
        return
    invocation.output.pairs(
        [
            ("schedule", row["name"]),
            *([("tenant", row["tenant"])] if row["tenant"] else []),
            ("rule", row["rule"]),
            ("in words", in_words(row)),
            ("next", f"{local_told(row['next_local'])}  {row['timezone']}"),
            ("last", f"{local_told(row['last_local'])}  {row.get('last_task_status') or ''}"),
            ("task type", row["task_type"]),
            ("payload", json.dumps(row["payload"], ensure_ascii=False)),
            *((column, row[column]) for column in OF_TASKS if row[column] is not None),
            *((column, local_told(row[column])) for column in ("starts_at", "ends_at") if row[column]),
            ("catch up", catch_up_told(row)),
            ("overlap", row["overlap"]),
            *([("jitter", spoken(row["jitter_seconds"]))] if row["jitter_seconds"] else []),
            *((word, spoken(row[f"{word}_seconds"])) for word in ("expected", "deadline") if row[f"{word}_seconds"]),
            ("paused", hold_told(row["paused_by"], row["paused_at"], row["pause_reason"])),
            ("declared", "by the code" if row["declared"] is not None else "no: made by hand"),
            *([("last error", row["last_error"])] if row["last_error"] else []),
            *([("backfills", "\n".join(map(backfill_told, row["backfills"])))] if row["backfills"] else []),
        ]
    )


@click.command()
@name_argument
@click.option(
    "-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many, 1 to 10,000."
)
@global_options(reads=True)
@pass_invocation
def history(invocation: Invocation, name: str, tenant: str, limit: int) -> None:
    """List the latest slots of the schedule NAME: fired, or skipped and why, their tasks and what became of them.

    Slots as the clocks of the schedule's zone showed them, with their offset then.
    """
    with invocation.connection() as connection:
        required(connection, name, tenant)
        rows = run(connection, schedules.history(name, tenant, limit))
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        SLOTS,
        [
            [
                local_told(row["slot_local"]),
                row["status"],
                reason_of_slot(row),
                row["origin"],
                row["task_id"],
                row["task_status"],
                spoken(row["start_seconds"]),
                spoken(row["took_seconds"]),
            ]
            for row in rows
        ],
        empty="No slot yet.",
    )


def reason_of_slot(row: Mapping[str, Any]) -> str | None:
    """Return why a slot has no task; of a row for several slots, until which one.

    Example:
        >>> reason_of_slot({"reason": "catch_up", "through": "2030-01-01T00:00:00+00:00"})
        'catch_up, until 2030-01-01 00:00:00+00:00'
    """
    reason: str | None = row["reason"]
    return reason if row["through"] is None else f"{reason or ''}, until {shortened(row['through'])}"


def catch_up_told(row: Mapping[str, Any]) -> str:
    """Return in words what becomes of slots that nobody fired.

    Example:
        >>> catch_up_told({"catch_up": "all", "catch_up_max": 100})
        'all that were missed, the newest 100'
    """
    return {
        "last": "the last one that was missed",
        "skip": "what was missed is skipped",
        "all": f"all that were missed, the newest {row['catch_up_max']:,}",
    }[row["catch_up"]]


def backfill_told(row: Mapping[str, Any]) -> str:
    """Return one line about a backfill."""
    return (
        f"{row['id']}  {row['status']}, {row['made']:,} tasks made, {row['passed']:,} slots passed over, {local_told(row['from_at'])} to"
        f" {local_told(row['until_at'])}, {row['most_running']:,} at once"
    )
