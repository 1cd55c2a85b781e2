"""Ids of tasks: UUIDs of version 7, made by the client, so that an enqueue can be repeated without doubling it."""

import os
import threading
import time
from typing import Final

_VERSION_AND_VARIANT: Final = (0x7 << 76) | (0b10 << 62)


class _Ids:
    """Makes ids that grow within this process; forks and threads never make the same one, for 62 bits are random."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._random = b""

    def next(self) -> int:
        # Not a decision about time: the moment only sorts, and says in which day's partition to look first.
        now = time.time_ns()  # noqa: TID251 - see above; the database's clock decides everything else
        milliseconds, rest = divmod(now, 1_000_000)
        stamp = (milliseconds << 12) | (rest * 4096 // 1_000_000)
        with self._lock:
            stamp = max(stamp, self._last + 1)
            self._last = stamp
            if not self._random:
                self._random = os.urandom(4096)  # a system call for each id would be a third of its cost
            random = int.from_bytes(self._random[:8], "big") & ((1 << 62) - 1)
            self._random = self._random[8:]
        return ((stamp >> 12) << 80) | ((stamp & 0xFFF) << 64) | _VERSION_AND_VARIANT | random

    def forked(self) -> None:
        # Another thread may have held the lock at the moment of the fork; and what the parent's ids are made of is its own.
        self._lock = threading.Lock()
        self._random = b""


_ids: Final = _Ids()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.forked)


def new_id() -> str:
    """Make an id: a UUID of version 7 as text, later than all that this process made before.

    Examples:
        >>> first, second = new_id(), new_id()
        >>> first < second, first[14]
        (True, '7')
    """
    text = f"{_ids.next():032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
