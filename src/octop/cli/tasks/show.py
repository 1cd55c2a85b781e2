"""`octop tasks show` and `octop tasks why`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import shortened, spoken
from octop.cli.next_step import next_step, reasons
from octop.cli.task_ids import TASK_REFERENCE, found_task, resolved
from octop.cli.tasks.group import tasks
from octop.engine import reads
from octop.engine.call import run

if TYPE_CHECKING:
    from octop.cli.output import Output


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
        task = _ordered(found_task(connection, task_id))
        attempts = run(connection, reads.attempts_of(task_id))
        sentence = next_step(task, run(connection, reads.prospects(task_id)))
    if invocation.as_json:
        invocation.output.json({**task, "attempts": attempts, "next": sentence})
        return
    output = invocation.output
    output.pairs([(name, _readable(name, value)) for name, value in task.items() if value not in (None, "", [])])
    for attempt in attempts:
        output.line("")
        print_attempt(output, attempt)
    output.line("")
    output.pairs([("next", sentence)])


@tasks.command()
@click.argument("task_id", metavar="ID", type=TASK_REFERENCE)
@global_options(reads=True)
@pass_invocation
def why(invocation: Invocation, task_id: str) -> None:
    """Say why a task does not run, or what happens to it next.

    Each line is one thing that it waits for, with the command that helps, where one does.
    """
    with invocation.connection() as connection:
        task_id = resolved(connection, task_id)
        task = found_task(connection, task_id)
        found = reasons(task, run(connection, reads.prospects(task_id)))
    if invocation.as_json:
        listed = [{"code": each.code, "sentence": each.sentence} for each in found]
        invocation.output.json({"id": task_id, "status": task["status"], "reasons": listed})
        return
    invocation.output.pairs([(task["status"], "\n".join(each.sentence for each in found))])


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


def print_attempt(output: Output, attempt: dict[str, Any]) -> None:
    """Print one row of `octop.engine.reads.attempts_of` with its traceback."""
    took = spoken(attempt["seconds"])
    output.line(f"attempt {attempt['attempt']}: {attempt['outcome']} after {took}, {shortened(attempt['ended_at'])}")
    if attempt["traceback"]:
        for line in str(attempt["traceback"]).rstrip().splitlines():
            output.line(f"  {line}")
    elif attempt["error_class"] or attempt["error_message"]:
        output.line(f"  {': '.join(part for part in (attempt['error_class'], attempt['error_message']) if part)}")
