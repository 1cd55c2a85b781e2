"""Tasks of one type and queue that this worker has claimed are gathered, and their function is called once for all of them.

Each keeps its own place, and with it its own fence, time limit, cancellation and outcome: only the call of the function is shared.
Nobody waits for longer than ``batch_wait``, nor when no more could come: when all places of the queue are taken.
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from octop.model.batch import Batch, Ended, spread
from octop.model.control_flow import Cancel, Retry, Snooze
from octop.model.definition import TaskDefinition
from octop.model.task import Claimed
from octop.worker import copies
from octop.worker.ending import NotStartedError, TaskFailedInBatchError, is_any
from octop.worker.report import failure_of, let_go
from octop.worker.slot import AttemptContext, Slot
from octop.worker.threads import Threads

log = logging.getLogger(__name__)


class _Member:
    """One task of a batch: where it waits, and for what."""

    def __init__(self, slot: Slot, claimed: Claimed, context: AttemptContext, definition: TaskDefinition) -> None:
        self.slot = slot
        self.claimed = claimed
        self.task = definition.one_of_batch(claimed.payload, context)
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Ended] = self._loop.create_future()
        self.task.heard_by(self._tell)

    def end(self, ended: Ended) -> None:
        """Let its attempt end, unless it has."""
        if not self.ended.done():
            self.slot.job = None  # a thread that goes on does so for the others
            self.ended.set_result(ended)

    def _tell(self, ended: Ended) -> None:
        self._loop.call_soon_threadsafe(self.end, ended)


class _Batch:
    """Tasks that share a call."""

    def __init__(self, definition: TaskDefinition) -> None:
        self.definition = definition
        self.members: list[_Member] = []
        self.timer: asyncio.TimerHandle | None = None
        self.call: asyncio.Task[None] | None = None

    def leave(self, member: _Member) -> None:
        """Take note that one was ended from outside; nobody needs the call when all were."""
        member.ended.cancel()
        if self.call is not None and all(each.ended.done() for each in self.members):
            self.call.cancel()


class Batches:
    """Gathers tasks, and calls their function."""

    def __init__(
        self,
        threads: Threads,
        *,
        check_start: Callable[[Slot, Claimed], None],
        started: Callable[[Slot, Claimed], None],
        is_full: Callable[[str], bool],
    ) -> None:
        """Begin without tasks.

        Args:
            threads: Where functions run that block.
            check_start: Refuses an attempt that may not be started any more.
            started: Told that the time of an attempt begins.
            is_full: Tells whether no more tasks of a queue can come: all its places are taken.
        """
        self._threads = threads
        self._check_start = check_start
        self._started = started
        self._is_full = is_full
        self._open: dict[tuple[str, str], _Batch] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._variables = copy_context()  # those of no attempt: a batch has as many as it has tasks

    @property
    def gathering(self) -> int:
        """Return how many tasks wait for others."""
        return sum(len(each.members) for each in self._open.values())

    def flush(self) -> None:
        """Begin with what has been gathered."""
        for key in list(self._open):
            self._start(key)

    def close(self) -> None:
        """Let go of what still runs."""
        for batch in self._open.values():
            if batch.timer is not None:
                batch.timer.cancel()
        self._open.clear()
        for call in self._calls:
            call.cancel()

    async def run(
        self, slot: Slot, definition: TaskDefinition, rule: Batch, context: AttemptContext, claimed: Claimed
    ) -> Any:
        """Run one task together with others; return or raise what it ended with."""
        slot.waited = slot.starting = True
        member = _Member(slot, claimed, context, definition)
        batch = self._gather(member, definition, rule)
        try:
            error, value = await member.ended
        except asyncio.CancelledError:
            batch.leave(member)
            raise
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # it would keep this frame, and so itself

    def _gather(self, member: _Member, definition: TaskDefinition, rule: Batch) -> _Batch:
        key = (definition.name, member.claimed.queue)
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = _Batch(definition)
            batch.timer = asyncio.get_running_loop().call_later(rule.wait_seconds, self._start, key)
        batch.members.append(member)
        if len(batch.members) >= rule.size or self._is_full(member.claimed.queue):
            # not at once: the attempt that came last has yet to be entered among those that run
            self._open.pop(key)
            if batch.timer is not None:
                batch.timer.cancel()
            asyncio.get_running_loop().call_soon(self._begin, batch)
        return batch

    def _start(self, key: tuple[str, str]) -> None:
        batch = self._open.pop(key, None)
        if batch is not None:
            if batch.timer is not None:
                batch.timer.cancel()
            self._begin(batch)

    def _begin(self, batch: _Batch) -> None:
        for each in batch.members:
            if not each.ended.done() and self._may_start(each):
                self._started(each.slot, each.claimed)
        batch.members = [each for each in batch.members if not (each.ended.done() or each.task.ended)]
        if not batch.members:
            return
        if batch.definition.is_async:
            # close() ends it, and so do its members when all of them have ended
            batch.call = asyncio.get_running_loop().create_task(self._await(batch), context=self._variables.copy())
            self._calls.add(batch.call)
            batch.call.add_done_callback(self._calls.discard)
            return
        job = self._threads.start(self._variables.copy(), lambda: self._here(batch))
        for each in batch.members:
            each.slot.job = job

        def ended(_future: object) -> None:
            error, answer, job.error, job.answer = job.error, job.answer, None, None
            self._end(batch, error, answer)

        job.ended.add_done_callback(ended)

    def _may_start(self, member: _Member) -> bool:
        try:
            self._check_start(member.slot, member.claimed)
        except NotStartedError as error:
            member.task.fail(error)
            return False
        return True

    def _here(self, batch: _Batch) -> Any:
        """Call the function in the thread that has come to it: on a busy machine long after it was told to."""
        tasks = [each.task for each in batch.members if self._may_start(each)]
        value = batch.definition.function(tasks) if tasks else None
        return spread(tasks, value), tasks

    async def _await(self, batch: _Batch) -> None:
        error, answer = None, None
        tasks = [each.task for each in batch.members]
        try:
            answer = spread(tasks, await batch.definition.function(tasks)), tasks
        except BaseException as raised:  # noqa: BLE001 - whatever it raises is the failure of its tasks
            error = raised
        if copies.is_one:
            copies.end()
        self._end(batch, error, answer)
        del error

    def _end(self, batch: _Batch, error: BaseException | None, answer: Any) -> None:
        if error is None:
            found = dict(zip(map(id, answer[1]), answer[0], strict=True))
            for each in batch.members:
                each.end(each.task.ended or found[id(each.task)])
            return
        if is_any(error, Snooze, Cancel, Retry):
            for each in batch.members:
                each.end(each.task.ended or Ended(error))
            return
        # Told once: an exception that several attempts let go of would tell only the first of them where it was raised.
        report = failure_of(batch.members[0].claimed.fence, error, keep_frames=True)
        left = [each for each in batch.members if not (each.ended.done() or each.task.ended)]
        for each in batch.members:
            first = bool(left) and each is left[0]  # it lets go of the error itself
            each.end(each.task.ended or Ended(error if first else TaskFailedInBatchError(report, error)))
        if not left:
            let_go(error)
