"""What can go wrong with the database itself."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psycopg

from tests.servers import database_url
from tests.system.faults.ledger import birth_of
from tests.system.faults.plan import Step
from tests.system.faults.stage import APPLICATION_ROLE, CONNECTIONS_MAX, Stage, picked

STOP_SECONDS_MAX = 20.0
TIMEOUTS = ("2ms", "20ms", "200ms")

SESSIONS = "select pid from pg_stat_activity where usename = %s and backend_type = 'client backend' order by backend_start, pid"


def restart_fast(stage: Stage, step: Step) -> str:
    """Restart as an administrator does: sessions are cut, nothing that was committed is lost."""
    return _restarted(stage, step, signal.SIGINT)


def restart_immediate(stage: Stage, step: Step) -> str:
    """Restart without a checkpoint: commits that did not wait for the log are lost."""
    return _restarted(stage, step, signal.SIGQUIT)


def crash_postmaster(stage: Stage, step: Step) -> str:
    """End the first process of the server by kill -9; the others notice and go."""
    return _restarted(stage, step, signal.SIGKILL)


def _restarted(stage: Stage, step: Step, number: signal.Signals) -> str:
    with stage.server_lock:
        pid = stage.server.running.server_pid
        if number != signal.SIGINT:
            stage.crashed()
        os.kill(pid, number)
        _wait_for_end(pid)
        stage.went_down()
        stage.keep_log()
        time.sleep(step.seconds)
        stage.comes_up()
        stage.server.start()
        if number != signal.SIGINT:
            stage.crashed()
    return str(pid)


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while birth_of(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGQUIT)
            deadline += STOP_SECONDS_MAX
        time.sleep(0.02)


def crash_backend(stage: Stage, step: Step) -> str:
    """End one session's process by kill -9: the server ends all others, and recovers."""
    with stage.server_lock:
        pid = picked(_sessions(stage), step.pick)
        if pid is None:
            return "nobody"
        stage.crashed()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with stage.admin():
            stage.crashed()
    return str(pid)


def terminate(stage: Stage, step: Step) -> str:
    """End sessions by pg_terminate_backend: one, or all of them."""
    sessions = _sessions(stage)
    chosen = sessions if step.pick > 0.8 else [pid for pid in [picked(sessions, step.pick / 0.8)] if pid is not None]
    _terminate(stage, chosen)
    return ", ".join(map(str, chosen)) or "nobody"


def _sessions(stage: Stage) -> list[int]:
    with stage.admin() as connection:
        return [row[0] for row in connection.execute(SESSIONS, (APPLICATION_ROLE,))]


def _terminate(stage: Stage, pids: list[int]) -> None:
    with stage.admin() as connection:
        connection.execute("select pg_terminate_backend(p) from unnest(%s::int[]) p", (pids,))


def connections_full(stage: Stage, step: Step) -> str:
    """Take all connections that are left, after cutting those of the workers, so that they must ask for new ones."""
    with contextlib.ExitStack() as held:
        taken = _fill(stage, held)
        _terminate(stage, _sessions_of_others(stage))
        deadline = time.monotonic() + step.seconds
        while time.monotonic() < deadline:
            taken += _fill(stage, held)
            time.sleep(0.05)
    return f"{taken} taken"


def _fill(stage: Stage, held: contextlib.ExitStack) -> int:
    """Connect until no connection is left; answer how many that were."""
    url = database_url(stage.server.url(), user=APPLICATION_ROLE)
    for taken in range(CONNECTIONS_MAX):
        try:
            held.enter_context(contextlib.closing(psycopg.connect(url, application_name="hoarder")))
        except psycopg.OperationalError:
            return taken
    return CONNECTIONS_MAX


def _sessions_of_others(stage: Stage) -> list[int]:
    with stage.admin() as connection:
        statement = "select pid from pg_stat_activity where usename = %s and application_name <> 'hoarder'"
        return [row[0] for row in connection.execute(statement, (APPLICATION_ROLE,))]


def statement_timeout(stage: Stage, step: Step) -> str:
    """Give the application's role a statement_timeout and a lock_timeout that are too short; new sessions have it."""
    value = picked(TIMEOUTS, step.pick)
    _for_a_while(
        stage,
        step.seconds,
        [
            f"alter role {APPLICATION_ROLE} set statement_timeout = '{value}'",
            f"alter role {APPLICATION_ROLE} set lock_timeout = '{value}'",
        ],
        [f"alter role {APPLICATION_ROLE} reset all"],
    )
    return value


def read_only(stage: Stage, step: Step) -> str:
    """Let all transactions be read-only, as after a failover to a node that is not promoted yet."""
    _for_a_while(
        stage,
        step.seconds,
        ["alter system set default_transaction_read_only = on", "select pg_reload_conf()"],
        ["alter system reset default_transaction_read_only", "select pg_reload_conf()"],
    )
    return ""


def _for_a_while(stage: Stage, seconds: float, before: list[str], after: list[str]) -> None:
    """Change something, end the sessions that do not know it yet, wait, and change it back."""
    try:
        _told(stage, before)
        time.sleep(seconds)
    finally:
        _told(stage, after)


def _told(stage: Stage, statements: list[str]) -> None:
    with stage.server_lock, stage.admin() as connection:
        for each in statements:
            connection.execute(each.encode())
    _terminate(stage, _sessions(stage))
