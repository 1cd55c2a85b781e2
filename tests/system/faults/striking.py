"""A fault must strike: it waits until there is somebody, and lasts until it has been felt.

What a fault returns is what it has hit, for the report; an empty text says that it struck nothing, and breaks the rule `every_fault_strikes`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

from tests.system.faults.stage import Stage

STRIKE_SECONDS_MAX = 60.0
"""Longer than some outages of the database, one after the other, and the start of a supervisor with its workers, on a machine that is busy."""
LOOK_SECONDS = 0.05

Found = TypeVar("Found")


def awaited(look: Callable[[], Found]) -> Found:
    """Look until there is something, or for as long as a fault may wait; return what was seen last."""
    deadline = time.monotonic() + STRIKE_SECONDS_MAX
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return found


def lasted(seconds: float, felt: Callable[[], int]) -> int:
    """Let a fault last for so long, and until it was felt; return how often it was."""
    time.sleep(seconds)
    return awaited(felt)


def kept_up(seconds: float, act: Callable[[], int]) -> int:
    """Do it again and again for so long, and until others felt it; return how often they did, as the last time says."""
    began = time.monotonic()
    while True:
        felt = act()
        time.sleep(LOOK_SECONDS)
        passed = time.monotonic() - began
        if passed >= seconds and (felt or passed >= seconds + STRIKE_SECONDS_MAX):
            return felt


class Refusals:
    """What the server refuses from now on, as its log says: to the fault itself, and to others.

    Attributes:
        own: Those that the fault has met itself; it counts them.
    """

    def __init__(self, stage: Stage, words: str | re.Pattern[str]) -> None:
        self._stage = stage
        self._words = words
        self._before = stage.said(words)
        self.own = 0

    def of_others(self) -> int:
        return max(0, self._stage.said(self._words) - self._before - self.own)


def times(count: int, what: str) -> str:
    """Say what was hit; nothing where that was nothing."""
    return f"{count} {what}" if count else ""
