"""What to look at: the article's columns, exact up to 10,000, from counters beyond, and the counters are always the truth."""

from __future__ import annotations

import random

import pytest

from tests.sql.crew import add, add_many, do, rows, value
from tests.sql.test_article import COLUMNS_OF_5_2

TRUTH = """
  select status, count(*), min(scheduled_at), max(scheduled_at), round(avg(extract(epoch from (_octop_now() - scheduled_at))), 3)
    from octop_tasks group by status order by status"""
SUMMARY = "select status, count, earliest_scheduled, latest_scheduled, round(avg_delay_seconds, 3) from octop_task_summary order by status"
VIEWS = {
    "octop_task_summary": "status count earliest_scheduled latest_scheduled avg_delay_seconds",
    "octop_failed_tasks": "id task_type scheduled_at created_at last_error age_seconds",
    "octop_running_tasks": "id task_type queue lane tenant attempt worker_id worker_name worker_host worker_pid started_at deadline_at"
    " running_seconds cancel_requested_at",
    "octop_queue_summary": (
        "name waiting due running blocked oldest_due_at next_due_at paused"
        " pause_reason paused_by paused_at worker_limit workers pause_ends_at"
    ),
    "octop_worker_summary": "id name host pid version queues task_types started_at beat_at silent_seconds state running",
    "octop_throughput": "tenant queue status total",
    "octop_latest_failures": (
        "task_id attempt tenant queue task_type worker_id started_at ended_at"
        " outcome error_class error_message traceback"
    ),
}


def test_each_view_has_the_columns_that_are_contract(dba):
    for view, columns in VIEWS.items():
        found = rows(
            dba,
            "select column_name from information_schema.columns where table_name = %s order by ordinal_position",
            view,
        )
        assert [name for (name,) in found] == columns.split(), view
    assert COLUMNS_OF_5_2


def test_views_answer_nothing_and_fail_on_nothing_in_an_empty_database(dba):
    for view in VIEWS:
        assert rows(dba, f"select * from {view}") == []


def test_the_summary_is_what_the_articles_query_says(database, dba, hire):
    database.clock.advance(0)
    worker = hire(queues=["a", "b"])
    random.seed(7)
    for n in range(60):
        add(
            dba,
            queue=random.choice("ab"),
            tenant=random.choice(["", "x"]),
            max_retries=random.choice([0, 1]),
            retry_policy='{"delays": [5]}',
        )
        database.clock.advance(random.randrange(1, 9))
        worker.beat()
        if n % 3 == 0:
            for claimed in worker.claim(2):
                end = random.choice(["success", "failure", "snoozed", "cancelled", "released", "keep"])
                if end == "success":
                    worker.succeed(claimed)
                elif end != "keep":
                    worker.end(claimed, end, delay_seconds=3.0 if end == "snoozed" else None)
        if n % 20 == 0:
            worker.sweep()
        assert rows(dba, SUMMARY) == rows(dba, TRUTH), n


def test_counters_equal_the_truth_after_random_acts_of_engine_operators_and_owner(database, dba, hire):
    database.clock.advance(0)
    worker = hire(types=["t", "new"])
    old = hire(types=["t"], queues=["default"])
    random.seed(11)
    hold = "insert into octop_holds (kind, target) values ('task_type', 't') on conflict do nothing"
    some = "from octop_tasks where status = any (%s) order by seq %% 7, seq limit 3"
    acts = {
        "enqueue": lambda: add_many(dba, random.randrange(1, 30), random.choice(["t", "t", "new", "unknown"])),
        "claim": lambda: worker.claim(random.randrange(1, 20)),
        "end": lambda: [
            worker.succeed(each) if kind == "success" else worker.end(each, kind)
            for each in worker.claim(10)
            for kind in [
                random.choice(["success", "success", "failure", "timeout", "lost", "snoozed", "cancelled", "released"])
            ]
        ],
        "park": lambda: (do(dba, hold), old.exchange(9)),
        "lift": lambda: do(dba, "delete from octop_holds"),
        "cancel": lambda: rows(
            dba, f"select octop_cancel(id) {some}", ["pending", "running", "failed", "blocked", "frozen", "cancelled"]
        ),
        "retry": lambda: rows(
            dba, f"select octop_retry(id) {some}", ["pending", "failed", "frozen", "success", "cancelled"]
        ),
        "delete": lambda: rows(dba, f"select octop_delete(id) {some}", ["frozen"]),
        "owner pending": lambda: do(
            dba,
            f"update octop_tasks set status = 'pending' where id in (select id {some})",
            ["frozen", "failed", "running"],
        ),
        "owner cancels": lambda: do(
            dba,
            f"update octop_tasks set status = 'cancelled' where id in (select id {some})",
            ["pending", "running", "failed", "blocked", "frozen"],
        ),
        "owner moves": lambda: do(
            dba,
            f"update octop_tasks set queue = 'b', tenant = 'x' where id in (select id {some})",
            ["pending", "failed", "frozen", "blocked"],
        ),
        "owner deletes": lambda: do(
            dba, "delete from octop_tasks where id in (select id from octop_tasks order by seq % 3 limit 1)"
        ),
        "sweep": lambda: (worker.beat(), worker.sweep()),
        "time": lambda: (database.clock.advance(3), worker.beat(), old.beat()),
    }
    for n in range(150):
        name = random.choice(list(acts))
        acts[name]()
        counted = rows(
            dba,
            "select tenant, queue, status, sum(n)::bigint from _octop_counted() group by 1, 2, 3 having sum(n) <> 0 order by 1, 2, 3",
        )
        truth = rows(
            dba,
            "select tenant, queue, _octop_counted_as(status), count(*) from octop_tasks"
            " where status <> 'running' group by 1, 2, 3 order by 1, 2, 3",
        )
        assert counted == truth, f"after act {n}: {name}"
    assert value(dba, "select count(*) from octop_tasks") > 100


def test_counts_are_exact_up_to_ten_thousand_and_from_counters_beyond(dba):
    add_many(dba, 9_999)
    assert rows(dba, "select status, count from octop_task_summary") == [("pending", 9_999)]
    assert rows(dba, "select waiting, due from octop_queue_summary") == [(9_999, 9_999)]
    add_many(dba, 20_001)
    assert rows(dba, "select status, count from octop_task_summary") == [("pending", 30_000)]
    assert rows(dba, "select waiting from octop_queue_summary") == [(30_000,)]
    # proof that the number came from the counters: make them lie
    do(
        dba,
        "insert into _octop_counter_deltas (tenant, queue, status, day, n) values ('', 'default', 'waiting', '-infinity', 5)",
    )
    assert rows(dba, "select status, count from octop_task_summary") == [("pending", 30_005)]


def test_pending_and_failed_are_told_apart_beyond_ten_thousand(dba):
    add_many(dba, 21_500)
    do(
        dba,
        "update octop_tasks_live set status = 'failed' where ctid in (select ctid from octop_tasks_live limit 10500)",
    )
    assert rows(dba, "select status, count from octop_task_summary order by 1") == [
        ("failed", 10_500),
        ("pending", 11_000),
    ]
    do(dba, "update octop_tasks_live set status = 'running', worker_id = octop_uuid7() where status = 'failed'")
    do(
        dba,
        "insert into _octop_counter_deltas (tenant, queue, status, day, n) values ('', 'default', 'waiting', '-infinity', -10500)",
    )
    assert rows(dba, "select status, count from octop_task_summary order by 1") == [
        ("pending", 11_000),
        ("running", 10_500),
    ]


def test_the_failed_view_shows_the_ten_newest(database, dba, hire):
    database.clock.advance(0)
    worker = hire()
    ids = []
    for _ in range(12):
        ids.append(add(dba, max_retries=0))
        worker.end(worker.claim_one(), error_class="E", error_message="m")
        database.clock.advance(1)
        worker.beat()
    shown = rows(dba, "select id::text, last_error, age_seconds from octop_failed_tasks")
    assert [each[0] for each in shown] == ids[:1:-1]
    assert [float(each[2]) for each in shown] == list(range(1, 11))


def test_the_failed_views_comment_has_the_query_that_tells_who_waits_for_a_person(dba, hire):
    """Its columns are the article's, whose own CREATE OR REPLACE VIEW must go through: a status can not be among them."""
    worker = hire()
    for retries in (5, 0):
        add(dba, max_retries=retries)
        worker.end(worker.claim_one(), error_class="E", error_message="m")
    said = value(dba, "select obj_description('octop_failed_tasks'::regclass)")
    found = rows(dba, said[said.index("select ") :])
    assert [(status, queue, tries) for _, status, queue, tries, *_ in found] == [
        ("frozen", "default", 0),
        ("failed", "default", 1),
    ]


def test_the_running_view_says_what_runs_where_since_when(database, dba, hire):
    database.clock.advance(0)
    worker = hire(name="pod-7")
    task_id = add(dba, timeout_seconds=60.0)
    worker.claim_one()
    database.clock.advance(5)
    assert rows(
        dba, "select id::text, worker_name, worker_host, running_seconds, attempt from octop_running_tasks"
    ) == [(task_id, "pod-7", "here", 5, 1)]


def test_the_queue_view_shows_waiting_due_running_blocked_times_and_workers(database, dba, hire):
    now = database.clock.advance(0)
    worker = hire(queues=["q"])
    add_many(dba, 3, queue="q")
    add(dba, queue="q", delay_seconds=60.0)
    add(dba, "unknown", queue="q")
    worker.claim(1)
    worker.exchange(5)
    found = rows(
        dba,
        "select name, waiting, due, running, blocked, oldest_due_at, next_due_at - %s, workers from octop_queue_summary",
        now,
    )
    assert [(*each[:6], each[6].total_seconds(), each[7]) for each in found] == [("q", 1, 0, 3, 1, None, 60, 1)]


@pytest.mark.parametrize(("seconds", "state"), [(0, "alive"), (29, "alive"), (31, "silent")])
def test_the_worker_view_tells_alive_draining_and_silent_apart(database, dba, hire, seconds, state):
    database.clock.advance(0)
    worker = hire()
    add(dba)
    worker.claim_one()
    database.clock.advance(seconds)
    assert rows(dba, "select state, running, silent_seconds from octop_worker_summary") == [(state, 1, seconds)]
    do(dba, "select octop_drain(%s)", worker.id)
    assert value(dba, "select state from octop_worker_summary") == ("draining" if state == "alive" else "silent")


def test_throughput_counts_what_ended(dba, hire):
    worker = hire(queues=["a", "b"])
    add_many(dba, 4, queue="a")
    add_many(dba, 3, queue="b")
    worker.succeed(*worker.claim(10))
    assert rows(dba, "select queue, status, total from octop_throughput order by 1") == [
        ("a", "success", 4),
        ("b", "success", 3),
    ]
