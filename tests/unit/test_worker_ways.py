"""A start that had to wait is looked at once more: the whole process may have been stopped meanwhile, and the task be somebody else's."""

from __future__ import annotations

import asyncio
import threading

import pytest

from octop.model.task import OutcomeKind
from tests.unit.house import House, claimed, until


class Child:
    def __init__(self):
        self.runs = 0
        self.asked = []
        self.killed = False

    async def ask(self, message):
        self.asked.append(message["id"])
        return {"result": None}

    def kill(self):
        self.killed = True


class Children:
    """A child whose start takes as long as the test wants."""

    def __init__(self):
        self.child = Child()
        self.ready = asyncio.Event()

    async def take(self):
        await self.ready.wait()
        return self.child

    def give_back(self, child): ...

    async def close(self): ...


async def quick(): ...


@pytest.mark.parametrize("lease_ends", [False, True])
@pytest.mark.parametrize("isolated", [False, True])
def test_a_task_is_not_handed_to_a_child_that_was_ready_after_the_lease(lease_ends, isolated):
    async def scene():
        house = House(quick)
        house.runner._registry["quick"].run_in = "loop" if isolated else "process"
        children = house.runner._ways._children = Children()  # type: ignore[assignment]
        house.pool.add(house.holdings.accept([claimed("quick", 7)._replace(isolated=isolated)]))
        await until(lambda: house.holdings.running)
        if lease_ends:
            house.lease.until = 0.0
        children.ready.set()
        await until(lambda: not house.holdings.active)
        successes, outcomes = house.holdings.outbox.take()
        if lease_ends:
            assert children.child.asked == []
            assert successes == []
            assert [(outcome.kind, outcome.fence.id) for outcome in outcomes] == [(OutcomeKind.RELEASED, "7")]
        else:
            assert children.child.asked == ["7"]
            assert (len(successes), outcomes) == (1, [])
        await house.pool.close(1)

    asyncio.run(scene())


@pytest.mark.parametrize("lease_ends", [False, True])
def test_a_task_is_not_called_by_a_thread_that_came_to_it_after_the_lease(lease_ends):
    ran = []

    def blocks():
        ran.append("it")

    async def scene():
        house = House(blocks)
        threads = house.runner._ways._threads
        come, start = threading.Event(), threads.start
        threads.start = lambda variables, call: start(variables, lambda: (come.wait(), call())[1])  # type: ignore[method-assign]
        house.pool.add(house.holdings.accept([claimed("blocks", 7)]))
        await until(lambda: house.holdings.running)
        if lease_ends:
            house.lease.until = 0.0
        come.set()
        await until(lambda: not house.holdings.active)
        successes, outcomes = house.holdings.outbox.take()
        kinds = [(outcome.kind, outcome.fence.id) for outcome in outcomes]
        assert (len(ran), len(successes), kinds) == (
            (0, 0, [(OutcomeKind.RELEASED, "7")]) if lease_ends else (1, 1, [])
        )
        await house.pool.close(1)

    asyncio.run(scene())
