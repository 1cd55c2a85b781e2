"""What happens in the demo: which tasks are enqueued, what is done to them, and what is seen of them."""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import date
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from octop.cli.demo import tasks
from octop.cli.demo.picture import KindState, WorkerState
from octop.cli.moments import between, spoken
from octop.engine import calls, reads, steering
from octop.engine.call import run
from octop.model.errors import OctopError
from octop.model.ids import new_id
from octop.model.task import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octop.cli.demo.picture import Picture
    from octop.task import PreparedCall

BULK: Final = 20_000
PRIORITIES: Final = range(10)
PING_SECONDS: Final = 0.3
"""Between two tasks that measure the delay."""
TRICKLE_SECONDS: Final = 1.0
FAILURES: Final = 12
LEASE_SECONDS: Final = 3
FRESH_SECONDS: Final = 1.5
"""So old is the last heartbeat at most when the lease becomes short."""
DELAYS_MAX: Final = 200
ABSENT: Final = "absent"


class ChangeOfMindError(Exception):
    """The demo's own reason to roll a transaction back."""


class Story:
    """Enqueues, steers and watches; one step at a time, on one connection.

    Attributes:
        picture: What is known; changed by each step.
        trickle: Go on with new tasks when all kinds have been enqueued.
        bulk_seconds: How long it took to enqueue the bulk.
    """

    def __init__(self, connection: Any, picture: Picture, *, trickle: bool) -> None:
        """Keep the connection and the picture that is to be filled."""
        self._connection = connection
        self.picture = picture
        self.trickle = trickle
        self.bulk_seconds = 0.0
        self._kinds: dict[str, KindState] = {}
        self._pings: list[str] = []
        self._next_ping = 0.0
        self._next_trickle = 0.0
        self._trickled = 0
        self._silent_seconds = -1.0
        self._looked_at: tuple[float, int] | None = None

    def begin(self) -> None:
        """Enqueue one task of every kind; the crash comes later."""
        add = self._add
        add("async", "awaits on the event loop", Status.SUCCESS, tasks.send_welcome.call(42))
        add("thread", "blocks in a thread", Status.SUCCESS, tasks.resize_image.call("cat.png", width=640))
        report = tasks.render_report.call(date(2030, 1, 31))
        add("process", "runs in a child process", Status.SUCCESS, report)
        flaky = tasks.call_flaky_service.call("https://example.org")
        add("recovers", "fails twice, then works", Status.SUCCESS, flaky)
        add("freezes", "all retries used up", Status.FROZEN, tasks.charge_card.call(1001))
        add("time limit", "ends after 1 s", Status.FROZEN, tasks.ask_slow_api.call())
        add("endless loop", "is killed after 1.5 s", Status.FROZEN, tasks.spin_forever.call())
        add("cancelled", "runs until we cancel it", Status.CANCELLED, tasks.export_everything.call())
        add("gives up", "cancels itself", Status.CANCELLED, tasks.ship_order.call(1002))
        add("scheduled", "due in 3 s", Status.SUCCESS, tasks.close_day.using(delay=3).call())
        add("snoozed", "comes back after 1 s", Status.SUCCESS, tasks.poll_upload.call())
        urgent_last = [tasks.answer_ticket.using(priority=each).call(each) for each in reversed(PRIORITIES)]
        add("priorities", "urgent ones first", Status.SUCCESS, *urgent_last)
        self._add_plain_sql()
        self._add_unknown()
        self._add_rolled_back()
        self._add_crash()
        self._add_bulk()

    def step(self) -> None:
        """Look at everything once, and do what the story wants next."""
        self._look_at_counts()
        self._look_at_workers()
        self._look_at_kinds()
        self._ping()
        if self.trickle:
            self._enqueue_trickle()

    def checks(self) -> dict[str, object]:
        """Return what the demo claims and has checked, for `--json`."""
        delays = self.picture.delays
        return {
            "rolled_back_appeared": self._kinds["rolled back"].okay is False,
            "priorities_in_order": self._kinds["priorities"].okay,
            "first_finished_within_5_seconds": (self.picture.first_finished_seconds or 99) <= 5,
            "start_delay_ms_median": round(1000 * (self.picture.delay_median or 0), 2) if delays else None,
            "start_delay_ms_worst": round(1000 * max(delays), 2) if delays else None,
        }

    # --- enqueue ------------------------------------------------------------------------------------------------------

    def _kind(self, name: str, says: str, expected: str, task_type: str, *ids: str) -> KindState:
        kind = KindState(name, says, str(expected), task_type, list(ids), max(1, len(ids)))
        self._kinds[name] = kind
        self.picture.kinds.append(kind)
        return kind

    def _add(self, name: str, says: str, expected: str, *prepared: PreparedCall[Any]) -> None:
        ids = tasks.octop.enqueue_many_sync(prepared, return_ids=True)
        self._kind(name, says, expected, prepared[0].task.task_type, *map(str, ids))

    def _add_plain_sql(self) -> None:
        task_id = new_id()
        statement = resources.files(__package__).joinpath("plain_insert.sql").read_bytes()
        self._connection.execute(statement, (task_id,))
        self._kind("plain SQL", "INSERT INTO octop_tasks", Status.SUCCESS, "greet", task_id)

    def _add_unknown(self) -> None:
        handle = tasks.octop.enqueue_sync("paint_house", {"colour": "blue"})
        self._kind("unknown type", "parked, no try used", Status.BLOCKED, "paint_house", str(handle.id))

    def _add_rolled_back(self) -> None:
        with contextlib.suppress(ChangeOfMindError), self._connection.transaction():
            handle = tasks.book_seat.using(connection=self._connection).enqueue_sync("12A")
            kind = self._kind("rolled back", "its transaction never was", ABSENT, "book_seat", str(handle.id))
            kind.status = ABSENT
            raise ChangeOfMindError

    def _add_bulk(self) -> None:
        def enqueue() -> None:
            began = time.monotonic()
            try:
                tasks.octop.enqueue_many_sync(tasks.count_click.call(n) for n in range(BULK))
            except OctopError as error:  # at the end of the demo its database goes away, wherever we are
                kind.note = error.message
            else:
                self.bulk_seconds = time.monotonic() - began

        kind = self._kind("bulk", f"{BULK:,} at once", Status.SUCCESS, "count_click")
        kind.total, kind.status = BULK, Status.PENDING
        # Beside us, so that the view goes on; one transaction, so that its tasks appear all at once.
        threading.Thread(target=enqueue, name="bulk", daemon=True).start()

    def _add_crash(self) -> None:
        self._kind("crash", "kills its worker process", Status.SUCCESS, "crash_process")

    def _enqueue_trickle(self) -> None:
        now = time.monotonic()
        if now < self._next_trickle:
            return
        self._next_trickle = now + TRICKLE_SECONDS
        self._trickled += 1
        number = 10_000 + self._trickled
        tasks.send_welcome.enqueue_sync(number)
        tasks.resize_image.enqueue_sync(f"photo-{number}.png", width=320)
        if self._trickled % 3 == 0:
            tasks.render_report.enqueue_sync(date(2030, 1, 1 + self._trickled % 28))
        if self._trickled % 5 == 0:
            tasks.call_flaky_service.enqueue_sync(f"https://example.org/{number}")
        if self._trickled % 10 == 0:
            tasks.octop.enqueue_many_sync(tasks.count_click.call(n) for n in range(2_000))

    def _ping(self) -> None:
        for task_id in list(self._pings):
            row = run(self._connection, reads.task(task_id))
            if row is not None and row["started_at"]:
                self._pings.remove(task_id)
                delay = between(row["scheduled_at"], row["started_at"])
                if delay is not None and row["attempt"] == 1:
                    self.picture.delays.append(delay)
                    del self.picture.delays[:-DELAYS_MAX]
        now = time.monotonic()
        # Only a worker that is there can start something.
        if now >= self._next_ping and self.picture.workers and len(self._pings) < 5:
            self._next_ping = now + PING_SECONDS
            self._pings.append(str(tasks.ping.enqueue_sync().id))

    # --- look ---------------------------------------------------------------------------------------------------------

    def _look_at_counts(self) -> None:
        counts = {row["status"]: int(row["count"]) for row in run(self._connection, reads.summary())}
        self.picture.counts = counts
        now, finished = time.monotonic(), self.picture.finished
        if self._looked_at is not None:
            before, then = self._looked_at
            self.picture.remember_rate(max(0, finished - then) / max(1e-3, now - before))
        self._looked_at = (now, finished)
        if finished and self.picture.first_finished_seconds is None:
            self.picture.first_finished_seconds = self.picture.since_start

    def _look_at_workers(self) -> None:
        running: dict[str, list[tuple[str, int, float]]] = {}
        for row in run(self._connection, reads.running_by_type()):
            running.setdefault(row["worker_id"], []).append((row["task_type"], row["count"], row["running_seconds"]))
        rows = [row for row in run(self._connection, reads.list_workers()) if row["state"] != "silent"]
        self._silent_seconds = max((row["silent_seconds"] for row in rows), default=-1.0)
        self.picture.workers = [
            WorkerState(str(row["name"] or row["host"]), int(row["pid"] or 0), running.get(row["id"], []))
            for row in rows
        ]
        self.picture.failures = [
            (row["task_type"], f"{row['outcome']}: {row['error_message'] or row['error_class'] or 'its worker died'}")
            for row in run(self._connection, reads.latest_failures(FAILURES))
        ]

    def _look_at_kinds(self) -> None:
        for kind in self.picture.kinds:
            if kind.settled and kind.expected != ABSENT:
                continue
            if kind.name == "bulk":
                self._look_at_bulk(kind)
            elif kind.name == "rolled back":
                appeared = run(self._connection, reads.task(kind.ids[0])) is not None
                kind.settled, kind.okay = True, not appeared
                kind.status = "appeared" if appeared else ABSENT
            elif kind.ids:
                self._look_at_rows(kind)
        crash = self._kinds["crash"]
        others_ended = all(kind.settled for kind in self.picture.kinds if kind is not crash)
        # Last of all: whatever else runs in that process loses a try with it, and runs again in a process of its own.
        if not crash.ids and others_ended and 0 <= self._silent_seconds < FRESH_SECONDS:
            # Short, so that the dead worker is found while you look; only now, so that a busy machine harms nothing before.
            run(self._connection, calls.octop_config_set("worker.lease_seconds", str(LEASE_SECONDS)))
            crash.ids = [str(tasks.crash_process.enqueue_sync().id)]

    def _look_at_rows(self, kind: KindState) -> None:
        rows = [row for task_id in kind.ids if (row := run(self._connection, reads.task(task_id))) is not None]
        statuses = {row["status"] for row in rows}
        kind.status = next((each for each in PROGRESS if each in statuses), "-")
        if kind.name == "cancelled" and kind.status == Status.RUNNING and not rows[0]["cancel_requested_at"]:
            run(self._connection, calls.octop_cancel(kind.ids[0], "the demo wants to see it end"))
        ended = {str(each) for each in Status if each.final} | {kind.expected}
        if len(rows) < kind.total or not statuses <= ended:
            return
        kind.settled = True
        kind.okay = statuses == {kind.expected} and (kind.name != "priorities" or _in_order(rows))
        kind.note = _note(kind, rows)

    def _look_at_bulk(self, kind: KindState) -> None:
        if not self.bulk_seconds:
            return  # asked before the look: a look at an empty queue that is filled a moment later would pass for the end
        queue = next((row for row in run(self._connection, steering.list_queues()) if row["name"] == "bulk"), None)
        if queue is None:
            return
        left = queue["waiting"] + queue["running"] + queue["blocked"]
        kind.status = Status.RUNNING if left else Status.SUCCESS
        kind.note = f"{BULK - min(left, BULK):,} of {BULK:,}"
        if not left:
            ended = {
                row["status"]: row["total"]
                for row in run(self._connection, reads.throughput())
                if row["queue"] == "bulk"
            }
            kind.settled, kind.okay = True, ended.get("success", 0) >= BULK and not ended.get("frozen")
            kind.note = f"all {BULK:,}"


PROGRESS: Final = ("pending", "running", "failed", "blocked", "frozen", "cancelled", "success")
"""Of many tasks, the one that is least advanced gives the status of the kind."""


def _in_order(rows: Sequence[dict[str, Any]]) -> bool:
    """Tell whether the urgent tasks started before those that can wait; two processes may swap neighbours."""
    urgent = [row["started_at"] for row in rows if row["priority"] <= 3]
    patient = [row["started_at"] for row in rows if row["priority"] >= 7]
    return bool(max(urgent) <= min(patient))


def _note(kind: KindState, rows: Sequence[dict[str, Any]]) -> str:
    row = rows[0]
    match kind.name:
        case "recovers" | "crash":
            return f"worked at try {row['retry_count'] + 1}"
        case "freezes":
            return f"after {row['attempt']} tries"
        case "scheduled":
            return f"{spoken(between(row['due_at'], row['started_at']))} late"
        case "snoozed":
            return f"{row['attempt']} starts, {row['retry_count']} retries used"
        case "priorities":
            return "in order" if kind.okay else "not in order"
    return ""
