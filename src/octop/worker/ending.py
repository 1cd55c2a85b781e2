"""What an attempt ends with, by what it raised or returned and by who ended it."""

from dataclasses import replace
from typing import Any, Final

from octop.model.control_flow import Cancel, Retry, Snooze
from octop.model.task import Claimed, Outcome, OutcomeKind
from octop.worker.children import ChildLostError
from octop.worker.frames import Message
from octop.worker.report import cleaned, failure_of, message_of, plain_failure, stack_in, traceback_of
from octop.worker.slot import Reason, Slot

UNBEGUN_SECONDS: Final = 5.0


class TaskFailedInChildError(Exception):
    """A task failed in a child process; what it raised stayed there."""

    def __init__(self, report: Message) -> None:
        """Keep the child's report."""
        super().__init__(f"{report.get('error_class')}: {report.get('error_message')}")
        self.report = report


class TaskFailedInBatchError(Exception):
    """The function of a batch raised: each of its tasks that had not ended by itself fails with the same."""

    def __init__(self, report: Outcome, error: BaseException) -> None:
        """Keep what was raised, as it is written down, and itself without its frames."""
        super().__init__(f"{report.error_class}: {report.error_message}")
        self.report = report
        self.error = error


class NotStartedError(Exception):
    """While an attempt waited for what it needs to start, the lease ended, or the attempt did: somebody else may have been given it."""

    def __init__(self) -> None:
        """Say so."""
        super().__init__("its worker fell silent, or took it back, before the start")


class AttemptLostError(Exception):
    """The attempt was no longer this worker's when its transaction was to commit."""

    def __init__(self) -> None:
        """Say so."""
        super().__init__("the attempt was no longer this worker's: its transaction was rolled back")


def outcome_of(slot: Slot, claimed: Claimed, raised: Any) -> Outcome | None:
    """Return what an attempt ends with that did not simply succeed; None = nothing is written down, for it was lost.

    Args:
        slot: Where it ran; knows why it was ended from outside.
        claimed: Which attempt.
        raised: What it raised, or returned instead of a result.
    """
    if slot.reason is not None and not is_any(raised, Cancel):
        return outcome_of_interrupted(slot, claimed, raised if is_any(raised, BaseException) else None)
    match type(raised):
        case kind if issubclass(kind, Snooze):
            return Outcome(claimed.fence, OutcomeKind.SNOOZED, delay_seconds=raised.seconds)
        case kind if issubclass(kind, Cancel):
            return Outcome(claimed.fence, OutcomeKind.CANCELLED, error_message=cleaned(raised.reason, 10_000))
        case kind if issubclass(kind, Retry):
            return Outcome(
                claimed.fence,
                OutcomeKind.FAILURE,
                error_class="octop.Retry",
                error_message=message_of(raised),
                delay_seconds=raised.delay_seconds,
            )
        case kind if issubclass(kind, NotStartedError):
            return Outcome(claimed.fence, OutcomeKind.RELEASED, error_message=str(raised))
        case kind if issubclass(kind, AttemptLostError):
            return None
        case kind if issubclass(kind, ChildLostError):
            return plain_failure(claimed.fence, "WorkerLost", str(raised), kind=OutcomeKind.LOST)
        case kind if issubclass(kind, TaskFailedInBatchError):
            report: Outcome = raised.report
            return replace(report, fence=claimed.fence)
        case kind if issubclass(kind, TaskFailedInChildError):
            said = raised.report
            return Outcome(
                claimed.fence,
                OutcomeKind.FAILURE,
                error_class=said["error_class"],
                error_message=said["error_message"],
                traceback=said["traceback"],
                final=said["final"],
                mro=tuple(said["mro"]),
            )
    return failure_of(claimed.fence, raised, keep_frames=True)


PAUSED: Final = "its queue was paused before the start"


def outcome_of_interrupted(slot: Slot, claimed: Claimed, error: BaseException | None = None) -> Outcome | None:
    """Return what an attempt ends with that was ended from outside; None = nothing is written down, for it was lost.

    Args:
        slot: Where it ran.
        claimed: Which attempt.
        error: What it raised then; None = nothing yet.
    """
    match slot.reason:
        case Reason.TIMEOUT if slot.starting and slot.job is not None:  # its function has not begun
            return Outcome(
                claimed.fence, OutcomeKind.SNOOZED, error_message="no connection in time", delay_seconds=UNBEGUN_SECONDS
            )
        case Reason.TIMEOUT:
            return Outcome(
                claimed.fence,
                OutcomeKind.TIMEOUT,
                error_class="TimeoutError",
                error_message=f"over its time limit of {claimed.timeout_seconds:g} s",
                traceback=_where_it_stood(slot, error),
                mro=("TimeoutError",),
            )
        case Reason.CANCEL:
            return Outcome(claimed.fence, OutcomeKind.CANCELLED)
        case Reason.SHUTDOWN:
            return Outcome(claimed.fence, OutcomeKind.RELEASED, error_message="its worker stopped")
        case Reason.PAUSED:
            return Outcome(claimed.fence, OutcomeKind.RELEASED, error_message=PAUSED)
    return None


def _where_it_stood(slot: Slot, error: BaseException | None) -> str | None:
    if slot.job is not None and not slot.job.ended.done():
        return stack_in(slot.job)
    # Of a task in a child process only our own waiting for it is here, which tells nobody anything.
    return None if error is None or slot.child is not None else traceback_of(error)


def is_any(value: object, *kinds: type) -> bool:
    """Tell of which class a value is, without asking the value: ``isinstance`` reads ``__class__``, which may raise."""
    return issubclass(type(value), kinds)
