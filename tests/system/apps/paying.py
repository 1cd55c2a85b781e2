"""Transactional tasks, and a way to die at each step of one."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import psycopg

import octop as _octop
from octop.app import Octop
from octop.worker import transactions
from octop.worker.holdings import Holdings

octop = Octop()


def die_at(step: str) -> None:
    """Kill this process if the test has asked for it, once."""
    with psycopg.connect(os.environ["OCTOP_DSN"], autocommit=True) as connection:
        if connection.execute("delete from deaths where step = %s returning step", (step,)).fetchone():
            os.kill(os.getpid(), signal.SIGKILL)


check, committed = transactions._check, Holdings.committed


def check_and_die(answer: Any) -> None:
    check(answer)
    die_at("success written, not committed")


def commit_and_die(self: Holdings, *arguments: Any) -> None:
    die_at("committed, not known to the worker")
    committed(self, *arguments)


transactions._check = check_and_die
Holdings.committed = commit_and_die  # type: ignore[method-assign, assignment]

PAY = "insert into payments (job, attempt) values (%s, %s)"


@octop.task(queue="q", max_retries=3, transactional=True)
async def pay(job: str, seconds: float = 0) -> str:
    die_at("begun")
    context = _octop.current()
    await context.connection.execute(PAY, (job, context.attempt))
    die_at("paid")
    await asyncio.sleep(seconds)
    await receipt.using(connection=context.connection).enqueue(job)
    return job


@octop.task(queue="q", max_retries=3, transactional=True)
def pay_in_thread(job: str, seconds: float = 0) -> str:
    die_at("begun")
    context = _octop.current()
    context.connection.execute(PAY, (job, context.attempt))
    die_at("paid")
    time.sleep(seconds)
    receipt.using(connection=context.connection).enqueue_sync(job)
    return job


@octop.task(queue="q", max_retries=3, transactional=True, run_in="process")
async def pay_in_process(job: str, seconds: float = 0) -> str:
    return await pay(job, seconds)


@octop.task(queue="q", max_retries=2, transactional=True)
async def kills_its_process(context: _octop.Context) -> None:
    await context.connection.execute(PAY, ("killed", context.attempt))
    os.kill(os.getpid(), signal.SIGKILL)


@octop.task(queue="receipts")
async def receipt(job: str) -> None: ...


async def _pay(context: _octop.Context) -> None:
    await context.connection.execute(PAY, ("ends otherwise", context.attempt))


@octop.task(queue="q", max_retries=1, transactional=True)
async def ends_otherwise(context: _octop.Context, how: str) -> Any:
    await _pay(context)
    if context.attempt > 1:
        return how
    match how:
        case "raise":
            raise ValueError(how)
        case "snooze":
            return _octop.Snooze(0.1)
        case "retry":
            raise _octop.Retry(delay=0.1)
        case "commit":
            await context.connection.commit()
        case "terminated":
            await context.connection.execute("select pg_terminate_backend(pg_backend_pid())")
        case "over its limit":
            await asyncio.sleep(60)
    return how


@octop.task(queue="q", max_retries=1, transactional=True)
async def can_not_be_kept(context: _octop.Context, what: str) -> Any:
    await _pay(context)
    return _octop.Cancel("no") if what == "cancel" else "x" * 3_000_000 if what == "too large" else object()


@octop.task(queue="q", max_retries=0)
async def not_transactional() -> None:
    _ = _octop.current().connection


@octop.task(queue="q", transactional=True)
async def keeps_the_connection(context: _octop.Context) -> str:
    kept = context.connection
    context.connection.add_notice_handler(lambda _notice: None)
    found = await (
        await kept.execute("select gen_random_uuid(), now(), current_setting('transaction_isolation')")
    ).fetchone()
    return f"{type(found[0]).__name__} {type(found[1]).__name__} {found[2]}"


def _take_away(task_id: object) -> None:
    """Give the task to whoever comes next, as a person may, in the last moment: its worker can not have heard of it."""
    with psycopg.connect(os.environ["OCTOP_DSN"], autocommit=True) as connection:
        connection.execute("update octop_tasks set status = 'pending' where id = %s", (task_id,))


@octop.task(queue="q", max_retries=0, transactional=True)
async def is_taken_away(context: _octop.Context) -> None:
    await context.connection.execute(PAY, ("taken", context.attempt))
    if context.attempt == 1:
        _take_away(context.task_id)


@octop.task(queue="q", max_retries=0, transactional=True)
def is_taken_away_in_thread(context: _octop.Context) -> None:
    context.connection.execute(PAY, ("taken", context.attempt))
    if context.attempt == 1:
        _take_away(context.task_id)
