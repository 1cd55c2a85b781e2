"""Outcomes that wait for the next exchange. They stay here until the database has answered."""

import time
from typing import Final

from octop.model.task import Outcome, Success

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
BATCH_COUNT_MAX: Final = 10_000


class Outbox:
    """What ended and is not yet written down.

    Attributes:
        since: Monotonic moment of the oldest outcome that waits; meaningless when nothing does.
        not_before: Monotonic moment before which nothing is sent: what is locked by somebody is not sent again and again without a
            breath.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.successes: list[Success] = []
        self.outcomes: list[Outcome] = []
        self.since = 0.0
        self.not_before = 0.0
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many outcomes wait."""
        return len(self.successes) + len(self.outcomes)

    def add_success(self, success: Success) -> None:
        """Take a plain success."""
        if not self.successes and not self.outcomes:
            self.since = time.monotonic()
        self.successes.append(success)
        if success.result is not None:
            self._bytes += len(success.result)

    def add_outcome(self, outcome: Outcome) -> None:
        """Take any other outcome."""
        if not self.successes and not self.outcomes:
            self.since = time.monotonic()
        self.outcomes.append(outcome)
        self._bytes += _weight(outcome)

    def ids(self) -> list[str]:
        """Return of which tasks."""
        return [each.fence.id for each in self.successes] + [each.fence.id for each in self.outcomes]

    def take(self) -> tuple[list[Success], list[Outcome]]:
        """Take out as much as fits into one exchange, the oldest first."""
        if self._bytes <= BATCH_BYTES_MAX and len(self) <= BATCH_COUNT_MAX:
            taken = self.successes, self.outcomes
            self.successes, self.outcomes, self._bytes = [], [], 0
            return taken
        number, size = 0, 0
        for number, success in enumerate(self.successes, 1):
            size += len(success.result or "")
            if size >= BATCH_BYTES_MAX or number >= BATCH_COUNT_MAX:
                break
        successes, self.successes = self.successes[:number], self.successes[number:]
        number = 0
        if size < BATCH_BYTES_MAX and len(successes) < BATCH_COUNT_MAX:
            for number, outcome in enumerate(self.outcomes, 1):
                size += _weight(outcome)
                if size >= BATCH_BYTES_MAX or number + len(successes) >= BATCH_COUNT_MAX:
                    break
        outcomes, self.outcomes = self.outcomes[:number], self.outcomes[number:]
        self._bytes -= size
        return successes, outcomes

    def put_back(self, successes: list[Success], outcomes: list[Outcome]) -> None:
        """Put back what could not be handed in, in front."""
        self.successes[:0] = successes
        self.outcomes[:0] = outcomes
        self._bytes += sum(len(success.result or "") for success in successes) + sum(map(_weight, outcomes))


def _weight(outcome: Outcome) -> int:
    return 200 + len(outcome.error_message or "") + len(outcome.traceback or "")
