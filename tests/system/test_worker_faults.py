"""What goes wrong inside tasks and processes, and what must not follow from it."""

from __future__ import annotations

import functools
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.system.apps.running import enqueue, one, status, until


def counts(rows, job):
    return one(rows, "select count(*) from ledger where job = %s", job)


def jobs_of(rows, task_id, what):
    return [row[0] for row in rows.execute("select job from ledger where job like %s", (f"{what} % of {task_id}",))]


@pytest.mark.slow
@pytest.mark.all_versions
@pytest.mark.long
def test_an_async_endless_loop_ends_at_its_limit_is_frozen_and_the_worker_goes_on(start, rows):
    worker = start().ready()
    first = worker.pids()
    task_id = enqueue(rows, "endless", timeout_seconds=1)
    neighbour = enqueue(rows, "nap", {"seconds": 0.5})
    until(lambda: status(rows, task_id) == "frozen", "it is frozen", worker.log, seconds=40)
    assert counts(rows, "endless") == 3, "max_retries + 1 starts"
    until(lambda: status(rows, neighbour) == "success", "its neighbour ended", worker.log)
    assert one(rows, "select retry_count from octop_tasks where id = %s", neighbour) <= 1
    assert f"is blocked for good by the task endless {task_id}: killed" in worker.text()
    last = enqueue(rows, "noop")
    until(lambda: status(rows, last) == "success", "the worker goes on", worker.log)
    assert worker.pids() != first
    assert worker.text().count("blocked for good") == 1, "the second start is in a process of its own"


def test_a_task_that_holds_the_interpreters_lock_is_ended_too(start, rows):
    worker = start(silent_seconds=3).ready()
    task_id = enqueue(rows, "holds_the_lock", {"seconds": 300}, timeout_seconds=1, max_retries=0)
    until(lambda: counts(rows, "lock") == 1, "it began", worker.log)
    last = enqueue(rows, "noop")
    until(lambda: status(rows, task_id) == "frozen", "it is frozen", worker.log, seconds=50)
    until(lambda: status(rows, last) == "success", "the worker goes on", worker.log)
    assert "keeps even the interpreter's other threads from running" in worker.text()


@pytest.mark.slow
@pytest.mark.long
def test_c052_code_that_computes_without_a_pause_keeps_its_tasks_beyond_many_leases(start, rows):
    # each process gets two at once: a thread that computes, and then a loop that does nothing else any more
    worker = start(queues={"q": 2}, processes=3)
    until(lambda: len(worker.pids()) == 3, "all processes are there", worker.log)
    with rows.transaction():
        for kind in ("python", "power", "pattern"):
            for place in ("in_thread", "on_loop"):
                enqueue(rows, f"burns_{place}", {"kind": kind, "seconds": 3.2})
    ended = "select count(*) from octop_tasks where status = 'success'"
    until(lambda: one(rows, ended) == 6, "all have ended", worker.log, seconds=60)
    begun = "select count(*) from ledger where job !~ '^worker'"
    assert one(rows, begun) == 6, "none began twice"
    assert one(rows, "select count(*) from octop_attempts") == 0
    assert one(rows, "select max(completed_at - started_at) > interval '1.5 s' * 2 from octop_tasks"), (
        "two leases and more"
    )


def test_what_a_dead_process_ran_is_given_back_at_once_whatever_the_lease(start, rows):
    for key, value in (("lease_seconds", 60), ("heartbeat_seconds", 10)):
        rows.execute("select octop_config_set('worker.' || %s, to_jsonb(%s::int))", (key, value))
    worker = start().ready()
    task_id = enqueue(rows, "nap", {"seconds": 1, "note": "n"})
    until(lambda: counts(rows, "n") == 1, "it runs", worker.log)
    os.kill(worker.pids()[0], signal.SIGKILL)
    until(lambda: status(rows, task_id) == "success", "it ran again", worker.log)
    assert counts(rows, "n") == 2
    assert one(rows, "select retry_count from octop_tasks where id = %s", task_id) == 1
    assert one(rows, "select count(*) from octop_workers") == 1
    assert "gave back 1 task of the dead process" in worker.text()


@pytest.mark.parametrize("place", ["on_loop", "in_thread", "in_process"])
def test_c123_what_a_decoder_raises_is_the_stored_error_and_the_worker_stays_up(start, rows, place):
    worker = start().ready()
    pids = worker.pids()
    kinds = {"ImportError": "ModuleNotFoundError", "SystemExit": "SystemExit", "RuntimeError": "RuntimeError"}
    ids = {kind: enqueue(rows, f"decode_{place}", {"value": {"which": kind}}) for kind in kinds}
    until(lambda: {status(rows, task_id) for task_id in ids.values()} == {"frozen"}, "all failed", worker.log)
    for kind, name in kinds.items():
        stored, message = rows.execute(
            "select error_class, error_message from octop_attempts where task_id = %s", (ids[kind],)
        ).fetchone()
        assert name in f"{stored} {message}", (stored, message)
    assert "no_such_library" in one(
        rows, "select error_message from octop_attempts where task_id = %s", ids["ImportError"]
    )
    assert worker.pids() == pids
    last = enqueue(rows, "noop")
    until(lambda: status(rows, last) == "success", "the next task runs", worker.log)


@pytest.mark.all_versions
def test_c013_the_final_hook_is_called_once_with_the_last_attempt(start, rows):
    worker = start().ready()
    ids = {tries: enqueue(rows, "always_fails", max_retries=tries - 1) for tries in (1, 2, 3)}
    until(lambda: {status(rows, task_id) for task_id in ids.values()} == {"frozen"}, "all froze", worker.log)
    for tries, task_id in ids.items():
        said = functools.partial(jobs_of, rows, task_id)
        until(functools.partial(said, "gave up"), "the hook was called", worker.log)
        assert sorted(said("start")) == [f"start {n} of {task_id}" for n in range(1, tries + 1)]
        assert sorted(said("retry")) == [f"retry {n} of {task_id}" for n in range(1, tries)]
        assert said("gave up") == [f"gave up {tries} of {task_id}"]
        assert one(rows, "select attempt from octop_tasks where id = %s", task_id) == tries
        assert one(rows, "select count(*) from octop_attempts where task_id = %s", task_id) == tries


@pytest.mark.slow
@pytest.mark.all_versions
@pytest.mark.long
def test_c004_a_job_of_many_leases_starts_once_beside_idle_workers(start, rows):
    first = start().ready()
    ids = [enqueue(rows, "nap", {"seconds": 8, "note": "long"}), enqueue(rows, "short", {"seconds": 8, "note": "long"})]
    until(lambda: counts(rows, "long") == 2, "they run", first.log)
    idle = [start(), start()]
    for worker in idle:
        worker.ready()
    until(lambda: {status(rows, task_id) for task_id in ids} == {"success"}, "they ended", first.log)
    assert counts(rows, "long") == 2, "8 s are more than five leases of 1.5 s"
    assert one(rows, "select max(attempt) from octop_tasks") == 1


def test_c009_a_restart_under_the_same_name_does_not_vouch_for_the_tasks_of_the_old_one(start, rows):
    old = start(name="web-1").ready()
    orphan = enqueue(rows, "nap", {"seconds": 3, "note": "orphan"})
    until(lambda: counts(rows, "orphan") == 1, "it runs", old.log)
    pids = [old.process.pid, *old.pids()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    new = start(name="web-1")
    others = [enqueue(rows, "short", {"seconds": 0.05, "note": "flow"}) for _ in range(60)]
    until(lambda: counts(rows, "orphan") == 2, "it runs again", new.log)
    until(lambda: status(rows, orphan) == "success", "it ended", new.log)
    until(lambda: {status(rows, task_id) for task_id in others} == {"success"}, "work flowed", new.log)
    assert one(rows, "select count(distinct name) from octop_workers") == 1


def test_c120_an_enqueue_without_a_key_waits_for_nobody(database, start):
    given = "01890000-0000-7000-8000-000000000001"
    with database.connect() as first, first.transaction():
        first.execute("select octop_enqueue('noop', queue => 'q', id => %s::uuid)", (given,))

        def keyed(_):
            with database.connect() as other:
                other.execute("set lock_timeout = '3s'")
                try:
                    other.execute("select octop_enqueue('noop', queue => 'q', id => %s::uuid)", (given,))
                except Exception as error:
                    return type(error).__name__
            return "enqueued"

        def plain(_):
            with database.connect() as other:
                other.execute("set lock_timeout = '1s'")  # the keyed ones wait for three
                other.execute("select octop_enqueue('noop', queue => 'q')")

        with ThreadPoolExecutor(16) as pool:
            waiting = [pool.submit(keyed, n) for n in range(8)]
            list(pool.map(plain, range(50)))
        assert {each.result() for each in waiting} <= {"LockNotAvailable", "enqueued"}
        assert "LockNotAvailable" in {each.result() for each in waiting}
    with database.connect() as last:
        assert one(last, "select count(*) from octop_tasks where id = %s", given) == 1


@pytest.mark.slow
@pytest.mark.long
def test_c001_no_task_is_lost_however_workers_are_killed(start, rows):
    chance = random.Random(20)
    workers = [start(queues={"q": 3}).ready() for _ in range(2)]
    ids = [enqueue(rows, "short", {"seconds": 0.03, "note": f"job {n}"}) for n in range(100)]
    end = time.monotonic() + 10
    while time.monotonic() < end:
        victim = chance.randrange(len(workers))
        worker = workers[victim]
        for pid in worker.pids()[-1:] if chance.random() < 0.5 else [worker.process.pid]:
            number = chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGQUIT])
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        if worker.process.poll() is not None:
            workers[victim] = start(queues={"q": 3})
        ids += [enqueue(rows, "short", {"seconds": 0.03, "note": f"job {len(ids) + n}"}) for n in range(5)]
        time.sleep(0.5)
    last = start(queues={"q": 3})
    ended = functools.partial(
        one,
        rows,
        "select count(*) from octop_tasks where id = any (%s::text[]::uuid[]) and status in ('success', 'frozen')",
        ids,
    )
    until(lambda: ended() == len(ids), "all have ended", last.log, seconds=40)
    assert one(rows, "select count(*) from octop_tasks where status not in ('success', 'frozen')") == 0
    assert one(rows, "select count(distinct job) from ledger where job like 'job %%'") == len(ids)


@pytest.mark.slow
def test_c048_a_task_that_ends_its_process_without_a_word_fails_in_time_and_the_queue_moves_on(start, rows):
    worker = start().ready()
    ids = [enqueue(rows, f"raise_{place}", {"which": "os._exit"}) for place in ("on_loop", "in_thread", "in_process")]
    until(lambda: {status(rows, each) for each in ids} == {"frozen"}, "all have ended", worker.log)
    for task_id in ids:
        found = rows.execute("select attempt, outcome from octop_attempts where task_id = %s", (task_id,)).fetchall()
        assert len(found) == 1, found
        assert found[0][1] in {"lost", "failure"}, found
    last = enqueue(rows, "noop")
    until(lambda: status(rows, last) == "success", "the queue moves on", worker.log)
    assert worker.stop() == 0, worker.text()


LEFT_OPEN = """
select application_name, state, query from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and state ^@ 'idle in transaction'
   and state_change < clock_timestamp() - interval '0.25 seconds'
"""


@pytest.mark.slow
def test_c062_no_session_of_a_worker_is_idle_in_a_transaction_while_its_tasks_run(start, rows, database):
    rows.execute(f"alter database {database.name} set idle_in_transaction_session_timeout = '500ms'")
    worker = start(queues={"q": 9}).ready()
    kinds = ("nap", "nap_in_thread", "nap_in_process")
    ids = [enqueue(rows, kind, {"seconds": 3}, max_retries=0) for kind in kinds for _ in range(3)]
    seen = []

    def ended():
        seen.extend(rows.execute(LEFT_OPEN).fetchall())
        return {status(rows, each) for each in ids} == {"success"}

    until(ended, "all have ended", worker.log)
    assert seen == []
    assert one(rows, "select max(attempt) from octop_tasks") == 1
    assert "idle-in-transaction" not in worker.text(), "no session was ended for it"


@pytest.mark.slow
def test_c017_a_task_that_may_not_come_back_beside_its_twin_stops_nothing_and_ends(start, rows):
    """A DBA's unique index: one waiting task of a type and user. The first one is to wait again while its twin does."""
    rows.execute(
        "create unique index octop_tasks_live_one_pending_per_note"
        " on octop_tasks_live (task_type, (payload ->> 'note')) where status = 'pending'"
    )
    worker = start(queues={"q": 4}).ready()
    first = enqueue(rows, "rests_once", {"note": "a"}, max_retries=2)
    until(lambda: counts(rows, "a") == 1, "it runs", worker.log)
    twin = enqueue(rows, "rests_once", {"note": "a"}, delay_seconds=600.0)
    others = [enqueue(rows, "noop") for _ in range(20)] + [
        enqueue(rows, "rests_once", {"note": f"b{n}"}) for n in range(3)
    ]
    rows.execute("insert into ledger (job) values ('go')")
    until(lambda: {status(rows, each) for each in others} == {"success"}, "the others went on", worker.log)
    until(lambda: status(rows, first) == "success", "it ended", worker.log)
    assert counts(rows, "a") == 2, "its rest could not be written: that was a failure, and it was tried again"
    assert status(rows, twin) == "pending"
    assert worker.text().count("octop_tasks_live_one_pending_per_note") <= 2, "and was not tried for ever"
    assert worker.stop() == 0, worker.text()


def test_c078_once_a_queue_is_paused_nothing_of_it_starts_and_what_runs_ends(start, rows):
    workers = [start(queues={"q": 8, "other": 4}) for _ in range(2)]
    for worker in workers:
        worker.ready()
    asleep = "select count(distinct worker_id) from _octop_sleepers where wake_at > now()"
    until(lambda: one(rows, asleep) == 2, "both are idle", workers[0].log)
    before = enqueue(rows, "nap", {"seconds": 2})
    until(lambda: status(rows, before) == "running", "it runs", workers[0].log)
    rows.execute("select octop_pause('q')")
    held = [enqueue(rows, "noop") for _ in range(50)]
    for _ in range(3):  # whoever runs these has looked at all his queues
        other = one(rows, "select id::text from octop_enqueue('noop', queue => 'other')")
        until(lambda: status(rows, other) == "success", "the other queue is served", workers[0].log)  # noqa: B023 - waits in here
    until(lambda: status(rows, before) == "success", "what ran ended", workers[0].log)
    assert one(rows, "select max(attempt) from octop_tasks where id = any (%s::text[]::uuid[])", held) == 0
    rows.execute("select octop_resume('q')")
    until(lambda: {status(rows, each) for each in held} == {"success"}, "all ran then", workers[0].log)


def test_what_can_not_be_asked_for_its_class_ends_like_anything_else_and_costs_no_place(start, rows):
    worker = start(queues={"q": 2}).ready()
    odd = [enqueue(rows, name) for name in ("answers_unbound", "raises_unbound") for _ in range(3)]
    last = enqueue(rows, "noop")
    until(lambda: status(rows, last) == "success", "the queue goes on", worker.log)
    until(lambda: {status(rows, each) for each in odd} == {"frozen"}, "each has its end", worker.log)


def test_a_task_that_cancels_everybody_uses_up_its_tries_and_the_others_go_on(start, rows):
    worker = start().ready()
    task_id = enqueue(rows, "cancels_everybody")
    neighbour = enqueue(rows, "noop", max_retries=1)  # one try is what a task that brings its worker down may cost it
    until(lambda: status(rows, task_id) == "frozen", "it is frozen", worker.log, seconds=40)
    assert one(rows, "select attempt from octop_tasks where id = %s", task_id) == 2
    until(lambda: status(rows, neighbour) == "success", "its neighbour ended", worker.log)


def test_a_process_that_a_task_left_behind_keeps_nobody_from_replacing_the_dead_worker(start, rows):
    worker = start().ready()
    (first,) = worker.pids()
    left = enqueue(rows, "leaves_a_process_behind", {"seconds": 60})
    until(lambda: status(rows, left) == "success", "it has forked", worker.log)
    orphan = int(one(rows, "select result from octop_tasks where id = %s", left))
    try:
        os.kill(first, signal.SIGKILL)
        # its backend may still carry out what the process sent with its last breath: a claim that costs a try
        last = enqueue(rows, "noop", max_retries=1)
        until(lambda: status(rows, last) == "success", "another has taken its place", worker.log)
        assert worker.stop() == 0
    finally:
        os.kill(orphan, signal.SIGKILL)
