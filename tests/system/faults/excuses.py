"""What may be doubled, and what may be lost.

A body may still run when its successor begins if its owner had lost the lease, if it is a thread that was given up, or if the commit of its
claim was lost in a crash of the server or with the primary (`excuse`).

Where no commit waits for the standby, what was acknowledged in the last moments before it took over may be lost (`is_forgotten`): whole
transactions, all of them later than the last commit that the standby has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.system.faults.history import Batch, Cancelling, History, Run
from tests.system.faults.settings import LEASE_SECONDS

LEASE = timedelta(seconds=LEASE_SECONDS)
CRASH_REACH = timedelta(seconds=5)
"""A claim whose commit did not wait for the log is older than this for certain, or safe."""


def overlaps(history: History) -> Iterator[tuple[Run, Run]]:
    """Find the pairs of runs of a task that were under way at the same time, the earlier one first."""
    for runs in history.runs_of.values():
        for place, former in enumerate(runs):
            for latter in runs[place + 1 :]:
                if former.ended_at is None or former.ended_at > latter.began_at:
                    yield former, latter


def excuse(history: History, former: Run, latter: Run) -> str | None:
    """Say why a run may still be under way when the next one begins; None = it may not."""
    record = history.record_of(former)
    if record is None:
        if is_of_forgotten_time(history, former):
            return "its claim was lost with the primary"
        return "its claim was lost in a crash" if is_lost_claim(history, former, latter) else None
    if record.ended_at > latter.began_at:
        return None
    if record.outcome == "lost" or has_stood_still(history, former, latter):
        return "its worker had lost the lease"
    if former.place == "thread" and record.outcome in ("timeout", "cancelled", "released"):
        return f"a thread given up ({record.outcome})"
    return None


def has_stood_still(history: History, former: Run, latter: Run) -> bool:
    """Tell whether the process of a run had been stopped for longer than the lease when the next one began: it beat no more.

    The database may have ended the run for its time limit before it came to judge the silence.
    """
    return any(
        trouble.fault.startswith("stop ")
        and str(former.pid) in re.findall(r"\d+", trouble.hit)
        and trouble.began_at + LEASE <= latter.began_at <= trouble.ended_at
        for trouble in history.troubles
    )


def excused(history: History) -> Counter[str]:
    """Count the overlaps that are allowed, by their excuse."""
    found = (excuse(history, former, latter) for former, latter in overlaps(history))
    return Counter(each for each in found if each is not None)


def is_lost_claim(history: History, former: Run, latter: Run) -> bool:
    """Tell whether the same attempt was claimed again because the server crashed before the first claim was safe."""
    return (former.attempt, former.task_id) == (latter.attempt, latter.task_id) and any(
        former.began_at - CRASH_REACH <= crash <= latter.began_at for crash in history.crashes
    )


def is_claim_forgotten(history: History, run: Run) -> bool:
    """Tell whether the server may know nothing of the claim of a run, because it crashed before that was safe; nobody claimed the task again:
    it was cancelled.
    """
    return history.record_of(run) is None and any(
        run.began_at - CRASH_REACH <= crash <= run.began_at + CRASH_REACH for crash in history.crashes
    )


def is_of_forgotten_time(history: History, run: Run) -> bool:
    """Tell whether the standby may know nothing of the claim of a run: it began after the last commit that the standby has.

    Also where commits wait for the standby: a claim does not, and whoever is cut off while he waits has committed on the primary alone.
    """
    return any(
        failover.kept_until <= run.began_at <= failover.failed_at + CRASH_REACH for failover in history.failovers
    )


def is_forgotten(history: History, batch: Batch) -> bool:
    """Tell whether all of a committed transaction is gone, and may be: it was acknowledged in the last moments of a primary for whose standby
    no commit waited.
    """
    return (
        batch.ending == "committed"
        and not any(task_id in history.rows_of for task_id in batch.ids)
        and _may_be_forgotten(history, batch.meant_at, batch.ended_at)
    )


def is_cancel_forgotten(history: History, cancelling: Cancelling) -> bool:
    """Tell whether the standby may know nothing of a cancel that was acknowledged."""
    return _may_be_forgotten(history, cancelling.asked_at, cancelling.answered_at)


def _may_be_forgotten(history: History, began_at: datetime, ended_at: datetime) -> bool:
    return any(
        failover.kind == "async" and began_at <= failover.failed_at and ended_at >= failover.kept_until
        for failover in history.failovers
    )


def forgotten(history: History) -> Iterator[str]:
    """Say what each failover has cost."""
    for failover in history.failovers:
        behind = (failover.failed_at - failover.kept_until).total_seconds()
        lost = [each for each in history.batches if is_forgotten(history, each)]
        uncancelled = sum(
            each.verdict == "cancelled"
            and is_cancel_forgotten(history, each)
            and not _is_cancelled(history, each.task_id)
            for each in history.cancels
        )
        yield (
            f"{failover.kind}, the standby was {behind:.2f} s behind: lost {len(lost)} committed transactions "
            f"with {sum(len(each.ids) for each in lost)} tasks, and {uncancelled} cancels; "
            + ("what was acknowledged may be lost" if failover.kind == "async" else "nothing acknowledged may be lost")
        )


def _is_cancelled(history: History, task_id: str) -> bool:
    return [row.status for row in history.rows_of.get(task_id, ())] == ["cancelled"]
