"""Days of history, and whether anybody sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from octop.cli.doctor.grants import schema_grants
from octop.cli.doctor.kinds import SCHEMA_OWNER, found
from octop.cli.findings import Finding, psql
from octop.cli.moments import spoken
from octop.cli.output import number
from octop.engine.diagnosis import days, rights, work

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination

OVERDUE_SECONDS: Final = 120.0
"""Chores are due every 10 s (purge) and 10 min (days); a sweep comes every few seconds."""


ASIDE: Final = "What lies in the renamed tables is no history any more: look whether it is needed, then drop them."


def _table(day: str) -> str:
    return f"octop_tasks_done_{day.replace('-', '')}"


def _back(examination: Examination, day: str, *, aside: bool) -> Iterator[str]:
    """Attach the table of a day again; where strays may be of that day, PostgreSQL refuses it, and a new one takes them."""
    table = examination.sql(_table(day))
    if aside:
        yield f"alter table {table} rename to detached_{_table(day)};"
        return
    after = date.fromisoformat(day) + timedelta(days=1)
    yield (
        f"alter table {examination.sql('octop_tasks_done')} attach partition {table}"
        f" for values from ('{day} 00:00+00') to ('{after} 00:00+00');"
    )


def partitions(examination: Examination) -> Iterator[Finding]:
    """Look for days that are missing, tasks that found none, and days that should have gone."""
    state = examination.ask(days.days())
    lacking = [
        each
        for each in examination.ask(rights.lacking_on_schema(examination.schema, examination.role_prefix))
        if each["role"] == examination.owner
    ]
    by = SCHEMA_OWNER if lacking else ""
    make = psql(*schema_grants(examination, lacking), f"select {examination.sql('octop_make_days')}();")
    missing, over = state["missing"], state["over"]
    detached = state["detached"]
    if detached:
        back = psql(*(line for day in detached for line in _back(examination, day, aside=state["stray"] > 0)))
        make = back + make
    if missing or detached:
        days_ = missing or detached
        soon = " today's among them," if state["today"] in days_ else ""
        are = ", ".join(_table(day) for day in detached[:3]) + (
            f" and {len(detached) - 3} more" if len(detached) > 3 else ""
        )
        also = f"; detached, and in the way of new ones: {are}" if detached else ""
        yield found(
            "days.missing",
            f"{number(len(days_), 'day')} ahead without a partition,{soon} from {days_[0]} to {days_[-1]}{also}",
            make,
            hint=ASIDE if detached and state["stray"] else "",
            by=by,
        )
    if state["stray"]:
        many = f"{state['stray']:,} or more" if state["stray"] >= 10_000 else f"{state['stray']:,}"
        yield found("days.stray", f"{many} finished tasks lie in the stray partition", make, by=by)
    if over:
        yield found(
            "days.not_dropped",
            f"{number(len(over), 'day')} older than the retention time, the oldest is {over[0]}",
            psql(f"select {examination.sql('octop_drop_days')}(most => {len(over)});"),
        )


def sweep(examination: Examination) -> Iterator[Finding]:
    """Look whether somebody does the chores."""
    late = [row for row in examination.ask(days.chores()) if (row["overdue_seconds"] or 0) > OVERDUE_SECONDS]
    if not late:
        return
    said = "chores are overdue: " + ", ".join(f"{row['name']} for {spoken(row['overdue_seconds'])}" for row in late)
    sweep_once = psql(f"select {examination.sql('octop_sweep')}({examination.sql('octop_uuid7')}());")
    if any(worker["state"] != "silent" for worker in examination.ask(work.workers())):
        yield found("days.nobody_sweeps", said, sweep_once + examination.octop("workers"))
    else:
        yield found("days.no_worker", f"no worker lives, and {said}", sweep_once + examination.worker(""))
