"""One run of one contender: everything starts, the plan strikes, what is left gets time to end, and all is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.system.faults.peers.contenders import Contender
from tests.system.faults.peers.judge import Facts, Fare, facts_of, judged
from tests.system.faults.peers.programs import book
from tests.system.faults.peers.stage import Stage, staged
from tests.system.faults.peers.striking import FAULTS, planned
from tests.system.faults.peers.timing import REST_SECONDS
from tests.system.faults.plan import Step

LOOK_SECONDS = 0.1
STATES_SECONDS = 4.0
REPAIR_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Report:
    """What came of a run."""

    contender: Contender
    seed: int
    seconds: float
    broker: str
    facts: Facts
    fare: Fare
    rest_seconds: float
    restarts: int
    struck: Sequence[tuple[Step, str]] = field(default=())


def run(
    contender: Contender,
    seed: int,
    seconds: float,
    version: int,
    *,
    logs: Path | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Report:
    """Run the plan of a seed against one contender.

    Args:
        contender: Who.
        seed: Draws plan, tasks and transactions.
        seconds: How long faults strike.
        version: Of PostgreSQL.
        logs: Where the logs go; None = nowhere.
        say: Told of each step.

    Raises:
        RuntimeError: Something did not start, or a fault could not be made: the run proves nothing.
    """
    with staged(contender, version, seed, logs) as stage:
        stage.start_workers()
        stage.start_producers()
        stage.wait_for_workers()
        struck = _strike(stage, planned(seed, seconds), seconds, say)
        stage.stop_producers()
        rest_seconds, states = _rest(stage)
        restarts = sum(each.starts - 1 for each in stage.crews)
        for each in stage.crews:
            each.stop()
        facts = facts_of(book.read(stage.book), states)
        return Report(
            contender, seed, seconds, stage.broker.version, facts, judged(facts), rest_seconds, restarts, struck
        )


def _strike(stage: Stage, plan: Sequence[Step], seconds: float, say: Callable[[str], None]) -> list[tuple[Step, str]]:
    """Let each step begin in time, in a thread of its own, and keep the workers running meanwhile."""
    began = time.monotonic()
    threads: list[threading.Thread] = []
    struck: list[tuple[Step, str]] = []
    errors: list[BaseException] = []
    waiting = list(plan)

    def strike(step: Step) -> None:
        try:
            hit = FAULTS[step.fault][0](stage, step)
        except BaseException as error:
            errors.append(error)
            hit = f"{type(error).__name__}: {error}"
        struck.append((step, hit))
        say(f"{step.number:>4}  {step.at:>6.2f}  {step.fault}: {hit}")

    while time.monotonic() < began + seconds or any(each.is_alive() for each in threads):
        while waiting and time.monotonic() - began >= waiting[0].at:
            threads.append(threading.Thread(target=strike, args=(waiting.pop(0),), daemon=True))
            threads[-1].start()
        for crew in stage.crews:
            crew.keep()
        if time.monotonic() > began + seconds + REPAIR_SECONDS_MAX:
            raise RuntimeError("a fault has not ended: the run proves nothing")
        time.sleep(LOOK_SECONDS)
    if errors:
        raise RuntimeError("a fault could not be made: the run proves nothing") from errors[0]
    return struck


def _rest(stage: Stage) -> tuple[float, dict[str, list[str]]]:
    """Wait until nothing is left, or for so long that what is left must be stuck; return how long, and what there is."""
    began = time.monotonic()
    while True:
        states = stage.states()
        waited = time.monotonic() - began
        if not (states["waiting"] or states["running"]) or waited >= REST_SECONDS:
            return waited, states
        again = time.monotonic() + STATES_SECONDS
        while time.monotonic() < again:
            for crew in stage.crews:
                crew.keep()
            time.sleep(LOOK_SECONDS)
