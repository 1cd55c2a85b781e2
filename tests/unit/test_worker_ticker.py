"""When a worker asks for due schedules: neither too late, nor without end."""

import asyncio

import pytest

from octop.engine.calls.schedules import Tick
from octop.model.errors import DatabaseUnreachableError, NotPermittedError
from octop.worker.ticker import BUSY_SECONDS_MAX, BUSY_SECONDS_MIN, Ticker
from tests.unit.desk import FakeLink, loop_test

pytestmark = pytest.mark.usefixtures("caplog")


def ticker(*answers, **more):
    """Return a ticker whose link gives these answers, the last one again and again."""
    left = list(answers)
    link = FakeLink(octop_tick=lambda _call: left.pop(0) if len(left) > 1 else left[0], **more)
    return Ticker(link, "w"), link  # type: ignore[arg-type]


@loop_test
async def test_it_asks_again_when_the_next_slot_is_due_and_after_the_interval_at_the_latest():
    made, _ = ticker(Tick(0, 0, None))
    made.interval_seconds = 5.0
    assert made.wait_after(Tick(0, 0, None)) == 5.0
    assert made.wait_after(Tick(1, 0, 0.25)) == 0.25
    assert made.wait_after(Tick(0, 0, 86_400.0)) == 5.0
    assert made.wait_after(Tick(500, 0, 0.0)) == 0.0, "more is due now"


@loop_test
async def test_what_others_are_firing_is_not_asked_for_without_a_pause():
    made, _ = ticker(Tick(0, 0, None))
    waits = [made.wait_after(Tick(0, 0, 0.0)) for _ in range(10)]
    assert waits[0] == BUSY_SECONDS_MIN
    assert waits[-1] == BUSY_SECONDS_MAX
    assert waits == sorted(waits)
    made.wait_after(Tick(1, 0, 0.0))
    assert made.wait_after(Tick(0, 0, 0.0)) == BUSY_SECONDS_MIN


@loop_test
async def test_a_call_from_outside_ends_the_wait_and_stop_ends_all():
    made, link = ticker(Tick(0, 0, None))
    made.interval_seconds = 1_000.0
    running = asyncio.get_running_loop().create_task(made.run())
    while len(link.names) < 1:  # noqa: ASYNC110 - what is looked at has no event
        await asyncio.sleep(0.002)
    made.poke()
    while len(link.names) < 2:  # noqa: ASYNC110 - likewise
        await asyncio.sleep(0.002)
    made.stop()
    await running
    assert len(link.names) == 2, "a worker that stops fires nothing"
    assert link.is_over


@loop_test
async def test_nothing_is_asked_before_the_schema_was_found_to_fit():
    made, link = ticker(Tick(0, 0, None))
    made.interval_seconds = 0.01
    ready = False
    running = asyncio.get_running_loop().create_task(made.run(lambda: ready))
    await asyncio.sleep(0.05)
    assert link.names == []
    ready = True
    while not link.names:  # noqa: ASYNC110 - what is looked at has no event
        await asyncio.sleep(0.002)
    made.stop()
    await running


@loop_test
async def test_after_an_error_it_rests_longer_and_longer_and_then_goes_on(caplog):
    refusal = NotPermittedError("permission denied for function octop_tick")
    made, link = ticker(refusal, refusal, DatabaseUnreachableError("away"), Tick(1, 0, 1_000.0))
    made.interval_seconds = 1_000.0
    running = asyncio.get_running_loop().create_task(made.run())
    while len(link.names) < 4:
        made.poke()
        await asyncio.sleep(0)
    assert len(link.pauses) == 3
    assert 0 < link.pauses[0] < link.pauses[1]
    assert caplog.text.count("schedules can not be fired: trying again") == 1, "said once in a while"
    made.stop()
    await running
