"""Runs what is due, here and now: the real exchange and the worker's own way to run an attempt, without its loops.

A worker claims while tasks run, beats, listens and sleeps. Here nothing goes on beside the test: claim, run, hand in, in
turn, until the database has no more; the order is that of the queue, and a test with one task takes some tens of ms.
"""

import asyncio
import contextlib
import math
import os
import socket
import time
import uuid
from collections import Counter, deque
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar
from uuid import UUID

import octop
from octop.app import Octop
from octop.engine import calls, queued
from octop.engine.call import Call, run_async
from octop.engine.connect import AsyncEngineConnection, open_connection_async
from octop.model.context import Context
from octop.model.definition import TaskDefinition
from octop.model.errors import (
    ConfigurationError,
    DrainLimitError,
    InvalidTaskError,
    OctopError,
    TaskFailedError,
    TryAgainError,
    UnexpectedDatabaseError,
)
from octop.model.hooks import CallNext
from octop.model.json_text import from_text
from octop.model.task import Claimed, Outcome, OutcomeKind, Status, Success
from octop.testing.bent_clock import Clock
from octop.testing.ran import Drained, Ran
from octop.worker.children import Children
from octop.worker.holdings import Holdings
from octop.worker.hooks import call_hooks
from octop.worker.lease import Lease
from octop.worker.report import plain_failure
from octop.worker.runner import Runner
from octop.worker.slot import Reason, Slot
from octop.worker.transactions import Transactions
from octop.worker.trouble import is_about_values

R = TypeVar("R")
TASKS_MAX: Final = 1_000
SECONDS_MAX: Final = 30.0
END_SECONDS_MAX: Final = 2.0
BEAT_SECONDS: Final = 5.0
EMPTY_LOOKS_MAX: Final = 20
"""One look walks over 200 lanes; what is due and still not given away is locked, or needs newer code."""
LOCKED_SECONDS: Final = 0.02
LOOK_SECONDS: Final = 0.02
_OTHER_VERDICTS: Final = {"lost": Status.CANCELLED, "kept": Status.SUCCESS}
DEFAULT_QUEUE: Final = "default"
OURS: Final = str(Path(octop.__file__).parent)


async def drain_application(
    app: Octop,
    *,
    dsn: str,
    schema: str,
    clock: Clock | None,
    until: datetime | None,
    max_tasks: int,
    seconds: float,
    concurrency: int,
) -> Drained:
    """Run what is due, see ``Database.drain``.

    Args:
        app: Whose tasks.
        dsn: Where.
        schema: Where Octop is installed there.
        clock: Moved to the next due time when nothing is due; None = it is left alone.
        until: At most to here.
        max_tasks: Attempts at most.
        seconds: Of the real clock, at most.
        concurrency: Attempts at once.
    """
    if concurrency < 1 or max_tasks < 1 or seconds <= 0:
        message = f"max_tasks={max_tasks!r}, seconds={seconds!r} and concurrency={concurrency!r} are above 0"
        raise ConfigurationError(message)
    connection = await open_connection_async(dsn, application_name="octop drain", schema=schema)
    try:
        drain = _Drain(app, connection, dsn, schema, max_tasks=max_tasks, seconds=seconds, concurrency=concurrency)
        return await drain.run(clock, until)
    finally:
        await connection.close()


def run_here(work: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine in an event loop of its own, in this thread, and leave the thread's loop as it is.

    Raises:
        ConfigurationError: A loop runs here already.
    """
    __tracebackhide__ = True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
    else:
        work.close()
        message = "drain() was called inside a running event loop"
        raise ConfigurationError(message, hint="Write `await drain_async()` there.")
    try:
        return loop.run_until_complete(work)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=END_SECONDS_MAX))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


class _Drain:
    """One drain: a worker without a life of its own."""

    def __init__(
        self,
        app: Octop,
        connection: AsyncEngineConnection,
        dsn: str,
        schema: str,
        *,
        max_tasks: int,
        seconds: float,
        concurrency: int,
    ) -> None:
        self._app = app
        self._connection = connection
        self._max_tasks = max_tasks
        self._end_at = time.monotonic() + seconds
        self._seconds = seconds
        self._concurrency = concurrency
        self._worker_id = str(uuid.uuid4())
        self._registry = {name: _in_this_process(each) for name, each in app.registry.items()}
        versions = [each.policy.version for each in self._registry.values()]
        self._gathers = any(each.batch is not None for each in self._registry.values())
        self._versions = None if set(versions) <= {1} else versions
        self._hooks = replace(app.hooks, middleware=[self._watch, *app.hooks.middleware])
        self._holdings = Holdings()
        self._committed: list[Success] = []
        self._holdings.on_committed = lambda claimed, result: self._committed.append(Success(claimed.fence, result))
        self._transactions = Transactions(dsn, schema, self._worker_id)
        self._runner = Runner(
            self._registry,
            self._hooks,
            self._holdings,
            Children(None),
            lambda _queue: None,
            self._transactions,
            _endless_lease(),
        )
        self._queues = {DEFAULT_QUEUE, *(each.policy.queue or DEFAULT_QUEUE for each in self._registry.values())}
        self._lanes: dict[str, str] = {}
        self._has_parked = False
        self._beaten_at = 0.0
        self._raised: dict[str, tuple[BaseException, TracebackType | None]] = {}
        self._claimed: dict[str, Claimed] = {}
        self._running: dict[asyncio.Task[None], tuple[Slot, Claimed]] = {}
        self._ran: list[Ran] = []

    async def run(self, clock: Clock | None, until: datetime | None) -> Drained:
        """Work until nothing can start any more."""
        await self._begin()
        try:
            await self._until_nothing_is_due()
            while clock is not None and (due := await self._next_due(until)) is not None:
                clock.freeze(due)
                self._beaten_at = 0.0
                await self._until_nothing_is_due()
            if clock is not None and until is not None:
                clock.freeze(max(until, clock.now()))
        finally:
            self._runner.close()
            await self._transactions.close()
            await self._end()
        order = {id: at for at, id in enumerate(self._claimed)}
        return Drained(sorted(self._ran, key=lambda ran: order[f"{ran.id} {ran.attempt}"]))

    # --- beginning and end ----------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        settings = await self._ask(calls.octop_settings())
        self._runner.result_bytes_max = int(settings.values.get("task.result_bytes_max") or 1 << 20)
        self._transactions.places = int(settings.values.get("db.connection_pool_size") or 10)
        self._queues |= {queue for name, queue in settings.type_queues.items() if name in self._registry}
        await self._ask(
            calls.octop_register(
                self._worker_id,
                name="drain",
                host=socket.gethostname(),
                pid=os.getpid(),
                supervisor_id=None,
                version=octop.__version__,
                queues=sorted(self._queues),
                task_types=[replace(each.policy, name=name) for name, each in self._registry.items()],
            )
        )
        self._beaten_at = time.monotonic()
        await call_hooks(self._hooks.worker_start)

    async def _end(self) -> None:
        await call_hooks(list(reversed(self._hooks.worker_stop)))
        with contextlib.suppress(OctopError):  # the database may be gone, which the test has been told of
            await self._ask(calls.octop_deregister(self._worker_id))

    # --- claim, run, hand in ----------------------------------------------------------------------------------------------

    async def _until_nothing_is_due(self) -> None:
        waiting: deque[Claimed] = deque()  # of several queues one each may come at once
        empty_looks = 0
        try:
            while empty_looks < EMPTY_LOOKS_MAX:
                found = await self._exchange(0 if waiting else self._concurrency - self._busy)
                waiting.extend(sorted(found, key=lambda claimed: (claimed.priority, claimed.scheduled_at, claimed.id)))
                while waiting and self._busy < self._concurrency:
                    self._start(waiting.popleft())
                    if self._gathers:
                        await asyncio.sleep(0)  # so that it joins those that wait for others
                if self._runner.batches.gathering:
                    empty_looks = 0
                    if found or waiting:
                        continue
                    self._runner.batches.flush()
                if self._running:
                    empty_looks = 0
                    await self._wait()
                    continue
                if self._has_parked:
                    continue  # strangers stood in front
                # what a task sent to a queue that nobody had named before, and lanes beyond the reach of one look
                due = {queue for queue, count, _ in await self._ask(queued.startable(list(self._registry))) if count}
                empty_looks = 0 if due - self._queues else empty_looks + 1
                self._queues |= due
                if not due:
                    return
        finally:
            await self._stop_all()

    @property
    def _busy(self) -> int:
        """Return how many run: those that wait for the others of their batch take no place."""
        return len(self._running) - self._runner.batches.gathering

    def _start(self, claimed: Claimed) -> None:
        self._check_limits()
        self._claimed[f"{claimed.id} {claimed.attempt}"] = claimed
        slot = Slot()
        # _stop_all ends what has not ended by itself
        slot.task = asyncio.get_running_loop().create_task(self._run(slot, claimed))
        self._running[slot.task] = (slot, claimed)

    async def _run(self, slot: Slot, claimed: Claimed) -> None:
        if (rest := self._runner.begin(slot, claimed)) is not None:
            await rest

    async def _wait(self) -> None:
        """Wait for one of those that run; with places left, look from time to time for what they have enqueued."""
        left = self._end_at - time.monotonic()
        look = LOOK_SECONDS if len(self._running) < self._concurrency else left
        ended, late = await asyncio.wait(
            self._running, timeout=max(0.0, min(left, look)), return_when=asyncio.FIRST_COMPLETED
        )
        for each in ended:
            del self._running[each]
            each.result()  # a fault of ours must not pass for a task that did nothing
        if late and time.monotonic() >= self._end_at:
            names = ", ".join(f"{claimed.task_type} {claimed.id}" for _, claimed in self._running.values())
            message = f"drain stopped after {self._seconds:g} s: still running: {names}"
            hint = "Does it wait for something that the test must do, or for another task (concurrency=2)? Else raise seconds=."
            raise DrainLimitError(message, hint=hint)

    async def _stop_all(self) -> None:
        if not self._running:
            return
        for slot, _ in self._running.values():
            self._runner.interrupt(slot, Reason.SHUTDOWN)
        _, late = await asyncio.wait(self._running, timeout=END_SECONDS_MAX)
        self._runner.close()
        for each in late:
            each.cancel()
        self._running.clear()

    def _check_limits(self) -> None:
        if len(self._claimed) < self._max_tasks and time.monotonic() < self._end_at:
            return
        counts = Counter(claimed.task_type for claimed in self._claimed.values()).most_common(5)
        most = ", ".join(f"{name} {count:,} times" for name, count in counts) or "nothing"
        limit = f"{len(self._claimed):,} tasks" if time.monotonic() < self._end_at else f"{self._seconds:g} s"
        message = f"drain stopped after {limit}, and there is more to do; it ran {most}"
        hint = "Do these enqueue each other for ever? Else raise max_tasks= or seconds=."
        raise DrainLimitError(message, hint=hint)

    async def _exchange(self, places: int) -> list[Claimed]:
        """Hand in what ended, one by one, and claim with the last of them."""
        if time.monotonic() - self._beaten_at > BEAT_SECONDS:
            await self._ask(calls.octop_beat([self._worker_id]))
            self._beaten_at = time.monotonic()
        for success in self._committed:
            await self._record(success, "success")
        self._committed.clear()
        wanted = dict.fromkeys(sorted(self._queues), places) if places else {}
        successes, outcomes = self._holdings.outbox.take()
        ended: list[Success | Outcome] = [*successes, *outcomes]
        if ended:
            for one in ended[:-1]:
                await self._hand_in(one, {})
            claimed = await self._hand_in(ended[-1], wanted)
        elif wanted:
            claimed, _ = await self._call_exchange(wanted, None)
        else:
            claimed = []
        # a task whose attempt was lost runs in a child process of a worker; here it runs as any other
        return self._holdings.accept([each._replace(isolated=False) for each in claimed])

    async def _hand_in(self, ended: Success | Outcome, wanted: Mapping[str, int]) -> list[Claimed]:
        try:
            claimed, verdict = await self._call_exchange(wanted, ended)
        except (InvalidTaskError, UnexpectedDatabaseError) as error:
            if not is_about_values(error):
                raise
            text = f"the database can not keep the outcome: {error.message}"
            ended = plain_failure(ended.fence, "OutcomeRefused", text, final=isinstance(ended, Success))
            claimed, verdict = await self._call_exchange(wanted, ended)
        await self._record(ended, verdict)
        return claimed

    async def _call_exchange(
        self, wanted: Mapping[str, int], ended: Success | Outcome | None
    ) -> tuple[list[Claimed], str]:
        """Exchange until no lock stands in the way; return the claimed tasks and what became of the outcome."""
        careful = False
        claimed: list[Claimed] = []
        while True:
            try:
                answer = await self._ask(
                    calls.octop_exchange(
                        self._worker_id,
                        wanted=wanted,
                        task_types=list(self._registry),
                        lanes_after=self._lanes,
                        successes=[ended] if isinstance(ended, Success) else [],
                        outcomes=[ended] if isinstance(ended, Outcome) else [],
                        careful=careful,
                        versions=self._versions,
                    )
                )
            except TryAgainError:
                verdict = "again"
            else:
                self._lanes.update(answer.lanes)
                self._has_parked = answer.parked > 0
                claimed += answer.tasks
                verdict = answer.settled[0].verdict if answer.settled else "success"
                wanted = {}  # if the outcome must be sent again, nothing more is claimed with it
            if verdict != "again":
                return claimed, verdict
            if time.monotonic() >= self._end_at:
                message = f"drain stopped after {self._seconds:g} s: another transaction holds a lock on the task"
                raise DrainLimitError(message, hint="Does the test hold a transaction open that has touched it?")
            if careful:
                await asyncio.sleep(LOCKED_SECONDS)
            careful = True

    # --- what came of it ----------------------------------------------------------------------------------------------------

    async def _watch(self, context: Context, call_next: CallNext) -> object:
        """Keep what a task raises, before the worker lets go of its frames."""
        try:
            return await call_next()
        except BaseException as error:
            self._raised[f"{context.task_id} {context.attempt}"] = (error, _beyond_ours(error.__traceback__))
            raise

    async def _record(self, ended: Success | Outcome, verdict: str) -> None:
        key = f"{ended.fence.id} {ended.fence.attempt}"
        claimed = self._claimed[key]
        raised, trace = self._raised.pop(key, (None, None))
        result, error = None, None
        if isinstance(ended, Success):
            result = self._registry[claimed.task_type].decode_result(ended.result)
        elif verdict != "kept" and ended.kind in (OutcomeKind.FAILURE, OutcomeKind.TIMEOUT, OutcomeKind.LOST):
            error = _error_of(ended, raised, trace)
        # lost: somebody else has ended it meanwhile, which only a cancel does here
        # kept: its COMMIT went through, and only the answer was lost
        status = _OTHER_VERDICTS.get(verdict) or Status(verdict)
        arguments = from_text(claimed.payload)
        self._ran.append(
            Ran(
                UUID(claimed.id),
                claimed.task_type,
                arguments if isinstance(arguments, dict) else {},
                claimed.queue,
                claimed.attempt,
                status,
                result,
                error,
            )
        )
        if verdict in ("failed", "frozen"):
            await self._runner.settled(claimed.id, verdict)
        else:
            self._runner.forget(claimed.id)

    async def _next_due(self, until: datetime | None) -> datetime | None:
        found = [due for _, _, due in await self._ask(queued.startable(list(self._registry))) if due is not None]
        if not found:
            return None
        due = datetime.fromisoformat(min(found))
        return due if until is None or due <= until else None

    async def _ask(self, call: Call[R]) -> R:
        return await run_async(self._connection, call)


def _endless_lease() -> Lease:
    lease = Lease()
    lease.until = math.inf  # the drain beats by itself, between tasks
    return lease


def _in_this_process(definition: TaskDefinition) -> TaskDefinition:
    if definition.run_in != "process":
        return definition
    return replace(definition, run_in="loop" if definition.is_async else "thread")


def _error_of(ended: Outcome, raised: BaseException | None, trace: TracebackType | None) -> BaseException:
    if raised is not None and ended.kind is OutcomeKind.FAILURE:
        return raised.with_traceback(trace)
    message = f"{ended.error_class}: {ended.error_message}" if ended.error_class else ended.kind.value
    error = TaskFailedError(message, status="failed", detail=ended.traceback or "")
    error.__cause__ = raised
    return error


def _beyond_ours(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames that lead from here into the task."""
    at = trace
    while at is not None and at.tb_frame.f_code.co_filename.startswith(OURS):
        at = at.tb_next
    return at or trace
