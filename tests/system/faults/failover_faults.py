"""What can go wrong with the machine of the database: it is gone, and a standby takes over."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psycopg

from tests.processes import birth_of, children_of
from tests.system.faults.plan import Step
from tests.system.faults.stage import Stage
from tests.system.faults.standby import senders

END_SECONDS_MAX = 10.0
PROMOTE_SECONDS_MAX = 60


def promote_standby(stage: Stage, step: Step) -> str:
    """Let the standby fall behind for a while, end the whole primary by kill -9, and promote the standby. Once in a run."""
    standby, primary = stage.standby, stage.server
    if standby is None or standby is primary:
        return ""
    # not while the primary refuses work by a fault: that would go with it, and strike nobody
    with stage.refusal_lock, stage.server_lock:
        with stage.admin() as connection:
            for pid in senders(connection):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(step.seconds)
        stage.crashed()
        stage.fails()
        end_machine(primary.running.server_pid)
        stage.went_down()
        stage.keep_log()
        with psycopg.connect(standby.url(), autocommit=True) as connection:
            connection.execute("select pg_promote(true, %s)", (PROMOTE_SECONDS_MAX,))
            row = connection.execute("select pg_last_xact_replay_timestamp(), pg_is_in_recovery()").fetchone()
        if row is None or row[0] is None or row[1]:
            raise RuntimeError(f"the standby was not promoted: {row}")
        stage.server = standby
        stage.took_over(row[0])
        stage.comes_up()
        stage.crashed()
    return f"{step.seconds:g} s behind"


def end_machine(server_pid: int) -> None:
    """End a server with all its processes, as if by a power cut: of none of them a client hears another word."""
    os.kill(server_pid, signal.SIGSTOP)  # so that it starts no other meanwhile
    pids = [server_pid, *children_of(server_pid)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + END_SECONDS_MAX
    while any(birth_of(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise RuntimeError("the primary does not end: the run proves nothing")
        time.sleep(0.01)
