"""What a claim of a limited queue reads, counted: bounded by lanes and by what was wanted, whatever waits in a lane that is full."""

from __future__ import annotations

import pytest

from octop.engine import calls
from octop.engine.call import run
from tests.sql.crew import Worker, do
from tests.sql.plans import PKEY, READY, RUNNING, Judge, watched

LANES = "octop_tasks_live_lanes"
CATALOG = 3000
"""Pages of the catalog that a call may touch when its session has to read it anew; the rows are the sharp limit."""
ALLOWED = (PKEY, READY, RUNNING, LANES)
MANY = "insert into octop_tasks (task_type, queue, lane, priority) select 't', 'default', {}, n %% 10 from generate_series(1, %s) n"


@pytest.fixture
def worker(database):
    """A worker on a superuser's connection, so that its statements can be watched."""
    with database.connect() as connection:
        made = Worker(connection)
        made.register()
        yield made


def fill(connection, count, lane):
    connection.execute(MANY.format(lane).encode(), (count,))


def limits(connection, **values):
    for name, given in values.items():
        do(connection, f"update octop_queues set {name} = %s where name = 'default'", given)


def test_100000_tasks_in_a_full_lane_cost_the_others_nothing(dba, worker):
    limits(dba, lane_limit=1)
    fill(dba, 100_000, "'full'")
    assert len(worker.claim(1)) == 1  # now it is
    fill(dba, 200, "'lane ' || n %% 20")
    judge = Judge(worker.connection)
    for state in ("stale", "fresh"):
        got = judge(f"claim, {state}", lambda: worker.claim(10), rows=3000, buffers=CATALOG + 2500, allowed=ALLOWED)
        assert len(got) == 10
        worker.succeed(*got)
        do(dba, "analyze octop_tasks_live")
    judge("sleep", lambda: _sleep(worker), rows=3000, buffers=CATALOG + 6000, allowed=ALLOWED)
    assert judge.found == []


@pytest.mark.parametrize(
    "rules", [{"lane_limit": 1}, {"lane_rate": 0.001}, {"ordered": True}, {"lane_weights": '{"lane 7": 3}'}]
)
def test_of_20000_lanes_a_claim_visits_some_hundreds(dba, worker, rules):
    limits(dba, **rules)
    fill(dba, 20_000, "'lane ' || n")
    do(dba, "analyze octop_tasks_live")
    judge = Judge(worker.connection)
    after: dict[str, str] = {}
    served: set[str] = set()
    for _ in range(5):
        answer = judge(
            "claim", lambda: worker.exchange(10, lanes_after=after), rows=6000, buffers=CATALOG + 9000, allowed=ALLOWED
        )
        after.update(answer.lanes)
        served |= {each.lane for each in answer.tasks}
        assert len(answer.tasks) == 10
    assert len(served) == 50 - (2 if "lane 7" in served and "lane_weights" in rules else 0)
    assert judge.found == []


def test_ageing_reads_the_fronts_of_the_priorities_and_nothing_behind_them(dba, worker):
    limits(dba, ageing_seconds=60.0)
    fill(dba, 100_000, "''")
    do(dba, "analyze octop_tasks_live")
    judge = Judge(worker.connection)
    got = judge("claim", lambda: worker.claim(20), rows=300, buffers=CATALOG + 2500, allowed=ALLOWED)
    assert len(got) == 20
    assert judge.found == []


def test_a_queue_without_limits_asks_nothing_about_limits(dba, worker):
    limits(dba, lane_limit=None)
    do(dba, "insert into octop_queues (name, global_limit) values ('other', 1)")
    fill(dba, 100, "''")
    with watched(worker.connection) as seen:
        got = worker.claim(10)
        worker.succeed(*got)
    texts = [statement.text for statement in seen]
    assert len(got) == 10
    assert not [text for text in texts if "_octop_limits" in text or "advisory" in text or "_octop_gates" in text]
    assert not [text for text in texts if text.lstrip().startswith("select") and "_octop_freed" in text]


def test_a_global_limit_counts_no_more_rows_than_run(dba, worker):
    limits(dba, global_limit=50)
    fill(dba, 10_000, "''")
    worker.claim(40)
    judge = Judge(worker.connection)
    got = judge("claim", lambda: worker.claim(40), rows=150, buffers=CATALOG + 1500, allowed=ALLOWED)
    assert len(got) == 10
    assert judge("full", lambda: worker.claim(40), rows=60, buffers=CATALOG + 600, allowed=ALLOWED) == []
    assert judge.found == []


def _sleep(worker):
    return run(worker.connection, calls.octop_sleep(worker.id, list(worker.queues), 5.0))
