"""Task types that make copies of their worker process, with whatever that has open."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time

import psycopg

import octop as _octop
from octop.app import Octop

octop = Octop()


def _note(what: str) -> None:
    with psycopg.connect(os.environ["OCTOP_DSN"], autocommit=True) as connection:
        connection.execute("insert into ledger (job, pid) values (%s, %s)", (what, os.getpid()))


def _end(how: str) -> None:
    """Come back from a copy, in one of the ways in which code does."""
    if how == "raise":
        raise LookupError
    if how == "exit":
        sys.exit(3)


@octop.task(queue="q", max_retries=0)
async def fork_on_loop(how: str) -> int:
    if copy := os.fork():
        return copy
    if how == "wait":
        await asyncio.sleep(0.01)
    _end(how)
    return 0


@octop.task(queue="q", max_retries=0)
def fork_in_thread(how: str) -> int:
    if copy := os.fork():
        return copy
    _end(how)
    return 0


@octop.task(queue="q", max_retries=0, transactional=True)
def fork_in_transaction(how: str) -> int:
    connection = _octop.current().connection
    connection.execute("insert into ledger (job) values ('in the transaction')")
    if (copy := os.fork()) == 0:
        _end(how)
        return 0
    os.waitpid(copy, 0)
    connection.execute("insert into ledger (job) values ('in the transaction')")
    return copy


@octop.task(queue="q", max_retries=0)
def terminate_a_child() -> int | None:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    child.terminate()
    child.join(10)
    code = child.exitcode
    child.kill()
    return code


@octop.task(queue="q", max_retries=0)
async def mark(number: int) -> None:
    _note(f"mark {number}")
