"""Days of history, and whether anybody sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from octop.cli.doctor.finding import Finding, psql
from octop.cli.doctor.kinds import found
from octop.cli.moments import spoken
from octop.engine.diagnosis import days, work

if TYPE_CHECKING:
    from octop.cli.doctor.examination import Examination

OVERDUE_SECONDS: Final = 120.0
"""Chores are due every 10 s (purge) and 10 min (days); a sweep comes every few seconds."""


def partitions(examination: Examination) -> Iterator[Finding]:
    """Look for days that are missing, tasks that found none, and days that should have gone."""
    state = examination.ask(days.days())
    make = psql(f"select {examination.sql('octop_make_days')}();")
    missing, over = state["missing"], state["over"]
    if missing:
        soon = " today's among them," if state["today"] in missing else ""
        yield found(
            "days.missing",
            f"{len(missing)} days ahead have no partition,{soon} from {missing[0]} to {missing[-1]}",
            make,
        )
    if state["stray"]:
        many = f"{state['stray']:,} or more" if state["stray"] >= 10_000 else f"{state['stray']:,}"
        yield found("days.stray", f"{many} finished tasks lie in the stray partition", make)
    if over:
        yield found(
            "days.not_dropped",
            f"{len(over)} days are older than the retention time, the oldest is {over[0]}",
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
