"""Days of history: made ahead, strays go home, dropped whole, and readers only ever delay it."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from octop.model.errors import TryAgainError
from tests.sql.crew import add, add_many, column, do, refused, rows, task, value

PARTITIONS = (
    "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid"
    " where i.inhparent = 'octop_tasks_done'::regclass and c.relname <> 'octop_tasks_done_stray' order by 1"
)


def partition_of(dba, task_id):
    return value(dba, "select tableoid::regclass::text from octop_tasks where id = %s", task_id)


def name_of(moment):
    return f"octop_tasks_done_{moment:%Y%m%d}"


def finish(dba, worker, count=1):
    ids = add_many(dba, count)
    worker.beat()
    worker.succeed(*worker.claim(count))
    return ids


def test_the_installer_makes_today_and_the_configured_days_ahead(database, dba):
    today = value(dba, "select now() at time zone 'UTC'")
    assert column(dba, PARTITIONS) == [name_of(today + timedelta(days=n)) for n in range(8)]
    assert value(dba, "select octop_make_days()") == 0
    assert value(dba, "select octop_make_days(9)") == 2


def test_each_day_has_an_index_on_id(dba):
    for name in column(dba, PARTITIONS):
        assert value(dba, "select count(*) from pg_indexes where tablename = %s and indexdef like '%%(id)'", name) == 1


def test_a_finished_task_lies_in_its_utc_day(database, dba, hire):
    worker = hire()
    today = value(dba, "select date_trunc('day', now() at time zone 'UTC')")
    for moment in ("00:00:00+00", "23:59:59.999999+00"):
        at = database.clock.set(f"{today:%Y-%m-%d} {moment}")
        (task_id,) = finish(dba, worker)
        assert partition_of(dba, task_id) == name_of(today)
        assert task(dba, task_id)["completed_at"] == at


def test_without_a_day_a_task_finishes_as_a_stray_and_goes_home_when_the_day_is_made(database, dba, hire):
    worker = hire()
    now = database.clock.advance(days=20)
    ids = finish(dba, worker, 5)
    assert {partition_of(dba, each) for each in ids} == {"octop_tasks_done_stray"}
    assert value(dba, "select status from octop_task(%s)", ids[0]) == "success"
    assert value(dba, "select octop_make_days()") == 8
    assert {partition_of(dba, each) for each in ids} == {name_of(now)}
    assert value(dba, "select status from octop_task(%s)", ids[0]) == "success"
    assert value(dba, "select count(*) from octop_tasks_done_stray") == 0


def test_strays_of_days_gone_by_go_home_too_and_so_are_dropped_in_time(database, dba, hire):
    worker = hire()
    then = database.clock.advance(days=20)
    (task_id,) = finish(dba, worker)
    database.clock.advance(days=3)
    assert value(dba, "select octop_make_days()") == 9
    assert partition_of(dba, task_id) == name_of(then)
    database.clock.advance(days=5)
    assert value(dba, "select octop_drop_days()") >= 0
    while value(dba, "select octop_drop_days()"):
        pass
    assert rows(dba, "select * from octop_task(%s)", task_id) == []


@pytest.mark.parametrize(
    "setting",
    [
        "TimeZone=Asia/Kolkata -c DateStyle=German",
        "TimeZone=Pacific/Kiritimati -c DateStyle=SQL,DMY",
        "TimeZone=America/St_Johns -c IntervalStyle=sql_standard",
    ],
)
def test_an_odd_session_makes_finds_and_drops_the_same_days(database, dba, hire, setting):
    worker = hire()
    (task_id,) = finish(dba, worker)
    with database.connect(options=f"-c {setting}") as odd:
        today = value(dba, "select now() at time zone 'UTC'")
        assert value(odd, "select octop_make_days(9)") == 2
        assert column(dba, PARTITIONS) == [name_of(today + timedelta(days=n)) for n in range(10)]
        assert value(dba, "select octop_make_days(9)") == 0
        assert value(odd, "select status from octop_task(%s)", task_id) == "success"
        do(odd, "select octop_enqueue('t')")
        worker.connection, before = odd, worker.connection
        assert worker.succeed(worker.claim_one()) == []
        worker.connection = before
        database.clock.advance(days=9)
        assert value(odd, "select octop_drop_days(keep_days => 7)") == 2
        assert column(dba, PARTITIONS)[0] == name_of(today + timedelta(days=2))


def test_retention_drops_whole_days_by_the_setting_and_never_today(database, dba, hire):
    worker = hire()
    (task_id,) = finish(dba, worker)
    database.clock.advance(days=7)
    assert value(dba, "select octop_drop_days()") == 0  # it ended less than seven days ago
    database.clock.advance(days=1)
    assert value(dba, "select octop_drop_days()") == 1
    assert rows(dba, "select * from octop_task(%s)", task_id) == []
    assert rows(dba, "select status, sum(n) from _octop_counted() group by 1 having sum(n) <> 0") == []
    assert column(dba, "select detail from octop_audit where action = 'drop day'") == [{"success": 1}]
    do(dba, "select octop_config_set('history.retention_days', '1')")
    assert value(dba, "select octop_drop_days()") == 3  # at most three a call
    assert value(dba, "select octop_drop_days()") == 3
    assert value(dba, "select octop_drop_days(keep_days => 1)") == 0
    assert column(dba, PARTITIONS) == [name_of(database.clock.now() - timedelta(days=1))]


def test_a_day_that_a_reader_looks_at_is_not_dropped_but_left_to_the_next_call(database, dba, hire):
    worker = hire()
    (task_id,) = finish(dba, worker)
    database.clock.advance(days=9)
    with database.connect(autocommit=False) as reader:
        do(reader, "select count(*) from octop_tasks where id = %s", task_id)
        assert value(dba, "select octop_drop_days()") == 0
        assert task(dba, task_id)["status"] == "success"
        reader.rollback()
    assert value(dba, "select octop_drop_days()") == 2


def test_a_day_is_made_while_others_write_and_put_off_while_a_reader_holds_the_strays(database, dba, hire):
    worker = hire()
    database.clock.advance(days=20)
    with database.connect(autocommit=False) as busy:
        do(busy, "select count(*) from octop_tasks_live")
        do(busy, "insert into octop_tasks (task_type) values ('t')")
        assert value(dba, "select octop_make_days()") == 8
        busy.commit()
    database.clock.advance(days=20)
    with database.connect(autocommit=False) as reader:
        do(reader, "select count(*) from octop_tasks")
        assert value(dba, "select octop_make_days()") == 0
        reader.rollback()
    assert value(dba, "select octop_make_days()") == 8
    assert len(worker.queues) == 1


def test_two_at_once_make_each_day_once(database, dba):
    database.clock.advance(days=20)
    with database.connect(autocommit=False) as other:
        assert value(other, "select octop_make_days()") == 8
        assert value(dba, "select octop_make_days()") == 0
        other.commit()
    assert value(dba, "select octop_make_days()") == 0


def test_the_sweep_makes_and_drops_days_and_a_reader_does_not_stop_the_rescue(database, dba, hire):
    worker = hire()
    database.clock.advance(days=9)
    worker.beat()
    swept = worker.sweep()
    assert (swept.days_made, swept.days_dropped) == (8, 2)
    add(dba)
    dead = hire()
    dead.claim_one()
    database.clock.advance(days=9)
    worker.become_judge(dba)
    do(dba, "update octop_tasks_live set deadline_at = null")
    with database.connect(autocommit=False) as reader:
        do(reader, "select count(*) from octop_tasks")
        swept = worker.sweep()
        assert (swept.rescued, swept.days_made, swept.days_dropped) == (1, 0, 0)
        reader.rollback()


def test_a_month_of_history_is_found_by_ids_of_every_kind(database, dba, hire):
    worker = hire()
    database.clock.advance(0)
    ids = []
    for kind in ("7", "4"):
        task_id = value(
            dba,
            "select id from octop_enqueue('t', id => %s)",
            {"7": value(dba, "select octop_uuid7()"), "4": value(dba, "select gen_random_uuid()")}[kind],
        )
        worker.beat()
        worker.succeed(worker.claim_one())
        ids.append(task_id)
    for _ in range(4):
        database.clock.advance(days=7)
        do(dba, "select octop_make_days()")
    for task_id in ids:
        assert value(dba, "select status from octop_task(%s)", task_id) == "success"


def test_a_new_day_has_the_rights_of_the_other_days_whatever_default_privileges_give(database, dba):
    reader = database.make_role(name="reader")
    do(
        dba,
        "alter default privileges for role octop_owner grant select on tables to public;"
        f" alter default privileges for role octop_owner in schema public grant all on tables to {reader} with grant option",
    )
    before = column(dba, PARTITIONS)
    assert value(dba, "select octop_make_days(9)") == 2
    (others,) = column(dba, "select coalesce(relacl, acldefault('r', relowner))::text from pg_class where relname = any (%s) group by 1", before)  # fmt: skip
    new = [each for each in column(dba, PARTITIONS) if each not in before]
    assert column(dba, "select relacl::text from pg_class where relname = any (%s)", new) == [others] * 2
    with database.connect(reader) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(connection, f"select * from {new[0]}")


def test_no_number_of_days_is_out_of_postgresqls_range(dba):
    for days in (36501, 5_000_000, 2**31 - 1):
        assert "36500" in refused("OC113", dba, f"select octop_drop_days({days})")
        assert value(dba, f"select octop_make_days({days})") in {53, 0}
    assert value(dba, "select octop_drop_days(36500)") == 0
    for days in (0, -1, -(2**31)):
        assert f"1 to 36500, not {days}" in refused("OC113", dba, "select octop_drop_days(%s)", days)
    for days in (-1, -(2**31)):
        assert f"0 or more, not {days}" in refused("OC113", dba, "select octop_make_days(%s)", days)


@pytest.fixture
def told(dba):
    """Collect what the server tells the superuser beside its answers."""
    notices = []
    dba.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    return notices


def test_who_asks_for_more_days_than_are_made_is_told(dba, told):
    assert value(dba, "select octop_make_days(60)") == 53
    assert told == []
    assert value(dba, "select octop_make_days(100)") == 0
    assert told == ["octop: days are made at most 60 ahead, not 100"]


def test_who_makes_or_drops_days_and_cannot_is_told_why_and_the_sweep_is_not(database, dba, told, hire):
    worker = hire()
    today = database.clock.advance(days=9)
    notices = []
    worker.connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    with database.connect(autocommit=False) as reader, database.connect(autocommit=False) as other:
        do(reader, "select count(*) from octop_tasks")
        do(other, "insert into octop_tasks (task_type) values ('t')")  # stands in nobody's way
        assert value(dba, "select octop_drop_days(1, 1)") == 0
        assert value(dba, "select octop_make_days(9)") == 0
        worker.beat()
        swept = worker.sweep()
        assert (swept.days_made, swept.days_dropped, notices) == (0, 0, [])
        pid = reader.info.backend_pid
        reader.rollback()
    end = f"but session {pid} reads or changes history: call again when it has ended"
    assert told == [
        f"octop: 8 days are over, {end}",
        f"octop: the day {today:%Y-%m-%d} and those after it were not made, {end}",
    ]
    assert value(dba, "select octop_drop_days(8)") == 1
    with database.connect(autocommit=False) as reader:
        do(reader, "select count(*) from octop_tasks")
        assert value(dba, "select octop_drop_days()") == 0
    assert told[2].startswith("octop: 1 day is over, but session ")
    with database.connect(autocommit=False) as maker:
        assert value(maker, "select octop_make_days(9)") == 10
        for act in ("octop_make_days(9)", "octop_drop_days()"):
            assert value(dba, f"select {act}") == 0
    assert told[3:] == ["octop: nothing was done: somebody else makes or drops days now"] * 2


@pytest.mark.parametrize(("act", "ends"), [("octop_make_days(9)", True), ("octop_drop_days()", False)])
def test_what_waits_while_days_are_made_or_dropped_is_what_the_comments_say(database, dba, hire, act, ends):
    worker = hire()
    add_many(dba, 2)
    running = worker.claim_one()
    database.clock.advance(days=0 if ends else 9)
    with database.connect(autocommit=False) as busy:
        assert value(busy, f"select {act}")
        do(dba, "set lock_timeout = '50ms'")
        worker.beat()
        assert len(worker.claim()) == 1
        if ends:
            assert worker.succeed(running) == []
        else:
            with pytest.raises(TryAgainError):
                worker.succeed(running)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            rows(dba, "select count(*) from octop_tasks")
    assert "in a transaction of its own" in value(
        dba, f"select obj_description('{act.split('(')[0]}'::regproc, 'pg_proc')"
    )


def test_who_may_make_no_day_by_hand_is_told_the_grant(dba):
    do(dba, "revoke create on schema public from octop_owner")
    with pytest.raises(
        psycopg.errors.InsufficientPrivilege, match="octop_owner may make no day in the schema public"
    ) as caught:
        value(dba, "select octop_make_days(20)")
    assert value(dba, "select octop_make_days()") == 0, "where none is missing, nothing is lacking"
    do(dba, (caught.value.diag.message_hint or "").partition(": ")[2])
    assert value(dba, "select octop_make_days(20)") == 13
