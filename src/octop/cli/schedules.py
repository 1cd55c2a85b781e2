"""`octop schedules`: what a cron expression means, before it becomes a schedule."""

from __future__ import annotations

from typing import Final

import click

from octop.cli.columns import Column
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import MOMENT
from octop.engine import calls

COLUMNS: Final = (Column("wall time"), Column("offset"), Column("UTC"))


@click.group(cls=Group, short_help="Show when a cron expression fires, and what it means.")
def schedules() -> None:
    """Show when a cron expression fires, and what it means.

    The database reads the expression, by its own zone data. Grammar and rules: docs/reference/cron.md
    """


@schedules.command("next")
@click.argument("expression")
@click.option(
    "--timezone",
    "-z",
    default="UTC",
    show_default=True,
    metavar="ZONE",
    help="Whose clocks count, as in Europe/Berlin.",
)
@click.option(
    "-n", "--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many times, 1 to 1,000."
)
@click.option("--after", type=MOMENT, metavar="MOMENT", help="Times after this moment.  [default: now]")
@global_options(reads=True)
@pass_invocation
def next_(invocation: Invocation, expression: str, timezone: str, count: int, after: str | None) -> None:
    """Show the next times of EXPRESSION, such as "0 9 * * MON-FRI".

    Each as the clocks of the zone show it, with their offset then, and in UTC.
    """
    times = invocation.ask(calls.octop_cron_next_n(expression, timezone, after, count))
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
        empty="It fires no more before the year 10000.",
    )


@schedules.command()
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


def offset(seconds: int) -> str:
    """Return an offset from UTC as people write it.

    Example:
        >>> [offset(each) for each in (0, 19800, -12600)]
        ['+00:00', '+05:30', '-03:30']
    """
    hours, rest = divmod(abs(seconds), 3600)
    return f"{'-' if seconds < 0 else '+'}{hours:02}:{rest // 60:02}"
