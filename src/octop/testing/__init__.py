"""Help for the tests of applications that use Octop: a database per test, the real engine, a clock that obeys.

With pytest, ask for the fixture ``octop_database``; anywhere else::

    from octop.testing import Server

    with Server() as server, server.database() as database, database.override(octop):
        send_welcome.enqueue_sync(42)
        database.assert_enqueued(send_welcome, args=(42,))
        database.drain()

Names are loaded when they are first used: pytest imports this package at every start.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octop.model.errors import DrainLimitError
    from octop.testing.active import assert_enqueued, assert_not_enqueued, clock, drain, drain_async, enqueued
    from octop.testing.bent_clock import Clock
    from octop.testing.database import Database
    from octop.testing.listed import EnqueuedTask
    from octop.testing.ran import Drained, Ran
    from octop.testing.server import Server

__all__ = [
    "Clock",
    "Database",
    "DrainLimitError",
    "Drained",
    "EnqueuedTask",
    "Ran",
    "Server",
    "assert_enqueued",
    "assert_not_enqueued",
    "clock",
    "drain",
    "drain_async",
    "enqueued",
]

_PLACES = {
    "Clock": "octop.testing.bent_clock",
    "Database": "octop.testing.database",
    "DrainLimitError": "octop.model.errors",
    "Drained": "octop.testing.ran",
    "EnqueuedTask": "octop.testing.listed",
    "Ran": "octop.testing.ran",
    "Server": "octop.testing.server",
    "assert_enqueued": "octop.testing.active",
    "assert_not_enqueued": "octop.testing.active",
    "clock": "octop.testing.active",
    "drain": "octop.testing.active",
    "drain_async": "octop.testing.active",
    "enqueued": "octop.testing.active",
}


def __getattr__(name: str) -> object:
    """Load a public name."""
    place = _PLACES.get(name)
    if place is None:
        message = f"module 'octop.testing' has no attribute {name!r}"
        raise AttributeError(message)
    found: object = getattr(importlib.import_module(place), name)
    globals()[name] = found
    return found
