"""Tasks by filter: only the partitions that can hold a status are read, and a list ends as soon as it is full."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings

from octop.engine import filtered
from octop.engine.call import run
from octop.model.filter_values import Filter
from octop.model.filters import parse
from tests.sql.crew import column, do
from tests.sql.plans import watched
from tests.unit.test_filters import CONDITIONS


@pytest.fixture
def full(database, dba):
    """Thousands of tasks in live and history, a hundred frozen ones; the test's connection knows the schema."""
    do(
        dba,
        "insert into octop_tasks (task_type, queue) select 't' || g % 10, 'q' || g % 7 from generate_series(1, 5000) g",
    )
    do(
        dba,
        "insert into octop_tasks_done (task_type, status, completed_at)"
        " select 't' || g % 10, 'success', _octop_now() + make_interval(days => g % 3) from generate_series(1, 6000) g",
    )
    do(dba, "insert into octop_tasks_frozen (task_type, status) select 't1', 'frozen' from generate_series(1, 100)")
    do(dba, "analyze")
    return dba


def read(connection, text, call=filtered.list_tasks):
    """Return the relations that a filter reads, and how many rows of them it looks at."""
    chosen = filtered.selected(connection, parse(text))
    with watched(connection) as seen:
        run(connection, call(chosen))
    scans = [scan for scan in seen[-1].scans if scan.relation.startswith("octop_tasks")]
    return {scan.relation for scan in scans}, sum(scan.rows for scan in scans)


def test_with_a_status_only_the_partitions_that_can_hold_it_are_read(full):
    for text, relations in (
        ("status:failed", {"octop_tasks_live"}),
        ("status:pending,running,blocked type:t1", {"octop_tasks_live"}),
        ("status:frozen tag:*", {"octop_tasks_frozen"}),
        ("status:f*", {"octop_tasks_live", "octop_tasks_frozen"}),
        ("-status:success,cancelled payload.a:1", {"octop_tasks_live", "octop_tasks_frozen"}),
    ):
        for call in (filtered.list_tasks, filtered.count_tasks, lambda chosen: filtered.ids_below(chosen, None, 500)):
            assert read(full, text, call)[0] == relations, text


def test_history_is_read_by_the_days_that_the_moments_leave(full):
    relations, _ = read(full, "status:success completed:tomorrow")
    (day,) = relations - {"octop_tasks_done_stray"}
    assert day.startswith("octop_tasks_done_2")
    assert len(read(full, "status:success")[0]) > 3


def test_a_list_looks_at_the_latest_and_ends_when_it_is_full(full):
    for text in ("", "status:pending", "type:t1,t2 -tag:x", "status:pending,success -type:t3"):
        _, looked_at = read(full, text)
        assert looked_at < 500, text


def test_what_is_null_falls_out_of_the_plan(full):
    chosen = filtered.selected(full, parse("status:pending"))
    with watched(full) as seen:
        run(full, filtered.count_tasks(chosen))
    plan = str(seen[-1].plan)
    assert "jsonb_to_recordset" not in plan
    assert "IS NULL" not in plan


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CONDITIONS)
def test_whatever_a_filter_holds_it_and_its_opposite_share_out_all_tasks(dba, condition):
    if not column(dba, "select 1 from octop_tasks limit 1"):
        do(
            dba,
            "insert into octop_tasks (task_type, payload, tags) select 't' || g, '{\"a\": 1}', array['a'] from generate_series(1, 3) g",
        )
    opposite = dataclasses.replace(condition, negated=not condition.negated)
    counts = [run(dba, filtered.count_tasks(filtered.selected(dba, Filter((each,))))) for each in (condition, opposite)]
    assert sum(counts) == 3


def test_a_filter_that_nothing_can_satisfy_reads_nothing(full):
    for text in ("status:failed -status:failed", "queue:a queue:b", "id:00 id:ff"):
        assert run(full, filtered.list_tasks(filtered.selected(full, parse(text)))) == []
    assert read(full, "status:failed -status:failed")[1] == 0
