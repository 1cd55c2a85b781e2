"""A worker that has run very many tasks holds no more than one that has run some. `make long-run` runs a million of them."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.apps.running import one, until

LASTING = "tests.system.apps.lasting:octop"
TASKS = int(os.environ.get("OCTOP_TEST_LONG_RUN") or 20_000)
STEPS = 4 if TASKS <= 20_000 else 20
STEP = TASKS // STEPS
DESCRIPTORS = 256
GROWTH_KB_MAX = 4_096
FILL = """
insert into octop_tasks (task_type, queue, payload)
select case n % 100 when 0 then 'fails' when 1 then 'in_thread' when 2 then 'waits' when 3 then 'answers' when 4 then 'enqueues'
                    when 5 then case when n % 500 = 5 then 'pays' else 'noop' end
                    when 6 then case when n % 500 = 6 then 'in_process' else 'noop' end
                    else 'noop' end, 'q',
       case n % 100 when 3 then '{"word": "said"}'::jsonb else '{}' end
  from generate_series(1, %s) n
"""


LEFT = "select exists (select from octop_tasks_live)"


class Held(NamedTuple):
    """What a worker process holds; connections are those of its supervisor, too."""

    resident_kb: int
    descriptors: int
    threads: int
    connections: int


def held(rows, pid):
    status = Path(f"/proc/{pid}/status").read_text()
    resident, threads = (int(status.split(f"{name}:")[1].split()[0]) for name in ("VmRSS", "Threads"))
    ours = "datname = current_database() and application_name ^@ 'octop '"
    connections = one(rows, f"select count(*) from pg_stat_activity where {ours}")
    return Held(resident, len(list(Path(f"/proc/{pid}/fd").iterdir())), threads, connections)


@pytest.mark.slow
@pytest.mark.timeout(TASKS // 100)
@pytest.mark.long
def test_c093_c096_memory_descriptors_threads_and_connections_do_not_grow(start, rows):
    worker = start(application=LASTING, queues={"q": 200}).ready()
    (pid,) = worker.pids()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    found = []
    began = time.monotonic()
    for step in range(1, STEPS + 1):
        rows.execute(FILL.replace("%s", str(STEP)))
        until(lambda: not one(rows, LEFT), "all have ended", worker.log, seconds=60 + STEP / 500)
        found.append(held(rows, pid))
        print(f"{STEP * step:>9,} tasks  {time.monotonic() - began:6.0f} s  {found[-1]}")  # noqa: T201 - for `make long-run`
    ended = (
        "select count(*) filter (where status = 'success'), count(*) filter (where status = 'frozen') from octop_tasks"
    )
    # as many as fail have been enqueued by others
    assert rows.execute(ended).fetchone() == (STEPS * STEP, STEPS * STEP // 100)
    assert worker.pids() == [pid], "the same process all the time"
    first, last = found[0], found[-1]
    assert last.descriptors <= first.descriptors + 4, f"{found}: a child process more or less"
    assert last.threads <= first.threads + 2, f"{found}: threads come and go with what runs at once"
    assert last.connections <= first.connections + 2, f"{found}: those of tasks come and go with what runs at once"
    assert "Too many open files" not in worker.text()
    assert last.resident_kb - first.resident_kb < GROWTH_KB_MAX, (
        f"{found}: after {STEP} tasks all that is built once is there"
    )
