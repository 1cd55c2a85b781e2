"""Task types of every kind that leave nothing behind, for a worker that is to run very many of them."""

from __future__ import annotations

import os

import psycopg

import octop as _octop
from octop.app import Octop

octop = Octop()


@octop.task(queue="q", max_retries=0)
async def noop() -> None: ...


@octop.task(queue="q", max_retries=0)
async def answers(word: str) -> dict[str, str]:
    return {"word": word}


@octop.task(queue="q", max_retries=1, retry=[0.01])
async def fails() -> None:
    kept = bytearray(10_000)  # a frame that is kept is a task that is never forgotten
    raise LookupError(len(kept))


@octop.task(queue="q", max_retries=0)
async def waits() -> _octop.Snooze | None:
    return _octop.Snooze(0.01) if _octop.current().attempt == 1 else None


@octop.task(queue="q", max_retries=0)
def in_thread() -> int:
    return os.getpid()


@octop.task(queue="q", max_retries=0, run_in="process")
def in_process() -> int:
    return os.getpid()


@octop.task(queue="q", max_retries=0)
async def enqueues() -> None:
    await noop.enqueue()


@octop.task(queue="q", max_retries=0, transactional=True)
async def pays() -> None:
    connection: psycopg.AsyncConnection[object] = _octop.current().connection
    await connection.execute("select txid_current()")


@octop.on_failure
def _failed(context: _octop.Context, error: BaseException) -> None:
    assert isinstance(error, LookupError)


@octop.on_retry
async def _tried_again(context: _octop.Context, error: BaseException) -> None: ...


@octop.on_freeze
async def _gave_up(context: _octop.Context, error: BaseException) -> None: ...
