"""The tables beside octop_tasks by hand: who changes, deletes or truncates stands in the audit; the engine's own writes do not."""

from __future__ import annotations

import pytest

from octop.model.work import TaskTypePolicy
from tests.sql.crew import acts, add, ages, column, do, refused, rows, value


@pytest.fixture
def owner(database):
    with database.connect("octop_owner", application_name="psql") as connection:
        yield connection


@pytest.fixture
def written(dba, hire):
    """Fill each table by the engine and an operator: two queues, a type, two holds, a setting, two failed attempts, two workers."""
    worker = hire(queues=["a", "b"], types=[TaskTypePolicy("t", max_retries=3)])
    hire(queues=["a"])
    task_id = add(dba, queue="a", retry_policy='{"delays": [0]}')
    for _ in range(2):
        worker.end(worker.claim_one(), error_class="ValueError")
    do(dba, "select octop_pause('a', 'flood'), octop_freeze('t')")
    do(dba, "select octop_config_set('worker.concurrency', '5')")
    do(dba, "delete from octop_audit")
    return task_id


@pytest.mark.parametrize(
    ("table", "kept"),
    [("holds", 2), ("queues", 2), ("task_types", 1), ("workers", 2), ("config", None), ("attempts", 0)],
)
def test_a_truncate_is_in_the_audit_with_what_was_there(owner, dba, written, table, kept):
    found = value(dba, f"select count(*) from octop_{table}")
    assert found
    do(owner, f"truncate octop_{table}")
    (role, application, action, subject, detail), *more = acts(dba)
    assert (role, application, action, subject) == ("octop_owner", "psql", "truncate", f"octop_{table}")
    assert len(detail.get("was", [])) == (found if kept is None else kept)
    assert [each[2:4] for each in more] == ([("config", "worker.concurrency")] if table == "config" else [])


def test_a_truncate_of_the_settings_brings_the_defaults_back(owner, dba, written):
    before = value(dba, "select version from _octop_control")
    do(owner, "truncate octop_config")
    wrong = "select k.key from octop_config_keys() k left join octop_config c using (key) where c.value -> 'value' is distinct from k.default_value"
    assert column(dba, wrong) == []
    assert acts(dba)[-1][3:] == ("worker.concurrency", {"from": 5, "to": 10})
    assert value(dba, "select version from _octop_control") > before


def test_running_workers_look_when_orders_are_truncated(owner, dba, written):
    for table in ("holds", "queues", "task_types"):
        before = value(dba, "select version from _octop_control")
        do(owner, f"truncate octop_{table}")
        assert value(dba, "select version from _octop_control") == before + 1


def test_who_changes_or_deletes_attempts_by_hand_stands_in_the_audit_under_the_tasks_id(owner, dba, written):
    do(owner, "update octop_attempts set error_class = 'Nothing' where attempt = 1")
    do(owner, "update octop_attempts set error_class = 'Nothing' where attempt = 1")  # no change
    do(owner, "delete from octop_attempts")
    do(owner, "delete from octop_attempts")  # nothing left
    (_, _, update, at, changed), (role, _, delete, subject, gone) = acts(dba)
    assert (update, at) == ("update attempt", written)
    assert changed == {"attempt": 1, "from": {"error_class": "ValueError"}, "to": {"error_class": "Nothing"}}
    assert (role, delete, subject) == ("octop_owner", "delete attempts", written)
    assert [(each["attempt"], each["error_class"]) for each in gone["was"]] == [(1, "Nothing"), (2, "ValueError")]


def test_who_changes_or_deletes_a_worker_by_hand_stands_in_the_audit(owner, dba, written):
    worker_id = value(dba, "select id::text from octop_workers where queues = '{a}'")
    do(owner, "update octop_workers set draining = true where id = %s", worker_id)
    do(owner, "update octop_workers set draining = true where id = %s", worker_id)  # no change
    do(owner, "delete from octop_workers where id = %s", worker_id)
    (*_, updated, at, changed), (*_, deleted, subject, gone) = acts(dba)
    assert (updated, at, changed) == (
        "update worker",
        worker_id,
        {"from": {"draining": False}, "to": {"draining": True}},
    )
    assert (deleted, subject, gone["was"]["queues"]) == ("delete worker", worker_id, ["a"])


def test_what_the_engine_does_with_attempts_and_workers_is_no_act_by_hand(database, dba, hire, written):
    # who it is does not tell: an operator may sweep, and all of it runs as the owner
    worker, other = hire(types=["t", "u"]), hire()
    worker.beat()
    do(worker.connection, "select octop_drain(%s)", other.id)
    other.register()
    worker.types = ["t"]
    worker.register()
    do(worker.connection, "select octop_drain(%s)", other.id)
    do(worker.connection, "select octop_deregister(%s)", other.id)
    do(worker.connection, "select octop_lost(%s)", worker.id)
    do(dba, "update octop_attempts set task_id = octop_uuid7(), ended_at = '2000-01-01' where attempt = 1")
    ages(dba, 1e6, *column(dba, "select id::text from octop_workers"))
    do(dba, "delete from octop_audit")
    do(dba, "select octop_sweep(octop_uuid7())")
    assert column(dba, "select attempt from octop_attempts") == [2]
    assert column(dba, "select id from octop_workers") == []
    assert rows(dba, "select action, subject from octop_audit") == []


def test_no_trigger_fires_for_a_beat_or_a_new_attempt(dba):
    # INSERT is 4, UPDATE 16 in tgtype; a beat sets these two columns and no other
    hot = rows(
        dba,
        "select tgname::text from pg_trigger t where not tgisinternal and (tgrelid = 'octop_attempts'::regclass and tgtype & 4 > 0"
        " or tgrelid = 'octop_workers'::regclass and (tgtype & 4 > 0 or tgtype & 16 > 0 and (tgattr = '' or exists"
        "  (select from pg_attribute a where a.attrelid = tgrelid and a.attname in ('beat_at', 'beating_since') and a.attnum = any (tgattr)))))",
    )
    assert hot == []


def test_who_changes_what_is_declared_stands_in_the_audit(owner, dba, written):
    do(owner, "update octop_task_types set declared = '{\"max_retries\": 7}' where name = 't'")
    assert acts(dba) == [
        ("octop_owner", "psql", "declare task type", "t", {"from": {"declared": {}}, "to": {"declared": {"max_retries": 7}}})
    ]  # fmt: skip


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "select octop_pause(%s)",
        "select octop_scale(%s, 2)",
        "select octop_freeze(%s)",
        "select octop_enqueue(%s)",
        "select octop_enqueue('t', queue => %s)",
        "select octop_enqueue('t', lane => %s)",
        "select octop_enqueue('t', tenant => %s)",
        "insert into octop_tasks (task_type, lane) values ('t', %s)",
        "insert into octop_queues (name) values (%s)",
        "insert into octop_holds (kind, target) values ('queue', %s)",
        "update octop_task_types set queue = %s",
        "update octop_tasks set queue = %s",
        "update octop_tasks set lane = %s",
        "update octop_tasks set tenant = %s",
        "update octop_tasks set task_type = %s",
        "select octop_declare_task_types(jsonb_build_array(jsonb_build_object('name', %s::text)))",
        "select octop_register(octop_uuid7(), '', '', 1, null, '', array[%s], '[]')",
    ],
)
def test_a_name_with_a_control_character_is_refused_everywhere(dba, written, statement):
    for name in ("a\nb", "a\t", "\x7f"):
        assert "control character" in refused("OC110", dba, statement, name)


def test_a_hold_of_nothing_or_of_something_else_is_refused(dba):
    hold = "insert into octop_holds (kind, target) values (%s, %s)"
    for target in ("", "x" * 201):
        assert "1 to 200 characters" in refused("OC110", dba, hold, "queue", target)
    assert "kind must be queue, task_type, tenant or lane, not type" in refused("OC113", dba, hold, "type", "x")
    assert "a lane is held in a queue" in refused("OC110", dba, hold, "lane", "x")
    assert column(dba, "select target from octop_holds") == []


@pytest.mark.parametrize(
    "statement",
    [
        "insert into octop_tasks (task_type, tags) values ('t', %s::text[])",
        "select octop_enqueue('t', tags => %s::text[])",
        "select octop_enqueue_many(array['t'], array['{}'], tags => array[%s::text[]::text])",
        "update octop_tasks set tags = %s::text[]",
    ],
)
def test_tags_are_texts_and_have_the_same_bounds_everywhere(dba, written, statement):
    for tags, said in (
        (["a", None], "null"),
        (["a", "b\nc"], "control"),
        (["a"] * 51, "at most 50"),
        (["a" * 161] * 50, "8,000"),
    ):
        assert said in refused("OC113", dba, statement, tags)
    do(dba, statement, ["é" * 80] * 50)


def test_a_status_that_does_not_exist_is_refused_with_the_list_of_those_that_do(owner, dba, written):
    for statement in (
        "update octop_tasks set status = 'succes'",
        "insert into octop_tasks (task_type, status) values ('t', 'succes')",
    ):
        assert 'no status "succes"' in refused("OC102", owner, statement)
