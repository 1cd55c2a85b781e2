"""The rules. Each reads a history and names what breaks it; nothing here touches a database.

What may be doubled, and what may be lost, is said in excuses.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple

from tests.system.faults.excuses import (
    CRASH_REACH,
    excuse,
    is_cancel_forgotten,
    is_claim_forgotten,
    is_forgotten,
    is_lost_claim,
    is_of_forgotten_time,
    overlaps,
)
from tests.system.faults.history import FINAL, USED_UP, Count, History, Row, Run
from tests.system.faults.limit_rules import rule_limits_held_at_every_instant, rule_strict_order_is_that_of_enqueue
from tests.system.faults.settings import LEASE_SECONDS

CAUSE_REACH = timedelta(seconds=10)
"""A worker that is lost was hurt, by a fault that lasted until at most so long before: lease, sweep, restart and a busy machine."""


LEASE = timedelta(seconds=LEASE_SECONDS)
SILENCE = "was silent for longer than the lease"
"""So begins the message of an attempt that a judge took from a worker; a supervisor's word of a dead process reads otherwise."""


class Violation(NamedTuple):
    rule: str
    subject: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.what}"


Found = Iterator[tuple[str, str]]


def rule_committed_ends_once(history: History) -> Found:
    """Every task of a committed transaction is there, once, and final."""
    for batch in history.batches:
        if batch.ending == "committed":
            if is_forgotten(history, batch):
                continue
            for task_id in batch.ids:
                statuses = [row.status for row in history.rows_of.get(task_id, ())]
                if len(statuses) != 1 or statuses[0] not in FINAL:
                    yield (
                        task_id,
                        f"of the committed {batch.batch} ({batch.way}) ended as {statuses}, and not once for all",
                    )


def rule_rolled_back_is_nowhere(history: History) -> Found:
    """No task of a transaction that was rolled back exists, or was ever started."""
    for batch in history.batches:
        if batch.ending == "rolled back":
            for task_id in batch.ids:
                if task_id in history.rows_of:
                    yield task_id, f"of the rolled back {batch.batch} ({batch.way}) exists"
                if task_id in history.runs_of:
                    yield task_id, f"of the rolled back {batch.batch} ({batch.way}) was started"


def rule_unknown_is_whole(history: History) -> Found:
    """Where the answer to a commit got lost, all of it is there, once and final, or nothing."""
    for batch in history.batches:
        if batch.ending == "unknown":
            there = [task_id for task_id in batch.ids if task_id in history.rows_of]
            if there and len(there) < len(batch.ids):
                yield batch.batch, f"is there in part: {len(there)} of {len(batch.ids)}"
            for task_id in there:
                statuses = [row.status for row in history.rows_of[task_id]]
                if len(statuses) != 1 or statuses[0] not in FINAL:
                    yield task_id, f"of {batch.batch} ended as {statuses}, and not once for all"
            for task_id in set(batch.ids) - set(there):
                runs = history.runs_of.get(task_id, ())
                if not all(is_of_forgotten_time(history, run) for run in runs):
                    yield task_id, f"of {batch.batch} was started and is not there"


def rule_every_batch_has_an_ending(history: History) -> Found:
    """The history itself is whole: no transaction is left of which nobody says how it ended, no task of which nobody says that it was meant."""
    meant = {task_id for batch in history.batches for task_id in batch.ids}
    for batch in history.batches:
        if batch.ending not in ("committed", "rolled back", "unknown"):
            yield batch.batch, f"has the ending {batch.ending!r}"
    for task_id in history.rows_of.keys() - meant:
        yield task_id, "exists, and nobody enqueued it"


def rule_no_overlap(history: History) -> Found:
    """No two runs of a task overlap, unless there is an excuse."""
    for former, latter in overlaps(history):
        if excuse(history, former, latter) is None:
            record = history.record_of(former)
            yield (
                former.task_id,
                f"attempt {latter.attempt} began at {latter.began_at:%H:%M:%S.%f} while attempt {former.attempt} ({former.place}, "
                f"begun at {former.began_at:%H:%M:%S.%f}) still ran; its record: "
                f"{'none' if record is None else f'{record.outcome} at {record.ended_at:%H:%M:%S.%f}'}",
            )


def rule_attempts_count_up(history: History) -> Found:
    """The attempts are 1, 2, 3 …: each that was no plain success has its record, and none is missing."""
    for row in _final(history):
        found = [each.attempt for each in history.attempts_of.get(row.id, ())]
        expected = list(range(1, row.attempt + (row.status != "success")))
        if found != expected:
            yield (
                row.id,
                f"is {row.status} with attempt {row.attempt}, and its ended attempts are {found}, not {expected}",
            )


def rule_runs_follow_claims(history: History) -> Found:
    """A claim is one start: none is run twice, none twice under one number, none backwards, none that the row does not count."""
    for task_id, runs in history.runs_of.items():
        for claim, count in Counter((run.attempt, run.claim_id) for run in runs).items():
            if count > 1:
                yield task_id, f"attempt {claim[0]} was run {count} times under one claim"
        for former, latter in pairwise(runs):
            if is_of_forgotten_time(history, former):
                continue
            again = latter.attempt == former.attempt and latter.claim_id != former.claim_id
            if latter.attempt < former.attempt or (again and not is_lost_claim(history, former, latter)):
                yield task_id, f"attempt {latter.attempt} began after attempt {former.attempt}"
        for row in history.rows_of.get(task_id, ()):
            forgotten = is_of_forgotten_time(history, runs[-1]) or is_claim_forgotten(history, runs[-1])
            if runs[-1].attempt > row.attempt and not forgotten:
                yield task_id, f"attempt {runs[-1].attempt} was run, and the row counts {row.attempt}"


def rule_success_is_of_the_last_attempt(history: History) -> Found:
    """A success is that of the attempt and claim that the row names: its body returned, and the result is its own."""
    for row in _final(history):
        if row.status == "success":
            runs = [
                run
                for run in history.runs_of.get(row.id, ())
                if run.attempt == row.attempt and run.claim_id == row.claim_id
            ]
            runs = runs or _adopted(history, row)
            if [run.ending for run in runs] != ["returned"]:
                yield (
                    row.id,
                    f"is success by attempt {row.attempt}, and the runs of that claim ended as {[run.ending for run in runs]}",
                )
                continue
            result = row.result or {}
            if (result.get("attempt"), result.get("claim_id")) != (runs[0].attempt, runs[0].claim_id):
                yield (
                    row.id,
                    f"is success by attempt {row.attempt}, claim {row.claim_id}, and holds the result of {dict(result)}",
                )


def _adopted(history: History, row: Row) -> list[Run]:
    """Find the run that a claim took over: the server lost the commit of the first claim in a crash, and gave the same attempt to the worker
    that was still running it. So it goes on, under the second claim.
    """
    result = row.result or {}
    return [
        run
        for run in history.runs_of.get(row.id, ())
        if run.attempt == row.attempt
        and run.claim_id == result.get("claim_id")
        and any(
            run.began_at - CRASH_REACH <= crash and (run.ended_at is None or crash <= run.ended_at)
            for crash in history.crashes
        )
    ]


def rule_frozen_has_used_up_its_tries(history: History) -> Found:
    """A task is frozen by a failure of its last attempt, with no try left."""
    for row in _final(history):
        if row.status == "frozen":
            records = history.attempts_of.get(row.id, [])
            used_up = sum(each.outcome in USED_UP for each in records)
            if not records or records[-1].outcome not in USED_UP:
                yield (
                    row.id,
                    f"is frozen, and its last attempt ended as {records[-1].outcome if records else 'nothing'}",
                )
            elif used_up != row.max_retries + 1:
                yield row.id, f"is frozen after {used_up} tries, and may have {row.max_retries + 1}"


def rule_tries_are_counted(history: History) -> Found:
    """Each failure, timeout and loss uses up a try; a release and a snooze do not."""
    for row in _final(history):
        used_up = sum(each.outcome in USED_UP for each in history.attempts_of.get(row.id, ()))
        expected = used_up - (row.status == "frozen")
        if row.status != "cancelled" and row.retry_count != expected:
            yield row.id, f"is {row.status} with retry_count {row.retry_count}, and used up {expected}"


def rule_cancelled_was_asked_for(history: History) -> Found:
    """A task is cancelled if somebody asked, and if the answer was `cancelled`, for good."""
    asked = {each.task_id for each in history.cancels}
    for row in _final(history):
        itself = [each.outcome for each in history.attempts_of.get(row.id, ())][-1:] == [
            "cancelled"
        ] and "cancels_itself" in row.task_type
        if row.status == "cancelled" and row.id not in asked and not itself:
            yield row.id, "is cancelled, and nobody asked for it"
    for cancelling in history.cancels:
        statuses = [row.status for row in history.rows_of.get(cancelling.task_id, ())]
        if (
            cancelling.verdict == "cancelled"
            and statuses != ["cancelled"]
            and not is_cancel_forgotten(history, cancelling)
        ):
            yield cancelling.task_id, f"was cancelled, said the answer, and is {statuses}"


def rule_finished_stays_finished(history: History) -> Found:
    """After the success of a task no other attempt of it begins."""
    for row in _final(history):
        runs = history.runs_of.get(row.id, [])
        if row.status == "success" and runs and runs[-1].claim_id != row.claim_id:
            former = next((run for run in runs if run.claim_id == row.claim_id), None)
            if former is not None and not is_lost_claim(history, former, runs[-1]):
                yield row.id, f"was run again (attempt {runs[-1].attempt}) after its success (attempt {row.attempt})"


def rule_nothing_is_lost_without_a_fault(history: History) -> Found:
    """A worker loses its tasks only when something was done to it."""
    for each in history.attempts:
        if each.outcome == "lost" and not any(
            trouble.began_at <= each.ended_at <= trouble.ended_at + CAUSE_REACH for trouble in history.troubles
        ):
            yield each.task_id, f"lost attempt {each.attempt} at {each.ended_at:%H:%M:%S.%f}, and no fault was near"


def rule_nobody_judges_after_an_outage(history: History) -> Found:
    """Nobody is condemned for a silence that the judge shared: after an outage of a lease, nobody has beaten for long enough to judge."""
    for each in history.attempts:
        for outage in history.outages:
            shared = each.outcome == "lost" and SILENCE in each.message and outage.ended_at - outage.began_at >= LEASE
            if shared and outage.began_at <= each.ended_at < outage.ended_at + LEASE:
                yield (
                    each.task_id,
                    f"lost attempt {each.attempt} at {each.ended_at:%H:%M:%S.%f}, and the outage ended at {outage.ended_at:%H:%M:%S.%f}",
                )


def rule_counters_equal_the_rows(history: History) -> Found:
    """What the counters say of a queue is what its rows are."""
    said = {(count.queue, count.status): count.total for count in history.counters if count.total}
    true = {(count.queue, count.status): count.total for count in counted(history)}
    for key in sorted(said.keys() | true.keys()):
        if said.get(key, 0) != true.get(key, 0):
            yield f"{key[0]} {key[1]}", f"the counter says {said.get(key, 0)}, the rows are {true.get(key, 0)}"


def counted(history: History) -> list[Count]:
    """Count the rows as the counters do: what waits for its time is one, and what runs is not counted."""
    words = {"pending": "waiting", "failed": "waiting"}
    totals = Counter((row.queue, words.get(row.status, row.status)) for row in history.rows if row.status != "running")
    return [Count(queue, status, total) for (queue, status), total in totals.items()]


def rule_workers_end_in_order(history: History) -> Found:
    """One SIGTERM ends each worker in time, with exit code 0, and nothing is left behind."""
    for ending in history.endings:
        if ending.exit_code != 0:
            yield (
                ending.worker,
                "had to be killed" if ending.exit_code is None else f"ended with exit code {ending.exit_code}",
            )
    for each in history.left_behind:
        yield each, "is still there"


def rule_every_fault_strikes(history: History) -> Found:
    """The run itself is sound: what was planned has struck somebody. What struck nobody proves nothing."""
    for trouble in history.troubles:
        if not trouble.hit:
            yield trouble.fault, f"of {trouble.began_at:%H:%M:%S} struck nothing"


def rule_nobody_complains(history: History) -> Found:
    """No log holds a traceback of the worker's own, a panic or a deadlock of the server."""
    for each in history.complaints:
        name, _, text = each.partition(": ")
        yield name, text


def _final(history: History) -> Iterator[Row]:
    return (row for row in history.rows if row.status in FINAL)


RULES: tuple[Callable[[History], Found], ...] = (
    rule_committed_ends_once,
    rule_rolled_back_is_nowhere,
    rule_unknown_is_whole,
    rule_every_batch_has_an_ending,
    rule_no_overlap,
    rule_attempts_count_up,
    rule_runs_follow_claims,
    rule_success_is_of_the_last_attempt,
    rule_frozen_has_used_up_its_tries,
    rule_tries_are_counted,
    rule_cancelled_was_asked_for,
    rule_finished_stays_finished,
    rule_nothing_is_lost_without_a_fault,
    rule_nobody_judges_after_an_outage,
    rule_counters_equal_the_rows,
    rule_workers_end_in_order,
    rule_every_fault_strikes,
    rule_limits_held_at_every_instant,
    rule_strict_order_is_that_of_enqueue,
    rule_nobody_complains,
)


def check(history: History) -> list[Violation]:
    """Apply all rules."""
    return [
        Violation(rule.__name__.removeprefix("rule_"), subject, what)
        for rule in RULES
        for subject, what in rule(history)
    ]
