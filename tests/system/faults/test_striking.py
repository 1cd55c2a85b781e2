"""A fault waits for somebody to strike, lasts until it is felt, and gives up."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tests.system.faults import striking
from tests.system.faults.striking import Refusals, awaited, kept_up, times


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch):
    """Let seconds pass by counting them."""
    moments = itertools.count()
    time = SimpleNamespace(monotonic=lambda: float(next(moments)), sleep=lambda _seconds: None)
    monkeypatch.setattr(striking, "time", time)


def test_a_fault_waits_until_there_is_somebody_and_not_for_ever():
    looks = iter([None, None, 4711, 4712])
    assert awaited(lambda: next(looks)) == 4711
    assert awaited(lambda: "") == ""


def test_a_fault_is_kept_up_for_its_time_and_until_others_felt_it():
    felt = iter([3, 4, 5, 6, 7])
    assert kept_up(3, lambda: next(felt)) == 5, "for its time"
    felt = iter([0, 0, 0, 2, 3])
    assert kept_up(1, lambda: next(felt)) == 2, "until it is felt"
    assert kept_up(1, lambda: 0) == 0, "it gives up"


def test_what_was_refused_to_the_fault_itself_does_not_count():
    class Log:
        count = 10

        def said(self, _words):
            return self.count

    log = Log()
    refusals = Refusals(log, "no room")  # type: ignore[arg-type]
    log.count, refusals.own = 13, 2
    assert refusals.of_others() == 1
    refusals.own = 5
    assert refusals.of_others() == 0


def test_what_struck_nothing_says_nothing():
    assert (times(2, "connections"), times(0, "connections")) == ("2 connections", "")
