"""When a worker asks: without a database."""

import asyncio
import time

import pytest

from octop.model.task import Exchanged
from octop.worker.pool import Pool
from octop.worker.rounds import Rounds
from tests.unit.desk import EMPTY, Desk, claimed, elements, loop_test, wanted_of


@loop_test
async def test_a_task_claimed_twice_before_its_start_runs_once_under_the_new_fence():
    desk = Desk()
    desk.lease.beaten(time.monotonic(), unbroken=False)
    old, new = claimed(), claimed(attempt=2, claim_id="d")
    for each in (old, new):
        desk.pool.add(desk.holdings.accept([each]))
    assert desk.pool.held == 1
    desk.lease.on_renewed = desk.pool.renew
    desk.lease.confirmed()
    while not desk.holdings.outbox.successes:  # noqa: ASYNC110 - what is looked at has no event
        await asyncio.sleep(0.002)
    assert desk.started == [new]
    assert [success.fence.attempt for success in desk.holdings.outbox.successes] == [2]
    assert desk.pool.held == 0
    await desk.pool.close(1)


@loop_test
async def test_the_next_exchange_is_on_its_way_before_the_tasks_of_the_last_one_run():
    """Otherwise the database is idle as long as they take."""
    goes_on = asyncio.Event()
    started_at_call: list[int] = []

    def answer(call):
        number = len(started_at_call)
        started_at_call.append(len(desk.started))
        if number == 1:
            goes_on.set()  # what ran on ends while this exchange is under way, and makes room
        return Exchanged([claimed(f"{number}.{each}") for each in range(wanted_of(call.values)[0])], [], {}, 0)

    async def attempt(_slot, task):
        desk.started.append(task)
        desk.pool.wake()
        while len(desk.started) < 4:  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0)
        if task.id in ("0.1", "0.2", "0.3"):
            await goes_on.wait()
        desk.holdings.success(task, None)

    desk = Desk(4, octop_exchange=answer)
    desk.pool._begin = attempt
    await desk.run_until(lambda: len(started_at_call) > 2)
    assert started_at_call[:3] == [0, 4, 4]


def marks_handed_in(desk):
    """Return the id of the mark that each exchange was given; None = it looked from the front."""
    return [next(filter(None, elements(values["marks_id"])), None) for values in desk.link.exchanges()]


@loop_test
async def test_full_batches_move_the_mark_and_after_a_short_one_it_looks_from_the_front_at_once():
    batches = iter([["a"], ["b"], [], []])

    def answer(_call):
        return Exchanged([claimed(each) for each in next(batches, [])], [], {}, 0)

    desk = Desk(1, octop_exchange=answer)
    await desk.run_until(lambda: "octop_sleep" in desk.link.names)
    assert marks_handed_in(desk)[:4] == [None, "a", "b", None]
    assert desk.link.names.index("octop_sleep") > 3, "it does not sleep before it has looked from the front"


@loop_test
async def test_a_queue_whose_batch_was_short_leaves_the_marks_of_the_others():
    def answer(call):
        number = len(desk.link.exchanges())
        return Exchanged(
            [
                claimed(f"{number}.{queue}", queue=queue)
                for queue in elements(call.values["queues"])
                if queue == "q" or number == 1
            ],
            [],
            {},
            0,
        )

    desk = Desk(1, octop_exchange=answer)
    desk.pools["r"] = Pool(1, desk.lease, desk._attempt, desk.holdings.urgent)
    await desk.run_until(lambda: len(desk.link.exchanges()) > 5)
    await desk.pools["r"].close(1)
    first, *later = desk.link.exchanges()
    assert first["marks_id"] is None
    queues_and_marks = [(elements(values["queues"]), elements(values["marks_id"])) for values in later]
    asked = [(queues.index("q"), marks) for queues, marks in queues_and_marks if "q" in queues]
    assert len(asked) > 1
    assert all(any(marks[10 * place : 10 * place + 10]) for place, marks in asked), "r was short; q was not"


@loop_test
async def test_a_notification_makes_the_next_look_one_from_the_front():
    def answer(call):
        number = len(desk.link.exchanges())
        if number == 3:
            desk.exchanger.nudge()
        return Exchanged([claimed(f"{number}.{each}") for each in range(wanted_of(call.values)[0])], [], {}, 0)

    desk = Desk(1, octop_exchange=answer)
    await desk.run_until(lambda: len(desk.link.exchanges()) > 5)
    assert marks_handed_in(desk)[:5] == [None, "1.0", "2.0", None, "4.0"]


@loop_test
async def test_lanes_get_no_marks():
    def answer(call):
        number = len(desk.link.exchanges())
        tasks = [claimed(f"{number}.{each}", lane="l") for each in range(wanted_of(call.values)[0])]
        return Exchanged(tasks, [], {"q": "l"}, 0)

    desk = Desk(1, octop_exchange=answer)
    await desk.run_until(lambda: len(desk.link.exchanges()) > 3)
    assert set(marks_handed_in(desk)) == {None}


@loop_test
async def test_nothing_is_claimed_while_the_lease_is_over_or_in_doubt():
    desk = Desk()
    assert desk.claims.wanted() == {"q": 2}
    desk.lease.beaten(time.monotonic(), unbroken=False)
    assert desk.claims.wanted() == {}
    desk.lease.confirmed()
    assert desk.claims.wanted() == {"q": 2}
    desk.lease.set_seconds(0.001)
    await asyncio.sleep(0.01)
    assert desk.claims.wanted() == {}


@loop_test
async def test_a_walk_over_lanes_that_has_not_come_round_goes_on_before_the_worker_sleeps():
    lanes = [f"{number:03}" for number in range(1, 60)]  # more than fit into the time in which it looks again anyway
    walk = iter(lanes)

    def answer(call):
        lane = next(walk, None)
        if lane is None:
            return EMPTY
        return Exchanged([], [], {"q": lane}, 0)

    desk = Desk(octop_exchange=answer)
    await desk.run_until(lambda: "octop_sleep" in desk.link.names)
    assert desk.link.names.index("octop_sleep") > len(lanes)
    assert [elements(values["lanes"]) for values in desk.link.exchanges()[:3]] == [[], ["001"], ["002"]]


def test_a_round_is_over_when_it_comes_back_to_its_beginning():
    rounds = Rounds()
    assert rounds.go_on({"q": "m"}, {"q": "z"})
    assert rounds.go_on({"q": "z"}, {"q": "c"}), "turned at the end"
    assert not rounds.go_on({"q": "c"}, {"q": "m"}), "back where it began"
    assert not rounds.go_on({"q": "m"}, {}), "stopped where it began: a round in one look"
    assert rounds.go_on({"q": "m"}, {"q": "z"})
    rounds.found()
    assert rounds.go_on({"q": "z"}, {"q": "n"}), "a new round has begun at z"
    assert rounds.go_on({"q": "n"}, {"q": "y"})
    assert not rounds.go_on({"q": "y"}, {"q": "a"}), "it turned twice: what it began with is gone"


def test_lanes_that_come_and_go_do_not_keep_a_worker_looking_for_ever():
    rounds, lane = Rounds(), ""
    for looks in range(100):
        following = {"": "b", "b": "a", "a": "b"}[lane]
        if not rounds.go_on({"q": lane}, {"q": following}):
            assert looks < 4
            return
        lane = following
    pytest.fail("it never came round")


@pytest.mark.parametrize("limit", [0, 2])
@loop_test
async def test_a_worker_whose_queues_are_all_paused_or_without_places_still_notices_that_it_is_idle(limit):
    desk = Desk(limit)
    if limit:
        desk.claims.held_queues = frozenset({"q"})
    idle = []

    async def on_idle():
        idle.append(1)

    desk.exchanger.on_idle = on_idle
    desk.exchanger.interval_seconds = 0.02
    await desk.run_until(lambda: len(idle) > 2)
    assert not desk.link.names
