"""Uniqueness: one task per key, decided by the database, whoever enqueues how many at once, and whatever becomes of them."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import uuid4

import psycopg
import pytest

from octop.engine import calls
from octop.engine.call import run
from octop.model import errors
from octop.model.ids import new_id
from octop.model.work import NewTask
from tests.sql.crew import column, do, rows, task, value
from tests.sql.sessions import sessions
from tests.sql.test_enqueue import refused
from tests.sql.unique import add_unique, counted, keyed, many, send


@pytest.fixture
def producer(database):
    with database.connect("octop_producer") as connection:
        yield connection


# --- keys -------------------------------------------------------------------------------------------------------------


def test_one_pending_task_per_user_and_type_is_one_argument(dba, producer):
    first, created = add_unique(producer)
    assert created
    assert add_unique(producer) == (first, False)
    assert add_unique(producer, '{"user_id": 42, "other": 1}') == (first, False)
    assert add_unique(producer, '{"user_id": 43}')[1]
    assert value(dba, "select count(*) from octop_tasks") == 2
    assert task(dba, first)["unique_key"] == '{"user_id": 42}'
    counted(dba)


def test_the_key_holds_tenant_and_task_type_and_scope(dba):
    ids = {
        add_unique(dba)[0],
        add_unique(dba, tenant="a")[0],
        add_unique(dba, unique_scope="live")[0],
        str(value(dba, "select id from octop_enqueue('u', '{\"user_id\": 42}', unique_by => '{user_id}')")),
    }
    assert len(ids) == 4


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"user_id": 1}', '{"user_id": 1.0}', True),
        ('{"user_id": 100}', '{"user_id": 1e2}', True),
        ('{"user_id": [1.50, {"a": 2.0}]}', '{"user_id": [1.5, {"a": 2}]}', True),
        ('{"user_id": {"a": 1, "b": 2}}', '{"user_id": {"b": 2, "a": 1}}', True),
        ('{"user_id": null, "x": 1}', '{"user_id": null, "x": 2}', True),
        ('{"user_id": 1}', '{"user_id": "1"}', False),
        ('{"user_id": true}', '{"user_id": 1}', False),
        ('{"user_id": 1.5}', '{"user_id": 1.25}', False),
        ('{"user_id": {"a": null}}', '{"user_id": {}}', False),
        ('{"user_id": "1.0"}', '{"user_id": "1"}', False),
        ('{"user_id": [1, 2]}', '{"user_id": [2, 1]}', False),
    ],
)
def test_values_are_the_same_that_are_equal_as_json(dba, one, other, same):
    first, _ = add_unique(dba, one)
    assert (add_unique(dba, other)[0] == first) is same


def test_a_chosen_field_that_is_absent_is_the_same_as_null_and_so_is_one_of_the_whole_payload(dba):
    by = ["user_id", "kind"]
    first, _ = add_unique(dba, '{"user_id": 1}', unique_by=by)
    assert add_unique(dba, '{"user_id": 1, "kind": null}', unique_by=by[::-1]) == (first, False)
    whole, _ = add_unique(dba, '{"a": 1.0, "b": null}', unique_by=[])
    assert add_unique(dba, '{"a": 1}', unique_by=[]) == (whole, False)
    assert add_unique(dba, '{"a": 1, "c": 1}', unique_by=[])[1]


def test_a_dot_leads_inside_of_a_field_unless_the_payload_has_just_that_name(dba):
    first, _ = add_unique(dba, '{"user": {"id": 1}, "x": 1}', unique_by=["user.id"])
    assert add_unique(dba, '{"user": {"id": 1}, "x": 2}', unique_by=["user.id"]) == (first, False)
    assert add_unique(dba, '{"user.id": 2}', unique_by=["user.id"])[1]
    assert not add_unique(dba, '{"user.id": 2, "y": 0}', unique_by=["user.id"])[1]


def test_a_text_of_ones_own_is_a_key_and_a_long_value_is_hashed(dba):
    first, _ = add_unique(dba, unique_key="tuesday")
    assert add_unique(dba, "{}", unique_key="tuesday") == (first, False)
    long = json.dumps({"user_id": "x" * 5_000})
    first, _ = add_unique(dba, long)
    assert add_unique(dba, long) == (first, False)
    assert task(dba, first)["unique_key"].startswith("sha256:")


@pytest.mark.parametrize(
    "options",
    [
        {"unique_by": ["userid"]},
        {"unique_key": ""},
        {"unique_key": "x" * 1001},
        {"unique_key": "a\nb"},
        {"unique_key": "a", "unique_by": ["user_id"]},
        {"unique_scope": "for ever"},
        {"unique_scope": "-1 hour"},
        {"unique_scope": "2 years"},
        {"on_conflict": "ignore"},
        {"unique_by": None, "unique_scope": "live"},
        {"unique_by": None, "on_conflict": "raise"},
    ],
)
def test_what_says_nothing_about_uniqueness_is_refused_and_nothing_is_made(dba, options):
    with pytest.raises(psycopg.Error) as refusal:
        add_unique(dba, **options)
    assert refusal.value.sqlstate == "OC113", str(refusal.value)
    assert refusal.value.diag.message_hint
    assert value(dba, "select count(*) from octop_tasks") == 0


def test_a_batch_says_in_which_task_and_needs_arrays_of_one_length(dba):
    with pytest.raises(errors.InvalidOptionError, match="task 2 of 2: on_conflict must be"):
        many(dba, [keyed(1), keyed(2, on_conflict="x")])
    refused("OC302", dba, "select octop_enqueue_many('{t,t}', '{\"{}\",\"{}\"}', unique_keys => '{a}')")
    refused("OC113", dba, "select octop_enqueue_many('{t}', '{\"{}\"}', unique_by => '{user_id}')")


# --- scopes -----------------------------------------------------------------------------------------------------------


def test_pending_is_until_the_first_start_and_the_key_is_never_taken_again(dba, hire):
    worker = hire()
    first, _ = add_unique(dba, max_retries=1)
    (claimed,) = worker.claim()
    second, created = add_unique(dba)
    assert created
    worker.end(claimed)
    assert task(dba, first)["status"] == "failed"
    assert add_unique(dba) == (second, False)
    assert task(dba, first)["unique_hold"] is None


def test_live_is_until_the_end(dba, database, hire):
    worker = hire()
    live = {"unique_scope": "live"}
    first, _ = add_unique(dba, **live)
    (claimed,) = worker.claim()
    assert add_unique(dba, **live) == (first, False)
    worker.end(claimed)
    assert add_unique(dba, **live) == (first, False)
    database.clock.advance(60)
    worker.beat()
    (claimed,) = worker.claim()
    worker.succeed(claimed)
    assert add_unique(dba, **live)[1]


def test_a_cancelled_task_gives_its_key_back(dba):
    for scope in ("pending", "live"):
        first, _ = add_unique(dba, unique_scope=scope)
        do(dba, "select octop_cancel(%s)", first)
        assert add_unique(dba, unique_scope=scope)[1]


def test_a_time_window_is_counted_from_the_enqueue_whatever_becomes_of_the_task(dba, database, hire):
    worker = hire()
    hour = {"unique_scope": "1 hour"}
    database.clock.advance(0)
    first, _ = add_unique(dba, **hour)
    worker.succeed(*worker.claim())
    database.clock.advance(3599)
    assert add_unique(dba, **hour) == (first, False)
    database.clock.advance(1)
    second, created = add_unique(dba, **hour)
    assert created
    assert add_unique(dba, **hour) == (second, False)
    counted(dba)


def test_the_sweep_takes_away_windows_that_are_over(dba, database, hire):
    worker = hire()
    for number in range(3):
        add_unique(dba, json.dumps({"user_id": number}), unique_scope=f"{number + 1} minutes")
    database.clock.advance(125)
    worker.beat()
    worker.sweep()
    assert value(dba, "select count(*) from _octop_unique_windows") == 1


# --- what becomes of a conflict ---------------------------------------------------------------------------------------


def test_raise_names_the_task_that_exists(dba):
    first, _ = add_unique(dba)
    with pytest.raises(psycopg.Error) as refusal:
        add_unique(dba, on_conflict="raise")
    assert (refusal.value.sqlstate, refusal.value.diag.message_detail) == ("OC116", f"task {first}")
    assert '{"user_id": 42}' in str(refusal.value)


def test_replace_takes_the_payload_and_what_was_said_of_time_and_priority(dba, database):
    now = database.clock.advance(0)
    first, _ = add_unique(dba, '{"user_id": 42, "n": 1}', priority=3, delay_seconds=60)
    assert add_unique(dba, '{"user_id": 42, "n": 2}', on_conflict="replace") == (first, False)
    found = task(dba, first)
    assert (found["payload"]["n"], found["priority"], (found["scheduled_at"] - now).total_seconds()) == (2, 3, 60)
    add_unique(dba, '{"user_id": 42, "n": 3}', on_conflict="replace", priority=0, delay_seconds=5)
    found = task(dba, first)
    assert (found["payload"]["n"], found["priority"], (found["scheduled_at"] - now).total_seconds()) == (3, 0, 5)


def test_move_is_a_debounce(dba, database):
    first, _ = add_unique(dba, '{"user_id": 42, "n": 1}', on_conflict="move", delay_seconds=30)
    for _ in range(3):
        database.clock.advance(10)
        add_unique(dba, '{"user_id": 42, "n": 1}', on_conflict="move", delay_seconds=30)
    now = database.clock.advance(0)
    assert value(dba, "select count(*) from octop_tasks") == 1
    assert (task(dba, first)["scheduled_at"] - now).total_seconds() == 30
    add_unique(dba, '{"user_id": 42, "n": 2}', on_conflict="move")
    assert task(dba, first)["scheduled_at"] == now
    assert task(dba, first)["payload"]["n"] == 1


def test_a_moved_task_wakes_who_would_oversleep_it(dba, database, hire):
    worker = hire()
    add_unique(dba, delay_seconds=3600)
    with database.connect() as listener:
        listener.execute("listen octop_wake")
        run(worker.connection, calls.octop_sleep(worker.id, ["default"], 600))
        add_unique(dba, on_conflict="move")
        assert [each.payload for each in listener.notifies(timeout=5, stop_after=1)] == ["default"]


@pytest.mark.parametrize("scope", ["live", "1 hour"])
@pytest.mark.parametrize("rule", ["keep", "replace", "move"])
def test_a_running_task_is_answered_and_neither_changed_nor_locked(database, dba, hire, scope, rule):
    worker = hire()
    first, _ = add_unique(dba, unique_scope=scope)
    (claimed,) = worker.claim()
    before = task(dba, first)
    with database.connect() as other, other.transaction():
        assert add_unique(other, '{"user_id": 42, "x": 1}', unique_scope=scope, on_conflict=rule) == (first, False)
        assert task(dba, first) == before
        worker.succeed(claimed)  # not careful: a lock would have made it wait, and fail
    assert task(dba, first)["status"] == "success"


@pytest.mark.parametrize("rule", ["keep", "raise", "replace", "move"])
def test_a_task_that_was_told_of_does_not_start_before_the_caller_commits(database, dba, hire, rule):
    worker = hire()
    first, _ = add_unique(dba)
    with database.connect() as other:
        with other.transaction():
            assert many(other, [keyed(42, on_conflict=rule)]) == [(first, False)]
            assert worker.claim() == []
        assert [each.id for each in worker.claim()] == [first]


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_conflict_never_stops_a_batch(dba):
    first, _ = add_unique(dba)
    tasks = [keyed(1), keyed(42, on_conflict="raise"), NewTask("t", "{}", new_id()), keyed(1), keyed(2)]
    answer = many(dba, tasks)
    assert [created for _, created in answer] == [True, False, True, False, True]
    assert answer[1][0] == first
    assert answer[3][0] == answer[0][0]
    assert [id for id, created in answer if created] == [tasks[n].id for n in (0, 2, 4)]
    assert value(dba, "select count(*) from octop_tasks") == 4
    assert run(dba, calls.octop_enqueue_many([keyed(1), keyed(3)], return_ids=False)) == 1
    counted(dba)


def test_in_a_batch_the_first_is_kept_and_the_last_replaces(dba):
    def numbered(rule):
        return [
            NewTask("t", json.dumps({"user_id": rule, "n": n}), new_id(), unique_by=["user_id"], on_conflict=rule)
            for n in range(3)
        ]

    many(dba, numbered("keep") + numbered("replace"))
    assert rows(dba, "select payload ->> 'user_id', (payload ->> 'n')::int from octop_tasks order by 1") == [
        ("keep", 0),
        ("replace", 2),
    ]


def test_a_batch_keeps_the_order_of_enqueue_whatever_its_ids(dba):
    tasks = [NewTask("t", "{}", str(uuid4()), queue="q") for _ in range(50)]
    many(dba, tasks, fresh=False)
    assert column(dba, "select id::text from octop_tasks order by seq") == [each.id for each in tasks]


def test_an_enqueue_that_is_repeated_after_a_lost_answer_finds_itself(dba, hire):
    worker = hire()
    new = keyed(42, on_conflict="raise")
    assert many(dba, [new]) == [(new.id, True)]
    assert many(dba, [new], fresh=False) == [(new.id, False)]
    worker.succeed(*worker.claim())
    assert many(dba, [new], fresh=False) == [(new.id, False)]
    assert value(dba, "select count(*) from octop_tasks") == 1
    counted(dba)


def crossed(database, one, other):
    """Send the calls of both at once, each in a session of its own."""
    with sessions(database, 2) as pair:
        for session in pair:
            session.execute("set deadlock_timeout = '100ms'")
        with ThreadPoolExecutor(2) as threads:
            told = [threads.submit(send, *each) for each in zip(pair, (one, other), strict=True)]
            return [each.result(60) for each in told]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["keys", "ids"])
def test_two_bulk_calls_in_opposite_order_do_not_deadlock(database, dba, what):
    def batches():
        for _ in range(60):
            tasks = [keyed(n) if what == "keys" else NewTask("t", "{}", str(uuid4())) for n in range(200)]
            random.Random(1).shuffle(tasks)
            yield tasks

    one = list(batches())
    calls_of = partial(calls.octop_enqueue_many, fresh=False)
    there, back = ([calls_of(each) for each in one], [calls_of(each[::-1]) for each in one])
    crossed(database, there, back)
    assert value(dba, "select count(*) from octop_tasks") == (200 if what == "keys" else 60 * 200)
    assert value(dba, "select deadlocks from pg_stat_database where datname = current_database()") == 0
    counted(dba)


# --- people ----------------------------------------------------------------------------------------------------------


def freeze(worker, claimed):
    worker.end(claimed, final=True)


def test_a_frozen_task_of_scope_pending_is_retried_beside_its_twin(dba, hire):
    worker = hire()
    first, _ = add_unique(dba)
    freeze(worker, *worker.claim())
    twin, _ = add_unique(dba)
    assert str(value(dba, "select octop_retry(%s)", first)) == first
    assert {task(dba, each)["status"] for each in (first, twin)} == {"pending"}
    counted(dba)


def test_a_frozen_task_of_scope_live_holds_its_key_again_or_stays_frozen(dba, hire):
    worker = hire()
    live = {"unique_scope": "live"}
    first, _ = add_unique(dba, **live)
    freeze(worker, *worker.claim())
    twin, created = add_unique(dba, **live)
    assert created
    with pytest.raises(psycopg.Error) as refusal:
        do(dba, "select octop_retry(%s)", first)
    assert (refusal.value.sqlstate, refusal.value.diag.message_detail) == ("OC116", f"task {twin}")
    assert rows(dba, "select verdict, retried_as::text from octop_retry_many(%s::uuid[])", [first]) == [
        ("exists", twin)
    ]
    assert task(dba, first)["status"] == "frozen"
    with pytest.raises(psycopg.errors.UniqueViolation) as clash:
        do(dba, "update octop_tasks set status = 'pending' where id = %s", first)
    assert clash.value.diag.constraint_name == "octop_tasks_live_one_per_unique_key"
    do(dba, "select octop_cancel(%s)", twin)
    assert str(value(dba, "select octop_retry(%s)", first)) == first
    assert add_unique(dba, **live) == (first, False)
    counted(dba)


def test_the_repetition_of_a_finished_task_takes_its_key_or_says_who_holds_it(dba, hire):
    worker = hire()
    first, _ = add_unique(dba)
    worker.succeed(*worker.claim())
    again = str(value(dba, "select octop_retry(%s)", first))
    assert again != first
    assert add_unique(dba) == (again, False)
    with pytest.raises(psycopg.Error) as refusal:
        do(dba, "select octop_retry(%s)", first)
    assert (refusal.value.sqlstate, refusal.value.diag.message_detail) == ("OC116", f"task {again}")
    assert rows(dba, "select verdict, retried_as::text from octop_retry_many(%s::uuid[])", [first]) == [
        ("exists", again)
    ]
    counted(dba)


def test_the_repetition_of_a_task_with_a_window_is_made_inside_of_it(dba, hire):
    worker = hire()
    first, _ = add_unique(dba, unique_scope="1 hour")
    worker.succeed(*worker.claim())
    again = str(value(dba, "select octop_retry(%s)", first))
    assert again != first
    assert add_unique(dba, unique_scope="1 hour") == (first, False)


def test_a_plain_insert_may_have_a_key(dba, producer, hire):
    do(producer, "insert into octop_tasks (task_type, payload, unique_key) values ('t', '{}', 'a')")
    (first,) = column(dba, "select id::text from octop_tasks")
    assert task(dba, first)["unique_scope"] == "pending"
    for statement in (
        "insert into octop_tasks (task_type, unique_key) values ('t', 'a')",
        "insert into octop_tasks (task_type, unique_key) values ('t', 'b'), ('t', 'a')",
        "insert into octop_tasks (task_type, unique_key, unique_scope) values ('t', 'a', 'live'), ('t', 'a', 'live')",
        "insert into octop_tasks (task_type, unique_key, unique_scope) values ('t', 'a', '1 hour'), ('t', 'a', '1 hour')",
    ):
        said = refused("OC116", producer, statement)
        assert "holds the unique key a already" in said
    assert f"task {first}" in refused(
        "OC116", producer, "insert into octop_tasks (task_type, unique_key) values ('t', 'a')"
    )
    refused(
        "OC113", producer, "insert into octop_tasks (task_type, unique_key, unique_scope) values ('t', 'a', 'ever')"
    )
    refused("OC113", producer, "insert into octop_tasks (task_type, unique_scope) values ('t', 'live')")
    refused("OC113", producer, "insert into octop_tasks (task_type, unique_key) values ('t', '')")
    refused("OC101", dba, "insert into octop_tasks (task_type, unique_hold) values ('t', gen_random_uuid())")
    assert add_unique(producer, unique_key="a") == (first, False)
    hire().claim()
    do(producer, "insert into octop_tasks (task_type, unique_key) values ('t', 'a')")
    counted(dba)


def test_a_key_cannot_be_changed_by_hand(dba):
    first, _ = add_unique(dba)
    for change in ("unique_key = 'x'", "unique_hold = null", "tenant = 'x'", "task_type = 'x'"):
        refused("OC102", dba, f"update octop_tasks set {change} where id = %s", first)
    do(dba, "update octop_tasks set status = 'cancelled' where id = %s", first)
    assert task(dba, first)["unique_hold"] is None
    assert add_unique(dba)[1]
