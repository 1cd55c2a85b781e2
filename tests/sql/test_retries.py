"""When a task is tried again: counted in the claim, computed in SQL, inherited from task, task type, queue, configuration."""

from __future__ import annotations

import psycopg
import pytest

from octop.model.work import TaskTypePolicy
from tests.sql.crew import add, column, do, rows, task, value


def life(database, dba, worker, task_id, kind="failure"):
    """Let a task fail until nothing more happens; return the seconds between its starts."""
    starts = []
    while task(dba, task_id)["status"] in {"pending", "failed"}:
        due = task(dba, task_id)["scheduled_at"]
        database.clock.set(max(due, database.clock.now()))
        worker.beat()
        claimed = worker.claim_one()
        assert claimed.id == task_id
        starts.append(database.clock.now())
        worker.end(claimed, kind, error_class="ValueError", error_message=f"try {claimed.attempt}")
    return [(later - earlier).total_seconds() for earlier, later in zip(starts, starts[1:], strict=False)]


@pytest.mark.parametrize("kind", ["failure", "timeout", "lost"])
def test_max_retries_3_means_four_starts_each_at_most_30_s_after_the_one_before_then_frozen(database, dba, hire, kind):
    database.clock.advance(0)
    task_id = add(dba, max_retries=3)
    gaps = life(database, dba, hire(), task_id, kind)
    assert len(gaps) == 3
    assert all(0 < gap <= 30 for gap in gaps)
    found = task(dba, task_id)
    assert (found["status"], found["attempt"], found["retry_count"], found["last_error"]) == (
        "frozen",
        4,
        3,
        "ValueError: try 4",
    )
    assert rows(dba, "select attempt, outcome from octop_attempts order by attempt") == [(n, kind) for n in range(1, 5)]


def test_C013_max_retries_n_means_n_plus_one_starts(database, dba, hire):
    database.clock.advance(0)
    worker = hire()
    for retries in (0, 1, 2):
        task_id = add(dba, max_retries=retries)
        assert len(life(database, dba, worker, task_id)) == retries
        assert task(dba, task_id)["attempt"] == retries + 1


def test_C015_zero_retries_start_once_and_null_inherits(database, dba, hire):
    database.clock.advance(0)
    worker = hire(types=[TaskTypePolicy("t", max_retries=5, retry_policy={"delays": [0]})])
    assert len(life(database, dba, worker, add(dba, max_retries=0))) == 0
    assert len(life(database, dba, worker, add(dba))) == 5


def test_C012_the_attempt_is_counted_in_the_claim_and_a_body_that_kills_every_worker_is_frozen(database, dba, hire):
    database.clock.advance(0)
    bystander, task_id = (
        add(dba, queue="other", timeout_seconds=3600.0),
        add(dba, max_retries=2, retry_policy='{"delays": [0]}'),
    )
    judge = hire(queues=["other"])
    judge.claim_one()
    starts = 0
    for _ in range(40):
        if task(dba, task_id)["status"] in {"pending", "failed"}:
            victim = hire()
            starts += len(victim.claim(1))  # and dies
            assert task(dba, task_id)["attempt"] == starts
        database.clock.advance(9)
        judge.beat()
        judge.sweep()
    found = task(dba, task_id)
    assert (starts, found["status"], found["attempt"]) == (3, "frozen", 3)
    assert found["last_error"].startswith("WorkerLost: worker ")
    assert (task(dba, bystander)["status"], task(dba, bystander)["attempt"]) == ("running", 1)


def test_inheritance_goes_task_then_type_then_queue_then_configuration(dba, hire):
    worker = hire(types=["t", "u"])

    def effective(**options):
        task_id = add(dba, "t", **options)
        claimed = worker.claim_one()
        found = (claimed.max_retries, claimed.timeout_seconds)
        worker.end(claimed, "cancelled")
        assert claimed.id == task_id
        return found

    assert effective() == (3, 300)
    do(
        dba,
        "select octop_config_set('task.default_max_retries', '4'), octop_config_set('task.default_timeout_seconds', '44')",
    )
    assert effective() == (4, 44)
    do(dba, "update octop_queues set max_retries = 5, timeout_seconds = 55 where name = 'default'")
    assert effective() == (5, 55)
    do(dba, "update octop_task_types set max_retries = 6, timeout_seconds = 66 where name = 't'")
    assert effective() == (6, 66)
    assert effective(max_retries=0, timeout_seconds=0.5) == (0, 0.5)


def test_what_is_inherited_decides_when_the_task_freezes(database, dba, hire):
    database.clock.advance(0)
    worker = hire()
    do(dba, "update octop_queues set max_retries = 1, retry_policy = '{\"delays\": [7]}' where name = 'default'")
    assert life(database, dba, worker, add(dba)) == [7]
    do(dba, "update octop_task_types set max_retries = 2, retry_policy = '{\"delays\": [8, 9]}' where name = 't'")
    assert life(database, dba, worker, add(dba)) == [8, 9]
    assert life(database, dba, worker, add(dba, max_retries=3, retry_policy='{"delays": [1]}')) == [1, 1, 1]


def test_default_delays_grow_from_one_second_to_at_most_30_and_jitter_only_shortens(dba):
    full = [1, 2, 4, 8, 16, 30, 30, 30]
    for n, most in enumerate(full, 1):
        seen = column(dba, "select octop_retry_delay(null, %s) from generate_series(1, 200)", n)
        assert max(seen) <= most * (1 + 1e-12)
        assert min(seen) >= most * 0.75
        assert len(set(seen)) > 100
    do(dba, "select octop_config_set('task.retry_jitter', '0')")
    assert column(dba, "select octop_retry_delay(null, n) from generate_series(1, 8) n") == pytest.approx(full)


def test_a_policy_may_change_base_growth_cap_and_jitter_or_list_the_delays(dba):
    def delays(policy):
        return column(dba, "select octop_retry_delay(%s, n) from generate_series(1, 4) n", policy)

    assert delays('{"base": 10, "growth": 3, "cap": 100, "jitter": 0}') == pytest.approx([10, 30, 90, 100])
    assert delays('{"jitter": 0, "base": 0.5}') == pytest.approx([0.5, 1, 2, 4])
    assert delays('{"delays": [5, 1, 60]}') == [5, 1, 60, 60]
    assert delays('{"base": 0, "jitter": 1}') == [0] * 4
    assert all(0 <= each <= most + 1e-9 for each, most in zip(delays('{"jitter": 1}'), [1, 2, 4, 8], strict=True))


def test_no_delay_can_overflow(dba):
    assert value(
        dba,
        'select bool_and(d between 0 and 2678400) from (values (\'{"base": 2678400, "growth": 100,'
        " \"cap\": 2678400}'::jsonb), ('{}'), (null),"
        " ('{\"growth\": 1}'), ('{\"delays\": [2678400]}')) p (policy), (values (1), (2), (1000), (2147483647), (0), (-5)) n (n),"
        " octop_retry_delay(policy, n) d",
    )


def test_a_policy_that_could_not_be_computed_is_refused_wherever_it_enters(dba):
    for bad in [
        "[]",
        "1",
        '"x"',
        '{"base": -1}',
        '{"base": "1"}',
        '{"base": 1e400}',
        '{"growth": 0.5}',
        '{"growth": 101}',
        '{"jitter": 2}',
        '{"cap": null}',
        '{"delays": []}',
        '{"delays": [-1]}',
        '{"delays": ["1"]}',
        '{"delays": 5}',
        '{"final": "ValueError"}',
        '{"delay": [1]}',
    ]:
        for statement in (
            "select octop_enqueue('t', retry_policy => %s)",
            "insert into octop_tasks (task_type, retry_policy) values ('t', %s)",
            "insert into octop_queues (name, retry_policy) values ('q', %s)",
            "insert into octop_task_types (name, retry_policy) values ('t', %s)",
            "select octop_declare_task_types(jsonb_build_array(jsonb_build_object('name', 't', 'retry_policy', %s::jsonb)))",
        ):
            with pytest.raises(psycopg.Error) as refused:
                do(dba, statement, bad)
            assert refused.value.sqlstate == "OC113", (statement, refused.value)
        assert value(dba, "select count(*) from octop_tasks") == 0


def test_a_retry_may_name_its_own_delay(database, dba, hire):
    now = database.clock.advance(0)
    worker = hire()
    task_id = add(dba)
    worker.end(worker.claim_one(), delay_seconds=3600.0)
    assert (task(dba, task_id)["scheduled_at"] - now).total_seconds() == 3600


def test_a_task_that_is_due_a_second_time_keeps_when_it_was_first_due(database, dba, hire):
    now = database.clock.advance(0)
    worker = hire()
    task_id = add(dba, retry_policy='{"delays": [10]}')
    worker.end(worker.claim_one())
    database.clock.advance(10)
    again = worker.claim_one()
    assert task(dba, task_id)["due_at"] == now
    assert again.retry_count == 1
