"""The ledger: who ran which attempt of which task, and from when to when. It lies on a server of its own that no fault touches.

A process that is killed writes no end. So whoever begins a later attempt of a task looks first whether those before are still alive:
it notes the end of the dead, and leaves the others open. A run that is open when the next one begins has overlapped it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from octop import Context
from tests.processes import birth_of

VARIABLE = "OCTOP_TEST_LEDGER"
DEATH_SECONDS_MAX = 0.5
LATE_SECONDS = 1.0
"""What takes longer was stopped on the way: more than a busy machine needs, less than costs a lease."""

TABLES: LiteralString = """
create table runs (
  run        bigint generated always as identity primary key,
  task_id    uuid        not null,
  attempt    integer     not null,
  claim_id   uuid        not null,
  task_type  text        not null,
  place      text        not null,
  pid        integer     not null,
  born       bigint      not null,
  began_at   timestamptz not null default clock_timestamp(),
  wall_at    timestamptz not null,
  ended_at   timestamptz,
  ending     text
);
create index runs_task on runs (task_id);
create table batches (
  batch      text        primary key,
  way        text        not null,
  ids        uuid[]      not null,
  ending     text        not null default 'intended',
  meant_at   timestamptz not null default clock_timestamp(),
  changed_at timestamptz not null default clock_timestamp()
);
create table cancels (
  task_id    uuid        not null,
  verdict    text        not null default 'unknown',
  asked_at   timestamptz not null default clock_timestamp(),
  answered_at timestamptz not null default clock_timestamp()
);
create table faults (
  step       integer     primary key,
  fault      text        not null,
  began_at   timestamptz not null default clock_timestamp(),
  ended_at   timestamptz,
  note       text        not null default ''
);
create table outages (began_at timestamptz not null default clock_timestamp(), ended_at timestamptz);
create table failovers (kind text not null, failed_at timestamptz not null default clock_timestamp(), kept_until timestamptz);
create table crashes (at timestamptz not null default clock_timestamp());
"""


class Ledger:
    """A connection to the ledger that opens itself, one for each process; any thread may use it."""

    def __init__(self, dsn: str | None = None) -> None:
        self._dsn = dsn
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._pid = 0

    def execute(self, statement: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows if it has any."""
        with self._lock:
            if self._connection is None or self._pid != os.getpid():
                self._pid = os.getpid()
                dsn = self._dsn or os.environ[VARIABLE]
                self._connection = psycopg.connect(dsn, autocommit=True, application_name="ledger")
            cursor = self._connection.execute(statement, values)
            return [] if cursor.description is None else cursor.fetchall()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


_ledger = Ledger()


@contextlib.contextmanager
def recorded(context: Context, place: str) -> Iterator[None]:
    """Write down that an attempt begins and how it ends: returned, raised, or cut from outside."""
    entered = time.monotonic()
    _note_the_dead(context)
    run = _begin(context, place)
    if (waited := time.monotonic() - entered) > LATE_SECONDS:
        # It had begun before it could say so; or it was stopped after it had said so, and then what it said stands.
        _ledger.execute(
            "update runs set began_at = least(began_at, clock_timestamp() - make_interval(secs => %s)) where run = %s",
            waited,
            run,
        )
    ending = "returned"
    try:
        yield
    except Exception:
        ending = "raised"
        raise
    except BaseException:
        ending = "cut"
        raise
    finally:
        _ledger.execute("update runs set ended_at = clock_timestamp(), ending = %s where run = %s", ending, run)


def _note_the_dead(context: Context) -> None:
    """Note the end of those before us that are dead. Before we begin: who is killed on the way has hidden nothing."""
    before = "select run, pid, born from runs where task_id = %s and ended_at is null"
    for run, pid, born in _ledger.execute(before, context.task_id):
        if not _is_alive(pid, born):
            _ledger.execute(
                "update runs set ending = 'died', ended_at = clock_timestamp() where run = %s and ended_at is null", run
            )


def _begin(context: Context, place: str) -> int:
    place = "process" if _is_child() else place
    ((run,),) = _ledger.execute(
        "insert into runs (task_id, attempt, claim_id, task_type, place, pid, born, wall_at) values (%s, %s, %s, %s, %s, %s, %s, %s) returning run",
        context.task_id,
        context.attempt,
        claim_of(context),
        context.task_type,
        place,
        os.getpid(),
        birth_of(os.getpid()),
        datetime.now(UTC),  # as the machine has it: a jump of its clock is seen here, and nowhere else
    )
    return int(run)


def claim_of(context: Context) -> str:
    """Return the exchange that gave the attempt away: no business of a task, but of this one."""
    return context._claimed.claim_id


def _is_child() -> bool:
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return getattr(main, "name", "") == "octop.worker.child"


def _is_alive(pid: int, born: int) -> bool:
    """Tell whether the process that had this pid then is still there. One that was sent SIGKILL gets a moment to go."""
    deadline = time.monotonic() + DEATH_SECONDS_MAX
    while birth_of(pid) == born:
        if not _is_doomed(pid) or time.monotonic() > deadline:
            return True
        time.sleep(0.01)
    return False


def _is_doomed(pid: int) -> bool:
    """Tell whether a SIGKILL is on its way."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, mask = line.partition(":")
            if name in ("SigPnd", "ShdPnd") and int(mask, 16) >> (signal.SIGKILL - 1) & 1:
                return True
    return False
