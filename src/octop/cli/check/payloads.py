"""Find the queued payloads that do not fit the function that is registered under their name now.

Two looks, so that a million tasks take seconds. PostgreSQL sorts all payloads by their keys and the JSON types of their
values: whether names fit is decided there for every task. Whether values can be read as the annotated types is tried on the
oldest task of each such shape and on a sample of each task type.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from octop.cli.check.kinds import found
from octop.cli.findings import IDS_MAX
from octop.engine import queued
from octop.model.errors import InvalidTaskError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from octop.cli.findings import Finding
    from octop.engine.connect import EngineConnection
    from octop.engine.queued import Shape
    from octop.model.definition import TaskDefinition

FIRST_IDS_MAX: Final = 10_000
"""Of so many shapes the oldest payload is read in any case."""
MISFITS_MAX: Final = 500
"""So many combinations of type and keys that do not fit are told apart; beyond, they are counted only."""

_ARGUMENT: Final = re.compile(r"\$(?:\.(\w+)|\[\"(.*?)\"\])")

Misfit = tuple[str, str, str]
"""Id of the finding, task type, argument (or version)."""


@dataclass
class Looked:
    """What was looked at.

    Attributes:
        tasks: Queued tasks: unfinished or frozen.
        task_types: Their types.
        shapes: Distinct combinations of keys and JSON types.
        known: Those of the tasks whose type the code knows.
        payloads: Payloads that were read as the annotated types.
        per_type: At most about so many of each type; None = all.
    """

    tasks: int = 0
    task_types: int = 0
    shapes: int = 0
    known: int = 0
    payloads: int = 0
    per_type: int | None = None


@dataclass
class _Misfits:
    """Tasks with the same thing wrong."""

    count: int = 0
    ids: list[str] = field(default_factory=list)
    keys: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    message: str = ""
    instead: str = ""

    def add(self, count: int, task_id: str) -> None:
        self.count += count
        if len(self.ids) < IDS_MAX and task_id not in self.ids:
            self.ids.append(task_id)


class Payloads:
    """Compares what is queued with a registry.

    Args:
        connection: To the database.
        registry: Task types by name and alias.
        others: Task types that workers of other applications run, and they alone.
        per_type: Read about so many payloads of each task type; None = all.
        told: Called with how many more payloads were read.

    Attributes:
        looked: What was looked at, complete when ``findings`` has ended.
    """

    def __init__(
        self,
        connection: EngineConnection,
        registry: Mapping[str, TaskDefinition],
        *,
        others: Collection[str],
        per_type: int | None,
        told: Callable[[int], None],
    ) -> None:
        """Look at nothing yet."""
        self._connection = connection
        self._registry = registry
        self._others = others
        self._told = told
        self.looked = Looked(per_type=per_type)
        self._counts: Counter[str] = Counter()
        self._first_ids: list[str] = []
        self._unknown: dict[str, str] = {}
        self._misfits: dict[Misfit, _Misfits] = {}

    def findings(self) -> Iterator[Finding]:
        """Look, and yield what does not fit."""
        with queued.shapes(self._connection) as shapes:
            for shape in shapes:
                self._names(shape)
        self.looked.tasks, self.looked.task_types = self._counts.total(), len(self._counts)
        self._find_ids()
        self._values()
        for name, first in sorted(self._unknown.items()):
            yield self._unknown_type(name, first)
        for (kind, name, argument), misfits in sorted(self._misfits.items()):
            yield self._finding(kind, name, argument, misfits)

    # --- names --------------------------------------------------------------------------------------------------------

    def _names(self, shape: Shape) -> None:
        self.looked.shapes += 1
        self._counts[shape.task_type] += shape.count
        definition = self._registry.get(shape.task_type)
        if definition is None:
            self._unknown[shape.task_type] = min(shape.first_id, self._unknown.get(shape.task_type, shape.first_id))
            return
        if (shape.min_version or 1) > definition.policy.version:
            self._misfit("tasks.needs_newer_code", shape, str(shape.min_version))
        try:
            plan = definition.plan
        except InvalidTaskError:
            return  # said already: nothing can be compared with it
        unexpected = [] if plan.rest is not None else [key for key in shape.keys if key not in plan.codecs]
        missing = sorted(plan.required - set(shape.keys))
        if len(unexpected) == len(missing) == 1:  # renamed, most likely: one thing wrong, not two
            self._misfit("tasks.unexpected_argument", shape, unexpected[0]).instead = missing.pop()
            return
        for argument in unexpected:
            self._misfit("tasks.unexpected_argument", shape, argument)
        for argument in missing:
            self._misfit("tasks.missing_argument", shape, argument)
        if not unexpected and not missing and len(self._first_ids) < FIRST_IDS_MAX:
            self._first_ids.append(shape.first_id)

    def _misfit(self, kind: str, shape: Shape, argument: str) -> _Misfits:
        misfits = self._misfits.setdefault((kind, shape.task_type, argument), _Misfits())
        misfits.add(shape.count, shape.first_id)
        if kind != "tasks.needs_newer_code" and sum(len(each.keys) for each in self._misfits.values()) < MISFITS_MAX:
            misfits.keys.add((shape.task_type, shape.keys))
        return misfits

    def _find_ids(self) -> None:
        """Find the ids of the tasks behind the shapes whose names do not fit, until each finding has ten."""
        lacking = {
            key: misfits for key, misfits in self._misfits.items() if misfits.keys and len(misfits.ids) < misfits.count
        }
        wanted = sorted({keys for misfits in lacking.values() for keys in misfits.keys})
        if not wanted:
            return
        with queued.ids_of(self._connection, wanted) as rows:
            for task_id, name, keys in rows:
                for key, misfits in list(lacking.items()):
                    if (name, keys) in misfits.keys:
                        misfits.add(0, task_id)
                        if len(misfits.ids) >= min(IDS_MAX, misfits.count):
                            del lacking[key]
                if not lacking:
                    return

    # --- values -------------------------------------------------------------------------------------------------------

    def _values(self) -> None:
        known = {name: count for name, count in self._counts.items() if name in self._registry}
        self.looked.known = sum(known.values())
        with queued.sample(self._connection, self.looked.per_type, known, self._first_ids) as rows:
            for task_id, name, payload in rows:
                self.looked.payloads += 1
                self._told(1)
                definition = self._registry.get(name)
                if definition is not None:
                    self._value(definition, task_id, name, payload)

    def _value(self, definition: TaskDefinition, task_id: str, name: str, payload: str) -> None:
        try:
            definition.unbind(payload)
        except InvalidTaskError as error:
            message = error.message
        except Exception as error:  # noqa: BLE001 - a decoder of the user's own: the task would fail with it as well
            message = f"$: {type(error).__name__}: {error}"
        else:
            return
        place = _ARGUMENT.match(message)
        if place is None and not message.startswith("$"):
            return  # a name that does not fit: known already, for all tasks
        argument = "" if place is None else place[1] or place[2]
        misfits = self._misfits.setdefault(("tasks.wrong_value", name, argument), _Misfits())
        misfits.message = misfits.message or message
        misfits.add(1, task_id)

    # --- words --------------------------------------------------------------------------------------------------------

    def _unknown_type(self, name: str, first: str) -> Finding:
        what = f"{name}: no function is registered as {name}"
        if name in self._others:
            kind, hint = "tasks.of_others", ""
        else:
            near = get_close_matches(name, self._registry, n=1)
            old = f"@octop.task(aliases=[{name!r}])"
            hint = (
                f"If {near[0] if near else 'another task type'} is its new name, give that function the old one too: {old}."
                " If another application runs it, let that have a queue of its own."
                f" If it was a typo: octop tasks cancel {shlex.quote('type:' + name)}"
            )
            kind = "tasks.unknown_type"
        return found(kind, what, hint, task_type=name, count=self._counts[name], ids=[first])

    def _finding(self, kind: str, name: str, argument: str, misfits: _Misfits) -> Finding:
        definition = self._registry[name]
        match kind:
            case "tasks.unexpected_argument":
                what = f"unexpected argument {argument!r}: {definition.signature} has no such parameter"
                hint = f"Give it the parameter {argument!r} back, with a default, until these tasks have run."
                if misfits.instead:
                    what += f", and {misfits.instead!r} is missing"
                    hint = f"Was it renamed? Keep the name {argument!r}, or take both with defaults, until these tasks have run."
            case "tasks.missing_argument":
                what = f"missing argument {argument!r}: {definition.signature} needs it"
                hint = f"Give the parameter {argument!r} a default, at least until these tasks have run."
            case "tasks.needs_newer_code":
                what = f"they need version {argument} of {name}, and this code is version {definition.policy.version}"
                hint = "Newer code has enqueued them; without a worker that runs it they wait."
            case _:
                what = f"{definition.signature} can not read a payload: {misfits.message}"
                hint = "Let the annotation take the old form too, until these tasks have run."
        sampled = kind == "tasks.wrong_value" and self.looked.per_type is not None and self._is_sampled(name)
        return found(
            kind, f"{name}: {what}", hint, task_type=name, count=misfits.count, ids=misfits.ids, sampled=sampled
        )

    def _is_sampled(self, name: str) -> bool:
        return self._counts[name] > (self.looked.per_type or 0)
