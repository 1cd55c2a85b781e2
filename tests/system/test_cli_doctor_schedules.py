"""`octop doctor` about schedules: each finding is provoked, and gone after the very command that it names."""

from __future__ import annotations

from tests.sql.crew import do
from tests.system.provoked import provokes


def overdue(connection, name):
    do(connection, "insert into octop_schedules (name, rule, task_type) values (%s, '@hourly', 'noop')", name)
    do(connection, "update octop_schedules set next_slot = next_slot - interval '2 hours' where name = %s", name)


@provokes("schedules.unfired")
def test_slots_that_nobody_fires_though_workers_live(doctor, database, hire):
    hire()
    with database.connect() as connection:
        overdue(connection, "report")
    finding = doctor.heals("schedules.unfired")
    assert finding["what"].startswith("1 schedule should have fired, the first 1h")
    assert finding["what"].endswith("ago: report")


@provokes("schedules.no_worker")
def test_slots_that_nobody_fires_because_no_worker_lives(doctor, database):
    with database.connect() as connection:
        overdue(connection, "report")
        do(connection, "insert into octop_schedules (name, rule, task_type) values ('other', '@hourly', 'noop')")
    finding = doctor.one("schedules.no_worker")
    assert "octop worker -A MODULE:ATTRIBUTE" in finding["cure"][0]["run"]
    (tick,) = [step["run"] for step in finding["cure"] if step["in"] == "psql"]
    database.psql(tick)
    assert doctor.findings("--only", "schedules", code=0) == []


@provokes("schedules.failing")
def test_a_schedule_whose_last_slot_made_no_task(doctor, database):
    with database.connect() as connection:
        do(connection, "insert into octop_schedules (name, rule, task_type) values ('report', '@hourly', 'noop')")
        do(connection, "update octop_schedules set last_error = 'the payload is too large'")
    finding = doctor.one("schedules.failing")
    assert finding["what"] == "the last slot of the schedule report made no task: the payload is too large"
    assert finding["cure"][0]["run"] == "octop schedules show report"
    with database.connect() as connection:
        do(connection, "select octop_pause_schedule('report', 'later')")
    assert doctor.findings("--only", "schedules", code=0) == []
