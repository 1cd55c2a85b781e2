"""Alerts: what raises them, that they fold, that each is taken by one worker at a time until it is delivered, and that they go."""

from __future__ import annotations

import psycopg
import pytest

from octop.model.work import TaskTypePolicy
from tests.sql.crew import acts, add, column, do, refused, rows, task, value


def raised(dba):
    return rows(dba, "select kind, subject, severity, count from octop_alerts order by id")


def test_a_type_is_frozen_with_its_task_in_one_transaction_and_thaw_lifts_it(database, dba, operator, hire):
    worker = hire(
        types=[
            TaskTypePolicy("charge", max_retries=0, freeze_type_on_exhaustion=True),
            TaskTypePolicy("other", max_retries=0),
        ]
    )
    first, later, free = add(dba, "charge"), add(dba, "charge"), add(dba, "other")
    claimed = worker.claim_one()
    assert claimed.id == first
    with database.connect() as ear:
        do(ear, "listen octop_alerts")
        do(worker.connection, "begin")
        assert worker.end(claimed, error_class="E", error_message="no money") == "frozen"
        assert rows(dba, "select * from octop_holds") + raised(dba) == []
        do(worker.connection, "commit")
        assert [each.payload for each in ear.notifies(timeout=5, stop_after=1)] == [
            str(value(dba, "select id from octop_alerts"))
        ]
    ((kind, target, cause, reason),) = rows(dba, "select kind, target, cause, reason from octop_holds")
    assert (kind, target, cause) == ("task_type", "charge", "exhaustion")
    assert reason == f"task {first} used up its retries: E: no money"
    assert raised(dba) == [("type_frozen", "charge", "error", 1)]
    found = [each.id for _ in range(3) for each in worker.claim(10)]
    assert found == [free]
    assert task(dba, later)["status"] == "blocked"
    assert value(operator, "select octop_thaw('charge')") is True
    assert worker.claim_one().id == later


def test_a_type_that_does_not_say_so_is_not_frozen(dba, hire):
    worker = hire(types=[TaskTypePolicy("charge", max_retries=0)])
    add(dba, "charge")
    assert worker.end(worker.claim_one()) == "frozen"
    assert rows(dba, "select * from octop_holds") + raised(dba) == []


def test_the_sweep_freezes_a_type_too(database, dba, hire):
    database.clock.advance(0)
    policy = TaskTypePolicy("charge", max_retries=0, freeze_type_on_exhaustion=True)
    dead, judge = hire(types=[policy], name="dead"), hire(types=[policy], name="judge")
    task_id = add(dba, "charge")
    dead.claim_one()
    database.clock.advance(31)
    judge.become_judge(dba)
    assert judge.sweep().rescued == 1
    assert task(dba, task_id)["status"] == "frozen"
    assert column(dba, "select cause from octop_holds") == ["exhaustion"]
    assert raised(dba) == [("type_frozen", "charge", "error", 1), ("worker_lost", "dead", "warning", 1)]


def test_an_operators_flag_wins_over_the_code_until_it_is_reset(dba, operator, hire):
    hire(types=[TaskTypePolicy("charge", freeze_type_on_exhaustion=True)])
    do(operator, "update octop_task_types set freeze_type_on_exhaustion = false")
    hire(types=[TaskTypePolicy("charge", freeze_type_on_exhaustion=True, description="again")])
    assert rows(
        dba, "select freeze_type_on_exhaustion, declared ->> 'freeze_type_on_exhaustion' from octop_task_types"
    ) == [(False, "true")]


def test_C124_parked_for_want_of_a_worker_that_knows_the_type_is_alerted(database, dba, hire):
    database.clock.advance(0)
    worker = hire(types=["t"])
    for _ in range(3):
        add(dba, "new")
    add(dba, "t", min_version=2)
    worker.exchange(10)
    worker.sweep()
    assert raised(dba) == [("type_unknown", "new", "warning", 1), ("type_unknown", "t", "warning", 1)]
    database.clock.advance(61)
    worker.beat()
    worker.sweep()
    assert [each[3] for each in raised(dba)] == [2, 2]
    do(dba, "select octop_ack_alerts()")
    hire(types=["new", TaskTypePolicy("t", version=2)])
    database.clock.advance(61)
    worker.beat()
    worker.sweep()
    assert value(dba, "select count(*) from octop_alerts where acked_at is null") == 0


def alert(dba, subject="x"):
    return value(dba, "select _octop_alert('type_frozen', %s, 'error', 'm', '{}')", subject)


def take(worker, channel="webhook", most=10):
    return column(worker.connection, f"select id from octop_take_alerts('{worker.id}', '{channel}', {most})")


def tried(worker, id, error=None, channel="webhook"):
    do(worker.connection, "select octop_alert_tried(%s, %s, %s, %s)", worker.id, channel, id, error)


def test_each_alert_is_taken_by_one_worker_at_a_time_and_channel_until_it_is_delivered(database, dba, hire):
    database.clock.advance(0)
    one, two = hire(), hire()
    first, second = alert(dba), alert(dba, "y")
    assert take(one) == [first, second]
    assert take(two) == []
    assert take(two, "callable") == [first, second]
    tried(one, first)
    tried(one, second, "500")
    assert rows(
        dba,
        "select tries, last_error, delivered_at is null from octop_alert_deliveries where channel = 'webhook' order by alert_id",
    ) == [
        (1, None, False),
        (1, "500", True),
    ]
    assert take(two) == []
    database.clock.advance(2)
    assert take(two) == [second]
    tried(one, second)  # who took too long has no say any more
    database.clock.advance(60)
    assert take(one) == [second]  # two died with it
    waits = []
    for _ in range(10):
        tried(one, second, "500")
        waits.append(
            value(
                dba,
                "select extract(epoch from next_try_at - _octop_now())::int from octop_alert_deliveries where channel = 'webhook' and alert_id = %s",
                second,
            )
        )
        database.clock.advance(waits[-1])
        assert take(one) == [second]
    assert waits == [8, 16, 32, 64, 128, 256, 300, 300, 300, 300]
    tried(one, second)
    database.clock.advance(1000)
    assert take(one) == []


def test_what_happens_again_is_counted_and_told_again_after_an_hour(database, dba, operator, hire):
    database.clock.advance(0)
    worker, first = hire(), alert(dba)
    assert take(worker) == [first]
    tried(worker, first)
    assert alert(dba) == first
    assert raised(dba) == [("type_frozen", "x", "error", 2)]
    assert take(worker) == []
    database.clock.advance(3601)
    assert alert(dba) == first
    assert take(worker) == [first]
    assert value(operator, "select octop_ack_alerts(array[%s])", first) == 1
    assert value(operator, "select octop_ack_alerts()") == 0
    assert rows(dba, "select acked_by from octop_alerts") == [("octop_operator",)]
    assert [each[2] for each in acts(dba)] == ["ack alert"]
    assert alert(dba) != first


def test_alerts_are_kept_as_long_as_history_and_not_more_than_10000(database, dba, hire):
    database.clock.advance(0)
    worker = hire()
    alert(dba, "old")
    take(worker)
    database.clock.advance(7 * 86400 + 1)
    alert(dba, "new")
    worker.beat()
    worker.sweep()
    assert column(dba, "select subject from octop_alerts") == ["new"]
    assert rows(dba, "select * from octop_alert_deliveries") == []
    do(
        dba,
        "insert into octop_alerts (kind, subject, severity, message, last_at) select 'k', g::text, 'info', 'm', _octop_now() + g * interval '1 ms' from generate_series(1, 10005) g",
    )
    database.clock.advance(11)
    worker.beat()
    worker.sweep()
    assert 10_000 <= value(dba, "select count(*) from octop_alerts") <= 10_001


def test_a_viewer_reads_alerts_an_operator_acknowledges_and_a_worker_delivers(database, dba):
    alert(dba)
    for role, allowed in (
        ("octop_viewer", False),
        ("octop_worker", False),
        ("octop_producer", False),
        ("octop_operator", True),
    ):
        with database.connect(role) as connection:
            if role in ("octop_viewer", "octop_operator"):
                assert column(connection, "select subject from octop_alerts") == ["x"]
            if not allowed:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    do(connection, "select octop_ack_alerts()")
            if role != "octop_worker":
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    do(connection, "select octop_take_alerts(octop_uuid7(), 'webhook')")
            else:
                refused("OC113", connection, "select octop_take_alerts(octop_uuid7(), 'fax')")
