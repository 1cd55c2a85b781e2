"""`octop tasks`: list, show, retry, cancel, wait."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import DURATION, shortened, spoken
from octop.cli.next_step import next_step
from octop.engine import calls, reads
from octop.engine.call import run
from octop.model.errors import OctopError, TaskNotFoundError, WaitTimeoutError
from octop.model.task import Status

if TYPE_CHECKING:
    from octop.cli.output import Output
    from octop.engine.connect import EngineConnection

WAIT_SECONDS_MIN: Final = 0.02
WAIT_SECONDS_MAX: Final = 0.5


@click.group(short_help="List, show, retry, cancel and wait for tasks.")
def tasks() -> None:
    """List, show, retry, cancel and wait for tasks."""


class TaskId(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2; 8.1 cannot subscript it
    """The id of a task."""

    name = "id"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as PostgreSQL writes it."""
        try:
            return str(uuid.UUID(str(value).strip()))
        except ValueError:
            self.fail(f"{value!r} is not a task's id (a UUID)", param, ctx)


TASK_ID: Final = TaskId()


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
        ["id", "type", "queue", "status", "priority", "scheduled at", "attempt", "last error"],
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
        right=["priority", "attempt"],
        empty="No such task.",
    )
    if len(rows) == limit:
        invocation.output.say(f"The first {limit}; --limit shows more.")


@tasks.command()
@click.argument("task_id", metavar="ID", type=TASK_ID)
@global_options(reads=True)
@pass_invocation
def show(invocation: Invocation, task_id: str) -> None:
    """Show one task: its row, its attempts with their tracebacks, and what happens next."""
    with invocation.connection() as connection:
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
        output.line(f"  {attempt['error_class'] or ''}: {attempt['error_message'] or ''}")


@tasks.command()
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=TASK_ID)
@global_options(reads=True)
@pass_invocation
def retry(invocation: Invocation, task_ids: tuple[str, ...]) -> None:
    """Run tasks again: frozen and failed ones at once; a finished one as a new task that names the old one."""

    def act(connection: EngineConnection, task_id: str) -> tuple[dict[str, object], str]:
        new = run(connection, calls.octop_retry(task_id))
        text = f"{task_id} is pending again." if new == task_id else f"{task_id} had ended: its repetition is {new}."
        return {"id": task_id, "retried_as": new}, text

    _each(invocation, task_ids, act)


@tasks.command()
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=TASK_ID)
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
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=TASK_ID)
@click.option("--timeout", type=DURATION, metavar="DURATION", help="Give up after this time (exit code 7).")
@global_options(reads=True)
@pass_invocation
def wait(invocation: Invocation, task_ids: tuple[str, ...], timeout: float | None) -> None:
    """Wait until tasks have ended: 0 when all succeeded, 1 when one was frozen or cancelled, 7 on a timeout."""
    with invocation.connection() as connection:
        ended = [wait_until_ended(connection, each, timeout) for each in task_ids]
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
        kept = ("id", "task_type", "status", "attempt", "result", "last_error")
        invocation.output.json([{name: each[name] for name in kept} for each in ended])
    for each in () if invocation.as_json else ended:
        result = "" if each["result"] is None else f" {json.dumps(each['result'], ensure_ascii=False)}"
        error = f" {each['last_error']}" if each["status"] == Status.FROZEN else ""
        invocation.output.done({}, f"{each['id']} {each['status']}{result}{error}")
    if any(each["status"] != Status.SUCCESS for each in ended):
        raise click.exceptions.Exit(1)


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
        for task_id in task_ids:
            try:
                answer, text = act(connection, task_id)
            except OctopError as error:
                if len(task_ids) == 1:
                    raise
                invocation.output.warn(f"{task_id}: {error.message}")
                first = first or error
                answer = {"id": task_id, "error": error.message}
            else:
                if not invocation.as_json:
                    invocation.output.done({}, text)
            answers.append(answer)
    if invocation.as_json:
        invocation.output.json(answers)
    if first is not None:
        raise click.exceptions.Exit(first.exit_code)
