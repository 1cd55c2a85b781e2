"""Task types that try what a process task must not get away with. They need no database."""

from __future__ import annotations

import ctypes
import os
import stat
import time
from pathlib import Path
from typing import Any, NoReturn

import octop as _octop
from octop.app import Octop

octop = Octop()


class Unbound:
    """Like a proxy of werkzeug outside of its request: even `isinstance` makes it raise."""

    @property  # type: ignore[misc] # as such proxies do
    def __class__(self) -> type:
        raise RuntimeError("nothing is bound")


class UnboundError(Exception):
    @property  # type: ignore[misc] # as such proxies do
    def __class__(self) -> type:
        raise RuntimeError("nothing is bound")


class SilentError(Exception):
    def __getattribute__(self, name: str) -> NoReturn:
        raise ZeroDivisionError(name)


class SlowError(Exception):
    asked = 0

    def __str__(self) -> str:
        type(self).asked += 1
        return f"asked {type(self).asked} times"


class OddCancel(_octop.Cancel):
    def __getattribute__(self, name: str) -> NoReturn:
        raise ZeroDivisionError(name)


@octop.task(queue="q", max_retries=2, run_in="process")
def say(word: str) -> str:
    return word


@octop.task(queue="q", max_retries=2, run_in="process")
def fork(seconds: float, how: str = "return") -> str:
    if os.fork() == 0:
        time.sleep(seconds)
        if how == "raise":
            raise ValueError
        if how == "exit":
            raise SystemExit(3)
    return "FORKER"


@octop.task(queue="q", max_retries=2, run_in="process")
def answer_twice() -> str:
    """Write a second answer to every socket that there is."""
    frame = b'\x00\x00\x00\x12{"result": "\\"no\\""}'
    for descriptor in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, frame)
        except OSError:
            continue
    return "once"


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


async def _coroutine() -> str:
    return "not awaited"


def _result(which: str) -> Any:
    match which:
        case "large":
            return "x" * 2_000_000
        case "huge":
            return "x" * 70_000_000
        case "deep":
            return _deep()
        case "levels":
            value: list[Any] = []
            for _ in range(300):
                value = [value]
            return value
        case "object":
            return object()
        case "coroutine":
            return _coroutine()
        case "unbound":
            return Unbound()
    return None


@octop.task(queue="q", max_retries=2, run_in="process")
def result_in_process(which: str) -> Any:
    return _result(which)


@octop.task(queue="q", max_retries=2)
def result_in_thread(which: str) -> Any:
    return _result(which)


@octop.task(queue="q", max_retries=0, run_in="process")
def fail(which: str) -> None:
    match which:
        case "UnboundError":
            raise UnboundError("said")
        case "SilentError":
            raise SilentError("said")
        case "SlowError":
            raise SlowError
        case "OddCancel":
            raise OddCancel
        case "Cancel":
            raise _octop.Cancel(5)  # type: ignore[arg-type] # what a careless author writes


@octop.task(queue="q", max_retries=0, run_in="process")
async def wait_in_process() -> str:
    return "awaited"


@octop.task(queue="q", max_retries=0, timeout=2, run_in="process")
def hold(seconds: int, begun: str) -> None:
    """Sleep without letting go of the interpreter's lock: no thread of Python could end it."""
    Path(begun).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(seconds)
