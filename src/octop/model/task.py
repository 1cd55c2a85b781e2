"""What passes between engine and worker: claimed tasks, outcomes, answers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

NIL = "00000000-0000-0000-0000-000000000000"


class Status(StrEnum):
    """Where a task is in its life; see ``docs/explanation/how-a-task-lives.md``."""

    PENDING = "pending"
    RUNNING = "running"
    FAILED = "failed"
    BLOCKED = "blocked"
    FROZEN = "frozen"
    SUCCESS = "success"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Tell whether nothing more happens without a person: success, cancelled, frozen."""
        return self in FINAL_STATUSES


FINAL_STATUSES = frozenset({Status.SUCCESS, Status.CANCELLED, Status.FROZEN})


class OutcomeKind(StrEnum):
    """With what an attempt ended, other than success."""

    FAILURE = "failure"
    TIMEOUT = "timeout"
    LOST = "lost"
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"
    RELEASED = "released"


class Fence(NamedTuple):
    """Who may write about a running task: this attempt of this claim, and nobody else.

    Attributes:
        id: The task, as text.
        attempt: Number of the start, from 1.
        claim_id: Random id of the exchange that gave the task away, as text.
    """

    id: str
    attempt: int
    claim_id: str


class Claimed(NamedTuple):
    """One task as the exchange gives it to a worker: a row with verdict ``run``, and therefore a tuple, made in C.

    Payload and meta are JSON text, decoded where the task runs, so that a bad row harms only itself. Times are ISO 8601 text.
    """

    id: str
    attempt: int
    claim_id: str
    tenant: str
    queue: str
    lane: str
    task_type: str
    payload: str
    priority: int
    retry_count: int
    max_retries: int
    timeout_seconds: float
    scheduled_at: str
    due_at: str
    isolated: bool
    tags: list[str] | None
    meta: str | None

    @property
    def fence(self) -> Fence:
        """Return what must go with every write about this attempt."""
        return Fence(self.id, self.attempt, self.claim_id)


class Success(NamedTuple):
    """A plain success of an attempt.

    Attributes:
        fence: Of which attempt.
        result: JSON text, or None for null.
    """

    fence: Fence
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Any other end of an attempt. What follows from it (retry when, frozen, cancelled) is decided in SQL.

    Attributes:
        fence: Of which attempt.
        kind: With what it ended.
        error_class: Qualified name of the exception's class.
        error_message: At most 10,000 characters.
        traceback: At most 50,000 characters; the end is kept.
        delay_seconds: For a snooze, and for a retry that names its own delay; None = the policy's.
        final: True = no retry, whatever is left.
        mro: Names of the exception's classes, for policies that list final exceptions.
    """

    fence: Fence
    kind: OutcomeKind
    error_class: str | None = None
    error_message: str | None = None
    traceback: str | None = None
    delay_seconds: float | None = None
    final: bool = False
    mro: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """The engine's answer to one outcome.

    Attributes:
        id: The task.
        verdict: ``failed`` (waits for a retry), ``frozen``, ``pending``, ``cancelled``; ``kept`` = accepted before; ``again`` = the
            row is locked by somebody, send the same once more; ``lost`` = the attempt was no longer this worker's, nothing changed.
    """

    id: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What came back from one exchange.

    Attributes:
        tasks: To be run now.
        settled: Answers to outcomes; a plain success that was accepted has none.
        lanes: By queue, the lane after which the next walk begins.
        parked: Tasks of held or unknown types that were set aside; above 0 = look again at once.
    """

    tasks: list[Claimed]
    settled: list[Settled]
    lanes: dict[str, str]
    parked: int = 0
