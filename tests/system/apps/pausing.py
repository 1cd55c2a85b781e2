"""Tasks that a worker has claimed and cannot begin at once: behind one that blocks the loop, in a batch, before a process."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from typing import Any

import psycopg

import octop as _octop
from octop.app import Octop

octop = Octop()


@functools.cache
def _connection() -> psycopg.Connection[Any]:
    return psycopg.connect(os.environ["OCTOP_DSN"], autocommit=True)


def note(word: str) -> None:
    _connection().execute("insert into ledger (job, pid) values (%s, %s)", (word, os.getpid()))


@octop.task(queue="q")
async def blocks(seconds: float) -> None:
    """Keep the loop from everything else, as one must not: what else was claimed waits behind it."""
    note("blocks")
    time.sleep(seconds)  # noqa: ASYNC251 - on purpose


@octop.task(queue="q")
async def lasts(seconds: float) -> None:
    note("lasts")
    await asyncio.sleep(seconds)
    note("lasted")


@octop.task(queue="q", batch_size=100, batch_wait=5)
async def gathers(tasks: list[_octop.BatchTask[dict[str, int]]]) -> None:
    note(f"gathers {len(tasks)}")
