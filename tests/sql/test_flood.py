"""After a flood the live table is as small as before it: what is finished lies in history, and empty pages go back to the disk."""

from __future__ import annotations

from octop.model.task import Success
from tests.sql.crew import add, add_many, do, rows, value

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


def test_floods_after_the_first_take_its_room_and_index_pages_are_used_again(dba, hire):
    worker = hire()
    add(dba, "other")  # the table is never quite empty: nobody here runs it
    sizes = (
        "select sum(pg_relation_size(i.indexrelid))::bigint from pg_index i where i.indrelid = 'octop_tasks_live'::regclass"
        " union all select pg_relation_size('octop_tasks_live')"
    )
    found = []
    for _ in range(5):
        flood(dba, worker)
        add(dba, "other")  # and one stays at its end
        do(dba, "vacuum octop_tasks_live")
        found.append(rows(dba, sizes))
    # what a vacuum deletes from an index, the one after it may give away: from the third on nothing grows
    for (was,), (now,) in zip(found[2], found[4], strict=True):
        assert now <= 1.2 * was, found
    assert value(dba, "select count(*) from octop_tasks_live") == 6
