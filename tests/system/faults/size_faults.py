"""What can go wrong when files may not grow (RLIMIT_FSIZE): a full disk for those who may not mount a small one, and a quota.

Where a disk is full PostgreSQL hears "No space left on device" (disk_faults.py), here "File too large"; it refuses, or ends itself, alike.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import psycopg

from octop.engine.private_user import run_as, server_user
from tests.processes import children_of
from tests.system.faults.plan import Step
from tests.system.faults.server_return import come_back
from tests.system.faults.stage import Stage
from tests.system.faults.striking import Refusals, kept_up, times

TOO_LARGE = "File too large"
REFUSED_WORDS = f"could not (?:extend|write|fallocate).*{TOO_LARGE}"

TABLE_BYTES = 16 << 20
"""As large as a segment of the log, so that the log may still grow."""
# Rows that are rolled back take room until they are vacuumed. Blocked: no claim walks over them.
FILL = """
insert into octop_tasks_live (task_type, status, payload)
select 'ballast', 'blocked', jsonb_build_object('filler', repeat('x', %s)) from generate_series(1, %s)
"""
FILLERS = ((1700, 1000), (300, 100), (1, 20))
"""How long rows are, and how many are added at once, until not even the smallest finds a page."""
LOG_BYTES = 8 << 20
MESSAGE = "select pg_logical_emit_message(true, 'octop', repeat('x', %s))"
"""One that begins in the first half of a segment ends in the second."""

# The server's processes are limited by their own user: root in a container may not do that.
LIMIT = 'limit=$1; shift; for pid; do prlimit --pid "$pid" --fsize="$limit:" 2>/dev/null; done; true'


def tables_can_not_grow(stage: Stage, step: Step) -> str:
    """Let the table of live tasks be as large as a file may be, and full, again and again, until others were refused as well."""
    with stage.refusal_lock, stage.server_lock, stage.admin() as connection:
        refusals = Refusals(stage, REFUSED_WORDS)

        def fill() -> int:
            refusals.own += _filled(connection)
            return refusals.of_others()

        with _limited(stage, TABLE_BYTES):
            refused = kept_up(step.seconds, fill)
        connection.execute("vacuum octop_tasks_live")
    return times(refused, "statements refused")


def _filled(connection: psycopg.Connection[Any]) -> int:
    """Fill the table with what is rolled back; return how often that was refused."""
    refused = 0
    with connection.transaction(force_rollback=True):
        for size, count in FILLERS:
            try:
                with connection.transaction():
                    while True:
                        connection.execute(FILL, (size, count))
            except psycopg.DatabaseError as error:
                if TOO_LARGE not in str(error):
                    raise
                refused += 1
    return refused


def log_can_not_grow(stage: Stage, step: Step) -> str:
    """Let no file be larger than half a segment of the log: the server ends itself (PANIC), and can not start again until it may."""
    with stage.server_lock:
        before = stage.said("PANIC")
        stage.crashed()
        with _limited(stage, LOG_BYTES):
            with (
                contextlib.suppress(psycopg.DatabaseError),  # the last word of a server that ends itself, or none
                # not stage.admin(), which waits for a server that has ended already
                psycopg.connect(stage.server.url(), autocommit=True) as connection,
            ):
                for _ in range(2):
                    connection.execute(MESSAGE, (LOG_BYTES,))
            stage.crashed()
            time.sleep(step.seconds)
        come_back(stage)
        stage.crashed()
    return times(stage.said("PANIC") - before, "times the log could not be written")


@contextlib.contextmanager
def _limited(stage: Stage, size: int) -> Iterator[None]:
    """Let no file of the server be written beyond a size; those of its processes that come later have it from the first one."""
    _limit(stage, str(size))
    try:
        yield
    finally:
        _limit(stage, "unlimited")


def _limit(stage: Stage, size: str) -> None:
    pid = stage.server.running.server_pid
    user = server_user(stage.server.directory)
    for pids in ([pid], children_of(pid)):
        run_as(user, ["/bin/sh", "-c", LIMIT, "octop-limit", size, *map(str, pids)])
