"""Schedules under race and death: eight workers, two of them killed and started again and again, the database restarted twice.

By hand for two minutes: ``OCTOP_TEST_RACE=120 pytest tests/system/test_schedules_race.py``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from tests.processes import children_of
from tests.system.apps.running import Starter, one, prepare, until

APP = "tests.system.apps.scheduled:octop"
SECONDS = float(os.environ.get("OCTOP_TEST_RACE", "15"))
WORKERS = 8
SCHEDULES = 200
SLOTS = "select count(*) from octop_schedule_slots"


def kill(worker):
    """Kill a worker, all of it, as the end of its host would."""
    family = [*children_of(worker.process.pid), worker.process.pid]
    for pid in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    worker.process.wait()


def last_second(database):
    """Return the slot up to which all schedules have fired."""
    with database.connect() as rows:
        return one(rows, "select min(last_slot) from octop_schedules")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(240 + 3 * SECONDS)
def test_each_slot_of_200_schedules_every_second_makes_one_task_whoever_dies(own_server, tmp_path):
    server = own_server(max_connections="200")
    with server.database(installed=True) as database:
        prepare(database)
        start = Starter(database, tmp_path)
        try:
            crew = [start(application=APP, concurrency=2) for _ in range(WORKERS)]
            until(lambda: all("serves" in each.text() for each in crew), "all work", crew[0].log, seconds=90)
            with database.connect() as rows:
                rows.execute(
                    "insert into octop_schedules (name, rule, task_type, queue, catch_up, catch_up_max)"
                    " select 'every second ' || n, '* * * * * *', 'noop', 'q', 'all', 10000 from generate_series(1, %s) n",
                    (SCHEDULES,),
                )
                first = one(rows, "select min(next_slot) from octop_schedules")
            began, restarts, kills = time.monotonic(), 0, 0
            while (passed := time.monotonic() - began) < SECONDS:
                for place in (0, 1):
                    kill(crew[place])
                    crew[place] = start(application=APP, concurrency=2)
                    kills += 1
                if passed > SECONDS * (restarts + 1) / 3 and restarts < 2:
                    server.stop()
                    server.start()
                    restarts += 1
                time.sleep(SECONDS / 15)
            with database.connect() as rows:
                end = one(rows, "select clock_timestamp()")
            until(lambda: last_second(database) >= end, "all slots until then have been fired", crew[2].log, seconds=90)
        finally:
            start.close()
        assert (restarts, kills >= 4) == (2, True)
        with database.connect() as rows:
            assert one(rows, f"{SLOTS} where status <> 'fired'") == 0
            missing = one(
                rows,
                "select count(*) from octop_schedules s"
                " cross join generate_series(%s, %s, interval '1 second') g"
                " where not exists (select from octop_schedule_slots o where o.schedule_id = s.id and o.slot = g)",
                first,
                end,
            )
            assert missing == 0
            assert (
                one(
                    rows,
                    "select count(*) from (select from octop_tasks where meta ? 'slot'"
                    " group by meta ->> 'schedule', meta ->> 'slot' having count(*) > 1) x",
                )
                == 0
            )
            tasks = one(rows, "select count(*) from octop_tasks where meta ? 'slot'")
            assert tasks == one(rows, SLOTS) >= SCHEDULES * (SECONDS - 2)
