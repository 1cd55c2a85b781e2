"""Each count is shown facts that raise it, and facts that do not."""

from __future__ import annotations

import pytest

from tests.system.faults.peers.judge import Facts, Run, Suspension, facts_of, judged, story

ALL = frozenset("abc")
C = frozenset("c")
ENDED = [Run("a", 10, 11, 11), Run("b", 10, 11, 11), Run("c", 10, 11, 11)]
CUT = Run("a", 8, None, 9)
UNREMARKABLE = ("committed", "rolled_back", "starts")


def counted(**facts):
    fare = judged(Facts(**({"meant": ALL, "committed": ALL, "runs": ENDED} | facts))).counts()
    return {name: count for name, count in fare.items() if count and name not in UNREMARKABLE}


def test_nothing_is_counted_if_each_ran_once():
    assert counted() == {}


def test_a_task_that_never_ran_to_its_end_and_is_not_there_any_more_is_lost():
    assert counted(runs=ENDED[:2]) == {"lost": 1}
    assert counted(runs=[*ENDED[:2], Run("c", 10, None, 11)]) == {"lost": 1}
    assert counted(runs=ENDED[:2], failed=C) == {"lost": 1, "given_up": 1}
    assert counted(runs=ENDED[:2], unsent=C) == {"lost": 1, "unsent": 1}


def test_a_task_of_which_the_caller_was_told_that_it_could_not_be_sent_may_have_arrived():
    assert counted(unsent=C) == {}


def test_a_task_that_is_still_there_is_stuck_and_not_lost():
    assert counted(runs=ENDED[:2], waiting=C) == {"stuck_waiting": 1}
    assert counted(runs=ENDED[:2], running=C) == {"stuck_running": 1}


def test_a_task_that_ran_to_its_end_is_stuck_if_it_is_still_held_as_running():
    assert counted(running=C) == {"stuck_running": 1}


def test_a_task_that_was_cut_off_and_ran_again_is_not_doubled():
    assert counted(runs=[*ENDED, CUT]) == {"again": 1}


def test_a_task_that_ran_to_its_end_twice_is_doubled_and_at_once_if_the_runs_overlap():
    assert counted(runs=[*ENDED, Run("a", 12, 13, 13)]) == {"again": 1, "doubled": 1}
    assert counted(runs=[*ENDED, Run("a", 10.5, 13, 13)]) == {"again": 1, "doubled": 1, "at_once": 1}


def test_two_runs_are_at_once_also_if_one_of_them_was_cut_off_later():
    assert counted(runs=[*ENDED, CUT._replace(over_at=10.5)]) == {"again": 1, "at_once": 1}


def test_an_overlap_is_counted_apart_while_the_former_was_suspended():
    former = Run("a", 8, 12, 12, pid=7)
    doubled = {"again": 1, "doubled": 1}
    for suspension, name in (
        (Suspension(7, 9, 11), "at_once_suspended"),
        (Suspension(7, 10.5, 11), "at_once"),
        (Suspension(7, 8, 9), "at_once"),
        (Suspension(8, 9, 11), "at_once"),
    ):
        assert counted(runs=[*ENDED, former], suspensions=[suspension]) == doubled | {name: 1}, suspension


def test_a_task_of_a_transaction_that_was_rolled_back_may_not_start():
    assert counted(committed=frozenset("ab"), runs=ENDED[:2]) == {}
    assert counted(committed=frozenset("ab"), runs=[*ENDED[:2], Run("c", 10, None, 11)]) == {"ran_all_the_same": 1}


def test_facts_that_contradict_themselves_prove_nothing():
    with pytest.raises(ValueError, match="never meant"):
        judged(Facts(meant=frozenset(), committed=frozenset(), runs=ENDED))


LINES = [
    {"kind": "meant", "batch": "p1-1", "keys": ["a", "b", "c"], "at": 0.5, "pid": 1},
    {"kind": "settled", "batch": "p1-1", "ending": "unknown", "at": 0.6, "pid": 1},
    {"kind": "began", "key": "a", "run": "r1", "at": 1.0, "pid": 7},
    {"kind": "began", "key": "b", "run": "r2", "at": 1.5, "pid": 7},
    {"kind": "ended", "key": "a", "run": "r1", "at": 2.0, "pid": 7},
    {"kind": "cut", "key": "b", "run": "r2", "at": 2.5, "pid": 7},
    {"kind": "unsent", "key": "b", "at": 3.0, "pid": 1},
    {"kind": "began", "key": "c", "run": "r3", "at": 4.0, "pid": 8},
    {"kind": "suspended", "at": 4.5, "pid": 8},
    {"kind": "resumed", "at": 5.5, "pid": 8},
    {"kind": "gone", "at": 6.1, "pid": 8, "alive_at": 6.0},
]
STATES = {"committed": ["a", "b", "c"], "waiting": ["b"], "running": ["c"], "failed": []}


def test_the_lines_of_the_file_become_facts():
    assert facts_of(LINES, STATES) == Facts(
        meant=ALL,
        committed=ALL,
        runs=[Run("a", 1.0, 2.0, 2.0, 7), Run("b", 1.5, None, 2.5, 7), Run("c", 4.0, None, 6.0, 8)],
        waiting=frozenset("b"),
        running=C,
        unsent=frozenset("b"),
        suspensions=[Suspension(8, 4.5, 5.5)],
    )


def test_a_run_whose_process_still_lives_is_under_way():
    (run,) = facts_of([*LINES[:1], LINES[7]], STATES).runs
    assert run.over_at == float("inf")


def test_a_process_number_that_is_used_again_does_not_end_the_later_run():
    (run,) = facts_of([*LINES[:1], LINES[7], {**LINES[10], "at": 3.0, "alive_at": 2.9}], STATES).runs
    assert run.over_at == float("inf")


def test_the_story_of_a_task_says_when_it_ran_and_where_it_is():
    facts = facts_of(LINES, STATES)
    assert story(facts, "a") == "began 0.0 s, ended 1.0; at the end not there"
    assert story(facts, "c") == "began 0.0 s, cut off 2.0; at the end running"
    assert story(Facts(ALL, ALL, []), "a") == "never began; at the end not there"
