import asyncio
import contextlib
import contextvars
import gc
import threading
import types
import weakref

import pytest

from octop.model.hooks import Hooks
from octop.model.task import Fence, OutcomeKind
from octop.worker.report import (
    MESSAGE_CHARACTERS_MAX,
    STOOD_HERE,
    TRACEBACK_CHARACTERS_MAX,
    cleaned,
    failure_of,
    stack_in,
)
from octop.worker.slot import Reason
from octop.worker.threads import Job
from tests.unit.house import House, claimed, house_test, until

FENCE = Fence("i", 1, "c")


class Odd(Exception):
    def __str__(self):
        raise SystemExit(3)

    def __getattr__(self, name):
        raise ZeroDivisionError


class Number(Exception):
    def __str__(self):
        return 5  # noqa: PLE0307 - what a careless author writes


class OddText(str):
    def __getitem__(self, key):
        raise ZeroDivisionError

    def encode(self, *arguments):
        raise ZeroDivisionError


class WithOddText(Exception):
    def __str__(self):
        return OddText("said")


def raised(error):
    try:
        raise error
    except BaseException as caught:
        return caught


def test_keeps_class_message_traceback_and_ancestors():
    outcome = failure_of(FENCE, raised(KeyError("k")))
    assert (outcome.kind, outcome.error_class, outcome.error_message) == (OutcomeKind.FAILURE, "KeyError", "'k'")
    assert "in raised" in (outcome.traceback or "")
    assert outcome.mro == ("KeyError", "LookupError", "Exception", "BaseException")


@pytest.mark.parametrize(
    "make", [Odd, Number, WithOddText, BaseException, lambda: ExceptionGroup("g", [ValueError("v")])], ids=range(5)
)
def test_c047_recording_never_fails(make):
    outcome = failure_of(FENCE, raised(make()))
    assert outcome.error_message is not None
    assert outcome.traceback


def test_text_is_bounded_and_can_be_kept():
    outcome = failure_of(FENCE, raised(ValueError("a\x00b\ud800" + "x" * 200_000)))
    message = outcome.error_message or ""
    assert len(message) == MESSAGE_CHARACTERS_MAX
    assert message.startswith("a\\x00b\\ud800x")
    assert len(outcome.traceback or "") <= TRACEBACK_CHARACTERS_MAX
    message.encode()


def test_the_end_is_kept_where_it_matters():
    assert cleaned("abc", 2, keep_end=True) == "bc"
    assert cleaned("abc", 2) == "ab"


def test_c093_nothing_that_the_task_held_stays_reachable():
    class Big:
        pass

    seen = []

    def body():
        big = Big()
        seen.append(weakref.ref(big))
        error = ValueError("with a cycle")
        error.__dict__["itself"] = error
        raise error

    gc.disable()
    try:
        kept = None
        try:
            body()
        except ValueError as error:
            kept = failure_of(FENCE, error)
        assert kept is not None
        assert seen[0]() is None
    finally:
        gc.enable()


def test_c093_nothing_of_those_that_led_to_it_stays_either():
    class Big:
        pass

    seen = []

    def fails(error, cause=None):
        big = Big()
        seen.append(weakref.ref(big))
        if cause is None:
            raise error
        raise error from cause

    def failed(error, cause=None):
        try:
            fails(error, cause)
        except BaseException as caught:
            return caught

    first = failed(KeyError("context"))
    second = failed(OSError("in a group"))
    third = failed(ExceptionGroup("a group", [second]))
    error = failed(TimeoutError("the last"), third)
    third.__context__ = first
    first.__context__ = error  # a ring
    assert len([each for each in seen if each() is not None]) == 4
    told = failure_of(FENCE, error).traceback or ""
    assert all(each in told for each in ("KeyError: 'context'", "OSError: in a group", "TimeoutError: the last"))
    assert [each() for each in seen] == [None] * 4


def test_a_coroutine_that_caught_an_error_and_goes_on_is_not_closed_when_the_error_is_let_go_of():
    shared = []

    async def reads():
        while True:
            try:
                raise ValueError("the peer sent nonsense")
            except ValueError as error:
                shared.append(error)  # whoever waits for an answer gets it
            await pause()

    @types.coroutine
    def pause():
        yield

    reader = reads()
    reader.send(None)
    failure_of(FENCE, shared[0])
    reader.send(None)
    assert len(shared) == 2
    reader.close()


def test_where_a_thread_stands_is_told_without_our_frames_and_holds_nothing():
    entered, gate = threading.Event(), threading.Event()
    held = []

    class Large: ...

    def waits_for_the_gate():
        large = Large()
        held.append(weakref.ref(large))
        entered.set()
        gate.wait(20)

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        job = Job(contextvars.copy_context(), waits_for_the_gate, loop.create_future())
        assert stack_in(job) is None, "it has not begun"
        thread = threading.Thread(target=job.run)
        thread.start()
        assert entered.wait(20)
        told = stack_in(job)
        gate.set()
        thread.join()
        assert stack_in(job) is None, "it has ended"
    assert told is not None
    first, place, line = told.splitlines()[:3]
    assert f"{first}\n" == STOOD_HERE
    assert place.endswith("in waits_for_the_gate")
    assert line == "    gate.wait(20)"
    assert "octop/worker" not in told
    assert held[0]() is None


@house_test
async def test_a_time_limit_shows_the_line_of_the_task_in_a_thread_on_the_loop_and_in_middleware():
    entered, gate = threading.Event(), threading.Event()

    def in_thread() -> None:
        entered.set()
        gate.wait(20)

    async def on_loop() -> None:
        entered.set()
        await asyncio.sleep(20)

    async def slow_end(context, call_next):
        await call_next()
        entered.set()
        await asyncio.sleep(20)  # the middleware

    def at_once() -> None: ...

    for task, hooks, line in (
        (in_thread, Hooks(), "gate.wait(20)"),
        (on_loop, Hooks(), "await asyncio.sleep(20)"),
        (at_once, Hooks(middleware=[slow_end]), "await asyncio.sleep(20)  # the middleware"),
    ):
        entered.clear()
        house = House(task, hooks=hooks)
        house.give(claimed(task.__name__, 1))
        await until(entered.is_set)
        house.runner.interrupt(house.holdings.running["1"], Reason.TIMEOUT)
        await asyncio.wait_for(house.holdings.urgent.wait(), 20)
        gate.set()
        (outcome,) = house.holdings.outbox.outcomes
        told = outcome.traceback or ""
        assert outcome.kind is OutcomeKind.TIMEOUT
        assert f"    {line}\n" in told
        assert "octop/worker" not in told
        assert ("CancelledError" in told) is (task is not in_thread)
        await house.idle()
