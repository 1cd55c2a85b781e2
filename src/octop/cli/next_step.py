"""What happens to a task next, in a sentence: the question behind most looks at a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octop.cli.moments import shortened, spoken
from octop.model.task import Status

if TYPE_CHECKING:
    from collections.abc import Mapping


NOTHING_KNOWN: Final[Mapping[str, Any]] = {
    "due_in_seconds": 0.0,
    "deadline_in_seconds": None,
    "max_retries": 0,
    "hold_reason": None,
    "workers": 1,
    "worker_name": None,
}


def next_step(task: Mapping[str, Any], prospects: Mapping[str, Any] | None) -> str:
    """Say what happens next to a task, and who or what it waits for.

    Args:
        task: A row of `octop.engine.reads.task`.
        prospects: Of `octop.engine.reads.prospects`; None when the task has gone meanwhile.

    Returns:
        One or two sentences.
    """
    prospects = prospects or NOTHING_KNOWN
    match Status(task["status"]):
        case Status.PENDING | Status.FAILED:
            return _waits(task, prospects)
        case Status.RUNNING:
            return _runs(task, prospects)
        case Status.BLOCKED:
            return _blocked(str(task["blocked_by"] or ""))
        case Status.FROZEN:
            return f"Nothing by itself: its retries are used up. To run it again: octop tasks retry {task['id']}"
        case Status.SUCCESS:
            return "Nothing: it succeeded."
        case Status.CANCELLED:
            return f"Nothing: it was cancelled. To run it as a new task: octop tasks retry {task['id']}"


def _waits(task: Mapping[str, Any], prospects: Mapping[str, Any]) -> str:
    retry = ""
    if task["status"] == Status.FAILED:
        retry = f"Retry {task['retry_count']} of {prospects['max_retries']:.0f}. "
    if prospects["hold_reason"] is not None:
        reason = f" ({prospects['hold_reason']})" if prospects["hold_reason"] else ""
        return f"{retry}The queue {task['queue']} is paused{reason}. To go on: octop queues resume {task['queue']}"
    if prospects["due_in_seconds"] > 0:
        return f"{retry}It starts at {shortened(task['scheduled_at'])}, in {spoken(prospects['due_in_seconds'])}."
    if not prospects["workers"]:
        return (
            f"{retry}It is due, and no living worker serves the queue {task['queue']} and knows the type "
            f"{task['task_type']}. Start one: octop worker -A module:attribute"
        )
    return f"{retry}It is due and starts as soon as a worker of the queue {task['queue']} has room."


def _runs(task: Mapping[str, Any], prospects: Mapping[str, Any]) -> str:
    worker = prospects["worker_name"] or task["worker_id"]
    if task["cancel_requested_at"]:
        return f"Its cancellation was asked for; the worker {worker} ends it within a second, if it can be ended."
    left = prospects["deadline_in_seconds"]
    limit = f" Its time limit ends it in {spoken(left)}." if left is not None and left > 0 else ""
    return f"The worker {worker} runs it.{limit}"


def _blocked(blocked_by: str) -> str:
    kind, _, name = blocked_by.partition(":")
    if kind == "task_type":
        return f"It waits for a worker that knows the type {name}; no try is used up by waiting."
    return f"It waits for {blocked_by or 'an order'}."
