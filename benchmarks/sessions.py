"""Sessions that commit as fast as they can: blocking connections in threads of a few processes, each statement its own transaction."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

import psycopg
from psycopg.pq import ExecStatus

from octop.model.ids import new_id

PROCESSES: Final = 4
"""More than cores: while one interpreter waits for its lock, another sends."""
SESSIONS: Final = 16
WARM: Final = 3
ENQUEUE: Final = "octop_enqueue_many"
UNWOKEN: Final = "octop_enqueue_unwoken"
"""The same function without its look for sleepers; `bench_notify` makes it."""
_CALL: Final = (
    "select count(*) from {}(array['no_op'], array['{{\"n\": 0}}'], array[$1::uuid], fresh => true, "
    "declared_queues => array['bench'])"
)
_INSERT: Final = """insert into bare (id, payload) values ($1::uuid, '{"n": 0}')"""
WAYS: Final = {
    "enqueue": _CALL.format(ENQUEUE),
    "enqueue unwoken": _CALL.format(UNWOKEN),
    "insert": _INSERT,
    "insert and notify": f"with one as ({_INSERT}) select pg_notify('octop_wake', 'bench')",
}
"""What each commit does: a statement with the id of a task."""


class Sessions:
    """Processes that are ready to open sessions."""

    def __init__(self, processes: ProcessPoolExecutor) -> None:
        self._processes = processes

    def rate(self, dsn: str, way: str, seconds: float) -> tuple[float, int]:
        """Let 16 sessions commit for so many seconds; return the commits per second of all together, and all commits.

        Args:
            dsn: Their database.
            way: What each commit does, a key of `WAYS`.
            seconds: How long.
        """
        begin = time.monotonic() + 0.4  # until then all are connected; the clock is the machine's
        parts = [
            self._processes.submit(commits, dsn, way, SESSIONS // PROCESSES, begin, begin + seconds)
            for _ in range(PROCESSES)
        ]
        found = [part.result() for part in parts]
        return sum(rate for rate, _ in found), sum(count for _, count in found)


@contextlib.contextmanager
def sessions() -> Iterator[Sessions]:
    """Start the processes for the length of a `with`."""
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as processes:
        # each imports what it needs now, not in the first measured second
        list(processes.map(time.sleep, [0.5] * PROCESSES))
        yield Sessions(processes)


def commits(dsn: str, way: str, number: int, begin: float, end: float) -> tuple[float, int]:
    """Commit in so many sessions of this process from one monotonic moment to another.

    Returns:
        Their commits per second, and the commits, those of warming up included.
    """
    statement = WAYS[way].encode()
    rates: list[float] = []
    counts: list[int] = []
    errors: list[BaseException] = []

    def session() -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                for _ in range(WARM):  # the server plans, and loads its catalogue
                    commit(connection, statement)
                time.sleep(max(0.0, begin - time.monotonic()))
                began, count = time.monotonic(), 0
                while (now := time.monotonic()) < end:
                    commit(connection, statement)
                    count += 1
                rates.append(count / (now - began))
                counts.append(count + WARM)
        except BaseException as error:  # noqa: BLE001 - a thread's error is raised below, in who waits for it
            errors.append(error)

    threads = [threading.Thread(target=session) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(rates), sum(counts)


def commit(connection: psycopg.Connection[tuple[object, ...]], statement: bytes) -> None:
    """Run a statement, and commit, by the bare library: what Python would do with the values is not the question.

    Raises:
        RuntimeError: The server refused.
    """
    answer = connection.pgconn.exec_params(statement, [new_id().encode()])
    if answer.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise RuntimeError(answer.error_message.decode(errors="replace"))
