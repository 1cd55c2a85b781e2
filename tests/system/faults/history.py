"""What a run left behind, as plain values: the rules of the checker read nothing else, so that tests can make a history up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple, TypeVar

FINAL = ("success", "cancelled", "frozen")
USED_UP = ("failure", "timeout", "lost")
"""Outcomes that cost a try."""
ALWAYS = datetime.min.replace(tzinfo=UTC)
"""The moment of what no failover can have touched."""


class Batch(NamedTuple):
    """One transaction of a producer. `ending`: committed, rolled back, or unknown: the answer to its commit got lost.

    Its last try began after `meant_at`; before `ended_at` it was known how that ended.
    """

    batch: str
    way: str
    ids: tuple[str, ...]
    ending: str
    meant_at: datetime = ALWAYS
    ended_at: datetime = ALWAYS


class Run(NamedTuple):
    """One start of a body, from the ledger. `ending`: returned, raised, cut, died; None = it never ended, as far as anybody saw. `pid`: of the
    process in which it ran, 0 = unknown.
    """

    task_id: str
    attempt: int
    claim_id: str
    place: str
    began_at: datetime
    ended_at: datetime | None
    ending: str | None
    pid: int = 0


class Row(NamedTuple):
    """One row of octop_tasks."""

    id: str
    task_type: str
    queue: str
    status: str
    attempt: int
    claim_id: str | None
    retry_count: int
    max_retries: int
    result: Mapping[str, object] | None
    lane: str = ""
    seq: int = 0


class Attempt(NamedTuple):
    """One row of octop_attempts."""

    task_id: str
    attempt: int
    claim_id: str | None
    outcome: str
    ended_at: datetime
    message: str = ""


class Cancelling(NamedTuple):
    """One call of octop_cancel: what it answered, or unknown."""

    task_id: str
    verdict: str
    asked_at: datetime = ALWAYS
    answered_at: datetime = ALWAYS


class Trouble(NamedTuple):
    """One fault, from when to when, and what it has hit; empty = nothing."""

    fault: str
    began_at: datetime
    ended_at: datetime
    hit: str = "somebody"


class Outage(NamedTuple):
    """A time in which nobody could reach the database."""

    began_at: datetime
    ended_at: datetime


class Failover(NamedTuple):
    """A standby has taken over. What was committed after `kept_until` had not reached it: it knows of nothing that came later.

    Attributes:
        kind: sync = each commit that was acknowledged had waited for the standby; async = none had.
        kept_until: The moment of the last commit that the standby has.
        failed_at: The moment at which the primary was ended, or earlier.
    """

    kind: str
    kept_until: datetime
    failed_at: datetime


class Count(NamedTuple):
    """What the counters say of one queue and status, or what the rows say."""

    queue: str
    status: str
    total: int


class Ending(NamedTuple):
    """How a worker stopped at the end; None = it had to be killed."""

    worker: str
    exit_code: int | None


@dataclass(frozen=True)
class History:
    batches: Sequence[Batch] = ()
    runs: Sequence[Run] = ()
    rows: Sequence[Row] = ()
    attempts: Sequence[Attempt] = ()
    cancels: Sequence[Cancelling] = ()
    troubles: Sequence[Trouble] = ()
    crashes: Sequence[datetime] = ()
    outages: Sequence[Outage] = ()
    failovers: Sequence[Failover] = ()
    counters: Sequence[Count] = ()
    endings: Sequence[Ending] = ()
    left_behind: Sequence[str] = ()
    complaints: Sequence[str] = field(default=())

    @cached_property
    def runs_of(self) -> Mapping[str, list[Run]]:
        return _grouped((each.task_id, each) for each in sorted(self.runs, key=lambda run: run.began_at))

    @cached_property
    def rows_of(self) -> Mapping[str, list[Row]]:
        return _grouped((each.id, each) for each in self.rows)

    @cached_property
    def attempts_of(self) -> Mapping[str, list[Attempt]]:
        return _grouped((each.task_id, each) for each in sorted(self.attempts, key=lambda each: each.attempt))

    def record_of(self, run: Run) -> Attempt | None:
        """Return what the database says of the end of a run, if it knows of it and it was no plain success."""
        for each in self.attempts_of.get(run.task_id, ()):
            if (each.attempt, each.claim_id) == (run.attempt, run.claim_id):
                return each
        return None


T = TypeVar("T")


def _grouped(pairs: Iterable[tuple[str, T]]) -> Mapping[str, list[T]]:
    groups: dict[str, list[T]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return dict(groups)
