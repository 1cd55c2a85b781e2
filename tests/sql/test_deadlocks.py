"""Whoever writes many tasks at once: workers, people's bulk acts, the sweep. Nobody is told of a circle of locks."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from threading import Barrier
from typing import Any

import psycopg
import pytest

from octop.engine import calls
from octop.model import errors
from octop.model.task import Outcome, OutcomeKind, Success
from tests.sql.crew import add_many, do, value
from tests.sql.sessions import Session, Worker, sessions

ROUNDS = 25
TASKS = 300
WORKERS = 8


def work(worker: Worker, barrier: Barrier) -> Counter[str]:
    """Claim and hand in, as a worker does: what was in the way is sent again in the careful form."""
    told: Counter[str] = Counter()
    barrier.wait(10)
    for number in range(ROUNDS):
        try:
            claimed = worker.claim(15)
        except errors.TryAgainError as error:
            told[error.message] += 1
            claimed = [Success(each.fence) for each in worker.exchange(15, careful=True).tasks]
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


def reorder(session: Session, ids: list[str], seed: int, barrier: Barrier) -> Counter[str]:
    """Change priorities of many by hand, in the order of their ids, as the documents say; and prune what has ended."""
    chance = random.Random(seed)
    told: Counter[str] = Counter()
    barrier.wait(10)
    for _ in range(ROUNDS):
        some = sorted(chance.sample(ids, 60))
        try:
            session.execute(
                "update octop_tasks t set priority = %s from (select id from octop_tasks"
                " where id = any (%s::uuid[]) and status in ('pending', 'failed') order by id for update skip locked) x"
                " where t.id = x.id and t.status in ('pending', 'failed')",
                (chance.randrange(10), some),
            )
            told["reordered"] += 1
        except psycopg.errors.SerializationFailure:
            told["moved meanwhile"] += 1
        session.execute("select _octop_purge(1000), octop_drop_days()")
    return told


@pytest.mark.slow
def test_C069_no_worker_meets_a_circle_of_locks_and_no_person_is_told_of_one(database, dba):
    do(dba, "select octop_config_set('task.retry_base_seconds', '0.001')")
    ids = add_many(dba, TASKS, "job")
    with sessions(database, WORKERS + 4) as made:
        for number, session in enumerate(made):
            # far more than the 50 ms for which an exchange waits: it has left a circle before PostgreSQL looks for one
            session.execute("set deadlock_timeout = '200ms'" if number < WORKERS else "set deadlock_timeout = '400ms'")
        barrier = Barrier(len(made))
        workers = [Worker(session) for session in made[:WORKERS]]
        running = [each.session.start(partial(work, each, barrier)) for each in workers]
        people = [
            session.start(partial(act, session, ids, seed, barrier))
            for seed, (session, act) in enumerate(
                zip(made[WORKERS:], (interfere, interfere, interfere, reorder), strict=True)
            )
        ]
        said = sum((each.future.result(60) for each in running), Counter[str]())
        done = sum((each.future.result(60) for each in people), Counter[str]())
    assert {word for word in said if "deadlock" in word} == set()
    assert {word for word in done if "Error" in word} == set(), "a person is told of no lock"
    assert {"cancelled", "retried", "repeated", "reordered"} <= set(done), done
    assert value(dba, "select count(*) from octop_tasks where status = 'running'") == 0
