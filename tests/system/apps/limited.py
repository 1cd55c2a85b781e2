"""Tasks that say on a connection of their own when they begin and end, for tests of limits."""

from __future__ import annotations

import asyncio
import functools
import os
import random
from typing import Any

import psycopg

import octop as _octop
from octop.app import Octop

octop = Octop()


@functools.cache
def _connection() -> psycopg.Connection[Any]:
    return psycopg.connect(os.environ["OCTOP_DSN"], autocommit=True)


def _note(word: str, key: int) -> None:
    context = _octop.current()
    job = f"{word} {context.task_id} {context.attempt} {key}"
    _connection().execute("insert into ledger (job, pid) values (%s, %s)", (job, os.getpid()))


@octop.task(queue="q", max_retries=1000, timeout=60)
async def holds(key: int, seconds: float) -> None:
    _note("begin", key)
    await asyncio.sleep(seconds)
    _note("end", key)


@octop.task(queue="q", max_retries=1000, retry=[0.01, 0.05])
async def may_fail(key: int, share: float) -> None:
    _note("begin", key)
    if random.random() < share:
        message = "by chance"
        raise LookupError(message)
