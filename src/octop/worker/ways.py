"""Where an attempt runs: on the loop, in a thread, in a child process, in a transaction."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Final

from octop.engine.task_transaction import NotBegunError
from octop.model.control_flow import Cancel, Retry, Snooze
from octop.model.definition import TaskDefinition
from octop.model.errors import DatabaseUnreachableError
from octop.model.task import Claimed
from octop.worker import copies
from octop.worker.batches import Batches
from octop.worker.children import Child, Children
from octop.worker.ending import AttemptLostError, NotStartedError, TaskFailedInChildError
from octop.worker.frames import Message
from octop.worker.holdings import Holdings
from octop.worker.lease import Lease
from octop.worker.slot import AttemptContext, Slot
from octop.worker.threads import Threads
from octop.worker.transactions import Committed, NoPlaceError, Transactions
from octop.worker.trouble import Trouble
from octop.worker.watchdog import Watchdog

# A process that died may have held hundreds of tasks. One child for each of them would bring the machine down.
ISOLATED_MAX: Final = 4
ISOLATION_WAIT_SECONDS_MAX: Final = 30.0
ISOLATION_SNOOZE_SECONDS: Final = 2.0
# With CONNECT_SECONDS_MAX of transactions less than the default of worker.deadline_grace_seconds, see CHILD_START_SECONDS_MAX.
PLACE_WAIT_SECONDS_MAX: Final = 4.0
PLACE_SNOOZE_SECONDS: Final = 2.0


class JsonText(str):
    """A result that a child process has encoded already."""

    __slots__ = ()


class Ways:
    """Runs the functions of tasks where they are to run.

    Attributes:
        written: Tells whether what a task returned is a result that can be kept, and its JSON.
        batches: Tasks whose function gets many at a time.
    """

    def __init__(
        self,
        children: Children,
        transactions: Transactions,
        watchdog: Watchdog,
        lease: Lease,
        holdings: Holdings,
        *,
        written: Callable[[Slot, Claimed, Any], tuple[bool, str | None]],
        result_bytes_max: Callable[[], int],
        is_full: Callable[[str], bool],
    ) -> None:
        """Begin without threads.

        Args:
            children: Processes for tasks that want, or must have, one of their own.
            transactions: Connections for transactional tasks.
            watchdog: Told anew when a child is ready: its start is not the task's time.
            lease: Looked at once more after whatever a start had to wait for: a thread, a child, a connection.
            holdings: Asked whether an attempt that has waited is still to be started; told of a success that is in the database already.
            written: Tells whether what a task returned is a result that can be kept, and its JSON.
            result_bytes_max: Returns the setting ``task.result_bytes_max``, for tasks that commit in a child.
            is_full: Tells whether all places of a queue are taken: a batch does not wait for more then.
        """
        self._children = children
        self._transactions = transactions
        self._watchdog = watchdog
        self._lease = lease
        self._holdings = holdings
        self.written = written
        self._result_bytes_max = result_bytes_max
        self._closed = False
        self._no_connection = Trouble(
            "transactional tasks get no connection, and wait", transactions.worker_id, endless=True
        )
        self._threads = Threads()
        self.batches = Batches(self._threads, check_start=self.check_start, started=self.started, is_full=is_full)
        self._isolation = asyncio.Semaphore(ISOLATED_MAX)

    def close(self) -> None:
        """Let go of threads; what still runs is on its own, and nothing that still waits may start."""
        self._closed = True
        self.batches.close()
        self._threads.close()

    def begin(
        self, slot: Slot, definition: TaskDefinition, context: AttemptContext, claimed: Claimed
    ) -> Coroutine[Any, Any, Any]:
        """Return what runs a task where it is to run: a coroutine that has not begun."""
        if definition.run_in == "process":
            return self._in_child(slot, definition, claimed)
        if claimed.isolated:
            return self._in_isolation(slot, definition, claimed)
        if definition.batch is not None:
            return self.batches.run(slot, definition, definition.batch, context, claimed)
        if definition.transactional:
            return self._in_transaction(slot, definition, context, claimed)
        if definition.run_in == "thread":
            return self._in_thread(slot, lambda: self._here(slot, definition, context, claimed))
        return _on_loop(definition, context, claimed)

    def check_start(self, slot: Slot, claimed: Claimed) -> None:
        """Refuse a start that has waited for too long: nobody holds the attempt any more, or the lease is over. From any thread.

        Raises:
            NotStartedError: It may not be started now.
        """
        known = slot.claimed
        if (
            time.monotonic() >= self._lease.until
            or self._closed
            or slot.recorded
            or slot.reason is not None
            or known is None
            or known.id != claimed.id
            or known.id not in self._holdings.active
        ):
            raise NotStartedError

    def started(self, slot: Slot, claimed: Claimed) -> None:
        """Take note that what an attempt waited for is there: its time begins."""
        if slot.starting and slot.claimed is not None and slot.claimed.id == claimed.id:
            slot.starting = False
            if slot.child is None:
                self._no_connection.over()
            if slot.deadline < math.inf:
                self._watchdog.watch(slot, time.monotonic() + claimed.timeout_seconds)

    async def _in_transaction(
        self, slot: Slot, definition: TaskDefinition, context: AttemptContext, claimed: Claimed
    ) -> Any:
        """Run a task whose success commits with what it does. From then on nothing can undo it, and no outcome is handed in."""
        slot.waited = slot.starting = True
        try:
            async with self._transactions.place(min(PLACE_WAIT_SECONDS_MAX, claimed.timeout_seconds / 2)) as let_go:
                attempt = _Attempt(self, slot, definition, context, claimed, let_go)
                try:
                    if definition.run_in == "thread":
                        answer = await self._in_thread(slot, lambda: self._transactions.run(attempt))
                    else:
                        answer = await self._transactions.run_async(attempt)
                finally:
                    if slot.cut is not None and slot.job is not None and not slot.job.ended.done():
                        slot.cut()  # the thread was given up
                    slot.cut = None
                    context.lend(None)
        except NoPlaceError:
            return Snooze(PLACE_SNOOZE_SECONDS)
        except NotBegunError as error:
            return Snooze(self._no_connection.bear(error.error))
        if type(answer) is not Committed:
            return answer
        self._holdings.committed(attempt.claimed(), answer.text)
        slot.committed = (answer.value,)
        return answer.value

    async def _in_thread(self, slot: Slot, call: Callable[[], Any]) -> Any:
        slot.waited = True
        job = slot.job = self._threads.start(copy_context(), call)
        await asyncio.shield(job.ended)
        error, answer, job.error, job.answer = job.error, job.answer, None, None
        if error is None:
            return answer
        try:
            raise error
        finally:
            del error  # it would keep this frame, and so itself

    def _here(self, slot: Slot, definition: TaskDefinition, context: AttemptContext, claimed: Claimed) -> Any:
        """Call the function in the thread that has come to it: on a busy machine, or after a SIGSTOP, long after it was told to."""
        self.check_start(slot, claimed)
        return definition.call(definition.unbind(claimed.payload), context)

    async def _in_isolation(self, slot: Slot, definition: TaskDefinition, claimed: Claimed) -> Any:
        """Run a task whose attempt was lost once: in a child, but few at a time, however many were lost together."""
        slot.waited = True
        try:
            async with asyncio.timeout(min(ISOLATION_WAIT_SECONDS_MAX, claimed.timeout_seconds / 2)):
                await self._isolation.acquire()
        except TimeoutError:
            return Snooze(ISOLATION_SNOOZE_SECONDS)
        try:
            return await self._in_child(slot, definition, claimed)
        finally:
            self._isolation.release()

    async def _in_child(self, slot: Slot, definition: TaskDefinition, claimed: Claimed) -> Any:
        slot.waited = slot.starting = True
        child = slot.child = await self._children.take()
        self.started(slot, claimed)
        try:
            self.check_start(slot, claimed)
            child.runs += 1
            answer = await self._asked(child, slot, definition, claimed)
        except NotStartedError:
            raise  # the child knows nothing of it
        except BaseException:
            child.kill()
            raise
        finally:
            self._children.give_back(child)
        if "failure" in answer:
            raise TaskFailedInChildError(answer["failure"])
        if "snooze" in answer:
            return Snooze(answer["snooze"])
        if "cancel" in answer:
            raise Cancel(answer["cancel"])
        if "retry" in answer:
            raise Retry(answer["retry"], answer["reason"])
        if "lost" in answer:
            raise AttemptLostError
        if "not_begun" in answer:
            return Snooze(self._no_connection.bear(DatabaseUnreachableError(answer["not_begun"])))
        text = answer.get("result")
        value = None if text is None else JsonText(text)
        if answer.get("committed"):
            self._holdings.committed(slot.claimed or claimed, text)
            slot.committed = (value,)
        return value

    async def _asked(self, child: Child, slot: Slot, definition: TaskDefinition, claimed: Claimed) -> Message:
        question = claimed._asdict()
        if not definition.transactional:
            return await child.ask(question)
        # it gets no more than it needs, and only with the task that needs it
        own = self._transactions
        question["transaction"] = {
            "dsn": own.dsn,
            "schema": own.schema,
            "worker_id": own.worker_id,
            "result_bytes_max": self._result_bytes_max(),
        }
        answer = await child.ask(question)
        if "commits" in answer:
            slot.committing = True
            answer = await child.answer(question)
        return answer


class _Attempt:
    """An attempt of a transactional task in this process."""

    def __init__(
        self,
        ways: Ways,
        slot: Slot,
        definition: TaskDefinition,
        context: AttemptContext,
        claimed: Claimed,
        let_go: Callable[[], None],
    ) -> None:
        self._ways = ways
        self._slot = slot
        self._definition = definition
        self._context = context
        self._claimed = claimed
        self._let_go = let_go
        self._loop = asyncio.get_running_loop()

    def begins(self, connection: Any, cut: Callable[[], None]) -> None:
        def cut_and_let_go() -> None:
            cut()
            self._let_go()

        slot = self._slot
        slot.cut = cut_and_let_go
        self._ways.check_start(slot, self._claimed)  # only now: whoever ends it later finds what to cut
        if self._definition.run_in == "thread":
            self._loop.call_soon_threadsafe(self._ways.started, slot, self._claimed)
        else:
            self._ways.started(slot, self._claimed)
        self._context.lend(connection)

    def call(self) -> Any:
        return self._definition.call(self._definition.unbind(self._claimed.payload), self._context)

    def written(self, value: Any) -> tuple[bool, str | None]:
        if copies.is_one:
            copies.end()  # it is for its parent to commit
        self._context.lend(None)
        return self._ways.written(self._slot, self._claimed, value)

    def claimed(self) -> Claimed:
        return self._slot.claimed or self._claimed

    def commits(self) -> None:
        self._slot.committing = True


async def _on_loop(definition: TaskDefinition, context: AttemptContext, claimed: Claimed) -> Any:
    return await definition.call(definition.unbind(claimed.payload), context)
