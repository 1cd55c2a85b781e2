"""octop_enqueue_many has a short way, for calls whose tasks are alike, and a general one: both make the same tasks, and the short one is short."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from octop.engine import calls
from octop.engine.call import run
from octop.engine.calls.tasks import repeatable
from octop.model.ids import new_id
from octop.model.work import NewTask
from tests.sql.crew import column, do, rows, task, value
from tests.sql.plans import watched

OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "queue": {"queue": "q"},
    "lane and tenant": {"lane": "l", "tenant": "x"},
    "priority": {"priority": 0},
    "delay": {"delay_seconds": 90.5},
    "moment": {"scheduled_at": "2031-01-02T03:04:05+02:00"},
    "limits": {"max_retries": 0, "timeout_seconds": 1.5, "retry_policy": '{"delays": [3]}'},
    "labels": {"tags": ("a", 'quote"', "back\\slash", "{}", ",", "NULL", " ", "ü"), "meta": '{"trace": "a\\\\b"}'},
    "retry of": {"retry_of": "01890000-0000-7000-8000-000000000001"},
    "declared": {"declared_queue": "d", "declared_priority": 2, "min_version": 3},
}


def _new(**options):
    return NewTask("t", '{"text": "it\'s \\"quoted\\", {braced}, \\\\ and ü"}', new_id(), **options)


def _without_identity(row):
    return {name: found for name, found in row.items() if name not in {"id", "seq"}}


@pytest.mark.parametrize("declared", [False, True], ids=["unknown type", "declared type"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_tasks_that_are_alike_are_made_as_those_that_differ(database, dba, options, declared):
    database.clock.advance(0)
    if declared:
        do(dba, "insert into octop_task_types (name, queue, priority) values ('t', 'of the type', 7)")
    alone, alike, mixed = [_new(**options)], [_new(**options) for _ in range(3)], [_new(**options) for _ in range(3)]
    for tasks in (alone, alike, [*mixed, NewTask("other", "{}", new_id(), lane="another")]):
        assert run(dba, calls.octop_enqueue_many(tasks)) == [(each.id, True) for each in tasks]
    expected = _without_identity(task(dba, mixed[0].id))
    assert all(_without_identity(task(dba, each.id)) == expected for each in [*alone, *alike, *mixed])
    do(dba, "delete from octop_tasks where task_type = 'other'")
    counted = rows(dba, "select tenant, queue, sum(n)::int from _octop_counter_deltas group by 1, 2 having sum(n) <> 0")
    assert counted == [(expected["tenant"], expected["queue"], 7)]


OTHERS = {
    "queue": "p",
    "lane": "m",
    "tenant": "y",
    "priority": 9,
    "delay_seconds": 7.0,
    "scheduled_at": "2032-01-01T00:00:00Z",
    "max_retries": 7,
    "timeout_seconds": 7.0,
    "retry_policy": '{"delays": [7]}',
    "tags": ("z",),
    "meta": '{"z": 1}',
    "retry_of": "01890000-0000-7000-8000-000000000002",
    "declared_queue": "e",
    "declared_priority": 8,
    "min_version": 8,
}


@pytest.mark.parametrize("name", OTHERS)
def test_tasks_of_one_type_that_differ_in_one_thing_keep_it(database, dba, name):
    database.clock.advance(0)
    first = next(options[name] for options in OPTIONS.values() if name in options)
    said = [{name: first}, {name: OTHERS[name]}, {}]
    alone = [_new(**options) for options in said]
    for each in alone:
        run(dba, calls.octop_enqueue_many([each]))
    for order in ([0, 0, 1], [0, 2, 0], [2, 0, 1]):
        tasks = [_new(**said[n]) for n in order]
        run(dba, calls.octop_enqueue_many(tasks))
        for n, each in zip(order, tasks, strict=True):
            assert _without_identity(task(dba, each.id)) == _without_identity(task(dba, alone[n].id))


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"task_type": "t\n"}, "OC110"),
        ({"queue": ""}, "OC110"),
        ({"lane": "l" * 201}, "OC110"),
        ({"tenant": "\t"}, "OC110"),
        ({"payload": "[]"}, "OC111"),
        ({"payload": '{"a"'}, "OC111"),
        ({"payload": '{"a": "' + "x" * 1_048_576 + '"}'}, "OC112"),
        ({"priority": 10}, "OC113"),
        ({"max_retries": -1}, "OC113"),
        ({"min_version": 0}, "OC113"),
        ({"timeout_seconds": 0.0}, "OC113"),
        ({"delay_seconds": -1.0}, "OC113"),
        ({"delay_seconds": 1.0, "scheduled_at": "2031-01-01T00:00:00Z"}, "OC113"),
        ({"scheduled_at": "1999-01-01T00:00:00Z"}, "OC114"),
        ({"tags": ("\n",)}, "OC113"),
        ({"retry_policy": '{"base": -1}'}, None),
        ({"retry_policy": "{"}, "OC113"),
        ({"meta": "[]"}, "OC111"),
    ],
    ids=str,
)
def test_what_is_refused_is_refused_on_both_ways_alike(dba, bad, code):
    said = []
    wrong = _new()._replace(**bad)
    for tasks in ([wrong], [wrong, wrong], [wrong, NewTask("other", "{}", new_id(), lane="another")]):
        fresh = [each._replace(id=new_id()) for each in tasks]
        call = calls.octop_enqueue_many(fresh)
        with pytest.raises(psycopg.Error) as error:
            dba.execute(call.text, dict(call.values))
        message = error.value.diag.message_primary or ""
        assert code in (None, error.value.sqlstate)
        said.append((error.value.sqlstate, message.replace("task 1 of 2: ", ""), error.value.diag.message_hint))
    assert len(set(said)) == 1
    assert value(dba, "select count(*) from octop_tasks") == 0


def test_a_payload_may_begin_with_white_space_and_be_of_any_allowed_size(dba):
    tasks = [_new()._replace(payload=payload) for payload in (' \r\n\t{"a": 1}', '{"a": "' + "x" * 5_000 + '"}')]
    for each in tasks:
        run(dba, calls.octop_enqueue_many([each, each._replace(id=new_id())]))
        run(dba, calls.octop_enqueue_many([each._replace(id=new_id())]))
    assert value(dba, "select count(*) from octop_tasks") == 6


@pytest.mark.parametrize("mixed", [False, True], ids=["alike", "mixed"])
def test_an_id_that_is_not_fresh_though_the_caller_says_so_is_refused_and_nothing_is_written(dba, mixed):
    known = _new()
    run(dba, calls.octop_enqueue_many([known]))
    call = calls.octop_enqueue_many([known, _new(lane="another") if mixed else _new()])
    with pytest.raises(psycopg.errors.UniqueViolation):
        dba.execute(call.text, dict(call.values))
    assert column(dba, "select id::text from octop_tasks") == [known.id]


def test_the_repeatable_form_finds_what_the_first_one_wrote(dba):
    tasks = [_new() for _ in range(3)]
    call = calls.octop_enqueue_many(tasks[:2])
    run(dba, call)
    assert run(dba, repeatable(call)) == [(each.id, False) for each in tasks[:2]]
    later = calls.octop_enqueue_many(tasks)
    assert run(dba, repeatable(later)) == [(tasks[0].id, False), (tasks[1].id, False), (tasks[2].id, True)]


def test_arrays_that_begin_elsewhere_than_at_one_say_the_same(dba):
    do(
        dba,
        "select octop_enqueue_many('[0:1]={t,t}', '[5:6]={\"{}\",\"{}\"}', array[octop_uuid7(), octop_uuid7()],"
        " queues => '[0:1]={q,q}', fresh => true, declared_queues => '[7:8]={d,d}')",
    )
    do(
        dba,
        "select octop_enqueue_many('{t}', '{\"{}\"}', array[octop_uuid7()], lanes => '[0:0]={l}', fresh => true)",
    )
    assert rows(dba, "select task_type, queue, lane from octop_tasks order by seq") == [
        ("t", "q", ""), ("t", "q", ""), ("t", "default", "l"),
    ]  # fmt: skip


# --- what it costs ---------------------------------------------------------------------------------------------------


def _statements(connection, call):
    with watched(connection) as seen:
        run(connection, call)
    return [" ".join(each.text.split()) for each in seen]


@pytest.mark.parametrize("count", [1, 1_000])
def test_a_call_for_tasks_that_are_alike_runs_few_statements_however_many_there_are(database, count):
    with database.connect() as connection:
        found = _statements(connection, calls.octop_enqueue_many([_new() for _ in range(count)]))
    assert sum("insert into octop_tasks_live" in text and "conflict" not in text for text in found[:-1]) == 1
    # the row of the type, the tasks, the counter with a look for sleepers and for frozen ids; of many, the payloads and the answer too
    assert len(found) - 1 == (3 if count == 1 else 5)


def test_a_thousand_ids_that_may_exist_are_looked_for_at_once(database):
    with database.connect() as connection:
        tasks = [_new()._replace(id=str(uuid4())) for _ in range(1_000)]
        run(connection, calls.octop_enqueue_many(tasks[::2], fresh=False))
        found = _statements(connection, calls.octop_enqueue_many(tasks, fresh=False))
        assert value(connection, "select count(*) from octop_tasks") == 1_000
    assert len(found) < 15
