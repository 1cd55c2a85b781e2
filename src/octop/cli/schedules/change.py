"""`octop schedules add`, `set` and `drop`."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from octop.cli.completing import queue_names, task_type_names
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import DURATION, MOMENT
from octop.cli.payload import payload_from
from octop.cli.policy import OrDefault, SetCommand, TimeLimit, changes, doubt_about_type
from octop.cli.schedules.words import in_words, name_argument, required, tenant_option
from octop.engine import calls, schedules
from octop.engine.call import run
from octop.model.errors import ScheduleExistsError

OPTIONS: Final = (
    click.option(
        "--timezone", "-z", type=OrDefault(click.STRING), metavar="ZONE|default", help="Whose clocks count; UTC."
    ),
    click.option(
        "--queue",
        type=OrDefault(click.STRING),
        metavar="NAME|default",
        shell_complete=queue_names,
        help="Of its tasks; as the type says.",
    ),
    click.option("--lane", type=OrDefault(click.STRING), metavar="NAME|default", help="Of its tasks."),
    click.option("--priority", type=OrDefault(click.IntRange(0, 9)), metavar="N|default", help="0 first to 9 last."),
    click.option(
        "--max-retries", type=OrDefault(click.IntRange(0, 1000)), metavar="N|default", help="Tries after the first."
    ),
    click.option(
        "--timeout",
        "timeout_seconds",
        type=OrDefault(TimeLimit()),
        metavar="DURATION|default",
        help="Time limit of one attempt.",
    ),
    click.option(
        "--starts", "starts_at", type=OrDefault(MOMENT), metavar="MOMENT|default", help="No slot before then."
    ),
    click.option("--ends", "ends_at", type=OrDefault(MOMENT), metavar="MOMENT|default", help="No slot after then."),
    click.option(
        "--catch-up",
        type=OrDefault(click.Choice(["skip", "last", "all"])),
        metavar="skip|last|all|default",
        help="What becomes of slots that nobody fired; last.",
    ),
    click.option("--catch-up-max", type=OrDefault(click.IntRange(1, 10_000)), metavar="N|default", help="Of all; 100."),
    click.option(
        "--overlap",
        type=OrDefault(click.Choice(["allow", "skip", "queue"])),
        metavar="allow|skip|queue|default",
        help="While an earlier task of it has not ended; allow.",
    ),
    click.option(
        "--jitter",
        "jitter_seconds",
        type=OrDefault(DURATION),
        metavar="DURATION|default",
        help="Spread of its tasks, the same for the same slot; at most 1d.",
    ),
    click.option(
        "--late-after",
        "late_after_seconds",
        type=OrDefault(DURATION),
        metavar="DURATION|default",
        help="A slot counts as late after that; 60 s.",
    ),
    click.option(
        "--expected",
        "expected_seconds",
        type=OrDefault(DURATION),
        metavar="DURATION|default",
        help="A task that runs longer is an alert; none.",
    ),
    click.option(
        "--deadline",
        "deadline_seconds",
        type=OrDefault(DURATION),
        metavar="DURATION|default",
        help="No success so long after the slot is an alert; none.",
    ),
)


def _options(function: Any) -> Any:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@click.command()
@click.argument("name")
@click.argument("rule")
@click.argument("task_type", metavar="TYPE", shell_complete=task_type_names)
@click.argument("words", metavar="[JSON | KEY=VALUE...]", nargs=-1)
@tenant_option
@_options
@global_options()
@pass_invocation
def add(
    invocation: Invocation,
    /,
    name: str,
    rule: str,
    task_type: str,
    words: tuple[str, ...],
    tenant: str,
    **given: Any,
) -> None:
    """Make the schedule NAME: octop schedules add report "0 9 * * MON-FRI" send_report day={{slot.date}} -z Europe/Berlin.

    RULE is cron of five or six fields, @daily, "@every 90s", "@at 2030-01-07T09:00:00+01:00" or an RRULE. In texts of the
    payload {{slot}}, {{slot.local}}, {{slot.date}}, {{slot.time}}, {{slot.epoch}}, {{previous}}, {{next}} and {{schedule}}
    are filled in for each slot.
    """
    settings = {"rule": rule, "task_type": task_type, "payload": json.loads(payload_from(words))}
    settings |= changes({"rule": rule, **given})
    invocation.prepare_private()
    with invocation.connection() as connection:
        if run(connection, schedules.schedule(name, tenant)) is not None:
            message = f"there is a schedule {name} already"
            raise ScheduleExistsError(message, hint=f"To change it: octop schedules set {name} --rule …")
        run(connection, calls.octop_put_schedule(name, settings, tenant))
        row = required(connection, name, tenant)
        if doubt := doubt_about_type(connection, task_type):
            invocation.output.warn(doubt)
    invocation.output.done(row, f"Schedule {name}: {in_words(row)}.")


@click.command("set", cls=SetCommand)
@name_argument
@click.option("--rule", help="When: cron, @every …, @at …, RRULE.")
@click.option("--type", "task_type", metavar="TYPE", shell_complete=task_type_names, help="Of its tasks.")
@click.option("--payload", metavar="JSON", help="Arguments of its tasks, as one object.")
@_options
@global_options()
@pass_invocation
def set_(invocation: Invocation, /, name: str, tenant: str, payload: str | None, **given: Any) -> None:
    """Change the schedule NAME: octop schedules set report --rule "0 8 * * MON-FRI".

    What is not named stays; the word `default` takes a value back. What is changed here stays when the code is deployed
    again: octop schedules diff. A new rule counts from now on; no slot is fired twice.
    """
    wanted = changes({**given, "payload": None if payload is None else json.loads(payload_from([payload]))})
    with invocation.connection() as connection:
        required(connection, name, tenant)
        run(connection, calls.octop_put_schedule(name, wanted, tenant))
        row = required(connection, name, tenant)
    invocation.output.done(row, f"Schedule {name}: {in_words(row)}.")


@click.command()
@name_argument
@global_options()
@pass_invocation
def drop(invocation: Invocation, name: str, tenant: str) -> None:
    """Drop the schedule NAME; its tasks stay. A deploy of the code that declares it does not bring it
    back; octop schedules add does.
    """
    with invocation.connection() as connection:
        required(connection, name, tenant)
        run(connection, calls.octop_drop_schedule(name, tenant))
    invocation.output.done({"name": name, "tenant": tenant, "dropped": True}, f"Schedule {name} is dropped.")
