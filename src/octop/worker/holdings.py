"""What this worker holds: tasks that it was given, and outcomes that are not yet written down."""

import asyncio
from collections.abc import Callable, Container, Sequence
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
        on_superseded: Called with the place of an attempt whose task has been given to us once more: it is to be cut.
        on_ready: Called with a task that waited until an older attempt of it had left its place.
        longest_seconds: At least the longest time limit of what is active.
        on_longer: Called when that has risen.
        on_committed: Called with a task, and its result, whose success is in the database already.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.active: dict[str, Claimed] = {}
        self.running: dict[str, Slot] = {}
        self.outbox = Outbox()
        self.urgent = asyncio.Event()
        self.is_roomy: Callable[[], bool] = lambda: True
        self.take_back: Callable[[Claimed], bool] = lambda _claimed: False
        self.on_superseded: Callable[[Slot], None] = lambda _slot: None
        self.on_ready: Callable[[Claimed], None] = lambda _claimed: None
        self.longest_seconds = 0.0
        self.on_longer: Callable[[], None] = lambda: None
        self.on_committed: Callable[[Claimed, str | None], None] = lambda _claimed, _result: None
        self._ghosts: set[str] = set()
        self._leaving: set[str] = set()
        self._waiting: dict[str, Claimed] = {}

    def accept(self, tasks: Sequence[Claimed]) -> list[Claimed]:
        """Take what an exchange gave, and return what is to be started.

        A task that runs here may come once more. Either the commit of its claim had not reached the disk when the server died: then it
        goes on under the new fence. Or somebody took it back, and we got it again: then the attempt that runs is nobody's any more. It is
        cut, and the new one starts when it has left. What was given up and still runs is put off; what waits for its start waits anew.
        """
        fresh: list[Claimed] = []
        longest = self.longest_seconds
        for claimed in tasks:
            if claimed.id in self._ghosts:
                self.outbox.add_outcome(_put_off(claimed))
                continue
            known = self.active.get(claimed.id)
            if known is None and claimed.id not in self._leaving or known is not None and self.take_back(known):
                fresh.append(claimed)
            else:
                self._take_over(claimed, known)
            self.active[claimed.id] = claimed
            if claimed.timeout_seconds > longest:
                longest = claimed.timeout_seconds
        if longest > self.longest_seconds:
            self.longest_seconds = longest
            self.on_longer()
        return fresh

    def _take_over(self, claimed: Claimed, known: Claimed | None) -> None:
        slot = self.running.get(claimed.id)
        is_leaving = claimed.id in self._leaving
        if slot is not None and known is not None and not is_leaving and _was_forgotten(known, claimed):
            slot.claimed = claimed
            return
        self._waiting[claimed.id] = claimed
        if not is_leaving:
            self._leaving.add(claimed.id)
            if slot is not None:
                self.on_superseded(slot)

    def reckon_longest(self) -> float:
        """Return the longest time limit of what is active now."""
        self.longest_seconds = max((claimed.timeout_seconds for claimed in self.active.values()), default=0.0)
        return self.longest_seconds

    def success(self, claimed: Claimed, result: str | None) -> None:
        """Write a plain success on its way."""
        if not self._strike(claimed):
            return  # it is not ours any more
        self.outbox.add_success(Success(Fence(claimed.id, claimed.attempt, claimed.claim_id), result))
        self._tell()

    def committed(self, claimed: Claimed, result: str | None) -> None:
        """Strike out a task that has written its success itself, in its own transaction."""
        if self._strike(claimed):
            self.on_committed(claimed, result)
            if not self.active or self.is_roomy():
                self.urgent.set()

    def drop(self, claimed: Claimed) -> None:
        """Strike out an attempt that was no longer ours when it ended: nothing is handed in for it."""
        self._strike(claimed)

    def outcome(self, outcome: Outcome) -> bool:
        """Write any other outcome on its way; False when the attempt is not ours any more."""
        if not self._strike(outcome.fence):
            return False
        self.outbox.add_outcome(outcome)
        self._tell()
        return True

    def _strike(self, ended: Fence | Claimed) -> bool:
        known = self.active.get(ended.id)
        if known is None or known.claim_id != ended.claim_id or known.attempt != ended.attempt:
            return False
        del self.active[ended.id]
        return True

    def lose(self, claimed: Claimed) -> Slot | None:
        """Strike out an attempt that is no longer ours. Return the place in which it still runs; None = nothing of it does."""
        if self.active.get(claimed.id) is not claimed:
            return None  # it has ended meanwhile, and its fence will tell
        del self.active[claimed.id]
        if self.withdraw(claimed):
            return None
        self._leaving.add(claimed.id)
        return self.running.get(claimed.id)

    def held(self) -> list[str]:
        """Return the ids of all tasks that the database may believe we run."""
        return [*self.active, *self.outbox.ids()]

    def haunt(self, claimed: Claimed) -> None:
        """Remember a task that was given up and still runs. A later attempt that waits for its end is put off."""
        self._ghosts.add(claimed.id)
        if (waiting := self._waiting.pop(claimed.id, None)) is not None:
            self.outcome(_put_off(waiting))

    def withdraw(self, claimed: Claimed) -> bool:
        """Take back a task that waits for an older attempt of it, or for a place; False when it has been started."""
        if self._waiting.get(claimed.id) is claimed:
            del self._waiting[claimed.id]
            return True
        return self.take_back(claimed)

    def withdraw_waiting(self, queues: Container[str] | None = None) -> list[Claimed]:
        """Take back all that wait for older attempts of them; of these queues, or None = of all."""
        waiting = [each for each in self._waiting.values() if queues is None or each.queue in queues]
        for claimed in waiting:
            del self._waiting[claimed.id]
        return waiting

    def left(self, task_id: str) -> None:
        """Take note that an attempt has left its place, given up or not: a later one of the same task may start."""
        if not self._leaving and not self._ghosts:
            return  # called for each task
        self._ghosts.discard(task_id)
        self._leaving.discard(task_id)
        if (waiting := self._waiting.pop(task_id, None)) is not None:
            self.on_ready(waiting)

    def _tell(self) -> None:
        waiting = len(self.outbox)
        if not self.active or (waiting % 16 == 0 and self.is_roomy()):
            self.urgent.set()
        elif waiting == 1:
            # one timer for all outcomes that follow until they are handed in
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self.urgent.set)


def _was_forgotten(known: Claimed, claimed: Claimed) -> bool:
    """Tell whether the server lost the commit of a claim: it has not counted that start. Taken back by hand, a task keeps the count."""
    return claimed.attempt <= known.attempt and claimed.due_at == known.due_at


def _put_off(claimed: Claimed) -> Outcome:
    return Outcome(
        claimed.fence,
        OutcomeKind.SNOOZED,
        error_message="an earlier attempt that was given up still runs here",
        delay_seconds=PUT_OFF_SECONDS,
    )
