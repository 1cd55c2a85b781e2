"""Retry policies: data that SQL reads. The delays are computed there, so that every worker waits the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from octop.model.errors import InvalidOptionError
from octop.model.options import checked_delay

DELAYS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a failed task waits before its next try, and which exceptions end it at once.

    The n-th retry waits ``base * growth ** (n - 1)`` seconds, at most ``cap``; jitter takes off up to that share, and
    never adds. What is None is the engine's default.

    Attributes:
        base: Seconds before the first retry, 0 to 31 days.
        growth: Factor from one delay to the next, 1 to 100.
        cap: Longest delay in seconds, 0 to 31 days.
        jitter: Share that chance may take off, 0 to 1.
        delays: Instead of the four above: seconds before each retry in turn; the last one repeats. 1 to 100 of them.
        final: Exceptions after which there is no retry: classes, or their names (``ValueError``,
            ``package.module.Error``). Their subclasses count as well.

    Raises:
        InvalidOptionError: A value is out of bounds, or ``delays`` stands beside one of the four.

    Examples:
        >>> RetryPolicy(base=2, cap=60, final=(ValueError,)).as_json()
        {'base': 2, 'cap': 60, 'final': ['ValueError']}
        >>> RetryPolicy(delays=(1, 5, 30)).as_json()
        {'delays': [1, 5, 30]}
    """

    base: float | timedelta | None = None
    growth: float | None = None
    cap: float | timedelta | None = None
    jitter: float | None = None
    delays: Sequence[float | timedelta] | None = None
    final: Sequence[type[BaseException] | str] = ()

    def __post_init__(self) -> None:
        """Refuse what SQL would refuse, and what it could not compute."""
        _seconds(self.base, "base")
        _seconds(self.cap, "cap")
        _number(self.growth, "growth", 1, 100)
        _number(self.jitter, "jitter", 0, 1)
        if self.delays is not None:
            if any(value is not None for value in (self.base, self.growth, self.cap, self.jitter)):
                message = "a retry policy has either delays, or base, growth, cap and jitter"
                raise InvalidOptionError(message)
            if isinstance(self.delays, str | bytes) or not 1 <= len(self.delays) <= DELAYS_MAX:
                message = f"delays is a list of 1 to {DELAYS_MAX} waits in seconds, not {self.delays!r}"
                raise InvalidOptionError(message)
            for position, delay in enumerate(self.delays):
                checked_delay(delay, f"delays[{position}]", days_max=31)
        if isinstance(self.final, str) or any(not _is_exception(found) for found in self.final):
            message = f"final lists exception classes or their names, not {self.final!r}"
            raise InvalidOptionError(message, hint="Write final=(ValueError,) or final=('package.module.Error',).")

    def as_json(self) -> dict[str, object]:
        """Return the form that SQL reads; what is not set is left out."""
        found: dict[str, object] = {}
        if self.delays is not None:
            found["delays"] = [_seconds(delay, "delays") for delay in self.delays]
        curve = {
            "base": _seconds(self.base, "base"),
            "growth": self.growth,
            "cap": _seconds(self.cap, "cap"),
            "jitter": self.jitter,
        }
        found.update({name: value for name, value in curve.items() if value is not None})
        if self.final:
            found["final"] = [name if isinstance(name, str) else exception_name(name) for name in self.final]
        return found


def exception_name(kind: type[BaseException]) -> str:
    """Name an exception class as ``final``, ``octop_attempts.error_class`` and ``Outcome.mro`` do.

    Args:
        kind: The class.

    Returns:
        ``module.qualified_name``; built-in ones without their module: ``ValueError``.
    """
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def checked_retry(value: object) -> dict[str, object] | None:
    """Return the SQL form of what a user gave as ``retry=``.

    Args:
        value: None, a RetryPolicy, or a sequence of delays.

    Raises:
        InvalidOptionError: It is none of these.
    """
    if value is None:
        return None
    if isinstance(value, RetryPolicy):
        return value.as_json() or None
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return RetryPolicy(delays=tuple(value)).as_json()
    if isinstance(value, Mapping):
        message = "retry is a RetryPolicy or a list of delays, not a dict"
        raise InvalidOptionError(message, hint="Write retry=RetryPolicy(base=1, cap=60).")
    message = f"retry is a RetryPolicy or a list of delays in seconds, not {value!r}"
    raise InvalidOptionError(message, hint="For the number of retries use max_retries.")


def _is_exception(found: object) -> bool:
    if isinstance(found, str):
        return 1 <= len(found) <= 200 and found.replace(".", "").replace("_", "").isalnum()
    return isinstance(found, type) and issubclass(found, BaseException)


def _seconds(value: object, name: str) -> float | None:
    return None if value is None else checked_delay(value, name, days_max=31)


def _number(value: object, name: str, low: float, high: float) -> None:
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high
    ):
        message = f"{name} is a number from {low} to {high}, not {value!r}"
        raise InvalidOptionError(message)
