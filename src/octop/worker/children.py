"""Child processes that run one task at a time and can be killed. This is the worker's side; ``child`` is theirs."""

import asyncio
import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import Final

from octop.model.errors import ApplicationError
from octop.worker.frames import Inbox, Message, encoded, identity_of, opened, read_message
from octop.worker.memory import MB, resident_bytes

RUNS_MAX: Final = 500
IDLE_SECONDS_MAX: Final = 60.0


class ChildLostError(Exception):
    """The process ended before the task did, or what it says can not be believed."""


class Child:
    """One child process, kept warm between tasks.

    Attributes:
        runs: How many tasks it has begun.
        idle_since: Monotonic moment of its last answer.
    """

    def __init__(self, process: asyncio.subprocess.Process, reader: Inbox, writer: asyncio.StreamWriter) -> None:
        """Keep the process and the two ways to it."""
        self._process = process
        self._reader = reader
        self._writer = writer
        self.runs = 0
        self.idle_since = time.monotonic()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Tell whether another task may be given to it."""
        return self._process.returncode is None and self.runs < RUNS_MAX and self._is_silent()

    def _is_silent(self) -> bool:
        """Tell whether nothing has come since the last answer: a word too many would pass for the answer to the next question."""
        if self._reader.at_eof() or self._reader.has_unread or self._writer.is_closing():
            return False
        poll = select.poll()
        poll.register(self._writer.get_extra_info("socket"), select.POLLIN)
        return not poll.poll(0)  # what the loop has not read yet, or the end of the stream

    async def ask(self, message: Message) -> Message:
        """Send a message and wait for the answer.

        Raises:
            ChildLostError: The process ended instead, and the message says how; or it answered another question, and was
                killed.
        """
        self._writer.write(encoded(message))
        with contextlib.suppress(ConnectionError):  # the answer, or its absence, tells more
            await self._writer.drain()
        return await self.answer(message)

    async def answer(self, message: Message) -> Message:
        """Wait for a further answer to a message; see ``ask``."""
        answer = await read_message(self._reader)
        if answer is None:
            await asyncio.sleep(0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._process.wait()
            ending = ended_how(self._process.returncode)
            self.kill()
            raise ChildLostError(ending)
        if identity_of(answer) != identity_of(message):
            self.kill()
            reason = "the process of the task answered another question"
            raise ChildLostError(reason)
        self.idle_since = time.monotonic()
        return answer

    def kill(self) -> None:
        """End the process and all that it started."""
        self.runs = RUNS_MAX
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._writer.close()

    async def wait(self) -> None:
        """Wait for the end of a killed process."""
        await self._process.wait()


def ended_how(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is None:
        return "the process of the task closed its channel"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"the process of the task was ended by {name}"
    return f"the process of the task exited with code {code}"


def environment_of_children(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for processes in which only tasks run.

    Tasks enqueue tasks, so they get the database that the application itself would use. Where the worker's rights are more than tasks
    need, ``OCTOP_TASK_DSN`` names what they get instead; empty = none at all.
    """
    # what signs alerts is none of the tasks' business
    kept = {name: value for name, value in environment.items() if not name.startswith("OCTOP_ALERT_")}
    own = kept.pop("OCTOP_TASK_DSN", None)
    if own is not None:
        for name in ("OCTOP_DSN", "DATABASE_URL", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE"):
            kept.pop(name, None)
        if own:
            kept["OCTOP_DSN"] = own
    return kept


class Children:
    """The child processes of one worker: as many as are busy at once; idle ones end after a minute."""

    def __init__(
        self, application: str | None, import_folder: str | None = None, memory_mb_max: int | None = None
    ) -> None:
        """Begin without processes.

        Args:
            application: What each of them imports; None = process tasks can not be run.
            import_folder: Where its module is looked for first.
            memory_mb_max: One that uses more gets no further task; None = no cap.
        """
        self._application = application
        self._import_folder = import_folder
        self._bytes_max = None if memory_mb_max is None else memory_mb_max * MB
        self._idle: list[Child] = []
        self._all: set[Child] = set()

    async def take(self) -> Child:
        """Return a child that waits for a task; start one if there is none.

        Raises:
            ApplicationError: There is nothing to import, or it does not import there.
            ChildLostError: The process ended while it started.
        """
        while self._idle:
            child = self._idle.pop()
            if child.is_usable:
                return child
            self._forget(child)
        return await self._start()

    def give_back(self, child: Child) -> None:
        """Keep a child for the next task, or end it when it has served."""
        if child.is_usable and not self._is_heavy(child):
            self._idle.append(child)
        else:
            self._forget(child)

    def _is_heavy(self, child: Child) -> bool:
        return self._bytes_max is not None and resident_bytes(child.pid) > self._bytes_max

    def prune(self) -> None:
        """End those that have been idle for a minute."""
        oldest = time.monotonic() - IDLE_SECONDS_MAX
        for child in [child for child in self._idle if child.idle_since < oldest]:
            self._idle.remove(child)
            self._forget(child)

    async def close(self) -> None:
        """Kill all of them, with what runs in them."""
        children, self._all, self._idle = self._all, set(), []
        for child in children:
            child.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                for child in children:
                    await child.wait()

    def _forget(self, child: Child) -> None:
        self._all.discard(child)
        child.kill()

    def _hello(self) -> Message:
        return {
            "application": self._application,
            "folder": self._import_folder,
            "parent": os.getpid(),
            "path": sys.path,
        }

    async def _start(self) -> Child:
        if self._application is None:
            message = "a task that runs in a process needs an application that can be imported by name"
            raise ApplicationError(message, hint="Start the worker with -A module:attribute.")
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "octop.worker.child",
                stdin=theirs.fileno(),
                stdout=2,  # what a task prints is a message, not data of ours
                start_new_session=True,  # a terminal's Ctrl-C is for the worker; and all that it starts dies with it
                env=environment_of_children(os.environ),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await opened(ours)
        child = Child(process, reader, writer)
        self._all.add(child)
        try:
            answer = await child.ask(self._hello())
        except BaseException:
            self._forget(child)
            raise
        if "unable" in answer:
            self._forget(child)
            raise ApplicationError(
                str(answer["unable"]), hint="The same import worked in the worker: does it depend on it?"
            )
        return child
