"""Find the living workers that will not get on with this code until they are replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octop.cli.check.finding import IDS_MAX, INFO, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from octop.model.definition import TaskDefinition

DEFAULT_QUEUE: Final = "default"
NAMES_MAX: Final = 5


def other_workers(
    registry: Mapping[str, TaskDefinition], workers: Sequence[Mapping[str, Any]], queues: Mapping[str, str]
) -> Iterator[Finding]:
    """Find the living workers that know less, or more, than this code.

    Both pass when they have been replaced: a task whose type nobody knows is parked and comes back with the first worker
    that does. So they are worth knowing, and no reason to stop a deployment.

    Args:
        registry: Task types by name and alias.
        workers: id, name, version, queues and task_types of each.
        queues: The queue of each task type for which the database has one.
    """
    lacking: dict[tuple[str, ...], list[str]] = {}
    more: dict[tuple[str, ...], list[str]] = {}
    for worker in workers:
        served, known = set(worker["queues"]), set(worker["task_types"])
        new = tuple(
            sorted(
                name
                for name, each in registry.items()
                if name == each.name and name not in known and _queue(each, queues) in served
            )
        )
        if new:
            lacking.setdefault(new, []).append(worker["name"])
        # who knows none of ours runs another application
        if (gone := tuple(sorted(known - registry.keys()))) and known & registry.keys():
            more.setdefault(gone, []).append(worker["name"])
    for names, who in lacking.items():
        what = f"{_who(who)} a queue of {_listed(names)} and {_does(who)} not know {_it(names)}"
        hint = "What is enqueued for it waits, parked, until a worker with this code runs; start those first."
        yield Finding("worker_lacks_type", "", what, hint, len(who), who[:IDS_MAX], severity=INFO)
    for names, who in more.items():
        what = f"{_who(who, serve=False)} {_listed(names)}, which this code does not have"
        hint = "What is enqueued for it before the last of them stops will wait, parked. Renamed? Use aliases=[…]."
        yield Finding("worker_knows_more", "", what, hint, len(who), who[:IDS_MAX], severity=INFO)


def types_of_others(registry: Mapping[str, TaskDefinition], workers: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the task types of workers that know none of ours: they run another application on the same database.

    Args:
        registry: Task types by name and alias.
        workers: Those that live.
    """
    return {name for each in workers if not set(each["task_types"]) & registry.keys() for name in each["task_types"]}


def _queue(definition: TaskDefinition, queues: Mapping[str, str]) -> str:
    return queues.get(definition.name) or definition.policy.queue or DEFAULT_QUEUE


def _who(who: Sequence[str], *, serve: bool = True) -> str:
    if len(who) == 1:
        return f"1 living worker {'serves' if serve else 'runs'}"
    return f"{len(who)} living workers {'serve' if serve else 'run'}"


def _does(who: Sequence[str]) -> str:
    return "does" if len(who) == 1 else "do"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_MAX])
    return shown if len(names) <= NAMES_MAX else f"{shown} and {len(names) - NAMES_MAX} more"
