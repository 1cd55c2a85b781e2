"""Enqueue tasks with unique keys, for the tests of them."""

from __future__ import annotations

import json

from octop.engine import calls
from octop.engine.call import run
from octop.model.ids import new_id
from octop.model.work import NewTask
from tests.sql.crew import rows


def add_unique(connection, payload='{"user_id": 42}', **options):
    """Enqueue one task through the function; return its id and whether it is new."""
    options = {"unique_by": ["user_id"], **options} if "unique_key" not in options else options
    names = "".join(f", {name} => %s" for name in options)
    ((id, created),) = rows(
        connection, f"select id::text, created from octop_enqueue('t', %s::jsonb{names})", payload, *options.values()
    )
    return id, created


def many(connection, tasks, *, fresh=True):
    return run(connection, calls.octop_enqueue_many(tasks, fresh=fresh))


def keyed(number, **options):
    return NewTask("t", json.dumps({"user_id": number}), new_id(), **{"unique_by": ["user_id"], **options})


def counted(connection):
    """Return what is counted, which must be what is there."""
    wrong = rows(connection, "select * from octop_recount()")
    assert wrong == []


def send(session, batch):
    return [session.run(each) for each in batch]
