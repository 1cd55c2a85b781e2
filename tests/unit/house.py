"""A worker without a database: its places, its runner and its book."""

from __future__ import annotations

import asyncio
import time

from octop.model.definition import define
from octop.model.hooks import Hooks
from octop.model.task import NIL, Claimed
from octop.worker.children import Children
from octop.worker.holdings import Holdings
from octop.worker.lease import Lease
from octop.worker.pool import Pool
from octop.worker.recall import Recall
from octop.worker.runner import Runner
from octop.worker.transactions import Transactions


def claimed(task_type, number=0, payload="{}", timeout=30.0):
    return Claimed(
        str(number),
        1,
        "c",
        "",
        "q",
        "",
        task_type,
        payload,
        5,
        0,
        3,
        timeout,
        "2030-01-01",
        "2030-01-01",
        False,
        None,
        None,
    )


async def until(look):
    async with asyncio.timeout(10):
        while not look():  # noqa: ASYNC110 - what is looked at has no event: that would cost each task something
            await asyncio.sleep(0.005)


class House:
    """A pool with a runner, without a database."""

    def __init__(self, *functions, limit=5, hooks=None):
        self.holdings = Holdings()
        self.lease = Lease()
        self.lease.beaten(time.monotonic(), unbroken=True)
        registry = {function.__name__: define(function) for function in functions}
        self.runner = Runner(
            registry,
            hooks or Hooks(),
            self.holdings,
            Children(None),
            lambda _queue: self.pool.wake(),
            Transactions("", "public", NIL),
            self.lease,
        )
        self.pool = Pool(limit, self.lease, self.runner.begin, self.holdings.urgent)
        self.recall = Recall(self.holdings, self.runner)
        self.holdings.take_back = self.pool.remove
        self.holdings.on_ready = lambda ready: self.pool.add([ready])
        HOUSES.append(self)

    def give(self, *tasks):
        self.pool.add(self.holdings.accept(tasks))

    async def idle(self):
        await until(lambda: not self.pool.held)

    async def close(self):
        self.runner.close()
        return await self.pool.close(1)


HOUSES: list[House] = []


def house_test(function):
    async def and_close():
        try:
            await function()
        finally:
            while HOUSES:
                closed = await HOUSES.pop().close()
                assert closed

    def run():
        asyncio.run(and_close())

    run.__name__ = function.__name__
    return run
