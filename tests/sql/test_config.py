"""octop_config: rows that a DBA edits live. Unknown and bad is refused; what must agree is checked at commit."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.crew import column, do, refused, rows, value


def version(connection):
    return value(connection, "select version from _octop_control")


def test_every_key_is_seeded_with_its_default_within_its_bounds(dba):
    found = rows(
        dba,
        "select k.key, c.value -> 'value' = k.default_value, k.kind like '%?' or (k.default_value"
        " #>> '{}')::numeric between k.minimum and k.maximum,"
        " length(k.description) > 20 from octop_config_keys() k left join octop_config c using (key)",
    )
    assert len(found) == value(dba, "select count(*) from octop_config")
    assert [row for row in found if row[1:] != (True, True, True)] == []


def test_both_bounds_of_every_key_are_taken_and_nothing_beyond_them(dba):
    for key, kind, least, most in rows(dba, "select key, kind, minimum, maximum from octop_config_keys()"):
        with dba.transaction(force_rollback=True):
            for good in (least, most):
                do(dba, "select octop_config_set(%s, to_jsonb(%s::numeric))", key, good)
                assert value(dba, "select _octop_setting(%s)", key) == good
        step = 1 if kind.startswith("integer") else 0.001
        for bad in (float(least) - step, float(most) + step):
            said = refused("OC202", dba, "select octop_config_set(%s, to_jsonb(%s::numeric))", key, bad)
            assert ("Archive a day" in said) == (key == "history.retention_days"), "where longer history is to be had"
        if kind.startswith("integer"):
            refused("OC202", dba, "select octop_config_set(%s, to_jsonb(%s::numeric))", key, float(least) + 0.5)


def test_a_value_of_another_form_is_refused_and_names_the_key(operator):
    key = "task.default_max_retries"
    wrong = ["5", '"5"', "[5]", "null", "{}", '{"value": "5"}', '{"value": null}', '{"value": true}', '{"value": [5]}']
    for bad in [*wrong, '{"value": 1e400}', '{"value": 5, "unit": "s"}', '{"Value": 5}']:
        for statement in (
            "update octop_config set value = %s where key = %s",
            "insert into octop_config (value, key) values (%s, %s)",
        ):
            assert key in refused("OC202", operator, statement, bad, key), bad
    assert value(operator, "select value from octop_config where key = %s", key) == {"value": 3}


def test_only_a_key_that_may_be_null_takes_null(operator):
    do(operator, "select octop_config_set('worker.grace_seconds', '5')")
    do(operator, "select octop_config_set('worker.grace_seconds', 'null')")
    assert value(operator, "select value from octop_config where key = 'worker.grace_seconds'") == {"value": None}


def test_an_unknown_key_is_refused_and_none_can_be_renamed(operator, dba):
    refused("OC201", operator, "insert into octop_config values ('task.retries', '{\"value\": 1}')")
    refused("OC201", operator, "insert into octop_config values (null, '{\"value\": 1}')")
    refused("OC201", operator, "select octop_config_set('', '1')")
    assert "cannot be null" in refused("OC201", operator, "select octop_config_set(null, '1')")
    refused("OC201", operator, "update octop_config set key = 'task.retry_growth' where key = 'task.retry_cap_seconds'")
    assert value(dba, "select count(*) from octop_config") == value(dba, "select count(*) from octop_config_keys()")


def test_inserting_an_existing_key_is_an_update(operator, dba):
    do(operator, "insert into octop_config values ('db.connection_pool_size', '{\"value\": 20}')")
    do(
        operator,
        "insert into octop_config values ('db.connection_pool_size', '{\"value\": 21}') on conflict"
        " (key) do update set value = excluded.value",
    )
    assert value(dba, "select value from octop_config where key = 'db.connection_pool_size'") == {"value": 21}
    assert column(dba, "select detail from octop_audit where action = 'config' order by seq") == [
        {"from": 10, "to": 20},
        {"from": 20, "to": 21},
    ]


def test_writing_the_old_name_or_the_new_one_writes_both(operator, dba):
    both = "select (value ->> 'value')::float from octop_config where key like 'task.%timeout_seconds' order by key"
    for n, key in enumerate(("task.timeout_seconds", "task.default_timeout_seconds"), 10):
        do(operator, "update octop_config set value = jsonb_build_object('value', %s::int) where key = %s", n, key)
        assert column(dba, both) == [n, n]
        do(operator, "select octop_config_set(%s, to_jsonb(%s::int))", key, n + 100)
        assert column(dba, both) == [n + 100] * 2
    do(operator, "delete from octop_config where key = 'task.timeout_seconds'")
    assert column(dba, both) == [300, 300]


def test_lease_and_heartbeat_must_agree_and_are_checked_together_at_commit(operator, dba):
    heartbeat = "update octop_config set value = '{\"value\": 20}' where key = 'worker.heartbeat_seconds'"
    lease = "update octop_config set value = '{\"value\": 60}' where key = 'worker.lease_seconds'"
    refused("OC203", operator, heartbeat)
    refused("OC203", operator, "update octop_config set value = '{\"value\": 29.9}' where key = 'worker.lease_seconds'")
    with operator.transaction():  # in this order they disagree meanwhile
        do(operator, heartbeat)
        do(operator, lease)
    assert value(dba, "select _octop_setting('worker.heartbeat_seconds')") == 20
    refused("OC203", operator, "delete from octop_config where key = 'worker.lease_seconds'")
    assert value(dba, "select _octop_setting('worker.lease_seconds')") == 60


def test_delete_brings_the_default_back_of_one_and_of_all(operator, dba):
    do(
        operator,
        "select octop_config_set('task.default_max_retries', '9'),"
        " octop_config_set('task.timeout_seconds', '9'), octop_config_set('worker.lease_seconds', '99')",
    )
    do(operator, "delete from octop_config where key = 'task.default_max_retries'")
    assert value(dba, "select value from octop_config where key = 'task.default_max_retries'") == {"value": 3}
    assert value(dba, "select detail from octop_audit order by seq desc limit 1") == {"from": 9, "to": 3}
    do(operator, "delete from octop_config")
    assert (
        rows(
            dba,
            "select c.key from octop_config c join octop_config_keys() k using (key) where c.value -> 'value' <> k.default_value",
        )
        == []
    )
    assert value(dba, "select count(*) from octop_config") == value(dba, "select count(*) from octop_config_keys()")


def test_a_missing_row_means_the_default(dba):
    do(dba, "set session_replication_role = replica")  # past the triggers, as a careless restore would
    do(dba, "delete from octop_config")
    assert value(dba, "select _octop_setting('worker.lease_seconds')") == 30
    assert value(dba, "select octop_settings() #>> '{values,task.default_max_retries}'") == "3"


def test_every_change_raises_the_control_version_and_a_rolled_back_one_does_not(operator, dba):
    before = version(dba)
    for statement in (
        "select octop_config_set('task.default_max_retries', '4')",
        "delete from octop_config where key = 'task.default_max_retries'",
        "select octop_pause('q')",
        "select octop_resume('q')",
        "select octop_scale('q', 3)",
        "update octop_queues set max_retries = 1 where name = 'q'",
    ):
        do(operator, statement)
        after = version(dba)
        assert after > before, statement
        before = after
    with operator.transaction(force_rollback=True):
        do(operator, "select octop_config_set('task.default_max_retries', '5')")
    assert version(dba) == before


def test_a_change_says_who_made_it_and_when(database, operator, dba):
    now = database.clock.advance(5)
    do(operator, "select octop_config_set('task.default_max_retries', '4')")
    assert value(dba, "select updated_at from octop_config where key = 'task.default_max_retries'") == now
    assert rows(dba, "select role, action, subject, detail from octop_audit") == [
        ("octop_operator", "config", "task.default_max_retries", {"from": 3, "to": 4})
    ]
    do(operator, "select octop_config_set('task.default_max_retries', '4')")  # no change
    assert value(dba, "select count(*) from octop_audit") == 1


def test_C069_two_sessions_that_change_settings_do_not_deadlock(database, dba):
    with (
        database.connect(autocommit=False) as one,
        database.connect(autocommit=False, options="-c lock_timeout=100ms") as two,
    ):
        do(one, "select octop_config_set('task.default_max_retries', '4')")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            do(two, "select octop_config_set('task.default_max_retries', '5')")
        two.rollback()
        one.commit()
        do(two, "select octop_config_set('task.default_max_retries', '5')")
        two.commit()
    assert value(dba, "select _octop_setting('task.default_max_retries')") == 5
