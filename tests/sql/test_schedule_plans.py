"""What a tick reads, counted: what is due, and not what is there."""

from __future__ import annotations

import pytest

from tests.sql.crew import do, value
from tests.sql.plans import watched

CATALOG = 1500
"""Pages of the catalog that a call may touch when its session has to read it anew."""


@pytest.fixture
def many(dba):
    """10,000 schedules that are due in 2040, put there without a look at each."""
    do(dba, "alter table octop_schedules disable trigger user")
    do(
        dba,
        "insert into octop_schedules (name, rule, task_type, parsed, next_slot)"
        " select 's' || n, '0 0 * * *', 't', _octop_cron_parse('0 0 * * *'), '2040-01-01Z' from generate_series(1, 10000) n",
    )
    do(dba, "alter table octop_schedules enable trigger user")


def ticked(dba):
    """Return how many slots a tick fired, the pages that it touched, and the scans of all rows of a table of schedules."""
    with watched(dba) as seen:
        fired = value(dba, "select fired from octop_tick()")
    whole = [
        (scan.kind, scan.relation, scan.rows)
        for statement in seen
        for scan in statement.scans
        if scan.relation in {"octop_schedules", "octop_schedule_slots"}
        and (scan.kind == "Seq Scan" or scan.rows > 2000)
    ]
    return fired, seen[-1].buffers, whole


@pytest.mark.parametrize("statistics", ["stale", "fresh"])
def test_a_tick_with_10000_schedules_that_are_not_due_reads_a_few_pages(dba, many, statistics):
    if statistics == "fresh":
        do(dba, "analyze octop_schedules")
    value(dba, "select fired from octop_tick()")
    fired, pages, whole = ticked(dba)
    assert (fired, whole) == (0, [])
    assert pages < 100


@pytest.mark.parametrize("statistics", ["stale", "fresh"])
def test_a_tick_that_fires_500_of_10000_reads_those(dba, many, statistics):
    do(
        dba,
        "update octop_schedules set next_slot = date_trunc('minute', _octop_now()) where id in (select id from octop_schedules order by id limit 1000)",
    )
    if statistics == "fresh":
        do(dba, "analyze octop_schedules")
    assert value(dba, "select fired from octop_tick()") == 500
    fired, pages, whole = ticked(dba)
    assert (fired, whole) == (500, [])
    assert pages < 500 * 80 + CATALOG
