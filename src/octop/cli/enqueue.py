"""`octop enqueue`: register one task from the command line."""

from __future__ import annotations

from typing import Final

import click

from octop.cli.completing import queue_names, task_type_names
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import DURATION, MOMENT
from octop.cli.payload import payload_from
from octop.cli.policy import doubt_about_type
from octop.cli.program import typed_name
from octop.cli.task_ids import TASK_ID
from octop.cli.tasks.wait import ending_of, report_ended, wait_until_ended
from octop.engine import calls
from octop.engine.call import run
from octop.model.errors import InvalidOptionError, TaskExistsError
from octop.model.ids import new_id
from octop.model.task import Status
from octop.model.unique import RULES, SCOPES, OnConflict, checked_scope
from octop.model.work import NewTask


class ScopeParam(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2; 8.1 cannot subscript it
    """How long a unique key is held: a word, or a duration."""

    name = "scope"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as the database reads it."""
        try:
            return checked_scope(value if value in SCOPES else DURATION.convert(value, param, ctx))
        except InvalidOptionError as error:
            return self.fail(error.message, param, ctx)


SCOPE: Final = ScopeParam()


class EnqueueCommand(click.Command):
    """A command whose arguments for the task may be taken for options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say how an argument of the task is written, where it was written as an option."""
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-")
            if not name.isidentifier():
                raise
            written, _, value = next((each for each in args if each.startswith(error.option_name)), "").partition("=")
            at = args.index(written) + 1 if written in args else len(args)
            value = value or next((each for each in args[at : at + 1] if not each.startswith("-")), "…")
            message = f"no such option: {error.option_name}. An argument of the task is written {name}={value}"
            raise click.UsageError(message, ctx) from None


@click.command(cls=EnqueueCommand, short_help="Enqueue one task.")
@click.argument("task_type", metavar="TYPE", shell_complete=task_type_names)
@click.argument("words", metavar="[JSON | KEY=VALUE...]", nargs=-1)
@click.option("--queue", shell_complete=queue_names, help="Default: the type's queue, else `default`.")
@click.option(
    "--delay", type=DURATION, metavar="DURATION", help="Start not before this time has passed: 90, 5m, 1h30m."
)
@click.option("--at", type=MOMENT, metavar="MOMENT", help="Start not before: 2030-01-31T09:00:00+08:00.")
@click.option("--priority", type=click.IntRange(0, 9), help="0 runs first, 9 last (default 5).")
@click.option("--max-retries", type=click.IntRange(0, 1000), help="Further tries after the first.")
@click.option(
    "--timeout", type=DURATION, metavar="DURATION", help="Time limit of one attempt (how long to wait: --wait-timeout)."
)
@click.option(
    "--min-version", type=click.IntRange(1, 1000), help="Workers with older code of the type leave it to others."
)
@click.option("--tag", "tags", multiple=True, help="A label to find it by; may be repeated.")
@click.option("--tenant", default="", help="Whose task it is.")
@click.option("--lane", default="", help="Its lane in the queue; lanes take turns.")
@click.option("--id", "task_id", type=TASK_ID, help="An id of your own: the same call again enqueues nothing twice.")
@click.option(
    "--unique",
    "unique_by",
    multiple=True,
    metavar="FIELD",
    help="One task for each value of this payload field; may be repeated; `*` = the whole payload.",
)
@click.option("--unique-key", help="One task for this text.")
@click.option(
    "--unique-scope",
    type=SCOPE,
    metavar="SCOPE",
    help="pending (default: until the first start), live (until its end) or a time such as 1h.",
)
@click.option(
    "--on-conflict",
    type=click.Choice(RULES),
    help="What if it exists: its id (keep, default), exit code 8 (raise), its payload (replace), its time (move).",
)
@click.option("--wait", is_flag=True, help="Wait until it has ended: 0 success, 1 frozen or cancelled.")
@click.option("--wait-timeout", type=DURATION, metavar="DURATION", help="Wait at most so long (exit code 7).")
@global_options(reads=True)
@pass_invocation
def enqueue(
    invocation: Invocation,
    task_type: str,
    words: tuple[str, ...],
    *,
    queue: str | None,
    delay: float | None,
    at: str | None,
    priority: int | None,
    max_retries: int | None,
    timeout: float | None,
    min_version: int | None,
    tags: tuple[str, ...],
    tenant: str,
    lane: str,
    task_id: str | None,
    unique_by: tuple[str, ...],
    unique_key: str | None,
    unique_scope: str | None,
    on_conflict: OnConflict | None,
    wait: bool,
    wait_timeout: float | None,
) -> None:
    """Enqueue one task of TYPE and print its id.

    The payload is a JSON object, or key=value words: octop enqueue send_welcome user_id=42. `-` reads it from standard
    input. A VALUE is JSON where it can be (42, true, null, [1, 2]), else text; digits that are meant as text keep double
    quotes through the shell: zip='"01234"'.

    Nothing of your application is imported: a type that nobody knows waits for a worker that does. With --wait, stderr
    says what the task waits for, and each attempt that fails.
    """
    if delay is not None and at is not None:
        message = "--delay and --at exclude each other"
        raise click.UsageError(message)
    if unique_by and unique_key:
        message = "--unique and --unique-key exclude each other"
        raise click.UsageError(message)
    if (unique_scope or on_conflict) and not (unique_by or unique_key):
        message = "--unique-scope and --on-conflict need --unique or --unique-key"
        raise click.UsageError(message)
    new = NewTask(
        task_type=task_type,
        payload=payload_from(words),
        id=task_id or new_id(),
        queue=queue,
        lane=lane,
        tenant=tenant,
        priority=priority,
        scheduled_at=at,
        delay_seconds=delay,
        max_retries=max_retries,
        timeout_seconds=timeout,
        tags=list(tags) or None,
        min_version=min_version,
        unique_by=None if not unique_by else [] if "*" in unique_by else list(unique_by),
        unique_key=unique_key,
        unique_scope=unique_scope,
        on_conflict=on_conflict,
    )
    invocation.prepare_private()
    with invocation.connection() as connection:
        found, created = run(connection, calls.octop_enqueue_many([new], fresh=False))[0]
        if found != new.id and on_conflict == "raise":
            message = f"there is a task {found} already"
            raise TaskExistsError(message, detail=f"task {found}", hint="Nothing was enqueued.")
        if not created:
            changed = {"replace": ": its payload is replaced, unless it runs", "move": ": it is moved, unless it runs"}
            what = changed.get(on_conflict or "", "") if found != new.id else ""
            invocation.output.say(f"There is a task {found} already{what or ': nothing was enqueued'}.")
        if created and (doubt := doubt_about_type(connection, task_type)):
            undo = f". Not meant? Then: {typed_name()} tasks cancel {found}" if wait else ""
            invocation.output.warn(f"{doubt}{undo}")
        if wait or wait_timeout is not None:
            ended = wait_until_ended(invocation, connection, found, wait_timeout)
            if not invocation.as_json:
                report_ended(invocation, [ended])
                return
            # The object that is printed without --wait, and more.
            invocation.output.json({"id": found, "created": created, **ending_of(ended)})
            if ended["status"] != Status.SUCCESS:
                raise click.exceptions.Exit(1)
            return
    if invocation.as_json:
        invocation.output.json({"id": found, "created": created})
    else:
        invocation.output.line(found)
