"""What can go wrong with a worker's processes and its host: supervisors, workers, the children that run one task each, the clock."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence

from tests.processes import birth_of
from tests.system.faults.plan import Step
from tests.system.faults.stage import Stage, picked
from tests.system.faults.striking import awaited, lasted, times
from tests.system.faults.workers import Supervisor

JUMPS = (3600, -3600, 86400, -86400, 5, -5)
"""Seconds."""
JUMP_ERROR_SECONDS = 2
"""How far from the jump the clock that a task saw may be: less than the smallest of them."""


def kill_worker(stage: Stage, step: Step) -> str:
    """End a worker process by kill -9."""
    return _killed(lambda: picked(stage.victims(), step.pick))


def kill_child(stage: Stage, step: Step) -> str:
    """End a process that runs one task for its worker by kill -9."""
    return _killed(lambda: picked(stage.children(), step.pick))


def kill_supervisor(stage: Stage, step: Step) -> str:
    """End a supervisor by kill -9: its workers notice that it is gone."""
    return _killed(lambda: picked(stage.supervisors, step.pick).process.pid)


def kill_all(stage: Stage, step: Step) -> str:
    """End a supervisor and its workers at once, as a machine that fails."""
    return ", ".join(str(pid) for pid in _machine(stage, step.pick) if _sent(pid, signal.SIGKILL))


def stop_worker(stage: Stage, step: Step) -> str:
    """Stop a worker process by SIGSTOP, and let it go on: for less or for more than a lease."""
    return _stopped(lambda: picked(stage.victims(), step.pick), step.seconds)


def stop_child(stage: Stage, step: Step) -> str:
    """Stop a process that runs one task for its worker, and let it go on."""
    return _stopped(lambda: picked(stage.children(), step.pick), step.seconds)


def stop_supervisor(stage: Stage, step: Step) -> str:
    """Stop the process that beats; the workers run on, and must notice that their lease is over."""
    return _stopped(lambda: picked(stage.supervisors, step.pick).process.pid, step.seconds)


def stop_all(stage: Stage, step: Step) -> str:
    """Stop a supervisor and its workers, as a machine that is suspended."""
    return _all_stopped(_machine(stage, step.pick), step.seconds)


def end_supervisor(stage: Stage, step: Step) -> str:
    """Stop a supervisor as a deploy does: tasks may end or are released, and another starts."""
    return _signalled(lambda: picked(stage.supervisors, step.pick).process.pid, signal.SIGTERM)


def clock_jump(stage: Stage, step: Step) -> str:
    """Let the clock of all workers be another for a while, and until a task has seen it; only the database's counts."""
    if stage.clock is None:
        return ""
    jump: int = picked(JUMPS, step.pick)
    before = stage.ledger.execute("select clock_timestamp()")[0][0]
    stage.clock.write_text(f"{jump:+d}")
    try:
        seen = lasted(
            step.seconds,
            lambda: int(
                stage.ledger.execute(
                    "select count(*) from runs where began_at > %s and abs(extract(epoch from wall_at - began_at) - %s) < %s",
                    before,
                    jump,
                    JUMP_ERROR_SECONDS,
                )[0][0]
            ),
        )
    finally:
        stage.clock.write_text("+0")
    return times(seen, f"tasks began by a clock {jump:+d} s off")


def _killed(victim: Callable[[], int | None]) -> str:
    return _signalled(victim, signal.SIGKILL)


def _signalled(victim: Callable[[], int | None], number: signal.Signals) -> str:
    """Send a signal to the first victim there is; return its process id."""

    def sent() -> str:
        pid = victim()
        return str(pid) if pid is not None and _sent(pid, number) else ""

    return awaited(sent)


def _stopped(victim: Callable[[], int | None], seconds: float) -> str:
    hit = _signalled(victim, signal.SIGSTOP)
    return hit and _all_stopped([int(hit)], seconds)


def _all_stopped(pids: Sequence[int], seconds: float) -> str:
    hit = [pid for pid in pids if _sent(pid, signal.SIGSTOP)]
    try:
        time.sleep(seconds)
    finally:
        for pid in hit:
            _sent(pid, signal.SIGCONT)
    return ", ".join(map(str, hit))


def _machine(stage: Stage, pick: float) -> list[int]:
    """List the processes of a supervisor that lives and its workers."""
    supervisor: Supervisor = picked(stage.supervisors, pick)
    workers = awaited(supervisor.children)
    return [supervisor.process.pid, *workers]


def _sent(pid: int, number: signal.Signals) -> bool:
    """Send a signal; tell whether there was a process, and not only its zombie, that could get it."""
    if not birth_of(pid):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False
