"""A random walk over the whole engine, judged step by step by the model of `tests.sql.model`.

The walk is the same in each run. A longer one, and another one each time:

    OCTOP_WALK_EXAMPLES=2000 OCTOP_WALK_STEPS=100 pytest tests/sql/test_walk.py
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID, uuid5

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from psycopg import Connection

from octop.engine import calls
from octop.engine.call import run
from octop.model import errors
from octop.model.task import Fence, Outcome, OutcomeKind, Success
from octop.model.work import NewTask, TaskTypePolicy
from tests.sql.model import Model, Task

EXAMPLES = os.environ.get("OCTOP_WALK_EXAMPLES")
STEPS = int(os.environ.get("OCTOP_WALK_STEPS", "50"))
START = datetime(2030, 1, 1, 12, tzinfo=UTC)
QUEUES = ("left", "right")
LANES = ("", "", "", "one", "two")
TYPES = ("a", "a", "b", "stranger")
NAMESPACE = UUID("0f4a2a86-54a5-4ad5-9a4c-0bd6ab9b3d3b")
WORKERS = [str(uuid5(NAMESPACE, f"worker {n}")) for n in range(3)]

KINDS = ["success", "success", "failure", "failure", "timeout", "snoozed", "cancelled", "released"]
OUTCOME_DELAY_SECONDS = 3.0

# How often each thing happens, in relation to the others.
WEIGHTS = {
    "enqueue": 8,
    "insert": 3,
    "enqueue_again": 1,
    "register": 2,
    "beat": 1,
    "deregister": 1,
    "claim": 8,
    "work": 10,
    "send_again": 3,
    "sweep": 6,
    "ask_what_is_owned": 1,
    "ask_what_to_cancel": 1,
    "cancel": 3,
    "retry": 5,
    "update_by_hand": 4,
    "pause": 1,
    "resume": 2,
    "configure": 1,
    "wait": 12,
}
NEEDS_A_TASK = {"enqueue_again", "cancel", "retry", "update_by_hand"}


class Walk(RuleBasedStateMachine):
    """Three workers, two queues, and everything that may happen to a task."""

    connection: Connection[Any]

    @initialize()
    def begin(self) -> None:
        self.model = Model(START)
        self.dice = Random(0)
        self.made = 0
        self.fences: dict[str, list[tuple[str, int, str]]] = {worker: [] for worker in WORKERS}
        self.last: tuple[str, list[tuple[tuple[str, int, str], str]]] | None = None
        self.connection.execute(
            "truncate octop_tasks, octop_attempts, octop_workers, octop_queues, octop_task_types, octop_holds, octop_audit,"
            " _octop_sleepers, _octop_counters, _octop_counter_deltas"
        )
        self.connection.execute(
            "update octop_config set value = '{\"value\": 3}' where key = 'task.default_max_retries'"
        )
        self._turn_clock()
        for worker in WORKERS:
            self.register(worker, ("a", "b"))

    @rule(seed=st.integers(0, 2**64 - 1))
    def step(self, seed: int) -> None:
        """Do one thing. Dice, not strategies: with one rule per thing Hypothesis leaves most of them out of most walks."""
        self.dice = Random(seed)
        names = [name for name in WEIGHTS if self.model.tasks or name not in NEEDS_A_TASK]
        name = self.dice.choices(names, [WEIGHTS[name] for name in names])[0]
        note(name)
        getattr(self, name)()

    def _some_task(self) -> str:
        """Choose a task; often a frozen one, which are few."""
        frozen = sorted(id for id, task in self.model.tasks.items() if task.status == "frozen")
        return self.dice.choice(frozen if frozen and self.dice.random() < 0.5 else sorted(self.model.tasks))

    def _runs_again(self, worker: str, fence: tuple[str, int, str]) -> bool:
        task = self.model.tasks[fence[0]]
        return task.status == "running" and task.worker == worker and task.attempt > fence[1]

    def _options(self) -> dict[str, Any]:
        return {
            "task_type": self.dice.choice(TYPES),
            "queue": self.dice.choice(QUEUES),
            "lane": self.dice.choice(LANES),
            "priority": self.dice.randint(0, 3),
            "delay_seconds": self.dice.choice([0.0, 0.0, 0.0, 5.0, 60.0]),
            "max_retries": self.dice.choice([None, None, 0, 1, 2]),
        }

    def _turn_clock(self) -> None:
        self.connection.execute("update _test_clock set at = %s", [self.model.now])

    def _new_id(self) -> str:
        self.made += 1
        return str(uuid5(NAMESPACE, f"task {self.made}"))

    def _note(self, id: str, option: dict[str, Any]) -> None:
        self.model.tasks[id] = Task(
            id,
            option["task_type"],
            option["queue"],
            option["lane"],
            option["priority"],
            self.model.now + timedelta(seconds=option["delay_seconds"]),
            option["max_retries"],
        )

    # --- producers ----------------------------------------------------------------------------------------------------

    def enqueue(self) -> None:
        chosen = [self._options() for _ in range(self.dice.randint(1, 4))]
        fresh = self.dice.random() < 0.5
        tasks = [NewTask(payload="{}", id=self._new_id(), **option) for option in chosen]
        made = run(self.connection, calls.octop_enqueue_many(tasks, fresh=fresh))
        assert made == [(task.id, True) for task in tasks]
        for task, option in zip(tasks, chosen, strict=True):
            self._note(task.id, option)

    def insert(self) -> None:
        option = self._options()
        id = self._new_id()
        self.connection.execute(
            "insert into octop_tasks (id, task_type, queue, lane, priority, max_retries, scheduled_at)"
            " values (%s, %s, %s, %s, %s, %s, _octop_now() + make_interval(secs => %s))",
            [
                id,
                option["task_type"],
                option["queue"],
                option["lane"],
                option["priority"],
                option["max_retries"],
                option["delay_seconds"],
            ],
        )
        self._note(id, option)

    def enqueue_again(self) -> None:
        id = self._some_task()
        again = NewTask("a", "{}", id, queue="left")
        assert run(self.connection, calls.octop_enqueue_many([again], fresh=False)) == [(id, False)]

    # --- workers ------------------------------------------------------------------------------------------------------

    def register(self, worker: str | None = None, types: tuple[str, ...] = ()) -> None:
        worker = worker or self.dice.choice(WORKERS)
        types = types or self.dice.choice([("a", "b"), ("a", "b"), ("a",), ("a", "b", "stranger")])
        run(
            self.connection,
            calls.octop_register(
                worker,
                name="",
                host="",
                pid=1,
                supervisor_id=None,
                version="",
                queues=QUEUES,
                task_types=[TaskTypePolicy(name) for name in types],
            ),
        )
        self.model.register(worker, frozenset(QUEUES), frozenset(types))

    def beat(self, some: list[str] | None = None) -> None:
        some = some or self.dice.sample(WORKERS, self.dice.randint(1, 3))
        answer = run(self.connection, calls.octop_beat(some))
        assert answer == {worker: self.model.beat(worker) for worker in some}

    def deregister(self) -> None:
        worker = self.dice.choice(WORKERS)
        assert run(self.connection, calls.octop_deregister(worker)) == self.model.deregister(worker)

    def claim(self) -> None:
        """Hand in some outcomes, true ones and stale ones, and claim from both queues; the answer may be lost on the way."""
        worker = self.dice.choice(WORKERS)
        pool = self.dice.sample(self.fences[worker], min(len(self.fences[worker]), self.dice.randint(0, 5)))
        if self.dice.random() < 0.5:  # what it once lost, and runs again under another attempt
            pool += [fence for fence in self.fences[worker] if self._runs_again(worker, fence)][:2]
        handed = {fence[0]: fence for fence in pool}
        ends = [(fence, self.dice.choice(KINDS)) for fence in handed.values()]
        self._exchange(
            worker,
            ends,
            wanted=self.dice.choice([0, 1, 2, 5]),
            careful=self.dice.random() < 0.3,
            answered=self.dice.random() < 0.8,
        )
        self.last = (worker, ends)

    def work(self) -> None:
        """Hand in an outcome for each of the latest tasks, once, and claim more: the usual cycle."""
        worker = self.dice.choice(WORKERS)
        latest = {fence[0]: fence for fence in self.fences[worker][-8:]}
        ends = [(fence, self.dice.choice(KINDS)) for fence in latest.values()]
        self._exchange(worker, ends, wanted=5, careful=False, answered=True)
        self.last = (worker, ends)

    def send_again(self) -> None:
        """Send the outcomes of the last exchange once more: its answer was lost."""
        if self.last is not None:
            self._exchange(*self.last, wanted=0, careful=self.dice.random() < 0.5, answered=True)

    def _exchange(
        self, worker: str, ends: list[tuple[tuple[str, int, str], str]], *, wanted: int, careful: bool, answered: bool
    ) -> None:
        known = self.model.workers.get(worker)
        types = known.types if known is not None else frozenset("a")
        successes = [Success(Fence(*fence), '"done"') for fence, kind in ends if kind == "success"]
        others = [
            Outcome(
                Fence(*fence),
                OutcomeKind(kind),
                error_class="E",
                delay_seconds=OUTCOME_DELAY_SECONDS if kind == "snoozed" else None,
            )
            for fence, kind in ends
            if kind != "success"
        ]
        call = calls.octop_exchange(
            worker,
            wanted=dict.fromkeys(QUEUES, wanted),
            task_types=sorted(types),
            successes=successes,
            outcomes=others,
            careful=careful,
        )
        answer = run(self.connection, call)
        verdicts = {settled.id: settled.verdict for settled in answer.settled}
        for fence, kind in sorted(ends, key=lambda end: end[1] != "success"):
            should = self.model.hand_in(worker, fence, kind)
            if kind == "success" and should == "kept":
                assert fence[0] not in verdicts
            else:
                assert verdicts[fence[0]] == should
            self._take_over_delay(fence[0], kind, should)
        assert verdicts.keys() <= {fence[0] for fence, _ in ends}
        for queue in QUEUES:
            got = [(task.id, task.attempt) for task in answer.tasks if task.queue == queue]
            claim = next((task.claim_id for task in answer.tasks), "")
            for task in answer.tasks:
                assert task.isolated == (self.model.tasks[task.id].lost_count > 0)
            self.model.claim(worker, queue, wanted, types, got, claim)
        if answer.parked:
            self._take_over_parked(types, answer.parked)
        if answered:
            self.fences[worker] += [(task.id, task.attempt, task.claim_id) for task in answer.tasks]

    def _take_over_delay(self, id: str, kind: str, verdict: str) -> None:
        """Jitter is the engine's choice, within its bounds."""
        task = self.model.tasks[id]
        if (kind, verdict) == ("snoozed", "pending"):
            task.scheduled_at = self.model.now + timedelta(seconds=OUTCOME_DELAY_SECONDS)
        elif verdict == "failed":
            self._take_over_jitter(task)

    def _take_over_jitter(self, task: Task) -> None:
        row = self.connection.execute("select scheduled_at from octop_tasks where id = %s", [task.id]).fetchone()
        assert row is not None
        most = min(30.0, 2.0 ** (task.retry_count - 1))
        assert most * 0.75 - 0.001 <= (row[0] - self.model.now).total_seconds() <= most + 0.001
        task.scheduled_at = row[0]

    def _take_over_parked(self, types: frozenset[str], count: int) -> None:
        rows = self.connection.execute("select id::text from octop_tasks where status = 'blocked'").fetchall()
        new = [id for (id,) in rows if self.model.tasks[id].status != "blocked"]
        assert len(new) == count
        for id in new:
            self.model.park(id, types)

    def sweep(self) -> None:
        worker = self.dice.choice(WORKERS)
        swept = run(self.connection, calls.octop_sweep(worker))
        before = {id: task.retry_count for id, task in self.model.tasks.items()}
        assert (swept.rescued, swept.overdue) == self.model.sweep(worker)
        for id, task in self.model.tasks.items():
            if task.status == "failed" and task.retry_count != before[id]:
                self._take_over_jitter(task)
        rows = self.connection.execute("select id::text from octop_workers").fetchall()
        for gone in self.model.workers.keys() - {id for (id,) in rows}:
            assert self.model.workers.pop(gone).beat_at < self.model.now - timedelta(hours=1)

    def ask_what_is_owned(self) -> None:
        worker = self.dice.choice(WORKERS)
        fences = self.fences[worker][-20:]
        owned = run(self.connection, calls.octop_owned(worker, [Fence(*fence) for fence in fences]))
        assert owned == {
            id
            for id, attempt, claim in fences
            if (it := self.model.tasks[id]).status == "running"
            and (it.worker, it.attempt, it.claim) == (worker, attempt, claim)
        }

    def ask_what_to_cancel(self) -> None:
        worker = self.dice.choice(WORKERS)
        latest = {fence[0]: Fence(*fence) for fence in self.fences[worker][-20:]}
        control = run(self.connection, calls.octop_control(worker, list(latest.values())))
        running = [task for task in self.model.tasks.values() if task.status == "running" and task.worker == worker]
        assert set(control.cancel) == {task.id for task in running if task.cancel_requested}
        assert set(control.lost) == latest.keys() - {
            task.id for task in running if task.id in latest and task.attempt == latest[task.id].attempt
        }

    # --- people and time ----------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        id = self._some_task()
        should = self.model.cancel(id)
        if should == "refused":
            with pytest.raises(errors.TaskStatusError):
                run(self.connection, calls.octop_cancel(id, "why"))
        else:
            assert run(self.connection, calls.octop_cancel(id, "why")) == should

    def retry(self) -> None:
        id = self._some_task()
        new = None
        with suppress(errors.TaskStatusError):
            new = run(self.connection, calls.octop_retry(id))
        assert self.model.retry(id, new) == (new or "refused")

    def update_by_hand(self) -> None:
        id = self._some_task()
        status = self.dice.choice(["pending", "pending", "failed", "cancelled", "success", "running", "frozen"])
        try:
            self.connection.execute("update octop_tasks set status = %s where id = %s", [status, id])
        except psycopg.Error as refusal:
            accepted, reason = False, refusal.sqlstate
        else:
            accepted, reason = True, None
        assert reason in {None, "OC102", "23514"}
        assert self.model.update_by_hand(id, status) == accepted

    def pause(self) -> None:
        queue = self.dice.choice(QUEUES)
        assert run(self.connection, calls.octop_pause(queue)) == (queue not in self.model.paused)
        self.model.paused.add(queue)

    def resume(self) -> None:
        queue = self.dice.choice(QUEUES)
        assert run(self.connection, calls.octop_resume(queue)) == (queue in self.model.paused)
        self.model.paused.discard(queue)

    def configure(self) -> None:
        retries = self.dice.randint(0, 3)
        run(self.connection, calls.octop_config_set("task.default_max_retries", str(retries)))
        self.model.retries = retries

    def wait(self) -> None:
        """Let time pass; all others beat every ten seconds."""
        seconds = self.dice.choice([1, 3, 9, 9, 19, 31, 320])
        silent = self.dice.sample(WORKERS, self.dice.choice([0, 0, 1, 2]))
        end = self.model.now + timedelta(seconds=seconds)
        beating = [worker for worker in WORKERS if worker not in silent and worker in self.model.workers]
        while beating and self.model.now + timedelta(seconds=10) < end and seconds < 60:
            self.model.now += timedelta(seconds=10)
            self._turn_clock()
            self.beat(beating)
        self.model.now = end
        self._turn_clock()
        if beating:
            self.beat(beating)

    # --- after each step ----------------------------------------------------------------------------------------------

    @invariant()
    def the_tables_are_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        rows = self.connection.execute(
            "select id::text, status, attempt, retry_count, lost_count,"
            " case when status = 'running' then worker_id::text end, case when status in ('running', 'success') then claim_id::text end,"
            " scheduled_at, cancel_requested_at is not null from octop_tasks"
        ).fetchall()
        are = {row[0]: row[1:] for row in rows}
        should = {
            task.id: (
                task.status,
                task.attempt,
                task.retry_count,
                task.lost_count,
                task.worker if task.status == "running" else None,
                task.claim if task.status in {"running", "success"} else None,
                task.scheduled_at,
                task.cancel_requested,
            )
            for task in self.model.tasks.values()
        }
        wrong = {id: (are.get(id), should.get(id)) for id in are | should if are.get(id) != should.get(id)}
        assert not wrong, f"(is, should be): {wrong}"
        assert len(rows) == len(self.model.tasks)
        assert all(task.successes <= 1 for task in self.model.tasks.values())

    @invariant()
    def every_end_is_written_down_once(self) -> None:
        if not hasattr(self, "model"):
            return
        rows = self.connection.execute(
            "select task_id::text, attempt, outcome, claim_id::text from octop_attempts"
        ).fetchall()
        assert {(id, attempt): (outcome, claim) for id, attempt, outcome, claim in rows} == {
            (task.id, attempt): end for task in self.model.tasks.values() for attempt, end in task.ends.items()
        }

    @invariant()
    def counters_and_views_tell_the_truth(self) -> None:
        if not hasattr(self, "model"):
            return
        rows = self.connection.execute("select status, count from octop_task_summary").fetchall()
        assert dict(rows) == self.model.counts()
        rows = self.connection.execute(
            "select queue, status, sum(n)::integer from _octop_counted() group by 1, 2 having sum(n) <> 0"
        ).fetchall()
        assert {(queue, status): n for queue, status, n in rows} == self.model.counters()


@pytest.mark.slow
@pytest.mark.long
def test_walk(database):
    database.clock.set(START)
    with database.connect() as connection:
        connection.execute("set synchronous_commit = off")
        machine = type("Walk", (Walk,), {"connection": connection})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=int(EXAMPLES or 40),
                stateful_step_count=STEPS,
                derandomize=EXAMPLES is None,
                deadline=None,
                database=None,
                phases=[Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate],
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
