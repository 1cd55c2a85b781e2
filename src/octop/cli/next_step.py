"""What happens to a task next, and why it does not run now: the question behind most looks at a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from octop.cli.moments import shortened, spoken
from octop.model.task import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


NOTHING_KNOWN: Final[Mapping[str, Any]] = {
    "due_in_seconds": 0.0,
    "deadline_in_seconds": None,
    "max_retries": 0,
    "hold_reason": None,
    "type_hold_reason": None,
    "worker_limit": None,
    "workers": 1,
    "serving": 1,
    "knowing": 1,
    "too_old": 0,
    "silent": 0,
    "worker_name": None,
}


@dataclass(frozen=True)
class Reason:
    """One thing that a task waits for, or what it does.

    Attributes:
        code: One word for programs.
        sentence: For people; it ends with what to do, where something can be done.
    """

    code: str
    sentence: str


def next_step(task: Mapping[str, Any], prospects: Mapping[str, Any] | None) -> str:
    """Say what happens next to a task, and who or what it waits for.

    Args:
        task: A row of `octop.engine.reads.task`.
        prospects: Of `octop.engine.reads.prospects`; None when the task has gone meanwhile.

    Returns:
        Some sentences.
    """
    return " ".join(each.sentence for each in reasons(task, prospects))


def reasons(task: Mapping[str, Any], prospects: Mapping[str, Any] | None) -> list[Reason]:
    """Return all that stands between a task and its next step, at least one; see `next_step`."""
    known = {**NOTHING_KNOWN, **(prospects or {})}
    again = f"octop tasks retry {task['id']}"
    match Status(task["status"]):
        case Status.PENDING | Status.FAILED:
            return list(_waits(task, known))
        case Status.RUNNING:
            return [_runs(task, known)]
        case Status.BLOCKED:
            return list(_blocked(task, known))
        case Status.FROZEN:
            return [Reason("retries_used_up", _frozen(task, prospects, again))]
        case Status.SUCCESS:
            return [Reason("succeeded", "Nothing: it succeeded.")]
        case Status.CANCELLED:
            return [Reason("cancelled", f"Nothing: it was cancelled. To run it as a new task: {again}")]


def _frozen(task: Mapping[str, Any], prospects: Mapping[str, Any] | None, again: str) -> str:
    """Return why nothing happens, the last error and the cure, a line each: errors end as they like."""
    retries = prospects["max_retries"] if prospects else None
    if retries == 0:
        used = "it has no retries"
    elif retries is not None and task["retry_count"] < retries:
        used = "no retry follows its last error"  # that was final, by the task or by its retry policy
    else:
        used = "its retries are used up"
    error = str(task.get("last_error") or "").partition("\n")[0]
    lines = [
        f"Nothing by itself: {used}.",
        *([f"The last error: {error}"] if error else []),
        f"To run it again: {again}",
    ]
    return "\n".join(lines)


def _waits(task: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[Reason]:
    if task["status"] == Status.FAILED:
        yield Reason("waits_for_retry", f"Retry {task['retry_count']} of {known['max_retries']:.0f}.")
    orders = list(_orders(task, known))
    yield from orders
    due = known["due_in_seconds"]
    if due > 0:
        yield Reason("not_due", f"It starts at {shortened(task['scheduled_at'])}, in {spoken(due)}.")
    if not known["workers"]:
        nobody = _nobody(task, known)
        yield Reason("no_worker", f"It is due, and {nobody}" if due <= 0 else nobody[0].upper() + nobody[1:])
    elif due <= 0 and not orders:
        yield Reason(
            "waits_for_room", f"It is due and starts as soon as a worker of the queue {task['queue']} has room."
        )


def _orders(task: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[Reason]:
    """Yield what operators have ordered."""
    queue = task["queue"]
    if known["hold_reason"] is not None:
        sentence = f"The queue {queue} is paused{_because(known['hold_reason'])}. To go on: octop queues resume {queue}"
        yield Reason("queue_paused", sentence)
    if known["type_hold_reason"] is not None:
        name = task["task_type"]
        sentence = f"The type {name} is frozen{_because(known['type_hold_reason'])}. To go on: octop types thaw {name}"
        yield Reason("type_frozen", sentence)
    if known["worker_limit"] == 0:
        sentence = f"The limit of the queue {queue} is 0: no worker takes tasks of it. To go on: octop queues scale {queue} reset"
        yield Reason("queue_limit_is_zero", sentence)


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _nobody(task: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    queue, name = task["queue"], task["task_type"]
    start = "Start one: octop worker -A module:attribute, or octop dev while you write"
    if known["too_old"]:
        version = task.get("min_version")
        return f"the code of the living workers is older than version {version} of the type {name}. Deploy it, and restart them."
    silent = f" ({known['silent']} that did beat no more: octop workers)" if known["silent"] else ""
    if known["serving"] and not known["knowing"]:
        return f"the living workers of the queue {queue} do not know the type {name}{silent}. Deploy code that has it, or s{start[1:]}"
    if known["knowing"] and not known["serving"]:
        return (
            f"no living worker serves the queue {queue}{silent}, though some know the type {name}. {start} -q {queue}"
        )
    return f"no living worker serves the queue {queue} and knows the type {name}{silent}. {start}"


def _runs(task: Mapping[str, Any], known: Mapping[str, Any]) -> Reason:
    worker = known["worker_name"] or task["worker_id"]
    if task["cancel_requested_at"]:
        sentence = f"Its cancellation was asked for; the worker {worker} ends it within a second, if it can be ended."
        return Reason("cancel_requested", sentence)
    left = known["deadline_in_seconds"]
    limit = f" Its time limit ends it in {spoken(left)}." if left is not None and left > 0 else ""
    return Reason("runs", f"The worker {worker} runs it.{limit}")


def _blocked(task: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[Reason]:
    blocked_by = str(task["blocked_by"] or "")
    kind = blocked_by.partition(":")[0]
    version = f" in version {task['min_version']} or later" if task.get("min_version") else ""
    name = f"{task['task_type']}{version}"
    if kind not in ("task_type", "version"):
        yield Reason("blocked", f"It waits for {blocked_by or 'an order'}.")
        return
    yield from _orders(task, known)
    if known["type_hold_reason"] is not None:
        return
    if known["workers"]:
        yield Reason(
            "parked",
            f"It was parked for want of a worker that knows the type {name}; there is one now, and it comes back within seconds.",
        )
    else:
        yield Reason(
            "parked",
            f"It waits for a worker that knows the type {name}; no try is used up by waiting: {_nobody(task, known)}",
        )
