"""`octop doctor` about workers, queues and tasks: each finding is provoked, and gone after the very command that it names."""

from __future__ import annotations

from tests.servers import HOUSE
from tests.sql.crew import add, add_many, ages, do, value
from tests.system.provoked import provokes


@provokes("workers.silent")
def test_a_silent_worker_loses_what_it_holds(doctor, database, hire):
    worker = hire()
    with database.connect() as connection:
        add(connection)
        worker.claim(1)
        ages(connection, 31, worker.id)
    finding = doctor.heals("workers.silent")
    assert "has been silent for 31" in finding["what"]
    assert finding["what"].endswith("and holds 1 task")
    assert doctor.findings("--only", "workers", "--strict", code=0) == []


@provokes("workers.left_behind")
def test_a_worker_that_left_nothing_behind_is_only_worth_knowing(doctor, database, hire):
    with database.connect() as connection:
        ages(connection, 31, hire().id)
    doctor.heals("workers.left_behind")


@provokes("workers.older_than_schema", "workers.mixed_versions")
def test_workers_of_other_versions(doctor, database, hire):
    old, new = hire(), hire()
    with database.connect() as connection:
        do(connection, "update octop_workers set version = '0.1.0' where id = %s", new.id)
        do(connection, "update octop_migrations set version = '0.1.0' where name = 'functions'")
        do(connection, "update octop_workers set version = '0.0.9' where id = %s", old.id)
        finding = doctor.one("workers.older_than_schema")
        (drain,) = [step["run"] for step in finding["cure"] if step["in"] == "psql"]
        database.psql(drain)
        assert value(connection, "select draining from octop_workers where id = %s", old.id)
        do(connection, "select octop_deregister(%s)", old.id)  # what a worker does that has ended its tasks
        assert doctor.findings("--only", "workers", code=0) == []
        hire()
        do(connection, "update octop_workers set version = '0.2.0' where version <> '0.1.0'")
    assert doctor.one("workers.mixed_versions")["what"] == "living workers run 0.1.0, 0.2.0"


@provokes("queues.unserved")
def test_a_queue_that_nobody_serves_gets_its_worker(doctor, database, monkeypatch):
    with database.connect() as connection:
        add(connection, "noop", queue="mail")
    assert "-A MODULE:ATTRIBUTE -q mail" in doctor.one("queues.unserved")["cure"][0]["run"]
    monkeypatch.setenv("OCTOP_APP", "tests.system.apps.everyday:octop")
    monkeypatch.chdir(HOUSE)
    finding = doctor.one("queues.unserved")
    assert finding["what"].startswith("1 tasks of the queue mail are due")
    finding["cure"][0]["run"] += " --drain"
    doctor.cure(finding)
    assert doctor.findings("--only", "queues.unserved", code=0) == []


def test_many_queues_that_nobody_serves_are_one_finding(doctor, database, hire):
    with database.connect() as connection:
        do(connection, "insert into octop_tasks (task_type, queue) select 't', 'q' || i from generate_series(1, 15) i")
        finding = doctor.one("queues.unserved")
        assert finding["what"] == "15 queues hold due tasks and nobody serves them"
        assert len(finding["detail"]) == 11
        assert finding["detail"][-1] == "and 5 more"
        assert len(finding["cure"][0]["run"].split()[-1].split(",")) == 15
        hire(queues=[f"q{number}" for number in range(1, 15)])
        connection.execute("select octop_drain(%s)", [hire(queues=["q15"]).id])
        assert doctor.one("queues.unserved")["what"].startswith("1 tasks of the queue q15 are due")
        connection.execute("select octop_pause('q15')")
        assert doctor.findings("--only", "queues.unserved", code=0) == []


@provokes("queues.stopped")
def test_a_queue_that_its_limit_stops_is_set_free(doctor, database):
    with database.connect() as connection:
        connection.execute("select octop_scale('mail', 0), octop_scale('idle', 0), octop_scale('slow', 1)")
        for queue in ("mail", "mail", "slow"):
            add(connection, "noop", queue=queue)
        add(connection, "noop", queue="idle", delay_seconds=3600)
        finding = doctor.heals("queues.stopped")
        assert finding["what"].startswith("2 tasks of the queue mail are due, the oldest since")
        assert finding["what"].endswith("and its limit is 0")
        assert value(connection, "select worker_limit from octop_queues where name = 'idle'") == 0
        connection.execute("select octop_scale('mail', 0), octop_pause('mail')")
        assert doctor.findings("--only", "queues.stopped", "--strict", code=0) == []


@provokes("queues.stuck")
def test_a_queue_that_stands_still_though_it_is_served(doctor, database, hire):
    database.clock.advance(0)
    worker = hire(queues=["default", "other"])
    with database.connect() as connection:
        add(connection, queue="other")
        worker.claim_one()  # it takes its only place
        for _ in range(2):
            add(connection)
        database.clock.advance(59)
        worker.beat()
        add(connection)
        assert doctor.findings("--only", "queues", "--strict", code=0) == [], "not for long yet"
        database.clock.advance(2)
        finding = doctor.one("queues.stuck")
        assert finding["what"] == (
            "2 tasks of the queue default are due, the oldest since 1m 1s, and none of them runs,"
            " in spite of living workers: 1, which run 1 task of other queues"
        )
        assert finding["count"] == 2
        assert "health probe" in finding["hint"]
        doctor.cure(finding)
        for still, again in (
            ("select octop_pause('default')", "select octop_resume('default')"),
            ("select octop_scale('default', 0)", "select octop_scale('default', null)"),
        ):
            connection.execute(still)
            assert "queues.stuck" not in {each["id"] for each in doctor.findings("--only", "queues", code=0)}
            connection.execute(again)
        doctor.one("queues.stuck")
        worker.claim_one()
        assert doctor.findings("--only", "queues", "--strict", code=0) == [], "one of them runs"


@provokes("tasks.overdue")
def test_a_task_that_nobody_ends_at_its_time_limit_is_ended(doctor, database, hire):
    database.clock.advance(0)
    worker = hire()
    with database.connect() as connection:
        late, other = add(connection, timeout_seconds=30.0), add(connection, timeout_seconds=3600.0)
        worker.claim(2)
        database.clock.advance(30 + 10 + 59)  # time limit, grace time, and what a sweep may take
        assert doctor.findings("--only", "tasks", "--strict", code=0) == []
        database.clock.advance(2)
        finding = doctor.heals("tasks.overdue")
        assert finding["what"] == "running past the time limit, and ended by nobody: 1 task, the longest for 1m 11s"
        assert (finding["count"], finding["ids"]) == (1, [late])
        states = dict(connection.execute("select id::text, status from octop_tasks").fetchall())
        assert states == {late: "failed", other: "running"}


@provokes("tasks.orphaned")
def test_running_tasks_that_no_worker_runs_are_found_a_judge(doctor, database, hire):
    database.clock.advance(0)
    worker = hire()
    with database.connect() as connection:
        for _ in range(3):
            add(connection, timeout_seconds=3600.0)
        ids = [each.id for each in worker.claim(2)]
        do(connection, "update octop_tasks_live set worker_id = null where id = %s", ids[0])
        hire().claim_one()
        do(connection, "delete from octop_workers where id = %s", worker.id)
        assert doctor.findings("--only", "tasks", "--strict", code=0) == [], "a sweep may come"
        database.clock.advance(61)
        finding = doctor.heals("tasks.orphaned")
        assert finding["what"] == "running on no worker that is known: 2 tasks, the longest for 1m 1s"
        assert sorted(finding["ids"]) == sorted(ids)
        assert finding["count"] == 2


@provokes("types.unknown")
def test_c124_parked_tasks_of_a_type_that_nobody_knows_get_their_worker(doctor, database, hire):
    worker = hire(types=["known"])
    with database.connect() as connection:
        for _ in range(3):
            add(connection, "unheard_of")
        assert worker.claim(5) == []
        finding = doctor.one("types.unknown")
        assert finding["what"] == (
            "parked in the queue default: 3 of the type unheard_of, none of its living workers (1) knows it"
        )
        hire(types=["unheard_of"])
        assert doctor.findings("--only", "types", code=0) == []
        assert value(connection, "select count(*) from octop_tasks where status = 'pending'") == 3


@provokes("queues.paused", "types.frozen")
def test_forgotten_pauses_and_freezes_are_lifted(doctor, database):
    with database.connect() as connection:
        connection.execute("select octop_pause('mail', 'the provider is down'), octop_freeze('send')")
        assert doctor.findings("--only", "queues,types", "--strict", code=0) == []
        do(connection, "update octop_holds set created_at = now() - interval '25 hours'")
    finding = doctor.heals("queues.paused")
    assert "is paused for 1d 1h, by octop: the provider is down" in finding["what"]
    doctor.heals("types.frozen")


@provokes("tasks.frozen")
def test_frozen_tasks_are_counted(doctor, database, hire):
    worker = hire()
    with database.connect() as connection:
        add(connection, "t", max_retries=0)
        worker.end(worker.claim_one(), error_class="ValueError", error_message="no")
    finding = doctor.one("tasks.frozen")
    assert finding["what"].startswith("1 frozen tasks, the commonest type is t,")
    assert [step["run"] for step in finding["cure"]] == [
        "octop failures status:frozen",
        "octop tasks retry status:frozen",
    ]
    finding["cure"][1]["run"] += " --yes"
    doctor.cure(finding)
    assert doctor.findings("--only", "tasks", "--strict", code=0) == []


@provokes("tasks.counters_drifted")
def test_counters_that_drifted_are_counted_anew(doctor, database, hire):
    worker = hire()
    with database.connect() as connection:
        add_many(connection, 6)
        worker.succeed(*worker.claim(2))
        assert doctor.findings("--only", "tasks", "--strict", code=0) == []
        do(
            connection,
            "insert into _octop_counter_deltas (tenant, queue, status, day, n) values ('', 'default', 'waiting', '-infinity', 5)",
        )
        do(connection, "delete from _octop_counter_deltas where status = 'success'")
        do(connection, "delete from _octop_counters where status = 'success'")
    finding = doctor.heals("tasks.counters_drifted")
    assert finding["what"] == "the counters say waiting 9 instead of 4, success 0 instead of 2"
