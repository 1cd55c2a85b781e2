"""`octop schedules next` and `explain`: what a rule means, also before it becomes a schedule."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import click

from octop.cli.columns import Column
from octop.cli.completing import schedule_names
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import MOMENT
from octop.cli.schedules.words import offset, tenant_option
from octop.engine import calls, schedules
from octop.engine.call import run

COLUMNS: Final = (Column("wall time"), Column("offset"), Column("UTC"))


@click.command("next")
@click.argument("expression", metavar="NAME|EXPRESSION", shell_complete=schedule_names)
@tenant_option
@click.option(
    "--timezone",
    "-z",
    metavar="ZONE",
    help="Whose clocks count, as in Europe/Berlin.  [default: the schedule's, else UTC]",
)
@click.option(
    "-n", "--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many times, 1 to 1,000."
)
@click.option("--after", type=MOMENT, metavar="MOMENT", help="Times after this moment.  [default: now]")
@global_options(reads=True)
@pass_invocation
def next_(
    invocation: Invocation, expression: str, tenant: str, timezone: str | None, count: int, after: str | None
) -> None:
    """Show the next times of the schedule NAME, or of an EXPRESSION such as "0 9 * * MON-FRI".

    Each as the clocks of the zone show it, with their offset then, and in UTC. Of a schedule these are the times of its
    rule between its start and its end, also while it is paused.
    """
    with invocation.connection() as connection:
        known = run(connection, schedules.rule_of(expression, tenant)) or {}
        rule, zone = known.get("rule", expression), timezone or known.get("timezone", "UTC")
        times = run(connection, calls.octop_cron_next_n(rule, zone, after or known.get("after"), count))
    if (ends_at := known.get("ends_at")) is not None:
        times = [each for each in times if each.at <= datetime.fromisoformat(ends_at)]
    if invocation.as_json:
        invocation.output.json(
            [{"at": each.at.isoformat(), "wall": each.wall, "offset": offset(each.offset_seconds)} for each in times]
        )
        return
    invocation.output.table(
        COLUMNS,
        [
            [
                each.wall.replace("T", " "),
                offset(each.offset_seconds),
                each.at.isoformat(" "),
            ]
            for each in times
        ],
        empty="It fires no more: its end, or the year 10000, comes first.",
    )


@click.command()
@click.argument("expression")
@global_options(reads=True)
@pass_invocation
def explain(invocation: Invocation, expression: str) -> None:
    """Tell in English what EXPRESSION means."""
    said = invocation.ask(calls.octop_cron_explain(expression))
    if invocation.as_json:
        invocation.output.json({"expression": expression, "means": said})
        return
    invocation.output.line(said)
