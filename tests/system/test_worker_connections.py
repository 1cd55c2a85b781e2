"""As many connections as the how-tos say and as the doctor counts."""

from __future__ import annotations

from collections import Counter

from octop.cli.doctor.connections import PER_SUPERVISOR, PER_WORKER
from tests.system.apps.running import one, until

PROCESSES = 2
POOL = 3
SESSIONS = """
select application_name, count(*) from pg_stat_activity
 where datname = current_database() and application_name ^@ 'octop worker' group by 1
"""


def test_a_worker_holds_no_more_connections_than_are_counted_for_it(start, rows):
    rows.execute("select octop_config_set('db.connection_pool_size', %s::text::jsonb)", (POOL,))
    rows.execute("""
        insert into octop_tasks (task_type, queue)
        select case when n % 10 = 0 then 'pays' else 'noop' end, 'q' from generate_series(1, 5000) n
    """)
    worker = start(application="tests.system.apps.lasting:octop", queues={"q": 20}, processes=PROCESSES)
    most: Counter[str] = Counter()

    def all_have_ended():
        for name, count in rows.execute(SESSIONS).fetchall():
            most[name.removeprefix("octop worker ")] = max(most[name.removeprefix("octop worker ")], count)
        return not one(rows, "select exists (select from octop_tasks_live)")

    until(all_have_ended, "all have ended", worker.log, seconds=60)
    assert 1 <= most.pop("task") <= POOL * PROCESSES, "those of transactional tasks, whatever the number of places"
    assert most.pop("heart") + most.pop("ticker") == PER_SUPERVISOR
    assert set(most) <= {"exchange", "control", "listen"}, "nothing else"
    assert PROCESSES < sum(most.values()) <= PER_WORKER * PROCESSES
