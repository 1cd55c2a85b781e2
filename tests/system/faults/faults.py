"""What can go wrong, by name. A fault strikes, lasts, and is over when its function returns: it repairs what it has broken.

Those of processes are here. Each function gets the stage and its step of the plan, and returns what it has hit, for the report.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping

from tests.system.faults import database_faults, network_faults
from tests.system.faults.plan import Kind, Step
from tests.system.faults.settings import LEASE_SECONDS
from tests.system.faults.stage import Stage, picked

JUMPS = ("+3600", "-3600", "+86400", "-86400", "+5", "-5")
"""Seconds."""

Fault = Callable[[Stage, Step], str]


def kill_worker(stage: Stage, step: Step) -> str:
    """End a worker process by kill -9."""
    return _killed(picked(stage.victims(), step.pick))


def kill_supervisor(stage: Stage, step: Step) -> str:
    """End a supervisor by kill -9: its workers notice that it is gone."""
    return _killed(picked(stage.supervisors, step.pick).process.pid)


def kill_all(stage: Stage, step: Step) -> str:
    """End a supervisor and its workers at once, as a machine that fails."""
    supervisor = picked(stage.supervisors, step.pick)
    return ", ".join(_killed(pid) for pid in (supervisor.process.pid, *supervisor.children()))


def stop_worker(stage: Stage, step: Step) -> str:
    """Stop a worker process by SIGSTOP, and let it go on: for less or for more than a lease."""
    return _stopped(picked(stage.victims(), step.pick), step.seconds)


def stop_supervisor(stage: Stage, step: Step) -> str:
    """Stop the process that beats; the workers run on, and must notice that their lease is over."""
    return _stopped(picked(stage.supervisors, step.pick).process.pid, step.seconds)


def stop_all(stage: Stage, step: Step) -> str:
    """Stop a supervisor and its workers, as a machine that is suspended."""
    supervisor = picked(stage.supervisors, step.pick)
    pids = [supervisor.process.pid, *supervisor.children()]
    threads = [threading.Thread(target=_stopped, args=(pid, step.seconds)) for pid in pids]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return ", ".join(map(str, pids))


def end_supervisor(stage: Stage, step: Step) -> str:
    """Stop a supervisor as a deploy does: tasks may end or are released, and another starts."""
    pid = picked(stage.supervisors, step.pick).process.pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    return str(pid)


def clock_jump(stage: Stage, step: Step) -> str:
    """Let the clock of all workers be another for a while; only the database's counts. Without libfaketime before them, nothing happens."""
    if stage.clock is None:
        return "there is none"
    jump: str = picked(JUMPS, step.pick)
    stage.clock.write_text(jump)
    time.sleep(step.seconds)
    stage.clock.write_text("+0")
    return jump


def _killed(pid: int | None) -> str:
    if pid is None:
        return "nobody"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return str(pid)


def _stopped(pid: int | None, seconds: float) -> str:
    if pid is None:
        return "nobody"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)
    return str(pid)


FAULTS: Mapping[str, tuple[Fault, Kind]] = {
    "kill worker": (kill_worker, Kind(4, 0, 0)),
    "kill supervisor": (kill_supervisor, Kind(2, 0, 0)),
    "kill all": (kill_all, Kind(2, 0, 0)),
    "stop worker": (stop_worker, Kind(2, 0.2, LEASE_SECONDS * 0.9)),
    "stop worker long": (stop_worker, Kind(3, LEASE_SECONDS * 1.2, LEASE_SECONDS * 2.5)),
    "stop supervisor": (stop_supervisor, Kind(2, 0.5, LEASE_SECONDS * 2)),
    "stop all": (stop_all, Kind(2, 0.5, LEASE_SECONDS * 2)),
    "end supervisor": (end_supervisor, Kind(2, 0, 0)),
    "restart fast": (database_faults.restart_fast, Kind(2, 0, 1)),
    "outage": (database_faults.restart_fast, Kind(2, LEASE_SECONDS * 1.1, LEASE_SECONDS * 1.6)),
    "restart immediate": (database_faults.restart_immediate, Kind(2, 0, 1)),
    "crash backend": (database_faults.crash_backend, Kind(2, 0, 0)),
    "crash postmaster": (database_faults.crash_postmaster, Kind(1, 0, 0.5)),
    "terminate": (database_faults.terminate, Kind(4, 0, 0)),
    "connections full": (database_faults.connections_full, Kind(2, 0.5, 3)),
    "statement timeout": (database_faults.statement_timeout, Kind(1, 1, 3)),
    "read only": (database_faults.read_only, Kind(1, 0.5, 3)),
    "reset": (network_faults.reset, Kind(3, 0, 0)),
    "delay": (network_faults.delay, Kind(2, 0.5, 4)),
    "lose answers": (network_faults.lose_answers, Kind(4, 0.1, 1.5)),
    "lose commits": (network_faults.lose_commits, Kind(3, 0.5, 3)),
    "hole then reset": (network_faults.hole_then_reset, Kind(3, 0.5, LEASE_SECONDS * 2.5)),
    "hole then late": (network_faults.hole_then_late, Kind(4, 0.5, LEASE_SECONDS * 2.5)),
    "outage and hole": (network_faults.outage_and_hole, Kind(2, LEASE_SECONDS * 1.1, LEASE_SECONDS * 1.4)),
    "clock jump": (clock_jump, Kind(4, 0.5, 4)),
    "restart pooler": (network_faults.restart_pooler, Kind(4, 0, 2)),
}
NEEDS: Mapping[str, str] = {"restart pooler": "pooler", "clock jump": "clock"}
"""What a fault needs that not every run has."""


def kinds_with(*there: str) -> dict[str, Kind]:
    """Return what may be drawn in a run, by name.

    Args:
        there: What the run has beside the ordinary: ``pooler``, ``clock``.
    """
    return {name: kind for name, (_, kind) in FAULTS.items() if name not in NEEDS or NEEDS[name] in there}
