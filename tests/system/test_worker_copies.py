"""A task may make copies of its worker process with `fork`: none of them runs on as a second worker, or touches the first."""

from __future__ import annotations

import pytest

from tests.processes import state_of
from tests.system.apps.running import enqueue, one, status, until

FORKING = "tests.system.apps.forking:octop"
MARKS = 30


@pytest.fixture
def worker(start):
    return start(application=FORKING, queues={"q": 4}).ready()


@pytest.mark.parametrize("place", ["fork_on_loop", "fork_in_thread"])
def test_a_copy_that_comes_back_ends_and_starts_nothing(worker, rows, place):
    pids = worker.pids()
    with rows.transaction():  # they come together: the copies have what is to be run next, too
        forked = [enqueue(rows, place, {"how": how}) for how in ("return", "raise", "exit", "wait")]
        marks = [enqueue(rows, "mark", {"number": number}) for number in range(MARKS)]
    until(lambda: {status(rows, each) for each in (*forked, *marks)} == {"success"}, "all ran", worker.log)
    copies = [int(one(rows, "select result from octop_tasks where id = %s", each)) for each in forked]
    until(lambda: {state_of(each) for each in copies} <= {None, "Z"}, "the copies have ended", worker.log)
    ran = dict(rows.execute("select job, count(*) from ledger where job ^@ 'mark' group by job").fetchall())
    assert ran == {f"mark {number}": 1 for number in range(MARKS)}, "each once"
    assert rows.execute("select distinct pid from ledger where job ^@ 'mark'").fetchall() == [(pids[0],)]
    assert worker.pids() == pids
    assert "Traceback" not in worker.text()
    assert "no database" not in worker.text(), "its sessions are as they were"
    assert worker.stop() == 0, worker.text()


def test_a_copy_leaves_the_transaction_of_its_task_alone(worker, rows):
    ids = [enqueue(rows, "fork_in_transaction", {"how": how}) for how in ("return", "raise", "exit")]
    until(lambda: not {status(rows, each) for each in ids} & {"pending", "running"}, "they have ended", worker.log)
    assert [status(rows, each) for each in ids] == ["success"] * len(ids), worker.text()
    assert one(rows, "select count(*) from ledger where job = 'in the transaction'") == 2 * len(ids)


def test_a_signal_to_a_child_of_a_task_ends_the_child_and_not_the_worker(worker, rows):
    task_id = enqueue(rows, "terminate_a_child")
    until(lambda: status(rows, task_id) == "success", "it ran", worker.log)
    assert one(rows, "select result::text from octop_tasks where id = %s", task_id) == "-15"
    last = enqueue(rows, "mark", {"number": 0})
    until(lambda: status(rows, last) == "success", "the worker goes on", worker.log)
    assert "stopping" not in worker.text()
