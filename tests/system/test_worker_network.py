"""Between a worker and its database: connections that look fine and lead nowhere, and a pooler."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.system.apps import everyday
from tests.system.apps.running import enqueue, one, status, until
from tests.system.faults.pooler import PREPARES_SINCE, Pooler, program, version
from tests.system.faults.proxy import LOOPBACK, Proxy

USER = "octop"
IMPATIENT = "tests.system.apps.impatient:octop"
PAYING = "tests.system.apps.paying:octop"
LISTEN, HEART, EXCHANGE = (f"octop worker {purpose}" for purpose in ("listen", "heart", "exchange"))
EVERYTHING = "octop worker"


# --- half-open connections --------------------------------------------------------------------------------------------


def socket_of(database):
    running = database.server.running
    return running.socket_directory / f".s.PGSQL.{running.port}"


@pytest.fixture
def network(database):
    """Stand between a worker and the database."""
    with Proxy(socket_of(database)) as proxy:
        yield proxy


@pytest.fixture
def start_behind(network, start, database):
    """Start a worker behind it, one that does not wait long for an answer."""
    dsn = f"postgresql://{USER}@{LOOPBACK}:{network.port}/{database.name}?sslmode=disable&gssencmode=disable"
    return lambda **options: start(**{"dsn": dsn, "application": IMPATIENT, "grace_seconds": 1, **options})


def configure(rows, **seconds):
    with rows.transaction():
        for key, value in seconds.items():
            rows.execute("select octop_config_set(%s, %s::jsonb)", (key.replace("__", "."), json.dumps(value)))


def sessions(rows, purpose):
    """List the sessions of a purpose, the oldest first."""
    found = rows.execute(
        "select pid from pg_stat_activity where application_name = %s and datname = current_database() order by backend_start",
        (purpose,),
    )
    return [row[0] for row in found]


def sleeps_listening(rows):
    """Tell whether a worker listens and sleeps: what comes now wakes it by a notification, or not at all."""
    found = "select count(*) from pg_stat_activity where application_name = %s and datname = current_database() and query ilike 'listen%%'"
    return (
        one(rows, found, LISTEN) == 1 and one(rows, "select count(*) from _octop_sleepers where wake_at > now()") == 1
    )


def attempt(rows, task_id):
    return one(rows, "select attempt from octop_tasks where id = %s", task_id)


def test_c065_while_listening_leads_nowhere_a_worker_polls(start_behind, rows, network):
    configure(rows, scheduler__interval_seconds=1)
    worker = start_behind().ready()
    until(lambda: sleeps_listening(rows), "it listens, and sleeps", worker.log)
    with network.hole(LISTEN, reset=True):
        task_id = enqueue(rows, "noop")
        until(lambda: status(rows, task_id) == "success", "it was found", worker.log, seconds=8)
        assert worker.stop() == 0, worker.text()


def test_c065_a_half_open_listener_notices_and_is_replaced(start_behind, rows, network):
    configure(rows, scheduler__interval_seconds=3600)  # who does not listen finds nothing
    worker = start_behind().ready()
    until(lambda: sleeps_listening(rows), "it listens, and sleeps", worker.log)
    (before,) = sessions(rows, LISTEN)
    with network.half_open(LISTEN):
        unheard = enqueue(rows, "noop")
        until(lambda: status(rows, unheard) == "success", "whoever hears nothing has looked", worker.log)
        until(lambda: set(sessions(rows, LISTEN)) - {before}, "another listens", worker.log)
        heard = enqueue(rows, "noop")
        until(lambda: status(rows, heard) == "success", "the new listener hears", worker.log)
        assert worker.stop() == 0, worker.text()


@pytest.mark.long
def test_c065_a_half_open_heartbeat_is_replaced_before_the_lease_is_over(start, start_behind, rows, network):
    configure(rows, worker__lease_seconds=4)
    judge = start(queues={"other": 1}).ready()
    worker = start_behind().ready()
    task_id = enqueue(rows, "nap", {"seconds": 5, "note": "nap"})
    until(lambda: status(rows, task_id) == "running", "it runs", worker.log)
    (before,) = sessions(rows, HEART)[1:]
    with network.half_open(HEART):
        until(lambda: status(rows, task_id) == "success", "it has ended", worker.log)
        assert [pid for pid in sessions(rows, HEART)[1:] if pid != before]
        assert attempt(rows, task_id) == 1
        assert one(rows, "select count(*) from octop_attempts") == 0, "nobody took it away"
        assert one(rows, "select count(*) from ledger where job = 'nap'") == 1
        assert worker.stop() == 0, worker.text()
    assert judge.process.poll() is None


def test_c065_whose_heartbeat_leads_nowhere_loses_its_tasks_to_others_and_stops_them(
    start, start_behind, rows, network
):
    worker = start_behind().ready()
    task_id = enqueue(rows, "tells", {"seconds": 20, "note": "it"}, max_retries=3)
    until(lambda: one(rows, "select count(*) from ledger where job = 'it begins'") == 1, "it runs", worker.log)
    with network.hole(HEART, reset=True):
        other = start().ready()
        until(lambda: one(rows, "select count(*) from ledger where job = 'it begins'") == 2, "again", other.log)
        until(lambda: one(rows, "select count(*) from ledger where job = 'it is cut'") == 1, "once only", worker.log)
        assert one(rows, "select outcome from octop_attempts where task_id = %s", task_id) == "lost"
        assert worker.stop() == 0, worker.text()
    assert other.process.poll() is None


@pytest.mark.parametrize("what", ["claim", "outcome"])
def test_c065_a_half_open_exchange_is_replaced_and_repeats_what_it_carried(start_behind, rows, network, what):
    worker = start_behind().ready()
    if what == "claim":
        until(lambda: sleeps_listening(rows), "it listens, and sleeps", worker.log)
        first = enqueue(rows, "noop")
        until(lambda: status(rows, first) == "success", "it has exchanged", worker.log)
    else:
        first = enqueue(rows, "nap", {"seconds": 1, "note": "nap"})
        until(lambda: one(rows, "select count(*) from ledger where job = 'nap'") == 1, "it runs", worker.log)
    with network.half_open(EXCHANGE):
        task_id = enqueue(rows, "noop") if what == "claim" else first
        until(lambda: status(rows, task_id) == "success", "it has ended", worker.log)
        assert attempt(rows, task_id) == 1
        assert one(rows, "select count(*) from octop_attempts") == 0, "it was not taken away"
        assert one(rows, "select count(*) from ledger where job = 'nap'") == (what == "outcome"), "nor begun twice"
        assert worker.stop() == 0, worker.text()


STOP_SECONDS_MAX = 20.0
"""One of grace, one to unwind, up to twelve to hand in (who can not is killed then), two to say goodbye, and a busy machine."""


@pytest.mark.parametrize(
    "purpose",
    [
        LISTEN,
        HEART,
        EXCHANGE,
        pytest.param(EVERYTHING, marks=pytest.mark.slow),
    ],
)
def test_c065_sigterm_ends_a_worker_in_time_whose_connections_lead_nowhere(start_behind, rows, network, purpose):
    worker = start_behind().ready()
    task_id = enqueue(rows, "nap", {"seconds": 60, "note": "nap"}, max_retries=3)
    until(lambda: one(rows, "select count(*) from ledger where job = 'nap'") == 1, "it runs", worker.log)
    with network.hole(purpose, reset=True):
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait(STOP_SECONDS_MAX) == 0, worker.text()
    # what the worker can not hand in its supervisor gives back; where that can not speak either, the lease covers it
    assert status(rows, task_id) == ("running" if purpose == EVERYTHING else "pending")
    assert one(rows, "select retry_count from octop_tasks where id = %s", task_id) == 0, "a stop uses up no try"


# --- pgbouncer in transaction mode ------------------------------------------------------------------------------------


POOLER = program()
PREPARED = [0, 100] if POOLER is not None and version(POOLER) >= PREPARES_SINCE else [0]
"""For how many prepared statements of a connection the pooler keeps their names; the packaged one may know of none."""


@pytest.fixture(params=PREPARED, ids=lambda prepared: f"{prepared} prepared")
def pooled(request, database):
    """Put a pooler before the database, with fewer connections than a worker has; return the DSN of what is behind it."""
    if POOLER is None:
        pytest.skip("there is no pgbouncer on this machine")
    with Pooler(socket_of(database), USER, database=database.name, pool_size=3, prepared_max=request.param) as pooler:
        port = pooler.socket.suffix[1:]
        yield f"postgresql:///{database.name}?host={pooler.folder}&port={port}&user={USER}"


ENDS: dict[str, dict[str, Any]] = {
    "noop": {},
    "nap": {"seconds": 0.1},
    "nap_in_thread": {"seconds": 0.1},
    "nap_in_process": {"seconds": 0.1},
    "always_fails": {},
    "raise_in_thread": {"which": "words"},
    "bad_result": {"which": "nul"},
}
FAILS = ("always_fails", "raise_in_thread", "bad_result")
TIMES = 8
"""More often than psycopg runs a statement before it prepares it by name."""


def test_c067_everyday_work_goes_through_a_pooler_and_the_worker_says_what_it_can_not_hear(
    start, rows, octop, pooled, monkeypatch
):
    monkeypatch.setenv("OCTOP_DSN", pooled)
    configure(rows, scheduler__interval_seconds=0.5)
    worker = start(dsn=pooled).ready()
    with everyday.octop.pointed_at(pooled, "public"):
        ids = {
            name: [str(getattr(everyday, name).enqueue_sync(**arguments).id) for _ in range(TIMES)]
            for name, arguments in ENDS.items()
        }
        watched = str(everyday.watchful.enqueue_sync(60).id)
    unfinished = "select count(*) from octop_tasks where status not in ('success', 'frozen')"
    until(lambda: one(rows, unfinished) == 1, "all but one have ended", worker.log)
    for name, of_it in ids.items():
        assert {status(rows, each) for each in of_it} == {"frozen" if name in FAILS else "success"}, name
    until(lambda: status(rows, watched) == "running", "it runs", worker.log)
    octop("tasks", "cancel", watched, "--yes")
    until(lambda: status(rows, watched) == "cancelled", "a running task is cancelled", worker.log)
    octop("queues", "pause", "q")
    held = octop("enqueue", "noop", "--queue", "q").strip()
    later = "select count(*) from octop_workers where beat_at > (select created_at from octop_tasks where id = %s) + interval '1 s'"
    until(lambda: one(rows, later, held), "it has had the time to look", worker.log)
    assert status(rows, held) != "success", "a pause holds"
    until(lambda: "notifications do not arrive" in worker.text(), "it says so", worker.log)
    octop("queues", "resume", "q")
    until(lambda: status(rows, held) == "success", "it goes on", worker.log)
    assert worker.stop() == 0, worker.text()
    text = worker.text()
    assert "prepared statement" not in text
    assert "Traceback" not in text
    assert one(rows, "select count(*) from octop_workers") == 0, "it has left in order"


def test_c067_transactional_tasks_go_through_a_pooler(start, rows, pooled):
    rows.execute("create table payments (job text, attempt int); create table deaths (step text)")
    rows.execute("insert into deaths values ('paid'), ('success written, not committed')")
    worker = start(application=PAYING, dsn=pooled, queues={"q": 2}, listen=False).ready()
    jobs = [str(number) for number in range(TIMES)]
    for job in jobs:
        enqueue(rows, "pay" if int(job) % 2 else "pay_in_thread", {"job": job})
    until(lambda: one(rows, "select count(*) from octop_tasks where status = 'success'") == TIMES, "all", worker.log)
    paid = rows.execute("select job, count(*) from payments group by job order by job").fetchall()
    assert paid == [(job, 1) for job in jobs], "each once, also those whose process was killed on the way"
    assert one(rows, "select count(*) from deaths") == 0
    assert one(rows, "select count(*) from octop_tasks where queue = 'receipts'") == TIMES
    assert worker.stop() == 0, worker.text()
