"""What a task returns or raises to say how it ends: Snooze, Cancel, Retry. All end the attempt; none is an error."""

from datetime import timedelta

from octop.model.options import checked_delay


class Snooze(Exception):  # noqa: N818 - an order, not an error: returned more often than raised
    """End this attempt and start the task again later, without using up a try: ``return Snooze(60)``.

    Args:
        delay: Seconds or a timedelta, at least 0.

    Raises:
        InvalidOptionError: The delay is negative or no number.

    Examples:
        >>> Snooze(60).seconds
        60
    """

    def __init__(self, delay: float | timedelta) -> None:
        """Keep the delay as seconds."""
        self.seconds = checked_delay(delay)
        super().__init__(self.seconds)

    def __str__(self) -> str:
        """Return what a log shows."""
        return f"snoozed for {self.seconds} s"


class Cancel(Exception):  # noqa: N818 - an order, not an error
    """End the task for good as cancelled: ``raise Cancel("the order was withdrawn")``.

    Args:
        reason: Kept in the attempt and in ``last_error``.
    """

    def __init__(self, reason: str = "") -> None:
        """Keep the reason."""
        self.reason = str(reason)  # raise Cancel(404) is meant well
        super().__init__(self.reason)


class Retry(Exception):  # noqa: N818 - an order, not an error
    """Count this attempt as failed, and try again after a delay of your own: ``raise Retry(delay=30)``.

    A try is used up; when none is left, the task freezes.

    Args:
        delay: Seconds or a timedelta, at least 0; None = what the retry policy says.
        reason: Kept in the attempt and in ``last_error``.

    Raises:
        InvalidOptionError: The delay is negative or no number.
    """

    def __init__(self, delay: float | timedelta | None = None, reason: str = "") -> None:
        """Keep the delay as seconds."""
        self.delay_seconds = None if delay is None else checked_delay(delay)
        self.reason = str(reason)
        super().__init__(self.delay_seconds, self.reason)

    def __str__(self) -> str:
        """Return what the attempt's row shows."""
        return self.reason or "the task asked for a retry"
