"""What does waking up cost those who enqueue: NOTIFY only when a worker sleeps, against none, and against one in every transaction?

    python -m benchmarks.bench_notify [--full] [--rounds 5] [--durable]

NOTIFY takes a lock of the whole server from the commit's beginning to its end, so commits that notify queue up, one behind the other. 16
sessions enqueue one task per transaction, by the function that Octop's own `enqueue` calls. `--durable` shows it most: the lock is then
held while the log is written to the disk.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, LiteralString

import psycopg

from benchmarks.answer import Answer, Line
from benchmarks.contender import Arena, median, tell
from benchmarks.octop_worker import octop_worker
from benchmarks.peers.peer import OCTOP
from benchmarks.script import Extent, main
from benchmarks.sessions import ENQUEUE, SESSIONS, UNWOKEN, Sessions, sessions

NOBODY: Final = "no worker of the queue"
UNLOOKED: Final = "no look for sleepers at all"
FULL: Final = "a busy worker, all its places taken"
DRAINING: Final = "a busy worker that runs these tasks"
ASLEEP: Final = "asleep for ever: a NOTIFY each time"
INSERT: Final = "insert"
INSERT_AND_NOTIFY: Final = "insert and NOTIFY"
NOTES: Final = {
    UNLOOKED: "octop_enqueue_many without it",
    DRAINING: "it takes processor time, too",
    ASLEEP: "as if it were sent whoever sleeps",
}
PLACES: Final = 2
HOLD: Final[LiteralString] = (
    "insert into octop_tasks (task_type, queue, payload) "
    """select 'hold', 'bench', '{"seconds": 3600}' from generate_series(1, %s)"""
)
KNOW: Final[LiteralString] = "insert into octop_task_types (name, queue) values ('no_op', 'bench')"
"""As a worker that was here and left: so that all databases look alike to an enqueue."""
FALL_ASLEEP: Final[LiteralString] = (
    "insert into _octop_sleepers (queue, worker_id, wake_at) values ('bench', gen_random_uuid(), 'infinity')"
)
WAKE_UP: Final[LiteralString] = "delete from _octop_sleepers"
LOOK: Final = re.compile(r"exists \(select from _octop_sleepers s where (?:[^()]|\([^()]*\))*\)")
WAKE: Final = re.compile(
    r"\n  if [^\n]*v_asleep[^\n]* then\n    perform _octop_wake\(v_queues, v_due\);\n  end if;(?=\n)"
)


def without_look(definition: str) -> str:
    """Return the definition of octop_enqueue_many under another name, without its look for sleepers.

    Raises:
        RuntimeError: It does not look as this benchmark knows it.
    """
    found, looks = LOOK.subn("false", definition)
    found, wakes = WAKE.subn("", found)
    if (looks, wakes) != (2, 1) or "_octop_sleepers" in found or "_octop_wake" in found:
        message = f"{ENQUEUE} has changed: {looks} looks for sleepers were found and {wakes} calls to wake them, not two and one"
        raise RuntimeError(message)
    return found.replace(ENQUEUE, UNWOKEN)


class Listener:
    """A connection that listens, as a worker that sleeps does, and counts what it hears."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("listen octop_wake")
        self._ended = threading.Event()
        self.heard = 0
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._ended.is_set():
            for _ in self._connection.notifies(timeout=0.1):
                self.heard += 1

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._connection.close()


class Place:
    """A database with sessions' target in it, and a listener."""

    def __init__(self, arena: Arena, dsn: str) -> None:
        self.dsn = dsn
        self.connection = arena.server.connect(dsn)
        self.listener = Listener(dsn)

    def close(self) -> None:
        self.listener.close()
        self.connection.close()

    def rate(self, crowd: Sessions, way: str, seconds: float) -> tuple[float, float]:
        """Return the commits per second, and the notifications heard per 1,000 commits."""
        heard = self.listener.heard
        rate, commits = crowd.rate(self.dsn, way, seconds)
        return rate, 1000 * (self.listener.heard - heard) / commits


@contextlib.contextmanager
def place(arena: Arena, places: int = 0) -> Iterator[Place]:
    """Give a database, with a worker that has so many places, for the length of a `with`. Each has its own: LISTEN ends at its border."""
    with contextlib.ExitStack() as stack:
        found = Place(arena, stack.enter_context(arena.fresh(OCTOP)))
        stack.callback(found.close)
        if places == PLACES:
            found.connection.execute(HOLD, (PLACES,))
        if places:
            worker = stack.enter_context(octop_worker(found.dsn, batch=places))
            if places == PLACES:
                worker.wait_for(PLACES)
            wait_until(found.connection, "select exists (select from octop_workers)")
        yield found


def wait_until(connection: Any, question: LiteralString, seconds: float = 60.0) -> None:
    """Ask until the answer is yes.

    Raises:
        RuntimeError: It took too long.
    """
    deadline = time.monotonic() + seconds
    while not connection.execute(question).fetchone()[0]:
        if time.monotonic() > deadline:
            message = f"not so after {seconds:.0f} s: {question}"
            raise RuntimeError(message)
        time.sleep(0.02)


def measure(arena: Arena, extent: Extent) -> list[Answer]:
    seconds, turns = (3.0 if extent.full else 0.5), extent.turns(3, 10)
    found: dict[str, list[tuple[float, float]]] = {}
    tell("notify: three databases, two workers, 16 sessions")
    with place(arena) as alone, place(arena, PLACES) as full, place(arena, 500) as draining, sessions() as crowd:
        alone.connection.execute(KNOW)
        [[definition]] = alone.connection.execute("select pg_get_functiondef(%s::regproc)", (ENQUEUE,)).fetchall()
        alone.connection.execute(without_look(definition).encode())
        alone.connection.execute("create table bare (id uuid primary key, payload jsonb not null)")

        def asleep() -> tuple[float, float]:
            alone.connection.execute(FALL_ASLEEP)
            try:
                return alone.rate(crowd, "enqueue", seconds)
            finally:
                alone.connection.execute(WAKE_UP)

        def run_by_a_worker() -> tuple[float, float]:
            answer = draining.rate(crowd, "enqueue", seconds)
            wait_until(draining.connection, "select not exists (select from octop_tasks_live)")
            return answer

        cases: dict[str, Callable[[], tuple[float, float]]] = {
            NOBODY: lambda: alone.rate(crowd, "enqueue", seconds),
            UNLOOKED: lambda: alone.rate(crowd, "enqueue unwoken", seconds),
            FULL: lambda: full.rate(crowd, "enqueue", seconds),
            DRAINING: run_by_a_worker,
            ASLEEP: asleep,
            INSERT: lambda: alone.rate(crowd, "insert", seconds),
            INSERT_AND_NOTIFY: lambda: alone.rate(crowd, "insert and notify", seconds),
        }
        names = list(cases)
        for turn in range(turns):
            tell(f"notify: round {turn + 1} of {turns}")
            for name in [*names[turn % len(names) :], *names[: turn % len(names)]]:
                found.setdefault(name, []).append(cases[name]())
    return answers({name: found[name] for name in names})


def answers(found: dict[str, list[tuple[float, float]]]) -> list[Answer]:
    """Put together what was found: for each case, per round, commits per second and notifications per 1,000 commits."""
    rule = f"{SESSIONS} sessions, each task its own transaction."
    lines = [
        Line(
            name,
            median(rate for rate, _ in runs),
            [rate for rate, _ in runs],
            NOTES.get(name, ""),
            {"NOTIFY per 1,000": median(heard for _, heard in runs)},
        )
        for name, runs in found.items()
    ]
    bare = [line for line in lines if line.name in (INSERT, INSERT_AND_NOTIFY)]
    own = [line for line in lines if line not in bare]
    return [
        Answer(f"Enqueue by {SESSIONS} sessions, by who sleeps", "commits/s", base=NOBODY, lines=own, rule=rule),
        Answer(f"A bare INSERT by {SESSIONS} sessions", "commits/s", base=INSERT, lines=bare, rule=rule),
    ]


if __name__ == "__main__":
    main(measure, __doc__)
