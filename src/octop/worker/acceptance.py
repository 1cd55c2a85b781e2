"""Does the database accept what a worker asks for? What a worker process knows of its own health."""

import math
import time
from typing import NamedTuple

from octop.model.errors import DatabaseUnreachableError, OctopError
from octop.worker.lease import Lease


class Ability(NamedTuple):
    """When a worker process could last claim.

    Attributes:
        at: Monotonic moment; None = never.
        why: What keeps it from claiming now; empty = nothing.
    """

    at: float | None
    why: str


def told(error: OctopError) -> str:
    """Return what may be told to whoever asks for health: the message of an unreachable database names hosts and roles.

    Args:
        error: What a call came to.
    """
    return "no database answers" if isinstance(error, DatabaseUnreachableError) else error.message


class Acceptance:
    """Follows the tries of one exchanger. A try that nobody answers counts as much as one that is refused."""

    def __init__(self) -> None:
        """Begin without anything that was accepted."""
        self._open_since: float | None = -math.inf
        self._able_at = -math.inf
        self._why = "nothing that it asked for has been accepted yet"

    def tries(self) -> None:
        """Take note that something is asked for."""
        if self._open_since is None:
            self._open_since = time.monotonic()
            self._why = "the database has not accepted its exchange"

    def accepted(self) -> None:
        """Take note that it was accepted, or that there was nothing to ask for: paused queues and full places are no illness."""
        self._open_since = None

    def refused(self, error: OctopError) -> None:
        """Take note that it was not."""
        self._why = f"its exchange is refused: {told(error)}"

    def look(self, lease: Lease) -> Ability:
        """Return when it could last claim, seen from now.

        Args:
            lease: While it is over or in doubt, nothing is asked for.
        """
        now = time.monotonic()
        why = ""
        if self._open_since is not None:
            if self._open_since < lease.until:
                self._able_at = max(self._able_at, self._open_since)
            why = self._why
        elif now < lease.until:
            self._able_at = now
        else:
            why = (
                "its lease was broken, and must be renewed first"
                if lease.is_doubtful
                else "its heartbeat is not accepted"
            )
        return Ability(None if self._able_at == -math.inf else self._able_at, why)
