"""`octop failures`: what failed last."""

from __future__ import annotations

from typing import Final

import click

from octop.cli.columns import Column
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import spoken
from octop.engine import reads

COLUMNS: Final = (
    Column("id"),
    Column("type", width_min=10),
    Column("queue", width_min=8, rank=2),
    Column("status"),
    Column("attempt", right=True, short="try", rank=3),
    Column("age", right=True, rank=1),
    Column("last error", short="error", width_min=10),
)


@click.command(short_help="List the latest tasks that failed or froze.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=10, show_default=True, help="At most so many.")
@global_options(reads=True)
@pass_invocation
def failures(invocation: Invocation, limit: int) -> None:
    """List the latest tasks that wait for a retry (failed) or used up their retries (frozen).

    For psql, the ten newest: select * from octop_failed_tasks.
    """
    rows = invocation.ask(reads.failed_tasks(limit))
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        COLUMNS,
        [
            [
                row["id"],
                row["task_type"],
                row["queue"],
                row["status"],
                row["attempt"],
                spoken(row["age_seconds"]),
                row["last_error"],
            ]
            for row in rows
        ],
        empty="Nothing has failed.",
    )
    if len(rows) == limit:
        invocation.output.say(f"The first {limit}; --limit shows more.")
