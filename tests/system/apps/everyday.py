"""Task types of every kind, for the system tests of the worker. Bodies write to a ledger of their own: `OCTOP_DSN` leads to it."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import psycopg

import octop as _octop
from octop.app import Octop

octop = Octop()


def _note(what: str) -> None:
    with psycopg.connect(os.environ["OCTOP_DSN"], autocommit=True) as connection:
        connection.execute("insert into ledger (job, pid) values (%s, %s)", (what, os.getpid()))


@octop.task(queue="q", max_retries=0)
async def noop() -> None: ...


@octop.task(queue="q", max_retries=3)
async def nap(seconds: float, note: str = "") -> str:
    if note:
        _note(note)
    await asyncio.sleep(seconds)
    return "slept"


@octop.task(queue="q", max_retries=0)
def nap_in_thread(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@octop.task(queue="q", max_retries=0)
async def tells(seconds: float, note: str) -> str:
    _note(f"{note} begins")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        _note(f"{note} is cut")
        raise
    _note(f"{note} ends")
    return "slept"


@octop.task(queue="q", max_retries=0, run_in="process")
def tells_in_process(seconds: float, note: str) -> str:
    _note(f"{note} begins")
    time.sleep(seconds)
    _note(f"{note} ends")
    return "slept"


@octop.task(queue="q", max_retries=0)
def watchful(seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not _octop.current().cancelled:
        time.sleep(0.02)
    return "left"


@octop.task(queue="q", max_retries=0, run_in="process")
def nap_in_process(seconds: float) -> str:
    time.sleep(seconds)
    return f"slept in {os.getpid()}"


@octop.task(queue="q", max_retries=0, run_in="process")
def spin() -> None:
    while True:
        pass


@octop.task(queue="q", max_retries=2)
def kill_own_process() -> None:
    _note("kill")
    os.kill(os.getpid(), signal.SIGKILL)


@octop.task(queue="q", max_retries=3)
async def block(seconds: float) -> None:
    _note("block")
    time.sleep(seconds)  # noqa: ASYNC251 - what this task is about


@octop.task(queue="q", max_retries=2)
async def endless(note: str = "endless") -> None:
    _note(note)
    while True:
        pass


def _burn(kind: str, seconds: float) -> None:
    """Compute for so long without a pause: in Python, or in C, which lets go of the interpreter's lock at the end only."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if kind == "power":
            _ = 7**400_000
        elif kind == "pattern":
            re.fullmatch(r"(a+)+b", "a" * 22)


@octop.task(queue="q", max_retries=3)
async def burns_on_loop(kind: str, seconds: float) -> None:
    _note(f"{kind} on_loop")
    _burn(kind, seconds)


@octop.task(queue="q", max_retries=3)
def burns_in_thread(kind: str, seconds: float) -> None:
    _note(f"{kind} in_thread")
    _burn(kind, seconds)


@octop.task(queue="q", max_retries=0, run_in="process")
async def noop_in_process() -> None: ...


@octop.task(queue="q", max_retries=2)
async def holds_the_lock(seconds: int) -> None:
    _note("lock")
    ctypes.PyDLL(None).sleep(seconds)  # unlike CDLL it keeps the interpreter's lock


@octop.task(queue="q", max_retries=20)
def short(seconds: float, note: str) -> None:
    _note(note)
    time.sleep(seconds)


@octop.task(queue="q", max_retries=3)
def rests_once(note: str) -> object:
    """Wait until the test says `go`; rest then at the first attempt, and end at the next."""
    _note(note)
    with psycopg.connect(os.environ["OCTOP_DSN"], autocommit=True) as connection:
        while not connection.execute("select from ledger where job = 'go'").fetchall():
            time.sleep(0.02)
    return _octop.Snooze(0.1) if _octop.current().attempt == 1 else "rested"


@octop.task(queue="q", max_retries=0)
async def swallow() -> str:
    for _ in range(200):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue
    return "never"


class _Odd(Exception):
    def __init__(self, which: str) -> None:
        super().__init__(which)
        self.which = which
        self.number = 5

    def __str__(self) -> str:
        if self.which == "str raises":
            raise RuntimeError("no words")
        if self.which == "str exits":
            sys.exit(9)
        if self.which == "str is int":
            return self.number  # type: ignore[return-value]
        if self.which == "bad text":
            return "nul \x00 surrogate \ud800 " + "x" * 100_000
        return self.which

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError(name)

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    __hash__ = None  # type: ignore[assignment]


def _raise(which: str) -> None:
    kinds = {
        "SystemExit": SystemExit(3),
        "exit 0": SystemExit(0),
        "KeyboardInterrupt": KeyboardInterrupt(),
        "BaseException": BaseException(),
        "MemoryError": MemoryError(),
        "StopIteration": StopIteration(1),
        "StopAsyncIteration": StopAsyncIteration(),
        "GeneratorExit": GeneratorExit(),
        "CancelledError": asyncio.CancelledError(),
        "group": BaseExceptionGroup("several", [ValueError("one"), KeyboardInterrupt()]),
        "RecursionError": RecursionError("deep"),
    }
    if which == "os._exit":
        os._exit(1)
    raise kinds.get(which) or _Odd(which)


@octop.task(queue="q", max_retries=0)
async def raise_on_loop(which: str) -> None:
    if which == "child task":
        async with asyncio.TaskGroup() as group:
            group.create_task(_exit_later())
        return
    if which == "cancelled child":
        child = asyncio.get_running_loop().create_task(asyncio.sleep(5))
        asyncio.get_running_loop().call_soon(child.cancel)
        await child
    await asyncio.sleep(0)
    _raise(which)


async def _exit_later() -> None:
    await asyncio.sleep(0)
    sys.exit(4)


@octop.task(queue="q", max_retries=0)
def raise_in_thread(which: str) -> None:
    _raise(which)


@octop.task(queue="q", max_retries=0, run_in="process")
def raise_in_process(which: str) -> None:
    _raise(which)


@octop.task(queue="q", max_retries=3)
def bad_result(which: str) -> object:
    _note(f"result {which}")
    return {"nan": float("nan"), "set": {1, object()}, "nul": "a\x00b", "big": "x" * 2_000_000, "lone": "\ud800"}[which]


@octop.on_worker_start
async def _start() -> None:
    _note("worker start")


@octop.on_worker_stop
def _stop() -> None:
    _note("worker stop")


@dataclass
class Fragile:
    """Its decoding runs the user's code."""

    which: str

    def __post_init__(self) -> None:
        if self.which == "ImportError":
            importlib.import_module("no_such_library")
        if self.which == "SystemExit":
            sys.exit(5)
        if self.which == "RuntimeError":
            raise RuntimeError("the decoder's own words")


@octop.task(queue="q", max_retries=0)
async def decode_on_loop(value: Fragile) -> None: ...


@octop.task(queue="q", max_retries=0)
def decode_in_thread(value: Fragile) -> None: ...


@octop.task(queue="q", max_retries=0, run_in="process")
def decode_in_process(value: Fragile) -> None: ...


@octop.task(queue="q")
async def always_fails() -> None:
    _note(f"start {_octop.current().attempt} of {_octop.current().task_id}")
    raise LookupError("always")


@octop.on_retry
def _retried(context: _octop.Context, error: BaseException) -> None:
    _note(f"retry {context.attempt} of {context.task_id}")


@octop.on_freeze
def _frozen(context: _octop.Context, error: BaseException) -> None:
    _note(f"freeze {type(error).__name__}")
    _note(f"gave up {context.attempt} of {context.task_id}")


class Unbound:
    """What a proxy without a context is like: even its class can not be asked for."""

    @property  # type: ignore[misc]
    def __class__(self):
        raise RuntimeError("working outside of a request")


@octop.task(queue="q", max_retries=0)
async def answers_unbound() -> object:
    return Unbound()


@octop.task(queue="q", max_retries=0)
async def raises_unbound() -> None:
    class UnboundError(Exception):
        @property  # type: ignore[misc]
        def __class__(self):
            raise RuntimeError("working outside of a request")

    raise UnboundError


@octop.task(queue="q", max_retries=1, retry=[0.1])
async def cancels_everybody() -> None:
    for each in asyncio.all_tasks():
        each.cancel()
    await asyncio.sleep(1)


@octop.task(queue="q")
def leaves_a_process_behind(seconds: float) -> int:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(seconds,), daemon=False)
    process.start()
    return process.pid or 0


@octop.task(queue="q", max_retries=0)
def leaves_an_orphan(seconds: float) -> None:
    subprocess.run(["sh", "-c", f"sleep {seconds} &"], check=True)
