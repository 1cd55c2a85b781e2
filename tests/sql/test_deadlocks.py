"""Whoever writes many tasks at once: workers, people's bulk acts, the sweep. Nobody is told of a circle of locks."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from octop.engine import calls
from octop.model import errors
from octop.model.task import Outcome, OutcomeKind
from tests.sql.crew import add_many, do, value
from tests.sql.sessions import Session, Worker, sessions

ROUNDS = 40
TASKS = 300


def work(worker: Worker, barrier: Barrier) -> Counter[str]:
    """Claim and hand in, as a worker does: what was in the way is sent again in the careful form."""
    told: Counter[str] = Counter()
    barrier.wait(10)
    for number in range(ROUNDS):
        claimed = worker.claim(15)
        half = len(claimed) // 2
        ends = [Outcome(each.fence, OutcomeKind.FAILURE) for each in claimed[half:]]
        careful = False
        while True:
            try:
                settled = worker.exchange(successes=claimed[:half], outcomes=ends, careful=careful).settled
            except errors.TryAgainError as error:
                told[error.message] += 1
                careful = True
                continue
            told.update(each.verdict for each in settled)
            if all(each.verdict != "again" for each in settled):
                break
        if number % 5 == 0:
            worker.session.run(calls.octop_sweep(worker.id))
    return told


def interfere(session: Session, ids: list[str], seed: int, barrier: Barrier) -> Counter[str]:
    """Cancel, retry and delete many at once, in any order."""
    chance = random.Random(seed)
    told: Counter[str] = Counter()
    barrier.wait(10)
    for _ in range(ROUNDS):
        some = chance.sample(ids, 60)
        act: Any = chance.choice([calls.octop_cancel_many, calls.octop_retry_many, calls.octop_delete_many])
        try:
            told.update(row[1] for row in session.run(act(some)))
        except errors.OctopError as error:
            told[f"Error: {error.message}"] += 1
    return told


@pytest.mark.slow
def test_C069_no_worker_meets_a_circle_of_locks_and_no_person_is_told_of_one(database, dba):
    do(dba, "select octop_config_set('task.retry_base_seconds', '0.001')")
    ids = add_many(dba, TASKS, "job")
    with sessions(database, 6) as made:
        for number, session in enumerate(made):
            # far more than the 50 ms for which an exchange waits: it has left a circle before PostgreSQL looks for one
            session.execute("set deadlock_timeout = '200ms'" if number < 3 else "set deadlock_timeout = '400ms'")
        barrier = Barrier(len(made))
        workers = [Worker(session) for session in made[:3]]
        running = [each.session.start(partial(work, each, barrier)) for each in workers]
        people = [
            session.start(partial(interfere, session, ids, seed, barrier)) for seed, session in enumerate(made[3:])
        ]
        said = sum((each.future.result(60) for each in running), Counter[str]())
        done = sum((each.future.result(60) for each in people), Counter[str]())
    assert {word for word in said if "deadlock" in word} == set()
    assert {word for word in done if "Error" in word} == set(), "a person is told of no lock"
    assert {"cancelled", "retried", "repeated"} <= set(done), done
    assert value(dba, "select count(*) from octop_tasks where status = 'running'") == 0
