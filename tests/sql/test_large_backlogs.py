"""What a huge backlog of one tenant, or one that is held, costs the others: counted in claims and tasks, not by the clock.

With a million, as the issue names it, by hand: ``OCTOP_TEST_LARGE=1000000 pytest -o log_cli=true --log-cli-level=INFO tests/sql/test_large_backlogs.py``; in CI a small form.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field

import pytest

from octop.engine import calls
from octop.engine.call import run
from tests.sql.crew import Worker, do, limit, value

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
MANY = int(os.environ.get("OCTOP_TEST_LARGE", "20000"))
WANTED = 10


@dataclass
class Walker(Worker):
    """A worker that goes on in the lane behind the one where its last claim stopped, as real ones do."""

    after: dict[str, str] = field(default_factory=dict)


def told(text):
    logging.getLogger(__name__).info("%s", text)


@pytest.fixture
def worker(dba):
    made = Walker(dba, types=("t", "held"))
    made.register()
    return made


def fill(dba, count, *, task_type="t", lane="", tenant="", ahead="1 h"):
    do(
        dba,
        "insert into octop_tasks_live (id, task_type, lane, tenant, queue, scheduled_at, created_by)"
        " select octop_uuid7(), %s, %s, %s, 'default', now() - %s::interval + g * interval '1 ms', 'x'"
        " from generate_series(1, %s::integer) g",
        *(task_type, lane, tenant, ahead, count),
    )


def exchange(dba, worker, wanted=WANTED):
    """Beat, since what came before may have taken long, and exchange; return the answer, and how long it took."""
    run(dba, calls.octop_beat([worker.id]))
    began = time.monotonic()
    answer = worker.exchange(wanted, lanes_after=worker.after)
    seconds = time.monotonic() - began
    worker.after.update(answer.lanes)
    return answer, seconds


def claims_until(dba, worker, tenant, count):
    """Return how many claims it takes until so many tasks of a tenant have started, and how long the slowest took."""
    worker.after = {}
    claims, slowest = 0, 0.0
    while count > 0:
        answer, seconds = exchange(dba, worker)
        assert answer.tasks, "a claim beside a backlog comes back empty"
        worker.succeed(*answer.tasks)
        count -= sum(each.tenant == tenant for each in answer.tasks)
        claims += 1
        slowest = max(slowest, seconds)
    return claims, slowest


@pytest.mark.parametrize("rules", [{}, {"lane_limit": 1000}], ids=["no limits", "lane limit"])
def test_a_hundred_tasks_of_b_are_done_in_twice_the_claims_they_take_alone(dba, worker, rules):
    if rules:
        limit(dba, **rules)
    fill(dba, 100, lane="b", tenant="b", ahead="1 min")
    do(dba, "analyze octop_tasks_live")
    alone, slowest_alone = claims_until(dba, worker, "b", 100)
    fill(dba, MANY, lane="a", tenant="a")
    fill(dba, 100, lane="b", tenant="b", ahead="1 min")
    do(dba, "vacuum analyze octop_tasks_live")
    beside, slowest = claims_until(dba, worker, "b", 100)
    told(
        f"{MANY:,} of a: {beside} claims, alone {alone}; slowest {slowest * 1e3:.1f} ms, alone {slowest_alone * 1e3:.1f} ms"
    )
    assert alone == 10
    assert beside <= 2 * alone
    assert value(dba, "select count(*) from octop_tasks where tenant = 'a' and status = 'pending'") >= MANY - 200


def test_what_is_held_by_its_type_leaves_in_bounded_steps_beside_the_others_and_comes_back_so(dba, worker):
    others = 30_000
    fill(dba, MANY, task_type="held", ahead="2 h")
    fill(dba, others, ahead="1 h")
    do(dba, "vacuum analyze octop_tasks_live")
    do(dba, "select octop_freeze('held')")
    kinds: set[str] = set()
    parked, most, claims, seconds, started = 0, 0, 0, 0.0, 0
    while parked < MANY:
        answer, took = exchange(dba, worker, 100)
        parked, most, claims, seconds = parked + answer.parked, max(most, answer.parked), claims + 1, seconds + took
        started += len(answer.tasks)
        kinds |= {each.task_type for each in answer.tasks}
        worker.succeed(*answer.tasks)
        assert claims <= 20 + MANY / 500, "parking goes on"
    assert most <= 10_000
    assert kinds <= {"t"}
    told(
        f"{MANY:,} parked in {claims} claims, at most {most:,} each, {seconds / claims * 1e3:.0f} ms a claim; {started} others started"
    )
    # beside them, the rest goes at its own rate: every claim comes back full
    rest = 0.0
    for _ in range(20):
        answer, took = exchange(dba, worker, 100)
        assert (len(answer.tasks), answer.parked) == (100, 0)
        worker.succeed(*answer.tasks)
        rest += took
    told(f"beside them {rest / 20 * 1e3:.1f} ms a claim of 100")
    do(dba, "select octop_thaw('held')")
    back, sweeps, most = 0, 0, 0
    while back < MANY:
        run(dba, calls.octop_beat([worker.id]))
        worker.sweep()
        left = value(dba, "select count(*) from octop_tasks where status = 'blocked'")
        most, back, sweeps = max(most, MANY - left - back), MANY - left, sweeps + 1
        assert sweeps <= 10 + MANY / 500, "they come back"
    told(f"back in {sweeps} sweeps, at most {most:,} each")
    assert most <= 3_000, "2,000 by a sweep, 1,000 by a beat"
    assert {each.task_type for each in exchange(dba, worker, 100)[0].tasks} == {"held"}, "the oldest are first again"
