"""One run: everything starts, the plan strikes, everything comes to rest, and the history is checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.system.faults import bodies
from tests.system.faults.checker import check
from tests.system.faults.faults import ENDS_WAITS_FOR_STANDBY, FAULTS, kinds_with
from tests.system.faults.plan import Step, drawn, with_promotion
from tests.system.faults.producers import Canceller, Producer
from tests.system.faults.reading import read
from tests.system.faults.report import Report
from tests.system.faults.stage import Stage, staged
from tests.system.faults.variants import VARIANTS, Variant

PRODUCERS = 2
LOOK_SECONDS = 0.05
PROGRESS_SECONDS = 10.0
REPAIR_SECONDS_MAX = 120.0
REST_SECONDS_MAX = 90.0
"""Longer than any time limit, its grace, all retries that are left, and a lease: when for so long no task has ended, what is left is stuck."""

Say = Callable[[str], None]


def run(
    seed: int,
    seconds: float,
    version: int,
    *,
    variant: str = "plain",
    folder: Path | None = None,
    kinds: Sequence[str] = (),
    mutant: str | None = None,
    say: Say = lambda _text: None,
) -> Report:
    """Run one plan and check what is left.

    Args:
        seed: Draws the plan, the tasks and the transactions.
        seconds: How long faults strike.
        version: Of PostgreSQL.
        variant: What there is beside workers and database, by its name in `VARIANTS`.
        folder: Where logs are kept; None = nowhere.
        kinds: Names of faults to draw from; none = all that the variant has.
        mutant: Which guard to take out of the engine first; None = none.
        say: Told of each step.
    """
    chosen = VARIANTS[variant]
    plan = _planned(seed, seconds, chosen, kinds)
    with (
        staged(version, folder, variant=chosen, mutant=mutant) as stage,
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
        rest_seconds = _rest(stage, say)
        stage.wait_for_workers()  # what is stopped while it starts can not end in order
        starts = sum(each.starts for each in stage.supervisors)
        endings = [each.stop() for each in stage.supervisors]
        left = [f"{each.name} {pid}" for each in stage.supervisors for pid in each.survivors(seconds=5)]
        history = read(stage, endings, left)
    return Report(seed, variant, seconds, plan, history, check(history), rest_seconds, starts)


def _planned(seed: int, seconds: float, variant: Variant, names: Sequence[str]) -> list[Step]:
    kinds = {name: kind for name, kind in kinds_with(*variant.things()).items() if not names or name in names}
    if variant.standby == "sync":
        kinds.pop(ENDS_WAITS_FOR_STANDBY, None)
    plan = drawn(seed, seconds, kinds) if kinds else []
    return plan if variant.standby is None else with_promotion(plan, seed, seconds)


def _strike(stage: Stage, plan: Sequence[Step], seconds: float, say: Say) -> None:
    """Let each step begin in time, in a thread of its own, and keep the supervisors running meanwhile."""
    began = time.monotonic()
    progress_at = PROGRESS_SECONDS
    threads: list[threading.Thread] = []
    errors: list[BaseException] = []
    waiting = list(plan)
    while (passed := time.monotonic() - began) < seconds or any(each.is_alive() for each in threads):
        while waiting and passed >= waiting[0].at:
            threads.append(threading.Thread(target=_step, args=(stage, waiting.pop(0), say, errors), daemon=True))
            threads[-1].start()
        for supervisor in stage.supervisors:
            supervisor.keep()
        if passed >= progress_at:
            progress_at += PROGRESS_SECONDS
            say(_progress(stage, passed, seconds))
        if passed > seconds + REPAIR_SECONDS_MAX:
            raise RuntimeError("a fault has not ended: the run proves nothing")
        time.sleep(LOOK_SECONDS)
    if errors:
        raise RuntimeError("a fault could not be made: the run proves nothing") from errors[0]


def _progress(stage: Stage, passed: float, seconds: float) -> str:
    ((meant, begun, struck),) = stage.ledger.execute(
        "select (select coalesce(sum(cardinality(ids)), 0) from batches where ending = 'committed'), (select count(*) from runs), (select count(*) from faults)"
    )
    return f"      {passed:.0f} of {seconds:g} s: {struck} faults, {meant} tasks committed, {begun} attempts begun"


def _step(stage: Stage, step: Step, say: Say, errors: list[BaseException]) -> None:
    make, _ = FAULTS[step.fault]
    stage.ledger.execute("insert into faults (step, fault) values (%s, %s)", step.number, step.fault)
    try:
        hit = make(stage, step)
    except BaseException as error:
        errors.append(error)
        hit = f"{type(error).__name__}: {error}"
    stage.ledger.execute("update faults set ended_at = clock_timestamp(), note = %s where step = %s", hit, step.number)
    say(f"{step.number:>4}  {step.fault}: {hit or 'struck nothing'}")


def _rest(stage: Stage, say: Say) -> float:
    """Wait until all tasks are final, or for so long that what is left must be stuck."""
    began = time.monotonic()
    say("      no more faults: everything comes to rest")
    fewest, fewest_at = stage.unfinished(), began
    while (left := stage.unfinished()) and time.monotonic() - fewest_at < REST_SECONDS_MAX:
        if left < fewest:  # a slow machine is not a stuck one
            fewest, fewest_at = left, time.monotonic()
        for supervisor in stage.supervisors:
            supervisor.keep()
        time.sleep(0.2)
    return time.monotonic() - began
