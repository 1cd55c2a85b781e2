"""A limit while sixteen sessions claim at once, tasks of any priority arrive meanwhile, and each transaction dawdles between lock and commit.

Twenty rounds, as the case asks, by hand: ``OCTOP_TEST_RACE=60 pytest tests/sql/test_capacity_race.py``; one round in CI.
"""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sql.crew import do, limit, value

SESSIONS = 16
TASKS = 500
ROUNDS = 20 if "OCTOP_TEST_RACE" in os.environ else 1
SECONDS_MAX = 90


def dawdle(dba):
    """Let each statement that starts tasks sleep before and after it has done so: the lock is held, the commit is to come."""
    do(
        dba,
        "create function dawdle() returns trigger language plpgsql as"
        " $$ begin perform pg_sleep(random() * 0.002); return null; end $$",
    )
    for moment in ("before", "after"):
        do(
            dba,
            f"create trigger dawdle_{moment} {moment} update on octop_tasks_live for each statement execute function dawdle()",
        )


def most_at_once(runs):
    """Return how many of these intervals overlapped at most; an end at the moment of a beginning is before it."""
    now = found = 0
    for _, step in sorted([(began, 1) for began, _ in runs] + [(ended, -1) for _, ended in runs]):
        now += step
        found = max(found, now)
    return found


class Crowd:
    """Sessions that are released by a barrier; each claims what it gets, runs it for a moment, and hands it in with its next claim."""

    def __init__(self, workers):
        self.runs: list[tuple[float, float]] = []
        self._workers = workers
        self._barrier = threading.Barrier(len(workers))
        self._until = time.monotonic() + SECONDS_MAX

    def work(self):
        with ThreadPoolExecutor(len(self._workers)) as threads:
            for failed in [each.exception() for each in [threads.submit(self._serve, one) for one in self._workers]]:
                if failed is not None:
                    raise failed

    def _serve(self, worker):
        chance = random.Random(worker.id)
        self._barrier.wait()
        while len(self.runs) < TASKS and time.monotonic() < self._until:
            tasks = worker.claim(2)
            began = (
                time.monotonic()
            )  # after the commit, and its end is before that of the transaction which hands it in
            time.sleep(chance.uniform(0, 0.002))
            ended = time.monotonic()
            if tasks:
                self.runs += [(began, ended)] * len(tasks)
                assert worker.succeed(*tasks) == []


@pytest.mark.slow
@pytest.mark.timeout(120 + ROUNDS * SECONDS_MAX)
@pytest.mark.parametrize("most", [1, 3])
def test_C084_the_intervals_of_sixteen_sessions_never_overlap_more_than_the_limit(dba, database, hire, most):
    limit(dba, global_limit=most)
    dawdle(dba)
    workers = [hire() for _ in range(SESSIONS)]
    reached = 0
    for number in range(ROUNDS):
        crowd = Crowd(workers)
        shown: list[int] = []

        def arrive(number=number, shown=shown):
            chance = random.Random(number)
            with database.connect() as connection:
                for _ in range(TASKS // 5):
                    do(
                        connection,
                        "insert into octop_tasks (task_type, priority) select 't', p from unnest(%s::integer[]) p",
                        [chance.randrange(10) for _ in range(5)],
                    )
                    shown.append(value(connection, "select count(*) from octop_tasks where status = 'running'"))
                    time.sleep(chance.uniform(0, 0.02))

        producer = threading.Thread(target=arrive)
        producer.start()
        crowd.work()
        producer.join()
        assert len(crowd.runs) == TASKS, "all were run, each once"
        assert most_at_once(crowd.runs) <= most
        assert max(shown) <= most
        reached = max(reached, most_at_once(crowd.runs))
    # the limit was at work, and not something narrower
    assert reached == most
    assert value(dba, "select count(*) from octop_tasks where status = 'success' and attempt <> 1") == 0
