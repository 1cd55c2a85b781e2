"""Two exchanges at once, real ones: whatever is cut in between, each task runs once."""

from __future__ import annotations

import itertools
from collections import Counter

from tests.system.apps.running import one, until

COUNT = 20_000
CUTS = 8


def test_a_backlog_is_worked_off_by_two_exchanges_and_whichever_is_cut_each_task_runs_once(
    start, rows, tmp_path, monkeypatch
):
    monkeypatch.setenv("COUNTED", str(tmp_path / "counted"))
    rows.execute(
        "insert into octop_tasks (queue, task_type) select 'q', 'counted' from generate_series(1, %s)", (COUNT,)
    )
    worker = start(application="tests.system.apps.counted:octop", queues={"q": 200}).ready()
    exchanges = (
        "select array_agg(pid order by backend_start) from pg_stat_activity"
        " where application_name = 'octop worker exchange' and datname = current_database()"
    )
    until(lambda: len(one(rows, exchanges) or []) == 2, "there are two exchanges", worker.log)
    cuts = 0
    for which in itertools.cycle((0, 1)):
        pids = one(rows, exchanges) or []
        if len(pids) == 2 and cuts < CUTS:
            # at work, if it can be met there: what it has claimed and handed in may be committed, and its answer be lost
            cuts += one(
                rows,
                "select count(*) from pg_stat_activity a cross join lateral pg_terminate_backend(a.pid)"
                " where a.pid = %s and a.state = 'active'",
                pids[which],
            )
        if one(rows, "select count(*) from octop_tasks_live") == 0:
            break
    assert cuts > 0, "it was cut in the middle"
    assert one(rows, "select count(*) from octop_tasks where status = 'success'") == COUNT
    assert worker.stop() == 0
    runs = Counter(line.split()[0] for line in (tmp_path / "counted").read_text().splitlines())
    assert len(runs) == COUNT
    assert set(runs.values()) == {1}
