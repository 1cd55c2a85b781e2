"""Who lives, what it declared, what it must know."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest

from octop.engine import calls
from octop.engine.call import run
from octop.model.work import TaskTypePolicy
from tests.sql.crew import add, add_many, column, do, refused, rows, task, value


def policy(dba, name="t"):
    return rows(
        dba,
        "select queue, priority, max_retries, timeout_seconds, retry_policy from octop_task_types where name = %s",
        name,
    )[0]


def test_registering_writes_worker_types_and_queues_and_repeating_it_changes_nothing(dba, hire):
    worker = hire(
        queues=["a", "b"],
        types=[
            TaskTypePolicy(
                "t", queue="a", priority=1, max_retries=0, timeout_seconds=0.5, run_in="process", description="Does."
            )
        ],
    )
    everything = (
        "select to_jsonb(w) - 'beat_at' from octop_workers w union all select to_jsonb(t)"
        " from octop_task_types t union all select to_jsonb(q) from octop_queues q"
    )
    before = column(dba, everything)
    audited, version = value(dba, "select count(*) from octop_audit"), value(dba, "select version from _octop_control")
    worker.register()
    assert column(dba, everything) == before
    assert value(dba, "select count(*) from octop_audit") == audited
    assert rows(dba, "select queues, task_types, draining from octop_workers") == [(["a", "b"], ["t"], False)]
    assert rows(dba, "select run_in, description from octop_task_types") == [("process", "Does.")]
    assert policy(dba) == ("a", 1, 0, 0.5, None)
    assert version >= 1


def test_an_operators_change_survives_every_deploy_and_the_rest_follows_the_code(database, dba, hire):
    first = TaskTypePolicy(
        "t", queue="mail", priority=5, max_retries=3, timeout_seconds=30.0, retry_policy={"delays": [1]}
    )
    worker = hire(types=[first])
    with database.connect("octop_operator") as operator:
        do(operator, "update octop_task_types set max_retries = 9, retry_policy = null where name = 't'")
    replace(
        worker, types=[replace(first, priority=4, max_retries=5, timeout_seconds=60.0, retry_policy={"delays": [2]})]
    ).register()
    assert policy(dba) == ("mail", 4, 9, 60, None)
    replace(worker, types=[TaskTypePolicy("t")]).register()
    assert policy(dba) == (None, None, 9, None, None)
    do(dba, "update octop_task_types set max_retries = (declared ->> 'max_retries')::int where name = 't'")  # reset
    replace(worker, types=[replace(first, max_retries=7)]).register()
    assert policy(dba)[2] == 7


def test_an_operators_queue_limits_survive_a_deploy(dba, hire):
    hire(queues=["mail"])
    do(dba, "select octop_scale('mail', 2)")
    hire(queues=["mail"])
    assert value(dba, "select worker_limit from octop_queues where name = 'mail'") == 2
    assert run(dba, calls.octop_settings()).worker_limits == {"mail": 2}


def test_types_can_be_declared_without_a_worker_and_many_at_once(dba):
    run(dba, calls.octop_declare_task_types([TaskTypePolicy(f"t{i}", queue="q") for i in range(100)]))
    assert value(dba, "select count(*) from octop_task_types where queue = 'q'") == 100
    assert value(dba, "select count(*) from octop_workers") == 0
    said = refused("OC113", dba, "select octop_declare_task_types(%s)", json.dumps([{"name": "x", "priority": 10}]))
    assert "priority must be 0 to 9, not 10" in said


def test_a_beat_says_whether_the_lease_was_unbroken(database, dba, hire):
    database.clock.advance(0)
    worker = hire()
    database.clock.advance(29.9)
    assert worker.beat() is True
    began = value(dba, "select beating_since from octop_workers")
    now = database.clock.advance(30)
    assert worker.beat() is False
    assert rows(dba, "select beating_since, beat_at from octop_workers") == [(now, now)]
    assert began < now
    assert worker.beat() is True


def test_a_worker_whose_row_was_deleted_learns_it_by_its_beat_and_lives_on(dba, hire):
    worker = hire()
    do(dba, "delete from octop_workers")
    assert worker.beat() is False
    assert worker.beat() is True
    worker.register()
    add(dba)
    assert worker.claim_one()


def test_one_call_beats_for_several_workers(dba, hire):
    one, two = hire(), hire()
    stranger = str(uuid4())
    assert run(dba, calls.octop_beat([one.id, stranger, two.id])) == {one.id: True, two.id: True, stranger: False}
    assert run(dba, calls.octop_beat([])) == {}


def test_registering_after_a_silence_does_not_make_the_beats_unbroken(database, dba, hire):
    database.clock.advance(0)
    worker = hire()
    database.clock.advance(31)
    worker.register()
    assert value(dba, "select beating_since = beat_at from octop_workers")


def test_C005_a_heartbeat_over_a_third_of_the_lease_is_refused(dba):
    with pytest.raises(psycopg.Error) as error:
        do(dba, "select octop_config_set('worker.heartbeat_seconds', '10.1')")
    assert error.value.sqlstate == "OC203"


def test_control_names_the_running_tasks_whose_cancel_is_asked_and_only_this_workers(dba, hire):
    add_many(dba, 3)
    one, two = hire(), hire()
    (mine, calm), (other,) = one.claim(2), two.claim(1)
    for each in (mine, other):
        do(dba, "select octop_cancel(%s)", each.id)
    assert run(one.connection, calls.octop_control(one.id)).cancel == [mine.id]
    assert run(two.connection, calls.octop_control(two.id)).cancel == [other.id]
    one.end(mine, "cancelled")
    assert run(one.connection, calls.octop_control(one.id)).cancel == []
    assert task(dba, calm.id)["status"] == "running"


def test_control_names_the_attempts_that_were_taken_back_by_hand(dba, hire):
    add_many(dba, 7)
    one, two = hire(), hire()
    pending, failed, cancelled, deleted, other, again, calm = one.claim(7)
    held = [pending, failed, cancelled, deleted, other, again, calm]
    assert run(one.connection, calls.octop_control(one.id, held)).lost == []
    for each in (other, again):
        do(dba, "update octop_tasks set status = 'pending' where id = %s", each.id)
        (two if each is other else one).claim_one()
    later = "update octop_tasks set status = %s, scheduled_at = now() + '1 h' where id = %s"
    do(dba, later, "pending", pending.id)
    do(dba, later, "failed", failed.id)
    do(dba, "update octop_tasks set status = 'cancelled' where id = %s", cancelled.id)
    do(dba, "delete from octop_tasks where id = %s", deleted.id)
    assert set(run(one.connection, calls.octop_control(one.id, held)).lost) == {each.id for each in held} - {calm.id}
    assert run(one.connection, calls.octop_control(one.id)).lost == []


def test_control_lets_an_attempt_go_on_whose_claim_the_server_forgot_until_another_worker_has_it(dba, hire):
    add(dba)
    one, two = hire(), hire()
    claimed = one.claim_one()

    def forget():
        # what a crash leaves behind of a claim whose commit had not reached the disk
        do(
            dba,
            "update octop_tasks_live set status = 'pending', attempt = 0, worker_id = null, claim_id = null,"
            " deadline_at = null, started_at = null",
        )

    forget()
    assert run(one.connection, calls.octop_control(one.id, [claimed])).lost == []
    assert one.claim_one().attempt == claimed.attempt
    assert run(one.connection, calls.octop_control(one.id, [claimed])).lost == []
    forget()
    two.claim_one()
    assert run(one.connection, calls.octop_control(one.id, [claimed])).lost == [claimed.id]


def test_settings_answer_all_keys_limits_and_holds(dba, hire):
    worker = hire(queues=["a", "b"])
    do(dba, "select octop_scale('a', 0), octop_pause('b'), octop_config_set('worker.grace_seconds', '7.5')")
    found = run(worker.connection, calls.octop_settings())
    assert set(found.values) == set(column(dba, "select key from octop_config_keys()"))
    assert (found.values["worker.lease_seconds"], found.values["worker.grace_seconds"]) == (30, 7.5)
    assert (found.worker_limits, found.held_queues) == ({"a": 0}, frozenset({"b"}))
    assert found.version == run(worker.connection, calls.octop_control(worker.id)).version


def test_deregistering_releases_what_runs_without_a_try_and_wakes_the_others(database, dba, hire):
    add_many(dba, 1200)
    worker, other = hire(), hire()
    claimed = worker.claim(1200)
    run(other.connection, calls.octop_sleep(other.id, ["default"], 5))
    with database.connect() as ear:
        ear.execute("listen octop_wake")
        assert run(worker.connection, calls.octop_deregister(worker.id)) == 1200
        assert [each.payload for each in ear.notifies(timeout=5, stop_after=1)] == ["default"]
    assert rows(dba, "select status, retry_count, count(*) from octop_tasks group by 1, 2") == [("pending", 0, 1200)]
    assert column(dba, "select distinct outcome from octop_attempts") == ["released"]
    assert value(dba, "select count(*) from octop_workers") == 1
    assert worker.succeed(claimed[0]) == ["lost"]
    assert len(other.claim(1200)) == 1200
    assert run(worker.connection, calls.octop_deregister(worker.id)) == 0


def test_remaining_does_not_count_what_is_paused_or_limited_to_nothing(dba, hire):
    worker = hire(queues=["a", "b"])
    add_many(dba, 3, "t", "a")
    add_many(dba, 2, "t", "b")
    left = calls.octop_remaining(["a", "b"], ["t"])
    assert run(worker.connection, left) == 5
    run(dba, calls.octop_pause("a"))
    assert run(worker.connection, left) == 2
    run(dba, calls.octop_scale("b", 0))
    assert run(worker.connection, left) == 0


def test_remaining_counts_what_is_unfinished_of_these_queues_and_types(dba, hire):
    worker = hire(queues=["a"], types=["t", "u"])
    add_many(dba, 3, "t", "a")
    add_many(dba, 2, "u", "a")
    add_many(dba, 5, "t", "b")
    worker.succeed(*worker.claim(1))
    worker.claim(1)
    assert run(dba, calls.octop_remaining(["a"], ["t", "u"])) == 4
    assert run(dba, calls.octop_remaining(["b"], ["u"])) == 0
    add_many(dba, 2000, "t", "a")
    assert run(dba, calls.octop_remaining(["a"], ["t", "u"])) == 1000


def test_C009_a_new_process_under_the_same_name_vouches_for_nothing_of_the_old_one(database, dba, hire):
    database.clock.advance(0)
    task_id = add(dba)
    hire(name="pod-0").claim_one()  # and is killed
    again = hire(name="pod-0")
    for _ in range(8):
        database.clock.advance(5)
        again.beat()
        again.sweep()
    assert (task(dba, task_id)["status"], task(dba, task_id)["retry_count"]) == ("failed", 1)


def test_a_sleeper_is_told_the_next_due_time_and_never_a_later_one(dba, hire):
    worker = hire(queues=["a", "b"])

    def asleep(seconds=60.0):
        return run(worker.connection, calls.octop_sleep(worker.id, ["a", "b"], seconds))

    assert asleep() == pytest.approx(60, abs=1)
    for queue, lane, priority, delay in (
        ("a", "", 9, 50.0),
        ("b", "l", 5, 40.0),
        ("a", "k", 0, 30.0),
        ("b", "", 0, 20.0),
    ):
        add(dba, queue=queue, lane=lane, priority=priority, delay_seconds=delay)
        assert asleep() == pytest.approx(delay, abs=1)
    assert 4 < asleep(5.0) <= 5
    assert rows(dba, "select count(*) from _octop_sleepers") == [(2,)]
    worker.exchange(1, awake=True)
    assert value(dba, "select bool_and(wake_at = '-infinity') from _octop_sleepers")


def test_a_transaction_that_may_have_missed_that_we_sleep_leaves_a_doubt(database, dba, hire):
    worker = hire()
    with database.connect("octop_producer", autocommit=False) as producer:
        add(producer)  # has read that nobody sleeps
        run(worker.connection, calls.octop_sleep(worker.id, ["default"], 60.0))
        doubt = run(worker.connection, calls.octop_doubt())
        assert worker.claim(1) == []
        assert run(worker.connection, calls.octop_doubtful(doubt)) is True
        producer.commit()
    while run(worker.connection, calls.octop_doubtful(doubt)):
        pass  # other tests' transactions on this server count too
    assert len(worker.claim(1)) == 1


def test_who_takes_a_worker_for_lost_that_is_not_there_is_told_so(dba):
    said = []
    dba.add_notice_handler(lambda notice: said.append(notice.message_primary))
    unknown = "00000000-0000-4000-8000-000000000001"
    assert [value(dba, "select octop_lost(%s::uuid)", each) for each in (unknown, None)] == [0, 0]
    assert said == [f"octop: there is no worker {each}, and nothing that it runs" for each in (unknown, "null")]
