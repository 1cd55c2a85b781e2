"""Schedules: whether somebody fires them, and whether their slots make tasks."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from octop.cli.doctor.kinds import found
from octop.cli.findings import Finding, psql
from octop.cli.moments import spoken
from octop.cli.output import number
from octop.engine import schedules
from octop.engine.diagnosis import work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octop.cli.doctor.examination import Examination

SHOWN: Final = 10


def overdue(examination: Examination) -> Iterator[Finding]:
    """Look for schedules that nobody fires, and for those whose last slot made no task."""
    rows = examination.ask(schedules.overdue())
    if rows:
        alive = any(worker["state"] != "silent" for worker in examination.ask(work.workers()))
        names = ", ".join(row["name"] for row in rows[:3])
        cure = psql(f"select {examination.sql('octop_tick')}();")
        yield found(
            "schedules.unfired" if alive else "schedules.no_worker",
            f"{number(len(rows), 'schedule')} should have fired, the first {spoken(rows[0]['overdue_seconds'])} ago: {names}",
            cure if alive else examination.worker("") + cure,
        )
    for row in examination.ask(schedules.failing(SHOWN)):
        of = f" --tenant {shlex.quote(row['tenant'])}" if row["tenant"] else ""
        yield found(
            "schedules.failing",
            f"the last slot of the schedule {row['name']} made no task: {row['last_error']}",
            examination.octop(f"schedules show {shlex.quote(row['name'])}{of}"),
        )
