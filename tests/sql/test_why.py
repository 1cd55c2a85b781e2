"""Why does this task not run? A test for each reason: it is told, then taken away, and the task runs."""

from __future__ import annotations

import pytest

from octop.model.work import TaskTypePolicy
from tests.sql.crew import add, ages, do, rows, value


def why(connection, task_id):
    return rows(connection, "select reason, message, detail, advice from octop_why(%s)", task_id)


def reasons(connection, task_id):
    return [each[0] for each in why(connection, task_id)]


def runs(worker, task_id):
    """Look until the task starts; what was set aside comes back with the first looks."""
    for _ in range(5):
        worker.beat()
        if task_id in [each.id for each in worker.claim(10)]:
            return True
        worker.sweep()
    return False


HOLDS = {
    "queue_paused": "'queue', 'mail'",
    "type_frozen": "'task_type', 't'",
    "tenant_held": "'tenant', 'acme'",
    "lane_held": "'lane', 'a', queue => 'mail', tenant => 'acme'",
}


@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("reason", HOLDS)
def test_what_is_held_says_by_whom_since_when_why_and_until_when(database, dba, operator, hire, reason, parked):
    database.clock.advance(0)
    worker = hire(queues=["mail"])
    task_id = add(dba, queue="mail", tenant="acme", lane="a")
    do(operator, f"select octop_hold({HOLDS[reason]}, reason => 'unpaid', ends_at => _octop_now() + interval '1 h')")
    if parked:
        worker.exchange(10)
    ((told, message, detail, advice),) = why(dba, task_id)
    assert told == reason
    for part in ("(unpaid)", "by octop_operator since", "until", "in 3600 s"):
        assert part in message
    assert (detail["author"], detail["reason"], "until" in detail) == ("octop_operator", "unpaid", True)
    assert "octop" in advice
    do(operator, f"select octop_lift({HOLDS[reason]})")
    assert runs(worker, task_id)


def test_under_several_holds_all_are_told_the_queues_first(dba, operator, hire):
    worker = hire(queues=["mail"])
    task_id = add(dba, queue="mail", tenant="acme", lane="a")
    for hold in reversed(HOLDS.values()):
        do(operator, f"select octop_hold({hold})")
    assert reasons(dba, task_id) == ["queue_paused", "lane_held", "tenant_held", "type_frozen"]
    for hold in HOLDS.values():
        do(operator, f"select octop_lift({hold})")
    assert runs(worker, task_id)


def test_a_hold_that_ends_before_the_task_is_due_is_not_why(database, dba, operator, hire):
    database.clock.advance(0)
    worker = hire()
    task_id = add(dba, delay_seconds=600)
    do(operator, "select octop_pause('default', 'lunch', _octop_now() + interval '5 min')")
    assert reasons(dba, task_id) == ["not_due"]
    database.clock.advance(600)
    assert runs(worker, task_id)


def test_a_task_that_is_due_later_says_when(database, dba, hire):
    database.clock.advance(0)
    worker = hire()
    task_id = add(dba, delay_seconds=90)
    ((reason, message, detail, _),) = why(dba, task_id)
    assert (reason, "in 90 s" in message, "at" in detail) == ("not_due", True, True)
    assert worker.claim(1) == []
    database.clock.advance(90)
    assert runs(worker, task_id)


def test_a_retry_says_which_and_when(database, dba, hire):
    database.clock.advance(0)
    worker = hire()
    task_id = add(dba, max_retries=3, retry_policy='{"delays": [30]}')
    worker.end(worker.claim_one(), error_class="E", error_message="no money")
    ((reason, message, _, _),) = why(dba, task_id)
    assert reason == "waits_for_retry"
    assert "Retry 1 of 3." in message
    assert "in 30 s" in message
    assert "E: no money" in message
    database.clock.advance(30)
    assert runs(worker, task_id)


@pytest.mark.parametrize("parked", [False, True])
def test_who_is_missing_is_told_apart(database, dba, hire, parked):
    task_id = add(dba, queue="mail", min_version=2)
    assert reasons(dba, task_id) == ["no_worker"]
    elsewhere = hire(queues=["sms"], types=["t"])
    assert "though some know the type t" in why(dba, task_id)[0][1]
    here = hire(queues=["mail"], types=["other"])
    assert why(dba, task_id)[0][0] == "type_unknown"
    do(dba, "delete from octop_workers where id = %s", elsewhere.id)
    if parked:
        assert here.exchange(10).parked == 1
    assert "do not know the type t" in why(dba, task_id)[0][1]
    do(dba, "update octop_workers set task_types = '{t}', versions = '{1}'")
    assert reasons(dba, task_id) == ["version_unknown"]
    do(dba, "update octop_workers set versions = '{2}'")
    ages(dba, 3600, here.id)
    assert reasons(dba, task_id) == ["workers_silent"]
    do(dba, "update octop_workers set beat_at = _octop_now(), draining = true")
    assert reasons(dba, task_id) == ["no_worker"]
    do(dba, "update octop_workers set draining = false")
    assert reasons(dba, task_id) == (["coming_back"] if parked else ["waits_for_room"])
    here.types = [TaskTypePolicy("t", version=2)]
    assert runs(here, task_id)


def test_a_queue_limited_to_nothing_is_told(dba, operator, hire):
    worker = hire()
    task_id = add(dba)
    do(operator, "select octop_scale('default', 0)")
    assert reasons(dba, task_id)[0] == "queue_limit_is_zero"
    do(operator, "select octop_scale('default', null)")
    assert runs(worker, task_id)


@pytest.mark.parametrize(
    ("reason", "limits"),
    [
        ("global_limit", '{"global_limit": 1}'),
        ("lane_limit", '{"lane_limit": 1}'),
        ("ordered", '{"ordered": true}'),
    ],
)
def test_a_full_limit_is_told_with_the_tasks_that_fill_it(dba, operator, hire, reason, limits):
    worker = hire()
    first, task_id = add(dba, lane="a"), add(dba, lane="a")
    do(operator, "select octop_set_queue('default', %s)", limits)
    claimed = worker.claim_one()
    assert claimed.id == first
    ((told, message, detail, _),) = why(dba, task_id)
    assert (told, detail["task_ids"]) == (reason, [first])
    assert first in message
    worker.succeed(claimed)
    assert runs(worker, task_id)


@pytest.mark.parametrize(("reason", "limits"), [("rate", '{"rate": 0.1}'), ("lane_rate", '{"lane_rate": 0.1}')])
def test_a_rate_is_told_with_the_moment_of_the_next_start(database, dba, operator, hire, reason, limits):
    database.clock.advance(0)
    worker = hire()
    _, task_id = add(dba, lane="a"), add(dba, lane="a")
    do(operator, "select octop_set_queue('default', %s)", limits)
    assert len(worker.claim(10)) == 1
    ((told, message, _, _),) = why(dba, task_id)
    assert (told, "in 10 s" in message) == (reason, True)
    database.clock.advance(10)
    assert runs(worker, task_id)


def test_behind_how_many_others_is_told(dba, hire):
    worker = hire()
    for _ in range(3):
        add(dba)
    task_id = add(dba)
    add(dba, priority=0)
    add(dba)
    ((reason, message, detail, _),) = why(dba, task_id)
    assert (reason, detail["ahead"], "behind 4 others" in message) == ("waits_for_room", 4, True)
    worker.claim(4)
    assert why(dba, task_id)[0][2]["ahead"] == 0
    assert runs(worker, task_id)


def test_every_end_and_what_runs(database, dba, operator, hire):
    worker = hire(name="box")
    task_id = add(dba, max_retries=0)
    claimed = worker.claim_one()
    ((reason, message, detail, _),) = why(dba, task_id)
    assert (reason, detail["worker"], "The worker box runs it since" in message) == ("runs", "box", True)
    do(operator, "select octop_cancel(%s)", task_id)
    assert reasons(dba, task_id) == ["cancel_requested"]
    worker.end(claimed)
    assert reasons(dba, task_id) == ["cancelled"]
    frozen = add(dba, max_retries=0)
    worker.end(worker.claim_one(), error_class="E", error_message="no\nway")
    ((reason, message, _, advice),) = why(dba, frozen)
    assert (reason, advice) == ("retries_used_up", f"To run it again: octop tasks retry {frozen}")
    assert "The last error: E: no" in message
    do(operator, "select octop_retry(%s)", frozen)
    worker.succeed(worker.claim_one())
    assert reasons(dba, frozen) == ["succeeded"]
    assert reasons(dba, "00000000-0000-7000-8000-000000000000") == ["unknown"]
    assert reasons(dba, None) == ["unknown"]
    other = add(dba)
    do(dba, "update octop_tasks_live set status = 'blocked', blocked_by = 'event:paid' where id = %s", other)
    assert reasons(dba, other) == ["blocked"]


def test_a_viewer_asks_about_all_a_producer_about_his_own_and_learns_nothing_of_others(database, dba, operator, hire):
    worker = hire()
    with database.connect("octop_producer") as mine, database.connect("octop_viewer") as viewer:
        theirs = add(dba)
        own = add(mine)
        do(operator, "select octop_set_queue('default', '{\"global_limit\": 1}')")
        assert [each.id for each in worker.claim(5)] == [theirs]
        assert reasons(mine, theirs) == ["unknown"]
        assert reasons(viewer, theirs) == ["runs"]
        assert "task_ids" in why(viewer, own)[0][2]
        assert "task_ids" not in why(mine, own)[0][2]
        assert theirs not in str(why(mine, own))
        assert value(viewer, "select count(*) from octop_why(%s)", own) == 1
