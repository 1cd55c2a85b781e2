"""Who may do what: each role has the least it needs, and no session can turn our functions against their owner."""

from __future__ import annotations

import psycopg
import pytest

from octop.engine import calls
from octop.engine.call import run
from tests.sql.crew import add, column, do, rows, task, value

ROLES = ("producer", "worker", "operator", "viewer")
LEAVES = ("octop_tasks_live", "octop_tasks_frozen", "octop_tasks_done", "octop_tasks_done_stray", "octop_tasks_unknown")
PRIVATE = (
    "_octop_control",
    "_octop_counters",
    "_octop_counter_deltas",
    "_octop_chores",
    "_octop_sleepers",
    "_octop_days",
)


@pytest.fixture
def acting(database):
    """Give one connection per role."""
    made = {}
    for role in ROLES:
        made[role] = database.connect(f"octop_{role}")
    yield made
    for connection in made.values():
        connection.close()


def forbidden(connection, statement, *values):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        do(connection, statement, *values)


def test_no_role_reads_or_writes_a_leaf_or_a_private_table(acting):
    for role, connection in acting.items():
        for table in (*LEAVES, *PRIVATE):
            for statement in (
                f"select * from {table}",
                f"truncate {table}",
                f"delete from {table}",
                f"insert into {table} default values",
            ):
                with pytest.raises(psycopg.Error) as refused:
                    do(connection, statement)
                # the one view among them: there is nothing to write to
                assert refused.value.sqlstate == (
                    "42501"
                    if table != "_octop_days" or "select" in statement
                    else "55000"
                    if "truncate" not in statement
                    else "42809"
                ), (role, statement)


def test_no_role_creates_anything_in_the_schema_or_changes_ours(acting):
    for connection in acting.values():
        for statement in (
            "create table mine (a int)",
            "create view mine as select 1",
            "create function mine() returns int language sql as 'select 1'",
            "create type mine as enum ('a')",
            "create or replace function _octop_now() returns timestamptz language sql as 'select null::timestamptz'",
            "alter table octop_tasks disable trigger all",
            "drop function octop_uuid7()",
            "comment on table octop_tasks is 'mine'",
            "set role octop_owner",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                do(connection, statement)


def test_no_role_deletes_truncates_or_sets_a_status(dba, acting):
    task_id = add(dba)
    for connection in acting.values():
        for statement in (
            "delete from octop_tasks",
            "truncate octop_tasks",
            "update octop_tasks set status = 'success', completed_at = now()",
            "update octop_tasks set status = 'cancelled'",
            "update octop_tasks set priority = 0",
            "insert into octop_tasks (task_type, status) values ('t', 'pending')",
            "insert into octop_tasks (task_type, created_by) values ('t', 'somebody')",
            "insert into octop_tasks (task_type, attempt) values ('t', 5)",
            "delete from octop_attempts",
            "delete from octop_audit",
            "update octop_audit set role = 'somebody'",
            "insert into octop_audit (action, subject) values ('cancel', 'forged')",
            "delete from octop_workers",
            "update octop_workers set beat_at = now()",
            "insert into octop_holds (kind, target) values ('queue', 'q')",
            "update octop_migrations set version = '0'",
        ):
            forbidden(connection, statement)
    assert task(dba, task_id)["status"] == "pending"


def test_a_producer_enqueues_sees_and_cancels_its_own_and_nothing_else(database, dba, acting):
    producer = acting["producer"]
    own, foreign = add(producer), add(dba)
    do(producer, "insert into octop_tasks (task_type, payload) values ('t', '{}')")
    assert value(producer, "select count(*) from octop_my_tasks") == 2
    assert value(producer, "select octop_cancel(%s)", own) == "cancelled"
    with pytest.raises(psycopg.Error) as hidden:
        do(producer, "select octop_cancel(%s)", foreign)
    assert hidden.value.sqlstate == "OC103"
    for statement in (
        "select * from octop_tasks",
        "select payload from octop_tasks",
        "select * from octop_attempts",
        "select * from octop_audit",
        "select * from octop_task_summary",
        "select octop_retry(octop_uuid7())",
        "select octop_delete(octop_uuid7())",
        "select octop_pause('q')",
        "select octop_config_set('task.default_max_retries', '1')",
        "update octop_config set value = '{\"value\": 1}'",
        "select octop_exchange(octop_uuid7())",
        "select octop_sweep(octop_uuid7())",
        "select octop_register(octop_uuid7(), '', '', 1, null, '', '{}', '[]')",
        "select octop_drop_days()",
        "select _octop_settle('[]', true)",
        "select _octop_find(octop_uuid7())",
        "select _octop_audit_write('a', 'b')",
    ):
        forbidden(producer, statement)
    assert task(dba, foreign)["status"] == "pending"


def test_the_ids_of_others_are_all_that_a_producer_can_learn(dba, acting):
    add(dba, payload='{"secret": 1}')
    forbidden(acting["producer"], "select * from octop_tasks")
    assert value(acting["producer"], "select count(*) from octop_my_tasks") == 0


def test_a_worker_claims_reports_and_rescues_and_does_not_act_for_people(database, dba, hire, acting):
    task_id = add(dba)
    worker = hire()
    assert worker.succeed(worker.claim_one()) == []
    worker.beat()
    worker.sweep()
    run(worker.connection, calls.octop_settings())
    run(worker.connection, calls.octop_control(worker.id))
    run(worker.connection, calls.octop_drain(worker.id))
    run(worker.connection, calls.octop_deregister(worker.id))
    for statement in (
        "select * from octop_tasks",
        "select octop_enqueue('t')",
        "insert into octop_tasks (task_type) values ('t')",
        "select octop_cancel(octop_uuid7())",
        "select octop_retry(octop_uuid7())",
        "select octop_delete(octop_uuid7())",
        "select octop_pause('q')",
        "select octop_scale('q', 1)",
        "select octop_config_set('task.default_max_retries', '1')",
        "select octop_drop_days()",
        "select * from octop_audit",
    ):
        forbidden(worker.connection, statement)
    assert task(dba, task_id)["status"] == "success"


def test_a_viewer_reads_everything_and_changes_nothing(dba, acting):
    task_id = add(dba)
    viewer = acting["viewer"]
    readable = column(
        dba,
        "select c.relname::text from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'v', 'p')"
        " and c.relname ~ '^octop_' and not c.relispartition",
    )
    assert len(readable) > 12
    for each in readable:
        rows(viewer, f"select * from {each}")
    assert value(viewer, "select status from octop_task(%s)", task_id) == "pending"
    for statement in (
        "select octop_enqueue('t')",
        "select octop_cancel(octop_uuid7())",
        "select octop_pause('q')",
        "select octop_config_set('task.default_max_retries', '1')",
        "update octop_config set value = '{\"value\": 1}'",
        "update octop_queues set worker_limit = 1",
        "select octop_sweep(octop_uuid7())",
        "select octop_make_days()",
    ):
        forbidden(viewer, statement)


def test_an_operator_acts_and_neither_runs_tasks_nor_touches_rows(dba, acting):
    operator = acting["operator"]
    task_id = add(dba)
    for statement in (
        "select octop_pause('q')",
        "select octop_resume('q')",
        "select octop_scale('q', 1)",
        "update octop_queues set max_retries = 1 where name = 'q'",
        "insert into octop_queues (name, worker_limit) values ('r', 2)",
        "delete from octop_queues where name = 'r'",
        "update octop_task_types set max_retries = 1",
        "update octop_config set value = '{\"value\": 4}' where key = 'task.default_max_retries'",
        "select octop_config_set('task.default_max_retries', '1')",
        "delete from octop_config where key = 'task.default_max_retries'",
        "select octop_make_days()",
        "select octop_drop_days()",
        "select * from octop_queue_summary",
        "select octop_delete(octop_uuid7())",
    ):
        do(operator, statement)
    do(operator, "select octop_retry(%s)", task_id)
    do(operator, "select octop_cancel(%s)", task_id)
    for statement in (
        "select octop_exchange(octop_uuid7())",
        "select octop_beat('{}')",
        "update octop_queues set declared = '{}'",
        "update octop_task_types set declared = '{}'",
        "insert into octop_task_types (name) values ('t')",
    ):
        forbidden(operator, statement)


def test_a_role_of_none_of_them_can_do_nothing(database, dba):
    stranger = database.make_role()
    with database.connect(stranger) as connection:
        for statement in (
            "select * from octop_tasks",
            "select * from octop_config",
            "insert into octop_tasks (task_type) values ('t')",
            "select octop_enqueue('t')",
            "select octop_uuid7()",
            "select _octop_now()",
            "select octop_config_keys()",
            "select * from octop_task_summary",
            "select nextval('octop_tasks_seq')",
        ):
            forbidden(connection, statement)


# --- against SECURITY DEFINER ---------------------------------------------------------------------------------------


def shadow(connection):
    """Put look-alikes of our tables into pg_temp."""
    for name in (
        "octop_tasks",
        "octop_tasks_live",
        "octop_config",
        "octop_task_types",
        "octop_queues",
        "_octop_sleepers",
        "octop_holds",
        "octop_workers",
    ):
        do(connection, f"create temp table {name} (like public.octop_tasks)")


def test_temp_tables_of_the_caller_do_not_come_before_ours(database, dba):
    attacker = database.make_role("octop_producer", "octop_worker", "octop_viewer")
    with database.connect(attacker) as connection:
        shadow(connection)
        do(connection, "set search_path = pg_temp, public")
        task_id = value(connection, "select public.octop_enqueue('t', '{}')")
        assert task_id
        assert rows(connection, "select * from pg_temp.octop_tasks_live") == []
        do(connection, "insert into public.octop_tasks (task_type) values ('t')")
        do(
            connection,
            "select public.octop_register(public.octop_uuid7(), 'w', '', 1, null, '', '{default}', '[{\"name\": \"t\"}]')",
        )
        do(connection, "select public.octop_sweep(public.octop_uuid7())")
    assert value(dba, "select count(*) from octop_tasks") == 2
    assert value(dba, "select count(*) from octop_workers") == 1


def test_functions_and_operators_in_the_callers_path_never_run_as_the_owner(database, dba):
    attacker = database.make_role("octop_producer", "octop_worker", "octop_operator")
    do(dba, f'create schema evil authorization "{attacker}"')
    do(dba, "create table trace (who text)")
    do(dba, "grant insert on trace to public")
    body = "begin insert into public.trace values (current_user); return {}; end"
    with database.connect(attacker) as connection:
        do(connection, "set search_path = evil, public")
        for signature, returns, answer in (
            ("_octop_now()", "timestamptz", "pg_catalog.now()"),
            ("_octop_setting(text)", "numeric", "1"),
            ("_octop_caller()", "text", "'x'"),
            ("_octop_wake(text[], timestamptz[])", "void", ""),
            ("length(text)", "integer", "1"),
            ("coalesce_(text)", "text", "'x'"),
            ("gen_random_uuid()", "uuid", "null"),
            ("jsonb_typeof(jsonb)", "text", "'object'"),
            ("octet_length(text)", "integer", "1"),
        ):
            do(
                connection,
                f"create function evil.{signature} returns {returns} language plpgsql as $f$ {body.format(answer)} $f$",
            )
        do(
            connection,
            "create function evil.same(text, text) returns boolean language plpgsql as"
            " $f$ begin insert into public.trace values (current_user); return true; end $f$",
        )
        do(connection, "create operator evil.= (leftarg = text, rightarg = text, function = evil.same)")
        for path in ("evil, public", "evil, pg_catalog, public", "pg_temp, evil"):
            do(connection, f"set search_path = {path}")
            task_id = value(connection, "select id from public.octop_enqueue('t', '{}')")
            do(connection, "insert into public.octop_tasks (task_type) values ('t')")
            do(
                connection,
                "select public.octop_register(public.octop_uuid7(), 'w', '', 1, null, '', '{default}', '[{\"name\": \"t\"}]')",
            )
            do(connection, "select public.octop_sweep(public.octop_uuid7())")
            do(connection, "select public.octop_pause('q'), public.octop_resume('q'), public.octop_scale('q', 1)")
            do(
                connection,
                "update public.octop_config set value = '{\"value\": 6}' where key operator(pg_catalog.=) 'scheduler.interval_seconds'",
            )
            do(connection, "select public.octop_cancel(%s)", task_id)
    assert [who for who in column(dba, "select distinct who from trace") if who != attacker] == []


def test_created_by_and_the_audit_cannot_be_forged_by_settings(database, dba):
    person = database.make_role("octop_producer", "octop_operator", name="ann")
    with psycopg.connect(database.url_as(person), autocommit=True) as connection:
        own = add(connection)
        do(connection, "set role octop_producer")
        as_group = add(connection)
        forbidden(connection, "set session authorization octop_owner")
        forbidden(connection, "select set_config('session_authorization', 'octop_owner', false)")
        with pytest.raises(psycopg.Error):
            do(connection, "select set_config('role', 'octop_owner', false)")
        do(connection, "reset role")
        do(connection, "select octop_cancel(%s)", own)
    assert (task(dba, own)["created_by"], task(dba, as_group)["created_by"]) == (person, "octop_producer")
    assert column(dba, "select role from octop_audit") == [person]


def test_a_task_belongs_to_the_login_also_inside_a_function_of_another_owner(database, dba):
    # the same however it is registered: who made it must see it, and the function's owner did not make it
    person, keeper = (
        database.make_role("octop_producer", name="ann"),
        database.make_role("octop_producer", name="keeper"),
    )
    do(dba, f"create schema app authorization {keeper}")
    for name, statement in (
        ("by_insert", "insert into public.octop_tasks (task_type) values ('t') returning id"),
        ("by_call", "select id from public.octop_enqueue('t')"),
    ):
        do(
            dba,
            f"create function app.{name}() returns uuid language plpgsql security definer as $f$ declare v uuid;"
            f" begin {statement} into v; return v; end $f$; alter function app.{name}() owner to {keeper}",
        )
    do(dba, f"grant usage on schema app to {person}")
    with psycopg.connect(database.url_as(person), autocommit=True) as connection:
        ids = column(connection, "select app.by_insert() union all select app.by_call()")
        assert column(connection, "select created_by from octop_my_tasks") == [person] * 2
        assert {value(connection, "select octop_cancel(%s)", each) for each in ids} == {"cancelled"}


def test_a_repetition_belongs_to_who_made_the_task_and_the_audit_names_who_repeated_it(dba, acting, hire):
    producer, worker = acting["producer"], hire()
    ids = [add(producer) for _ in range(2)]
    worker.succeed(*worker.claim(2))
    new = value(acting["operator"], "select octop_retry(%s)", ids[0])
    (verdict, other), = rows(acting["operator"], "select verdict, retried_as from octop_retry_many(array[%s::uuid])", ids[1])  # fmt: skip
    assert verdict == "repeated"
    assert column(producer, "select id from octop_my_tasks where status = 'pending' order by seq") == [new, other]
    assert rows(
        dba, "select distinct created_by, role from octop_tasks join octop_audit on subject = retry_of::text"
    ) == [("octop_producer", "octop_operator")]
    assert value(producer, "select octop_cancel(%s)", new) == "cancelled"
