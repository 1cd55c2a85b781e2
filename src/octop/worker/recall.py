"""What the database takes back from a worker: tasks to be cancelled, and attempts that are no longer its own."""

import logging
from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Final

from octop.model.task import Claimed, Outcome, OutcomeKind
from octop.worker.holdings import Holdings
from octop.worker.runner import Runner
from octop.worker.slot import Reason, Slot

log = logging.getLogger(__name__)

NAMED_MAX: Final = 1000


class Recall:
    """Ends here what has ended, or is to end, in the database."""

    def __init__(self, holdings: Holdings, runner: Runner) -> None:
        """Be ready.

        Args:
            holdings: What the database is asked about.
            runner: Ends tasks.
        """
        self._holdings = holdings
        self._runner = runner
        self._to_name: deque[str] = deque()
        holdings.on_superseded = self._superseded

    def named(self) -> list[Claimed]:
        """Return about which attempts to ask now.

        Only what was held at an earlier look: most tasks have ended by then, and are never asked about. At most 1,000; the rest has its
        turn at the following looks.
        """
        active = self._holdings.active
        named: list[Claimed] = []
        while self._to_name and len(named) < NAMED_MAX:
            claimed = active.get(self._to_name.popleft())
            if claimed is not None:
                named.append(claimed)
        if not self._to_name:
            self._to_name.extend(active)
        return named

    def cancel(self, task_id: str) -> None:
        """End a task because somebody asked for it."""
        claimed = self._holdings.active.get(task_id)
        if claimed is None or self._is_committing(task_id):
            return
        if self._holdings.withdraw(claimed):
            self._holdings.outcome(Outcome(claimed.fence, OutcomeKind.CANCELLED))
        elif (slot := self._holdings.running.get(task_id)) is not None:
            self._runner.cancel(slot)

    def paused(self, queues: Container[str]) -> None:
        """Let go of attempts of paused queues that have not begun: they wait for a process, a connection, or others of a batch."""
        for slot in list(self._holdings.running.values()):
            if slot.starting and slot.reason is None and slot.claimed is not None and slot.claimed.queue in queues:
                self._runner.interrupt(slot, Reason.PAUSED)

    def lost(self, named: Sequence[Claimed], ids: Iterable[str]) -> None:
        """Cut those of the named attempts that are no longer ours."""
        gone = set(ids)
        for claimed in named:
            if claimed.id in gone and (slot := self.lose(claimed)) is not None:
                _say(slot)

    def lose(self, claimed: Claimed) -> Slot | None:
        """Cut an attempt that is no longer ours. Return its place; None = it does not run."""
        if self._is_committing(claimed.id):
            return None
        slot = self._holdings.lose(claimed)
        if slot is not None:
            self._runner.interrupt(slot, Reason.LOST)
        return slot

    def _is_committing(self, task_id: str) -> bool:
        """Tell whether an attempt hands in its success by itself: only the answer to its COMMIT says how it ended."""
        slot = self._holdings.running.get(task_id)
        return slot is not None and slot.committing

    def _superseded(self, slot: Slot) -> None:
        _say(slot)
        self._runner.interrupt(slot, Reason.LOST)


def _say(slot: Slot) -> None:
    claimed = slot.claimed
    if claimed is not None:
        log.warning(
            "attempt %d of %s %s is no longer this worker's: cut",
            claimed.attempt,
            claimed.task_type,
            claimed.id,
            extra={"task_id": claimed.id, "task_type": claimed.task_type, "attempt": claimed.attempt},
        )
