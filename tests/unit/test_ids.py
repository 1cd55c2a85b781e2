"""Ids of tasks: what they are made of, and what making one costs."""

import os
import time
import uuid

from octop.model import ids
from octop.model.ids import new_id


def test_an_id_is_a_version_7_of_this_moment():
    earlier, now, later = uuid.UUID(new_id()), uuid.UUID(new_id()), uuid.UUID(new_id())
    assert (now.version, now.variant) == (7, uuid.RFC_4122)
    assert earlier.int >> 80 <= now.int >> 80 <= later.int >> 80


def test_the_moment_in_an_id_is_that_of_the_clock(monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 1_900_000_000_123_500_000)
    made = uuid.UUID(ids._Ids().next())
    assert made.int >> 80 == 1_900_000_000_123
    assert made.int >> 64 & 0xFFF == 2048  # half a millisecond, in 4096ths


def test_a_clock_that_stands_still_or_goes_back_makes_later_ids_all_the_same(monkeypatch):
    moments = iter([2_000_000_000_000_000_000] * 5_000 + [1_000_000_000_000_000_000] * 5_000)
    monkeypatch.setattr(time, "time_ns", lambda: next(moments))
    source = ids._Ids()
    made = [source.next() for _ in range(10_000)]
    assert made == sorted(set(made))


def test_a_thousand_ids_ask_the_kernel_for_random_bytes_a_few_times(monkeypatch):
    asked: list[int] = []

    def counted(size: int) -> bytes:
        asked.append(size)
        return os.getrandom(size)

    monkeypatch.setattr(os, "urandom", counted)
    source = ids._Ids()
    made = [source.next() for _ in range(1_000)]
    assert len(asked) <= 2
    assert len({one[19:] for one in made}) == 1_000  # the random part alone
