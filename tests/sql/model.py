"""What a task's life should be, in a few plain Python objects: the judge of the random walk.

Nothing here knows SQL. Where the engine may choose (jitter, which of several lanes), the model says whether a choice was
legal and takes it over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

LEASE = timedelta(seconds=30)
DEADLINE_GRACE = timedelta(seconds=10)
TIMEOUT = timedelta(seconds=300)
UNFINISHED = ("pending", "failed", "blocked", "running", "frozen")
WAITING = ("pending", "failed")

Fence = tuple[str, int, str]
"""Task, attempt, claim."""


@dataclass
class Task:
    id: str
    task_type: str
    queue: str
    lane: str
    priority: int
    scheduled_at: datetime
    max_retries: int | None
    status: str = "pending"
    attempt: int = 0
    retry_count: int = 0
    lost_count: int = 0
    worker: str | None = None
    claim: str | None = None
    deadline_at: datetime | None = None
    cancel_requested: bool = False
    ends: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    successes: int = 0

    @property
    def turn(self) -> tuple[int, datetime, bytes]:
        return (self.priority, self.scheduled_at, UUID(self.id).bytes)

    def stop(self, status: str) -> None:
        self.status = status
        self.deadline_at = None
        self.cancel_requested = False
        if status in WAITING:
            self.worker = self.claim = None


@dataclass
class Worker:
    beat_at: datetime
    since: datetime
    queues: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


@dataclass
class Model:
    now: datetime
    retries: int = 3
    tasks: dict[str, Task] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    declared: set[str] = field(default_factory=set)

    # --- workers ------------------------------------------------------------------------------------------------------

    def register(self, id: str, queues: frozenset[str], types: frozenset[str]) -> None:
        self.workers.setdefault(id, Worker(self.now, self.now))  # not a beat: a broken lease must still show
        self.workers[id].queues = queues
        self.workers[id].types = types
        self.declared |= types
        self.unpark()

    def beat(self, id: str) -> bool:
        known = self.workers.get(id)
        unbroken = known is not None and known.beat_at > self.now - LEASE
        if known is None:
            if any(task.status == "running" and task.worker == id for task in self.tasks.values()):
                self.workers[id] = Worker(self.now, self.now)
        else:
            known.beat_at = self.now
            if not unbroken:
                known.since = self.now
        return unbroken

    def deregister(self, id: str) -> int:
        mine = [task for task in self.tasks.values() if task.status == "running" and task.worker == id]
        for task in mine:
            self._settle(task, "released", final=False)
        self.workers.pop(id, None)
        return len(mine)

    def alive(self, worker: Worker) -> bool:
        return worker.beat_at > self.now - LEASE

    def known_somewhere(self, task_type: str, queue: str) -> bool:
        return any(
            self.alive(worker) and task_type in worker.types and queue in worker.queues
            for worker in self.workers.values()
        )

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def hand_in(self, worker: str, fence: Fence, kind: str, *, final: bool = False) -> str:
        """Take an outcome and answer what the engine should: kept for one that was accepted before, lost for a stale one."""
        id, attempt, claim = fence
        task = self.tasks[id]
        if task.status == "running" and (task.worker, task.attempt, task.claim) == (worker, attempt, claim):
            if kind == "success":
                task.stop("success")
                task.successes += 1
                return "kept"
            return self._settle(task, kind, final=final)
        accepted = (task.status, task.attempt, task.claim) == ("success", attempt, claim)
        if (
            kind != "success"
        ):  # of an attempt that has succeeded nothing else is true: its worker did not hear of its commit
            accepted = accepted or task.ends.get(attempt) == (kind, claim)
        return "kept" if accepted else "lost"

    def _settle(self, task: Task, kind: str, *, final: bool) -> str:
        task.ends[task.attempt] = (kind, task.claim)
        task.lost_count += kind == "lost"
        limit = self.retries if task.max_retries is None else task.max_retries
        if kind == "cancelled" or task.cancel_requested:
            following = "cancelled"
        elif kind in {"snoozed", "released"}:
            following = "pending"
        elif final or task.retry_count >= limit:
            following = "frozen"
        else:
            following = "failed"
            task.retry_count += 1
        task.stop(following)
        return following

    # --- claims -------------------------------------------------------------------------------------------------------

    def claim(
        self, worker: str, queue: str, wanted: int, types: frozenset[str], got: list[tuple[str, int]], claim: str
    ) -> None:
        """Take over what a worker got from a queue, if it was a legal choice.

        Raises:
            AssertionError: It was not, or there was more to get.
        """
        me = self.workers.get(worker)
        may = me is not None and me.beat_at > self.now - LEASE * 2 / 3 and queue not in self.paused
        due = [
            task
            for task in self.tasks.values()
            if may
            and task.queue == queue
            and task.status in WAITING
            and task.scheduled_at <= self.now
            and task.task_type in types
        ]
        chosen = {id for id, _ in got}
        assert len(chosen) == len(got) <= wanted
        assert chosen <= {task.id for task in due}, "claimed what may not start"
        assert len(chosen) == min(wanted, len(due)), "there was more to get"
        lanes = {task.lane for task in due}  # tasks without a lane are a lane of their own
        if wanted >= len(lanes):
            assert {self.tasks[id].lane for id in chosen} == lanes, "a lane did not get its turn"
        for lane in lanes:
            line = sorted((task for task in due if task.lane == lane), key=lambda task: task.turn)
            mine = [task.id for task in line if task.id in chosen]
            assert mine == [task.id for task in line[: len(mine)]], "not in the order of its lane"
        for id, attempt in got:
            task = self.tasks[id]
            task.attempt += 1
            assert attempt == task.attempt, "attempts count 1, 2, 3"
            task.status = "running"
            task.worker = worker
            task.claim = claim
            task.deadline_at = self.now + TIMEOUT

    def park(self, id: str, types: frozenset[str]) -> None:
        """Take over that a claim set a task aside, if nobody who lives knows its type."""
        task = self.tasks[id]
        assert task.status in WAITING
        assert task.scheduled_at <= self.now
        assert task.task_type not in types
        assert not self.known_somewhere(task.task_type, task.queue), "parked what another worker knows"
        task.status = "blocked"

    def unpark(self) -> None:
        for task in self.tasks.values():
            if task.status == "blocked" and any(
                self.alive(worker) and task.task_type in worker.types for worker in self.workers.values()
            ):
                task.status = "failed" if task.retry_count else "pending"

    # --- sweep --------------------------------------------------------------------------------------------------------

    def sweep(self, judge: str) -> tuple[int, int]:
        me = self.workers.get(judge)
        rescued = overdue = 0
        if me is not None and self.alive(me) and me.since <= self.now - LEASE:
            for task in self.tasks.values():
                if task.status == "running" and task.worker is not None:
                    # its row was deleted: its lease begins now
                    owner = self.workers.setdefault(task.worker, Worker(self.now, self.now))
                    if not self.alive(owner):
                        self._settle(task, "lost", final=False)
                        rescued += 1
        for task in self.tasks.values():
            if (
                task.status == "running"
                and task.deadline_at is not None
                and task.deadline_at < self.now - DEADLINE_GRACE
            ):
                task.lost_count += 1  # its worker let it pass: from now on it runs in a process of its own
                self._settle(task, "timeout", final=False)
                overdue += 1
        self.unpark()
        return rescued, overdue

    # --- people -------------------------------------------------------------------------------------------------------

    def cancel(self, id: str) -> str:
        task = self.tasks[id]
        if task.status == "success":
            return "refused"
        if task.status == "running":
            task.cancel_requested = True
            return "requested"
        if task.status != "cancelled":
            task.stop("cancelled")
            task.worker = task.claim = None
        return "cancelled"

    def retry(self, id: str, new: str | None = None) -> str:
        task = self.tasks[id]
        if task.status in {"running", "blocked"}:
            return "refused"
        if task.status in {"success", "cancelled"}:
            assert new is not None
            assert new not in self.tasks
            self.tasks[new] = Task(
                new, task.task_type, task.queue, task.lane, task.priority, self.now, task.max_retries
            )
            return new
        if task.status == "frozen":
            task.retry_count = 0
        task.stop("pending")
        task.scheduled_at = self.now
        return id

    def update_by_hand(self, id: str, status: str) -> bool:
        """Set a status as the owner may, and say whether he may."""
        task = self.tasks[id]
        legal = (
            (task.status in {"frozen", "failed", "running"} and status == "pending")
            or (task.status == "running" and status == "failed")
            or (task.status in UNFINISHED and status == "cancelled")
        )
        if not legal:
            return task.status == status
        if task.status == "running":
            task.ends[task.attempt] = ("cancelled" if status == "cancelled" else "released", task.claim)
        if task.status == "frozen" and status == "pending":
            task.retry_count = 0
        task.stop(status)
        task.worker = task.claim = None
        if status != "cancelled":
            task.scheduled_at = self.now
        return True

    # --- what can be counted ------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for task in self.tasks.values():
            found[task.status] = found.get(task.status, 0) + 1
        return found

    def counters(self) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for task in self.tasks.values():
            if task.status != "running":
                key = (task.queue, "waiting" if task.status in WAITING else task.status)
                found[key] = found.get(key, 0) + 1
        return found
