"""The application of the demo: one task of every kind that a newcomer asks about. A worker runs it like any other."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import date

from octop import Cancel, Octop, Snooze, current

octop = Octop()


class CardError(Exception):
    """The payment provider says no."""


class ServiceError(Exception):
    """The service of others is not there."""


@octop.task
async def send_welcome(user_id: int) -> str:
    """Send a mail, on the event loop."""
    await asyncio.sleep(0.4)
    return f"welcome mail sent to user {user_id}"


@octop.task
def resize_image(path: str, width: int) -> str:
    """Call a library that blocks, in a thread."""
    time.sleep(0.6)
    return f"{path}@{width}"


@octop.task(run_in="process", timeout=60)
def render_report(day: date) -> dict[str, int]:
    """Compute on a core of its own, in a child process; the date comes back as a date."""
    total = sum(number * number % 7 for number in range(400_000))
    return {"year": day.year, "total": total}


@octop.task(max_retries=5)
async def call_flaky_service(url: str) -> str:
    """Fail twice, then work: the retries come by themselves."""
    await asyncio.sleep(0.1)
    if current().retry_count < 2:
        message = f"{url} answered 503"
        raise ServiceError(message)
    return "ok"


@octop.task(max_retries=2)
def charge_card(order: int) -> None:
    """Fail every time: after its retries the task is frozen and waits for a person."""
    message = f"the card of order {order} has expired"
    raise CardError(message)


@octop.task(timeout=1, max_retries=0)
async def ask_slow_api() -> None:
    """Wait for an answer that does not come: the time limit ends it."""
    await asyncio.sleep(3600)


@octop.task(run_in="process", timeout=1.5, max_retries=0)
def spin_forever() -> None:
    """Loop for ever in a child process: the time limit kills it."""
    while True:
        pass


@octop.task(timeout=600)
async def export_everything() -> None:
    """Take long enough to be cancelled while it runs."""
    await asyncio.sleep(300)


@octop.task
async def ship_order(order: int) -> None:
    """See for itself that there is nothing to do."""
    message = f"order {order} was withdrawn"
    raise Cancel(message)


@octop.task
async def close_day() -> str:
    """Run at its time, to the millisecond."""
    return "closed"


@octop.task(queue="tickets")
async def answer_ticket(priority: int) -> int:
    """Wait for its turn: the urgent ones first."""
    await asyncio.sleep(0.05)
    return priority


@octop.task
async def poll_upload() -> Snooze | str:
    """Come back later, without using up a try, while the upload has not arrived."""
    if current().attempt == 1:
        return Snooze(1)
    return "arrived"


@octop.task(queue="bulk")
async def count_click(n: int) -> None:
    """Do next to nothing, 20,000 times."""


@octop.task
async def greet(name: str) -> str:
    """Be enqueued by a plain INSERT."""
    return f"hello, {name}"


@octop.task
async def book_seat(seat: str) -> None:
    """Be enqueued in a transaction that is rolled back: never to be seen."""


@octop.task(max_retries=3)
async def crash_process() -> str:
    """Kill the worker process that runs it: it is found, runs again in a process of its own, and this time lives."""
    if current().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@octop.task
async def ping() -> None:
    """Measure the time from enqueue to start."""
