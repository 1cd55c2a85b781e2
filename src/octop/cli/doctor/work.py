"""Workers, queues, task types and tasks: whether all that waits is served by somebody who lives."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from octop.cli.doctor.kinds import found
from octop.cli.findings import Finding, psql
from octop.cli.moments import spoken
from octop.cli.output import number
from octop.engine.diagnosis import work

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination

LONG_SECONDS: Final = 86_400.0
SHOWN: Final = 10
STUCK_SECONDS: Final = 60.0
"""A sweep comes every few seconds, and an idle worker looks at the latest every scheduler.interval_seconds."""
COUNTED: Final = 10_000
"""More are not counted: the number would not change what is to be done."""
COMPARED: Final = 50_000
"""Counters that say more than this are believed: to count millions would take too long."""


def silent(examination: Examination) -> Iterator[Finding]:
    """Look for workers that have not beaten for longer than the lease."""
    workers = [worker for worker in examination.ask(work.workers()) if worker["state"] == "silent"]
    for worker in [each for each in workers if each["running"]][:SHOWN]:
        yield found(
            "workers.silent",
            f"{_named(worker)} has been silent for {spoken(worker['silent_seconds'])} and holds {number(worker['running'], 'task')}",
            psql(f"select {examination.sql('octop_lost')}('{worker['id']}');"),
        )
    empty = [each for each in workers if not each["running"]]
    if empty:
        yield found(
            "workers.left_behind",
            f"{number(len(empty), 'worker')} gone without a word, with nothing held: {', '.join(map(_named, empty[:3]))}",
            psql(*(f"select {examination.sql('octop_lost')}('{each['id']}');" for each in empty[:SHOWN])),
        )


def versions(examination: Examination) -> Iterator[Finding]:
    """Compare the versions of living workers with each other and with the schema."""
    alive = [worker for worker in examination.ask(work.workers()) if worker["state"] != "silent"]
    schema = examination.installed.version or ""
    older = [worker for worker in alive if worker["version"] != schema and _number(worker["version"]) < _number(schema)]
    for worker in older[:SHOWN]:
        yield found(
            "workers.older_than_schema",
            f"{_named(worker)} runs Octop {worker['version'] or '?'}, the schema is that of {schema}",
            psql(
                f"select {examination.sql('octop_drain')}('{worker['id']}');   -- it ends its tasks and claims no more"
            )
            + examination.worker(""),
        )
    versions = sorted({worker["version"] for worker in alive}, key=_number)
    if len(versions) > 1 and not older:
        yield found("workers.mixed_versions", f"living workers run {', '.join(versions)}", examination.octop("workers"))


def unserved(examination: Examination) -> Iterator[Finding]:
    """Look for queues in which tasks are due and that no living worker serves."""
    rows = examination.ask(work.unserved(COUNTED))
    said = {
        row["name"]: f"{_counted(row['due'])} tasks of the queue {row['name']} are due, the oldest since"
        f" {spoken(row['oldest_due_seconds'])}, and nobody serves it"
        for row in rows
    }
    if len(said) > SHOWN:
        yield found(
            "queues.unserved",
            f"{len(said):,} queues hold due tasks and nobody serves them",
            examination.worker(f" -q {shlex.quote(','.join(said))}"),
            (*list(said.values())[:SHOWN], f"and {len(said) - SHOWN:,} more"),
        )
        return
    for name, what in said.items():
        yield found("queues.unserved", what, examination.worker(f" -q {shlex.quote(name)}"))


def stopped(examination: Examination) -> Iterator[Finding]:
    """Look for queues whose limit lets nothing start."""
    for row in examination.ask(work.stopped(COUNTED))[:SHOWN]:
        yield found(
            "queues.stopped",
            f"{_counted(row['due'])} tasks of the queue {row['name']} are due, the oldest since"
            f" {spoken(row['oldest_due_seconds'])}, and its limit is 0",
            examination.octop(f"queues scale {shlex.quote(row['name'])} reset"),
            count=row["due"],
        )


def stuck_queues(examination: Examination) -> Iterator[Finding]:
    """Look for queues that stand still though workers live that serve them."""
    for row in examination.ask(work.stuck_queues(STUCK_SECONDS, COUNTED))[:SHOWN]:
        busy = f", which run {number(row['busy_elsewhere'], 'task')} of other queues" if row["busy_elsewhere"] else ""
        yield found(
            "queues.stuck",
            f"{_counted(row['due'])} tasks of the queue {row['name']} are due, the oldest since {spoken(row['oldest_due_seconds'])},"
            f" and none of them runs, in spite of living workers: {row['workers']:,}{busy}",
            examination.octop("workers") + examination.octop("tasks list --status running"),
            hint="Ask the health probe of its workers, or look into their logs: both say what they can not do.",
            count=row["due"],
        )


def stuck(examination: Examination) -> Iterator[Finding]:
    """Look for running tasks that nobody ends."""
    rows = examination.ask(work.stuck_tasks(STUCK_SECONDS))
    sweep = psql(f"select {examination.sql('octop_sweep')}({examination.sql('octop_uuid7')}());")
    for kind, what in (
        ("overdue", "running past the time limit, and ended by nobody"),
        ("orphaned", "running on no worker that is known"),
    ):
        row = rows[kind]
        if row["count"]:
            yield found(
                f"tasks.{kind}",
                f"{what}: {number(row['count'], 'task')}, the longest for {spoken(row['oldest_seconds'])}",
                sweep,
                count=row["count"],
                ids=tuple(row["ids"]),
            )


def paused(examination: Examination) -> Iterator[Finding]:
    """Look for holds that somebody may have forgotten."""
    for hold in examination.ask(work.holds()):
        if hold["seconds"] < LONG_SECONDS:
            continue
        since = f"for {spoken(hold['seconds'])}, by {hold['author']}" + (
            f": {hold['reason']}" if hold["reason"] else ""
        )
        target = shlex.quote(hold["target"])
        if hold["kind"] == "queue":
            yield found(
                "queues.paused",
                f"the queue {hold['target']} is paused {since}",
                examination.octop(f"queues resume {target}"),
            )
        elif hold["kind"] == "task_type":
            yield found(
                "types.frozen",
                f"the task type {hold['target']} is frozen {since}",
                examination.octop(f"types thaw {target}"),
                task_type=hold["target"],
            )


def types(examination: Examination) -> Iterator[Finding]:
    """Look for parked tasks whose type no living worker of their queue knows."""
    unknown = [row for row in examination.ask(work.parked(COUNTED)) if not row["held"]]
    for row in unknown[:SHOWN]:
        version = f" (version {row['version']} or later)" if row["version"] else ""
        yield found(
            "types.unknown",
            f"parked in the queue {row['queue']}: {_counted(row['count'])} of the type {row['type']}{version},"
            f" none of its living workers ({row['workers']}) knows it",
            examination.worker(f" -q {shlex.quote(row['queue'])}"),
            hint=f"Or, if the name was a typo: octop tasks cancel status:blocked {shlex.quote('type:' + row['type'])}",
            task_type=row["type"],
            count=row["count"],
        )


def frozen(examination: Examination) -> Iterator[Finding]:
    """Count the tasks that wait for a person."""
    row = examination.ask(work.frozen())
    if row["count"]:
        yield found(
            "tasks.frozen",
            f"{row['count']:,} frozen tasks, the commonest type is {row['type']}, the oldest waits for {spoken(row['oldest_seconds'])}",
            examination.octop("failures status:frozen") + examination.octop("tasks retry status:frozen"),
        )


def counters(examination: Examination) -> Iterator[Finding]:
    """Compare the counters with the tasks, as far as these can be counted."""
    rows = examination.ask(work.counters(COMPARED))
    wrong = [row for row in rows if row["truth"] is not None and row["truth"] != row["counted"]]
    if wrong:
        said = ", ".join(f"{row['status']} {row['counted']:,} instead of {_compared(row['truth'])}" for row in wrong)
        yield found(
            "tasks.counters_drifted",
            f"the counters say {said}",
            psql(f"select {examination.sql('octop_recount')}();"),
        )


def _counted(number: int) -> str:
    return f"{number:,}" + (" or more" if number >= COUNTED else "")


def _compared(number: int) -> str:
    return f"{number:,}" + (" or more" if number >= 2 * COMPARED else "")


def _named(worker: dict[str, object]) -> str:
    return f"the worker {worker['name'] or worker['id']} ({worker['host']}:{worker['pid']})"


def _number(version: str) -> tuple[int, ...]:
    """Return what a version is ordered by: 1.10.2 is later than 1.9."""
    return tuple(int(each) for each in re.findall(r"\d+", version)[:3]) or (0,)
