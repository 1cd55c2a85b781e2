"""`octop alerts`: what a person should know, and that he knows it."""

from __future__ import annotations

from typing import Final

import click

from octop.cli.columns import Column
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import spoken
from octop.engine import calls
from octop.engine.calls.alerts import list_alerts

COLUMNS: Final = (
    Column("id", right=True),
    Column("severity", rank=2),
    Column("kind", width_min=12, rank=1),
    Column("subject", width_min=8),
    Column("ago", right=True),
    Column("times", right=True, rank=3),
    Column("delivered", rank=5),
    Column("acknowledged by", short="acked", rank=4),
    Column("message", width_min=16),
)


@click.group(cls=Group, short_help="List and acknowledge alerts.")
def alerts() -> None:
    """List and acknowledge alerts: a task type that froze, or that nobody knows, a watermark, a worker that died.

    Workers hand them to @octop.on_alert and to a webhook; see the how-to "Be told".
    """


@alerts.command("list")
@click.option("--all", "with_acked", is_flag=True, help="Also those that somebody has acknowledged.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many.")
@global_options(reads=True)
@pass_invocation
def list_(invocation: Invocation, with_acked: bool, limit: int) -> None:
    """List the open alerts, the latest first."""
    rows = invocation.ask(list_alerts(limit, with_acked=with_acked))
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        COLUMNS,
        [
            [
                row["id"],
                row["severity"],
                row["kind"],
                row["subject"],
                spoken(row["seconds"]),
                row["count"],
                ", ".join(sorted(name for name, each in row["deliveries"].items() if each["delivered_at"])) or "no",
                row["acked_by"],
                row["message"],
            ]
            for row in rows
        ],
        empty="No alert is open." if not with_acked else "There is no alert.",
    )


@alerts.command()
@click.argument("ids", metavar="ID...", type=click.IntRange(min=1), nargs=-1)
@click.option("--all", "every", is_flag=True, help="All that are open.")
@global_options()
@pass_invocation
def ack(invocation: Invocation, ids: tuple[int, ...], every: bool) -> None:
    """Acknowledge alerts: what happens again makes a new one."""
    if bool(ids) == every:
        message = "name the ids of alerts, or --all"
        raise click.UsageError(message)
    count = invocation.ask(calls.octop_ack_alerts(None if every else ids))
    invocation.output.done({"acknowledged": count}, f"{count} acknowledged." if count else "None of them was open.")
