"""octop_enqueue, octop_enqueue_many and plain INSERT: in the caller's transaction, all or nothing, refused where it enters."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from octop.engine import calls
from octop.engine.call import run
from octop.model.ids import new_id
from octop.model.work import NewTask
from tests.sql.crew import add, add_many, column, do, rows, task, value


@pytest.fixture
def producer(database):
    with database.connect("octop_producer") as connection:
        yield connection


def refused(sqlstate, connection, statement, *values):
    with pytest.raises(psycopg.Error) as error:
        do(connection, statement, *values)
    assert error.value.sqlstate == sqlstate, str(error.value)
    if sqlstate.startswith("OC"):
        assert error.value.diag.message_hint
    return str(error.value)


# --- what a task is born with ---------------------------------------------------------------------------------------


def test_a_plain_insert_has_the_promised_defaults(database, dba, producer):
    now = database.clock.advance(0)
    do(producer, "insert into octop_tasks (task_type) values ('t')")
    (task_id,) = column(dba, "select id from octop_tasks")
    born = task(dba, task_id)
    expected = {
        "queue": "default",
        "payload": {},
        "status": "pending",
        "priority": 5,
        "scheduled_at": now,
        "created_at": now,
        "max_retries": None,
        "timeout_seconds": None,
        "retry_count": 0,
        "attempt": 0,
        "created_by": "octop_producer",
    }
    assert {name: born[name] for name in expected} == expected
    assert task_id.version == 7


def test_the_function_and_a_plain_insert_make_the_same_task(database, dba, producer):
    database.clock.advance(0)
    do(producer, "select octop_enqueue('t', '{\"a\": 1}')")
    do(producer, "insert into octop_tasks (task_type, payload) values ('t', '{\"a\": 1}')")
    first, second = rows(dba, "select to_jsonb(t) - 'id' - 'seq' from octop_tasks t")
    assert first == second


def test_insert_returning_gives_the_producer_the_id(producer, dba):
    task_id = value(producer, "insert into octop_tasks (task_type) values ('t') returning id")
    assert task(dba, task_id)["created_by"] == "octop_producer"


def test_seq_is_the_order_of_enqueue(dba):
    ids = [add(dba) for _ in range(3)] + add_many(dba, 3)
    assert column(dba, "select id::text from octop_tasks order by seq") == ids


def test_queue_and_priority_come_from_the_task_type_and_the_call_wins(dba):
    do(dba, 'select octop_declare_task_types(\'[{"name": "t", "queue": "mail", "priority": 2}]\')')
    inherited, own = task(dba, add(dba)), task(dba, add(dba, queue="other", priority=0))
    assert (inherited["queue"], inherited["priority"]) == ("mail", 2)
    assert (own["queue"], own["priority"]) == ("other", 0)


def test_a_delay_is_counted_by_the_databases_clock(database, dba):
    now = database.clock.advance(0)
    found = task(dba, add(dba, delay_seconds=90.5))
    assert (found["scheduled_at"] - now).total_seconds() == 90.5
    assert task(dba, add(dba, delay_seconds=0.0))["scheduled_at"] == now


def test_C015_zero_and_null_differ_for_retries_delay_and_priority(database, dba):
    now = database.clock.advance(0)
    zero = task(dba, add(dba, max_retries=0, delay_seconds=0.0, priority=0))
    null = task(dba, add(dba, max_retries=None, delay_seconds=None, priority=None))
    assert (zero["max_retries"], zero["priority"], zero["scheduled_at"]) == (0, 0, now)
    assert (null["max_retries"], null["priority"], null["scheduled_at"]) == (None, 5, now)
    refused("OC113", dba, "select octop_enqueue('t', timeout_seconds => 0)")


def test_tags_meta_lane_tenant_and_policy_are_kept(dba):
    found = task(
        dba,
        add(
            dba,
            tags=['a,"b', "{c}", "d\\e", ""],
            meta=Jsonb({"trace": "x"}),
            lane="l",
            tenant="x",
            retry_policy='{"delays": [1]}',
        ),
    )
    assert found["tags"] == ['a,"b', "{c}", "d\\e", ""]
    assert (found["meta"], found["lane"], found["tenant"]) == ({"trace": "x"}, "l", "x")
    assert found["retry_policy"] == {"delays": [1]}


# --- refused where it enters ----------------------------------------------------------------------------------------

REFUSED_BY_BOTH = [
    ("task_type", "", "OC110"),
    ("task_type", "x" * 201, "OC110"),
    ("queue", "", "OC110"),
    ("queue", "x" * 201, "OC110"),
    ("lane", "x" * 201, "OC110"),
    ("tenant", "x" * 201, "OC110"),
    ("payload", "[1]", "OC111"),
    ("payload", "1", "OC111"),
    ("payload", '"text"', "OC111"),
    ("payload", "null", "OC111"),
    ("meta", "[]", "OC111"),
    ("priority", 42, "OC113"),
    ("priority", -1, "OC113"),
    ("max_retries", -1, "OC113"),
    ("max_retries", 1001, "OC113"),
    ("timeout_seconds", 0.0, "OC113"),
    ("timeout_seconds", -1.0, "OC113"),
    ("timeout_seconds", float("nan"), "OC113"),
    ("timeout_seconds", float("inf"), "OC113"),
    ("timeout_seconds", 2678401.0, "OC113"),
    ("retry_policy", '{"base": -1}', "OC113"),
    ("scheduled_at", "infinity", "OC114"),
    ("scheduled_at", "-infinity", "OC114"),
    ("scheduled_at", "1999-12-31 23:59:59+00", "OC114"),
    ("scheduled_at", "3000-01-01 00:00:00+00", "OC114"),
]


def test_refuses_a_bad_value_in_both_ways_of_enqueue(dba, producer):
    for name, bad, sqlstate in REFUSED_BY_BOTH:
        given = {"task_type": "t", name: bad}
        named = ", ".join(f"{each} => %s" for each in given)
        refused(sqlstate, producer, f"select octop_enqueue({named})", *given.values())
        with pytest.raises(psycopg.Error) as error:
            do(
                producer,
                f"insert into octop_tasks ({', '.join(given)}) values ({', '.join(['%s'] * len(given))})",
                *given.values(),
            )
        assert error.value.sqlstate in {sqlstate, "23514"}, str(error.value)
        assert value(dba, "select count(*) from octop_tasks") == 0
        assert value(dba, "select count(*) from _octop_counter_deltas") == 0


def test_the_function_refuses_what_only_it_can_see(dba, producer):
    for option, bad, sqlstate in [
        ("delay_seconds", -1.0, "OC113"),
        ("delay_seconds", float("nan"), "OC113"),
        ("delay_seconds", float("inf"), "OC113"),
        ("tags", ["x"] * 51, "OC113"),
        ("tags", ["x" * 9000], "OC113"),
        ("task_type", "a\nb", "OC110"),
        ("queue", "a\x01b", "OC110"),
        ("task_type", None, "OC110"),
        ("payload", None, "OC111"),
    ]:
        given = {"task_type": "t", option: bad}
        named = ", ".join(f"{each} => %s" for each in given)
        refused(sqlstate, producer, f"select octop_enqueue({named})", *given.values())
        assert value(dba, "select count(*) from octop_tasks") == 0


def test_an_unknown_column_is_refused(producer):
    refused("42703", producer, "insert into octop_tasks (task_type, run_at) values ('t', now())")


@pytest.mark.parametrize("far", ["2999-12-31 23:59:59+00", "9999999 days"])
def test_a_delay_beyond_the_year_3000_is_refused_or_lies_within_it(dba, far):
    if far.endswith("days"):
        refused("OC113", dba, "select octop_enqueue('t', delay_seconds => 9999999 * 86400.0)")
    else:
        assert add(dba, scheduled_at=far)
    refused("OC113", dba, "select octop_enqueue('t', delay_seconds => 1, scheduled_at => now())")


@pytest.mark.parametrize("way", ["function", "insert"])
def test_C040_a_payload_over_the_limit_is_refused_and_one_at_the_limit_is_not(dba, producer, way):
    do(dba, "select octop_config_set('task.payload_bytes_max', '20000')")
    statement = {
        "function": "select octop_enqueue('t', %s)",
        "insert": "insert into octop_tasks (task_type, payload) values ('t', %s)",
    }[way]
    frame = len('{"a": ""}')
    # text that hardly compresses: of a megabyte of one letter the table keeps 12 kB, see the next test
    noise = value(dba, "select left(string_agg(md5(i::text), ''), 20000) from generate_series(1, 700) i")
    do(producer, statement, Jsonb({"a": noise[: 20000 - frame]}))
    refused("OC112", producer, statement, Jsonb({"a": noise[: 20001 - frame]}))
    assert value(dba, "select count(*) from octop_tasks") == 1


@pytest.mark.parametrize("way", ["function", "insert"])
def test_C040_a_payload_that_compresses_well_is_refused_by_its_size_too(producer, way):
    statement = {
        "function": "select octop_enqueue('t', jsonb_build_object('a', repeat('x', %s)))",
        "insert": "insert into octop_tasks (task_type, payload) values ('t', jsonb_build_object('a', repeat('x', %s)))",
    }[way]
    do(producer, statement, 1_000_000)
    refused("OC112", producer, statement, 1_048_576)


def test_C039_the_size_of_a_payload_means_nothing_to_the_notification(database, dba, producer, hire):
    for bytes_of_payload in [7_900, 8_100, 1_000_000]:
        worker = hire()
        do(worker.connection, "select octop_sleep(%s, '{default}', 60)", worker.id)
        with database.connect() as ear:
            ear.execute("listen octop_wake")
            payload = Jsonb({"a": "x" * (bytes_of_payload - 10), "b": "€" * 100})
            do(producer, "insert into octop_tasks (task_type, payload) values ('t', %s)", payload)
            heard = [each.payload for each in ear.notifies(timeout=5, stop_after=1)]
        assert heard == ["default"]
        assert len(worker.claim(1)) == 1


def test_C039_a_queue_name_of_200_characters_of_four_bytes_fits_into_the_notification(database, producer, hire):
    queue = "😀" * 200
    worker = hire(queues=[queue])
    do(worker.connection, "select octop_sleep(%s, %s, 60)", worker.id, [queue])
    with database.connect() as ear:
        ear.execute("listen octop_wake")
        do(producer, "select octop_enqueue('t', queue => %s)", queue)
        assert [each.payload for each in ear.notifies(timeout=5, stop_after=1)] == [queue]
    assert len(worker.claim(1)) == 1


def test_C041_C043_what_jsonb_cannot_keep_is_refused_and_nothing_is_written(dba, producer):
    for payload in ['{"a": NaN}', '{"a": "\\u0000"}', '{"a": "\\ud800"}', "{", '{"a": 1} x', '{"a": Infinity}']:
        said = refused("OC111", producer, "select octop_enqueue_many(array['t'], array[%s])", payload)
        assert "SQL statement" not in said
        assert value(dba, "select count(*) from octop_tasks") == 0


@pytest.mark.parametrize(
    ("argument", "good", "bad", "code", "said"),
    [
        ("payloads", "{}", '{"x', "OC111", "the payload is no JSON"),
        ("metas", "{}", "{]", "OC111", "meta is no JSON"),
        ("retry_policies", "{}", "{", "OC113", "the retry policy is no JSON"),
        ("tags", "{a}", "{a", "OC113", "tags must be an array literal"),
    ],
)
def test_what_cannot_be_read_says_in_which_task(dba, producer, argument, good, bad, code, said):
    payloads = "" if argument == "payloads" else "array['{}', '{}', '{}'], "
    statement = f"select octop_enqueue_many(array['a', 'b', 'c'], {payloads}{argument} => array[%s, %s, %s])"
    assert f"octop: task 2 of 3: {said}" in refused(code, producer, statement, good, bad, bad)
    assert value(dba, "select count(*) from octop_tasks") == 0
    do(producer, statement, good, good, None if payloads else good)
    assert value(dba, "select count(*) from octop_tasks") == 3


def test_looking_for_what_cannot_be_read_takes_no_transaction_id_of_its_own(dba):
    # a subtransaction that writes would: more than 64 in one transaction slow down all others
    with dba.transaction():
        do(dba, "select octop_enqueue('t')")
        assert value(dba, "select pg_current_xact_id()::xid = xmin from octop_tasks_live")


def test_no_names_at_all_are_a_mistake_and_an_empty_list_is_none(dba, producer):
    refused("OC110", producer, "select octop_enqueue_many(null, null)")
    refused(
        "OC110", producer, "select octop_enqueue_many((select array_agg(x) from unnest('{}'::text[]) x), array['{}'])"
    )
    assert rows(producer, "select * from octop_enqueue_many('{}', '{}')") == []


def test_C041_the_six_characters_backslash_u0000_go_round_unchanged(dba, hire):
    do(dba, "select octop_enqueue_many(array['t'], array[%s])", r'{"a": "\\u0000"}')
    assert hire().claim_one().payload == r'{"a": "\\u0000"}'


# --- many ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 70_000])
def test_C003_many_answers_one_id_per_task_in_order_and_writes_as_many(dba, producer, count):
    answered = rows(
        producer,
        "select id, created from octop_enqueue_many(array_fill('t'::text, array[%s]), array(select jsonb_build_object('i', i)::text"
        " from generate_series(1, %s) i))",
        count,
        count,
    )
    assert len(answered) == count == value(dba, "select count(*) from octop_tasks")
    assert all(created for _, created in answered)
    order = [each for each, _ in answered]
    assert column(dba, "select id from octop_tasks order by (payload ->> 'i')::int") == order


def test_C003_one_bad_task_in_the_middle_means_none(dba, producer):
    message = refused(
        "OC113",
        producer,
        "select octop_enqueue_many(array_fill('t'::text, array[7000]), array_fill('{}'::text, array[7000]),"
        " priorities => array(select case when i = 3500 then 42 end from generate_series(1, 7000) i))",
    )
    assert "task 3500 of 7000" in message
    assert value(dba, "select count(*) from octop_tasks") == 0


def test_an_id_of_the_callers_own_may_be_enqueued_again_and_makes_nothing_twice(dba, producer, hire):
    task_id = str(new_id())
    again = "select created from octop_enqueue('t', id => %s)"
    assert value(producer, again, task_id) is True
    assert value(producer, again, task_id) is False
    worker = hire()
    claimed = worker.claim_one()
    assert value(producer, again, task_id) is False
    worker.succeed(claimed)
    assert value(producer, again, task_id) is False
    assert value(dba, "select count(*) from octop_tasks") == 1


@pytest.mark.parametrize("end", ["pending", "frozen", "success", "cancelled"])
def test_an_id_that_another_role_made_is_not_made_twice_either(dba, producer, hire, end):
    task_id = add(dba, max_retries=0)
    if end == "cancelled":
        do(dba, "select octop_cancel(%s)", task_id)
    elif end != "pending":
        worker = hire()
        claimed = worker.claim_one()
        if end == "success":
            worker.succeed(claimed)
        else:
            worker.end(claimed)
    assert rows(producer, "select id::text, created from octop_enqueue('t', id => %s)", task_id) == [(task_id, False)]
    assert column(dba, "select status from octop_tasks") == [end]


@pytest.mark.parametrize(
    "statement",
    [
        "insert into octop_tasks (task_type, id) values ('t', %s)",
        "select octop_enqueue_many(array['t'], array['{}'], ids => array[%s::uuid], fresh => true)",
    ],
)
@pytest.mark.parametrize("status", ["pending", "frozen"])
def test_an_id_is_unique_among_live_and_frozen_tasks_whatever_a_producer_claims(dba, producer, hire, statement, status):
    task_id = add(dba, max_retries=0)
    if status == "frozen":
        worker = hire()
        worker.end(worker.claim_one())
    try:
        do(producer, statement, task_id)
    except psycopg.errors.UniqueViolation:
        pass
    assert column(dba, "select status from octop_tasks") == [status]


def test_twice_the_same_id_in_one_call_makes_one_task(dba, producer):
    task_id = str(uuid4())
    made = rows(
        producer,
        "select id::text from octop_enqueue_many(array['t','t'], array['{}','{}'], ids => array[%s, %s]::uuid[])",
        task_id,
        task_id,
    )
    assert made == [(task_id,)] * 2
    assert value(dba, "select count(*) from octop_tasks") == 1


def test_the_python_call_sends_every_option_in_its_place(database, dba):
    now = database.clock.advance(0)
    new = NewTask(
        "t", '{"a": 1}', str(new_id()), queue="q", lane="l", tenant="x", priority=0,
        scheduled_at="2030-01-02T03:04:05+02:00", max_retries=0,
        timeout_seconds=1.5, retry_policy='{"delays": [3]}', tags=['"', "\\", "a b", "{}", ","], meta='{"m": 1}', retry_of=str(uuid4()),
    )  # fmt: skip
    plain = NewTask("t", "{}", str(new_id()), delay_seconds=1.0)
    assert run(dba, calls.octop_enqueue_many([new, plain])) == [(new.id, True), (plain.id, True)]
    found = run(dba, calls.octop_task(new.id))
    assert found is not None
    assert (found.queue, found.lane, found.tenant, found.priority, found.max_retries) == ("q", "l", "x", 0, 0)
    assert (found.timeout_seconds, found.tags, found.meta, found.retry_of) == (1.5, new.tags, '{"m": 1}', new.retry_of)
    assert found.scheduled_at.startswith("2030-01-02T01:04:05")
    assert (task(dba, plain.id)["scheduled_at"] - now).total_seconds() == 1


# --- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["select octop_enqueue('t')", "insert into octop_tasks (task_type) values ('t')"])
def test_C115_a_rolled_back_transaction_leaves_no_task_and_no_count(database, dba, hire, statement):
    worker = hire()
    with database.connect("octop_producer", autocommit=False) as connection:
        do(connection, statement)
        assert worker.claim(10) == []
        connection.rollback()
    assert worker.claim(10) == []
    assert value(dba, "select count(*) from octop_tasks") == 0
    assert value(dba, "select coalesce(sum(n), 0) from _octop_counted()") == 0


def test_C118_a_task_cannot_start_before_the_transaction_that_registered_it_commits(database, dba, hire):
    do(dba, "create table orders (id int)")
    do(dba, "grant insert on orders to octop_producer")
    worker = hire()
    with database.connect("octop_producer", autocommit=False) as connection:
        do(connection, "insert into orders values (1)")
        add(connection)
        add_many(dba, 3)  # later in seq, committed earlier
        assert len(worker.claim(10)) == 3
        connection.commit()
    assert len(worker.claim(10)) == 1
    assert value(dba, "select count(*) from orders") == 1


def test_C117_a_failed_enqueue_fails_the_callers_transaction(database, dba):
    do(dba, "create table orders (id int)")
    with database.connect(autocommit=False) as connection:
        do(connection, "insert into orders values (1)")
        refused("OC113", connection, "select octop_enqueue('t', priority => 42)")
        connection.commit()
    assert value(dba, "select count(*) from orders") == 0


def test_wakes_a_sleeping_worker_once_per_queue_and_nobody_when_all_are_awake(database, producer, hire):
    worker = hire(queues=["a", "b"])
    with database.connect() as ear:
        ear.execute("listen octop_wake")
        do(producer, "select octop_enqueue('t', queue => 'a')")
        do(worker.connection, "select octop_sleep(%s, '{a,b}', 60)", worker.id)
        with producer.transaction():
            for queue in ("b", "b", "c"):
                do(producer, "select octop_enqueue('t', queue => %s)", queue)
            do(producer, "insert into octop_tasks (task_type, queue) values ('t', 'b')")
        assert [each.payload for each in ear.notifies(timeout=5, stop_after=1)] == ["b"]
        assert [each.payload for each in ear.notifies(timeout=0)] == []


def test_octop_task_finds_a_task_in_every_status_and_hides_other_roles_tasks(database, dba, producer, hire):
    worker = hire()
    ids = {}
    for end in ("success", "frozen"):
        ids[end] = add(dba, max_retries=0)
        claimed = worker.claim_one()
        if end == "success":
            worker.succeed(claimed)
        else:
            worker.end(claimed)
    ids["cancelled"] = add(dba)
    do(dba, "select octop_cancel(%s)", ids["cancelled"])
    ids["pending"] = add(dba, id=str(uuid4()))  # no time inside
    with database.connect("octop_viewer") as viewer:
        for status, task_id in ids.items():
            assert value(viewer, "select status from octop_task(%s)", task_id) == status
            assert rows(producer, "select status from octop_task(%s)", task_id) == []
    own = add(producer)
    assert value(producer, "select status from octop_task(%s)", own) == "pending"
    assert rows(producer, "select id::text from octop_my_tasks") == [(own,)]
    assert rows(dba, "select * from octop_task(%s)", str(uuid4())) == []


def test_what_the_code_declares_holds_until_the_type_has_a_row_and_then_the_row_does(database):
    connection = database.connect()

    def enqueued():
        new = NewTask("report", "{}", str(new_id()), declared_queue="reports", declared_priority=2)
        run(connection, calls.octop_enqueue_many([new]))
        return connection.execute("select queue, priority from octop_tasks where id = %s", (new.id,)).fetchone()

    assert enqueued() == ("reports", 2)
    connection.execute("insert into octop_task_types (name, queue, priority) values ('report', 'night', 7)")
    assert enqueued() == ("night", 7)
    connection.execute("update octop_task_types set queue = null, priority = null")
    assert enqueued() == ("default", 5)


@pytest.mark.parametrize(
    "looks_like_7",
    [
        "896bd711-1348-7e2a-513c-ef2604d98218",
        "08daa910-6abd-7c7d-8371-2162f16457aa",
        "f0000000-0000-7000-8000-000000000001",
    ],
)
def test_a_finished_task_is_found_though_its_id_only_looks_like_a_version_7(database, dba, hire, looks_like_7):
    assert rows(dba, "select created from octop_enqueue('t', id => %s)", looks_like_7) == [(True,)]
    worker = hire()
    assert worker.succeed(worker.claim_one()) == []
    assert value(dba, "select status from octop_task(%s)", looks_like_7) == "success"
    assert rows(dba, "select created from octop_enqueue('t', id => %s)", looks_like_7) == [(False,)]
    database.clock.advance(days=2)
    assert value(dba, "select status from octop_task(%s)", looks_like_7) == "success"


def test_arrays_of_different_length_are_refused_as_that(database, producer):
    said = refused(
        "OC302", producer, "select octop_enqueue_many(array['a', 'b'], array['{}', '{}'], queues => array['q'])"
    )
    assert "arrays of different length" in said
    assert value(producer, "select count(*) from octop_enqueue_many(array['a'], array['{}'], queues => '{}')") == 1
