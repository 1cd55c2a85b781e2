"""One place in which a task runs, and the steps by which it is run."""

import asyncio
import math
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context as Variables
from enum import StrEnum
from typing import Any, Final

from octop.model.context import Context
from octop.model.task import Claimed
from octop.worker import copies
from octop.worker.children import Child
from octop.worker.threads import Job

INTERRUPTS_MAX: Final = 3


class Reason(StrEnum):
    """Why an attempt was ended from outside."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"
    PAUSED = "paused"
    LOST = "lost"


class AttemptContext(Context):
    """The context of an attempt that runs in this process.

    Attributes:
        stopped: What ``cancelled`` says.
    """

    stopped = False

    def lend(self, connection: Any) -> None:
        """Take what ``connection`` returns; None = it is over."""
        self._connection = connection

    @property
    def cancelled(self) -> bool:
        """Tell whether the attempt should stop."""
        return self.stopped


class Slot:
    """A place for one task at a time, and the asyncio task that works in it.

    Attributes:
        task: The asyncio task of this place; it outlives the tasks that run in it.
        claimed: What runs here; None = nothing.
        context: What the task knows of itself.
        reason: Why it is being ended from outside; None = it is not.
        interrupts: How many times it has been told to end.
        recorded: Its outcome is on its way, whatever it still does.
        deadline: Monotonic moment of the next thing to be done about it.
        alarm_at: Earliest moment at which the watchdog looks at this place anyway.
        job: The thread that runs it; None = it runs elsewhere.
        child: The process that runs it; None = it runs elsewhere.
        waited: The task has waited for something at least once.
        began: Monotonic moment of the start, where ends are told (``Runner.tells``).
        starting: What is to run it, a process or a connection, is not ready yet; the time limit begins when it is.
        cut: Ends its transaction at once, whatever it still does; None = it has none here.
        committing: Its success is about to be committed by itself: that the database believes it has ended is no loss.
        committed: What it returned, after that.
        waiter: Set while the place is empty and waits.
    """

    __slots__ = (
        "alarm_at",
        "began",
        "child",
        "claimed",
        "committed",
        "committing",
        "context",
        "cut",
        "deadline",
        "interrupts",
        "job",
        "reason",
        "recorded",
        "starting",
        "task",
        "waited",
        "waiter",
    )

    def __init__(self) -> None:
        """Begin empty."""
        self.task: asyncio.Task[None] | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.alarm_at = math.inf
        self.began = 0.0
        self.waited = True
        self.clear()

    def clear(self) -> None:
        """Forget the task: nothing of it stays reachable."""
        self.claimed: Claimed | None = None
        self.context: AttemptContext | None = None
        if self.waited:  # most tasks never wait, and touch nothing of this
            self.waited = False
            self.reason: Reason | None = None
            self.interrupts = 0
            self.recorded = False
            self.starting = False
            self.deadline = math.inf
            self.job: Job | None = None
            self.child: Child | None = None
            self.cut: Callable[[], None] | None = None
            self.committing = False
            self.committed: tuple[Any] | None = None

    def interrupt(self, reason: Reason) -> None:
        """Tell the task to end. The first reason stands."""
        if self.claimed is None or self.recorded:
            return
        self.reason = self.reason or reason
        self.interrupts += 1
        if self.context is not None:
            self.context.stopped = True
        if self.task is not None:
            self.task.cancel()


@types.coroutine
def stepped(
    variables: Variables, coroutine: Coroutine[Any, Any, Any], wanted: object, resumed: Callable[[], None]
) -> Generator[Any, Any, Any]:
    """Go on with a coroutine that has made its first step, inside its own context.

    An asyncio task for each task would cost more than most tasks: its steps are made by the asyncio task of the place. Context
    variables that it sets end with it.

    Args:
        variables: The context of this attempt.
        coroutine: What runs.
        wanted: What it yielded last.
        resumed: Called before each further step.
    """
    send, throw, run = coroutine.send, coroutine.throw, variables.run
    while True:
        error: BaseException | None = None
        value = None
        try:
            value = yield wanted
        except BaseException as thrown:  # noqa: BLE001 - cancellation above all: it belongs to the task
            error = thrown
        resumed()
        try:
            wanted = run(send, value) if error is None else run(throw, error)
        except StopIteration as stop:
            return stop.value
        finally:
            error = None
            if copies.is_one:
                copies.end()
