"""Workers made of nothing but the engine's calls, and short ways to ask the database: for tests of the SQL alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from octop.engine import calls
from octop.engine.call import run
from octop.model.task import Claimed, Exchanged, Outcome, OutcomeKind, Success
from octop.model.work import Swept, TaskTypePolicy

Connection = psycopg.Connection[Any]


def rows(connection: Connection, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run a statement and return all its rows."""
    return connection.execute(statement.encode(), values or None).fetchall()


def column(connection: Connection, statement: str, *values: object) -> list[Any]:
    """Run a statement and return the first column of its rows."""
    return [row[0] for row in rows(connection, statement, *values)]


def value(connection: Connection, statement: str, *values: object) -> Any:
    """Run a statement and return the one value that it answers."""
    ((found,),) = rows(connection, statement, *values)
    return found


def do(connection: Connection, statement: str, *values: object) -> int:
    """Run a statement and return how many rows it touched."""
    return connection.execute(statement.encode(), values or None).rowcount


def limit(connection: Connection, queue: str = "default", **columns: object) -> None:
    """Set columns of a queue by hand."""
    do(connection, "insert into octop_queues (name) values (%s) on conflict do nothing", queue)
    for name, given in columns.items():
        do(connection, f"update octop_queues set {name} = %s where name = %s", given, queue)


def task(connection: Connection, task_id: object) -> dict[str, Any]:
    """Return one task as a dictionary, wherever it lies."""
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        found = cursor.execute("select * from octop_tasks where id = %s", (task_id,)).fetchall()
    assert len(found) == 1, f"{len(found)} rows with id {task_id}"
    return found[0]


def add(connection: Connection, task_type: str = "t", **options: object) -> str:
    """Enqueue one task through the function and return its id as text."""
    names = "".join(f", {name} => %s" for name in options)
    return str(value(connection, f"select id::text from octop_enqueue(%s{names})", task_type, *options.values()))


def add_many(connection: Connection, count: int, task_type: str = "t", queue: str = "default") -> list[str]:
    """Insert many tasks at once and return their ids as text, in the order of enqueue."""
    return column(
        connection,
        "with made as (insert into octop_tasks (task_type, queue) select %s, %s from generate_series(1, %s) returning id, seq)"
        " select id::text from made order by seq",
        task_type,
        queue,
        count,
    )


def ages(connection: Connection, seconds: float, *worker_ids: str) -> None:
    """Let the last beat of workers be so many seconds old."""
    do(
        connection,
        "update octop_workers set beat_at = _octop_now() - make_interval(secs => %s) where id = any (%s::text[]::uuid[])",
        seconds,
        list(worker_ids),
    )


def refused(sqlstate: str, connection: Connection, statement: str, *values: Any) -> str:
    """Run a statement that must be refused with this SQLSTATE and a hint; return what was said."""
    with pytest.raises(psycopg.Error) as error:
        do(connection, statement, *values)
    assert error.value.sqlstate == sqlstate, str(error.value)
    assert error.value.diag.message_hint
    return str(error.value)


def acts(connection: Connection) -> list[Any]:
    """List what stands in the audit, less what workers declared."""
    return rows(
        connection,
        "select role, application, action, subject, detail from octop_audit where role <> 'octop_worker' order by seq",
    )


@dataclass
class Worker:
    """One registered worker with a connection as the role octop_worker."""

    connection: Connection
    queues: Sequence[str] = ("default",)
    types: Sequence[str | TaskTypePolicy] = ("t",)
    name: str = "w"
    id: str = field(default_factory=lambda: str(uuid4()))

    @property
    def policies(self) -> list[TaskTypePolicy]:
        return [each if isinstance(each, TaskTypePolicy) else TaskTypePolicy(each) for each in self.types]

    def register(self) -> None:
        run(
            self.connection,
            calls.octop_register(
                self.id,
                name=self.name,
                host="here",
                pid=1,
                supervisor_id=None,
                version="1",
                queues=self.queues,
                task_types=self.policies,
            ),
        )

    def exchange(self, wanted: int = 0, **options: Any) -> Exchanged:
        return run(
            self.connection,
            calls.octop_exchange(
                self.id,
                wanted=dict.fromkeys(self.queues, wanted) if wanted else {},
                task_types=[policy.name for policy in self.policies],
                versions=[policy.version for policy in self.policies],
                **options,
            ),
        )

    def claim(self, wanted: int = 1) -> list[Claimed]:
        return self.exchange(wanted).tasks

    def claim_one(self) -> Claimed:
        (claimed,) = self.claim(1)
        return claimed

    def succeed(self, *claimed: Claimed, result: str | None = None) -> list[str]:
        """Hand in successes and return the verdicts; an accepted success has none."""
        done = self.exchange(successes=[Success(each.fence, result) for each in claimed])
        return [each.verdict for each in done.settled]

    def end(self, claimed: Claimed, kind: str = "failure", **options: Any) -> str:
        """Hand in any other outcome and return the verdict."""
        (settled,) = self.exchange(outcomes=[Outcome(claimed.fence, OutcomeKind(kind), **options)]).settled
        assert settled.id == claimed.id
        return settled.verdict

    def beat(self) -> bool:
        """Beat, and register again if the lease was broken or the row had gone, as a real worker does."""
        unbroken = run(self.connection, calls.octop_beat([self.id]))[self.id]
        if not unbroken:
            self.register()
        return unbroken

    def sweep(self) -> Swept:
        return run(self.connection, calls.octop_sweep(self.id))

    def become_judge(self, dba: Connection) -> None:
        """Beat without a break since long ago, as far as the rows say."""
        do(dba, "update octop_workers set beating_since = '-infinity', beat_at = _octop_now() where id = %s", self.id)
