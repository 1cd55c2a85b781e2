"""What this worker holds: tasks that it was given, and outcomes that are not yet written down."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from octop.model.task import Claimed, Fence, Outcome, OutcomeKind, Success
from octop.worker.outbox import Outbox
from octop.worker.slot import Slot

PUT_OFF_SECONDS: Final = 5.0
LINGER_SECONDS: Final = 0.004


class Holdings:
    """The book of a worker.

    Attributes:
        active: Tasks that the database believes we run, by id; buffered ones too.
        running: Places of those that have begun and wait for something, by id.
        outbox: Outcomes for the next exchange.
        urgent: Set when the next exchange should not wait any longer.
        is_roomy: Tells whether so many places are free that an exchange pays.
        take_back: Takes a task back from its queue's buffer; False when it was not there.
        longest_seconds: At least the longest time limit of what is active.
        on_longer: Called when that has risen.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.active: dict[str, Claimed] = {}
        self.running: dict[str, Slot] = {}
        self.outbox = Outbox()
        self.urgent = asyncio.Event()
        self.is_roomy: Callable[[], bool] = lambda: True
        self.take_back: Callable[[Claimed], bool] = lambda _claimed: False
        self.longest_seconds = 0.0
        self.on_longer: Callable[[], None] = lambda: None
        self._ghosts: set[str] = set()

    def accept(self, tasks: Sequence[Claimed]) -> list[Claimed]:
        """Take what an exchange gave, and return what is to be started.

        The same task may come twice: the commit of a claim need not have reached the disk when the server died. What runs already goes
        on under the new fence, what waits for its start waits anew. What was given up and still runs is put off.
        """
        fresh: list[Claimed] = []
        longest = self.longest_seconds
        for claimed in tasks:
            if claimed.id in self._ghosts:
                self.outbox.add_outcome(
                    Outcome(
                        claimed.fence,
                        OutcomeKind.SNOOZED,
                        error_message="an earlier attempt that was given up still runs here",
                        delay_seconds=PUT_OFF_SECONDS,
                    )
                )
                continue
            known = self.active.get(claimed.id)
            if known is None or self.take_back(known):
                fresh.append(claimed)
            elif (slot := self.running.get(claimed.id)) is not None:
                slot.claimed = claimed
            self.active[claimed.id] = claimed
            if claimed.timeout_seconds > longest:
                longest = claimed.timeout_seconds
        if longest > self.longest_seconds:
            self.longest_seconds = longest
            self.on_longer()
        return fresh

    def reckon_longest(self) -> float:
        """Return the longest time limit of what is active now."""
        self.longest_seconds = max((claimed.timeout_seconds for claimed in self.active.values()), default=0.0)
        return self.longest_seconds

    def success(self, claimed: Claimed, result: str | None) -> None:
        """Write a plain success on its way."""
        if self.active.pop(claimed.id, None) is None:
            return  # it is not ours any more
        self.outbox.add_success(Success(Fence(claimed.id, claimed.attempt, claimed.claim_id), result))
        self._tell()

    def outcome(self, outcome: Outcome) -> bool:
        """Write any other outcome on its way; False when the attempt is not ours any more."""
        if self.active.pop(outcome.fence.id, None) is None:
            return False
        self.outbox.add_outcome(outcome)
        self._tell()
        return True

    def held(self) -> list[str]:
        """Return the ids of all tasks that the database may believe we run."""
        return [*self.active, *self.outbox.ids()]

    def haunt(self, claimed: Claimed) -> None:
        """Remember a task that was given up and still runs."""
        self._ghosts.add(claimed.id)

    def lay(self, claimed: Claimed) -> None:
        """Forget it: it has ended."""
        self._ghosts.discard(claimed.id)

    def _tell(self) -> None:
        waiting = len(self.outbox)
        if not self.active or (waiting % 16 == 0 and self.is_roomy()):
            self.urgent.set()
        elif waiting == 1:
            # one timer for all outcomes that follow until they are handed in
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self.urgent.set)
