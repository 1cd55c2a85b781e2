"""Ids of tasks: UUIDs of version 7, made by the client, so that an enqueue can be repeated without doubling it."""

import os
import struct
import threading
import time
from collections.abc import Iterator
from typing import Final

_RANDOM_AT_ONCE: Final = struct.Struct(">512Q")


class _Ids:
    """Makes ids that grow within this process; forks and threads never make the same one, for 62 bits are random."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._random: Iterator[int] = iter(())

    def next(self) -> str:
        # Not a decision about time: the moment only sorts, and says in which day's partition to look first.
        now = time.time_ns()  # noqa: TID251 - see above; the database's clock decides everything else
        stamp = now * 4096 // 1_000_000  # milliseconds, and 12 bits below them
        with self._lock:
            if stamp <= self._last:
                stamp = self._last + 1
            self._last = stamp
            random = next(self._random, None)
            if random is None:
                # a system call for each id, or a slice of what one call brought, would be half of its cost
                self._random = iter(_RANDOM_AT_ONCE.unpack(os.urandom(_RANDOM_AT_ONCE.size)))
                random = next(self._random)
        # the digit 7 is the version, the bits 10 before 62 random ones are the variant
        low = random & 0xFFFF_FFFF_FFFF
        return (
            f"{stamp >> 28:08x}-{stamp >> 12 & 0xFFFF:04x}-7{stamp & 0xFFF:03x}-{random >> 50 | 0x8000:04x}-{low:012x}"
        )

    def forked(self) -> None:
        # Another thread may have held the lock at the moment of the fork; and what the parent's ids are made of is its own.
        self._lock = threading.Lock()
        self._random = iter(())


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
    return _ids.next()
