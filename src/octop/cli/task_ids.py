"""The id of a task as people type it: whole, or its first characters when they fit one task alone."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from octop.cli.completing import task_ids
from octop.engine import reads
from octop.engine.call import run
from octop.model.errors import TaskNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octop.engine.connect import EngineConnection

DIGITS: Final = 32
PREFIX_MIN: Final = 8
SHOWN_MAX: Final = 10


class TaskId(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2; 8.1 cannot subscript it
    """The whole id of a task."""

    name = "id"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it as PostgreSQL writes it."""
        try:
            return str(uuid.UUID(str(value).strip()))
        except ValueError:
            self.fail(f"{value!r} is not a task's id (a UUID)", param, ctx)


class TaskReference(TaskId):
    """The id of a task, or its first characters, as a table on a narrow terminal shows them."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the id, or the hexadecimal digits of its beginning."""
        digits = str(value).strip().lower().replace("-", "")
        if re.fullmatch(r"[0-9a-f]+", digits) and len(digits) < DIGITS:
            if len(digits) < PREFIX_MIN:
                self.fail(f"{value!r} is too short: at least {PREFIX_MIN} characters of an id", param, ctx)
            return digits
        return super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the ids that begin like this."""
        return [CompletionItem(each) for each in task_ids(ctx, param, incomplete)]


TASK_ID: Final = TaskId()
TASK_REFERENCE: Final = TaskReference()


class References:
    """Finds out which tasks are meant, before anything is done to one of them."""

    def __init__(self, connection: EngineConnection, references: Sequence[str]) -> None:
        """Look for all that are no whole ids.

        Raises:
            click.UsageError: One of them fits several tasks.
        """
        self._ids = {each: _matching(connection, each) for each in references}

    def id_of(self, reference: str) -> str:
        """Return the id.

        Raises:
            TaskNotFoundError: No task's id begins like that.
        """
        found = self._ids[reference]
        if found is None:
            message = f"no task's id begins with {reference}"
            raise TaskNotFoundError(message, hint="octop tasks list shows the latest; older days have been dropped.")
        return found


def resolved(connection: EngineConnection, reference: str) -> str:
    """Return the id of the one task that is meant.

    Raises:
        click.UsageError: It fits several tasks.
        TaskNotFoundError: It fits none.
    """
    return References(connection, [reference]).id_of(reference)


def _matching(connection: EngineConnection, reference: str) -> str | None:
    if len(reference) > DIGITS:  # with its hyphens: whole
        return reference
    first, last = (str(uuid.UUID(reference.ljust(DIGITS, digit))) for digit in "0f")
    found = run(connection, reads.ids_like(first, last, SHOWN_MAX + 1))
    if len(found) > 1:
        more = ["  …"] if len(found) > SHOWN_MAX else []
        lines = "\n".join([*(f"  {each}" for each in found[:SHOWN_MAX]), *more])
        message = f"{reference} is the beginning of several ids:\n{lines}"
        raise click.UsageError(message)
    return found[0] if found else None


def found_task(connection: EngineConnection, task_id: str) -> dict[str, Any]:
    """Return the row of a task.

    Raises:
        TaskNotFoundError: There is none, or it is not the caller's.
    """
    task = run(connection, reads.task(task_id))
    if task is None:
        message = f"no task has the id {task_id}"
        raise TaskNotFoundError(message, hint="It may be another tenant's, or its day has been dropped.")
    return task
