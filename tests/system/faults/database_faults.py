"""What can go wrong with the database itself."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time

import psycopg

from tests.processes import wait_for_end
from tests.servers import database_url
from tests.system.faults.plan import Step
from tests.system.faults.stage import APPLICATION_ROLE, CONNECTIONS_MAX, Stage, picked
from tests.system.faults.striking import Refusals, awaited, kept_up, times

STOP_SECONDS_MAX = 20.0
REFUSED = re.compile("remaining connection slots are reserved|too many clients already|too many connections for role")

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
        wait_for_end(pid, STOP_SECONDS_MAX)
        stage.went_down()
        stage.keep_log()
        time.sleep(step.seconds)
        stage.comes_up()
        stage.server.start()
        if number != signal.SIGINT:
            stage.crashed()
    return str(pid)


def crash_backend(stage: Stage, step: Step) -> str:
    """End one session's process by kill -9: the server ends all others, and recovers."""
    with stage.server_lock:
        pid = awaited(lambda: picked(sessions_of(stage), step.pick))
        if pid is None:
            return ""
        stage.crashed()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with stage.admin():
            stage.crashed()
    return str(pid)


def terminate(stage: Stage, step: Step) -> str:
    """End sessions by pg_terminate_backend: one, or all of them."""

    def ended() -> list[int]:
        sessions = sessions_of(stage)
        one = picked(sessions, step.pick / 0.8)
        return terminated(stage, sessions if step.pick > 0.8 or one is None else [one])

    return ", ".join(map(str, awaited(ended)))


def sessions_of(stage: Stage) -> list[int]:
    """List the sessions of workers and producers, the oldest first."""
    return [row[0] for row in stage.asked(SESSIONS, APPLICATION_ROLE)]


def terminated(stage: Stage, pids: list[int]) -> list[int]:
    """End sessions; return those that were there."""
    return [row[0] for row in stage.asked("select p from unnest(%s::int[]) p where pg_terminate_backend(p)", pids)]


def connections_full(stage: Stage, step: Step) -> str:
    """Take all connections that are left, after cutting those of the workers, so that they must ask for new ones."""
    with stage.refusal_lock, contextlib.ExitStack() as held:
        refusals = Refusals(stage, REFUSED)

        def take() -> int:
            refusals.own += _filled(stage, held)
            return refusals.of_others()

        take()
        terminated(stage, _sessions_of_others(stage))
        refused = kept_up(step.seconds, take)
    return times(refused, "connections refused")


def _filled(stage: Stage, held: contextlib.ExitStack) -> int:
    """Connect until no connection is left; return how often that was refused: not at all if another fault is bringing the server down."""
    url = database_url(stage.server.url(), user=APPLICATION_ROLE)
    try:
        for _ in range(CONNECTIONS_MAX):
            held.enter_context(contextlib.closing(psycopg.connect(url, application_name="hoarder")))
    except psycopg.OperationalError as error:
        return len(REFUSED.findall(str(error)))
    return 0


def _sessions_of_others(stage: Stage) -> list[int]:
    statement = "select pid from pg_stat_activity where usename = %s and application_name <> 'hoarder'"
    return [row[0] for row in stage.asked(statement, APPLICATION_ROLE)]
