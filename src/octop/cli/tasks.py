"""`octop tasks`: list, show, retry, cancel, wait."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.columns import Column
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import DURATION, shortened, spoken
from octop.cli.next_step import next_step
from octop.cli.task_ids import TASK_REFERENCE, References, resolved
from octop.engine import calls, reads
from octop.engine.call import run
from octop.model.errors import OctopError, TaskNotFoundError, WaitTimeoutError
from octop.model.task import Status

if TYPE_CHECKING:
    from octop.cli.output import Output
    from octop.engine.connect import EngineConnection

WAIT_SECONDS_MIN: Final = 0.02
WAIT_SECONDS_MAX: Final = 0.5


@click.group(cls=Group, short_help="List, show, retry, cancel and wait for tasks.")
def tasks() -> None:
    """List, show, retry, cancel and wait for tasks."""


COLUMNS: Final = (
    Column("id"),
    Column("type", width_min=10),
    Column("queue", width_min=8, rank=4),
    Column("status"),
    Column("priority", right=True, short="prio", rank=1),
    Column("scheduled at", short="time", brief=lambda moment: moment[11:19] or moment, rank=3),
    Column("attempt", right=True, short="try", rank=2),
    Column("last error", short="error", width_min=10, rank=5),
)


@tasks.command("list")
@click.option("--status", type=click.Choice([each.value for each in Status]), help="Only this status.")
@click.option("--queue", help="Only this queue.")
@click.option("--type", "task_type", help="Only this task type.")
@click.option("--tenant", help="Only this tenant.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Only those registered within this time: 1h, 2d.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@global_options(reads=True)
@pass_invocation
def list_(
    invocation: Invocation,
    status: str | None,
    queue: str | None,
    task_type: str | None,
    tenant: str | None,
    since: float | None,
    limit: int,
) -> None:
    """List tasks, the latest first."""
    rows = invocation.ask(
        reads.list_tasks(
            status=status, queue=queue, task_type=task_type, tenant=tenant, since_seconds=since, limit=limit
        )
    )
    if invocation.as_json:
        invocation.output.json(rows)
        return
    invocation.output.table(
        COLUMNS,
        [
            [
                row["id"],
                row["task_type"],
                row["queue"],
                row["status"],
                row["priority"],
                shortened(row["scheduled_at"]),
                row["attempt"],
                (row["last_error"] or "").partition("\n")[0],
            ]
            for row in rows
        ],
        empty="No such task.",
    )
    if len(rows) == limit:
        invocation.output.say(f"The first {limit}; --limit shows more.")


@tasks.command()
@click.argument("task_id", metavar="ID", type=TASK_REFERENCE)
@global_options(reads=True)
@pass_invocation
def show(invocation: Invocation, task_id: str) -> None:
    """Show one task, its attempts with tracebacks, and what is next.

    The first characters of its ID will do, eight or more, when no other task's id begins like that.
    """
    with invocation.connection() as connection:
        task_id = resolved(connection, task_id)
        task = _ordered(_found(connection, task_id))
        attempts = run(connection, reads.attempts_of(task_id))
        sentence = next_step(task, run(connection, reads.prospects(task_id)))
    if invocation.as_json:
        invocation.output.json({**task, "attempts": attempts, "next": sentence})
        return
    output = invocation.output
    output.pairs([(name, _readable(name, value)) for name, value in task.items() if value not in (None, "", [])])
    for attempt in attempts:
        output.line("")
        _print_attempt(output, attempt)
    output.line("")
    output.pairs([("next", sentence)])


ORDER: Final = (
    "id",
    "task_type",
    "status",
    "queue",
    "lane",
    "tenant",
    "priority",
    "payload",
    "result",
    "last_error",
    "scheduled_at",
    "due_at",
    "created_at",
    "started_at",
    "deadline_at",
    "completed_at",
    "attempt",
    "retry_count",
    "max_retries",
)
"""What a person looks for first; the other columns follow in PostgreSQL's order."""


def _ordered(task: dict[str, Any]) -> dict[str, Any]:
    return {**{name: task[name] for name in ORDER if name in task}, **task}


def _readable(name: str, value: object) -> object:
    if name in {"payload", "result", "meta", "retry_policy"} and value is not None:
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= 100 else json.dumps(value, ensure_ascii=False, indent=2)
    return shortened(str(value)) if name.endswith("_at") and value else value


def _print_attempt(output: Output, attempt: dict[str, Any]) -> None:
    took = spoken(attempt["seconds"])
    output.line(f"attempt {attempt['attempt']}: {attempt['outcome']} after {took}, {shortened(attempt['ended_at'])}")
    if attempt["traceback"]:
        for line in str(attempt["traceback"]).rstrip().splitlines():
            output.line(f"  {line}")
    elif attempt["error_class"] or attempt["error_message"]:
        output.line(f"  {': '.join(part for part in (attempt['error_class'], attempt['error_message']) if part)}")


@tasks.command()
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=TASK_REFERENCE)
@global_options(reads=True)
@pass_invocation
def retry(invocation: Invocation, task_ids: tuple[str, ...]) -> None:
    """Run tasks again.

    Frozen and failed ones at once; a finished one as a new task that names the old one.
    """

    def act(connection: EngineConnection, task_id: str) -> tuple[dict[str, object], str]:
        new = run(connection, calls.octop_retry(task_id))
        text = f"{task_id} is pending again." if new == task_id else f"{task_id} had ended: its repetition is {new}."
        return {"id": task_id, "retried_as": new}, text

    _each(invocation, task_ids, act)


@tasks.command()
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=TASK_REFERENCE)
@click.option("--reason", default="", help="Why: kept in the audit.")
@global_options(reads=True)
@pass_invocation
def cancel(invocation: Invocation, task_ids: tuple[str, ...], reason: str) -> None:
    """Cancel tasks; of a running one its worker is told within a second."""

    def act(connection: EngineConnection, task_id: str) -> tuple[dict[str, object], str]:
        answer = run(connection, calls.octop_cancel(task_id, reason))
        text = f"{task_id} is cancelled." if answer == "cancelled" else f"{task_id} runs: its worker is told to end it."
        return {"id": task_id, "verdict": answer}, text

    _each(invocation, task_ids, act)


@tasks.command()
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=TASK_REFERENCE)
@click.option("--timeout", type=DURATION, metavar="DURATION", help="Give up after this time (exit code 7).")
@global_options(reads=True)
@pass_invocation
def wait(invocation: Invocation, task_ids: tuple[str, ...], timeout: float | None) -> None:
    """Wait until tasks have ended.

    Exit code 0 when all succeeded, 1 when one was frozen or cancelled, 7 on a timeout.
    """
    with invocation.connection() as connection:
        references = References(connection, task_ids)
        ids = [references.id_of(each) for each in task_ids]
        ended = [wait_until_ended(connection, each, timeout) for each in ids]
    report_ended(invocation, ended)


def wait_until_ended(connection: EngineConnection, task_id: str, timeout: float | None) -> dict[str, Any]:
    """Return the row of a task as soon as it has ended.

    Raises:
        TaskNotFoundError: There is none.
        WaitTimeoutError: It has not ended in time.
    """
    began = time.monotonic()
    pause = WAIT_SECONDS_MIN
    while True:
        task = _found(connection, task_id)
        if Status(task["status"]).final:
            return task
        waited = time.monotonic() - began
        if timeout is not None and waited >= timeout:
            message = f"task {task_id} is still {task['status']} after {spoken(timeout)}"
            raise WaitTimeoutError(message, hint=f"Why: octop tasks show {task_id}")
        left = WAIT_SECONDS_MAX if timeout is None else timeout - waited
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, WAIT_SECONDS_MAX)


def report_ended(invocation: Invocation, ended: list[dict[str, Any]]) -> None:
    """Print tasks that have ended, and end with 1 unless all succeeded."""
    if invocation.as_json:
        invocation.output.json([ending_of(each) for each in ended])
    for each in () if invocation.as_json else ended:
        result = "" if each["result"] is None else f" {json.dumps(each['result'], ensure_ascii=False)}"
        error = f" {each['last_error']}" if each["status"] == Status.FROZEN else ""
        invocation.output.done({}, f"{each['id']} {each['status']}{result}{error}")
    if any(each["status"] != Status.SUCCESS for each in ended):
        raise click.exceptions.Exit(1)


def ending_of(task: dict[str, Any]) -> dict[str, Any]:
    """Return what `--json` says of a task that has ended."""
    return {name: task[name] for name in ("id", "task_type", "status", "attempt", "result", "last_error")}


def _found(connection: EngineConnection, task_id: str) -> dict[str, Any]:
    task = run(connection, reads.task(task_id))
    if task is None:
        message = f"no task has the id {task_id}"
        raise TaskNotFoundError(message, hint="It may be another tenant's, or its day has been dropped.")
    return task


def _each(invocation: Invocation, task_ids: tuple[str, ...], act: Any) -> None:
    """Act on every task, also after one that could not be acted on; end with the first error's code."""
    first: OctopError | None = None
    answers = []
    with invocation.connection() as connection:
        references = References(connection, task_ids)
        for reference in task_ids:
            try:
                answer, text = act(connection, references.id_of(reference))
            except OctopError as error:
                if len(task_ids) == 1:
                    raise
                named = error.message if reference in error.message else f"{reference}: {error.message}"
                invocation.output.warn(named + (f"\n  hint: {error.hint}" if error.hint else ""))
                first = first or error
                answer = {"id": reference, "error": error.message}
            else:
                if not invocation.as_json:
                    invocation.output.done({}, text)
            answers.append(answer)
    if invocation.as_json:
        invocation.output.json(answers)
    if first is not None:
        raise click.exceptions.Exit(first.exit_code)
