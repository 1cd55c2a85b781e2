"""Two and more sessions in an order that the test decides: nothing sleeps, everything waits for what the server shows."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar
from uuid import uuid4

from psycopg import Connection

from octop.engine import calls
from octop.engine.call import Call, run
from octop.model.task import Exchanged, Success
from octop.model.work import NewTask, TaskTypePolicy
from tests.servers import Database

R = TypeVar("R")
PATIENCE_SECONDS = 15


class Session:
    """A connection with a thread of its own: `start` sends a statement and comes back while it may be waiting for a lock."""

    def __init__(self, database: Database, role: str | None = None) -> None:
        self.database = database
        self.connection: Connection[Any] = database.connect(role)
        self.pid = self.connection.info.backend_pid

    def run(self, call: Call[R]) -> R:
        return run(self.connection, call)

    def execute(self, text: str, values: Any = None) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(text, values)
        return cursor.fetchall() if cursor.description else []

    def start(self, what: Callable[[], R]) -> Running[R]:
        return Running(self, what)


class Running(Generic[R]):
    """What a session is doing in its thread."""

    def __init__(self, session: Session, what: Callable[[], R]) -> None:
        self.session = session
        self.future: Future[R] = Future()
        self.thread = threading.Thread(target=self._work, args=(what,), daemon=True)
        self.thread.start()

    def _work(self, what: Callable[[], R]) -> None:
        try:
            self.future.set_result(what())
        except BaseException as failure:
            self.future.set_exception(failure)

    def wait_until_blocked(self) -> Running[R]:
        """Wait until the server shows that this session waits for a lock.

        Raises:
            AssertionError: It ended instead, or never waited.
        """
        with self.session.database.connect() as watcher:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while time.monotonic() < deadline:
                row = watcher.execute("select cardinality(pg_blocking_pids(%s))", [self.session.pid]).fetchone()
                if row is not None and row[0] > 0:
                    return self
                assert not self.future.done(), f"it did not wait: {self.future}"
        message = "the session never waited for a lock"
        raise AssertionError(message)

    def result(self) -> R:
        return self.future.result(PATIENCE_SECONDS)


@contextlib.contextmanager
def sessions(database: Database, count: int) -> Iterator[list[Session]]:
    made = [Session(database) for _ in range(count)]
    try:
        yield made
    finally:
        for session in made:
            session.connection.close()


class Worker:
    """What a worker knows, without a worker: its id and its calls."""

    def __init__(
        self, session: Session, queues: tuple[str, ...] = ("default",), types: tuple[str, ...] = ("job",)
    ) -> None:
        self.id = str(uuid4())
        self.session = session
        self.queues = queues
        self.types = types
        self.register()

    def register(self) -> None:
        self.session.run(
            calls.octop_register(
                self.id,
                name="",
                host="",
                pid=1,
                supervisor_id=None,
                version="",
                queues=self.queues,
                task_types=[TaskTypePolicy(name) for name in self.types],
            )
        )

    def exchange(self, wanted: int = 0, **rest: Any) -> Exchanged:
        call = calls.octop_exchange(self.id, wanted=dict.fromkeys(self.queues, wanted), task_types=self.types, **rest)
        return self.session.run(call)

    def claim(self, wanted: int = 100) -> list[Success]:
        """Claim tasks and return their successes, to be handed in."""
        return [Success(task.fence) for task in self.exchange(wanted).tasks]


def enqueue(session: Session, count: int = 1, **options: Any) -> list[str]:
    tasks = [NewTask("job", "{}", str(uuid4()), **options) for _ in range(count)]
    return [id for id, _ in session.run(calls.octop_enqueue_many(tasks))]


def status(session: Session, id: str) -> str | None:
    found = session.run(calls.octop_task(id))
    return found.status if found is not None else None
