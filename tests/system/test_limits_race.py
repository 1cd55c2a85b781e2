"""Limits under race and death: eight real worker processes on one queue, killed at random, and a ledger that the tasks write themselves.

By hand for a minute: ``OCTOP_TEST_RACE=60 pytest tests/system/test_limits_race.py``.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import defaultdict
from datetime import datetime
from typing import Any

import pytest

from tests.processes import children_of
from tests.system.apps.running import one, until

APP = "tests.system.apps.limited:octop"
SECONDS = float(os.environ.get("OCTOP_TEST_RACE", "10"))
PROCESSES = 8
LANES = 4


def limited(rows, **columns):
    rows.execute("insert into octop_queues (name) values ('q') on conflict do nothing")
    for name, value in columns.items():
        rows.execute(f"update octop_queues set {name} = %s where name = 'q'".encode(), (value,))


def fill(rows, count, seconds):
    rows.execute(
        "insert into octop_tasks (task_type, queue, lane, priority, payload, max_retries)"
        " select 'holds', 'q', case when n %% 5 = 0 then '' else 'lane ' || n %% %s end, n %% 10,"
        " jsonb_build_object('key', n %% %s, 'seconds', %s::float8 * random()), 1000"
        " from generate_series(1, %s) n",
        (LANES, LANES, seconds, count),
    )


def most_at_once(runs, key=lambda _run: None):
    """Return the most runs that overlapped, of those with the same key."""
    found = 0
    by_key = defaultdict(list)
    for run in runs:
        by_key[key(run)].append(run)
    for same in by_key.values():
        # an end at the same moment as a beginning is before it
        steps = sorted([(run["begin"], 1) for run in same] + [(run["end"], -1) for run in same])
        now = 0
        for _, step in steps:
            now += step
            found = max(found, now)
    return found


def runs_of(rows, kills):
    """Read the ledger: a run without an end ended with its process, at the latest when it was killed; else it runs still."""
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    for job, pid, at in rows.execute(
        "select job, pid, at from ledger where job like 'begin %' or job like 'end %' order by at"
    ):
        word, task_id, attempt, _key = job.split(" ")
        run = runs.setdefault((task_id, attempt), {"task": task_id, "pid": pid})
        run[word] = at
    for run in runs.values():
        run.setdefault("end", kills.get(run["pid"], datetime.max.replace(tzinfo=run["begin"].tzinfo)))
    return list(runs.values())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(120 + 2 * SECONDS)
@pytest.mark.parametrize(
    ("limits", "most", "most_in_lane"),
    [({"global_limit": 1}, 1, 1), ({"global_limit": 3}, 3, 3), ({"lane_limit": 2, "global_limit": 7}, 7, 2)],
    ids=["global 1", "global 3", "lanes"],
)
def test_C084_C085_no_more_than_the_limit_ever_run_at_once_and_no_place_is_lost(
    start, rows, limits, most, most_in_lane
):
    limited(rows, **limits)
    fill(rows, int(SECONDS * 400), 0.03)
    worker = start(application=APP, queues={"q": 4}, processes=PROCESSES)
    until(lambda: len(worker.pids()) == PROCESSES, "all processes are there", worker.log, seconds=60)
    end = time.monotonic() + SECONDS
    kills = {}
    chance = random.Random(7)
    most_shown = 0
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.2, 0.8))
        most_shown = max(most_shown, one(rows, "select count(*) from octop_tasks where status = 'running'"))
        pid = chance.choice(worker.pids() or [0])
        if pid:
            moment = one(rows, "select clock_timestamp()")
            # a task that was lost before runs in a child, which dies with its worker
            dying = [pid, *children_of(pid)]
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                kills.update(dict.fromkeys(dying, moment))
    assert kills
    assert most_shown <= most
    # no place is lost: as many run again as may
    rows.execute("delete from octop_tasks where status in ('pending', 'failed')")
    fill(rows, 60, 0.6)
    running = "select count(*) from octop_tasks where status = 'running'"
    until(lambda: one(rows, running) == most, "all places are taken again", worker.log)
    rows.execute("update octop_tasks set status = 'cancelled' where status in ('pending', 'failed')")
    until(lambda: one(rows, running) == 0, "all have ended", worker.log)
    runs = runs_of(rows, kills)
    lanes = dict(rows.execute("select id::text, lane from octop_tasks"))
    assert most_at_once(runs) <= most
    laned = [run for run in runs if lanes.get(run["task"])]
    assert most_at_once(laned, lambda run: lanes[run["task"]]) <= most_in_lane
    assert len(runs) > SECONDS, "hardly anything ran: that proves nothing"


@pytest.mark.slow
@pytest.mark.long
def test_strict_order_starts_each_lane_as_it_was_enqueued_and_no_lane_blocks_another(start, rows):
    lanes, each = 1000, 20
    limited(rows, ordered=True)
    rows.execute(
        "insert into octop_tasks (task_type, queue, lane, priority, payload, max_retries)"
        " select 'may_fail', 'q', 'lane ' || n % 1000, (n * 7) % 10, jsonb_build_object('key', n, 'share', 0.1), 1000"
        " from generate_series(1, 20000) n"
    )
    worker = start(application=APP, queues={"q": 50}, processes=2)
    done = "select count(*) from octop_tasks where status = 'success'"
    until(lambda: one(rows, done) == lanes * each, "all have ended", worker.log, seconds=110)
    last: dict[int, int] = {}
    for (job,) in rows.execute("select job from ledger where job like 'begin %' order by at"):
        key = int(job.split(" ")[3])
        assert last.get(key % lanes, 0) in {key, key - lanes if key > lanes else 0}, job
        last[key % lanes] = key
    assert len(last) == lanes
