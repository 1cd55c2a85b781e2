"""Tasks of every kind, for workers that are about to be hurt. Each run is in the ledger; what a task does is decided by its id and attempt."""

from __future__ import annotations

import asyncio
import random
import select

import octop as _octop
from octop import Cancel, Context, Retry, Snooze
from tests.system.faults.ledger import claim_of, recorded

octop = _octop.Octop()

PATIENT = 40
"""Retries that no plan of faults uses up: such a task ends with success."""

Answer = dict[str, object]


def _answer(context: Context) -> Answer:
    """Name the attempt: the row of a finished task must hold the answer of the very attempt that it names."""
    return {"attempt": context.attempt, "claim_id": claim_of(context)}


def _block(seconds: float) -> None:
    """Sleep. Not by `time.sleep`: libfaketime breaks its absolute wait (EINVAL)."""
    select.select([], [], [], seconds)


def _chance(context: Context) -> float:
    return random.Random(f"{context.task_id}/{context.attempt}").random()


@octop.task(queue="quick", max_retries=PATIENT)
async def quick_on_loop(context: Context) -> Answer:
    with recorded(context, "loop"):
        return _answer(context)


@octop.task(queue="quick", max_retries=PATIENT)
def quick_in_thread(context: Context) -> Answer:
    with recorded(context, "thread"):
        return _answer(context)


@octop.task(queue="slow", max_retries=PATIENT)
async def naps_on_loop(context: Context, seconds: float) -> Answer:
    with recorded(context, "loop"):
        await asyncio.sleep(seconds)
        return _answer(context)


@octop.task(queue="slow", max_retries=PATIENT)
def naps_in_thread(context: Context, seconds: float) -> Answer:
    with recorded(context, "thread"):
        _block(seconds)
        return _answer(context)


@octop.task(queue="heavy", max_retries=PATIENT, run_in="process")
def naps_in_process(context: Context, seconds: float) -> Answer:
    with recorded(context, "process"):
        _block(seconds)
        return _answer(context)


@octop.task(queue="quick", max_retries=PATIENT)
async def fails_often_on_loop(context: Context) -> Answer:
    with recorded(context, "loop"):
        if _chance(context) < 0.4:
            raise LookupError("as its id has it")
        return _answer(context)


@octop.task(queue="quick", max_retries=PATIENT)
def fails_often_in_thread(context: Context) -> Answer:
    with recorded(context, "thread"):
        if _chance(context) < 0.4:
            raise LookupError("as its id has it")
        return _answer(context)


@octop.task(queue="quick", max_retries=2)
async def always_fails(context: Context) -> None:
    with recorded(context, "loop"):
        raise LookupError("always")


@octop.task(queue="quick", max_retries=PATIENT)
async def asks_for_a_retry(context: Context) -> Answer:
    with recorded(context, "loop"):
        if _chance(context) < 0.4:
            raise Retry(delay=0.1)
        return _answer(context)


@octop.task(queue="quick", max_retries=0)
def snoozes(context: Context) -> Answer:
    with recorded(context, "thread"):
        if context.attempt < 3:
            raise Snooze(0.1)
        return _answer(context)


@octop.task(queue="quick", max_retries=PATIENT)
async def cancels_itself(context: Context) -> None:
    with recorded(context, "loop"):
        raise Cancel("not needed")


@octop.task(queue="alone", max_retries=PATIENT)
async def runs_alone(context: Context, seconds: float) -> Answer:
    with recorded(context, "loop"):
        await asyncio.sleep(seconds)
        return _answer(context)


@octop.task(queue="three", max_retries=PATIENT)
def runs_with_two_others(context: Context, seconds: float) -> Answer:
    with recorded(context, "thread"):
        _block(seconds)
        return _answer(context)


@octop.task(queue="laned", max_retries=PATIENT)
async def runs_in_a_lane(context: Context, seconds: float) -> Answer:
    with recorded(context, "loop"):
        await asyncio.sleep(seconds)
        return _answer(context)


@octop.task(queue="strict", max_retries=PATIENT)
async def runs_in_order(context: Context, seconds: float) -> Answer:
    with recorded(context, "loop"):
        await asyncio.sleep(seconds)
        if _chance(context) < 0.2:
            raise LookupError("as its id has it")
        return _answer(context)


@octop.task(queue="slow", max_retries=1, timeout=0.5)
async def overruns_on_loop(context: Context) -> None:
    with recorded(context, "loop"):
        await asyncio.sleep(20)


@octop.task(queue="slow", max_retries=1, timeout=0.5)
def overruns_in_thread(context: Context) -> None:
    with recorded(context, "thread"):
        _block(1.5)


@octop.task(queue="heavy", max_retries=1, timeout=0.5, run_in="process")
def overruns_in_process(context: Context) -> None:
    with recorded(context, "process"):
        _block(20)
