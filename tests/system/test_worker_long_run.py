"""A worker that has run very many tasks holds no more than one that has run some."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.system.apps.running import one, until

STEP = 5_000
STEPS = 4
DESCRIPTORS = 256
FILL = """
insert into octop_tasks (task_type, queue, payload, max_retries)
select case when n % 50 = 0 then 'always_fails' when n % 50 = 1 then 'nap_in_thread'
            when n % 500 = 2 then 'noop_in_process' else 'noop' end, 'q',
       case when n % 50 = 1 then '{"seconds": 0}'::jsonb else '{}' end, 0
  from generate_series(1, %s) n
"""


def held(rows, pid):
    """Return resident kB, file descriptors, threads, and connections of one process and of its supervisor."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident, threads = (int(status.split(f"{name}:")[1].split()[0]) for name in ("VmRSS", "Threads"))
    ours = "datname = current_database() and application_name ^@ 'octop worker'"
    connections = one(rows, f"select count(*) from pg_stat_activity where {ours}")
    return resident, len(list(Path(f"/proc/{pid}/fd").iterdir())), threads, connections


@pytest.mark.slow
def test_c093_c096_memory_descriptors_threads_and_connections_do_not_grow(start, rows):
    worker = start(queues={"q": 20}).ready()
    (pid,) = worker.pids()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    found = []
    for step in range(1, STEPS + 1):
        rows.execute(FILL.replace("%s", str(STEP)))
        ended = "select count(*) from octop_tasks where status in ('success', 'frozen')"
        until(lambda: one(rows, ended) == STEP * step, "all have ended", worker.log, seconds=60)  # noqa: B023 - waits in here
        found.append(held(rows, pid))
    assert worker.pids() == [pid], "the same process all the time"
    first, last = found[0], found[-1]
    assert last[1] <= first[1] + 4, f"{found}: a child process more or less"
    assert last[2] <= first[2] + 2, f"{found}: threads come and go with what runs at once"
    assert last[3] == first[3], found
    assert "Too many open files" not in worker.text()
    assert last[0] - first[0] < 4_096, f"{found}: after {STEP} tasks all that is built once is there"
