"""After a flood the live table is as small as before it: what is finished lies in history, and empty pages go back to the disk."""

from __future__ import annotations

from octop.model.task import Success
from tests.sql.crew import add, add_many, do, value

COUNT = 5_000
PAGES = "select pg_relation_size('octop_tasks_live') / current_setting('block_size')::int"


def flood(dba, worker):
    add_many(dba, COUNT)
    while tasks := worker.claim(2_000):
        worker.exchange(successes=[Success(task.fence) for task in tasks])


def test_the_live_table_returns_to_its_size(dba, hire):
    worker = hire()
    flood(dba, worker)
    assert value(dba, PAGES) > 100
    do(dba, "vacuum octop_tasks_live")
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
        do(dba, "vacuum octop_tasks_live")
        found.append(value(dba, PAGES))
    assert found[-1] <= 1.1 * found[0], found
    assert value(dba, "select count(*) from octop_tasks_live") == 5
