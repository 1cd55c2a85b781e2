"""`octop lanes`: who shares a queue, and what keeps a lane waiting."""

from __future__ import annotations

from typing import Any, Final

import click

from octop.cli.columns import Column
from octop.cli.completing import queue_names
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import shortened
from octop.engine import calls, names

COLUMNS: Final = (
    Column("queue"),
    Column("lane"),
    Column("tenant"),
    Column("waiting", right=True, short="wait"),
    Column("running", right=True, short="run"),
    Column("weight", right=True, rank=1),
    Column("may start", right=True),
    Column("held up by", rank=2),
)
LANES_MAX: Final = 100_000


@click.group(cls=Group, short_help="List the lanes of a queue.")
def lanes() -> None:
    """Look at the lanes of queues: tasks that share a key, such as a customer."""


@lanes.command("list")
@click.argument("queue", required=False, shell_complete=queue_names)
@click.option(
    "--limit", "most", type=click.IntRange(1, LANES_MAX), default=1000, help="How many of each queue at most."
)
@global_options(reads=True)
@pass_invocation
def list_(invocation: Invocation, queue: str | None, most: int) -> None:
    """List the lanes that have unfinished tasks, of QUEUE or of all queues."""
    queues = [queue] if queue is not None else invocation.ask(names.queue_names())
    rows = [row for each in queues for row in invocation.ask(calls.octop_lanes(each, most))]
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        COLUMNS,
        [
            [
                row["queue"],
                row["lane"],
                row["tenant"] or "-",
                row["waiting"],
                row["running"],
                row["weight"],
                "any" if row["room"] is None else max(0, row["room"]),
                _held_up(row),
            ]
            for row in rows
        ],
        empty="No lane has an unfinished task.",
    )


def _held_up(row: dict[str, Any]) -> str:
    if row["held_up_by"]:
        return str(row["held_up_by"])
    return f"its rate until {shortened(row['next_token_at'])}" if row["next_token_at"] else "-"
