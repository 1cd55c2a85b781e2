"""The engine with one of its guards taken out, to see that the harness notices: `--mutant fence`, or all of them: `--mutants`.

A mutant is a change of the text of SQL functions in the run's own database, or of a function of the client in the memory of the producers. It
is never a change of a file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

import psycopg

from octop.engine import foreign


class Change(NamedTuple):
    """One place in one function.

    Attributes:
        function: Its name.
        guard: What is taken out; it must be there.
        instead: What is put in its place.
    """

    function: str
    guard: str
    instead: str


class Mutant(NamedTuple):
    """The engine without one guard.

    Attributes:
        changes: Where it stood in SQL; none = it is the transaction of the caller.
        faults: Which of them lay it open; none = all.
        test: The test that lays it open, where chance hits the moment too seldom for a run of some minutes; empty = a run does.
    """

    changes: Sequence[Change] = ()
    faults: Sequence[str] = ()
    test: str = ""


MUTANTS: Mapping[str, Mutant] = {
    # an outcome is accepted from whoever sends it
    "fence": Mutant(
        [
            Change(
                "_octop_complete",
                "and t.attempt = u.attempt and t.claim_id = u.claim_id and t.worker_id = p_worker",
                "and true",
            ),
            Change(
                "_octop_settle",
                "and l.attempt = o.attempt and l.claim_id = o.claim_id and l.worker_id = o.worker_id",
                "and true",
            ),
        ],
        ["stop worker long", "stop all", "hole then late", "lose answers"],
    ),
    # the rescue takes tasks from whoever has them
    "owner": Mutant(
        [
            Change("_octop_rescue", "and w.beat_at <= _octop_now() - v_lease) then", "and w.id <> p_judge) then"),
            Change("_octop_rescue", "where w.beat_at <= _octop_now() - v_lease", "where w.id <> p_judge"),
        ]
    ),
    # who has just come back from an outage judges all others
    "judge": Mutant(
        [Change("_octop_rescue", "and w.beating_since <= _octop_now() - v_lease", "")],
        test="tests/sql/test_sweep.py::test_a_judge_without_a_lease_of_beats_would_condemn_for_a_silence_that_it_shared",
    ),
    # a rescue costs no try: a task that kills its worker would run for ever
    "tries": Mutant(
        [
            Change(
                "_octop_settle",
                "case when j.next = 'failed' then 1 else 0 end,\n           lost_count",
                "0,\n           lost_count",
            )
        ]
    ),
    # the counters miss what is claimed
    "counters": Mutant([Change("octop_exchange", "-count(*) from started", "-count(*) + 1 from started")]),
    # a cancel does not hold the rows whose status it looks at, takes out and counts
    "lock": Mutant(
        [Change("_octop_cancel_these", "order by t.id for update) x;", "order by t.id) x;")],
        test="tests/sql/test_sessions.py::test_a_cancel_beside_a_claim_asks_the_worker_and_takes_nothing_from_it",
    ),
    # a claim counts what runs without the queue's lock: two at once see the same free place
    "limit": Mutant(
        [
            Change(
                "_octop_claim_limited",
                "if not pg_try_advisory_xact_lock(_octop_queue_key(p_queue)) then",
                "if false then",
            )
        ],
        test="tests/sql/test_limits.py::test_one_exchange_at_a_time_starts_tasks_of_a_limited_queue_and_another_does_not_wait",
    ),
    # what is enqueued on a connection of the caller's is committed at once, whatever becomes of his transaction
    "transaction": Mutant(),
}


@contextlib.contextmanager
def mutated(url: str, name: str) -> Iterator[None]:
    """Take a guard out for the length of a `with`; a database stays as it is then.

    Args:
        url: Of the database, as one who may do anything.
        name: Of the mutant.

    Raises:
        LookupError: The guard is not where it was: the mutant must follow the engine.
    """
    changes = MUTANTS[name].changes
    with psycopg.connect(url, autocommit=True) as connection:
        mutate(connection, changes)
    with contextlib.nullcontext() if changes else _enqueued_apart(url):
        yield


def mutate(connection: psycopg.Connection[Any], changes: Sequence[Change]) -> None:
    """Change functions of a database.

    Raises:
        LookupError: What is to be taken out is not where it was.
    """
    for change in changes:
        found = connection.execute(
            "select pg_get_functiondef(oid) from pg_proc where proname = %s and pronamespace = 'public'::regnamespace",
            (change.function,),
        ).fetchone()
        if found is None or found[0].count(change.guard) != 1:
            message = f"{change.function} does not hold once: {change.guard}"
            raise LookupError(message)
        connection.execute(found[0].replace(change.guard, change.instead).encode())


@contextlib.contextmanager
def _enqueued_apart(url: str) -> Iterator[None]:
    """Let the client enqueue on a connection of its own where the caller has named his."""
    true = foreign.run_foreign

    def apart(_connection: object, call: Any, *, schema: str) -> Any:
        with psycopg.connect(url, autocommit=True) as own:
            return true(own, call, schema=schema)

    with mock.patch.object(foreign, "run_foreign", apart):
        yield
