"""Each rule of the checker is shown a history that breaks it, and one that does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.system.faults.checker import RULES, check
from tests.system.faults.excuses import excused, forgotten
from tests.system.faults.history import (
    Attempt,
    Batch,
    Cancelling,
    Count,
    Ending,
    Failover,
    History,
    Outage,
    Row,
    Run,
    Trouble,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
GOOD_COUNTS = (Count("q", "success", 1),)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def run(attempt=1, begun=0.0, ended: float | None = 1.0, *, claim=None, place="loop", ending: str | None = "returned"):
    return Run("a", attempt, claim or f"c{attempt}", place, at(begun), None if ended is None else at(ended), ending)


def row(status="success", attempt=1, *, claim=None, retry_count=0, max_retries=3, result=None, id="a", task_type="t"):
    claim = claim or f"c{attempt}"
    if result is None and status == "success":
        result = {"attempt": attempt, "claim_id": claim}
    return Row(id, task_type, "q", status, attempt, claim, retry_count, max_retries, result)


def attempt(number=1, outcome="failure", ended=1.0, *, claim=None):
    return Attempt("a", number, claim or f"c{number}", outcome, at(ended))


def stopped(since, pids="3, 7"):
    return Trouble("stop worker long", at(since), at(8), hit=pids)


def batch(ending="committed", *ids, meant=0.0, ended=1.0):
    return Batch("b1", "many", ids or ("a",), ending, at(meant), at(ended))


def history(**parts):
    parts.setdefault("batches", [batch()])
    parts.setdefault("counters", ())
    made = History(**parts)
    if not parts["counters"]:
        from tests.system.faults.checker import counted

        made = History(**{**parts, "counters": counted(made)})
    return made


def once(**parts):
    """A task that ran once and succeeded, with what is to be different."""
    return history(**{"runs": [run()], "rows": [row()], **parts})


def twice(first, record, second=None, **parts):
    """A task whose first run ended as it says, and whose second one, begun at 2 s, succeeded."""
    runs = [first, second or run(2, 2, 3)]
    return history(
        **{
            "runs": runs,
            "rows": [row(attempt=2, retry_count=1)],
            "attempts": [record],
            "troubles": [Trouble("kill worker", at(0), at(0))],
            **parts,
        }
    )


LOST = attempt(outcome="lost", ended=1.5)
ENDLESS = run(ended=None, ending=None)
STILL = run(ended=9, ending="cut")._replace(pid=7)

GONE = {"attempt": 1, "claim_id": "gone"}

SILENT = Attempt("a", 1, "c1", "lost", at(15.5), "worker x was silent for longer than the lease of 2 s")

ASYNC, SYNC = (Failover(kind, kept_until=at(5), failed_at=at(7)) for kind in ("async", "sync"))
LATE = batch(meant=5.5, ended=6)
"""Acknowledged after the last commit that the standby has."""


def both(queue, lane, second, seqs=(1, 2), committed=-1.0):
    """Two tasks of one lane, the first from 0 to 1 s, the other from then on."""
    rows = [row(id=id)._replace(queue=queue, lane=lane, seq=seq) for id, seq in zip("ab", seqs, strict=True)]
    runs = [run(), run(1, second, second + 1)._replace(task_id="b")]
    return history(batches=[batch("committed", "a", "b", meant=-10, ended=committed)], runs=runs, rows=rows)


SOUND = {
    "one after the other": both("alone", "", 1),
    "in order": both("strict", "x", 1),
    "enqueued first, and committed when the other was on its way already": both("strict", "x", 2, seqs=(2, 1)),
    "at once in two lanes, one would be too many": both("laned", "x", 0.5),
    "one run": once(),
    "a failure and a success": twice(run(ending="raised"), attempt()),
    "killed, and its lease lost": twice(run(ended=2, ending="died"), LOST),
    "it goes on after its lease is lost": twice(ENDLESS, LOST),
    "a thread given up at its deadline": twice(run(ended=9, place="thread"), attempt(outcome="timeout")),
    "its process stood still for longer than the lease": twice(
        STILL, attempt(outcome="timeout"), troubles=[stopped(-0.5)]
    ),
    "a snooze costs no try": twice(run(ending="raised"), attempt(outcome="snoozed"), rows=[row(attempt=2)]),
    "a claim lost in a crash": history(
        runs=[run(ended=None, ending=None, claim="gone"), run(1, 2, 3)], rows=[row()], crashes=[at(1)]
    ),
    "a claim lost in a crash, and taken over": once(
        runs=[run(claim="gone")], rows=[row(result=GONE)], crashes=[at(0.5)]
    ),
    "a claim lost in a crash, and cancelled before the next one": history(
        runs=[run(claim="gone")],
        rows=[row("cancelled", 0)],
        cancels=[Cancelling("a", "cancelled")],
        crashes=[at(1.5)],
    ),
    "judged a lease after an outage": twice(
        ENDLESS,
        SILENT,
        run(2, 20, 21),
        outages=[Outage(at(10), at(13))],
        troubles=[Trouble("stop worker", at(9), at(16))],
    ),
    "found dead after an outage": twice(
        ENDLESS,
        attempt(outcome="lost", ended=13.5),
        run(2, 20, 21),
        outages=[Outage(at(10), at(13))],
        troubles=[Trouble("stop worker", at(9), at(16))],
    ),
    "frozen": history(runs=[run(ending="raised")], rows=[row("frozen", max_retries=0)], attempts=[attempt()]),
    "cancelled while it waited": history(rows=[row("cancelled", 0)], cancels=[Cancelling("a", "cancelled")]),
    "it cancels itself": history(
        runs=[run(ending="raised")],
        rows=[row("cancelled", task_type="cancels_itself")],
        attempts=[attempt(outcome="cancelled")],
    ),
    "rolled back": history(batches=[batch("rolled back")]),
    "an unknown commit that was none": history(batches=[batch("unknown", "a", "b")]),
    "an unknown commit that was one": once(batches=[batch("unknown")]),
    "forgotten by a standby that was behind": history(batches=[LATE], failovers=[ASYNC]),
    "forgotten, and the answer came after the failover": history(
        batches=[batch(meant=6.9, ended=9)], failovers=[ASYNC]
    ),
    "forgotten after it had run": history(batches=[LATE], runs=[run(begun=6, ended=6.1)], failovers=[ASYNC]),
    "of an unknown commit, started, and forgotten": history(
        batches=[batch("unknown")], runs=[run(begun=6, ended=6.1)], failovers=[SYNC]
    ),
    "a forgotten claim that goes on": history(
        runs=[run(2, 6, None, ending=None, claim="gone"), run(1, 9, 10)], rows=[row()], failovers=[SYNC]
    ),
    "a cancel that was forgotten": once(cancels=[Cancelling("a", "cancelled", at(6), at(6.5))], failovers=[ASYNC]),
    "a worker that ends": once(endings=[Ending("w1", 0)]),
}

BROKEN = {
    ("committed_ends_once", "lost"): history(),
    ("committed_ends_once", "not final"): history(rows=[row("pending", 0)]),
    ("committed_ends_once", "twice there"): once(rows=[row(), row("frozen")]),
    ("committed_ends_once", "gone, and commits wait for the standby"): history(batches=[LATE], failovers=[SYNC]),
    ("committed_ends_once", "gone, and it had reached the standby"): history(
        batches=[batch(meant=4, ended=4.9)], failovers=[ASYNC]
    ),
    ("committed_ends_once", "gone, and it came after the failover"): history(
        batches=[batch(meant=7.1, ended=7.2)], failovers=[ASYNC]
    ),
    ("committed_ends_once", "gone in part"): once(
        batches=[batch("committed", "a", "b", meant=5.5, ended=6)], failovers=[ASYNC]
    ),
    ("rolled_back_is_nowhere", "exists"): once(batches=[batch("rolled back")], runs=[]),
    ("rolled_back_is_nowhere", "was started"): history(batches=[batch("rolled back")], runs=[run()]),
    ("unknown_is_whole", "in part"): once(batches=[batch("unknown", "a", "b")]),
    ("unknown_is_whole", "not final"): history(batches=[batch("unknown")], rows=[row("running")]),
    ("unknown_is_whole", "started and gone"): history(batches=[batch("unknown")], runs=[run()]),
    ("unknown_is_whole", "started long before the failover, and gone"): history(
        batches=[batch("unknown")], runs=[run()], failovers=[ASYNC]
    ),
    ("every_batch_has_an_ending", "nobody says how it ended"): once(batches=[batch(), batch("intended", "b")]),
    ("every_batch_has_an_ending", "nobody enqueued it"): once(batches=[]),
    ("no_overlap", "both run"): twice(run(ended=2.5, ending="raised"), attempt()),
    ("no_overlap", "the first never ended"): twice(ENDLESS, attempt()),
    ("no_overlap", "lost only after the next had begun"): twice(ENDLESS, attempt(outcome="lost", ended=2.1)),
    ("no_overlap", "given up, and no thread"): twice(run(ended=9), attempt(outcome="timeout")),
    ("no_overlap", "released, and no thread"): twice(run(ended=9, place="process"), attempt(outcome="released")),
    ("no_overlap", "the record is of another claim"): twice(ENDLESS, attempt(outcome="lost", claim="other")),
    ("no_overlap", "claimed twice, and no crash was near"): history(
        runs=[run(ended=None, ending=None, claim="gone"), run(1, 2, 3)], rows=[row()], crashes=[at(-100), at(9)]
    ),
    ("attempts_count_up", "a gap"): twice(run(), attempt(), run(3, 2, 3), rows=[row(attempt=3, retry_count=1)]),
    ("attempts_count_up", "a success with the record of a failure"): once(attempts=[attempt()]),
    ("attempts_count_up", "frozen without a record"): history(rows=[row("frozen", 0 + 1)]),
    ("runs_follow_claims", "one claim run twice"): once(runs=[run(), run(1, 2, 3)]),
    ("runs_follow_claims", "backwards"): twice(run(2, 0, 1), attempt(), run(1, 2, 3)),
    ("runs_follow_claims", "one number under two claims"): once(runs=[run(claim="other"), run(1, 2, 3)]),
    ("runs_follow_claims", "backwards, and not in the last moments"): twice(
        run(2, 0, 1), attempt(), run(1, 2, 3), failovers=[ASYNC]
    ),
    ("runs_follow_claims", "more than the row counts"): once(runs=[run(), run(2, 2, 3)]),
    ("runs_follow_claims", "more than the row counts, and no crash was near"): history(
        runs=[run(claim="gone")], rows=[row("cancelled", 0)], cancels=[Cancelling("a", "cancelled")], crashes=[at(9)]
    ),
    ("success_is_of_the_last_attempt", "its body raised"): once(runs=[run(ending="raised")]),
    ("success_is_of_the_last_attempt", "its body died"): once(runs=[run(ending="died")]),
    ("success_is_of_the_last_attempt", "nobody ran it"): once(runs=[]),
    ("success_is_of_the_last_attempt", "another claim's"): once(rows=[row(claim="other")]),
    ("success_is_of_the_last_attempt", "taken over without a crash"): once(
        runs=[run(claim="gone")], rows=[row(result=GONE)], crashes=[at(9)]
    ),
    ("success_is_of_the_last_attempt", "the result of another"): once(
        rows=[row(result={"attempt": 1, "claim_id": "other"})]
    ),
    ("frozen_has_used_up_its_tries", "tries left"): history(rows=[row("frozen", max_retries=1)], attempts=[attempt()]),
    ("frozen_has_used_up_its_tries", "one too many"): history(
        rows=[row("frozen", 2, max_retries=0)], attempts=[attempt(), attempt(2)]
    ),
    ("frozen_has_used_up_its_tries", "by a snooze"): history(
        rows=[row("frozen")], attempts=[attempt(outcome="snoozed")]
    ),
    ("tries_are_counted", "a failure for nothing"): twice(run(ending="raised"), attempt(), rows=[row(attempt=2)]),
    ("tries_are_counted", "a release costs one"): twice(run(ending="raised"), attempt(outcome="released")),
    ("cancelled_was_asked_for", "nobody asked"): history(rows=[row("cancelled", 0)]),
    ("cancelled_was_asked_for", "it went on"): once(cancels=[Cancelling("a", "cancelled")]),
    ("cancelled_was_asked_for", "it went on, and commits wait for the standby"): once(
        cancels=[Cancelling("a", "cancelled", at(6), at(6.5))], failovers=[SYNC]
    ),
    ("finished_stays_finished", "run after its success"): once(runs=[run(), run(2, 2, 3)]),
    ("nothing_is_lost_without_a_fault", "no fault"): twice(ENDLESS, LOST, troubles=[]),
    ("nothing_is_lost_without_a_fault", "long after"): twice(
        ENDLESS, LOST, troubles=[Trouble("kill worker", at(-60), at(-59))]
    ),
    ("nobody_judges_after_an_outage", "too early"): twice(
        ENDLESS, SILENT, run(2, 20, 21), outages=[Outage(at(10), at(14))]
    ),
    ("counters_equal_the_rows", "too many"): once(counters=[Count("q", "success", 2)]),
    ("counters_equal_the_rows", "of another queue"): once(counters=[*GOOD_COUNTS, Count("other", "waiting", 1)]),
    ("counters_equal_the_rows", "below nothing"): once(counters=[*GOOD_COUNTS, Count("q", "waiting", -1)]),
    ("workers_end_in_order", "killed"): once(endings=[Ending("w1", None)]),
    ("workers_end_in_order", "an exit code"): once(endings=[Ending("w1", 1)]),
    ("workers_end_in_order", "a process is left"): once(left_behind=["w1 123"]),
    ("no_overlap", "it stood still for less than the lease"): twice(
        STILL, attempt(outcome="timeout"), troubles=[stopped(0.5)]
    ),
    ("no_overlap", "another stood still"): twice(
        STILL, attempt(outcome="timeout"), troubles=[stopped(-0.5, "1007, 70")]
    ),
    ("every_fault_strikes", "nobody was there"): once(troubles=[Trouble("kill worker", at(0), at(0), hit="")]),
    ("limits_held_at_every_instant", "two at once"): both("alone", "", 0.5),
    ("limits_held_at_every_instant", "two at once in a strict lane"): both("strict", "x", 0.5),
    ("strict_order_is_that_of_enqueue", "the second first"): both("strict", "x", 2, seqs=(2, 1), committed=-9),
    ("nobody_complains", "a traceback"): once(complaints=["w1.log: Traceback (most recent call last): …"]),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_history_breaks_no_rule(name):
    assert check(SOUND[name]) == []


@pytest.mark.parametrize(("rule", "how"), BROKEN)
def test_a_rule_reports_what_breaks_it(rule, how):
    assert rule in {violation.rule for violation in check(BROKEN[rule, how])}


def test_every_rule_is_shown_something_that_breaks_it():
    assert {rule.__name__.removeprefix("rule_") for rule in RULES} == {rule for rule, _ in BROKEN}


def test_allowed_overlaps_are_counted_by_their_excuse():
    assert excused(SOUND["one run"]) == {}
    assert excused(SOUND["it goes on after its lease is lost"]) == {"its worker had lost the lease": 1}
    assert excused(SOUND["a thread given up at its deadline"]) == {"a thread given up (timeout)": 1}
    assert excused(SOUND["a claim lost in a crash"]) == {"its claim was lost in a crash": 1}


def test_what_a_failover_has_cost_is_said():
    (said,) = forgotten(SOUND["forgotten by a standby that was behind"])
    assert "async, the standby was 2.00 s behind: lost 1 committed transactions with 1 tasks" in said
    (said,) = forgotten(once(failovers=[SYNC]))
    assert "lost 0 committed transactions" in said
    assert list(forgotten(SOUND["one run"])) == []
