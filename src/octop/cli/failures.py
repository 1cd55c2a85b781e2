"""`octop failures`: what failed last."""

from __future__ import annotations

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import shortened, spoken
from octop.engine import reads


@click.command(short_help="List the latest tasks that failed or froze.")
@global_options(reads=True)
@pass_invocation
def failures(invocation: Invocation) -> None:
    """List the latest tasks that wait for a retry (failed) or used up their retries (frozen).

    The same rows for psql: select * from octop_failed_tasks.
    """
    rows = invocation.ask(reads.failed_tasks())
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        ["id", "type", "scheduled at", "age", "last error"],
        [
            [row["id"], row["task_type"], shortened(row["scheduled_at"]), spoken(row["age_seconds"]), row["last_error"]]
            for row in rows
        ],
        right=["age"],
        empty="Nothing has failed.",
    )
