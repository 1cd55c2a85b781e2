"""Task types of an application that uses more and more memory, and tells in which process its tasks run."""

from __future__ import annotations

import asyncio
import os

import psycopg

import octop as _octop
from octop.app import Octop

octop = Octop()
_kept: list[bytes] = []


@octop.task(queue="q", max_retries=0)
async def where(seconds: float = 0.0) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()


@octop.task(queue="q", max_retries=0)
async def grow(megabytes: int, seconds: float = 0.0) -> int:
    _kept.append(b"\1" * (megabytes << 20))
    await asyncio.sleep(seconds)
    return os.getpid()


@octop.task(queue="q", max_retries=0, run_in="process")
def grow_in_process(megabytes: int) -> int:
    _kept.append(b"\1" * (megabytes << 20))
    return os.getpid()


@octop.task(queue="q", max_retries=0)
async def fail() -> None:
    raise LookupError


@octop.on_freeze
async def _frozen(context: _octop.Context, error: BaseException) -> None:
    await asyncio.sleep(0.3)  # as one that tells a web service
    with psycopg.connect(os.environ["OCTOP_DSN"], autocommit=True) as connection:
        connection.execute("insert into ledger (job) values (%s)", (f"gave up {context.task_id}",))
