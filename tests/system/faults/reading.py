"""Read what a run has left, from the ledger and from the tables of the engine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg

from tests.system.faults.history import (
    Attempt,
    Batch,
    Cancelling,
    Count,
    Ending,
    Failover,
    History,
    Outage,
    Row,
    Run,
    Trouble,
)
from tests.system.faults.stage import Stage

COMPLAINT = re.compile(
    r"^(?:Traceback .*|.*Task exception was never retrieved.*|.*(?:PANIC|deadlock detected).*)$", re.MULTILINE
)
COMPLAINTS_MAX = 20
CONTEXT_CHARACTERS = 1500
FULL_DISK = ("No space left on device", "File too large")
"""The only panics that are in order: of a log that finds no room."""

ROWS: LiteralString = """
select t.id::text, t.task_type, t.queue, t.status, t.attempt, t.claim_id::text, t.retry_count, coalesce(t.max_retries, y.max_retries, 3), t.result,
       t.lane, t.seq
  from octop_tasks t left join octop_task_types y on y.name = t.task_type
"""
ATTEMPTS: LiteralString = (
    "select task_id::text, attempt, claim_id::text, outcome, ended_at, coalesce(error_message, '') from octop_attempts"
)
COUNTERS: LiteralString = "select queue, status, sum(n)::bigint from _octop_counted() group by 1, 2"


def read(stage: Stage, endings: Sequence[Ending], left_behind: Sequence[str]) -> History:
    """Read all of it; the workers have stopped."""
    ledger = stage.ledger
    with stage.admin() as connection:
        return History(
            batches=[
                Batch(*row)
                for row in ledger.execute(
                    "select batch, way, ids::text[], ending, meant_at, changed_at from batches order by changed_at"
                )
            ],
            runs=[
                Run(*row)
                for row in ledger.execute(
                    "select task_id::text, attempt, claim_id::text, place, began_at, ended_at, ending, pid from runs order by run"
                )
            ],
            cancels=[
                Cancelling(*row)
                for row in ledger.execute("select task_id::text, verdict, asked_at, answered_at from cancels")
            ],
            troubles=[
                Trouble(*row)
                for row in ledger.execute(
                    "select fault, began_at, coalesce(ended_at, clock_timestamp()), note from faults order by step"
                )
            ],
            crashes=[row[0] for row in ledger.execute("select at from crashes order by at")],
            outages=[
                Outage(*row) for row in ledger.execute("select began_at, ended_at from outages order by began_at")
            ],
            failovers=[Failover(*row) for row in ledger.execute("select kind, kept_until, failed_at from failovers")],
            rows=[Row(*row) for row in _all(connection, ROWS)],
            attempts=[Attempt(*row) for row in _all(connection, ATTEMPTS)],
            counters=[Count(*row) for row in _all(connection, COUNTERS)],
            endings=endings,
            left_behind=left_behind,
            complaints=_complaints(stage),
        )


def _all(connection: psycopg.Connection[Any], statement: LiteralString) -> list[tuple[Any, ...]]:
    return connection.execute(statement).fetchall()


def _complaints(stage: Stage) -> list[str]:
    """Find what no log should hold, whatever goes wrong around it."""
    stage.keep_log()
    found: list[str] = []
    for log in sorted(stage.folder.glob("*.log")):
        text = log.read_text(errors="replace")
        found += [
            f"{log.name}: {text[each.start() : each.start() + CONTEXT_CHARACTERS]}"
            for each in COMPLAINT.finditer(text)
            if not any(words in each[0] for words in FULL_DISK)
        ]
    return found[:COMPLAINTS_MAX]
