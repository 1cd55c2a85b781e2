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
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.active: dict[str, Claimed] = {}
        self.running: dict[str, Slot] = {}
        self.outbox = Outbox()
        self.urgent = asyncio.Event()
        self.is_roomy: Callable[[], bool] = lambda: True
        self._ghosts: set[str] = set()

    def accept(self, tasks: Sequence[Claimed]) -> list[Claimed]:
        """Take what an exchange gave, and return what is to be started.

        The same task may come twice: the commit of a claim need not have reached the disk when the server died. What runs already goes
        on under the new fence. What was given up and still runs is put off.
        """
        fresh: list[Claimed] = []
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
            if claimed.id in self.active:
                slot = self.running.get(claimed.id)
                if slot is not None:
                    slot.claimed = claimed
            else:
                fresh.append(claimed)
            self.active[claimed.id] = claimed
        return fresh

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
