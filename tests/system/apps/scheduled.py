"""Tasks of schedules, and schedules that the code declares. Bodies write into the ledger which slot of which schedule they are."""

from __future__ import annotations

import asyncio
import os
import time

import psycopg

from octop import Context, Octop

octop = Octop()


@octop.task(queue="q")
async def mark(context: Context, said: str = "") -> None:
    connection = await psycopg.AsyncConnection.connect(os.environ["OCTOP_DSN"], autocommit=True)
    async with connection:
        await connection.execute(
            "insert into ledger (job, pid) values (%s, %s)",
            (f"{context.schedule} {context.slot} {said}".strip(), os.getpid()),
        )


@octop.task(queue="q")
async def noop() -> None: ...


@octop.task(queue="q")
async def block(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - a task that holds its loop, as users write them


@octop.task(queue="q")
async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)


if os.environ.get("DECLARES"):

    @octop.schedule("0 9 * * MON-FRI", timezone="Asia/Kolkata", kwargs={"day": "{{slot.date}}"})
    @octop.task
    def report(day: str) -> None: ...

    octop.schedule(os.environ["DECLARES"], name="often", kwargs={"said": "{{slot}}"})(mark)
