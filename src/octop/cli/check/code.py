"""What can be said without a database: the module imports, and each task's signature can be understood."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from octop.cli.check.kinds import found
from octop.model.errors import InvalidTaskError

if TYPE_CHECKING:
    from octop.cli.findings import Finding
    from octop.model.definition import TaskDefinition


def signatures(registry: Mapping[str, TaskDefinition]) -> Iterator[Finding]:
    """Find the tasks whose annotations can not be resolved: each of them would fail before its body.

    Args:
        registry: Task types by name and alias.
    """
    for name, definition in registry.items():
        if name == definition.name:
            try:
                _ = definition.plan
            except InvalidTaskError as error:
                yield found("code.annotation", error.message, error.hint, task_type=name)
