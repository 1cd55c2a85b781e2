"""Who lives, what it declares, what it must know."""

import json
from collections.abc import Sequence

from octop.engine.call import Call, first_value
from octop.model.task import Claimed, Fence
from octop.model.work import Control, Settings, Swept, TaskTypePolicy, Wanted


def _policies(task_types: Sequence[TaskTypePolicy]) -> str:
    return json.dumps(
        [
            {
                "name": policy.name,
                "queue": policy.queue,
                "priority": policy.priority,
                "max_retries": policy.max_retries,
                "timeout_seconds": policy.timeout_seconds,
                "retry_policy": dict(policy.retry_policy) if policy.retry_policy is not None else None,
                "freeze_type_on_exhaustion": policy.freeze_type_on_exhaustion,
                "run_in": policy.run_in,
                "description": policy.description,
                "version": policy.version,
            }
            for policy in task_types
        ]
    )


def octop_register(
    worker_id: str,
    *,
    name: str,
    host: str,
    pid: int,
    supervisor_id: str | None,
    version: str,
    queues: Sequence[str],
    task_types: Sequence[TaskTypePolicy],
) -> Call[None]:
    """Say who this worker is, what it serves and what it knows. Repeating it is harmless; an operator's changes stay."""
    return Call(
        "select octop_register(%(worker_id)s::text::uuid, %(name)s::text, %(host)s::text, %(pid)s::integer, %(supervisor_id)s::text::uuid,"
        " %(version)s::text, %(queues)s::text[], %(policies)s::text::jsonb)",
        {
            "worker_id": worker_id,
            "name": name,
            "host": host,
            "pid": pid,
            "supervisor_id": supervisor_id,
            "version": version,
            "queues": list(queues),
            "policies": _policies(task_types),
        },
        lambda _: None,
    )


def octop_wanted_processes(
    supervisor_id: str, queues: Sequence[str], *, processes: int, minimum: int, maximum: int, quiet: int
) -> Call[Wanted]:
    """Ask how many processes a supervisor should run next.

    Args:
        supervisor_id: Whose processes.
        queues: What they serve.
        processes: How many it runs now.
        minimum: At least so many.
        maximum: At most so many.
        quiet: What the last answer said.
    """
    return Call(
        "select wanted, quiet, due, oldest_seconds from octop_wanted_processes(%(supervisor_id)s::text::uuid, %(queues)s::text[],"
        " %(processes)s::integer, %(minimum)s::integer, %(maximum)s::integer, %(quiet)s::integer)",
        {
            "supervisor_id": supervisor_id,
            "queues": list(queues),
            "processes": processes,
            "minimum": minimum,
            "maximum": maximum,
            "quiet": quiet,
        },
        lambda rows: Wanted(*rows[0]),
    )


def octop_declare_task_types(task_types: Sequence[TaskTypePolicy]) -> Call[None]:
    """Declare task types without a worker, so that producers in any language get their queue and priority."""
    return Call(
        "select octop_declare_task_types(%(policies)s::text::jsonb)",
        {"policies": _policies(task_types)},
        lambda _: None,
    )


def octop_beat(worker_ids: Sequence[str]) -> Call[dict[str, bool]]:
    """Beat for these workers.

    False = the beat before was older than the lease, or the row was gone: ask octop_owned, register again.
    """
    return Call(
        "select worker_id::text, unbroken from octop_beat(%(worker_ids)s::text[]::uuid[])",
        {"worker_ids": list(worker_ids)},
        lambda rows: {row[0]: row[1] for row in rows},
    )


def octop_owned(worker_id: str, fences: Sequence[Fence]) -> Call[set[str]]:
    """Return the ids of those attempts that are still this worker's."""
    return Call(
        "select x::text from octop_owned(%(worker_id)s::text::uuid, %(ids)s::text[]::uuid[], %(attempts)s::integer[],"
        " %(claims)s::text[]::uuid[]) x",
        {
            "worker_id": worker_id,
            "ids": [fence.id for fence in fences],
            "attempts": [fence.attempt for fence in fences],
            "claims": [fence.claim_id for fence in fences],
        },
        lambda rows: {row[0] for row in rows},
    )


def octop_control(worker_id: str, held: Sequence[Claimed | Fence] = ()) -> Call[Control]:
    """Look, each second: has anything changed, is a task of this worker to be cancelled, and is what it holds still its own.

    Args:
        worker_id: This worker.
        held: Attempts that it believes to be its own.
    """
    return Call(
        "select version, cancel::text[], lost::text[]"
        " from octop_control(%(worker_id)s::text::uuid, %(ids)s::text[]::uuid[], %(attempts)s::integer[])",
        {
            "worker_id": worker_id,
            "ids": [each.id for each in held],
            "attempts": [each.attempt for each in held],
        },
        lambda rows: Control(rows[0][0], list(rows[0][1]), list(rows[0][2])),
    )


def _settings(text: str) -> Settings:
    found = json.loads(text)
    return Settings(
        found["version"],
        found["values"],
        found["worker_limits"],
        frozenset(found["held_queues"]),
        frozenset(found["paused_queues"]),
        found["type_queues"],
    )


def octop_settings() -> Call[Settings]:
    """Return all settings, limits and holds that a worker must know."""
    return Call("select octop_settings()::text", {}, lambda rows: _settings(first_value(rows)))


def octop_drain(worker_id: str) -> Call[None]:
    """Mark this worker as draining: it gets no more tasks."""
    return Call("select octop_drain(%(worker_id)s::text::uuid)", {"worker_id": worker_id}, lambda _: None)


def octop_deregister(worker_id: str) -> Call[int]:
    """Go: release what still runs without using a try, and delete the worker's row. Return how many tasks were released."""
    return Call(
        "select octop_deregister(%(worker_id)s::text::uuid)",
        {"worker_id": worker_id},
        lambda rows: int(first_value(rows)),
    )


def octop_release_unheld(worker_id: str, held: Sequence[str]) -> Call[int]:
    """Release what was claimed for this worker and never reached it, because a connection broke; no try is used.

    Args:
        worker_id: This worker.
        held: Ids of all tasks that it knows of, buffered, running, or with an outcome that is not handed in yet.

    Returns:
        How many tasks were released.
    """
    return Call(
        "select octop_release_unheld(%(worker_id)s::text::uuid, %(held)s::text[]::uuid[])",
        {"worker_id": worker_id, "held": list(held)},
        lambda rows: int(first_value(rows)),
    )


def octop_lost(worker_id: str) -> Call[int]:
    """Say that this worker's process died: its attempts are lost now, without waiting for the lease. Return how many."""
    return Call(
        "select octop_lost(%(worker_id)s::text::uuid)", {"worker_id": worker_id}, lambda rows: int(first_value(rows))
    )


def octop_remaining(
    queues: Sequence[str], task_types: Sequence[str], versions: Sequence[int] | None = None
) -> Call[int]:
    """Return how many tasks of these queues and types run or may still start, at most 1,000; paused queues do not count."""
    return Call(
        "select octop_remaining(%(queues)s::text[], %(task_types)s::text[], %(versions)s::integer[])",
        {"queues": list(queues), "task_types": list(task_types), "versions": versions},
        lambda rows: int(first_value(rows)),
    )


def octop_sweep(worker_id: str) -> Call[Swept]:
    """Do what somebody must do again and again: rescue, deadlines, parked tasks, counters, days. Call it every worker.rescue_seconds.

    Raises:
        TryAgainError: A lock stood in the way; the next sweep will do.
    """
    return Call(
        "select rescued, overdue, unparked, folded, days_made, days_dropped from octop_sweep(%(worker_id)s::text::uuid)",
        {"worker_id": worker_id},
        lambda rows: Swept(*rows[0]),
    )
