"""What the database takes back from a worker, and what the worker is given once more while it still runs it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from octop.model.control_flow import Cancel
from octop.model.hooks import Hooks
from octop.model.task import Fence, OutcomeKind
from octop.worker import recall
from octop.worker.slot import Reason
from tests.unit.house import House, claimed, house_test, until

FIRST = claimed("work", 1)
AGAIN = FIRST._replace(attempt=2, claim_id="d")


class Work:
    """The function of a task that runs until it is told to end, or cut."""

    def __init__(self, *, unwinds: bool = True) -> None:
        self.told: list[str] = []
        self.ends = asyncio.Event()
        self.unwinds = asyncio.Event()
        if unwinds:
            self.unwinds.set()

    def function(self, *, when_cut=None):
        async def work() -> str:
            self.told.append("begins")
            try:
                await self.ends.wait()
            except asyncio.CancelledError:
                self.told.append("cut")
                await self.unwinds.wait()
                if when_cut is None:
                    raise
                return when_cut()
            self.told.append("ends")
            return "done"

        return work


async def begun(*beside, unwinds=True, when_cut=None, hooks=None):
    """Return a house in which the first attempt runs, with other tasks beside it, and their work.

    Args:
        unwinds: False = what is cut does not end before the test lets it.
    """
    work = Work(unwinds=unwinds)
    house = House(work.function(when_cut=when_cut), hooks=hooks)
    house.give(FIRST, *beside)
    await until(lambda: work.told == ["begins"] * (1 + len(beside)))
    return house, work


def written(house):
    outbox = house.holdings.outbox
    return [(each.fence.attempt, "success") for each in outbox.successes] + [
        (each.fence.attempt, each.kind.value) for each in outbox.outcomes
    ]


def raise_cancel():
    raise Cancel("as it likes")


def raise_error():
    raise ValueError("as it likes")


@pytest.mark.parametrize("when_cut", [None, lambda: "a result", raise_cancel, raise_error])
def test_what_is_given_to_us_once_more_is_cut_and_starts_again_with_a_time_limit_of_its_own(when_cut):
    @house_test
    async def run():
        told = []
        hooks = Hooks(success=[lambda *_: told.append("success")], failure=[lambda *_: told.append("failure")])
        house, work = await begun(when_cut=when_cut, hooks=hooks)
        house.give(AGAIN._replace(timeout_seconds=6000.0))
        await until(lambda: work.told == ["begins", "cut", "begins"])
        slot = house.holdings.running["1"]
        assert slot.claimed == AGAIN._replace(timeout_seconds=6000.0)
        assert slot.deadline - time.monotonic() > 3000
        assert written(house) == []
        work.ends.set()
        await house.idle()
        assert [each.fence for each in house.holdings.outbox.successes] == [Fence("1", 2, "d")]
        assert house.holdings.outbox.outcomes == []
        assert told == ["success"]

    run()


@house_test
async def test_the_new_attempt_starts_only_when_the_old_one_has_ended():
    house, work = await begun(unwinds=False)
    house.give(AGAIN)
    await until(lambda: work.told == ["begins", "cut"])
    house.give(AGAIN._replace(claim_id="e"))  # the server forgot that claim meanwhile
    house.give(claimed("work", 2))
    await until(lambda: work.told == ["begins", "cut", "begins"])
    assert house.holdings.held() == ["1", "2"]
    assert house.holdings.running["2"].claimed == claimed("work", 2)
    work.unwinds.set()
    await until(lambda: len(work.told) == 4)
    assert house.holdings.running["1"].claimed == AGAIN._replace(claim_id="e")
    work.ends.set()
    await house.idle()
    assert sorted(written(house)) == [(1, "success"), (2, "success")]


@house_test
async def test_a_new_attempt_whose_old_thread_does_not_end_is_given_back_without_using_a_try():
    gate, seen = threading.Event(), []

    def work() -> None:
        seen.append(1)
        gate.wait(10)

    house = House(work, limit=1)
    house.give(FIRST)
    await until(lambda: seen)
    house.give(AGAIN)
    await until(lambda: written(house))
    assert written(house) == [(2, "snoozed")]
    assert house.pool.free == 0, "the thread keeps its place"
    assert house.holdings.accept([AGAIN._replace(attempt=3)]) == []
    gate.set()
    await house.idle()
    assert seen == [1]
    assert written(house) == [(2, "snoozed"), (3, "snoozed")]
    house.give(AGAIN._replace(attempt=4))
    await house.idle()
    assert len(seen) == 2


@pytest.mark.parametrize("given_up", [False, True])
def test_what_is_no_longer_ours_is_cut_and_nothing_is_written_about_it(given_up, caplog):
    @house_test
    async def run():
        house, work = await begun(claimed("work", 2), unwinds=False)
        named = list(house.holdings.active.values())
        house.recall.lost(named, ["1"])
        await until(lambda: "cut" in work.told)
        assert house.holdings.held() == ["2"]
        if given_up:
            house.runner.give_up(house.holdings.running["1"])
        house.give(AGAIN, claimed("work", 3))
        await until(lambda: "3" in house.holdings.running)
        assert work.told.count("begins") == 3, "not beside the old one"
        work.unwinds.set()
        work.ends.set()
        await house.idle()
        assert sorted(written(house)) == [(1, "success"), (1, "success"), (2, "snoozed" if given_up else "success")]
        assert [each.message for each in caplog.records if "no longer" in each.message] == [
            "attempt 1 of work 1 is no longer this worker's: cut"
        ]

    run()


@house_test
async def test_an_answer_about_an_attempt_that_has_ended_meanwhile_harms_nobody():
    house, work = await begun()
    named = list(house.holdings.active.values())
    work.ends.set()
    await house.idle()
    work.ends.clear()
    house.give(AGAIN)
    await until(lambda: work.told == ["begins", "ends", "begins"])
    house.recall.lost(named, ["1"])
    work.ends.set()
    await house.idle()
    assert written(house) == [(1, "success"), (2, "success")]


@pytest.mark.parametrize(("act", "expected"), [("cancel", [(2, "cancelled")]), ("lose", []), ("release", [])])
def test_what_waits_for_its_older_attempt_is_treated_like_anything_that_has_not_started(act, expected):
    @house_test
    async def run():
        house, work = await begun(unwinds=False)
        house.give(AGAIN)
        if act == "cancel":
            house.recall.cancel("1")
        elif act == "lose":
            assert house.recall.lose(AGAIN) is None
        else:
            assert house.holdings.withdraw_waiting() == [AGAIN]
        assert written(house) == expected
        await until(lambda: work.told == ["begins", "cut"])
        work.unwinds.set()
        await house.idle()
        assert work.told == ["begins", "cut"]

    run()


@house_test
async def test_an_attempt_that_is_being_ended_for_its_time_limit_writes_nothing_once_it_was_taken_back():
    house, work = await begun(unwinds=False)
    house.runner.interrupt(house.holdings.running["1"], Reason.TIMEOUT)
    await until(lambda: work.told == ["begins", "cut"])
    house.give(AGAIN)
    work.unwinds.set()
    await until(lambda: work.told == ["begins", "cut", "begins"])
    assert written(house) == []
    work.ends.set()
    await house.idle()
    assert written(house) == [(2, "success")]


def test_only_what_was_held_at_an_earlier_look_is_asked_about_and_not_all_at_once(monkeypatch):
    monkeypatch.setattr(recall, "NAMED_MAX", 3)

    @house_test
    async def run():
        house = House()
        active = house.holdings.active
        active.update({str(n): claimed("work", n) for n in range(5)})
        assert house.recall.named() == []
        del active["1"]
        active["new"] = claimed("work", "new")
        looks = [{each.id for each in house.recall.named()} for _ in range(4)]
        assert looks[0] | looks[1] == {"0", "2", "3", "4"}
        assert looks[2] | looks[3] == {"0", "2", "3", "4", "new"}
        assert all(len(look) <= 3 for look in looks)

    run()


@house_test
async def test_a_time_limit_that_a_task_reached_before_it_was_taken_back_is_told():
    work = Work()
    house = House(work.function())
    house.give(FIRST._replace(timeout_seconds=0.01))
    await house.idle()
    house.give(AGAIN)
    work.ends.set()
    await house.idle()
    assert [each.kind for each in house.holdings.outbox.outcomes] == [OutcomeKind.TIMEOUT]
    assert written(house) == [(2, "success"), (1, "timeout")]


@house_test
async def test_what_is_given_to_us_once_more_while_the_old_attempt_is_just_ending_starts_too():
    starts = []

    async def work() -> None:
        starts.append(1)
        if len(starts) == 1:
            asyncio.get_running_loop().call_soon(house.give, AGAIN)
            us = asyncio.current_task()
            assert us is not None
            us.cancel()  # the place takes that in before it looks at what came of the task

    house = House(work)
    house.give(FIRST)
    await house.idle()
    assert len(starts) == 2
    assert written(house) == [(2, "success")]
