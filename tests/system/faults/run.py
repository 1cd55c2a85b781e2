"""One run: everything starts, the plan strikes, everything comes to rest, and the history is checked."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tests.system.faults import bodies
from tests.system.faults.checker import Violation, check, excused
from tests.system.faults.faults import FAULTS, kinds_with
from tests.system.faults.history import History
from tests.system.faults.plan import Step, drawn
from tests.system.faults.producers import Canceller, Producer
from tests.system.faults.reading import read
from tests.system.faults.stage import Stage, staged

PRODUCERS = 2
LOOK_SECONDS = 0.05
REPAIR_SECONDS_MAX = 60.0
REST_SECONDS_MAX = 90.0
"""Longer than any time limit, its grace, all retries that are left, and a lease: what is not final by then is stuck."""


SUBJECTS_MAX = 10
NEAR = timedelta(seconds=5)


@dataclass(frozen=True)
class Report:
    """What came of a run."""

    seed: int
    plan: Sequence[Step]
    history: History
    violations: Sequence[Violation]
    rest_seconds: float
    starts: int

    def written(self) -> str:
        """Write it as a table."""
        history = self.history
        faults = Counter(each.fault for each in history.troubles)
        statuses = Counter(row.status for row in history.rows)
        outcomes = Counter(each.outcome for each in history.attempts)
        lines = [
            ("faults", _counts(faults)),
            ("transactions", _counts(Counter(each.ending for each in history.batches))),
            ("tasks", _counts(statuses)),
            ("runs", _counts(Counter(f"{each.place} {each.ending}" for each in history.runs))),
            ("other ends", _counts(outcomes)),
            ("overlaps allowed", _counts(excused(history))),
            ("cancels", _counts(Counter(each.verdict for each in history.cancels))),
            ("supervisor starts", str(self.starts)),
            ("came to rest in", f"{self.rest_seconds:.1f} s"),
            ("violations", str(len(self.violations))),
        ]
        text = "\n".join(f"{name:<18} {value}" for name, value in lines)
        subjects = list(dict.fromkeys(each.subject for each in self.violations))[:SUBJECTS_MAX]
        evidence = [line for subject in subjects for line in evidence_of(history, subject)]
        return "\n".join([text, *(f"  {each}" for each in self.violations), *evidence])


def evidence_of(history: History, task_id: str) -> list[str]:
    """List all that was recorded of a task, in the order of time."""
    moments: list[tuple[datetime, str]] = []
    for run in history.runs_of.get(task_id, ()):
        who = f"attempt {run.attempt} claim {run.claim_id[:8]} in {run.place}"
        moments.append((run.began_at, f"{who} began"))
        if run.ended_at is not None:
            moments.append((run.ended_at, f"{who} {run.ending}"))
    moments += [
        (each.ended_at, f"attempt {each.attempt} claim {str(each.claim_id)[:8]} recorded as {each.outcome}")
        for each in history.attempts_of.get(task_id, ())
    ]
    if not moments:
        return []
    first, last = min(moments)[0], max(moments)[0]
    for trouble in history.troubles:
        if trouble.began_at <= last and trouble.ended_at >= first - NEAR:
            moments.append((trouble.began_at, f"[{trouble.fault} begins]"))
            moments.append((trouble.ended_at, f"[{trouble.fault} ends]"))
    return [f"    {task_id}:", *(f"      {at:%H:%M:%S.%f} {what}" for at, what in sorted(moments))]


def _counts(counts: Counter[str]) -> str:
    return f"{counts.total()}: " + ", ".join(f"{count} {name}" for name, count in counts.most_common())


def run(
    seed: int,
    seconds: float,
    version: int,
    *,
    folder: Path | None = None,
    kinds: Sequence[str] | None = None,
    mutant: str | None = None,
    pooled: bool = False,
    clock: bool = False,
    say: Callable[[str], None] = lambda _text: None,
) -> Report:
    """Run one plan and check what is left.

    Args:
        seed: Draws the plan, the tasks and the transactions.
        seconds: How long faults strike.
        version: Of PostgreSQL.
        folder: Where logs are kept; None = nowhere.
        kinds: Names of faults to draw from; None = all.
        mutant: Which guard to take out of the engine first; None = none.
        pooled: Put pgbouncer in transaction mode before the database.
        clock: Put libfaketime before the workers.
        say: Told of each step.
    """
    there = [name for name, is_there in (("pooler", pooled), ("clock", clock)) if is_there]
    chosen = {name: kind for name, kind in kinds_with(*there).items() if kinds is None or name in kinds}
    plan = drawn(seed, seconds, chosen)
    with (
        staged(version, folder, mutant=mutant, pooled=pooled, clock=clock) as stage,
        bodies.octop.pointed_at(stage.producers_dsn, "public"),
    ):
        producers = [
            Producer(f"p{number}", seed, stage.producers_dsn, stage.ledger_dsn) for number in range(1, PRODUCERS + 1)
        ]
        producers.append(Canceller(seed, stage.producers_dsn, stage.ledger_dsn, producers[:]))
        stage.wait_for_workers()
        for each in producers:
            each.start()
        _strike(stage, plan, seconds, say)
        for each in producers:
            each.stop()
        for each in producers:
            each.join(REPAIR_SECONDS_MAX)
        rest_seconds = _rest(stage)
        starts = sum(each.starts for each in stage.supervisors)
        endings = [each.stop() for each in stage.supervisors]
        left = [f"{each.name} {pid}" for each in stage.supervisors for pid in each.survivors(seconds=5)]
        history = read(stage, endings, left)
    return Report(seed, plan, history, check(history), rest_seconds, starts)


def _strike(stage: Stage, plan: Sequence[Step], seconds: float, say: Callable[[str], None]) -> None:
    """Let each step begin in time, in a thread of its own, and keep the supervisors running meanwhile."""
    began = time.monotonic()
    threads: list[threading.Thread] = []
    errors: list[BaseException] = []
    waiting = list(plan)
    while time.monotonic() < began + seconds or any(each.is_alive() for each in threads):
        while waiting and time.monotonic() - began >= waiting[0].at:
            threads.append(threading.Thread(target=_step, args=(stage, waiting.pop(0), say, errors), daemon=True))
            threads[-1].start()
        for supervisor in stage.supervisors:
            supervisor.keep()
        if time.monotonic() > began + seconds + REPAIR_SECONDS_MAX:
            raise RuntimeError("a fault has not ended: the run proves nothing")
        time.sleep(LOOK_SECONDS)
    if errors:
        raise RuntimeError("a fault could not be made: the run proves nothing") from errors[0]


def _step(stage: Stage, step: Step, say: Callable[[str], None], errors: list[BaseException]) -> None:
    make, _ = FAULTS[step.fault]
    stage.ledger.execute("insert into faults (step, fault) values (%s, %s)", step.number, step.fault)
    try:
        hit = make(stage, step)
    except BaseException as error:
        errors.append(error)
        hit = f"{type(error).__name__}: {error}"
    stage.ledger.execute("update faults set ended_at = clock_timestamp(), note = %s where step = %s", hit, step.number)
    say(f"{step.number:>4}  {step.fault}: {hit}")


def _rest(stage: Stage) -> float:
    """Wait until all tasks are final, or for so long that what is left must be stuck."""
    began = time.monotonic()
    while stage.unfinished() and time.monotonic() - began < REST_SECONDS_MAX:
        for supervisor in stage.supervisors:
            supervisor.keep()
        time.sleep(0.2)
    return time.monotonic() - began
