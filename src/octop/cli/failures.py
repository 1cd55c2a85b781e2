"""`octop failures`: what fails, alike errors together."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.columns import Column, short_class
from octop.cli.filter_words import FilterCommand, takes_filter
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import shortened, spoken
from octop.cli.output import number
from octop.cli.tasks.show import print_attempt
from octop.engine import reads
from octop.engine.call import run
from octop.model.errors import TaskNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octop.cli.output import Output
    from octop.model.filter_values import Filter

ATTEMPTS_MAX: Final = 10_000
TASKS_SHOWN: Final = 20
GROUP: Final = re.compile(r"[0-9a-f]{8}", re.IGNORECASE)

COLUMNS: Final = (
    Column("group"),
    Column("type", width_min=10),
    Column("attempts", right=True, short="tries"),
    Column("tasks", right=True, rank=3),
    Column("first", right=True, rank=2),
    Column("last", right=True, rank=4),
    Column("example", rank=1),
    Column("error", brief=short_class, width_min=40),
)


class FailuresCommand(FilterCommand):
    """A command that knows what a group's name without its option means."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the option that a group belongs to, when it was given as a word of a filter."""
        for before, word in pairwise(["", *args]):
            if GROUP.fullmatch(word) and not before.startswith("-"):
                message = f"{word!r} is no word of a filter. Did you mean --group {word}?"
                raise click.UsageError(message, ctx)
        return super().parse_args(ctx, args)


@click.command(cls=FailuresCommand, short_help="Show what fails: alike errors together.")
@takes_filter(since_help="Only attempts that ended within this time: 1h, 2d.")
@click.option("--group", metavar="GROUP", help="Only this group: its tasks, and the latest traceback.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most so many groups.")
@click.option(
    "--attempts",
    type=click.IntRange(1, 100_000),
    default=ATTEMPTS_MAX,
    show_default=True,
    metavar="N",
    help="Look at the latest N ended attempts.",
)
@global_options(reads=True)
@pass_invocation
def failures(
    invocation: Invocation,
    wanted: Filter,
    since: float | None,
    group: str | None,
    limit: int,
    attempts: int,
) -> None:
    """Show what fails: attempts that failed, timed out or were lost, alike errors of a task type together.

    Errors are alike when class and message are, less numbers, ids, quoted text, paths and the like, which are shown as *.
    A FILTER is about the tasks; --since about the attempts. The tasks that failed or froze: octop tasks list
    status:failed,frozen. For psql: select * from octop_failure_groups.
    """
    from octop.engine import filtered  # noqa: PLC0415 - loads all that filters need; help needs none of it

    with invocation.connection() as connection:
        selection = filtered.selected(connection, wanted) if wanted else None
        scope = filtered.Scope(selection, since_seconds=since, most=attempts, group_id=group and group.lower())
        rows = run(connection, filtered.failure_groups(scope, limit))
        if group is None:
            _print_groups(invocation, rows, limit)
            return
        if not rows:
            message = f"no failure of the latest {number(attempts, 'attempt')} belongs to the group {group}"
            raise TaskNotFoundError(message, hint="octop failures lists the groups; --attempts looks further back.")
        tasks = run(connection, filtered.failed_tasks_of(scope, TASKS_SHOWN))
        latest = [
            each
            for each in run(connection, reads.attempts_of(tasks[0]["task_id"]))
            if each["attempt"] == tasks[0]["attempt"]
        ]
    if invocation.as_json:
        invocation.output.json({**rows[0], "failures": tasks, "latest": latest[0] if latest else None})
        return
    _print_group(invocation.output, rows[0], tasks, latest)


def _print_groups(invocation: Invocation, rows: list[dict[str, Any]], limit: int) -> None:
    output = invocation.output
    if invocation.as_json:
        output.json(rows)
        return
    output.table(
        COLUMNS,
        [
            [
                row["group_id"],
                row["task_type"],
                row["attempts"],
                row["tasks"],
                _ago(row["first_seconds"]),
                _ago(row["last_seconds"]),
                row["example_task_id"],
                _first_line(row),
            ]
            for row in rows
        ],
        empty="Nothing has failed.",
    )
    if len(rows) == limit:
        output.say(f"The first {limit}; --limit shows more.")
    elif rows:
        output.say("One group with its tasks and traceback: octop failures --group GROUP")


def _first_line(group: dict[str, Any]) -> str:
    """Return the pattern of a group as far as the first line of its message goes: in patterns every space is one."""
    pattern: str = group["pattern"]
    line, _, rest = (group["example_message"] or "").partition("\n")
    next_word = next(iter(rest.split()), "")
    parts = pattern.split(f" {next_word}") if next_word else []
    before = f" {line}".count(f" {next_word}") + 1  # so often it stands in the line itself
    return f" {next_word}".join(parts[:before]) if len(parts) > before else pattern


def _ago(seconds: float) -> str:
    return f"{spoken(seconds)} ago"


def _listing(group: dict[str, Any]) -> Iterator[str]:
    """Yield the command that lists the tasks of a group, where its pattern can stand in a filter."""
    from octop.model.filter_values import Condition, Equal, Filter, Text  # noqa: PLC0415 - as above
    from octop.model.filters import WILDCARDS_MAX, render_words  # noqa: PLC0415 - as above

    message = group["example_message"] or ""
    if message and message == " ".join(message.split()):  # in the pattern every space is one
        pieces = tuple(group["pattern"].split("*"))
        texts = (Equal(Text(each)) for each in ((group["task_type"],), pieces))
        kind, error = (Condition(key, (test,)) for key, test in zip(("type", "error"), texts, strict=True))
        if len(pieces) <= WILDCARDS_MAX:
            words = render_words(Filter((kind, error)))
            yield f"octop tasks list status:failed,frozen {shlex.join(words)}"


TASK_COLUMNS: Final = (
    Column("task"),
    Column("attempt", right=True, short="try", rank=2),
    Column("queue", width_min=8, rank=1),
    Column("now", rank=3),
    Column("ended at"),
    Column("message", width_min=30),
)


def _print_group(
    output: Output, group: dict[str, Any], tasks: list[dict[str, Any]], latest: list[dict[str, Any]]
) -> None:
    output.pairs(
        [
            ("group", group["group_id"]),
            ("type", group["task_type"]),
            ("error", _first_line(group)),
            ("count", f"{number(group['attempts'], 'attempt')} of {number(group['tasks'], 'task')}"),
            ("first", shortened(group["first_at"])),
            ("last", shortened(group["last_at"])),
            *(("tasks", command) for command in _listing(group)),
        ]
    )
    output.line("")
    output.table(
        TASK_COLUMNS,
        [
            [
                each["task_id"],
                each["attempt"],
                each["queue"],
                each["status"],
                shortened(each["ended_at"]),
                (each["error_message"] or "").partition("\n")[0],
            ]
            for each in tasks
        ],
    )
    if group["attempts"] > len(tasks):
        output.say(f"The latest {len(tasks)} of {group['attempts']:,}.")
    for each in latest:
        output.line("")
        print_attempt(output, each)
