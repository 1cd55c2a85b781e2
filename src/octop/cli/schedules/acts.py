"""`octop schedules run`, `pause`, `resume` and `backfill`."""

from __future__ import annotations

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import MOMENT
from octop.cli.policy import reason_told
from octop.cli.schedules.words import name_argument, next_told, required
from octop.engine import calls
from octop.engine.call import run


@click.command("run")
@name_argument
@global_options()
@pass_invocation
def run_(invocation: Invocation, name: str, tenant: str) -> None:
    """Make a task of the schedule NAME now, also while it is paused, and print its id. Its slots stay as they are."""
    with invocation.connection() as connection:
        required(connection, name, tenant)
        task_id = run(connection, calls.octop_run_schedule(name, tenant))
    if invocation.as_json:
        invocation.output.json({"name": name, "tenant": tenant, "task_id": task_id})
    else:
        invocation.output.line(task_id)


@click.command()
@name_argument
@click.option("--reason", default="", help="Why: shown to the next person.")
@global_options()
@pass_invocation
def pause(invocation: Invocation, name: str, tenant: str, reason: str) -> None:
    """Fire no slots of the schedule NAME until it is resumed; what is due meanwhile is not made up for.

    Tasks that it has made run on. Of a schedule that is paused already the first reason stays.
    """
    with invocation.connection() as connection:
        required(connection, name, tenant)
        changed = run(connection, calls.octop_pause_schedule(name, reason, tenant)) is not False
        kept = required(connection, name, tenant)["pause_reason"]
    undo = f"octop schedules resume {name}"
    text = f"Schedule {name} is paused."
    if not changed:
        text = f"Schedule {name} was paused already.{reason_told(reason, kept, undo)}"
    invocation.output.done({"name": name, "tenant": tenant, "paused": True, "changed": changed}, text)


@click.command()
@name_argument
@global_options()
@pass_invocation
def resume(invocation: Invocation, name: str, tenant: str) -> None:
    """Fire slots of the schedule NAME again, from the next one on."""
    with invocation.connection() as connection:
        required(connection, name, tenant)
        changed = run(connection, calls.octop_resume_schedule(name, tenant)) is not False
        row = required(connection, name, tenant)
    text = f"Schedule {name} fires again: {next_told(row)}." if changed else f"Schedule {name} was not paused."
    invocation.output.done({"name": name, "tenant": tenant, "paused": False, "changed": changed}, text)


@click.command()
@name_argument
@click.option("--from", "since", type=MOMENT, metavar="MOMENT", help="First slot: 2030-01-01T00:00Z.")
@click.option("--until", type=MOMENT, metavar="MOMENT", help="Slots before then; not after now.")
@click.option(
    "--at-once", type=click.IntRange(1, 100), default=1, show_default=True, help="Its unfinished tasks, at most."
)
@click.option("--cancel", metavar="ID", help="End this backfill of it; the tasks that it made stay.")
@global_options()
@pass_invocation
def backfill(
    invocation: Invocation,
    name: str,
    tenant: str,
    since: str | None,
    until: str | None,
    at_once: int,
    cancel: str | None,
) -> None:
    """Make the tasks of past slots of NAME that have none.

    octop schedules backfill report --from 2030-01-01T00:00Z --until 2030-02-01T00:00Z

    Slots that were fired are left alone; those that were skipped get their task. In order, so many at once, by any worker;
    prints the backfill's id. How far it is: octop schedules show NAME
    """
    if (cancel is None) == (since is None or until is None):
        message = "name the range by --from and --until, or a backfill to --cancel"
        raise click.UsageError(message)
    with invocation.connection() as connection:
        required(connection, name, tenant)
        if cancel is not None:
            run(connection, calls.octop_cancel_backfill(cancel))
            invocation.output.done({"id": cancel, "cancelled": True}, f"Backfill {cancel} is cancelled.")
            return
        found = run(connection, calls.octop_backfill_schedule(name, since or "", until or "", at_once, tenant))
    if invocation.as_json:
        invocation.output.json({"id": found, "name": name, "tenant": tenant, "from": since, "until": until})
    else:
        invocation.output.line(found)
