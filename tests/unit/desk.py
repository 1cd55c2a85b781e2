"""An exchanger without a database: links that answer what a test says, and the desk at which it works."""

import asyncio
import functools
import time

from octop.model.task import NIL, Claimed, Exchanged
from octop.worker.claims import Claims
from octop.worker.exchanger import Exchanger
from octop.worker.holdings import Holdings
from octop.worker.lease import Lease
from octop.worker.link import Link
from octop.worker.pool import Pool

EMPTY = Exchanged([], [], {}, 0)


def claimed(number=0, **more):
    made = Claimed(
        str(number), 1, "c", "", "q", "", "noop", "{}", 5, 0, 3, 30.0, "2030-01-01", "2030-01-01", False, None, None
    )
    return made._replace(**more)


def elements(text):
    """Return the elements of an array that is written as text; none of them holds a comma or a quote."""
    return [None if each == "NULL" else each.strip('"') for each in (text or "{}")[1:-1].split(",") if each]


def wanted_of(values):
    return [int(each) for each in elements(values["wanted"])]


def loop_test(function):
    @functools.wraps(function)
    def run(*arguments, **named):
        async def bounded():
            async with asyncio.timeout(20):
                await function(*arguments, **named)

        asyncio.run(bounded())

    return run


class FakeLink:
    """Answers calls by the name of their function; an exception is raised."""

    def __init__(self, **answers):
        self.answers = answers
        self.names = []
        self.values = []
        self.pauses = []
        self.is_over = False

    async def call(self, call, *, seconds=0.0):
        name = next(name for name in self.names_known() if f"{name}(" in call.text)
        self.names.append(name)
        self.values.append(call.values)
        answer = self.answers.get(name)
        if callable(answer):
            answer = answer(call)
        if isinstance(answer, BaseException):
            raise answer
        await asyncio.sleep(0)
        return answer

    def names_known(self):
        return ("octop_exchange", "octop_sleep", "octop_doubtful", "octop_doubt", "octop_release_unheld", *self.answers)

    async def open(self, *, seconds=0.0):
        self.names.append("open")
        self.values.append({})
        if isinstance(answer := self.answers.get("open"), BaseException):
            raise answer
        await asyncio.sleep(0)

    async def rest(self):
        self.names.append("rest")
        self.values.append({})
        await asyncio.sleep(0)

    def cut(self):
        self.names.append("cut")
        self.values.append({})

    async def pause(self, seconds=None):
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def give_up(self):
        self.is_over = True

    def exchanges(self):
        return [value for name, value in zip(self.names, self.values, strict=True) if name == "octop_exchange"]


class Desk:
    """An exchanger with one queue, and what it needs."""

    def __init__(self, limit=2, **answers):
        defaults = {"octop_exchange": EMPTY, "octop_sleep": 60.0, "octop_doubt": "d", "octop_doubtful": False}
        self.link = FakeLink(**{**defaults, **answers})
        self.holdings = Holdings()
        self.lease = Lease()
        self.lease.beaten(time.monotonic(), unbroken=True)
        self.started = []
        self.pool = Pool(limit, self.lease, self._attempt, self.holdings.urgent)
        self.second = FakeLink(**self.link.answers)
        self.pools = {"q": self.pool}
        self.claims = Claims(self.holdings, self.pools, self.lease)
        links: tuple[Link, Link] = (self.link, self.second)  # type: ignore[assignment]
        self.exchanger = Exchanger(NIL, *links, self.holdings, self.claims, {"noop": 1})

    async def _attempt(self, slot, task):
        self.started.append(task)
        self.holdings.success(self.holdings.active[task.id], None)

    async def run_until(self, look):
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self.exchanger.run())
            while not look() and not running.done():  # noqa: ASYNC110 - what is looked at has no event
                await asyncio.sleep(0.002)
            running.cancel()
        await self.pool.close(1)
