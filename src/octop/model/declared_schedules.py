"""The schedules that an application's code declares, on their way to the database."""

from collections.abc import Callable, Mapping
from typing import Any

from octop.model.definition import TaskDefinition
from octop.model.errors import InvalidNameError, InvalidTaskError
from octop.model.schedule import ScheduleDefinition, declared_schedule


class DeclaredSchedules:
    """Schedules by tenant and name."""

    def __init__(self) -> None:
        """Begin with none."""
        self._found: dict[tuple[str, str], ScheduleDefinition] = {}
        self._waiting: list[tuple[Callable[..., Any], object, Mapping[str, Any]]] = []

    def __len__(self) -> int:
        """Return how many there are, those included whose function is no task yet."""
        return len(self._found) + len(self._waiting)

    def add(self, definition: TaskDefinition, rule: object, options: Mapping[str, Any]) -> None:
        """Take one.

        Args:
            definition: Its task type.
            rule: When.
            options: As for ``Octop.schedule``.

        Raises:
            InvalidNameError: Another one has this name.
            OctopError: As ``declared_schedule``.
        """
        new = declared_schedule(definition, rule, options)
        known = self._found.get((new.tenant, new.name))
        if known is not None:
            message = (
                f"a schedule {new.name!r} is declared already, for {known.definition.name}: {known.settings['rule']}"
            )
            raise InvalidNameError(message, hint='Give this one another: @octop.schedule("…", name="…").')
        self._found[new.tenant, new.name] = new

    def wait_for_task(self, function: Callable[..., Any], rule: object, options: Mapping[str, Any]) -> None:
        """Take one whose function is to become a task, by ``@octop.task`` above it."""
        self._waiting.append((function, rule, options))

    def registered(self, definition: TaskDefinition) -> None:
        """Take note of a task type: what waited for it, and what an earlier form of the same function had.

        Args:
            definition: The new one.

        Raises:
            OctopError: As ``add``.
        """
        for key, known in list(self._found.items()):
            if known.definition.name == definition.name and known.definition is not definition:
                del self._found[key]  # its module was reloaded, or its cell run again
        mine = [each for each in self._waiting if each[0] is definition.function]
        self._waiting = [each for each in self._waiting if each[0] is not definition.function]
        for _, rule, options in mine:
            self.add(definition, rule, options)

    def as_json(self) -> list[dict[str, object]]:
        """Return all as ``octop_declare_schedules`` takes them, by tenant and name.

        Raises:
            InvalidTaskError: A function is no task, or arguments do not fit theirs.
        """
        for function, rule, _ in self._waiting:
            message = f"{getattr(function, '__qualname__', function)!s} has the schedule {rule!r} and is no task"
            raise InvalidTaskError(message, hint="Put @octop.task on it.")
        return [each.as_json() for _, each in sorted(self._found.items())]
