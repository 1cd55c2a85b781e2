"""The rules of limits: how many ran in each instant, and in which order, as the ledger has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.system.faults.excuses import is_of_forgotten_time
from tests.system.faults.history import History, Row, Run
from tests.system.faults.settings import LEASE_SECONDS, LIMITS

Found = Iterator[tuple[str, str]]
FOREVER = datetime.max
LEASE = timedelta(seconds=LEASE_SECONDS)


def rule_limits_held_at_every_instant(history: History) -> Found:
    """Never do more tasks of a queue, or of a lane, run at once than its limit says. A run that was taken from its worker has its place no longer."""
    groups: dict[tuple[str, str], list[tuple[datetime, datetime]]] = defaultdict(list)
    for row, run in _limited(history):
        limits = LIMITS[row.queue]
        ended_at = _place_until(history, run)
        if ended_at > run.began_at:
            if "global_limit" in limits:
                groups[row.queue, ""].append((run.began_at, ended_at))
            if "lane_limit" in limits or limits.get("ordered"):
                groups[row.queue, row.lane].append((run.began_at, ended_at))
    for (queue, lane), spans in groups.items():
        limits = LIMITS[queue]
        most = 1 if limits.get("ordered") else int(str(limits["lane_limit" if lane else "global_limit"]))
        steps = sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans])
        now = 0
        for moment, step in steps:
            now += step
            if now > most:
                yield f"{queue} {lane}".strip(), f"ran {now} at once at {moment:%H:%M:%S.%f}, and may run {most}"
                break


def rule_strict_order_is_that_of_enqueue(history: History) -> Found:
    """In a strict lane no attempt begins after one of a task that was enqueued later, if it had been committed when that was claimed.

    Between a claim and the beginning may lie all that a network can do: up to a lease, after which nothing is begun any more.
    """
    committed_at = {task_id: batch.ended_at + LEASE for batch in history.batches for task_id in batch.ids}
    lanes: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in history.rows:
        if LIMITS.get(row.queue, {}).get("ordered"):
            lanes[row.queue, row.lane].append(row)
    for rows in lanes.values():
        last: tuple[datetime, str] | None = None
        # from the last to the first: the earliest beginning of any that is later
        for row in sorted(rows, key=lambda each: each.seq, reverse=True):
            runs = [run for run in history.runs_of.get(row.id, ()) if not is_of_forgotten_time(history, run)]
            if not runs:
                continue
            if last is not None and runs[-1].began_at > last[0] > committed_at.get(
                row.id, FOREVER.replace(tzinfo=last[0].tzinfo)
            ):
                yield row.id, f"began (attempt {runs[-1].attempt}) after {last[1]}, which was enqueued later"
            if last is None or runs[0].began_at < last[0]:
                last = (runs[0].began_at, row.id)


def _limited(history: History) -> Iterator[tuple[Row, Run]]:
    for row in history.rows:
        if row.queue in LIMITS:
            for run in history.runs_of.get(row.id, ()):
                if not is_of_forgotten_time(history, run):
                    yield row, run


def _place_until(history: History, run: Run) -> datetime:
    """Return up to when a run had its place: it ended, or the database took it from its worker."""
    record = history.record_of(run)
    ends = [each for each in (run.ended_at, None if record is None else record.ended_at) if each is not None]
    return min(ends, default=FOREVER.replace(tzinfo=run.began_at.tzinfo))
