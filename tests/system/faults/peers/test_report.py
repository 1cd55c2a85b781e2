"""What is said of a run with peers, and the plan by which it goes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.system.faults.peers.contenders import CONTENDERS, chosen
from tests.system.faults.peers.judge import Facts, Run, judged
from tests.system.faults.peers.programs.book import VARIABLE, note, read, recorded
from tests.system.faults.peers.report import page, table
from tests.system.faults.peers.run import Report
from tests.system.faults.peers.striking import SUSPENSION, planned
from tests.system.faults.peers.timing import LEASE_SECONDS, REST_SECONDS

AB = frozenset("ab")
DAY = datetime(2026, 11, 30, tzinfo=UTC)


def reported(name, *, seed=1, running=frozenset()):
    facts = Facts(AB, AB, [Run("a", 1, 2, 2)], running=running)
    (contender,) = chosen(name)
    return Report(contender, seed, 60, "PostgreSQL 18.1", facts, judged(facts), 31.4, 3, [(planned(1, 60)[0], "w1")])


def cells(row):
    return [each.strip() for each in row.strip("|").split("|")]


def test_the_seeds_of_a_contender_are_one_row():
    _, _, row = table([reported("octop"), reported("octop", seed=2)], {}).splitlines()
    assert cells(row)[1:3] == ["4", "2"]


def test_who_holds_a_task_to_the_end_has_not_come_to_rest():
    rows = table([reported("octop"), reported("oban", running=frozenset("b"))], {}).splitlines()[2:]
    assert [(cells(row)[2], cells(row)[3], cells(row)[-1]) for row in rows] == [
        ("1", "0", "31 s"),
        ("0", "1", f"not within {REST_SECONDS:g} s"),
    ]


def test_who_could_not_be_measured_is_named():
    assert "Not measured: celery, seed 1: there is no redis-server" in table(
        [], {"celery, seed 1": "there is no redis-server"}
    )


def test_the_page_tells_the_settings_and_the_story_of_what_was_lost():
    text = page([reported("octop"), reported("procrastinate")], {}, DAY)
    assert "procrastinate, seed 1, lost: 1\n\n```\nb never began; at the end not there\n```" in text
    for each in chosen("octop,procrastinate"):
        assert each.settings in text
        assert all(address in text for address in each.advice)


def test_all_take_part_unless_they_are_chosen():
    assert chosen(None) == list(CONTENDERS)
    with pytest.raises(ValueError, match="no contender is called rq"):
        chosen("oban,rq")


def test_the_same_seed_draws_the_same_plan_with_one_suspension_that_outlasts_the_lease():
    plan = planned(7, 60)
    assert plan == planned(7, 60)
    assert plan != planned(8, 60)
    (suspension,) = [step for step in plan if step.fault == SUSPENSION]
    assert suspension.at <= 15
    assert suspension.seconds > LEASE_SECONDS
    assert [step.number for step in plan] == list(range(1, len(plan) + 1))
    assert all(step.seconds < LEASE_SECONDS for step in plan if step is not suspension)


def test_a_task_notes_its_beginning_and_its_end_and_who_was_cut_off(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "book"))
    note("meant", keys=["a"])
    with recorded("a"):
        pass
    with pytest.raises(KeyboardInterrupt), recorded("b"):
        raise KeyboardInterrupt
    with (tmp_path / "book").open("a") as book:
        book.write('{"kind": "half a l')
    assert [(line["kind"], line.get("key")) for line in read(tmp_path / "book")] == [
        ("meant", None),
        ("began", "a"),
        ("ended", "a"),
        ("began", "b"),
        ("cut", "b"),
    ]
