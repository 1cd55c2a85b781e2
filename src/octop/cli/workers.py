"""`octop workers`: who lives, and what runs where."""

from __future__ import annotations

from typing import Final

import click

from octop.cli.columns import Column
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import spoken
from octop.engine import reads

COLUMNS: Final = (
    Column("worker", width_min=12),
    Column("id", rank=1),
    Column("host", width_min=10, rank=2),
    Column("pid", right=True),
    Column("queues", width_min=10),
    Column("running", right=True, short="run"),
    Column("last beat", right=True, short="beat"),
    Column("up", right=True, rank=3),
    Column("state"),
)


@click.command(short_help="List the workers that live, and what they run.")
@click.argument("word", metavar="[list]", required=False, type=click.Choice(["list"]))
@global_options(reads=True)
@pass_invocation
def workers(invocation: Invocation, word: str | None) -> None:
    """List the worker processes that live, and what each of them runs.

    The word `list` may be left out.
    """
    rows = invocation.ask(reads.list_workers())
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        COLUMNS,
        [
            [
                row["name"],
                str(row["id"])[:13],
                row["host"],
                str(row["pid"] or "-"),
                row["queues"],
                row["running"],
                spoken(row["silent_seconds"]),
                spoken(row["up_seconds"]),
                row["state"],
            ]
            for row in rows
        ],
        empty="No worker is registered. Start one: octop worker -A module:attribute",
    )
