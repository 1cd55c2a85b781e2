"""After a flood the live table is as small as before it: what is finished lies in history, and empty pages go back to the disk."""

from __future__ import annotations

import re
import time

import pytest

from octop.model.task import Success
from tests.sql.crew import add, add_many, do, value

COUNT = 3_000
PAGES = "select pg_relation_size('octop_tasks_live') / current_setting('block_size')::int"


def vacuum(dba):
    """Vacuum until no dead row is left: a backend that is just starting anywhere on the server holds some back for a moment."""
    said: list[str] = []
    dba.add_notice_handler(lambda notice: said.append(notice.message_primary + (notice.message_detail or "")))
    for _ in range(100):
        said.clear()
        do(dba, "vacuum (verbose) octop_tasks_live")
        held = re.findall(
            r"(\d+) (?:are dead but not yet removable|dead row versions cannot be removed)", "".join(said)
        )
        assert held, said
        if not any(map(int, held)):
            return
        time.sleep(0.05)
    pytest.fail("dead rows stay")


def flood(dba, worker):
    add_many(dba, COUNT)
    while tasks := worker.claim(1_000):
        worker.exchange(successes=[Success(task.fence) for task in tasks])


def test_the_live_table_returns_to_its_size(dba, hire):
    worker = hire()
    flood(dba, worker)
    assert value(dba, PAGES) > 60
    vacuum(dba)
    assert value(dba, PAGES) == 0
    assert value(dba, "select count(*) from octop_tasks where status = 'success'") == COUNT


def test_floods_after_the_first_take_its_room(dba, hire):
    """Of the indexes nothing is said: the pages that a vacuum has deleted are given away when no transaction of the server is older."""
    worker = hire()
    add(dba, "other")  # the table is never quite empty: nobody here runs it
    found = []
    for _ in range(4):
        flood(dba, worker)
        add(dba, "other")  # and one stays at its end
        found.append(value(dba, PAGES))
        vacuum(dba)
    assert found[-1] <= 1.1 * found[0], found
    assert value(dba, "select count(*) from octop_tasks_live") == 5
