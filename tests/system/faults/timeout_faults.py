"""What can go wrong when the database refuses: time limits that are too short, locks that others hold, and transactions that may only read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import psycopg

from tests.system.faults.database_faults import sessions_of, terminated
from tests.system.faults.plan import Step
from tests.system.faults.stage import APPLICATION_ROLE, Stage, picked
from tests.system.faults.striking import lasted, times

TIMEOUTS = ("200ms", "20ms", "2ms", "1ms")
LOCK_TIMEOUTS = ("2ms", "20ms", "200ms")
STATEMENT_WORDS = "canceling statement due to statement timeout"
LOCK_WORDS = "canceling statement due to lock timeout"
READ_ONLY_WORDS = "in a read-only transaction"


def statement_timeout(stage: Stage, step: Step) -> str:
    """Give the application's role a statement_timeout that is too short, and a shorter one if it cuts nothing; new sessions have it."""
    first = TIMEOUTS.index(picked(TIMEOUTS[:3], step.pick))
    for value in TIMEOUTS[first:]:
        with stage.refusal_lock:
            before = stage.said(STATEMENT_WORDS)
            with _role_with(stage, f"statement_timeout = '{value}'"):
                time.sleep(step.seconds)
        if cut := stage.said(STATEMENT_WORDS) - before:
            return f"{value} cut {cut} statements"
    return ""


def lock_timeout(stage: Stage, step: Step) -> str:
    """Let another session hold the table of live tasks, as DDL does, and give the application's role a lock_timeout."""
    value = picked(LOCK_TIMEOUTS, step.pick)
    before = stage.said(LOCK_WORDS)

    def cut() -> int:
        return stage.said(LOCK_WORDS) - before

    with (
        stage.refusal_lock,
        _role_with(stage, f"lock_timeout = '{value}'"),
        contextlib.suppress(psycopg.OperationalError),  # a restart of the server takes the lock away
        stage.admin() as connection,
        connection.transaction(),
    ):
        connection.execute("lock table only octop_tasks_live in access exclusive mode")
        lasted(step.seconds, cut)
    return times(cut(), f"statements cut, by {value} or their own limit")


def read_only(stage: Stage, step: Step) -> str:
    """Let all transactions be read-only, as after a failover to a node that is not promoted yet."""
    with (
        stage.refusal_lock,
        _told(
            stage,
            ["alter system set default_transaction_read_only = on", "select pg_reload_conf()"],
            ["alter system reset default_transaction_read_only", "select pg_reload_conf()"],
        ),
    ):
        before = stage.said(READ_ONLY_WORDS)

        def refused() -> int:
            return stage.said(READ_ONLY_WORDS) - before

        if stage.standby is None:
            return times(lasted(step.seconds, refused), "statements refused")

        # who may choose between two servers looks for one that takes writes, and keeps no session here
        def are_out() -> bool:
            terminated(stage, sessions_of(stage))  # of those that came in between, one that only listens would stay
            return not sessions_of(stage)

        shut = lasted(step.seconds, lambda: refused() or are_out())
        return times(refused(), "statements refused") or times(int(shut), "database that lets nobody in")


def _role_with(stage: Stage, setting: str) -> contextlib.AbstractContextManager[None]:
    return _told(stage, [f"alter role {APPLICATION_ROLE} set {setting}"], [f"alter role {APPLICATION_ROLE} reset all"])


@contextlib.contextmanager
def _told(stage: Stage, before: list[str], after: list[str]) -> Iterator[None]:
    """Change something, end the sessions that do not know it yet, and change it back."""
    try:
        _tell(stage, before)
        yield
    finally:
        _tell(stage, after)


def _tell(stage: Stage, statements: list[str]) -> None:
    with stage.server_lock, stage.admin() as connection:
        for each in statements:
            connection.execute(each.encode())
    terminated(stage, sessions_of(stage))
