"""Errors of a server that answers: what to bear, for how long, and how loudly."""

import logging
import time
from typing import Final

from octop.model.errors import (
    DatabaseUnreachableError,
    InvalidTaskError,
    OctopError,
    TryAgainError,
    UnexpectedDatabaseError,
)
from octop.worker.link import QUIET_SECONDS, pause_before_try

log = logging.getLogger(__name__)

LASTING_SECONDS: Final = 30.0
LOCKED_SECONDS_MAX: Final = 0.25
# data, constraint, too large, unknown feature, raised by a trigger
_OF_VALUES: Final = frozenset({"22", "23", "54", "0A", "P0"})


def is_about_values(error: OctopError) -> bool:
    """Tell whether an error blames what was sent. A full disk, for one, says nothing about an outcome."""
    if isinstance(error, InvalidTaskError):
        return True
    sqlstate = getattr(error.__cause__, "sqlstate", None)
    return isinstance(error, UnexpectedDatabaseError) and (sqlstate is None or sqlstate[:2] in _OF_VALUES)


class Trouble:
    """Counts what went wrong in a row. A full disk or a lock passes: the worker waits. A missing right or schema must pass soon."""

    def __init__(self, what: str, salt: str, *, endless: bool = False) -> None:
        """Begin without any.

        Args:
            what: What is being tried, for the log.
            salt: Spreads the pauses of several workers.
            endless: Bear everything.
        """
        self._what = what
        self._salt = salt
        self._endless = endless
        self._count = 0
        self._lasting_since: float | None = None
        self._said_at = float("-inf")

    def bear(self, error: OctopError) -> float:
        """Return the seconds to wait before the next try.

        Raises:
            OctopError: The error itself: no further try would mend it, for it has been nothing else for 30 seconds.
        """
        now = time.monotonic()
        self._count += 1
        if isinstance(error, TryAgainError | UnexpectedDatabaseError | DatabaseUnreachableError):
            self._lasting_since = None
        elif self._lasting_since is None:
            self._lasting_since = now
        elif now - self._lasting_since >= LASTING_SECONDS and not self._endless:
            raise error
        locked = isinstance(error, TryAgainError)
        if now - self._said_at >= QUIET_SECONDS and (not locked or self._count > 3):
            self._said_at = now
            hint = "" if locked or not error.hint else f"; hint: {error.hint}"
            log.error("%s: trying again: %s%s", self._what, error.message, hint)
        pause = pause_before_try(self._count, self._salt)
        return min(pause, LOCKED_SECONDS_MAX) if locked else pause

    def over(self) -> None:
        """Take note that it worked."""
        self._count = 0
        self._lasting_since = None
