"""A transaction that somebody left open in psql: no worker that starts may wait for it, unless it has to write the same row."""

from __future__ import annotations

import json

import pytest

from octop.engine import calls
from octop.engine.call import run
from octop.model.errors import OpenTransactionError
from octop.model.work import TaskTypePolicy
from tests.sql.crew import Worker, column, do, refused, rows, value
from tests.sql.sessions import Session, sessions

POLICY = TaskTypePolicy("akt", queue="mail", max_retries=5)
LEFT_OPEN = (
    "update octop_task_types set max_retries = 2 where name = 'akt'",
    "select * from octop_task_types for update",
    "update octop_queues set max_retries = 2 where name = 'mail'",
    "delete from octop_queues where name = 'mail'",
    "select octop_scale('mail', 2)",
    "select octop_scale('new', 2)",
    "insert into octop_queues (name) values ('new')",
    "select octop_pause('mail'), octop_freeze('akt')",
    "select octop_config_set('worker.concurrency', '5')",
    "insert into octop_config (key, value) values ('worker.lease_seconds', '{\"value\": 60}')",
)


@pytest.fixture
def left(database, hire):
    """Open a transaction of a DBA's that stays open, after a first worker has declared everything."""
    hire(queues=["mail"], types=[POLICY])
    with sessions(database, 1) as [session]:
        yield session


def begin(left: Session, statement: str) -> None:
    left.execute("begin")
    left.execute(statement)


@pytest.mark.parametrize("statement", LEFT_OPEN)
def test_no_open_transaction_keeps_a_worker_with_the_same_declaration_from_starting(
    database, dba, left, hire, statement
):
    begin(left, statement)
    worker = hire(queues=["mail", "new"], types=[POLICY])  # the fixture's statement_timeout would end a wait
    do(dba, "insert into octop_tasks (task_type, queue) values ('akt', 'mail')")
    assert [claimed.task_type for claimed in worker.claim()] == ["akt"]
    left.execute("commit")
    assert worker.beat()


@pytest.mark.parametrize("statement", LEFT_OPEN)
def test_a_declaration_that_is_the_same_locks_no_row(dba, left, database, statement):
    with database.connect("octop_worker", autocommit=False) as starting:
        Worker(starting, queues=["mail"], types=[POLICY]).register()
        do(dba, "set lock_timeout = '2s'")
        with dba.transaction():
            do(dba, statement)


def test_a_declaration_that_must_write_says_after_a_while_who_is_in_its_way(database, dba, left):
    begin(left, LEFT_OPEN[0])
    with database.connect("octop_worker") as starting:
        worker = Worker(starting, queues=["mail"], types=[TaskTypePolicy("akt", max_retries=6)])
        with pytest.raises(OpenTransactionError, match=f'pid {left.pid}.*task type "akt"') as told:
            worker.register()
        assert "left open" in told.value.hint
        assert rows(dba, "select * from octop_workers where id = %s", worker.id) == []
        left.execute("commit")
        worker.register()
    assert rows(dba, "select max_retries, declared ->> 'max_retries' from octop_task_types") == [(2, "6")]


def test_a_new_type_that_another_transaction_makes_is_told_too(database, dba, left):
    begin(left, 'select octop_declare_task_types(\'[{"name": "new"}]\')')
    with database.connect("octop_worker") as starting:
        said = json.dumps([{"name": "new", "max_retries": 1}])
        assert "new" in refused("OC303", starting, "select octop_declare_task_types(%s)", said)
        left.execute("rollback")
        run(starting, calls.octop_declare_task_types([TaskTypePolicy("new")]))
    assert value(dba, "select count(*) from octop_task_types where name = 'new'") == 1


def test_a_queue_whose_row_is_lost_with_the_open_transaction_is_still_seen_while_it_is_served(dba, left, hire):
    begin(left, "select octop_scale('new', 2)")
    hire(queues=["new"], types=[POLICY])
    left.execute("rollback")
    assert column(dba, "select workers from octop_queue_summary where name = 'new'") == [1]
