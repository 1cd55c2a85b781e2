"""`octop tasks list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.columns import Column, short_class, short_ids
from octop.cli.filter_words import FilterCommand, takes_filter
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import brief, shortened
from octop.engine.call import run
from octop.model.task import Status

if TYPE_CHECKING:
    from octop.cli.output import Output
    from octop.model.filter_values import Filter

COLUMNS: Final = (
    Column("id", tight=short_ids),
    Column("type", width_min=10),
    Column("queue", width_min=8, rank=4),
    Column("status"),
    Column("priority", right=True, short="prio", rank=1),
    Column("scheduled at", short="UTC", brief=brief, rank=3),
    Column("attempt", right=True, short="try", rank=2),
    Column("last error", short="error", brief=short_class, width_min=10, rank=5),
)


@click.command("list", cls=FilterCommand)
@takes_filter()
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@global_options(reads=True)
@pass_invocation
def list_(invocation: Invocation, wanted: Filter, limit: int) -> None:
    """List the tasks that a filter asks for, the latest first."""
    from octop.engine import filtered  # noqa: PLC0415 - loads all that filters need; help needs none of it

    with invocation.connection() as connection:
        rows = run(connection, filtered.list_tasks(filtered.selected(connection, wanted), limit))
    if invocation.as_json:
        invocation.output.json(rows)
        return
    print_tasks(invocation.output, rows)
    if len(rows) == limit:
        invocation.output.say(f"The first {limit}; --limit shows more.")


def print_tasks(output: Output, rows: list[dict[str, Any]]) -> None:
    """Print rows of `octop.engine.filtered.list_tasks` as a table."""
    output.table(
        COLUMNS,
        [
            [
                row["id"],
                row["task_type"],
                row["queue"],
                row["status"],
                row["priority"],
                shortened(row["scheduled_at"]),
                row["attempt"],
                error_told(row),
            ]
            for row in rows
        ],
        empty="No such task.",
    )


def error_told(row: dict[str, Any]) -> str:
    """Return the first line of a task's last error; of a cancelled task it is the reason, and says so."""
    line = (row["last_error"] or "").partition("\n")[0]
    return f"cancelled: {line}" if line and row["status"] == Status.CANCELLED else line
