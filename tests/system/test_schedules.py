"""Schedules fired by real workers: in time, whatever their tasks, queues and clocks do; declared by code, steered from Python."""

from __future__ import annotations

import asyncio
import datetime as dt
import time

import pytest

from octop import Octop
from octop.model.errors import InvalidTimeError, ScheduleNotFoundError
from tests.pooler import pgbouncer
from tests.system.apps.running import Worker, one, stopped, until
from tests.system.faults.workers import bent

APP = "tests.system.apps.scheduled:octop"
SLOTS = "select count(*) from octop_schedule_slots where status = 'fired'"
LISTENS = (
    "select count(*) from pg_stat_activity where datname = current_database()"
    " and application_name = 'octop worker listen' and query like '%%octop_schedules%%'"
)
DOUBLE = (
    "select count(*) from (select meta ->> 'schedule', meta ->> 'slot' from octop_tasks"
    " where meta ? 'slot' group by 1, 2 having count(*) > 1) x"
)
MISSED = (
    "select count(*) from (select slot, lead(slot) over (partition by schedule_id order by slot) as next"
    " from octop_schedule_slots) x where x.next - x.slot <> interval '1 second'"
)


def put(rows, name, rule="* * * * * *", task_type="noop", **columns):
    # a busy machine may be a second late, and then "last" rightly skips a slot
    every = {"catch_up": "all", "catch_up_max": 1000}
    values = {"name": name, "rule": rule, "task_type": task_type, "queue": "q", **every, **columns}
    names = ", ".join(values)
    rows.execute(
        f"insert into octop_schedules ({names}) values ({', '.join(['%s'] * len(values))})".encode(), [*values.values()]
    )


def works(worker):
    until(lambda: "serves" in worker.text(), "it works", worker.log)


def each_slot_once(rows):
    """Say that each slot made one task, no second one, and that none is missing between the first and the last."""
    assert one(rows, DOUBLE) == 0
    assert one(rows, MISSED) == 0
    assert one(rows, "select count(*) from octop_schedule_slots where status <> 'fired'") == 0
    assert one(rows, "select count(*) from octop_tasks where meta ? 'slot'") == one(rows, SLOTS)


def test_a_worker_fires_each_slot_once_and_the_task_knows_schedule_and_slot(start, rows):
    put(rows, "often", task_type="mark", payload='{"said": "{{slot.epoch}}"}')
    worker = start(application=APP, processes=2).ready()
    until(lambda: one(rows, "select count(*) from ledger") >= 3, "three slots have run", worker.log)
    for (job,) in rows.execute("select job from ledger").fetchall():
        name, day, hour, epoch = job.split(" ")
        assert name == "often"
        assert dt.datetime.fromisoformat(f"{day} {hour}").timestamp() == int(epoch)
    each_slot_once(rows)


def test_a_schedule_that_is_made_while_all_sleep_is_heard_of_at_once(start, rows):
    worker = start(application=APP).ready()
    rows.execute("select octop_config_set('scheduler.interval_seconds', '60')")
    until(lambda: one(rows, LISTENS), "it listens", worker.log)
    put(rows, "often")
    began = time.monotonic()
    until(lambda: one(rows, SLOTS), "the first slot is fired", worker.log, seconds=10)
    assert time.monotonic() - began < 5, "not after the interval"


def test_slots_are_fired_while_a_task_blocks_the_process_and_while_the_queue_is_paused(start, rows):
    worker = start(application=APP).ready()
    rows.execute("""select octop_enqueue('block', '{"seconds": 4}', queue => 'q')""")
    until(lambda: one(rows, "select count(*) from octop_tasks where status = 'running'"), "it blocks", worker.log)
    rows.execute("select octop_pause('q')")
    put(rows, "often")
    until(lambda: one(rows, SLOTS) >= 2, "slots are fired all the same", worker.log, seconds=12)
    each_slot_once(rows)
    assert one(rows, "select count(*) from octop_tasks where meta ? 'slot' and started_at is not null") == 0


def test_a_worker_in_the_users_own_process_fires_schedules_too(start, rows, database):
    app = Octop(database.url)

    @app.schedule("* * * * * *", catch_up="all")
    @app.task
    async def often() -> None: ...

    async def story():
        stop = asyncio.Event()
        working = asyncio.get_running_loop().create_task(app.worker(stop=stop, queues={"default": 2}))
        await asyncio.to_thread(until, lambda: one(rows, SLOTS) >= 2, "two slots are fired")
        stop.set()
        await working
        await app.close_async()

    asyncio.run(story())
    each_slot_once(rows)


def test_what_code_declares_follows_the_code_and_what_somebody_changed_stays(start, rows, monkeypatch):
    monkeypatch.setenv("DECLARES", "*/2 * * * * *")
    first = start(application=APP).ready()
    found = rows.execute("select name, rule, timezone, payload from octop_schedules order by name").fetchall()
    assert found == [
        ("often", "*/2 * * * * *", "UTC", {"said": "{{slot}}"}),
        ("report", "0 9 * * MON-FRI", "Asia/Kolkata", {"day": "{{slot.date}}"}),
    ]
    rows.execute("""select octop_put_schedule('report', '{"rule": "0 8 * * *"}')""")
    assert first.stop() == 0
    monkeypatch.setenv("DECLARES", "*/3 * * * * *")
    second = start(application=APP).ready()
    assert rows.execute("select rule from octop_schedules order by name").fetchall() == [
        ("*/3 * * * * *",),
        ("0 8 * * *",),
    ]
    until(lambda: "report stays as somebody has changed it" in second.text(), "it is said", second.log)


def test_a_rule_that_the_database_refuses_ends_the_start_with_the_field(start, monkeypatch):
    monkeypatch.setenv("DECLARES", "61 * * * *")
    worker = start(application=APP)
    assert worker.wait() == 2
    assert 'the minute field says "61"' in worker.text()


def test_a_worker_that_stops_fires_no_more(start, rows):
    put(rows, "often")
    rows.execute("""select octop_enqueue('nap', '{"seconds": 3}', queue => 'q')""")
    worker = start(application=APP, grace_seconds=10).ready()
    until(lambda: one(rows, SLOTS), "a slot is fired", worker.log)
    worker.process.terminate()
    until(lambda: one(rows, "select count(*) from octop_workers where draining"), "it drains", worker.log)
    before = one(rows, SLOTS)
    assert worker.wait() == 0
    assert one(rows, SLOTS) - before <= 1


@pytest.mark.slow
def test_C032_of_six_schedulers_that_stand_still_or_go_through_a_pooler_each_slot_is_fired_once(start, rows, database):
    for number in range(5):
        put(rows, f"often {number}")
    with pgbouncer(database.url) as pooled:
        workers = [
            start(application=APP, name="same", listen=number % 2 == 0, **({"dsn": pooled} if number % 2 else {}))
            for number in range(6)
        ]
        for worker in workers:
            works(worker)
        for number in range(8):
            with stopped(workers[number % 6].process.pid):
                time.sleep(0.7)
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.wait()
    assert one(rows, SLOTS) >= 5 * 5
    each_slot_once(rows)


@pytest.mark.slow
def test_clocks_of_hosts_that_are_hours_off_change_nothing(start, rows, database, tmp_path, monkeypatch):
    workers = []
    for number, off in enumerate(("+5h", "-7h")):
        clock = tmp_path / f"clock-{number}"
        clock.write_text(f"{off}\n")
        with monkeypatch.context() as patch:
            for name, value in bent(clock).items():
                patch.setenv(name, value)
            workers.append(Worker(database, tmp_path / f"bent-{number}.log", application=APP))
    try:
        for worker in workers:
            works(worker)
        put(rows, "often", task_type="mark")
        until(lambda: one(rows, "select count(*) from ledger") >= 4, "four slots have run", workers[0].log)
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.wait()
    each_slot_once(rows)
    assert one(rows, "select max(abs(extract(epoch from at - slot))) from octop_schedule_slots") < 2, "in time as well"


def test_schedules_are_steered_from_python_sync_and_async_alike(database):
    app = Octop(database.url)

    @app.task
    def report(day: dt.date, most: int = 5) -> None: ...

    made = app.schedules.put_sync(
        "report", "0 9 * * MON-FRI", report, timezone="Europe/Berlin", kwargs={"day": "{{slot.date}}"}, jitter=5
    )
    assert (made["rule"], made["timezone"], made["payload"]) == (
        "0 9 * * MON-FRI",
        "Europe/Berlin",
        {"day": "{{slot.date}}"},
    )

    async def story():
        changed = await app.schedules.put("report", jitter=None, priority=1)
        assert (changed["rule"], changed["jitter_seconds"], changed["priority"]) == ("0 9 * * MON-FRI", 0, 1)
        await app.schedules.pause("report", "moving house")
        found = await app.schedules.get("report")
        assert found is not None
        assert found["pause_reason"] == "moving house"
        task_id = await app.schedules.run("report")
        (slot,) = await app.schedules.history("report")
        assert (slot["origin"], slot["task_id"]) == ("run_now", str(task_id))
        await app.schedules.resume("report")
        last_week = dt.datetime.now(dt.UTC) - dt.timedelta(days=7)
        await app.schedules.backfill("report", last_week, last_week + dt.timedelta(days=6), most_running=2)
        (row,) = await app.schedules.list()
        assert row["name"] == "report"
        with pytest.raises(InvalidTimeError, match="naive"):
            await app.schedules.backfill("report", dt.datetime(2030, 1, 1), last_week)
        await app.schedules.drop("report")
        with pytest.raises(ScheduleNotFoundError):
            await app.schedules.run("report")
        await app.close_async()

    asyncio.run(story())
    assert app.schedules.get_sync("report") is None
    assert app.schedules.list_sync() == []
    app.close()
