"""Find the living workers that will not get on with this code until they are replaced."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from octop.cli.check.kinds import found
from octop.cli.findings import IDS_MAX
from octop.cli.output import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from octop.cli.findings import Finding
    from octop.model.definition import TaskDefinition

    Registry = Mapping[str, TaskDefinition]
    Workers = Sequence[Mapping[str, Any]]
    Queues = Mapping[str, str]

DEFAULT_QUEUE: Final = "default"
NAMES_MAX: Final = 5


def other_workers(registry: Registry, workers: Workers, queues: Queues) -> Iterator[Finding]:
    """Find the living workers that know less, or more, than this code, or older code of the same types.

    All this passes when they have been replaced: a task whose type or version nobody knows is parked and comes back with
    the first worker that does. So it is worth knowing, and no reason to stop a deployment.

    Args:
        registry: Task types by name and alias.
        workers: id, name, version, queues, task_types and versions of each.
        queues: The queue of each task type for which the database has one.
    """
    lacking: dict[tuple[str, ...], list[str]] = defaultdict(list)
    older: dict[tuple[str, ...], list[str]] = defaultdict(list)
    more: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for worker in workers:
        known = _versions(worker)
        served = {
            name: each
            for name, each in sorted(registry.items())
            if name == each.name and _queue(each, queues) in worker["queues"]
        }
        lacking[tuple(name for name in served if name not in known)].append(worker["name"])
        older[
            tuple(name for name, each in served.items() if name in known and known[name] < each.policy.version)
        ].append(worker["name"])
        if _is_ours(registry, worker, queues):
            more[tuple(sorted(known.keys() - registry.keys()))].append(worker["name"])
    for names, who in _with_names(lacking):
        what = f"{_who(who, 'serve')} a queue of {_listed(names)} and {_does(who)} not know {_it(names)}"
        hint = "What is enqueued for it waits, parked, until a worker with this code runs; start those first."
        yield found("workers.lacks_type", what, hint, count=len(who), ids=who[:IDS_MAX])
    for names, who in _with_names(older):
        code = ", ".join(f"version {registry[name].policy.version} of {name}" for name in names[:NAMES_MAX])
        what = f"{_who(who, 'have', 'has')} older code than {code}{_beyond(names)}"
        hint = "Tasks enqueued by the new code will wait for new workers while the old ones run."
        yield found("workers.older_code", what, hint, count=len(who), ids=who[:IDS_MAX])
    for names, who in _with_names(more):
        what = f"{_who(who, 'run')} {_listed(names)}, which this code does not have"
        hint = "What is enqueued for it before the last of them stops will wait, parked. Renamed? Use aliases=[…]."
        yield found("workers.knows_more", what, hint, count=len(who), ids=who[:IDS_MAX])


def types_of_others(registry: Registry, workers: Workers, queues: Queues) -> set[str]:
    """Return the task types that only workers of other applications on the same database run.

    A worker that knows none of our task types proves nothing: after a rename of all of them, that is how the old fleet
    looks. So another application is one that also serves none of our queues; whoever serves one would run our tasks.

    Args:
        registry: Task types by name and alias.
        workers: Those that live.
        queues: The queue of each task type for which the database has one.
    """
    ours: set[str] = set()
    theirs: set[str] = set()
    for each in workers:
        (ours if _is_ours(registry, each, queues) else theirs).update(each["task_types"])
    return theirs - ours


def _is_ours(registry: Registry, worker: Mapping[str, Any], queues: Queues) -> bool:
    served = {DEFAULT_QUEUE, *(_queue(each, queues) for each in registry.values())}
    return not (served.isdisjoint(worker["queues"]) and registry.keys().isdisjoint(worker["task_types"]))


def _versions(worker: Mapping[str, Any]) -> dict[str, int]:
    """Return the version of the worker's code by task type; workers that say none are at 1."""
    said = worker["versions"]
    return {name: (said[index] if index < len(said) else None) or 1 for index, name in enumerate(worker["task_types"])}


def _queue(definition: TaskDefinition, queues: Queues) -> str:
    return queues.get(definition.name) or definition.policy.queue or DEFAULT_QUEUE


def _with_names(by: Mapping[tuple[str, ...], list[str]]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    return ((names, who) for names, who in by.items() if names)


def _who(who: Sequence[str], verb: str, one: str = "") -> str:
    return f"{number(len(who), 'living worker')} {(one or f'{verb}s') if len(who) == 1 else verb}"


def _does(who: Sequence[str]) -> str:
    return "does" if len(who) == 1 else "do"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMES_MAX]) + _beyond(names)


def _beyond(names: Sequence[str]) -> str:
    return f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
