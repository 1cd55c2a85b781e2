"""`octop tasks show` and `octop tasks why`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import shortened, spoken
from octop.cli.next_step import Reason, next_step, reasons
from octop.cli.policy import doubt_about_type
from octop.cli.task_ids import TASK_REFERENCE, found_task, resolved
from octop.engine import audit, calls, reads
from octop.engine.call import run
from octop.model.errors import NotPermittedError
from octop.model.task import Status

if TYPE_CHECKING:
    from octop.cli.output import Output
    from octop.engine.connect import EngineConnection


@click.command()
@click.argument("task_id", metavar="ID", type=TASK_REFERENCE)
@global_options(reads=True)
@pass_invocation
def show(invocation: Invocation, task_id: str) -> None:
    """Show one task, its attempts with tracebacks, and what is next.

    The first characters of its ID will do, when no other task's id begins like that: take 13 or more, for the first 8 are
    those of all tasks of a minute. Tab completes them.
    """
    with invocation.connection() as connection:
        task_id = resolved(connection, task_id)
        task = _ordered(found_task(connection, task_id))
        attempts = run(connection, reads.attempts_of(task_id))
        why_rows = run(connection, calls.octop_why(task_id))
        cancelled = _cancellation(connection, task)
    if invocation.as_json:
        sentence = next_step(why_rows)
        invocation.output.json({**task, "cancelled": cancelled, "attempts": attempts, "next": sentence})
        return
    output = invocation.output
    told = {name: _readable(name, value) for name, value in task.items() if value not in (None, "", [])}
    if task["status"] == Status.SUCCESS:  # it is no error of the try that went well
        told = {"error before" if name == "last_error" else name: value for name, value in told.items()}
    output.pairs(list(_with_cancellation(told, cancelled).items()))
    for attempt in attempts:
        output.line("")
        print_attempt(output, attempt)
    output.line("")
    output.pairs([("next", "\n".join(each.sentence for each in reasons(why_rows)))])


@click.command()
@click.argument("task_id", metavar="ID", type=TASK_REFERENCE)
@global_options(reads=True)
@pass_invocation
def why(invocation: Invocation, task_id: str) -> None:
    """Say why a task does not run, or what happens to it next.

    Each line is one thing that it waits for, with the command that helps, where one does; the first one decides.
    For psql: SELECT * FROM octop_why('ID');
    """
    with invocation.connection() as connection:
        task_id = resolved(connection, task_id)
        task = found_task(connection, task_id)
        why_rows = run(connection, calls.octop_why(task_id))
        found = reasons(why_rows)
        if task["status"] in WAITING and (doubt := doubt_about_type(connection, task["task_type"])):
            found.append(
                Reason("type_never_declared", f"{doubt[0].upper()}{doubt[1:]}{'' if doubt.endswith('?') else '.'}", {})
            )
    if invocation.as_json:
        listed = [{"code": each.code, "sentence": each.sentence, "detail": each.detail} for each in found]
        invocation.output.json({"id": task_id, "status": task["status"], "reasons": listed})
        return
    invocation.output.pairs([(task["status"], "\n".join(each.sentence for each in found))])


WAITING: Final = frozenset({Status.PENDING, Status.FAILED, Status.BLOCKED})
ORDER: Final = (
    "id",
    "task_type",
    "status",
    "queue",
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
    "priority",
    "lane",
    "tenant",
)
"""What a person looks for first; the other columns follow in PostgreSQL's order, and these last."""

LAST: Final = ("seq", "claim_id", "worker_id", "lost_count")


def _ordered(task: dict[str, Any]) -> dict[str, Any]:
    names = [*(name for name in ORDER if name in task), *(name for name in task if name not in (*ORDER, *LAST))]
    return {name: task[name] for name in (*names, *(name for name in LAST if name in task))}


def _cancellation(connection: EngineConnection, task: dict[str, Any]) -> dict[str, Any] | None:
    """Return by whom (role), why and when a cancelled task was cancelled; None = it was not, or by itself, or who asks may not know."""
    if task["status"] != Status.CANCELLED:
        return None
    try:
        rows = run(connection, audit.audit(subject=task["id"], action="cancel", limit=1))
    except NotPermittedError:
        return None
    return {"by": rows[0]["role"], "reason": rows[0]["detail"].get("reason"), "at": rows[0]["at"]} if rows else None


def _with_cancellation(told: dict[str, object], cancelled: dict[str, Any] | None) -> dict[str, object]:
    """Put who cancelled a task and why below its status: the engine keeps the reason where errors are."""
    if told.get("status") != Status.CANCELLED:
        return told
    reason = cancelled["reason"] if cancelled else told.get("last_error")
    if reason == told.get("last_error"):
        told = {name: value for name, value in told.items() if name != "last_error"}
    by = f"by {cancelled['by']}" if cancelled else ""
    words = ": ".join(str(part) for part in (by, reason) if part)
    place = list(told).index("status") + 1
    pairs = list(told.items())
    return dict([*pairs[:place], *([("cancelled", words)] if words else []), *pairs[place:]])


def _readable(name: str, value: object) -> object:
    if name in {"payload", "result", "meta", "retry_policy"} and value is not None:
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= 100 else json.dumps(value, ensure_ascii=False, indent=2)
    return shortened(str(value)) if name.endswith("_at") and value else value


def print_attempt(output: Output, attempt: dict[str, Any]) -> None:
    """Print one row of `octop.engine.reads.attempts_of` with its traceback."""
    took = spoken(attempt["seconds"])
    output.line(f"attempt {attempt['attempt']}: {attempt['outcome']} after {took}, {shortened(attempt['ended_at'])}")
    if attempt["traceback"]:
        for line in str(attempt["traceback"]).rstrip().splitlines():
            output.line(f"  {line}")
    elif attempt["error_class"] or attempt["error_message"]:
        output.line(f"  {': '.join(part for part in (attempt['error_class'], attempt['error_message']) if part)}")
