"""`octop tasks wait`, and what `octop enqueue --wait` shares with it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import DURATION, spoken
from octop.cli.task_ids import TASK_REFERENCE, References, found_task
from octop.cli.tasks.watch import Watch
from octop.model.errors import WaitTimeoutError
from octop.model.task import Status

if TYPE_CHECKING:
    from octop.engine.connect import EngineConnection

WAIT_SECONDS_MIN: Final = 0.02
WAIT_SECONDS_MAX: Final = 0.5


@click.command(short_help="Wait until tasks have ended.")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=TASK_REFERENCE)
@click.option("--timeout", type=DURATION, metavar="DURATION", help="Give up after this time (exit code 7).")
@global_options(reads=True)
@pass_invocation
def wait(invocation: Invocation, task_ids: tuple[str, ...], timeout: float | None) -> None:
    """Wait until tasks have ended; meanwhile stderr says what they wait for, and each attempt that fails.

    Exit code 0 when all succeeded, 1 when one was frozen or cancelled, 7 on a timeout.
    """
    with invocation.connection() as connection:
        references = References(connection, task_ids)
        ids = [references.id_of(each) for each in task_ids]
        ended = [wait_until_ended(invocation, connection, each, timeout) for each in ids]
    report_ended(invocation, ended)


def wait_until_ended(
    invocation: Invocation, connection: EngineConnection, task_id: str, timeout: float | None
) -> dict[str, Any]:
    """Return the row of a task as soon as it has ended; tell meanwhile what it waits for.

    Raises:
        TaskNotFoundError: There is none.
        WaitTimeoutError: It has not ended in time.
        KeyboardInterrupt: With what the person needs to wait again.
    """
    try:
        return _ended(connection, task_id, timeout, Watch(invocation.output, connection, task_id))
    except KeyboardInterrupt:
        message = f"task {task_id} goes on: octop tasks wait {task_id}"
        raise KeyboardInterrupt(message) from None


def _ended(connection: EngineConnection, task_id: str, timeout: float | None, watch: Watch) -> dict[str, Any]:
    began = time.monotonic()
    pause = WAIT_SECONDS_MIN
    while True:
        task = found_task(connection, task_id)
        if Status(task["status"]).final:
            return task
        waited = time.monotonic() - began
        if timeout is not None and waited >= timeout:
            still = "still waits for its next try" if task["status"] == Status.FAILED else f"is still {task['status']}"
            message = f"task {task_id} {still} after {spoken(timeout)}"
            raise WaitTimeoutError(message, hint=f"Why: octop tasks why {task_id}")
        watch.look(task, waited)
        left = WAIT_SECONDS_MAX if timeout is None else timeout - waited
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, WAIT_SECONDS_MAX)


def report_ended(invocation: Invocation, ended: list[dict[str, Any]]) -> None:
    """Print tasks that have ended, and end with 1 unless all succeeded."""
    if invocation.as_json:
        invocation.output.json([ending_of(each) for each in ended])
    for each in () if invocation.as_json else ended:
        result = "" if each["result"] is None else f" {json.dumps(each['result'], ensure_ascii=False)}"
        error, *more = str(each["last_error"] or "").splitlines() or [""]
        if each["status"] not in (Status.FROZEN, Status.CANCELLED):
            error, more = "", []
        for line in (f"{each['id']} {each['status']}{result} {error}".rstrip(), *(f"  {line}" for line in more)):
            invocation.output.done({}, line)
    if any(each["status"] != Status.SUCCESS for each in ended):
        raise click.exceptions.Exit(1)


def ending_of(task: dict[str, Any]) -> dict[str, Any]:
    """Return what `--json` says of a task that has ended."""
    return {name: task[name] for name in ("id", "task_type", "status", "attempt", "result", "last_error")}
