"""How one attempt is run, and what comes of it."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from contextvars import Context as Variables
from contextvars import copy_context
from typing import Any, Final

from octop.model.context import context_variable
from octop.model.control_flow import Cancel, Retry, Snooze
from octop.model.definition import TaskDefinition
from octop.model.errors import ResultTooLargeError, UnknownTaskTypeError
from octop.model.hooks import Hooks
from octop.model.task import Claimed, Outcome, OutcomeKind
from octop.worker import copies
from octop.worker.batches import Batches
from octop.worker.children import Children
from octop.worker.ending import is_any, outcome_of, outcome_of_interrupted
from octop.worker.holdings import Holdings
from octop.worker.hooks import call_hooks, wrapped
from octop.worker.lease import Lease
from octop.worker.report import failure_of, let_go, plain_failure
from octop.worker.slot import INTERRUPTS_MAX, AttemptContext, Reason, Slot, stepped
from octop.worker.transactions import Transactions
from octop.worker.watchdog import Watchdog
from octop.worker.ways import JsonText, Ways

log = logging.getLogger(__name__)

FAILURES: Final = (OutcomeKind.FAILURE, OutcomeKind.TIMEOUT, OutcomeKind.LOST)
AGAIN_SECONDS: Final = 2.0
# Less than the default of worker.deadline_grace_seconds: by then a sweep ends what is over its limit.
CHILD_START_SECONDS_MAX: Final = 8.0
THREAD_CANCEL_SECONDS: Final = 5.0


class Runner:
    """Runs attempts in places.

    Attributes:
        stepping: The task whose code runs on the loop now, or ran last: named when the loop is blocked.
        result_bytes_max: Setting ``task.result_bytes_max``.
        tells: Log the end of each attempt, and the traceback of a failure.
    """

    def __init__(
        self,
        registry: dict[str, TaskDefinition],
        hooks: Hooks,
        holdings: Holdings,
        children: Children,
        wake: Callable[[str], None],
        transactions: Transactions,
        lease: Lease,
        is_full: Callable[[str], bool] = lambda _queue: False,
    ) -> None:
        """Keep what attempts need.

        Args:
            registry: Task types by name and alias.
            hooks: What the application wants to be called with.
            holdings: Where outcomes go.
            children: Processes for tasks that want, or must have, one of their own.
            wake: Lets another place of a queue look for work.
            transactions: Connections for transactional tasks.
            lease: Nothing starts when it is over.
            is_full: Tells whether all places of a queue are taken.
        """
        self.stepping: Claimed | None = None
        self.result_bytes_max = 1 << 20
        self.tells = False
        self._registry = registry
        self._hooks = hooks
        self._holdings = holdings
        self._wake = wake
        self._watchdog = Watchdog(self._overdue)
        self._ways = Ways(
            children,
            transactions,
            self._watchdog,
            lease,
            holdings,
            written=self._written,
            result_bytes_max=lambda: self.result_bytes_max,
            is_full=is_full,
        )
        self._closed = False
        self._remembers = bool(hooks.retry or hooks.freeze)
        self._remembered: dict[str, tuple[AttemptContext, BaseException]] = {}

    def close(self) -> None:
        """Let go of threads and timers; what still runs is on its own."""
        self._closed = True
        self._watchdog.close()
        self._ways.close()

    @property
    def batches(self) -> Batches:
        """Return what gathers tasks whose function gets many at a time."""
        return self._ways.batches

    # --- one attempt --------------------------------------------------------------------------------------------------

    def begin(self, slot: Slot, claimed: Claimed) -> Coroutine[Any, Any, None] | None:
        """Begin one task. Whatever it does becomes an outcome; nothing is raised while the worker runs.

        Most tasks never wait: of them all is done here, without a coroutine that somebody would have to wait for.

        Returns:
            What is to be awaited until the task has ended; None = it has.
        """
        slot.claimed = claimed
        self.stepping = claimed
        variables = copy_context()
        value: Any = None
        error: BaseException | None = None
        try:
            coroutine, wanted = variables.run(self._first_step, slot, claimed)
        except StopIteration as stop:
            value = stop.value
        except BaseException as raised:
            if self._closed:
                raise
            error = raised
        else:
            return self._go_on(slot, claimed, variables, coroutine, wanted)
        finally:
            if copies.is_one:
                copies.end()
        is_plain = value is None and error is None and slot.reason is None and not slot.waited
        if is_plain and not (self._hooks.success or self.tells or (slot.task is not None and slot.task.cancelling())):
            self._holdings.success(claimed, None)
            self._holdings.left(claimed.id)
            return None
        try:
            return self._finish(slot, claimed, value, error)
        finally:
            del error  # it would keep this frame, and so itself

    async def _go_on(
        self, slot: Slot, claimed: Claimed, variables: Variables, coroutine: Coroutine[Any, Any, Any], wanted: object
    ) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            self._begins_to_wait(slot, claimed)
            value = await stepped(variables, coroutine, wanted, lambda: setattr(self, "stepping", claimed))
        except BaseException as raised:
            if self._closed:
                raise
            error = raised
        try:
            await self._finish(slot, claimed, value, error)
        finally:
            del error  # as above

    async def _finish(self, slot: Slot, claimed: Claimed, value: Any, error: BaseException | None) -> None:
        if slot.waited:
            self._holdings.running.pop(claimed.id, None)
            slot.deadline = math.inf
        if slot.interrupts or (slot.task is not None and slot.task.cancelling()):
            await _absorb(slot)
        if value is None and error is None and slot.reason is None and not (self._hooks.success or self.tells):
            self._holdings.success(slot.claimed or claimed, None)
            self._holdings.left(claimed.id)
            return
        try:
            await self._end(slot, value, error)
        except BaseException as fault:  # whatever the user's objects do to us, the attempt ends
            if self._closed:
                raise
            log.error("what an attempt ended with can not be told", exc_info=fault, extra={"task_id": claimed.id})
            self._holdings.outcome(
                plain_failure(
                    (slot.claimed or claimed).fence, type(fault).__name__, "what it ended with can not be told"
                )
            )
        if error is not None and claimed.id not in self._remembered:
            let_go(error)
        del error, value
        if slot.job is not None and not slot.job.ended.done():
            await self._wait_for_thread(slot)
        self._holdings.left(claimed.id)

    def _first_step(self, slot: Slot, claimed: Claimed) -> tuple[Coroutine[Any, Any, Any], object]:
        """Begin, inside the context of the attempt. Most tasks never wait: StopIteration carries what they returned."""
        if self.tells:
            slot.began = time.monotonic()
        context = slot.context = AttemptContext(claimed)
        context_variable.set(context)
        definition = self._registry.get(claimed.task_type)
        if definition is None:
            message = f"no function is registered as {claimed.task_type}"
            raise UnknownTaskTypeError(message)
        is_plain = definition.run_in == "loop" and not (
            claimed.isolated or definition.transactional or definition.batch
        )
        if is_plain and not self._hooks.middleware:
            try:
                coroutine = definition.call(definition.unbind(claimed.payload), context)
            except StopIteration as error:  # from a decoder of the user's own: here it would pass for an answer
                message = "decoding the payload raised StopIteration"
                raise RuntimeError(message) from error
        else:
            coroutine = self._ways.begin(slot, definition, context, claimed)
            for middleware in reversed(self._hooks.middleware):
                coroutine = wrapped(middleware, context, coroutine)
        return coroutine, coroutine.send(None)

    def _begins_to_wait(self, slot: Slot, claimed: Claimed) -> None:
        slot.waited = True
        self._holdings.running[claimed.id] = slot
        start_seconds = CHILD_START_SECONDS_MAX if slot.starting else 0.0
        self._watchdog.watch(slot, time.monotonic() + start_seconds + claimed.timeout_seconds)
        self._wake(claimed.queue)

    async def _wait_for_thread(self, slot: Slot) -> None:
        """Wait for a thread that was given up: it can not be killed, and its place is not used again until it ends."""
        job, claimed = slot.job, slot.claimed
        if job is None or claimed is None:
            return
        self._holdings.haunt(claimed)
        slot.recorded = True
        log.warning(
            "a thread was given up and still runs: its place stays occupied until it ends",
            extra={"task_id": claimed.id, "task_type": claimed.task_type},
        )
        while not job.ended.done():
            try:
                await asyncio.shield(job.ended)
            except asyncio.CancelledError:
                if self._closed:
                    raise
                if slot.task is not None:
                    slot.task.uncancel()

    # --- ending from outside ------------------------------------------------------------------------------------------

    def cancel(self, slot: Slot) -> None:
        """End a task because somebody asked for it. A thread gets some seconds to notice ``octop.current().cancelled``."""
        if slot.job is not None and slot.context is not None and slot.reason is None:
            slot.reason = Reason.CANCEL
            slot.context.stopped = True
            self._watchdog.watch(slot, time.monotonic() + THREAD_CANCEL_SECONDS)
        elif slot.reason is None:
            self.interrupt(slot, Reason.CANCEL)

    def interrupt(self, slot: Slot, reason: Reason) -> None:
        """End a task now; one that does not want to is told again, and given up in the end."""
        slot.interrupt(reason)
        self._watchdog.watch(slot, time.monotonic() + AGAIN_SECONDS)

    def give_up(self, slot: Slot) -> None:
        """Record what a task that does not end is to end with; its place stays occupied until it does."""
        claimed = slot.claimed
        if claimed is None or slot.recorded:
            return
        slot.recorded = True
        if slot.cut is not None:
            slot.cut()
        outcome = outcome_of_interrupted(slot, claimed)
        if outcome is not None:
            self._holdings.outcome(outcome)
        self._holdings.haunt(claimed)

    def _overdue(self, slot: Slot) -> None:
        claimed = slot.claimed
        if claimed is None or slot.recorded:
            return
        if slot.committing and slot.reason is None:  # it may be over already, and only the answer be on its way
            slot.reason = Reason.TIMEOUT
            self._watchdog.watch(slot, time.monotonic() + AGAIN_SECONDS)
            return
        if slot.interrupts < INTERRUPTS_MAX:
            self.interrupt(slot, slot.reason or Reason.TIMEOUT)
            return
        self.give_up(slot)
        log.error(
            "a task does not end although it was told %d times: given up, its place stays occupied until it ends",
            slot.interrupts,
            extra={"task_id": claimed.id, "task_type": claimed.task_type},
        )

    # --- what comes of it ---------------------------------------------------------------------------------------------

    async def _end(self, slot: Slot, value: Any, error: BaseException | None) -> None:
        claimed, context = slot.claimed, slot.context
        if claimed is None or slot.recorded:
            return
        if slot.committed is not None:
            await self._end_committed(slot, claimed, slot.committed[0], error)
            return
        outcome: Outcome | None
        if error is None and _is_success(slot, value):
            try:
                text = self._result(claimed, value)
            except BaseException as problem:  # noqa: BLE001 - encoding may run the user's code
                error, outcome = problem, failure_of(claimed.fence, problem, final=True, keep_frames=True)
            else:
                self._holdings.success(claimed, text)
                if self.tells:
                    _tell(slot, claimed, "success")
                if self._hooks.success and context is not None:
                    await call_hooks(self._hooks.success, context, value)
                return
        else:
            outcome = outcome_of(slot, claimed, error if error is not None else value)
            if outcome is None:  # it may come to us once more before we are told that it was lost
                self._holdings.drop(claimed)
        if outcome is not None and self._holdings.outcome(outcome):
            if self.tells and outcome.kind not in FAILURES:
                _tell(slot, claimed, outcome.kind.value)
            await self._tell_of_failure(claimed, context, outcome, error)
        if error is not None and claimed.id not in self._remembered:
            let_go(error)

    async def _end_committed(self, slot: Slot, claimed: Claimed, value: Any, error: BaseException | None) -> None:
        """Tell of a success that was committed with what the task did: nothing that came later can change it."""
        if error is not None and slot.reason is None:
            log.error("a middleware raised after the commit", exc_info=error, extra={"task_id": claimed.id})
        if self.tells:
            _tell(slot, claimed, "success")
        if self._hooks.success and slot.context is not None:
            await call_hooks(self._hooks.success, slot.context, value)

    def _result(self, claimed: Claimed, value: Any) -> str | None:
        """Return the JSON of what a task returned.

        Raises:
            ResultTooLargeError: It is over the limit. Whatever else the value does to whoever encodes it comes out as well.
        """
        text = str(value) if type(value) is JsonText else self._registry[claimed.task_type].encode_result(value)
        size, limit = 0 if text is None else len(text.encode()), self.result_bytes_max
        if size > limit:
            message = f"the result has {size:,} bytes of JSON, more than task.result_bytes_max = {limit:,}"
            raise ResultTooLargeError(message, hint="Return a reference to the data instead.")
        return text

    def _written(self, slot: Slot, claimed: Claimed, value: Any) -> tuple[bool, str | None]:
        """Tell whether a value is a result that can be kept, and its JSON. What is wrong with it is met again, and told, at the end."""
        try:
            return (True, self._result(claimed, value)) if _is_success(slot, value) else (False, None)
        except BaseException:  # noqa: BLE001 - encoding may run the user's code
            return False, None

    async def _tell_of_failure(
        self, claimed: Claimed, context: AttemptContext | None, outcome: Outcome, error: BaseException | None
    ) -> None:
        if outcome.kind not in FAILURES:
            return
        trace = f"\n{outcome.traceback.rstrip()}" if self.tells and outcome.traceback else ""
        log.warning(
            "%s of %s %s, attempt %d: %s: %s%s",
            outcome.kind.value,
            claimed.task_type,
            claimed.id,
            claimed.attempt,
            outcome.error_class,
            (outcome.error_message or "").partition("\n")[0][:500],
            trace,
            extra={
                "task_id": claimed.id,
                "task_type": claimed.task_type,
                "attempt": claimed.attempt,
                "queue": claimed.queue,
            },
        )
        if context is None or not (self._hooks.failure or self._remembers):
            return
        if error is None or outcome.kind is OutcomeKind.TIMEOUT:
            where, error = error, TimeoutError(outcome.error_message)
            error.__cause__ = where
        if self._remembers:
            self._remembered[claimed.id] = (context, error)
        await call_hooks(self._hooks.failure, context, error)

    def forget(self, task_id: str) -> None:
        """Let go of a failure about which the engine decided nothing that a hook is told."""
        if (found := self._remembered.pop(task_id, None)) is not None:
            let_go(found[1])

    async def settled(self, task_id: str, verdict: str) -> None:
        """Tell the hooks what the engine decided about a failure.

        Args:
            task_id: The task.
            verdict: ``failed`` = tried again, ``frozen`` = given up.
        """
        found = self._remembered.pop(task_id, None)
        if found is not None:
            hooks = {"failed": self._hooks.retry, "frozen": self._hooks.freeze}.get(verdict, [])
            await call_hooks(hooks, *found)
            let_go(found[1])


def _is_success(slot: Slot, value: object) -> bool:
    return slot.reason in (None, Reason.SHUTDOWN, Reason.PAUSED) and not is_any(value, Snooze, Cancel, Retry)


def _tell(slot: Slot, claimed: Claimed, what: str) -> None:
    log.info(
        "%s of %s %s after %d ms",
        what,
        claimed.task_type,
        claimed.id,
        (time.monotonic() - slot.began) * 1000,
        extra={
            "task_id": claimed.id,
            "task_type": claimed.task_type,
            "attempt": claimed.attempt,
            "queue": claimed.queue,
        },
    )


async def _absorb(slot: Slot) -> None:
    """Take in a cancellation that was meant for the task that has just ended, so that the next one does not get it."""
    task = slot.task
    if task is None:
        return
    while task.cancelling():
        task.uncancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        return
