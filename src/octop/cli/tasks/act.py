"""What can be done to many tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octop.engine.call import Call
    from octop.engine.connect import EngineConnection
    from octop.model.task import Status


@dataclass(frozen=True)
class Act:
    """What can be done to a task.

    Attributes:
        verb: As in "retry 3 tasks".
        possible: Statuses that it can be done to.
        default: Those of them that a filter means when it names no status.
        meant: These in words, before "tasks".
        otherwise: What to do with the others.
        one: Does it to one task; answers for JSON and in words, or raises.
        many: Does it to some hundreds; answers id and verdict first.
        spoken: What a verdict means, after "3 tasks".
    """

    verb: str
    possible: frozenset[Status]
    default: frozenset[Status]
    meant: str
    otherwise: str
    one: Callable[[EngineConnection, str], tuple[dict[str, object], str]]
    many: Callable[[Sequence[str]], Call[Any]]
    spoken: dict[str, str]
