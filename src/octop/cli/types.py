"""`octop types`: look at task types and steer them, on all workers at once."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import click

from octop.cli.columns import Column
from octop.cli.completing import queue_names, task_type_names
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import spoken
from octop.cli.policy import (
    NO_QUEUE,
    OrDefault,
    SetCommand,
    act_on_name,
    changes,
    check_end,
    doubt_about_type,
    end_options,
    hold_told,
    nearest,
    policy_options,
    reason_told,
    reset_told,
    said,
    values_told,
    worker_told,
    yes_option,
)
from octop.engine import calls, names, steering
from octop.engine.call import Call, run
from octop.engine.transaction import transaction
from octop.model.errors import TaskStatusError, UnknownTaskTypeError
from octop.model.origins import policy_origins

R = TypeVar("R")

COLUMNS: Final = (
    Column("type"),
    Column("queue", width_min=8, rank=4),
    Column("runs in", short="in", rank=5),
    Column("retries", right=True, short="retry", rank=2),
    Column("time limit", right=True, short="limit", rank=1),
    Column("waiting", right=True, short="wait"),
    Column("running", right=True, short="run"),
    Column("blocked", right=True, short="block", rank=3),
    Column("workers", right=True),
    Column("frozen", width_min=8),
)


def type_argument(function: Any) -> Any:
    """Take the name of a task type, completed by the shell."""
    return click.argument("task_type", metavar="TYPE", shell_complete=task_type_names)(function)


@click.group(cls=Group, short_help="List, show, set, freeze, thaw and reset task types.")
def types() -> None:
    """List, show, set, freeze, thaw and reset task types.

    What is set here wins over the code until it is reset, and holds on all workers within a second. Each act is written to
    the audit: octop audit --subject TYPE
    """


@types.command("list")
@global_options(reads=True)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the task types that workers declared or waiting tasks name, with what waits and who knows them.

    A dash is what the task, the queue or the configuration says: octop config show --origin
    """
    rows = invocation.ask(steering.list_task_types())
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        COLUMNS,
        [
            [
                row["name"],
                row["queue"],
                row["run_in"],
                row["max_retries"],
                spoken(row["timeout_seconds"]),
                row["waiting"],
                row["running"],
                row["blocked"],
                row["workers"],
                (row["freeze_reason"] or "yes") if row["frozen"] else "no",
            ]
            for row in rows
        ],
        empty="No task type yet: a type appears with the first worker that knows it, or the first task that names it.",
    )
    if any(row["counts_cut"] for row in rows):
        invocation.output.say("Counts are those among the first 10,000 tasks of a status.")


@types.command()
@type_argument
@global_options(reads=True)
@pass_invocation
def show(invocation: Invocation, task_type: str) -> None:
    """Show all about TYPE: its values and who set each, what waits and runs, who knows it, whether it is frozen."""
    with invocation.connection() as connection:
        rows = run(connection, steering.list_task_types())
        row = next((each for each in rows if each["name"] == task_type), None)
        if row is None:
            raise _unknown(task_type, [str(each["name"]) for each in rows])
        details = run(connection, steering.task_type_details(task_type))
        row |= details
        if doubt := doubt_about_type(
            connection, task_type
        ):  # a waiting task names it, perhaps by a slip of the fingers
            invocation.output.say(f"octop: {doubt}")
    row["origins"] = policy_origins(row, steering.TYPE_VALUES)
    del row["set_by"]
    if invocation.as_json:
        invocation.output.json(row)
        return
    cut = " at least" if row["counts_cut"] else ""
    invocation.output.pairs(
        [
            ("type", row["name"]),
            ("what it does", row["description"]),
            ("runs in", row["run_in"]),
            *values_told(row, steering.TYPE_VALUES),
            *((name, f"{row[name]:,}{cut}") for name in ("waiting", "running", "blocked")),
            ("frozen", hold_told(row["frozen_by"], row["frozen_at"], row["freeze_reason"], row["freeze_ends_at"])),
            ("known by", "\n".join(_worker(each) for each in row["known_by"]) or "no living worker"),
        ]
    )


def _worker(worker: dict[str, Any]) -> str:
    return worker_told(worker, f", version {worker['version']} of it" if worker["version"] != 1 else "")


@types.command("set", cls=SetCommand)
@type_argument
@click.option(
    "--queue",
    type=OrDefault(click.STRING, NO_QUEUE),
    metavar="NAME|none",
    shell_complete=queue_names,
    help="Where tasks that name no queue go from now on.",
)
@click.option("--priority", type=OrDefault(click.IntRange(0, 9)), metavar="N|default", help="0 runs first, 9 last.")
@click.option(
    "--freeze-type-on-exhaustion",
    type=OrDefault(click.BOOL),
    metavar="yes|no|default",
    help="yes: when one of its tasks uses up its retries, the type is frozen with it.",
)
@policy_options
@global_options()
@pass_invocation
def set_(invocation: Invocation, /, task_type: str, **given: Any) -> None:
    """Set values of TYPE, for all workers: octop types set send_mail --max-retries 5 --retry-delays 1s,10s,5m.

    They hold for tasks that name none of their own. The word `default` takes a value back: what the application declared
    holds again. For psql: UPDATE octop_task_types SET max_retries = 5 WHERE name = 'send_mail';
    """
    wanted = changes(given)
    with invocation.connection() as connection:
        values = run(connection, steering.set_task_type(task_type, set_=list(wanted), **wanted))
        if values is None:
            raise _unknown(task_type, run(connection, names.task_type_names()))
    invocation.output.done({"task_type": task_type, **values}, said(f"Type {task_type}", values, wanted))


@types.command()
@type_argument
@click.option(
    "--forget", is_flag=True, help="Also take it off the list, if no worker, no unfinished task and no freeze names it."
)
@global_options()
@pass_invocation
def reset(invocation: Invocation, task_type: str, forget: bool) -> None:
    """Take back everything that operators set for TYPE: what the application declared holds again.

    A freeze stays: octop types thaw. A type that the code has no more stays in the list, for its worker may only be down;
    --forget takes it off, and a worker that declares it brings it back.
    """
    with invocation.connection() as connection, transaction(connection):
        changed = run(connection, steering.reset_task_type(task_type))
        if changed is None:
            raise _unknown(task_type, run(connection, names.task_type_names()))
        forgotten = forget and run(connection, steering.forget_task_type(task_type))
    again = "what the application declared holds"
    text = reset_told(f"Type {task_type}", again, changed=changed, forgotten=forgotten)
    invocation.output.done({"task_type": task_type, "changed": changed, "forgotten": forgotten}, text)
    if forget and not forgotten:
        invocation.output.warn(f"{task_type} is not forgotten: a worker, an unfinished task or a freeze names it")
        raise click.exceptions.Exit(TaskStatusError.exit_code)


@types.command()
@type_argument
@click.option("--reason", default="", help="Why: shown to the next person.")
@end_options
@yes_option
@global_options()
@pass_invocation
def freeze(
    invocation: Invocation, task_type: str, reason: str, ends_in: float | None, ends_at: str | None, yes: bool
) -> None:
    """Start no more tasks of TYPE, in any queue; what runs runs on, what waits waits without using a try.

    Of a type that is frozen already the first reason stays.
    """
    check_end(ends_in, ends_at)
    order = calls.octop_hold("task_type", task_type, reason=reason, ends_in_seconds=ends_in, ends_at=ends_at)
    changed = _acted(invocation, task_type, order, None if yes else "freeze it")
    text = f"Type {task_type} is frozen."
    if not changed:
        rows = invocation.ask(steering.list_task_types())
        kept = next((each["freeze_reason"] for each in rows if each["name"] == task_type), None)
        text = f"Type {task_type} was frozen already.{reason_told(reason, kept, f'octop types thaw {task_type}')}"
    invocation.output.done({"task_type": task_type, "frozen": True, "changed": changed}, text)


@types.command()
@type_argument
@global_options()
@pass_invocation
def thaw(invocation: Invocation, task_type: str) -> None:
    """Start tasks of TYPE again; those that waited come back within seconds, the oldest first."""
    changed = _acted(invocation, task_type, calls.octop_thaw(task_type), None)
    text = f"Type {task_type} runs again." if changed else f"Type {task_type} was not frozen."
    invocation.output.done({"task_type": task_type, "frozen": False, "changed": changed}, text)


def _acted(invocation: Invocation, task_type: str, call: Call[R], act: str | None) -> R:
    return act_on_name(
        invocation,
        task_type,
        call,
        is_known=steering.task_type_is_declared(task_type),
        names=names.task_type_names(),
        nobody="no worker has declared the task type",
        act=act,
    )


def _unknown(task_type: str, known: list[str]) -> UnknownTaskTypeError:
    message = f"there is no task type {task_type}"
    return UnknownTaskTypeError(message, hint=nearest(task_type, known, "octop types list"))
