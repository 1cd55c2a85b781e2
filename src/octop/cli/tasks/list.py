"""`octop tasks list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.columns import Column
from octop.cli.filter_words import FILTER_WORD, FilterCommand, filter_of, filter_options
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import shortened
from octop.cli.tasks.group import tasks
from octop.engine import filtered
from octop.engine.call import run

if TYPE_CHECKING:
    from octop.cli.output import Output

COLUMNS: Final = (
    Column("id"),
    Column("type", width_min=10),
    Column("queue", width_min=8, rank=4),
    Column("status"),
    Column("priority", right=True, short="prio", rank=1),
    Column("scheduled at", short="time", brief=lambda moment: moment[11:19] or moment, rank=3),
    Column("attempt", right=True, short="try", rank=2),
    Column("last error", short="error", width_min=10, rank=5),
)


@tasks.command("list", cls=FilterCommand)
@click.argument("words", metavar="[FILTER]...", nargs=-1, type=FILTER_WORD)
@filter_options()
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@global_options(reads=True)
@pass_invocation
def list_(
    invocation: Invocation,
    words: tuple[str, ...],
    status: str | None,
    queue: str | None,
    task_type: str | None,
    tenant: str | None,
    since: float | None,
    limit: int,
) -> None:
    """List the tasks that a filter asks for, the latest first."""
    wanted = filter_of(words, status=status, queue=queue, task_type=task_type, tenant=tenant, since_seconds=since)
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
                (row["last_error"] or "").partition("\n")[0],
            ]
            for row in rows
        ],
        empty="No such task.",
    )
