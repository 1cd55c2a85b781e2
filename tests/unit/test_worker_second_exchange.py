"""While a backlog is worked off, a second exchange is under way beside the first: when, for what, and when not."""

import asyncio
import contextlib
import time

import pytest

from octop.model.errors import DatabaseUnreachableError, NotPermittedError
from octop.model.task import Exchanged
from tests.unit.desk import EMPTY, Desk, claimed, elements, loop_test, wanted_of

LIMIT = 8


class Backlog:
    """Two links in front of a queue that never ends. An exchange over a link that is held is answered when it is let go."""

    def __init__(self, limit=LIMIT, **tasks):
        self.desk = Desk(limit, octop_exchange=self.answer)
        self.tasks = tasks
        self.given = 0
        self.under_way = 0
        self.most_under_way = 0
        self.asking = 0
        self.most_places = 0
        self.stopped = asyncio.Event()
        self.held = {id(self.desk.link): asyncio.Event(), id(self.desk.second): asyncio.Event()}
        for link in (self.desk.link, self.desk.second):
            self.held[id(link)].set()
            self._slow(link)

    def _slow(self, link):
        call = link.call

        async def slow(what, *, seconds=0.0):
            if "octop_exchange(" not in what.text:
                return await call(what, seconds=seconds)
            wanted = sum(wanted_of(what.values))
            self.under_way += 1
            self.asking += wanted
            self.most_under_way = max(self.most_under_way, self.under_way)
            self.most_places = max(self.most_places, self.desk.pool.held + self.asking)
            try:
                await asyncio.sleep(0.003)
                if not self.held[id(link)].is_set():
                    self.stopped.set()
                    await self.held[id(link)].wait()
                return await call(what, seconds=seconds)
            finally:
                self.under_way -= 1
                self.asking -= wanted

        link.call = slow

    def answer(self, call):
        wanted = sum(wanted_of(call.values))
        self.given += wanted
        return Exchanged([claimed(f"{self.given - each}", **self.tasks) for each in range(wanted)], [], {}, 0)

    async def run_until(self, look):
        await self.desk.run_until(look)

    @contextlib.asynccontextmanager
    async def at_work(self):
        """Run the exchanger; begin when the second exchange has its part in it. Yield what runs."""
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self.desk.exchanger.run())
            await self.until(lambda: len(self.desk.second.exchanges()) > 3)
            yield running
            running.cancel()
        await self.desk.pool.close(1)

    async def until(self, look):
        while not look():  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0.002)

    async def stop_the_second(self):
        """Let the next exchange of the second connection get no answer until it is let go, and wait until there is one."""
        self.held[id(self.desk.second)].clear()
        await self.stopped.wait()

    def asked(self, link):
        return [sum(wanted_of(values)) for values in link.exchanges()]


@loop_test
async def test_a_second_exchange_is_under_way_while_the_first_is_and_never_more_is_asked_for_than_there_are_places():
    backlog = Backlog()
    desk = backlog.desk

    async def attempt(slot, task):
        if int(task.id) % 16 < LIMIT // 2:
            await asyncio.sleep(
                0.01
            )  # longer than an exchange: half of the places are taken while the other half is asked for
        await desk._attempt(slot, task)

    desk.pool._begin = attempt
    await backlog.run_until(lambda: len(desk.second.exchanges()) > 10)
    assert backlog.most_under_way == 2
    assert backlog.most_places <= LIMIT
    assert all(0 < count <= LIMIT for count in backlog.asked(desk.second))
    assert all(any(elements(values["marks_id"])) for values in desk.second.exchanges()), "it never looks from the front"


@loop_test
async def test_two_exchanges_share_the_places_of_a_backlog():
    backlog = Backlog()
    desk = backlog.desk
    await backlog.run_until(lambda: len(desk.second.exchanges()) > 20)
    first, *others = desk.link.exchanges()
    assert wanted_of(first) == [LIMIT], "it does not know yet that there is more"
    asked = sorted(sum(wanted_of(values)) for values in [*others, *desk.second.exchanges()])
    assert asked[-1] == LIMIT // 2
    assert asked[len(asked) // 2] == LIMIT // 2, "one of several: the first place that is free is filled at once"


@loop_test
async def test_lanes_short_batches_and_a_look_from_the_front_get_no_second_exchange():
    short, front = Backlog(), Backlog()
    short.desk.link.answers["octop_exchange"] = short.desk.second.answers["octop_exchange"] = lambda _: EMPTY
    setattr(front.desk.claims.marks, "looked", lambda **_: None)  # noqa: B010 - a method; the next look is due at once
    await short.run_until(lambda: "octop_sleep" in short.desk.link.names)
    await front.run_until(lambda: len(front.desk.link.exchanges()) > 10)
    assert short.desk.second.exchanges() == front.desk.second.exchanges() == []
    lanes = Backlog(lane="l")
    answer = lanes.answer
    lanes.desk.link.answers["octop_exchange"] = lambda call: Exchanged(answer(call).tasks, [], {"q": "l"}, 0)
    await lanes.run_until(lambda: len(lanes.desk.link.exchanges()) > 10)
    assert lanes.desk.second.exchanges() == []


@loop_test
async def test_strays_are_released_only_when_no_exchange_is_under_way_and_none_begins_before():
    backlog = Backlog()
    desk = backlog.desk
    released = []

    def release(_call):
        released.append((backlog.under_way, len(desk.second.exchanges())))
        return 0

    desk.link.answers["octop_release_unheld"] = release
    async with backlog.at_work():
        await backlog.stop_the_second()
        desk.link.answers["octop_exchange"] = DatabaseUnreachableError("cut")
        await backlog.until(lambda: desk.exchanger._stray_looks)
        desk.link.answers["octop_exchange"] = backlog.answer
        first = len(desk.link.exchanges())
        await backlog.until(lambda: len(desk.link.exchanges()) > first + 3)
        assert released == [], "what the second claims is not known here yet"
        backlog.held[id(desk.second)].set()
        await backlog.until(lambda: released)
        assert released[0][0] == 0
        assert desk.exchanger._stray_looks, "it will look for them again"
        seen, first = len(desk.second.exchanges()), len(desk.link.exchanges())
        await backlog.until(lambda: len(desk.link.exchanges()) > first + 10)
        assert len(desk.second.exchanges()) == seen


@pytest.mark.parametrize("error", [DatabaseUnreachableError("cut"), NotPermittedError("no right")])
@loop_test
async def test_what_the_second_could_not_hand_in_goes_with_the_first_and_it_rests(error):
    backlog = Backlog()
    desk = backlog.desk
    desk.second.answers["octop_exchange"] = error
    resting = asyncio.Event()

    async def rest(seconds=None):
        desk.second.pauses.append(seconds)
        await resting.wait()

    setattr(desk.second, "pause", rest)  # noqa: B010 - a method
    async with asyncio.TaskGroup() as group:
        running = group.create_task(desk.exchanger.run())
        await backlog.until(lambda: desk.second.pauses)
        lost = desk.second.exchanges()[0]["done_ids"]
        assert lost != "{}"
        tried = len(desk.link.exchanges())
        await backlog.until(lambda: len(desk.link.exchanges()) > tried + 3)
        later = "".join(values["done_ids"] for values in desk.link.exchanges()[tried - 1 :])
        assert all(each in later for each in lost.strip("{}").split(","))
        assert len(desk.second.exchanges()) == 1, "it rests"
        front = [values["marks_id"] for values in desk.link.exchanges()[tried - 1 : tried + 2]]
        assert None in front, "what it had claimed lies before the marks"
        assert desk.pool.asked <= LIMIT
        assert ("octop_release_unheld" in desk.link.names) == isinstance(error, DatabaseUnreachableError)
        running.cancel()
    await desk.pool.close(1)


@loop_test
async def test_a_worker_that_stops_waits_for_the_second_exchange_and_gives_back_what_it_brings():
    backlog = Backlog()
    desk = backlog.desk
    async with backlog.at_work() as running:
        await backlog.stop_the_second()
        desk.link.answers["octop_exchange"] = EMPTY
        desk.exchanger.end()
        await asyncio.sleep(0.05)
        assert not running.done(), "what the second brings is the database's idea of what we run"
        given, before = backlog.given, len(desk.link.exchanges())
        backlog.held[id(desk.second)].set()
        await running
    brought = backlog.given - given
    assert brought > 0
    outcomes = "".join(values["outcomes"] or "" for values in desk.link.exchanges()[before:])
    assert outcomes.count('"released"') == brought


@loop_test
async def test_a_worker_is_not_idle_while_the_second_exchange_is_under_way():
    backlog = Backlog()
    desk = backlog.desk
    idle = []

    async def on_idle():
        idle.append(desk.exchanger._second.is_under_way)

    desk.exchanger.on_idle = on_idle
    async with backlog.at_work():
        await backlog.stop_the_second()
        desk.link.answers["octop_exchange"] = desk.second.answers["octop_exchange"] = EMPTY
        seen = len(desk.link.exchanges())
        await backlog.until(lambda: len(desk.link.exchanges()) > seen + 5)
        assert idle == []
        backlog.held[id(desk.second)].set()
        await backlog.until(lambda: idle)
        assert idle[0] is False


@loop_test
async def test_a_second_connection_that_can_not_be_opened_was_given_nothing():
    backlog = Backlog()
    desk = backlog.desk
    desk.second.answers["open"] = DatabaseUnreachableError("no room")
    await backlog.run_until(lambda: len(desk.second.pauses) > 1)
    assert desk.second.exchanges() == []
    assert "octop_release_unheld" not in desk.link.names, "no answer was lost"
    assert min(desk.second.pauses) >= 10, "whoever has no room is not asked again and again"


@loop_test
async def test_a_second_connection_that_has_been_idle_for_long_is_opened_anew():
    backlog = Backlog()
    desk = backlog.desk
    seen: list[int] = []

    def look():
        names = desk.second.names
        if not seen and len(desk.second.exchanges()) > 3:
            assert "rest" not in names[names.index("octop_exchange") :]
            seen.append(len(names))
        if seen:
            desk.exchanger._second_used_at -= 31
        return bool(seen) and "rest" in names[seen[0] :]

    await backlog.run_until(look)
    assert seen, "it came to that"
    assert "rest" in desk.second.names[seen[0] :]


@loop_test
async def test_what_hangs_in_the_second_does_not_keep_a_worker_from_stopping():
    backlog = Backlog()
    desk = backlog.desk
    async with backlog.at_work() as running:
        await backlog.stop_the_second()
        desk.exchanger.end()
        await backlog.until(lambda: "cut" in desk.second.names)
        desk.second.answers["octop_exchange"] = DatabaseUnreachableError("cut")
        backlog.held[id(desk.second)].set()
        await running
    assert len(desk.holdings.outbox) == 0, "what it carried went with the first"


@loop_test
async def test_what_was_asked_before_a_notification_moves_no_mark():
    backlog = Backlog()
    desk = backlog.desk
    async with backlog.at_work():
        await backlog.stop_the_second()
        desk.claims.marks.forget()
        desk.claims.claiming = False
        backlog.held[id(desk.second)].set()
        await backlog.until(lambda: not desk.exchanger._second.is_under_way)
        await asyncio.sleep(0.01)
        assert desk.claims.marks.by_queue == {}


def test_the_second_asks_for_nothing_while_a_look_from_the_front_is_due():
    async def story():
        desk = Desk(LIMIT)
        marks, exchanger = desk.claims.marks, desk.exchanger
        exchanger._nudged = False
        marks.claimed("q", [claimed()])
        desk.claims.more.add("q")
        assert exchanger._wanted_besides() == {}, "it is due from the start"
        marks.looked(began=time.monotonic(), now=time.monotonic())
        assert exchanger._wanted_besides() == {"q": LIMIT // 2}
        exchanger.nudge()
        assert exchanger._wanted_besides() == {}

    asyncio.run(story())


def test_lanes_that_appear_in_a_backlog_end_its_marks():
    async def story():
        desk = Desk(LIMIT)
        claims = desk.claims
        claims.marks.claimed("q", [claimed()])
        claims.deliver(Exchanged([claimed(lane="l")], [], {"q": "l"}, 0), {"q": 1}, claims.marks.generation)
        assert claims.marks.by_queue == {}
        await desk.pool.close(1)

    asyncio.run(story())
