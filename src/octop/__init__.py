"""Octop: a task scheduler that lives in PostgreSQL.

Everything public is a name of this package. Names are loaded when they are first used, so that ``import octop`` costs
nothing.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octop.app import Octop
    from octop.handle import Handle
    from octop.model.alert import Alert
    from octop.model.batch import BatchTask
    from octop.model.context import Context, current
    from octop.model.control_flow import Cancel, Retry, Snooze
    from octop.model.errors import OctopError
    from octop.model.retry import RetryPolicy
    from octop.model.task import Status
    from octop.task import Task

__version__ = "0.2.0.dev0"

__all__ = [
    "Alert",
    "BatchTask",
    "Cancel",
    "Context",
    "Handle",
    "Octop",
    "OctopError",
    "Retry",
    "RetryPolicy",
    "Snooze",
    "Status",
    "Task",
    "current",
]

_PLACES = {
    "Alert": "octop.model.alert",
    "BatchTask": "octop.model.batch",
    "Cancel": "octop.model.control_flow",
    "Context": "octop.model.context",
    "Handle": "octop.handle",
    "Octop": "octop.app",
    "OctopError": "octop.model.errors",
    "Retry": "octop.model.control_flow",
    "RetryPolicy": "octop.model.retry",
    "Snooze": "octop.model.control_flow",
    "Status": "octop.model.task",
    "Task": "octop.task",
    "current": "octop.model.context",
}


def __getattr__(name: str) -> object:
    """Load a public name."""
    place = _PLACES.get(name)
    if place is None:
        message = f"module 'octop' has no attribute {name!r}"
        raise AttributeError(message)
    found: object = getattr(importlib.import_module(place), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
