"""The engine with one of its guards taken out, to see that the harness notices: `--mutant fence`.

A mutant is a change of the text of SQL functions in the run's own database. It is never a change of a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psycopg


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


MUTANTS: Mapping[str, Sequence[Change]] = {
    # an outcome is accepted from whoever sends it
    "fence": [
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
    # the rescue takes tasks from whoever has them
    "owner": [Change("_octop_rescue", "where w.beat_at <= _octop_now() - v_lease", "where w.id <> p_judge")],
    # who has just come back from an outage judges all others
    "judge": [Change("_octop_rescue", "and w.beating_since <= _octop_now() - v_lease", "")],
    # a rescue costs no try: a task that kills its worker would run for ever
    "tries": [
        Change(
            "_octop_settle",
            "case when j.next = 'failed' then 1 else 0 end,\n           lost_count",
            "0,\n           lost_count",
        )
    ],
    # the counters miss what is claimed
    "counters": [Change("octop_exchange", "-count(*) from started", "-count(*) + 1 from started")],
}


def mutate(connection: psycopg.Connection[Any], name: str) -> None:
    """Take a guard out of the functions of a database.

    Raises:
        LookupError: The guard is not where it was: the mutant must follow the engine.
    """
    for change in MUTANTS[name]:
        found = connection.execute(
            "select pg_get_functiondef(oid) from pg_proc where proname = %s and pronamespace = 'public'::regnamespace",
            (change.function,),
        ).fetchone()
        if found is None or found[0].count(change.guard) != 1:
            message = f"{change.function} does not hold once: {change.guard}"
            raise LookupError(message)
        connection.execute(found[0].replace(change.guard, change.instead).encode())
