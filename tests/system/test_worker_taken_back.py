"""A task is taken from its worker by hand, and the worker lives."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.system.apps.running import enqueue, one, status, until


def notes(rows):
    return [row[0] for row in rows.execute("select job from ledger where job not like 'worker %' order by at")]


def has(rows, task_id, state):
    return status(rows, task_id) == state


def noted(rows, note):
    return note in notes(rows)


def cuts(worker):
    return worker.text().count("is no longer this worker's: cut")


@pytest.mark.slow
@pytest.mark.all_versions
def test_what_is_set_to_pending_starts_again_on_the_worker_that_ran_it_and_only_that_counts(start, rows):
    worker = start().ready()
    kinds = ("tells", "tells_in_process")
    ids = []
    for kind in reversed(
        kinds
    ):  # the one whose process must start first: on a busy machine the other would have ended by then
        ids.append(enqueue(rows, kind, {"seconds": 1.5, "note": kind}, max_retries=0))
        until(partial(noted, rows, f"{kind} begins"), "it runs", worker.log)
    assert rows.execute("update octop_tasks set status = 'pending' where status = 'running'").rowcount == 2
    until(lambda: {status(rows, each) for each in ids} == {"success"}, "they ended", worker.log)
    told = notes(rows)
    assert [each for each in told if each.startswith("tells ")] == [
        f"tells {what}" for what in ("begins", "is cut", "begins", "ends")
    ]
    assert [each for each in told if each.startswith("tells_in_process ")] == [
        f"tells_in_process {what}" for what in ("begins", "begins", "ends")
    ]
    assert rows.execute("select attempt, completed_at - started_at >= '1.5 s' from octop_tasks").fetchall() == [
        (2, True),
        (2, True),
    ], "the second start ran to its end"
    assert rows.execute("select attempt, outcome from octop_attempts").fetchall() == [(1, "released")] * 2
    assert cuts(worker) == 2


BY_HAND = {
    "cancelled": "update octop_tasks set status = 'cancelled' where id = %s",
    "failed": "update octop_tasks set status = 'failed', scheduled_at = now() + '1 h' where id = %s",
    "deleted": "delete from octop_tasks where id = %s",
}


@pytest.mark.slow
@pytest.mark.all_versions
@pytest.mark.long
def test_what_is_ended_by_hand_ends_in_its_worker_too_and_makes_room(start, rows):
    worker = start(queues={"q": 1}).ready()
    cases = [("tells", act) for act in BY_HAND] + [("tells_in_process", "cancelled"), ("watchful", "cancelled")]
    for count, (kind, act) in enumerate(cases, start=1):
        note = f"{kind} {act}"
        task_id = enqueue(rows, kind, {"seconds": 60} if kind == "watchful" else {"seconds": 60, "note": note})
        until(partial(has, rows, task_id, "running"), "it runs", worker.log)
        if kind != "watchful":
            until(partial(noted, rows, f"{note} begins"), "it has begun", worker.log)
        assert rows.execute(BY_HAND[act], (task_id,)).rowcount == 1
        after = enqueue(rows, "noop")
        until(partial(has, rows, after, "success"), "the place is free", worker.log)
        assert status(rows, task_id) == (None if act == "deleted" else act)
        assert cuts(worker) == count
    told = [f"tells {act} {what}" for act in BY_HAND for what in ("begins", "is cut")]
    assert notes(rows) == [*told, "tells_in_process cancelled begins"]
    killed = one(rows, "select pid from ledger where job = 'tells_in_process cancelled begins'")
    until(lambda: not Path(f"/proc/{killed}").exists(), "the process was killed", worker.log)
    assert one(rows, "select count(*) from octop_attempts where outcome not in ('cancelled', 'released')") == 0


def test_a_start_waits_for_rows_that_an_open_transaction_holds_says_so_and_goes_on(database, start, rows):
    with database.connect() as other:
        with other.transaction(force_rollback=True):
            # what the worker is about to write, and nobody has committed
            other.execute("insert into octop_task_types (name) values ('tests.system.apps.everyday.noop'), ('noop')")
            worker = start()
            until(lambda: "octop_register waits" in worker.text(), "it says why it waits", worker.log)
            impatient = start()
            until(lambda: "octop_register waits" in impatient.text(), "the other says so too", impatient.log)
            assert impatient.stop() == 0
            assert one(rows, "select count(*) from octop_workers") == 0
        worker.ready()
    task_id = enqueue(rows, "noop")
    until(lambda: status(rows, task_id) == "success", "it works", worker.log)
    assert one(rows, "select count(*) from octop_workers") == 1, "no try has left anything behind"
    assert worker.text().count("octop_register waits for a lock") == 1
    assert 'another transaction, not ended yet, has changed the task type "' in worker.text()
    assert "no database" not in worker.text()
