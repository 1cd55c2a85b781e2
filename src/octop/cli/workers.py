"""`octop workers`: who lives, and what runs where."""

from __future__ import annotations

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import spoken
from octop.engine import reads


@click.command(short_help="List the workers that live, and what they run.")
@global_options(reads=True)
@pass_invocation
def workers(invocation: Invocation) -> None:
    """List the worker processes that live, and what each of them runs."""
    rows = invocation.ask(reads.list_workers())
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        ["worker", "id", "host", "pid", "queues", "running", "last beat", "up", "state"],
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
        right=["pid", "running", "last beat", "up"],
        empty="No worker is registered. Start one: octop -A module:attribute worker",
    )
