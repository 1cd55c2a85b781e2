"""What goes wrong, the same for all: the faults that apply to everybody. Each repairs what it has broken before it returns."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Mapping

from tests.processes import birth_of
from tests.system.faults.peers.brokers import NOBODY
from tests.system.faults.peers.crews import Crew
from tests.system.faults.peers.stage import Stage
from tests.system.faults.peers.timing import LEASE_SECONDS
from tests.system.faults.plan import Kind, Step, drawn
from tests.system.faults.stage import picked

SUSPENSION = "suspend worker"
SUSPENDED = Kind(1, LEASE_SECONDS * 1.2, LEASE_SECONDS * 1.5)


def kill_process(stage: Stage, step: Step) -> str:
    """End a process that runs tasks by kill -9."""
    crew, rest = _chosen(stage, step)
    victim = picked(crew.victims(), rest)
    return _signalled([] if victim is None else [victim], signal.SIGKILL)


def kill_worker(stage: Stage, step: Step) -> str:
    """End a worker with all its processes at once, as a machine that fails."""
    return _signalled(_chosen(stage, step)[0].processes(), signal.SIGKILL)


def pause_worker(stage: Stage, step: Step) -> str:
    """Stop a worker with all its processes for less than its lease, and let it go on."""
    return _stopped(_chosen(stage, step)[0].processes(), step.seconds)


def suspend_worker(stage: Stage, step: Step) -> str:
    """Stop a worker with all its processes for longer than its lease, as a machine that is suspended, and let it go on."""
    crew = _chosen(stage, step)[0]
    pids = crew.processes()
    stage.suspended.add(crew.name)  # the other faults leave it alone: else it is never seen to come back
    stage.tell("suspended", pids)
    try:
        return _stopped(pids, step.seconds)
    finally:
        stage.tell("resumed", pids)
        stage.suspended.remove(crew.name)


def restart(stage: Stage, step: Step) -> str:
    """Restart the database, or Redis, as an administrator does."""
    with stage.broker_lock:
        return stage.broker.restart(signal.SIGINT, step.seconds)


def crash(stage: Stage, step: Step) -> str:
    """End it by kill -9 (of PostgreSQL: an immediate shutdown, which recovers from the log too), and start it again."""
    with stage.broker_lock:
        return stage.broker.restart(signal.SIGQUIT, step.seconds)


def terminate(stage: Stage, step: Step) -> str:
    """Let the server end sessions: one, or all of them. By pg_terminate_backend, of Redis by CLIENT KILL."""
    with stage.broker_lock:
        return stage.broker.terminate(step.pick)


def cut(stage: Stage, step: Step) -> str:
    """Cut connections by a reset: those of one worker, of the producers, or all."""
    name = picked(["all", "all", *stage.networks], step.pick)
    count = sum(proxy.reset("") for each, proxy in stage.networks.items() if name in (each, "all"))
    return f"{name}, {count} connections"


def _chosen(stage: Stage, step: Step) -> tuple[Crew, float]:
    """Choose a worker that is not suspended, and return what is left of the plan's choice."""
    crews = [each for each in stage.crews if each.name not in stage.suspended]
    return picked(crews, step.pick), step.pick * len(crews) % 1


def _stopped(pids: list[int], seconds: float) -> str:
    births = {pid: birth_of(pid) for pid in pids}
    _signalled(pids, signal.SIGSTOP)
    time.sleep(seconds)
    return _signalled([pid for pid, born in births.items() if birth_of(pid) == born], signal.SIGCONT)


def _signalled(pids: list[int], number: signal.Signals) -> str:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return ", ".join(map(str, pids)) or NOBODY


Fault = Callable[[Stage, Step], str]

FAULTS: Mapping[str, tuple[Fault, Kind]] = {
    "kill process": (kill_process, Kind(4, 0, 0)),
    "kill worker": (kill_worker, Kind(3, 0, 0)),
    "pause worker": (pause_worker, Kind(3, 1, 6)),
    "restart": (restart, Kind(2, 0, 1)),
    "crash": (crash, Kind(2, 0, 1)),
    "terminate": (terminate, Kind(3, 0, 0)),
    "cut": (cut, Kind(3, 0, 0)),
    SUSPENSION: (suspend_worker, SUSPENDED),
}


def planned(seed: int, seconds: float) -> list[Step]:
    """Draw a plan: short faults, and one suspension, which begins in the first quarter and may end after the others."""
    steps = drawn(seed, seconds, {name: kind for name, (_, kind) in FAULTS.items() if name != SUSPENSION})
    chance = random.Random(f"{seed}/{SUSPENSION}")
    at = round(chance.uniform(0, seconds / 4), 2)
    lasting = round(chance.uniform(SUSPENDED.shortest, SUSPENDED.longest), 2)
    steps.append(Step(0, at, SUSPENSION, lasting, round(chance.random(), 3)))
    ordered = sorted(steps, key=lambda step: step.at)
    return [step._replace(number=number) for number, step in enumerate(ordered, 1)]
