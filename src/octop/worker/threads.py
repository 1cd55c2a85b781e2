"""Threads for tasks that block. They are daemons: one that never ends must not keep the process from ending."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

from octop.worker import copies

IDLE_SECONDS_MAX: Final = 60.0


class Job:
    """One call in a thread.

    Attributes:
        ended: Done when the thread is free again, even if nobody waits for the answer any more.
        thread: Identifier of the thread, while it is in the call.
    """

    __slots__ = ("_call", "_variables", "answer", "ended", "error", "thread")

    def __init__(self, variables: Context, call: Callable[[], Any], ended: "asyncio.Future[None]") -> None:
        """Keep what to call, and in which context."""
        self._variables = variables
        self._call = call
        self.ended = ended
        self.answer: Any = None
        self.error: BaseException | None = None
        self.thread: int | None = None

    def run(self) -> None:
        """Call it, and keep what came of it; never raises."""
        self.thread = threading.get_ident()
        try:
            self.answer = self._variables.run(self._call)
        except BaseException as error:  # noqa: BLE001 - SystemExit in a thread must not end it unseen
            self.error = error
        finally:
            self.thread = None


class Threads:
    """As many threads as are busy at once; idle ones end after a minute."""

    def __init__(self) -> None:
        """Begin without threads."""
        self._loop = asyncio.get_running_loop()
        self._idle: list[queue.SimpleQueue[Job | None]] = []
        self._ended: deque[Job] = deque()
        self._lock = threading.Lock()
        self._count = 0

    def start(self, variables: Context, call: Callable[[], Any]) -> Job:
        """Start a call in a thread, now."""
        job = Job(variables, call, self._loop.create_future())
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            self._count += 1
            threading.Thread(target=self._live, args=(inbox,), name=f"octop-task-{self._count}", daemon=True).start()
        inbox.put(job)
        return job

    def close(self) -> None:
        """Let idle threads end; busy ones are left to themselves."""
        with self._lock:
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _live(self, inbox: "queue.SimpleQueue[Job | None]") -> None:
        while True:
            try:
                job = inbox.get(timeout=IDLE_SECONDS_MAX)
            except queue.Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                continue  # somebody has just taken it: the job is on its way
            if job is None:
                return
            job.run()
            if copies.is_one:
                copies.end()
            self._ended.append(job)
            del job  # nothing of a finished task stays reachable from an idle thread
            with self._lock:
                self._idle.append(inbox)
            try:
                self._loop.call_soon_threadsafe(self._tell)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

    def _tell(self) -> None:
        while self._ended:
            job = self._ended.popleft()
            if not job.ended.done():
                job.ended.set_result(None)
