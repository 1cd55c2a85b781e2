"""Who enqueues: threads that commit and roll back, one task or many, and write down before and after what they meant.

The ids are made here, so that it is known what was meant also where the answer to the commit got lost. Half of those are
enqueued again, under the same ids, until an answer comes: a client may repeat an enqueue.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import psycopg

from octop.model.errors import OctopError
from octop.model.ids import new_id
from octop.task import PreparedCall
from tests.system.faults import bodies
from tests.system.faults.ledger import Ledger

PAUSE_SECONDS_MAX = 0.5
BATCH_MAX = 25
CONNECT_SECONDS = 3
AGAIN_SECONDS = 0.2
CANCEL_SECONDS_MAX = 1.0

NAPS = (bodies.naps_on_loop, bodies.naps_in_thread, bodies.naps_in_process)
NAP_SECONDS = (0.05, 0.3, 1.0, 3.0)
"""The longest is longer than the lease."""
LIMITED = (bodies.runs_alone, bodies.runs_with_two_others, bodies.runs_in_a_lane, bodies.runs_in_order)
SHORT_SECONDS = (0.0, 0.02, 0.1)
LANED = (bodies.runs_in_a_lane, bodies.runs_in_order)
LANES = ("a", "b", "c")

WEIGHTS = {
    bodies.quick_on_loop: 20,
    bodies.quick_in_thread: 15,
    bodies.naps_on_loop: 12,
    bodies.naps_in_thread: 12,
    bodies.naps_in_process: 3,
    bodies.fails_often_on_loop: 8,
    bodies.fails_often_in_thread: 6,
    bodies.always_fails: 4,
    bodies.asks_for_a_retry: 5,
    bodies.snoozes: 5,
    bodies.cancels_itself: 3,
    bodies.overruns_on_loop: 2,
    bodies.overruns_in_thread: 2,
    bodies.overruns_in_process: 1,
    bodies.runs_alone: 6,
    bodies.runs_with_two_others: 6,
    bodies.runs_in_a_lane: 10,
    bodies.runs_in_order: 8,
}

INSERT = "insert into octop_tasks (id, task_type, queue, lane, payload) values (%s, %s, %s, %s, %s::jsonb)"
ENQUEUE = "select octop_enqueue(%s, %s::jsonb, queue => %s, lane => %s, id => %s::uuid)"


class Meant(NamedTuple):
    """One task that is to be."""

    id: str
    task: Any
    arguments: dict[str, object]
    lane: str = ""

    def call(self) -> PreparedCall[Any]:
        caller: PreparedCall[Any] = self.task.using(id=self.id, lane=self.lane).call(**self.arguments)
        return caller


def meant(chance: random.Random) -> Meant:
    """Draw one task."""
    (task,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
    arguments: dict[str, object] = {}
    if task in NAPS:
        (arguments["seconds"],) = chance.choices(NAP_SECONDS, (6, 4, 2, 1))
    if task in LIMITED:
        arguments["seconds"] = chance.choice(SHORT_SECONDS)
    return Meant(new_id(), task, arguments, chance.choice(LANES) if task in LANED else "")


class Producer:
    """One thread that enqueues until it is told to stop."""

    def __init__(self, name: str, seed: int, dsn: str, ledger_dsn: str) -> None:
        self._name = name
        self._chance = random.Random(f"{seed}/{name}")
        self._dsn = dsn
        self._ledger = Ledger(ledger_dsn)
        self._connection: psycopg.Connection[Any] | None = None
        self._over = threading.Event()
        self._count = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.committed: list[str] = []
        self.error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def join(self, seconds: float) -> None:
        """Wait for its end.

        Raises:
            RuntimeError: It has not ended, or not well: then the run proves nothing.
        """
        self._thread.join(seconds)
        if self._thread.is_alive() or self.error is not None:
            raise RuntimeError(f"the producer {self._name} did not end well") from self.error

    def _run(self) -> None:
        try:
            while not self._over.wait(self._chance.uniform(0, PAUSE_SECONDS_MAX)):
                self._one()
        except BaseException as error:
            self.error = error
        finally:
            self._drop()
            self._ledger.close()

    def _one(self) -> None:
        chance = self._chance
        count = chance.randint(2, BATCH_MAX) if chance.random() < 0.25 else chance.randint(1, 2)
        tasks = [meant(chance) for _ in range(count)]
        way = chance.choice(sorted(_WAYS))
        rolls_back = chance.random() < 0.2
        self._count += 1
        batch = f"{self._name}-{self._count}"
        self._ledger.execute(
            "insert into batches (batch, way, ids) values (%s, %s, %s::text[]::uuid[])",
            batch,
            way,
            [each.id for each in tasks],
        )
        ending = self._transaction(_WAYS[way], tasks, rolls_back=rolls_back)
        if ending == "unknown" and chance.random() < 0.5:
            ending = self._again(batch, tasks)
        self._ledger.execute(
            "update batches set ending = %s, changed_at = clock_timestamp() where batch = %s", ending, batch
        )
        if ending == "committed":
            self.committed += [each.id for each in tasks]

    def _transaction(self, way: Way, tasks: Sequence[Meant], *, rolls_back: bool) -> str:
        """Enqueue in one transaction, and tell how it ended: as far as we know."""
        try:
            connection = self._connected()
            connection.execute("begin")
            way(connection, tasks)
            if rolls_back:
                self._roll_back(connection)
                return "rolled back"
        except (psycopg.Error, OctopError):
            self._drop()
            return "rolled back"  # nobody has said COMMIT
        try:
            connection.execute("commit")
        except psycopg.Error:
            self._drop()
            return "unknown"
        return "committed"

    def _roll_back(self, connection: psycopg.Connection[Any]) -> None:
        if self._chance.random() < 0.5:
            connection.execute("rollback")
        else:
            self._drop()

    def _again(self, batch: str, tasks: Sequence[Meant]) -> str:
        while True:
            self._ledger.execute("update batches set meant_at = clock_timestamp() where batch = %s", batch)
            if self._transaction(_many, tasks, rolls_back=False) == "committed":
                return "committed"
            if self._over.wait(AGAIN_SECONDS):
                return "unknown"

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._dsn,
                autocommit=True,
                application_name="producer",
                connect_timeout=CONNECT_SECONDS,
                prepare_threshold=None,
            )
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


Way = Callable[[psycopg.Connection[Any], Sequence[Meant]], None]


def _insert(connection: psycopg.Connection[Any], tasks: Sequence[Meant]) -> None:
    for each in tasks:
        call = each.call().task
        connection.execute(INSERT, (each.id, call.task_type, call.declared_queue, each.lane, call.payload))


def _function(connection: psycopg.Connection[Any], tasks: Sequence[Meant]) -> None:
    for each in tasks:
        call = each.call().task
        connection.execute(ENQUEUE, (call.task_type, call.payload, call.declared_queue, each.lane, each.id))


def _single(connection: psycopg.Connection[Any], tasks: Sequence[Meant]) -> None:
    for each in tasks:
        each.task.using(id=each.id, lane=each.lane, connection=connection).enqueue_sync(**each.arguments)


def _many(connection: psycopg.Connection[Any], tasks: Sequence[Meant]) -> None:
    bodies.octop.enqueue_many_sync((each.call() for each in tasks), connection=connection)


_WAYS: dict[str, Way] = {"insert": _insert, "function": _function, "single": _single, "many": _many}


class Canceller(Producer):
    """One thread that cancels tasks of others, whatever state they are in."""

    def __init__(self, seed: int, dsn: str, ledger_dsn: str, others: Sequence[Producer]) -> None:
        super().__init__("canceller", seed, dsn, ledger_dsn)
        self._others = others

    def _one(self) -> None:
        if self._over.wait(self._chance.uniform(0, CANCEL_SECONDS_MAX)):
            return
        # the newest are mostly about to be claimed, the others run, wait for a retry, or have ended
        latest = self._chance.choice((2, 2, 40))
        known = [id for other in self._others for id in other.committed[-latest:]]
        if not known:
            return
        task_id = self._chance.choice(known)
        self._ledger.execute("insert into cancels (task_id) values (%s)", task_id)
        with contextlib.suppress(psycopg.Error):
            try:
                row = self._connected().execute("select octop_cancel(%s, 'for a test')", (task_id,)).fetchone()
            except psycopg.Error as error:
                if error.sqlstate != "OC104":
                    self._drop()
                    raise
                row = ("success",)
            verdict = "" if row is None else str(row[0])
            self._ledger.execute(
                "update cancels set verdict = %s, answered_at = clock_timestamp() where task_id = %s and verdict = 'unknown'",
                verdict,
                task_id,
            )
